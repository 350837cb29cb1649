//! Says whether changed pages may now stay on flash without being written to the data files, and how many.
//! This also depends on the design of the cache.
//!
//! Invariants
//! 1. Two events forbid that changed pages stay on flash: a drain (before the design or the size changes),
//!    and a sharp checkpoint, which writes all changed pages. Each is announced with the gate closed, or
//!    before its search for changed pages begins. So no page is overlooked.
//!
//! This module does not know the design, or the state of the device.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

/// The conditions for keeping changed pages on flash, except the design.
pub(super) struct KeptBack {
    /// The design, or the size, is about to change.
    is_draining: AtomicBool,
    /// The number of sharp checkpoints that write all slots to the data files now.
    sharp_checkpoints: AtomicU32,
    /// The number of slots that may be dirty, in percent of all slots.
    percent: AtomicU8,
}

impl KeptBack {
    /// Allows `percent` percent of the slots to be dirty.
    pub(super) fn new(percent: u8) -> KeptBack {
        KeptBack {
            is_draining: AtomicBool::new(false),
            sharp_checkpoints: AtomicU32::new(0),
            percent: AtomicU8::new(percent),
        }
    }

    /// Returns whether no page may be kept back now.
    pub(super) fn is_pausing(&self) -> bool {
        self.is_draining.load(Relaxed) || self.sharp_checkpoints.load(Relaxed) > 0
    }

    /// Begins or ends a drain.
    pub(super) fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Relaxed);
    }

    /// Counts a sharp checkpoint that begins or ends.
    pub(super) fn count_sharp_checkpoint(&self, begins: bool) {
        match begins {
            true => self.sharp_checkpoints.fetch_add(1, Relaxed),
            false => self.sharp_checkpoints.fetch_sub(1, Relaxed),
        };
    }

    /// Returns the number of slots that may be dirty, in percent of all slots.
    #[inline]
    pub(super) fn percent(&self) -> u8 {
        self.percent.load(Relaxed)
    }

    /// Sets the limit of dirty slots, in percent of all.
    pub(super) fn set_percent(&self, percent: u8) {
        self.percent.store(percent, Relaxed);
    }
}
