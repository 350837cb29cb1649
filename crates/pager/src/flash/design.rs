//! What the designs of the cache differ in (Do 2012, section 3.3).
//!
//! Not known here: frames, queues, home.

use crate::ids::Access;

/// Who is admitted, and when home is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashDesign {
    /// Nothing is taken and nothing is looked up.
    Off,
    /// Clean-write: clean pages that leave the pool; dirty ones go home only.
    CleanWrite,
    /// Dual-write: clean pages, and dirty ones to flash and home.
    DualWrite,
}

impl FlashDesign {
    /// All of them.
    pub const ALL: [FlashDesign; 3] = [FlashDesign::Off, FlashDesign::CleanWrite, FlashDesign::DualWrite];

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashDesign::Off => "off",
            FlashDesign::CleanWrite => "clean-write",
            FlashDesign::DualWrite => "dual-write",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<FlashDesign> {
        FlashDesign::ALL.into_iter().find(|design| design.name() == name)
    }

    /// Whether anything is cached.
    pub(super) fn is_on(self) -> bool {
        self != FlashDesign::Off
    }

    /// Whether a clean page that leaves the pool is taken. Pages of scans are not, as long as the cache isn't being filled: reading
    /// them from home one after the other costs little (section 3.2.2).
    pub(super) fn takes_clean(self, access: Access, is_filling: bool) -> bool {
        self.is_on() && (is_filling || access == Access::Random)
    }

    /// Whether a changed page that leaves the pool is taken, beside home.
    pub(super) fn takes_dirty(self, access: Access, is_filling: bool) -> bool {
        self == FlashDesign::DualWrite && self.takes_clean(access, is_filling)
    }
}
