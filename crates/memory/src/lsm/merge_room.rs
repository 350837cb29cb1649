//! The room that a store leaves free for a merge of all its entries.
//!
//! A merge writes its output before the room of its inputs becomes free. So a region that inserts have filled
//! would have no room for the merge that gives the room of deleted rows back. Inserts and updates are refused
//! earlier: when the free room is as large as the output of a merge of all entries can be.
//!
//! Invariants
//! 1. Nothing is allocated for this room. Other stores of the region may take it.
//!
//! This module does not know how runs are merged.

use super::run::Run;
use crate::error::MemoryError;
use crate::pointer::Owner;
use crate::sizes::SEGMENT_BYTES;
use crate::state::Allocator;

/// The output of a merge may be larger than the entries by one in this number: nodes, filter, and the unused
/// ends of chunks. Tombstones need room, too.
const OVERHEAD_SHARE: u64 = 4;
/// Further room, which the MemTable, the log, and files take in pieces.
const SLACK_BYTES: u64 = 4 * SEGMENT_BYTES;
/// Blocks of files and small chunks of arenas have this many bytes.
const BLOCK_BYTES: u64 = 16_384;
/// A merge is worthwhile if one in this number of bytes is not in the oldest run. Otherwise a full region
/// would merge everything for each deleted row.
const WORTHWHILE_SHARE: u64 = 64;

/// The room that a merge of all entries needs, and the room that is free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeRoom {
    /// Bytes of the entries in the MemTable, and in all runs except the oldest one.
    newer_bytes: u64,
    /// Bytes of the entries in the oldest run.
    oldest_bytes: u64,
    free_bytes: u64,
}

impl MergeRoom {
    /// Computes the room of a store whose chunks belong to `owner`. Its runs are sorted, newest first.
    pub(crate) fn of(runs: &[Run], memtable_bytes: u64, allocator: &Allocator, owner: Owner) -> MergeRoom {
        let oldest_bytes = runs.last().map_or(0, |run| run.entry_bytes);
        let runs_bytes: u64 = runs.iter().map(|run| run.entry_bytes).sum();
        let newer_bytes = memtable_bytes + (runs_bytes - oldest_bytes);
        MergeRoom { newer_bytes, oldest_bytes, free_bytes: allocator.free_bytes_for(owner, BLOCK_BYTES) }
    }

    fn needed_bytes(self) -> u64 {
        let entries_bytes = self.newer_bytes + self.oldest_bytes;
        entries_bytes + entries_bytes / OVERHEAD_SHARE + SLACK_BYTES
    }

    /// Returns whether a merge of all entries has room.
    pub(crate) fn is_kept(self) -> bool {
        self.free_bytes >= self.needed_bytes()
    }

    /// Returns whether a merge of all entries may free enough for the work that it costs.
    pub(crate) fn is_merge_worthwhile(self) -> bool {
        self.newer_bytes.saturating_mul(WORTHWHILE_SHARE) >= self.oldest_bytes.max(1)
    }

    /// Returns the error for a change that would take this room.
    pub(crate) fn refusal(self) -> MemoryError {
        MemoryError::Full { needed_bytes: self.needed_bytes(), free_bytes: self.free_bytes }
    }
}
