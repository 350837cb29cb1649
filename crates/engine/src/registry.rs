//! The registry of running transactions: a place for each, holding its snapshot and the tables it has locked.
//!
//! Invariants
//! 1. A registered snapshot is at or above every horizon that `oldest` has returned: nothing that it needs was purged, and
//!    no id that it must not see is below the floor.
//! 2. A place's serial changes when its transaction ends; an `Owner` with another serial has ended.
//! 3. Registering and looking up take no mutex and allocate nothing.
//!
//! Registering is publish-then-validate: the place is written first, then the horizon is read again; `oldest` raises the
//! horizon first, then reads the places. One of the two sees the other (Dekker), all with sequentially consistent order.
//!
//! Does not know: statuses, rows; what waits for what (`waits.rs`).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use parking_lot::{Condvar, Mutex};
use varve_pager::Lsn;

use crate::ids::Owner;

const CHUNK_LEN: usize = 64;
const CHUNKS_MAX: usize = 1024;
/// Tables that a place holds without its mutex.
const TABLES_LEN: usize = 6;
const NO_SNAPSHOT: u64 = u64::MAX;

thread_local! {
    static HINT: Cell<usize> = const { Cell::new(0) };
}

/// A waiter in the queue of the transaction it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) slot: u32,
    /// What it wants, so that only one of those who want the same is woken.
    pub(crate) want: u64,
}

/// The place of one transaction. Two cache lines, shared with nobody.
#[repr(align(128))]
pub(crate) struct Place {
    claimed: AtomicBool,
    /// What the transaction is called by its owner, and one more; 0 if nothing.
    label: AtomicU64,
    /// Its identity; 0 before it writes.
    identity: AtomicU64,
    snapshot: AtomicU64,
    serial: AtomicU64,
    tables: [AtomicU32; TABLES_LEN],
    is_loser: AtomicBool,
    has_more: AtomicBool,
    more: Mutex<Vec<u32>>,
    /// Waiters in `queue`; read without its mutex when the transaction ends.
    pub(crate) queued: AtomicU32,
    pub(crate) queue: Mutex<Vec<Waiter>>,
    /// Set to wake the transaction of this place out of its own wait.
    pub(crate) woken: Mutex<bool>,
    pub(crate) wake: Condvar,
}

impl Place {
    fn new() -> Self {
        Self {
            claimed: AtomicBool::new(false),
            label: AtomicU64::new(0),
            identity: AtomicU64::new(0),
            snapshot: AtomicU64::new(NO_SNAPSHOT),
            serial: AtomicU64::new(1),
            tables: Default::default(),
            is_loser: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            more: Mutex::default(),
            queued: AtomicU32::new(0),
            queue: Mutex::default(),
            woken: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn set_label(&self, label: u32) {
        self.label.store(u64::from(label) + 1, Relaxed);
    }

    pub(crate) fn label(&self) -> Option<u32> {
        self.label.load(Relaxed).checked_sub(1).map(|label| label as u32)
    }

    pub(crate) fn set_identity(&self, identity: u64) {
        self.identity.store(identity, Relaxed);
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Relaxed)
    }

    /// The tables that it has noted.
    pub(crate) fn noted_tables(&self) -> Vec<u32> {
        let tables = self.tables.iter().map(|table| table.load(SeqCst)).filter(|table| *table != 0);
        tables.chain(self.more.lock().iter().copied()).collect()
    }

    /// Which transaction of this place is the present one.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(SeqCst)
    }

    /// The transaction of this place is one that nobody runs any more; it is being undone.
    pub(crate) fn mark_loser(&self) {
        self.is_loser.store(true, SeqCst);
    }

    /// Whether it has noted a table.
    pub(crate) fn holds(&self, table: u32) -> bool {
        self.tables.iter().any(|t| t.load(SeqCst) == table)
            || (self.has_more.load(SeqCst) && self.more.lock().contains(&table))
    }

    /// Notes a table as used. The caller then looks whether somebody excludes it.
    pub(crate) fn note_table(&self, table: u32) {
        for entry in &self.tables {
            if entry.load(SeqCst) == 0 {
                return entry.store(table, SeqCst);
            }
        }
        self.more.lock().push(table);
        self.has_more.store(true, SeqCst);
    }

    /// Takes one note of the table back.
    pub(crate) fn forget_table(&self, table: u32) {
        if let Some(entry) = self.tables.iter().find(|t| t.load(SeqCst) == table) {
            return entry.store(0, SeqCst);
        }
        let mut more = self.more.lock();
        if let Some(at) = more.iter().position(|t| *t == table) {
            more.swap_remove(at);
        }
    }

    fn forget_tables(&self) {
        for entry in &self.tables {
            if entry.load(SeqCst) != 0 {
                entry.store(0, SeqCst);
            }
        }
        if self.has_more.load(SeqCst) {
            self.more.lock().clear();
            self.has_more.store(false, SeqCst);
        }
    }
}

/// All places.
pub(crate) struct Registry {
    chunks: Box<[OnceLock<Box<[Place]>>]>,
    len: AtomicUsize,
    grow: Mutex<()>,
    horizon: AtomicU64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            len: AtomicUsize::new(0),
            grow: Mutex::new(()),
            horizon: AtomicU64::new(0),
        }
    }

    /// Takes a place for a new transaction. Panics above 65,536 at once.
    pub(crate) fn claim(&self) -> Owner {
        let hint = HINT.get();
        let len = self.len.load(SeqCst);
        if hint < len && self.try_claim(hint) {
            return self.owner(hint);
        }
        self.claim_slow(len)
    }

    #[cold]
    fn claim_slow(&self, len: usize) -> Owner {
        let found = (0..len).find(|slot| self.try_claim(*slot));
        let slot = found.unwrap_or_else(|| self.grow());
        HINT.set(slot);
        self.owner(slot)
    }

    fn grow(&self) -> usize {
        let _one = self.grow.lock();
        let slot = self.len.load(SeqCst);
        assert!(slot < CHUNK_LEN * CHUNKS_MAX, "more than {slot} transactions at once");
        let chunk =
            self.chunks[slot / CHUNK_LEN].get_or_init(|| (0..CHUNK_LEN).map(|_| Place::new()).collect());
        chunk[slot % CHUNK_LEN].claimed.store(true, SeqCst);
        self.len.store(slot + 1, SeqCst);
        slot
    }

    fn try_claim(&self, slot: usize) -> bool {
        let claimed = &self.place(slot as u32).claimed;
        !claimed.load(SeqCst) && !claimed.swap(true, SeqCst)
    }

    fn owner(&self, slot: usize) -> Owner {
        let slot = slot as u32;
        Owner { slot, serial: self.place(slot).serial() }
    }

    /// The place with this number.
    #[inline]
    pub(crate) fn place(&self, slot: u32) -> &Place {
        let slot = slot as usize;
        match self.chunks[slot / CHUNK_LEN].get() {
            Some(chunk) => &chunk[slot % CHUNK_LEN],
            None => panic!("no transaction was ever at place {slot}"),
        }
    }

    /// Whether the transaction has not ended.
    pub(crate) fn is_running(&self, owner: Owner) -> bool {
        self.place(owner.slot).serial() == owner.serial
    }

    /// Registers the newest snapshot that `durable` gives.
    #[inline]
    pub(crate) fn take_snapshot(&self, owner: Owner, durable: impl Fn() -> Lsn) -> Lsn {
        let place = self.place(owner.slot);
        loop {
            let snapshot = durable();
            place.snapshot.store(snapshot.get(), SeqCst);
            if self.horizon.load(SeqCst) <= snapshot.get() {
                return snapshot;
            }
        }
    }

    /// Forgets the snapshot; the transaction reads no more until it takes another one.
    #[inline]
    pub(crate) fn drop_snapshot(&self, owner: Owner) {
        // What was read is read before this; who sees the old value a little longer only purges a little later.
        self.place(owner.slot).snapshot.store(NO_SNAPSHOT, Release);
    }

    /// The oldest snapshot registered, or `durable` if all are newer. Every snapshot registered from now on is at least
    /// as new as what this returns.
    pub(crate) fn oldest(&self, durable: Lsn) -> Lsn {
        self.horizon.fetch_max(durable.get(), SeqCst);
        let len = self.len.load(SeqCst);
        let places = (0..len).map(|slot| self.place(slot as u32).snapshot.load(SeqCst));
        Lsn::new(places.min().unwrap_or(NO_SNAPSHOT).min(durable.get()))
    }

    /// The transactions other than `me` that have noted the table.
    pub(crate) fn holders_of(&self, table: u32, me: Owner) -> impl Iterator<Item = Owner> + '_ {
        (0..self.len.load(SeqCst)).filter_map(move |slot| {
            let owner = self.owner(slot);
            let holds = owner.slot != me.slot && self.place(owner.slot).holds(table);
            holds.then_some(owner)
        })
    }

    /// The present transactions of all places, of vacant ones too.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        (0..self.len.load(SeqCst)).map(|slot| self.owner(slot))
    }

    /// A transaction that nobody runs any more and that is not undone yet.
    pub(crate) fn any_loser(&self) -> Option<Owner> {
        let mut owners = (0..self.len.load(SeqCst)).map(|slot| self.owner(slot));
        owners.find(|owner| self.place(owner.slot).is_loser.load(SeqCst))
    }

    /// The transaction is over: its snapshot, tables and identity go. The caller then wakes who waits for it and calls
    /// `vacate`.
    pub(crate) fn end(&self, owner: Owner) {
        let place = self.place(owner.slot);
        place.snapshot.store(NO_SNAPSHOT, SeqCst);
        place.label.store(0, Relaxed);
        place.identity.store(0, Relaxed);
        place.forget_tables();
        if place.is_loser.load(SeqCst) {
            place.is_loser.store(false, SeqCst);
        }
        place.serial.store(owner.serial + 1, SeqCst);
    }

    /// Gives the place to others.
    pub(crate) fn vacate(&self, owner: Owner) {
        self.place(owner.slot).claimed.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_snapshot_holds_the_horizon() {
        let registry = Registry::new();
        let (a, b) = (registry.claim(), registry.claim());
        assert_eq!(registry.oldest(Lsn::new(5)), Lsn::new(5));
        assert_eq!(registry.take_snapshot(a, || Lsn::new(10)), Lsn::new(10));
        assert_eq!(registry.take_snapshot(b, || Lsn::new(20)), Lsn::new(20));
        assert_eq!(registry.oldest(Lsn::new(30)), Lsn::new(10));
        registry.end(a);
        assert_eq!(registry.oldest(Lsn::new(30)), Lsn::new(20));
        registry.drop_snapshot(b);
        assert_eq!(registry.oldest(Lsn::new(30)), Lsn::new(30));
    }

    #[test]
    fn an_ended_owner_is_not_running_and_its_place_is_used_again() {
        let registry = Registry::new();
        let a = registry.claim();
        assert!(registry.is_running(a));
        registry.end(a);
        registry.vacate(a);
        assert!(!registry.is_running(a));
        let b = registry.claim();
        assert_eq!(b.slot, a.slot);
        assert_ne!(b, a);
    }

    #[test]
    fn table_notes_are_found_beyond_the_places_own_room() {
        let registry = Registry::new();
        let (a, b) = (registry.claim(), registry.claim());
        for table in 1..=10 {
            registry.place(a.slot).note_table(table);
        }
        assert_eq!(registry.holders_of(10, b).next(), Some(a));
        assert_eq!(registry.holders_of(10, a).next(), None);
        registry.place(a.slot).forget_table(10);
        assert_eq!(registry.holders_of(10, b).next(), None);
        registry.end(a);
        assert_eq!(registry.holders_of(1, b).next(), None);
    }
}
