//! Writes pages of a packed space. Each page gets a new slot in an extent, and is written there.
//!
//! Invariants
//! 1. The page map gets a page's new slot only after this slot was written. If the write fails, the slot
//!    dies.
//! 2. If a write is refused because there is no space, nothing has changed: the slots that it took are
//!    returned to their extent.
//! 3. A thread begins a new extent only while it holds the lock `opening`, and after it has done its share of
//!    reclamation.
//!
//! This module does not know when pages are stable (`settle.rs`), or how space is found (`room.rs`,
//! `reclaim.rs`).

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{AlignedBuf, Durability, WriteOp};

use super::PackedSpace;
use super::extents::NoExtent;
use super::reclaim::LAST_EXTENTS;
use super::unit_run::{UNIT_BYTES, UnitRun};
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::home::compression::stored_page::Stored;

fn units_of(stored: &Stored<'_>) -> u32 {
    (stored.bytes().len() / UNIT_BYTES) as u32
}

impl PackedSpace {
    /// Writes pages to new slots. Afterwards the pages are held.
    pub(super) fn write_stored(&self, stored: &[Stored<'_>]) -> Result<()> {
        let mut places = Vec::with_capacity(stored.len());
        let written = self.take_places(stored, &mut places).and_then(|()| self.write_slots(stored, &places));
        let mut book = self.book.lock();
        if let Err(error) = written {
            // The last slot is returned first, so that the extent has its previous end afterwards.
            places.into_iter().rev().for_each(|place| book.abandoned(place));
            return Err(error);
        }
        let units: u64 = places.iter().map(|place| u64::from(place.units())).sum();
        self.counters.written_bytes.fetch_add(units * UNIT_BYTES as u64, Relaxed);
        for (stored, place) in stored.iter().zip(places) {
            // An image without an LSN counts as made now: after every discard of its page, and before every
            // later change.
            let lsn = if stored.lsn() == Lsn::ZERO { self.log.end() } else { stored.lsn() };
            book.written(stored.id().no(), lsn, place);
        }
        Ok(())
    }

    /// Takes slots for these pages. On error, `places` has the slots that were taken.
    fn take_places(&self, stored: &[Stored<'_>], places: &mut Vec<UnitRun>) -> Result<()> {
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

    /// Begins the next extent, unless another thread has done so. Afterwards a slot of `units` units fits.
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
        let mut waits = 0;
        loop {
            let begun = self.book.lock().begin_for(units, LAST_EXTENTS, |extent| self.is_read(extent));
            match begun {
                Ok(()) => return Ok(()),
                Err(NoExtent::NoneFree) => self.make_room(units)?,
                Err(NoExtent::AllRead) => {
                    self.pass_readers(waits)?;
                    waits += 1;
                }
            }
        }
    }

    /// Writes the slots. Neighbouring slots are written by one operation.
    fn write_slots(&self, stored: &[Stored<'_>], places: &[UnitRun]) -> Result<()> {
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

/// Returns the bytes of stored pages, one after another.
fn join<'s, 'i: 's>(stored: impl Iterator<Item = &'s Stored<'i>> + Clone) -> AlignedBuf {
    let mut joined = AlignedBuf::new(stored.clone().map(|stored| stored.bytes().len()).sum());
    let mut at = 0;
    for bytes in stored.map(Stored::bytes) {
        joined[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    joined
}
