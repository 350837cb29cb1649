//! Reads pages into the buffer pool, after a miss and ahead of need.
//!
//! Invariants
//! 1. A page that is being read is in the table of pages, and its frame is latched exclusively. Other threads
//!    that need the page wait for that latch.
//! 2. After a failed read the frame leaves the table before its latch is released. Each waiting thread then
//!    reads the page itself.
//! 3. Read-ahead takes only frames that can be freed without a write. Read-ahead during redo takes only free
//!    frames.
//!
//! This module does not know where the bytes come from.

use std::sync::atomic::Ordering::Relaxed;

use super::Pool;
use super::guard::{Guard, PageX};
use crate::base::error::Result;
use crate::base::ids::{Access, PageId};
use crate::level::{Run, Want, meter};
use crate::log::panics::StopOnPanic;

/// The largest number of pages of a read-ahead that are read together.
pub(crate) const PREFETCH_MAX: usize = 64;

impl Pool {
    /// Enters the page into the table, with a frame that holds old bytes and counts as fresh. Returns `None`
    /// if another thread entered the page first.
    pub(super) fn enter(&self, id: PageId, access: Access) -> Result<Option<PageX<'_>>> {
        let no = self.take_frame()?;
        Ok(self.enter_in(no, id, access))
    }

    fn enter_in(&self, no: usize, id: PageId, access: Access) -> Option<PageX<'_>> {
        while self.frames[no].is_awaited() {
            std::thread::yield_now();
        }
        let page: PageX<'_> = Guard::lock(self, no);
        let frame = page.frame();
        frame.take_page(id, access, self.tick.load(Relaxed));
        if self.table.insert(&self.frames, id, no) {
            frame.fresh.store(true, Relaxed);
            return Some(page);
        }
        frame.drop_page();
        drop(page);
        self.free.push(no);
        None
    }

    /// Reads the page into a frame. Returns `None` if another thread entered the page first. If the read
    /// fails, the guard of the fresh frame removes the page from the table.
    pub(super) fn read_page(&self, id: PageId, access: Access) -> Result<Option<PageX<'_>>> {
        let Some(mut page) = self.enter(id, access)? else { return Ok(None) };
        let mut want = [Want::Page { frame: page.bytes_mut(), got: None }];
        self.level.read(&mut [Run { first: id, want: &mut want }], access)?;
        let taken = was_taken(&want[0]);
        count_read(&want[0]);
        self.counters.misses.fetch_add(1, Relaxed);
        self.settle(&page, taken, access);
        Ok(Some(page))
    }

    /// Sets the state of a frame after a successful read.
    fn settle(&self, page: &PageX<'_>, taken: bool, access: Access) {
        let frame = page.frame();
        frame.fresh.store(false, Relaxed);
        if taken {
            frame.set_dirty();
        }
        if access == Access::Sequential {
            self.queue_cold(self.number_of(frame));
        }
    }

    /// Reads those of `ids` that are not in the pool, all together. An error is returned only when the page
    /// is fixed.
    pub(crate) fn prefetch(&self, ids: &[PageId]) {
        let take = || self.take_clean_frame();
        self.absent(ids).chunks(PREFETCH_MAX).for_each(|chunk| {
            let _rest = self.prefetch_chunk(chunk, Access::Sequential, take);
        });
    }

    /// Does the same as `prefetch`, for pages that will certainly be used. Only free frames are taken, so no
    /// page is evicted for them. Returns whether there were enough frames.
    pub(crate) fn read_early(&self, ids: &[PageId]) -> bool {
        let take = || self.free.pop();
        self.absent(ids).chunks(PREFETCH_MAX).all(|chunk| self.prefetch_chunk(chunk, Access::Random, take))
    }

    fn absent(&self, ids: &[PageId]) -> Vec<PageId> {
        let mut wanted: Vec<PageId> = ids.iter().copied().filter(|id| !self.is_resident(*id)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Reads ahead a chunk of pages. Returns whether there were frames for all of them. The levels treat the
    /// read as a scan: they read only these pages, and no neighbours.
    fn prefetch_chunk(&self, ids: &[PageId], access: Access, take: impl Fn() -> Option<usize>) -> bool {
        let _watch = StopOnPanic::of(&*self.log);
        let mut pages: Vec<PageX<'_>> = Vec::with_capacity(ids.len());
        let mut has_frames = true;
        for id in ids {
            let Some(no) = take() else {
                has_frames = false;
                break;
            };
            pages.extend(self.enter_in(no, *id, access));
        }
        let entered: Vec<PageId> = pages.iter().map(Guard::id).collect();
        let mut wants: Vec<Want<'_>> =
            pages.iter_mut().map(|page| Want::Page { frame: page.bytes_mut(), got: None }).collect();
        if self.level.read(&mut runs_of(&entered, &mut wants), Access::Sequential).is_err() {
            return has_frames;
        }
        let taken: Vec<bool> = wants.iter().map(was_taken).collect();
        wants.iter().for_each(count_read);
        self.counters.prefetched.fetch_add(entered.len() as u64, Relaxed);
        pages.iter().zip(taken).for_each(|(page, taken)| self.settle(page, taken, access));
        has_frames
    }
}

fn count_read(want: &Want<'_>) {
    if let Want::Page { got: Some(got), .. } = want {
        meter::read(got.from);
    }
}

fn was_taken(want: &Want<'_>) -> bool {
    matches!(want, Want::Page { got: Some(got), .. } if got.taken)
}

/// Divides sorted pages into runs of consecutive pages.
fn runs_of<'r, 'a>(ids: &[PageId], wants: &'r mut [Want<'a>]) -> Vec<Run<'r, 'a>> {
    let mut runs = Vec::new();
    let mut rest = wants;
    for group in ids.chunk_by(|a, b| a.plus(1) == *b) {
        let (want, tail) = rest.split_at_mut(group.len());
        runs.push(Run { first: group[0], want });
        rest = tail;
    }
    runs
}
