//! The space that partitions and their tables take in the region.
//!
//! Invariants
//! 1. Each chunk is counted for one owner: a table, or the store for all of its tables.
//!
//! This module does not know rows or names of tables.

use varve_memory::Owner;

use super::{PartitionId, Partitions, StoredTable};
use crate::error::{Error, Result};

/// The space that a partition uses in the region of the memory-oriented engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpace {
    /// The name of the engine.
    pub engine: &'static str,
    /// The number of the partition.
    pub partition: u16,
    /// The number of tables in the partition.
    pub tables: u64,
    /// The bytes of its chunks, where each chunk counts with its size class.
    pub used_bytes: u64,
}

impl Partitions {
    fn bytes_of(&self, owner: Option<Owner>) -> Result<u64> {
        let (Some(owner), Some(allocator)) = (owner, self.allocator()) else { return Ok(0) };
        Ok(allocator.used_bytes(owner).map_err(varve_memory::StoreError::from)?)
    }

    /// Returns the bytes that are counted for a table. Some engines count everything for the store.
    pub(crate) fn table_bytes(&self, at: StoredTable) -> Result<u64> {
        let tables = self.read(at.partition)?.tables();
        let table = tables.iter().find(|table| table.number == at.table);
        self.bytes_of(table.map(|table| table.owner))
    }

    /// Returns the bytes that are counted for a store, that is for all its tables together.
    pub(crate) fn store_bytes(&self, partition: PartitionId) -> Result<u64> {
        self.bytes_of(partition.kind.store_owner(partition.number))
    }

    /// Returns the space of each partition that has had a table.
    pub(crate) fn space(&self) -> Result<Vec<PartitionSpace>> {
        let mut rows = Vec::new();
        for partition in self.partitions() {
            let tables = match self.read(partition) {
                Ok(store) => store.tables(),
                Err(Error::NoRegion { .. } | Error::StoreUnusable { .. }) => continue,
                Err(error) => return Err(error),
            };
            let mut used_bytes = self.store_bytes(partition)?;
            for table in &tables {
                used_bytes += self.bytes_of(Some(table.owner))?;
            }
            let (engine, number) = (partition.kind.name(), partition.number);
            rows.push(PartitionSpace { engine, partition: number, tables: tables.len() as u64, used_bytes });
        }
        Ok(rows)
    }
}
