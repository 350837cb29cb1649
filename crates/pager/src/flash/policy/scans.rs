//! Recognizes sequential reads. Pages that a scan reads are not worth a slot of the flash cache, because the
//! data files deliver consecutive pages at little cost (Do 2012, section 3.2.2).
//!
//! There are two classifiers. The first classifier treats the pages that read-ahead reads as pages of a scan.
//! In the thesis it recognized 82 % of the pages of a scan. The second classifier compares addresses
//! (Narayanan 2009). A page counts as part of a scan if it is within 64 pages of the page that any thread
//! read from the data files before it. The second classifier recognized 51 %, and needs no information from
//! the callers.
//!
//! This module does not know which pages the pool has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use varve_device::reached;

use crate::base::ids::{Access, PageId};

/// The largest distance from the previous page that counts as near: 512 KiB with the page size of the thesis.
const NEAR_PAGES: u64 = 64;
/// The number of pages that are remembered: as many as a pool of 8 GiB has, of 8 KiB each. When it is
/// reached, all are forgotten. So with a larger pool the cache takes some pages of scans.
const REMEMBERED_MAX: usize = 1 << 20;

/// The way in which pages of scans are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashScans {
    /// Whether read-ahead, or another part of a scan, asked for the page.
    ReadAhead,
    /// A page is a page of a scan if it is within 64 pages of the page that was read from the data files
    /// before it.
    Proximity,
}

impl FlashScans {
    /// Both classifiers.
    pub const ALL: [FlashScans; 2] = [FlashScans::ReadAhead, FlashScans::Proximity];

    /// Returns the name of the classifier in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashScans::ReadAhead => "read-ahead",
            FlashScans::Proximity => "proximity",
        }
    }

    /// Returns the classifier with this name.
    pub fn of(name: &str) -> Option<FlashScans> {
        FlashScans::ALL.into_iter().find(|scans| scans.name() == name)
    }
}

/// A classifier, and the pages that it remembers until they leave the pool.
pub(in crate::flash) struct Scans {
    by: FlashScans,
    /// The page that was last read from the data files.
    last: AtomicU64,
    /// Pages in the pool that were read near the page before them.
    near: Mutex<FxHashSet<PageId>>,
}

impl Scans {
    pub(in crate::flash) fn new(by: FlashScans) -> Self {
        // No page has this id.
        Self { by, last: AtomicU64::new(u64::MAX), near: Mutex::default() }
    }

    /// Returns whether the classifier needs a report of each page that is read.
    pub(in crate::flash) fn is_told(&self) -> bool {
        self.by == FlashScans::Proximity
    }

    /// Reports a page that was read from the data files.
    pub(in crate::flash) fn note(&self, id: PageId) {
        if !self.is_told() {
            return;
        }
        let before = self.last.swap(id.to_u64(), Relaxed);
        let mut near = self.near.lock();
        if before.abs_diff(id.to_u64()) > NEAR_PAGES {
            near.remove(&id);
            return;
        }
        if near.len() >= REMEMBERED_MAX {
            near.clear();
        }
        reached("flash: a page was read near the one before");
        near.insert(id);
    }

    /// Forgets pages that have left the pool, or whose slots are freed.
    pub(in crate::flash) fn forget(&self, is_meant: impl Fn(PageId) -> bool) {
        if self.is_told() {
            self.near.lock().retain(|id| !is_meant(*id));
        }
    }

    /// Returns whether a page in the pool was read by a scan. `why` is the access that the pool reports.
    pub(in crate::flash) fn access(&self, id: PageId, why: Access) -> Access {
        match self.by {
            FlashScans::ReadAhead => why,
            FlashScans::Proximity if self.near.lock().contains(&id) => Access::Sequential,
            FlashScans::Proximity => Access::Random,
        }
    }

    /// Does the same as [`access`](Self::access), for a page that leaves the pool and is then forgotten.
    pub(in crate::flash) fn leaves(&self, id: PageId, why: Access) -> Access {
        match self.by {
            FlashScans::ReadAhead => why,
            FlashScans::Proximity if self.near.lock().remove(&id) => Access::Sequential,
            FlashScans::Proximity => Access::Random,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    #[test]
    fn read_ahead_is_believed() {
        let scans = Scans::new(FlashScans::ReadAhead);
        [1, 2, 3].map(page).iter().for_each(|id| scans.note(*id));
        assert_eq!(scans.access(page(2), Access::Random), Access::Random);
        assert_eq!(scans.leaves(page(2), Access::Sequential), Access::Sequential);
    }

    #[test]
    fn pages_near_the_one_before_are_of_a_scan() {
        let scans = Scans::new(FlashScans::Proximity);
        for no in [1000, 1064, 1001, 5000, 5065, 4999] {
            scans.note(page(no));
        }
        let found = [1000, 1064, 1001, 5000, 5065, 4999].map(|no| scans.access(page(no), Access::Sequential));
        let (random, sequential) = (Access::Random, Access::Sequential);
        assert_eq!(found, [random, sequential, sequential, random, random, random]);
    }

    #[test]
    fn a_page_that_is_read_again_is_classified_again() {
        let scans = Scans::new(FlashScans::Proximity);
        [7, 8].map(page).iter().for_each(|id| scans.note(*id));
        assert_eq!(scans.access(page(8), Access::Random), Access::Sequential);
        [900, 8].map(page).iter().for_each(|id| scans.note(*id));
        assert_eq!(scans.access(page(8), Access::Random), Access::Random);
    }

    #[test]
    fn a_page_that_has_left_is_forgotten() {
        let scans = Scans::new(FlashScans::Proximity);
        [7, 8].map(page).iter().for_each(|id| scans.note(*id));
        assert_eq!(scans.leaves(page(8), Access::Random), Access::Sequential);
        assert_eq!(scans.leaves(page(8), Access::Random), Access::Random);
    }
}
