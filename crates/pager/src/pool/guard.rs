//! Guards give access to the bytes of a page. There is no other access.
//!
//! Invariants
//! 1. A guard holds the latch of its page's frame (shared or exclusive) from its creation until it is
//!    dropped. So the page stays in the frame.
//! 2. Every guard gives shared access to the bytes. Only an exclusive guard gives mutable access, and only
//!    inside this crate, because a logged page changes only in a mini-transaction. Pages of the temporary
//!    space are not logged, so their bytes can be changed from outside, too.
//! 3. A guard stays on its thread.
//!
//! This module does not know how the page got into the frame.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};

use varve_device::IN_HARNESS;

use super::Pool;
use super::frame::Frame;
use crate::base::ids::PageId;
use crate::base::latch::{Exclusive, Mode, Shared, SharedExclusive, sealed};
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::log::Appended;

/// A latched page. It dereferences to the bytes of the whole page.
pub struct Guard<'p, M: Mode> {
    pool: &'p Pool,
    frame: &'p Frame,
    bytes: NonNull<[u8]>,
    mode: PhantomData<(M, *const ())>,
}

/// A page under its shared latch.
pub type PageS<'p> = Guard<'p, Shared>;
/// A page under its shared-exclusive latch. Readers can still latch the page, but other SX and X holders
/// wait.
pub type PageSx<'p> = Guard<'p, SharedExclusive>;
/// A page under its exclusive latch.
pub type PageX<'p> = Guard<'p, Exclusive>;

impl<'p, M: Mode> Guard<'p, M> {
    /// Takes the latch of a frame that holds the page. Returns `None` if the frame does not hold the page
    /// (any more). This waits only for threads that hold the latch for that page. A frame that got another
    /// page meanwhile might be held by a thread that waits for a latch of the caller.
    #[inline]
    pub(super) fn lock_page(pool: &'p Pool, no: usize, id: PageId) -> Option<Guard<'p, M>> {
        let guard = Guard::try_lock(pool, no).or_else(|| Guard::wait_page(pool, no, id))?;
        guard.frame.holds(id).then_some(guard)
    }

    #[cold]
    fn wait_page(pool: &'p Pool, no: usize, id: PageId) -> Option<Guard<'p, M>> {
        let frame = &pool.frames[no];
        let guard = frame.await_page(id).then(|| Guard::lock(pool, no))?;
        frame.pins.fetch_sub(1, Release);
        Some(guard)
    }

    /// Waits for the latch of a frame, whatever page it holds. The caller holds no other latch, or owns the
    /// frame.
    #[inline]
    pub(super) fn lock(pool: &'p Pool, no: usize) -> Guard<'p, M> {
        let frame = &pool.frames[no];
        <M as sealed::Mode>::lock(&frame.latch);
        held::add();
        Guard { pool, frame, bytes: pool.arena.frame(no), mode: PhantomData }
    }

    /// Takes the latch of a frame, unless this would have to wait.
    #[inline]
    pub(super) fn try_lock(pool: &'p Pool, no: usize) -> Option<Guard<'p, M>> {
        let frame = &pool.frames[no];
        let taken = <M as sealed::Mode>::try_lock(&frame.latch);
        taken.then(|| {
            held::add();
            Guard { pool, frame, bytes: pool.arena.frame(no), mode: PhantomData }
        })
    }

    /// Returns the latched frame.
    #[inline]
    pub(super) fn frame(&self) -> &'p Frame {
        self.frame
    }

    /// Returns the id of the page.
    pub fn id(&self) -> PageId {
        self.frame.page().expect("a guarded frame holds a page")
    }

    /// Returns the page LSN.
    pub fn lsn(&self) -> Lsn {
        page::page_lsn(self)
    }
}

/// Keeps a page in its frame without a latch. So the page can be latched later without I/O.
pub(crate) struct Pin<'p> {
    pool: &'p Pool,
    no: usize,
}

impl<'p> Pin<'p> {
    /// Pins a latched page.
    pub(crate) fn new<M: Mode>(page: &Guard<'p, M>) -> Pin<'p> {
        page.frame.pins.fetch_add(1, Relaxed);
        Pin { pool: page.pool, no: page.pool.number_of(page.frame) }
    }

    /// Waits for the exclusive latch.
    pub(crate) fn lock(&self) -> PageX<'p> {
        Guard::lock(self.pool, self.no)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pool.frames[self.no].pins.fetch_sub(1, Release);
    }
}

impl<M: Mode> Deref for Guard<'_, M> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame's bytes live as long as the pool, are initialised (mapped zeroed), and nobody
        // writes them while this guard holds the latch (an exclusive guard writes through `&mut self` only).
        unsafe { self.bytes.as_ref() }
    }
}

impl<M: Mode> Drop for Guard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if M::ALONE && self.frame.fresh.load(Relaxed) {
            self.pool.abandon(self.frame);
        }
        held::remove();
        // SAFETY: this guard holds the latch in mode M and goes away now.
        unsafe { <M as sealed::Mode>::unlock(&self.frame.latch) }
    }
}

impl<'p> PageSx<'p> {
    /// Waits until no thread holds the latch in shared mode.
    pub fn upgrade(self) -> PageX<'p> {
        let guard = std::mem::ManuallyDrop::new(self);
        // SAFETY: the guard holds the latch upgradable; it is forgotten and the exclusive one takes over.
        unsafe { SharedExclusive::upgrade(&guard.frame.latch) };
        Guard { pool: guard.pool, frame: guard.frame, bytes: guard.bytes, mode: PhantomData }
    }
}

impl<'p> PageX<'p> {
    /// Changes the exclusive latch to another mode.
    pub(super) fn into_mode<M: Mode>(self) -> Guard<'p, M> {
        let guard = std::mem::ManuallyDrop::new(self);
        // SAFETY: the guard holds the latch exclusively; it is forgotten and the new one takes over.
        unsafe { <M as sealed::Mode>::downgrade(&guard.frame.latch) };
        Guard { pool: guard.pool, frame: guard.frame, bytes: guard.bytes, mode: PhantomData }
    }

    /// Returns the bytes of the whole page.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the exclusive latch is held, and `&mut self` keeps other borrows of this guard out.
        unsafe { self.bytes.as_mut() }
    }

    /// Returns whether all changes of the page are stable or being written. While this latch is held, only
    /// its holder or a failed write makes the page dirty.
    pub(crate) fn is_clean(&self) -> bool {
        !self.frame.is_dirty()
    }

    /// Tells the levels below that the page is about to change. This is called before the change's record is
    /// appended.
    pub(crate) fn announce(&self) {
        self.pool.level.changed(self.id());
    }

    /// Is called inside the append section or in redo. Records that the page now has the changes of the
    /// mini-transaction `at`. A clean page enters the dirty-page table.
    pub(crate) fn stamp(&mut self, at: &Appended) {
        page::set_page_lsn(self.bytes_mut(), at.end);
        self.frame.fresh.store(false, Relaxed);
        if self.frame.set_dirty() {
            self.pool.ledger.first_change(self.id(), at.block, at.start);
        } else if cfg!(debug_assertions) || IN_HARNESS {
            assert!(
                self.pool.ledger.knows(self.id()),
                "page {} is changed and not in the ledger: a refused put was told to it",
                self.id()
            );
        }
    }

    /// Returns the bytes of a page of the temporary space, which is not logged. The page counts as changed.
    ///
    /// # Panics
    /// For pages of other spaces.
    pub fn temporary_mut(&mut self) -> &mut [u8] {
        assert!(!self.id().space().is_logged(), "page {} changes only in a mini-transaction", self.id());
        self.frame.fresh.store(false, Relaxed);
        self.frame.set_dirty();
        self.bytes_mut()
    }
}

/// Debug builds count the guards of each thread, because a thread that waits for log space must hold none.
pub(crate) mod held {
    #[cfg(debug_assertions)]
    thread_local! {
        static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    #[inline]
    pub(super) fn add() {
        #[cfg(debug_assertions)]
        COUNT.set(COUNT.get() + 1);
    }

    #[inline]
    pub(super) fn remove() {
        #[cfg(debug_assertions)]
        COUNT.set(COUNT.get() - 1);
    }

    /// Asserts in debug builds that this thread holds no latch.
    #[inline]
    pub(crate) fn assert_none() {
        #[cfg(debug_assertions)]
        assert!(COUNT.get() == 0, "a mini-transaction begins while its thread holds {} latches", COUNT.get());
    }
}
