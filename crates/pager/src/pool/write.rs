//! Writing dirty pages: by page writers ahead of need, for checkpoints, and inline.
//!
//! Invariants
//! 1. An image is copied under the shared latch and marked clean in the same moment; the put happens under no latch.
//! 2. The log is flushed up to the newest image before the put.
//! 3. When a put fails, its pages are dirty again before their writes end, so no changed page is lost or evicted; the
//!    pager stops.
//! 4. The ledger is told by the level that made the image stable; a page changed meanwhile is entered again by then
//!    with its new first change.
//!
//! What it does not know: protection, devices.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use varve_device::planted;

use super::Pool;
use super::evict::BATCH;
use super::frame::Frame;
use super::guard::{Guard, PageS};
use crate::error::Result;
use crate::ids::PageId;
use crate::level::{Cause, Image, Need, UnsealedImage};
use crate::lsn::Lsn;

/// Most pages that are written together for a checkpoint.
const TOGETHER_MAX: usize = 120;

/// How long a thread that finds no frame waits before it looks again.
const PAUSE: Duration = Duration::from_millis(5);

/// Wakes page writers.
#[derive(Default)]
pub(super) struct WriterBell {
    rung: AtomicBool,
    mutex: Mutex<()>,
    bell: Condvar,
}

impl WriterBell {
    /// Wakes a page writer, unless one was woken and has not looked yet.
    pub(super) fn ring(&self) {
        if !self.rung.load(Relaxed) && !self.rung.swap(true, Relaxed) {
            let _order = self.mutex.lock();
            self.bell.notify_one();
        }
    }

    fn wait(&self, longest: Duration) {
        let mut order = self.mutex.lock();
        if !self.rung.load(Relaxed) {
            self.bell.wait_for(&mut order, longest);
        }
        self.rung.store(false, Relaxed);
    }
}

/// A frame whose write has begun.
struct Begun<'p> {
    frame: &'p Frame,
    image: Image,
}

impl Pool {
    /// Begins to write a frame: copies it and marks it clean. `None` if it is clean, being written, or (unless
    /// `patient`) latched exclusively.
    fn begin_write(&self, no: usize, expect: Option<PageId>, patient: bool) -> Option<Begun<'_>> {
        let frame = &self.frames[no];
        if !frame.is_dirty() || !frame.begin_write() {
            return None;
        }
        let unsealed = self.copy_dirty(no, expect, patient);
        if unsealed.is_none() {
            self.end_write(frame);
        }
        unsealed.map(|unsealed| Begun { frame, image: unsealed.seal() })
    }

    fn copy_dirty(&self, no: usize, expect: Option<PageId>, patient: bool) -> Option<UnsealedImage> {
        let page: PageS<'_> = if patient { Guard::lock(self, no) } else { Guard::try_lock(self, no)? };
        let frame = page.frame();
        let id = frame.page().filter(|id| expect.is_none_or(|expected| expected == *id))?;
        if !frame.is_dirty() {
            return None;
        }
        let copy = UnsealedImage::copy(id, &page, frame.access());
        frame.set_clean();
        Some(copy)
    }

    fn end_write(&self, frame: &Frame) {
        frame.end_write();
        drop(self.written_mutex.lock());
        self.written.notify_all();
    }

    /// Waits until some write ends, or a few milliseconds: frames are latched or being written.
    pub(super) fn pause(&self) {
        self.written.wait_for(&mut self.written_mutex.lock(), PAUSE);
    }

    /// Waits until no write of the frame is in flight.
    pub(super) fn wait_written(&self, frame: &Frame) {
        let mut order = self.written_mutex.lock();
        while frame.is_writing() {
            self.written.wait(&mut order);
        }
    }

    /// Writes what has begun.
    fn put(&self, begun: Vec<Begun<'_>>, cause: Cause, need: Need) -> Result<()> {
        let (frames, images): (Vec<&Frame>, Vec<Image>) =
            begun.into_iter().map(|one| (one.frame, one.image)).unzip();
        let result = self.put_images(&images, cause, need);
        if result.is_err() {
            frames.iter().for_each(|frame| {
                frame.set_dirty();
            });
        }
        frames.into_iter().for_each(|frame| self.end_write(frame));
        result.inspect_err(|cause| self.log.stop(cause))
    }

    fn put_images(&self, images: &[Image], cause: Cause, need: Need) -> Result<()> {
        self.log.check()?;
        let newest = images.iter().map(Image::lsn).max().unwrap_or(Lsn::ZERO);
        if !planted("pages: written before their log") {
            self.log.flush(newest)?;
        }
        self.level.put(images, cause, need)
    }

    /// Writes the dirty ones of these frames together, in page order; gives their number.
    pub(super) fn write_frames(&self, numbers: &[u32]) -> Result<usize> {
        let mut begun: Vec<Begun<'_>> =
            numbers.iter().filter_map(|no| self.begin_write(*no as usize, None, false)).collect();
        begun.sort_by_key(|one| one.image.id());
        let count = begun.len();
        if count > 0 {
            self.put(begun, Cause::Evict, Need::Held)?;
            self.counters.evict_writes.fetch_add(count as u64, Relaxed);
        }
        Ok(count)
    }

    /// The single-page path of Kang 2016, section 2.1: writes one of the frames itself and frees it. Prefers one whose
    /// log is durable. Whether a page was written.
    pub(super) fn write_one_inline(&self, numbers: &[u32]) -> Result<bool> {
        let durable = self.log.durable_lsn();
        let is_durable = |no: &u32| self.lsn_hint(*no as usize).is_some_and(|lsn| lsn <= durable);
        let first = numbers.iter().position(is_durable).unwrap_or(0);
        let order = numbers[first.min(numbers.len())..].iter().chain(&numbers[..first]);
        for no in order.map(|no| *no as usize) {
            let Some(begun) = self.begin_write(no, None, false) else { continue };
            self.put(vec![begun], Cause::EvictInline, Need::Held)?;
            self.counters.inline_writes.fetch_add(1, Relaxed);
            if self.evict(no) {
                self.counters.evictions.fetch_add(1, Relaxed);
                self.free.push(no);
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn lsn_hint(&self, no: usize) -> Option<Lsn> {
        Guard::try_lock(self, no).map(|page: PageS<'_>| page.lsn())
    }

    /// Makes these pages stable, as far as they are dirty and resident: for checkpoints. Gives the number written.
    /// Pages that somebody else is writing are waited for.
    pub(crate) fn clean(&self, ids: &[PageId], cause: Cause) -> Result<usize> {
        let together = (self.frames.len() / 8).clamp(1, TOGETHER_MAX);
        ids.chunks(together).map(|chunk| self.clean_chunk(chunk, cause)).sum()
    }

    fn clean_chunk(&self, ids: &[PageId], cause: Cause) -> Result<usize> {
        let mut begun = Vec::with_capacity(ids.len());
        let mut elsewhere = Vec::new();
        for id in ids {
            let Some(no) = self.table.find_latched(&self.frames, *id) else { continue };
            match self.begin_write(no, Some(*id), true) {
                Some(one) => begun.push(one),
                None => elsewhere.push(&self.frames[no]),
            }
        }
        begun.sort_by_key(|one| one.image.id());
        let count = begun.len();
        if count > 0 {
            self.put(begun, cause, Need::Stable)?;
            self.counters.checkpoint_writes.fetch_add(count as u64, Relaxed);
        }
        elsewhere.into_iter().for_each(|frame| self.wait_written(frame));
        Ok(count)
    }

    /// Ids of dirty pages (temporary ones left out), for a complete clean-up.
    pub(crate) fn dirty_pages(&self) -> Vec<PageId> {
        let used = &self.frames[..self.free.used_once()];
        let dirty = used.iter().filter(|frame| frame.is_dirty() || frame.is_writing());
        dirty.filter_map(Frame::page).filter(|id| id.space().is_logged()).collect()
    }

    /// One round of a page writer: fills the free list up to its high-water mark. Gives the pages written.
    pub(crate) fn refill(&self) -> Result<usize> {
        let mut written = 0;
        for _ in 0..self.frames.len() / BATCH + 1 {
            if self.free.count() >= 2 * self.low_water() {
                break;
            }
            let victims = self.free_more();
            written += self.write_frames(&victims.dirty)?;
            let freed: Vec<u32> =
                victims.dirty.iter().copied().filter(|no| self.evict(*no as usize)).collect();
            self.counters.evictions.fetch_add(freed.len() as u64, Relaxed);
            self.free.push_all(&freed);
            if victims.freed == 0 && freed.is_empty() {
                break;
            }
        }
        Ok(written)
    }

    /// Waits until frames are short, or for `longest`.
    pub(crate) fn wait_for_work(&self, longest: Duration) {
        self.writers.wait(longest);
    }

    /// Wakes a page writer.
    pub(crate) fn ring(&self) {
        self.writers.ring();
    }
}
