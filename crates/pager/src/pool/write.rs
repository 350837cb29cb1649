//! Writes dirty pages of the pool. Page writers write them ahead of need and for checkpoints, and a thread
//! writes one if it needs a frame.
//!
//! Invariants
//! 1. The image of a page is copied under the frame's shared latch, and the frame is marked clean under the
//!    same latch. No latch is held while the level below writes the image.
//! 2. The log is flushed up to the newest image before the images are put to the level below.
//! 3. If a put fails, its pages are dirty again before their writes end. So no changed page is lost or
//!    evicted.
//! 4. A full device does not stop the pager. Any other failed put stops it. After a refusal by a full device
//!    each page is put separately, and the pages without space stay dirty. They are still in the dirty-page
//!    table for two reasons (`level/mod.rs`, invariant 6): the pages are put with the need `Held`, and only
//!    pages that can be refused together are put together.
//! 5. The level that makes an image stable reports this to the dirty-page table. If the page was changed
//!    meanwhile, the table already has an entry for the new first change.
//!
//! This module does not know protection or devices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use varve_device::{planted, reached};

use super::Pool;
use super::evict::BATCH;
use super::frame::Frame;
use super::guard::{Guard, PageS};
use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::image::{Image, UnsealedImage};
use crate::base::lsn::Lsn;
use crate::base::times::Timing;
use crate::level::{Cause, Need, summed};

/// The largest number of pages that are written together for a checkpoint.
const TOGETHER_MAX: usize = 120;

/// If a full device has refused this many pages in succession, the rest is not tried.
const REFUSED_MAX: usize = 8;

/// The time that a thread which finds no frame waits before it looks again.
const PAUSE: Duration = Duration::from_millis(5);

/// A bell that wakes page writers.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    mutex: Mutex<()>,
    bell: Condvar,
}

impl Bell {
    /// Wakes a waiting thread, unless it was woken already and has not run since.
    pub(crate) fn ring(&self) {
        if !self.rung.load(Relaxed) && !self.rung.swap(true, Relaxed) {
            let _order = self.mutex.lock();
            self.bell.notify_one();
        }
    }

    /// Waits until the bell rings, at most `longest`. Returns at once if it has rung since the last wait.
    pub(crate) fn wait(&self, longest: Duration) {
        let mut order = self.mutex.lock();
        if !self.rung.load(Relaxed) {
            self.bell.wait_for(&mut order, longest);
        }
        self.rung.store(false, Relaxed);
    }
}

/// A frame whose write has begun, and its image.
struct Begun<'p> {
    writing: Writing<'p>,
    image: Image,
}

/// A write of a frame. It ends when this is dropped, even after a panic, because other threads may wait for
/// the end.
struct Writing<'p> {
    pool: &'p Pool,
    frame: &'p Frame,
    has_ended: bool,
}

impl Writing<'_> {
    fn end(&mut self) {
        self.has_ended = true;
        self.pool.end_write(self.frame);
    }
}

impl Drop for Writing<'_> {
    /// Ends the write, if it has not ended. In this case there was a panic.
    fn drop(&mut self) {
        if !self.has_ended {
            self.pool.log.panicked();
            self.frame.set_dirty();
            self.end();
        }
    }
}

impl Pool {
    /// Begins to write a frame: copies its page and marks the frame clean. Returns `None` if the frame is
    /// clean, being written, or latched exclusively. If `patient` is set, waits for an exclusive latch.
    fn begin_write(&self, no: usize, expect: Option<PageId>, patient: bool) -> Option<Begun<'_>> {
        let frame = &self.frames[no];
        if !frame.is_dirty() || !frame.begin_write() {
            return None;
        }
        let unsealed = self.copy_dirty(no, expect, patient);
        if unsealed.is_none() {
            self.end_write(frame);
        }
        let writing = |frame| Writing { pool: self, frame, has_ended: false };
        unsealed.map(|unsealed| Begun { writing: writing(frame), image: unsealed.seal() })
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

    /// Waits until some write ends, at most a few milliseconds. This is called if all frames are latched or
    /// being written.
    pub(crate) fn pause(&self) {
        self.written.wait_for(&mut self.written_mutex.lock(), PAUSE);
    }

    /// Waits until no write of the frame is in flight.
    pub(super) fn wait_written(&self, frame: &Frame) {
        let mut order = self.written_mutex.lock();
        while frame.is_writing() {
            self.written.wait(&mut order);
        }
    }

    /// Puts the pages whose writes have begun to the level below, as many at a time as the level takes.
    /// Returns the number of pages, and adds it to `counter`. The pages are in page order.
    fn put(&self, begun: Vec<Begun<'_>>, cause: Cause, counter: &AtomicU64) -> Result<usize> {
        let (mut writes, images): (Vec<Writing<'_>>, Vec<Image>) =
            begun.into_iter().map(|one| (one.writing, one.image)).unzip();
        let most = self.level.put_pages_max();
        let are_together =
            |one: &Image, next: &Image| self.level.takes_together(one.id().space(), next.id().space());
        let mut rest = &mut writes[..];
        let parts = images.chunk_by(are_together).flat_map(|part| part.chunks(most));
        summed(parts.map(|images| {
            let (writes, behind) = std::mem::take(&mut rest).split_at_mut(images.len());
            rest = behind;
            self.put_together(writes, images, cause, counter)
        }))
    }

    fn put_together(
        &self,
        writes: &mut [Writing<'_>],
        images: &[Image],
        cause: Cause,
        counter: &AtomicU64,
    ) -> Result<usize> {
        let result = match self.put_images(images, cause) {
            Err(error) if error.is_no_space() && images.len() > 1 => {
                return self.put_singly(writes, images, cause, counter);
            }
            result => result,
        };
        self.end_put(writes, result, counter)
    }

    /// Puts pages one by one, because the device had no space for all of them. Some may need no new space.
    #[cold]
    fn put_singly(
        &self,
        writes: &mut [Writing<'_>],
        images: &[Image],
        cause: Cause,
        counter: &AtomicU64,
    ) -> Result<usize> {
        reached("full device: pages put singly");
        let mut outcome = Ok(images.len());
        let (mut space, mut in_a_row) = (None, Ok(0));
        for (write, image) in writes.iter_mut().zip(images) {
            if space.replace(image.id().space()) != Some(image.id().space()) {
                in_a_row = Ok(0);
            }
            let put = match &in_a_row {
                // Pages that need new space are usually neighbours at the end of the order, so not all of
                // them need to be tried.
                Err(error) => Err(PagerError::clone(error)),
                Ok(_) => self.put_images(std::slice::from_ref(image), cause),
            };
            match self.end_put(std::slice::from_mut(write), put, counter) {
                Ok(_) => in_a_row = Ok(0),
                Err(error) if error.is_no_space() => {
                    in_a_row = in_a_row.and_then(|count| {
                        if count < REFUSED_MAX { Ok(count + 1) } else { Err(error.clone()) }
                    });
                    outcome = outcome.and(Err(error));
                }
                // An error that stops the pager has priority over the error of a full device.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    fn end_put(&self, writes: &mut [Writing<'_>], result: Result<()>, counter: &AtomicU64) -> Result<usize> {
        match &result {
            Ok(()) => {
                counter.fetch_add(writes.len() as u64, Relaxed);
                if self.is_tight() {
                    self.note_tight(None);
                }
            }
            Err(error) => {
                writes.iter().for_each(|write| {
                    write.frame.set_dirty();
                });
                match error.is_no_space() {
                    true => self.note_tight(Some(error)),
                    false => self.log.stop(error),
                }
            }
        }
        writes.iter_mut().for_each(Writing::end);
        result.map(|()| writes.len())
    }

    /// Returns whether the pool refuses further changes of pages. It does so if a full device keeps it from
    /// writing too many of its changed pages. The remaining frames are for reading.
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.load(Relaxed)
    }

    /// Returns the error of the full device, if the pool is tight.
    pub(crate) fn why_tight(&self) -> Option<PagerError> {
        self.refused.lock().clone().filter(|_| self.is_tight())
    }

    /// Is called when a put was refused, or when a put succeeded while the pool was tight.
    #[cold]
    fn note_tight(&self, refused: Option<&PagerError>) {
        if let Some(error) = refused {
            *self.refused.lock() = Some(error.clone());
        }
        self.look_if_tight();
    }

    /// Counts the dirty frames again.
    pub(crate) fn look_if_tight(&self) {
        self.tight.store(2 * self.dirty_count() > self.frames.len(), Relaxed);
    }

    fn put_images(&self, images: &[Image], cause: Cause) -> Result<()> {
        self.log.check()?;
        let newest = images.iter().map(Image::lsn).max().unwrap_or(Lsn::ZERO);
        if !planted("pages: written before their log") && newest > self.log.durable_lsn() {
            self.counters.times.of(Timing::LogWait, || self.log.flush(newest))?;
        }
        self.level.put(images, cause, Need::Held)
    }

    /// Writes those of these frames that are dirty together, in the order of pages. Returns their number.
    pub(crate) fn write_frames(&self, numbers: &[u32]) -> Result<usize> {
        let mut begun: Vec<Begun<'_>> =
            numbers.iter().filter_map(|no| self.begin_write(*no as usize, None, false)).collect();
        begun.sort_by_key(|one| one.image.id());
        if begun.is_empty() {
            return Ok(0);
        }
        self.put(begun, Cause::Evict, &self.counters.evict_writes)
    }

    /// Writes one of the frames in the calling thread, and frees it. This is the single-page path of Kang
    /// 2016, section 2.1. A page whose log is durable is preferred. Pages for which a full device has no
    /// space are skipped. Returns whether a page was written.
    pub(super) fn write_one_inline(&self, numbers: &[u32]) -> Result<bool> {
        let durable = self.log.durable_lsn();
        let is_durable = |no: &u32| self.lsn_hint(*no as usize).is_some_and(|lsn| lsn <= durable);
        let first = numbers.iter().position(is_durable).unwrap_or(0);
        let order = numbers[first.min(numbers.len())..].iter().chain(&numbers[..first]);
        let mut refused = Ok(false);
        let mut tries = 0;
        for no in order.map(|no| *no as usize) {
            let Some(begun) = self.begin_write(no, None, false) else { continue };
            match self.put(vec![begun], Cause::EvictInline, &self.counters.inline_writes) {
                Err(error) if error.is_no_space() && tries < REFUSED_MAX => {
                    refused = Err(error);
                    tries += 1;
                    continue;
                }
                put => put?,
            };
            if self.evict(no) {
                self.counters.evictions.fetch_add(1, Relaxed);
                self.free.push(no);
            }
            return Ok(true);
        }
        refused
    }

    fn lsn_hint(&self, no: usize) -> Option<Lsn> {
        Guard::try_lock(self, no).map(|page: PageS<'_>| page.lsn())
    }

    /// Writes those of the pages that are dirty and in the pool, for checkpoints. They are stable when the
    /// level has settled. If another thread is writing a page, this waits for it. An error of a full device
    /// is returned after all pages were tried. Returns the number of pages written.
    pub(crate) fn clean(&self, ids: &[PageId], cause: Cause) -> Result<usize> {
        let together = (self.frames.len() / 8).clamp(1, TOGETHER_MAX);
        let (mut written, mut refused) = (0, None);
        for chunk in ids.chunks(together) {
            match self.clean_chunk(chunk, cause) {
                Err(error) if error.is_no_space() => refused = Some(error),
                cleaned => written += cleaned?,
            }
        }
        refused.map_or(Ok(written), Err)
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
        let count = match begun.is_empty() {
            true => 0,
            false => self.put(begun, cause, &self.counters.checkpoint_writes)?,
        };
        elsewhere.into_iter().for_each(|frame| self.wait_written(frame));
        Ok(count)
    }

    /// Returns the ids of all dirty pages, except temporary ones.
    pub(crate) fn dirty_pages(&self) -> Vec<PageId> {
        let used = &self.frames[..self.free.used_once()];
        let dirty = used.iter().filter(|frame| frame.is_dirty() || frame.is_writing());
        dirty.filter_map(Frame::page).filter(|id| id.space().is_logged()).collect()
    }

    /// Runs one round of the page writer. It fills the list of free frames up to a number of frames, which is
    /// at most half of all frames. `write` writes the dirty ones. An error of a full device is returned after
    /// all pages were tried. Returns the number of pages written.
    pub(crate) fn refill_to(
        &self,
        free_count: usize,
        write: impl Fn(&[u32]) -> Result<usize>,
    ) -> Result<usize> {
        let free_count = free_count.min(self.frames.len() / 2);
        let (mut written, mut refused) = (0, None);
        for _ in 0..self.frames.len() / BATCH + 1 {
            if self.free.count() >= free_count {
                break;
            }
            let victims = self.free_more();
            match write(&victims.dirty) {
                Err(error) if error.is_no_space() => refused = Some(error),
                wrote => written += wrote?,
            }
            let freed: Vec<u32> =
                victims.dirty.iter().copied().filter(|no| self.evict(*no as usize)).collect();
            self.counters.evictions.fetch_add(freed.len() as u64, Relaxed);
            self.free.push_all(&freed);
            if victims.freed == 0 && freed.is_empty() {
                break;
            }
        }
        refused.map_or(Ok(written), Err)
    }

    /// Waits until free frames are needed, but at most `longest`.
    pub(crate) fn wait_for_work(&self, longest: Duration) {
        self.writers.wait(longest);
    }

    /// Wakes a page writer.
    pub(crate) fn ring(&self) {
        self.writers.ring();
    }
}
