//! How the flash cache is configured.
//!
//! What it does not know: the configuration file.

use std::ops::RangeInclusive;
use std::sync::Arc;

use varve_device::Directory;

use super::table::CleanOrder;
use crate::base::error::Result;
use crate::base::refuse::require;
use crate::flash::io::store::frames_of;
use crate::flash::policy::design::FlashDesign;
use crate::flash::policy::scans::FlashScans;
use crate::flash::restart::notes::log_takes_table;

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
        frames_of(self.size_bytes, page_size)
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
        require(self.restart != FlashRestart::LogBased || log_takes_table(log_bytes, frames), || {
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

/// What becomes of the cache when the database is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashRestart {
    /// It begins empty.
    None,
    /// A thread writes the frames' records again and again, and what a start finds is verified when it is used.
    LazyVerification,
    /// Each record is on flash before anything depends on it (section 4.3.1; dear, and here for comparison).
    MemoryMapped,
    /// The log notes what comes to frames (section 4.3.2; here for comparison).
    LogBased,
}

impl FlashRestart {
    /// All of them.
    pub const ALL: [FlashRestart; 4] = [
        FlashRestart::None,
        FlashRestart::LazyVerification,
        FlashRestart::MemoryMapped,
        FlashRestart::LogBased,
    ];

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashRestart::None => "none",
            FlashRestart::LazyVerification => "lazy-verification",
            FlashRestart::MemoryMapped => "memory-mapped",
            FlashRestart::LogBased => "log-based",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<FlashRestart> {
        FlashRestart::ALL.into_iter().find(|restart| restart.name() == name)
    }
}

/// What an empty cache does to get full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashFill {
    /// Until a twentieth of the frames is free, it takes pages of scans, too, and reads are widened.
    Aggressive,
    /// Nothing: it takes what it takes when it is full.
    Plain,
}

impl FlashFill {
    /// All of them.
    pub const ALL: [FlashFill; 2] = [FlashFill::Aggressive, FlashFill::Plain];

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashFill::Aggressive => "aggressive",
            FlashFill::Plain => "plain",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<FlashFill> {
        FlashFill::ALL.into_iter().find(|fill| fill.name() == name)
    }
}
