//! varve-pager: pages, the log that makes their changes durable, and the pool that keeps them in memory.
//!
//! Invariants
//! 1. Write-ahead: a page is written only when the log is durable up to its page LSN.
//! 2. A page that fails its checksum or identity is never handed out.
//! 3. A mini-transaction's changes are in the log together or not at all.
//!
//! The folders are a stack: each uses only those that stand below it in this table.
//!
//! | folder | what is in it |
//! |---|---|
//! | `api/` | what the engine calls: pages, mini-transactions, settings, statistics |
//! | `open/` | making a database, or recovering one |
//! | `running/` | page writers, checkpoints, the parts that threads share |
//! | `recovery/` | analysis of the log, redo |
//! | `config.rs` | the configuration as a whole; each part of it lies beside what it configures |
//! | `space/` | allocation of pages, growing, trim |
//! | `pool/` | the buffer pool |
//! | `flash/`, `nvm/` | the flash cache; the NVM page buffer and the region |
//! | `home/` | space files: layouts, protection against torn pages, compression |
//! | `level/` | the seam between the pool and what is below it; the ledger of dirty pages |
//! | `control/` | the control file |
//! | `log/` | the write-ahead log, its notes |
//! | `base/` | identities, LSNs, pages as bytes, errors |
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
pub use base::setting::{Form, Setting, Unit};
pub use base::times::{Spent, Times, Timing};
pub use config::{CheckpointConfig, CheckpointKind, LOG_FRACTION_MAX, Pacing, PagerConfig};
pub use flash::{
    CleanOrder, FLASH_FILE, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans, FlashSettings,
};
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
