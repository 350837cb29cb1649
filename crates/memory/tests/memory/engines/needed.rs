//! Each write-back and each fence of an engine is needed: without it, some crash image is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_device::{Change, MemoryDirectory};

use super::life::{self, Acknowledged, Plan};
use super::model::Model;
use super::{Engine, crash, drops, engine};
use crate::removal::{Outcome, Subject, in_two_threads};
use crate::rng::Rng;
use crate::skipping::Call;
use crate::traced::{Calls, Site};

/// The engines for which the test must show that each of their lines is needed. Lines of other engines are
/// only printed, because for some of them no scenario is known yet (decision 0907).
const COMPLETE: [&str; 2] = ["nvm_inplace", "nvm_cow"];
/// For the engines with files, one in this number of lives is searched, because their lives have thousands of
/// stores.
const LIVES_WITH_FILES_SHARE: u64 = 6;

/// The number of operations before a life is recorded. The next constant is the number of operations in the
/// life.
const BEFORE: usize = 120;
const OPERATIONS: usize = 60;
/// The number of different keys. It is large enough that nodes are split.
const KEYS: u64 = 60;
/// The number of recordings of recovery in which a site is searched.
const RECOVERIES: usize = 3;
/// The number of operations after the start on an image.
const GOES_ON: usize = 6;
/// The number of recordings of starts for each life.
const STARTS: usize = 25;

/// Returns a recorded life of an engine.
fn life_of(engine: &'static Engine, seed: u64) -> Result<Subject<'static>, String> {
    let plan = Plan { seed, operations: OPERATIONS, keys: KEYS, traced: Calls::All };
    Ok(subject(engine, crash::recorded(engine, BEFORE, &plan)?))
}

fn subject(engine: &'static Engine, life: life::Life) -> Subject<'static> {
    let (recording, sites) = (in_two_threads(life.recording.clone()), life.sites.clone());
    let judge = move |image: &Arc<MemoryDirectory>, mark| {
        let state = crash::state_of(engine, image, &life, Acknowledged::decode(mark))?;
        // The store continues, and does not overwrite what it has.
        let plan = Plan { seed: 5, operations: GOES_ON, keys: KEYS, traced: Calls::None };
        life::live(engine, MemoryDirectory::from_images(image.images()), state, &plan).map(drop)
    };
    Subject { recording, sites, judge: Box::new(judge) }
}

/// Returns whether the start on an image stores something.
fn writes_at_start(engine: &Engine, image: &Arc<MemoryDirectory>, state: &Model) -> Result<bool, String> {
    let copy = MemoryDirectory::from_images(image.images());
    let plan = Plan { seed: 0, operations: 0, keys: KEYS, traced: Calls::None };
    let started = life::live(engine, copy, state.clone(), &plan)?;
    Ok(started.recording.events.iter().any(|event| matches!(event.change, Change::Store { .. })))
}

/// Returns recordings of starts on crash images. Each of them has a site that few earlier recordings have.
fn recoveries(engine: &'static Engine, seed: u64) -> Result<Vec<Subject<'static>>, String> {
    let plan = Plan { seed, operations: OPERATIONS, keys: KEYS, traced: Calls::None };
    let life = crash::recorded(engine, BEFORE, &plan)?;
    let mut counts: BTreeMap<Site, usize> = BTreeMap::new();
    let mut subjects = Vec::new();
    let mut rng = Rng::new(seed);
    crash::search(engine, &life, seed, 7, |image, state| {
        if subjects.len() == STARTS || rng.below(4) > 0 || !writes_at_start(engine, image, &state)? {
            return Ok(());
        }
        let copy = MemoryDirectory::from_images(image.images());
        let plan = Plan { seed: rng.draw(), operations: 12, keys: KEYS, traced: Calls::Open };
        let next = life::live(engine, copy, state, &plan)?;
        let sites: BTreeSet<&Site> = next.sites.values().filter(|site| site.call == Call::Open).collect();
        if sites.iter().any(|site| counts.get(site).is_none_or(|count| *count < RECOVERIES)) {
            sites.into_iter().for_each(|site| *counts.entry(site.clone()).or_default() += 1);
            subjects.push(subject(engine, next));
        }
        Ok(())
    })?;
    Ok(subjects)
}

/// Searches all sites of these recordings. Returns the outcome for each site.
fn search(subjects: &[Subject<'_>], calls: impl Fn(Call) -> bool) -> BTreeMap<Site, Outcome> {
    let mut outcomes: BTreeMap<Site, Outcome> = BTreeMap::new();
    for (seed, subject) in (0..).zip(subjects) {
        let sites: BTreeSet<&Site> = subject.sites.values().filter(|site| calls(site.call)).collect();
        for site in sites {
            let outcome = outcomes.entry(site.clone()).or_default();
            if outcome.shown.is_none() {
                let Outcome { cuts, images, shown } = subject.without(site, seed);
                outcome.cuts += cuts;
                outcome.images += images;
                outcome.shown = shown;
            }
        }
    }
    outcomes
}

/// Searches all sites of an engine in lives of these seeds.
fn search_engine(name: &str, seeds: std::ops::Range<u64>) -> BTreeMap<Site, Outcome> {
    let engine = engine(name);
    let fail = |error: String| -> ! { panic!("{name}: {error}") };
    let lives: Result<Vec<_>, String> = seeds.clone().map(|seed| life_of(engine, seed)).collect();
    let mut lives = lives.unwrap_or_else(|error| fail(error));
    lives.push(subject(engine, life::live_long(engine).unwrap_or_else(|error| fail(error))));
    let mut outcomes = search(&lives, |call| call != Call::Open);
    let mut starts = Vec::new();
    for seed in seeds {
        starts.extend(recoveries(engine, seed).unwrap_or_else(|error| fail(error)));
    }
    outcomes.extend(search(&starts, |call| call == Call::Open));
    let drops = [drops::recorded(engine)];
    outcomes.extend(search(&drops, |call| matches!(call, Call::CreateTable | Call::DropTable)));
    outcomes
}

/// For each line of engines and files, given as event and line without the call, whether an image shows that
/// a call needs it. A line of a helper may be needed by one call and not by another.
type Lines = BTreeMap<String, bool>;

/// Checks that images show at least this many lines of an engine. Prints the others, and those of the
/// allocator. Adds the lines of the engine to `lines`.
fn check(name: &str, seeds: std::ops::Range<u64>, shown_min: usize, lines: &mut Lines) {
    let outcomes = search_engine(name, seeds);
    let is_shown = |outcome: &Outcome| outcome.shown.is_some();
    for (site, Outcome { cuts, images, .. }) in outcomes.iter().filter(|(_, outcome)| !is_shown(outcome)) {
        let Site { call, what, at, from } = site;
        println!("  not shown: {call:?} {what:?} at {at} from {from}; {cuts} cuts, {images} images");
    }
    let (own, lent): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(site, _)| !site.is_in_allocator());
    let count = |sites: &[(&Site, &Outcome)]| sites.iter().filter(|(_, outcome)| is_shown(outcome)).count();
    let (shown, lent_shown) = (count(&own), count(&lent));
    let images: u64 = outcomes.values().map(|outcome| outcome.images).sum();
    let (own, lent) = (own.len(), lent.len());
    println!("{name}: {shown} of {own} lines, {lent_shown} of {lent} of the allocator; {images} images");
    assert!(shown >= shown_min, "{name}: images show {shown} of {own} lines");
    for (site, outcome) in outcomes.iter().filter(|(site, _)| !site.is_in_allocator()) {
        *lines.entry(format!("{:?} at {}", site.what, site.at)).or_default() |= is_shown(outcome);
    }
}

#[test]
fn images_show_write_backs_and_fences_of_nvm_inplace() {
    check("nvm_inplace", 0..1, 40, &mut Lines::new());
}

#[test]
fn images_show_write_backs_and_fences_of_nvm_cow() {
    check("nvm_cow", 0..1, 15, &mut Lines::new());
}

#[test]
#[ignore = "a long search, which `make crash` runs: merges have many write-backs"]
fn many_images_show_write_backs_and_fences_of_nvm_log() {
    check("nvm_log", 0..1, 40, &mut Lines::new());
}

/// Checks all lines in `LIVES` lives of each engine, or of the engine `NEEDED` alone. For each line, an image
/// must show that it is needed.
#[test]
#[ignore = "a long search, which `make crash` runs"]
fn many_lives_show_each_write_back_and_fence() {
    let variable = |name| std::env::var(name).ok();
    let lives: u64 = variable("LIVES").and_then(|lives| lives.parse().ok()).unwrap_or(6);
    let wanted = variable("NEEDED");
    let mut lines = Lines::new();
    for name in ["nvm_inplace", "nvm_cow", "nvm_log", "inplace", "cow", "log"] {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            let lives = if name.starts_with("nvm_") { lives } else { lives.div_ceil(LIVES_WITH_FILES_SHARE) };
            let mut own = Lines::new();
            check(name, 0..lives, 1, &mut own);
            own.retain(|_, is_shown| *is_shown || COMPLETE.contains(&name));
            own.into_iter().for_each(|(line, is_shown)| *lines.entry(line).or_default() |= is_shown);
        }
    }
    let missing: Vec<&String> =
        lines.iter().filter(|(_, is_shown)| !**is_shown).map(|(line, _)| line).collect();
    println!("{} lines of engines and files; not shown: {missing:#?}", lines.len());
    assert!(missing.is_empty() || wanted.is_some(), "no image shows that these lines are needed");
}
