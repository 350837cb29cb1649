//! Statistics of a region and its page slots.
//!
//! What it does not know: how they are shown.

use varve_device::{RegionFacts, RegionTally};

/// A region of persistent memory and what went over it since it was mapped.
#[derive(Debug, Clone, PartialEq)]
pub struct NvmStats {
    /// Where it is.
    pub place: String,
    /// What it is made of.
    pub facts: RegionFacts,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Bytes of it for the log; 0 if that lies in files.
    pub log_bytes: u64,
    /// Slots for pages on their way home, if there are any.
    pub slots: Option<SlotCounts>,
    /// Exact counts.
    pub tally: RegionTally,
}

/// What slots hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    /// All of them.
    pub total: u64,
    /// Nothing.
    pub free: u64,
    /// A page that home has not.
    pub dirty: u64,
    /// A page that home has, too.
    pub clean: u64,
    /// A page that was discarded.
    pub doomed: u64,
}
