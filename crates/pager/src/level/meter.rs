//! Counts the pages that one thread uses, for EXPLAIN (ANALYZE, BUFFERS).
//!
//! Invariants
//! 1. While no thread counts, each access to a page costs one additional load, of a global variable that does
//!    not change.
//! 2. The counts are those of one thread. Accesses of other threads are not included.
//!
//! This module does not know statements.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::level::Tier;

/// The number of meters that exist.
static METERS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static COUNTS: Cell<PageCounts> = const { Cell::new(PageCounts::NONE) };
}

/// Counts of pages, by the place where they were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// The number of pages that were in the pool when they were fixed.
    pub hits: u64,
    /// The number of pages that were read from each level, including read-ahead, in the order of
    /// [`Tier::ALL`].
    pub reads: [u64; Tier::ALL.len()],
    /// The number of pages that were read from the data files and were compressed there.
    pub decompressed: u64,
    /// The length of these compressed pages in the data files, in bytes.
    pub stored_bytes: u64,
}

impl PageCounts {
    const NONE: PageCounts =
        PageCounts { hits: 0, reads: [0; Tier::ALL.len()], decompressed: 0, stored_bytes: 0 };

    /// Returns the number of pages read from the data files.
    pub fn home_count(&self) -> u64 {
        self.reads[Tier::Home as usize]
    }

    /// Returns the number of pages read from all levels.
    pub fn read_count(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// Returns the names of the levels that pages are read from, with their counts, topmost first.
    pub fn by_level(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let below = Tier::ALL.iter().zip(self.reads).map(|(tier, count)| (tier.name(), count));
        [("pool", self.hits)].into_iter().chain(below)
    }
}

impl Sub for PageCounts {
    type Output = PageCounts;

    fn sub(mut self, earlier: PageCounts) -> PageCounts {
        self.hits -= earlier.hits;
        self.decompressed -= earlier.decompressed;
        self.stored_bytes -= earlier.stored_bytes;
        self.reads.iter_mut().zip(earlier.reads).for_each(|(now, then)| *now -= then);
        self
    }
}

impl Add for PageCounts {
    type Output = PageCounts;

    fn add(mut self, other: PageCounts) -> PageCounts {
        self += other;
        self
    }
}

impl AddAssign for PageCounts {
    fn add_assign(&mut self, other: PageCounts) {
        self.hits += other.hits;
        self.decompressed += other.decompressed;
        self.stored_bytes += other.stored_bytes;
        self.reads.iter_mut().zip(other.reads).for_each(|(sum, count)| *sum += count);
    }
}

/// While a meter exists, the pages of its thread are counted.
#[derive(Debug)]
pub struct PageMeter {
    /// Makes the type stay on its thread.
    _thread: PhantomData<*const ()>,
}

impl PageMeter {
    /// Begins to count.
    pub fn start() -> PageMeter {
        METERS.fetch_add(1, Relaxed);
        PageMeter { _thread: PhantomData }
    }

    /// Returns whether any thread's pages are counted.
    #[inline]
    pub fn is_on() -> bool {
        METERS.load(Relaxed) != 0
    }

    /// Returns the counts of this thread so far. The difference between two calls is the count for the time
    /// between them.
    pub fn counts() -> PageCounts {
        COUNTS.with(Cell::get)
    }

    /// Adds what another thread has counted for the work of this one.
    pub fn add(counts: PageCounts) {
        if counts != PageCounts::NONE {
            count(|own| *own += counts);
        }
    }
}

impl Drop for PageMeter {
    fn drop(&mut self) {
        METERS.fetch_sub(1, Relaxed);
    }
}

/// While it exists, the pages of all threads are counted. It may move to another thread.
#[derive(Debug)]
pub struct PageCounting(());

impl PageCounting {
    /// Begins to count.
    pub fn start() -> PageCounting {
        METERS.fetch_add(1, Relaxed);
        PageCounting(())
    }
}

impl Drop for PageCounting {
    fn drop(&mut self) {
        METERS.fetch_sub(1, Relaxed);
    }
}

/// Counts a page that was found in the pool.
#[inline]
pub(crate) fn hit() {
    if METERS.load(Relaxed) != 0 {
        count(|counts| counts.hits += 1);
    }
}

/// Counts a page that was read from this level.
pub(crate) fn read(from: Tier) {
    if METERS.load(Relaxed) != 0 {
        count(|counts| counts.reads[from as usize] += 1);
    }
}

/// Counts a decompressed page. `stored_bytes` is its length in the data file.
pub(crate) fn decompressed(stored_bytes: u64) {
    if METERS.load(Relaxed) != 0 {
        count(|counts| {
            counts.decompressed += 1;
            counts.stored_bytes += stored_bytes;
        });
    }
}

#[cold]
#[inline(never)]
fn count(change: impl FnOnce(&mut PageCounts)) {
    COUNTS.with(|kept| {
        let mut counts = kept.get();
        change(&mut counts);
        kept.set(counts);
    });
}
