//! The state of every transaction that may still matter: active, committed at an LSN, aborted.
//!
//! Invariants
//! 1. The floor is a transaction id. Every active transaction has an id at or above the floor. A transaction
//!    below the floor has finished: every snapshot sees its changes, or they are undone.
//! 2. A transaction is Active before its id appears in any row. It stays Active until its commit record has
//!    its LSN, or until all its changes are undone.
//! 3. The states of transactions are in a ring. If a state has to leave the ring while its id is at or above
//!    the floor, it moves to the overflow map. So `get` knows every id at or above the floor.
//!
//! A reader loads the floor before it reads rows. If the id in a row is below this value, the transaction had
//! finished before the row was read, so its state need not be looked up. Most rows have such an id.
//!
//! This module does not know rows, locks, or which snapshots exist. The caller of `advance_floor` passes the
//! oldest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_pager::Lsn;

use crate::ids::{Owner, TxnId};

/// The number of states in the ring, which takes 2 MiB.
const RING_LEN: usize = 1 << 16;
/// The most ids by which the floor is raised in one step.
const FLOOR_STEP: u64 = 1024;
const ACTIVE: u64 = 0;
const ABORTED: u64 = u64::MAX;

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The transaction runs, or is being undone.
    Active(Owner),
    /// The commit record ends at this LSN, and may not be durable yet.
    Committed(Lsn, Owner),
    /// All changes are undone. A reader that has a copy of one of them must read the row again.
    Aborted,
    /// Committed before this start of the database.
    Old,
    /// Finished, and removed from the table. Only a reader with an outdated copy gets this, and it must read
    /// the row again.
    Forgotten,
}

/// One entry of the ring. `tag` is the id to which it belongs.
struct Entry {
    tag: AtomicU64,
    state: AtomicU64,
    slot: AtomicU64,
    serial: AtomicU64,
}

#[derive(Clone, Copy)]
struct Raw {
    state: u64,
    owner: Owner,
}

struct Issue {
    next: u64,
    overflow: BTreeMap<u64, Raw>,
}

/// The table of states.
pub(crate) struct StatusTable {
    ring: Box<[Entry]>,
    floor: AtomicU64,
    /// First id since the start of the database. Lower ids are old, unless they are losers, which stay in the
    /// overflow map.
    first: u64,
    issue: Mutex<Issue>,
}

impl StatusTable {
    /// Returns a table in which all ids below `next` are old.
    pub(crate) fn new(next: TxnId) -> Self {
        let entry = |_| Entry {
            tag: AtomicU64::new(0),
            state: AtomicU64::new(0),
            slot: AtomicU64::new(0),
            serial: AtomicU64::new(0),
        };
        let issue = Issue { next: next.get(), overflow: BTreeMap::new() };
        Self {
            ring: (0..RING_LEN).map(entry).collect(),
            floor: AtomicU64::new(next.get()),
            first: next.get(),
            issue: Mutex::new(issue),
        }
    }

    /// Returns the floor. The changes of all transactions with ids below it are visible to every snapshot, or
    /// undone.
    #[inline]
    pub(crate) fn floor(&self) -> TxnId {
        TxnId::new(self.floor.load(Ordering::Acquire))
    }

    /// Returns the next id.
    #[cfg(test)]
    fn next(&self) -> TxnId {
        TxnId::new(self.issue.lock().next)
    }

    /// Assigns the next id, with the state Active. `None` means that it is not below `limit`, the limit of
    /// durably reserved ids.
    pub(crate) fn assign(&self, owner: Owner, limit: TxnId) -> Option<TxnId> {
        let mut issue = self.issue.lock();
        if issue.next >= limit.get() {
            return None;
        }
        let id = issue.next;
        self.install(&mut issue, id, Raw { state: ACTIVE, owner });
        issue.next += 1;
        Some(TxnId::new(id))
    }

    /// Registers the losers after a crash as Active. All other ids from the oldest loser on count as
    /// committed before the start.
    pub(crate) fn revive(&self, losers: &[(TxnId, Owner)]) {
        let mut issue = self.issue.lock();
        for (id, owner) in losers {
            issue.overflow.insert(id.get(), Raw { state: ACTIVE, owner: *owner });
        }
        let oldest = losers.iter().map(|(id, _)| id.get()).min();
        if let Some(oldest) = oldest {
            self.floor.store(oldest, Ordering::Release);
        }
    }

    /// Returns the state of an id that was at or above the floor when the caller read the floor.
    #[inline]
    pub(crate) fn get(&self, id: TxnId) -> Status {
        match self.ring_get(id) {
            Some(raw) => raw.status(),
            None => self.overflow_get(id),
        }
    }

    /// Records that the transaction is committed at `lsn`. The caller is in the append section of the commit
    /// record.
    pub(crate) fn set_committed(&self, id: TxnId, lsn: Lsn) {
        assert!(lsn.get() != ACTIVE && lsn.get() != ABORTED, "commit at LSN {lsn}");
        self.set(id, lsn.get());
    }

    /// Records that the transaction is aborted. All its changes are undone.
    pub(crate) fn set_aborted(&self, id: TxnId) {
        self.set(id, ABORTED);
    }

    /// Raises the floor past ids that are finished and, if committed, visible to `oldest_snapshot`.
    pub(crate) fn advance_floor(&self, oldest_snapshot: Lsn) {
        while self.advance_some(oldest_snapshot) == FLOOR_STEP {}
    }

    /// Raises the floor by one step and not more, because commits wait for the mutex. Returns the number of
    /// ids by which it was raised.
    fn advance_some(&self, oldest_snapshot: Lsn) -> u64 {
        let mut issue = self.issue.lock();
        let start = self.past_recovered(&issue, oldest_snapshot);
        let mut floor = start;
        while floor < issue.next && floor < start + FLOOR_STEP && self.is_over(&issue, floor, oldest_snapshot)
        {
            if floor >= self.first {
                issue.overflow.remove(&floor);
            }
            floor += 1;
        }
        self.floor.store(floor, Ordering::Release);
        floor - start
    }

    /// Returns the floor, raised past the ids from before the start, up to the oldest loser that is not
    /// undone. The ids between losers have no states, and there may be very many of them.
    fn past_recovered(&self, issue: &Issue, oldest_snapshot: Lsn) -> u64 {
        let floor = self.floor.load(Ordering::Relaxed);
        if floor >= self.first {
            return floor;
        }
        let mut losers = issue.overflow.range(floor..self.first).map(|(id, _)| *id);
        losers.find(|id| !self.is_over(issue, *id, oldest_snapshot)).unwrap_or(self.first)
    }

    fn is_over(&self, issue: &Issue, id: u64, oldest_snapshot: Lsn) -> bool {
        let raw = self.ring_get(TxnId::new(id)).or_else(|| issue.overflow.get(&id).copied());
        raw.is_none_or(|raw| {
            raw.state == ABORTED || (raw.state != ACTIVE && raw.state <= oldest_snapshot.get())
        })
    }

    fn entry(&self, id: u64) -> &Entry {
        &self.ring[id as usize % RING_LEN]
    }

    fn install(&self, issue: &mut Issue, id: u64, raw: Raw) {
        let entry = self.entry(id);
        let evicted = entry.tag.load(Ordering::Relaxed);
        if evicted != 0 && evicted >= self.floor.load(Ordering::Relaxed) {
            issue.overflow.insert(evicted, entry.read());
        }
        entry.tag.store(0, Ordering::SeqCst);
        entry.state.store(raw.state, Ordering::SeqCst);
        entry.slot.store(u64::from(raw.owner.slot), Ordering::SeqCst);
        entry.serial.store(raw.owner.serial, Ordering::SeqCst);
        entry.tag.store(id, Ordering::SeqCst);
    }

    fn ring_get(&self, id: TxnId) -> Option<Raw> {
        let entry = self.entry(id.get());
        if entry.tag.load(Ordering::SeqCst) != id.get() {
            return None;
        }
        let raw = entry.read();
        (entry.tag.load(Ordering::SeqCst) == id.get()).then_some(raw)
    }

    #[cold]
    fn overflow_get(&self, id: TxnId) -> Status {
        let issue = self.issue.lock();
        let raw = self.ring_get(id).or_else(|| issue.overflow.get(&id.get()).copied());
        let unknown = if id.get() < self.first { Status::Old } else { Status::Forgotten };
        raw.map_or(unknown, Raw::status)
    }

    fn set(&self, id: TxnId, state: u64) {
        let mut issue = self.issue.lock();
        let entry = self.entry(id.get());
        if entry.tag.load(Ordering::Relaxed) == id.get() {
            entry.state.store(state, Ordering::SeqCst);
        } else if let Some(raw) = issue.overflow.get_mut(&id.get()) {
            raw.state = state;
        } else {
            panic!("transaction {id} ends but was not active");
        }
    }
}

impl Entry {
    fn read(&self) -> Raw {
        Raw {
            state: self.state.load(Ordering::SeqCst),
            owner: Owner {
                slot: self.slot.load(Ordering::SeqCst) as u32,
                serial: self.serial.load(Ordering::SeqCst),
            },
        }
    }
}

impl Raw {
    fn status(self) -> Status {
        match self.state {
            ACTIVE => Status::Active(self.owner),
            ABORTED => Status::Aborted,
            lsn => Status::Committed(Lsn::new(lsn), self.owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { slot: 3, serial: 9 };
    const NO_LIMIT: TxnId = TxnId::NONE;

    fn assign(table: &StatusTable) -> TxnId {
        let limit = TxnId::new(NO_LIMIT.get() + (1 << 40));
        table.assign(OWNER, limit).unwrap()
    }

    #[test]
    fn the_floor_stops_at_the_oldest_active_and_at_the_oldest_snapshot() {
        let table = StatusTable::new(TxnId::new(10));
        let (a, b, c) = (assign(&table), assign(&table), assign(&table));
        table.set_committed(a, Lsn::new(100));
        table.set_committed(c, Lsn::new(90));
        table.advance_floor(Lsn::new(95));
        assert_eq!(table.floor(), a);
        table.advance_floor(Lsn::new(100));
        assert_eq!(table.floor(), b);
        assert_eq!(table.get(c), Status::Committed(Lsn::new(90), OWNER));
        table.set_aborted(b);
        table.advance_floor(Lsn::new(100));
        assert_eq!(table.floor(), TxnId::new(13));
        assert_eq!(table.get(b), Status::Aborted);
    }

    #[test]
    fn a_state_pushed_out_of_the_ring_is_still_known() {
        let table = StatusTable::new(TxnId::new(1));
        let first = assign(&table);
        let second = assign(&table);
        table.set_committed(second, Lsn::new(50));
        for _ in 0..RING_LEN {
            let id = assign(&table);
            table.set_committed(id, Lsn::new(60));
        }
        assert_eq!(table.get(first), Status::Active(OWNER));
        assert_eq!(table.get(second), Status::Committed(Lsn::new(50), OWNER));
        table.set_aborted(first);
        table.advance_floor(Lsn::new(1000));
        assert_eq!(table.floor(), table.next());
        assert_eq!(table.get(second), Status::Forgotten);
    }

    /// The fuzz target `opening` found that the floor was raised one by one through all ids since the oldest
    /// loser. That did not end if a damaged root page with a right checksum had a very large id.
    #[test]
    fn the_floor_steps_over_ids_from_before_the_start() {
        let table = StatusTable::new(TxnId::new(1 << 47));
        let (a, b) = (TxnId::new(7), TxnId::new(1 << 46));
        table.revive(&[(a, OWNER), (b, OWNER)]);
        table.advance_floor(Lsn::new(100));
        assert_eq!(table.floor(), a);
        table.set_aborted(a);
        table.advance_floor(Lsn::new(100));
        assert_eq!(table.floor(), b);
        table.set_aborted(b);
        table.advance_floor(Lsn::new(100));
        assert_eq!(table.floor(), TxnId::new(1 << 47));
        assert_eq!((table.get(a), table.get(b)), (Status::Aborted, Status::Aborted));
    }

    #[test]
    fn losers_are_active_until_undone() {
        let table = StatusTable::new(TxnId::new(100));
        table.revive(&[(TxnId::new(40), OWNER)]);
        assert_eq!(table.get(TxnId::new(39)), Status::Old);
        assert_eq!(table.get(TxnId::new(40)), Status::Active(OWNER));
        assert_eq!(table.get(TxnId::new(41)), Status::Old);
        table.set_aborted(TxnId::new(40));
        table.advance_floor(Lsn::new(1));
        assert_eq!(table.floor(), TxnId::new(100));
        assert_eq!(table.get(TxnId::new(40)), Status::Aborted);
    }
}
