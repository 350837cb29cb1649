//! Room in the region that is kept for the next start.
//!
//! A start needs no more tuples and no more index nodes than there were before (`recovery.rs`). But separators
//! between nodes can be other keys, whose chunks have other lengths. So one segment is kept for them: a crash
//! makes it free, the start uses what it needs, and reserves it again.
//!
//! Invariants
//! 1. No change of a transaction takes this segment.
//!
//! What it does not know: how much a start will need.

use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::sizes::SEGMENT_BYTES;
use crate::space::Space;
use crate::store_error::StoreResult;

/// Segments that are kept.
const SEGMENTS: usize = 1;

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
        while self.segments.len() < SEGMENTS {
            match space.allocator().allocate(self.owner, SEGMENT_BYTES) {
                Ok(segment) => self.segments.push(segment),
                Err(MemoryError::Full { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
