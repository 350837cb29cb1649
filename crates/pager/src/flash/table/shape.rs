//! The division of the slots of the flash cache among the partitions of the slot table.
//!
//! This module does not know what is in the slots.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The largest number of partitions of the slot table (Do 2012, section 3.3.4).
pub(in crate::flash) const PARTITIONS_MAX: u32 = 16;
/// The least number of slots of a partition.
const PARTITION_SLOTS_MIN: u32 = 64;

/// The number of partitions with slots, and the number of slots of each.
pub(in crate::flash) struct Shape {
    pub(in crate::flash) partitions: AtomicU32,
    pub(in crate::flash) partition_slots: AtomicU32,
}

impl Shape {
    /// Divides `slots` slots into partitions of equal size. Slots that are left over, because they do not
    /// fill all partitions equally, are not used.
    pub(in crate::flash) fn of(slots: u32) -> Shape {
        let partitions = (slots / PARTITION_SLOTS_MIN).clamp(1, PARTITIONS_MAX);
        Shape { partitions: partitions.into(), partition_slots: (slots / partitions).into() }
    }

    /// Returns the number of partitions that have slots.
    pub(in crate::flash) fn partitions(&self) -> u32 {
        self.partitions.load(Relaxed)
    }

    /// Returns the number of slots of each such partition.
    pub(in crate::flash) fn partition_slots(&self) -> u32 {
        self.partition_slots.load(Relaxed)
    }

    /// Returns the number of all slots.
    pub(in crate::flash) fn slots(&self) -> u32 {
        self.partitions() * self.partition_slots()
    }

    /// Returns the number of slots of the partition with this number.
    pub(in crate::flash) fn slots_of(&self, partition: u32) -> u32 {
        if partition < self.partitions() { self.partition_slots() } else { 0 }
    }

    pub(in crate::flash) fn become_like(&self, other: &Shape) {
        self.partitions.store(other.partitions(), Relaxed);
        self.partition_slots.store(other.partition_slots(), Relaxed);
    }
}
