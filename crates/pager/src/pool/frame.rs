//! The descriptor of a frame (the space for one page in the pool): its latch, the identity of its page, and
//! its state.
//!
//! Invariants
//! 1. `page` changes only under the exclusive latch. A thread that found the frame number in the table takes
//!    the latch first, and then checks `page`. This makes look-ups without a latch, and eviction, safe.
//! 2. `dirty` is set under the exclusive latch (or, after a failed write, while `writing` is set). It is
//!    cleared under the shared latch, by the thread that set `writing`.
//! 3. One write of a frame is in flight at a time. A compare-and-swap sets `writing`, which is cleared when
//!    the put has returned. A frame that is dirty or writing is never evicted.
//! 4. `pins` is raised under a latch, or by `await_page`, and lowered without a latch. A pinned frame is
//!    never evicted. A free frame gets a new page only when no thread waits for its last page (`is_awaited`).
//! 5. `fresh` marks a page that was created and is not logged yet. If such a page is released, the pool drops
//!    it.
//!
//! This module does not know the bytes of the page in the frame.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};

use crate::base::ids::{Access, PageId};
use crate::base::latch::Latch;
use crate::level::meter;

/// A scan read the page, and no other access has used it since.
pub(crate) const HEAT_COLD: u8 = 0;
/// The page was not used since the clock's hand last passed it, or since it was read.
pub(crate) const HEAT_WARM: u8 = 1;
/// The page was used since the clock's hand last passed it.
pub(crate) const HEAT_HOT: u8 = 2;

/// Descriptor of a frame, one cache line.
#[repr(align(64))]
pub(crate) struct Frame {
    pub(crate) latch: Latch,
    page: AtomicU64,
    /// The next frame in the chain of the hash table, as its number + 1, or 0 at the end.
    pub(crate) next: AtomicU32,
    pub(crate) fixes: AtomicU32,
    /// Number of holders that need the page to stay in the frame, and do not latch it.
    pub(crate) pins: AtomicU32,
    /// Ticks of the last and the last but one access (LRU-2).
    last: AtomicU32,
    before: AtomicU32,
    dirty: AtomicBool,
    writing: AtomicBool,
    pub(crate) fresh: AtomicBool,
    /// Whether the frame is in the queue of cold frames (`evict.rs`).
    pub(crate) queued: AtomicBool,
    heat: AtomicU8,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    pub(crate) fn new() -> Frame {
        Frame {
            latch: Latch::new(),
            page: AtomicU64::new(0),
            next: AtomicU32::new(0),
            fixes: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            last: AtomicU32::new(0),
            before: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
            writing: AtomicBool::new(false),
            fresh: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            heat: AtomicU8::new(HEAT_WARM),
        }
    }

    /// Returns the page in the frame. Without the frame's latch this is only a hint.
    pub(crate) fn page(&self) -> Option<PageId> {
        PageId::from_u64(self.page.load(Acquire))
    }

    /// Returns whether the frame holds `id`.
    #[inline]
    pub(crate) fn holds(&self, id: PageId) -> bool {
        self.page.load(Acquire) == id.to_u64()
    }

    /// Gives the frame a page, under the exclusive latch.
    pub(crate) fn take_page(&self, id: PageId, access: Access, tick: u32) {
        let heat = if access == Access::Sequential { HEAT_COLD } else { HEAT_WARM };
        self.heat.store(heat, Relaxed);
        self.last.store(tick, Relaxed);
        self.before.store(0, Relaxed);
        self.page.store(id.to_u64(), Release);
    }

    /// Removes the page from the frame, under the exclusive latch. The page was clean. A writer may have set
    /// `writing` since the caller looked. That writer still has to latch the frame. It then finds another
    /// page or a clean one, and ends.
    pub(crate) fn drop_page(&self) {
        assert!(!self.is_dirty(), "a changed page leaves the pool");
        self.fresh.store(false, Relaxed);
        self.page.store(0, Release);
    }

    /// Records an access, under any latch.
    #[inline]
    pub(crate) fn touch(&self, access: Access, tick: u32) {
        self.fixes.store(self.fixes.load(Relaxed).wrapping_add(1), Relaxed);
        meter::hit();
        if access == Access::Sequential {
            return;
        }
        if self.heat.load(Relaxed) != HEAT_HOT {
            self.heat.store(HEAT_HOT, Relaxed);
        }
        let last = self.last.load(Relaxed);
        if last != tick {
            self.before.store(last, Relaxed);
            self.last.store(tick, Relaxed);
        }
    }

    pub(crate) fn heat(&self) -> u8 {
        self.heat.load(Relaxed)
    }

    /// The clock's hand passes the frame.
    pub(crate) fn cool(&self) {
        self.heat.store(HEAT_WARM, Relaxed);
    }

    /// Returns the kind of access to the page: sequential if only a scan has used it.
    pub(crate) fn access(&self) -> Access {
        if self.heat() == HEAT_COLD { Access::Sequential } else { Access::Random }
    }

    /// Returns the key of LRU-2: the page with the smallest key is evicted first.
    pub(crate) fn age(&self) -> (u32, u32) {
        (self.before.load(Relaxed), self.last.load(Relaxed))
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Relaxed)
    }

    /// Marks the page changed, and returns whether it was clean. No thread clears the mark while the page is
    /// exclusively latched. So a page that is already dirty needs no atomic exchange.
    pub(crate) fn set_dirty(&self) -> bool {
        !self.dirty.load(Relaxed) && !self.dirty.swap(true, Relaxed)
    }

    pub(crate) fn set_clean(&self) {
        self.dirty.store(false, Relaxed);
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.load(Acquire)
    }

    /// Reserves the write of the page for this thread. Returns false if another thread is writing it.
    pub(crate) fn begin_write(&self) -> bool {
        !self.writing.swap(true, Acquire)
    }

    pub(crate) fn end_write(&self) {
        self.writing.store(false, Release);
    }

    /// Pins the frame if it holds `id`, for a thread that will wait for its latch. The frame may still lose
    /// the page, but gets no other page until the pin is released. So no thread waits for the latch of a page
    /// that it did not ask for.
    pub(crate) fn await_page(&self, id: PageId) -> bool {
        self.pins.fetch_add(1, Relaxed);
        // This fence pairs with the fence in `is_awaited`. Either this thread sees that the page was removed,
        // or the other one sees the pin.
        fence(SeqCst);
        let is_there = self.holds(id);
        if !is_there {
            self.pins.fetch_sub(1, Release);
        }
        is_there
    }

    /// Returns whether a thread waits for the page that was in this free frame.
    pub(crate) fn is_awaited(&self) -> bool {
        fence(SeqCst);
        self.pins.load(Acquire) > 0
    }

    /// Returns whether the page may be evicted, under the exclusive latch. `writing` is read before `dirty`,
    /// because a failed write sets `dirty` before it ends.
    pub(crate) fn is_evictable(&self) -> bool {
        !self.is_writing() && !self.is_dirty() && self.pins.load(Acquire) == 0
    }

    /// Returns whether an evicting thread should try this frame. This is a hint, which is checked again under
    /// the exclusive latch.
    pub(crate) fn looks_evictable(&self) -> bool {
        let is_used = self.is_writing() || self.pins.load(Relaxed) > 0;
        !is_used && self.latch.is_free() && self.page.load(Relaxed) != 0
    }
}
