//! Mini-transactions survive any crash: a prefix of the commit order, with all that was acknowledged.

use varve_sim::pages::Pages;
use varve_sim::{Found, Part, Plan, search};

/// Crash images of the pager: a slice of `VARVE_CRASH_IMAGES`, or this many.
const IMAGES: usize = 1000;
const SEEDS: usize = 5;

fn images_asked(usually: usize) -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(usually, |count: usize| count / 4)
}

/// The same without a copy of any page but that in the log.
#[test]
fn three_hundred_crash_images_under_full_page_log() {
    let images = images_asked(300);
    let mut found = Found::default();
    for (seed, commits) in [300, 1500, 4000].into_iter().enumerate() {
        let subject = Pages { part: Part::FullPageLog, ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed as u64, images / 3)));
    }
    println!("pages under full-page-log: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    assert!(found.images >= images, "{}", found.summary());
}

#[test]
fn a_thousand_crash_images_of_raw_pages() {
    let images = images_asked(IMAGES);
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
