//! A region of persistent memory that counts its loads, stores, cache-line write-backs and fences.
//!
//! Each thread has counters of its own, as long as there are few threads. So threads do not wait for the
//! cache lines of each other's counters, and a count needs no atomic addition.
//!
//! Invariants
//! 1. Counts are exact. A call counts once, even if it touches several cache lines.
//! 2. Counters that belong to one thread are stored by this thread only.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::region::{self, RegionTally};

/// The number of sets of counters: each of the first threads has one, and all later threads have the last
/// one.
const SETS: usize = 16;
const SHARED: usize = SETS - 1;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SET: Cell<usize> = const { Cell::new(SETS) };
}

/// Returns the number of this thread's set of counters.
#[inline]
fn set_of_thread() -> usize {
    SET.with(|set| {
        if set.get() == SETS {
            set.set(THREADS.fetch_add(1, Relaxed).min(SHARED));
        }
        set.get()
    })
}

/// The counters from which a [`RegionTally`] is computed.
#[derive(Default)]
pub(crate) struct Counts {
    sets: [CounterSet; SETS],
}

/// Counters of one thread, or of all later threads.
#[derive(Default)]
#[repr(align(128))]
struct CounterSet {
    loads: Traffic,
    stores: Traffic,
    written_back_lines: AtomicU64,
    fences: AtomicU64,
}

/// Calls in one direction.
#[derive(Default)]
struct Traffic {
    calls: AtomicU64,
    lines: AtomicU64,
    bytes: AtomicU64,
}

/// Adds to a counter of the set with this number.
#[inline]
fn add(set: usize, counter: &AtomicU64, more: u64) {
    match set {
        SHARED => drop(counter.fetch_add(more, Relaxed)),
        _ => counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed),
    }
}

impl Traffic {
    #[inline]
    fn add(&self, set: usize, offset: u64, len_bytes: usize) {
        add(set, &self.calls, 1);
        add(set, &self.lines, line_count(offset, len_bytes as u64));
        add(set, &self.bytes, len_bytes as u64);
    }
}

/// Returns the number of lines that a range touches, or 0 if the range is empty.
#[inline]
fn line_count(offset: u64, len_bytes: u64) -> u64 {
    let lines = region::lines(offset, len_bytes);
    if len_bytes == 0 { 0 } else { lines.end - lines.start }
}

impl Counts {
    #[inline]
    fn with_set(&self, count: impl FnOnce(usize, &CounterSet)) {
        let set = set_of_thread();
        if let Some(counters) = self.sets.get(set) {
            count(set, counters);
        }
    }

    #[inline]
    pub(crate) fn load(&self, offset: u64, len_bytes: usize) {
        self.with_set(|set, counters| counters.loads.add(set, offset, len_bytes));
    }

    #[inline]
    pub(crate) fn store(&self, offset: u64, len_bytes: usize) {
        self.with_set(|set, counters| counters.stores.add(set, offset, len_bytes));
    }

    #[inline]
    pub(crate) fn write_back(&self, offset: u64, len_bytes: u64) {
        let lines = line_count(offset, len_bytes);
        self.with_set(|set, counters| add(set, &counters.written_back_lines, lines));
    }

    #[inline]
    pub(crate) fn fence(&self) {
        self.with_set(|set, counters| add(set, &counters.fences, 1));
    }

    pub(crate) fn tally(&self) -> RegionTally {
        let sum = |counter: fn(&CounterSet) -> &AtomicU64| {
            self.sets.iter().map(|counters| counter(counters).load(Relaxed)).sum()
        };
        RegionTally {
            loads_count: sum(|counters| &counters.loads.calls),
            loaded_lines: sum(|counters| &counters.loads.lines),
            loaded_bytes: sum(|counters| &counters.loads.bytes),
            stores_count: sum(|counters| &counters.stores.calls),
            stored_lines: sum(|counters| &counters.stores.lines),
            stored_bytes: sum(|counters| &counters.stores.bytes),
            written_back_lines: sum(|counters| &counters.written_back_lines),
            fences_count: sum(|counters| &counters.fences),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_are_exact() {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SETS {
                scope.spawn(|| (0..1000).for_each(|_| counts.load(60, 8)));
            }
        });
        let tally = counts.tally();
        assert_eq!((tally.loads_count, tally.loaded_lines), (32_000, 64_000));
        assert_eq!(tally.loaded_bytes, 256_000);
    }
}
