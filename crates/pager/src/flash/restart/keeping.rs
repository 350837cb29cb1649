//! Slot records that are written at once: on flash for memory-mapped restart (`memory_mapped.rs`), in the log
//! for log-based restart (`log_based.rs`). The next start uses them to find pages in the cache.
//!
//! Invariants
//! 1. A thread that changes a slot holds the lock of the slot's partition, and writes the record before it
//!    releases the lock.
//!
//! This module does not know why slots change.

use std::sync::atomic::Ordering::Relaxed;

use varve_device::Durability;

use super::memory_mapped::block_of;
use crate::flash::cache::FlashCache;
use crate::flash::config::FlashRestart;
use crate::flash::table::{Partition, SlotNo};

impl FlashCache {
    /// From now on, a record is written whenever a slot changes.
    pub(in crate::flash) fn begin_keeping(&self) {
        if !matches!(self.records.scheme, FlashRestart::MemoryMapped | FlashRestart::LogBased) {
            return;
        }
        self.tables().for_each(|mut table| table.tell_touched());
        if self.records.scheme == FlashRestart::MemoryMapped {
            self.keep_all();
        }
    }

    /// Writes the records of these slots. The caller holds the lock of their partition.
    pub(in crate::flash) fn keep_records(&self, partition: usize, table: &Partition, touched: &[SlotNo]) {
        if self.records.keeping.is_void.load(Relaxed) || !self.records.hardening.is_on() {
            return;
        }
        let mut slots: Vec<u32> = touched.iter().map(|slot| self.slots.stored(partition, *slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        let kept = |stored: u32| {
            table.kept(stored % self.slots.shape.partition_slots()).filter(|kept| self.is_newest(kept))
        };
        match self.records.scheme {
            FlashRestart::LogBased => {
                let slots = slots.into_iter().filter_map(|stored| Some((stored, kept(stored)?)));
                self.note_slots(&slots.collect::<Vec<_>>());
            }
            _ => {
                for of_block in slots.chunk_by(|one, other| block_of(*one) == block_of(*other)) {
                    let records: Vec<_> = of_block.iter().map(|stored| (*stored, kept(*stored))).collect();
                    self.keep_on_flash(&records, Durability::Now);
                }
            }
        }
    }
}
