//! The dirty pages that are being written to the data files now. A thread that puts a newer version of one
//! waits.
//!
//! Invariants
//! 1. A page enters and leaves the set under the lock of its partition.
//! 2. `count` is the size of the set. A reader that sees zero needs no lock, because invariant 1 orders it.
//!
//! What it does not know: why they are cleaned.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;
use varve_device::reached;

use crate::base::ids::PageId;

/// Pages that are being brought home.
#[derive(Default)]
pub(in crate::flash) struct Underway {
    pub(in crate::flash) pages: Mutex<FxHashSet<PageId>>,
    /// How many, for those who find none.
    pub(in crate::flash) count: AtomicUsize,
    pub(in crate::flash) ended: Condvar,
    pub(in crate::flash) bell: Condvar,
}

impl Underway {
    /// Under the lock of the page's partition.
    pub(in crate::flash) fn begin(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.insert(id);
        self.count.store(pages.len(), Ordering::Release);
    }

    /// As `begin`.
    pub(in crate::flash) fn end(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.remove(&id);
        self.count.store(pages.len(), Ordering::Release);
        drop(pages);
        self.ended.notify_all();
    }

    /// Waits until this one isn't; see [`wait_for`](Self::wait_for).
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

    /// There is something to clean. Who is about to wait may not hear it, and looks again before long.
    pub(in crate::flash) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Whether the page is, under the lock of its partition.
    pub(in crate::flash) fn has(&self, id: PageId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.pages.lock().contains(&id)
    }

    /// Waits until none of these is. The caller has seen to it, under the lock of the page's partition, that it does not begin.
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
