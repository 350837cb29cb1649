//! The settings of packed spaces.
//!
//! This module does not know the configuration file.

use std::ops::RangeInclusive;

use super::format::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, is_extent};
use crate::base::error::Result;
use crate::base::refuse::require;

/// The least length of an extent of a packed space, in pages. The header block may take the space of one
/// page.
const EXTENT_PAGES_MIN: u64 = 4;

/// The settings of packed spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedConfig {
    /// Length of an extent in bytes: a power of two in [`EXTENT_BYTES`](Self::EXTENT_BYTES), at least four
    /// pages. Existing files keep their length, and the configuration of an open pager has this length.
    pub extent_bytes: u64,
    /// When this many pages are written and not yet named in the log, a writing thread makes them stable.
    pub held_pages_max: usize,
    /// The part of the file, in percent, that may hold pages before the file grows. While less of the file
    /// holds pages, reclamation makes room for new pages instead, by moving live pages together. Allowed
    /// values: [`FILL_PERCENT`](Self::FILL_PERCENT).
    pub fill_percent: u8,
    /// Whether pages are moved for every extent that is filled, even if many extents are free. Tests set
    /// this, so that they see more moves.
    pub moves_always: bool,
}

impl PackedConfig {
    /// The defaults: extents of 2 MiB, a thousand held pages, and files that are filled to three fifths
    /// (decision 0258).
    pub const DEFAULT: PackedConfig =
        PackedConfig { extent_bytes: 2 << 20, held_pages_max: 1024, fill_percent: 60, moves_always: false };
    /// The allowed values of `fill_percent`. The limit is below 100 because pages can be moved only into free
    /// space.
    pub const FILL_PERCENT: RangeInclusive<u8> = 50..=90;
    /// The shortest and the longest extent.
    pub const EXTENT_BYTES: RangeInclusive<u64> = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;

    /// Refuses what cannot work.
    pub(crate) fn check(&self, page_size: usize) -> Result<()> {
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

/// Checks a value of `fill_percent`.
pub(crate) fn check_fill(percent: u8) -> Result<()> {
    require(PackedConfig::FILL_PERCENT.contains(&percent), || {
        format!(
            "packed files filled to {percent} percent: it must be 50 to 90, since pages can be moved only where there is room"
        )
    })
}
