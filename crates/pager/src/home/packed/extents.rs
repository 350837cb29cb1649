//! The extents of a packed file. For each extent this module knows how many bytes are live and whether it is
//! free. This module also assigns the next slot for a page. A slot is *live* while some page may be read from
//! it.
//!
//! ```text
//!             refilled          begin              finish               all survivors moved
//!    hollow ----------> free ----------> filling ----------> full ---------------------------> emptied
//!      ^   punched        | ^                                 | nothing lives                    | nothing lives
//!      +------------------+ +---------------------------------+----------------------------------+
//! ```
//!
//! A *hollow* extent is free, but its blocks may have been returned to the device. So blocks are reserved
//! again before the extent is used. A start does not know which free extents have blocks. So it treats all of
//! them as hollow, and punches them again.
//!
//! Invariants
//! 1. A slot becomes live in `take`, and dies once. An extent is free (or hollow) when it has no live slot,
//!    no thread writes into it, and no thread punches it.
//! 2. Slots are taken in the order of their addresses, and never cross the end of an extent. The first 4096
//!    bytes of extent 0 are the file's header. No slot has them, and they are never punched.
//! 3. An extent with a page write in flight is not chosen for reclamation, because that page can't be moved
//!    before it is written.
//!
//! This module does not know devices, where a page is (`page_map.rs`), or why a slot is live (`book.rs`).

use std::collections::BTreeSet;
use std::ops::Range;

use super::unit_run::{UNIT_BYTES, UnitRun};
use crate::base::ids::PageNo;

/// Units of the file's header block, at the beginning of extent 0.
pub(crate) const HEADER_UNITS: u32 = 4096 / UNIT_BYTES as u32;

/// Number of an extent within its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExtentNo(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    Filling,
    Full,
    /// All pages that the map had in the extent were moved. The extent becomes free when the old slots have
    /// died.
    Emptied,
    /// A slot in the extent cannot be read, so the extent is not emptied. If the slot is not damaged, this is
    /// tried again later.
    Stuck {
        is_damaged: bool,
    },
}

struct Extent {
    kind: Kind,
    live_units: u32,
    /// Number of slots whose write has not returned.
    in_flight: u32,
    /// The number of units that had been written into the file when the extent was begun. An older extent has
    /// a smaller number.
    begun_at: u64,
    /// The pages that were written into the extent, in the order of their slots. Most of them may be in other
    /// extents by now.
    pages: Vec<PageNo>,
}

impl Extent {
    fn new() -> Extent {
        Extent { kind: Kind::Free, live_units: 0, in_flight: 0, begun_at: 0, pages: Vec::new() }
    }
}

/// An extent that is being filled.
#[derive(Debug)]
pub(crate) struct Filling {
    extent: ExtentNo,
    used_units: u32,
}

impl Filling {
    /// Returns the extent.
    pub(crate) fn extent(&self) -> ExtentNo {
        self.extent
    }
}

/// Why no extent can be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoExtent {
    /// No free extents are left, except those that must be kept free.
    NoneFree,
    /// All free extents are still being read by threads that found a slot before it died.
    AllRead,
}

/// Places that are impossible, or contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPlaces {
    #[error("page {} is said to lie at byte {}, outside of any extent of the file", .no.0, .place.offset_bytes())]
    Outside { no: PageNo, place: UnitRun },
    #[error("pages {} and {} are both said to lie at byte {}", .no.0, .other.0, .place.offset_bytes())]
    Overlap { no: PageNo, other: PageNo, place: UnitRun },
}

/// All extents of a file.
pub(crate) struct Extents {
    extent_units: u32,
    list: Vec<Extent>,
    free: BTreeSet<u32>,
    hollow: BTreeSet<u32>,
    /// The hollow extents that may still have their blocks.
    unsure: BTreeSet<u32>,
    emptied_count: u32,
    stuck_count: u32,
    /// The number of extents that are taken out to be punched. Until they are given back, they count as
    /// extents without blocks.
    taken_count: u32,
    live_units: u64,
    written_units: u64,
}

impl Extents {
    /// Returns a file without extents. `extent_bytes` is a power of two that holds several of the largest
    /// pages.
    pub(crate) fn new(extent_bytes: usize) -> Extents {
        let extent_units = u32::try_from(extent_bytes / UNIT_BYTES).expect("extents are shorter than 2 TiB");
        assert!(extent_units.is_power_of_two() && extent_units > HEADER_UNITS);
        Extents {
            extent_units,
            list: Vec::new(),
            free: BTreeSet::new(),
            hollow: BTreeSet::new(),
            unsure: BTreeSet::new(),
            emptied_count: 0,
            stuck_count: 0,
            taken_count: 0,
            live_units: 0,
            written_units: 0,
        }
    }

    /// Returns the extents of a file with `count` extents, in which the only live slots are those in `live`.
    pub(crate) fn recovered(
        extent_bytes: usize,
        count: u32,
        live: impl Iterator<Item = (PageNo, UnitRun)>,
    ) -> Result<Extents, BadPlaces> {
        let mut extents = Extents::new(extent_bytes);
        extents.lengthen(count);
        let mut slots: Vec<Vec<(UnitRun, PageNo)>> = vec![Vec::new(); count as usize];
        for (no, place) in live {
            let home = extents.holder(place).ok_or(BadPlaces::Outside { no, place })?;
            slots[home.0 as usize].push((place, no));
        }
        for (at, mut slots) in slots.into_iter().enumerate().filter(|(_, slots)| !slots.is_empty()) {
            slots.sort_unstable_by_key(|(place, _)| place.address());
            extents.refill(ExtentNo(at as u32), &slots)?;
        }
        extents.hollow = std::mem::take(&mut extents.free);
        extents.unsure.clone_from(&extents.hollow);
        Ok(extents)
    }

    fn refill(&mut self, no: ExtentNo, slots: &[(UnitRun, PageNo)]) -> Result<(), BadPlaces> {
        if let Some([(_, other), (place, no)]) =
            slots.array_windows().find(|[(first, _), (next, _)]| first.end() > next.address())
        {
            return Err(BadPlaces::Overlap { no: *no, other: *other, place: *place });
        }
        let live_units: u32 = slots.iter().map(|(place, _)| place.units()).sum();
        self.free.remove(&no.0);
        self.live_units += u64::from(live_units);
        let extent = self.of_mut(no);
        extent.kind = Kind::Full;
        extent.live_units = live_units;
        extent.pages = slots.iter().map(|(_, page)| *page).collect();
        Ok(())
    }

    /// Returns the extent that contains the whole place. `None` means that no extent of the file does.
    fn holder(&self, place: UnitRun) -> Option<ExtentNo> {
        let (first, last) = (self.extent_of(place), (place.end() - 1) / u64::from(self.extent_units));
        let is_inside = u64::from(first.0) == last && (first.0 as usize) < self.list.len();
        (is_inside && place.address() >= u64::from(HEADER_UNITS)).then_some(first)
    }

    /// Returns the extent of a place.
    pub(crate) fn extent_of(&self, place: UnitRun) -> ExtentNo {
        ExtentNo(u32::try_from(place.address() / u64::from(self.extent_units)).unwrap_or(u32::MAX))
    }

    fn of(&self, no: ExtentNo) -> &Extent {
        &self.list[no.0 as usize]
    }

    fn of_mut(&mut self, no: ExtentNo) -> &mut Extent {
        &mut self.list[no.0 as usize]
    }

    /// Adds `count` extents, because the file has become longer.
    pub(crate) fn lengthen(&mut self, count: u32) {
        let before = self.count();
        self.list.extend((0..count).map(|_| Extent::new()));
        self.free.extend(before..before + count);
    }

    /// Returns the number of extents.
    pub(crate) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Returns the number of free extents that can be begun as they are.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of free extents whose blocks must be reserved first.
    pub(crate) fn hollow_count(&self) -> u32 {
        self.hollow.len() as u32
    }

    /// Returns the number of extents that become free when the log records of moved pages are durable.
    pub(crate) fn emptied_count(&self) -> u32 {
        self.emptied_count
    }

    /// Returns the number of extents that are not emptied, because a slot in them cannot be read.
    pub(crate) fn stuck_count(&self) -> u32 {
        self.stuck_count
    }

    /// Returns the number of extents that have pages, or can get pages now or after they were emptied.
    pub(crate) fn usable_count(&self) -> u32 {
        self.count() - self.hollow_count() - self.stuck_count - self.taken_count
    }

    /// Units of one extent.
    pub(crate) fn extent_units(&self) -> u32 {
        self.extent_units
    }

    /// Units of all extents.
    pub(crate) fn all_units(&self) -> u64 {
        self.list.len() as u64 * u64::from(self.extent_units)
    }

    /// Returns the number of units in live slots.
    pub(crate) fn live_units(&self) -> u64 {
        self.live_units
    }

    /// Returns whether a slot is being written.
    pub(crate) fn has_flights(&self) -> bool {
        self.list.iter().any(|extent| extent.in_flight > 0)
    }

    /// Begins to fill the first free extent that no thread reads. `keep_free` free extents are left for other
    /// purposes.
    pub(crate) fn begin(
        &mut self,
        keep_free: u32,
        is_read: impl Fn(ExtentNo) -> bool,
    ) -> Result<Filling, NoExtent> {
        if self.free_count() <= keep_free {
            return Err(NoExtent::NoneFree);
        }
        let first = self.free.iter().copied().find(|no| !is_read(ExtentNo(*no))).ok_or(NoExtent::AllRead)?;
        self.free.remove(&first);
        let written_units = self.written_units;
        let extent = self.of_mut(ExtentNo(first));
        assert!(extent.live_units == 0 && extent.pages.is_empty(), "extent {first} is free and not empty");
        extent.kind = Kind::Filling;
        extent.begun_at = written_units;
        let used_units = if first == 0 { HEADER_UNITS } else { 0 };
        Ok(Filling { extent: ExtentNo(first), used_units })
    }

    /// Returns the number of units that are left in an extent that is being filled.
    pub(crate) fn left_units(&self, filling: &Filling) -> u32 {
        self.extent_units - filling.used_units
    }

    /// Returns a slot for a stored page of `units` units, or `None` if the rest of the extent is too short.
    pub(crate) fn take(&mut self, filling: &mut Filling, no: PageNo, units: u32) -> Option<UnitRun> {
        if self.left_units(filling) < units {
            return None;
        }
        let first = u64::from(filling.extent.0) * u64::from(self.extent_units);
        let place = UnitRun::new(first + u64::from(filling.used_units), units)?;
        filling.used_units += units;
        self.live_units += u64::from(units);
        self.written_units += u64::from(units);
        let extent = self.of_mut(filling.extent);
        extent.live_units += units;
        extent.in_flight += 1;
        extent.pages.push(no);
        Some(place)
    }

    /// Gives back a slot that no page has. If it was the last slot that was taken, it can be taken again.
    pub(crate) fn untake(&mut self, filling: &mut Filling, place: UnitRun) {
        let first = u64::from(filling.extent.0) * u64::from(self.extent_units);
        if place.end() == first + u64::from(filling.used_units) && place.address() >= first {
            filling.used_units -= place.units();
            self.of_mut(filling.extent).pages.pop();
        }
    }

    /// Returns whether an extent that is being filled has no live slot and no write in flight.
    pub(crate) fn is_dead(&self, filling: &Filling) -> bool {
        let extent = self.of(filling.extent);
        extent.live_units == 0 && extent.in_flight == 0
    }

    /// Ends the filling of an extent.
    pub(crate) fn finish(&mut self, filling: Filling) {
        self.of_mut(filling.extent).kind = Kind::Full;
        self.free_if_dead(filling.extent);
    }

    /// Records that the write of a slot has returned.
    pub(crate) fn landed(&mut self, place: UnitRun) {
        let no = self.extent_of(place);
        let extent = self.of_mut(no);
        extent.in_flight = extent.in_flight.checked_sub(1).expect("a slot lands once");
    }

    /// Records that nothing names the slot any more.
    pub(crate) fn die(&mut self, place: UnitRun) {
        let no = self.extent_of(place);
        let extent = self.of_mut(no);
        extent.live_units = extent.live_units.checked_sub(place.units()).expect("a slot dies once");
        self.live_units -= u64::from(place.units());
        self.free_if_dead(no);
    }

    fn free_if_dead(&mut self, no: ExtentNo) {
        let extent = self.of_mut(no);
        if extent.live_units > 0 || matches!(extent.kind, Kind::Free | Kind::Filling) {
            return;
        }
        assert_eq!(extent.in_flight, 0, "extent {} dies under a write", no.0);
        let before = std::mem::replace(&mut extent.kind, Kind::Free);
        extent.pages = Vec::new();
        self.emptied_count -= u32::from(before == Kind::Emptied);
        self.stuck_count -= u32::from(matches!(before, Kind::Stuck { .. }));
        self.free.insert(no.0);
    }
}

/// Methods for reclamation.
impl Extents {
    /// Returns the full extents to empty, best first: at most `most` extents, each with at most
    /// `live_units_max` live units, until they have `wanted_units` live units together.
    ///
    /// The order is by cost and benefit (Rosenblum and Ousterhout 1992). The benefit is the space that
    /// becomes free, multiplied by the time for which it is likely to stay free. The cost is the bytes to
    /// read and write. Young extents are not chosen, because pages in them are still being overwritten.
    pub(crate) fn victims(&self, wanted_units: u64, live_units_max: u32, most: usize) -> Vec<ExtentNo> {
        let is_victim = |extent: &Extent| {
            extent.kind == Kind::Full && extent.in_flight == 0 && extent.live_units <= live_units_max
        };
        let mut candidates: Vec<(f64, u32)> = (0..)
            .zip(&self.list)
            .filter(|(_, extent)| is_victim(extent))
            .map(|(no, extent)| (self.worth(extent), no))
            .collect();
        let best_first = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if candidates.len() > most {
            candidates.select_nth_unstable_by(most, best_first);
            candidates.truncate(most);
        }
        candidates.sort_unstable_by(best_first);
        let mut sum = 0;
        let enough = candidates.iter().position(|(_, no)| {
            sum += u64::from(self.of(ExtentNo(*no)).live_units);
            sum >= wanted_units
        });
        candidates.truncate(enough.map_or(candidates.len(), |at| at + 1));
        candidates.into_iter().map(|(_, no)| ExtentNo(no)).collect()
    }

    fn worth(&self, extent: &Extent) -> f64 {
        let live = f64::from(extent.live_units) / f64::from(self.extent_units);
        let age_units = (self.written_units - extent.begun_at) as f64;
        (1.0 - live) * (age_units + 1.0) / (1.0 + live)
    }

    /// Is called when the page map names no slot in the extent any more. The extent becomes free when its old
    /// slots have died. Returns whether it is free already.
    pub(crate) fn emptied(&mut self, no: ExtentNo) -> bool {
        let extent = self.of_mut(no);
        let is_full = extent.kind == Kind::Full;
        if is_full {
            extent.kind = Kind::Emptied;
            self.emptied_count += 1;
        }
        is_full
    }

    /// Returns whether the extent becomes free when its old slots have died.
    #[cfg(test)]
    pub(crate) fn is_emptied(&self, no: ExtentNo) -> bool {
        self.of(no).kind == Kind::Emptied
    }

    /// Records that a slot in the extent cannot be read. The pages of the extent stay there until the next
    /// try, or for ever if the slot is damaged.
    pub(crate) fn stuck(&mut self, no: ExtentNo, is_damaged: bool) {
        match &mut self.of_mut(no).kind {
            kind @ Kind::Full => {
                *kind = Kind::Stuck { is_damaged };
                self.stuck_count += 1;
            }
            Kind::Stuck { is_damaged: before } => *before |= is_damaged,
            _ => {}
        }
    }

    /// Allows that extents in which a read failed are emptied again.
    pub(crate) fn try_stuck_again(&mut self) {
        if self.stuck_count == 0 {
            return;
        }
        let failed = |extent: &&mut Extent| extent.kind == Kind::Stuck { is_damaged: false };
        for extent in self.list.iter_mut().filter(failed) {
            extent.kind = Kind::Full;
            self.stuck_count -= 1;
        }
    }

    /// The pages written into an extent, in the order of their slots. A page may be in the list twice.
    pub(crate) fn pages_of(&self, no: ExtentNo) -> &[PageNo] {
        &self.of(no).pages
    }

    /// Returns the number of units that were written into the file since the extent was begun. Older
    /// survivors are likely to stay longer.
    pub(crate) fn age_units(&self, no: ExtentNo) -> u64 {
        self.written_units - self.of(no).begun_at
    }

    /// Sets the age of an extent to the age of the youngest page that was moved into it.
    pub(crate) fn set_age(&mut self, filling: &Filling, age_units: u64) {
        let begun_at = self.written_units.saturating_sub(age_units);
        self.of_mut(filling.extent).begun_at = begun_at;
    }
}

/// Methods for trim.
impl Extents {
    /// Returns the first hollow extent from `no` on.
    pub(crate) fn first_hollow(&self, no: u32) -> Option<ExtentNo> {
        self.hollow.range(no..).next().copied().map(ExtentNo)
    }

    /// Records that the blocks of a hollow extent are reserved.
    pub(crate) fn refilled(&mut self, no: ExtentNo) {
        assert!(self.hollow.remove(&no.0), "extent {} gets its room and was not hollow", no.0);
        self.unsure.remove(&no.0);
        self.free.insert(no.0);
    }

    /// Takes `least` to `most` neighbouring free extents from the end of the file, so that they can be
    /// punched. At least `keep_free` other free extents stay.
    pub(crate) fn take_run(
        &mut self,
        keep_free: u32,
        least: u32,
        most: u32,
        is_read: impl Fn(ExtentNo) -> bool,
    ) -> Option<Range<u32>> {
        let most = most.min(self.free_count().saturating_sub(keep_free));
        let free = self.free.iter().rev().copied().filter(|no| *no > 0 && !is_read(ExtentNo(*no)));
        let run = last_run(free, least, most)?;
        run.clone().for_each(|no| {
            self.free.remove(&no);
        });
        self.taken_count += run.len() as u32;
        Some(run)
    }

    /// Does the same as `take_run`, among the hollow extents that may still have their blocks. `keep` of all
    /// free extents are not considered. Each extent is taken only once.
    pub(crate) fn take_unsure(&mut self, keep: u32, least: u32, most: u32) -> Option<Range<u32>> {
        let spare = (self.free_count() + self.hollow_count()).saturating_sub(keep);
        let unsure = self.unsure.iter().rev().copied().filter(|no| *no > 0);
        let run = last_run(unsure, least, most.min(spare))?;
        run.clone().for_each(|no| {
            self.hollow.remove(&no);
            self.unsure.remove(&no);
        });
        self.taken_count += run.len() as u32;
        Some(run)
    }

    /// Gives back a run of extents after the attempt to punch them. `is_hollow` says whether they may have
    /// lost their blocks.
    pub(crate) fn give_back(&mut self, run: Range<u32>, is_hollow: bool) {
        self.taken_count -= run.len() as u32;
        let set = if is_hollow { &mut self.hollow } else { &mut self.free };
        set.extend(run);
    }

    /// Returns the number of extents at the end of the file that can be cut off. They are free or hollow, and
    /// no thread reads them. `keep` extents stay. If there are enough free extents, they are free ones.
    pub(crate) fn free_tail(&self, keep: u32, is_read: impl Fn(ExtentNo) -> bool) -> u32 {
        let mut spare_free = self.free_count().saturating_sub(keep);
        let mut spare = (self.free_count() + self.hollow_count()).saturating_sub(keep);
        let can_go = |no: &u32| {
            let is_free = self.free.contains(no);
            let can_go = spare > 0 && (self.hollow.contains(no) || (is_free && spare_free > 0));
            spare -= u32::from(can_go);
            spare_free -= u32::from(can_go && is_free);
            can_go && !is_read(ExtentNo(*no))
        };
        (1..self.count()).rev().take_while(can_go).count() as u32
    }

    /// Removes the last `count` extents, all free, because the file becomes shorter.
    pub(crate) fn shorten(&mut self, count: u32) {
        let keep = self.count() - count;
        for no in keep..self.count() {
            assert!(self.free.remove(&no) || self.hollow.remove(&no), "extent {no} is cut off and in use");
        }
        self.unsure.split_off(&keep);
        self.list.truncate(keep as usize);
    }

    /// Adds `count` extents that the file still has. They may have lost their blocks.
    pub(crate) fn restore(&mut self, count: u32) {
        let before = self.count();
        self.list.extend((0..count).map(|_| Extent::new()));
        self.hollow.extend(before..before + count);
        self.unsure.extend(before..before + count);
    }
}

/// Returns the first run of at least `least` neighbours among extents in falling order. A run has at most
/// `most` extents.
fn last_run(falling: impl Iterator<Item = u32>, least: u32, most: u32) -> Option<Range<u32>> {
    let mut run = 0..0;
    for no in falling {
        let is_next = no + 1 == run.start && run.len() < most as usize;
        if !is_next && run.len() >= least as usize {
            break;
        }
        run = if is_next { no..run.end } else { no..no + 1 };
    }
    let is_long = run.len() >= least as usize && run.len() <= most as usize;
    Some(run).filter(|run| is_long && !run.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const EXTENT_BYTES: usize = 64 << 10;
    const EXTENT_UNITS: u32 = 128;

    fn unread(_: ExtentNo) -> bool {
        false
    }

    fn table(count: u32) -> Extents {
        let mut extents = Extents::new(EXTENT_BYTES);
        extents.lengthen(count);
        extents
    }

    #[test]
    fn the_header_is_never_given_out() {
        let mut extents = table(2);
        let mut filling = extents.begin(0, unread).unwrap();
        assert_eq!(extents.take(&mut filling, PageNo(1), 3).unwrap().address(), 8);
        assert_eq!(extents.take(&mut filling, PageNo(2), 117).unwrap().end(), 128);
        assert_eq!(extents.take(&mut filling, PageNo(3), 1), None, "the extent is full");
        extents.finish(filling);
        let mut second = extents.begin(0, unread).unwrap();
        assert_eq!(extents.take(&mut second, PageNo(3), 1).unwrap().address(), 128);
    }

    #[test]
    fn an_extent_that_is_read_is_not_begun() {
        let mut extents = table(3);
        let filling = extents.begin(0, |no| no.0 == 0).unwrap();
        assert_eq!(filling.extent, ExtentNo(1));
        assert_eq!(extents.begin(0, |_| true).unwrap_err(), NoExtent::AllRead);
        assert_eq!(extents.begin(2, unread).unwrap_err(), NoExtent::NoneFree);
        assert!(extents.begin(1, unread).is_ok());
    }

    /// Returns the full extents with these numbers of live units.
    fn filled(lives: &[u32]) -> Extents {
        let mut extents = table(lives.len() as u32 + 1);
        for live in lives {
            let mut filling = extents.begin(0, unread).unwrap();
            let place = extents.take(&mut filling, PageNo(*live), *live).unwrap();
            extents.landed(place);
            extents.finish(filling);
        }
        extents
    }

    fn names(victims: &[ExtentNo]) -> Vec<u32> {
        victims.iter().map(|no| no.0).collect()
    }

    #[test]
    fn victims_are_empty_or_old_and_nothing_is_in_flight_there() {
        // The oldest extent is emptied before a younger one that has fewer live units.
        let mut extents = filled(&[100, 20, 80]);
        assert_eq!(names(&extents.victims(1000, 128, 9)), [1, 0, 2]);
        assert_eq!(names(&extents.victims(1, 128, 9)), [1]);
        assert_eq!(names(&extents.victims(21, 128, 9)), [1, 0]);
        assert_eq!(names(&extents.victims(1000, 128, 2)), [1, 0]);
        assert_eq!(names(&extents.victims(1000, 99, 9)), [1, 2]);
        assert!(extents.emptied(ExtentNo(1)) && !extents.emptied(ExtentNo(1)));
        extents.stuck(ExtentNo(0), true);
        assert_eq!((names(&extents.victims(1, 128, 9)), extents.emptied_count()), (vec![2], 1));
        let mut filling = extents.begin(0, unread).unwrap();
        extents.take(&mut filling, PageNo(5), 1).unwrap();
        extents.finish(filling);
        assert_eq!(names(&extents.victims(1, 128, 9)), [2], "a write in flight");
        extents.die(UnitRun::new(128, 20).unwrap());
        assert_eq!((extents.emptied_count(), extents.free_count()), (0, 1));
        assert!(!extents.emptied(ExtentNo(1)), "it is free by now");
        extents.die(UnitRun::new(8, 100).unwrap());
        assert_eq!(extents.free_count(), 2, "what is stuck gets free as well");
    }

    #[test]
    fn runs_are_punched_from_the_end_and_filled_again() {
        let mut extents = table(10);
        let taken =
            |extents: &mut Extents, keep, least, most| extents.take_run(keep, least, most, |no| no.0 == 6);
        assert_eq!(taken(&mut extents, 8, 3, 9), None);
        assert_eq!(taken(&mut extents, 0, 6, 9), None, "the header is never punched");
        assert_eq!(taken(&mut extents, 2, 4, 9), Some(1..6));
        assert_eq!(taken(&mut extents, 2, 2, 2), Some(8..10));
        assert_eq!(extents.free_tail(0, unread), 0);
        assert_eq!(extents.usable_count(), 3, "what is being punched has no room");
        extents.give_back(8..10, true);
        extents.give_back(1..6, false);
        assert_eq!((extents.free_count(), extents.hollow_count()), (8, 2));
        assert_eq!((extents.free_tail(0, unread), extents.free_tail(0, |no| no.0 == 4)), (9, 5));
        assert_eq!(extents.free_tail(5, unread), 5, "two hollow ones, and three of eight");
        assert_eq!(extents.free_tail(9, unread), 1, "nine stay, though only eight can be begun as they are");
        assert_eq!(
            [0, 8, 9, 10].map(|no| extents.first_hollow(no).map(|no| no.0)),
            [Some(8), Some(8), Some(9), None]
        );
        extents.refilled(ExtentNo(8));
        extents.shorten(3);
        assert_eq!((extents.count(), extents.free_count(), extents.hollow_count()), (7, 7, 0));
    }

    #[test]
    fn moved_pages_keep_their_age() {
        let mut extents = table(4);
        let mut first = extents.begin(0, unread).unwrap();
        extents.take(&mut first, PageNo(1), 100).unwrap();
        extents.finish(first);
        let mut second = extents.begin(0, unread).unwrap();
        extents.take(&mut second, PageNo(2), 50).unwrap();
        assert_eq!((extents.age_units(ExtentNo(0)), extents.age_units(ExtentNo(1))), (150, 50));
        extents.set_age(&second, 120);
        assert_eq!(extents.age_units(ExtentNo(1)), 120);
    }

    #[test]
    fn places_that_cannot_all_be_are_refused() {
        let place = |address, units| UnitRun::new(address, units).unwrap();
        let recover = |live: &[(u32, UnitRun)]| {
            let live = live.iter().map(|(no, place)| (PageNo(*no), *place));
            Extents::recovered(EXTENT_BYTES, 2, live).map(|extents| extents.live_units())
        };
        assert_eq!(recover(&[(7, place(8, 4)), (9, place(12, 1)), (1, place(255, 1))]), Ok(6));
        for outside in [place(7, 2), place(256, 1), place(127, 2), place(1 << 39, 1)] {
            assert_eq!(recover(&[(7, outside)]), Err(BadPlaces::Outside { no: PageNo(7), place: outside }));
        }
        let overlap = BadPlaces::Overlap { no: PageNo(9), other: PageNo(7), place: place(11, 1) };
        assert_eq!(recover(&[(9, place(11, 1)), (7, place(8, 4))]), Err(overlap));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Take { units: u32 },
        Next,
        Die { which: usize },
        Lengthen,
        Punch { most: u32 },
        Fill,
        Shorten,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (1_u32..20).prop_map(|units| Op::Take { units }),
            1 => Just(Op::Next),
            5 => any::<usize>().prop_map(|which| Op::Die { which }),
            1 => Just(Op::Lengthen),
            1 => (1_u32..4).prop_map(|most| Op::Punch { most }),
            1 => Just(Op::Fill),
            1 => Just(Op::Shorten),
        ]
    }

    /// A model: the live slots by address, and the extent that is being filled.
    #[derive(Default)]
    struct Model {
        living: BTreeMap<u64, (UnitRun, PageNo)>,
        filling: Option<Filling>,
        next_page: u32,
    }

    impl Model {
        fn run(&mut self, extents: &mut Extents, op: &Op) {
            match op {
                Op::Take { units } => self.take(extents, *units),
                Op::Next => {
                    self.filling.take().into_iter().for_each(|filling| extents.finish(filling));
                    self.filling = extents.begin(0, unread).ok();
                }
                Op::Die { which } => {
                    let nth = self.living.keys().nth(which % self.living.len().max(1)).copied();
                    if let Some((place, _)) = nth.and_then(|address| self.living.remove(&address)) {
                        extents.die(place);
                    }
                }
                Op::Lengthen => extents.lengthen(1),
                Op::Punch { most } => {
                    if let Some(run) = extents.take_run(1, 1, *most, unread) {
                        extents.give_back(run, true);
                    }
                }
                Op::Fill => extents.first_hollow(0).into_iter().for_each(|no| extents.refilled(no)),
                Op::Shorten => extents.shorten(extents.free_tail(1, unread)),
            }
        }

        fn take(&mut self, extents: &mut Extents, units: u32) {
            let Some(filling) = &mut self.filling else { return };
            let no = PageNo(self.next_page);
            let Some(place) = extents.take(filling, no, units) else { return };
            self.next_page += 1;
            extents.landed(place);
            let before = self.living.range(..place.end()).next_back();
            assert!(
                before.is_none_or(|(_, (other, _))| other.end() <= place.address()),
                "{place:?} is in use"
            );
            self.living.insert(place.address(), (place, no));
        }

        fn check(&self, extents: &Extents) {
            let units: u64 = self.living.values().map(|(place, _)| u64::from(place.units())).sum();
            assert_eq!(extents.live_units(), units);
            let used: BTreeSet<u32> =
                self.living.values().map(|(place, _)| extents.extent_of(*place).0).collect();
            let filling = self.filling.as_ref().map(|filling| filling.extent.0);
            let free: BTreeSet<u32> =
                (0..extents.count()).filter(|no| !used.contains(no) && filling != Some(*no)).collect();
            assert_eq!(&extents.free | &extents.hollow, free);
            for (place, no) in self.living.values() {
                assert!(extents.pages_of(extents.extent_of(*place)).contains(no));
            }
            let live = self.living.values().map(|(place, no)| (*no, *place));
            let again = Extents::recovered(EXTENT_BYTES, extents.count(), live).unwrap();
            assert_eq!(again.live_units(), units);
            for no in (0..extents.count()).map(ExtentNo) {
                assert_eq!(again.of(no).live_units, extents.of(no).live_units);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Slots never overlap, and never cross the end of an extent. An extent is free (or hollow) exactly
        /// if it has no live slot.
        #[test]
        fn the_table_agrees_with_a_model(ops in proptest::collection::vec(op(), 1..300)) {
            let mut extents = table(2);
            let mut model = Model::default();
            for op in &ops {
                model.run(&mut extents, op);
                model.check(&extents);
            }
            prop_assert_eq!(extents.extent_units(), EXTENT_UNITS);
        }
    }
}
