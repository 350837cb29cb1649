//! The configurations under which workloads run: page layout, page protection, storage levels, place of the
//! log. In the code, such a configuration is called a part.
//!
//! Invariants
//! 1. A database that was created with a part can be opened with the same part after a crash.

use varve_device::Space;
use varve_pager::{
    Algorithm, CheckpointKind, Compression, FlashConfig, FlashDesign, FlashRestart, FlashSettings,
    HomeLayout, NvmConfig, PackedConfig, PagerConfig, ProtectionKind,
};

use crate::devices::Devices;

/// A log of more segments than usual, and of fewer.
const LONG_LOG_BYTES: u64 = 1 << 20;
const SHORT_LOG_BYTES: u64 = 256 << 10;

/// The log is eight segments of 64 KiB, as long as the one in files.
const LOG_BYTES: u64 = 512 << 10;
/// Length of a region without a page buffer.
const REGION_BYTES: u64 = 768 << 10;
/// Length of what a page buffer takes beside the log: 24 slots, half as many as the pool has frames.
const BUFFER_BYTES: u64 = buffer_bytes(24);

/// Length of one with more slots than the database ever has pages: none goes home because others want its
/// slot.
const ROOMY_BUFFER_BYTES: u64 = buffer_bytes(1000);

/// Pages in a cache on flash: more than the pool has, fewer than the database.
const CACHE_PAGES: u64 = 64;

/// By how much a larger page buffer is longer.
const LARGER_BYTES: u64 = 20 * 4096;

/// Headers and so many slots.
const fn buffer_bytes(slots: u64) -> u64 {
    8192 + 4096 + slots * 4096
}

/// Segments as under full-page-log, which hold the images of a mini-transaction: in files, and in a region,
/// where there are eight.
const WIDE_SEGMENT_BYTES: u64 = 256 << 10;
const WIDE_LOG_BYTES: u64 = 8 * WIDE_SEGMENT_BYTES;

/// Doublewrite copies in the region: few, so that a batch does not fit and single pages wait for each other.
const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 24, single_slots: 4 };

/// How pages are laid out, stored and protected, and where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing protects pages: a planted fault.
    Unprotected,
    /// Pages by the doublewrite file, the log in files.
    Doublewrite,
    /// The same with segments as under full-page-log, which it is switched from and to.
    WideDoublewrite,
    /// The same with a log of 1 MiB.
    LongLog,
    /// A log of 1 MiB, and then one of 256 KiB: there are more files than the capacity allows.
    LogLowered,
    /// A log of 256 KiB, and then one of 1 MiB.
    LogRaised,
    /// Pages by images in the log, whose segments hold those of a mini-transaction.
    FullPageLog,
    /// Full-page-log, then doublewrite, then full-page-log; recovered under doublewrite.
    Switching,
    /// Doublewrite, then full-page-log, then doublewrite, which recovers: full-page-log begins after a clean
    /// shutdown only.
    SwitchingBack,
    /// Pages by devices that write them whole or not at all.
    AtomicWrite,
    /// The log in persistent memory.
    NvmLog,
    /// Doublewrite copies in persistent memory.
    NvmDoublewrite,
    /// Both.
    NvmDoublewriteLog,
    /// Pages in persistent memory on their way home.
    NvmPages,
    /// The same, and the log.
    NvmAll,
    /// Doublewrite, and then pages in persistent memory, which recover.
    ToNvmPages,
    /// Pages out of place, in extents of 64 KiB; settled after sixteen, and moved early.
    Packed,
    /// Pages by the doublewrite file, compressed at home.
    Compressed,
    /// Compressed pages out of place.
    PackedCompressed,
    /// Pages in persistent memory on their way home, which lays them out of place.
    NvmPacked,
    /// The same in persistent memory that has room for all pages: what is freed home may never have had.
    NvmHoldsPacked,
    /// Pages in persistent memory on their way home, where they are compressed.
    NvmCompressed,
    /// A cache on flash that gets clean pages.
    Flash,
    /// One that gets changed pages, too.
    FlashDual,
    /// The same over packed ones; fuzzy checkpoints.
    FlashPacked,
    /// The same below pages in persistent memory.
    NvmFlash,
    /// One that keeps changed pages back.
    FlashLazy,
    /// The same over packed, compressed pages.
    FlashLazyPacked,
    /// One whose frames are a ring; sharp checkpoints.
    FlashRing,
    /// One that keeps changed pages back, then none, then the first one again, which has not seen what
    /// happened meanwhile.
    FlashAside,
    /// One that gives up what is read.
    FlashExclusive,
    /// One that goes by the heat of extents.
    FlashHeat,
    /// One that takes what is read.
    FlashInclusive,
    /// One whose records are always right on its drive.
    FlashMapped,
    /// One whose frames the log notes.
    FlashNoted,
    /// The log and pages in persistent memory, compressed pages out of place.
    NvmAllPacked,
    /// Pages by images in a log that is in persistent memory.
    NvmImages,
    /// Compressed pages by images in the log.
    CompressedImages,
    /// Full-page-log, and then pages in persistent memory, which recover.
    ImagesToNvmPages,
    /// Nothing that protects pages, and then pages in persistent memory: it is crashed from then on.
    UnprotectedToNvmPages,
    /// All in files, and then the log and pages in persistent memory.
    MoveIn,
    /// The other way.
    MoveOut,
    /// The log and pages in persistent memory, and then in a larger region.
    MoveToLarger,
    /// The other way, and the log goes to files.
    MoveToSmaller,
    /// The log and packed pages, compressed, in persistent memory, and then in files.
    MoveOutPacked,
    /// The log and doublewrite copies in persistent memory, and then devices that write pages whole.
    MoveOutCopies,
    /// Images in a log in files, and then in one that is in persistent memory.
    MoveInImages,
}

impl Part {
    /// Those that have something in persistent memory.
    pub const IN_NVM: [Part; 5] =
        [Part::NvmPages, Part::NvmAll, Part::NvmLog, Part::NvmDoublewrite, Part::NvmDoublewriteLog];

    /// Two levels or protections at once.
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

    /// Those that change to pages in persistent memory. For `Pages` only.
    pub const TO_NVM: [Part; 3] = [Part::ToNvmPages, Part::ImagesToNvmPages, Part::UnprotectedToNvmPages];

    /// Those that come to a region, leave it, or get another one. For `Pages` and `Engine`.
    pub const MOVES: [Part; 7] = [
        Part::MoveIn,
        Part::MoveOut,
        Part::MoveToLarger,
        Part::MoveToSmaller,
        Part::MoveOutPacked,
        Part::MoveOutCopies,
        Part::MoveInImages,
    ];

    /// The parts that change the capacity of the log. Only for `Pages`.
    pub const OTHER_CAPACITY: [Part; 2] = [Part::LogLowered, Part::LogRaised];

    /// All of them.
    pub const ALL: [Part; 47] = [
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
    ];

    /// Those with a storage level, a layout or a protection beside the first one's.
    pub fn of_levels() -> Vec<Part> {
        let one = [Part::Unprotected, Part::Doublewrite, Part::WideDoublewrite, Part::LongLog];
        Part::ALL.into_iter().filter(|part| !one.contains(part)).collect()
    }

    /// Whether a run switches between two configurations. `Pages` does that; other subjects only for parts
    /// that move.
    pub fn changes(self) -> bool {
        self.stages().len() > 1
    }

    /// Whether it comes to a region, leaves it, or gets another one.
    pub fn moves(self) -> bool {
        Part::MOVES.contains(&self)
    }

    /// Its name, for people.
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
        }
    }

    /// One of these for each seed, each as often.
    pub fn of_seed(parts: &[Part], seed: u64) -> Part {
        parts.get(seed as usize % parts.len().max(1)).copied().unwrap_or(Part::Doublewrite)
    }

    /// The parts of a run, with a clean shutdown between them.
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

    /// Which part follows, after a clean shutdown, on a database that this one recovered.
    pub(crate) fn after_shutdown(self) -> Part {
        match self {
            Part::Switching | Part::SwitchingBack => Part::FullPageLog,
            one => one,
        }
    }

    /// Whether pages are compressed at home.
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

    /// Whether free extents go back to the device, or the pages in them are forgotten.
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
                // Pages are moved with every extent that is filled.
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

    /// The same for what is two parts in one.
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
    // So few dirty frames that some are cleaned all the time.
    let settings = FlashSettings { design, dirty_percent: 25, ..FlashSettings::of_size(size_bytes) };
    FlashConfig::with(devices.of(Space::Flash), settings)
}

fn widen(config: &mut PagerConfig) {
    config.log_segment_bytes = WIDE_SEGMENT_BYTES;
    config.log_capacity_bytes = 1 << 20;
}
