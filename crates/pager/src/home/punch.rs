//! Hole punching returns file blocks to the device. This module counts the holes. If a device reports that it
//! does not support holes, no more holes are tried on it.
//!
//! Invariants
//! 1. If a hole can't be punched, its blocks stay allocated, and nothing else is lost. So errors are counted,
//!    and never returned.
//!
//! This module does not know what was stored in the ranges.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use varve_device::{BlockFile, ErrorKind};

use crate::home::pace::PieceBytes;

/// The range of the lengths of a hole in free extents. The length is limited because other I/O of the file
/// waits for a hole.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;

/// Punches the holes of a layout, and counts them.
pub(crate) struct Punches {
    /// Length of the holes in free extents.
    pub(crate) pieces: PieceBytes,
    cannot: AtomicBool,
    holes: AtomicU64,
    hole_bytes: AtomicU64,
    failures: AtomicU64,
}

impl Default for Punches {
    fn default() -> Punches {
        Punches {
            pieces: PieceBytes::between(*PIECE_BYTES.start(), *PIECE_BYTES.end()),
            cannot: AtomicBool::default(),
            holes: AtomicU64::default(),
            hole_bytes: AtomicU64::default(),
            failures: AtomicU64::default(),
        }
    }
}

impl Punches {
    /// Returns whether holes may be tried. Returns false after the device has reported that it does not
    /// support holes.
    pub(crate) fn can(&self) -> bool {
        !self.cannot.load(Relaxed)
    }

    /// Punches a hole into a file. Returns whether this succeeded.
    pub(crate) fn punch(&self, file: &dyn BlockFile, offset: u64, len_bytes: u64) -> bool {
        match file.punch(offset, len_bytes) {
            Ok(()) => {
                self.holes.fetch_add(1, Relaxed);
                self.hole_bytes.fetch_add(len_bytes, Relaxed);
                return true;
            }
            Err(error) if error.kind == ErrorKind::Unsupported => self.cannot.store(true, Relaxed),
            Err(_) => drop(self.failures.fetch_add(1, Relaxed)),
        }
        false
    }

    /// Returns the counters for the report of the layout.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 3] {
        [
            ("trims", self.holes.load(Relaxed)),
            ("trimmed_bytes", self.hole_bytes.load(Relaxed)),
            ("trims_failed", self.failures.load(Relaxed)),
        ]
    }
}
