//! The B+tree survives any crash: splits and merges are whole, no page leaks, no entry is lost.

use varve_sim::trees::Trees;
use varve_sim::{Plan, SearchResult, search};

/// The number of crash images of the tree, unless `VARVE_CRASH_IMAGES` sets it. This test gets a fraction of
/// that number.
const IMAGES: usize = 1000;
const SEEDS: usize = 5;

#[test]
fn a_thousand_crash_images_of_a_tree() {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    let images: usize = asked.map_or(IMAGES, |count: usize| count / 4);
    let mut found = SearchResult::default();
    for seed in 0..SEEDS {
        let commits = [300, 900, 2500, 2500, 4000][seed % 5];
        found.add(search(&Trees::new(commits), Plan::new(seed as u64, images / SEEDS)));
    }
    println!("trees: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for event in
        ["recovery: torn page mended", "tree: merge", "tree: root grown", "tree: root lowered", "tree: split"]
    {
        assert!(found.reached.get(event).is_some_and(|count| *count > 0), "hardly ever: {event}");
    }
    assert!(found.images >= images, "{}", found.summary());
}
