//! The throttle of the flash cache limits the number of requests that the drive has at a time (Do 2012,
//! section 3.3.3.2, "SSD throttle control").
//!
//! Invariants
//! 1. While the number of pages in progress at the drive has reached the limit, other pages wait in memory
//!    for their write. Each thread may still write one page at a time, so that no page waits for ever.
//! 2. At the limit, a single page may be read from the data files instead. This happens if they have the
//!    page, and recently answered reads no slower than the drive. Pages that are read in runs are not
//!    redirected.
//!
//! The thesis compares only the number of requests with its limit. Its limit of 100 was right for its drive
//! and disks. A drive as fast as memory finishes a hundred requests before a disk has turned once. So this
//! throttle also compares the mean read times of the drive and of the data files. The same times say how much
//! a cached page saves, for the temperatures of extents.
//!
//! This module does not know which pages the data files have.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::base::ids::Access;
use crate::flash::policy::daily_writes::Clock;

/// Until a run was read, a random read is assumed to take this many times as long as the read of a page in a
/// run. A random read needs a disk's seek and half a turn, and a page in a run only its transfer.
const RANDOM_OF_RUN: u64 = 20;
/// The assumed time of a read until a read was measured, in nanoseconds. Only ratios of temperatures matter.
const UNKNOWN_NS: u64 = 1_000_000;

/// The weight of the last read in the mean is one part in this number.
const MEMORY: u64 = 16;

/// The mean time of recent reads, in nanoseconds: an exponentially weighted moving average. 0 means that
/// there was no read.
#[derive(Default)]
struct Lately(AtomicU64);

impl Lately {
    /// Adds the time of a read. If two readers do this at once, one of the times may be lost, which is
    /// acceptable for an estimate.
    fn note(&self, took: Duration) {
        let (took, before) = (took.as_nanos() as u64, self.0.load(Relaxed));
        let mean = if before == 0 { took } else { before - before / MEMORY + took / MEMORY };
        self.0.store(mean.max(1), Relaxed);
    }

    fn ns(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|ns| *ns > 0)
    }
}

/// The throttle.
pub(in crate::flash) struct Throttle {
    limit: usize,
    in_flight: AtomicUsize,
    here: Lately,
    home: Lately,
    /// The time for a page of a run that is read from the data files.
    home_run: Lately,
    clock: Clock,
}

/// Counts pages as in progress until it is dropped.
pub(in crate::flash) struct InFlight<'t> {
    throttle: &'t Throttle,
    pages: usize,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.throttle.in_flight.fetch_sub(self.pages, Relaxed);
    }
}

impl Throttle {
    /// Allows `limit` pages in progress.
    pub(in crate::flash) fn new(limit: usize, clock: Clock) -> Throttle {
        let (here, home, home_run) = Default::default();
        Throttle { limit, in_flight: AtomicUsize::new(0), here, home, home_run, clock }
    }

    /// Counts `pages` pages as in progress.
    pub(in crate::flash) fn begin(&self, pages: usize) -> InFlight<'_> {
        self.in_flight.fetch_add(pages, Relaxed);
        InFlight { throttle: self, pages }
    }

    /// Returns how many more pages may be written together, which is at least one.
    pub(in crate::flash) fn room(&self) -> usize {
        self.limit.saturating_sub(self.in_flight.load(Relaxed)).max(1)
    }

    /// Returns whether a page that the data files have should be read from there: the drive is at its limit,
    /// and the data files are no slower.
    pub(in crate::flash) fn is_home_sooner(&self) -> bool {
        self.in_flight.load(Relaxed) >= self.limit && self.is_home_faster()
    }

    /// Returns whether the data files recently answered no slower than the drive, as far as is known.
    pub(in crate::flash) fn is_home_faster(&self) -> bool {
        self.here.ns().zip(self.home.ns()).is_some_and(|(here, home)| home <= here)
    }

    /// Reads one page from the drive.
    pub(in crate::flash) fn read_here<T>(&self, read: impl FnOnce() -> T) -> T {
        let _in_flight = self.begin(1);
        self.timed(&self.here, read)
    }

    /// Reads one page from the data files.
    pub(in crate::flash) fn read_home<T>(&self, read: impl FnOnce() -> T) -> T {
        self.timed(&self.home, read)
    }

    /// Reads a run of this many pages from the data files.
    pub(in crate::flash) fn read_home_run<T>(&self, pages: usize, read: impl FnOnce() -> T) -> T {
        let began = (self.clock)();
        let found = read();
        self.home_run.note((self.clock)().saturating_sub(began) / pages.max(1) as u32);
        found
    }

    /// Returns the time that a cached copy saves if the page is read: the time of the data files, less that
    /// of the drive. It is at least a nanosecond, so that pages that are read often are warmer in any case.
    pub(in crate::flash) fn saved_ns(&self, why: Access) -> u64 {
        let random_ns = self.home.ns().unwrap_or(UNKNOWN_NS);
        let home_ns = match why {
            Access::Random => random_ns,
            Access::Sequential => self.home_run.ns().unwrap_or(random_ns / RANDOM_OF_RUN),
        };
        home_ns.saturating_sub(self.here.ns().unwrap_or(0)).max(1)
    }

    fn timed<T>(&self, lately: &Lately, read: impl FnOnce() -> T) -> T {
        let began = (self.clock)();
        let found = read();
        lately.note((self.clock)().saturating_sub(began));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::design::FlashDesign;
    use super::*;
    use crate::base::ids::Access;
    use crate::flash::FlashConfig;
    use crate::flash::config::FlashFill;
    use crate::flash::policy::daily_writes::Hands;
    use crate::flash::tests::cache::{image, page};
    use crate::flash::tests::filling::{open, read};
    use crate::level::{Cause, Level, Need, Tier};

    #[test]
    fn home_is_read_when_the_drive_is_busy_and_no_sooner() {
        let hands = Arc::new(Hands::default());
        let throttle = Throttle::new(3, hands.clock());
        let take = |micros| hands.pass_us(micros);
        throttle.read_here(|| take(80));
        throttle.read_home(|| take(8_000));
        let in_flight = throttle.begin(3);
        assert!(!throttle.is_home_sooner(), "a busy drive is still a hundred times as fast");
        (0..100).for_each(|_| throttle.read_here(|| take(9_000)));
        assert!(throttle.is_home_sooner());
        assert_eq!(throttle.room(), 1);
        drop(in_flight);
        assert!(!throttle.is_home_sooner(), "nothing is under way");
        assert_eq!(throttle.room(), 3);
        let _in_flight = throttle.begin(4);
        (0..100).for_each(|_| throttle.read_here(|| take(100)));
        assert!(!throttle.is_home_sooner(), "it has forgotten");
    }

    /// A cached copy saves more if the disk takes longer. A flash drive that is slower than the data files
    /// saves nothing.
    #[test]
    fn savings_are_the_times_of_the_drives() {
        let hands = Arc::new(Hands::default());
        let throttle = Throttle::new(3, hands.clock());
        let (random, run) = (|| throttle.saved_ns(Access::Random), || throttle.saved_ns(Access::Sequential));
        assert_eq!((random(), run()), (UNKNOWN_NS, UNKNOWN_NS / RANDOM_OF_RUN), "nothing was read");
        throttle.read_home(|| hands.pass_us(8_000));
        throttle.read_here(|| hands.pass_us(100));
        assert_eq!((random(), run()), (7_900_000, 300_000));
        throttle.read_home_run(64, || hands.pass_us(9_600));
        assert_eq!((random(), run()), (7_900_000, 50_000), "150 us for each page of the run");
        (0..200).for_each(|_| throttle.read_here(|| hands.pass_us(10_000)));
        assert_eq!((random(), run()), (1, 1));
    }

    #[test]
    fn what_home_lacks_is_read_from_a_busy_drive() {
        let (cache, _home) = open(100, FlashDesign::LazyCleaning, FlashFill::Plain);
        cache.offer(page(3), Access::Random, &mut || image(3, 5));
        cache.put(&[image(4, 9)], Cause::Evict, Need::Held).expect("flash takes it");
        let from = |no| read(&cache, no, Access::Random).1;
        assert_eq!([3, 4].map(from), [Tier::Flash, Tier::Flash]);
        cache.drive.throttle.read_here(|| std::thread::sleep(Duration::from_millis(5)));
        cache.drive.throttle.read_home(|| ());
        let in_flight = cache.drive.throttle.begin(FlashConfig::PENDING_MAX);
        assert_eq!([3, 4].map(from), [Tier::Home, Tier::Flash]);
        drop(in_flight);
        assert_eq!([3, 4].map(from), [Tier::Flash, Tier::Flash]);
    }
}
