//! Reclamation makes packed extents free. If most of an extent is dead, the pages that are still in it are
//! moved to a new extent, together with those of other such extents.
//!
//! Reclamation has no thread of its own. A writer that finds its extent full does the reclamation that is
//! due, and then begins the next extent. The last few free extents are the *reserve*: they are used only for
//! moved pages.
//!
//! | free extents | state of the file | what the writer does |
//! |---|---|---|
//! | enough | any | nothing |
//! | few | filled less than its limit, or it cannot grow | moves at most 8 MiB |
//! | only the reserve | filled less than its limit | empties extents until one more is free |
//! | only the reserve | filled to its limit or more | makes it longer; on a full device, empties extents |
//!
//! Invariants
//! 1. The reserve is used only for moved pages. A turn of reclamation always empties more extents than it
//!    fills. So another turn is always possible, whatever pages were written into the other extents.
//! 2. An extent in which nearly every page is current is not emptied. Moving its pages would cost twenty
//!    times the space that it frees.
//! 3. If there is no space, every page stays where it is. The lack of space is an error only for a write that
//!    can't get a slot.
//! 4. A page is moved in its stored form, after its checksum was verified. If the checksum is wrong, the page
//!    stays, and its extent is kept. If the page can't be read, it stays, and the move is tried again after
//!    the next checkpoint.
//! 5. While a turn reads slots, their extents count as being read, so no thread overwrites them.
//!
//! This module does not know which page is moved to which slot (`moves.rs`), when the log gets the new places
//! (`settle.rs`), or what space is reserved (`room.rs`).

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use varve_device::{AlignedBuf, Durability, ReadOp, reached};

use super::PackedSpace;
use super::book::Book;
use super::extents::{ExtentNo, HEADER_UNITS};
use super::moves::{MoveRound, Moved, Output, Readable, Rules, Survivor};
use super::room::{WAITS_MAX, wait_for_readers};
use super::unit_run::UNIT_BYTES;
use crate::base::error::Result;
use crate::home::compression::stored_page;

/// The reserve: the number of free extents that are used only for moved pages.
pub(super) const LAST_EXTENTS: u32 = 2;
/// The largest number of extents that one share of reclamation moves. The next constant is the largest number
/// of bytes.
pub(super) const SHARE_EXTENTS_MAX: u64 = 4;
const SHARE_BYTES_MAX: u64 = 8 << 20;
/// Extents in which more than this percentage of the units is live are not emptied.
const LIVE_PERCENT_MAX: u32 = 95;
/// The most hollow extents for which a share reserves blocks.
const HOLLOW_ASKED_MAX: u32 = 8;
/// The largest number of turns that are made to get one free extent.
const TURNS_MAX: u32 = 64;
/// Slots with a smaller gap between them are read together, up to `READ_BYTES_MAX`.
const GAP_BYTES: u64 = 32 << 10;
const READ_BYTES_MAX: u64 = 1 << 20;

/// Marks an extent as being read until it is dropped.
pub(super) struct ReadPin<'s>(&'s AtomicU32);

impl Drop for ReadPin<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl PackedSpace {
    /// Does the share of reclamation of a writer that has filled an extent.
    pub(super) fn keep_up(&self) -> Result<()> {
        let spare = self.spare_extents();
        let coming = |book: &Book| book.extents().free_count() + book.extents().emptied_count();
        // Hollow extents that the device may still have blocks for are tried first, because they need no
        // moves.
        let missing = spare.saturating_sub(coming(&self.book.lock()));
        self.fill_hollow(missing, HOLLOW_ASKED_MAX)?;
        let (free, coming) = {
            let book = self.book.lock();
            (book.extents().free_count(), coming(&book))
        };
        let has_enough = coming >= spare && !self.config.moves_always;
        let may_grow = self.is_filled() && self.may_get_longer()?;
        if has_enough || may_grow {
            return Ok(());
        }
        let share = SHARE_EXTENTS_MAX.min(SHARE_BYTES_MAX / self.shape.extent_bytes).max(1);
        match self.turn((share as usize).min(free.saturating_sub(1) as usize)) {
            // A lack of space is reported later, if there is no other source of free extents.
            Err(error) if error.is_no_space() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Empties extents until one extent more than the reserve is free, or until there is space for `units`
    /// units after the moved pages. Returns whether this succeeded.
    pub(super) fn empty_extents(&self, units: u32) -> Result<bool> {
        let (mut turns, mut waits) = (0, 0);
        while turns < TURNS_MAX {
            let free = self.book.lock().extents().free_count() as usize;
            let moved = match self.turn(free.saturating_sub(1).max(1)) {
                Err(error) if error.is_no_space() => return Ok(false),
                moved => moved?,
            };
            // Emptied extents become free when the log records of the new places are durable.
            let has_log = self.bury_and_settle()?;
            if self.has_free() || self.book.lock().has_room_for(units) {
                return Ok(true);
            }
            if moved.met_readers && waits < WAITS_MAX {
                wait_for_readers(waits);
                waits += 1;
                continue;
            }
            if !has_log || !moved.has_won() {
                return Ok(false);
            }
            turns += 1;
        }
        Ok(false)
    }

    pub(super) fn rules(&self, extents: usize) -> Rules {
        let extent_units = (self.shape.extent_bytes / UNIT_BYTES as u64) as u32;
        let page_units = self.shape.page_size / UNIT_BYTES as u32;
        // With this limit, the survivors of one victim always fit into one extent, in any order.
        let fitting = extent_units - HEADER_UNITS - page_units + 1;
        let live_units_max = fitting.min(extent_units * LIVE_PERCENT_MAX / 100);
        Rules { extents, live_units_max, sector_units: (self.sector_bytes() / UNIT_BYTES) as u32 }
    }

    /// Runs one turn, which writes up to `extents` extents. The caller holds `opening`.
    fn turn(&self, extents: usize) -> Result<Moved> {
        if extents == 0 {
            return Ok(Moved::default());
        }
        let rules = self.rules(extents);
        let (mut turn, holds) = {
            let book = self.book.lock();
            let turn = MoveRound::choose(&book, &rules);
            let holds: Vec<ReadPin<'_>> = turn.victims().iter().map(|no| self.enter(*no)).collect();
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
        counters.damaged_slots.fetch_add(moved.damaged, Relaxed);
        if moved.pages > 0 {
            reached("packed: pages moved");
        }
    }

    /// Registers a reader of an extent.
    pub(super) fn enter(&self, extent: ExtentNo) -> ReadPin<'_> {
        let readers = self.readers.make(extent.0);
        readers.fetch_add(1, SeqCst);
        ReadPin(readers)
    }

    /// Reads the survivors, neighbours together. Survivors that cannot be read stay where they are.
    fn read_survivors(&self, turn: &mut MoveRound) -> Vec<AlignedBuf> {
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
            // The batch failed, but perhaps some of its parts can be read alone.
            Err(_) => ops.iter_mut().map(|op| self.file.read_at(op.offset, op.buf, op.why).is_ok()).collect(),
        };
        let readable = |survivor: &Survivor| {
            let (run, at) = survivor.bytes_at;
            let bytes = &buffers[run][at..at + survivor.from.len_bytes()];
            match stored_page::verify(bytes, self.id(survivor.no), self.shape.page_size as usize) {
                _ if !are_read[run] => Readable::NotNow,
                Err(_) => Readable::Never,
                Ok(_) => Readable::Yes,
            }
        };
        let found: Vec<Readable> = turn.survivors.iter().map(readable).collect();
        if found.iter().any(|found| *found != Readable::Yes) {
            turn.leave(&mut self.book.lock(), &found);
        }
        buffers
    }

    /// Returns the ranges of the file that are read together. Records for each survivor where its bytes will
    /// be.
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

    /// Writes the survivors of each output in one piece. Returns how many outputs were written.
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
                self.counters.refused_moves.fetch_add(u64::from(error.is_no_space()), Relaxed);
                return (number, Err(error.into()));
            }
        }
        (outputs.len(), Ok(()))
    }
}
