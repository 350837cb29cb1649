//! Tests of the book (the table of page versions in persistent memory) against a model. The tests do puts,
//! reads, flushes, discards and removals in any order, and interrupt some of them.
//!
//! This module does not know the contents of slots.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::nvm::book::{Book, OlderVersion, State, Version};

const SLOTS: u32 = 6;
const PAGES: u32 = 8;

fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

#[derive(Debug, Clone)]
enum Step {
    BeginPut(u32),
    EndPut,
    BeginFlush(usize),
    EndFlush(bool),
    BeginRead(u32),
    EndRead,
    BeginLook(u32),
    EndLook,
    LeaveClean(usize),
    LeaveDue(u64, usize),
    Left,
    Doom(u32, u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..PAGES).prop_map(Step::BeginPut),
        4 => Just(Step::EndPut),
        2 => (1_usize..4).prop_map(Step::BeginFlush),
        2 => any::<bool>().prop_map(Step::EndFlush),
        1 => (0..PAGES).prop_map(Step::BeginRead),
        1 => Just(Step::EndRead),
        1 => (0..PAGES).prop_map(Step::BeginLook),
        2 => Just(Step::EndLook),
        2 => (1_usize..4).prop_map(Step::LeaveClean),
        1 => (0_u64..20, 1_usize..4).prop_map(|(durable, max)| Step::LeaveDue(durable, max)),
        2 => Just(Step::Left),
        1 => (0..PAGES, 1_u32..4, 0_u64..20).prop_map(|(first, count, after)| Step::Doom(first, count, after)),
    ]
}

/// The book, a model of what it must contain, and the operations in progress.
struct Model {
    book: Book,
    /// For each page with a version: the sequence of the newest version, whether the data files have it, and
    /// the LSN of its discard, if any.
    newest: BTreeMap<PageId, (u64, bool, Option<u64>)>,
    puts: Vec<(Version, OlderVersion)>,
    flights: Vec<Version>,
    reads: Vec<PageId>,
    looks: Vec<Version>,
    leaving: Vec<Version>,
}

impl Model {
    fn new() -> Model {
        let book = Book::new((0..SLOTS).collect(), std::iter::empty());
        let (newest, puts, flights) = (BTreeMap::new(), Vec::new(), Vec::new());
        Model { book, newest, puts, flights, reads: Vec::new(), looks: Vec::new(), leaving: Vec::new() }
    }

    fn is_being_used(&self, id: PageId) -> bool {
        self.puts.iter().any(|(version, _)| version.id == id) || self.reads.contains(&id)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::BeginPut(no) if !self.is_being_used(id(no)) => self.begin_put(id(no)),
            Step::EndPut => {
                if let Some((version, _)) = self.puts.pop() {
                    self.book.replace(version);
                    self.newest.insert(version.id, (version.sequence, false, None));
                }
            }
            Step::BeginFlush(max) => {
                let begun = self.book.begin_flush(max);
                assert!(begun.len() <= max);
                assert!(begun.iter().all(|one| !self.puts.iter().any(|(put, _)| put.id == one.id)));
                assert!(!begun.iter().any(|one| self.looks.contains(one)));
                let flies = |one: &Version| self.flights.iter().any(|flying| flying.id == one.id);
                assert!(!begun.iter().any(flies), "an older version could land after this one");
                self.flights.extend(begun);
            }
            Step::EndFlush(is_home) => {
                if let Some(version) = self.flights.pop() {
                    self.book.end_flush(&version, is_home);
                    let newest =
                        self.newest.get_mut(&version.id).filter(|newest| newest.0 == version.sequence);
                    newest.into_iter().for_each(|newest| newest.1 |= is_home && newest.2.is_none());
                }
            }
            Step::BeginRead(no) if !self.is_being_used(id(no)) => self.begin_read(id(no)),
            Step::EndRead => {
                let is_awaited = self.reads.pop().is_some_and(|id| self.book.end_read(id));
                assert!(!is_awaited, "nobody waits in one thread");
            }
            Step::BeginLook(no) => self.begin_look(id(no)),
            Step::EndLook => self.looks.pop().into_iter().for_each(|one| self.book.end_look(one.id)),
            Step::LeaveClean(max) => {
                let leaving = self.book.leave_clean(max);
                assert!(leaving.iter().all(|version| self.newest[&version.id].1), "home must have it");
                self.leave(leaving);
            }
            Step::LeaveDue(durable, max) => {
                let leaving = self.book.leave_due(Lsn::new(durable), max);
                assert!(leaving.len() <= max);
                let is_due = |one: &Version| self.newest[&one.id].2.is_some_and(|after| after <= durable);
                assert!(leaving.iter().all(is_due), "a crash could bring it back");
                self.leave(leaving);
            }
            Step::Left => {
                let leaving = std::mem::take(&mut self.leaving);
                self.book.left(&leaving);
                self.newest.retain(|id, _| !leaving.iter().any(|version| version.id == *id));
            }
            Step::Doom(first, count, after) => self.doom(first, count, after),
            Step::BeginPut(_) | Step::BeginRead(_) => {}
        }
    }

    fn begin_put(&mut self, id: PageId) {
        // A put must wait for a page whose version is leaving or being checked.
        if self.leaving.iter().chain(&self.looks).any(|version| version.id == id) {
            assert_eq!(self.book.hold(id), OlderVersion::Wait);
            return;
        }
        let Some(slots) = self.book.take_free(1) else { return };
        let sequence = self.book.take_sequences(1);
        let held = self.book.hold(id);
        assert_eq!(held == OlderVersion::None, !self.newest.contains_key(&id));
        self.puts.push((Version { id, slot: slots[0], sequence, lsn: Lsn::new(sequence) }, held));
    }

    fn begin_read(&mut self, id: PageId) {
        let found = self.book.begin_read(id);
        let expected = self
            .newest
            .get(&id)
            .filter(|newest| newest.2.is_none() && !self.leaving.iter().any(|leaving| leaving.id == id));
        assert_eq!(
            found.map(|(version, is_home)| (version.sequence, is_home)),
            expected.map(|one| (one.0, one.1))
        );
        self.reads.extend(found.map(|_| id));
    }

    fn begin_look(&mut self, id: PageId) {
        let is_there = |versions: &[Version]| versions.iter().any(|version| version.id == id);
        let is_busy = is_there(&self.flights) || is_there(&self.leaving) || is_there(&self.looks);
        let is_put = self.puts.iter().any(|(version, _)| version.id == id);
        let found = self.book.begin_look(id).map(|(version, _)| version);
        let expected = self.newest.get(&id).filter(|_| !is_busy && !is_put).map(|newest| newest.0);
        assert_eq!(found.map(|version| version.sequence), expected);
        self.looks.extend(found);
    }

    fn leave(&mut self, leaving: Vec<Version>) {
        assert!(leaving.iter().all(|one| !self.is_being_used(one.id)), "it is in use");
        assert!(leaving.iter().all(|one| !self.flights.contains(one)), "it is being written home");
        assert!(leaving.iter().all(|one| !self.looks.contains(one)), "it is being looked at");
        self.leaving.extend(leaving);
    }

    fn doom(&mut self, first: u32, count: u32, after: u64) {
        let range = PageRange { first: id(first), count };
        if range.pages().any(|id| self.puts.iter().any(|(put, _)| put.id == id)) {
            return;
        }
        let is_busy = self.book.doom(range, Lsn::new(after));
        let flies = |id| {
            let flying = self.flights.iter().any(|one| one.id == id);
            let is_there = |versions: &[Version]| versions.iter().any(|one| one.id == id);
            flying || self.reads.contains(&id) || is_there(&self.leaving) || is_there(&self.looks)
        };
        assert_eq!(is_busy, range.pages().any(flies));
        for id in range.pages() {
            if let Some(newest) = self.newest.get_mut(&id)
                && !self.leaving.iter().any(|leaving| leaving.id == id)
            {
                newest.2 = Some(newest.2.map_or(after, |earlier| earlier.min(after)));
            }
        }
    }

    /// Checks that each slot has exactly one use. It is free, or has a page version of the book, or is
    /// reserved for a put (a write that has not ended), or has a superseded version that is being written to
    /// the data files.
    fn check(&self) {
        let versions = self.book.versions();
        let mut slots: BTreeSet<u32> = BTreeSet::new();
        let mut own = |slot: u32| assert!(slots.insert(slot), "slot {slot} has two owners");
        self.book.free(0..SLOTS as usize).for_each(&mut own);
        versions.iter().for_each(|(version, _)| own(version.slot));
        self.puts.iter().for_each(|(version, _)| own(version.slot));
        let newest = |id: PageId| self.newest.get(&id).map(|newest| newest.0);
        let superseded = self.flights.iter().filter(|one| newest(one.id) != Some(one.sequence));
        superseded.for_each(|one| own(one.slot));
        assert_eq!(slots.len() as u32, SLOTS, "a slot is lost");
        let found: BTreeMap<PageId, u64> = versions.iter().map(|(one, _)| (one.id, one.sequence)).collect();
        let expected = self.newest.iter().map(|(id, newest)| (*id, newest.0)).collect();
        assert_eq!(found, expected, "the newest version of each page");
        let [free, dirty, clean, doomed] = self.book.counts();
        assert_eq!(free, self.book.free(0..SLOTS as usize).count());
        let count = |of: fn(&State) -> bool| versions.iter().filter(|(_, state)| of(state)).count();
        assert_eq!(dirty, count(|state| *state == State::Dirty));
        assert_eq!(clean, count(|state| *state == State::Clean));
        assert_eq!(doomed, count(|state| matches!(state, State::Doomed { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_book_agrees_with_a_model(steps in proptest::collection::vec(step(), 1..200)) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
            model.check();
        }
    }
}

/// A page that is put again while it is in the buffer, or soon after it has left, is written to the data
/// files after pages that were put once.
#[test]
fn pages_that_come_back_go_home_last() {
    let mut book = Book::new((0..SLOTS).collect(), std::iter::empty());
    let put = |book: &mut Book, no| {
        book.hold(id(no));
        let slot = book.take_free(1).unwrap()[0];
        let sequence = book.take_sequences(1);
        book.replace(Version { id: id(no), slot, sequence, lsn: Lsn::new(1) });
    };
    let numbers = |versions: &[Version]| versions.iter().map(|one| one.id.no().0).collect::<Vec<_>>();
    (1..4).for_each(|no| put(&mut book, no));
    put(&mut book, 1);
    let begun = book.begin_flush(9);
    assert_eq!(numbers(&begun), [2, 3, 1]);
    assert!(book.begin_flush(9).is_empty(), "what is being flushed is not begun twice");
    begun.iter().for_each(|version| book.end_flush(version, true));
    let leaving = book.leave_clean(9);
    assert_eq!(numbers(&leaving), [2, 3, 1]);
    book.left(&leaving);
    [1, 2, 4].into_iter().for_each(|no| put(&mut book, no));
    assert_eq!(numbers(&book.begin_flush(9)), [1, 4, 2], "2 left after one put, and 1 had its time");
}

#[test]
fn two_halves_of_what_is_needed_are_not_given() {
    let mut book = Book::new((0..2).collect(), std::iter::empty());
    assert!(book.take_free(3).is_none());
    assert_eq!(book.take_free(2).unwrap(), [0, 1]);
}

/// After a full device refused versions, a round tries only the versions that were dirty when it began. So
/// younger versions do not prevent that the refused ones are tried again.
#[test]
fn what_was_refused_is_tried_again_when_all_others_were() {
    let mut book = Book::new((0..SLOTS).collect(), std::iter::empty());
    let put = |book: &mut Book, no| {
        let slot = book.take_free(1).unwrap()[0];
        let sequence = book.take_sequences(1);
        book.replace(Version { id: id(no), slot, sequence, lsn: Lsn::new(1) });
    };
    let flush = |book: &mut Book, is_home| {
        let begun = book.begin_flush(1);
        begun.iter().for_each(|one| book.end_flush(one, is_home));
        if !is_home {
            book.pass_over(begun.iter().copied());
        }
        begun.first().map(|one| one.id.no().0)
    };
    (0..3).for_each(|no| put(&mut book, no));
    assert_eq!(flush(&mut book, false), Some(0));
    put(&mut book, 3);
    assert_eq!(flush(&mut book, true), Some(1));
    assert_eq!(flush(&mut book, true), Some(2));
    assert_eq!(flush(&mut book, true), None, "the turn is over");
    assert!(book.begin_turn() && !book.begin_turn());
    assert_eq!(flush(&mut book, true), Some(0));
}

/// The durable LSN of the log decides which discarded pages are freed, in the order of the log and not of the
/// discards. If nothing is due, a table of thousands of pages is not searched.
#[test]
fn discarded_pages_leave_in_the_order_of_the_log() {
    let mut book = Book::new((0..SLOTS).collect(), std::iter::empty());
    for no in 0..4 {
        let slot = book.take_free(1).unwrap()[0];
        let sequence = book.take_sequences(1);
        book.replace(Version { id: id(no), slot, sequence, lsn: Lsn::new(1) });
    }
    for (no, after) in [(0, 40), (1, 20), (2, 30), (3, 40)] {
        assert!(!book.doom(PageRange { first: id(no), count: 1 }, Lsn::new(after)));
    }
    assert!(!book.doom(PageRange { first: id(3), count: 1 }, Lsn::new(10)), "any note is enough");
    assert_eq!(book.next_due(), Some(Lsn::new(10)));
    let due = |book: &mut Book, durable, max| -> Vec<u32> {
        let leaving = book.leave_due(Lsn::new(durable), max);
        book.left(&leaving);
        leaving.iter().map(|one| one.id.no().0).collect()
    };
    assert_eq!(due(&mut book, 30, 2), [3, 1]);
    assert_eq!(due(&mut book, 30, 2), [2]);
    assert_eq!((due(&mut book, 39, 9), book.next_due()), (vec![], Some(Lsn::new(40))));
}
