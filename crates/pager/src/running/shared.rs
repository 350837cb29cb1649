//! The parts of an open pager that its callers and its threads share.
//!
//! This module does not know what its users do with the parts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use parking_lot::Mutex;

use crate::base::error::PagerError;
use crate::base::lsn::Lsn;
use crate::config::PagerConfig;
use crate::control::Control;
use crate::control::tablespaces::TablespaceList;
use crate::flash::FlashCache;
use crate::home::compression::by_owner::Compressions;
use crate::home::packed::Fill;
use crate::home::protection::kind::ProtectionKind;
use crate::home::trim::TrimSetting;
use crate::level::Level;
use crate::level::ledger::Ledger;
use crate::log::Log;
use crate::log::redo::RedoOps;
use crate::nvm::{NvmBuffer, NvmRegion};
use crate::pool::{Bell, Counters, Pool};
use crate::recovery::Recovery;
use crate::running::journal::CheckpointJournal;
use crate::running::restart_bound::RestartBound;
use crate::running::workers::Workers;
use crate::space::Spaces;

/// Configured changes that must wait for a clean shutdown, because the last shutdown was not clean.
#[derive(Clone, Copy, Default)]
pub(crate) struct Postponed {
    /// A protection that can begin only when every page is stable.
    pub(crate) protection: Option<ProtectionKind>,
    /// Whether a region for the log, with everything else that it would contain, has to wait.
    pub(crate) region: bool,
}

/// The findings and the actions of the start. They do not change after the start.
pub(crate) struct StartOutcome {
    /// The start made a new database.
    pub(crate) is_new: bool,
    /// Whether the start found a database that was shut down cleanly.
    pub(crate) was_clean: bool,
    /// The start used a sealed flash cache, without redo.
    pub(crate) is_behind_seal: bool,
    /// The recovery, unless the database is new.
    pub(crate) recovery: Option<Recovery>,
    /// The part of the log that redo has repeated, under full-page-log.
    pub(crate) redone: Option<Range<Lsn>>,
    /// Id of the database.
    pub(crate) database: u64,
    /// Configured changes that wait for a clean shutdown.
    pub(crate) postponed: Postponed,
    /// Warnings of the parts about their opening.
    pub(crate) warnings: Vec<String>,
}

/// The parts that [`Pager`](crate::Pager) and its threads share.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) log: Arc<Log>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) level: Arc<dyn Level>,
    pub(crate) spaces: Spaces,
    pub(crate) compressions: Arc<Compressions>,
    pub(crate) trim: Arc<TrimSetting>,
    pub(crate) fill: Arc<Fill>,
    pub(crate) control: Control,
    /// The list of tablespaces. It is locked while a tablespace is made or dropped.
    pub(crate) tablespaces: Mutex<TablespaceList>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ops: Arc<dyn RedoOps>,
    pub(crate) config: PagerConfig,
    /// The findings and the actions of the start of this process.
    pub(crate) started: StartOutcome,
    /// The region of persistent memory, if there is one.
    pub(crate) region: Option<NvmRegion>,
    /// The NVM page buffer in the region, if there is one.
    pub(crate) buffer: Option<Arc<NvmBuffer>>,
    /// The flash cache, if there is one.
    pub(crate) cache: Option<Arc<FlashCache>>,
    /// The end of the log at the last checkpoint. It is locked during a checkpoint.
    pub(crate) checkpointing: Mutex<Lsn>,
    /// The bound of the time of a start after a crash.
    pub(crate) restart_bound: RestartBound,
    /// The newest checkpoints.
    pub(crate) journal: CheckpointJournal,
    pub(crate) is_stopping: AtomicBool,
    /// The LSN up to which a thread waits for changes to become stable.
    pub(crate) cleans_until: AtomicU64,
    /// A shutdown leaves the region.
    pub(crate) leaves_region: AtomicBool,
    /// The threads that write pages in addition to the producer.
    pub(crate) workers: Workers,
    /// The position at which the last log record with the compressions of all owners begins.
    pub(crate) forms_noted: Mutex<Option<Lsn>>,
    /// The time at which a full device last refused a write of a page writer, and the error.
    pub(crate) refused: Mutex<Option<(Instant, PagerError)>>,
    /// Rung after checkpoints, because the trimmer may have work then.
    pub(crate) trimmer: Bell,
}
