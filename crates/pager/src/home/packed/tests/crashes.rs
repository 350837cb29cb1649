//! Test: pages are written, moved, settled and discarded in a random order, and a crash comes at any moment.
//! After the crash every page that was stable is found, and is whole.
//!
//! The device, the log and the checkpoint are models. The book (`book.rs`) and the replay of the log
//! (`replay.rs`) are the real ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::home::packed::book::Book;
use crate::home::packed::extents::{ExtentNo, Extents, NoExtent};
use crate::home::packed::moves::{MoveRound, Output, Readable, Rules, Survivor};
use crate::home::packed::note::Said;
use crate::home::packed::page_map::PageMap;
use crate::home::packed::replay::Replay;
use crate::home::packed::unit_run::UnitRun;

/// An extent has only a few slots, so extents become free and are used again all the time.
const EXTENT_BYTES: usize = 8 << 10;
const PAGES: u32 = 12;
const RULES: Rules = Rules { extents: 2, live_units_max: 12, sector_units: 1 };

/// A stored version of a page, and the place to which it was written.
struct Version {
    no: PageNo,
    /// The LSN of the image. For an image without one, the end of the log when the image was made.
    lsn: Lsn,
    place: UnitRun,
    has_landed: bool,
    is_flushed: bool,
}

#[derive(Debug, Clone)]
enum Event {
    Said(Said),
    Discard(Range<u32>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Settling {
    Begun,
    Flushed,
    Noted,
}

#[derive(Debug, Clone)]
pub(in crate::home::packed) enum Op {
    Change { no: u32 },
    Write { no: u32, units: u32, is_logged: bool },
    Land,
    Move { no: u32 },
    LandMove,
    Choose { unsound: Option<usize> },
    UnitRun { is_read: bool },
    LandTurn { written: usize },
    Trim,
    Settle,
    Unsettle,
    Discard { first: u32, count: u32 },
    CallDiscard,
    FlushLog,
    Bury,
    Checkpoint,
}

pub(in crate::home::packed) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..PAGES).prop_map(|no| Op::Change { no }),
        8 => (0..PAGES, 1_u32..8, prop::bool::weighted(0.9))
            .prop_map(|(no, units, is_logged)| Op::Write { no, units, is_logged }),
        8 => Just(Op::Land),
        3 => (0..PAGES).prop_map(|no| Op::Move { no }),
        3 => Just(Op::LandMove),
        3 => prop::option::weighted(0.1, 0_usize..8).prop_map(|unsound| Op::Choose { unsound }),
        4 => prop::bool::weighted(0.1).prop_map(|is_read| Op::UnitRun { is_read }),
        3 => (0_usize..4).prop_map(|written| Op::LandTurn { written }),
        1 => Just(Op::Trim),
        8 => Just(Op::Settle),
        1 => Just(Op::Unsettle),
        2 => (0..PAGES, 1_u32..5).prop_map(|(first, count)| Op::Discard { first, count }),
        2 => Just(Op::CallDiscard),
        1 => Just(Op::FlushLog),
        2 => Just(Op::Bury),
        1 => Just(Op::Checkpoint),
    ]
}

pub(in crate::home::packed) struct CrashableSpace {
    map: Arc<PageMap>,
    book: Book,
    versions: Vec<Version>,
    /// The version that was written last to each unit.
    medium: HashMap<u64, usize>,
    log: Vec<(Lsn, Event)>,
    end: Lsn,
    durable: Lsn,
    checkpoint: (BTreeMap<u32, UnitRun>, Lsn),
    /// For each page, the LSN of a change that no image has.
    changed: BTreeMap<u32, Lsn>,
    /// The newest stable image of each page, as reported to the dirty-page table.
    stable: BTreeMap<u32, Lsn>,
    flying: Vec<usize>,
    moving: Vec<(UnitRun, usize)>,
    /// A turn that has read the pages to move. No page is written into its victims until the pages have new
    /// slots.
    chosen: Option<(MoveRound, BTreeMap<PageNo, Lsn>)>,
    /// A turn of reclamation, and the versions that it writes.
    turn: Option<(MoveRound, Vec<Output>, Vec<usize>)>,
    settling: Option<(Settling, Vec<Said>)>,
    /// Discards that are in the log, and that the book has not executed yet.
    discarding: Vec<(Range<u32>, Lsn)>,
}

impl CrashableSpace {
    pub(in crate::home::packed) fn new() -> CrashableSpace {
        let map = Arc::new(PageMap::new());
        CrashableSpace {
            book: Book::new(map.clone(), Extents::new(EXTENT_BYTES), BTreeSet::new()),
            map,
            versions: Vec::new(),
            medium: HashMap::new(),
            log: Vec::new(),
            end: Lsn::new(1),
            durable: Lsn::new(1),
            checkpoint: (BTreeMap::new(), Lsn::ZERO),
            changed: BTreeMap::new(),
            stable: BTreeMap::new(),
            flying: Vec::new(),
            moving: Vec::new(),
            chosen: None,
            turn: None,
            settling: None,
            discarding: Vec::new(),
        }
    }

    fn append(&mut self, event: Option<Event>) -> Lsn {
        self.end = self.end.forward(10);
        self.log.extend(event.map(|event| (self.end, event)));
        self.end
    }

    fn is_discarding(&self, no: u32) -> bool {
        self.discarding.iter().any(|(range, _)| range.contains(&no))
    }

    pub(in crate::home::packed) fn run(&mut self, op: &Op) {
        match op {
            Op::Change { no } if self.is_discarding(*no) => {}
            Op::Change { no } => {
                let lsn = self.append(None);
                self.changed.insert(*no, lsn);
            }
            Op::Write { no, units, is_logged } => self.write(*no, *units, *is_logged),
            Op::Land => self.land(),
            Op::Move { no } => self.start_move(*no),
            Op::LandMove => self.land_move(),
            Op::Choose { unsound } => self.choose(*unsound),
            Op::UnitRun { is_read } => self.place(*is_read),
            Op::LandTurn { written } => self.land_turn(*written),
            Op::Trim => self.trim(),
            Op::Settle => self.settle(),
            Op::Unsettle => self.unsettle(),
            Op::Discard { first, count } => self.discard(*first..(*first + *count).min(PAGES)),
            Op::CallDiscard => {
                if let Some((range, after)) = self.discarding.pop() {
                    self.book.discard(range, after);
                }
            }
            Op::FlushLog => self.durable = self.end,
            Op::Bury => self.book.bury(self.durable),
            Op::Checkpoint => self.checkpoint(),
        }
    }

    /// Begins to write a new version.
    fn write(&mut self, no: u32, units: u32, is_logged: bool) {
        let is_flying = self.flying.iter().any(|version| self.versions[*version].no.0 == no);
        if is_flying || self.is_discarding(no) {
            return;
        }
        let changed = self.changed.remove(&no);
        let lsn = match is_logged {
            true => changed.unwrap_or_else(|| self.append(None)),
            false => self.end,
        };
        if is_logged {
            // The log is durable up to this LSN, and no further.
            self.durable = self.durable.max(lsn);
        }
        let version = self.fill(PageNo(no), lsn, units);
        self.flying.push(version);
    }

    /// Takes a slot, and overwrites its old contents.
    fn fill(&mut self, no: PageNo, lsn: Lsn, units: u32) -> usize {
        let place = loop {
            if let Some(place) = self.book.take(no, units) {
                break place;
            }
            // In the real code, a thread that runs a turn holds the lock under which extents are begun. So
            // the turn ends first.
            self.place(false);
            self.land_turn(usize::MAX);
            if self.book.begin_for(units, 0, |_| false) == Err(NoExtent::NoneFree) {
                match self.book.extents().first_hollow(0) {
                    Some(hollow) => self.book.extents_mut().refilled(hollow),
                    None => self.book.extents_mut().lengthen(1),
                }
            }
        };
        self.put(no, lsn, place)
    }

    /// Overwrites the units of a place with a new version.
    fn put(&mut self, no: PageNo, lsn: Lsn, place: UnitRun) -> usize {
        let version = self.versions.len();
        self.versions.push(Version { no, lsn, place, has_landed: false, is_flushed: false });
        self.medium.extend((place.address()..place.end()).map(|unit| (unit, version)));
        version
    }

    fn land(&mut self) {
        let Some(version) = self.flying.pop() else { return };
        let version = &mut self.versions[version];
        version.has_landed = true;
        self.book.written(version.no, version.lsn, version.place);
    }

    fn start_move(&mut self, no: u32) {
        let Some(from) = self.map.load(PageNo(no)) else { return };
        let lsn = self.version_at(PageNo(no), from, false, "to be moved").lsn;
        let version = self.fill(PageNo(no), lsn, from.units());
        self.moving.push((from, version));
    }

    fn land_move(&mut self) {
        let Some((from, version)) = self.moving.pop() else { return };
        let version = &mut self.versions[version];
        version.has_landed = true;
        self.book.moved(version.no, from, version.place);
    }

    /// Begins a round of moves: chooses extents, and reads the pages that are to be moved out of them. If
    /// `unsound` is set, the read of the page with this index fails, and the page stays where it is.
    fn choose(&mut self, unsound: Option<usize>) {
        if self.turn.is_some() || self.chosen.is_some() {
            return;
        }
        let mut turn = MoveRound::choose(&self.book, &RULES);
        if let Some(unsound) = unsound {
            let readable = |at| if at == unsound { Readable::NotNow } else { Readable::Yes };
            let found: Vec<Readable> = (0..turn.survivors.len()).map(readable).collect();
            turn.leave(&mut self.book, &found);
        }
        let lsn = |one: &Survivor| self.version_at(one.no, one.from, false, "a survivor").lsn;
        let survivors = turn.survivors.iter().map(|one| (one.no, lsn(one))).collect();
        self.chosen = Some((turn, survivors));
    }

    /// Assigns slots to the chosen pages, and begins to write their copies.
    fn place(&mut self, is_read: bool) {
        let Some((mut turn, survivors)) = self.chosen.take() else { return };
        self.book.extents_mut().try_stuck_again();
        let outputs = turn.place(&mut self.book, &RULES, |_| is_read);
        let mut versions = Vec::new();
        for one in outputs.iter().flat_map(|output| &output.moves) {
            versions.push(self.put(one.survivor.no, survivors[&one.survivor.no], one.to));
        }
        self.turn = Some((turn, outputs, versions));
    }

    /// Ends a turn. Only the first `written` outputs could be written.
    fn land_turn(&mut self, written: usize) {
        let Some((turn, outputs, versions)) = self.turn.take() else { return };
        versions.into_iter().for_each(|version| self.versions[version].has_landed = true);
        turn.land(&mut self.book, outputs, written);
    }

    /// Punches free extents, so that their bytes are gone.
    fn trim(&mut self) {
        let victims: Vec<ExtentNo> =
            self.chosen.iter().flat_map(|(turn, _)| turn.victims().to_vec()).collect();
        while let Some(run) = self.book.extents_mut().take_run(1, 1, 2, |no| victims.contains(&no)) {
            let units = u64::from(self.book.extents().extent_units());
            let hole = u64::from(run.start) * units..u64::from(run.end) * units;
            self.medium.retain(|unit, _| !hole.contains(unit));
            self.book.extents_mut().give_back(run, true);
        }
        let tail = self.book.extents().free_tail(1, |no| victims.contains(&no));
        self.book.extents_mut().shorten(tail);
    }

    fn settle(&mut self) {
        match self.settling.take() {
            None => {
                self.book.begin_settle();
                self.settling = Some((Settling::Begun, Vec::new()));
            }
            Some((Settling::Begun, said)) => {
                self.versions.iter_mut().filter(|version| version.has_landed).for_each(|version| {
                    version.is_flushed = true;
                });
                self.settling = Some((Settling::Flushed, said));
            }
            Some((Settling::Flushed, _)) => {
                let said = self.book.to_note();
                self.append(None);
                let events = said.iter().map(|said| (self.end, Event::Said(*said)));
                self.log.extend(events);
                self.settling = Some((Settling::Noted, said));
            }
            Some((Settling::Noted, said)) => {
                self.durable = self.end;
                let told: BTreeSet<u32> = self.book.settled().into_iter().map(|(no, _)| no.0).collect();
                let told = said.iter().filter(|said| told.contains(&said.no.0));
                self.stable.extend(told.map(|said| (said.no.0, said.lsn)));
            }
        }
    }

    fn unsettle(&mut self) {
        if self.settling.as_ref().is_some_and(|(at, _)| *at != Settling::Noted) {
            self.settling = None;
            self.book.unsettle();
        }
    }

    fn discard(&mut self, range: Range<u32>) {
        let is_flying = self.flying.iter().any(|version| range.contains(&self.versions[*version].no.0));
        if !is_flying && !range.clone().any(|no| self.is_discarding(no)) {
            let after = self.append(Some(Event::Discard(range.clone())));
            self.changed.retain(|no, _| !range.contains(no));
            self.discarding.push((range, after));
        }
    }

    fn checkpoint(&mut self) {
        if self.settling.is_some() || !self.discarding.is_empty() {
            return;
        }
        let found = |no| Some((no, self.book.found_by_crash(PageNo(no))?));
        let copy: BTreeMap<u32, UnitRun> = (0..PAGES).filter_map(found).collect();
        let same = (0..PAGES).filter(|no| copy.get(no) == self.checkpoint.0.get(no));
        let (dirty, _) = self.book.copy(1, 0);
        assert!(!dirty.is_empty() || same.count() == PAGES as usize, "a map page changed and is not dirty");
        self.durable = self.end;
        self.checkpoint = (copy, self.end);
    }

    /// Returns the version in this place. It must be whole.
    fn version_at(&self, no: PageNo, place: UnitRun, must_be_flushed: bool, what: &str) -> &Version {
        let first = self.medium[&place.address()];
        let is_whole = (place.address()..place.end()).all(|unit| self.medium[&unit] == first);
        let version = &self.versions[first];
        assert!(is_whole, "{what}: page {} in parts at {place:?}", no.0);
        assert_eq!((version.no, version.place), (no, place), "{what}: another page");
        assert!(version.is_flushed || !must_be_flushed, "{what}: page {} is not durable", no.0);
        version
    }

    /// Checks what recovery finds after a crash that keeps the log up to `upto`.
    fn check_crash(&self, upto: Lsn) {
        let (copy, after) = &self.checkpoint;
        let map = PageMap::new();
        copy.iter().for_each(|(no, place)| {
            map.swap(PageNo(*no), Some(*place));
        });
        let mut replay = Replay::new(SpaceId::DATA, map, *after);
        let mut discards = BTreeMap::new();
        for (lsn, event) in self.log.iter().filter(|(lsn, _)| *lsn <= upto) {
            match event {
                Event::Said(said) => replay.said(*lsn, said),
                Event::Discard(range) => {
                    let first = PageId::new(SpaceId::DATA, PageNo(range.start));
                    replay.discarded(*lsn, PageRange { first, count: range.len() as u32 });
                    discards.extend(range.clone().map(|no| (no, *lsn)));
                }
            }
        }
        let (map, _) = replay.finish();
        let what = format!("crash at {upto}");
        for no in 0..PAGES {
            let found = map.load(PageNo(no)).map(|place| self.version_at(PageNo(no), place, true, &what));
            let discarded = discards.get(&no).copied().unwrap_or(Lsn::ZERO);
            assert!(found.is_none_or(|version| version.lsn >= discarded), "{what}: page {no} rose again");
            if let Some(stable) = self.stable.get(&no).filter(|stable| **stable >= discarded) {
                let lsn = found.map(|version| version.lsn);
                assert!(lsn >= Some(*stable), "{what}: page {no} at {lsn:?}, was stable at {stable}");
            }
        }
    }

    pub(in crate::home::packed) fn check(&self) {
        for no in (0..PAGES).map(PageNo) {
            if let Some(place) = self.map.load(no) {
                self.version_at(no, place, false, "a read");
                let home = self.book.extents().extent_of(place);
                assert!(
                    !self.book.extents().is_emptied(home),
                    "page {} lies in emptied extent {}",
                    no.0,
                    home.0
                );
            }
        }
        let later = self.log.iter().map(|(lsn, _)| *lsn).filter(|lsn| *lsn > self.durable);
        let moments: BTreeSet<Lsn> = later.chain([self.durable]).collect();
        moments.into_iter().for_each(|upto| self.check_crash(upto));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_finds_what_it_must(ops in proptest::collection::vec(op(), 1..200)) {
        let mut world = CrashableSpace::new();
        for op in &ops {
            world.run(op);
            world.check();
        }
    }
}

/// Runs operations, and checks the state after each.
fn run(ops: &[Op]) -> CrashableSpace {
    run_on(CrashableSpace::new(), ops)
}

fn run_on(mut world: CrashableSpace, ops: &[Op]) -> CrashableSpace {
    for op in ops {
        world.run(op);
        world.check();
    }
    world
}

const RECLAIM: [Op; 2] = [Op::Choose { unsound: None }, Op::UnitRun { is_read: false }];
const WRITE: Op = Op::Write { no: 3, units: 4, is_logged: true };

/// When everything is settled and no grave is left, only slots of pages are live.
#[test]
fn nothing_leaks() {
    let settle = vec![Op::Settle; 4];
    let discard = [Op::Discard { first: 3, count: 1 }, Op::CallDiscard, Op::FlushLog, Op::Bury];
    let write = [WRITE, Op::Land];
    let moves = [Op::Move { no: 3 }, Op::LandMove];
    let world = run(&[&write[..], &moves, &settle, &write, &settle, &moves, &settle].concat());
    assert_eq!(world.book.extents().live_units(), 4);
    assert_eq!(world.book.held_count(), 0);
    let world = run(&[&write[..], &settle, &write, &settle[..3], &write, &discard, &settle[..1]].concat());
    assert_eq!(world.book.extents().live_units(), 0);
    let stale = [WRITE, Op::Land, Op::Move { no: 3 }, WRITE, Op::Land, Op::LandMove];
    let world = run(&[&stale[..], &settle].concat());
    assert_eq!(world.book.extents().live_units(), 4, "the copy of an older version dies");
    // Five pages of seven units take three extents. One of these is old, and half of it is dead.
    let five = (0..5).flat_map(|no| [Op::Write { no, units: 7, is_logged: true }, Op::Land]);
    let old = [Op::Write { no: 1, units: 7, is_logged: true }, Op::Land];
    for turn in
        [vec![Op::LandTurn { written: 9 }], vec![Op::LandTurn { written: 0 }], [WRITE, Op::Land].into()]
    {
        let start: Vec<Op> =
            five.clone().chain(settle.clone()).chain(old.clone()).chain(settle.clone()).collect();
        let world = run(&[&start[..], &RECLAIM, &turn, &settle, &settle, &[Op::Trim]].concat());
        let world = match turn.len() {
            2 => run_on(world, &[&[Op::LandTurn { written: 9 }][..], &settle, &settle].concat()),
            _ => world,
        };
        let units = if turn.len() == 2 { 4 * 7 + 4 } else { 5 * 7 };
        assert_eq!(world.book.extents().live_units(), units);
        assert_eq!((world.book.extents().emptied_count(), world.book.held_count()), (0, 0));
    }
}

/// A settle fails while its page is moved. The page's image is not logged yet, so the page must not be logged
/// as only moved.
#[test]
fn a_move_of_a_page_that_was_not_noted_is_a_write() {
    let start = [WRITE, Op::Land, Op::Settle, Op::Move { no: 3 }, Op::LandMove, Op::Unsettle];
    let world = run(&[&start[..], &[const { Op::Settle }; 4]].concat());
    assert_eq!(world.stable.len(), 1);
    assert_eq!(world.book.extents().live_units(), 4);
}

/// A crash loses the log record of a drop. Then its pages must be readable as before, so their slots must not
/// have been overwritten.
#[test]
fn the_slots_of_a_dropped_page_stay_until_the_note_is_durable() {
    let unlogged = |no| [Op::Write { no, units: 7, is_logged: false }, Op::Land];
    let start = [Op::Write { no: 3, units: 7, is_logged: true }, Op::Land];
    let drop = [Op::Discard { first: 3, count: 1 }, Op::CallDiscard, Op::Bury];
    let settle = [const { Op::Settle }; 4];
    let world = run(&[&start[..], &settle, &drop, &unlogged(4), &unlogged(5), &unlogged(6)].concat());
    assert_eq!(world.book.extents().free_count(), 0);
    let world = run(&[&start[..], &settle, &drop, &[Op::FlushLog, Op::Bury], &unlogged(4)].concat());
    assert_eq!(world.book.extents().live_units(), 7);
}

/// A settle logs a page between the log record of its discard and the discard itself. If a crash loses the
/// discard but not the settle's record, the page is found where that record says.
#[test]
fn a_noted_slot_of_a_dropped_page_stays_until_the_discard_is_durable() {
    let unlogged = |no| [Op::Write { no, units: 7, is_logged: false }, Op::Land];
    let start = [Op::Write { no: 3, units: 7, is_logged: true }, Op::Land];
    let noted = [const { Op::Settle }; 3];
    let drop = [Op::Discard { first: 3, count: 1 }, Op::CallDiscard, Op::Bury];
    run(&[&start[..], &noted, &drop, &unlogged(4), &unlogged(5), &unlogged(6)].concat());
}

/// The same case as in the test above, with a checkpoint of the map right after it. The settle's record is
/// before the checkpoint's LSN, and the discard is before the block with that LSN. If the log were read from
/// the block on, the settle's record would count.
#[test]
fn a_checkpoint_leaves_no_note_behind_that_it_has_overruled() {
    let start = [WRITE, Op::Land, Op::Settle, Op::Settle];
    let race = [Op::Discard { first: 3, count: 1 }, Op::Change { no: 7 }, Op::Settle, Op::Settle];
    run(&[&start[..], &race, &[Op::CallDiscard, Op::Checkpoint]].concat());
}
