//! Two sets of pages that a thread is moving: from flash to the data files, or from the data files to flash.
//!
//! Invariants
//! 1. A page enters each set, and leaves `read_along`, under the lock of its partition. So a thread with a
//!    newer version of the page finds it in the set.
//!
//! This module does not know why the pages move.

use super::underway::Underway;
use super::watched::Watched;

/// The two sets.
#[derive(Default)]
pub(in crate::flash) struct Transit {
    /// Dirty pages that are being written to the data files.
    pub(in crate::flash) cleaning: Underway,
    /// Pages that are being read from the data files along with a neighbour.
    pub(in crate::flash) read_along: Watched,
}
