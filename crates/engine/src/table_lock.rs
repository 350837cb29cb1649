//! Locks on whole tables: shared for who reads or writes rows, exclusive for DDL; held to the end of the transaction.
//!
//! Invariants
//! 1. A shared holder has noted the table at its place before it looked for an exclusive owner; an exclusive owner has
//!    announced itself before it looks at the places. One of them sees the other.
//! 2. While somebody waits for exclusion, no new shared holder gets in.
//!
//! Does not know: what a table is.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::error::Result;
use crate::ids::Owner;
use crate::registry::Registry;
use crate::waits::{Obstacle, Patience, Waits};

const SLOT_BITS: u32 = 17;
/// Waiters for tables never share a wish: all are woken.
const OWN_WISH: u64 = 1 << 63;
/// Of a waiter for a table who would share it.
const SHARED_WISH: u64 = 1 << 62;

/// The lock of one table.
#[derive(Debug)]
pub(crate) struct TableLock {
    table: u32,
    exclusive: AtomicU64,
}

/// What waiting needs.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) waits: &'a Waits,
    pub(crate) me: Owner,
    pub(crate) patience: Patience<'a>,
}

impl Waiting<'_> {
    /// Waits for another transaction to end (or to give up a table), which stood in the way after `released` releases.
    pub(crate) fn wait_for(&mut self, on: Owner, released: u64) -> Result<()> {
        self.wait(Obstacle::Held(on, released), 0, true)
    }

    /// Waits to use a table or to have it alone.
    fn wait(&mut self, on: Obstacle, table: u32, is_shared: bool) -> Result<()> {
        let shared = if is_shared { SHARED_WISH } else { 0 };
        let wish = OWN_WISH | shared | u64::from(table) << SLOT_BITS | u64::from(self.me.slot);
        let patience = self.patience;
        self.patience = patience.begun();
        self.waits.wait(self.registry, self.me, on, wish, patience)
    }
}

/// The table that a waiter wishes, and whether it would share it.
pub(crate) fn wished(want: u64) -> Option<(u32, bool)> {
    (want & OWN_WISH != 0).then_some(((want >> SLOT_BITS) as u32, want & SHARED_WISH != 0))
}

fn pack(owner: Owner) -> u64 {
    owner.serial << SLOT_BITS | u64::from(owner.slot + 1)
}

fn unpack(raw: u64) -> Owner {
    Owner { slot: (raw & ((1 << SLOT_BITS) - 1)) as u32 - 1, serial: raw >> SLOT_BITS }
}

impl TableLock {
    pub(crate) fn new(table: u32) -> Self {
        Self { table, exclusive: AtomicU64::new(0) }
    }

    /// Takes the shared lock; it goes away with the transaction's end. Whether it had to be waited for.
    #[inline]
    pub(crate) fn lock_shared(&self, mut waiting: Waiting<'_>) -> Result<bool> {
        let place = waiting.registry.place(waiting.me.slot);
        let mut has_waited = false;
        loop {
            place.note_table(self.table);
            if self.excluder(waiting.me).is_none() {
                return Ok(has_waited);
            }
            has_waited = true;
            place.forget_table(self.table);
            // The excluder may have seen the note and be waiting for its owner.
            waiting.waits.wake(waiting.registry, waiting.me);
            self.let_pass(&mut waiting, true)?;
        }
    }

    /// Waits for whoever excludes others.
    fn let_pass(&self, waiting: &mut Waiting<'_>, is_shared: bool) -> Result<()> {
        let released = waiting.waits.releases();
        let Some(excluder) = self.excluder(waiting.me) else { return Ok(()) };
        waiting.wait(Obstacle::Held(excluder, released), self.table, is_shared)
    }

    /// Who has the lock alone, or waits to have it so.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let exclusive = self.exclusive.load(SeqCst);
        (exclusive != 0).then(|| unpack(exclusive))
    }

    /// Who excludes `me`.
    #[inline]
    fn excluder(&self, me: Owner) -> Option<Owner> {
        let exclusive = self.exclusive.load(SeqCst);
        (exclusive != 0 && exclusive != pack(me)).then(|| unpack(exclusive))
    }

    /// Takes the exclusive lock; `false` if this transaction has it already. The caller unlocks it at the end.
    pub(crate) fn lock_exclusive(&self, mut waiting: Waiting<'_>) -> Result<bool> {
        let mine = pack(waiting.me);
        while let Err(other) = self.exclusive.compare_exchange(0, mine, SeqCst, SeqCst) {
            if other == mine {
                return Ok(false);
            }
            self.let_pass(&mut waiting, false)?;
        }
        while waiting.registry.holders_of(self.table, waiting.me).next().is_some() {
            if let Err(error) = waiting.wait(Obstacle::UsersOf(self.table), self.table, false) {
                self.unlock_exclusive();
                waiting.waits.release(waiting.registry, waiting.me);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Gives the exclusive lock back; the caller then wakes its waiters, by `release` if it goes on.
    pub(crate) fn unlock_exclusive(&self) {
        self.exclusive.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::time::Duration;

    #[test]
    fn shared_holders_keep_ddl_out_and_ddl_keeps_them_out() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (reader, ddl) = (registry.claim(), registry.claim());
        let patience =
            Patience { timeout: Some(Duration::from_millis(2)), deadline: None, cancel: None, log: None };
        let as_owner = |me| Waiting { registry: &registry, waits: &waits, me, patience };
        let lock = TableLock::new(9);
        lock.lock_shared(as_owner(reader)).unwrap();
        assert!(matches!(lock.lock_exclusive(as_owner(ddl)), Err(Error::LockTimeout)));
        registry.end(reader);
        assert!(lock.lock_exclusive(as_owner(ddl)).unwrap());
        assert!(!lock.lock_exclusive(as_owner(ddl)).unwrap());
        let late = registry.claim();
        assert!(matches!(lock.lock_shared(as_owner(late)), Err(Error::LockTimeout)));
        lock.unlock_exclusive();
        lock.lock_shared(as_owner(late)).unwrap();
    }
}
