//! Crash images with the granularity of words and cache lines. An image is made before every store,
//! write-back and fence of a run. Recovery on an image is crashed, too.

use std::sync::Arc;

use varve_device::{Change, Event, Fate, MemoryDirectory, Recording, Timeline, WORD_BYTES};

use crate::life::{self, Life};
use crate::oracle::{self, State};
use crate::rng::Rng;

/// If there are at most this many pending stores, all subsets of them are tried.
pub const ENUMERATED_MAX: usize = 5;
/// Images at a cut with more.
const SAMPLES: u64 = 6;
/// The number of images of each life on which work continues.
const LIVES: u64 = 5;

/// What was looked at.
#[derive(Debug, Default)]
pub struct Seen {
    pub images: u64,
    pub enumerated_cuts: u64,
    pub cuts: u64,
}

/// Returns the moments at which a crash can leave other images than one moment earlier: before each store,
/// fence and mark, and at the end.
pub fn cuts(recording: &Recording) -> Vec<u64> {
    let changes = recording.events.iter().filter(|event| !matches!(event.change, Change::WriteBack { .. }));
    changes.map(|event| event.submitted).chain([recording.end]).collect()
}

/// Returns the choices of what a crash keeps of the pending stores.
pub fn choices(pending: &[&Event], rng: &mut Rng) -> Vec<Vec<Fate>> {
    let count = pending.len();
    let keep = |is_kept| if is_kept { Fate::Present } else { Fate::Absent };
    if count <= ENUMERATED_MAX {
        let whole = (0..1_u32 << count).map(|bits| (0..count).map(|no| keep(bits >> no & 1 == 1)).collect());
        let torn = (0..count).filter(|no| is_longer_than_a_word(pending[*no]));
        let torn: Vec<Vec<Fate>> = torn.map(|no| torn_one(count, no, rng)).collect();
        return whole.chain(torn).collect();
    }
    let mut sample = |_| {
        let odds = 1 + rng.below(4);
        let fate = |_| match rng.below(5) {
            found if found < odds => Fate::Present,
            4 => Fate::Torn { unit_bytes: WORD_BYTES, seed: rng.draw() },
            _ => Fate::Absent,
        };
        (0..count).map(fate).collect()
    };
    let ends = [vec![Fate::Absent; count], vec![Fate::Present; count]];
    ends.into_iter().chain((0..SAMPLES).map(&mut sample).collect::<Vec<_>>()).collect()
}

fn is_longer_than_a_word(event: &Event) -> bool {
    matches!(&event.change, Change::Store { bytes, .. } if bytes.len() > WORD_BYTES)
}

fn torn_one(count: usize, torn: usize, rng: &mut Rng) -> Vec<Fate> {
    let mut fates: Vec<Fate> =
        (0..count).map(|_| if rng.below(2) == 0 { Fate::Present } else { Fate::Absent }).collect();
    fates[torn] = Fate::Torn { unit_bytes: WORD_BYTES, seed: rng.draw() };
    fates
}

/// Returns the state of an image if it is one that a crash may leave: that of the last acknowledged
/// operation, or of the one that was under way.
fn judge(directory: &MemoryDirectory, life: &Life, acknowledged: usize) -> Result<State, String> {
    let allocator = life::open(directory).map_err(|error| error.to_string())?;
    let before = &life.states[acknowledged];
    let first = match oracle::compare(&allocator, before) {
        Ok(()) => return Ok(before.clone()),
        Err(first) => first,
    };
    let Some(after) = life.states.get(acknowledged + 1) else { return Err(first) };
    let expected = match life.in_parts[acknowledged] {
        true => between(&allocator, before, after),
        false => after.clone(),
    };
    let second = oracle::compare(&allocator, &expected);
    second.map_err(|second| format!("before: {first}\nafter: {second}"))?;
    Ok(expected)
}

/// Returns the state `before` without the chunks that `after` lacks and that are not active any more.
fn between(allocator: &varve_memory::Allocator, before: &State, after: &State) -> State {
    let active = allocator.active_chunks().unwrap_or_default();
    let mut state = before.clone();
    let is_there = |pointer| active.iter().any(|chunk| chunk.pointer == pointer);
    state.chunks.retain(|pointer, _| after.chunks.contains_key(pointer) || is_there(*pointer));
    state
}

/// Checks images at every `stride`-th cut of a life. Calls `each` with the images that are right.
pub fn search(
    life: &Life,
    seed: u64,
    stride: usize,
    mut each: impl FnMut(&Arc<MemoryDirectory>, State) -> Result<(), String>,
) -> Result<Seen, String> {
    let mut rng = Rng::new(seed);
    let mut seen = Seen::default();
    let mut timeline = Timeline::new(life.recording.clone());
    let first = 1 + rng.below(stride as u64);
    for cut in (first..=timeline.end()).step_by(stride) {
        timeline.advance(cut);
        let acknowledged = timeline.marks().last().map_or(0, |mark| *mark as usize);
        let choices = choices(&timeline.pending(), &mut rng);
        seen.cuts += 1;
        seen.enumerated_cuts += u64::from(timeline.pending().len() <= ENUMERATED_MAX);
        for fates in choices {
            let [image] = &timeline.image(&fates)[..] else { return Err("one device was recorded".into()) };
            seen.images += 1;
            let what = |error| format!("seed {seed}, cut {cut}, operation {}: {error}", acknowledged + 1);
            // Opening an image may change it, so that it is judged in a copy.
            let copy = MemoryDirectory::from_images(image.images());
            let state = judge(&copy, life, acknowledged).map_err(what)?;
            each(image, state).map_err(what)?;
        }
    }
    Ok(seen)
}

/// Checks the images of a life, and the images of recovery on some of them.
pub fn crash(seed: u64, region_bytes: u64, operations: usize) -> Result<(Seen, u64), String> {
    let life = life::live(life::empty(region_bytes), State::default(), seed, operations, None)?;
    let (mut again, mut lives) = (0, 0);
    let mut rng = Rng::new(seed ^ 1);
    let seen = search(&life, seed, 1, |image, state| {
        if lives == LIVES || rng.below(150) > 0 {
            return Ok(());
        }
        lives += 1;
        // Recovery and the work after it are crashed, too. They begin with the state that was recovered.
        let next = life::live(Arc::clone(image), state, rng.draw(), 3, None)?;
        again += search(&next, seed, 5, |_, _| Ok(()))?.images;
        Ok(())
    })?;
    Ok((seen, again))
}

#[test]
fn every_crash_leaves_what_was_acknowledged() {
    let mut images = 0;
    for seed in 0..3 {
        let segments = [3, 6, 16][seed as usize % 3];
        let (seen, again) =
            crash(seed, 40_960 + segments * 66_000, 40).unwrap_or_else(|error| panic!("{error}"));
        println!("seed {seed}: {seen:?}, {again} images of a second life");
        images += seen.images + again;
    }
    assert!(images > 2_000, "{images} images");
}
