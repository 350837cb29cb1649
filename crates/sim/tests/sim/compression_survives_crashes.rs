//! Tables whose compression was altered are read correctly after any crash, with pages at fixed offsets and
//! with packed pages. File blocks that compressed pages no longer use are given back to the file system.
//! Recovery does not need these blocks.

use varve_sim::engine::{Engine, covering_seeds};
use varve_sim::pages::{Load, Pages};
use varve_sim::{Part, Plan, SearchResult, search};

/// The number of crash images, unless `VARVE_CRASH_IMAGES` sets it. This test gets a fraction of that number.
const IMAGES: usize = 700;

/// Points in the code that the workloads must reach. Otherwise the images would test less than they seem to.
const EVENTS: [&str; 6] = [
    "compressions: forms noted",
    "ddl: table rewritten",
    "home: page compressed",
    "purge: dropped table or index",
    "rollback: new table or index",
    "trim: hole",
];

#[test]
fn the_engine_whose_tables_are_compressed_in_changing_ways() {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    let images: usize = asked.map_or(IMAGES, |count: usize| count / 8);
    let seeds = covering_seeds(1);
    let mut found = SearchResult::default();
    for (n, seed) in seeds.into_iter().enumerate() {
        let part = [Part::Compressed, Part::PackedCompressed][n % 2];
        let subject = Engine { part, ..Engine::new(150) };
        let one = search(&subject, Plan::new(seed, images.div_ceil(seeds.len())));
        println!("seed {seed}, {}: {}", part.name(), one.summary());
        found.add(one);
    }
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    let missed: Vec<_> = EVENTS.iter().filter(|event| !found.reached.contains_key(*event)).collect();
    assert!(missed.is_empty(), "no workload came by {missed:?}");
}

#[test]
fn compressed_pages_whose_extents_are_trimmed() {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    let images: usize = asked.map_or(IMAGES, |count: usize| count / 8);
    let mut found = SearchResult::default();
    for seed in 0..4 {
        let commits = [600, 1500, 2500, 4000][seed % 4];
        let part = [Part::Compressed, Part::NvmCompressed][seed / 2];
        let load = [None, Some(Load::Fleeting)][seed % 2];
        let subject = Pages { part, load, ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed as u64, images / 4)));
    }
    println!("trimmed: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for event in ["trim: extent", "space: hollow extents filled", "space: file cut", "home: page compressed"]
    {
        assert!(found.reached.get(event).is_some_and(|count| *count > 2), "hardly ever: {event}");
    }
}
