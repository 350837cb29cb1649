//! Pages that another thread is moving: to the data files, or from them to flash.
//!
//! Invariants
//! 1. A page enters either set, and leaves `read_along`, under the lock of its partition: a newer version of it
//!    finds it there.
//!
//! What it does not know: why the pages move.

use super::underway::Underway;
use super::watched::Watched;

/// Pages on their way.
#[derive(Default)]
pub(in crate::flash) struct Transit {
    /// Dirty pages that are being written to the data files.
    pub(in crate::flash) cleaning: Underway,
    /// Pages that are being read from the data files along with a neighbour.
    pub(in crate::flash) read_along: Watched,
}
