//! The database redb. Its default, `Durability::Immediate`, calls `fsync` at each commit.
//!
//! In a group, all transactions but the last are committed with `Durability::None`. The last one makes all of
//! them durable.
//!
//! This module does not know other databases.

use std::path::Path;

use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::Failure;
use crate::database::{Database, Kind, Sizes};
use crate::workload::{Change, Workload};

/// redb.
pub const KIND: Kind = Kind {
    name: "redb",
    durable_by: "Durability::Immediate",
    group_by: Some("Durability::None but for the last"),
    needs_memory: false,
    create: |path, sizes| Ok(Box::new(Redb::create(path, sizes)?)),
};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
/// Rows that the load commits together.
const LOADED_TOGETHER: u64 = 100_000;

struct Redb {
    database: redb::Database,
    row: Vec<u8>,
}

impl Redb {
    fn create(path: &Path, sizes: Sizes) -> Result<Redb, Failure> {
        let database = redb::Builder::new().set_cache_size(sizes.cache_bytes).create(path.join("redb"))?;
        Ok(Redb { database, row: Vec::new() })
    }

    fn fetch(&mut self, key: u64) -> Result<(), Failure> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(TABLE)?;
        let row = table.get(key)?.ok_or("there is no such row")?;
        self.row.clear();
        self.row.extend_from_slice(row.value());
        Ok(())
    }

    fn update(
        &mut self,
        load: &Workload,
        key: u64,
        change: Change,
        durability: Durability,
    ) -> Result<(), Failure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            self.row.clear();
            self.row.extend_from_slice(table.get(key)?.ok_or("there is no such row")?.value());
            load.apply(change, &mut self.row);
            table.insert(key, self.row.as_slice())?;
        }
        Ok(transaction.commit()?)
    }
}

impl Database for Redb {
    fn load(&mut self, load: &Workload) -> Result<(), Failure> {
        let mut key = 0;
        while key < load.rows() {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(TABLE)?;
                let end = (key + LOADED_TOGETHER).min(load.rows());
                for key in key..end {
                    load.row(key, &mut self.row);
                    table.insert(key, self.row.as_slice())?;
                }
                key = end;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure> {
        let mut pending = 0;
        for operation in load.operations() {
            let Some(change) = operation.change else {
                self.fetch(operation.key)?;
                continue;
            };
            let is_last = pending + 1 >= group;
            let durability = if is_last { Durability::Immediate } else { Durability::None };
            self.update(load, operation.key, change, durability)?;
            pending = if is_last { 0 } else { pending + 1 };
        }
        // An empty transaction makes the transactions before it durable.
        Ok(self.database.begin_write()?.commit()?)
    }

    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure> {
        self.fetch(key)?;
        row.clone_from(&self.row);
        Ok(true)
    }
}
