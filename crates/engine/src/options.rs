//! Options for opening a database.
//!
//! Invariants
//! 1. The defaults are safe: durable commits, doublewrite, background threads.
//!
//! This module does not know configuration files or command lines.

use std::time::Duration;

use varve_memory::MemoryTables;
use varve_pager::{ArchiveOptions, PagerConfig};

use crate::catalog::Deriver;

/// The options of [`crate::Database::open`].
pub struct Options {
    /// The options of the pager: devices, pool, log.
    pub pager: PagerConfig,
    /// The time after which a statement that waits for a lock fails with 55P03; `None` means no limit.
    /// Transactions can override it.
    pub lock_timeout: Option<Duration>,
    /// The size of undo above which undo is removed even if old snapshots need it. Their statements then fail
    /// with 72000. `None` means no limit.
    pub rollback_limit_bytes: Option<u64>,
    /// Whether purge and the rollback of losers after a crash run in their own threads. If not,
    /// [`crate::Database::tick`] and `open` do this work.
    pub background: bool,
    /// Computes the expressions of indexes. Without it, tables with such indexes can be read but not changed.
    pub derive: Option<Deriver>,
    /// The file with the tables of the memory-oriented engines. Without it these engines are not available.
    pub memory: Option<MemoryTables>,
    /// Where the log is archived, and how. Without it, the log is not archived.
    pub archive: Option<ArchiveOptions>,
}

impl Options {
    /// Returns the default options with these devices.
    pub fn new(pager: PagerConfig) -> Self {
        let background = pager.background;
        Self {
            pager,
            lock_timeout: None,
            rollback_limit_bytes: None,
            background,
            derive: None,
            memory: None,
            archive: None,
        }
    }
}
