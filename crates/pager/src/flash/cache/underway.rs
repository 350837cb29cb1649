//! The set of dirty pages that are being written from flash to the data files. A thread that puts a newer
//! version of such a page waits.
//!
//! Invariants
//! 1. A page enters and leaves the set under the lock of its partition.
//! 2. `count` is the size of the set. A thread that reads zero does not take the set's lock. The thread held
//!    the partition's lock before, so by invariant 1 it sees a page that entered earlier.
//!
//! This module does not know why the pages are written.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;
use varve_device::reached;

use crate::base::ids::PageId;

/// The pages that are being written from flash to the data files.
#[derive(Default)]
pub(in crate::flash) struct Underway {
    pub(in crate::flash) pages: Mutex<FxHashSet<PageId>>,
    /// Number of pages in the set. A thread that reads zero needs no lock.
    pub(in crate::flash) count: AtomicUsize,
    pub(in crate::flash) ended: Condvar,
    pub(in crate::flash) bell: Condvar,
}

impl Underway {
    /// Adds a page to the set. The caller holds the lock of the page's partition.
    pub(in crate::flash) fn begin(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.insert(id);
        self.count.store(pages.len(), Ordering::Release);
    }

    /// Removes a page from the set, under the same lock as `begin`.
    pub(in crate::flash) fn end(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.remove(&id);
        self.count.store(pages.len(), Ordering::Release);
        drop(pages);
        self.ended.notify_all();
    }

    /// Waits until this page is not in the set (see [`wait_for`](Self::wait_for)).
    pub(in crate::flash) fn wait_for_page(&self, id: PageId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut pages = self.pages.lock();
        while pages.contains(&id) {
            reached("flash: waited for a page on its way home");
            self.ended.wait(&mut pages);
        }
    }

    /// Wakes a cleaning thread, because there are pages to clean. A thread that is about to wait may miss
    /// this, but it looks again after a short time.
    pub(in crate::flash) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns whether the page is in the set. The caller holds the lock of the page's partition.
    pub(in crate::flash) fn has(&self, id: PageId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.pages.lock().contains(&id)
    }

    /// Waits until none of the pages for which `is_meant` is true is in the set. Before the call, the caller
    /// has ensured under the locks of their partitions that none of them enters the set.
    pub(in crate::flash) fn wait_for(&self, is_meant: impl Fn(PageId) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut pages = self.pages.lock();
        while pages.iter().any(|id| is_meant(*id)) {
            reached("flash: waited for a page on its way home");
            self.ended.wait(&mut pages);
        }
    }
}
