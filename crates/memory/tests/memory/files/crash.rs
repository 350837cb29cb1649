//! Crash images of files, made before every store, write-back and fence. Recovery on an image is crashed,
//! too.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, RecordLog, Timeline};

use super::life::{self, Life, Plan};
use super::model::Model;
use super::{no_chunk_is_lost, open};
use crate::crash::{ENUMERATED_MAX, Seen, choices};
use crate::life::{REGION, empty};
use crate::rng::Rng;

/// The number of images of each life whose recovery is crashed.
const AGAIN: u64 = 6;
const REGION_BYTES: u64 = 1 << 20;
/// One in this number of moments is checked.
const STRIDE: usize = 27;

/// Returns the state of an image, if a crash may leave this state. It may leave the state of the last
/// acknowledged operation, or of the operation that was in progress. In both, writes without an `fsync` may
/// have happened or not.
fn judge(image: &MemoryDirectory, life: &Life, acknowledged: usize) -> Result<Model, String> {
    // Opening an image may change it, so that it is judged in a copy.
    let copy = MemoryDirectory::from_images(image.images());
    let mut opened = open(&copy)?;
    no_chunk_is_lost(&opened)?;
    let mut errors = Vec::new();
    for state in life.states.iter().skip(acknowledged).take(2) {
        match state.compare_image(&mut opened.files) {
            Ok(()) => return Model::of(&mut opened.files),
            Err(error) => errors.push(error),
        }
    }
    Err(errors.join("; "))
}

/// Checks images at every `stride`-th cut of a life. Calls `each` with the images that are right.
pub fn search(
    life: &Life,
    seed: u64,
    stride: usize,
    mut each: impl FnMut(&Arc<MemoryDirectory>, Model) -> Result<(), String>,
) -> Result<Seen, String> {
    let mut rng = Rng::new(seed);
    let mut seen = Seen::default();
    let mut timeline = Timeline::new(life.recording.clone());
    for cut in (1 + rng.below(stride as u64)..=timeline.end()).step_by(stride) {
        timeline.advance(cut);
        let acknowledged = timeline.marks().last().map_or(0, |mark| *mark as usize);
        let choices = choices(&timeline.pending(), &mut rng);
        seen.cuts += 1;
        seen.enumerated_cuts += u64::from(timeline.pending().len() <= ENUMERATED_MAX);
        for fates in choices {
            let [image] = &timeline.image(&fates)[..] else { return Err("one device was recorded".into()) };
            seen.images += 1;
            let state = judge(image, life, acknowledged);
            let what = |error| format!("seed {seed}, cut {cut}, operation {}: {error}", acknowledged + 1);
            each(image, state.map_err(what)?)?;
        }
    }
    Ok(seen)
}

/// Returns a life from files that have had `before` operations.
pub fn recorded(before: usize, plan: &Plan) -> Result<Life, String> {
    let directory = empty(REGION_BYTES);
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let before = Plan { seed: !plan.seed, operations: before, skip: None };
    life::live_on(region, &RecordLog::new(), Model::default(), &before)?;
    let state = Model::of(&mut open(&directory)?.files)?;
    life::live(directory, state, plan)
}

fn search_lives(stride: usize) {
    let (mut images, mut again) = (0, 0);
    for seed in 0..4 {
        let plan = Plan { seed, operations: 40, skip: None };
        let life = recorded(40, &plan).unwrap_or_else(|error| panic!("{error}"));
        let mut rng = Rng::new(seed ^ 9);
        let mut lives = 0;
        let seen = search(&life, seed, stride, |image, state| {
            if lives == AGAIN || rng.below(60) > 0 {
                return Ok(());
            }
            lives += 1;
            let next = Plan { seed: rng.draw(), operations: 3, skip: None };
            let copy = MemoryDirectory::from_images(image.images());
            let next = life::live(copy, state, &next)?;
            again += search(&next, seed, 5, |_, _| Ok(()))?.images;
            Ok(())
        });
        let seen = seen.unwrap_or_else(|error| panic!("{error}"));
        println!("files, seed {seed}: {seen:?}");
        images += seen.images;
    }
    println!("files: {images} images, {again} of recovery and behind it");
    assert!(images + again > 2_000, "{images} images, {again} again");
}

#[test]
fn every_crash_leaves_what_fsync_acknowledged() {
    search_lives(STRIDE);
}

#[test]
#[ignore = "a longer search, which `make crash` runs"]
fn many_crashes_leave_what_fsync_acknowledged() {
    search_lives(STRIDE / 9);
}

/// A crash in the middle of a removal leaves chunks, which the next start frees. This start is crashed at
/// every point.
#[test]
fn a_crash_during_the_removal_of_a_long_file_loses_no_chunk() {
    let build = |directory: &MemoryDirectory| {
        let mut opened = open(directory)?;
        let file = opened.files.create("file 0").map_err(|error| error.to_string())?;
        opened.files.append(file, &[7; 300_000]).map_err(|error| error.to_string())?;
        opened.files.fsync(file).map_err(|error| error.to_string())?;
        Model::of(&mut opened.files)
    };
    let directory = empty(REGION_BYTES);
    let state = build(&directory).unwrap_or_else(|error| panic!("{error}"));
    let log = RecordLog::new();
    let recorder = varve_device::Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = varve_memory::Allocator::open(region, crate::life::DATABASE);
    let allocator = allocator.unwrap_or_else(|error| panic!("{error}"));
    let mut files = super::open_on(Arc::new(allocator)).unwrap_or_else(|error| panic!("{error}"));
    log.mark(0);
    files.remove("file 0").unwrap_or_else(|error| panic!("{error}"));
    log.mark(1);
    let states = vec![state, Model::default()];
    let life = Life { recording: log.recording(), states, most_events: Default::default(), full_count: 0 };
    let (mut interrupted, mut again) = (0, 0);
    let seen = search(&life, 3, 1, |image, state| {
        if !state.files.is_empty() {
            return Ok(());
        }
        interrupted += 1;
        let copy = MemoryDirectory::from_images(image.images());
        let next = life::live(copy, state, &Plan { seed: 0, operations: 0, skip: None })?;
        if interrupted % 400 == 0 {
            again += search(&next, 5, 2, |_, _| Ok(()))?.images;
        }
        Ok(())
    });
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    println!("{seen:?}, {interrupted} behind the removal, {again} of its recovery");
    assert!(interrupted > 10 && again > 10, "{interrupted} behind the removal, {again} of its recovery");
}
