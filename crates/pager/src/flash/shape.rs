//! How frames are spread over the partitions of the table.
//!
//! What it does not know: what is in them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Most partitions of the frame table (Do 2012, section 3.3.4).
pub(super) const PARTITIONS_MAX: u32 = 16;
/// Fewest frames of one.
const PARTITION_FRAMES_MIN: u32 = 64;

/// How frames are spread over partitions.
pub(super) struct Shape {
    pub(super) partitions: AtomicU32,
    pub(super) partition_frames: AtomicU32,
}

impl Shape {
    /// Of so many frames, less what is over when all partitions have equally many.
    pub(super) fn of(frames: u32) -> Shape {
        let partitions = (frames / PARTITION_FRAMES_MIN).clamp(1, PARTITIONS_MAX);
        Shape { partitions: partitions.into(), partition_frames: (frames / partitions).into() }
    }

    /// Partitions that have frames.
    pub(super) fn partitions(&self) -> u32 {
        self.partitions.load(Relaxed)
    }

    /// Frames of each of them.
    pub(super) fn partition_frames(&self) -> u32 {
        self.partition_frames.load(Relaxed)
    }

    /// All frames.
    pub(super) fn frames(&self) -> u32 {
        self.partitions() * self.partition_frames()
    }

    /// Frames of a partition by its number.
    pub(super) fn frames_of(&self, partition: u32) -> u32 {
        if partition < self.partitions() { self.partition_frames() } else { 0 }
    }

    pub(super) fn become_like(&self, other: &Shape) {
        self.partitions.store(other.partitions(), Relaxed);
        self.partition_frames.store(other.partition_frames(), Relaxed);
    }
}
