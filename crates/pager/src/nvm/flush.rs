//! Flushes the NVM page buffer. A slot is freed if the data files have its page version, too. If there are no
//! such slots, other versions are first written to the data files (`home_order.rs` chooses them). Threads do
//! this before slots are needed. They begin when the number of dirty slots reaches the high mark, and end at
//! the low mark.
//!
//! Invariants
//! 1. A version is clean only after exactly its image was put to the data files with the need `Stable`, and
//!    the put has returned.
//! 2. A thread that frees a slot, or stops work on a version, wakes the threads that wait for a slot. No
//!    thread waits while it could flush a version itself.
//! 3. If a full device refuses a version, the version stays dirty, and the next one is tried. A put returns
//!    the error when all dirty versions were refused, or [`TRIED_MAX`] in a row. The next put continues with
//!    the versions after these.
//!
//! This module does not know which thread needs the slots.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use varve_device::{planted, reached};

use super::book::{Book, Version};
use super::buffer::NvmBuffer;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::times::Timing;
use crate::level::{Cause, Need};
use crate::nvm::NvmFlush;

/// The largest number of slots that are freed together.
const LEAVE_MAX: usize = 64;
/// The largest number of pages that are written to the data files together.
pub(super) const FLUSH_MAX: usize = 128;
/// If a full device has refused this many pages in succession, the put is refused, too.
const TRIED_MAX: usize = 1024;

/// The next step of a thread that needs slots.
enum Work {
    Retire(Vec<Version>),
    Flush(Vec<Version>),
    /// The log is made durable up to this LSN, so that slots of discarded pages can be freed.
    MakeDurable(Lsn),
    /// The thread waits, because other threads are working on all versions.
    Wait,
}

impl NvmBuffer {
    /// Takes `count` slots together. If threads took some slots and waited for more, two threads could wait
    /// for each other.
    pub(super) fn take_slots(&self, count: usize, cause: Cause) -> Result<Vec<u32>> {
        if let Some(slots) = self.book.lock().take_free(count) {
            return Ok(slots);
        }
        self.times.of(Timing::NvmWait, || self.make_slots(count, cause))
    }

    #[cold]
    fn make_slots(&self, count: usize, cause: Cause) -> Result<Vec<u32>> {
        let mut tried = 0;
        let mut book = self.book.lock();
        loop {
            if let Some(slots) = book.take_free(count) {
                return Ok(slots);
            }
            let work = self.next_work(&mut book, count);
            self.count_work(&work, cause);
            let begun = match work {
                Work::Wait => {
                    self.wait(&mut book);
                    continue;
                }
                Work::Flush(ref versions) => versions.len(),
                _ => 0,
            };
            drop(book);
            let done = self.carry_out(work);
            book = self.book.lock();
            match done {
                Err(error) if error.is_no_space() => {
                    tried += begun;
                    let [free, dirty, clean, _] = book.counts();
                    // Other threads may have flushed or freed some versions meanwhile.
                    let has_others = free + clean >= count && tried < 2 * TRIED_MAX;
                    if begun == 0 || tried >= dirty.min(TRIED_MAX) && !has_others {
                        return Err(error);
                    }
                }
                done => {
                    done?;
                    tried = 0;
                }
            }
        }
    }

    /// Counts waits and flushes of puts. A thread that needs a frame should find slots, and need neither.
    fn count_work(&self, work: &Work, cause: Cause) {
        let (all, inline) = match work {
            Work::Wait => (&self.counters.slot_waits, &self.counters.inline_slot_waits),
            Work::Flush(_) => (&self.counters.put_flushes, &self.counters.inline_flushes),
            Work::Retire(_) | Work::MakeDurable(_) => return,
        };
        all.fetch_add(1, Relaxed);
        inline.fetch_add(u64::from(cause == Cause::EvictInline), Relaxed);
    }

    fn next_work(&self, book: &mut Book, count: usize) -> Work {
        let mut leaving = book.leave_due(self.log.durable_lsn(), LEAVE_MAX);
        if leaving.len() < count {
            leaving.extend(book.leave_clean(LEAVE_MAX - leaving.len()));
        }
        if !leaving.is_empty() {
            return Work::Retire(leaving);
        }
        let flushing = next_dirty(book, FLUSH_MAX);
        if !flushing.is_empty() {
            return Work::Flush(flushing);
        }
        book.next_due().map_or(Work::Wait, Work::MakeDurable)
    }

    fn carry_out(&self, work: Work) -> Result<()> {
        match work {
            Work::Retire(leaving) => {
                reached("nvm: slot taken back");
                self.retire(&leaving);
                Ok(())
            }
            Work::Flush(versions) => self.flush(versions),
            Work::MakeDurable(lsn) => self.log.flush(lsn),
            Work::Wait => Ok(()),
        }
    }

    /// Writes up to `pages` dirty versions to the data files. Returns the number of writes that began.
    pub(crate) fn flush_some(&self, pages: usize) -> Result<usize> {
        let versions = next_dirty(&mut self.book.lock(), pages);
        let begun = versions.len();
        self.flush(versions)?;
        Ok(begun)
    }

    /// Writes the dirty versions of these pages to the data files, except versions that another thread uses.
    /// Returns whether the data files now have the newest version of all of them. A full device may have
    /// refused some.
    pub(crate) fn flush_pages(&self, ids: &[PageId]) -> Result<bool> {
        let versions = self.book.lock().begin_flush_of(ids);
        self.flush(versions)?;
        let book = self.book.lock();
        Ok(!ids.iter().any(|id| book.is_dirty(*id)))
    }

    /// Runs a round of a flushing thread. It writes a batch if more versions are dirty than the low mark.
    /// `is_flushing` says whether the number is on its way from the high mark down to the low mark. Returns
    /// whether there may be more to do.
    pub(crate) fn flush_round(&self, is_flushing: &mut bool) -> Result<bool> {
        let mut book = self.book.lock();
        let dirty = book.counts()[1];
        let mark = if *is_flushing { self.marks.low() } else { self.marks.high() };
        *is_flushing = dirty > mark;
        if !*is_flushing {
            return Ok(false);
        }
        let versions = next_dirty(&mut book, (dirty - mark.min(self.marks.low())).min(FLUSH_MAX));
        drop(book);
        let has_begun = !versions.is_empty();
        self.flush(versions)?;
        Ok(has_begun)
    }

    /// Changes the marks.
    pub(crate) fn set_flush(&self, flush: NvmFlush) {
        self.marks.set(flush);
        self.bell.notify_all();
    }

    /// Returns whether a thread writes all pages to the data files while the database is idle.
    pub(crate) fn flushes_when_idle(&self) -> bool {
        self.marks.flushes_when_idle()
    }

    /// Lets a flushing thread sleep until the high mark is passed, but only for a short time, because a
    /// wake-up just before the sleep is lost.
    pub(crate) fn wait_for_bell(&self, longest: Duration) {
        let mut book = self.book.lock();
        self.bell.wait_for(&mut book, longest);
    }

    fn flush(&self, mut versions: Vec<Version>) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        versions.sort_unstable_by_key(|version| version.id);
        let (is_home, result) = self.write_home(&versions);
        let mut book = self.book.lock();
        versions.iter().zip(&is_home).for_each(|(version, is_home)| book.end_flush(version, *is_home));
        if result.as_ref().is_err_and(PagerError::is_no_space) {
            let refused = versions.iter().zip(&is_home).filter(|(_, is_home)| !**is_home);
            book.pass_over(refused.map(|(version, _)| *version));
        }
        drop(book);
        self.changed.notify_all();
        let written = is_home.iter().filter(|is_home| **is_home).count() as u64;
        self.counters.home_pages.fetch_add(written, Relaxed);
        match result {
            Err(error) if error.is_no_space() && written > 0 => Ok(()),
            result => result,
        }
    }

    /// Writes versions to the data files. Returns which of them the data files have now, and the error, if
    /// there was one.
    fn write_home(&self, versions: &[Version]) -> (Vec<bool>, Result<()>) {
        let nothing = vec![false; versions.len()];
        let images = match self.images(versions) {
            Ok(images) => images,
            Err(damage) => return (nothing, Err(damage)),
        };
        if planted("nvm: freed before home is durable") {
            return (vec![true; versions.len()], Ok(()));
        }
        match self.home.put(&images, Cause::Evict, Need::Stable) {
            Ok(()) => {
                reached("nvm: flushed home");
                self.counters.home_batches.fetch_add(1, Relaxed);
                (vec![true; versions.len()], Ok(()))
            }
            Err(error) if error.is_no_space() => self.write_singly(&images, error),
            Err(error) => (nothing, Err(error)),
        }
    }

    /// Writes images one by one after a refusal, because a full device may have space for some.
    #[cold]
    fn write_singly(&self, images: &[Image], refusal: PagerError) -> (Vec<bool>, Result<()>) {
        let mut is_home = vec![false; images.len()];
        let mut last = Err(refusal);
        for (at, image) in images.iter().enumerate() {
            match self.home.put(std::slice::from_ref(image), Cause::Evict, Need::Stable) {
                Ok(()) => is_home[at] = true,
                Err(error) if error.is_no_space() => {
                    self.counters.refused.fetch_add(1, Relaxed);
                    last = Err(error);
                }
                Err(error) => return (is_home, Err(error)),
            }
        }
        (is_home, last)
    }

    /// Returns the images of these versions, as they were put. A damaged image is not written to the data
    /// files. The slot's header is not checked, because a put of the page may be freeing the slot.
    fn images(&self, versions: &[Version]) -> Result<Vec<Image>> {
        let image = |version: &Version| {
            let mut bytes = self.area.buffer();
            self.area.load(version.slot, &mut bytes);
            let image = Image::of_sealed(version.id, bytes, Access::Random)
                .map_err(|damage| self.area.damaged(version.slot, &damage.to_string()))?;
            let is_it = image.lsn() == version.lsn;
            is_it.then_some(image).ok_or_else(|| self.area.damaged(version.slot, "it holds another version"))
        };
        versions.iter().map(image).collect()
    }
}

/// Begins to flush the next dirty versions. If a round after a refusal has ended, this starts again with the
/// first one.
fn next_dirty(book: &mut Book, max: usize) -> Vec<Version> {
    loop {
        let begun = book.begin_flush(max);
        if !begun.is_empty() || !book.begin_turn() {
            return begun;
        }
    }
}
