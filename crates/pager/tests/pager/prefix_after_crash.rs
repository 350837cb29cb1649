//! After any crash the database has a prefix of the mini-transactions, at least those that were flushed.
//! Pages, allocation and dropped segments are tested, with lost, torn and garbled writes. Recovery is
//! crashed, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{NoOps, Random, add, config, get, open, set};
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_pager::{PageId, Pager, PagerConfig, SpaceId};

/// A state that a crash may leave: for each owner, its pages with their numbers.
type State = BTreeMap<u32, BTreeMap<PageId, u64>>;

struct History {
    states: Vec<State>,
    first_owner: u32,
}

fn recording_config(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = config(&MemoryDirectory::new(), 32);
    config.data = directory.clone();
    config.log = directory.clone();
    config.rollback = directory.clone();
    config.temporary = directory.clone();
    config.control = directory;
    config
}

/// Runs a workload, and marks the recording with the number of the newest flushed state.
fn workload(pager: &Pager, log: &RecordLog, seed: u64, steps: u64) -> History {
    let mut random = Random(seed);
    let mut states = vec![State::new()];
    let first_owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut state: State = BTreeMap::from([(first_owner, BTreeMap::new())]);
    for number in 1..=steps {
        let owners: Vec<u32> = state.keys().copied().collect();
        let owner = owners[random.below(owners.len() as u64) as usize];
        let pages: Vec<PageId> = state[&owner].keys().copied().collect();
        match random.below(20) {
            0..6 => {
                let id = add(pager, owner, number).unwrap();
                state.entry(owner).or_default().insert(id, number);
            }
            6..14 if !pages.is_empty() => {
                let id = pages[random.below(pages.len() as u64) as usize];
                set(pager, id, number).unwrap();
                state.entry(owner).or_default().insert(id, number);
            }
            14 if !pages.is_empty() => {
                let id = pages[random.below(pages.len() as u64) as usize];
                let mut mtr = pager.begin().unwrap();
                mtr.free(id).unwrap();
                mtr.commit();
                state.entry(owner).or_default().remove(&id);
            }
            15 if random.below(4) == 0 => {
                pager.drop_segment(SpaceId::DATA, owner).unwrap();
                state.remove(&owner);
                let next = pager.create_segment(SpaceId::DATA).unwrap();
                state.insert(next, BTreeMap::new());
            }
            16 => assert!(pager.tick_write(random.below(20) as usize).unwrap() < 20),
            17 => pager.checkpoint().unwrap(),
            _ => {
                pager.flush_log(pager.log().end()).unwrap();
                log.mark(states.len() as u64 - 1);
                continue;
            }
        }
        if states.last() != Some(&state) {
            states.push(state.clone());
        }
    }
    History { states, first_owner }
}

/// Returns the pages of the workload's owners, as the database has them.
fn observe(pager: &Pager, first_owner: u32) -> State {
    let mut found = State::new();
    for owner in pager.owners(SpaceId::DATA).unwrap().into_keys().filter(|owner| *owner >= first_owner) {
        let pages = pager.pages_of_owner(SpaceId::DATA, owner).unwrap();
        found.insert(owner, pages.into_iter().map(|id| (id, get(pager, id).unwrap())).collect());
    }
    found
}

fn without_empty(state: &State) -> State {
    state
        .iter()
        .filter(|(_, pages)| !pages.is_empty())
        .map(|(owner, pages)| (*owner, pages.clone()))
        .collect()
}

fn fates(pending: usize, random: &mut Random, style: u64) -> Vec<Fate> {
    let mut one = |style: u64| match style {
        0 => Fate::Absent,
        1 => Fate::Present,
        _ => match random.below(4) {
            0 => Fate::Absent,
            1 => Fate::Present,
            2 => Fate::Torn { unit_bytes: 512, seed: random.next() },
            _ => Fate::Garbage { seed: random.next() },
        },
    };
    (0..pending).map(|_| one(style)).collect()
}

fn check(directory: &Arc<MemoryDirectory>, history: &History, flushed: u64, what: &str) {
    let pager = Pager::open(recording_config(directory.clone()), Arc::new(NoOps))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = observe(&pager, history.first_owner);
    let at = history.states.iter().rposition(|state| without_empty(state) == found);
    let at = at.unwrap_or_else(|| panic!("{what}: no state of the history: {found:?}"));
    assert!(at as u64 >= flushed, "{what}: state {at}, but {flushed} was flushed");
    let report = pager.check().unwrap();
    assert_eq!(report.damages, Vec::<String>::new(), "{what}");
}

fn crash_everywhere(seed: u64, cuts: u64) {
    let inner = MemoryDirectory::new();
    drop(open(&recording_config(inner.clone())));
    let log = RecordLog::new();
    let recorder = Recorder::wrap(inner, log.clone());
    let pager = open(&recording_config(recorder));
    let history = workload(&pager, &log, seed, 600);
    drop(pager);
    let mut random = Random(seed ^ 0xFA7E);
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut_no in 1..=cuts {
        let cut = end * cut_no / cuts;
        timeline.advance(cut);
        let flushed = timeline.marks().last().copied().unwrap_or(0);
        let pending = timeline.pending().len();
        for style in 0..3 {
            let image = timeline.image(&fates(pending, &mut random, style)).remove(0);
            let what = format!("seed {seed:#x}, cut {cut} of {end}, style {style}");
            if cut_no % 8 == 0 && style == 2 {
                crash_again(&image, &history, flushed, &mut random, &what);
            }
            check(&image, &history, flushed, &what);
        }
    }
}

/// Crashes the recovery of an image, too.
fn crash_again(
    image: &Arc<MemoryDirectory>,
    history: &History,
    flushed: u64,
    random: &mut Random,
    what: &str,
) {
    let log = RecordLog::new();
    let copy = MemoryDirectory::from_images(image.images());
    let pager = open(&recording_config(Recorder::wrap(copy, log.clone())));
    pager.tick_write(10).unwrap();
    pager.checkpoint().unwrap();
    drop(pager);
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut in (0..4).map(|part| end * part / 4) {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        let image = timeline.image(&fates(pending, random, 2)).remove(0);
        check(&image, history, flushed, &format!("{what}, again at {cut} of {end}"));
    }
}

#[test]
fn any_crash_leaves_a_prefix() {
    for seed in 1..=4_u64 {
        crash_everywhere(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), 40);
    }
}
