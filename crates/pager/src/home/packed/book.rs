//! The book of a packed space is a table in memory. It says where every page is, and which version of the
//! page a crash would find.
//!
//! Each write of a page goes to a new slot. The earlier slot stays live until a record in the durable log
//! names the new one. Between the two moments the page is *held*, in the state `pending` or `noting`:
//!
//! ```text
//!             written              begin_settle             settled
//!    stable ----------> pending ------------------> noting ----------> stable (the slot before dies)
//!                        ^   | written: the pending    | unsettle
//!                        |   | slot dies               |
//!                        +---+<------------------------+
//! ```
//!
//! Invariants
//! 1. A slot dies only when three things do not name it: the map, the state that a crash would find, and the
//!    graves (invariant 3).
//! 2. `durable` has the places that a crash would find for `pending` and `noting` pages, and for no other
//!    pages. For all other pages the map has this place.
//! 3. A discarded page leaves the map and `durable`. Its slots are in a *grave* until the log record of the
//!    discard is durable. A slot that no log record ever named dies at once.
//! 4. A map page is dirty if the place that a crash would find for one of its pages has changed since the
//!    last checkpoint.
//!
//! This module does not know devices, the log or threads. The caller holds a lock.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::sync::Arc;

use varve_device::{planted, reached};

use super::extents::{ExtentNo, Extents, Filling, NoExtent};
use super::format::{MapPage, PLACES, map_page_of};
use super::note::Said;
use super::page_map::PageMap;
use super::unit_run::UnitRun;
use crate::base::ids::PageNo;
use crate::base::lsn::{LSN_MAX, Lsn};

/// A held page.
#[derive(Debug, Clone, Copy)]
struct HeldPage {
    /// The LSN of the page's image, or 0 if the page was only moved.
    lsn: Lsn,
    place: UnitRun,
    is_moved: bool,
}

/// The book. The file header describes it.
pub(crate) struct Book {
    map: Arc<PageMap>,
    /// The number of pages in the map.
    mapped_count: u32,
    extents: Extents,
    /// The extent into which pages are written now.
    filling: Option<Filling>,
    /// Pages that are written, and named in no log record yet.
    pending: BTreeMap<PageNo, HeldPage>,
    /// Pages whose log record is being written.
    noting: BTreeMap<PageNo, HeldPage>,
    /// The places that a crash would find, for held pages.
    durable: BTreeMap<PageNo, Option<UnitRun>>,
    graves: BTreeMap<Lsn, Vec<UnitRun>>,
    dirty: BTreeSet<u32>,
}

impl Book {
    /// Returns the book of a space whose pages are where `map` says. `dirty` has the map pages that differ
    /// from the last checkpoint.
    pub(crate) fn new(map: Arc<PageMap>, extents: Extents, dirty: BTreeSet<u32>) -> Book {
        let mapped_count = u32::try_from(map.each().count()).unwrap_or(u32::MAX);
        Book {
            map,
            mapped_count,
            extents,
            filling: None,
            pending: BTreeMap::new(),
            noting: BTreeMap::new(),
            durable: BTreeMap::new(),
            graves: BTreeMap::new(),
            dirty,
        }
    }

    /// Returns the extents.
    pub(crate) fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Returns the extents, for callers that take slots that no page names yet, or return free extents to the
    /// device.
    pub(crate) fn extents_mut(&mut self) -> &mut Extents {
        &mut self.extents
    }

    /// Returns the pages that the map has in an extent, in the order of their slots. Other live slots of the
    /// extent are not in the map, and die when the next places are logged.
    pub(crate) fn survivors(&self, no: ExtentNo) -> Vec<(PageNo, UnitRun)> {
        let here = |page: &PageNo| Some((*page, self.map.load(*page)?));
        let pages = self.extents.pages_of(no).iter().filter_map(here);
        let mut survivors: Vec<(PageNo, UnitRun)> =
            pages.filter(|(_, place)| self.extents.extent_of(*place) == no).collect();
        survivors.sort_unstable_by_key(|(_, place)| place.address());
        // A page that was written twice into the extent is in the list twice.
        survivors.dedup();
        survivors
    }

    /// Takes a slot for a page that is about to be written. `None` means that the next extent must be begun
    /// first.
    pub(crate) fn take(&mut self, no: PageNo, units: u32) -> Option<UnitRun> {
        self.extents.take(self.filling.as_mut()?, no, units)
    }

    /// Begins the next extent, unless a slot of `units` units fits into the extent that is being filled.
    pub(crate) fn begin_for(
        &mut self,
        units: u32,
        keep_free: u32,
        is_read: impl Fn(ExtentNo) -> bool,
    ) -> Result<(), NoExtent> {
        if self.has_room_for(units) {
            return Ok(());
        }
        // All writes into this extent failed, or their slots are dead by now.
        if let Some(dead) = self.filling.take_if(|filling| self.extents.is_dead(filling)) {
            self.extents.finish(dead);
        }
        let next = self.extents.begin(keep_free, is_read)?;
        self.go_on_in(next);
        Ok(())
    }

    /// Returns whether a slot of `units` units fits into the extent that is being filled.
    pub(crate) fn has_room_for(&self, units: u32) -> bool {
        self.filling.as_ref().is_some_and(|filling| self.extents.left_units(filling) >= units)
    }

    /// Makes this the extent into which pages are written from now on.
    pub(crate) fn go_on_in(&mut self, next: Filling) {
        if let Some(full) = self.filling.replace(next) {
            self.extents.finish(full);
        }
    }

    /// Enters the page's new slot. `lsn` is the LSN of its image. For an image without an LSN it is the end
    /// of the log when the image was made.
    pub(crate) fn written(&mut self, no: PageNo, lsn: Lsn, place: UnitRun) {
        self.extents.landed(place);
        let old = self.map.swap(no, Some(place));
        self.mapped_count += u32::from(old.is_none());
        self.hold(no, old);
        let replaced = self.pending.insert(no, HeldPage { lsn, place, is_moved: false });
        if let Some(replaced) = replaced {
            // No log record ever named the replaced slot.
            self.extents.die(replaced.place);
        }
    }

    /// Releases a slot whose write failed.
    pub(crate) fn abandoned(&mut self, place: UnitRun) {
        self.extents.landed(place);
        self.extents.die(place);
        if let Some(filling) = &mut self.filling {
            self.extents.untake(filling, place);
        }
    }

    /// Enters that a stored page was copied from one slot to another. Returns false if the page has another
    /// slot by now. Then the copy is released.
    pub(crate) fn moved(&mut self, no: PageNo, from: UnitRun, to: UnitRun) -> bool {
        if self.map.load(no) != Some(from) && !planted("packed: reclamation ignores a newer slot") {
            self.abandoned(to);
            return false;
        }
        self.extents.landed(to);
        let old = self.map.swap(no, Some(to));
        self.mapped_count += u32::from(old.is_none());
        self.hold(no, old);
        if planted("packed: what was moved gives its slot back without a note")
            && let Some(found) = self.durable.get_mut(&no).and_then(Option::take)
        {
            self.extents.die(found);
        }
        match self.pending.entry(no) {
            Entry::Occupied(mut held) => {
                // No log record has named the first slot, so it is as if the page had been written to the
                // second slot.
                let first = std::mem::replace(&mut held.get_mut().place, to);
                self.extents.die(first);
            }
            Entry::Vacant(vacant) => {
                vacant.insert(HeldPage { lsn: Lsn::ZERO, place: to, is_moved: true });
            }
        }
        true
    }

    /// Begins to hold a page: records the place that a crash would find until the new place is in the durable
    /// log.
    fn hold(&mut self, no: PageNo, old: Option<UnitRun>) {
        if let Entry::Vacant(vacant) = self.durable.entry(no) {
            let dies = old.filter(|_| planted("packed: an extent is free while its notes are not durable"));
            vacant.insert(if dies.is_some() { None } else { old });
            dies.into_iter().for_each(|old| self.extents.die(old));
        }
    }

    /// Returns the number of pages that are written, and named in no log record yet.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of held pages.
    pub(crate) fn held_count(&self) -> usize {
        self.durable.len()
    }

    /// Begins to settle all pending pages. Only one settle runs at a time.
    pub(crate) fn begin_settle(&mut self) {
        assert!(self.noting.is_empty(), "two settle at once");
        self.noting = std::mem::take(&mut self.pending);
    }

    /// Returns the places that the log record must name. Pages discarded meanwhile are left out.
    pub(crate) fn to_note(&self) -> Vec<Said> {
        let said = |(no, held): (&PageNo, &HeldPage)| {
            let said = Said { no: *no, lsn: held.lsn, place: held.place, is_moved: held.is_moved };
            match held.is_moved && planted("packed: a page that was moved is said to be new") {
                true => Said { lsn: Lsn::new(LSN_MAX), is_moved: false, ..said },
                false => said,
            }
        };
        self.noting.iter().map(said).collect()
    }

    /// Ends a settle, after its log record has become durable. Returns the pages that are stable now, with
    /// the LSNs of their images.
    pub(crate) fn settled(&mut self) -> Vec<(PageNo, Lsn)> {
        let mut stable = Vec::new();
        for (no, held) in std::mem::take(&mut self.noting) {
            let old = match self.pending.contains_key(&no) {
                true => self.durable.insert(no, Some(held.place)),
                false => self.durable.remove(&no),
            };
            old.flatten().into_iter().for_each(|old| self.extents.die(old));
            self.dirty.insert(map_page_of(no));
            if !held.is_moved {
                stable.push((no, held.lsn));
            }
        }
        stable
    }

    /// Cancels a settle, because the log had no space for the record. The pages are pending again.
    pub(crate) fn unsettle(&mut self) {
        for (no, held) in std::mem::take(&mut self.noting) {
            match self.pending.entry(no) {
                Entry::Vacant(vacant) => drop(vacant.insert(held)),
                Entry::Occupied(mut newer) => {
                    let newer = newer.get_mut();
                    if newer.is_moved {
                        // The moved copy has this image, and the log must still name it.
                        (newer.lsn, newer.is_moved) = (held.lsn, held.is_moved);
                    }
                    self.extents.die(held.place);
                }
            }
        }
    }

    /// Discards pages. Their content is not needed any more once the log is durable up to `after`.
    pub(crate) fn discard(&mut self, pages: Range<u32>, after: Lsn) {
        let mut grave = Vec::new();
        for no in pages.map(PageNo) {
            let Some(last) = self.map.swap(no, None) else { continue };
            self.mapped_count -= 1;
            self.dirty.insert(map_page_of(no));
            let pending = self.pending.remove(&no);
            let noting = self.noting.remove(&no);
            let found = match self.durable.remove(&no) {
                Some(found) => found,
                None => Some(last),
            };
            pending.into_iter().for_each(|pending| self.extents.die(pending.place));
            // The log record of this place may be in the log already, before the record of the discard.
            grave.extend(noting.map(|noting| noting.place));
            grave.extend(found);
        }
        if planted("packed: a discard frees its slots at once") {
            grave.drain(..).for_each(|place| self.extents.die(place));
        }
        if !grave.is_empty() {
            self.graves.entry(after).or_default().append(&mut grave);
        }
    }

    /// Makes the slots in graves of discards die if they are due. The log is durable up to `durable`, so the
    /// discards up to this LSN are final.
    pub(crate) fn bury(&mut self, durable: Lsn) {
        while let Some(entry) = self.graves.first_entry().filter(|entry| *entry.key() <= durable) {
            reached("packed: grave buried");
            entry.remove().into_iter().for_each(|place| self.extents.die(place));
        }
    }

    /// Returns the number of pages that have a place.
    pub(crate) fn mapped_count(&self) -> u32 {
        self.mapped_count
    }

    /// Returns the LSN up to which the log must be durable so that all discards so far are final.
    pub(crate) fn last_grave(&self) -> Option<Lsn> {
        self.graves.last_key_value().map(|(after, _)| *after)
    }

    /// Returns whether there are live slots that the map does not name.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.durable.is_empty() || !self.graves.is_empty() || self.extents.has_flights()
    }

    /// Returns the place at which a crash would find the page.
    pub(crate) fn found_by_crash(&self, no: PageNo) -> Option<UnitRun> {
        self.durable.get(&no).copied().unwrap_or_else(|| self.map.load(no))
    }

    /// Returns the map pages that differ from the last checkpoint.
    pub(crate) fn dirty(&self) -> &BTreeSet<u32> {
        &self.dirty
    }

    /// Returns the map pages that checkpoint `number` has to write, and the number of map pages after it.
    /// Before it, there were `before` map pages. The returned map pages are no longer dirty.
    pub(crate) fn copy(&mut self, number: u64, before: u32) -> (Vec<MapPage>, u32) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let map_pages = dirty.last().map_or(0, |last| last + 1).max(before);
        dirty.extend(before..map_pages);
        (dirty.into_iter().map(|page| self.map_page(page, number)).collect(), map_pages)
    }

    fn map_page(&self, number: u32, checkpoint: u64) -> MapPage {
        let first = u64::from(number) * u64::from(PLACES);
        let place = |no| {
            let no = PageNo(u32::try_from(no).ok()?);
            match planted("packed: the map checkpoint takes held entries") {
                true => self.map.load(no),
                false => self.found_by_crash(no),
            }
        };
        MapPage { number, checkpoint, places: (first..first + u64::from(PLACES)).map(place).collect() }
    }

    /// Marks map pages as dirty again, because their checkpoint failed.
    pub(crate) fn give_back_dirty(&mut self, pages: BTreeSet<u32>) {
        self.dirty.extend(pages);
    }
}
