//! The buffer pool: frames in memory, the table of pages in the pool, and access to pages.
//!
//! ```text
//!            take_frame (free.rs, evict.rs)        read (read.rs)          begin_write (write.rs)
//!    free ------------------------------> reading -------------> clean <-------------------------- dirty
//!      ^                                     | error               | ^     end_write, put returned    ^
//!      |                                     v                     | +--------------------------------+
//!      +------------------------------------------ evict ----------+        stamp (guard.rs)
//! ```
//!
//! Invariants
//! 1. A page is in at most one frame. If the table has a page, its frame has this page, or is latched
//!    exclusively.
//! 2. Access to a page in the pool takes only the latch of its frame. The table is read without a latch. The
//!    identity of the frame's page is checked under the frame's latch.
//! 3. No thread waits for a frame latch while it holds a latch of the table. Evicting threads and page
//!    writers that hold latches only try to get more, and never wait.
//! 4. No latch is held during I/O, except the exclusive latch of a frame that is being filled.
//!
//! This module does not know how a level stores pages, or how the log is written.

mod arena;
mod counters;
mod evict;
mod frame;
mod free;
mod guard;
mod read;
mod replacement;
mod table;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use parking_lot::{Condvar, Mutex};

pub(crate) use counters::Counters;
pub use guard::{PageS, PageSx, PageX};
pub(crate) use guard::{Pin, held};
pub(crate) use read::PREFETCH_MAX;
pub use replacement::Replacement;
pub(crate) use write::Bell;

use self::arena::{Arena, CACHE_LINE_BYTES};
use self::evict::Replacer;
use self::frame::Frame;
use self::free::FreeList;
use self::guard::Guard;
use self::table::Table;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::latch::Mode;
use crate::base::lsn::Lsn;
use crate::base::times::Timing;
use crate::level::ledger::Ledger;
use crate::level::{DiscardHold, Level};
use crate::log::WriteAhead;
use crate::log::panics::StopOnPanic;

/// The parts of the pager that a pool uses.
pub(crate) struct PoolParts {
    pub(crate) level: Arc<dyn Level>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) log: Arc<dyn WriteAhead>,
    pub(crate) counters: Arc<Counters>,
}

/// The buffer pool.
pub struct Pool {
    frames: Box<[Frame]>,
    arena: Arena,
    table: Table,
    free: FreeList,
    replacer: Mutex<Replacer>,
    /// The clock of LRU-2, which has one tick for each batch of evictions.
    tick: AtomicU32,
    /// Signalled when a write of a frame ends.
    written: Condvar,
    written_mutex: Mutex<()>,
    writers: Bell,
    /// See `is_tight`.
    tight: AtomicBool,
    /// The last error of a full device.
    refused: Mutex<Option<PagerError>>,
    level: Arc<dyn Level>,
    ledger: Arc<Ledger>,
    log: Arc<dyn WriteAhead>,
    counters: Arc<Counters>,
    page_size: usize,
}

impl Pool {
    pub(crate) fn new(frames: usize, page_size: usize, how: Replacement, parts: PoolParts) -> Result<Pool> {
        Ok(Pool {
            frames: arena::in_huge_pages(frames, Frame::new),
            arena: Arena::new(frames, page_size)?,
            table: Table::new(frames),
            free: FreeList::new(frames),
            replacer: Mutex::new(Replacer::new(how)),
            tick: AtomicU32::new(1),
            written: Condvar::new(),
            written_mutex: Mutex::new(()),
            writers: Bell::default(),
            tight: AtomicBool::new(false),
            refused: Mutex::default(),
            level: parts.level,
            ledger: parts.ledger,
            log: parts.log,
            counters: parts.counters,
            page_size,
        })
    }

    /// Returns the page, latched in mode `M`. Reads it if it is not in the pool.
    #[inline]
    pub(crate) fn fix<M: Mode>(&self, id: PageId, access: Access) -> Result<Guard<'_, M>> {
        match self.fix_unlatched(id, access, CACHE_LINE_BYTES) {
            Some(guard) => Ok(guard),
            None => self.fix_slowly(id, access),
        }
    }

    /// Finds the page without latching the table, and may miss a page that is there. The first frame of the
    /// chain is probably the right one. So the first `ahead` bytes of its page are fetched into the
    /// processor's cache while its descriptor is read.
    #[inline]
    fn fix_unlatched<M: Mode>(&self, id: PageId, access: Access, ahead: usize) -> Option<Guard<'_, M>> {
        let no = self.table.find(&self.frames, id, |no| self.arena.prefetch(no, ahead))?;
        let guard = Guard::lock_page(self, no, id)?;
        guard.frame().touch(access, self.tick.load(Relaxed));
        Some(guard)
    }

    /// Returns the page, latched in mode `M`, if it is in the pool. No read is started.
    #[inline]
    pub(crate) fn fix_resident<M: Mode>(&self, id: PageId, access: Access) -> Option<Guard<'_, M>> {
        self.fix_resident_ahead(id, access, CACHE_LINE_BYTES)
    }

    /// Does the same as `fix_resident`, for a caller that will search the first `ahead` bytes.
    #[inline]
    pub(crate) fn fix_resident_ahead<M: Mode>(
        &self,
        id: PageId,
        access: Access,
        ahead: usize,
    ) -> Option<Guard<'_, M>> {
        self.fix_unlatched(id, access, ahead).or_else(|| {
            let no = self.table.find_latched(&self.frames, id)?;
            Guard::lock_page(self, no, id)
        })
    }

    #[cold]
    #[inline(never)]
    fn fix_slowly<M: Mode>(&self, id: PageId, access: Access) -> Result<Guard<'_, M>> {
        let _watch = StopOnPanic::of(&*self.log);
        loop {
            if let Some(no) = self.table.find_latched(&self.frames, id) {
                if let Some(guard) = Guard::lock_page(self, no, id) {
                    guard.frame().touch(access, self.tick.load(Relaxed));
                    return Ok(guard);
                }
            } else if let Some(page) = self.read_page_timed(id, access)? {
                return Ok(page.into_mode());
            }
        }
    }

    fn read_page_timed(&self, id: PageId, access: Access) -> Result<Option<PageX<'_>>> {
        self.counters.times.of(Timing::PageRead, || self.read_page(id, access))
    }

    /// Does the same as `fix`, but returns `None` if another thread holds the latch in a conflicting mode.
    pub(crate) fn try_fix<M: Mode>(&self, id: PageId, access: Access) -> Result<Option<Guard<'_, M>>> {
        let _watch = StopOnPanic::of(&*self.log);
        loop {
            if let Some(no) = self.table.find_latched(&self.frames, id) {
                let Some(guard) = Guard::try_lock(self, no) else { return Ok(None) };
                if guard.frame().holds(id) {
                    guard.frame().touch(access, self.tick.load(Relaxed));
                    return Ok(Some(guard));
                }
            } else if let Some(page) = self.read_page_timed(id, access)? {
                return Ok(Some(page.into_mode()));
            }
        }
    }

    /// Returns a fresh page, which is not read. Its bytes are zero, unless the page was in the pool. The pool
    /// drops the page again, unless it is stamped.
    pub(crate) fn create(&self, id: PageId) -> Result<PageX<'_>> {
        let _watch = StopOnPanic::of(&*self.log);
        loop {
            if let Some(no) = self.table.find_latched(&self.frames, id) {
                if let Some(page) = PageX::lock_page(self, no, id) {
                    page.frame().fresh.store(true, Relaxed);
                    return Ok(page);
                }
            } else if let Some(mut page) = self.enter(id, Access::Random)? {
                page.bytes_mut().fill(0);
                return Ok(page);
            }
        }
    }

    /// Is called when the guard of a fresh page is dropped and the page was not logged. The pool drops the
    /// page, unless it has older changes that are not written yet.
    #[cold]
    fn abandon(&self, frame: &Frame) {
        frame.fresh.store(false, Relaxed);
        if !frame.is_dirty() && !frame.is_writing() {
            self.free.push(self.detach(frame));
        }
    }

    /// Removes a clean, exclusively latched frame from the table. Returns its number, which the caller puts
    /// into the free list.
    fn detach(&self, frame: &Frame) -> usize {
        let no = self.number_of(frame);
        if let Some(id) = frame.page() {
            self.table.remove(&self.frames, id, no);
        }
        self.counters.fixes.fetch_add(u64::from(frame.fixes.swap(0, Relaxed)), Relaxed);
        frame.drop_page();
        no
    }

    fn number_of(&self, frame: &Frame) -> usize {
        let base = self.frames.as_ptr() as usize;
        (std::ptr::from_ref(frame) as usize - base) / size_of::<Frame>()
    }

    /// See [`Level::discarding`].
    pub(crate) fn discarding(&self, space: SpaceId) -> Option<DiscardHold<'_>> {
        self.level.discarding(space)
    }

    /// Drops the pages without writing them, and waits for writes in flight. No thread may use the pages any
    /// more. A crash may bring them back until the log is durable up to `after`.
    pub(crate) fn discard(&self, range: PageRange, after: Lsn) -> Result<()> {
        let _watch = StopOnPanic::of(&*self.log);
        for id in range.pages() {
            while let Some(no) = self.table.find_latched(&self.frames, id) {
                self.discard_frame(no, id);
            }
        }
        self.ledger.forget(range);
        self.level.discard(range, after)
    }

    fn discard_frame(&self, no: usize, id: PageId) {
        let Some(page) = PageX::lock_page(self, no, id) else { return };
        let frame = page.frame();
        if frame.is_writing() {
            drop(page);
            self.wait_written(frame);
            return;
        }
        frame.set_clean();
        self.detach(frame);
        drop(page);
        self.free.push(no);
    }

    /// Returns the number of frames in the pool.
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the number of free frames.
    pub(crate) fn free_count(&self) -> usize {
        self.free.count()
    }

    /// Returns the number of dirty frames, counted by this call.
    pub(crate) fn dirty_count(&self) -> usize {
        self.frames[..self.free.used_once()].iter().filter(|frame| frame.is_dirty()).count()
    }

    /// Returns the approximate number of fixes so far.
    pub(crate) fn fix_count(&self) -> u64 {
        let now: u64 = self.frames[..self.free.used_once()]
            .iter()
            .map(|frame| u64::from(frame.fixes.load(Relaxed)))
            .sum();
        now + self.counters.fixes.load(Relaxed)
    }

    /// Returns the page size in bytes.
    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Returns whether the page is in the pool (a hint).
    pub(crate) fn is_resident(&self, id: PageId) -> bool {
        self.table.find_latched(&self.frames, id).is_some()
    }
}
