//! Trim: room of free extents goes back to the device, in pieces of a megabyte at least.
//!
//! Invariants
//! 1. Only free extents are punched or cut off: no durable state names a slot there, and nobody reads one.
//! 2. So many stay free, with their room, that neither writers nor reclamation wait for the device to give it again.
//! 3. A device that cannot punch, or refuses to get shorter, costs room and nothing else.
//!
//! What it does not know: how extents get free. (Switched off, nothing is punched; a file is cut all the same.)

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use varve_device::{ErrorKind, reached};

use super::PackedSpace;
use crate::error::Result;

/// Less is not punched at a time, unless extents are so short that it would be more than a few of them.
const PUNCH_BYTES_MIN: u64 = 1 << 20;
const PUNCH_EXTENTS_MIN: u64 = 4;
/// Most that is punched at a time, and at a checkpoint.
const PUNCH_BYTES_MAX: u64 = 64 << 20;
const TRIM_BYTES_MAX: u64 = 1 << 30;

impl PackedSpace {
    /// At the end of a checkpoint: gives back what is free and not kept (`room.rs`).
    pub(super) fn trim(&self) -> Result<()> {
        let extent_bytes = self.shape.extent_bytes;
        let spare = self.spare_extents();
        self.cut_tail(spare)?;
        let least = PUNCH_BYTES_MIN.div_ceil(extent_bytes).min(PUNCH_EXTENTS_MIN);
        let most = (PUNCH_BYTES_MAX / extent_bytes).max(least);
        for _ in 0..TRIM_BYTES_MAX / PUNCH_BYTES_MAX {
            if self.cannot_punch.load(Relaxed) || self.trim.is_off() {
                break;
            }
            let run = {
                let mut book = self.book.lock();
                let keep = self.kept_extents(&book, spare);
                book.extents_mut().take_run(keep, least as u32, most as u32, |no| self.is_read(no))
            };
            let Some(run) = run else { break };
            self.punch(run);
        }
        Ok(())
    }

    /// Punches a run of extents that was taken out.
    fn punch(&self, run: Range<u32>) {
        let extent_bytes = self.shape.extent_bytes;
        let (offset, bytes) = (u64::from(run.start) * extent_bytes, run.len() as u64 * extent_bytes);
        let punched = self.file.punch(offset, bytes);
        match &punched {
            Ok(()) => {
                reached("packed: extents punched");
                self.counters.trims.fetch_add(1, Relaxed);
                self.counters.trimmed_bytes.fetch_add(bytes, Relaxed);
            }
            Err(error) => {
                let is_for_good = error.kind == ErrorKind::Unsupported;
                self.cannot_punch.store(is_for_good, Relaxed);
                self.counters.failed_trims.fetch_add(u64::from(!is_for_good), Relaxed);
            }
        }
        self.book.lock().extents_mut().give_back(run, punched.is_ok());
    }

    /// Makes the file shorter if a quarter of it, at its end, is free and not to be kept.
    fn cut_tail(&self, spare: u32) -> Result<()> {
        // Whoever begins an extent has no use for a shorter file.
        let Some(_turn) = self.opening.try_lock() else { return Ok(()) };
        let left = {
            let mut book = self.book.lock();
            let keep = self.kept_extents(&book, spare);
            let extents = book.extents_mut();
            let count = extents.free_tail(keep, |no| self.is_read(no));
            if count == 0 || count < extents.count() / 4 {
                return Ok(());
            }
            extents.shorten(count);
            extents.count()
        };
        match self.file.set_len(u64::from(left) * self.shape.extent_bytes) {
            Ok(()) => reached("packed: file cut"),
            // It is as long as before, or not: at the next start that shows.
            Err(error) if error.is_no_space() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
