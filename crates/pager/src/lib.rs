//! varve-pager: pages, the log that makes their changes durable, and the pool that keeps them in memory.
//!
//! Invariants
//! 1. Write-ahead: a page is written only when the log is durable up to its page LSN.
//! 2. A page that fails its checksum or identity is never handed out.
//! 3. A mini-transaction's changes are in the log together or not at all.
//!
//! What it does not know: keys, rows, transactions, SQL.

mod background;
mod checkpoint;
mod chunks;
mod codec;
mod compression;
mod compressions;
mod config;
pub mod control;
mod durability;
mod error;
mod files;
mod flash;
mod forms;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod home;
mod ids;
mod latch;
mod layout;
mod ledger;
mod level;
pub mod log;
mod lsn;
mod meter;
mod mtr;
mod noted_forms;
mod nvm;
mod open;
mod pace;
mod packed;
pub mod page;
mod pager;
mod panics;
mod pool;
mod protection;
mod recovery;
mod redo;
mod space;
mod stats;
mod stored;
mod times;
mod trim;
mod workers;
mod written;

pub use compression::{Algorithm, Compression};
pub use compressions::StoredPages;
pub use config::{
    CheckpointConfig, CheckpointKind, FlashConfig, HomeLayout, LOG_FRACTION_MAX, NvmConfig, NvmFlush, Pacing,
    PackedConfig, PagerConfig, ProtectionKind, Replacement,
};
pub use durability::{DurabilityRow, NvmStats, SlotCounts};
pub use error::{PagerError, Result};
pub use flash::{CleanOrder, FLASH_FILE, FlashDesign, FlashFill, FlashRestart, FlashScans};
pub use ids::{Access, PageId, PageNo, PageRange, SpaceId};
pub use ledger::Ledger;
pub use level::{Cause, DiscardHold, Got, Image, Level, LevelReport, Need, Run, Step, Tier, Want};
pub use log::{Log, LogError, LogStats};
pub use lsn::{AtomicLsn, Lsn};
pub use meter::{PageCounts, PageMeter};
pub use mtr::{H, Mtr};
pub use nvm::{NVM_FILE, NvmFound, REGION_HEADER_BYTES, RegionFound, is_unneeded_region};
pub use pager::{CheckReport, Pager};
pub use panics::StopOnPanic;
pub use pool::{PageS, PageSx, PageX};
pub use recovery::{Recovery, RedoReport};
pub use redo::{RedoError, RedoOps};
pub use stats::PagerStats;
pub use times::{Spent, Times, Timing};
pub use trim::Trim;
