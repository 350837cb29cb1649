//! Groups in memory: a hash table from keys to states of any length.
//!
//! A cell has four parts: the next cell of the bucket (u32), a tag (u32), the room for the state in bytes
//! (u32), and the row (key and state). A merged state that fits into the cell replaces the old state. A
//! longer state gets a new cell, with room for twice its length if possible. So the old cells of a growing
//! state need about as much memory as its last cell. Cells and buckets share one allocation.
//!
//! Invariants
//! 1. All memory is allocated at once, except for one merged state. A part of the memory is left for this
//!    state.
//! 2. After a row was refused, no new group is added. So a group is never both in memory and in a partition.
//! 3. The last group in memory may use the memory of all old cells.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{Bytes, MemoryBudget, MemoryGrant};
use crate::page::{put_row, row_in};
use crate::row::Row;

const CELL_HEAD_BYTES: usize = 12;
const NIL: u32 = u32::MAX;
/// The memory divided by this number is left for a merged state.
const MERGED_SHARE: usize = 8;
/// There is one bucket for this number of bytes of memory.
const BYTES_OF_BUCKET: usize = 64;

/// Merges states of a group. States are bytes, whose format only the caller knows.
pub trait MergeStates {
    /// Merges two states of a group, and writes the result into `merged`, which is empty.
    fn merge(&self, state: &[u8], other: &[u8], merged: &mut Vec<u8>) -> Result<()>;
}

/// The result of merging a row into its group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// The group of the row is in memory.
    InMemory,
    /// The group of the row is not in memory, and there is no room for it.
    Full,
    /// The group of the row was in memory, but there is no room for the merged state. The group was removed
    /// from memory.
    Outgrown,
    /// The caller's function failed.
    Failed(SpillError),
}

/// Groups in memory.
pub(crate) struct Groups {
    bytes: Bytes,
    /// The end of the buckets.
    begin: usize,
    top: usize,
    groups: usize,
    /// Whether a row of a new group was refused. No new group may be added then.
    is_frozen: bool,
    merged: Vec<u8>,
    memory: Arc<MemoryBudget>,
    /// The memory that is granted for a merged state. The field `merged_grants` has its grants.
    merged_bytes: usize,
    merged_grants: Vec<MemoryGrant>,
}

impl Groups {
    /// Returns an empty table with this number of bytes (at most 4 GiB). Rows of up to `row_bytes_max` bytes
    /// are expected.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize, row_bytes_max: usize) -> Result<Groups> {
        // The memory of a merged state grows by doubling.
        let merged_bytes = (len_bytes / MERGED_SHARE).max(2 * row_bytes_max).min(len_bytes / 2);
        let merged_grants = vec![memory.take(merged_bytes)?];
        let mut bytes = Bytes::new(memory, (len_bytes - merged_bytes).min(u32::MAX as usize))?;
        let begin = bytes.len() / BYTES_OF_BUCKET * 4;
        bytes[..begin].fill(0xFF);
        Ok(Groups {
            bytes,
            begin,
            top: begin,
            groups: 0,
            is_frozen: false,
            merged: Vec::new(),
            memory: Arc::clone(memory),
            merged_bytes,
            merged_grants,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups == 0
    }

    /// Returns the error for a row that does not fit in an empty table.
    #[cold]
    pub(crate) fn too_small(&self, row: Row<'_>) -> SpillError {
        let wanted_bytes = row.stored_bytes() + CELL_HEAD_BYTES + BYTES_OF_BUCKET;
        SpillError::Memory { wanted_bytes, left_bytes: self.bytes.len(), limit_bytes: self.bytes.len() }
    }

    /// Takes the merged state of a group that has no room in memory any more.
    pub(crate) fn take_merged(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.merged)
    }

    /// Keeps the memory of a merged state for the next one.
    pub(crate) fn reuse(&mut self, merged: Vec<u8>) {
        self.merged = merged;
    }

    /// Merges a row into its group, or adds a new group with this row.
    pub(crate) fn merge(&mut self, row: Row<'_>, hash: u64, states: &dyn MergeStates) -> Merged {
        let Some(bucket) = self.bucket(hash) else { return Merged::Full };
        let tag = (hash >> 32) as u32;
        let (mut link, mut at) = (bucket, self.word(bucket));
        while at != NIL {
            let cell = at as usize;
            if self.word(cell + 4) == tag && self.row(cell).key == row.key {
                return self.merge_into(cell, link, row, states);
            }
            (link, at) = (cell, self.word(cell));
        }
        self.is_frozen = self.is_frozen || !self.add(bucket, tag, row, row.payload.len());
        if self.is_frozen { Merged::Full } else { Merged::InMemory }
    }

    fn merge_into(&mut self, cell: usize, link: usize, row: Row<'_>, states: &dyn MergeStates) -> Merged {
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        let is_merged = states.merge(self.row(cell).payload, row.payload, &mut merged);
        if let Err(error) = is_merged.and_then(|()| self.account_for(merged.capacity())) {
            return Merged::Failed(error);
        }
        let group = Row::new(row.key, &merged);
        let outcome = if merged.len() <= self.word(cell + 8) as usize {
            put_row(&mut self.bytes[cell + CELL_HEAD_BYTES..], group);
            Merged::InMemory
        } else {
            let (next, tag) = (self.word(cell), self.word(cell + 4));
            self.set_word(link, next);
            self.groups -= 1;
            // The old cell is no longer linked. Its memory is reused when the pass ends, or when no other
            // group is in memory.
            if self.groups == 0 {
                self.top = self.begin;
            }
            let is_added =
                self.add(link, tag, group, 2 * merged.len()) || self.add(link, tag, group, merged.len());
            self.is_frozen |= !is_added;
            if is_added { Merged::InMemory } else { Merged::Outgrown }
        };
        self.merged = merged;
        outcome
    }

    /// Takes more memory from the budget, if a merged state is longer than all earlier ones.
    #[inline]
    fn account_for(&mut self, capacity_bytes: usize) -> Result<()> {
        if capacity_bytes > self.merged_bytes {
            self.merged_grants.push(self.memory.take(capacity_bytes - self.merged_bytes)?);
            self.merged_bytes = capacity_bytes;
        }
        Ok(())
    }

    fn bucket(&self, hash: u64) -> Option<usize> {
        let buckets = self.begin / 4;
        (buckets > 0).then(|| ((u64::from(hash as u32) * buckets as u64) >> 32) as usize * 4)
    }

    /// Adds a cell after a link, with room for a state of `state_bytes`. Returns false if there is no room.
    fn add(&mut self, link: usize, tag: u32, row: Row<'_>, state_bytes: usize) -> bool {
        let spare_bytes = state_bytes.saturating_sub(row.payload.len());
        let (at, end) = (self.top, self.top + CELL_HEAD_BYTES + row.stored_bytes() + spare_bytes);
        if end > self.bytes.len() {
            return false;
        }
        let next = self.word(link);
        self.set_word(at, next);
        self.set_word(at + 4, tag);
        self.set_word(at + 8, (row.payload.len() + spare_bytes) as u32);
        put_row(&mut self.bytes[at + CELL_HEAD_BYTES..], row);
        self.set_word(link, at as u32);
        self.top = end;
        self.groups += 1;
        true
    }

    /// Passes all groups to `output`.
    pub(crate) fn for_each(&self, output: &mut dyn FnMut(Row<'_>) -> Result<()>) -> Result<()> {
        for bucket in (0..self.begin).step_by(4) {
            let mut at = self.word(bucket);
            while at != NIL {
                output(self.row(at as usize))?;
                at = self.word(at as usize);
            }
        }
        Ok(())
    }

    fn row(&self, cell: usize) -> Row<'_> {
        row_in(&self.bytes[cell + CELL_HEAD_BYTES..])
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(NIL, |bytes| u32::from_le_bytes(*bytes))
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}
