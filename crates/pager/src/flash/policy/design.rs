//! The differences between the designs of the flash cache (Do 2012, section 3.3; table 2.1 for designs of
//! others). A design says which pages the cache takes, and when changed pages are written to the data files.
//!
//! This module does not know slots, queues or the data files.

use crate::base::ids::Access;
use crate::flash::table::Order;

/// A design of the flash cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashDesign {
    /// The cache takes no page, and no page is looked up in it.
    Off,
    /// Clean-write: takes clean pages that leave the pool. Dirty pages are written to the data files only.
    CleanWrite,
    /// Dual-write: takes clean pages. Dirty pages are written to flash and to the data files.
    DualWrite,
    /// Lazy-cleaning: takes clean pages. Dirty pages are written to flash only, and a cleaner writes them to
    /// the data files later.
    LazyCleaning,
    /// Temperature-aware (Canim 2010): takes pages when they are read from the data files, if their extent is
    /// hotter than that of the coldest cached page. When a cached page changes, it keeps its slot. The slot
    /// is written again when the page is written to the data files.
    TemperatureAware,
    /// Rotating (Holloway 2009): the same as lazy cleaning, but slots are filled in a ring.
    Rotating,
    /// Exclusive (Koltsidas and Viglas 2009): the same as lazy cleaning, but a page that is read leaves
    /// flash.
    Exclusive,
    /// Inclusive (Koltsidas and Viglas 2009): takes every page that is read from the data files. Dirty pages
    /// are written to flash and to the data files.
    Inclusive,
}

impl FlashDesign {
    /// All designs.
    pub const ALL: [FlashDesign; 8] = [
        FlashDesign::Off,
        FlashDesign::CleanWrite,
        FlashDesign::DualWrite,
        FlashDesign::LazyCleaning,
        FlashDesign::TemperatureAware,
        FlashDesign::Rotating,
        FlashDesign::Exclusive,
        FlashDesign::Inclusive,
    ];

    /// Returns the name of the design in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlashDesign::Off => "off",
            FlashDesign::CleanWrite => "clean-write",
            FlashDesign::DualWrite => "dual-write",
            FlashDesign::LazyCleaning => "lazy-cleaning",
            FlashDesign::TemperatureAware => "temperature-aware",
            FlashDesign::Rotating => "rotating",
            FlashDesign::Exclusive => "exclusive",
            FlashDesign::Inclusive => "inclusive",
        }
    }

    /// Returns the design with this name.
    pub fn of(name: &str) -> Option<FlashDesign> {
        FlashDesign::ALL.into_iter().find(|design| design.name() == name)
    }

    /// Returns whether anything is cached.
    pub(in crate::flash) fn is_on(self) -> bool {
        self != FlashDesign::Off
    }

    /// Returns whether dirty pages stay on flash, and are written to the data files later.
    pub fn is_lazy(self) -> bool {
        matches!(self, FlashDesign::LazyCleaning | FlashDesign::Rotating | FlashDesign::Exclusive)
    }

    /// Returns whether a shutdown may leave changed pages on flash, and the next start may use them.
    pub(in crate::flash) fn may_end_dirty(self) -> bool {
        self.is_lazy() || self == FlashDesign::DualWrite
    }

    /// Returns whether a clean page that leaves the pool is taken. While the cache has free slots, pages of
    /// scans are taken, too. Later they are not, because reading them sequentially from the data files costs
    /// little (section 3.2.2).
    pub(in crate::flash) fn takes_clean(self, access: Access, is_filling: bool) -> bool {
        let takes_any = matches!(self, FlashDesign::CleanWrite | FlashDesign::DualWrite) || self.is_lazy();
        takes_any && (is_filling || access == Access::Random)
    }

    /// Returns whether a changed page that leaves the pool is taken. `has_slot` means that the page still
    /// owns a slot, whose content is out of date.
    pub(in crate::flash) fn takes_dirty(self, access: Access, is_filling: bool, has_slot: bool) -> bool {
        match self {
            FlashDesign::Off | FlashDesign::CleanWrite => false,
            FlashDesign::TemperatureAware => has_slot,
            FlashDesign::Inclusive => true,
            _ => is_filling || access == Access::Random,
        }
    }

    /// Returns whether neighbours of a page are read with it while the cache has free slots. Designs that
    /// take pages when they are read would use such neighbours as requested pages. Exclusive caching must not
    /// have pages that may be in the pool.
    pub(in crate::flash) fn widens(self) -> bool {
        self.takes_clean(Access::Random, true) && !self.gives_up_what_is_read()
    }

    /// Returns whether pages are offered to the cache when they are read from the data files.
    pub(in crate::flash) fn takes_read(self) -> bool {
        matches!(self, FlashDesign::TemperatureAware | FlashDesign::Inclusive)
    }

    /// Returns whether a page is taken only if it replaces a colder one.
    pub(in crate::flash) fn goes_by_heat(self) -> bool {
        self == FlashDesign::TemperatureAware
    }

    /// Returns whether a page keeps its slot when it changes.
    pub(in crate::flash) fn keeps_invalid(self) -> bool {
        self.takes_read()
    }

    /// Returns whether a page that is read leaves flash.
    pub(in crate::flash) fn gives_up_what_is_read(self) -> bool {
        self == FlashDesign::Exclusive
    }

    /// Returns which slot is the victim.
    pub(in crate::flash) fn order(self) -> Order {
        match self {
            FlashDesign::TemperatureAware => Order::Heat,
            FlashDesign::Rotating => Order::Fifo,
            _ => Order::Lru2,
        }
    }
}
