//! Delete marks of index entries that a transaction has collected and not yet set. `paged/marks.rs` sets
//! them.
//!
//! This module does not know trees.

use crate::sort::Arena;

/// Entries of one index that will be marked.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) keys: Arena,
    /// For each entry: the number of the transaction's undo records when the entry was added. The last of
    /// them is that of its row.
    pub(crate) records: Vec<u64>,
}

/// Entries that will be marked in the indexes of one table.
pub(crate) struct Marks {
    /// The table's clustered tree.
    pub(crate) owner: u32,
    pub(crate) of_index: Vec<Entries>,
}

impl Marks {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.of_index.iter().map(|entries| entries.keys.memory_bytes() + 8 * entries.records.len()).sum()
    }

    /// Drops the marks of undo records after the first `record_count`, which are left after a rollback.
    pub(crate) fn undone_to(&mut self, record_count: u64) {
        for entries in &mut self.of_index {
            let kept = entries.records.partition_point(|record| *record <= record_count);
            entries.records.truncate(kept);
            entries.keys.truncate(kept);
        }
    }
}
