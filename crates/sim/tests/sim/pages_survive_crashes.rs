//! Tests that after any crash the recovered mini-transactions are a prefix of the commit order, and include
//! all acknowledged ones.

use varve_sim::pages::{Load, Pages};
use varve_sim::{Part, Plan, SearchResult, search};

/// The number of crash images of the pager, unless `VARVE_CRASH_IMAGES` sets it. This test gets a fraction of
/// that number.
const IMAGES: usize = 1000;
const SEEDS: usize = 5;

fn images_asked(usually: usize) -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(usually, |count: usize| count / 4)
}

/// The only copies of pages are those in the log.
#[test]
fn three_hundred_crash_images_under_full_page_log() {
    let images = images_asked(300);
    let mut found = SearchResult::default();
    for (seed, commits) in [300, 1500, 4000].into_iter().enumerate() {
        let subject = Pages { part: Part::FullPageLog, ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed as u64, images / 3)));
    }
    println!("pages under full-page-log: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    assert!(found.images >= images, "{}", found.summary());
}

/// Torn pages are repaired by the protection that was in force at the crash, even if the database is opened
/// with another one.
#[test]
fn three_hundred_crash_images_between_two_protections() {
    let images = images_asked(300);
    let mut found = SearchResult::default();
    for seed in 0..6 {
        let part = [Part::Switching, Part::SwitchingBack][seed % 2];
        // The load that writes most pages leaves copies of different ages in the doublewrite file.
        let load = (seed < 4).then_some(Load::Cleaning);
        let subject = Pages { part, load, ..Pages::new([300, 900, 2000][seed / 2]) };
        found.add(search(&subject, Plan::new(seed as u64, images / 6)));
    }
    println!("pages between two protections: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for (event, times) in [("open: another protection", 20), ("recovery: torn page mended", 1)] {
        assert!(found.reached.get(event).is_some_and(|count| *count >= times), "hardly ever: {event}");
    }
    assert!(found.images >= images, "{}", found.summary());
}

/// A flash cache with pages that the data files lack is removed for some starts, and then comes back. Its
/// pages belong to another history of the database.
#[test]
fn three_hundred_crash_images_of_a_cache_that_was_away() {
    let images = images_asked(300);
    let mut found = SearchResult::default();
    for seed in 0..6 {
        let subject = Pages { part: Part::FlashAside, ..Pages::new([300, 900, 2000][seed / 2]) };
        found.add(search(&subject, Plan::new(seed as u64, images / 6)));
    }
    println!("pages with a cache that was away: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for (event, times) in
        [("flash: the start before did not have the cache", 10), ("flash: dirty slots are found again", 10)]
    {
        assert!(found.reached.get(event).is_some_and(|count| *count >= times), "hardly ever: {event}");
    }
    assert!(found.images >= images, "{}", found.summary());
}

#[test]
fn a_thousand_crash_images_of_compressed_pages() {
    let images = images_asked(IMAGES);
    let mut found = SearchResult::default();
    for seed in 0..SEEDS {
        let commits = [100, 600, 2500, 2500, 5000][seed % 5];
        let subject = Pages { part: Part::Compressed, ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed as u64, images / SEEDS)));
    }
    println!("compressed pages: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for event in ["home: page compressed", "home: page stored plain", "recovery: torn page mended"] {
        assert!(found.reached.get(event).is_some_and(|count| *count > 2), "hardly ever: {event}");
    }
    assert!(found.images >= images, "{}", found.summary());
}

#[test]
fn a_thousand_crash_images_of_raw_pages() {
    let images = images_asked(IMAGES);
    let mut found = SearchResult::default();
    for seed in 0..SEEDS {
        // Long runs reuse each log segment several times. Short runs test the beginning closely.
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
