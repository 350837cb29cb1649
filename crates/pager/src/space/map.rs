//! The allocation of one space in memory: the free extents, the owners of the other extents, and the pages in
//! use.
//!
//! Invariants
//! 1. Every extent is free or has one owner. A page that was allocated is not allocated again until it is
//!    freed.
//! 2. The map differs from the descriptor pages only by the running mini-transactions. Their allocations are
//!    in the map already. The pages that they free are still in use in the map until the freeing is in the
//!    log.
//! 3. Free extents are used lowest first, so that the end of the space can be cut off. Released extents are
//!    free extents for which the layout keeps no space. The map only counts them, and they may be any of the
//!    free extents.
//! 4. A free extent may be taken only if its disk blocks are allocated. The blocks of a *hollow* extent may
//!    have been returned to the device, so they are reserved first. An extent that is *out* is being trimmed
//!    and cannot be taken.
//!
//! This module does not know pages, files or the log.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::freed::Freed;
use crate::base::ids::{PageId, PageRange};
use crate::base::space_format::{Bits, Entry, ExtentNo, Geometry, OWNER_SYSTEM};
use crate::home::layout::Trimmed;

/// Extents that were removed from the end of a space.
pub(crate) struct CutOff {
    entries: Vec<Entry>,
    hollow: BTreeSet<ExtentNo>,
    freed: BTreeSet<ExtentNo>,
}

impl CutOff {
    /// Shortens a cut to the extents before `end`, because the extents from `end` on are cut off for ever.
    /// `first` is the first extent of the cut.
    pub(crate) fn shorten(&mut self, first: ExtentNo, end: ExtentNo) {
        self.entries.truncate((end - first) as usize);
        self.hollow.split_off(&end);
        self.freed.split_off(&end);
    }
}

#[derive(Default)]
struct Owner {
    all: BTreeSet<ExtentNo>,
    /// The extents of the owner that have a free page.
    partial: BTreeSet<ExtentNo>,
}

/// The map of a space.
pub(crate) struct Map {
    geometry: Geometry,
    extents: Vec<Entry>,
    /// The free extents, except hollow ones and those that are out.
    free: BTreeSet<ExtentNo>,
    /// The number of free extents that are not handed out, because the layout keeps no space for them.
    released: u32,
    hollow: BTreeSet<ExtentNo>,
    out: BTreeSet<ExtentNo>,
    /// The number of released extents among those that are out.
    out_released: u32,
    /// The free extents that have space to return to the device.
    freed: Freed,
    owners: HashMap<u32, Owner>,
}

impl Map {
    pub(crate) fn new(geometry: Geometry) -> Map {
        Map {
            geometry,
            extents: Vec::new(),
            free: BTreeSet::new(),
            released: 0,
            hollow: BTreeSet::new(),
            out: BTreeSet::new(),
            out_released: 0,
            freed: Freed::default(),
            owners: HashMap::new(),
        }
    }

    /// Adds the next extent.
    pub(crate) fn push(&mut self, entry: Entry) {
        let extent = self.extents.len() as ExtentNo;
        self.extents.push(entry);
        if entry.owner == 0 {
            self.free.insert(extent);
            return;
        }
        self.owners.entry(entry.owner).or_default().all.insert(extent);
        self.note_room(extent);
    }

    /// Returns whether this owner has pages.
    pub(crate) fn has_owner(&self, owner: u32) -> bool {
        self.owners.contains_key(&owner)
    }

    /// Returns whether only the pager itself has pages.
    pub(crate) fn has_no_owner(&self) -> bool {
        self.owners.keys().all(|owner| *owner == OWNER_SYSTEM)
    }

    pub(crate) fn extent_count(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Returns the number of free extents that can be handed out.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32 - self.released
    }

    /// Returns the number of free extents that can be handed out only after the layout has space for them.
    pub(crate) fn released_count(&self) -> u32 {
        self.released
    }

    /// Releases `count` more free extents, so that they are not handed out.
    pub(crate) fn release(&mut self, count: u32) {
        assert!(count <= self.free_count(), "only free extents are released");
        self.released += count;
    }

    /// Records that the layout has space for `count` released extents again.
    pub(crate) fn regain(&mut self, count: u32) {
        self.released = self.released.saturating_sub(count);
    }

    pub(crate) fn entry(&self, extent: ExtentNo) -> Option<&Entry> {
        self.extents.get(extent as usize)
    }

    /// Adds the extent to its owner's partial extents, or removes it from them.
    fn note_room(&mut self, extent: ExtentNo) {
        let entry = self.extents[extent as usize];
        let Some(owner) = self.owners.get_mut(&entry.owner) else { return };
        if entry.used.count() < self.geometry.extent_pages {
            owner.partial.insert(extent);
        } else {
            owner.partial.remove(&extent);
        }
    }

    /// Reserves a page for `owner`, if possible the next free page after `near` in the same extent.
    pub(crate) fn take_page(&mut self, owner: u32, near: Option<PageId>) -> Option<PageId> {
        let limit = self.geometry.extent_pages;
        let nearby = near.and_then(|near| {
            let extent = self.geometry.extent_of(near);
            let entry = self.entry(extent).filter(|entry| entry.owner == owner)?;
            let from = self.geometry.within(near);
            let within = entry.used.clear_from(from, limit).or_else(|| entry.used.clear_from(0, from))?;
            Some((extent, within))
        });
        let (extent, within) = nearby.or_else(|| self.any_page_of(owner))?;
        self.extents[extent as usize].used.set(within);
        self.note_room(extent);
        Some(self.geometry.page_of(extent, within))
    }

    fn any_page_of(&mut self, owner: u32) -> Option<(ExtentNo, u32)> {
        let partial = self.owners.get(&owner).and_then(|owner| owner.partial.first().copied());
        let extent = partial.or_else(|| self.take_extent(owner))?;
        let within = self.extents[extent as usize].used.clear_from(0, self.geometry.extent_pages)?;
        Some((extent, within))
    }

    /// Gives the lowest free extent to the owner. None of its pages is allocated yet.
    fn take_extent(&mut self, owner: u32) -> Option<ExtentNo> {
        if self.free_count() == 0 {
            return None;
        }
        let extent = self.free.pop_first()?;
        self.freed.taken(extent);
        self.extents[extent as usize].owner = owner;
        self.owners.entry(owner).or_default().all.insert(extent);
        Some(extent)
    }

    /// Reserves all pages of a free extent.
    pub(crate) fn take_whole(&mut self, owner: u32) -> Option<PageRange> {
        let extent = self.take_extent(owner)?;
        self.extents[extent as usize].used = Bits::first(self.geometry.extent_pages);
        self.note_room(extent);
        Some(self.geometry.pages_of(extent))
    }

    /// Returns pages of an extent to the map. If no page of the extent is in use then, the extent is free.
    ///
    /// # Panics
    /// Panics if one of the pages is not in use.
    pub(crate) fn give_back(&mut self, extent: ExtentNo, pages: &Bits) {
        let entry = &mut self.extents[extent as usize];
        assert!(pages.minus(&entry.used).count() == 0, "extent {extent}: a page is freed that is not in use");
        entry.used = entry.used.minus(pages);
        let owner = entry.owner;
        if entry.used.count() > 0 {
            self.note_room(extent);
            return;
        }
        entry.owner = 0;
        self.free.insert(extent);
        self.freed.freed(extent);
        if let Some(state) = self.owners.get_mut(&owner) {
            state.all.remove(&extent);
            state.partial.remove(&extent);
            if state.all.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }

    /// Returns the extents of an owner, lowest first.
    pub(crate) fn extents_of(&self, owner: u32) -> Vec<ExtentNo> {
        self.owners.get(&owner).map_or_else(Vec::new, |owner| owner.all.iter().copied().collect())
    }

    /// Returns the number of extents at the end of the space that can be cut off. These are free extents, and
    /// the first extent of a group if all extents after it are free (but not of the first group).
    pub(crate) fn free_tail(&self) -> u32 {
        self.tail(|_| true)
    }

    /// Does the same as `free_tail`, but ends at the first extent that has space to return to the device.
    pub(crate) fn trimmed_tail(&self) -> u32 {
        self.tail(|extent| !self.freed.has(extent))
    }

    fn tail(&self, can_go: impl Fn(ExtentNo) -> bool) -> u32 {
        let is_spare = |extent: &ExtentNo| {
            let entry = &self.extents[*extent as usize];
            let is_descriptor = *extent > 0 && extent.is_multiple_of(self.geometry.group_extents);
            let is_free = entry.owner == 0 && !self.out.contains(extent);
            (is_free || is_descriptor && entry.owner == OWNER_SYSTEM) && can_go(*extent)
        };
        (0..self.extent_count()).rev().take_while(is_spare).count() as u32
    }

    /// Removes the last `count` extents. [`Map::free_tail`] must allow this.
    pub(crate) fn truncate(&mut self, count: u32) -> CutOff {
        assert!(count <= self.free_tail(), "only free extents are cut off");
        let keep = self.extent_count() - count;
        let entries = self.extents.split_off(keep as usize);
        let free = self.free.split_off(&keep);
        self.regain(free.len() as u32);
        if let Some(system) = self.owners.get_mut(&OWNER_SYSTEM) {
            system.all.split_off(&keep);
            system.partial.split_off(&keep);
        }
        CutOff { entries, hollow: self.hollow.split_off(&keep), freed: self.freed.cut(keep) }
    }

    /// Adds the extents of a cut that was cancelled.
    pub(crate) fn restore(&mut self, cut: CutOff) {
        let before = self.free.len();
        cut.entries.into_iter().for_each(|entry| self.push(entry));
        self.free.retain(|extent| !cut.hollow.contains(extent));
        self.hollow.extend(cut.hollow);
        // The layout may have given up their space when the cut was planned.
        self.release((self.free.len() - before) as u32);
        self.freed.restore(cut.freed);
    }

    /// Returns the number of pages that an owner without partial extents can still get.
    pub(crate) fn free_pages(&self) -> u64 {
        u64::from(self.free_count()) * u64::from(self.geometry.extent_pages)
    }

    /// Returns the number of allocated pages.
    pub(crate) fn used_pages(&self) -> u64 {
        self.extents.iter().map(|entry| u64::from(entry.used.count())).sum()
    }
}

/// Methods for the trimmer.
impl Map {
    /// Returns the free extents that have space to return to the device.
    pub(crate) fn freed(&mut self) -> &mut Freed {
        &mut self.freed
    }

    /// Is called at a start. Enters the free extents that may occupy space.
    pub(crate) fn note_holding(&mut self, holds: impl Fn(ExtentNo) -> bool) {
        let Map { free, freed, .. } = self;
        free.iter().filter(|extent| holds(**extent)).for_each(|extent| freed.freed(*extent));
    }

    /// Takes out at most `most` neighbouring extents that are due for trimming, released ones first. At least
    /// `keep` other extents stay available.
    pub(crate) fn take_out(&mut self, most: u32, keep: u32) -> Option<Range<ExtentNo>> {
        let spare = self.released + self.free_count().saturating_sub(keep);
        let run = self.freed.take_due(most.min(spare))?;
        let released = self.released.min(run.len() as u32);
        self.released -= released;
        self.out_released += released;
        for extent in run.clone() {
            let was_free = self.free.remove(&extent);
            assert!(was_free, "extent {extent} is to be trimmed and is not free");
            self.out.insert(extent);
        }
        Some(run)
    }

    /// Puts extents back after the trimmer has processed them.
    pub(crate) fn put_back(&mut self, run: Range<ExtentNo>, how: Trimmed) {
        for extent in run.clone() {
            let was_out = self.out.remove(&extent);
            assert!(was_out, "extent {extent} comes back and was not out");
        }
        let released = self.out_released.min(run.len() as u32);
        self.out_released -= released;
        if how == Trimmed::Hollow {
            self.hollow.extend(run);
            return;
        }
        self.free.extend(run.clone());
        self.release(released);
        if how == Trimmed::NotNow {
            self.freed.not_now(run);
        }
    }

    /// Marks all free extents as hollow, because it is unknown whether they have blocks.
    pub(crate) fn hollow_out(&mut self) {
        self.hollow.append(&mut self.free);
    }

    /// Returns the first run of neighbouring hollow extents from `first` on, at most `most`.
    pub(crate) fn hollow_run(&self, first: ExtentNo, most: u32) -> Option<Range<ExtentNo>> {
        let start = self.hollow.range(first..).next().copied()?;
        let end = (start..start.saturating_add(most)).find(|extent| !self.hollow.contains(extent));
        Some(start..end.unwrap_or(start.saturating_add(most)))
    }

    /// Records that blocks of hollow extents are reserved.
    pub(crate) fn fill(&mut self, run: Range<ExtentNo>) {
        for extent in run {
            let was_hollow = self.hollow.remove(&extent);
            assert!(was_hollow, "extent {extent} is filled and was not hollow");
            self.free.insert(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::ids::SpaceId;
    use crate::base::lsn::Lsn;

    #[derive(Debug, Clone)]
    enum Step {
        Page(u32, bool),
        Whole(u32),
        Free(usize),
        Drop(u32),
        Grow(u32),
        Release(u32),
        Regain(u32),
        Cut(bool),
        Checkpoint(bool),
        TakeOut(u32),
        PutBack(Trimmed),
        Fill(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (16_u32..20, any::<bool>()).prop_map(|(owner, near)| Step::Page(owner, near)),
            1 => (16_u32..20).prop_map(Step::Whole),
            6 => any::<usize>().prop_map(Step::Free),
            1 => (16_u32..20).prop_map(Step::Drop),
            1 => (1_u32..3).prop_map(Step::Grow),
            1 => (1_u32..4).prop_map(Step::Release),
            1 => (1_u32..4).prop_map(Step::Regain),
            1 => any::<bool>().prop_map(Step::Cut),
            3 => any::<bool>().prop_map(Step::Checkpoint),
            2 => (1_u32..4).prop_map(Step::TakeOut),
            2 => prop_oneof![Just(Trimmed::Hollow), Just(Trimmed::Whole), Just(Trimmed::NotNow)]
                .prop_map(Step::PutBack),
            1 => (1_u32..4).prop_map(Step::Fill),
        ]
    }

    fn check(map: &Map, model: &BTreeMap<PageId, u32>) {
        let geometry = map.geometry;
        let mut used = 0;
        assert_eq!(map.free_count() + map.released_count(), map.free.len() as u32);
        for extent in 0..map.extent_count() {
            let entry = map.extents[extent as usize];
            let ways = [&map.free, &map.hollow, &map.out];
            let found = ways.into_iter().filter(|extents| extents.contains(&extent)).count();
            assert_eq!(found, usize::from(entry.owner == 0), "extent {extent} is free in one way");
            for at in entry.used.iter() {
                assert_eq!(model.get(&geometry.page_of(extent, at)), Some(&entry.owner));
                used += 1;
            }
            assert_eq!(map.extents_of(entry.owner).contains(&extent), entry.owner != 0);
        }
        assert_eq!(used, model.len());
        let last = [&map.free, &map.hollow, &map.out].into_iter().filter_map(|extents| extents.last()).max();
        assert!(last.is_none_or(|last| *last < map.extent_count()));
    }

    /// The steps of the trimmer.
    fn trim(map: &mut Map, out: &mut Vec<Range<ExtentNo>>, now: &mut u64, step: &Step) {
        match step {
            Step::Checkpoint(passes) => {
                *now += 1;
                map.freed().note(|| Lsn::new(*now));
                map.freed().pass(Lsn::new(if *passes { *now } else { 0 }));
            }
            Step::TakeOut(most) => {
                let before = map.free_count();
                if let Some(run) = map.take_out(*most, 1) {
                    assert!(run.len() as u32 <= *most && map.free_count() >= before.min(1));
                    out.push(run);
                }
            }
            Step::PutBack(how) => out.pop().into_iter().for_each(|run| map.put_back(run, *how)),
            Step::Fill(most) => {
                let run = map.hollow_run(0, *most);
                run.into_iter().for_each(|run| map.fill(run));
            }
            _ => {}
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn the_map_agrees_with_a_model(steps in proptest::collection::vec(step(), 1..400)) {
            let geometry = Geometry::of(SpaceId::DATA, 4096);
            let mut map = Map::new(geometry);
            let mut model: BTreeMap<PageId, u32> = BTreeMap::new();
            let (mut out, mut now) = (Vec::new(), 0);
            for step in steps {
                trim(&mut map, &mut out, &mut now, &step);
                match step {
                    Step::Page(owner, near) => {
                        let last = model.iter().filter(|(_, of)| **of == owner).map(|(id, _)| *id).next_back();
                        if let Some(id) = map.take_page(owner, last.filter(|_| near)) {
                            prop_assert!(model.insert(id, owner).is_none(), "{id} given out twice");
                        } else {
                            prop_assert_eq!(map.free_count(), 0);
                        }
                    }
                    Step::Whole(owner) => {
                        for id in map.take_whole(owner).into_iter().flat_map(PageRange::pages) {
                            prop_assert!(model.insert(id, owner).is_none());
                        }
                    }
                    Step::Free(at) if !model.is_empty() => {
                        let id = *model.keys().nth(at % model.len()).unwrap();
                        let mut pages = Bits::default();
                        pages.set(geometry.within(id));
                        map.give_back(geometry.extent_of(id), &pages);
                        model.remove(&id);
                    }
                    Step::Drop(owner) => {
                        for extent in map.extents_of(owner) {
                            let used = map.entry(extent).unwrap().used;
                            map.give_back(extent, &used);
                        }
                        model.retain(|_, of| *of != owner);
                    }
                    Step::Grow(count) => (0..count).for_each(|_| map.push(Entry::default())),
                    Step::Release(count) => map.release(count.min(map.free_count())),
                    Step::Regain(count) => map.regain(count),
                    Step::Cut(is_taken_back) => {
                        let cut = map.truncate(map.free_tail());
                        if is_taken_back {
                            map.restore(cut);
                        }
                    }
                    _ => {}
                }
                check(&map, &model);
            }
        }
    }
}
