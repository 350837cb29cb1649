//! The configuration of persistent memory.
//!
//! This module does not know the configuration file.

use std::sync::Arc;

use varve_device::Directory;

use crate::base::setting::{Form, Setting, Unit};
use crate::home::protection::kind::ProtectionKind;

/// A region of persistent memory and its use. A database that was opened with a region needs the region until
/// it leaves it ([`Pager::leave_region_at_shutdown`](crate::Pager::leave_region_at_shutdown)).
#[derive(Clone)]
pub struct NvmConfig {
    /// The directory of the region's file.
    pub directory: Arc<dyn Directory>,
    /// Length of the region, in bytes: a multiple of 4096.
    pub size_bytes: u64,
    /// The bytes of the region for the log. If there are any, the log has no files. The log has eight
    /// segments, and `log_segment_bytes` and `log_capacity_bytes` are not used. 0 means that the log is in
    /// files.
    pub log_bytes: u64,
}

/// The region that a configuration requires.
#[derive(Clone, Copy)]
pub(crate) struct WantedRegion<'c> {
    /// The configured region. `None` means that no region is configured.
    pub(crate) nvm: Option<&'c NvmConfig>,
    /// The protection, which says what the region contains beside the log.
    pub(crate) protection: ProtectionKind,
    /// Page size in bytes.
    pub(crate) page_size: usize,
}

/// The marks at which threads write pages from persistent memory to the data files, under
/// [`ProtectionKind::Nvm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmFlush {
    /// The number of threads, if the pager has threads (`background`).
    pub workers: usize,
    /// The threads begin when more than this percentage of the slots have pages that the data files lack.
    pub high_water: u32,
    /// The threads stop when the percentage has fallen to this value.
    pub low_water: u32,
    /// Whether one thread slowly writes the remaining pages while no page is changed or read.
    pub when_idle: bool,
}

impl NvmFlush {
    /// The defaults: two threads, high marks, and flushing while the database is idle.
    pub const DEFAULT: NvmFlush = NvmFlush { workers: 2, high_water: 90, low_water: 80, when_idle: true };

    /// All settings of the flush.
    pub const TABLE: &'static [Setting<NvmFlush>] = &[
        Setting {
            key: "flush_workers",
            form: Form::Count {
                unit: Unit::None,
                bounds: 1..=64,
                get: |flush| flush.workers,
                set: |flush, workers| flush.workers = workers,
            },
            is_online: false,
            help: "Number of threads that write pages from persistent memory to the data files.",
        },
        Setting {
            key: "high_water",
            form: Form::Count {
                unit: Unit::Percent,
                bounds: 1..=99,
                get: |flush| flush.high_water as usize,
                set: |flush, mark| flush.high_water = mark as u32,
            },
            is_online: true,
            help: "Percentage of slots with changed pages at which threads begin to write them to the data files.",
        },
        Setting {
            key: "low_water",
            form: Form::Count {
                unit: Unit::Percent,
                bounds: 0..=98,
                get: |flush| flush.low_water as usize,
                set: |flush, mark| flush.low_water = mark as u32,
            },
            is_online: true,
            help: "Percentage at which they end.",
        },
        Setting {
            key: "idle_flush",
            form: Form::Flag {
                get: |flush| flush.when_idle,
                set: |flush, when_idle| flush.when_idle = when_idle,
            },
            is_online: true,
            help: "Whether an idle server writes all pages from persistent memory to the data files.",
        },
    ];

    /// Returns whether flushing would begin and end with these marks.
    pub(crate) fn can_work(self) -> bool {
        self.workers > 0 && self.low_water < self.high_water && self.high_water < 100
    }
}
