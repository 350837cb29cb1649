//! Space in a packed file: how much of it is reserved for pages, and where free extents come from.
//!
//! ```text
//!    a space grows, or reuses free pages --> space is reserved --> (pages are written)
//!    free extents <-- hollow extents that get blocks again <-- extents that reclamation empties <-- growth
//! ```
//!
//! Invariants
//! 1. All pages that may be written have reserved space. After all dead slots are reclaimed, these pages need
//!    no more extents than the file has blocks for. Hollow extents (free, without blocks) and extents that
//!    can't be emptied do not count. So a full device is noticed when a space grows, and existing pages can
//!    always be written again.
//! 2. Trim does not return space that invariant 1 needs. Reservation and trim both look under the book's
//!    lock.
//! 3. A longer file is durable before a slot after its old end is used.
//! 4. A lack of space is reported only after four sources failed: the extent that is being filled, each
//!    hollow extent, reclamation, and the device. Any other error of the device is reported as it is.
//! 5. If the device was full, a longer file is tried again after each checkpoint. Until the device has space,
//!    reclamation fills the file beyond its limit.
//!
//! The length of a page that was never written is estimated: it is the mean length of the pages that were
//! written.
//!
//! This module does not know which extents are emptied (`reclaim.rs`, `moves.rs`), or which pages a space
//! gets (`space/grow.rs`).

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use varve_device::reached;

use super::PackedSpace;
use super::book::Book;
use super::reclaim::LAST_EXTENTS;
use super::unit_run::UNIT_BYTES;
use crate::base::error::Result;
use crate::home::files;

/// The least number of extents by which the file grows, and the number of hollow extents that get blocks at a
/// time.
const GROWTH_EXTENTS_MIN: u32 = 8;
/// Reclamation begins when fewer free extents are left beside the reserve: this number, or one in sixty-four
/// of the file's extents.
const SPARE_EXTENTS_MIN: u32 = 2;
/// The number of extents that cannot be full of pages: the reserve, and the extents that are being filled.
const ASIDE_EXTENTS: u32 = LAST_EXTENTS + 2;
/// The largest number of waits for readers of free extents. The first waits yield the processor, and later
/// ones sleep.
pub(super) const WAITS_MAX: u32 = 2000;
const YIELDS_MAX: u32 = 100;
const WAIT: Duration = Duration::from_micros(500);

/// The part of a file, in percent, that may hold pages before it grows. It may change at any moment.
#[derive(Debug)]
pub(crate) struct Fill(AtomicU8);

impl Fill {
    pub(crate) fn new(percent: u8) -> Fill {
        Fill(AtomicU8::new(percent))
    }

    /// Changes the limit.
    pub(crate) fn set(&self, percent: u8) {
        self.0.store(percent, Relaxed);
    }

    fn percent(&self) -> u64 {
        u64::from(self.0.load(Relaxed))
    }
}

impl PackedSpace {
    /// Returns the number of free extents below which space is reclaimed in advance.
    pub(super) fn spare_extents(&self) -> u32 {
        LAST_EXTENTS + SPARE_EXTENTS_MIN.max(self.book.lock().extents().count() / 64)
    }

    /// Grants pages up to this number. Makes sure that there is space even for those that were never written,
    /// or refuses.
    pub(super) fn require_room(&self, pages: u32) -> Result<()> {
        // From now on trim keeps the space that these pages need.
        let before = self.granted.fetch_max(pages, Relaxed);
        self.find_room(pages).inspect_err(|_| self.granted.store(before, Relaxed))
    }

    fn find_room(&self, pages: u32) -> Result<()> {
        if self.missing_extents(pages) == 0 || (self.bury_and_settle()? && self.missing_extents(pages) == 0) {
            return Ok(());
        }
        let _turn = self.opening.lock();
        self.fill_hollow(self.missing_extents(pages), u32::MAX)?;
        match self.missing_extents(pages) {
            0 => Ok(()),
            missing => self.grow(missing),
        }
    }

    /// Takes back the grant of pages beyond this number. They are not written before they are granted again.
    pub(super) fn ungrant(&self, pages: u32) {
        self.granted.fetch_min(pages, Relaxed);
    }

    /// Returns the number of extents with blocks that are missing for `pages` pages.
    fn missing_extents(&self, pages: u32) -> u32 {
        let book = self.book.lock();
        self.needed_extents(&book, pages).saturating_sub(book.extents().usable_count())
    }

    /// Returns the number of extents that `pages` pages need when all dead slots are reclaimed. A page that
    /// was never written counts with the mean length of the others. A small surplus is added, so that some
    /// extent can be emptied.
    fn needed_extents(&self, book: &Book, pages: u32) -> u32 {
        let mut full_units = u64::from(self.rules(0).live_units_max);
        full_units -= full_units / 64;
        let page_units = u64::from(self.shape.page_size) / UNIT_BYTES as u64;
        let (live_units, mapped) = (book.extents().live_units(), u64::from(book.mapped_count()));
        let each_units = live_units.checked_div(mapped).unwrap_or(page_units).clamp(1, page_units);
        let units = live_units + u64::from(pages).saturating_sub(mapped) * each_units;
        let needed = units.div_ceil(full_units) + u64::from(ASIDE_EXTENTS);
        u32::try_from(needed).unwrap_or(u32::MAX)
    }

    /// Returns the number of free extents that trim leaves with their blocks. It is the larger of two
    /// numbers: the extents that granted pages need, and twice `spare` plus the extents for unwritten pages
    /// that will come soon.
    pub(super) fn kept_extents(&self, book: &Book, spare: u32) -> u32 {
        let extents = book.extents();
        let granted = self.granted.load(Relaxed);
        let in_use = extents.usable_count() - extents.free_count();
        let promised = self.needed_extents(book, granted).saturating_sub(in_use);
        let extent_pages = (self.shape.extent_bytes / u64::from(self.shape.page_size)) as u32;
        let unwritten = granted.saturating_sub(book.mapped_count()).div_ceil(extent_pages);
        promised.max(2 * spare + unwritten.min(self.growth(extents.count())))
    }

    /// Returns whether the file is filled to its limit, so that it may grow.
    pub(super) fn is_filled(&self) -> bool {
        let book = self.book.lock();
        book.extents().live_units() * 100 > book.extents().all_units() * self.fill.percent()
    }

    /// Returns whether the file can grow, as far as is known. A device that was full is tried again from time
    /// to time. The caller holds `opening`.
    pub(super) fn may_get_longer(&self) -> Result<bool> {
        if self.is_full.load(Relaxed) && self.asks_again.swap(false, Relaxed) {
            match self.grow(1) {
                Err(error) if error.is_no_space() => {}
                grown => grown?,
            }
        }
        Ok(!self.is_full.load(Relaxed))
    }

    /// Returns whether there are free extents beside the reserve.
    pub(super) fn has_free(&self) -> bool {
        self.book.lock().extents().free_count() > LAST_EXTENTS
    }

    /// Makes space for a slot of `units` units, in the extent that is being filled, or in a free extent
    /// beside the reserve. Otherwise the error says why there is no space.
    pub(super) fn make_room(&self, units: u32) -> Result<()> {
        let has_log = self.bury_and_settle()?;
        if self.has_free() || (self.fill_hollow(GROWTH_EXTENTS_MIN, u32::MAX)? > 0 && self.has_free()) {
            return Ok(());
        }
        // If the log has no space for records of new places, moving pages frees nothing.
        if has_log && !self.is_filled() && self.empty_extents(units)? {
            return Ok(());
        }
        match self.grow(1) {
            Err(error) if error.is_no_space() => {
                if has_log && self.empty_extents(units)? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            grown => grown,
        }
    }

    /// Writes and flushes the log, so that slots die which only wait for the log. Returns false if the log
    /// has no space for the records.
    pub(super) fn bury_and_settle(&self) -> Result<bool> {
        self.bury_all()?;
        let settled = match self.settle_all() {
            Err(error) if error.is_no_space() => false,
            settled => settled.map(|()| true)?,
        };
        self.book.lock().bury(self.log.durable());
        Ok(settled)
    }

    /// Flushes the log, so that the slots of discarded pages die.
    pub(super) fn bury_all(&self) -> Result<()> {
        let last_grave = self.book.lock().last_grave();
        if let Some(after) = last_grave {
            self.log.flush(after)?;
            self.book.lock().bury(self.log.durable());
        }
        Ok(())
    }

    /// Waits for readers that found their slots before these slots died, if all free extents have such
    /// readers. If this takes long, another extent is made free. `waits` is the number of waits before.
    pub(super) fn pass_readers(&self, waits: u32) -> Result<()> {
        if waits < WAITS_MAX {
            wait_for_readers(waits);
            return Ok(());
        }
        if self.fill_hollow(1, u32::MAX)? > 0 {
            return Ok(());
        }
        match self.lengthen(1) {
            // The only source of space is an extent that is still being read.
            Err(error) if error.is_no_space() => {
                wait_for_readers(waits);
                Ok(())
            }
            grown => grown,
        }
    }

    /// Reserves blocks for up to `most` hollow extents, and tries at most `asked_max`. A full device refuses
    /// an extent that was punched, but not an extent that still has its blocks, as most have after a start.
    /// The caller holds `opening`.
    pub(super) fn fill_hollow(&self, most: u32, asked_max: u32) -> Result<u32> {
        let hollow_count = self.book.lock().extents().hollow_count();
        let mut reserved = Vec::new();
        // The search begins after the extent that was refused last, and goes around, so that no extent is
        // tried twice.
        let mut from = self.hollow_from.load(Relaxed);
        for _ in 0..hollow_count.min(asked_max) {
            if reserved.len() == most as usize {
                break;
            }
            let next = {
                let book = self.book.lock();
                book.extents().first_hollow(from).or_else(|| book.extents().first_hollow(0))
            };
            let Some(extent) = next else { break };
            from = extent.0 + 1;
            match self.file.reserve(u64::from(extent.0) * self.shape.extent_bytes, self.shape.extent_bytes) {
                Ok(()) => reserved.push(extent),
                Err(error) if error.is_no_space() => self.hollow_from.store(from, Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
        if !reserved.is_empty() {
            // The reservation must be durable before it is reported, so that a crash cannot undo it.
            self.file.flush()?;
            let mut book = self.book.lock();
            reserved.iter().for_each(|extent| book.extents_mut().refilled(*extent));
        }
        Ok(reserved.len() as u32)
    }

    /// Makes the file longer, by `extents` extents or by the usual step if that is larger. If the device has
    /// no space for the step, `extents` extents may still fit.
    pub(super) fn grow(&self, extents: u32) -> Result<()> {
        let step = self.growth(self.book.lock().extents().count()).max(extents);
        let grown = match self.lengthen(step) {
            Err(error) if error.is_no_space() && step > extents => self.lengthen(extents),
            result => result,
        };
        self.is_full.store(grown.as_ref().is_err_and(|error| error.is_no_space()), Relaxed);
        grown
    }

    /// Returns the step by which a file of `count` extents grows.
    fn growth(&self, count: u32) -> u32 {
        files::growth_step(count, GROWTH_EXTENTS_MIN, self.shape.extent_bytes)
    }

    fn lengthen(&self, extents: u32) -> Result<()> {
        let count = self.book.lock().extents().count();
        self.file.set_len(u64::from(count + extents) * self.shape.extent_bytes)?;
        self.file.flush()?;
        self.book.lock().extents_mut().lengthen(extents);
        reached("packed: file lengthened");
        Ok(())
    }
}

/// Waits a moment for readers. A reader holds a slot only as long as one read takes.
pub(super) fn wait_for_readers(waits: u32) {
    match waits < YIELDS_MAX {
        true => std::thread::yield_now(),
        false => std::thread::sleep(WAIT),
    }
}
