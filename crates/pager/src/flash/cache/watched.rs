//! The set of pages that are being read from the data files together with a neighbour. If a newer version of
//! such a page appears meanwhile, the page that was read is not admitted to the cache.
//!
//! Invariants
//! 1. A page enters and leaves the set under the lock of its partition. A newer version is reported to the
//!    set under the same lock.
//!
//! This module does not know which pages are read together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use varve_device::{planted, reached};

use crate::base::ids::{PageId, PageRange};

/// The most entries of `unreadable`.
const UNREADABLE_MAX: usize = 4096;

/// The pages that are being read together with a neighbour.
#[derive(Default)]
pub(in crate::flash) struct Watched {
    /// For each page, whether a newer version has appeared since the read began, or the page was dropped.
    pub(in crate::flash) pages: Mutex<FxHashMap<PageId, bool>>,
    /// The number of pages in the set. A thread that reads zero does not take the lock.
    pub(in crate::flash) count: AtomicUsize,
    /// The first pages of groups of neighbours that could not be read together. A new extent may have pages
    /// that were never written.
    pub(in crate::flash) unreadable: Mutex<FxHashSet<PageId>>,
}

impl Watched {
    /// Adds a page to the set, under the lock of the page's partition. Returns false if another thread reads
    /// the page together with a neighbour.
    pub(in crate::flash) fn begin(&self, id: PageId) -> bool {
        let mut pages = self.pages.lock();
        let is_first = !pages.contains_key(&id);
        if is_first {
            pages.insert(id, false);
            self.count.store(pages.len(), Relaxed);
        }
        is_first
    }

    /// Removes a page from the set, and returns whether it may still be admitted. To admit it, the caller
    /// holds the lock of the page's partition.
    pub(in crate::flash) fn end(&self, id: PageId) -> bool {
        let mut pages = self.pages.lock();
        let was_overtaken = pages.remove(&id).unwrap_or(true);
        self.count.store(pages.len(), Relaxed);
        !was_overtaken || planted("flash: what is read along is not watched")
    }

    /// Removes a page from the set, because it will not be admitted.
    pub(in crate::flash) fn forget(&self, id: PageId) {
        let _is_wanted = self.end(id);
    }

    /// Marks a page as overtaken, because a newer version exists or is about to be made. The caller holds the
    /// lock of the page's partition, under which a read of neighbours also begins.
    pub(in crate::flash) fn overtake(&self, id: PageId) {
        if self.count.load(Relaxed) > 0
            && let Some(was_overtaken) = self.pages.lock().get_mut(&id)
        {
            reached("flash: a page that is read along is overtaken");
            *was_overtaken = true;
        }
    }

    /// Marks dropped pages as overtaken. The caller does this before it frees their slots, and it needs no
    /// lock of a partition. An admission that comes later sees the mark. An admission that came earlier has
    /// filled a slot, which the caller frees now.
    pub(in crate::flash) fn overtake_all(&self, ids: PageRange) {
        let mut pages = self.pages.lock();
        let meant = pages.iter_mut().filter(|(id, _)| ids.contains(**id));
        meant.for_each(|(_, was_overtaken)| *was_overtaken = true);
    }

    pub(in crate::flash) fn note_unreadable(&self, first: PageId) {
        let mut unreadable = self.unreadable.lock();
        if unreadable.len() >= UNREADABLE_MAX {
            // Forgetting them is harmless: some may be readable by now, and the others are found again.
            unreadable.clear();
        }
        unreadable.insert(first);
    }
}
