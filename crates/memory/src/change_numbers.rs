//! Numbers of the changes of a transaction, by which a store knows its savepoints.
//!
//! Invariants
//! 1. A number is in use only once in a store, also if its change is taken back. So a savepoint that has the
//!    number of the newest of its changes is one of the open transaction, and was not rolled back past.
//! 2. No two stores of a process have the same id.
//!
//! What it does not know: what changes are, and how they are undone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Savepoint;
use crate::store_error::{StoreError, StoreResult};

/// Ids that were given to stores.
static STORES: AtomicU64 = AtomicU64::new(0);

/// The numbers of the changes of the open transaction.
pub(crate) struct ChangeNumbers {
    store: u64,
    /// The last number that was given.
    used: u64,
    /// The number of the transaction's beginning.
    first: u64,
    /// The numbers of its changes, the oldest one first.
    changes: Vec<u64>,
}

impl ChangeNumbers {
    pub(crate) fn new() -> ChangeNumbers {
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        ChangeNumbers { store, used: 0, first: 0, changes: Vec::new() }
    }

    /// Begins a transaction: savepoints from before are refused.
    pub(crate) fn begin(&mut self) {
        self.used += 1;
        self.first = self.used;
        self.changes.clear();
    }

    /// Notes a change.
    #[inline]
    pub(crate) fn push(&mut self) {
        self.used += 1;
        self.changes.push(self.used);
    }

    /// Notes that only the first `kept` changes are left.
    pub(crate) fn truncate(&mut self, kept: usize) {
        self.changes.truncate(kept);
    }

    /// The present moment of the transaction.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let (store, newest_change, changes) =
            (self.store, self.newest(self.changes.len()), self.changes.len());
        Savepoint { store, newest_change, changes }
    }

    /// Refuses a savepoint that is not one of this transaction, or that was rolled back past.
    pub(crate) fn check(&self, savepoint: Savepoint) -> StoreResult<()> {
        let Savepoint { store, newest_change, changes } = savepoint;
        let is_known = store == self.store && changes <= self.changes.len();
        let is_same = is_known && newest_change == self.newest(changes);
        is_same.then_some(()).ok_or(StoreError::NoSavepoint)
    }

    /// The number of the newest of this many changes.
    fn newest(&self, changes: usize) -> u64 {
        let newest = changes.checked_sub(1).and_then(|last| self.changes.get(last));
        newest.copied().unwrap_or(self.first)
    }
}
