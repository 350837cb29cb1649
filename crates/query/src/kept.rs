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
use varve_sql::general::{Around, Expr, Query, SmartMode, SqlError, push_image};

use crate::shared::SharedTable;

/// The maximum number of plans in the cache.
const PLANS_MAX: usize = 256;
/// The maximum number of statements whose executions are counted.
const SEEN_MAX: usize = 8192;
/// The age after which a plan is not used again. The tables may have changed, so another plan may be better.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The snapshot of an execution. The scans of a plan get their readers from here.
#[derive(Default)]
pub struct Snapshot {
    reader: Mutex<Option<Reader>>,
    /// Whether an execution has begun. Only then can values that depend on the execution be computed.
    begun: Arc<AtomicBool>,
}

impl Snapshot {
    /// Returns the snapshot of this reader.
    pub fn of(reader: Reader) -> Snapshot {
        Snapshot { reader: Mutex::new(Some(reader)), begun: Arc::default() }
    }

    /// Returns a reader of the snapshot.
    pub fn reader(&self) -> varve_sql::Result<Reader> {
        let mut reader = self.reader.lock();
        let reader =
            reader.as_mut().ok_or_else(|| SqlError::internal("a plan that runs without a snapshot"))?;
        Ok(reader.fork())
    }

    /// Returns a reader of the snapshot for samples. Its reads are not recorded, because they do not affect
    /// the result of the query.
    pub fn unnoted_reader(&self) -> varve_sql::Result<Reader> {
        let mut reader = self.reader.lock();
        let reader =
            reader.as_mut().ok_or_else(|| SqlError::internal("a plan that runs without a snapshot"))?;
        Ok(reader.fork_unnoted())
    }

    /// Marks the beginning of an execution, after the plan was made.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns the flag that tells expressions that an execution has begun.
    pub fn begun(&self) -> Arc<AtomicBool> {
        self.begun.clone()
    }

    fn set(&self, reader: Option<Reader>) {
        self.begun.store(false, Ordering::Relaxed);
        *self.reader.lock() = reader;
    }
}

/// The expressions of LIMIT and OFFSET, and their values: the number of rows to skip and the number of rows
/// to return.
pub type Window = (Option<Expr>, Option<Expr>, (u64, Option<u64>));

/// The values that were used to make a plan, and that may differ in the next execution.
#[derive(Default)]
pub struct Assumed {
    /// LIMIT and OFFSET, with their values at the time of planning.
    pub windows: Vec<Window>,
    /// Constant expressions, with images of their values at the time of planning.
    pub values: Vec<(Expr, Vec<u8>)>,
    /// The queries of WITH of the plan. They store rows, which must be removed after an execution.
    pub shared: Vec<Arc<SharedTable>>,
    /// Whether the plan contains rows that were computed at the time of planning. Such a plan is not cached.
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

/// Returns the value of a constant as bytes. Different values have different bytes.
pub fn image(e: &Expr, around: &Around) -> varve_sql::Result<Vec<u8>> {
    let mut out = Vec::new();
    push_image(&mut out, &around.value(e)?.as_datum());
    Ok(out)
}

/// A plan in the cache, with the data that belongs to it.
pub struct KeptPlan {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The surroundings of the plan. No other plan uses them.
    pub around: Arc<Around>,
    /// The snapshot from which the plan gets its readers.
    pub snapshot: Arc<Snapshot>,
    /// The tables that it reads.
    pub tables: Vec<Arc<Table>>,
    /// The other values that the plan depends on.
    pub assumed: Arc<Assumed>,
    /// Whether its scans may run in a smart device.
    pub smart: SmartMode,
    /// The time when the plan was made.
    pub made: Instant,
}

impl KeptPlan {
    fn is_over(&self, tables: &[Arc<Table>]) -> bool {
        self.tables.len() == tables.len() && self.tables.iter().zip(tables).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Prepares the plan for an execution.
    fn begin(&self, query: &mut Query<'_>) {
        self.around.renew(&query.around);
        self.snapshot.set(Some(query.txn.reader()));
    }

    /// Removes all data of the finished execution from the plan.
    fn end(&mut self) -> Result<()> {
        self.snapshot.set(None);
        self.assumed.shared.iter().for_each(|table| table.forget());
        self.plan = reset_plan_states(self.plan.clone())?;
        Ok(())
    }
}

/// The cached plans of a database. A plan that an execution uses is not among them.
pub struct KeptPlans {
    /// The number of executions of a statement after which its next plan is cached.
    after: u32,
    plans: Mutex<Idle>,
    /// The number of plans that were made so far.
    made: AtomicU64,
}

#[derive(Default)]
struct Idle {
    /// The plans, each with the number of its statement. The last plan is the most recently used one.
    plans: Vec<(u64, KeptPlan)>,
    /// The number of times that a plan was made for each statement.
    seen: HashMap<u64, u32>,
}

impl KeptPlans {
    /// Returns an empty cache. The plan of a statement is cached after `after` earlier executions.
    pub fn after(after: u32) -> KeptPlans {
        KeptPlans { after, plans: Mutex::default(), made: AtomicU64::new(0) }
    }

    /// Takes a plan for this execution from the cache, and prepares it.
    pub fn take(&self, query: &mut Query<'_>) -> Option<KeptPlan> {
        let statement = query.statement?;
        // The evaluation of LIMIT may take long. So it runs without the lock of the cache.
        let candidates = self.candidates(statement, query);
        let mut fitting = candidates.iter().filter(|assumed| assumed.holds(&query.around));
        let kept = fitting.find_map(|assumed| self.of(assumed))?;
        kept.begin(query);
        Some(kept)
    }

    /// Returns the assumptions of those plans of a statement that are valid for these tables and this
    /// session. Removes plans of the statement that are too old or were made for other tables.
    fn candidates(&self, statement: u64, query: &Query<'_>) -> Vec<Arc<Assumed>> {
        let mut idle = self.plans.lock();
        idle.plans.retain(|(of, kept)| {
            *of != statement || kept.is_over(&query.tables) && kept.made.elapsed() < AGE_MAX
        });
        let fits = |of: u64, kept: &KeptPlan| {
            of == statement && kept.around.is_alike(&query.around) && kept.smart == query.limits.smart_scan
        };
        let plans = idle.plans.iter().filter(|(of, kept)| fits(*of, kept));
        plans.map(|(_, kept)| kept.assumed.clone()).collect()
    }

    /// Takes the plan to which these assumptions belong, if no other execution has taken it meanwhile.
    fn of(&self, assumed: &Arc<Assumed>) -> Option<KeptPlan> {
        let mut idle = self.plans.lock();
        let at = idle.plans.iter().position(|(_, kept)| Arc::ptr_eq(&kept.assumed, assumed))?;
        Some(idle.plans.remove(at).1)
    }

    /// Counts a plan that is made for this execution. Returns whether the plan should be cached, because the
    /// statement has run often enough before.
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

    /// Puts a plan into the cache after its execution has ended.
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

    /// Returns the number of plans that were made so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}
