//! Room in the region that is kept for the next start.
//!
//! A start adds the rows to the indexes in another order than the transactions did. So the nodes can be filled
//! less, and there can be more of them. In a region that is full to the last chunk, such a start would fail.
//! So the store keeps some segments reserved. A crash makes them free, the start uses what it needs, and
//! reserves them again.
//!
//! Invariants
//! 1. No change of a transaction takes these segments.
//!
//! What it does not know: how much a start will need. An eighth of the region is enough unless index nodes take
//! more than an eighth of it, all of them are full before, and half full behind the start.

use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::sizes::SEGMENT_BYTES;
use crate::space::Space;
use crate::store_error::StoreResult;

/// The part of the region that is kept.
const PART: u64 = 8;
/// The fewest segments.
const SEGMENTS_MIN: u64 = 2;

/// Reserved segments.
pub(super) struct StartReserve {
    owner: Owner,
    segments: Vec<Pointer>,
}

impl StartReserve {
    pub(super) fn new(owner: Owner) -> StartReserve {
        StartReserve { owner, segments: Vec::new() }
    }

    /// Reserves what is missing, as far as there are free segments.
    pub(super) fn fill(&mut self, space: &Space) -> StoreResult<()> {
        let wanted = (space.allocator().capacity_bytes() / SEGMENT_BYTES / PART).max(SEGMENTS_MIN);
        while (self.segments.len() as u64) < wanted {
            match space.allocator().allocate(self.owner, SEGMENT_BYTES) {
                Ok(segment) => self.segments.push(segment),
                Err(MemoryError::Full { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
