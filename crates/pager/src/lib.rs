//! The crate varve-pager stores pages. It has the buffer pool, the write-ahead log, the levels below the
//! pool, and recovery.
//!
//! Invariants
//! 1. Write-ahead rule: a page is written only when the log is durable up to the page's LSN.
//! 2. A page with a wrong checksum or a wrong identity is never returned to a caller.
//! 3. After a crash, either all changes of a mini-transaction are in the log, or none.
//!
//! The folders are layers. A folder uses only folders that are below it in this table.
//!
//! | folder | what is in it |
//! |---|---|
//! | `backup/` | online backup, log archive, restore |
//! | `api/` | what the engine calls: pages, mini-transactions, settings, statistics |
//! | `open/` | making a database, or recovering one |
//! | `running/` | page writers, checkpoints, the parts that threads share |
//! | `recovery/` | analysis of the log, redo |
//! | `config.rs` | the configuration as a whole; each part of it is in the folder that it configures |
//! | `space/` | allocation of pages, growth of files, trim |
//! | `pool/` | the buffer pool |
//! | `flash/`, `nvm/` | the flash cache; the NVM page buffer and the region of persistent memory |
//! | `home/` | the data files: layouts, protection against torn pages, compression |
//! | `level/` | the interface between the pool and the levels below it; the dirty-page table |
//! | `control/` | the control file |
//! | `log/` | the write-ahead log, and its records that change no page |
//! | `base/` | identities, LSNs, pages as bytes, errors |
//!
//! This crate does not know keys, rows, transactions or SQL.

mod api;
mod backup;
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
pub use api::pager::{DataFile, Pager};
pub use api::stats::PagerStats;
pub use api::tablespaces::{NewTablespace, Tablespace};
pub use backup::archive::archiver::{ArchiveNotice, ArchiveOptions, ArchiveStatus, Archiver};
pub use backup::archive::moment::Until;
pub use backup::archive::piece::ARCHIVE_VERSION;
pub use backup::archive::store::{ArchiveStore, StoredPiece, TimelineName};
pub use backup::contents::{BACKUP_VERSION, BackupBase, BackupEnd, BackupStart};
pub use backup::copy::{Backup, BackupOptions, BackupProgress};
pub use backup::restore::{
    MapLocation, RestoreReport, RestoredTablespace, restore, restore_until, tablespaces_until,
};
pub use backup::source::{ArchiveSource, BackupSource};
pub use backup::verify::{BackupSummary, BackupVerifier, verify_backup};
pub use base::compression::{Algorithm, Compression};
pub use base::error::{BadLocation, LocationFlaw, PagerError, Result};
pub use base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
pub use base::image::Image;
pub use base::lsn::{AtomicLsn, Lsn};
pub use base::page;
pub use base::setting::{Form, Setting, Unit};
pub use base::start_progress::StartProgress;
pub use base::times::{Spent, Times, Timing};
pub use config::{CheckpointConfig, CheckpointKind, LOG_FRACTION_MAX, Locations, Pacing, PagerConfig};
pub use control::{LogStart, LogState, NotIncluded, StartHistory};
pub use flash::{
    CleanOrder, FLASH_FILE, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans, FlashSettings,
};
pub use home::compression::by_owner::StoredPages;
pub use home::kind::HomeLayout;
pub use home::packed::config::PackedConfig;
pub use home::protection::kind::ProtectionKind;
pub use home::trim::Trim;
pub use level::ledger::Ledger;
pub use level::meter::{PageCounting, PageCounts, PageMeter};
pub use level::{Cause, DiscardHold, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
pub use log::panics::StopOnPanic;
pub use log::redo::{RedoError, RedoOps};
pub use log::{Log, LogError, LogStats};
pub use nvm::{NVM_FILE, NvmConfig, NvmFlush, NvmStats, REGION_HEADER_BYTES, SlotCounts, is_unneeded_region};
pub use open::{NvmFound, RegionFound};
pub use pool::{PageS, PageSx, PageX, Replacement};
pub use recovery::{Recovery, RedoReport};
pub use running::journal::{CheckpointCause, CheckpointReport};
pub use running::restart_bound::RestartEstimate;
pub use space::CheckReport;
