//! The configurations under which workloads run: page layout, page protection, storage levels, place of the
//! log. In the code, such a configuration is called a part.
//!
//! Invariants
//! 1. A database that was created with a part can be opened with the same part after a crash.

use std::sync::Arc;

use varve_device::Space;
use varve_pager::{
    Algorithm, CheckpointKind, Compression, FlashConfig, FlashDesign, FlashRestart, FlashSettings,
    HomeLayout, NvmConfig, PackedConfig, PagerConfig, ProtectionKind,
};

use crate::devices::Devices;
use crate::within::OnDevices;

/// The capacity of a log with more segments than usual, and with fewer.
const LONG_LOG_BYTES: u64 = 1 << 20;
const SHORT_LOG_BYTES: u64 = 256 << 10;

/// The length of the log in a region: eight segments of 64 KiB, as in files.
const LOG_BYTES: u64 = 512 << 10;
/// Length of a region without a page buffer.
const REGION_BYTES: u64 = 768 << 10;
/// The length of a page buffer with 24 slots, half as many as the pool has frames.
const BUFFER_BYTES: u64 = buffer_bytes(24);

/// The length of a page buffer with more slots than the database ever has pages, so no page has to leave it
/// for another one.
const ROOMY_BUFFER_BYTES: u64 = buffer_bytes(1000);

/// The number of pages in a flash cache: more than in the pool, fewer than in the database.
const CACHE_PAGES: u64 = 64;

/// The additional length of a larger page buffer.
const LARGER_BYTES: u64 = 20 * 4096;

/// Returns the length of the headers and this number of slots.
const fn buffer_bytes(slots: u64) -> u64 {
    8192 + 4096 + slots * 4096
}

/// The length of segments with full-page-log, which have the images of a mini-transaction, and of a log of
/// eight such segments in a region.
const WIDE_SEGMENT_BYTES: u64 = 256 << 10;
const WIDE_LOG_BYTES: u64 = 8 * WIDE_SEGMENT_BYTES;

/// Doublewrite copies in the region. They are few, so that a batch does not fit and single pages wait for
/// each other.
const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 24, single_slots: 4 };

/// A configuration: layout, storage and protection of pages, and place of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// No page protection. This is a planted fault.
    Unprotected,
    /// Doublewrite file; the log is in files.
    Doublewrite,
    /// The same as `Doublewrite`, with log segments as long as with full-page-log, so that the protection can
    /// be changed.
    WideDoublewrite,
    /// The same as `Doublewrite`, with a log of 1 MiB.
    LongLog,
    /// First a log of 1 MiB, then one of 256 KiB. So the second start finds more files than the capacity
    /// allows.
    LogLowered,
    /// First a log of 256 KiB, then one of 1 MiB.
    LogRaised,
    /// Page images in the log, with segments that have space for the images of a mini-transaction.
    FullPageLog,
    /// Full-page-log, then doublewrite, then full-page-log. Recovery is with doublewrite.
    Switching,
    /// Doublewrite, then full-page-log, then doublewrite. Recovery is with doublewrite, because full-page-log
    /// can only begin after a clean shutdown.
    SwitchingBack,
    /// Devices that write a page completely or not at all.
    AtomicWrite,
    /// The log in persistent memory.
    NvmLog,
    /// Doublewrite copies in persistent memory.
    NvmDoublewrite,
    /// Doublewrite copies and the log in persistent memory.
    NvmDoublewriteLog,
    /// Pages in persistent memory before they are written to the data files.
    NvmPages,
    /// Pages and the log in persistent memory.
    NvmAll,
    /// First doublewrite, then pages in persistent memory, also for recovery.
    ToNvmPages,
    /// Packed pages in extents of 64 KiB, which are moved early.
    Packed,
    /// Doublewrite file, with compressed pages in the data files.
    Compressed,
    /// Packed, compressed pages.
    PackedCompressed,
    /// Pages in persistent memory, and packed pages in the data files.
    NvmPacked,
    /// The same as `NvmPacked`, with persistent memory for all pages. So a page may be freed that was never
    /// in the data file.
    NvmHoldsPacked,
    /// Pages in persistent memory, and compressed pages in the data files.
    NvmCompressed,
    /// A flash cache for clean pages.
    Flash,
    /// A flash cache that gets changed pages, too.
    FlashDual,
    /// The same as `FlashDual`, with packed pages and fuzzy checkpoints.
    FlashPacked,
    /// A flash cache below pages in persistent memory.
    NvmFlash,
    /// A flash cache that delays writing changed pages to the data files.
    FlashLazy,
    /// The same as `FlashLazy`, with packed, compressed pages.
    FlashLazyPacked,
    /// A flash cache whose frames are a ring, with sharp checkpoints.
    FlashRing,
    /// First `FlashLazy`, then no flash cache, then the first cache again, which has old contents.
    FlashAside,
    /// A flash cache that drops a page when it is read.
    FlashExclusive,
    /// A flash cache that chooses pages by the heat of extents.
    FlashHeat,
    /// A flash cache that takes every page that is read.
    FlashInclusive,
    /// A flash cache with memory-mapped records, which are always right on its drive.
    FlashMapped,
    /// A flash cache whose frames are recorded in the log.
    FlashNoted,
    /// The log and pages in persistent memory, and packed, compressed pages in the data files.
    NvmAllPacked,
    /// Page images in a log in persistent memory.
    NvmImages,
    /// Page images in the log, and compressed pages in the data files.
    CompressedImages,
    /// First full-page-log, then pages in persistent memory, also for recovery.
    ImagesToNvmPages,
    /// First no page protection, then pages in persistent memory. Crashes begin with the second one.
    UnprotectedToNvmPages,
    /// First everything in files, then the log and pages in persistent memory.
    MoveIn,
    /// The opposite of `MoveIn`.
    MoveOut,
    /// The log and pages in persistent memory, first in a region and then in a larger one.
    MoveToLarger,
    /// The opposite of `MoveToLarger`, and the log moves to files.
    MoveToSmaller,
    /// The log and packed, compressed pages, first in persistent memory and then in files.
    MoveOutPacked,
    /// First the log and doublewrite copies in persistent memory, then devices that write pages completely.
    MoveOutCopies,
    /// Page images in the log, which is first in files and then in persistent memory.
    MoveInImages,
    /// Tables and indexes in tablespaces that are made and dropped. Only `Engine` runs this part.
    Tablespaces,
    /// The same as `Tablespaces`, with packed, compressed pages in the data space. Some of its changed pages
    /// are only on flash.
    TablespacesBesidePacked,
    /// The same as `Tablespaces`, with pages in persistent memory above the files.
    NvmTablespaces,
}

impl Part {
    /// The parts with one use of persistent memory.
    pub const IN_NVM: [Part; 5] =
        [Part::NvmPages, Part::NvmAll, Part::NvmLog, Part::NvmDoublewrite, Part::NvmDoublewriteLog];

    /// The parts that combine levels or protections.
    pub const MIXED: [Part; 9] = [
        Part::NvmPacked,
        Part::NvmHoldsPacked,
        Part::NvmCompressed,
        Part::NvmAllPacked,
        Part::NvmImages,
        Part::CompressedImages,
        Part::FlashPacked,
        Part::FlashLazyPacked,
        Part::NvmFlash,
    ];

    /// The parts that change to pages in persistent memory. Only `Pages` runs them.
    pub const TO_NVM: [Part; 3] = [Part::ToNvmPages, Part::ImagesToNvmPages, Part::UnprotectedToNvmPages];

    /// The parts that move to a region, leave it, or change to another one. `Pages` and `Engine` run them.
    pub const MOVES: [Part; 7] = [
        Part::MoveIn,
        Part::MoveOut,
        Part::MoveToLarger,
        Part::MoveToSmaller,
        Part::MoveOutPacked,
        Part::MoveOutCopies,
        Part::MoveInImages,
    ];

    /// The parts with tablespaces. Only `Engine` runs them.
    pub const WITH_TABLESPACES: [Part; 3] =
        [Part::Tablespaces, Part::TablespacesBesidePacked, Part::NvmTablespaces];

    /// The parts that change the capacity of the log. Only `Pages` runs them.
    pub const OTHER_CAPACITY: [Part; 2] = [Part::LogLowered, Part::LogRaised];

    /// All parts.
    pub const ALL: [Part; 50] = [
        Part::Unprotected,
        Part::Doublewrite,
        Part::WideDoublewrite,
        Part::LongLog,
        Part::LogLowered,
        Part::LogRaised,
        Part::FullPageLog,
        Part::AtomicWrite,
        Part::Switching,
        Part::SwitchingBack,
        Part::NvmLog,
        Part::NvmDoublewrite,
        Part::NvmDoublewriteLog,
        Part::NvmPages,
        Part::NvmAll,
        Part::ToNvmPages,
        Part::Packed,
        Part::Compressed,
        Part::PackedCompressed,
        Part::NvmPacked,
        Part::NvmHoldsPacked,
        Part::NvmCompressed,
        Part::NvmAllPacked,
        Part::NvmImages,
        Part::CompressedImages,
        Part::Flash,
        Part::FlashDual,
        Part::FlashPacked,
        Part::NvmFlash,
        Part::FlashLazy,
        Part::FlashLazyPacked,
        Part::FlashRing,
        Part::FlashAside,
        Part::FlashExclusive,
        Part::FlashHeat,
        Part::FlashInclusive,
        Part::FlashMapped,
        Part::FlashNoted,
        Part::ImagesToNvmPages,
        Part::UnprotectedToNvmPages,
        Part::MoveIn,
        Part::MoveOut,
        Part::MoveToLarger,
        Part::MoveToSmaller,
        Part::MoveOutPacked,
        Part::MoveOutCopies,
        Part::MoveInImages,
        Part::Tablespaces,
        Part::TablespacesBesidePacked,
        Part::NvmTablespaces,
    ];

    /// Returns the parts with another storage level, layout or protection than `Doublewrite`.
    pub fn of_levels() -> Vec<Part> {
        let one = [Part::Unprotected, Part::Doublewrite, Part::WideDoublewrite, Part::LongLog];
        Part::ALL.into_iter().filter(|part| !one.contains(part) && !part.has_tablespaces()).collect()
    }

    /// Returns whether a run switches between two configurations. `Pages` does that for all such parts. Other
    /// subjects do it only for parts that move.
    pub fn changes(self) -> bool {
        self.stages().len() > 1
    }

    /// Returns whether the database moves to a region, leaves its region, or changes to another one.
    pub fn moves(self) -> bool {
        Part::MOVES.contains(&self)
    }

    /// Returns the name for output.
    pub fn name(self) -> &'static str {
        match self {
            Part::Unprotected => "unprotected",
            Part::Doublewrite => "doublewrite",
            Part::WideDoublewrite => "wide-doublewrite",
            Part::LongLog => "long-log",
            Part::LogLowered => "log-lowered",
            Part::LogRaised => "log-raised",
            Part::FullPageLog => "full-page-log",
            Part::AtomicWrite => "atomic-write",
            Part::Switching => "switching",
            Part::SwitchingBack => "switching-back",
            Part::NvmLog => "nvm-log",
            Part::NvmDoublewrite => "nvm-dwb",
            Part::NvmDoublewriteLog => "nvm-dwb-log",
            Part::NvmPages => "nvm-pages",
            Part::NvmAll => "nvm-all",
            Part::ToNvmPages => "to-nvm-pages",
            Part::Packed => "packed",
            Part::Compressed => "compressed",
            Part::PackedCompressed => "packed-compressed",
            Part::NvmPacked => "nvm-packed",
            Part::NvmHoldsPacked => "nvm-holds-packed",
            Part::NvmCompressed => "nvm-compressed",
            Part::NvmAllPacked => "nvm-all-packed",
            Part::NvmImages => "nvm-images",
            Part::CompressedImages => "compressed-images",
            Part::Flash => "flash",
            Part::FlashDual => "flash-dual",
            Part::FlashPacked => "flash-packed",
            Part::NvmFlash => "nvm-flash",
            Part::FlashLazy => "flash-lazy",
            Part::FlashLazyPacked => "flash-lazy-packed",
            Part::FlashRing => "flash-ring",
            Part::FlashAside => "flash-aside",
            Part::FlashExclusive => "flash-exclusive",
            Part::FlashHeat => "flash-heat",
            Part::FlashInclusive => "flash-inclusive",
            Part::FlashMapped => "flash-mapped",
            Part::FlashNoted => "flash-noted",
            Part::ImagesToNvmPages => "images-to-nvm-pages",
            Part::UnprotectedToNvmPages => "unprotected-to-nvm-pages",
            Part::MoveIn => "move-in",
            Part::MoveOut => "move-out",
            Part::MoveToLarger => "move-to-larger",
            Part::MoveToSmaller => "move-to-smaller",
            Part::MoveOutPacked => "move-out-packed",
            Part::MoveOutCopies => "move-out-copies",
            Part::MoveInImages => "move-in-images",
            Part::Tablespaces => "tablespaces",
            Part::TablespacesBesidePacked => "tablespaces-beside-packed",
            Part::NvmTablespaces => "nvm-tablespaces",
        }
    }

    /// Returns the part for a seed. Over many seeds, each of these parts is equally frequent.
    pub fn of_seed(parts: &[Part], seed: u64) -> Part {
        parts.get(seed as usize % parts.len().max(1)).copied().unwrap_or(Part::Doublewrite)
    }

    /// Returns the parts of a run, with a clean shutdown between them.
    pub(crate) fn stages(self) -> Vec<Part> {
        match self {
            Part::Switching => vec![Part::FullPageLog, Part::WideDoublewrite, Part::FullPageLog],
            Part::SwitchingBack => vec![Part::WideDoublewrite, Part::FullPageLog, Part::WideDoublewrite],
            Part::LogLowered => vec![Part::LongLog, self],
            Part::LogRaised => vec![Part::LogLowered, self, Part::LogLowered, self],
            Part::FlashAside => vec![Part::FlashLazy, Part::Doublewrite, Part::FlashLazy],
            Part::ToNvmPages => vec![Part::Doublewrite, Part::NvmPages],
            Part::ImagesToNvmPages => vec![Part::FullPageLog, Part::ImagesToNvmPages],
            Part::UnprotectedToNvmPages => vec![Part::Unprotected, Part::NvmPages],
            Part::MoveIn => vec![Part::Doublewrite, self],
            Part::MoveOut => vec![Part::NvmAll, self],
            Part::MoveToLarger => vec![Part::NvmAll, self],
            Part::MoveToSmaller => vec![Part::MoveToLarger, self],
            Part::MoveOutPacked => vec![Part::NvmAllPacked, self],
            Part::MoveOutCopies => vec![Part::NvmDoublewriteLog, self],
            Part::MoveInImages => vec![Part::FullPageLog, self],
            one => vec![one],
        }
    }

    /// Returns the part with which the database continues after a recovery with this part and a clean
    /// shutdown.
    pub(crate) fn after_shutdown(self) -> Part {
        match self {
            Part::Switching | Part::SwitchingBack => Part::FullPageLog,
            one => one,
        }
    }

    /// Returns whether tables and indexes are in tablespaces.
    pub(crate) fn has_tablespaces(self) -> bool {
        Part::WITH_TABLESPACES.contains(&self)
    }

    /// Returns whether pages in the data files are compressed.
    pub(crate) fn compresses(self) -> bool {
        matches!(
            self,
            Part::Compressed
                | Part::PackedCompressed
                | Part::NvmCompressed
                | Part::NvmAllPacked
                | Part::CompressedImages
                | Part::MoveOutPacked
                | Part::FlashLazyPacked
        )
    }

    /// Returns whether free extents are returned to the device.
    pub(crate) fn trims(self) -> bool {
        self.compresses()
            || matches!(self, Part::Packed | Part::NvmPacked | Part::NvmHoldsPacked | Part::FlashPacked)
    }

    /// Sets the part in a configuration. For a part that changes, this is the configuration for recovery.
    pub fn configure(self, config: &mut PagerConfig, devices: &Devices) {
        let region = |size_bytes, log_bytes| {
            Some(NvmConfig { directory: devices.of(Space::Nvm), size_bytes, log_bytes })
        };
        match self {
            Part::Doublewrite => {}
            Part::Tablespaces => config.locations = Arc::new(OnDevices::new(devices)),
            Part::LongLog | Part::LogRaised => config.log_capacity_bytes = LONG_LOG_BYTES,
            Part::LogLowered => config.log_capacity_bytes = SHORT_LOG_BYTES,
            Part::Unprotected => config.protection = ProtectionKind::None,
            Part::AtomicWrite => config.protection = ProtectionKind::AtomicWrite,
            Part::WideDoublewrite | Part::Switching | Part::SwitchingBack => widen(config),
            Part::FullPageLog => {
                config.protection = ProtectionKind::FullPageLog;
                widen(config);
            }
            Part::NvmLog => config.nvm = region(REGION_BYTES, LOG_BYTES),
            Part::NvmDoublewrite => {
                config.protection = COPIES;
                config.nvm = region(REGION_BYTES, 0);
            }
            Part::NvmDoublewriteLog => {
                config.protection = COPIES;
                config.nvm = region(REGION_BYTES, LOG_BYTES);
            }
            Part::NvmPages | Part::ToNvmPages | Part::UnprotectedToNvmPages => {
                config.protection = ProtectionKind::Nvm;
                config.nvm = region(BUFFER_BYTES, 0);
            }
            Part::NvmAll => {
                config.protection = ProtectionKind::Nvm;
                config.nvm = region(BUFFER_BYTES + LOG_BYTES, LOG_BYTES);
            }
            Part::Packed => {
                let (extent_bytes, held_pages_max, fill_percent) = (64 << 10, 16, 90);
                // Each time an extent is full, pages are moved.
                let moves_always = true;
                let packed = PackedConfig { extent_bytes, held_pages_max, fill_percent, moves_always };
                config.layout = HomeLayout::Packed(packed);
            }
            Part::Compressed => config.compression = Compression::of(Algorithm::Lz4),
            Part::Flash => config.flash = Some(cache(config, devices, FlashDesign::CleanWrite)),
            Part::FlashDual => config.flash = Some(cache(config, devices, FlashDesign::DualWrite)),
            Part::FlashLazy | Part::FlashAside => {
                config.flash = Some(cache(config, devices, FlashDesign::LazyCleaning))
            }
            Part::FlashRing => {
                config.checkpoint.kind = CheckpointKind::Sharp;
                config.flash = Some(cache(config, devices, FlashDesign::Rotating));
            }
            Part::FlashExclusive => config.flash = Some(cache(config, devices, FlashDesign::Exclusive)),
            Part::FlashHeat => config.flash = Some(cache(config, devices, FlashDesign::TemperatureAware)),
            Part::FlashInclusive => config.flash = Some(cache(config, devices, FlashDesign::Inclusive)),
            _ => self.configure_two(config, devices),
        }
    }

    /// Does the same as `configure`, for a part that combines two parts.
    fn configure_two(self, config: &mut PagerConfig, devices: &Devices) {
        let all = |parts: &[Part], config: &mut PagerConfig| {
            parts.iter().for_each(|part| part.configure(config, devices));
        };
        match self {
            Part::PackedCompressed => all(&[Part::Packed, Part::Compressed], config),
            Part::NvmPacked => all(&[Part::NvmPages, Part::Packed], config),
            Part::NvmHoldsPacked => {
                all(&[Part::NvmPacked], config);
                let directory = devices.of(Space::Nvm);
                config.nvm = Some(NvmConfig { directory, size_bytes: ROOMY_BUFFER_BYTES, log_bytes: 0 });
            }
            Part::NvmCompressed => all(&[Part::NvmPages, Part::Compressed], config),
            Part::NvmAllPacked => all(&[Part::NvmAll, Part::PackedCompressed], config),
            Part::CompressedImages => all(&[Part::FullPageLog, Part::Compressed], config),
            Part::FlashPacked | Part::NvmFlash => {
                config.checkpoint.kind = CheckpointKind::Fuzzy;
                all(&[if self == Part::NvmFlash { Part::NvmPages } else { Part::Packed }], config);
                config.flash = Some(cache(config, devices, FlashDesign::DualWrite));
            }
            Part::FlashMapped | Part::FlashNoted => {
                let (mapped, noted) = (FlashRestart::MemoryMapped, FlashRestart::LogBased);
                let restart = if self == Part::FlashMapped { mapped } else { noted };
                let lazy = cache(config, devices, FlashDesign::LazyCleaning);
                config.flash =
                    Some(FlashConfig { settings: FlashSettings { restart, ..lazy.settings }, ..lazy });
            }
            Part::FlashLazyPacked => all(&[Part::PackedCompressed, Part::FlashLazy], config),
            Part::ImagesToNvmPages => all(&[Part::WideDoublewrite, Part::NvmPages], config),
            Part::TablespacesBesidePacked => all(&[Part::FlashLazyPacked, Part::Tablespaces], config),
            Part::NvmTablespaces => all(&[Part::NvmPages, Part::Tablespaces], config),
            Part::MoveIn => all(&[Part::NvmAll], config),
            Part::MoveOut => {}
            Part::MoveToLarger => {
                config.protection = ProtectionKind::Nvm;
                let (size_bytes, log_bytes) = (BUFFER_BYTES + LARGER_BYTES + 2 * LOG_BYTES, 2 * LOG_BYTES);
                config.nvm = Some(NvmConfig { directory: devices.of(Space::Nvm), size_bytes, log_bytes });
            }
            Part::MoveToSmaller => all(&[Part::NvmPages], config),
            Part::MoveOutPacked => all(&[Part::PackedCompressed], config),
            Part::MoveOutCopies => all(&[Part::AtomicWrite], config),
            Part::MoveInImages => all(&[Part::NvmImages], config),
            Part::NvmImages => {
                Part::FullPageLog.configure(config, devices);
                let (size_bytes, log_bytes) = (WIDE_LOG_BYTES + (64 << 10), WIDE_LOG_BYTES);
                let directory = devices.of(Space::Nvm);
                config.nvm = Some(NvmConfig { directory, size_bytes, log_bytes });
            }
            _ => {}
        }
    }
}

fn cache(config: &PagerConfig, devices: &Devices, design: FlashDesign) -> FlashConfig {
    let size_bytes = 4096 + CACHE_PAGES * config.page_size as u64;
    // Only few dirty frames are allowed, so that frames are cleaned all the time.
    let settings = FlashSettings { design, dirty_percent: 25, ..FlashSettings::of_size(size_bytes) };
    FlashConfig::with(devices.of(Space::Flash), settings)
}

fn widen(config: &mut PagerConfig) {
    config.log_segment_bytes = WIDE_SEGMENT_BYTES;
    config.log_capacity_bytes = 1 << 20;
}
