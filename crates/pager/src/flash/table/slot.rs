//! The types of a slot of the flash cache: the state of a slot (`Slot`), a page that is to get a slot, the
//! result of a lookup, and what the next start needs.
//!
//! Not known here: which slot has which page, and the order of eviction (`mod.rs`).

use crate::base::ids::PageId;
use crate::base::lsn::Lsn;

/// A slot, by its number within the partition.
pub(in super::super) type SlotNo = u32;

/// A slot as the table knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) page: Option<PageId>,
    pub(super) lsn: Lsn,
    /// Oldest change that home may lack.
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
    /// It was removed while it was in use.
    pub(super) is_doomed: bool,
    /// It is as an earlier start left it, and nobody has looked since whether its page is in it.
    pub(super) is_unverified: bool,
    /// Home had no room for its page.
    pub(super) is_passed_over: bool,
}

/// One that has no page.
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
    /// Whether nobody reads, writes or cleans it.
    pub(super) fn is_idle(&self) -> bool {
        self.is_written && !self.is_cleaning && self.readers == 0
    }
}

/// A version of a page that is to get a slot.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Arrival {
    pub(in super::super) id: PageId,
    pub(in super::super) lsn: Lsn,
    /// `Some`: home lacks it, since this change.
    pub(in super::super) lacks: Option<Lsn>,
    pub(in super::super) now: u64,
    /// It comes only in place of a colder page; `None`: whatever is the next victim.
    pub(in super::super) heat: Option<u64>,
}

/// What became of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Admitted {
    /// The page belongs into this slot, which is being written from now on.
    Slot(SlotNo),
    /// Its slot has this version or a newer one, and is dirty or not.
    Has { is_dirty: bool },
    /// All slots are dirty, or being read, written or cleaned.
    Busy,
    /// No slot has a colder page.
    Colder,
}

/// Where a page is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ReadFrom {
    /// In this slot, which stays until [`end_read`](super::Partition::end_read).
    Slot(Reading),
    /// The page is being written to this slot, and the data files lack its version.
    OnItsWay(SlotNo),
}

/// What a read found in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Saw {
    /// The page, as the table says.
    Page,
    /// Something else.
    Other,
    /// Nothing: it was not read.
    Nothing,
}

/// A slot that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Reading {
    pub(in super::super) slot: SlotNo,
    /// What its page has to have.
    pub(in super::super) lsn: Lsn,
    pub(in super::super) is_dirty: bool,
    /// Whether its page may not be in it: then redo has what home lacks.
    pub(in super::super) is_unverified: bool,
}

/// What is to be known of a slot after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Kept {
    pub(in super::super) page: PageId,
    pub(in super::super) lsn: Lsn,
    pub(in super::super) last: u64,
    pub(in super::super) last_but_one: u64,
    pub(in super::super) admitted: u64,
    /// Home lacks it.
    pub(in super::super) is_dirty: bool,
}

impl Kept {
    /// Whether both are the same version of the same page.
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

/// Slots of the partition by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Counts {
    pub(in super::super) free: u64,
    /// Being written, and removed ones that are still in use.
    pub(in super::super) writing: u64,
    pub(in super::super) clean: u64,
    pub(in super::super) dirty: u64,
    pub(in super::super) invalid: u64,
}

impl Counts {
    /// The one that counts slots in this one's state.
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

    /// Both together.
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
