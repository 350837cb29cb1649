//! The policy in force: the design of the cache, and the statistics of pages that the design uses.
//!
//! Invariants
//! 1. Only the thread that holds `switching` changes the design, and it closes the gate for the change. A
//!    thread that takes a page is inside the gate, so it uses the same design until it has finished.
//!
//! This module does not know slots, or the file.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use super::design::FlashDesign;
use super::scans::Scans;
use super::temperature::Heat;
use crate::flash::config::{FlashFill, FlashSettings};
use crate::flash::table::CleanOrder;

/// The policy: which pages the cache takes, and which slots are evicted or cleaned first.
pub(in crate::flash) struct Policy {
    design: AtomicU8,
    /// How an empty cache is filled.
    fill: FlashFill,
    /// Which dirty slot is cleaned first.
    pub(in crate::flash) clean_order: CleanOrder,
    /// Temperatures of extents, for the design `temperature-aware`.
    pub(in crate::flash) heat: Heat,
    /// Recognizes pages of scans.
    pub(in crate::flash) scans: Scans,
    /// The gate. Threads that take pages hold it shared. It is held exclusively while
    /// the design changes.
    pub(in crate::flash) gate: RwLock<()>,
    /// Held during a change of the design or the size.
    pub(in crate::flash) switching: Mutex<()>,
}

impl Policy {
    pub(in crate::flash) fn new(settings: &FlashSettings) -> Policy {
        Policy {
            design: AtomicU8::new(settings.design as u8),
            fill: settings.fill,
            clean_order: settings.clean_order,
            heat: Heat::default(),
            scans: Scans::new(settings.scans),
            gate: RwLock::default(),
            switching: Mutex::default(),
        }
    }

    /// Returns the design in force.
    #[inline]
    pub(in crate::flash) fn design(&self) -> FlashDesign {
        let code = self.design.load(Relaxed);
        FlashDesign::ALL.into_iter().find(|design| *design as u8 == code).unwrap_or(FlashDesign::Off)
    }

    /// Changes the design. The caller holds `switching`, and has closed the gate.
    pub(in crate::flash) fn set_design(&self, design: FlashDesign) {
        self.design.store(design as u8, Relaxed);
    }

    /// Returns whether an empty cache also takes pages that a full one refuses.
    #[inline]
    pub(in crate::flash) fn fills_aggressively(&self) -> bool {
        self.fill == FlashFill::Aggressive
    }
}
