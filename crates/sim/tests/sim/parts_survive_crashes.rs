//! Databases that combine two storage levels or protections, or change to persistent memory, survive any
//! crash.

use varve_sim::engine::{Engine, Load as EngineLoad};
use varve_sim::pages::{Load, Pages};
use varve_sim::trees::Trees;
use varve_sim::{Part, Plan, SearchResult, search};

/// The numbers of crash images of raw pages, of trees, of the engine, of segments that are made and dropped
/// in persistent memory, and of tablespaces, unless `VARVE_CRASH_IMAGES` is set. Then each number is a
/// fraction of that one.
const IMAGES: [usize; 5] = [480, 120, 100, 160, 600];

fn images(at: usize) -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(IMAGES[at], |count: usize| count * IMAGES[at] / 8000)
}

fn judge(what: &str, found: &SearchResult, images: usize, events: &[&str]) {
    println!("{what}: {}\nreached: {:#?}", found.summary(), found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    let missed: Vec<_> = events.iter().filter(|event| !found.reached.contains_key(*event)).collect();
    assert!(missed.is_empty(), "no workload came by {missed:?}");
    assert!(found.images >= images && found.lives > 0, "{}", found.summary());
}

#[test]
fn raw_pages() {
    let parts = [&Part::MIXED[..], &Part::TO_NVM[..]].concat();
    let (images, mut found) = (images(0), SearchResult::default());
    for (seed, part) in (0..).zip(&parts) {
        let commits = [300, 1500, 3000][seed as usize % 3];
        let plan = Plan::new(seed, images.div_ceil(parts.len()));
        found.add(search(&Pages { part: *part, ..Pages::new(commits) }, plan));
    }
    let events = [
        "home: page compressed",
        "nvm: flushed home",
        "nvm: region attached",
        "packed: settled",
        "packed: map checkpoint",
        "recovery: map note applied",
        "region files: written durably",
        "trim: hole",
    ];
    judge("pages", &found, images, &events);
}

/// The data files never had most of the pages that are freed.
#[test]
fn segments_that_come_and_go_in_persistent_memory() {
    let (images, mut found) = (images(3), SearchResult::default());
    for (seed, commits) in (0..).zip([400, 1500]) {
        let (part, load) = (Part::NvmHoldsPacked, Some(Load::Fleeting));
        found.add(search(&Pages { part, load, ..Pages::new(commits) }, Plan::new(seed, images / 2)));
    }
    judge("segments", &found, images, &["trim: extent", "packed: settled", "packed: map checkpoint"]);
}

#[test]
fn trees() {
    let parts = [Part::FullPageLog, Part::NvmPages, Part::PackedCompressed, Part::NvmAllPacked];
    let (images, mut found) = (images(1), SearchResult::default());
    for (seed, part) in (0..).zip(parts) {
        found.add(search(&Trees { part, ..Trees::new(900) }, Plan::new(seed, images / parts.len())));
    }
    judge("trees", &found, images, &["tree: split", "tree: merge"]);
}

/// Tables and indexes are in tablespaces that are made and dropped.
#[test]
fn tablespaces() {
    let (images, mut found) = (images(4), SearchResult::default());
    for (seed, part) in (0..).zip(Part::WITH_TABLESPACES) {
        for load in [EngineLoad::Definitions, EngineLoad::Large] {
            let plan = Plan::new(seed, images.div_ceil(2 * Part::WITH_TABLESPACES.len()));
            found.add(search(&Engine { part, load: Some(load), ..Engine::new(150) }, plan));
        }
    }
    let events = [
        "ddl: index moved",
        "ddl: table rewritten",
        "open: files of a tablespace are removed",
        "recovery: loser undone",
        "tablespace: dropped",
        "tablespace: files made",
        "tablespace: purge before a drop",
    ];
    judge("tablespaces", &found, images, &events);
}

#[test]
fn the_engine() {
    let (images, mut found) = (images(2), SearchResult::default());
    for (seed, part) in (0..).zip(Part::MIXED) {
        let plan = Plan::new(seed, images.div_ceil(Part::MIXED.len()));
        found.add(search(&Engine { part, ..Engine::new(150) }, plan));
    }
    judge("engine", &found, images, &["recovery: loser undone", "nvm: flushed home", "packed: settled"]);
}
