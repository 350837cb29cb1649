//! Reads the rows of several stores in the order of an index.
//!
//! Invariants
//! 1. Two stores never have the same key in an index of one table.
//! 2. No latch of a store is held while a row is passed to the closure.
//!
//! This module does not know how rows are spread, or the locks of partitions.

use std::ops::{Bound, ControlFlow};

use varve_memory::{Direction, KeyRange};

use crate::core::Core;
use crate::error::Result;
use crate::partitions::StoredTable;

/// The number of rows in the first piece that is read from a store. Each later piece has twice as many rows.
const PIECE_ROWS_MIN: usize = 8;
const PIECE_ROWS_MAX: usize = 512;
/// A piece ends when it has at least this number of bytes.
const PIECE_BYTES: usize = 256 << 10;

/// The range of an index to read.
pub(super) struct Wanted<'k> {
    pub(super) index: usize,
    pub(super) range: KeyRange<'k>,
    pub(super) direction: Direction,
}

/// The next rows of one store.
struct Piece {
    at: StoredTable,
    /// Keys and rows, one after the other.
    bytes: Vec<u8>,
    /// Where the key and the row of each entry end.
    ends: Vec<(usize, usize)>,
    /// The index of the next entry.
    next: usize,
    rows_max: usize,
    is_last: bool,
}

impl Piece {
    fn new(at: StoredTable) -> Piece {
        let (bytes, ends) = (Vec::new(), Vec::new());
        Piece { at, bytes, ends, next: 0, rows_max: PIECE_ROWS_MIN, is_last: false }
    }

    /// Returns the key and the row of an entry.
    fn entry(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, row_end) = *self.ends.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        Some((self.bytes.get(start..key_end)?, self.bytes.get(key_end..row_end)?))
    }

    /// Reads the next piece, if all entries of this one were taken.
    fn refill(&mut self, core: &Core, wanted: &Wanted<'_>) -> Result<()> {
        if self.is_last || self.next < self.ends.len() {
            return Ok(());
        }
        let last = self.ends.len().checked_sub(1).and_then(|at| self.entry(at)).map(|(key, _)| key.to_vec());
        let mut range = wanted.range;
        match (&last, wanted.direction) {
            (None, _) => {}
            (Some(key), Direction::Forward) => range.from = Bound::Excluded(key),
            (Some(key), Direction::Backward) => range.to = Bound::Excluded(key),
        }
        (self.next, self.is_last) = (0, true);
        self.bytes.clear();
        self.ends.clear();
        let store = core.partitions.read(self.at.partition)?;
        store.scan(self.at.table, wanted.index, &range, wanted.direction, &mut |key, row| {
            self.bytes.extend_from_slice(key);
            let key_end = self.bytes.len();
            self.bytes.extend_from_slice(row);
            self.ends.push((key_end, self.bytes.len()));
            if self.ends.len() < self.rows_max && self.bytes.len() < PIECE_BYTES {
                return ControlFlow::Continue(());
            }
            self.is_last = false;
            ControlFlow::Break(())
        })?;
        self.rows_max = (2 * self.rows_max).min(PIECE_ROWS_MAX);
        Ok(())
    }

    fn next_key(&self) -> Option<&[u8]> {
        self.entry(self.next).map(|(key, _)| key)
    }
}

/// Calls `on_row` with the key and the row of each entry, in the order of the index, until it breaks.
pub(super) fn scan(
    core: &Core,
    tables: impl Iterator<Item = StoredTable>,
    wanted: &Wanted<'_>,
    on_row: &mut varve_memory::OnRow<'_>,
) -> Result<()> {
    let mut pieces: Vec<Piece> = tables.map(Piece::new).collect();
    loop {
        pieces.iter_mut().try_for_each(|piece| piece.refill(core, wanted))?;
        let full = pieces.iter_mut().filter(|piece| piece.next_key().is_some());
        let first = match wanted.direction {
            Direction::Forward => full.min_by(|a, b| a.next_key().cmp(&b.next_key())),
            Direction::Backward => full.max_by(|a, b| a.next_key().cmp(&b.next_key())),
        };
        let Some(piece) = first else { return Ok(()) };
        if let Some((key, row)) = piece.entry(piece.next)
            && on_row(key, row).is_break()
        {
            return Ok(());
        }
        piece.next += 1;
    }
}
