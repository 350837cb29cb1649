//! Statistics of a region and its page slots.
//!
//! This module does not know how the numbers are shown.

use varve_device::{RegionFacts, RegionTally};

/// A region of persistent memory, and counts of its use since it was mapped.
#[derive(Debug, Clone, PartialEq)]
pub struct NvmStats {
    /// The path of the region's file.
    pub place: String,
    /// The properties of the region.
    pub facts: RegionFacts,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Bytes of the region for the log; 0 if the log is in files.
    pub log_bytes: u64,
    /// The slots of the page buffer, if there is one.
    pub slots: Option<SlotCounts>,
    /// Exact counts.
    pub tally: RegionTally,
}

/// The number of slots in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    /// All slots.
    pub total: u64,
    /// Slots without a page.
    pub free: u64,
    /// The number of slots with a page version that the data files lack.
    pub dirty: u64,
    /// The number of slots with a page version that the data files have, too.
    pub clean: u64,
    /// Slots with a discarded page.
    pub doomed: u64,
}
