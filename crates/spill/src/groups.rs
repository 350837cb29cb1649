//! Groups in memory: a hash table from keys to states of any length.
//!
//! A cell: next cell of the bucket u32, tag u32, bytes for the state u32, the row (key and state). A state
//! that is not longer than its cell permits replaces the old one. A longer one gets a new cell, of twice its
//! length if there is room. So the old cells of a state that grows take about as much as its last cell.
//! Cells and buckets share one allocation.
//!
//! Invariants
//! 1. No allocation follows the first one, except for one merged state. A part of the memory is left for it.
//! 2. Once a row was refused, no further group begins, so a group is never in memory and in a partition.
//! 3. The last group in memory may use the memory of all old cells.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{Bytes, MemoryBudget, MemoryGrant};
use crate::page::{put_row, row_in};
use crate::row::Row;

const CELL_HEAD_BYTES: usize = 12;
const NIL: u32 = u32::MAX;
/// The part of the memory that is left for a merged state.
const MERGED_SHARE: usize = 8;
/// Memory for which there is one bucket.
const BYTES_OF_BUCKET: usize = 64;

/// Merges states of a group. States are bytes; their format is the caller's.
pub trait MergeStates {
    /// Writes the state that follows from two states of a group into `merged`, which is empty.
    fn merge(&self, state: &[u8], other: &[u8], merged: &mut Vec<u8>) -> Result<()>;
}

/// What became of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// Its group is in memory.
    InMemory,
    /// Its group is not in memory, and there is no room.
    Full,
    /// Its group was in memory, and the merged state has no room. The group is no longer in memory.
    Outgrown,
    /// The caller's function failed.
    Failed(SpillError),
}

/// Groups in memory.
pub(crate) struct Groups {
    bytes: Bytes,
    /// End of the buckets.
    begin: usize,
    top: usize,
    groups: usize,
    /// Rows of further groups were refused, so no group may begin any more.
    is_frozen: bool,
    merged: Vec<u8>,
    memory: Arc<MemoryBudget>,
    /// Memory that is granted for a merged state, and the grants.
    merged_bytes: usize,
    merged_grants: Vec<MemoryGrant>,
}

impl Groups {
    /// No groups, in this much memory (at most 4 GiB). Rows of `row_bytes_max` are known to follow.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize, row_bytes_max: usize) -> Result<Groups> {
        // A state grows in steps that double its memory.
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

    /// The error for a row that does not fit in the empty table.
    #[cold]
    pub(crate) fn too_small(&self, row: Row<'_>) -> SpillError {
        let wanted_bytes = row.stored_bytes() + CELL_HEAD_BYTES + BYTES_OF_BUCKET;
        SpillError::Memory { wanted_bytes, left_bytes: self.bytes.len(), limit_bytes: self.bytes.len() }
    }

    /// The merged state of a group that was outgrown.
    pub(crate) fn take_merged(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.merged)
    }

    /// Keeps the memory of a merged state for the next one.
    pub(crate) fn reuse(&mut self, merged: Vec<u8>) {
        self.merged = merged;
    }

    /// Merges a row into its group, or makes a group of it.
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
            // Nothing leads to the old cell any more. Its memory is free when the pass ends, or when no
            // other group is in memory.
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

    /// Takes memory for a merged state that is longer than all before it.
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

    /// Adds a cell behind a link, with room for a state of `state_bytes`; false if there is no room.
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

    /// Hands all groups to `output`.
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
