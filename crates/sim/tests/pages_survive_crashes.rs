//! Mini-transactions survive any crash: a prefix of the commit order, with all that was acknowledged.

use varve_sim::pages::Pages;
use varve_sim::{Found, Plan, search};

/// Crash images of the pager: a slice of `VARVE_CRASH_IMAGES`, or this many.
const IMAGES: usize = 1000;
const SEEDS: usize = 5;

#[test]
fn a_thousand_crash_images_of_raw_pages() {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    let images: usize = asked.map_or(IMAGES, |count: usize| count / 4);
    let mut found = Found::default();
    for seed in 0..SEEDS {
        // Long runs go round the log several times, short ones look closely at the beginning.
        let commits = [100, 600, 2500, 2500, 5000][seed % 5];
        found.add(search(&Pages::new(commits), Plan::new(seed as u64, images / SEEDS)));
    }
    println!("pages: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for event in
        ["log: segment recycled", "space: extents dropped", "space: file cut", "space: file lengthened"]
    {
        assert!(found.reached.get(event).is_some_and(|count| *count > 2), "hardly ever: {event}");
    }
    assert!(found.images >= images, "{}", found.summary());
}
