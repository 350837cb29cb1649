//! Counters of the pager, for `SHOW`, metrics and reports.
//!
//! Invariants
//! 1. Reading the counters takes no lock that an access to a page waits for.
//!
//! This module does not know how the numbers are shown.

use crate::level::LevelReport;

/// A snapshot of the pager's counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PagerStats {
    /// Frames in the pool.
    pub frames: u64,
    /// Frames without a page.
    pub free_frames: u64,
    /// Dirty frames.
    pub dirty_frames: u64,
    /// The number of calls that fixed a page (approximate under contention).
    pub fixes: u64,
    /// The number of calls for which a page had to be read.
    pub misses: u64,
    /// Pages read ahead.
    pub prefetched: u64,
    /// The number of pages that were evicted from the pool.
    pub evictions: u64,
    /// The number of pages that page writers wrote to free frames.
    pub evict_writes: u64,
    /// The number of pages that threads wrote because they needed a frame (the single-page path).
    pub inline_writes: u64,
    /// The number of pages that were written so that the log could be cut.
    pub checkpoint_writes: u64,
    /// Checkpoints stored.
    pub checkpoints: u64,
    /// Those that were taken for another reason than time: a request, a full log, a start or a shutdown.
    pub requested_checkpoints: u64,
    /// The time of all checkpoints in microseconds, without the pages that were written before them.
    pub checkpoint_micros: u64,
    /// The number of allocated pages of the data space.
    pub data_pages: u64,
    /// The number of allocated pages of the rollback space.
    pub rollback_pages: u64,
    /// The levels below the pool, topmost first.
    pub levels: Vec<LevelReport>,
}
