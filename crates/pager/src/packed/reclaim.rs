//! Reclamation: what still lives in extents that are mostly dead is moved together, so that whole extents get free.
//!
//! It has no thread. Whoever finds the extent that is being filled full does what is due, before the next is begun:
//!
//! | free extents | the file | what is done |
//! |---|---|---|
//! | enough | | nothing |
//! | few | filled less than it may be, or cannot grow | a share: at most 8 MiB are moved |
//! | those kept back | filled less than it may be | extents are emptied until one more is free |
//! | those kept back | filled more | it grows; if the device has no room: the same |
//!
//! Invariants
//! 1. The last extents are for survivors alone. What is emptied in a turn is always more than it fills, so with them a turn can
//!    be made, and made again, whatever pages were written into the others.
//! 2. An extent in which nearly everything lives is nobody's victim: moving it would cost twenty times what it wins.
//! 3. Want of room, wherever it shows, leaves every page where it was, and is an error only of who can't be given a slot.
//! 4. A survivor is copied as it is stored, after its checksum was right. One that cannot be read stays, and its extent with it.
//! 5. While slots are read for a turn, their extents count as read by somebody.
//!
//! What it does not know: which page goes where (`moves.rs`), when notes are written (`settle.rs`).

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use varve_device::{AlignedBuf, Durability, ReadOp, reached};

use super::PackedSpace;
use super::extents::{ExtentNo, HEADER_UNITS};
use super::moves::{Moved, Output, Rules, Survivor, Turn};
use super::place::UNIT_BYTES;
use crate::error::Result;
use crate::stored;

/// Free extents that only survivors are written into.
pub(super) const LAST_EXTENTS: u32 = 2;
/// Free extents beyond those below which a share is done: at least so many, or one in sixty-four of the file's.
const SPARE_EXTENTS_MIN: u32 = 2;
/// What a turn moves at most, in extents and in bytes.
const SHARE_EXTENTS_MAX: u64 = 4;
const SHARE_BYTES_MAX: u64 = 8 << 20;
/// Extents in which more than so many in a hundred units live are not emptied.
const LIVE_PERCENT_MAX: u32 = 95;
/// Extents that hold nothing, or not all they could, whatever is done: the last ones, and those being filled.
const ASIDE_EXTENTS: u32 = LAST_EXTENTS + 2;
/// Turns for one extent.
const TURNS_MAX: u32 = 64;
/// Slots with less between them are read together, up to this length.
const GAP_BYTES: u64 = 32 << 10;
const READ_BYTES_MAX: u64 = 1 << 20;

/// An extent that is read.
struct Hold<'s>(&'s AtomicU32);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl PackedSpace {
    /// Free extents below which room is won back ahead of need.
    pub(super) fn spare_extents(&self) -> u32 {
        LAST_EXTENTS + SPARE_EXTENTS_MIN.max(self.book.lock().extents().count() / 64)
    }

    /// Does the share of whoever has filled an extent.
    pub(super) fn keep_up(&self) -> Result<()> {
        let spare = self.spare_extents().max(self.config.spare_extents_min);
        let (free, coming) = {
            let book = self.book.lock();
            let extents = book.extents();
            (extents.free_count(), extents.free_count() + extents.hollow_count() + extents.emptied_count())
        };
        let may_grow = self.is_filled() && !self.is_full.load(Relaxed);
        if coming >= spare || may_grow {
            return Ok(());
        }
        let share = SHARE_EXTENTS_MAX.min(SHARE_BYTES_MAX / self.shape.extent_bytes).max(1);
        match self.turn((share as usize).min(free.saturating_sub(1) as usize)) {
            // It shows again when there is nothing else.
            Err(error) if error.is_no_space() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Has one more extent free than those kept back, or says why there can't be one.
    pub(super) fn make_room(&self) -> Result<()> {
        let has_log = self.bury_and_settle()?;
        if self.has_free() || (self.fill_hollow() && self.has_free()) {
            return Ok(());
        }
        // Without notes nothing gets free, however much is moved.
        if has_log && !self.is_filled() && self.empty_extents()? {
            return Ok(());
        }
        match self.grow(1) {
            Err(error) if error.is_no_space() => {
                self.is_full.store(true, Relaxed);
                if has_log && self.empty_extents()? { Ok(()) } else { Err(error) }
            }
            grown => {
                self.is_full.store(false, Relaxed);
                grown
            }
        }
    }

    /// Has room for a space of so many pages, most of them not yet written: as much for each as those take that are, and as
    /// little more as leaves some extent to be emptied. So a full device shows when a space gets longer, and pages that are
    /// there can be written anew.
    pub(super) fn require_room(&self, pages: u32) -> Result<()> {
        if self.missing_extents(pages) == 0 || (self.bury_and_settle()? && self.missing_extents(pages) == 0) {
            return Ok(());
        }
        let _turn = self.opening.lock();
        match self.missing_extents(pages) {
            0 => Ok(()),
            missing => self.grow(missing),
        }
    }

    /// Extents that the file is too short for so many pages.
    fn missing_extents(&self, pages: u32) -> u32 {
        let mut full_units = u64::from(self.rules(0).live_units_max);
        full_units -= full_units / 64;
        let page_units = u64::from(self.shape.page_size) / UNIT_BYTES as u64;
        let book = self.book.lock();
        let (live_units, mapped) = (book.extents().live_units(), u64::from(book.mapped_count()));
        let each_units = live_units.checked_div(mapped).unwrap_or(page_units).clamp(1, page_units);
        let units = live_units + u64::from(pages).saturating_sub(mapped) * each_units;
        let needed = units.div_ceil(full_units) + u64::from(ASIDE_EXTENTS);
        u32::try_from(needed).unwrap_or(u32::MAX).saturating_sub(book.extents().count())
    }

    /// Extents that pages of the space will need that were never written, as far as they are likely to come soon.
    pub(super) fn promised_extents(&self) -> u32 {
        let extent_pages = (self.shape.extent_bytes / u64::from(self.shape.page_size)) as u32;
        let pages = self.pages.load(Relaxed);
        let book = self.book.lock();
        let unwritten = pages.saturating_sub(book.mapped_count()).div_ceil(extent_pages);
        unwritten.min(self.growth(book.extents().count()))
    }

    /// Whether the file is filled as much as it may be before it grows.
    fn is_filled(&self) -> bool {
        let book = self.book.lock();
        let percent = u64::from(self.config.fill_percent);
        book.extents().live_units() * 100 > book.extents().all_units() * percent
    }

    fn has_free(&self) -> bool {
        self.book.lock().extents().free_count() > LAST_EXTENTS
    }

    /// Has slots die that only wait for the log. Whether the log has the room for that.
    fn bury_and_settle(&self) -> Result<bool> {
        let last_grave = self.book.lock().last_grave();
        if let Some(after) = last_grave {
            self.log.flush(after)?;
        }
        let settled = match self.settle_all() {
            Err(error) if error.is_no_space() => false,
            settled => settled.map(|()| true)?,
        };
        self.book.lock().bury(self.log.durable());
        Ok(settled)
    }

    /// Empties extents until there is one more than those kept back; whether there is.
    fn empty_extents(&self) -> Result<bool> {
        for _ in 0..TURNS_MAX {
            let free = self.book.lock().extents().free_count() as usize;
            let moved = match self.turn(free.saturating_sub(1).max(1)) {
                Err(error) if error.is_no_space() => return Ok(false),
                moved => moved?,
            };
            // What was moved is free when the notes are durable.
            let has_log = self.bury_and_settle()?;
            if self.has_free() {
                return Ok(true);
            }
            if !has_log || moved == Moved::default() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn rules(&self, extents: usize) -> Rules {
        let extent_units = (self.shape.extent_bytes / UNIT_BYTES as u64) as u32;
        let page_units = self.shape.page_size / UNIT_BYTES as u32;
        // The survivors of one victim fit into one extent, whatever their order.
        let fitting = extent_units - HEADER_UNITS - page_units + 1;
        let live_units_max = fitting.min(extent_units * LIVE_PERCENT_MAX / 100);
        Rules { extents, live_units_max, sector_units: (self.sector_bytes() / UNIT_BYTES) as u32 }
    }

    /// One turn, by the holder of `opening`: moves what fills up to `extents`.
    fn turn(&self, extents: usize) -> Result<Moved> {
        if extents == 0 {
            return Ok(Moved::default());
        }
        let rules = self.rules(extents);
        let (mut turn, holds) = {
            let book = self.book.lock();
            let turn = Turn::choose(&book, &rules);
            let holds: Vec<Hold<'_>> = turn.victims().iter().map(|no| self.enter(*no)).collect();
            (turn, holds)
        };
        let buffers = self.read_survivors(&mut turn);
        drop(holds);
        let outputs = turn.place(&mut self.book.lock(), &rules, |extent| self.is_read(extent));
        let (written, outcome) = self.write_outputs(&outputs, &buffers);
        let moved = turn.land(&mut self.book.lock(), outputs, written);
        self.count(&moved);
        outcome.map(|()| moved)
    }

    fn count(&self, moved: &Moved) {
        let counters = &self.counters;
        counters.moved_pages.fetch_add(moved.pages, Relaxed);
        counters.moved_bytes.fetch_add(moved.units * UNIT_BYTES as u64, Relaxed);
        counters.emptied_extents.fetch_add(moved.emptied, Relaxed);
        counters.unsound_slots.fetch_add(moved.unsound, Relaxed);
        if moved.pages > 0 {
            reached("packed: pages moved");
        }
    }

    fn enter(&self, extent: ExtentNo) -> Hold<'_> {
        let readers = self.readers.make(extent.0);
        readers.fetch_add(1, SeqCst);
        Hold(readers)
    }

    /// Reads the survivors, neighbours together; those that are not sound are left where they are.
    fn read_survivors(&self, turn: &mut Turn) -> Vec<AlignedBuf> {
        let runs = self.runs(&mut turn.survivors);
        let mut buffers: Vec<AlignedBuf> =
            runs.iter().map(|run| AlignedBuf::new((run.end - run.start) as usize)).collect();
        let mut ops: Vec<ReadOp<'_>> = runs
            .iter()
            .zip(&mut buffers)
            .map(|(run, buf)| ReadOp { offset: run.start, buf, why: self.purpose })
            .collect();
        let are_read = match self.file.read_batch(&mut ops) {
            Ok(()) => vec![true; runs.len()],
            // Some of it can be read, perhaps.
            Err(_) => ops.iter_mut().map(|op| self.file.read_at(op.offset, op.buf, op.why).is_ok()).collect(),
        };
        let is_sound = |survivor: &Survivor| {
            let (run, at) = survivor.bytes_at;
            let bytes = &buffers[run][at..at + survivor.from.len_bytes()];
            are_read[run]
                && stored::verify(bytes, self.id(survivor.no), self.shape.page_size as usize).is_ok()
        };
        let are_sound: Vec<bool> = turn.survivors.iter().map(is_sound).collect();
        if are_sound.contains(&false) {
            turn.leave_unsound(&mut self.book.lock(), &are_sound);
        }
        buffers
    }

    /// What is read together; notes for each survivor where its bytes will be.
    fn runs(&self, survivors: &mut [Survivor]) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for survivor in survivors {
            let window = self.window(survivor.from);
            let (start, end) = (window.offset, window.offset + window.len_bytes as u64);
            match runs.last_mut() {
                Some(run)
                    if run.start <= start
                        && start <= run.end + GAP_BYTES
                        && end - run.start <= READ_BYTES_MAX =>
                {
                    run.end = run.end.max(end);
                }
                _ => runs.push(start..end),
            }
            let run = runs.len() - 1;
            survivor.bytes_at = (run, (survivor.from.offset_bytes() - runs[run].start) as usize);
        }
        runs
    }

    /// Writes the survivors of each output in one piece; gives how many outputs were written.
    fn write_outputs(&self, outputs: &[Output], buffers: &[AlignedBuf]) -> (usize, Result<()>) {
        for (number, output) in outputs.iter().enumerate() {
            let Some((first, last)) = output.moves.first().zip(output.moves.last()) else { continue };
            let start = first.to.offset_bytes();
            let mut bytes = AlignedBuf::new((last.to.end() * UNIT_BYTES as u64 - start) as usize);
            for one in &output.moves {
                let (run, from) = one.survivor.bytes_at;
                let (len, to) = (one.survivor.from.len_bytes(), (one.to.offset_bytes() - start) as usize);
                bytes[to..to + len].copy_from_slice(&buffers[run][from..from + len]);
            }
            if let Err(error) = self.file.write_at(start, &bytes, self.purpose, Durability::Later) {
                return (number, Err(error.into()));
            }
        }
        (outputs.len(), Ok(()))
    }
}
