//! Locks on whole tables and other objects, held to the end of the transaction.
//!
//! Fast path: a transaction that reads or changes rows records the table in its own entry of the registry.
//! Then it checks the table's counter `strong`, which is above 0 while another transaction wants to exclude
//! changes of rows. If the counter is 0, the lock is taken without a write to a cache line that other
//! transactions write. All other requests go to the queue (`lock_queue.rs`).
//!
//! Invariants
//! 1. A transaction writes its record into the registry before it reads `strong`. A transaction that wants a
//!    strong mode (one that excludes changes of rows) raises `strong` before it reads the records. So at
//!    least one of the two sees the other.
//! 2. A record in the registry counts as a lock only if `strong` was 0 when it was read. Otherwise the
//!    transaction removes its record and requests the lock in the queue.
//!
//! This module does not know what a table is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::error::Result;
use crate::ids::Owner;
use crate::lock_queue::{Holder, Request, Tag};
use crate::modes::LockMode;
use crate::registry::Registry;
use crate::waits::{Got, HeldRow, Patience, Waits, Wish};

/// A bit in the `want` of waiters that only wait for the end of a transaction. It makes the `want` of each of
/// them different, so each of them is woken.
const OWN_WISH: u64 = 1 << 63;

/// The lock of one table.
#[derive(Debug)]
pub(crate) struct TableLock {
    table: u32,
    /// The number of transactions that have or request a strong mode.
    strong: Arc<AtomicU32>,
}

/// The data that a wait needs.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) waits: &'a Waits,
    pub(crate) me: Owner,
    pub(crate) patience: Patience<'a>,
}

impl Waiting<'_> {
    /// Waits for the end of another transaction, which was a conflict after `released` releases.
    pub(crate) fn wait_for(&mut self, by: Owner, released: u64) -> Result<()> {
        let held = HeldRow { by, released, want: OWN_WISH | u64::from(self.me.slot), ticket: 0 };
        let patience = self.patience;
        self.patience = patience.begun();
        self.waits.wait(self.registry, self.me, held, patience)
    }

    /// Takes a lock with a queue until the transaction ends.
    pub(crate) fn lock(&self, tag: Tag, mode: LockMode, strong: Option<&Arc<AtomicU32>>) -> Result<Got> {
        let wish = Wish { tag, strong, request: self.request(mode), is_noted: false };
        self.waits.lock(self.registry, wish, self.patience)
    }

    fn request(&self, mode: LockMode) -> Request {
        let party = self.registry.party(self.me.slot);
        Request { party, holder: Holder::Transaction(self.me), waiter: self.me, mode }
    }
}

impl TableLock {
    pub(crate) fn new(table: u32) -> Self {
        Self { table, strong: Arc::default() }
    }

    /// Takes a weak mode. Returns whether the transaction had to wait.
    #[inline]
    pub(crate) fn lock_weak(&self, mode: LockMode, waiting: Waiting<'_>) -> Result<bool> {
        waiting.registry.place(waiting.me.slot).note_table(self.table, mode.bit());
        if self.strong.load(SeqCst) == 0 {
            return Ok(false);
        }
        self.lock_noted(mode, waiting)
    }

    #[cold]
    fn lock_noted(&self, mode: LockMode, waiting: Waiting<'_>) -> Result<bool> {
        let (tag, request) = (Tag::Object(self.table), waiting.request(mode));
        let wish = Wish { tag, strong: Some(&self.strong), request, is_noted: true };
        let got = waiting.waits.lock(waiting.registry, wish, waiting.patience)?;
        Ok(got == Got::AfterWait)
    }

    /// Takes any mode.
    pub(crate) fn lock(&self, mode: LockMode, waiting: Waiting<'_>) -> Result<Got> {
        waiting.lock(Tag::Object(self.table), mode, Some(&self.strong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::time::Duration;

    const SHORT: Patience<'static> = Patience {
        timeout: Some(Duration::from_millis(2)),
        deadline: None,
        cancel: None,
        log: None,
        notice: None,
    };

    #[test]
    fn shared_holders_keep_ddl_out_and_ddl_keeps_them_out() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (reader, ddl) = (registry.claim(), registry.claim());
        let as_owner = |me| Waiting { registry: &registry, waits: &waits, me, patience: SHORT };
        let lock = TableLock::new(9);
        let (weak, alone) = (LockMode::AccessShare, LockMode::AccessExclusive);
        lock.lock_weak(weak, as_owner(reader)).unwrap();
        assert!(matches!(lock.lock(alone, as_owner(ddl)), Err(Error::LockTimeout)));
        assert_eq!(lock.strong.load(SeqCst), 0);
        registry.end(reader);
        waits.wake(&registry, reader);
        assert_eq!(lock.lock(alone, as_owner(ddl)).unwrap(), Got::AtOnce);
        assert_eq!(lock.lock(alone, as_owner(ddl)).unwrap(), Got::Before);
        let late = registry.claim();
        assert!(matches!(lock.lock_weak(weak, as_owner(late)), Err(Error::LockTimeout)));
        assert!(registry.noted(9, weak.bit()).next().is_none());
        waits.unlock_all(&registry, ddl, 0, |_, _| false);
        lock.lock_weak(weak, as_owner(late)).unwrap();
        assert!(registry.noted(9, weak.bit()).next().is_some());
    }

    #[test]
    fn modes_that_exclude_no_reader_are_beside_him() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (reader, writer, locker) = (registry.claim(), registry.claim(), registry.claim());
        let as_owner = |me| Waiting { registry: &registry, waits: &waits, me, patience: SHORT };
        let lock = TableLock::new(9);
        lock.lock_weak(LockMode::AccessShare, as_owner(reader)).unwrap();
        lock.lock(LockMode::Share, as_owner(locker)).unwrap();
        assert!(matches!(lock.lock_weak(LockMode::RowExclusive, as_owner(writer)), Err(Error::LockTimeout)));
        lock.lock_weak(LockMode::RowShare, as_owner(writer)).unwrap();
        // A transaction that already has the lock continues, regardless of the queue.
        lock.lock_weak(LockMode::RowExclusive, as_owner(locker)).unwrap();
        waits.unlock_all(&registry, locker, 0, |_, _| false);
        assert_eq!(lock.strong.load(SeqCst), 0);
        lock.lock_weak(LockMode::RowExclusive, as_owner(writer)).unwrap();
        assert!(matches!(lock.lock(LockMode::Share, as_owner(locker)), Err(Error::LockTimeout)));
    }
}
