//! Tries two thousand crash images of the engine, under each workload. After recovery every acknowledged
//! commit is there, no commit is there in part, and the database's own check finds no damage.

use std::io::Write;

use varve_sim::engine::{Engine, covering_seeds};
use varve_sim::{Plan, SearchResult, search};

/// The number of crash images, unless `VARVE_CRASH_IMAGES` sets it. This test gets half of that number.
const IMAGES: usize = 2000;
/// The most milliseconds of processor time that opening, recovering and checking an image may take on
/// average.
const EACH_MS_MAX: f64 = 20.0;

/// Points in the code that the workloads must reach. Otherwise the images would test less than they seem to.
const EVENTS: [&str; 27] = [
    "catalog: nothing is kept about an object any more",
    "checkpoint",
    "ddl: table rewritten",
    "delete: entries marked together",
    "delete: rows of one leaf together",
    "doublewrite: batch",
    "doublewrite: single page",
    "index: entry made",
    "log: segment recycled",
    "overflow: chain written",
    "purge: deleted row",
    "purge: dropped table or index",
    "purge: overflow page",
    "purge: record",
    "recovery: change redone",
    "recovery: loser undone",
    "recovery: torn page mended",
    "rollback: new table or index",
    "rollback: overflow chain",
    "rollback: row",
    "shares: waited for",
    "space: extents dropped",
    "space: file lengthened",
    "tree: merge",
    "tree: root grown",
    "tree: split",
    "undo: page added",
];

#[test]
fn two_thousand_crash_images() {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    let images: usize = asked.map_or(IMAGES, |count: usize| count / 2);
    let rounds = images.div_ceil(5000);
    let seeds: Vec<u64> = (0..rounds as u64).flat_map(|round| covering_seeds(1 + round * 100)).collect();
    let mut found = SearchResult::default();
    for seed in &seeds {
        let one = search(&Engine::new(150), Plan::new(*seed, images.div_ceil(seeds.len())));
        println!("seed {seed}: {}", one.summary());
        found.add(one);
    }
    // The test runner hides output of the macro `eprintln!`, and the average should be visible. So the test
    // writes to standard error directly.
    let _ = writeln!(std::io::stderr(), "crash images of the engine: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    let missed: Vec<_> = EVENTS.iter().filter(|event| !found.reached.contains_key(*event)).collect();
    assert!(missed.is_empty(), "no workload came by {missed:?}");
    assert!(found.images >= images, "{}", found.summary());
    let each_ms = found.recovering.as_secs_f64() * 1e3 / found.images as f64;
    assert!(each_ms <= EACH_MS_MAX, "{each_ms:.1} ms an image, over {EACH_MS_MAX}");
}
