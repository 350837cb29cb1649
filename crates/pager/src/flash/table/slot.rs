//! The types for a slot of the flash cache: the state of a slot (`Slot`), a page that will get a slot, the
//! result of a lookup, and the data that the next start needs.
//!
//! This module does not know which slot has which page, or the order of eviction (`mod.rs`).

use crate::base::ids::PageId;
use crate::base::lsn::Lsn;

/// A slot, by its number within the partition.
pub(in super::super) type SlotNo = u32;

/// The state of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) page: Option<PageId>,
    pub(super) lsn: Lsn,
    /// The oldest change of the page that the data files may lack.
    pub(super) since: Lsn,
    pub(super) last: u64,
    pub(super) last_but_one: u64,
    pub(super) admitted: u64,
    pub(super) heat: u64,
    pub(super) readers: u16,
    pub(super) is_free: bool,
    pub(super) is_written: bool,
    pub(super) is_dirty: bool,
    pub(super) is_cleaning: bool,
    pub(super) is_invalid: bool,
    /// Whether the slot was removed while a thread used it. Then it becomes free when that use ends.
    pub(super) is_doomed: bool,
    /// Whether an earlier start filled the slot, and no thread has checked since then that it still has its
    /// page.
    pub(super) is_unverified: bool,
    /// The data files had no space for the page.
    pub(super) is_passed_over: bool,
}

/// A free slot.
pub(super) const UNUSED: Slot = Slot {
    page: None,
    lsn: Lsn::ZERO,
    since: Lsn::ZERO,
    last: 0,
    last_but_one: 0,
    admitted: 0,
    heat: 0,
    readers: 0,
    is_free: true,
    is_written: false,
    is_dirty: false,
    is_cleaning: false,
    is_invalid: false,
    is_doomed: false,
    is_unverified: false,
    is_passed_over: false,
};

impl Slot {
    /// Returns whether no thread reads, writes or cleans the slot.
    pub(super) fn is_idle(&self) -> bool {
        self.is_written && !self.is_cleaning && self.readers == 0
    }
}

/// A version of a page that will get a slot.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Arrival {
    pub(in super::super) id: PageId,
    pub(in super::super) lsn: Lsn,
    /// The LSN of the page's first change that the data files lack, if they lack one.
    pub(in super::super) lacks: Option<Lsn>,
    pub(in super::super) now: u64,
    /// The temperature of the page. The page is admitted only if it replaces a page with a lower temperature.
    /// If it is `None`, the page replaces the next victim.
    pub(in super::super) heat: Option<u64>,
}

/// The result of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Admitted {
    /// The page got this slot, which counts as being written from now on.
    Slot(SlotNo),
    /// The page has a slot with this version or a newer one already.
    Has { is_dirty: bool },
    /// All slots are dirty, or being read, written or cleaned.
    Busy,
    /// No slot has a colder page.
    Colder,
}

/// Where a page is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ReadFrom {
    /// The page is in this slot, which stays until [`end_read`](super::Partition::end_read).
    Slot(Reading),
    /// The page is being written to this slot, and the data files lack its version.
    OnItsWay(SlotNo),
}

/// What a read found in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Saw {
    /// The page, as the table says.
    Page,
    /// Something else than the page.
    Other,
    /// Nothing, because the slot was not read.
    Nothing,
}

/// A slot that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Reading {
    pub(in super::super) slot: SlotNo,
    /// The page LSN that the page in the slot must have.
    pub(in super::super) lsn: Lsn,
    pub(in super::super) is_dirty: bool,
    /// Whether the slot may have another page. In that case redo can make the page.
    pub(in super::super) is_unverified: bool,
}

/// The data that a restart needs about a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Kept {
    pub(in super::super) page: PageId,
    pub(in super::super) lsn: Lsn,
    pub(in super::super) last: u64,
    pub(in super::super) last_but_one: u64,
    pub(in super::super) admitted: u64,
    /// The data files lack the page.
    pub(in super::super) is_dirty: bool,
}

impl Kept {
    /// Returns whether both are the same version of the same page.
    pub(super) fn is_same(one: Option<Kept>, other: Option<Kept>) -> bool {
        one.map(|kept| (kept.page, kept.lsn)) == other.map(|kept| (kept.page, kept.lsn))
    }
}

/// A slot that is being cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Cleaning {
    pub(in super::super) slot: SlotNo,
    pub(in super::super) lsn: Lsn,
    /// Whether the page is in the slot already. If not, it is being written there.
    pub(in super::super) is_written: bool,
}

/// The numbers of slots of the partition in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Counts {
    pub(in super::super) free: u64,
    /// The number of slots that are being written, and of removed slots that are still in use.
    pub(in super::super) writing: u64,
    pub(in super::super) clean: u64,
    pub(in super::super) dirty: u64,
    pub(in super::super) invalid: u64,
}

impl Counts {
    /// Returns the counter for the state of `slot`.
    pub(super) fn of(&mut self, slot: &Slot) -> &mut u64 {
        match slot {
            Slot { is_free: true, .. } => &mut self.free,
            Slot { is_doomed: true, .. } => &mut self.writing,
            Slot { is_dirty: true, .. } => &mut self.dirty,
            Slot { is_written: false, .. } => &mut self.writing,
            Slot { is_invalid: true, .. } => &mut self.invalid,
            _ => &mut self.clean,
        }
    }

    /// Returns the sums of both.
    pub(in super::super) fn plus(self, other: Counts) -> Counts {
        Counts {
            free: self.free + other.free,
            writing: self.writing + other.writing,
            clean: self.clean + other.clean,
            dirty: self.dirty + other.dirty,
            invalid: self.invalid + other.invalid,
        }
    }
}
