//! Reads rows of leaves by columns into arrays. The filter reads the columns of its conditions for all rows of
//! a leaf. The returned columns are read only for the rows that pass.
//!
//! Invariants
//! 1. A row is put together only if the filter has a condition without a fast test (`sieve.rs`), and the row
//!    passes all fast tests.
//! 2. After `limit` rows nothing is evaluated, so a condition cannot fail for a later row.

use std::ops::ControlFlow;

use varve_engine::{Datum, LeafRows, RowRef, Shown};
use varve_sql::general::{Check, Expr, Left};

use crate::cells::CellsBuilder;
use crate::runtime_filter::RuntimeChecks;
use crate::sieve::Sieve;

/// What a row must pass.
pub struct Conditions<'b> {
    /// The filter of the scan.
    pub filter: &'b Sieve,
    /// The checks of runtime filters.
    pub checks: &'b mut RuntimeChecks,
}

/// Appends the rows that pass a filter to columns.
pub struct LeafRead<'b> {
    filter: &'b Sieve,
    /// The checks of runtime filters, for the rows that pass the filter.
    checks: &'b mut RuntimeChecks,
    /// The ordinals of the returned columns. An ordinal beyond the columns of the table means the key.
    columns: &'b [usize],
    builders: &'b mut [CellsBuilder],
    /// The number of rows after which the scan stops at the end of a leaf.
    wanted: usize,
    /// The number of rows after which the scan stops at once.
    limit: usize,
    /// The number of rows that were appended.
    pub rows: usize,
    /// The number of rows that did not pass.
    pub left_out: u64,
    /// The number of rows that pass, but have no partner in a join.
    pub unpaired: u64,
    /// The number of rows that were put together for the filter.
    pub put_together: u64,
    /// The rows that pass, as positions in the rows of the leaf.
    positions: Vec<u16>,
    /// The numbers of these rows in the leaf.
    numbers: Vec<u16>,
    /// A buffer for a key or a row.
    spare: Vec<u8>,
}

impl<'b> LeafRead<'b> {
    /// Returns an object that reads `wanted` rows that pass the filter and the checks. It also reads the other
    /// such rows of the last leaf, up to `limit` rows. If there are checks, there must be no limit.
    pub fn new(
        conditions: Conditions<'b>,
        columns: &'b [usize],
        builders: &'b mut [CellsBuilder],
        [wanted, limit]: [usize; 2],
    ) -> LeafRead<'b> {
        let Conditions { filter, checks } = conditions;
        LeafRead {
            filter,
            checks,
            columns,
            builders,
            wanted,
            limit,
            rows: 0,
            left_out: 0,
            unpaired: 0,
            put_together: 0,
            positions: Vec::new(),
            numbers: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Returns whether there are at least as many rows as wanted.
    pub fn is_full(&self) -> bool {
        self.rows >= self.wanted
    }

    /// Appends the rows of a scan that pass.
    pub fn take(&mut self, shown: &Shown<'_>, check: &mut Check<'_>) -> ControlFlow<usize> {
        match shown {
            Shown::Row(key, row) => self.take_row(key, row, check),
            Shown::Leaf(rows) => self.take_leaf(rows, check),
        }
    }

    fn take_row(&mut self, key: &[u8], row: &RowRef<'_>, check: &mut Check<'_>) -> ControlFlow<usize> {
        let passes = match self.filter.left(row) {
            Left::Out => Some(false),
            Left::In => Some(true),
            Left::If(condition) => check(condition, *row),
        };
        match passes {
            None => return ControlFlow::Break(1),
            Some(false) => self.left_out += 1,
            Some(true) if !self.checks.passes(row) => self.unpaired += 1,
            Some(true) => {
                for (column, builder) in self.columns.iter().zip(self.builders.iter_mut()) {
                    builder.push(if *column < row.len() { row.get(*column) } else { Datum::Bytea(key) });
                }
                self.rows += 1;
            }
        }
        if self.is_full() { ControlFlow::Break(1) } else { ControlFlow::Continue(()) }
    }

    fn take_leaf(&mut self, rows: &LeafRows<'_>, check: &mut Check<'_>) -> ControlFlow<usize> {
        let count = rows.numbers().len();
        self.positions.clear();
        self.positions.extend(0..count as u16);
        // A check is faster than most conditions. But a condition that can fail is tried for all rows.
        let is_checked_first = !self.filter.can_fail();
        if is_checked_first {
            self.check(rows);
        }
        let (room, unchecked) = (self.limit - self.rows, count - self.positions.len());
        match self.filter.sift(rows, &mut self.positions) {
            Some(condition) => self.check_positions(rows, condition, room, check)?,
            None => self.positions.truncate(room),
        }
        let passed = self.positions.len();
        let seen = match self.positions.last() {
            Some(last) if self.rows + passed == self.limit => usize::from(*last) + 1,
            _ => count,
        };
        if !is_checked_first {
            self.check(rows);
        }
        self.append(rows);
        self.rows += self.positions.len();
        self.left_out += (seen - unchecked - passed) as u64;
        if self.is_full() { ControlFlow::Break(seen) } else { ControlFlow::Continue(()) }
    }

    /// Removes the rows without a partner from `positions`.
    fn check(&mut self, rows: &LeafRows<'_>) {
        let before = self.positions.len();
        self.checks.sift(rows, &mut self.positions);
        self.unpaired += (before - self.positions.len()) as u64;
    }

    /// Keeps the first rows for which the condition is true, up to `room` rows.
    fn check_positions(
        &mut self,
        rows: &LeafRows<'_>,
        condition: &Expr,
        room: usize,
        check: &mut Check<'_>,
    ) -> ControlFlow<usize> {
        let mut kept = 0;
        for at in 0..self.positions.len() {
            let position = self.positions[at];
            let row = rows.row(rows.numbers()[usize::from(position)], &mut self.spare);
            self.put_together += 1;
            match check(condition, row) {
                None => return ControlFlow::Break(rows.numbers().len()),
                Some(false) => continue,
                Some(true) => self.positions[kept] = position,
            }
            kept += 1;
            if kept == room {
                break;
            }
        }
        self.positions.truncate(kept);
        ControlFlow::Continue(())
    }

    /// Appends the returned columns of the rows at `positions`.
    fn append(&mut self, rows: &LeafRows<'_>) {
        self.numbers.clear();
        self.numbers.extend(self.positions.iter().map(|position| rows.numbers()[usize::from(*position)]));
        for (ordinal, builder) in self.columns.iter().zip(self.builders.iter_mut()) {
            if *ordinal < rows.column_count() {
                builder.push_column(&rows.column(*ordinal), &self.numbers);
                continue;
            }
            for position in &self.positions {
                rows.copy_key(usize::from(*position), &mut self.spare);
                builder.push(Datum::Bytea(&self.spare));
            }
        }
    }
}
