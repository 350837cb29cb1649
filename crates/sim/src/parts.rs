//! The parts that a database can be put together from, as configurations for the subjects.
//!
//! Invariants
//! 1. The same part on what a crash left of it opens the same database.
//!
//! What it does not know: what a workload does.

use varve_device::Space;
use varve_pager::{Algorithm, Compression, HomeLayout, NvmConfig, PackedConfig, PagerConfig, ProtectionKind};

use crate::devices::Devices;

/// The log is eight segments of 64 KiB, as long as the one in files.
const LOG_BYTES: u64 = 512 << 10;
/// Length of a region without a page buffer.
const REGION_BYTES: u64 = 768 << 10;
/// Length of what a page buffer takes beside the log: headers and 24 slots, half as many as the pool has frames.
const BUFFER_BYTES: u64 = 8192 + 4096 + 24 * 4096;

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
    /// Pages by images in the log, whose segments hold those of a mini-transaction.
    FullPageLog,
    /// Full-page-log, then doublewrite, then full-page-log; recovered under doublewrite.
    Switching,
    /// Doublewrite, then full-page-log, then doublewrite, which recovers: full-page-log begins after a clean shutdown only.
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
    /// Pages out of place, in extents of 64 KiB; settled after sixteen.
    Packed,
    /// Pages by the doublewrite file, compressed at home.
    Compressed,
    /// Compressed pages out of place.
    PackedCompressed,
}

impl Part {
    /// Those that have something in persistent memory.
    pub const IN_NVM: [Part; 5] =
        [Part::NvmPages, Part::NvmAll, Part::NvmLog, Part::NvmDoublewrite, Part::NvmDoublewriteLog];

    /// All of them.
    pub const ALL: [Part; 16] = [
        Part::Unprotected,
        Part::Doublewrite,
        Part::WideDoublewrite,
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
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Part::Unprotected => "unprotected",
            Part::Doublewrite => "doublewrite",
            Part::WideDoublewrite => "wide-doublewrite",
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
            Part::ToNvmPages => vec![Part::Doublewrite, Part::NvmPages],
            one => vec![one],
        }
    }

    /// Puts the part into a configuration; for one that switches, what it is recovered as.
    pub fn configure(self, config: &mut PagerConfig, devices: &Devices) {
        let region = |size_bytes, log_bytes| {
            Some(NvmConfig { directory: devices.of(Space::Nvm), size_bytes, log_bytes })
        };
        match self {
            Part::Unprotected => config.protection = ProtectionKind::None,
            Part::Doublewrite => {}
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
            Part::NvmPages | Part::ToNvmPages => {
                config.protection = ProtectionKind::Nvm;
                config.nvm = region(BUFFER_BYTES, 0);
            }
            Part::NvmAll => {
                config.protection = ProtectionKind::Nvm;
                config.nvm = region(BUFFER_BYTES + LOG_BYTES, LOG_BYTES);
            }
            Part::Packed => {
                let packed = PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16 };
                config.layout = HomeLayout::Packed(packed);
            }
            Part::Compressed => config.compression = Compression::of(Algorithm::Lz4),
            Part::PackedCompressed => {
                Part::Packed.configure(config, devices);
                Part::Compressed.configure(config, devices);
            }
        }
    }
}

fn widen(config: &mut PagerConfig) {
    config.log_segment_bytes = 256 << 10;
    config.log_capacity_bytes = 1 << 20;
}
