//! The database RocksDB, with a log that is synced at each commit, a block cache that has space for all rows,
//! and no compression.
//!
//! In a group, only the last transaction syncs the log, with the records of those before it.
//!
//! This module does not know other databases.

use std::path::Path;

use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, WriteOptions};

use crate::Failure;
use crate::database::{Database, Kind, MEMTABLE_BYTES, Sizes};
use crate::workload::{Change, Workload};

/// RocksDB.
pub const KIND: Kind = Kind {
    name: "RocksDB",
    durable_by: "WriteOptions.sync",
    group_by: Some("sync of the last"),
    needs_memory: false,
    create: |path, sizes| Ok(Box::new(Rocks::create(path, sizes)?)),
};

/// Threads for flushes and compactions, beside the thread that runs transactions.
const BACKGROUND_JOBS: i32 = 2;
const BLOOM_BITS: f64 = 10.0;

struct Rocks {
    database: DB,
    row: Vec<u8>,
}

impl Rocks {
    fn create(path: &Path, sizes: Sizes) -> Result<Rocks, Failure> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(sizes.cache_bytes)?);
        blocks.set_bloom_filter(BLOOM_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_compression_type(DBCompressionType::None);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        Ok(Rocks { database: DB::open(&options, path)?, row: Vec::new() })
    }

    fn fetch(&mut self, key: u64) -> Result<(), Failure> {
        let row = self.database.get_pinned(key.to_be_bytes())?.ok_or("there is no such row")?;
        self.row.clear();
        self.row.extend_from_slice(&row);
        Ok(())
    }

    fn update(
        &mut self,
        load: &Workload,
        key: u64,
        change: Change,
        how: &WriteOptions,
    ) -> Result<(), Failure> {
        self.fetch(key)?;
        load.apply(change, &mut self.row);
        Ok(self.database.put_opt(key.to_be_bytes(), &self.row, how)?)
    }
}

impl Database for Rocks {
    fn load(&mut self, load: &Workload) -> Result<(), Failure> {
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        for key in 0..load.rows() {
            load.row(key, &mut self.row);
            self.database.put_opt(key.to_be_bytes(), &self.row, &unlogged)?;
        }
        self.database.flush()?;
        self.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure> {
        let (mut synced, logged, mut pending) = (WriteOptions::default(), WriteOptions::default(), 0);
        synced.set_sync(true);
        for operation in load.operations() {
            let Some(change) = operation.change else {
                self.fetch(operation.key)?;
                continue;
            };
            let is_last = pending + 1 >= group;
            self.update(load, operation.key, change, if is_last { &synced } else { &logged })?;
            pending = if is_last { 0 } else { pending + 1 };
        }
        Ok(self.database.flush_wal(true)?)
    }

    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure> {
        self.fetch(key)?;
        row.clone_from(&self.row);
        Ok(true)
    }
}
