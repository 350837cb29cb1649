//! Executes joins as nested loops. For each row of an outer table, the executor makes a key from the row's
//! columns, and reads the inner table by this key.
//!
//! Invariants
//! 1. While an inner table is read, no latch or page of the engine is held. The rows of the outer table are
//!    first copied, a batch at a time.
//! 2. A batch has a limited number of rows and of bytes. Only its last row may exceed the limit of bytes.
//! 3. Rows are sorted by their position in the first table of the loops, then by their position in the second
//!    one, and so on.
//!
//! This module does not know why the tables are read in this order (`crate::loops`) or where the rows go.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use varve_engine::{Datum, RowRef, ScanIndex, ScanSpec, Table, Transaction};

use super::keys::{Ranges, point_key};
use super::select::get_apart;
use super::watch::{At, Watch};
use super::{Facts, Failure, Row};
use crate::error::{Result, SqlError};
use crate::eval::{Cx, Env, Input, keep_in};
use crate::plan::{Access, Step, TableAccess};

/// The number of rows in the first batch of a step. It is small because a LIMIT may need few rows. Each later
/// batch is larger.
const BATCH_ROWS_FIRST: usize = 16;
/// The largest number of rows in a batch.
const BATCH_ROWS_MAX: usize = 1024;
/// A batch with at least this number of bytes is full.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The buffers of one step, that is of one table of the loops.
#[derive(Default)]
pub struct Level {
    /// The rows of the current batch.
    rows: Bump,
    /// Temporary values while a bound or a filter is evaluated.
    temporary: Bump,
    ranges: Ranges,
    key: Vec<u8>,
    /// The index of the range that is being read.
    range: usize,
    /// The position in this range where the last batch ended. It is empty at the beginning of the range.
    place: Vec<u8>,
}

impl Level {
    /// Returns the memory that the buffers have allocated, in bytes.
    pub fn held_bytes(&self) -> usize {
        let buffers = self.key.capacity() + self.place.capacity();
        self.rows.allocated_bytes() + self.temporary.allocated_bytes() + self.ranges.held_bytes() + buffers
    }
}

/// Receives joined rows.
pub type OnJoined<'f> = dyn FnMut(&[Datum<'_>]) -> Result<ControlFlow<()>> + 'f;

/// The state that all steps of a run share.
pub struct Loops<'r, W> {
    pub txn: &'r mut Transaction,
    pub params: &'r [Datum<'r>],
    pub env: &'r Env<'r>,
    pub facts: &'r Facts,
    pub watch: W,
    /// The number of steps around the one that runs.
    pub depth: usize,
}

impl<W: Watch> Loops<'_, W> {
    /// Runs the nested loops of `steps`. `outer` has the columns of the tables in the loops around them.
    pub fn run(
        &mut self,
        steps: &[Step],
        tables: &[Arc<Table>],
        levels: &mut [Level],
        outer: &[Datum<'_>],
        on_row: &mut OnJoined<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some((step, later_steps)) = steps.split_first() else { return on_row(outer) };
        let (Some((table, later_tables)), Some((level, later_levels))) =
            (tables.split_first(), levels.split_first_mut())
        else {
            return Err(SqlError::internal("a nested loop without its table"));
        };
        let mut one = OneStep { step, table, outer, cap: BATCH_ROWS_FIRST, bytes: Cell::new(0) };
        let (watch, at) = (self.watch, At::Loop(self.depth));
        watch.begin(at);
        if !self.begin(&one, level)? {
            return Ok(ControlFlow::Continue(()));
        }
        loop {
            watch.enter(at);
            self.facts.check_cancel()?;
            let Level { rows, temporary, ranges, key, range, place } = &mut *level;
            rows.reset();
            one.bytes.set(0);
            let mut batch = BumpVec::new_in(&*rows);
            let more = if matches!(step.target.access, Access::Point(_)) {
                self.point(&one, key, temporary, &mut batch)?;
                false
            } else {
                let mut cursor = Cursor { ranges, range, place };
                self.fill(&one, &mut cursor, temporary, &mut batch)?
            };
            watch.gave(at, batch.len() as u64);
            self.depth += 1;
            for row in &batch {
                if self.run(later_steps, later_tables, later_levels, row, on_row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.depth -= 1;
            if !more {
                return Ok(ControlFlow::Continue(()));
            }
            one.cap = (one.cap * 4).min(BATCH_ROWS_MAX);
        }
    }

    /// Evaluates the keys of a step. Returns false if the step can have no row.
    fn begin(&mut self, one: &OneStep<'_>, level: &mut Level) -> Result<bool> {
        let Level { temporary, ranges, key, range, place, .. } = level;
        let (def, row) = (one.table.def(), Input::Slots(one.outer));
        let cx = Cx { params: self.params, arena: temporary, env: self.env };
        *range = 0;
        place.clear();
        let found = match &one.step.target.access {
            Access::Point(parts) => point_key(key, def, parts, &row, &cx)?,
            Access::Ranges { columns, ranges: wanted, .. } => {
                ranges.prepare(def, columns, wanted, &row, &cx)?;
                ranges.len() > 0
            }
            Access::Full => return Err(SqlError::internal("a nested loop over a whole table")),
        };
        temporary.reset();
        Ok(found)
    }

    fn point<'s>(
        &mut self,
        one: &OneStep<'s>,
        key: &[u8],
        temporary: &mut Bump,
        batch: &mut Batch<'s>,
    ) -> Result<()> {
        let mut result = Ok(());
        let (params, env, left_out) = (self.params, self.env, self.left_out());
        get_apart(self.txn, one.table, key, self.facts, &mut |row| {
            result = one.take(&row, &Cx { params, arena: temporary, env }, batch, left_out);
        })?;
        temporary.reset();
        result
    }

    /// Returns the function to call when the condition of the current step rejects a row.
    fn left_out(&self) -> impl Fn() + Copy + use<W> {
        let (watch, at) = (self.watch, At::Loop(self.depth));
        move || watch.left_out(at)
    }

    /// Reads rows until the batch is full. Returns whether there may be more rows.
    fn fill<'s>(
        &mut self,
        one: &OneStep<'s>,
        cursor: &mut Cursor<'_>,
        temporary: &mut Bump,
        batch: &mut Batch<'s>,
    ) -> Result<bool> {
        let index = match &one.step.target.access {
            Access::Ranges { index, .. } => *index,
            Access::Full | Access::Point(_) => ScanIndex::Primary,
        };
        let (params, env, left_out) = (self.params, self.env, self.left_out());
        while *cursor.range < cursor.ranges.len() {
            let mut failure = Failure::default();
            let spec = cursor.rest(index, &one.step.target);
            let mut full = false;
            let scanned = self.txn.scan(one.table, &spec, &mut |_, row| {
                let taken = one.take(&row, &Cx { params, arena: temporary, env }, batch, left_out);
                temporary.reset();
                if failure.catch(taken.map(|()| false), true) {
                    return Ok(ControlFlow::Break(()));
                }
                if batch.len() < one.cap && one.bytes.get() < BATCH_BYTES_MAX {
                    return Ok(ControlFlow::Continue(()));
                }
                full = true;
                Ok(ControlFlow::Break(()))
            });
            failure.resolve(scanned)?;
            if full {
                cursor.place.clear();
                cursor.place.extend_from_slice(self.txn.place(index));
                return Ok(true);
            }
            *cursor.range += 1;
            cursor.place.clear();
        }
        Ok(false)
    }
}

/// Rows with the columns of this step and of all earlier steps.
type Batch<'s> = BumpVec<'s, &'s [Datum<'s>]>;

/// One execution of a step, for one row of the earlier steps.
struct OneStep<'o> {
    step: &'o Step,
    table: &'o Table,
    outer: &'o [Datum<'o>],
    /// The largest number of rows in the next batch.
    cap: usize,
    /// The bytes of the current batch. They are counted here because the arena keeps its largest chunk when
    /// it is reset. So the arena's own count says nothing about this batch.
    bytes: Cell<usize>,
}

impl OneStep<'_> {
    /// Adds a row to the batch if it passes the filter.
    #[inline]
    fn take<'s>(
        &self,
        row: &RowRef<'_>,
        cx: &Cx<'_>,
        batch: &mut Batch<'s>,
        left_out: impl Fn(),
    ) -> Result<()>
    where
        Self: 's,
    {
        let own = self.step.columns.iter().map(|c| row.get(*c));
        let values: Row<'_> = self.outer.iter().copied().chain(own).collect();
        if let Some(filter) = &self.step.filter
            && !filter.is_true(&Input::Slots(&values), cx)?
        {
            left_out();
            return Ok(());
        }
        let arena = batch.bump();
        let added = &values[self.outer.len()..];
        let row_bytes = size_of_val(values.as_slice()) + added.iter().map(kept_bytes).sum::<usize>();
        self.bytes.set(self.bytes.get() + row_bytes);
        let own = added.iter().map(|v| keep_in(arena, *v));
        let kept: Row<'s> = self.outer.iter().copied().chain(own).collect();
        batch.push(arena.alloc_slice_copy(&kept));
        Ok(())
    }
}

/// Returns the bytes of a value outside of its fixed-size place in the row.
fn kept_bytes(value: &Datum<'_>) -> usize {
    match value {
        Datum::Text(t) => t.len(),
        Datum::Bytea(b) => b.len(),
        Datum::Numeric(n) => n.as_bytes().len(),
        Datum::Array(a) => a.as_bytes().len(),
        _ => 0,
    }
}

/// The position of a step in its ranges.
struct Cursor<'l> {
    ranges: &'l Ranges,
    range: &'l mut usize,
    place: &'l mut Vec<u8>,
}

impl Cursor<'_> {
    /// Returns the scan of the rest of the current range.
    fn rest<'s>(&'s self, index: ScanIndex, target: &'s TableAccess) -> ScanSpec<'s> {
        let reverse = target.reverse;
        let at = if reverse { self.ranges.len() - 1 - *self.range } else { *self.range };
        let (lower, upper) = self.ranges.get(at);
        let (mut lower, mut upper) = (Bound::Included(lower), Bound::Excluded(upper));
        if !self.place.is_empty() {
            *(if reverse { &mut upper } else { &mut lower }) = Bound::Excluded(self.place.as_slice());
        }
        ScanSpec { index, lower, upper, reverse, limit_hint: None, columns: target.reads.as_deref() }
    }
}
