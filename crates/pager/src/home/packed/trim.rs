//! Trim of a packed file: the blocks of free extents are returned to the device, by punching holes or by
//! cutting off the end of the file. If trim is switched off, no holes are punched, but the file is still cut.
//!
//! Invariants
//! 1. Only free extents are punched or cut off. No durable state names a slot in them, and no thread reads
//!    one.
//! 2. Some free extents keep their blocks. So neither writers nor reclamation have to wait until the device
//!    allocates blocks again.
//! 3. If the device can't punch holes, or refuses to shorten the file, only disk space is lost.
//!
//! This module does not know how extents become free.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use varve_device::{ErrorKind, reached};

use super::PackedSpace;
use crate::base::error::Result;
use crate::home::pace::Pace;

/// The least number of bytes that is punched at a time. If extents are short, this is several of them.
const PUNCH_BYTES_MIN: u64 = 1 << 20;
const PUNCH_EXTENTS_MIN: u64 = 4;
/// The largest number of bytes that are punched before the file's end is checked again. Holes are limited
/// because other I/O of the file waits for each hole.
const PUNCH_BYTES_MAX: u64 = 8 << 20;
const TRIM_BYTES_MAX: u64 = 1 << 30;
/// The largest number of bytes that are cut off at a time.
const CUT_BYTES_MAX: u64 = 1 << 30;

impl PackedSpace {
    /// Gives a part of the free extents that need not be kept (`room.rs`) back to the device. Returns whether
    /// there are more.
    pub(super) fn give_back(&self, pace: &Pace<'_>) -> Result<bool> {
        // Slots of pages that were just discarded may wait for the log, and perhaps no other thread writes
        // the log.
        self.bury_all()?;
        let extent_bytes = self.shape.extent_bytes;
        let spare = self.spare_extents();
        self.cut_tail(spare, pace)?;
        let least = PUNCH_BYTES_MIN.div_ceil(extent_bytes).min(PUNCH_EXTENTS_MIN);
        let most = (PUNCH_BYTES_MAX / extent_bytes).max(least);
        for _ in 0..TRIM_BYTES_MAX / PUNCH_BYTES_MAX {
            if self.cannot_punch.load(Relaxed) || self.trim.is_off() || pace.is_over() {
                return Ok(false);
            }
            let run = {
                let mut book = self.book.lock();
                let keep = self.kept_extents(&book, spare);
                let (least, most, extents) = (least as u32, most as u32, book.extents_mut());
                let freed = extents.take_run(keep, least, most, |no| self.is_read(no));
                freed.or_else(|| extents.take_unsure(keep, least, most))
            };
            let Some(run) = run else { return Ok(false) };
            pace.piece(|| self.punch(run));
        }
        Ok(true)
    }

    /// Punches a run of extents that was taken out.
    fn punch(&self, run: Range<u32>) {
        let extent_bytes = self.shape.extent_bytes;
        let (offset, bytes) = (u64::from(run.start) * extent_bytes, run.len() as u64 * extent_bytes);
        let punched = self.file.punch(offset, bytes);
        let mut may_be_hollow = true;
        match &punched {
            Ok(()) => {
                reached("packed: extents punched");
                self.counters.trims.fetch_add(1, Relaxed);
                self.counters.trimmed_bytes.fetch_add(bytes, Relaxed);
            }
            Err(error) => {
                let is_for_good = error.kind == ErrorKind::Unsupported;
                // After any other failure, a part of the range may have been punched.
                may_be_hollow = !is_for_good;
                self.cannot_punch.store(is_for_good, Relaxed);
                self.counters.failed_trims.fetch_add(u64::from(!is_for_good), Relaxed);
            }
        }
        self.book.lock().extents_mut().give_back(run, may_be_hollow);
    }

    /// Makes the file shorter if at least a quarter of it, at its end, is free and need not be kept.
    fn cut_tail(&self, spare: u32, pace: &Pace<'_>) -> Result<()> {
        let left = {
            let book = self.book.lock();
            let keep = self.kept_extents(&book, spare);
            let count = book.extents().free_tail(keep, |no| self.is_read(no));
            if count == 0 || count < book.extents().count() / 4 {
                return Ok(());
            }
            book.extents().count() - count
        };
        while !pace.is_over() && pace.piece(|| self.cut_piece(spare, left))? {}
        Ok(())
    }

    /// Makes one step of shortening the file to `left` extents. No thread can begin an extent meanwhile.
    /// Returns whether there is more to do.
    fn cut_piece(&self, spare: u32, left: u32) -> Result<bool> {
        // A thread that begins an extent now needs the file as long as it is.
        let Some(_turn) = self.opening.try_lock() else { return Ok(false) };
        let (now, before) = {
            let mut book = self.book.lock();
            let keep = self.kept_extents(&book, spare);
            let extents = book.extents_mut();
            let most = (CUT_BYTES_MAX / self.shape.extent_bytes) as u32;
            let wanted = extents.count().saturating_sub(left).min(most);
            let count = extents.free_tail(keep, |no| self.is_read(no)).min(wanted);
            if count == 0 {
                return Ok(false);
            }
            let before = extents.count();
            extents.shorten(count);
            (extents.count(), before)
        };
        if self.file.set_len(u64::from(now) * self.shape.extent_bytes).is_err() {
            // The file keeps the length that it has now. Whether its end still has blocks shows when they are
            // reserved.
            let has = u32::try_from(self.file.len_bytes()? / self.shape.extent_bytes).unwrap_or(u32::MAX);
            self.book.lock().extents_mut().restore(has.clamp(now, before) - now);
            self.counters.failed_trims.fetch_add(1, Relaxed);
            return Ok(false);
        }
        reached("packed: file cut");
        Ok(now > left)
    }
}
