//! The cache of physical plans. A plan stays in the cache from one execution of a statement to the next.
//!
//! A cached plan has no data of an execution. The snapshot (`Snapshot`) is set before each execution, and so
//! are the parameters, the clock and the session (`Around`). But the planner may have used some of these
//! values to make the plan. Such values are stored with the plan, and a later execution uses the plan only if
//! it has the same values.
//!
//! Invariants
//! 1. A plan is used by one execution at a time. It returns to the cache only after a successful execution.
//! 2. A cached plan holds no reader, no rows, and no memory of the memory pool.
//! 3. A plan is used only with exactly the tables for which it was made. A table whose definition has changed
//!    counts as another table.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use parking_lot::Mutex;
use varve_engine::{Reader, Table};
use varve_sql::general::{Around, Expr, Query, SqlError, push_image};

use crate::shared::SharedTable;

/// Plans that are kept at most.
const PLANS_MAX: usize = 256;
/// Statements of which it is known that they ran once.
const SEEN_MAX: usize = 8192;
/// After so long a plan is made again: tables have other rows by then.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Where scans find the readers of the execution that uses their plan.
#[derive(Default)]
pub struct Snapshot {
    reader: Mutex<Option<Reader>>,
    /// An execution has begun: what hangs on it has a value.
    begun: Arc<AtomicBool>,
}

impl Snapshot {
    /// That of this reader.
    pub fn of(reader: Reader) -> Snapshot {
        Snapshot { reader: Mutex::new(Some(reader)), begun: Arc::default() }
    }

    /// A reader of it.
    pub fn reader(&self) -> varve_sql::Result<Reader> {
        let mut reader = self.reader.lock();
        let reader =
            reader.as_mut().ok_or_else(|| SqlError::internal("a plan that runs without a snapshot"))?;
        Ok(reader.fork())
    }

    /// A reader of it for samples: what it reads decides no answer.
    pub fn unnoted_reader(&self) -> varve_sql::Result<Reader> {
        let mut reader = self.reader.lock();
        let reader =
            reader.as_mut().ok_or_else(|| SqlError::internal("a plan that runs without a snapshot"))?;
        Ok(reader.fork_unnoted())
    }

    /// The plan is made; an execution begins.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Where expressions see that an execution has begun.
    pub fn begun(&self) -> Arc<AtomicBool> {
        self.begun.clone()
    }

    fn set(&self, reader: Option<Reader>) {
        self.begun.store(false, Ordering::Relaxed);
        *self.reader.lock() = reader;
    }
}

/// The expressions of LIMIT and OFFSET, and the rows that they skip and let through.
pub type Window = (Option<Expr>, Option<Expr>, (u64, Option<u64>));

/// What a plan was made of that may be otherwise in the next execution.
#[derive(Default)]
pub struct Assumed {
    /// LIMIT and OFFSET, and what they were.
    pub windows: Vec<Window>,
    /// Constants, as images of their values.
    pub values: Vec<(Expr, Vec<u8>)>,
    /// Queries of WITH, which keep rows.
    pub shared: Vec<Arc<SharedTable>>,
    /// It holds rows that were made when it was planned.
    pub is_of_one_run: bool,
}

impl Assumed {
    fn holds(&self, around: &Around) -> bool {
        let windows = self
            .windows
            .iter()
            .all(|(limit, offset, was)| around.window(limit, offset).is_ok_and(|is| is == *was));
        windows && self.values.iter().all(|(e, was)| image(e, around).is_ok_and(|is| is == *was))
    }
}

/// The value of a constant, as bytes that tell it from all others.
pub fn image(e: &Expr, around: &Around) -> varve_sql::Result<Vec<u8>> {
    let mut out = Vec::new();
    push_image(&mut out, &around.value(e)?.as_datum());
    Ok(out)
}

/// A plan and what belongs to it.
pub struct KeptPlan {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Where it finds its surroundings; nobody else has them.
    pub around: Arc<Around>,
    /// Where it finds its readers.
    pub snapshot: Arc<Snapshot>,
    /// The tables that it reads.
    pub tables: Vec<Arc<Table>>,
    /// What else it hangs on.
    pub assumed: Arc<Assumed>,
    /// When it was made.
    pub made: Instant,
}

impl KeptPlan {
    fn is_over(&self, tables: &[Arc<Table>]) -> bool {
        self.tables.len() == tables.len() && self.tables.iter().zip(tables).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Makes it ready for an execution.
    fn begin(&self, query: &mut Query<'_>) {
        self.around.renew(&query.around);
        self.snapshot.set(Some(query.txn.reader()));
    }

    /// Takes everything of the execution that has ended out of it.
    fn end(&mut self) -> Result<()> {
        self.snapshot.set(None);
        self.assumed.shared.iter().for_each(|table| table.forget());
        self.plan = reset_plan_states(self.plan.clone())?;
        Ok(())
    }
}

/// The plans of a database that no execution uses at present.
pub struct KeptPlans {
    /// Executions of a statement before its plan is kept.
    after: u32,
    plans: Mutex<Idle>,
    /// Plans made so far.
    made: AtomicU64,
}

#[derive(Default)]
struct Idle {
    /// By number of the statement, that used last at the end.
    plans: Vec<(u64, KeptPlan)>,
    /// How often statements ran whose plans are not kept so far.
    seen: HashMap<u64, u32>,
}

impl KeptPlans {
    /// None; plans are kept when their statement has run so often.
    pub fn after(after: u32) -> KeptPlans {
        KeptPlans { after, plans: Mutex::default(), made: AtomicU64::new(0) }
    }

    /// A plan for this execution, ready to run.
    pub fn take(&self, query: &mut Query<'_>) -> Option<KeptPlan> {
        let statement = query.statement?;
        // What LIMIT asks for may take its time: the others don't wait for it.
        let candidates = self.candidates(statement, query);
        let mut fitting = candidates.iter().filter(|assumed| assumed.holds(&query.around));
        let kept = fitting.find_map(|assumed| self.of(assumed))?;
        kept.begin(query);
        Some(kept)
    }

    /// What the plans of a statement hang on that are valid for these tables and this session.
    fn candidates(&self, statement: u64, query: &Query<'_>) -> Vec<Arc<Assumed>> {
        let mut idle = self.plans.lock();
        idle.plans.retain(|(of, kept)| {
            *of != statement || kept.is_over(&query.tables) && kept.made.elapsed() < AGE_MAX
        });
        let fits = |of: u64, kept: &KeptPlan| of == statement && kept.around.is_alike(&query.around);
        let plans = idle.plans.iter().filter(|(of, kept)| fits(*of, kept));
        plans.map(|(_, kept)| kept.assumed.clone()).collect()
    }

    /// The plan to which these assumptions belong, if nobody has taken it meanwhile.
    fn of(&self, assumed: &Arc<Assumed>) -> Option<KeptPlan> {
        let mut idle = self.plans.lock();
        let at = idle.plans.iter().position(|(_, kept)| Arc::ptr_eq(&kept.assumed, assumed))?;
        Some(idle.plans.remove(at).1)
    }

    /// Whether a plan for this execution will be worth keeping: the statement has run before.
    pub fn wants(&self, query: &Query<'_>) -> bool {
        self.made.fetch_add(1, Ordering::Relaxed);
        let (Some(statement), None) = (query.statement, &query.only) else { return false };
        let mut idle = self.plans.lock();
        if idle.seen.len() >= SEEN_MAX {
            idle.seen.clear();
        }
        let seen = idle.seen.entry(statement).or_default();
        *seen += 1;
        *seen > self.after
    }

    /// Keeps a plan whose execution has ended.
    pub fn put(&self, statement: Option<u64>, mut kept: KeptPlan) -> Result<()> {
        let Some(statement) = statement.filter(|_| !kept.assumed.is_of_one_run) else { return Ok(()) };
        kept.end()?;
        let mut idle = self.plans.lock();
        if idle.plans.len() >= PLANS_MAX {
            idle.plans.remove(0);
        }
        idle.plans.push((statement, kept));
        Ok(())
    }

    /// How many plans were made so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}
