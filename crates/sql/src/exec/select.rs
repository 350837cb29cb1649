//! Executes SELECT: rows pass from their source through filter, grouping, sorting and limits.
//!
//! Invariants
//! 1. Without grouping, sorting and DISTINCT a row goes to the sink at once, and nothing of it is stored.
//! 2. A read by primary key does not copy the row. The outputs are computed from the page.
//!
//! This module does not know the wire protocol or transaction blocks.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{Datum, RowImage, RowRef, ScanIndex, ScanSpec, Table, Transaction, Value};

use super::group::Groups;
use super::keys::{Ranges, point_key};
use super::loops::{Level, Loops};
use super::series::Series;
use super::sort::{CollectedRow, Sorter};
use super::watch::{At, Unwatched, Watch};
use super::{Exec, Facts, Failure, Row, Scratch, project, shown};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Env, Expr, Input, NoSequences, keep_in};
use crate::plan::{Access, Select, Source, TableAccess, Unnest};
use crate::system::SystemTable;

/// Receives rows in the form that clients see.
pub type Emit<'f> = dyn FnMut(&[Datum<'_>]) -> Result<()> + 'f;

/// The number of rows that OFFSET skips, and the number of rows that LIMIT then returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// OFFSET
    pub skip: u64,
    /// LIMIT, or `u64::MAX`
    pub take: u64,
}

impl Window {
    /// Reads the values of LIMIT and OFFSET. Fails with 2201W or 2201X if one of them is negative.
    pub fn of(limit: Option<Value>, offset: Option<Value>) -> Result<Window> {
        let count = |value: Option<Value>, state: SqlState, clause: &str| match value {
            Some(Value::Int8(n)) => match u64::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(SqlError::new(state, format!("{clause} must not be negative"))),
            },
            _ => Ok(None),
        };
        let take = count(limit, SqlState::INVALID_LIMIT, "LIMIT")?.unwrap_or(u64::MAX);
        let skip = count(offset, SqlState::INVALID_OFFSET, "OFFSET")?.unwrap_or(0);
        Ok(Window { skip, take })
    }

    /// Returns the largest number of rows to read.
    pub(super) fn reach(self) -> Option<usize> {
        usize::try_from(self.skip.checked_add(self.take)?).ok()
    }
}

/// The number of rows of a system table between two checks whether the statement is cancelled.
const SYSTEM_ROWS_BETWEEN_LOOKS: usize = 64;

/// The steps after the source: grouping, sorting, limits.
struct Pipeline<'s, 'f, W> {
    watch: W,
    groups: Option<Groups<'s>>,
    sorter: Option<Sorter>,
    held: Vec<CollectedRow<'s>>,
    arena: &'s Bump,
    window: Window,
    count: u64,
    emit: &'f mut Emit<'f>,
}

/// Returns the error for a source that only general queries have.
fn not_ours() -> SqlError {
    SqlError::internal("a general query without its runner")
}

impl<'s, 'f, W: Watch> Pipeline<'s, 'f, W> {
    fn new(plan: &Select, arena: &'s Bump, window: Window, emit: &'f mut Emit<'f>, watch: W) -> Self {
        let sorts = !plan.order.is_empty() || plan.distinct;
        let groups = plan.aggregate.as_ref().map(|a| Groups::new(a, arena));
        let sorter = sorts.then(|| Sorter::new(&plan.order, plan.visible, plan.distinct));
        Pipeline { watch, groups, sorter, held: Vec::new(), arena, window, count: 0, emit }
    }

    /// Passes on the rows of VALUES.
    fn values(
        &mut self,
        plan: &Select,
        rows: &[Vec<Expr>],
        params: &[Datum<'_>],
        arena: &mut Bump,
        env: &Env<'_>,
    ) -> Result<()> {
        for row in rows {
            env.check_cancel()?;
            let cx = Cx { params, arena, env };
            let slots = row.iter().map(|e| e.eval(&Input::None, &cx)).collect::<Result<Row<'_>>>()?;
            let flow = self.push(plan, &Input::Slots(&slots), &cx)?;
            drop(slots);
            arena.reset();
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Passes on all rows of a system table.
    fn system(
        &mut self,
        plan: &Select,
        table: &SystemTable,
        params: &[Datum<'_>],
        arena: &mut Bump,
        facts: &Facts,
    ) -> Result<()> {
        let env = facts.env(&NoSequences);
        for (n, row) in table.rows(env.world()?).iter().enumerate() {
            if n % SYSTEM_ROWS_BETWEEN_LOOKS == 0 {
                facts.check_cancel()?;
            }
            let cx = Cx { params, arena, env: &env };
            let slots: Row<'_> = row.iter().map(Value::as_datum).collect();
            let flow = self.push(plan, &Input::Slots(&slots), &cx)?;
            drop(slots);
            arena.reset();
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Passes on the values of a series.
    fn series(
        &mut self,
        plan: &Select,
        series: Series,
        params: &[Datum<'_>],
        arena: &mut Bump,
        facts: &Facts,
    ) -> Result<()> {
        let env = facts.env(&NoSequences);
        for value in series {
            let cx = Cx { params, arena, env: &env };
            let flow = self.push(plan, &Input::Slots(&[value]), &cx)?;
            arena.reset();
            if flow.is_break() {
                break;
            }
            facts.check_cancel()?;
        }
        Ok(())
    }

    /// Passes on rows with one element of each array. Shorter arrays are filled up with NULL.
    fn unnest(
        &mut self,
        plan: &Select,
        unnest: &Unnest,
        params: &[Datum<'_>],
        arena: &mut Bump,
        env: &Env<'_>,
    ) -> Result<()> {
        let held = Bump::new();
        for row in unnest.rows(&Cx { params, arena: &held, env })? {
            env.check_cancel()?;
            let cx = Cx { params, arena, env };
            let slots: Row<'_> = row.into();
            let flow = self.push(plan, &Input::Slots(&slots), &cx)?;
            drop(slots);
            arena.reset();
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether each row of the source becomes one row of the result.
    fn streams(&self, plan: &Select) -> bool {
        self.groups.is_none() && self.sorter.is_none() && plan.filter.is_none()
    }

    /// Processes one row of the source.
    #[inline]
    fn push<'a>(&mut self, plan: &'a Select, row: &Input<'a>, cx: &Cx<'a>) -> Result<ControlFlow<()>> {
        if let Some(filter) = &plan.filter
            && !filter.is_true(row, cx)?
        {
            self.watch.left_out(At::Source);
            return Ok(ControlFlow::Continue(()));
        }
        self.watch.gave(At::Source, 1);
        match (&mut self.groups, &plan.aggregate) {
            (Some(groups), Some(aggregate)) => {
                self.watch.enter(At::Group);
                groups.add(aggregate, row, cx)?;
                self.watch.enter(At::Source);
                Ok(ControlFlow::Continue(()))
            }
            _ => self.output(plan, row, cx),
        }
    }

    /// Computes the outputs of one row, and sorts or emits them.
    fn output<'a>(&mut self, plan: &'a Select, row: &Input<'a>, cx: &Cx<'a>) -> Result<ControlFlow<()>> {
        if let Some(sorter) = &self.sorter {
            self.watch.enter(At::Sort);
            let mut values: Row<'s> = Row::new();
            for output in &plan.outputs {
                values.push(keep_in(self.arena, output.expr.eval(row, cx)?));
            }
            self.held.push(sorter.hold(self.arena.alloc_slice_copy(&values)));
            self.watch.enter(At::Source);
            return Ok(ControlFlow::Continue(()));
        }
        if self.window.skip > 0 {
            self.window.skip -= 1;
            return Ok(ControlFlow::Continue(()));
        }
        let values = project(&plan.outputs[..plan.visible], row, cx)?;
        self.watch.gave(At::Limit, 1);
        (self.emit)(&values)?;
        self.count += 1;
        Ok(if self.count >= self.window.take { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Processes groups and sorted rows after the last row of the source.
    fn finish(
        mut self,
        plan: &Select,
        row_arena: &mut Bump,
        params: &[Datum<'_>],
        env: &Env<'_>,
    ) -> Result<u64> {
        if let (Some(groups), Some(aggregate)) = (self.groups.take(), &plan.aggregate) {
            self.watch.enter(At::Group);
            for slots in groups.finish(aggregate)? {
                env.check_cancel()?;
                let cx = Cx { params, arena: row_arena, env };
                let input = Input::Slots(slots);
                let kept = aggregate.having.as_ref().map_or(Ok(true), |h| h.is_true(&input, &cx))?;
                if kept {
                    self.watch.gave(At::Group, 1);
                } else {
                    self.watch.left_out(At::Group);
                }
                if kept && self.output(plan, &input, &cx)?.is_break() {
                    return Ok(self.count);
                }
                row_arena.reset();
                self.watch.enter(At::Group);
            }
        }
        if let Some(sorter) = &self.sorter {
            self.watch.enter(At::Sort);
            let given = self.held.len();
            sorter.sort(&mut self.held, env)?;
            let wanted = self.window.reach().unwrap_or(usize::MAX).min(self.held.len());
            self.watch.gave(At::Sort, if plan.distinct { given } else { wanted } as u64);
            self.watch.gave(At::Unique, wanted as u64);
            let skip = usize::try_from(self.window.skip).unwrap_or(usize::MAX);
            let take = usize::try_from(self.window.take).unwrap_or(usize::MAX);
            for held in self.held.iter().skip(skip).take(take) {
                env.check_cancel()?;
                let cx = Cx { params, arena: row_arena, env };
                let mut values = Row::new();
                for (output, value) in plan.outputs[..plan.visible].iter().zip(held.row) {
                    values.push(shown(output, *value, &cx)?);
                }
                self.watch.gave(At::Limit, 1);
                (self.emit)(&values)?;
                self.count += 1;
                drop(values);
                row_arena.reset();
            }
        }
        Ok(self.count)
    }
}

impl Exec<'_> {
    /// Runs a SELECT. Returns the number of rows that `emit` has got.
    pub fn select(&mut self, plan: &Select, tables: &[Arc<Table>], emit: &mut Emit<'_>) -> Result<u64> {
        match self.meter {
            None => self.watched_select(plan, tables, emit, Unwatched),
            Some(meter) => self.watched_select(plan, tables, emit, meter),
        }
    }

    fn watched_select(
        &mut self,
        plan: &Select,
        tables: &[Arc<Table>],
        emit: &mut Emit<'_>,
        watch: impl Watch,
    ) -> Result<u64> {
        let table = tables.first();
        if let Source::Table(TableAccess { access: Access::Point(parts), .. }) = &plan.source
            && let Some(table) = table
            && plan.aggregate.is_none()
            && plan.lock.is_none()
            && plan.limit.is_none()
            && plan.offset.is_none()
        {
            return self.point(plan, parts, table, emit, watch);
        }
        watch.begin(At::Limit);
        let window = self.window(plan)?;
        if window.take == 0 {
            return Ok(0);
        }
        match (&plan.lock, table) {
            (Some(lock), Some(table)) => self.locking(plan, table, lock, window, emit),
            _ => self.rows(plan, tables, window, emit, watch),
        }
    }

    /// Reads the row with one primary key.
    fn point(
        &mut self,
        plan: &Select,
        parts: &[Expr],
        table: &Table,
        emit: &mut Emit<'_>,
        watch: impl Watch,
    ) -> Result<u64> {
        watch.begin(At::Source);
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, key, .. } = &mut *self.scratch;
        let cx = Cx { params: self.params, arena: row_arena, env: &env };
        if !point_key(key, table.def(), parts, &Input::None, &cx)? {
            return Ok(0);
        }
        let mut result = Ok(0);
        get_apart(self.txn, table, key, self.facts, &mut |row| {
            result = one_row(plan, &row, &cx, emit);
            match result {
                Ok(0) => watch.left_out(At::Source),
                _ => watch.gave(At::Source, 1),
            }
        })?;
        row_arena.reset();
        result
    }

    fn window(&mut self, plan: &Select) -> Result<Window> {
        let mut value = |e: &Option<Expr>| e.as_ref().map(|e| self.scalar(e)).transpose();
        let (limit, offset) = (value(&plan.limit)?, value(&plan.offset)?);
        Window::of(limit, offset)
    }

    fn rows(
        &mut self,
        plan: &Select,
        tables: &[Arc<Table>],
        window: Window,
        emit: &mut Emit<'_>,
        watch: impl Watch,
    ) -> Result<u64> {
        for at in [At::Unique, At::Sort, At::Group, At::Source] {
            watch.begin(at);
        }
        let facts = self.facts;
        let env = facts.env(&NoSequences);
        let Scratch { row_arena, result_arena, ranges, levels, .. } = &mut *self.scratch;
        let mut emit = |row: &[Datum<'_>]| emit(row);
        let mut pipeline = Pipeline::new(plan, result_arena, window, &mut emit, watch);
        match &plan.source {
            Source::Table(target) => {
                let Some(table) = tables.first() else {
                    return Err(SqlError::internal("a scan without its table"));
                };
                prepare_ranges(ranges, table, &target.access, self.params, row_arena, &env)?;
                let hint = if pipeline.streams(plan) { window.reach() } else { None };
                let (params, mut failure, mut seen) = (self.params, Failure::default(), 0u32);
                let scanned = scan(self.txn, table, target, ranges, hint, &mut |_, row| {
                    let cx = Cx { params, arena: row_arena, env: &env };
                    let flow = pipeline.push(plan, &Input::Row(row), &cx);
                    row_arena.reset();
                    seen = seen.wrapping_add(1);
                    let flow = if seen.is_multiple_of(1024) { facts.check_cancel().and(flow) } else { flow };
                    Ok(failure.catch(flow, ControlFlow::Break(())))
                });
                failure.resolve(scanned)?;
            }
            Source::Loops(steps) => {
                levels.resize_with(steps.len().max(levels.len()), Level::default);
                let params = self.params;
                let mut loops = Loops { txn: self.txn, params, env: &env, facts, watch, depth: 0 };
                let _ = loops.run(steps, tables, levels, &[], &mut |values| {
                    let cx = Cx { params, arena: row_arena, env: &env };
                    let flow = pipeline.push(plan, &Input::Slots(values), &cx);
                    row_arena.reset();
                    flow
                })?;
            }
            Source::Nothing => {
                let sequences =
                    super::sequence::InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
                let env = facts.env(&sequences);
                let cx = Cx { params: self.params, arena: row_arena, env: &env };
                let _ = pipeline.push(plan, &Input::None, &cx)?;
            }
            Source::Values(rows, _) => pipeline.values(plan, rows, self.params, row_arena, &env)?,
            Source::System(system) => pipeline.system(plan, system, self.params, row_arena, facts)?,
            Source::Join(_) | Source::Query(_) | Source::Set(_) | Source::Target(_) => return Err(not_ours()),
            Source::Shared(_) | Source::Work(..) | Source::Expand(_) => return Err(not_ours()),
            Source::Unnest(unnest) => pipeline.unnest(plan, unnest, self.params, row_arena, &env)?,
            Source::Series(bounds, ty) => {
                let series = Series::new(bounds, *ty, self.params, row_arena, &env)?;
                pipeline.series(plan, series, self.params, row_arena, facts)?;
            }
        }
        pipeline.finish(plan, row_arena, self.params, &env)
    }

    /// Fills the session's key list with the keys of the rows that an access path finds and that pass a
    /// filter.
    pub(super) fn find_rows(
        &mut self,
        table: &Table,
        target: &TableAccess,
        filter: Option<&Expr>,
    ) -> Result<()> {
        match self.meter {
            None => self.find_watched(table, target, filter, Unwatched),
            Some(meter) => self.find_watched(table, target, filter, meter),
        }
    }

    fn find_watched(
        &mut self,
        table: &Table,
        target: &TableAccess,
        filter: Option<&Expr>,
        watch: impl Watch,
    ) -> Result<()> {
        watch.begin(At::Source);
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, ranges, found, .. } = &mut *self.scratch;
        found.clear();
        prepare_ranges(ranges, table, &target.access, self.params, row_arena, &env)?;
        let mut failure = Failure::default();
        let params = self.params;
        let facts = self.facts;
        let scanned = scan(self.txn, table, target, ranges, None, &mut |key, row| {
            let cx = Cx { params, arena: row_arena, env: &env };
            let passes = filter.map_or(Ok(true), |f| f.is_true(&Input::Row(row), &cx));
            row_arena.reset();
            match passes.and_then(|p| facts.check_cancel().map(|()| p)) {
                Ok(true) => {
                    found.push(key);
                    watch.gave(At::Source, 1);
                }
                Ok(false) => watch.left_out(At::Source),
                Err(e) => failure.set(e),
            }
            Ok(if failure.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        failure.resolve(scanned)
    }
}

/// Reads a row. While `found` runs, the row's page is latched. So if the statement has functions that may
/// wait, `found` gets a copy of the row, and no latch is held.
#[inline]
pub(super) fn get_apart(
    txn: &mut Transaction,
    table: &Table,
    key: &[u8],
    facts: &Facts,
    found: &mut dyn FnMut(RowRef<'_>),
) -> Result<bool> {
    if facts.world.is_none() {
        return Ok(txn.get(table, key, found)?);
    }
    let mut copy = None;
    txn.get(table, key, &mut |row| copy = Some(RowImage::from_bytes(row.as_bytes().to_vec())))?;
    if let Some(copy) = &copy {
        found(copy.as_row(table.def().row_schema()));
    }
    Ok(copy.is_some())
}

#[inline]
fn one_row<'a>(plan: &'a Select, row: &RowRef<'a>, cx: &Cx<'a>, emit: &mut Emit<'_>) -> Result<u64> {
    let input = Input::Row(*row);
    if let Some(filter) = &plan.filter
        && !filter.is_true(&input, cx)?
    {
        return Ok(0);
    }
    let values = project(&plan.outputs[..plan.visible], &input, cx)?;
    emit(&values)?;
    Ok(1)
}

/// Evaluates the bounds of an access path.
pub(super) fn prepare_ranges(
    ranges: &mut Ranges,
    table: &Table,
    access: &Access,
    params: &[Datum<'_>],
    arena: &mut Bump,
    env: &Env<'_>,
) -> Result<()> {
    let cx = Cx { params, arena, env };
    match access {
        Access::Full => {}
        Access::Point(parts) => ranges.prepare_point(table.def(), parts, &cx)?,
        Access::Ranges { columns, ranges: wanted, .. } => {
            ranges.prepare(table.def(), columns, wanted, &Input::None, &cx)?
        }
    }
    arena.reset();
    Ok(())
}

/// Follows an access path whose ranges are prepared.
pub(super) fn scan(
    txn: &mut Transaction,
    table: &Table,
    target: &TableAccess,
    ranges: &Ranges,
    hint: Option<usize>,
    on_row: &mut varve_engine::OnRow<'_>,
) -> Result<(), varve_engine::Error> {
    let reverse = target.reverse;
    let index = match &target.access {
        Access::Full => {
            return txn.scan(table, &ScanSpec { reverse, limit_hint: hint, ..ScanSpec::ALL }, on_row);
        }
        Access::Point(_) => ScanIndex::Primary,
        Access::Ranges { index, .. } => *index,
    };
    let mut stopped = false;
    for n in 0..ranges.len() {
        let (lower, upper) = ranges.get(if reverse { ranges.len() - 1 - n } else { n });
        let spec = ScanSpec {
            index,
            lower: Bound::Included(lower),
            upper: Bound::Excluded(upper),
            reverse,
            limit_hint: hint,
            columns: target.reads.as_deref(),
        };
        txn.scan(table, &spec, &mut |key, row| {
            let flow = on_row(key, row)?;
            stopped = flow.is_break();
            Ok(flow)
        })?;
        if stopped {
            break;
        }
    }
    Ok(())
}
