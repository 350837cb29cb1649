//! Making room: slots of versions that home has are taken back; if there are none, the oldest versions are written home.
//! Threads do that ahead of need: from the high mark of dirty slots down to the low one.
//!
//! Invariants
//! 1. A version is clean only after home's put for exactly its image has returned, with need `Stable`.
//! 2. Who waits for a slot is woken by whoever frees one or gives up a version; nobody waits while there is something to do.
//! 3. What a full device refuses stays dirty; the caller hears of it only if nothing at all could be written.
//!
//! Not known here: who needs the slots.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use varve_device::{planted, reached};

use super::book::{Book, Version};
use super::buffer::NvmBuffer;
use crate::error::{PagerError, Result};
use crate::ids::Access;
use crate::level::{Cause, Image, Need};
use crate::lsn::Lsn;

/// Slots taken back at once.
const LEAVE_MAX: usize = 64;
/// Pages written home at once.
const FLUSH_MAX: usize = 128;
/// The newest part of the area, one in so many slots, is written home only if there is nothing else.
const KEPT_PART: u64 = 4;
/// After so many pages in a row that a full device refused, the rest is not tried.
const REFUSED_MAX: usize = 8;

/// What somebody who needs slots can do.
enum Work {
    Retire(Vec<Version>),
    Flush(Vec<Version>),
    /// Discarded pages can go once the log is durable up to here.
    MakeDurable(Lsn),
    /// Others have everything in hand.
    Wait,
}

impl NvmBuffer {
    /// `count` slots, or none: two that each had half of what they need would wait for each other.
    pub(super) fn take_slots(&self, count: usize) -> Result<Vec<u32>> {
        let mut book = self.book.lock();
        loop {
            if let Some(slots) = book.take_free(count) {
                return Ok(slots);
            }
            match self.next_work(&mut book) {
                Work::Wait => {
                    self.counters.slot_waits.fetch_add(1, Relaxed);
                    self.changed.wait(&mut book);
                }
                work => {
                    drop(book);
                    self.carry_out(work)?;
                    book = self.book.lock();
                }
            }
        }
    }

    fn next_work(&self, book: &mut Book) -> Work {
        let mut leaving = book.leave_due(self.log.durable_lsn());
        leaving.extend(book.leave_clean(LEAVE_MAX));
        if !leaving.is_empty() {
            return Work::Retire(leaving);
        }
        let flushing = oldest_dirty(book, u64::from(self.area.slots()), FLUSH_MAX);
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

    /// Writes up to `pages` of the oldest dirty versions home; gives how many were begun.
    pub(crate) fn flush_oldest(&self, pages: usize) -> Result<usize> {
        let versions = self.book.lock().begin_flush(pages, u64::MAX);
        let begun = versions.len();
        self.flush(versions)?;
        Ok(begun)
    }

    /// A round of a flushing thread: a batch, if there are more dirty versions than the low mark; `is_flushing` says whether it
    /// is between the marks on the way down. Whether there may be more to do.
    pub(crate) fn flush_round(&self, is_flushing: &mut bool) -> Result<bool> {
        let mut book = self.book.lock();
        let dirty = book.counts()[1];
        let mark = if *is_flushing { self.marks.low() } else { self.marks.high() };
        *is_flushing = dirty > mark;
        if !*is_flushing {
            return Ok(false);
        }
        let versions =
            oldest_dirty(&mut book, u64::from(self.area.slots()), dirty - mark.min(self.marks.low()));
        drop(book);
        let has_begun = !versions.is_empty();
        self.flush(versions)?;
        Ok(has_begun)
    }

    /// A flushing thread sleeps until the high mark is passed.
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
        drop(book);
        self.changed.notify_all();
        let written = is_home.iter().filter(|is_home| **is_home).count() as u64;
        self.counters.home_pages.fetch_add(written, Relaxed);
        match result {
            Err(error) if error.is_no_space() && written > 0 => Ok(()),
            result => result,
        }
    }

    /// Whether each version is home now, and what went wrong.
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

    /// A full device may have room for some.
    #[cold]
    fn write_singly(&self, images: &[Image], refusal: PagerError) -> (Vec<bool>, Result<()>) {
        let mut is_home = vec![false; images.len()];
        let (mut last, mut in_a_row) = (Err(refusal), 0);
        for (at, image) in images.iter().enumerate() {
            match self.home.put(std::slice::from_ref(image), Cause::Evict, Need::Stable) {
                Ok(()) => {
                    is_home[at] = true;
                    in_a_row = 0;
                }
                Err(error) if error.is_no_space() => {
                    self.counters.refused.fetch_add(1, Relaxed);
                    last = Err(error);
                    in_a_row += 1;
                }
                Err(error) => return (is_home, Err(error)),
            }
            if in_a_row == REFUSED_MAX {
                break;
            }
        }
        (is_home, last)
    }

    /// Their images, as they were put: what is damaged is not written home. (Headers say nothing here: a put of the page may
    /// be retiring the version.)
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

/// The oldest dirty versions; those put lately only if there are no others: they may be superseded soon.
fn oldest_dirty(book: &mut Book, slots: u64, max: usize) -> Vec<Version> {
    let max = max.min(FLUSH_MAX);
    let limit = book.next_sequence().saturating_sub(slots / KEPT_PART);
    let old = book.begin_flush(max, limit);
    if old.is_empty() { book.begin_flush(max, u64::MAX) } else { old }
}
