//! Data in persistent memory survives any crash, whichever of the pending cache lines and words survive.

use varve_sim::crowd::Crowd;
use varve_sim::engine::{Engine, covering_seeds};
use varve_sim::pages::Pages;
use varve_sim::{Part, Plan, SearchResult, search};

/// The number of crash images, unless `VARVE_CRASH_IMAGES` sets it, and the number of these images that are
/// of the engine.
const IMAGES: usize = 2000;
const ENGINE_IMAGES: usize = 600;

/// Points in the code that the workloads must reach. Otherwise the images would test less than they seem to.
const EVENTS: [&str; 12] = [
    "doublewrite: batch",
    "doublewrite: single page",
    "log: segment recycled",
    "nvm: doomed slot retired",
    "nvm: flushed home",
    "nvm: slot published",
    "nvm: slot taken back",
    "nvm: two versions found",
    "nvm: version superseded",
    "recovery: torn page mended",
    "region files: flushed",
    "region files: written durably",
];

/// The points that the engine reaches often enough. It reaches the others too rarely.
const EVENTS_OF_ENGINE: [&str; 5] = [
    "log: segment recycled",
    "nvm: flushed home",
    "nvm: slot taken back",
    "nvm: version superseded",
    "region files: written durably",
];

/// Returns the number of images for a test whose part of `IMAGES` is `share`.
fn images(share: usize) -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(share, |count: usize| count * share / IMAGES)
}

fn judge(what: &str, found: &SearchResult, images: usize, events: &[&str]) {
    println!("{what}: {}\nreached: {:#?}", found.summary(), found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    let missed: Vec<_> = events.iter().filter(|event| !found.reached.contains_key(*event)).collect();
    assert!(missed.is_empty(), "no workload came by {missed:?}");
    assert!(found.images >= images, "{}", found.summary());
}

#[test]
fn raw_pages() {
    let images = images(IMAGES - ENGINE_IMAGES);
    let seeds = (5 * images.div_ceil(5000)) as u64;
    let mut found = SearchResult::default();
    for seed in 0..seeds {
        // Long runs reuse each log segment several times. Short runs test the beginning closely.
        let commits = [100, 600, 2500, 2500, 5000][seed as usize % 5];
        let subject = Pages { part: Part::of_seed(&Part::IN_NVM, seed), ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed, images.div_ceil(seeds as usize))));
    }
    judge("pages", &found, images, &EVENTS);
}

/// Found by this test (seed 5): recovery reused the slot of a page that was freed. After a crash of this
/// recovery, redo met earlier changes of the page again, and the data file had never had the page.
#[test]
fn the_engine() {
    let images = images(ENGINE_IMAGES);
    let rounds = images.div_ceil(5000) as u64;
    let seeds: Vec<u64> = (0..rounds).flat_map(|round| covering_seeds(1 + round * 100)).collect();
    let mut found = SearchResult::default();
    for seed in &seeds {
        let subject = Engine { part: Part::of_seed(&Part::IN_NVM, *seed), ..Engine::new(150) };
        found.add(search(&subject, Plan::new(*seed, images.div_ceil(seeds.len()))));
    }
    judge("engine", &found, images, &EVENTS_OF_ENGINE);
}

/// A fence is for one thread: it does not wait for cache lines that another thread has written back.
#[test]
fn threads_that_commit_together() {
    let mut found = SearchResult::default();
    for (seed, commits) in [(1, 100), (2, 700)] {
        let part = Part::of_seed(&Part::IN_NVM, seed);
        found.add(search(&Crowd { commits, part }, Plan::new(seed, 100)));
    }
    println!("crowd: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
}
