//! Room in the region that is kept for the next start.
//!
//! A start makes no more tuples and no more index nodes than there were before (`recovery.rs`). But the
//! separators between nodes can be other keys than before, whose chunks have other lengths. So one segment is
//! kept for separators. A crash makes it free, the start uses it as far as needed, and afterwards a segment
//! is reserved again.
//!
//! Invariants
//! 1. No change of a transaction takes this segment.
//!
//! This module does not know how much a start will need.

use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::sizes::SEGMENT_BYTES;
use crate::space::Space;
use crate::store_error::StoreResult;

/// The number of segments that are kept.
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

    /// Reserves the segments that are missing, as far as there are free ones.
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
