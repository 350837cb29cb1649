//! The capabilities of a device. A test on the device finds them out. None of them is taken from the
//! configuration.
//!
//! Invariants
//! 1. Every field was observed on the device, or is a property of an emulated device.

use std::fmt;

use crate::region::LINE_BYTES;

/// Properties of a device, printed at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Kind of backend, for messages ("file", "memory", "emulated fusion-io-160 on ...").
    pub backend: String,
    /// The unit of direct I/O, in bytes.
    pub logical_sector_bytes: u32,
    /// The unit the medium writes, in bytes.
    pub physical_sector_bytes: u32,
    /// Whether reads and writes bypass the page cache.
    pub direct_io: bool,
    /// Whether holes can be punched.
    pub punch_hole: bool,
    /// The number of bytes of a block of the file system: holes consist of whole blocks. 0 if there are no
    /// holes.
    pub hole_bytes: u32,
    /// Whether a single write can be made durable without a flush of the file.
    pub fua: bool,
    /// Whether the operations of a batch are submitted together through io_uring.
    pub io_uring: bool,
    /// The smallest atomic write, in bytes. It is a power of two, or 0 if the device promises no atomic
    /// writes.
    pub atomic_write_min_bytes: u32,
    /// The largest atomic write, in bytes. It is a power of two, or 0 if the device promises no atomic
    /// writes.
    pub atomic_write_bytes: u32,
    /// Whether files can be mapped without a page cache (DAX).
    pub dax: bool,
    /// Warnings for the user, for example why direct I/O is off.
    pub warnings: Vec<String>,
}

impl Capabilities {
    /// Returns whether a write of this length is atomic, if its offset is a multiple of the length.
    pub fn writes_whole(&self, len_bytes: usize) -> bool {
        let range = self.atomic_write_min_bytes as usize..=self.atomic_write_bytes as usize;
        len_bytes.is_power_of_two() && range.contains(&len_bytes)
    }

    /// Returns the number of bytes of a sector: offsets and lengths are multiples of it. It is the smallest
    /// part of the medium that a write changes, at most 4096 bytes; on persistent memory it is a cache line.
    /// If writes use the page cache, it is a page.
    pub fn sector_bytes(&self) -> u32 {
        let unit = self.logical_sector_bytes.max(self.physical_sector_bytes);
        if self.direct_io { unit.clamp(LINE_BYTES as u32, 4096) } else { 4096 }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        write!(
            f,
            "{}: sector {} logical / {} physical, direct I/O {}, holes {}, FUA {}, io_uring {}, atomic write {}, DAX {}",
            self.backend,
            self.logical_sector_bytes,
            self.physical_sector_bytes,
            yes(self.direct_io),
            match self.hole_bytes {
                0 => "no".into(),
                bytes => format!("of {bytes}"),
            },
            yes(self.fua),
            yes(self.io_uring),
            match self.atomic_write_bytes {
                0 => "none".into(),
                most => format!("{} to {most}", self.atomic_write_min_bytes),
            },
            yes(self.dax),
        )?;
        self.warnings.iter().try_for_each(|warning| write!(f, "; warning: {warning}"))
    }
}
