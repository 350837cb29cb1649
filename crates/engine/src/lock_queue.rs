//! Locks with a queue: locks on tables, views, schemas and roles, and advisory locks, whose keys applications
//! choose.
//!
//! A transaction that reads or changes rows of a table usually records its lock only in the registry of
//! transactions (`table_lock.rs`). The lock is in this queue only if another transaction has or requests a
//! conflicting mode. In both cases the transaction is a holder of the lock.
//!
//! Invariants
//! 1. A request is not granted while another transaction or session holds a conflicting mode.
//! 2. A request waits in the queue after earlier requests that conflict with it. It may pass requests that
//!    wait for a lock which its own transaction or session already holds.
//! 3. A strong mode of a table lock is one that excludes changes of rows. The counter `strong` of a table is
//!    above 0 while a transaction has or requests a strong mode. A request raises the counter before it reads
//!    the records of the registry.
//! 4. A request that waits for a record in the registry sets `is_watched` of the holder's entry, and then
//!    checks the record again. The holder removes its record before it reads `is_watched`. So at least one of
//!    the two sees the other's change.
//!
//! This module does not know how threads sleep (`waits.rs`), or cycles (`deadlock.rs`). All functions here
//! are called under the mutex of `Waits`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use varve_memory::EngineKind;

use crate::ids::Owner;
use crate::modes::{LockMode, Modes, WEAK};
use crate::registry::{Party, Registry};

/// The key of an advisory lock: one number or two that the application chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdvisoryKey {
    /// The database whose sessions share the lock.
    pub database: u32,
    /// The upper half of the number, or the first of two.
    pub class: u32,
    /// The lower half of the number, or the second of two.
    pub object: u32,
    /// Whether the key is two numbers.
    pub is_pair: bool,
}

/// The most keys that all sessions together may lock at a time. Each key takes about 300 bytes.
pub(crate) const ADVISORY_MAX: usize = 131_072;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tag {
    /// A table, view, schema or role.
    Object(u32),
    Advisory(AdvisoryKey),
    /// A partition of a memory-oriented engine.
    Partition(EngineKind, u16),
}

/// The transaction or session to which a lock belongs. It decides how long the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The lock is held until the transaction ends.
    Transaction(Owner),
    /// The lock is held until the session with this label has released it as often as it took it.
    Session(u32),
}

/// A lock that a party has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) party: Party,
    pub(crate) holder: Holder,
    pub(crate) mode: LockMode,
    /// How many times it was taken.
    count: u32,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) party: Party,
    pub(crate) holder: Holder,
    /// The transaction that sleeps.
    pub(crate) waiter: Owner,
    pub(crate) mode: LockMode,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// This holder already had the lock.
    Had,
    Granted,
    Queued,
    /// The lock is not free, and the request may not wait.
    Refused,
    /// The limit [`ADVISORY_MAX`] is reached.
    Full,
}

#[derive(Debug, Default)]
struct Lock {
    granted: Vec<Grant>,
    queue: Vec<Request>,
    strong: Option<Arc<AtomicU32>>,
}

/// All locks that a party has or requests.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    locks: HashMap<Tag, Lock>,
    /// The locks of transactions, by slot, in the order in which they were granted.
    held: HashMap<u32, Vec<(Tag, LockMode)>>,
}

impl Lock {
    fn count_strong(&self, mode: LockMode, by: i32) {
        if let Some(strong) = self.strong.as_ref().filter(|_| mode.is_strong()) {
            strong.fetch_add(by.cast_unsigned(), SeqCst);
        }
    }

    fn queued_modes(&self) -> Modes {
        self.queue.iter().fold(0, |modes, request| modes | request.mode.bit())
    }
}

impl LockTable {
    /// Requests a lock. If the result is `Queued`, the caller sleeps until `grant_next` grants the lock.
    pub(crate) fn ask(
        &mut self,
        registry: &Registry,
        tag: Tag,
        strong: Option<&Arc<AtomicU32>>,
        request: Request,
        may_wait: bool,
    ) -> Asked {
        let Request { party, holder, mode, .. } = request;
        let is_full = matches!(tag, Tag::Advisory(_)) && self.locks.len() >= ADVISORY_MAX;
        if is_full && !self.locks.contains_key(&tag) {
            return Asked::Full;
        }
        let lock = self.locks.entry(tag).or_default();
        if lock.strong.is_none() {
            lock.strong = strong.cloned();
        }
        let same = |grant: &&mut Grant| grant.party == party && grant.mode == mode;
        if let Some(grant) = lock.granted.iter_mut().filter(same).find(|grant| grant.holder == holder) {
            grant.count += 1;
            return Asked::Had;
        }
        lock.count_strong(mode, 1);
        if lock.granted.iter().any(|grant| grant.party == party && grant.mode == mode) {
            self.grant(registry, tag, request);
            return Asked::Granted;
        }
        let must_queue = mode.excludes() & lock.queued_modes() != 0;
        if !must_queue && self.holders(registry, tag, party, mode, true).is_empty() {
            self.grant(registry, tag, request);
            return Asked::Granted;
        }
        if !may_wait {
            self.withdrawn(tag, mode);
            return Asked::Refused;
        }
        self.queue_up(registry, tag, request)
    }

    /// Inserts the request before the first waiter that this party's own locks block. If neither a holder nor
    /// a waiter before that position conflicts with the request, grants it instead.
    fn queue_up(&mut self, registry: &Registry, tag: Tag, request: Request) -> Asked {
        let own = self.modes_of(registry, tag, request.party);
        let is_free = self.holders(registry, tag, request.party, request.mode, true).is_empty();
        let lock = self.locks.entry(tag).or_default();
        let mut ahead = 0;
        let mut at = lock.queue.len();
        for (place, other) in lock.queue.iter().enumerate() {
            if other.mode.excludes() & own != 0 {
                if is_free && request.mode.excludes() & ahead == 0 {
                    self.grant(registry, tag, request);
                    return Asked::Granted;
                }
                at = place;
                break;
            }
            ahead |= other.mode.bit();
        }
        lock.queue.insert(at, request);
        Asked::Queued
    }

    /// Returns the modes in which a party has the lock.
    fn modes_of(&self, registry: &Registry, tag: Tag, party: Party) -> Modes {
        let granted = self.locks.get(&tag).into_iter().flat_map(|lock| &lock.granted);
        let own = granted.filter(|grant| grant.party == party).fold(0, |modes, g| modes | g.mode.bit());
        let Tag::Object(table) = tag else { return own };
        let weak = LockMode::ALL.into_iter().filter(|mode| mode.is_weak()).map(LockMode::bit);
        let noted = |modes| registry.noted(table, modes).any(|slot| registry.party(slot) == party);
        weak.filter(|bit| noted(*bit)).fold(own, |modes, bit| modes | bit)
    }

    fn grant(&mut self, registry: &Registry, tag: Tag, request: Request) {
        let Request { party, holder, mode, .. } = request;
        self.locks.entry(tag).or_default().granted.push(Grant { party, holder, mode, count: 1 });
        if let Holder::Transaction(owner) = holder {
            self.held.entry(owner.slot).or_default().push((tag, mode));
            registry.place(owner.slot).has_locks.store(true, SeqCst);
        }
    }

    /// Returns the other parties that have a mode which conflicts with this one. With `watches`, returns only
    /// the first of them. This party will wake the waiters when it removes its record of the table.
    fn holders(
        &self,
        registry: &Registry,
        tag: Tag,
        party: Party,
        mode: LockMode,
        watches: bool,
    ) -> Vec<Party> {
        let granted = self.locks.get(&tag).into_iter().flat_map(|lock| &lock.granted);
        let in_the_way = granted.filter(|g| g.party != party && g.mode.bit() & mode.excludes() != 0);
        let mut found: Vec<Party> = in_the_way.map(|grant| grant.party).collect();
        let weak = mode.excludes() & WEAK;
        let Tag::Object(table) = tag else { return found };
        if weak == 0 || (watches && !found.is_empty()) {
            return found;
        }
        for slot in registry.noted(table, weak) {
            let other = registry.party(slot);
            if other == party {
                continue;
            }
            if !watches {
                found.push(other);
                continue;
            }
            let place = registry.place(slot);
            place.watch();
            if place.holds(table, weak) {
                return vec![other];
            }
        }
        found
    }

    /// Grants the lock to the waiters that can have it now, and returns their requests.
    pub(crate) fn grant_next(&mut self, registry: &Registry, tag: Tag) -> Vec<Request> {
        let mut granted = Vec::new();
        let mut ahead = 0;
        let queue = self.locks.get(&tag).map(|lock| lock.queue.clone()).unwrap_or_default();
        for request in queue {
            let mode = request.mode;
            let is_first = mode.excludes() & ahead == 0;
            if is_first && self.holders(registry, tag, request.party, mode, true).is_empty() {
                self.take_out(tag, request.party);
                self.grant(registry, tag, request);
                granted.push(request);
            } else {
                ahead |= mode.bit();
            }
        }
        granted
    }

    fn take_out(&mut self, tag: Tag, party: Party) -> Option<Request> {
        let queue = &mut self.locks.get_mut(&tag)?.queue;
        let at = queue.iter().position(|request| request.party == party)?;
        Some(queue.remove(at))
    }

    /// Removes the request of a party. Requests after it may now be granted.
    pub(crate) fn withdraw(&mut self, tag: Tag, party: Party) {
        if let Some(request) = self.take_out(tag, party) {
            self.withdrawn(tag, request.mode);
        }
    }

    fn withdrawn(&mut self, tag: Tag, mode: LockMode) {
        let Some(lock) = self.locks.get(&tag) else { return };
        lock.count_strong(mode, -1);
        if lock.granted.is_empty() && lock.queue.is_empty() {
            self.locks.remove(&tag);
        }
    }

    /// Releases one grant. With `at_once`, releases it completely even if it was taken several times. Returns
    /// whether there was such a grant.
    pub(crate) fn release(
        &mut self,
        tag: Tag,
        mode: LockMode,
        at_once: bool,
        is_it: impl Fn(&Grant) -> bool,
    ) -> bool {
        let Some(lock) = self.locks.get_mut(&tag) else { return false };
        let Some(at) = lock.granted.iter().position(|g| g.mode == mode && is_it(g)) else { return false };
        let grant = &mut lock.granted[at];
        grant.count -= 1;
        if at_once || grant.count == 0 {
            lock.granted.remove(at);
            self.withdrawn(tag, mode);
        }
        true
    }

    /// Returns whether there is such a grant.
    pub(crate) fn has(&self, tag: Tag, mode: LockMode, is_it: impl Fn(&Grant) -> bool) -> bool {
        let granted = self.locks.get(&tag).map(|lock| &lock.granted);
        granted.is_some_and(|granted| granted.iter().any(|grant| grant.mode == mode && is_it(grant)))
    }

    /// Returns the number of locks that a transaction has.
    pub(crate) fn held_by(&self, owner: Owner) -> usize {
        self.held.get(&owner.slot).map_or(0, Vec::len)
    }

    /// Releases the transaction's locks, except the first `keep` and those for which `is_kept` is true.
    /// Returns the tags of the released locks.
    pub(crate) fn release_all(
        &mut self,
        owner: Owner,
        keep: usize,
        is_kept: impl Fn(Tag, LockMode) -> bool,
    ) -> Vec<Tag> {
        let Some(held) = self.held.get_mut(&owner.slot) else { return Vec::new() };
        let later = held.split_off(keep.min(held.len()));
        let (kept, given): (Vec<_>, Vec<_>) = later.into_iter().partition(|(tag, mode)| is_kept(*tag, *mode));
        held.extend(kept);
        if held.is_empty() {
            self.held.remove(&owner.slot);
        }
        for (tag, mode) in &given {
            self.release(*tag, *mode, true, |grant| grant.holder == Holder::Transaction(owner));
        }
        given.into_iter().map(|(tag, _)| tag).collect()
    }

    /// Separates the locks of a transaction from its session.
    pub(crate) fn disown(&mut self, owner: Owner, party: Party) {
        let held = self.held.get(&owner.slot).into_iter().flatten();
        for (tag, _) in held {
            let granted = self.locks.get_mut(tag).into_iter().flat_map(|lock| &mut lock.granted);
            let own = granted.filter(|grant| grant.holder == Holder::Transaction(owner));
            own.for_each(|grant| grant.party = party);
        }
    }

    /// Returns the parties that a waiter waits for because they have the lock.
    pub(crate) fn hard(&self, registry: &Registry, tag: Tag, party: Party, mode: LockMode) -> Vec<Party> {
        self.holders(registry, tag, party, mode, false)
    }

    /// Returns the waiters before this party whose requests conflict with its request.
    pub(crate) fn ahead(&self, tag: Tag, party: Party, mode: LockMode) -> Vec<Party> {
        let ahead = self.queued(tag).into_iter().take_while(|(other, _)| *other != party);
        ahead.filter(|(_, other)| other.bit() & mode.excludes() != 0).map(|(other, _)| other).collect()
    }

    /// Returns the waiters for a lock with their modes, in the order of the queue.
    pub(crate) fn queued(&self, tag: Tag) -> Vec<(Party, LockMode)> {
        let queue = self.locks.get(&tag).into_iter().flat_map(|lock| &lock.queue);
        queue.map(|request| (request.party, request.mode)).collect()
    }

    /// Changes the order of a queue. The waiters are the same.
    pub(crate) fn reorder(&mut self, tag: Tag, order: &[Party]) {
        let place = |request: &Request| order.iter().position(|party| *party == request.party);
        if let Some(lock) = self.locks.get_mut(&tag) {
            lock.queue.sort_by_key(place);
        }
    }

    /// Returns whether a party waits for a lock.
    pub(crate) fn is_queued(&self, tag: Tag, party: Party) -> bool {
        let mut queue = self.locks.get(&tag).into_iter().flat_map(|lock| &lock.queue);
        queue.any(|request| request.party == party)
    }

    /// Calls the closures with all grants and all requests.
    pub(crate) fn each(&self, mut granted: impl FnMut(Tag, &Grant), mut queued: impl FnMut(Tag, &Request)) {
        for (tag, lock) in &self.locks {
            lock.granted.iter().for_each(|grant| granted(*tag, grant));
            lock.queue.iter().for_each(|request| queued(*tag, request));
        }
    }
}
