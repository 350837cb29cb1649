//! Waiting for another transaction to end, and the search for deadlocks.
//!
//! Invariants
//! 1. A transaction waits for one other at a time, so the waits-for graph has one edge out of each node, and a cycle is
//!    closed by exactly one new edge: whoever adds it is the victim.
//! 2. Who waits is in the queue of the one it waits for before it looks whether that one has ended.
//! 3. An end wakes the first waiter for each thing wanted; the others move to its queue (they will want it from it).
//!
//! Does not know: rows and tables; callers look again after every wake-up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
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
    pub(crate) cancel: Option<&'a AtomicBool>,
    /// The log whose stop ends the wait.
    pub(crate) log: Option<&'a Log>,
}

impl Patience<'_> {
    fn check(&self) -> Result<()> {
        if self.cancel.is_some_and(|c| c.load(Ordering::SeqCst)) {
            return Err(Error::Cancelled);
        }
        self.log.map_or(Ok(()), |log| Ok(log.check().map_err(PagerError::from)?))
    }

    fn poll(&self) -> Option<Duration> {
        self.cancel.map(|_| CANCEL_POLL).or(self.log.map(|_| HEALTH_POLL))
    }
}

/// The waits-for graph.
#[derive(Default)]
pub(crate) struct Waits {
    /// Place of the waiter -> (the waiter, whom it waits for).
    edges: Mutex<HashMap<u32, (Owner, Owner)>>,
    pub(crate) wait_count: AtomicU64,
    pub(crate) deadlock_count: AtomicU64,
}

impl Waits {
    /// Waits until `on` ends or passes on what is wanted. Returns at once if it has ended.
    pub(crate) fn wait(
        &self,
        registry: &Registry,
        me: Owner,
        on: Owner,
        want: u64,
        patience: Patience<'_>,
    ) -> Result<()> {
        assert_ne!(me, on, "a transaction waits for itself");
        self.wait_count.fetch_add(1, Ordering::Relaxed);
        *registry.place(me.slot).woken.lock() = false;
        self.add_edge(registry, me, on, want)?;
        let outcome = self.sleep(registry, me, on, patience);
        self.leave(registry, me);
        outcome
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
                None => first.push(waiter),
            }
        }
        drop(edges);
        for waiter in first {
            wake_one(registry, waiter.slot);
        }
    }

    fn add_edge(&self, registry: &Registry, me: Owner, on: Owner, want: u64) -> Result<()> {
        let mut edges = self.edges.lock();
        let mut next = on;
        while let Some((_, further)) = edges.get(&next.slot).filter(|(waiter, _)| *waiter == next) {
            next = *further;
            if next == me {
                self.deadlock_count.fetch_add(1, Ordering::Relaxed);
                return Err(Error::Deadlock);
            }
        }
        edges.insert(me.slot, (me, on));
        let place = registry.place(on.slot);
        place.queue.lock().push(Waiter { slot: me.slot, want });
        place.queued.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes the waiter out of the graph and of the queue where it is by now.
    fn leave(&self, registry: &Registry, me: Owner) {
        let mut edges = self.edges.lock();
        let Some((_, on)) = edges.remove(&me.slot) else { return };
        let place = registry.place(on.slot);
        let mut queue = place.queue.lock();
        if let Some(at) = queue.iter().position(|w| w.slot == me.slot) {
            queue.remove(at);
            place.queued.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn sleep(&self, registry: &Registry, me: Owner, on: Owner, patience: Patience<'_>) -> Result<()> {
        let deadline = patience.timeout.map(|t| Instant::now() + t);
        let place = registry.place(me.slot);
        if !registry.is_running(on) {
            return Ok(());
        }
        let mut woken = place.woken.lock();
        while !*woken {
            patience.check()?;
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Err(Error::LockTimeout);
            }
            match left.into_iter().chain(patience.poll()).min() {
                Some(most) => {
                    place.wake.wait_for(&mut woken, most);
                }
                None => place.wake.wait(&mut woken),
            }
        }
        Ok(())
    }
}

/// `waiter` waits for `heir` from now on, who is running and therefore closes no cycle.
fn inherit(registry: &Registry, edges: &mut HashMap<u32, (Owner, Owner)>, waiter: Waiter, heir: Waiter) {
    let heir_place = registry.place(heir.slot);
    let owner = Owner { slot: heir.slot, serial: heir_place.serial() };
    if let Some((_, on)) = edges.get_mut(&waiter.slot) {
        *on = owner;
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

    const FOREVER: Patience<'static> = Patience { timeout: None, cancel: None, log: None };

    fn finish(registry: &Registry, waits: &Waits, owner: Owner) {
        registry.end(owner);
        waits.wake(registry, owner);
        registry.vacate(owner);
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
                    waits.wait(&registry, me, holder, 7, FOREVER).unwrap();
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
            thread::spawn(move || waits.wait(&registry, a, b, 1, FOREVER))
        };
        while waits.edges.lock().is_empty() {
            thread::yield_now();
        }
        assert!(matches!(waits.wait(&registry, b, a, 2, FOREVER), Err(Error::Deadlock)));
        finish(&registry, &waits, b);
        sleeper.join().unwrap().unwrap();
    }

    #[test]
    fn time_out_and_cancel_end_a_wait() {
        let (registry, waits) = (Registry::new(), Waits::default());
        let (a, b) = (registry.claim(), registry.claim());
        let short = Patience { timeout: Some(Duration::from_millis(5)), cancel: None, log: None };
        assert!(matches!(waits.wait(&registry, a, b, 1, short), Err(Error::LockTimeout)));
        let flag = AtomicBool::new(true);
        let cancelled = Patience { timeout: None, cancel: Some(&flag), log: None };
        assert!(matches!(waits.wait(&registry, a, b, 1, cancelled), Err(Error::Cancelled)));
        assert_eq!(registry.place(b.slot).queued.load(Ordering::SeqCst), 0);
    }
}
