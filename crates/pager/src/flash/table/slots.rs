//! All slots of the flash cache: their partitions, and the partition of each page.
//!
//! Invariants
//! 1. The partition of a page depends only on the page and on the number of partitions. This number changes
//!    under the locks of all partitions.
//! 2. There are always `PARTITIONS_MAX` partitions. A small cache leaves the last ones without slots.
//!
//! This module does not know designs, files, or which changes must be recorded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::shape::{PARTITIONS_MAX, Shape};
use super::{CleanOrder, Order, Partition, SlotNo};
use crate::base::ids::PageId;

/// A factor that spreads neighbouring pages over the partitions:
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The slot table.
pub(in crate::flash) struct Slots {
    partitions: Box<[Mutex<Partition>]>,
    pub(in crate::flash) shape: Shape,
    /// Counts accesses: the time of LRU-2.
    clock: AtomicU64,
}

impl Slots {
    /// Returns empty partitions.
    pub(in crate::flash) fn new(shape: Shape, order: Order, clean_order: CleanOrder) -> Slots {
        let partition = |no| Mutex::new(Partition::new(shape.slots_of(no), order, clean_order));
        let partitions = (0..PARTITIONS_MAX).map(partition).collect();
        Slots { partitions, shape, clock: AtomicU64::new(1) }
    }

    /// Returns the time of an access.
    #[inline]
    pub(in crate::flash) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Moves the clock past `last`, so that all further accesses are later.
    pub(in crate::flash) fn tick_past(&self, last: u64) {
        self.clock.fetch_max(last + 1, Relaxed);
    }

    /// Returns the number of partitions, including those without slots.
    pub(in crate::flash) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the number of the page's partition. It is valid until the shape changes.
    #[inline]
    pub(in crate::flash) fn partition_of(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(SPREAD) >> 32) as usize % self.shape.partitions() as usize
    }

    /// Locks a partition by its number.
    #[inline]
    pub(in crate::flash) fn lock(&self, partition: usize) -> MutexGuard<'_, Partition> {
        self.partitions[partition].lock()
    }

    /// Returns the slot's number in the file.
    #[inline]
    pub(in crate::flash) fn stored(&self, partition: usize, slot: SlotNo) -> u32 {
        partition as u32 * self.shape.partition_slots() + slot
    }
}
