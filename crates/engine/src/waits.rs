//! Waiting for other transactions, and the search for deadlocks.
//!
//! Invariants
//! 1. A transaction waits for one obstacle at a time: another transaction, or all who use a table. An edge of the waits-for graph stands
//!    only while its waiter has reason to wait, so a cycle is closed by exactly one new edge: whoever adds it is the victim.
//! 2. Who waits is in the queue of somebody in its way before it looks, for the last time, whether that one still is. Who gives something
//!    up says so (`release`, or its end) before it looks into its queue. One of them sees the other.
//! 3. Who gives up what others wait for takes their edges out before it waits itself.
//! 4. An end wakes the first waiter for each thing wanted; the others move to its queue (they will want it from it).
//!
//! Does not know: rows; callers look again after every wake-up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use varve_pager::{Log, PagerError};

use crate::error::{Error, Result};
use crate::ids::Owner;
use crate::registry::{Registry, Waiter};

/// How often a waiter looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);
/// How often a waiter looks whether the database still runs: whoever it waits for may be unable to end.
const HEALTH_POLL: Duration = Duration::from_millis(100);

/// How long to wait, and what ends the wait early.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Option<Duration>,
    /// When it ends, if this is not the first wait for the same thing.
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    /// The log whose stop ends the wait.
    pub(crate) log: Option<&'a Log>,
}

impl Patience<'_> {
    /// The same once a wait has begun: the next one for the same thing ends when this one would have.
    pub(crate) fn begun(self) -> Self {
        let deadline = self.deadline.or_else(|| self.timeout.map(|t| Instant::now() + t));
        Self { deadline, ..self }
    }

    /// Whether there is a reason to wait no longer.
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

/// What stands in a waiter's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Something that a transaction holds; how many releases there were before the waiter saw that.
    Held(Owner, u64),
    /// All others who have noted a table.
    UsersOf(u32),
}

#[derive(Clone, Copy)]
struct Edge {
    waiter: Owner,
    on: Obstacle,
    want: u64,
    /// In whose queue the waiter is.
    queue: Owner,
}

type Edges = HashMap<u32, Edge>;

/// A counter that others' counting does not slow down.
#[repr(align(128))]
#[derive(Default)]
struct Apart(AtomicU64);

/// The waits-for graph.
#[derive(Default)]
pub(crate) struct Waits {
    /// By the waiter's place.
    edges: Mutex<Edges>,
    /// How often somebody gave up something before its end.
    releases: Apart,
    pub(crate) wait_count: AtomicU64,
    pub(crate) deadlock_count: AtomicU64,
}

impl Waits {
    /// Waits until the obstacle is gone or what is wanted is passed on. Returns at once if there is no obstacle any more, or perhaps
    /// none: who looks and finds one waits again, with the deadline of the first time (`Patience::begun`).
    pub(crate) fn wait(
        &self,
        registry: &Registry,
        me: Owner,
        on: Obstacle,
        want: u64,
        patience: Patience<'_>,
    ) -> Result<()> {
        *registry.place(me.slot).woken.lock() = false;
        if !self.add_edge(registry, me, on, want)? {
            return patience.check();
        }
        self.wait_count.fetch_add(1, Ordering::Relaxed);
        let outcome = sleep(registry, me, patience);
        self.leave(registry, me);
        outcome
    }

    /// How often something was given up before its holder's end. To be read before looking at what somebody holds.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.0.load(Ordering::SeqCst)
    }

    /// Tells that `owner`, who goes on, has given up something that others may wait for.
    pub(crate) fn release(&self, registry: &Registry, owner: Owner) {
        self.releases.0.fetch_add(1, Ordering::SeqCst);
        self.wake(registry, owner);
    }

    /// Wakes those who wait for `owner`; called after it has ended, and when it did not take what it was woken for.
    pub(crate) fn wake(&self, registry: &Registry, owner: Owner) {
        let place = registry.place(owner.slot);
        if place.queued.load(Ordering::SeqCst) == 0 {
            return;
        }
        // The edges' mutex keeps waiters from joining a queue that is being moved.
        let mut edges = self.edges.lock();
        let queue = std::mem::take(&mut *place.queue.lock());
        place.queued.store(0, Ordering::SeqCst);
        let mut first: Vec<Waiter> = Vec::new();
        for waiter in queue {
            match first.iter().find(|f| f.want == waiter.want) {
                Some(heir) => inherit(registry, &mut edges, waiter, *heir),
                None => {
                    edges.remove(&waiter.slot);
                    first.push(waiter);
                }
            }
        }
        drop(edges);
        for waiter in first {
            wake_one(registry, waiter.slot);
        }
    }

    /// Enters the waiter into a queue and the graph; false if nothing is in its way any more.
    fn add_edge(&self, registry: &Registry, me: Owner, on: Obstacle, want: u64) -> Result<bool> {
        let edges = self.edges.lock();
        let holder = match on {
            Obstacle::Held(owner, _) => Some(owner),
            Obstacle::UsersOf(table) => registry.holders_of(table, me).next(),
        };
        let Some(queue) = holder else { return Ok(false) };
        assert_ne!(me, queue, "a transaction waits for itself");
        let place = registry.place(queue.slot);
        place.queue.lock().push(Waiter { slot: me.slot, want });
        place.queued.fetch_add(1, Ordering::SeqCst);
        self.settle(registry, edges, Edge { waiter: me, on, want, queue })
    }

    /// The waiter is in the queue: whether it has to stay there.
    fn settle(&self, registry: &Registry, mut edges: MutexGuard<'_, Edges>, edge: Edge) -> Result<bool> {
        if !self.stands(registry, edge) {
            dequeue(registry, edge);
            return Ok(false);
        }
        if leads_back(registry, &edges, edge) {
            dequeue(registry, edge);
            self.deadlock_count.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Deadlock);
        }
        edges.insert(edge.waiter.slot, edge);
        Ok(true)
    }

    /// Whether the one in whose queue the waiter is may still be in its way.
    fn stands(&self, registry: &Registry, edge: Edge) -> bool {
        let is_held = match edge.on {
            Obstacle::Held(_, seen) => self.releases() == seen,
            Obstacle::UsersOf(table) => registry.place(edge.queue.slot).holds(table),
        };
        is_held && registry.is_running(edge.queue)
    }

    /// What is made of each edge: the waiter, what is in its way, what it wants.
    pub(crate) fn each_edge<T>(&self, made: impl Fn(Owner, Obstacle, u64) -> T) -> Vec<T> {
        let edges = self.edges.lock();
        edges.values().map(|edge| made(edge.waiter, edge.on, edge.want)).collect()
    }

    /// Takes the waiter out of the graph and of the queue where it is by now.
    fn leave(&self, registry: &Registry, me: Owner) {
        let mut edges = self.edges.lock();
        if let Some(edge) = edges.remove(&me.slot) {
            dequeue(registry, edge);
        }
    }
}

/// Whether the new edge closes a cycle. Called with the edges' mutex held.
fn leads_back(registry: &Registry, edges: &Edges, new: Edge) -> bool {
    let mut ahead: SmallVec<[Owner; 8]> = SmallVec::new();
    let mut tables: SmallVec<[u32; 4]> = SmallVec::new();
    let mut edge = new;
    loop {
        match edge.on {
            Obstacle::Held(owner, _) => ahead.push(owner),
            // One waits for a table's users at a time; others wait for that one.
            Obstacle::UsersOf(table) if !tables.contains(&table) => {
                tables.push(table);
                ahead.extend(registry.holders_of(table, edge.waiter));
            }
            Obstacle::UsersOf(_) => {}
        }
        edge = loop {
            let Some(next) = ahead.pop() else { return false };
            if next == new.waiter {
                return true;
            }
            if let Some(edge) = edges.get(&next.slot).filter(|edge| edge.waiter == next) {
                break *edge;
            }
        };
    }
}

fn dequeue(registry: &Registry, edge: Edge) {
    let place = registry.place(edge.queue.slot);
    let mut queue = place.queue.lock();
    if let Some(at) = queue.iter().position(|w| w.slot == edge.waiter.slot) {
        queue.remove(at);
        place.queued.fetch_sub(1, Ordering::SeqCst);
    }
}

fn sleep(registry: &Registry, me: Owner, patience: Patience<'_>) -> Result<()> {
    let patience = patience.begun();
    let place = registry.place(me.slot);
    let mut woken = place.woken.lock();
    while !*woken {
        patience.check()?;
        match patience.left().into_iter().chain(patience.poll()).min() {
            Some(most) => {
                place.wake.wait_for(&mut woken, most);
            }
            None => place.wake.wait(&mut woken),
        }
    }
    Ok(())
}

/// `waiter` waits for `heir` from now on, who is running and therefore closes no cycle.
fn inherit(registry: &Registry, edges: &mut Edges, waiter: Waiter, heir: Waiter) {
    let heir_place = registry.place(heir.slot);
    let owner = Owner { slot: heir.slot, serial: heir_place.serial() };
    if let Some(edge) = edges.get_mut(&waiter.slot) {
        edge.queue = owner;
        if let Obstacle::Held(on, _) = &mut edge.on {
            *on = owner;
        }
    }
    heir_place.queue.lock().push(waiter);
    heir_place.queued.fetch_add(1, Ordering::SeqCst);
}

fn wake_one(registry: &Registry, slot: u32) {
    let place = registry.place(slot);
    *place.woken.lock() = true;
    place.wake.notify_one();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const FOREVER: Patience<'static> = Patience { timeout: None, deadline: None, cancel: None, log: None };

    fn finish(registry: &Registry, waits: &Waits, owner: Owner) {
        registry.end(owner);
        waits.wake(registry, owner);
        registry.vacate(owner);
    }

    fn held(owner: Owner) -> Obstacle {
        Obstacle::Held(owner, 0)
    }

    #[test]
    fn a_wait_ends_with_the_transaction_and_heirs_follow_one_by_one() {
        let (registry, waits) = (Arc::new(Registry::new()), Arc::new(Waits::default()));
        let holder = registry.claim();
        let sleepers: Vec<_> = (0..4)
            .map(|_| {
                let (registry, waits) = (Arc::clone(&registry), Arc::clone(&waits));
                thread::spawn(move || {
                    let me = registry.claim();
                    waits.wait(&registry, me, held(holder), 7, FOREVER).unwrap();
                    finish(&registry, &waits, me);
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(20));
        finish(&registry, &waits, holder);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert!(waits.edges.lock().is_empty());
    }

    #[test]
    fn the_edge_that_closes_a_cycle_is_refused() {
        let (registry, waits) = (Arc::new(Registry::new()), Arc::new(Waits::default()));
        let (a, b) = (registry.claim(), registry.claim());
        let sleeper = {
            let (registry, waits) = (Arc::clone(&registry), Arc::clone(&waits));
            thread::spawn(move || waits.wait(&registry, a, held(b), 1, FOREVER))
        };
        while waits.edges.lock().is_empty() {
            thread::yield_now();
        }
        assert!(matches!(waits.wait(&registry, b, held(a), 2, FOREVER), Err(Error::Deadlock)));
        finish(&registry, &waits, b);
        sleeper.join().unwrap().unwrap();
    }

    /// Review 8, A6, and review 9, N8: who waits for a row that ROLLBACK TO frees at that moment slept until the holder's end.
    #[test]
    fn what_was_given_up_since_the_look_is_not_waited_for() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (holder, waiter) = (registry.claim(), registry.claim());
        let seen = waits.releases();
        waits.release(&registry, holder);
        waits.wait(&registry, waiter, Obstacle::Held(holder, seen), 1, FOREVER).unwrap();
        assert_eq!(registry.place(holder.slot).queued.load(Ordering::SeqCst), 0);
    }

    /// Review 9, N7: a reader that lets an excluder pass was in a cycle with it, since one of the two had seen the other just before.
    #[test]
    fn who_makes_way_for_an_excluder_is_in_no_cycle_with_it() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (reader, excluder) = (registry.claim(), registry.claim());
        let place = registry.place(reader.slot);
        // The excluder waits, and has not been on a processor since the reader made way.
        place.note_table(9);
        assert!(waits.add_edge(&registry, excluder, Obstacle::UsersOf(9), 1).unwrap());
        place.forget_table(9);
        waits.wake(&registry, reader);
        assert!(waits.add_edge(&registry, reader, held(excluder), 2).unwrap());
        // The excluder has seen the note, which is gone before it waits.
        assert!(!waits.add_edge(&registry, excluder, Obstacle::UsersOf(9), 1).unwrap());
        assert_eq!(waits.deadlock_count.load(Ordering::Relaxed), 0);
    }

    /// Review 9, N7: between the excluder's look and its place in the queue the user makes way, and wakes nobody.
    #[test]
    fn who_made_way_before_the_queue_was_joined_is_not_waited_for() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (reader, excluder) = (registry.claim(), registry.claim());
        let place = registry.place(reader.slot);
        let edge = Edge { waiter: excluder, on: Obstacle::UsersOf(9), want: 1, queue: reader };
        place.queue.lock().push(Waiter { slot: excluder.slot, want: 1 });
        place.queued.fetch_add(1, Ordering::SeqCst);
        assert!(!waits.settle(&registry, waits.edges.lock(), edge).unwrap());
        assert_eq!(place.queued.load(Ordering::SeqCst), 0);
        assert!(waits.edges.lock().is_empty());
    }

    /// Review 9, N9: who waits for several was a node with one edge, so a cycle through another of them was not found.
    #[test]
    fn a_cycle_through_any_user_of_a_table_is_found() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (idle, user, excluder) = (registry.claim(), registry.claim(), registry.claim());
        registry.place(idle.slot).note_table(9);
        registry.place(user.slot).note_table(9);
        let users = Obstacle::UsersOf(9);
        assert!(waits.add_edge(&registry, user, held(excluder), 1).unwrap());
        assert!(matches!(waits.add_edge(&registry, excluder, users, 2), Err(Error::Deadlock)));
        waits.leave(&registry, user);
        assert!(waits.add_edge(&registry, excluder, users, 2).unwrap());
        assert!(matches!(waits.add_edge(&registry, user, held(excluder), 1), Err(Error::Deadlock)));
        waits.leave(&registry, excluder);
        assert!(waits.edges.lock().is_empty());
    }

    #[test]
    fn time_out_and_cancel_end_a_wait() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (a, b) = (registry.claim(), registry.claim());
        let short =
            Patience { timeout: Some(Duration::from_millis(5)), deadline: None, cancel: None, log: None };
        assert!(matches!(waits.wait(&registry, a, held(b), 1, short), Err(Error::LockTimeout)));
        let flag = AtomicBool::new(true);
        let cancelled = Patience { timeout: None, deadline: None, cancel: Some(&flag), log: None };
        assert!(matches!(waits.wait(&registry, a, held(b), 1, cancelled), Err(Error::Cancelled)));
        assert_eq!(registry.place(b.slot).queued.load(Ordering::SeqCst), 0);
    }
}
