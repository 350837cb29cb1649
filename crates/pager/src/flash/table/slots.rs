//! All slots of the flash cache: their partitions, and the partition of each page.
//!
//! Invariants
//! 1. The partition of a page depends only on the page and on the number of partitions. This number changes
//!    under the locks of all partitions.
//! 2. There are always `PARTITIONS_MAX` partitions. A small cache leaves the last ones without slots.
//!
//! What it does not know: designs, files, and which changes must be recorded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::shape::{PARTITIONS_MAX, Shape};
use super::{CleanOrder, Order, Partition, SlotNo};
use crate::base::ids::PageId;

/// What spreads neighbouring pages over the partitions: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The slot table.
pub(in crate::flash) struct Slots {
    partitions: Box<[Mutex<Partition>]>,
    pub(in crate::flash) shape: Shape,
    /// Counts accesses: the time of LRU-2.
    clock: AtomicU64,
}

impl Slots {
    /// Empty ones.
    pub(in crate::flash) fn new(shape: Shape, order: Order, clean_order: CleanOrder) -> Slots {
        let partition = |no| Mutex::new(Partition::new(shape.slots_of(no), order, clean_order));
        let partitions = (0..PARTITIONS_MAX).map(partition).collect();
        Slots { partitions, shape, clock: AtomicU64::new(1) }
    }

    /// The time of an access.
    #[inline]
    pub(in crate::flash) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Accesses from now on are later than this one.
    pub(in crate::flash) fn tick_past(&self, last: u64) {
        self.clock.fetch_max(last + 1, Relaxed);
    }

    /// Number of partitions, also of those without slots.
    pub(in crate::flash) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The partition that has the page's slot, as long as the shape stays.
    #[inline]
    pub(in crate::flash) fn partition_of(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(SPREAD) >> 32) as usize % self.shape.partitions() as usize
    }

    /// Locks a partition by its number.
    #[inline]
    pub(in crate::flash) fn lock(&self, partition: usize) -> MutexGuard<'_, Partition> {
        self.partitions[partition].lock()
    }

    /// The slot's number in the file.
    #[inline]
    pub(in crate::flash) fn stored(&self, partition: usize, slot: SlotNo) -> u32 {
        partition as u32 * self.shape.partition_slots() + slot
    }
}
