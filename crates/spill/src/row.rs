//! Rows as operators see them, the trait of inputs, and hashes of keys.
//!
//! Invariants
//! 1. Keys are compared as bytes. Equal keys are the same bytes.
//! 2. A row that never matches (in SQL: a key with NULL) is returned by outer joins and anti joins only.

use std::sync::Arc;

use twox_hash::XxHash64;

use crate::error::Result;
use crate::memory::MemoryBudget;

/// Bytes in front of the key of a row in the temporary space.
pub(crate) const ROW_HEAD_BYTES: usize = 8;

/// A row: its key and the bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row<'a> {
    /// Bytes by which rows are sorted, matched or grouped.
    pub key: &'a [u8],
    /// Other bytes, which no operator looks at.
    pub payload: &'a [u8],
    /// The key equals no other key.
    pub never_matches: bool,
}

impl<'a> Row<'a> {
    /// A row that can match.
    pub fn new(key: &'a [u8], payload: &'a [u8]) -> Row<'a> {
        Row { key, payload, never_matches: false }
    }

    /// Bytes of the row in the temporary space.
    pub fn stored_bytes(&self) -> usize {
        ROW_HEAD_BYTES + self.key.len() + self.payload.len()
    }
}

/// The hash of a key. Each level of partitioning has a seed of its own.
#[inline]
pub(crate) fn hash(key: &[u8], seed: u64) -> u64 {
    XxHash64::oneshot(seed, key)
}

/// An input of an operator.
pub trait RowSource: Send + Sync {
    /// Begins at the first row. The source may take `read_bytes` of memory for a buffer, which replaces the
    /// buffer of an earlier call. A source that can be read only once fails at the second call.
    fn rewind(&mut self, memory: &Arc<MemoryBudget>, read_bytes: usize) -> Result<()>;

    /// Goes to the next row; false behind the last row, and if the source waits.
    fn advance(&mut self) -> Result<bool>;

    /// Whether the source has more rows, but not yet. A join then ends its step, and asks again in the next
    /// one.
    fn waits(&self) -> bool {
        false
    }

    /// Whether [`RowSource::rewind`] may be called again. If not, a join keeps a copy of the rows where it
    /// needs them twice.
    fn can_rewind(&self) -> bool {
        true
    }

    /// The row to which [`RowSource::advance`] went.
    fn row(&self) -> Row<'_>;

    /// Gives the buffer back. Only [`RowSource::rewind`] may follow.
    fn release(&mut self) {}

    /// Memory that [`RowSource::rewind`] takes for this read size at most.
    fn memory_bytes(&self, read_bytes: usize) -> usize {
        read_bytes
    }
}
