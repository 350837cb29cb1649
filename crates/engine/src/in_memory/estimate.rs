//! Estimates the number of rows of a table.
//!
//! Invariants
//! 1. A table with at most [`SAMPLE_ROWS`] rows in each store is counted.
//! 2. The partition need not be locked: rows of other transactions may be counted.
//!
//! A larger table is estimated by the bytes that its store counts for it, and the bytes of the first rows.
//! Some engines count everything for the store. Then one of several tables is estimated too high.

use std::ops::ControlFlow;

use varve_memory::{Direction, KeyRange};

use super::MemoryStore;
use crate::core::Core;
use crate::error::Result;
use crate::partitions::StoredTable;
use crate::tree::Estimate;

/// The largest number of rows of a store that are read for an estimate.
const SAMPLE_ROWS: u64 = 256;
/// The approximate number of bytes of an index entry in addition to its key, and of a row in addition to its
/// content.
const ENTRY_BYTES: usize = 24;

impl MemoryStore {
    /// Estimates the number of rows. A sample of the rows begins with the first row.
    pub(crate) fn estimate(&self, core: &Core) -> Result<Estimate> {
        let entries: Result<u64> = self.tables().try_fold(0, |rows, at| Ok(rows + self.rows_in(core, at)?));
        Ok(Estimate { entries: entries?, leaves: 0, places: vec![Vec::new()] })
    }

    fn rows_in(&self, core: &Core, at: StoredTable) -> Result<u64> {
        let (mut rows, mut bytes, mut is_all) = (0, 0, true);
        let indexes = 1 + self.def.indexes.len();
        let store = core.partitions.read(at.partition)?;
        store.scan(at.table, 0, &KeyRange::ALL, Direction::Forward, &mut |key, row| {
            if rows == SAMPLE_ROWS {
                is_all = false;
                return ControlFlow::Break(());
            }
            rows += 1;
            bytes += row.len() + ENTRY_BYTES + indexes * (key.len() + ENTRY_BYTES);
            ControlFlow::Continue(())
        })?;
        drop(store);
        if is_all {
            return Ok(rows);
        }
        let own = core.partitions.table_bytes(at)?;
        let used = if own > bytes as u64 { own } else { core.partitions.store_bytes(at.partition)? };
        Ok((used / (bytes as u64 / rows).max(1)).max(rows + 1))
    }
}
