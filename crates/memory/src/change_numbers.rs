//! Numbers for the changes of a transaction. With them a store checks whether a savepoint is valid.
//!
//! Invariants
//! 1. A store gives each number only once, even if the change is rolled back. A savepoint has the count of
//!    the changes before it, and the number of the newest of them. If the open transaction still has this
//!    number at this position, the savepoint belongs to it, and no rollback went past the savepoint.
//! 2. No two stores of a process have the same id.
//!
//! This module does not know what changes are, or how they are undone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Savepoint;
use crate::store_error::{StoreError, StoreResult};

/// The id of the next store.
static STORES: AtomicU64 = AtomicU64::new(0);

/// The numbers of the changes of the open transaction.
pub(crate) struct ChangeNumbers {
    store: u64,
    /// The last number that was given.
    used: u64,
    /// The number that the transaction got when it began.
    first: u64,
    /// The numbers of the transaction's changes, oldest first.
    changes: Vec<u64>,
}

impl ChangeNumbers {
    pub(crate) fn new() -> ChangeNumbers {
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        ChangeNumbers { store, used: 0, first: 0, changes: Vec::new() }
    }

    /// Begins a transaction. From now on, savepoints of earlier transactions are refused.
    pub(crate) fn begin(&mut self) {
        self.used += 1;
        self.first = self.used;
        self.changes.clear();
    }

    /// Gives the next number to a change.
    #[inline]
    pub(crate) fn push(&mut self) {
        self.used += 1;
        self.changes.push(self.used);
    }

    /// Forgets all changes except the first `kept` ones.
    pub(crate) fn truncate(&mut self, kept: usize) {
        self.changes.truncate(kept);
    }

    /// Returns a savepoint at the present state of the transaction.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let (store, newest_change, changes) =
            (self.store, self.newest(self.changes.len()), self.changes.len());
        Savepoint { store, newest_change, changes }
    }

    /// Refuses a savepoint of another transaction, and a savepoint that a rollback went past.
    pub(crate) fn check(&self, savepoint: Savepoint) -> StoreResult<()> {
        let Savepoint { store, newest_change, changes } = savepoint;
        let is_known = store == self.store && changes <= self.changes.len();
        let is_same = is_known && newest_change == self.newest(changes);
        is_same.then_some(()).ok_or(StoreError::NoSavepoint)
    }

    /// Returns the number of the newest among the first `changes` changes. If there are none, returns the
    /// number that the transaction got at its start.
    fn newest(&self, changes: usize) -> u64 {
        let newest = changes.checked_sub(1).and_then(|last| self.changes.get(last));
        newest.copied().unwrap_or(self.first)
    }
}
