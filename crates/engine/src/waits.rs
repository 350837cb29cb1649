//! Waits for other transactions: for rows that they have locked, and for locks with a queue.
//!
//! Invariants
//! 1. A transaction waits for one thing at a time. The waits-for graph has an edge only while the waiter has
//!    to wait. So a cycle is closed by a transaction that begins to wait. This transaction resolves the cycle
//!    (`deadlock.rs`), or is rolled back as its victim.
//! 2. A waiter first enters the queue of the holder, and then checks again that the holder still holds the
//!    row. The holder first releases the row (`release`, or its end), and then looks into its queue. So one
//!    of the two sees the other.
//! 3. When a transaction ends, it wakes one waiter for each row: the waiter with the lowest ticket. The other
//!    waiters for this row move to the queue of the woken waiter. The woken waiter may find that it has to
//!    wait for the row again, for a third transaction. Then the others move on to the queue of the third
//!    transaction. If one of them is itself the third transaction, it is woken.
//! 4. When a transaction is granted a lock with a queue, it leaves the graph at once, before it wakes.
//!
//! This module does not know rows. A caller checks the row again after every wake-up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_pager::{Log, PagerError};

use crate::deadlock::Verdict;
use crate::error::{Error, Result};
use crate::ids::Owner;
use crate::lock_queue::{Asked, Grant, LockTable, Request, Tag};
use crate::modes::LockMode;
use crate::registry::{Party, Registry, Waiter};

/// The period after which a waiter checks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);
/// The period after which a waiter checks that the database still runs. If the database has stopped, the
/// holder may never end.
const HEALTH_POLL: Duration = Duration::from_millis(100);

/// A step of a long wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongWait {
    /// The transaction has waited for this time, and goes on waiting.
    Continues(Duration),
    /// The transaction has got the lock after this time.
    Granted(Duration),
    /// The wait has ended after this time without the lock.
    Ended(Duration),
}

/// Reports the waits of a transaction that take longer than a time. The waiting thread calls the function.
pub struct WaitNotice {
    /// The time after which a wait is reported.
    pub after: Duration,
    /// The function that gets the report.
    pub tell: Box<dyn Fn(LongWait) + Send + Sync>,
}

/// Observes one wait for a notice.
struct Observed<'a> {
    notice: Option<&'a WaitNotice>,
    began: Option<Instant>,
    is_told: bool,
}

impl<'a> Observed<'a> {
    fn new(notice: Option<&'a WaitNotice>) -> Self {
        Self { notice, began: notice.map(|_| Instant::now()), is_told: false }
    }

    /// Returns the time until the wait is reported, if it was not reported yet.
    fn left(&self) -> Option<Duration> {
        let (notice, began) = (self.notice.filter(|_| !self.is_told)?, self.began?);
        Some(notice.after.saturating_sub(began.elapsed()))
    }

    fn tell(&mut self, step: impl FnOnce(Duration) -> LongWait) {
        if let (Some(notice), Some(began)) = (self.notice, self.began) {
            self.is_told = true;
            (notice.tell)(step(began.elapsed()));
        }
    }

    /// Reports the end of a wait whose length was reported.
    fn end(mut self, has_lock: bool) {
        if self.is_told {
            self.tell(if has_lock { LongWait::Granted } else { LongWait::Ended });
        }
    }
}

/// The time limit of a wait, and the conditions that end it early.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Option<Duration>,
    /// The end of the time limit, if this is not the first wait for the same thing.
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    /// The log whose stop ends the wait.
    pub(crate) log: Option<&'a Log>,
    /// Reports a long wait.
    pub(crate) notice: Option<&'a WaitNotice>,
}

impl Patience<'_> {
    /// Returns the limits after a wait has begun. Another wait for the same thing then has the same deadline.
    pub(crate) fn begun(self) -> Self {
        let deadline = self.deadline.or_else(|| self.timeout.map(|t| Instant::now() + t));
        Self { deadline, ..self }
    }

    /// Returns an error if there is a reason to end the wait.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancel.is_some_and(|c| c.load(Ordering::SeqCst)) {
            return Err(Error::Cancelled);
        }
        self.log.map_or(Ok(()), |log| log.check().map_err(PagerError::from))?;
        match self.left() {
            Some(Duration::ZERO) => Err(Error::LockTimeout),
            _ => Ok(()),
        }
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(|d| d.saturating_duration_since(Instant::now()))
    }

    fn poll(&self) -> Option<Duration> {
        self.cancel.map(|_| CANCEL_POLL).or(self.log.map(|_| HEALTH_POLL))
    }
}

/// A row, a key or another thing that one transaction holds and another one wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRow {
    pub(crate) by: Owner,
    /// The number of releases before the waiter saw the holder.
    pub(crate) released: u64,
    /// Hash of the row that the waiter wants. Waiters with the same hash are woken one by one, in the order
    /// of their tickets.
    pub(crate) want: u64,
    /// The position in the order of arrival among waiters for the same row.
    pub(crate) ticket: u64,
}

/// The thing that a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    /// A transaction in whose queue the waiter is. If the edge is inherited, another thread has moved the
    /// waiter there, and the waiter has not checked the holder itself.
    Held { by: Owner, is_inherited: bool },
    /// A lock in whose queue the waiter is.
    Queued { tag: Tag, mode: LockMode },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) waiter: Owner,
    pub(crate) on: On,
}

/// The edges of the waits-for graph, and the holders of locks with a queue.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) edges: HashMap<Party, Edge>,
    pub(crate) locks: LockTable,
    /// The slots that are woken after the mutex is unlocked.
    woken: Vec<u32>,
}

/// A counter in its own cache lines, so that changes of other counters do not slow it down.
#[repr(align(128))]
#[derive(Default)]
struct Apart(AtomicU64);

/// The waits-for graph.
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<State>,
    /// The number of releases by transactions that continue.
    releases: Apart,
    tickets: Apart,
    parties: AtomicU64,
    pub(crate) wait_count: AtomicU64,
    pub(crate) deadlock_count: AtomicU64,
}

/// A request for a lock with a queue.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) tag: Tag,
    /// The table's count of strong modes, that is, of lock modes that exclude changes of rows
    /// (`table_lock.rs`).
    pub(crate) strong: Option<&'a Arc<AtomicU32>>,
    pub(crate) request: Request,
    /// Whether the fast path (`table_lock.rs`) has recorded the table in the waiter's entry of the registry.
    /// It did so before it saw that another transaction holds or requests a strong mode. `ask` then removes
    /// the record first.
    pub(crate) is_noted: bool,
}

/// The way in which a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// This holder already had the lock.
    Before,
    AtOnce,
    AfterWait,
}

impl Waits {
    /// Waits until the holder releases the row, or the row passes to another holder. Returns at once if the
    /// row may be free. The caller then checks the row. If the row still has a holder, the caller waits
    /// again, with the deadline of its first wait (`Patience::begun`).
    pub(crate) fn wait(
        &self,
        registry: &Registry,
        me: Owner,
        held: HeldRow,
        patience: Patience<'_>,
    ) -> Result<()> {
        *registry.place(me.slot).woken.lock() = false;
        if !self.add_edge(registry, me, held)? {
            return patience.check();
        }
        self.wait_count.fetch_add(1, Ordering::Relaxed);
        let mut observed = Observed::new(patience.notice);
        let outcome = sleep(registry, me, patience, &mut observed);
        self.change(registry, |state| state.leave(registry, me));
        observed.end(outcome.is_ok());
        outcome
    }

    /// Takes a lock with a queue.
    pub(crate) fn lock(&self, registry: &Registry, wish: Wish<'_>, patience: Patience<'_>) -> Result<Got> {
        let Request { waiter, party, .. } = wish.request;
        let may_wait = patience.timeout != Some(Duration::ZERO);
        *registry.place(waiter.slot).woken.lock() = false;
        match self.change(registry, |state| state.ask(registry, wish, may_wait)) {
            Some(Asked::Had) => return Ok(Got::Before),
            Some(Asked::Granted) => return Ok(Got::AtOnce),
            Some(Asked::Refused) => return Err(Error::LockTimeout),
            Some(Asked::Full) => return Err(Error::TooManyLocks),
            Some(Asked::Queued) => {}
            None => {
                self.deadlock_count.fetch_add(1, Ordering::Relaxed);
                return Err(Error::Deadlock);
            }
        }
        self.wait_count.fetch_add(1, Ordering::Relaxed);
        let patience = patience.begun();
        let mut observed = Observed::new(patience.notice);
        loop {
            let outcome = sleep(registry, waiter, patience, &mut observed);
            // The flag is cleared before the queue is checked, so a grant after the check wakes the next
            // sleep. (This wake-up may belong to an earlier wait in the same slot.)
            *registry.place(waiter.slot).woken.lock() = false;
            // If the lock was granted while the wait was given up, the transaction has the lock.
            let is_waiting = self.change(registry, |state| match outcome {
                Ok(()) => state.locks.is_queued(wish.tag, party),
                Err(_) => state.give_up(registry, wish.tag, party),
            });
            match outcome {
                _ if !is_waiting => {
                    observed.end(true);
                    return Ok(Got::AfterWait);
                }
                Ok(()) => {}
                Err(error) => {
                    observed.end(false);
                    return Err(error);
                }
            }
        }
    }

    /// Releases the locks that a transaction got after its first `keep`, except those for which `is_kept` is
    /// true.
    pub(crate) fn unlock_all(
        &self,
        registry: &Registry,
        owner: Owner,
        keep: usize,
        is_kept: impl Fn(Tag, LockMode) -> bool,
    ) {
        if registry.place(owner.slot).has_locks.load(Ordering::SeqCst) {
            self.change(registry, |state| {
                let freed = state.locks.release_all(owner, keep, is_kept);
                freed.into_iter().for_each(|tag| state.grant_next(registry, tag));
                let has_more = state.locks.held_by(owner) > 0;
                registry.place(owner.slot).has_locks.store(has_more, Ordering::SeqCst);
            });
        }
    }

    /// Releases one grant. Returns whether there was one.
    pub(crate) fn unlock(
        &self,
        registry: &Registry,
        tag: Tag,
        mode: LockMode,
        at_once: bool,
        is_it: impl Fn(&Grant) -> bool,
    ) -> bool {
        self.change(registry, |state| {
            let was_there = state.locks.release(tag, mode, at_once, is_it);
            state.grant_next(registry, tag);
            was_there
        })
    }

    /// Returns the number of locks with a queue that a transaction has.
    pub(crate) fn held_by(&self, registry: &Registry, owner: Owner) -> usize {
        match registry.place(owner.slot).has_locks.load(Ordering::SeqCst) {
            true => self.state.lock().locks.held_by(owner),
            false => 0,
        }
    }

    /// Separates a transaction from its session, until the transaction is undone.
    pub(crate) fn disown(&self, registry: &Registry, owner: Owner) {
        self.change(registry, |state| {
            registry.place(owner.slot).leave_party();
            state.locks.disown(owner, registry.party(owner.slot));
        });
    }

    /// Returns the number of releases by transactions that continue. A waiter reads this counter before it
    /// checks what a transaction holds.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.0.load(Ordering::SeqCst)
    }

    /// Returns a new party for a session.
    pub(crate) fn new_party(&self) -> Party {
        Party::session(self.parties.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns a new ticket, which orders the waiters for the same row.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Reports that `owner`, which continues, has released something that others may wait for.
    pub(crate) fn release(&self, registry: &Registry, owner: Owner) {
        self.releases.0.fetch_add(1, Ordering::SeqCst);
        self.wake(registry, owner);
    }

    /// Wakes the waiters for `owner`. The caller does this after `owner` has ended, and if `owner` was woken
    /// for a row and did not take the row.
    pub(crate) fn wake(&self, registry: &Registry, owner: Owner) {
        let place = registry.place(owner.slot);
        let is_watched = place.take_watch();
        if !is_watched && place.queued.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.change(registry, |state| {
            state.wake_queue(registry, owner);
            if is_watched {
                state.grant_all(registry);
            }
        });
    }

    /// Adds the waiter to a queue and to the graph, if it has to wait. Returns whether it has to wait.
    fn add_edge(&self, registry: &Registry, me: Owner, held: HeldRow) -> Result<bool> {
        assert_ne!(me, held.by, "a transaction waits for itself");
        let outcome = self.change(registry, |state| self.settle(registry, state, me, held));
        if matches!(outcome, Err(Error::Deadlock)) {
            self.deadlock_count.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Adds the waiter to the queue, and checks whether it has to stay there.
    fn settle(&self, registry: &Registry, state: &mut State, me: Owner, held: HeldRow) -> Result<bool> {
        let waiter = Waiter { slot: me.slot, want: held.want, ticket: held.ticket };
        state.put(registry, waiter, held.by, false);
        let is_held = self.releases() == held.released && registry.is_running(held.by);
        if !is_held {
            state.leave(registry, me);
            return Ok(false);
        }
        state.take_along(registry, me, held);
        match state.resolve(registry, registry.party(me.slot)) {
            Verdict::Free(queues) => queues.into_iter().for_each(|tag| state.grant_next(registry, tag)),
            Verdict::Deadlock => {
                state.leave(registry, me);
                return Err(Error::Deadlock);
            }
        }
        Ok(true)
    }

    /// Calls the closure with the graph and the locks.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        at(&self.state.lock())
    }

    /// Changes the graph, and then wakes the transactions that the change allows to continue.
    fn change<T>(&self, registry: &Registry, make: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let made = make(&mut state);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(|slot| wake_one(registry, slot));
        made
    }
}

impl State {
    /// Moves the waiters that wait for the same thing after this waiter to the next queue, together with it.
    fn take_along(&mut self, registry: &Registry, me: Owner, held: HeldRow) {
        for follower in self.followers(registry, me, held.want) {
            // The holder that `me` waits for has a shared lock and may get a stronger one. So may the
            // transaction that the holder waits for.
            let holder = registry.party(held.by.slot);
            match follower.slot == held.by.slot || self.edges.contains_key(&holder) {
                true => self.woken.push(follower.slot),
                false => self.put(registry, follower, held.by, true),
            }
        }
    }

    /// Removes the waiters that were moved after `me` for the same thing from its queue, and returns them.
    fn followers(&mut self, registry: &Registry, me: Owner, want: u64) -> Vec<Waiter> {
        let place = registry.place(me.slot);
        if place.queued.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let is_inherited = |edges: &HashMap<Party, Edge>, waiter: &Waiter| {
            let edge = edges.get(&registry.party(waiter.slot));
            edge.is_some_and(|edge| matches!(edge.on, On::Held { is_inherited: true, .. }))
        };
        let mut queue = place.queue.lock();
        let (out, left) =
            queue.drain(..).partition(|waiter| waiter.want == want && is_inherited(&self.edges, waiter));
        *queue = left;
        let out: Vec<Waiter> = out;
        place.queued.fetch_sub(out.len() as u32, Ordering::SeqCst);
        for waiter in &out {
            self.edges.remove(&registry.party(waiter.slot));
        }
        out
    }

    /// Inserts a waiter into the queue of `by`, in the order of tickets.
    fn put(&mut self, registry: &Registry, waiter: Waiter, by: Owner, is_inherited: bool) {
        let place = registry.place(by.slot);
        let mut queue = place.queue.lock();
        let at = queue.iter().position(|other| other.ticket > waiter.ticket).unwrap_or(queue.len());
        queue.insert(at, waiter);
        place.queued.fetch_add(1, Ordering::SeqCst);
        let owner = Owner { slot: waiter.slot, serial: registry.place(waiter.slot).serial() };
        let edge = Edge { waiter: owner, on: On::Held { by, is_inherited } };
        self.edges.insert(registry.party(waiter.slot), edge);
    }

    /// Wakes the first waiter for each row. The other waiters for the row wait for that waiter from now on.
    /// These edges close no cycle, because the woken waiter runs.
    fn wake_queue(&mut self, registry: &Registry, owner: Owner) {
        let place = registry.place(owner.slot);
        // The mutex of the graph keeps waiters from joining a queue that is being moved.
        let queue = std::mem::take(&mut *place.queue.lock());
        place.queued.store(0, Ordering::SeqCst);
        let mut first: Vec<Waiter> = Vec::new();
        for waiter in queue {
            match first.iter().find(|heir| heir.want == waiter.want) {
                Some(heir) => {
                    let heir = Owner { slot: heir.slot, serial: registry.place(heir.slot).serial() };
                    self.put(registry, waiter, heir, true);
                }
                None => {
                    self.edges.remove(&registry.party(waiter.slot));
                    self.woken.push(waiter.slot);
                    first.push(waiter);
                }
            }
        }
    }

    /// Removes a waiter for a transaction from the graph, and from the queue that it is in now.
    fn leave(&mut self, registry: &Registry, me: Owner) {
        let party = registry.party(me.slot);
        if let Some(On::Held { by, .. }) = self.edges.get(&party).map(|edge| edge.on) {
            self.edges.remove(&party);
            dequeue(registry, by, me);
        }
    }

    /// Wakes a waiter that was moved after another one, so that it checks the row itself.
    pub(crate) fn let_look(&mut self, registry: &Registry, party: Party) {
        if let Some(edge) = self.edges.get(&party).copied() {
            self.leave(registry, edge.waiter);
            self.woken.push(edge.waiter.slot);
        }
    }

    /// Requests a lock, and adds the waiter to the graph if it has to wait. `None` means a deadlock.
    fn ask(&mut self, registry: &Registry, wish: Wish<'_>, may_wait: bool) -> Option<Asked> {
        let Wish { tag, strong, request, is_noted } = wish;
        let Request { waiter, party, mode, .. } = request;
        if let (true, Tag::Object(table)) = (is_noted, tag) {
            registry.place(waiter.slot).forget_table(table, mode.bit());
            // Another transaction may have seen the record and wait for its owner.
            self.grant_next(registry, tag);
        }
        let asked = self.locks.ask(registry, tag, strong, request, may_wait);
        if asked != Asked::Queued {
            return Some(asked);
        }
        self.edges.insert(party, Edge { waiter, on: On::Queued { tag, mode } });
        match self.resolve(registry, party) {
            Verdict::Free(queues) => queues.iter().for_each(|tag| self.grant_next(registry, *tag)),
            Verdict::Deadlock => {
                self.give_up(registry, tag, party);
                return None;
            }
        }
        Some(if self.locks.is_queued(tag, party) { Asked::Queued } else { Asked::Granted })
    }

    /// Removes a waiter for a lock. Returns whether it was still waiting.
    fn give_up(&mut self, registry: &Registry, tag: Tag, party: Party) -> bool {
        let was_queued = self.locks.is_queued(tag, party);
        if was_queued {
            self.edges.remove(&party);
            self.locks.withdraw(tag, party);
            self.grant_next(registry, tag);
        }
        was_queued
    }

    fn grant_next(&mut self, registry: &Registry, tag: Tag) {
        for granted in self.locks.grant_next(registry, tag) {
            self.edges.remove(&granted.party);
            self.woken.push(granted.waiter.slot);
        }
    }

    /// Grants the locks that waiters can have now, after a record was removed from the registry.
    fn grant_all(&mut self, registry: &Registry) {
        let tags = self.edges.values().filter_map(|edge| match edge.on {
            On::Queued { tag, .. } => Some(tag),
            On::Held { .. } => None,
        });
        let tags: HashSet<Tag> = tags.collect();
        tags.into_iter().for_each(|tag| self.grant_next(registry, tag));
    }
}

fn dequeue(registry: &Registry, by: Owner, me: Owner) {
    let place = registry.place(by.slot);
    let mut queue = place.queue.lock();
    if let Some(at) = queue.iter().position(|w| w.slot == me.slot) {
        queue.remove(at);
        place.queued.fetch_sub(1, Ordering::SeqCst);
    }
}

fn sleep(registry: &Registry, me: Owner, patience: Patience<'_>, observed: &mut Observed<'_>) -> Result<()> {
    let patience = patience.begun();
    let place = registry.place(me.slot);
    let mut woken = place.woken.lock();
    while !*woken {
        patience.check()?;
        let notice = observed.left();
        if notice.is_some_and(|left| left.is_zero()) {
            // The report reads the graph, so this thread must not have the flag then.
            drop(woken);
            observed.tell(LongWait::Continues);
            woken = place.woken.lock();
            continue;
        }
        match patience.left().into_iter().chain(patience.poll()).chain(notice).min() {
            Some(most) => {
                place.wake.wait_for(&mut woken, most);
            }
            None => place.wake.wait(&mut woken),
        }
    }
    Ok(())
}

/// Wakes the transaction that sleeps at a position of the queue. Another transaction may have this position
/// by now, so a woken waiter checks its lock before it continues.
pub(crate) fn wake_one(registry: &Registry, slot: u32) {
    let place = registry.place(slot);
    *place.woken.lock() = true;
    place.wake.notify_one();
}

#[cfg(test)]
mod tests;
