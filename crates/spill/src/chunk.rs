//! Rows in memory with a hash table: a chunk of a join's build input. Rows and buckets share one allocation.
//!
//! A cell has three parts: the next cell of the bucket (u32), a tag (u32), and the row. Until the table is
//! built, the low bits of the hash are stored in place of the next cell. The tag has other bits of the hash.
//! Its lowest bit is set when the row has matched. The buckets are at the end of the memory, one for each
//! row.
//!
//! Invariants
//! 1. All memory is allocated at once. A row that does not fit is refused.
//! 2. Rows that never match are in no bucket.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{Bytes, MemoryBudget};
use crate::page::{put_row, row_in};
use crate::row::Row;

const CELL_HEAD_BYTES: usize = 8;
const BUCKET_BYTES: usize = 4;
const NIL: u32 = u32::MAX;
const HAS_MATCHED: u32 = 1;

/// The memory of a chunk for each row, in addition to the stored bytes of the row.
pub(crate) const CHUNK_ROW_BYTES: usize = CELL_HEAD_BYTES + BUCKET_BYTES;

/// The position of a row in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell(u32);

impl Cell {
    /// The place of the first row.
    pub(crate) const FIRST: Cell = Cell(0);
}

/// A chunk of rows.
pub(crate) struct HashChunk {
    bytes: Bytes,
    /// The end of the cells.
    top: usize,
    rows: usize,
    /// The beginning of the buckets, if the table is built.
    buckets_at: usize,
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 16) as u32 & !HAS_MATCHED
}

impl HashChunk {
    /// Returns an empty chunk of this number of bytes, but of at most 4 GiB.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize) -> Result<HashChunk> {
        let len_bytes = len_bytes.min(u32::MAX as usize);
        Ok(HashChunk { bytes: Bytes::new(memory, len_bytes)?, top: 0, rows: 0, buckets_at: 0 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        (self.top, self.rows) = (0, 0);
    }

    /// Removes the rows that were loaded before `cell`. The other rows move, and the table must be built
    /// anew.
    pub(crate) fn remove_before(&mut self, cell: Cell) {
        let begin = (cell.0 as usize).min(self.top);
        self.bytes.copy_within(begin..self.top, 0);
        self.top -= begin;
        self.rows = 0;
        let mut next = self.first_cell();
        while let Some(cell) = next {
            self.rows += 1;
            next = self.next_cell(cell);
        }
    }

    /// Adds a row. Returns false if there is no room. The table is built later.
    pub(crate) fn load(&mut self, row: Row<'_>, hash: u64) -> bool {
        let at = self.top;
        let end = at + CELL_HEAD_BYTES + row.stored_bytes();
        if end + (self.rows + 1) * BUCKET_BYTES > self.bytes.len() {
            return false;
        }
        self.set_word(at, hash as u32);
        self.set_word(at + 4, tag_of(hash));
        put_row(&mut self.bytes[at + CELL_HEAD_BYTES..], row);
        self.top = end;
        self.rows += 1;
        true
    }

    /// Returns the error for a row that does not fit in an empty chunk.
    #[cold]
    pub(crate) fn too_small(&self, row: Row<'_>) -> SpillError {
        let wanted_bytes = row.stored_bytes() + CHUNK_ROW_BYTES;
        SpillError::Memory { wanted_bytes, left_bytes: self.bytes.len(), limit_bytes: self.bytes.len() }
    }

    /// Builds the table over all rows that were loaded.
    pub(crate) fn build(&mut self) {
        self.buckets_at = self.bytes.len() - self.rows * BUCKET_BYTES;
        let begin = self.buckets_at;
        self.bytes[begin..].fill(0xFF);
        let mut next = self.first_cell();
        while let Some(cell) = next {
            let at = cell.0 as usize;
            if !self.row(cell).never_matches {
                let bucket = self.bucket(self.word(at));
                let chain = self.word(bucket);
                self.set_word(at, chain);
                self.set_word(bucket, cell.0);
            }
            next = self.next_cell(cell);
        }
    }

    fn bucket(&self, low_hash: u32) -> usize {
        let number = (u64::from(low_hash) * self.rows as u64) >> 32;
        self.buckets_at + number as usize * BUCKET_BYTES
    }

    /// Returns the first row with this key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Cell> {
        if self.rows == 0 {
            return None;
        }
        self.find_from(self.word(self.bucket(hash as u32)), hash, key)
    }

    /// Returns the next row with this key after a row with this key.
    #[inline]
    pub(crate) fn find_next(&self, cell: Cell, hash: u64, key: &[u8]) -> Option<Cell> {
        self.find_from(self.word(cell.0 as usize), hash, key)
    }

    #[inline]
    fn find_from(&self, mut at: u32, hash: u64, key: &[u8]) -> Option<Cell> {
        let tag = tag_of(hash);
        while at != NIL {
            if self.word(at as usize + 4) & !HAS_MATCHED == tag && self.row(Cell(at)).key == key {
                return Some(Cell(at));
            }
            at = self.word(at as usize);
        }
        None
    }

    /// Records that a row has matched.
    #[inline]
    pub(crate) fn mark(&mut self, cell: Cell) {
        let at = cell.0 as usize + 4;
        self.set_word(at, self.word(at) | HAS_MATCHED);
    }

    pub(crate) fn has_matched(&self, cell: Cell) -> bool {
        self.word(cell.0 as usize + 4) & HAS_MATCHED != 0
    }

    #[inline]
    pub(crate) fn row(&self, cell: Cell) -> Row<'_> {
        row_in(&self.bytes[cell.0 as usize + CELL_HEAD_BYTES..])
    }

    /// Returns the row that was loaded first.
    pub(crate) fn first_cell(&self) -> Option<Cell> {
        self.first_from(Cell::FIRST)
    }

    /// Returns the place of the next row that is loaded.
    pub(crate) fn end(&self) -> Cell {
        Cell(self.top as u32)
    }

    /// Returns the row that was loaded first at this place or after it.
    pub(crate) fn first_from(&self, cell: Cell) -> Option<Cell> {
        ((cell.0 as usize) < self.top).then_some(cell)
    }

    /// Returns the row that was loaded after this row.
    pub(crate) fn next_cell(&self, cell: Cell) -> Option<Cell> {
        let next = cell.0 as usize + CELL_HEAD_BYTES + self.row(cell).stored_bytes();
        (next < self.top).then_some(Cell(next as u32))
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(NIL, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn set_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}
