//! The interface to the runner of general queries. General queries are those that this crate's executor
//! cannot run, such as most joins. The crate `varve-query` implements the runner with DataFusion.
//!
//! Invariants
//! 1. The executor and the runner share expressions, casts, aggregates and key encoding. So values, types and
//!    errors are the same on both sides.
//! 2. A runner reads only through the [`Reader`]s of the running statement, and drops them before it returns.
//! 3. A runner returns values in the executor's representation. The session formats them for the client, for
//!    example with padding.
//!
//! This module does not know how a runner works.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bumpalo::Bump;
use parking_lot::{Mutex, RwLock};
use varve_engine::{
    Datum, PageCounts, RowRef, ScanIndex, ScanSpec, Table, TableDef, TemporaryQuota, Transaction, Value,
};

use crate::encoding::Encoding;
use crate::error::Result;
use crate::eval::{Cx, Env, Input, NoSequences, Sequences, unless_cancelled};
use crate::exec::keys::Ranges;
use crate::exec::select::Window;
pub use crate::exec::series::Series;
pub use crate::exec::sets::SetRows;
use crate::exec::{self, Beside, Facts, Row};
use crate::system::SystemContext;
use crate::time::{self, TimeForms};

pub use crate::access::{Choice, choose, conjuncts, joined};
pub use crate::error::{SqlError, SqlState};
pub use crate::eval::arith::{ArithOp, Class};
pub use crate::eval::func::json::quoted as push_json_string;
pub use crate::eval::pattern::matches as like_matches;
pub use crate::eval::{CmpOp, Expr, Like, Outcomes};
pub use crate::exec::group::bits;
pub use crate::exec::moments::Moments;
pub use crate::exec::sum::Sum;
pub use crate::explain::cost::{Estimate, GROUPS, Rates};
pub use crate::explain::expression::shown as shown_expression;
pub use crate::explain::short::scan_of;
pub use crate::explain::{Actual, Step};
pub use crate::join_method::JoinMethod;
pub use crate::panics::{WorkerPanic, caught_on_worker};
pub use crate::plan::{
    Access, AggCall, AggKind, Aggregate, Exclude, Expand, Frame, FrameBound, FrameUnits, Join, JoinKind,
    Lateral, Moment, OrderKey, Output, Recursion, Select, SetFunction, SetKind, SetOperation, Shared,
    SharedBody, SortKey, Source, Subquery, SubqueryKind, TableAccess, Unnest, WinCall, WinFunction,
};
pub use crate::smart_mode::SmartMode;
pub use crate::system::SystemTable;
pub use crate::system::names::quoted as quoted_name;
pub use crate::ty::{Ty, Typed};
pub use crate::value_bytes::{push_image, push_key, take_image};

/// Receives result rows.
pub type Emit<'f> = dyn FnMut(&[Datum<'_>]) -> Result<()> + 'f;

/// Runs general queries.
pub trait General: Send + Sync {
    /// Runs a query to its end. Returns the number of rows that were passed to `emit`.
    fn run(&self, query: Query<'_>, emit: &mut Emit<'_>) -> Result<u64>;

    /// Returns the steps of the query's plan, without running it. Their costs are estimated if there are
    /// rates.
    fn explain(&self, query: Query<'_>, rates: Option<Rates>) -> Result<Step>;

    /// Returns the memory of all queries together, in bytes.
    fn memory_bytes(&self) -> u64;

    /// Returns whether a smart device is configured, so that scans of tables may be faster with the runner.
    fn has_smart_device(&self) -> bool;

    /// Runs a query as `run` does, and measures each step.
    fn analyze(&self, query: Query<'_>, gauge: Gauge, emit: &mut Emit<'_>) -> Result<(u64, Analyzed)>;
}

/// The measurements that are made for each step of a query.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    /// Whether the time is measured.
    pub timing: bool,
    /// The costs of single operations, from which costs of steps are computed. `None` if no costs are shown.
    pub rates: Option<Rates>,
}

/// The measurements of a query.
#[derive(Debug)]
pub struct Analyzed {
    /// The steps with their measurements.
    pub plan: Step,
    /// The time for planning.
    pub planning: Duration,
    /// The pages that were used for planning.
    pub planning_pages: PageCounts,
}

/// A query to run.
pub struct Query<'q> {
    /// The query.
    pub select: &'q Select,
    /// The opened tables of [`Select::tables`].
    pub tables: Vec<Arc<Table>>,
    /// The transaction, used only to get readers.
    pub txn: &'q mut Transaction,
    /// The values that expressions may need.
    pub around: Arc<Around>,
    /// A single row that replaces the rows of the query's source.
    pub only: Option<OnlyRow>,
    /// The number of the statement, if its plan may be kept for the next execution. The number is unique in
    /// this process.
    pub statement: Option<u64>,
    /// The limits.
    pub limits: Limits,
}

/// The limits of a query.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The memory of a sort, a group or a join, in bytes. A step that needs more continues in temporary
    /// files, even if more memory is free.
    pub work_bytes: u64,
    /// The limit of these files.
    pub temporary: Arc<TemporaryQuota>,
    /// How tables are joined by equality.
    pub join_method: JoinMethod,
    /// Whether scans run in a smart device.
    pub smart_scan: SmartMode,
}

/// A row that replaces the rows of a query's source.
pub struct OnlyRow {
    /// The values.
    pub values: Vec<Value>,
    /// The types of the values.
    pub types: Vec<Ty>,
}

/// The values that expressions may need in addition to their row (parameters, clock, session). Any thread can
/// use this object.
///
/// A plan that is run several times uses the same object, which is renewed for each execution.
#[derive(Debug)]
pub struct Around {
    /// The parameters of the statement, followed by the values for a subquery.
    params: RwLock<Vec<Value>>,
    /// The types of the values for a subquery.
    given: Box<[Ty]>,
    /// Whether it belongs to a subquery.
    is_inner: bool,
    /// The number of times that the subquery got values.
    runs: AtomicU64,
    /// The objects of its subqueries, which are renewed with it.
    inner: Mutex<Vec<Arc<Around>>>,
    random: AtomicU64,
    moment: RwLock<Arc<Occasion>>,
}

/// The time and the session of an execution.
#[derive(Debug)]
struct Occasion {
    now_us: i64,
    forms: TimeForms,
    encoding: Encoding,
    user: String,
    session_user: String,
    database: String,
    process_id: i32,
    cancel: Arc<AtomicBool>,
    world: Option<Arc<SystemContext>>,
}

impl Around {
    /// Makes the object for one execution.
    pub(crate) fn new(facts: &Facts, params: &[Datum<'_>]) -> Around {
        let moment = Occasion {
            now_us: facts.env(&NoSequences).now_us(),
            forms: facts.forms.clone(),
            encoding: facts.encoding,
            user: facts.user.clone(),
            session_user: facts.session_user.clone(),
            database: facts.database.clone(),
            process_id: facts.process_id,
            cancel: facts.cancel.clone(),
            world: facts.world.clone(),
        };
        Around {
            params: RwLock::new(params.iter().map(Datum::to_value).collect()),
            given: Box::default(),
            is_inner: false,
            runs: AtomicU64::new(0),
            inner: Mutex::default(),
            random: AtomicU64::new(facts.env(&NoSequences).next_random()),
            moment: RwLock::new(Arc::new(moment)),
        }
    }

    /// Returns a copy of this object for a plan that may be kept in the plan cache. Later executions of the
    /// plan renew the copy, while the current execution may still use this object.
    pub fn apart(&self) -> Arc<Around> {
        Arc::new(Around {
            params: RwLock::new(self.params_within(0)),
            given: Box::default(),
            is_inner: false,
            runs: AtomicU64::new(0),
            inner: Mutex::default(),
            random: AtomicU64::new(self.random.fetch_add(1, Ordering::Relaxed) + 1),
            moment: RwLock::new(self.moment()),
        })
    }

    /// Makes the object for a subquery that gets values of these types. They are parameters after those of
    /// the statement, and NULL until they are set.
    pub fn within(&self, types: impl Iterator<Item = Ty>) -> Arc<Around> {
        let given: Box<[Ty]> = types.collect();
        let inner = Around {
            params: RwLock::new(self.params_within(given.len())),
            given,
            is_inner: true,
            runs: AtomicU64::new(0),
            inner: Mutex::default(),
            random: AtomicU64::new(self.random.fetch_add(1, Ordering::Relaxed) + 1),
            moment: RwLock::new(self.moment()),
        };
        let inner = Arc::new(inner);
        self.inner.lock().push(inner.clone());
        inner
    }

    fn moment(&self) -> Arc<Occasion> {
        self.moment.read().clone()
    }

    /// Returns the statement's parameters, followed by this number of NULLs.
    fn params_within(&self, given: usize) -> Vec<Value> {
        let own = self.statement_params();
        let mut params = self.params.read()[..own].to_vec();
        params.resize(params.len() + given, Value::Null);
        params
    }

    /// Takes over the parameters, clock and session of another execution of the same statement, also for its
    /// subqueries.
    pub fn renew(&self, next: &Around) {
        let params = next.params_within(self.given.len());
        *self.params.write() = params;
        *self.moment.write() = next.moment();
        self.random.store(next.random.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.inner.lock().iter().for_each(|inner| inner.renew(next));
    }

    /// Returns whether constants that depend on the session's settings have the same values in both objects.
    pub fn is_alike(&self, other: &Around) -> bool {
        let (one, other) = (self.moment(), other.moment());
        one.forms == other.forms && one.encoding == other.encoding
    }

    /// Returns the number of the statement's parameters. The parameters after them are the values for a
    /// subquery.
    pub fn statement_params(&self) -> usize {
        self.params.read().len() - self.given.len()
    }

    /// Returns the types of the values for the subquery.
    pub fn given_types(&self) -> &[Ty] {
        &self.given
    }

    /// Sets the values of a subquery for its next run.
    pub fn give(&self, values: &[Value]) {
        assert_eq!(values.len(), self.given.len(), "a value for each that the subquery takes");
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut params = self.params.write();
        let first = params.len() - values.len();
        params[first..].clone_from_slice(values);
    }

    /// Returns whether it belongs to a subquery, which runs several times.
    pub fn is_within(&self) -> bool {
        self.is_inner
    }

    /// Returns the number of the run, which is the number of times that the subquery got values.
    pub fn run(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns the value of a parameter.
    pub fn param(&self, n: usize) -> Value {
        self.params.read()[n].clone()
    }

    /// Returns the type of a parameter's value, or `None` for NULL.
    pub fn param_type(&self, n: usize) -> Option<Ty> {
        match n.checked_sub(self.statement_params()) {
            Some(given) => self.given.get(given).copied(),
            None => self.params.read().get(n).and_then(crate::eval::type_of),
        }
    }

    /// Returns the rows of a system table, each with all its columns.
    pub fn system_rows(&self, table: &SystemTable) -> Result<Vec<Box<[Value]>>> {
        let world = self.with(|_, env| env.world().map(|world| table.rows(world)))?;
        Ok(world)
    }

    /// Returns the error 57014 if the statement was cancelled.
    pub fn check_cancel(&self) -> Result<()> {
        unless_cancelled(&self.moment.read().cancel)
    }

    /// Calls `f` with parameters and environment in the executor's form.
    fn with<R>(&self, f: impl FnOnce(&[Datum<'_>], &Env<'_>) -> R) -> R {
        let values = self.params.read();
        let params: Row<'_> = values.iter().map(Value::as_datum).collect();
        let moment = self.moment();
        let (now_us, random) =
            (Cell::new(Some(moment.now_us)), Cell::new(self.random.load(Ordering::Relaxed)));
        let beside = moment.world.as_deref().map(Beside);
        let env = Env {
            now_us: &now_us,
            forms: &moment.forms,
            encoding: moment.encoding,
            user: &moment.user,
            session_user: &moment.session_user,
            database: &moment.database,
            process_id: moment.process_id,
            random: &random,
            cancel: &moment.cancel,
            world: moment.world.as_deref(),
            sequences: beside.as_ref().map_or(&NoSequences as &dyn Sequences, |beside| beside),
            lists: Default::default(),
        };
        let result = f(&params, &env);
        self.random.store(random.get(), Ordering::Relaxed);
        result
    }

    /// Evaluates `expr` for `rows` rows. `slot` returns their slots by row and ordinal. Checks for
    /// cancellation, because joins spend much time here.
    pub fn evaluate<'v>(
        &self,
        expr: &Expr,
        rows: usize,
        slots: usize,
        slot: impl Fn(usize, usize) -> Datum<'v>,
        mut out: impl FnMut(Datum<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_cancel()?;
        let mut arena = Bump::new();
        self.with(|params, env| {
            for n in 0..rows {
                env.check_cancel()?;
                let cx = Cx { params, arena: &arena, env };
                let values: Row<'_> = (0..slots).map(|s| slot(n, s)).collect();
                out(expr.eval(&Input::Slots(&values), &cx)?)?;
                drop(values);
                arena.reset();
            }
            Ok(())
        })
    }

    /// Returns the value of a constant expression.
    pub fn value(&self, expr: &Expr) -> Result<Value> {
        // Literals are returned at once. An evaluation begins with all parameters, and a list of 1,000
        // literals has 1,000 parameters.
        match expr {
            Expr::Const(value) => return Ok(value.clone()),
            Expr::Param(n) => {
                if let Some(value) = self.params.read().get(*n) {
                    return Ok(value.clone());
                }
            }
            _ => {}
        }
        let arena = Bump::new();
        self.with(|params, env| {
            let cx = Cx { params, arena: &arena, env };
            expr.eval(&Input::None, &cx).map(|d| d.to_value())
        })
    }

    /// Returns the value of a constant expression. Returns `None` if the evaluation fails, or if the value is
    /// NULL, because the type would be lost.
    pub fn constant(&self, expr: &Expr) -> Option<Value> {
        self.value(expr).ok().filter(|value| !matches!(value, Value::Null))
    }

    /// Returns the number of rows that OFFSET skips, and the number that LIMIT allows.
    pub fn window(&self, limit: &Option<Expr>, offset: &Option<Expr>) -> Result<(u64, Option<u64>)> {
        let arena = Bump::new();
        let value = |e: &Option<Expr>| -> Result<Option<Value>> {
            self.with(|params, env| {
                let cx = Cx { params, arena: &arena, env };
                e.as_ref().map(|e| Ok(e.eval(&Input::None, &cx)?.to_value())).transpose()
            })
        };
        let window = Window::of(value(limit)?, value(offset)?)?;
        Ok((window.skip, (window.take != u64::MAX).then_some(window.take)))
    }

    /// Passes the rows of VALUES to `out`.
    pub fn values(&self, rows: &[Vec<Expr>], out: &mut dyn FnMut(&[Datum<'_>])) -> Result<()> {
        let mut arena = Bump::new();
        self.with(|params, env| {
            for row in rows {
                let cx = Cx { params, arena: &arena, env };
                let values = row.iter().map(|e| e.eval(&Input::None, &cx)).collect::<Result<Row<'_>>>()?;
                out(&values);
                drop(values);
                arena.reset();
            }
            Ok(())
        })
    }

    /// Passes the rows of unnest to `out`.
    pub fn unnested(&self, unnest: &Unnest, mut out: impl FnMut(&[Datum<'_>])) -> Result<()> {
        let arena = Bump::new();
        self.with(|params, env| {
            let rows = unnest.rows(&Cx { params, arena: &arena, env })?;
            rows.iter().try_for_each(|row| {
                out(row);
                env.check_cancel()
            })
        })
    }

    /// Returns the rows that a set-returning function returns for these arguments.
    pub fn set_rows(&self, function: SetFunction, arguments: &[Datum<'_>]) -> Result<SetRows> {
        let moment = self.moment();
        let look = || unless_cancelled(&moment.cancel);
        SetRows::new(function, arguments, &moment.forms.zone, &look)
    }

    /// Returns the values of generate_series.
    pub fn series(&self, bounds: &[Expr; 3], ty: Ty) -> Result<Series> {
        let arena = Bump::new();
        self.with(|params, env| Series::new(bounds, ty, params, &arena, env))
    }

    /// Returns the byte ranges of an access path, in key order. For the whole table it is one range without
    /// bounds.
    pub fn ranges(&self, table: &TableDef, access: &Access) -> Result<Vec<KeyBytes>> {
        let (columns, wanted) = match access {
            Access::Full => return Ok(vec![KeyBytes::default()]),
            Access::Point(parts) => {
                let range = crate::plan::KeyRange { equal: parts.to_vec(), ..Default::default() };
                (table.key_columns(), vec![range])
            }
            Access::Ranges { columns, ranges, .. } => (&**columns, ranges.to_vec()),
        };
        let arena = Bump::new();
        let mut out = Ranges::default();
        self.with(|params, env| {
            out.prepare(table, columns, &wanted, &Input::None, &Cx { params, arena: &arena, env })
        })?;
        let bytes = |n| {
            let (lower, upper) = out.get(n);
            KeyBytes { lower: Bound::Included(lower.to_vec()), upper: Bound::Excluded(upper.to_vec()) }
        };
        Ok((0..out.len()).map(bytes).collect())
    }

    /// Reads rows that pass a filter, until `on_row` breaks.
    pub fn filtered(
        &self,
        filter: Option<&Expr>,
        scan: impl FnOnce(&mut varve_engine::OnRow<'_>) -> Result<(), varve_engine::Error>,
        on_row: impl FnMut(&[u8], RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.sieved(|_| filter.map_or(Left::In, Left::If), scan, on_row)
    }

    /// Does the same as `filtered`, but `left` says for each row which check is left.
    pub fn sieved<'f>(
        &self,
        left: impl Fn(&RowRef<'_>) -> Left<'f>,
        scan: impl FnOnce(&mut varve_engine::OnRow<'_>) -> Result<(), varve_engine::Error>,
        mut on_row: impl FnMut(&[u8], RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut arena, mut failure) = (Bump::new(), exec::Failure::default());
        let scanned = self.with(|params, env| {
            scan(&mut |key, row| {
                let filter = match left(&row) {
                    Left::Out => return Ok(ControlFlow::Continue(())),
                    Left::In => return Ok(on_row(key, row)),
                    Left::If(filter) => filter,
                };
                let passes = filter.is_true(&Input::Row(row), &Cx { params, arena: &arena, env });
                arena.reset();
                Ok(match passes {
                    Ok(true) => on_row(key, row),
                    Ok(false) => ControlFlow::Continue(()),
                    Err(e) => {
                        failure.set(e);
                        ControlFlow::Break(())
                    }
                })
            })
        });
        failure.resolve(scanned)
    }

    /// Runs a scan that checks conditions on some of its rows. If a check fails, the scan must end, and the
    /// error of the check is returned.
    pub fn checking(
        &self,
        scan: impl FnOnce(&mut Check<'_>) -> Result<(), varve_engine::Error>,
    ) -> Result<()> {
        let (mut arena, mut failure) = (Bump::new(), exec::Failure::default());
        let scanned = self.with(|params, env| {
            scan(&mut |condition, row| {
                let holds = condition.is_true(&Input::Row(row), &Cx { params, arena: &arena, env });
                arena.reset();
                failure.catch(holds.map(Some), None)
            })
        });
        failure.resolve(scanned)
    }
}

/// Evaluates a condition on a row. Returns `None` if the evaluation failed.
pub type Check<'c> = dyn FnMut(&Expr, RowRef<'_>) -> Option<bool> + 'c;

/// The check that is left for a row.
pub enum Left<'f> {
    /// No check is left. The row does not pass.
    Out,
    /// No check is left. The row passes.
    In,
    /// The row passes if this expression is true.
    If(&'f Expr),
}

/// A range of keys as bytes.
#[derive(Debug, Clone)]
pub struct KeyBytes {
    /// Lower bound.
    pub lower: Bound<Vec<u8>>,
    /// Upper bound.
    pub upper: Bound<Vec<u8>>,
}

impl Default for KeyBytes {
    fn default() -> Self {
        KeyBytes { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
}

impl KeyBytes {
    /// Returns the specification of a scan of this index over the range.
    pub fn spec(&self, index: ScanIndex, limit_hint: Option<usize>) -> ScanSpec<'_> {
        let (lower, upper) = (self.lower.as_ref(), self.upper.as_ref());
        ScanSpec {
            index,
            lower: lower.map(Vec::as_slice),
            upper: upper.map(Vec::as_slice),
            reverse: false,
            limit_hint,
            columns: None,
        }
    }
}

/// Returns the value at this fraction of the way from one number or interval to another.
pub fn interpolated(from: &Value, to: &Value, part: f64) -> Result<Value> {
    match (from, to) {
        (Value::Float8(a), Value::Float8(b)) => Ok(Value::Float8(a + part * (b - a))),
        (Value::Interval(a), Value::Interval(b)) => {
            let way = time::add_intervals(*b, time::negate_interval(*a)?)?;
            let way = time::scale_interval(way, part, false)?;
            time::add_intervals(*a, way).map(Value::Interval)
        }
        _ => Err(SqlError::internal("values that nothing lies between")),
    }
}

/// Returns an empty array for elements of this type.
pub fn array_of(element: Ty) -> varve_engine::Array {
    crate::array::of(element.oid())
}
