//! Delete marks of index entries that a transaction has collected and not yet set. `paged/marks.rs` sets
//! them.
//!
//! This module knows nothing about trees.

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

    /// Called after a rollback that leaves `record_count` undo records. Drops the marks that belong to later
    /// ones.
    pub(crate) fn undone_to(&mut self, record_count: u64) {
        for entries in &mut self.of_index {
            let kept = entries.records.partition_point(|record| *record <= record_count);
            entries.records.truncate(kept);
            entries.keys.truncate(kept);
        }
    }
}
