//! An open database.
//!
//! Invariants
//! 1. One `Database` for each data directory at a time (the device's lock).
//!
//! Does not know: SQL, sockets, configuration files.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::transaction::{Isolation, Transaction};

/// An open database.
pub struct Database {}

/// Counters of an open database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseStats {
    /// Transactions with writes that were committed since the start.
    pub commits: u64,
    /// Transactions with writes that were rolled back.
    pub rollbacks: u64,
    /// Times a transaction waited for a lock.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Undo records purged.
    pub purged_records: u64,
    /// Committed transactions whose undo still waits for purge.
    pub purge_backlog: u64,
}

/// What [`Database::check`] found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Pages looked at.
    pub pages: u64,
    /// Rows looked at.
    pub rows: u64,
    /// Damages found, first one first; empty = sound.
    pub damages: Vec<String>,
}

#[expect(unused_variables, reason = "skeleton")]
impl Database {
    /// Creates, opens or recovers a database.
    pub fn open(options: Options) -> Result<Arc<Database>> {
        Err(Error::Unsupported { what: "this call".into() })
    }

    /// Begins a transaction.
    pub fn begin(self: &Arc<Self>, isolation: Isolation) -> Transaction {
        Transaction::new(Arc::clone(self), isolation)
    }

    /// Does a step of the background work (purge, rollback of losers) in the caller's thread.
    pub fn tick(&self) -> Result<()> {
        Ok(())
    }

    /// Checks every page, tree, row and index; needs no other transactions.
    pub fn check(&self) -> Result<CheckReport> {
        Err(Error::Unsupported { what: "this call".into() })
    }

    /// Counters.
    pub fn stats(&self) -> DatabaseStats {
        DatabaseStats::default()
    }

    /// Stops the threads, writes everything, notes a clean shutdown. Transactions must have ended.
    pub fn shutdown(&self) -> Result<()> {
        Ok(())
    }
}
