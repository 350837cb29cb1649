//! The registry of running transactions. A transaction has an entry with its snapshot and the tables that it
//! has locked.
//!
//! Invariants
//! 1. `oldest` returns the horizon, the LSN up to which purge may remove undo. Every registered snapshot is
//!    at or above it, so purge has removed nothing that a snapshot needs. Transactions that a snapshot must
//!    not see have ids at or above the floor, below which every transaction has finished.
//! 2. An entry has a serial number, which changes when its transaction ends. An `Owner` with an older serial
//!    number belongs to a transaction that has ended.
//! 3. Registering and looking up take no mutex and allocate nothing.
//!
//! A transaction first writes its entry and then reads the horizon again. `oldest` first raises the horizon
//! and then reads the entries. So at least one of the two sees the other's write, as in Dekker's algorithm.
//! All these accesses are sequentially consistent.
//!
//! This module does not know statuses, rows or waits (`waits.rs`).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use parking_lot::{Condvar, Mutex};
use varve_pager::Lsn;

use crate::ids::Owner;

const CHUNK_LEN: usize = 64;
const CHUNKS_MAX: usize = 1024;
/// The number of tables that an entry can have outside of its mutex.
const TABLES_LEN: usize = 6;
const NO_SNAPSHOT: u64 = u64::MAX;

thread_local! {
    static HINT: Cell<usize> = const { Cell::new(0) };
}

/// A waiter in the queue of the transaction that it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) slot: u32,
    /// A hash of what it wants, so that only one of several waiters for the same row is woken.
    pub(crate) want: u64,
    /// The position in the order of arrival. It stays the same when the transaction waits for the same row
    /// again.
    pub(crate) ticket: u64,
}

/// A lock owner: a session together with its current transaction, or a transaction without a session (work in
/// the background).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Party(u64);

impl Party {
    /// Returns the session with this number, which is not 0.
    pub(crate) const fn session(number: u64) -> Self {
        Self(number << 1)
    }
}

/// The entry of one running transaction. Entries are aligned, so no two of them share a cache line, or a pair
/// of cache lines that is fetched together.
#[repr(align(128))]
pub(crate) struct TransactionSlot {
    claimed: AtomicBool,
    /// The label from the owner of the transaction, plus 1; 0 if there is none.
    label: AtomicU64,
    /// The identity of the transaction; 0 before it writes.
    identity: AtomicU64,
    snapshot: AtomicU64,
    serial: AtomicU64,
    /// The party of the session; 0 if the transaction belongs to no session.
    party: AtomicU64,
    /// The table in the lower half, and the modes in which it is used in the upper half (one bit for each
    /// mode). 0 if the entry is free.
    tables: [AtomicU64; TABLES_LEN],
    is_loser: AtomicBool,
    has_more: AtomicBool,
    more: Mutex<Vec<u64>>,
    /// Set if another transaction waits for a table in this entry.
    is_watched: AtomicBool,
    /// Whether the transaction has locks with a queue (`lock_queue.rs`).
    pub(crate) has_locks: AtomicBool,
    /// The number of waiters in `queue`. The end of the transaction reads it without the mutex.
    pub(crate) queued: AtomicU32,
    pub(crate) queue: Mutex<Vec<Waiter>>,
    /// Set to wake the transaction of this entry from its own wait.
    pub(crate) woken: Mutex<bool>,
    pub(crate) wake: Condvar,
}

impl TransactionSlot {
    fn new() -> Self {
        Self {
            claimed: AtomicBool::new(false),
            label: AtomicU64::new(0),
            identity: AtomicU64::new(0),
            snapshot: AtomicU64::new(NO_SNAPSHOT),
            serial: AtomicU64::new(1),
            party: AtomicU64::new(0),
            tables: Default::default(),
            is_loser: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            more: Mutex::default(),
            is_watched: AtomicBool::new(false),
            has_locks: AtomicBool::new(false),
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

    /// Records that the transaction belongs to a session.
    pub(crate) fn set_party(&self, party: Party) {
        self.party.store(party.0, SeqCst);
    }

    /// Records that the transaction does not belong to its session any more.
    pub(crate) fn leave_party(&self) {
        self.party.store(0, SeqCst);
    }

    /// Records that a waiter for a table in this entry must be woken when the table is removed.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, SeqCst);
    }

    /// Clears the watch and returns whether it was set. The caller then wakes the waiters.
    pub(crate) fn take_watch(&self) -> bool {
        self.is_watched.load(SeqCst) && self.is_watched.swap(false, SeqCst)
    }

    /// Returns the recorded tables with their modes.
    pub(crate) fn noted_tables(&self) -> Vec<(u32, u32)> {
        let tables = self.tables.iter().map(|note| note.load(SeqCst)).filter(|note| *note != 0);
        tables
            .chain(self.more.lock().iter().copied())
            .map(|note| (note as u32, (note >> 32) as u32))
            .collect()
    }

    /// Returns the serial number of the present transaction of this entry.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(SeqCst)
    }

    /// Records that the transaction is a loser: no thread runs it any more, and it is being undone.
    pub(crate) fn mark_loser(&self) {
        self.is_loser.store(true, SeqCst);
    }

    /// Returns whether a table is recorded in one of these modes.
    pub(crate) fn holds(&self, table: u32, modes: u32) -> bool {
        let is_it = |note: u64| note as u32 == table && (note >> 32) as u32 & modes != 0;
        self.tables.iter().any(|note| is_it(note.load(SeqCst)))
            || (self.has_more.load(SeqCst) && self.more.lock().iter().any(|note| is_it(*note)))
    }

    /// Records that a table is used in these modes. The caller then checks for conflicting locks.
    pub(crate) fn note_table(&self, table: u32, modes: u32) {
        let added = u64::from(modes) << 32;
        let mut free = None;
        for entry in &self.tables {
            match entry.load(SeqCst) {
                0 => free = free.or(Some(entry)),
                note if note as u32 == table => return entry.store(note | added, SeqCst),
                _ => {}
            }
        }
        let note = added | u64::from(table);
        match free {
            Some(entry) => entry.store(note, SeqCst),
            None => {
                let mut more = self.more.lock();
                match more.iter_mut().find(|note| **note as u32 == table) {
                    Some(note) => *note |= added,
                    None => more.push(note),
                }
                self.has_more.store(true, SeqCst);
            }
        }
    }

    /// Removes these modes from the record of a table.
    pub(crate) fn forget_table(&self, table: u32, modes: u32) {
        let left = |note: u64| match note & !(u64::from(modes) << 32) {
            note if note >> 32 == 0 => 0,
            note => note,
        };
        if let Some(entry) = self.tables.iter().find(|note| note.load(SeqCst) as u32 == table) {
            entry.store(left(entry.load(SeqCst)), SeqCst);
        }
        if self.has_more.load(SeqCst) {
            let mut more = self.more.lock();
            more.iter_mut().filter(|note| **note as u32 == table).for_each(|note| *note = left(*note));
            more.retain(|note| *note != 0);
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

/// All entries.
pub(crate) struct Registry {
    chunks: Box<[OnceLock<Box<[TransactionSlot]>>]>,
    len: AtomicUsize,
    grow: Mutex<()>,
    horizon: AtomicU64,
    /// Purge may have removed undo that a snapshot below this LSN needs, or is about to remove it.
    past: AtomicU64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            len: AtomicUsize::new(0),
            grow: Mutex::new(()),
            horizon: AtomicU64::new(0),
            past: AtomicU64::new(0),
        }
    }

    /// Records the LSN at which the database was opened. No snapshot below it can be taken, because it is not
    /// known when older transactions committed.
    pub(crate) fn begin_at(&self, opened: Lsn) {
        self.past.fetch_max(opened.get(), SeqCst);
    }

    /// Takes an entry for a new transaction. Panics if there are more than 65,536 transactions.
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
        let chunk = self.chunks[slot / CHUNK_LEN]
            .get_or_init(|| (0..CHUNK_LEN).map(|_| TransactionSlot::new()).collect());
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

    /// Returns the entry with this number.
    #[inline]
    pub(crate) fn place(&self, slot: u32) -> &TransactionSlot {
        let slot = slot as usize;
        match self.chunks[slot / CHUNK_LEN].get() {
            Some(chunk) => &chunk[slot % CHUNK_LEN],
            None => panic!("no transaction was ever at place {slot}"),
        }
    }

    /// Returns whether the transaction has not ended.
    pub(crate) fn is_running(&self, owner: Owner) -> bool {
        self.place(owner.slot).serial() == owner.serial
    }

    /// Registers a snapshot at the LSN that `durable` returns.
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

    /// Registers a snapshot of the past. Returns false if purge may have removed undo that the snapshot
    /// needs.
    ///
    /// The entry is written before `past` is read, and `purge_horizon` raises `past` before it reads the
    /// entries again. So at least one of the two sees the other's write.
    pub(crate) fn take_past_snapshot(&self, owner: Owner, snapshot: Lsn) -> bool {
        let place = self.place(owner.slot);
        place.snapshot.store(snapshot.get(), SeqCst);
        let is_there = self.past.load(SeqCst) <= snapshot.get();
        if !is_there {
            place.snapshot.store(NO_SNAPSHOT, SeqCst);
        }
        is_there
    }

    /// Returns the LSN up to which undo can be purged. No registered snapshot is below it, and undo at or
    /// below `retained` has been kept long enough. `newest_commit` gives the newest commit up to an LSN.
    /// Snapshots of the past below that commit are refused from now on.
    pub(crate) fn purge_horizon(
        &self,
        durable: Lsn,
        retained: Lsn,
        newest_commit: impl Fn(Lsn) -> Lsn,
    ) -> Lsn {
        let planned = self.oldest(durable).min(retained);
        self.past.fetch_max(newest_commit(planned).get(), SeqCst);
        self.oldest(durable).min(planned)
    }

    /// Removes the snapshot. The transaction does not read until it takes another one.
    #[inline]
    pub(crate) fn drop_snapshot(&self, owner: Owner) {
        // All reads are before this store. A thread that still sees the old value only purges later.
        self.place(owner.slot).snapshot.store(NO_SNAPSHOT, Release);
    }

    /// Returns the oldest snapshot registered, or `durable` if all are newer. Every snapshot registered from
    /// now on is at least as new as what this returns.
    pub(crate) fn oldest(&self, durable: Lsn) -> Lsn {
        self.horizon.fetch_max(durable.get(), SeqCst);
        let len = self.len.load(SeqCst);
        let places = (0..len).map(|slot| self.place(slot as u32).snapshot.load(SeqCst));
        Lsn::new(places.min().unwrap_or(NO_SNAPSHOT).min(durable.get()))
    }

    /// Returns the party to which the transaction belongs.
    pub(crate) fn party(&self, slot: u32) -> Party {
        match self.place(slot).party.load(SeqCst) {
            0 => Party(u64::from(slot) << 1 | 1),
            party => Party(party),
        }
    }

    /// Returns the slots in which the table is recorded in one of these modes.
    pub(crate) fn noted(&self, table: u32, modes: u32) -> impl Iterator<Item = u32> + '_ {
        let slots = 0..self.len.load(SeqCst) as u32;
        slots.filter(move |slot| self.place(*slot).holds(table, modes))
    }

    /// Returns the present transactions of all entries, including vacant ones.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        (0..self.len.load(SeqCst)).map(|slot| self.owner(slot))
    }

    /// Returns a loser that is not undone yet, if there is one.
    pub(crate) fn any_loser(&self) -> Option<Owner> {
        let mut owners = (0..self.len.load(SeqCst)).map(|slot| self.owner(slot));
        owners.find(|owner| self.place(owner.slot).is_loser.load(SeqCst))
    }

    /// Ends the transaction: removes its snapshot, its tables and its identity. The caller then wakes the
    /// transactions that wait for it, and calls `vacate`.
    pub(crate) fn end(&self, owner: Owner) {
        let place = self.place(owner.slot);
        place.snapshot.store(NO_SNAPSHOT, SeqCst);
        place.label.store(0, Relaxed);
        place.identity.store(0, Relaxed);
        place.forget_tables();
        place.leave_party();
        if place.is_loser.load(SeqCst) {
            place.is_loser.store(false, SeqCst);
        }
        place.serial.store(owner.serial + 1, SeqCst);
    }

    /// Frees the entry for other transactions.
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
    fn a_snapshot_of_the_past_holds_the_horizon_or_is_refused() {
        let registry = Registry::new();
        let (a, b) = (registry.claim(), registry.claim());
        let horizon = |retained| registry.purge_horizon(Lsn::new(30), Lsn::new(retained), |planned| planned);
        assert_eq!(horizon(10), Lsn::new(10));
        assert!(!registry.take_past_snapshot(a, Lsn::new(9)));
        assert!(registry.take_past_snapshot(a, Lsn::new(10)));
        assert!(registry.take_past_snapshot(b, Lsn::new(15)));
        assert_eq!(horizon(20), Lsn::new(10));
        registry.end(a);
        assert_eq!(horizon(20), Lsn::new(15));
        assert!(!registry.take_past_snapshot(a, Lsn::new(14)));
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
        let a = registry.claim();
        let noted = |table, modes| registry.noted(table, modes).next();
        for table in 1..=10 {
            registry.place(a.slot).note_table(table, 2);
            registry.place(a.slot).note_table(table, 8);
        }
        for table in [1, 10] {
            assert_eq!(
                (noted(table, 2), noted(table, 8), noted(table, 4)),
                (Some(a.slot), Some(a.slot), None)
            );
            registry.place(a.slot).forget_table(table, 2);
            assert_eq!((noted(table, 2), noted(table, 8)), (None, Some(a.slot)));
            registry.place(a.slot).forget_table(table, 8);
            assert_eq!(noted(table, 10), None);
        }
        registry.end(a);
        assert_eq!(noted(2, 2), None);
    }
}
