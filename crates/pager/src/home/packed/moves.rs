//! Reclamation empties packed extents in which most bytes are dead. One turn chooses the extents to empty,
//! and the new slot of each page that is still in them. This module makes these choices in memory.
//!
//! ```text
//!    choose: extents to empty, and the pages that the page map has there --> (pages are read and checked)
//!      --> place: oldest pages first, into whole new extents --> (pages are written)
//!      --> land: the page map gets the new slot of every page that did not move meanwhile
//! ```
//!
//! The moved pages fill whole extents, and each extent is written in one piece. This lets a flash drive erase
//! it in one piece, too. Only if all moved pages together do not fill an extent, later page writes fill the
//! rest of it.
//!
//! Invariants
//! 1. A newer slot wins. If a page was written or discarded after a turn chose it, the turn does not change
//!    the page's entry in the map.
//! 2. An extent counts as emptied only if every page that the map had there has a new slot that was written.
//! 3. The old slot of a moved page keeps its bytes until its extent is free. So a turn that fails loses
//!    nothing.
//!
//! This module does not know devices, threads, or when a turn is due (`reclaim.rs`).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::book::Book;
use super::extents::{ExtentNo, Filling, NoExtent};
use super::unit_run::UnitRun;
use crate::base::ids::PageNo;

/// The largest number of extents that a turn empties.
const VICTIMS_MAX: usize = 64;

/// The limits of a turn.
pub(crate) struct Rules {
    /// The largest number of extents that are written.
    pub(crate) extents: usize,
    /// Extents with more live units than this are not emptied.
    pub(crate) live_units_max: u32,
    /// The length of a slot is a multiple of this.
    pub(crate) sector_units: u32,
}

impl Rules {
    /// Returns the number of units that a stored page takes in its new slot.
    fn units(&self, from: UnitRun) -> u32 {
        from.units().next_multiple_of(self.sector_units)
    }
}

/// A stored page that will be moved.
pub(crate) struct Survivor {
    pub(crate) no: PageNo,
    pub(crate) from: UnitRun,
    victim: ExtentNo,
    age_units: u64,
    /// The place of its bytes during the move: the index of the buffer, and the offset in it.
    pub(crate) bytes_at: (usize, usize),
}

/// A survivor and its new slot.
pub(crate) struct Move {
    pub(crate) survivor: Survivor,
    pub(crate) to: UnitRun,
}

/// An extent into which survivors are written one after another.
pub(crate) struct Output {
    filling: Filling,
    pub(crate) moves: Vec<Move>,
    /// Whether the extent is filled only in part. Then later page writes use the rest of it.
    is_part: bool,
}

/// The result of a turn.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Number of pages that were moved.
    pub(crate) pages: u64,
    /// Their length in units.
    pub(crate) units: u64,
    /// Number of extents that become free when the new places are in the durable log.
    pub(crate) emptied: u64,
    /// Number of pages that stay, because their slots are damaged.
    pub(crate) damaged: u64,
    /// Number of pages that stay until the next try, because a read failed.
    pub(crate) unread: u64,
    /// Whether no page could be moved because all free extents are being read at the moment.
    pub(crate) met_readers: bool,
}

impl Moved {
    /// Returns whether the turn has changed something, so that another turn may be useful.
    pub(crate) fn has_won(&self) -> bool {
        self.pages + self.emptied + self.damaged + self.unread > 0
    }
}

/// Whether a survivor can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    Yes,
    /// The device failed.
    NotNow,
    /// The slot does not have the page.
    Never,
}

/// A turn of reclamation.
#[derive(Default)]
pub(crate) struct MoveRound {
    victims: Vec<ExtentNo>,
    /// The victims that are not emptied, because some page stays in them.
    kept: BTreeSet<ExtentNo>,
    damaged: u64,
    unread: u64,
    met_readers: bool,
    /// The pages to move, one victim after the other, in the order of their slots.
    pub(crate) survivors: Vec<Survivor>,
}

impl MoveRound {
    /// Chooses victims whose survivors fill the extents that may be written.
    pub(crate) fn choose(book: &Book, rules: &Rules) -> MoveRound {
        let extents = book.extents();
        let wanted_units = rules.extents as u64 * u64::from(extents.extent_units());
        let victims = extents.victims(wanted_units, rules.live_units_max, VICTIMS_MAX);
        let mut turn = MoveRound { victims, ..MoveRound::default() };
        turn.victims.retain(|victim| {
            let found = book.survivors(*victim);
            // If the sectors are larger now than when the pages were written, the survivors may not fit into
            // one extent.
            let units: u32 = found.iter().map(|(_, from)| rules.units(*from)).sum();
            let fits = units <= rules.live_units_max;
            if fits {
                let (victim, age_units) = (*victim, extents.age_units(*victim));
                let survivor = |(no, from)| Survivor { no, from, victim, age_units, bytes_at: (0, 0) };
                turn.survivors.extend(found.into_iter().map(survivor));
            }
            fits
        });
        turn
    }

    /// Returns the extents that are emptied.
    pub(crate) fn victims(&self) -> &[ExtentNo] {
        &self.victims
    }

    /// Leaves survivors that cannot be read in their slots, so their extents are not emptied. Damaged ones
    /// stay for ever, the others until the next try.
    pub(crate) fn leave(&mut self, book: &mut Book, found: &[Readable]) {
        let mut found = found.iter();
        let (kept, damaged, unread) = (&mut self.kept, &mut self.damaged, &mut self.unread);
        self.survivors.retain(|survivor| {
            let found = found.next().copied().unwrap_or(Readable::NotNow);
            if found != Readable::Yes {
                kept.insert(survivor.victim);
                *damaged += u64::from(found == Readable::Never);
                *unread += u64::from(found == Readable::NotNow);
                book.extents_mut().stuck(survivor.victim, found == Readable::Never);
            }
            found == Readable::Yes
        });
    }

    /// Assigns new slots to the survivors, oldest first. Survivors for which there is no whole extent stay
    /// where they are.
    pub(crate) fn place(
        &mut self,
        book: &mut Book,
        rules: &Rules,
        is_read: impl Fn(ExtentNo) -> bool,
    ) -> Vec<Output> {
        let units = |survivor: &Survivor| rules.units(survivor.from);
        let mut left = std::mem::take(&mut self.survivors);
        left.sort_by_key(|survivor| Reverse(survivor.age_units));
        let mut outputs: Vec<Output> = Vec::new();
        while outputs.len() < rules.extents && !left.is_empty() {
            let left_units: u32 = left.iter().map(units).sum();
            let is_part = left_units < book.extents().extent_units();
            if is_part && !outputs.is_empty() {
                break;
            }
            let extents = book.extents_mut();
            let mut filling = match extents.begin(0, &is_read) {
                Ok(filling) => filling,
                Err(none) => {
                    self.met_readers = outputs.is_empty() && none == NoExtent::AllRead;
                    break;
                }
            };
            // The free extent may be one of the victims: its last slot may have died while pages were read.
            self.kept.insert(filling.extent());
            let (mut moves, mut stay) = (Vec::with_capacity(left.len()), Vec::new());
            for survivor in left {
                match extents.take(&mut filling, survivor.no, units(&survivor)) {
                    Some(to) => moves.push(Move { survivor, to }),
                    None => stay.push(survivor),
                }
            }
            left = stay;
            outputs.push(Output { filling, moves, is_part });
        }
        self.kept.extend(left.iter().map(|survivor| survivor.victim));
        outputs
    }

    /// Ends a turn of which the first `written` outputs were written. The others were not.
    pub(crate) fn land(mut self, book: &mut Book, outputs: Vec<Output>, written: usize) -> Moved {
        let (damaged, unread, met_readers) = (self.damaged, self.unread, self.met_readers);
        let mut moved = Moved { damaged, unread, met_readers, ..Moved::default() };
        for (number, output) in outputs.into_iter().enumerate() {
            match number < written {
                true => arrive(book, output, &mut moved),
                false => {
                    self.kept.extend(output.moves.iter().map(|one| one.survivor.victim));
                    output.moves.iter().for_each(|one| book.abandoned(one.to));
                    book.extents_mut().finish(output.filling);
                }
            }
        }
        for victim in self.victims.iter().filter(|victim| !self.kept.contains(victim)) {
            moved.emptied += u64::from(book.extents_mut().emptied(*victim));
        }
        moved
    }
}

/// Enters the new slots of an output into the map.
fn arrive(book: &mut Book, output: Output, moved: &mut Moved) {
    let mut age_units = u64::MAX;
    for Move { survivor, to } in output.moves {
        age_units = age_units.min(survivor.age_units);
        if book.moved(survivor.no, survivor.from, to) {
            moved.pages += 1;
            moved.units += u64::from(to.units());
        }
    }
    if output.is_part {
        book.go_on_in(output.filling);
        return;
    }
    book.extents_mut().set_age(&output.filling, age_units);
    book.extents_mut().finish(output.filling);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::extents::Extents;
    use super::super::page_map::PageMap;
    use super::*;
    use crate::base::lsn::Lsn;

    const EXTENT_BYTES: usize = 64 << 10;
    const RULES: Rules = Rules { extents: 2, live_units_max: 120, sector_units: 1 };

    fn unread(_: ExtentNo) -> bool {
        false
    }

    fn settle(book: &mut Book) {
        book.begin_settle();
        book.to_note();
        book.settled();
    }

    /// Returns a book with `extents` extents. Pages of eight units are written in this order, and each is
    /// settled.
    fn book(extents: u32, pages: &[u32]) -> (Arc<PageMap>, Book) {
        let map = Arc::new(PageMap::new());
        let mut table = Extents::new(EXTENT_BYTES);
        table.lengthen(extents);
        let mut book = Book::new(map.clone(), table, BTreeSet::new());
        for no in pages.iter().copied().map(PageNo) {
            book.begin_for(8, 0, unread).unwrap();
            let place = book.take(no, 8).unwrap();
            book.written(no, Lsn::new(7), place);
            settle(&mut book);
        }
        (map, book)
    }

    fn run(book: &mut Book, rules: &Rules) -> Moved {
        let mut turn = MoveRound::choose(book, rules);
        let outputs = turn.place(book, rules, unread);
        let written = outputs.len();
        turn.land(book, outputs, written)
    }

    /// Returns the page numbers that fill three extents. Each extent has new versions of half of the pages of
    /// the one before.
    fn churned() -> Vec<u32> {
        (0..15).chain(0..8).chain(20..28).chain(20..24).chain(30..42).collect()
    }

    #[test]
    fn survivors_fill_whole_extents_and_their_old_ones_get_free_with_the_notes() {
        let (map, mut book) = book(8, &churned());
        let places =
            |map: &PageMap| -> Vec<(u32, UnitRun)> { map.each().map(|(no, place)| (no.0, place)).collect() };
        let before = places(&map);
        let free = book.extents().free_count();
        let moved = run(&mut book, &Rules { extents: 1, ..RULES });
        assert_eq!(moved, Moved { pages: 16, units: 128, emptied: 1, ..Moved::default() });
        let after = places(&map);
        assert_eq!(before.len(), after.len());
        let at_new_places: Vec<u32> =
            before.iter().zip(&after).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
        assert_eq!(at_new_places.len(), 16);
        assert!((8..15).all(|no| at_new_places.contains(&no)), "the oldest go first");
        assert_eq!(book.extents().free_count(), free - 1, "nothing is free before it is noted");
        settle(&mut book);
        assert_eq!(book.extents().free_count(), free);
        assert_eq!(book.extents().live_units(), 8 * before.len() as u64);
    }

    #[test]
    fn what_does_not_fill_an_extent_is_gone_on_behind() {
        let (_, mut book) = book(6, &[&[0; 15][..], &[1; 16], &[2; 16]].concat());
        let moved = run(&mut book, &RULES);
        assert_eq!((moved.pages, moved.emptied), (2, 2), "the extent being filled is left alone");
        assert!(book.has_room_for(14 * 8) && !book.has_room_for(14 * 8 + 1));
        settle(&mut book);
        assert_eq!(book.extents().live_units(), 24);
    }

    /// In an earlier version, such an extent counted as emptied for ever, and was never a victim again.
    #[test]
    fn a_victim_that_died_and_is_filled_with_survivors_is_not_emptied() {
        let (_, mut book) = book(8, &churned());
        let mut turn = MoveRound::choose(&book, &RULES);
        let lowest = turn.victims.iter().copied().min().unwrap();
        let of_lowest = turn.survivors.iter().filter(|survivor| survivor.victim == lowest);
        for no in of_lowest.map(|survivor| survivor.no).collect::<Vec<_>>() {
            book.begin_for(8, 0, unread).unwrap();
            let place = book.take(no, 8).unwrap();
            book.written(no, Lsn::new(8), place);
            settle(&mut book);
        }
        let outputs = turn.place(&mut book, &RULES, unread);
        assert!(outputs.iter().any(|output| output.filling.extent() == lowest), "begun again");
        let written = outputs.len();
        turn.land(&mut book, outputs, written);
        settle(&mut book);
        assert_eq!(book.extents().emptied_count(), 0);
    }

    #[test]
    fn what_could_not_be_written_stays_where_it_was() {
        let (map, mut book) = book(8, &churned());
        let before: Vec<_> = map.each().collect();
        let free = book.extents().free_count();
        let mut turn = MoveRound::choose(&book, &RULES);
        let outputs = turn.place(&mut book, &RULES, unread);
        assert!(!outputs.is_empty());
        assert_eq!(turn.land(&mut book, outputs, 0), Moved::default());
        assert_eq!(map.each().collect::<Vec<_>>(), before);
        assert_eq!((book.extents().free_count(), book.extents().emptied_count()), (free, 0));
        assert_eq!(book.held_count(), 0);
    }

    /// In an earlier version, an extent was not emptied until the next start after one failed read.
    #[test]
    fn a_page_that_cannot_be_read_stays_and_its_extent_is_left_alone() {
        for cannot in [Readable::Never, Readable::NotNow] {
            let (map, mut book) = book(8, &churned());
            let lost = map.load(PageNo(9)).unwrap();
            let rules = Rules { extents: 1, ..RULES };
            let mut turn = MoveRound::choose(&book, &rules);
            let readable =
                |survivor: &Survivor| if survivor.no == PageNo(9) { cannot } else { Readable::Yes };
            let found: Vec<Readable> = turn.survivors.iter().map(readable).collect();
            turn.leave(&mut book, &found);
            let outputs = turn.place(&mut book, &rules, unread);
            let written = outputs.len();
            let moved = turn.land(&mut book, outputs, written);
            let is_damaged = cannot == Readable::Never;
            assert_eq!((moved.damaged, moved.unread), if is_damaged { (1, 0) } else { (0, 1) });
            settle(&mut book);
            assert_eq!((map.load(PageNo(9)), book.extents().stuck_count()), (Some(lost), 1));
            let is_chosen = |book: &Book| {
                MoveRound::choose(book, &RULES).survivors.iter().any(|survivor| survivor.no == PageNo(9))
            };
            assert!(!is_chosen(&book));
            book.extents_mut().try_stuck_again();
            assert_eq!(is_chosen(&book), !is_damaged);
            assert_eq!(book.extents().stuck_count(), u32::from(is_damaged));
        }
    }

    /// In an earlier version, readers in all free extents were reported as a lack of space.
    #[test]
    fn a_turn_that_meets_readers_everywhere_says_so() {
        let (_, mut book) = book(8, &churned());
        let mut turn = MoveRound::choose(&book, &RULES);
        let outputs = turn.place(&mut book, &RULES, |_| true);
        assert!(outputs.is_empty());
        let moved = turn.land(&mut book, outputs, 0);
        assert_eq!(moved, Moved { met_readers: true, ..Moved::default() });
        assert!(run(&mut book, &RULES).pages > 0, "once they are gone");
    }

    #[test]
    fn slots_get_whole_sectors() {
        let (map, mut book) = book(6, &[&[0; 15][..], &[1; 16], &[2; 16]].concat());
        run(&mut book, &Rules { sector_units: 16, ..RULES });
        let units: Vec<u32> = map.each().map(|(_, place)| place.units()).collect();
        assert_eq!(units, [16, 16, 8]);
    }

    /// Pages can be longer in their new slots than in the old ones, so they may not fit into an extent.
    #[test]
    fn an_extent_whose_pages_get_too_long_is_no_victim() {
        let (_, book) = book(8, &churned());
        let on = |sector_units| MoveRound::choose(&book, &Rules { sector_units, ..RULES });
        assert!(on(1).victims.len() > 1);
        let longest = |sector_units| {
            let turn = on(sector_units);
            let of = |victim| turn.survivors.iter().filter(move |one| one.victim == victim).count() as u32;
            turn.victims.iter().map(|victim| of(*victim) * sector_units.max(8)).max().unwrap_or(0)
        };
        assert!([8, 16, 32].map(longest).iter().all(|units| *units <= RULES.live_units_max));
    }
}
