//! Persistent memory: a mapped region that may hold the log, doublewrite copies (`attach.rs`), and the NVM
//! page buffer (`buffer.rs`). The page buffer is a level that keeps the newest versions of changed pages
//! until they are written to the data files.
//!
//! This module does not know what is in the log and in pages, or what copies are for.

pub(crate) mod area;
mod attach;
mod book;
mod buffer;
mod config;
pub(crate) mod fits;
mod flush;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod home_order;
pub(crate) mod layout;
mod leave;
mod marks;
mod recover;
mod region;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use attach::{RegionPlan, find};
pub(crate) use buffer::NvmBuffer;
pub(crate) use config::WantedRegion;
pub use config::{NvmConfig, NvmFlush};
pub use fits::{NVM_FILE, is_unneeded_region};
pub use layout::HEADER_BYTES as REGION_HEADER_BYTES;
pub(crate) use region::NvmRegion;
pub use stats::{NvmStats, SlotCounts};
