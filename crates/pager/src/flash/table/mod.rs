//! The slot table of one partition of the flash cache. It says which page is in which slot (`Slot` in the
//! code), which slot is evicted next, and which slot is cleaned next.
//!
//! ```text
//!            admit                   written(true)            end_clean(true)
//!   Free ------------> Writing ---------------------> Dirty ------------------> Clean
//!    ^                    |        (if the data files have the page: Clean)       |
//!    |                    | remove, written(false)                                | remove, admit of another page
//!    '---- when the write, the last read and the cleaning end ---------------------'
//! ```
//!
//! Invariants
//! 1. The table finds a page in at most one slot. If a slot is removed while it is being written, read or
//!    cleaned, no lookup finds it, and it becomes free only when that work has ended.
//! 2. A slot is in the clean heap exactly if it is written, not dirty, and in use by no thread. Only such
//!    slots are evicted. A slot is in the dirty heap exactly if it is written, dirty, and not being cleaned.
//! 3. A slot is dirty as long as the data files may lack its page.
//! 4. Some designs keep invalid slots, whose page has changed. Such a slot is found by its page only to be
//!    written again.
//! 5. A slot that a start takes over from an earlier life of the cache is *unverified*: nothing has checked
//!    yet that the slot still has its page. It is verified when the page is first read from it. A dirty slot
//!    is unverified only while redo runs. A seal says for certain which dirty slots have a page that the data
//!    files lack. These slots are never unverified.
//!
//! This module does not know files, other partitions or designs.

use rustc_hash::FxHashMap;

use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;
use crate::flash::table::heap::Heap;

pub(crate) mod heap;
pub(crate) mod shape;
mod slot;
pub(crate) mod slots;
#[cfg(test)]
mod tests;

pub(super) use slot::{Admitted, Arrival, Cleaning, Counts, Kept, ReadFrom, Reading, Saw, SlotNo};
use slot::{Slot, UNUSED};

/// The order in which clean slots are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Evicts the page whose last but one access is longest ago (LRU-2, O'Neil 1993). For a page that was
    /// used once since it was admitted, the time of admission counts.
    Lru2,
    /// Evicts the slot that was filled longest ago, so the slots are used as a ring.
    Fifo,
    /// Evicts the page whose extent has the lowest temperature.
    Heat,
}

/// The order in which dirty slots are cleaned (chapters 3 and 4 of Do 2012 differ in it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanOrder {
    /// The page whose last but one access is longest ago comes first.
    LastUse,
    /// The page with the lowest recovery LSN comes first, so that the log can be cut.
    RecoveryLsn,
}

impl CleanOrder {
    /// Both orders.
    pub const ALL: [CleanOrder; 2] = [CleanOrder::LastUse, CleanOrder::RecoveryLsn];

    /// Returns the name of the order in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            CleanOrder::LastUse => "last-use",
            CleanOrder::RecoveryLsn => "recovery-lsn",
        }
    }

    /// Returns the order with this name.
    pub fn of(name: &str) -> Option<CleanOrder> {
        CleanOrder::ALL.into_iter().find(|order| order.name() == name)
    }
}

/// The slot table of one partition.
pub(super) struct Partition {
    slots: Vec<Slot>,
    by_page: FxHashMap<PageId, SlotNo>,
    free: Vec<SlotNo>,
    clean: Heap,
    dirty: Heap,
    counts: Counts,
    order: Order,
    clean_order: CleanOrder,
    /// Slots whose records have changed. `None` if no record is kept for restarts.
    touched: Option<Vec<SlotNo>>,
}

impl Partition {
    /// Returns a partition of `count` slots, which are all free.
    pub(super) fn new(count: u32, order: Order, clean_order: CleanOrder) -> Partition {
        Partition {
            slots: vec![UNUSED; count as usize],
            by_page: FxHashMap::default(),
            // Slots with low numbers are used first, so that the file fills from its beginning.
            free: (0..count).rev().collect(),
            clean: Heap::new(count),
            dirty: Heap::new(count),
            counts: Counts { free: u64::from(count), ..Counts::default() },
            order,
            clean_order,
            touched: None,
        }
    }

    /// Begins to collect the slots that [`take_touched`](Self::take_touched) returns.
    pub(super) fn tell_touched(&mut self) {
        self.touched = Some(Vec::new());
    }

    /// Returns the slots whose records have changed since the last call. A slot can be in the result twice.
    pub(super) fn take_touched(&mut self) -> Vec<SlotNo> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes the order in which slots are evicted and cleaned.
    pub(super) fn reorder(&mut self, order: Order, clean_order: CleanOrder) {
        (self.order, self.clean_order) = (order, clean_order);
        (0..self.slots.len() as u32).for_each(|no| self.place(no));
    }

    /// Changes a slot, and moves it to the list of its new state.
    fn update(&mut self, no: SlotNo, change: impl FnOnce(&mut Slot)) {
        let before = self.touched.is_some().then(|| self.kept(no));
        let slot = &mut self.slots[no as usize];
        *self.counts.of(slot) -= 1;
        change(slot);
        let slot = &mut self.slots[no as usize];
        if slot.is_doomed && slot.is_idle() {
            *slot = UNUSED;
            self.free.push(no);
        }
        let slot = self.slots[no as usize];
        *self.counts.of(&slot) += 1;
        self.place(no);
        if before.is_some_and(|before| !Kept::is_same(before, self.kept(no))) {
            self.touch_record(no);
        }
    }

    fn touch_record(&mut self, no: SlotNo) {
        if let Some(touched) = &mut self.touched {
            touched.push(no);
        }
    }

    fn place(&mut self, no: SlotNo) {
        self.clean.remove(no);
        self.dirty.remove(no);
        let slot = &self.slots[no as usize];
        match slot {
            Slot { is_free: true, .. } | Slot { is_doomed: true, .. } => {}
            Slot { is_dirty: true, .. } => {
                let key = match self.clean_order {
                    _ if slot.is_passed_over => u64::MAX,
                    _ if self.order == Order::Fifo => slot.admitted,
                    CleanOrder::LastUse => slot.last_but_one,
                    CleanOrder::RecoveryLsn => slot.since.get(),
                };
                if slot.is_written && !slot.is_cleaning {
                    self.dirty.insert(no, key);
                }
            }
            _ => {
                let key = match self.order {
                    Order::Lru2 => slot.last_but_one,
                    Order::Fifo => slot.admitted,
                    Order::Heat => slot.heat,
                };
                if slot.is_idle() {
                    self.clean.insert(no, key);
                }
            }
        }
    }

    fn found(&self, id: PageId) -> Option<(SlotNo, &Slot)> {
        self.by_page.get(&id).map(|no| (*no, &self.slots[*no as usize]))
    }

    /// Returns whether the page has a valid slot. If so, the call counts as an access.
    pub(super) fn touch(&mut self, id: PageId, now: u64) -> bool {
        let Some((no, Slot { is_invalid: false, .. })) = self.found(id) else { return false };
        self.update(no, |slot| (slot.last_but_one, slot.last) = (slot.last, now));
        true
    }

    /// Returns the place from which the page is read, and counts an access. `None` means that the page must
    /// be read from the data files.
    pub(super) fn begin_read(&mut self, id: PageId, now: u64) -> Option<ReadFrom> {
        let (no, slot) = self.found(id).filter(|(_, slot)| !slot.is_invalid)?;
        let Slot { lsn, is_dirty, is_written, readers, is_unverified, .. } = *slot;
        if !is_written {
            return is_dirty.then_some(ReadFrom::OnItsWay(no));
        }
        if readers == u16::MAX && !is_dirty {
            return None;
        }
        self.update(no, |slot| {
            slot.readers += 1;
            (slot.last_but_one, slot.last) = (slot.last, now);
        });
        Some(ReadFrom::Slot(Reading { slot: no, lsn, is_dirty, is_unverified }))
    }

    /// Ends a read. Returns whether the slot was given up because of what the read found.
    pub(super) fn end_read(&mut self, no: SlotNo, saw: Saw) -> bool {
        let slot = &self.slots[no as usize];
        // Redo can make a page that the data files lack, if the page was not verified on flash since the
        // start.
        let can_go = !slot.is_dirty || slot.is_unverified;
        let gives_up = saw == Saw::Other && !slot.is_doomed && can_go;
        if gives_up {
            self.forget(no);
        }
        assert!(self.slots[no as usize].readers > 0, "slot {no} was not being read");
        self.update(no, |slot| {
            slot.readers -= 1;
            slot.is_unverified &= saw != Saw::Page;
        });
        gives_up
    }

    /// Reserves a slot for this version of the page, unless the page has a slot with this version or a newer
    /// one.
    pub(super) fn admit(&mut self, new: Arrival, heat_of: impl Fn(PageId) -> u64) -> Admitted {
        let found = self.found(new.id).map(|(no, slot)| (no, *slot));
        if let Some((no, slot)) = found {
            // A version that the data files lack needs a slot whose content is certain.
            let is_sure = !slot.is_unverified || new.lacks.is_none();
            if !slot.is_invalid && slot.lsn >= new.lsn && is_sure {
                self.touch(new.id, new.now);
                return Admitted::Has { is_dirty: slot.is_dirty };
            }
            if slot.is_invalid && slot.is_idle() {
                return Admitted::Slot(self.fill(no, new));
            }
            self.remove(new.id);
        }
        let no = match self.free.pop() {
            Some(no) => no,
            None => {
                let coldest = self.coldest(heat_of);
                if coldest.is_some_and(|coldest| new.heat.is_some_and(|heat| heat <= coldest)) {
                    return Admitted::Colder;
                }
                let Some(no) = self.clean.pop() else { return Admitted::Busy };
                self.touch_record(no);
                let page = self.slots[no as usize].page.take();
                page.and_then(|page| self.by_page.remove(&page));
                no
            }
        };
        self.by_page.insert(new.id, no);
        Admitted::Slot(self.fill(no, new))
    }

    fn fill(&mut self, no: SlotNo, new: Arrival) -> SlotNo {
        self.update(no, |slot| {
            *slot = Slot {
                page: Some(new.id),
                lsn: new.lsn,
                since: new.lacks.unwrap_or(Lsn::ZERO),
                last: new.now,
                last_but_one: new.now,
                admitted: new.now,
                heat: new.heat.unwrap_or_default(),
                is_dirty: new.lacks.is_some(),
                is_free: false,
                ..UNUSED
            };
        });
        no
    }

    /// Returns the temperature of the next slot to evict. Temperatures of pages rise while the pages are in
    /// the heap. The heap is updated when such a page reaches its top.
    fn coldest(&mut self, heat_of: impl Fn(PageId) -> u64) -> Option<u64> {
        if self.order != Order::Heat {
            return None;
        }
        loop {
            let no = self.clean.top()?;
            let slot = &mut self.slots[no as usize];
            let heat = slot.page.map_or(0, &heat_of);
            if heat <= slot.heat {
                return Some(slot.heat);
            }
            slot.heat = heat;
            self.place(no);
        }
    }

    /// Returns whether the page has a dirty slot.
    pub(super) fn is_dirty(&self, id: PageId) -> bool {
        self.found(id).is_some_and(|(_, slot)| slot.is_dirty)
    }

    /// Returns whether this is the page's slot, and the data files may lack its version.
    pub(super) fn lacks(&self, no: SlotNo, id: PageId) -> bool {
        self.found(id).is_some_and(|(found, slot)| found == no && slot.is_dirty)
    }

    /// Returns whether the page has a slot, whatever is in it.
    pub(super) fn has(&self, id: PageId) -> bool {
        self.by_page.contains_key(&id)
    }

    /// Returns whether the page has an invalid slot, which may be written again.
    pub(super) fn has_invalid(&self, id: PageId) -> bool {
        self.found(id).is_some_and(|(_, slot)| slot.is_invalid)
    }

    /// Returns whether the slot was removed or became invalid before it was written.
    pub(super) fn is_unwanted(&self, no: SlotNo) -> bool {
        let slot = &self.slots[no as usize];
        slot.is_doomed || slot.is_invalid
    }

    /// Ends the write of an admitted page. Returns whether the page is in its slot now: the write succeeded,
    /// and the page was not removed.
    pub(super) fn written(&mut self, no: SlotNo, is_good: bool) -> bool {
        if !is_good && !self.slots[no as usize].is_doomed {
            self.forget(no);
        }
        let Slot { is_free, is_written, is_doomed, is_invalid, .. } = self.slots[no as usize];
        assert!(!is_free && !is_written, "slot {no} was not being written");
        self.update(no, |slot| slot.is_written = true);
        !is_doomed && !is_invalid
    }

    /// Returns the page of the dirty slot that is cleaned next.
    pub(super) fn next_to_clean(&self) -> Option<PageId> {
        self.dirty.top().and_then(|no| self.slots[no as usize].page)
    }

    /// Begins to clean the page's slot, if it is dirty and no other thread cleans it.
    pub(super) fn begin_clean(&mut self, id: PageId) -> Option<Cleaning> {
        let (no, slot) = self.found(id).filter(|(_, slot)| slot.is_dirty && !slot.is_cleaning)?;
        let Slot { lsn, is_written, .. } = *slot;
        self.update(no, |slot| slot.is_cleaning = true);
        Some(Cleaning { slot: no, lsn, is_written })
    }

    /// Ends a cleaning. `is_home` says that the data files have the version in the slot.
    pub(super) fn end_clean(&mut self, no: SlotNo, is_home: bool) {
        assert!(self.slots[no as usize].is_cleaning, "slot {no} was not being cleaned");
        self.update(no, |slot| {
            slot.is_cleaning = false;
            slot.is_dirty &= !is_home;
        });
    }

    /// Moves a slot to the end of the order of cleaning, because the data files had no space for its page.
    pub(super) fn pass_over(&mut self, no: SlotNo) {
        if self.slots[no as usize].is_dirty {
            self.update(no, |slot| slot.is_passed_over = true);
        }
    }

    /// Makes the page's slot invalid. Returns whether the page had a valid slot.
    pub(super) fn remove(&mut self, id: PageId) -> bool {
        let Some((no, slot)) = self.found(id) else { return false };
        let was_valid = !slot.is_invalid;
        self.forget(no);
        was_valid
    }

    /// Does the same as `remove`, for a page that moves to the pool (exclusive caching). Returns whether the
    /// data files may lack the page, or `None` if the page has no valid slot, or its slot is being cleaned.
    pub(super) fn take(&mut self, id: PageId) -> Option<bool> {
        let (no, slot) = self.found(id).filter(|(_, slot)| !slot.is_cleaning && !slot.is_invalid)?;
        let is_dirty = slot.is_dirty;
        self.forget(no);
        Some(is_dirty)
    }

    /// Does the same as `remove`, but the page keeps its slot (Canim 2010). Returns whether the slot was
    /// valid.
    pub(super) fn invalidate(&mut self, id: PageId) -> bool {
        let Some((no, slot)) = self.found(id) else { return false };
        assert!(!slot.is_dirty, "{id} is dirty on flash, and its slot would be invalid");
        let was_valid = !slot.is_invalid;
        self.update(no, |slot| slot.is_invalid = true);
        was_valid
    }

    /// Does the same as `remove`, if the version in the slot is older than this LSN.
    pub(super) fn remove_older(&mut self, id: PageId, lsn: Lsn) -> bool {
        let is_older = self.found(id).is_some_and(|(_, slot)| slot.lsn < lsn && !slot.is_invalid);
        is_older && self.remove(id)
    }

    /// Does the same as `remove`, for a range of pages. Returns how many had a valid slot.
    pub(super) fn remove_range(&mut self, ids: PageRange) -> u64 {
        if ids.count as usize > self.by_page.len() {
            return self.remove_all(|id| ids.contains(id));
        }
        (0..ids.count).filter(|at| self.remove(ids.first.plus(*at))).count() as u64
    }

    /// Does the same as `remove`, for all pages for which `is_meant` is true. Returns how many had a valid
    /// slot.
    pub(super) fn remove_all(&mut self, is_meant: impl Fn(PageId) -> bool) -> u64 {
        let meant: Vec<PageId> = self.by_page.keys().copied().filter(|id| is_meant(*id)).collect();
        meant.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// Does the same as `remove`, for all pages that the data files have.
    pub(super) fn remove_clean(&mut self) -> u64 {
        self.remove_clean_if(|_| true)
    }

    /// Does the same as `remove_clean`, for those pages for which `is_meant` is true.
    pub(super) fn remove_clean_if(&mut self, is_meant: impl Fn(PageId) -> bool) -> u64 {
        let is_clean = |no: &SlotNo| !self.slots[*no as usize].is_dirty;
        let pages = self.by_page.iter().filter(|(id, no)| is_clean(no) && is_meant(**id));
        let clean: Vec<PageId> = pages.map(|(id, _)| *id).collect();
        clean.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// Returns the record of the slot for a restart, or `None` if the slot has no page that could be read.
    pub(super) fn kept(&self, no: SlotNo) -> Option<Kept> {
        let slot = &self.slots[no as usize];
        let Slot { lsn, last, last_but_one, admitted, is_dirty, .. } = *slot;
        let page = slot.page.filter(|_| slot.is_written && !slot.is_invalid && !slot.is_doomed)?;
        Some(Kept { page, lsn, last, last_but_one, admitted, is_dirty })
    }

    /// Enters a page that an earlier start left in a free slot. `lacks` is the first change that the data
    /// files may lack. `is_sure` means that they certainly lack it. If two slots have the page, the slot with
    /// the newer version stays. Returns whether it is this slot. The table can be used after
    /// [`found_all`](Self::found_all).
    pub(super) fn find(&mut self, no: SlotNo, kept: Kept, lacks: Option<Lsn>, is_sure: bool) -> bool {
        let Kept { page, lsn, last, last_but_one, admitted, .. } = kept;
        if let Some((other, slot)) = self.found(page) {
            if slot.lsn >= lsn {
                return false;
            }
            self.by_page.remove(&page);
            self.update(other, |slot| *slot = UNUSED);
        }
        self.by_page.insert(page, no);
        self.update(no, |slot| {
            *slot = Slot {
                page: Some(page),
                lsn,
                since: lacks.unwrap_or(Lsn::ZERO),
                last,
                last_but_one,
                admitted,
                is_dirty: lacks.is_some(),
                is_free: false,
                is_written: true,
                is_unverified: lacks.is_none() || !is_sure,
                ..UNUSED
            };
        });
        true
    }

    /// Ends the search of a start for slots. All other slots are free.
    pub(super) fn found_all(&mut self) {
        self.free =
            (0..self.slots.len() as u32).rev().filter(|no| self.slots[*no as usize].is_free).collect();
    }

    /// Does the same as `remove`, for all pages that the data files may lack and that have not been verified
    /// on flash since the start. Returns their number.
    pub(super) fn remove_unverified_dirty(&mut self) -> u64 {
        let is_meant = |no: &SlotNo| {
            let slot = &self.slots[*no as usize];
            slot.is_dirty && slot.is_unverified
        };
        let meant: Vec<PageId> =
            self.by_page.iter().filter(|(_, no)| is_meant(no)).map(|(id, _)| *id).collect();
        meant.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// Removes the slot from the lookup table, so that lookups of its page no longer find it.
    fn forget(&mut self, no: SlotNo) {
        let page = self.slots[no as usize].page;
        page.and_then(|page| self.by_page.remove(&page));
        self.update(no, |slot| {
            slot.is_doomed = true;
            slot.page = None;
        });
    }

    /// Returns the number of slots in each state.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of slots.
    pub(super) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns whether all slots are free.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.free == self.slots.len() as u64
    }

    /// Replaces the partition by an empty one.
    pub(super) fn renew(&mut self, other: Partition) {
        assert!(self.is_empty(), "a partition with pages in its slots gets another shape");
        *self = other;
    }

    /// Returns the number of dirty slots.
    pub(super) fn dirty_count(&self) -> u64 {
        self.counts.dirty
    }

    /// Returns whether more than a twentieth of the slots is free. While this is so, the cache takes every
    /// clean page that leaves the pool (Do 2012, section 3.3.1, "aggressive filling").
    pub(super) fn is_filling(&self) -> bool {
        self.free.len() * 20 > self.slots.len()
    }

    /// Returns whether no thread reads, writes or cleans a slot.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_free || slot.is_idle())
    }

    /// Returns the pages that are completely written to a valid slot.
    pub(super) fn pages(&self) -> Vec<PageId> {
        let is_whole = |id: &PageId| self.version(*id).is_some();
        self.by_page.keys().copied().filter(is_whole).collect()
    }

    /// Returns the version of the page in a valid slot that is fully written, and whether the data files may
    /// lack it.
    pub(super) fn version(&self, id: PageId) -> Option<(Lsn, bool)> {
        let (_, slot) = self.found(id).filter(|(_, slot)| slot.is_written && !slot.is_invalid)?;
        Some((slot.lsn, slot.is_dirty))
    }

    /// Returns the pages that the data files may lack.
    pub(super) fn dirty_pages(&self) -> Vec<PageId> {
        let is_dirty = |no: &SlotNo| self.slots[*no as usize].is_dirty;
        self.by_page.iter().filter(|(_, no)| is_dirty(no)).map(|(id, _)| *id).collect()
    }
}
