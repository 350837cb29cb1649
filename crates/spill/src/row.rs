//! Rows as operators see them, the trait of inputs, and hashes of keys.
//!
//! Invariants
//! 1. Keys are compared as bytes. Equal keys are the same bytes.
//! 2. A row that never matches (in SQL, a key with a NULL) is returned only by outer joins and anti joins.

use std::sync::Arc;

use twox_hash::XxHash64;

use crate::error::Result;
use crate::memory::MemoryBudget;

/// The number of bytes before the key of a row in the temporary space.
pub(crate) const ROW_HEAD_BYTES: usize = 8;

/// A row, with a key and other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row<'a> {
    /// The bytes by which rows are sorted, matched or grouped.
    pub key: &'a [u8],
    /// The other bytes, which no operator reads.
    pub payload: &'a [u8],
    /// Whether the key counts as different from all keys.
    pub never_matches: bool,
}

impl<'a> Row<'a> {
    /// Returns a row that can match.
    pub fn new(key: &'a [u8], payload: &'a [u8]) -> Row<'a> {
        Row { key, payload, never_matches: false }
    }

    /// Returns the number of bytes of the row in the temporary space.
    pub fn stored_bytes(&self) -> usize {
        ROW_HEAD_BYTES + self.key.len() + self.payload.len()
    }
}

/// Returns the hash of a key. Each level of partitioning has its own seed.
#[inline]
pub(crate) fn hash(key: &[u8], seed: u64) -> u64 {
    XxHash64::oneshot(seed, key)
}

/// An input of an operator.
pub trait RowSource: Send + Sync {
    /// Begins at the first row. The source may take `read_bytes` of memory for a buffer, which replaces the
    /// buffer of an earlier call. A source that can be read only once fails at the second call.
    fn rewind(&mut self, memory: &Arc<MemoryBudget>, read_bytes: usize) -> Result<()>;

    /// Moves to the next row. Returns false after the last row, and if the source waits.
    fn advance(&mut self) -> Result<bool>;

    /// Returns whether the source waits for its next row. A join then ends its step, and tries again in the
    /// next step.
    fn waits(&self) -> bool {
        false
    }

    /// Returns whether [`RowSource::rewind`] may be called again. If not, a join that needs the rows twice
    /// keeps a copy of them.
    fn can_rewind(&self) -> bool {
        true
    }

    /// Returns the current row, to which [`RowSource::advance`] moved.
    fn row(&self) -> Row<'_>;

    /// Returns the memory of the buffer. After this, only [`RowSource::rewind`] may be called.
    fn release(&mut self) {}

    /// Returns the maximum memory that [`RowSource::rewind`] takes for this read size.
    fn memory_bytes(&self, read_bytes: usize) -> usize {
        read_bytes
    }
}
