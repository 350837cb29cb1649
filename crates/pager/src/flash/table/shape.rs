//! How the slots of the flash cache are divided among the partitions of the slot table.
//!
//! What it does not know: what is in the slots.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Most partitions of the frame table (Do 2012, section 3.3.4).
pub(in crate::flash) const PARTITIONS_MAX: u32 = 16;
/// Fewest frames of one.
const PARTITION_FRAMES_MIN: u32 = 64;

/// How frames are spread over partitions.
pub(in crate::flash) struct Shape {
    pub(in crate::flash) partitions: AtomicU32,
    pub(in crate::flash) partition_frames: AtomicU32,
}

impl Shape {
    /// Of so many frames, less what is over when all partitions have equally many.
    pub(in crate::flash) fn of(frames: u32) -> Shape {
        let partitions = (frames / PARTITION_FRAMES_MIN).clamp(1, PARTITIONS_MAX);
        Shape { partitions: partitions.into(), partition_frames: (frames / partitions).into() }
    }

    /// Partitions that have frames.
    pub(in crate::flash) fn partitions(&self) -> u32 {
        self.partitions.load(Relaxed)
    }

    /// Frames of each of them.
    pub(in crate::flash) fn partition_frames(&self) -> u32 {
        self.partition_frames.load(Relaxed)
    }

    /// All frames.
    pub(in crate::flash) fn frames(&self) -> u32 {
        self.partitions() * self.partition_frames()
    }

    /// Frames of a partition by its number.
    pub(in crate::flash) fn frames_of(&self, partition: u32) -> u32 {
        if partition < self.partitions() { self.partition_frames() } else { 0 }
    }

    pub(in crate::flash) fn become_like(&self, other: &Shape) {
        self.partitions.store(other.partitions(), Relaxed);
        self.partition_frames.store(other.partition_frames(), Relaxed);
    }
}
