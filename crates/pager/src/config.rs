//! How a pager is configured.
//!
//! Invariants
//! 1. [`PagerConfig::check`] refuses what cannot work, with the reason, before anything is opened.
//!
//! What it does not know: the configuration file (the `varve` crate reads it).

use std::ops::RangeInclusive;
use std::sync::Arc;

use varve_device::Directory;

use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::page::{PAGE_SIZE_MAX_BYTES, PAGE_SIZE_MIN_BYTES};
use crate::base::times::Times;
use crate::control::InForce;
use crate::flash::{self, CleanOrder, FlashDesign, FlashFill, FlashRestart, FlashScans};
use crate::home::packed::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, is_extent};
use crate::home::trim::Trim;
use crate::nvm::layout::Layout;

/// Which clean page leaves the pool first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// Second chance.
    Clock,
    /// The page whose last but one access is longest ago (O'Neil 1993), found by sampling.
    Lru2,
}

/// How page writes are protected against tearing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionKind {
    /// Not at all; for measuring only.
    None,
    /// Doublewrite file with batch slots and single-page slots (Kang 2016, section 2.1).
    Doublewrite {
        /// Pages of one batch.
        batch_slots: u32,
        /// Pages that threads evicting inline can have in flight.
        single_slots: u32,
    },
    /// Doublewrite with its copies in persistent memory ([`PagerConfig::nvm`]); Kang 2016, NVM-DWB.
    NvmDoublewrite {
        /// Pages of one batch.
        batch_slots: u32,
        /// Pages that threads evicting inline can have in flight.
        single_slots: u32,
    },
    /// By the devices of data and rollback space, which write a page whole or not at all.
    AtomicWrite,
    /// By the log: it holds a clean page whole before the page changes, and pages are written once, in place.
    FullPageLog,
    /// Pages are copied to persistent memory first and stay there until home has them (Kang 2016, chapter 3). Needs a region;
    /// what the log leaves of it are page slots.
    Nvm,
}

impl ProtectionKind {
    /// InnoDB's split of the doublewrite area, as used by Kang 2016.
    pub const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 120, single_slots: 8 };

    /// What the control file notes of it.
    pub(crate) fn in_force(self) -> InForce {
        match self {
            ProtectionKind::None => InForce::Nothing,
            ProtectionKind::Doublewrite { .. } => InForce::Doublewrite,
            ProtectionKind::NvmDoublewrite { .. } => InForce::NvmDoublewrite,
            ProtectionKind::AtomicWrite => InForce::AtomicWrite,
            ProtectionKind::FullPageLog => InForce::FullPageLog,
            ProtectionKind::Nvm => InForce::Nvm,
        }
    }

    /// Batch slots and single-page slots of a doublewrite.
    pub(crate) fn slots(self) -> Option<(u32, u32)> {
        match self {
            ProtectionKind::Doublewrite { batch_slots, single_slots }
            | ProtectionKind::NvmDoublewrite { batch_slots, single_slots } => {
                Some((batch_slots, single_slots))
            }
            ProtectionKind::None
            | ProtectionKind::AtomicWrite
            | ProtectionKind::FullPageLog
            | ProtectionKind::Nvm => None,
        }
    }

    /// Whether it is none without a region of persistent memory.
    pub(crate) fn needs_nvm(self) -> bool {
        matches!(self, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm)
    }

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ProtectionKind::None => "none",
            ProtectionKind::Doublewrite { .. } => "doublewrite",
            ProtectionKind::NvmDoublewrite { .. } => "nvm-dwb",
            ProtectionKind::AtomicWrite => "atomic-write",
            ProtectionKind::FullPageLog => "full-page-log",
            ProtectionKind::Nvm => "nvm",
        }
    }
}

/// How pages of the data and the rollback space lie in their files; settled when a database is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeLayout {
    /// Each page at its own place.
    #[default]
    InPlace,
    /// Stored pages out of place, found through a map (`home/packed/mod.rs`).
    Packed(PackedConfig),
}

impl HomeLayout {
    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            HomeLayout::InPlace => "in-place",
            HomeLayout::Packed(_) => "packed",
        }
    }

    /// How packed spaces work, if spaces are.
    pub fn packed(self) -> Option<PackedConfig> {
        match self {
            HomeLayout::InPlace => None,
            HomeLayout::Packed(packed) => Some(packed),
        }
    }
}

/// How packed spaces work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedConfig {
    /// Length of an extent, in bytes: a power of two of [`EXTENT_BYTES`](Self::EXTENT_BYTES), at least four pages. Files that are
    /// there keep theirs, and an open pager's configuration tells it.
    pub extent_bytes: u64,
    /// Pages written and in no note at which a thread that writes makes them stable.
    pub held_pages_max: usize,
    /// Part of the file, in percent, that may hold pages before it grows; below, room is won back by moving them together.
    /// One of [`FILL_PERCENT`](Self::FILL_PERCENT).
    pub fill_percent: u8,
    /// Pages are moved with every extent that is filled, however many are free: for tests, which see more of it so.
    pub moves_always: bool,
}

impl PackedConfig {
    /// Extents of 2 MiB, a thousand held pages, filled to three fifths (decision 0258).
    pub const DEFAULT: PackedConfig =
        PackedConfig { extent_bytes: 2 << 20, held_pages_max: 1024, fill_percent: 60, moves_always: false };
    /// What the fill may be: pages can be moved only where there is room.
    pub const FILL_PERCENT: RangeInclusive<u8> = 50..=90;
    /// Shortest and longest extent.
    pub const EXTENT_BYTES: RangeInclusive<u64> = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;

    fn check(&self, page_size: usize) -> Result<()> {
        let fits = is_extent(self.extent_bytes) && self.extent_bytes >= EXTENT_PAGES_MIN * page_size as u64;
        require(fits, || {
            format!(
                "extents of {} bytes: they must be a power of two from 64 KiB to 64 MiB and hold {EXTENT_PAGES_MIN} pages",
                self.extent_bytes
            )
        })?;
        check_fill(self.fill_percent)
    }
}

/// Whether packed files can be filled so far.
pub(crate) fn check_fill(percent: u8) -> Result<()> {
    require(PackedConfig::FILL_PERCENT.contains(&percent), || {
        format!(
            "packed files filled to {percent} percent: it must be 50 to 90, since pages can be moved only where there is room"
        )
    })
}

/// Page writers that don't work as needed but from time to time, as InnoDB's page cleaner did up to MySQL 5.6: for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// They wake this often, in milliseconds; earlier only when nothing can be changed any more.
    pub interval_ms: u64,
    /// Frames that are free when they go to sleep again, at most half of the pool.
    pub free_frames: usize,
}

impl Pacing {
    /// InnoDB 5.6: each second, `innodb_lru_scan_depth` = 1024.
    pub const INNODB: Pacing = Pacing { interval_ms: 1000, free_frames: 1024 };
}

/// What a checkpoint that is due has brought home before it is noted (Do 2012, chapter 3, tells three kinds apart).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Nothing: page writers clean pages all the time, oldest change first, and it notes how far they have come.
    Indirect,
    /// What was changed before the last checkpoint.
    Fuzzy,
    /// What was changed before it began. A flash cache that keeps changed pages back gives up all of them, and takes no more meanwhile.
    Sharp,
}

impl CheckpointKind {
    /// All of them.
    pub const ALL: [CheckpointKind; 3] =
        [CheckpointKind::Indirect, CheckpointKind::Fuzzy, CheckpointKind::Sharp];

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            CheckpointKind::Indirect => "indirect",
            CheckpointKind::Fuzzy => "fuzzy",
            CheckpointKind::Sharp => "sharp",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<CheckpointKind> {
        CheckpointKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// When the page writers clean pages for the sake of the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckpointConfig {
    /// What one that is due has brought home first.
    pub kind: CheckpointKind,
    /// A checkpoint is noted this often at the latest, in milliseconds.
    pub interval_ms: u64,
    /// Whatever the kind, pages are cleaned, oldest first, while the log since the oldest dirty page is longer than this part of
    /// the log's capacity; above 0, at most [`LOG_FRACTION_MAX`].
    pub log_fraction: f64,
}

/// A region of persistent memory and what lies in it. A database that was opened with it needs it until it leaves it
/// ([`Pager::leave_region_at_shutdown`](crate::Pager::leave_region_at_shutdown)).
#[derive(Clone)]
pub struct NvmConfig {
    /// Device that holds the region.
    pub directory: Arc<dyn Directory>,
    /// Length of the region, in bytes: a multiple of 4096.
    pub size_bytes: u64,
    /// Bytes of it for the log, which is then no files: eight segments; `log_segment_bytes` and `log_capacity_bytes` mean nothing.
    /// 0 = the log is in files.
    pub log_bytes: u64,
}

/// A size for messages: the largest unit that gives a whole number, or one of three digits.
pub(crate) fn shown(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        None => format!("{bytes} bytes"),
        Some((unit, factor)) if bytes.is_multiple_of(*factor) || bytes / factor > 99 => {
            format!("{} {unit}", bytes / factor)
        }
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
    }
}

/// What is said of a file that is to be longer than its device has room for.
pub(crate) fn beyond_device(setting: &str, bytes: u64, directory: &dyn Directory) -> String {
    let (bytes, location) = (shown(bytes), directory.location());
    let free =
        directory.free_bytes().map_or("no room for that".to_owned(), |free| format!("{} free", shown(free)));
    format!("{setting} = {bytes}, but {location} has {free}")
}

/// A cache of pages on flash, between the pool and home (Do 2012, chapter 3).
#[derive(Clone)]
pub struct FlashConfig {
    /// Device of its file.
    pub directory: Arc<dyn Directory>,
    /// Length of the file, in bytes, at most.
    pub size_bytes: u64,
    /// What is taken.
    pub design: FlashDesign,
    /// Pages read and written at the device at once (mu in Do 2012). While so many are, others wait in memory to be written, and are read
    /// at home, if home has them and is no slower.
    pub pending_max: usize,
    /// Pages that wait in memory to be written, or are being written, at most; more are not taken.
    pub queued_max: usize,
    /// Threads that write them, where the pager has any (`background`).
    pub writers: usize,
    /// Frames of a hundred that may be dirty, where the design keeps dirty pages back; then some are brought home (lambda in Do 2012).
    pub dirty_percent: u8,
    /// Which of them first.
    pub clean_order: CleanOrder,
    /// What becomes of it when the database is opened again.
    pub restart: FlashRestart,
    /// What it does to get full.
    pub fill: FlashFill,
    /// What tells pages of scans, which are not taken once it is full.
    pub scans: FlashScans,
    /// Bytes written to the device a day, at most; then nothing more is taken for a while. `None`: as many as come.
    pub daily_write_bytes: Option<u64>,
}

impl FlashConfig {
    /// So many pages at once are under way at the device (Do 2012, table 3.2).
    pub const PENDING_MAX: usize = 100;
    /// So many wait: two rounds of a page writer come at once, and some of those.
    pub const QUEUED_MAX: usize = 1024;
    /// Threads.
    pub const WRITERS: usize = 2;
    /// Dirty frames of a hundred (Do 2012, section 3.4: lambda on TPC-C).
    pub const DIRTY_PERCENT: u8 = 50;
    /// What that can be: the cleaner needs frames that others can have meanwhile.
    pub const DIRTY_PERCENTS: RangeInclusive<u8> = 1..=95;
    /// What becomes of it.
    pub const RESTART: FlashRestart = FlashRestart::LazyVerification;
    /// What it does to get full (Do 2012, section 3.3.1).
    pub const FILL: FlashFill = FlashFill::Aggressive;
    /// What tells pages of scans (Do 2012, section 3.2.2: the better one of two).
    pub const SCANS: FlashScans = FlashScans::ReadAhead;
    /// What is taken (Do 2012, section 3.2.3): what home gets as well.
    pub const DESIGN: FlashDesign = FlashDesign::DualWrite;
    /// Pages that it must hold.
    pub const FRAMES_MIN: u32 = 16;

    /// A cache in a file of so many bytes at most, and nothing else said of it.
    pub fn new(directory: Arc<dyn Directory>, size_bytes: u64) -> Self {
        Self {
            directory,
            size_bytes,
            design: FlashConfig::DESIGN,
            pending_max: FlashConfig::PENDING_MAX,
            queued_max: FlashConfig::QUEUED_MAX,
            writers: FlashConfig::WRITERS,
            dirty_percent: FlashConfig::DIRTY_PERCENT,
            clean_order: CleanOrder::LastUse,
            restart: FlashConfig::RESTART,
            fill: FlashConfig::FILL,
            scans: FlashConfig::SCANS,
            daily_write_bytes: None,
        }
    }

    /// Pages that it holds.
    pub(crate) fn frames(&self, page_size: usize) -> u32 {
        flash::frames_of(self.size_bytes, page_size)
    }

    pub(crate) fn check(&self, page_size: usize, log_bytes: u64) -> Result<()> {
        require(self.frames(page_size) >= FlashConfig::FRAMES_MIN, || {
            format!(
                "a flash cache of {} bytes holds {} pages: give it room for at least {}",
                self.size_bytes,
                self.frames(page_size),
                FlashConfig::FRAMES_MIN
            )
        })?;
        FlashConfig::check_dirty_percent(self.dirty_percent)?;
        let frames = self.frames(page_size);
        require(self.restart != FlashRestart::LogBased || flash::log_takes_table(log_bytes, frames), || {
            format!(
                "a log of {log_bytes} bytes is too small to note the {frames} pages of the flash cache: restart lazy-verification \
                 needs no room there"
            )
        })?;
        FlashConfig::check_daily_writes(self.daily_write_bytes)?;
        require(self.pending_max.min(self.queued_max) > 0 && self.writers > 0, || {
            "a flash cache needs a thread that writes, and room for a page on its way".into()
        })
    }

    /// Whether this can be the budget of writes.
    pub(crate) fn check_daily_writes(bytes: Option<u64>) -> Result<()> {
        require(bytes != Some(0), || {
            "a flash cache that writes 0 bytes a day takes no page: choose the design off, or more".into()
        })
    }

    /// Whether this can be the limit of dirty frames.
    pub(crate) fn check_dirty_percent(percent: u8) -> Result<()> {
        let percents = FlashConfig::DIRTY_PERCENTS;
        require(percents.contains(&percent), || {
            let (least, most) = (percents.start(), percents.end());
            format!(
                "{percent} % of a flash cache can't be the limit of dirty pages: choose {least} to {most}"
            )
        })
    }
}

/// When threads bring pages from persistent memory home, under [`ProtectionKind::Nvm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmFlush {
    /// Threads, where the pager has any (`background`).
    pub workers: usize,
    /// They begin when more than this many in a hundred slots hold pages that home has not,
    pub high_water: u32,
    /// and end at this many.
    pub low_water: u32,
    /// Whether one of them brings the rest home, slowly, while nothing is changed and read.
    pub when_idle: bool,
}

impl NvmFlush {
    /// Two threads, close to where all slots are taken, and when nothing else is done.
    pub const DEFAULT: NvmFlush = NvmFlush { workers: 2, high_water: 90, low_water: 80, when_idle: true };

    fn can_work(self) -> bool {
        self.workers > 0 && self.low_water < self.high_water && self.high_water < 100
    }
}

/// Configuration of a pager.
#[derive(Clone)]
pub struct PagerConfig {
    /// Page size in bytes: a power of two from 4 to 64 KiB; fixed at creation.
    pub page_size: usize,
    /// Memory of the buffer pool, in bytes.
    pub pool_bytes: usize,
    /// Device of the data space (and of the doublewrite file).
    pub data: Arc<dyn Directory>,
    /// Device of the log.
    pub log: Arc<dyn Directory>,
    /// Device of the rollback space.
    pub rollback: Arc<dyn Directory>,
    /// Device of the temporary space.
    pub temporary: Arc<dyn Directory>,
    /// Device of the control file.
    pub control: Arc<dyn Directory>,
    /// Length of a log segment file, in bytes.
    pub log_segment_bytes: u64,
    /// Length of all log segments together, in bytes.
    pub log_capacity_bytes: u64,
    /// Persistent memory, if the log, pages or doublewrite copies are to lie in it.
    pub nvm: Option<NvmConfig>,
    /// When pages in it go home.
    pub nvm_flush: NvmFlush,
    /// A cache on flash, if there is to be one.
    pub flash: Option<FlashConfig>,
    /// How the data and the rollback space are laid out; an existing database stays as it is.
    pub layout: HomeLayout,
    /// Protection of page writes: of spaces that are laid out in place, the others need none.
    pub protection: ProtectionKind,
    /// Threads that write pages (at least one if `background`): one chooses them, all write parts of what it chose. The doublewrite
    /// file has an area for each.
    pub page_writers: usize,
    /// How the page writers keep frames free; `None` = as needed.
    pub pacing: Option<Pacing>,
    /// Where time goes; off by default.
    pub times: Arc<Times>,
    /// Replacement policy.
    pub replacement: Replacement,
    /// Checkpoint settings.
    pub checkpoint: CheckpointConfig,
    /// Opens a copy of a database that was taken while it ran, which is refused else (decision 0261): what is missing in it nobody knows.
    pub accepts_copy: bool,
    /// Whether threads run. Without, `tick_write` and `checkpoint` do their work when called.
    pub background: bool,
    /// Smallest step by which a space file grows, in extents.
    pub growth_extents: u32,
    /// How pages are stored whose owner has no compression of its own.
    pub compression: Compression,
    /// What goes back to the devices as holes in files.
    pub trim: Trim,
}

impl PagerConfig {
    /// Bytes of the log, wherever it is.
    pub(crate) fn log_bytes(&self) -> u64 {
        let in_nvm = self.nvm.as_ref().map_or(0, |nvm| nvm.log_bytes);
        if in_nvm > 0 { in_nvm } else { self.log_capacity_bytes }
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
            replacement: Replacement::Clock,
            checkpoint: CheckpointConfig {
                kind: CheckpointKind::Indirect,
                interval_ms: 1000,
                log_fraction: 0.5,
            },
            accepts_copy: false,
            background: true,
            growth_extents: 8,
            compression: Compression::NONE,
            trim: Trim::Auto,
        }
    }

    /// The configured protection as far as it has anything to do: a packed space tears no page, and only such are logged.
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

    /// Whether pages can be stored shorter than they are: an atomic write in place is of a whole page.
    pub(crate) fn can_compress(&self) -> bool {
        self.layout != HomeLayout::InPlace || self.protection != ProtectionKind::AtomicWrite
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
        let in_nvm = Layout::of(self)?.and_then(|layout| layout.log);
        // A log that moves there has other segments than the one that is left.
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

/// Largest part of the log that may lie between the oldest change that is not stable and the end: a log of two segments must
/// be cleaned before the second one is nearly full.
pub const LOG_FRACTION_MAX: f64 = 0.75;

/// Pages that a log segment must hold, so that every mini-transaction fits into one.
const SEGMENT_PAGES_MIN: u64 = 16;
/// As above where a mini-transaction may log each of its pages whole.
const SEGMENT_PAGES_MIN_WITH_IMAGES: u64 = 64;

/// Pages that an extent of a packed space must hold, one of which the header block may take.
const EXTENT_PAGES_MIN: u64 = 4;

/// Fewest frames a pool works with.
pub const FRAMES_MIN: usize = 32;

fn writes_whole(device: &dyn Directory, page_size: usize) -> Result<()> {
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

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(PagerError::Incompatible { what: what() }) }
}
