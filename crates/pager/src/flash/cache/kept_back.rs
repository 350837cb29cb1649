//! Whether dirty pages may stay on flash, and how many.
//!
//! What it does not know: what the design says of it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// What holds for dirty pages, beside the design.
pub(super) struct KeptBack {
    /// None stays: the design, or the size, is about to change.
    pub(super) is_draining: AtomicBool,
    /// No frame stays dirty. This is the number of sharp checkpoints that write all frames home.
    pub(super) sharp_checkpoints: AtomicU32,
    /// A shutdown leaves them here.
    pub(super) stays_dirty: AtomicBool,
    /// How many frames may be dirty, in percent of all.
    pub(super) percent: AtomicU8,
}

impl KeptBack {
    /// At most this percentage of the frames.
    pub(super) fn new(percent: u8) -> KeptBack {
        KeptBack {
            is_draining: AtomicBool::new(false),
            sharp_checkpoints: AtomicU32::new(0),
            stays_dirty: AtomicBool::new(false),
            percent: AtomicU8::new(percent),
        }
    }
}
