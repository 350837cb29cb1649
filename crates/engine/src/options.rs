//! Options for opening a database.
//!
//! Invariants
//! 1. The defaults are safe: durable commits, doublewrite, background threads.
//!
//! This module knows nothing about configuration files and command lines.

use std::time::Duration;

use varve_memory::MemoryTables;
use varve_pager::PagerConfig;

use crate::catalog::Deriver;

/// What [`crate::Database::open`] needs.
pub struct Options {
    /// Devices, pool, log.
    pub pager: PagerConfig,
    /// How long a statement waits for a lock before 55P03; `None` for as long as it takes. Transactions can
    /// override it.
    pub lock_timeout: Option<Duration>,
    /// Bytes of undo above which old snapshots lose what they need (72000); `None` for no limit.
    pub rollback_limit_bytes: Option<u64>,
    /// Purge and the rollback of a crash's losers run in threads of their own; without,
    /// [`crate::Database::tick`] and `open` do them.
    pub background: bool,
    /// Understands indexes over expressions; without, tables that have any can be read but not changed.
    pub derive: Option<Deriver>,
    /// The file with the tables of the memory-oriented engines. Without it these engines are not available.
    pub memory: Option<MemoryTables>,
}

impl Options {
    /// Defaults over these devices.
    pub fn new(pager: PagerConfig) -> Self {
        let background = pager.background;
        Self { pager, lock_timeout: None, rollback_limit_bytes: None, background, derive: None, memory: None }
    }
}
