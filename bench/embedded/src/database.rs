//! The operations that are measured, and the list of databases.
//!
//! This module does not know mixes or times.

use std::path::Path;

use crate::workload::{ROW_BYTES, Workload};
use crate::{Failure, lmdb, redb_file, rocks, varve};

/// Bytes of a MemTable of each log-structured database.
pub const MEMTABLE_BYTES: usize = 64 << 20;

/// A database with one table.
pub trait Database {
    /// Fills the empty table with the rows of a workload.
    fn load(&mut self, load: &Workload) -> Result<(), Failure>;

    /// Runs the transactions. After each group of `group` transactions, all of them are durable.
    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure>;

    /// Copies the row with a key into `row`. Returns `false` if there is no such row.
    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure>;
}

/// Sizes with which databases are configured.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of all rows.
    pub data_bytes: u64,
    /// Bytes of a cache that holds all rows.
    pub cache_bytes: usize,
}

impl Sizes {
    /// Returns the sizes for this number of rows.
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
    /// The name of the database.
    pub name: &'static str,
    /// How a commit becomes durable.
    pub durable_by: &'static str,
    /// How a group of commits becomes durable; `None` if a group is no faster than its commits.
    pub group_by: Option<&'static str>,
    /// Whether the database is durable only if its files are in main memory or persistent memory.
    pub needs_memory: bool,
    /// Makes an empty database of this kind.
    pub create: Create,
}

/// Returns all databases.
pub fn kinds() -> Vec<Kind> {
    let peers = [lmdb::KIND, rocks::KIND, redb_file::KIND];
    varve::KINDS.into_iter().chain(peers).collect()
}
