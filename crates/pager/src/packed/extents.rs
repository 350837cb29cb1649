//! The extents of a packed file: how much of each is alive, which are free, where the next slot goes.
//!
//! ```text
//!            begin              finish               all survivors moved
//!    free ----------> filling ----------> full ---------------------------> moving
//!      ^                                   | nothing lives                     | nothing lives
//!      +-----------------------------------+-----------------------------------+
//! ```
//!
//! Invariants
//! 1. A slot lives from `take` until it dies, once. An extent is free when nothing in it lives and nobody fills it.
//! 2. Slots are taken one behind the other and never cross the end of an extent; the first 4096 bytes of extent 0 are
//!    never given out.
//! 3. An extent with a write in flight is nobody's victim: the page of that write may not be moved before it is there.
//!
//! What it does not know: devices; which page is where (`page_map.rs`); why a slot lives (`book.rs`).

use std::collections::BTreeSet;

use super::place::{Place, UNIT_BYTES};
use crate::ids::PageNo;

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
    /// What could be moved has been moved; waits for the old slots to die.
    #[cfg_attr(not(test), allow(dead_code, reason = "reclamation, package PK7, makes it"))]
    Moving,
}

struct Extent {
    kind: Kind,
    live_units: u32,
    /// Slots whose write has not returned.
    in_flight: u32,
    /// Units written into the file when it was begun: a small number is an old extent.
    begun_at: u64,
    /// The pages written into it, in the order of their slots. Most of them may live elsewhere by now.
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

/// Why no extent can be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoExtent {
    /// No more are free than have to be kept.
    NoneFree,
    /// Those that are free are still being read by somebody who found them before they were.
    AllRead,
}

/// Places that cannot all be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPlaces {
    #[error("page {} is said to lie at byte {}, outside of any extent of the file", .no.0, .place.offset_bytes())]
    Outside { no: PageNo, place: Place },
    #[error("pages {} and {} are both said to lie at byte {}", .no.0, .other.0, .place.offset_bytes())]
    Overlap { no: PageNo, other: PageNo, place: Place },
}

/// All extents of a file.
pub(crate) struct Extents {
    extent_units: u32,
    list: Vec<Extent>,
    free: BTreeSet<u32>,
    live_units: u64,
    written_units: u64,
}

impl Extents {
    /// A file without extents. `extent_bytes` is a power of two that holds several of the largest pages.
    pub(crate) fn new(extent_bytes: usize) -> Extents {
        let extent_units = u32::try_from(extent_bytes / UNIT_BYTES).expect("extents are shorter than 2 TiB");
        assert!(extent_units.is_power_of_two() && extent_units > HEADER_UNITS);
        Extents { extent_units, list: Vec::new(), free: BTreeSet::new(), live_units: 0, written_units: 0 }
    }

    /// The extents of a file of `count` extents in which these pages live and nothing else does.
    pub(crate) fn recovered(
        extent_bytes: usize,
        count: u32,
        live: impl Iterator<Item = (PageNo, Place)>,
    ) -> Result<Extents, BadPlaces> {
        let mut extents = Extents::new(extent_bytes);
        extents.lengthen(count);
        let mut slots: Vec<Vec<(Place, PageNo)>> = vec![Vec::new(); count as usize];
        for (no, place) in live {
            let home = extents.holder(place).ok_or(BadPlaces::Outside { no, place })?;
            slots[home.0 as usize].push((place, no));
        }
        for (at, mut slots) in slots.into_iter().enumerate().filter(|(_, slots)| !slots.is_empty()) {
            slots.sort_unstable_by_key(|(place, _)| place.address());
            extents.refill(ExtentNo(at as u32), &slots)?;
        }
        Ok(extents)
    }

    fn refill(&mut self, no: ExtentNo, slots: &[(Place, PageNo)]) -> Result<(), BadPlaces> {
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

    /// The extent that holds the whole place, if the file has it.
    fn holder(&self, place: Place) -> Option<ExtentNo> {
        let (first, last) = (self.extent_of(place), (place.end() - 1) / u64::from(self.extent_units));
        let is_inside = u64::from(first.0) == last && (first.0 as usize) < self.list.len();
        (is_inside && place.address() >= u64::from(HEADER_UNITS)).then_some(first)
    }

    /// The extent of a place.
    pub(crate) fn extent_of(&self, place: Place) -> ExtentNo {
        ExtentNo(u32::try_from(place.address() / u64::from(self.extent_units)).unwrap_or(u32::MAX))
    }

    fn of_mut(&mut self, no: ExtentNo) -> &mut Extent {
        &mut self.list[no.0 as usize]
    }

    /// The file got longer by `count` extents.
    pub(crate) fn lengthen(&mut self, count: u32) {
        let before = self.count();
        self.list.extend((0..count).map(|_| Extent::new()));
        self.free.extend(before..before + count);
    }

    /// Number of extents.
    pub(crate) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Number of free extents.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Units in which something lives.
    pub(crate) fn live_units(&self) -> u64 {
        self.live_units
    }

    /// Whether a slot is being written.
    pub(crate) fn has_flights(&self) -> bool {
        self.list.iter().any(|extent| extent.in_flight > 0)
    }

    /// Begins to fill the first free extent that nobody reads; `keep_free` of them are for others.
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

    /// Units left in an extent that is being filled.
    pub(crate) fn left_units(&self, filling: &Filling) -> u32 {
        self.extent_units - filling.used_units
    }

    /// A slot for a stored page of `units`; `None` when the rest of the extent is too short.
    pub(crate) fn take(&mut self, filling: &mut Filling, no: PageNo, units: u32) -> Option<Place> {
        if self.left_units(filling) < units {
            return None;
        }
        let first = u64::from(filling.extent.0) * u64::from(self.extent_units);
        let place = Place::new(first + u64::from(filling.used_units), units)?;
        filling.used_units += units;
        self.live_units += u64::from(units);
        self.written_units += u64::from(units);
        let extent = self.of_mut(filling.extent);
        extent.live_units += units;
        extent.in_flight += 1;
        extent.pages.push(no);
        Some(place)
    }

    /// The extent is filled no further.
    pub(crate) fn finish(&mut self, filling: Filling) {
        self.of_mut(filling.extent).kind = Kind::Full;
        self.free_if_dead(filling.extent);
    }

    /// The write of a slot returned.
    pub(crate) fn landed(&mut self, place: Place) {
        let no = self.extent_of(place);
        let extent = self.of_mut(no);
        extent.in_flight = extent.in_flight.checked_sub(1).expect("a slot lands once");
    }

    /// Nothing names the slot any more.
    pub(crate) fn die(&mut self, place: Place) {
        let no = self.extent_of(place);
        let extent = self.of_mut(no);
        extent.live_units = extent.live_units.checked_sub(place.units()).expect("a slot dies once");
        self.live_units -= u64::from(place.units());
        self.free_if_dead(no);
    }

    fn free_if_dead(&mut self, no: ExtentNo) {
        let extent = self.of_mut(no);
        if extent.live_units > 0 || !matches!(extent.kind, Kind::Full | Kind::Moving) {
            return;
        }
        assert_eq!(extent.in_flight, 0, "extent {} dies under a write", no.0);
        extent.kind = Kind::Free;
        extent.pages = Vec::new();
        self.free.insert(no.0);
    }
}

/// For reclamation, package PK7.
#[cfg_attr(not(test), allow(dead_code, reason = "reclamation, package PK7, calls it"))]
impl Extents {
    fn of(&self, no: ExtentNo) -> &Extent {
        &self.list[no.0 as usize]
    }

    /// Units of one extent.
    pub(crate) fn extent_units(&self) -> u32 {
        self.extent_units
    }

    /// Full extents in which the least lives, at most `live_units_max`, until `wanted_units` live in them together.
    pub(crate) fn victims(&self, wanted_units: u64, live_units_max: u32) -> Vec<ExtentNo> {
        let is_victim = |extent: &Extent| {
            extent.kind == Kind::Full && extent.in_flight == 0 && extent.live_units <= live_units_max
        };
        let mut candidates: Vec<(u32, u32)> = (0..)
            .zip(&self.list)
            .filter(|(_, extent)| is_victim(extent))
            .map(|(no, extent)| (extent.live_units, no))
            .collect();
        candidates.sort_unstable();
        let mut sum = 0;
        let enough = candidates.iter().position(|(live_units, _)| {
            sum += u64::from(*live_units);
            sum >= wanted_units
        });
        candidates.truncate(enough.map_or(candidates.len(), |at| at + 1));
        candidates.into_iter().map(|(_, no)| ExtentNo(no)).collect()
    }

    /// Nothing is left in the extent that could be moved: it gets free when its old slots have died.
    pub(crate) fn moving(&mut self, no: ExtentNo) {
        let extent = self.of_mut(no);
        assert_eq!(extent.kind, Kind::Full, "only a full extent is emptied");
        extent.kind = Kind::Moving;
    }

    /// Units that live in an extent.
    pub(crate) fn live_units_of(&self, no: ExtentNo) -> u32 {
        self.of(no).live_units
    }

    /// The pages written into an extent, in the order of their slots; a page may come twice.
    pub(crate) fn pages_of(&self, no: ExtentNo) -> &[PageNo] {
        &self.of(no).pages
    }

    /// Units written into the file since the extent was begun. Older survivors are likely to live longer.
    pub(crate) fn age_units(&self, no: ExtentNo) -> u64 {
        self.written_units - self.of(no).begun_at
    }

    /// Makes the extent as old as the newest of what was moved into it.
    pub(crate) fn set_age(&mut self, filling: &Filling, age_units: u64) {
        let begun_at = self.written_units.saturating_sub(age_units);
        self.of_mut(filling.extent).begun_at = begun_at;
    }
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

    #[test]
    fn victims_are_the_emptiest_and_nothing_is_in_flight_there() {
        let mut extents = table(4);
        for live in [100, 20, 60] {
            let mut filling = extents.begin(0, unread).unwrap();
            let place = extents.take(&mut filling, PageNo(live), live).unwrap();
            extents.landed(place);
            extents.finish(filling);
        }
        let names = |victims: Vec<ExtentNo>| victims.iter().map(|no| no.0).collect::<Vec<_>>();
        assert_eq!(names(extents.victims(70, 128)), [1, 2]);
        assert_eq!(names(extents.victims(1, 128)), [1]);
        assert_eq!(names(extents.victims(1000, 99)), [1, 2]);
        extents.moving(ExtentNo(1));
        assert_eq!(names(extents.victims(1, 128)), [2]);
        let mut filling = extents.begin(0, unread).unwrap();
        extents.take(&mut filling, PageNo(5), 1).unwrap();
        extents.finish(filling);
        assert_eq!(names(extents.victims(1, 128)), [2], "a write in flight");
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
        let place = |address, units| Place::new(address, units).unwrap();
        let recover = |live: &[(u32, Place)]| {
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
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (1_u32..20).prop_map(|units| Op::Take { units }),
            1 => Just(Op::Next),
            5 => any::<usize>().prop_map(|which| Op::Die { which }),
            1 => Just(Op::Lengthen),
        ]
    }

    /// The living slots by address, and the extent being filled.
    #[derive(Default)]
    struct Model {
        living: BTreeMap<u64, (Place, PageNo)>,
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
            assert_eq!(extents.free, free);
            for (place, no) in self.living.values() {
                assert!(extents.pages_of(extents.extent_of(*place)).contains(no));
            }
            let live = self.living.values().map(|(place, no)| (*no, *place));
            let again = Extents::recovered(EXTENT_BYTES, extents.count(), live).unwrap();
            assert_eq!(again.live_units(), units);
            for no in (0..extents.count()).map(ExtentNo) {
                assert_eq!(again.live_units_of(no), extents.live_units_of(no));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Slots never overlap, never cross an extent, and an extent is free exactly if nothing in it lives.
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
