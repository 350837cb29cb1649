//! The configuration of the flash cache, and the declarations of its settings (decision 0709).
//!
//! This module does not know the configuration file.

use std::ops::RangeInclusive;
use std::sync::Arc;

use varve_device::Directory;

use super::table::CleanOrder;
use crate::base::error::Result;
use crate::base::refuse::require;
use crate::base::setting::{Form, Setting, Unit};
use crate::flash::io::store::slots_of;
use crate::flash::policy::design::FlashDesign;
use crate::flash::policy::scans::FlashScans;
use crate::flash::restart::notes::log_takes_table;

/// The configuration of a flash cache: the settings of users, and values that only experiments change.
#[derive(Clone)]
pub struct FlashConfig {
    /// The directory of the cache's file.
    pub directory: Arc<dyn Directory>,
    /// The settings that users choose.
    pub settings: FlashSettings,
    /// The largest number of pages that are read from or written to the device at the same time (mu in Do
    /// 2012). At this limit, pages wait in memory to be written. A page is then read from its data file if
    /// that has the page and is no slower.
    pub pending_max: usize,
    /// The largest number of pages that wait in memory to be written, or are being written. Beyond this
    /// number, the cache takes no page.
    pub queued_max: usize,
    /// The number of threads that write pages to flash, if the pager has threads (`background`).
    pub writers: usize,
}

/// The settings of a flash cache that users choose. [`TABLE`](Self::TABLE) declares each field as a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashSettings {
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Which pages the cache takes.
    pub design: FlashDesign,
    /// The largest number of dirty slots, in percent of all slots, if the design keeps dirty pages on flash
    /// (lambda in Do 2012).
    pub dirty_percent: u8,
    /// Which dirty slot is cleaned first.
    pub clean_order: CleanOrder,
    /// How a start reuses the contents of the cache.
    pub restart: FlashRestart,
    /// How an empty cache is filled.
    pub fill: FlashFill,
    /// How the cache recognizes pages of scans. A full cache does not take these pages.
    pub scans: FlashScans,
    /// The largest number of bytes that are written to the device per day. `None` means no limit.
    pub daily_write_bytes: Option<u64>,
}

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// The allowed values of `dirty_percent`. The limit is below 100 because other pages need slots while dirty
/// slots are cleaned.
const DIRTY_PERCENTS: RangeInclusive<usize> = 1..=95;

impl FlashSettings {
    /// The defaults. A cache needs a size.
    pub const DEFAULT: FlashSettings = FlashSettings {
        size_bytes: 0,
        design: FlashDesign::DualWrite,
        dirty_percent: 50,
        clean_order: CleanOrder::LastUse,
        restart: FlashRestart::LazyVerification,
        fill: FlashFill::Aggressive,
        scans: FlashScans::ReadAhead,
        daily_write_bytes: None,
    };

    /// The values that are shown if there is no cache.
    pub const NO_CACHE: FlashSettings = FlashSettings { design: FlashDesign::Off, ..FlashSettings::DEFAULT };

    /// Returns the defaults, with this size.
    pub fn of_size(size_bytes: u64) -> FlashSettings {
        FlashSettings { size_bytes, ..FlashSettings::DEFAULT }
    }

    /// All settings of the cache.
    pub const TABLE: &'static [Setting<FlashSettings>] = &[
        Setting {
            key: "size",
            form: Form::Bytes {
                bounds: MIB..=64 * TIB,
                get: |flash| flash.size_bytes,
                set: |flash, bytes| flash.size_bytes = bytes,
            },
            is_online: true,
            help: "The size of the flash cache.",
        },
        Setting {
            key: "design",
            form: Form::Word {
                words: || FlashDesign::ALL.map(FlashDesign::name).to_vec(),
                get: |flash| flash.design.name(),
                set: |flash, word| flash.design = FlashDesign::of(word).unwrap_or(flash.design),
            },
            is_online: true,
            help: "Which pages the cache on flash takes.",
        },
        Setting {
            key: "dirty_limit",
            form: Form::Count {
                unit: Unit::Percent,
                bounds: DIRTY_PERCENTS,
                get: |flash| usize::from(flash.dirty_percent),
                set: |flash, percent| flash.dirty_percent = percent as u8,
            },
            is_online: true,
            help: "The share of the flash cache, in percent, for changed pages that the data files lack.",
        },
        Setting {
            key: "clean_order",
            form: Form::Word {
                words: || CleanOrder::ALL.map(CleanOrder::name).to_vec(),
                get: |flash| flash.clean_order.name(),
                set: |flash, word| flash.clean_order = CleanOrder::of(word).unwrap_or(flash.clean_order),
            },
            is_online: false,
            help: "Which changed pages of the flash cache are written to the data files first.",
        },
        Setting {
            key: "restart",
            form: Form::Word {
                words: || FlashRestart::ALL.map(FlashRestart::name).to_vec(),
                get: |flash| flash.restart.name(),
                set: |flash, word| flash.restart = FlashRestart::of(word).unwrap_or(flash.restart),
            },
            is_online: false,
            help: "How a start reuses the pages of the flash cache.",
        },
        Setting {
            key: "fill",
            form: Form::Word {
                words: || FlashFill::ALL.map(FlashFill::name).to_vec(),
                get: |flash| flash.fill.name(),
                set: |flash, word| flash.fill = FlashFill::of(word).unwrap_or(flash.fill),
            },
            is_online: false,
            help: "How the flash cache is filled.",
        },
        Setting {
            key: "scans",
            form: Form::Word {
                words: || FlashScans::ALL.map(FlashScans::name).to_vec(),
                get: |flash| flash.scans.name(),
                set: |flash, word| flash.scans = FlashScans::of(word).unwrap_or(flash.scans),
            },
            is_online: false,
            help: "How the flash cache recognizes pages of scans.",
        },
        Setting {
            key: "daily_writes",
            form: Form::Limit {
                bounds: MIB..=1024 * TIB,
                get: |flash| flash.daily_write_bytes,
                set: |flash, bytes| flash.daily_write_bytes = bytes,
            },
            is_online: true,
            help: "The most bytes that the flash cache may write per day.",
        },
    ];
}

impl FlashConfig {
    /// The default of `pending_max` (Do 2012, table 3.2).
    pub const PENDING_MAX: usize = 100;
    /// The default of `queued_max`. It has room for two rounds of a page writer.
    pub const QUEUED_MAX: usize = 1024;
    /// The default of `writers`.
    pub const WRITERS: usize = 2;
    /// The least number of slots.
    pub const SLOTS_MIN: u32 = 16;

    /// Returns a cache in a file of this length, with all defaults.
    pub fn new(directory: Arc<dyn Directory>, size_bytes: u64) -> Self {
        Self::with(directory, FlashSettings::of_size(size_bytes))
    }

    /// Returns a cache with these settings.
    pub fn with(directory: Arc<dyn Directory>, settings: FlashSettings) -> Self {
        Self {
            directory,
            settings,
            pending_max: FlashConfig::PENDING_MAX,
            queued_max: FlashConfig::QUEUED_MAX,
            writers: FlashConfig::WRITERS,
        }
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self, page_size: usize) -> u32 {
        slots_of(self.settings.size_bytes, page_size)
    }

    pub(crate) fn check(&self, page_size: usize, log_bytes: u64) -> Result<()> {
        require(self.slots(page_size) >= FlashConfig::SLOTS_MIN, || {
            format!(
                "a flash cache of {} bytes holds {} pages: give it room for at least {}",
                self.settings.size_bytes,
                self.slots(page_size),
                FlashConfig::SLOTS_MIN
            )
        })?;
        FlashConfig::check_dirty_percent(self.settings.dirty_percent)?;
        let slots = self.slots(page_size);
        require(
            self.settings.restart != FlashRestart::LogBased || log_takes_table(log_bytes, slots),
            || {
                format!(
                    "a log of {log_bytes} bytes is too small to note the {slots} pages of the flash cache: restart lazy-verification \
                 needs no room there"
                )
            },
        )?;
        FlashConfig::check_daily_writes(self.settings.daily_write_bytes)?;
        require(self.pending_max.min(self.queued_max) > 0 && self.writers > 0, || {
            "a flash cache needs a thread that writes, and room for a page on its way".into()
        })
    }

    /// Checks a value of `daily_write_bytes`.
    pub(crate) fn check_daily_writes(bytes: Option<u64>) -> Result<()> {
        require(bytes != Some(0), || {
            "a flash cache that writes 0 bytes a day takes no page: choose the design off, or more".into()
        })
    }

    /// Checks a value of `dirty_percent`.
    pub(crate) fn check_dirty_percent(percent: u8) -> Result<()> {
        let percents = DIRTY_PERCENTS;
        require(percents.contains(&usize::from(percent)), || {
            let (least, most) = (percents.start(), percents.end());
            format!(
                "{percent} % of a flash cache can't be the limit of dirty pages: choose {least} to {most}"
            )
        })
    }
}

/// How the next start reuses the contents of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashRestart {
    /// The next start does not reuse them: the cache begins empty.
    None,
    /// A thread writes the records of the slots again and again. A start reads them, and verifies each page
    /// when the page is first used.
    LazyVerification,
    /// Each slot record is on flash before anything depends on it (section 4.3.1). This is expensive, and
    /// exists for comparison.
    MemoryMapped,
    /// The log has a record of each page that is written to a slot (section 4.3.2). This exists for
    /// comparison.
    LogBased,
}

impl FlashRestart {
    /// All values.
    pub const ALL: [FlashRestart; 4] = [
        FlashRestart::None,
        FlashRestart::LazyVerification,
        FlashRestart::MemoryMapped,
        FlashRestart::LogBased,
    ];

    /// Returns the name of the value in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashRestart::None => "none",
            FlashRestart::LazyVerification => "lazy-verification",
            FlashRestart::MemoryMapped => "memory-mapped",
            FlashRestart::LogBased => "log-based",
        }
    }

    /// Returns the value with this name.
    pub fn of(name: &str) -> Option<FlashRestart> {
        FlashRestart::ALL.into_iter().find(|restart| restart.name() == name)
    }
}

/// How an empty cache is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashFill {
    /// Until only a twentieth of the slots is free, the cache also takes pages of scans, and reads from the
    /// data files include neighbours of the page.
    Aggressive,
    /// The cache takes only pages that a full cache takes, too.
    Plain,
}

impl FlashFill {
    /// All values.
    pub const ALL: [FlashFill; 2] = [FlashFill::Aggressive, FlashFill::Plain];

    /// Returns the name of the value in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashFill::Aggressive => "aggressive",
            FlashFill::Plain => "plain",
        }
    }

    /// Returns the value with this name.
    pub fn of(name: &str) -> Option<FlashFill> {
        FlashFill::ALL.into_iter().find(|fill| fill.name() == name)
    }
}
