//! Checks the rows of tables, that their indexes match their rows, and that no chunk of the region is lost.
//!
//! This module does not know pages.

use std::collections::HashSet;
use std::ops::ControlFlow;

use varve_memory::{Direction, KeyRange, Pointer, Store};

use super::MemoryStore;
use super::keys::RowKeys;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::partitions::{PartitionId, StoredTable};

/// A row in a store.
struct StoredRow<'r> {
    at: StoredTable,
    key: &'r [u8],
    stored: &'r [u8],
}

impl MemoryStore {
    /// Checks the table. Returns the number of its rows.
    pub(crate) fn check(&self, core: &Core, damages: &mut Vec<String>) -> Result<u64> {
        let mut rows = 0;
        for at in self.tables() {
            match self.check_in(core, at, damages) {
                Ok(found) => rows += found,
                Err(error @ (Error::Store(_) | Error::StoreUnusable { .. })) => {
                    let PartitionId { kind, number } = at.partition;
                    let (table, engine) = (&self.def.name, kind.name());
                    damages.push(format!("table {table} (engine {engine}, partition {number}): {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }

    /// Checks the part of the table in one store. Returns the number of its rows.
    fn check_in(&self, core: &Core, at: StoredTable, damages: &mut Vec<String>) -> Result<u64> {
        let store = core.partitions.read(at.partition)?;
        let (mut rows, mut keys, mut spare) = (0, RowKeys::default(), Vec::new());
        store.scan(at.table, 0, &KeyRange::ALL, Direction::Forward, &mut |key, stored| {
            rows += 1;
            let row = StoredRow { at, key, stored };
            if let Err(error) = self.check_row(&**store, &row, &mut keys, &mut spare) {
                damages.push(format!("table {}: a row: {error}", self.def.name));
            }
            ControlFlow::Continue(())
        })?;
        for (number, index) in self.def.indexes.iter().enumerate() {
            let mut entries = 0_u64;
            store.scan(at.table, number + 1, &KeyRange::ALL, Direction::Forward, &mut |_, _| {
                entries += 1;
                ControlFlow::Continue(())
            })?;
            if entries != rows {
                let (name, table) = (&index.name, &self.def.name);
                damages
                    .push(format!("index {name} has {entries} entries, and table {table} has {rows} rows"));
            }
        }
        Ok(rows)
    }

    /// Checks that every index finds the row by its key, and that the row is in the right partition.
    fn check_row(
        &self,
        store: &dyn Store,
        row: &StoredRow<'_>,
        keys: &mut RowKeys,
        found: &mut Vec<u8>,
    ) -> Result<()> {
        let (values, id) = self.split(row.stored)?;
        self.keys_of(values, id, keys)?;
        if keys.key(0) != row.key {
            return Err(Error::corrupt("it is not where its primary key belongs"));
        }
        let by_key = self.table_of_key(0, row.key, row.key.len());
        if self.table_of_row(values) != row.at || by_key != Some(row.at) {
            return Err(Error::corrupt("it is in another partition than its partition key says"));
        }
        for (number, index) in self.def.indexes.iter().enumerate() {
            let is_there = store.get(row.at.table, number + 1, keys.key(number + 1), found)?;
            if !is_there || found != row.stored {
                return Err(Error::corrupt(format!("index {} does not lead to it", index.name)));
            }
        }
        Ok(())
    }
}

/// Checks that every active chunk of the region belongs to a store, if all stores can be read.
pub(crate) fn check_chunks(core: &Core, damages: &mut Vec<String>) -> Result<()> {
    let Some(allocator) = core.partitions.allocator() else { return Ok(()) };
    let (mut known, mut is_known) = (HashSet::<Pointer>::new(), true);
    for partition in core.partitions.partitions() {
        match core.partitions.read(partition).map(|store| store.chunks()) {
            Ok(Ok(chunks)) => known.extend(chunks),
            Err(Error::NoRegion { .. }) => {}
            Ok(Err(error)) => {
                let PartitionId { kind, number } = partition;
                damages.push(format!("the store of engine {} in partition {number}: {error}", kind.name()));
                is_known = false;
            }
            Err(error) => {
                damages.push(error.to_string());
                is_known = false;
            }
        }
    }
    if !is_known {
        return Ok(());
    }
    let active = allocator.active_chunks().map_err(varve_memory::StoreError::from)?;
    let lost: Vec<_> = active.iter().filter(|chunk| !known.contains(&chunk.pointer)).collect();
    if let Some(first) = lost.first() {
        let (count, at) = (lost.len(), first.pointer);
        damages
            .push(format!("{count} chunks of persistent memory belong to no table; the first one is {at}"));
    }
    Ok(())
}
