//! Counters of the pager, for `SHOW`, metrics and reports.
//!
//! Invariants
//! 1. Reading the counters takes no lock that an access to a page waits for.
//!
//! What it does not know: how they are shown.

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
    /// Calls that fixed a page (approximate under contention).
    pub fixes: u64,
    /// Calls for which a page had to be read.
    pub misses: u64,
    /// Pages read ahead.
    pub prefetched: u64,
    /// Pages that were evicted from the pool.
    pub evictions: u64,
    /// Pages written by page writers to free frames.
    pub evict_writes: u64,
    /// Pages written by threads that needed a frame (the single-page path).
    pub inline_writes: u64,
    /// Pages written so that the log could be cut.
    pub checkpoint_writes: u64,
    /// Checkpoints stored.
    pub checkpoints: u64,
    /// Allocated pages of the data space.
    pub data_pages: u64,
    /// Allocated pages of the rollback space.
    pub rollback_pages: u64,
    /// The levels below the pool, topmost first.
    pub levels: Vec<LevelReport>,
}
