//! The parts that a database can be put together from, as configurations for the subjects.
//!
//! Invariants
//! 1. The same part on what a crash left of it opens the same database.
//!
//! What it does not know: what a workload does.

use varve_device::Space;
use varve_pager::{HomeLayout, NvmConfig, PackedConfig, PagerConfig, ProtectionKind};

use crate::devices::Devices;

/// The log is eight segments of 64 KiB, as long as the one in files.
const LOG_BYTES: u64 = 512 << 10;
/// Length of the region.
const REGION_BYTES: u64 = 768 << 10;

/// How pages are laid out and protected, and where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing protects pages: a planted fault.
    Unprotected,
    /// Pages by the doublewrite file, the log in files.
    Doublewrite,
    /// Pages by images in the log, whose segments hold those of a mini-transaction.
    FullPageLog,
    /// The log in persistent memory.
    NvmLog,
    /// Pages out of place, in extents of 64 KiB; settled after sixteen.
    Packed,
}

impl Part {
    /// Those that have something in persistent memory.
    pub const IN_NVM: [Part; 1] = [Part::NvmLog];

    /// All of them.
    pub const ALL: [Part; 5] =
        [Part::Unprotected, Part::Doublewrite, Part::FullPageLog, Part::NvmLog, Part::Packed];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Part::Unprotected => "unprotected",
            Part::Doublewrite => "doublewrite",
            Part::FullPageLog => "full-page-log",
            Part::NvmLog => "nvm-log",
            Part::Packed => "packed",
        }
    }

    /// One of these for each seed, each as often.
    pub fn of_seed(parts: &[Part], seed: u64) -> Part {
        parts.get(seed as usize % parts.len().max(1)).copied().unwrap_or(Part::Doublewrite)
    }

    /// Puts the part into a configuration.
    pub fn configure(self, config: &mut PagerConfig, devices: &Devices) {
        match self {
            Part::Unprotected => config.protection = ProtectionKind::None,
            Part::Doublewrite => {}
            Part::FullPageLog => {
                config.protection = ProtectionKind::FullPageLog;
                config.log_segment_bytes = 256 << 10;
                config.log_capacity_bytes = 1 << 20;
            }
            Part::NvmLog => config.nvm = Some(region(devices, LOG_BYTES)),
            Part::Packed => {
                let packed = PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16 };
                config.layout = HomeLayout::Packed(packed);
            }
        }
    }
}

fn region(devices: &Devices, log_bytes: u64) -> NvmConfig {
    NvmConfig { directory: devices.of(Space::Nvm), size_bytes: REGION_BYTES, log_bytes }
}
