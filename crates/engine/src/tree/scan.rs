//! The state of a scan: bounds, direction and the batch copied from the last leaf.
//!
//! Invariants
//! 1. Between batches a scan holds no latch and no pin; it seeks again by key.
//! 2. Each entry that is in the tree during the whole scan is seen once.
//!
//! Does not know: visibility; a batch holds delete-marked entries too.

use std::ops::Bound;

use crate::node::EntryRef;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// A scan between two bounds. Reusable: `reset` keeps its buffers.
pub struct Scan {
    _bytes: Vec<u8>,
}

impl Scan {
    /// A scan over the keys between `lower` and `upper`, `limit` entries a batch at most (0: a whole leaf).
    pub fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction, limit: usize) -> Self {
        unimplemented!()
    }

    /// Entries in the current batch.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether the current batch is empty.
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }

    /// An entry of the current batch, in the scan's order.
    pub fn entry(&self, index: usize) -> EntryRef<'_> {
        unimplemented!()
    }

    /// Newest transaction that changed the leaf of the current batch (secondary trees).
    pub fn newest_txn(&self) -> u64 {
        unimplemented!()
    }
}
