//! Room in the region that is kept for deletes.
//!
//! A delete needs room: for copies of nodes, for tombstones, or for a record of the log. A region that inserts
//! have filled has none. So each store keeps a few segments. A delete that finds the region full gives them up,
//! and is tried again. They are reserved again when there are free segments at the end of a transaction.
//!
//! Invariants
//! 1. Only deletes take these segments. For inserts, the segments are not free.
//! 2. The segments are reserved and never active. So a crash makes them free.
//!
//! This module does not know how much a delete needs. A transaction that deletes more than a few hundred rows
//! can use up the reserve.

use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::sizes::SEGMENT_BYTES;
use crate::space::Space;
use crate::store_error::StoreResult;

/// The largest number of segments that a store keeps.
const SEGMENTS_MAX: u64 = 4;
/// A store keeps at most one in this number of its region's segments, but always at least one segment.
const SEGMENTS_SHARE: u64 = 16;

/// Reserved segments.
pub(crate) struct DeleteReserve {
    owner: Owner,
    segments: Vec<Pointer>,
}

impl DeleteReserve {
    /// Returns a reserve that has no segments yet. It allocates them for `owner`.
    pub(crate) fn new(owner: Owner) -> DeleteReserve {
        DeleteReserve { owner, segments: Vec::new() }
    }

    /// Reserves the segments that are missing, as far as there are free ones.
    pub(crate) fn fill(&mut self, space: &Space) -> StoreResult<()> {
        let wanted = (space.chunks_max(SEGMENT_BYTES) / SEGMENTS_SHARE).clamp(1, SEGMENTS_MAX);
        while (self.segments.len() as u64) < wanted {
            match space.allocator().allocate(self.owner, SEGMENT_BYTES) {
                Ok(segment) => self.segments.push(segment),
                Err(MemoryError::Full { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives up all segments. Returns whether there were any.
    pub(crate) fn give_up(&mut self, space: &Space) -> StoreResult<bool> {
        let had_segments = !self.segments.is_empty();
        while let Some(segment) = self.segments.pop() {
            space.give_up(segment)?;
        }
        Ok(had_segments)
    }
}
