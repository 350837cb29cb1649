//! varve-pager: pages, the log that makes their changes durable, and the pool that keeps them in memory.
//!
//! Invariants
//! 1. Write-ahead: a page is written only when the log is durable up to its page LSN.
//! 2. A page that fails its checksum or identity is never handed out.
//! 3. A mini-transaction's changes are in the log together or not at all.
//!
//! What it does not know: keys, rows, transactions, SQL.

mod api;
mod base;
mod config;
pub mod control;
mod flash;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod home;
mod level;
pub mod log;
mod nvm;
mod open;
mod pool;
mod recovery;
mod running;
mod space;

pub use api::durability::DurabilityRow;
pub use api::mtr::{H, Mtr};
pub use api::pager::Pager;
pub use api::stats::PagerStats;
pub use base::compression::{Algorithm, Compression};
pub use base::error::{PagerError, Result};
pub use base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
pub use base::image::Image;
pub use base::lsn::{AtomicLsn, Lsn};
pub use base::page;
pub use base::times::{Spent, Times, Timing};
pub use config::{CheckpointConfig, CheckpointKind, LOG_FRACTION_MAX, Pacing, PagerConfig};
pub use flash::{CleanOrder, FLASH_FILE, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans};
pub use home::compression::by_owner::StoredPages;
pub use home::kind::HomeLayout;
pub use home::packed::config::PackedConfig;
pub use home::protection::kind::ProtectionKind;
pub use home::trim::Trim;
pub use level::ledger::Ledger;
pub use level::meter::{PageCounts, PageMeter};
pub use level::{Cause, DiscardHold, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
pub use log::panics::StopOnPanic;
pub use log::redo::{RedoError, RedoOps};
pub use log::{Log, LogError, LogStats};
pub use nvm::{NVM_FILE, NvmConfig, NvmFlush, NvmStats, REGION_HEADER_BYTES, SlotCounts, is_unneeded_region};
pub use open::{NvmFound, RegionFound};
pub use pool::{PageS, PageSx, PageX, Replacement};
pub use recovery::{Recovery, RedoReport};
pub use space::CheckReport;
