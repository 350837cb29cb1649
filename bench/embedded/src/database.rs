//! What is measured of a database, and the list of databases.
//!
//! What it does not know: mixes, times.

use std::path::Path;

use crate::workload::{ROW_BYTES, Workload};
use crate::{Failure, lmdb, redb_file, rocks, varve};

/// Bytes of a MemTable of each log-structured database.
pub const MEMTABLE_BYTES: usize = 64 << 20;

/// A database with one table.
pub trait Database {
    /// Fills the empty table with the rows of a workload.
    fn load(&mut self, load: &Workload) -> Result<(), Failure>;

    /// Runs the transactions. Behind each `group` of them, all are durable.
    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure>;

    /// Copies the row with a key into `row`. `false`: there is none.
    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure>;
}

/// Sizes that databases are configured with.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of all rows.
    pub data_bytes: u64,
    /// Bytes of a cache that holds all rows.
    pub cache_bytes: usize,
}

impl Sizes {
    /// For this number of rows.
    pub fn of(rows: u64) -> Sizes {
        let data_bytes = rows * ROW_BYTES as u64;
        // Leaves of trees are not full.
        let cache_bytes = usize::try_from(data_bytes * 3 / 2).unwrap_or(usize::MAX).max(64 << 20);
        Sizes { data_bytes, cache_bytes }
    }
}

/// Makes an empty database in a directory.
pub type Create = fn(&Path, Sizes) -> Result<Box<dyn Database>, Failure>;

/// A database that can be measured.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// How a commit becomes durable.
    pub durable_by: &'static str,
    /// How a group of commits becomes durable; `None` if a group is no faster than its commits.
    pub group_by: Option<&'static str>,
    /// Whether it is durable in main memory or persistent memory only.
    pub needs_memory: bool,
    /// Makes it.
    pub create: Create,
}

/// All databases.
pub fn kinds() -> Vec<Kind> {
    let peers = [lmdb::KIND, rocks::KIND, redb_file::KIND];
    varve::KINDS.into_iter().chain(peers).collect()
}
