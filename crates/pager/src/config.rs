//! The configuration of a pager.
//!
//! Invariants
//! 1. Before anything is opened, [`PagerConfig::check`] refuses a configuration that can't work. The error
//!    says why.
//!
//! This module does not know the configuration file (the `varve` crate reads it).

use std::sync::Arc;
use std::time::Duration;

use varve_device::Directory;

use crate::base::compression::Compression;
use crate::base::error::{BadLocation, LocationFlaw, Result};
use crate::base::page::{PAGE_SIZE_MAX_BYTES, PAGE_SIZE_MIN_BYTES};
use crate::base::refuse::require;
use crate::base::start_progress::StartProgress;
use crate::base::times::Times;
use crate::flash::{FlashConfig, FlashRestart};
use crate::home::kind::HomeLayout;
use crate::home::protection::{self, kind::ProtectionKind};
use crate::home::trim::Trim;
use crate::nvm::layout::Layout;
use crate::nvm::{NvmConfig, NvmFlush, NvmRegion, WantedRegion};
use crate::pool::Replacement;

/// Page writers that work at fixed intervals and not on demand, as InnoDB's page cleaner did up to MySQL 5.6.
/// This is for comparison only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// Page writers wake up once per interval of this many milliseconds. They wake up earlier only if nothing
    /// can be changed before they have worked.
    pub interval_ms: u64,
    /// Page writers write until this many frames are free, at most half of the pool. Then they sleep again.
    pub free_frames: usize,
}

impl Pacing {
    /// The values of InnoDB 5.6: an interval of one second, and `innodb_lru_scan_depth` = 1024.
    pub const INNODB: Pacing = Pacing { interval_ms: 1000, free_frames: 1024 };
}

/// The kind of a checkpoint: which pages are written to the data files before the checkpoint is stored (Do
/// 2012, chapter 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// No pages. Page writers clean pages all the time, oldest change first, and the checkpoint stores how
    /// far they have come.
    Indirect,
    /// Writes the pages that were changed before the previous checkpoint.
    Fuzzy,
    /// Writes all pages that were changed before the checkpoint began. A flash cache then writes all of its
    /// changed pages to the data files, and keeps no new ones meanwhile.
    Sharp,
}

impl CheckpointKind {
    /// All kinds.
    pub const ALL: [CheckpointKind; 3] =
        [CheckpointKind::Indirect, CheckpointKind::Fuzzy, CheckpointKind::Sharp];

    /// Returns the name of this kind in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            CheckpointKind::Indirect => "indirect",
            CheckpointKind::Fuzzy => "fuzzy",
            CheckpointKind::Sharp => "sharp",
        }
    }

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<CheckpointKind> {
        CheckpointKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The conditions under which page writers clean pages so that the log can be cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckpointConfig {
    /// Which pages are written to the data files before a checkpoint is stored.
    pub kind: CheckpointKind,
    /// The longest time between two checkpoints, in milliseconds.
    pub interval_ms: u64,
    /// With every kind of checkpoint, the oldest dirty pages are written while the log since the oldest one
    /// is longer than this fraction of the log's capacity. The value is above 0 and at most
    /// [`LOG_FRACTION_MAX`].
    pub log_fraction: f64,
    /// The time within which a start after a crash should be done with redo. Writers wait for page writes
    /// before the log gets so long that redo would take more. `None` means that only the log's capacity
    /// limits its length.
    pub recovery_target: Option<Duration>,
}

/// Finds the directories of tablespaces.
pub trait Locations: Send + Sync {
    /// Opens the directory at a location that CREATE TABLESPACE names. The caller keeps the directory as long as
    /// it uses files of it.
    fn open(&self, location: &str) -> std::result::Result<Arc<dyn Directory>, BadLocation>;
}

/// Refuses each location, because the database has no directories for tablespaces.
pub(crate) struct NoLocations;

impl Locations for NoLocations {
    fn open(&self, _location: &str) -> std::result::Result<Arc<dyn Directory>, BadLocation> {
        let what = "this database was opened without directories for tablespaces";
        Err(BadLocation::new(LocationFlaw::NotPossible, what))
    }
}

/// Configuration of a pager.
#[derive(Clone)]
pub struct PagerConfig {
    /// The page size in bytes: a power of two from 4 to 64 KiB. It is fixed at creation.
    pub page_size: usize,
    /// Memory of the buffer pool, in bytes.
    pub pool_bytes: usize,
    /// The device of the data space (and of the doublewrite file).
    pub data: Arc<dyn Directory>,
    /// Device of the log.
    pub log: Arc<dyn Directory>,
    /// Device of the rollback space.
    pub rollback: Arc<dyn Directory>,
    /// Device of the temporary space.
    pub temporary: Arc<dyn Directory>,
    /// Device of the control file.
    pub control: Arc<dyn Directory>,
    /// The directories of tablespaces.
    pub locations: Arc<dyn Locations>,
    /// Length of a log segment file, in bytes.
    pub log_segment_bytes: u64,
    /// Length of all log segments together, in bytes.
    pub log_capacity_bytes: u64,
    /// Persistent memory, if the log, pages or doublewrite copies should be in it.
    pub nvm: Option<NvmConfig>,
    /// The marks at which pages are written from persistent memory to the data files.
    pub nvm_flush: NvmFlush,
    /// A cache on flash, if there should be one.
    pub flash: Option<FlashConfig>,
    /// Layout of the data and rollback spaces of a new database. An existing database keeps its layout.
    pub layout: HomeLayout,
    /// The protection of page writes. It applies to spaces in the in-place layout. Packed spaces need none.
    pub protection: ProtectionKind,
    /// Number of threads that write pages, at least one if `background` is set. One of them chooses the
    /// pages, and all of them write parts of these pages. The doublewrite file has one area for each thread.
    pub page_writers: usize,
    /// How the page writers keep frames free. `None` means that they work when frames are needed.
    pub pacing: Option<Pacing>,
    /// Measures the times of slow calls. The measurement is off by default.
    pub times: Arc<Times>,
    /// Where a start writes how far it has come.
    pub progress: Arc<StartProgress>,
    /// Replacement policy.
    pub replacement: Replacement,
    /// Checkpoint settings.
    pub checkpoint: CheckpointConfig,
    /// Opens a copy of a database that was taken while the database ran. By default such a copy is refused
    /// (decision 0261), because it is unknown what is missing in it.
    pub accepts_copy: bool,
    /// Whether the pager starts threads. If not, `tick_write` and `checkpoint` do the work of the threads
    /// when they are called.
    pub background: bool,
    /// Smallest step by which a space file grows, in extents.
    pub growth_extents: u32,
    /// The compression of pages whose owner has no compression of its own.
    pub compression: Compression,
    /// Which free space inside files goes back to the devices as holes.
    pub trim: Trim,
    /// Whether the log is archived. Then a start keeps log that the last run did not archive, and the log has
    /// the time of each commit.
    pub archives: bool,
}

impl PagerConfig {
    /// Returns the number of bytes of the log, wherever it is.
    pub(crate) fn log_bytes(&self) -> u64 {
        let in_nvm = self.nvm.as_ref().map_or(0, |nvm| nvm.log_bytes);
        if in_nvm > 0 { in_nvm } else { self.log_capacity_bytes }
    }

    /// Returns how a start reuses the contents of the flash cache, if there is one.
    pub(crate) fn flash_restart(&self) -> Option<FlashRestart> {
        self.flash.as_ref().map(|flash| flash.settings.restart)
    }

    /// Returns the part of the configuration that says what the region of persistent memory must contain.
    pub(crate) fn wanted_region(&self) -> WantedRegion<'_> {
        WantedRegion { nvm: self.nvm.as_ref(), protection: self.protection, page_size: self.page_size }
    }

    /// Returns the part of the configuration that is about the protection of page writes. `copies` is the
    /// part of the NVM region for doublewrite copies.
    pub(crate) fn wanted_protection<'c>(
        &'c self,
        copies: Option<&'c dyn Directory>,
    ) -> protection::Wanted<'c> {
        protection::Wanted { copies, ..self.protection_in(self.protection, &*self.data) }
    }

    /// Does the same as [`wanted_protection`](Self::wanted_protection), for this kind of protection and this
    /// directory.
    pub(crate) fn protection_in<'c>(
        &'c self,
        kind: ProtectionKind,
        directory: &'c dyn Directory,
    ) -> protection::Wanted<'c> {
        protection::Wanted {
            kind,
            data: directory,
            copies: None,
            page_size: self.page_size,
            writers: self.workers() + 1,
            times: &self.times,
        }
    }

    /// If the region contains the log, makes the configuration use this log.
    pub(crate) fn place_log(&mut self, region: &NvmRegion) {
        if let Some(log) = region.log() {
            self.log = log.directory;
            self.log_segment_bytes = log.segment_bytes;
            self.log_capacity_bytes = log.capacity_bytes;
        }
    }

    /// Returns the number of threads that write pages in addition to the producer, which chooses the pages.
    pub(crate) fn workers(&self) -> usize {
        if self.background { self.page_writers.max(1) - 1 } else { 0 }
    }

    /// Defaults with all spaces in one directory: 8 KiB pages, 128 MiB pool, 1 GiB log.
    pub fn new(directory: Arc<dyn Directory>) -> PagerConfig {
        PagerConfig {
            page_size: 8192,
            pool_bytes: 128 << 20,
            data: directory.clone(),
            log: directory.clone(),
            rollback: directory.clone(),
            temporary: directory.clone(),
            control: directory,
            locations: Arc::new(NoLocations),
            log_segment_bytes: 64 << 20,
            log_capacity_bytes: 1 << 30,
            nvm: None,
            nvm_flush: NvmFlush::DEFAULT,
            flash: None,
            layout: HomeLayout::InPlace,
            protection: ProtectionKind::DOUBLEWRITE,
            page_writers: 1,
            pacing: None,
            times: Arc::default(),
            progress: Arc::default(),
            replacement: Replacement::Clock,
            checkpoint: CheckpointConfig {
                kind: CheckpointKind::Indirect,
                interval_ms: 1000,
                log_fraction: 0.5,
                recovery_target: None,
            },
            accepts_copy: false,
            background: true,
            growth_extents: 8,
            compression: Compression::NONE,
            trim: Trim::Auto,
            archives: false,
        }
    }

    /// Returns the configured protection, or none if it has nothing to do. Packed spaces can't have torn
    /// pages, and only logged spaces are protected.
    pub(crate) fn protection_needed(&self) -> ProtectionKind {
        match (self.layout, self.protection) {
            (
                HomeLayout::Packed(_),
                ProtectionKind::Doublewrite { .. }
                | ProtectionKind::AtomicWrite
                | ProtectionKind::FullPageLog,
            ) => ProtectionKind::None,
            (_, protection) => protection,
        }
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<()> {
        let size = self.page_size;
        let size_fits = size.is_power_of_two() && (PAGE_SIZE_MIN_BYTES..=PAGE_SIZE_MAX_BYTES).contains(&size);
        require(size_fits, || {
            format!("page size {size}: it must be a power of two from 4096 to 65536 bytes")
        })?;
        let frames = self.pool_bytes / size;
        require(frames >= FRAMES_MIN, || {
            format!("a pool of {} bytes has {frames} frames: give it at least {FRAMES_MIN}", self.pool_bytes)
        })?;
        let segment = self.log_segment_bytes;
        let logs_images = self.protection == ProtectionKind::FullPageLog;
        let pages = if logs_images { SEGMENT_PAGES_MIN_WITH_IMAGES } else { SEGMENT_PAGES_MIN };
        let with = if logs_images { " for protection full-page-log" } else { "" };
        require(segment.is_multiple_of(4096) && segment >= pages * size as u64, || {
            format!(
                "log segments of {segment} bytes: give them a multiple of 4096 and at least {pages} pages{with}"
            )
        })?;
        let in_nvm = Layout::of(&self.wanted_region())?.and_then(|layout| layout.log);
        // The segments of a log in persistent memory may be shorter than those of the log in files, so they
        // are checked separately.
        require(in_nvm.is_none_or(|log| log.segment_bytes >= pages * size as u64), || {
            let least = in_nvm.map_or(0, |log| pages * size as u64 * u64::from(log.segments));
            format!(
                "segments of a log in NVM must hold at least {pages} pages{with}: give the log {least} bytes"
            )
        })?;
        require(self.nvm_flush.can_work(), || {
            let NvmFlush { workers, high_water, low_water, .. } = self.nvm_flush;
            format!(
                "{workers} threads that flush NVM from {high_water} to {low_water} in a hundred slots: there must be one, and \
                 the low mark below the high one, which is below 100"
            )
        })?;
        let part = self.checkpoint.log_fraction;
        require(part > 0.0 && part <= LOG_FRACTION_MAX, || {
            format!("checkpoint log fraction {part}: it must be above 0 and at most {LOG_FRACTION_MAX}")
        })?;
        require(!self.protection.needs_nvm() || self.nvm.is_some(), || {
            format!("protection {} needs an NVM region: configure [nvm]", self.protection.name())
        })?;
        if let Some((batch_slots, single_slots)) = self.protection.slots() {
            require(batch_slots > 0 && single_slots > 0, || {
                "doublewrite needs at least one batch slot and one single-page slot".into()
            })?;
        }
        if let HomeLayout::Packed(packed) = self.layout {
            packed.check(size)?;
        }
        self.flash.as_ref().map_or(Ok(()), |flash| flash.check(size, self.log_bytes()))?;
        if self.protection == ProtectionKind::AtomicWrite && self.layout == HomeLayout::InPlace {
            [&self.data, &self.rollback].into_iter().try_for_each(|device| writes_whole(&**device, size))?;
        }
        require(self.pacing.is_none_or(|pacing| pacing.interval_ms > 0 && pacing.free_frames > 0), || {
            "paced page writers need an interval and a number of frames above 0".into()
        })?;
        let Compression { algorithm, level } = self.compression;
        require(self.compression.is_valid(), || {
            let levels = algorithm.levels();
            format!(
                "compression level {level}: {algorithm} has levels {} to {}",
                levels.start(),
                levels.end()
            )
        })?;
        require(self.growth_extents > 0, || "spaces must grow by at least one extent".into())
    }
}

/// The largest fraction of the log that may be between the oldest change that is not stable and the end. The
/// limit exists because a log of two segments must be cleaned before its second segment is nearly full.
pub const LOG_FRACTION_MAX: f64 = 0.75;

/// The least length of a log segment, in pages. It ensures that every mini-transaction fits into one segment.
const SEGMENT_PAGES_MIN: u64 = 16;
/// The same limit as [`SEGMENT_PAGES_MIN`], but for mini-transactions that may log each of their pages whole
/// (`full-page-log`).
const SEGMENT_PAGES_MIN_WITH_IMAGES: u64 = 64;

/// The least number of frames of a pool.
pub const FRAMES_MIN: usize = 32;

pub(crate) fn writes_whole(device: &dyn Directory, page_size: usize) -> Result<()> {
    let found = device.capabilities();
    require(found.writes_whole(page_size), || {
        let (least, most) = (found.atomic_write_min_bytes, found.atomic_write_bytes);
        let promised =
            if most == 0 { "no such write".into() } else { format!("writes of {least} to {most} bytes") };
        format!(
            "protection atomic-write needs a device that writes {page_size} bytes in one piece, and {} promises \
             {promised}: choose doublewrite, or another device",
            device.location()
        )
    })
}
