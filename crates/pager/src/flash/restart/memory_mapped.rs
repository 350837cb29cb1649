//! Memory-mapped restart (MMR, Do 2012, section 4.3.1): a table of slot records on flash that is correct at
//! every moment. The next start uses it to find pages in the cache.
//!
//! Invariants
//! 1. A record on flash is durable before the page can change in the pool, or its slot can be filled again
//!    (`keeping.rs`, 1).
//! 2. If a record could not be written, the whole table is marked as invalid. If this fails too, the database
//!    stops.
//!
//! This module does not know why slots change, or how a start uses the records.

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{Durability, reached};

use super::record::{RECORDS_OF_BLOCK, Record};
use crate::base::error::PagerError;
use crate::base::lsn::Lsn;
use crate::flash::cache::{FlashCache, add};
use crate::flash::io::store::{Marks, Whose};
use crate::flash::table::Kept;

impl FlashCache {
    /// Writes records to flash. All of them are in one block.
    pub(super) fn keep_on_flash(&self, records: &[(u32, Option<Kept>)], durability: Durability) {
        let Some((first, _)) = records.first() else { return };
        let (block, epoch) = (block_of(*first), self.records.hardening.whose().epoch);
        let mirror = self.records.keeping.mirror.read();
        let mut bytes = mirror[block as usize].lock();
        for (stored, kept) in records {
            // The record needs no log position, because it is removed before the page changes.
            let record = kept.map(|kept| Record::of(kept, Lsn::ZERO));
            Record::put(record, &mut bytes, epoch, *stored);
        }
        add(&self.counters.hardened);
        if let Err(cause) = self.drive.store.write_records(block, &bytes, durability) {
            drop(bytes);
            self.void_records(&cause);
        }
    }

    pub(super) fn keep_all(&self) {
        for (partition, table) in self.tables().enumerate() {
            let each =
                (0..table.slot_count()).map(|slot| (self.slots.stored(partition, slot), table.kept(slot)));
            let all: Vec<(u32, Option<Kept>)> = each.collect();
            let of_blocks = all.chunk_by(|(one, _), (other, _)| block_of(*one) == block_of(*other));
            of_blocks.for_each(|records| self.keep_on_flash(records, Durability::Later));
        }
        if let Err(cause) = self.drive.store.flush() {
            self.void_records(&cause);
        }
    }

    /// Marks the whole table on flash as invalid, because a record in it may be wrong. The caller holds the
    /// lock of a partition.
    #[cold]
    fn void_records(&self, cause: &PagerError) {
        reached("flash: records are void");
        add(&self.counters.errors);
        // Until the table is invalid, every thread that changes a slot writes its record, or waits here.
        let _one_at_a_time = self.records.keeping.voiding.lock();
        if self.records.keeping.is_void.load(Relaxed) {
            return;
        }
        let void = Whose { marks: Marks::default(), ..self.records.hardening.whose() };
        match self.drive.store.sign(&void) {
            Ok(()) => self.records.keeping.is_void.store(true, Relaxed),
            Err(_) => {
                let what = format!("the records of the flash cache can't be kept, nor be voided: {cause}");
                self.around.log.stop(&PagerError::Stopped { cause: what.into() });
            }
        }
    }
}

/// Returns the block of the table that has the slot's record.
pub(super) fn block_of(stored: u32) -> u32 {
    stored / RECORDS_OF_BLOCK as u32
}
