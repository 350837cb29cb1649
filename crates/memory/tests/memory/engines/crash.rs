//! Crash images of a table store, made before every store instruction, write-back and fence. Recovery on an
//! image is crashed, too. Two threads work in turn, with one transaction each.

use std::sync::Arc;

use varve_device::{Change, Directory, Fate, MemoryDirectory, RecordLog, Timeline};
use varve_memory::Allocator;

use super::life::{self, Acknowledged, Life, Plan};
use super::model::Model;
use super::random::no_chunk_is_lost;
use super::{ENGINES, Engine};
use crate::crash::{ENUMERATED_MAX, Seen, choices, cuts};
use crate::life::{DATABASE, REGION};
use crate::removal::in_two_threads;
use crate::rng::Rng;
use crate::traced::Calls;

/// The number of images of each life whose recovery is crashed.
const AGAIN: u64 = 3;
/// One of this many images is recovered in a life of its own.
const AGAIN_ONE_IN: u64 = 40;
/// At most one in this number of cuts is checked. `many_images.rs` checks more of them.
const STRIDE: usize = 3;
/// The number of cuts of a life, and of a recovery. An image with thousands of pending stores takes long to
/// build, so there are few cuts for engines with files.
const CUTS: usize = 80;
const CUTS_WITH_FILES: usize = 40;
const CUTS_OF_RECOVERY: usize = 15;

/// Returns the state of an image, if a crash may leave this state. It may leave the last durable state, a
/// state that was committed after it, or the state of the commit that was in progress.
pub fn state_of(
    engine: &Engine,
    image: &MemoryDirectory,
    life: &Life,
    acknowledged: Acknowledged,
) -> Result<Model, String> {
    // Opening an image may change it, so that it is judged in a copy.
    let copy = MemoryDirectory::from_images(image.images());
    let region = copy.map(REGION, 4096).map_err(|error| error.to_string())?;
    let allocator = Arc::new(Allocator::open(region, DATABASE).map_err(|error| error.to_string())?);
    let store = (engine.open)(allocator.clone()).map_err(|error| error.to_string())?;
    let Acknowledged { durable, commits } = acknowledged;
    let mut errors = Vec::new();
    for state in life.states.iter().take(commits + 2).skip(durable) {
        match state.compare(&*store) {
            Ok(()) => {
                no_chunk_is_lost(&allocator, &*store)?;
                return Ok(state.clone());
            }
            Err(error) => errors.push(error),
        }
    }
    Err(errors.join("; "))
}

/// Returns the largest number of cuts of a life. Engines with files copy whole pages or blocks. So their
/// lives have many thousands of stores, most of them pending.
fn cuts_max(engine: &Engine) -> usize {
    if engine.name.starts_with("nvm_") { usize::MAX } else { 200 }
}

/// Checks images at every `stride`-th cut of a life. Calls `each` with the images that are right.
pub fn search(
    engine: &Engine,
    life: &Life,
    seed: u64,
    stride: usize,
    mut each: impl FnMut(&Arc<MemoryDirectory>, Model) -> Result<(), String>,
) -> Result<Seen, String> {
    let mut rng = Rng::new(seed);
    let mut seen = Seen::default();
    let recording = in_two_threads(life.recording.clone());
    let mut timeline = Timeline::new(recording);
    let cuts = cuts(&life.recording);
    let stride = stride.max(cuts.len() / cuts_max(engine));
    let first = rng.below(stride as u64) as usize;
    for cut in cuts.into_iter().skip(first).step_by(stride) {
        timeline.advance(cut);
        let acknowledged = Acknowledged::decode(timeline.marks().last().copied().unwrap_or_default());
        let choices = choices(&timeline.pending(), &mut rng);
        seen.cuts += 1;
        seen.enumerated_cuts += u64::from(timeline.pending().len() <= ENUMERATED_MAX);
        for fates in choices {
            let [image] = &timeline.image(&fates)[..] else { return Err("one device was recorded".into()) };
            seen.images += 1;
            let state = state_of(engine, image, life, acknowledged);
            let what = |error| format!("{}, seed {seed}, cut {cut}, {acknowledged:?}: {error}", engine.name);
            each(image, state.map_err(what)?)?;
        }
    }
    Ok(seen)
}

/// Returns a life from a store that has had `before` operations.
pub fn recorded(engine: &Engine, before: usize, plan: &Plan) -> Result<Life, String> {
    let directory = life::with_table(engine, 3 << 20);
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    // Another seed: the same operations again would mostly add keys that are there.
    let before = Plan { seed: !plan.seed, operations: before, traced: Calls::None, ..*plan };
    let first = life::live_on(engine, region, &RecordLog::new(), Model::default(), &before)?;
    let state = first.states.last().cloned().unwrap_or_default();
    life::live(engine, directory, state, plan)
}

/// Returns the stride of the short search.
fn stride(life: &Life, cuts_max: usize) -> usize {
    cuts(&life.recording).len().div_ceil(cuts_max).max(STRIDE)
}

#[test]
fn every_crash_leaves_what_was_acknowledged() {
    for engine in &ENGINES {
        let cuts_max = if engine.name.starts_with("nvm_") { CUTS } else { CUTS_WITH_FILES };
        let (mut images, mut again) = (0, 0);
        for seed in 0..4 {
            let plan = Plan { seed, operations: 25, keys: 60, traced: Calls::None };
            let life = recorded(engine, 120, &plan).unwrap_or_else(|error| panic!("{error}"));
            let mut rng = Rng::new(seed ^ 9);
            let mut lives = 0;
            let seen = search(engine, &life, seed, stride(&life, cuts_max), |image, state| {
                if lives == AGAIN || rng.below(AGAIN_ONE_IN) > 0 {
                    return Ok(());
                }
                lives += 1;
                let next = Plan { seed: rng.draw(), operations: 2, ..plan };
                let copy = MemoryDirectory::from_images(image.images());
                let next = life::live(engine, copy, state, &next)?;
                again += search(engine, &next, seed, stride(&next, CUTS_OF_RECOVERY), |_, _| Ok(()))?.images;
                Ok(())
            });
            let seen = seen.unwrap_or_else(|error| panic!("{error}"));
            println!("{} seed {seed}: {seen:?}", engine.name);
            images += seen.images;
        }
        println!("{}: {images} images, {again} of recovery and behind it", engine.name);
        assert!(images + again > 700, "{images} images, {again} again");
    }
}

/// At each mark of a life whose threads work in turn, a crash keeps durable stores only. A fence waits for
/// the write-backs of its own thread. So this finds lines that one thread writes back, and for which only
/// another thread makes a fence. Returns the number of images and the number of pending stores.
fn keep_durable_stores_only(engine: &Engine, life: &Life) -> Result<(u64, usize), String> {
    let mut timeline = Timeline::new(in_two_threads(life.recording.clone()));
    let marks = life.recording.events.iter().filter(|event| matches!(event.change, Change::Mark(_)));
    let (mut images, mut pending) = (0, 0);
    for mark in marks {
        timeline.advance(mark.submitted + 1);
        let fates = vec![Fate::Absent; timeline.pending().len()];
        let [image] = &timeline.image(&fates)[..] else { return Err("one device was recorded".into()) };
        let acknowledged = Acknowledged::decode(timeline.marks().last().copied().unwrap_or_default());
        (images, pending) = (images + 1, pending + fates.len());
        state_of(engine, image, life, acknowledged)
            .map_err(|error| format!("{}, {acknowledged:?}: {error}", engine.name))?;
    }
    Ok((images, pending))
}

#[test]
fn no_commit_relies_on_the_fence_of_another_thread() {
    for engine in &ENGINES {
        let plan = Plan { seed: 5, operations: 300, keys: 60, traced: Calls::None };
        let life = recorded(engine, 120, &plan).unwrap_or_else(|error| panic!("{error}"));
        let (images, pending) =
            keep_durable_stores_only(engine, &life).unwrap_or_else(|error| panic!("{error}"));
        println!("{}: {images} ends of transactions, {pending} pending stores", engine.name);
        assert!(images > 40, "{}: {images} images", engine.name);
    }
}

#[test]
fn a_transaction_that_is_handed_over_may_change_its_thread() {
    for engine in &ENGINES {
        for seed in 0..2 {
            let life = life::live_in_turns(engine, seed, 40, |store| store.hand_over());
            let life = life.unwrap_or_else(|error| panic!("{error}"));
            let (images, pending) =
                keep_durable_stores_only(engine, &life).unwrap_or_else(|error| panic!("{error}"));
            println!("{} seed {seed}: {images} changes of the thread, {pending} pending stores", engine.name);
            assert!(images > 80, "{}: {images} images", engine.name);
        }
    }
}

/// The images show the fault if a transaction changes its thread without `hand_over`. The other engines write
/// nothing back before the commit.
#[test]
fn two_engines_need_to_be_handed_over() {
    for engine in &ENGINES {
        let is_lost = |seed| {
            let life =
                life::live_in_turns(engine, seed, 40, |_| {}).unwrap_or_else(|error| panic!("{error}"));
            keep_durable_stores_only(engine, &life).is_err()
        };
        let needs_it = ["nvm_inplace", "nvm_log"].contains(&engine.name);
        assert_eq!((0..2).any(is_lost), needs_it, "{}", engine.name);
    }
}
