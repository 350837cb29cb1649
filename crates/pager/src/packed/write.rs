//! Writing stored pages of a packed space: slots, extents, growth of the file.
//!
//! Invariants
//! 1. A page's entry in the map changes when its slot was written, not before; a slot whose write failed dies.
//! 2. The file is longer, durably, before a slot behind its old end is given out.
//! 3. After a refusal for want of room everything is as it was.
//! 4. Extents are begun under `opening` alone, after whoever begins one has done its share of reclamation.
//!
//! What it does not know: when pages are stable (`settle.rs`), what is done for room (`reclaim.rs`).

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{AlignedBuf, Durability, WriteOp, reached};

use super::PackedSpace;
use super::extents::NoExtent;
use super::place::{Place, UNIT_BYTES};
use super::reclaim::LAST_EXTENTS;
use crate::error::{PagerError, Result};
use crate::lsn::Lsn;
use crate::stored::Stored;

/// Extents by which the file grows at least.
const GROWTH_EXTENTS_MIN: u32 = 8;
/// The file grows by a sixteenth of its length at a time, up to this.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

fn units_of(stored: &Stored<'_>) -> u32 {
    (stored.bytes().len() / UNIT_BYTES) as u32
}

impl PackedSpace {
    /// Writes pages to new slots; they are held then.
    pub(super) fn write_stored(&self, stored: &[Stored<'_>]) -> Result<()> {
        let mut places = Vec::with_capacity(stored.len());
        let written = self.take_places(stored, &mut places).and_then(|()| self.write_slots(stored, &places));
        let mut book = self.book.lock();
        if let Err(error) = written {
            places.into_iter().for_each(|place| book.abandoned(place));
            return Err(error);
        }
        let units: u64 = places.iter().map(|place| u64::from(place.units())).sum();
        self.counters.written_bytes.fetch_add(units * UNIT_BYTES as u64, Relaxed);
        for (stored, place) in stored.iter().zip(places) {
            // An image that the log does not know: behind every discard of its page, before every change.
            let lsn = if stored.lsn() == Lsn::ZERO { self.log.end() } else { stored.lsn() };
            book.written(stored.id().no(), lsn, place);
        }
        Ok(())
    }

    /// Slots for these pages; on error those that were taken are in `places`.
    fn take_places(&self, stored: &[Stored<'_>], places: &mut Vec<Place>) -> Result<()> {
        loop {
            let mut book = self.book.lock();
            let Some(missing) = stored.get(places.len()..).and_then(|rest| {
                rest.iter().find(|stored| match book.take(stored.id().no(), units_of(stored)) {
                    Some(place) => {
                        places.push(place);
                        false
                    }
                    None => true,
                })
            }) else {
                return Ok(());
            };
            drop(book);
            self.next_extent(units_of(missing))?;
        }
    }

    /// Begins the next extent, unless somebody else has by now: a slot of `units` fits then.
    fn next_extent(&self, units: u32) -> Result<()> {
        let _turn = self.opening.lock();
        let has_room = {
            let mut book = self.book.lock();
            book.bury(self.log.durable());
            book.has_room_for(units)
        };
        if has_room {
            return Ok(());
        }
        self.keep_up()?;
        loop {
            let begun = self.book.lock().begin_for(units, LAST_EXTENTS, |extent| self.is_read(extent));
            match begun {
                Ok(()) => return Ok(()),
                Err(NoExtent::NoneFree) => self.make_room()?,
                Err(NoExtent::AllRead) => self.pass_readers()?,
            }
        }
    }

    /// Readers of all free extents are waited for only if no others are to be had.
    fn pass_readers(&self) -> Result<()> {
        if self.fill_hollow() {
            return Ok(());
        }
        match self.grow(1) {
            Err(error) if error.is_no_space() => {
                std::thread::yield_now();
                Ok(())
            }
            grown => grown,
        }
    }

    /// Reserves the room of a few hollow extents; whether there was any. A full device refuses one that was punched, and not
    /// another one that still has its room, as most have after a start: so all are asked.
    pub(super) fn fill_hollow(&self) -> bool {
        let (mut count, mut from) = (0, 0);
        while count < GROWTH_EXTENTS_MIN {
            let Some(extent) = self.book.lock().extents().first_hollow(from) else { break };
            let offset = u64::from(extent.0) * self.shape.extent_bytes;
            from = extent.0 + 1;
            if self.file.reserve(offset, self.shape.extent_bytes).is_ok() {
                self.book.lock().extents_mut().filled(extent);
                count += 1;
            }
        }
        count > 0
    }

    /// Makes the file longer, by `extents` or a comfortable step. What is asked for may fit where the step does not.
    pub(super) fn grow(&self, extents: u32) -> Result<()> {
        let count = self.book.lock().extents().count();
        let step = self.growth(count).max(extents);
        match self.lengthen(count, step) {
            Err(error) if error.is_no_space() && step > extents => self.lengthen(count, extents),
            result => result,
        }
    }

    /// The step by which a file of so many extents grows.
    pub(super) fn growth(&self, count: u32) -> u32 {
        let largest = (GROWTH_BYTES_MAX / self.shape.extent_bytes).max(1) as u32;
        (count / 16).max(GROWTH_EXTENTS_MIN).min(largest)
    }

    fn lengthen(&self, count: u32, extents: u32) -> Result<()> {
        self.file.set_len(u64::from(count + extents) * self.shape.extent_bytes)?;
        self.file.flush()?;
        self.book.lock().extents_mut().lengthen(extents);
        reached("packed: file lengthened");
        Ok(())
    }

    /// Writes the slots, neighbours with one operation.
    fn write_slots(&self, stored: &[Stored<'_>], places: &[Place]) -> Result<()> {
        let numbers: Vec<usize> = (0..places.len()).collect();
        let runs: Vec<&[usize]> = numbers.chunk_by(|a, b| places[*a].end() == places[*b].address()).collect();
        let joined: Vec<Option<AlignedBuf>> =
            runs.iter().map(|run| (run.len() > 1).then(|| join(run.iter().map(|at| &stored[*at])))).collect();
        let ops: Vec<WriteOp<'_>> = runs
            .iter()
            .zip(&joined)
            .map(|(run, joined)| WriteOp {
                offset: places[run[0]].offset_bytes(),
                buf: joined.as_deref().unwrap_or_else(|| stored[run[0]].bytes()),
                why: self.purpose,
                durability: Durability::Later,
            })
            .collect();
        self.file.write_batch(&ops).map_err(PagerError::from)
    }
}

/// The bytes of stored pages one behind the other.
fn join<'s, 'i: 's>(stored: impl Iterator<Item = &'s Stored<'i>> + Clone) -> AlignedBuf {
    let mut joined = AlignedBuf::new(stored.clone().map(|stored| stored.bytes().len()).sum());
    let mut at = 0;
    for bytes in stored.map(Stored::bytes) {
        joined[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    joined
}
