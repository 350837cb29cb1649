//! Databases with the packed layout survive any crash.

use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::{Part, Plan, SearchResult, search};

/// The number of crash images, unless `VARVE_CRASH_IMAGES` sets it. This test gets a fraction of that number.
const IMAGES: usize = 600;
const SEEDS: usize = 4;

fn images() -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(IMAGES, |count: usize| count / 8)
}

#[test]
fn raw_pages_in_the_packed_layout() {
    let mut found = SearchResult::default();
    for seed in 0..SEEDS {
        let commits = [100, 600, 1500, 2500][seed % 4];
        let part = [Part::Packed, Part::PackedCompressed][seed % 2];
        let subject = Pages { part, ..Pages::new(commits) };
        found.add(search(&subject, Plan::new(seed as u64, images() / SEEDS)));
    }
    println!("packed: {}", found.summary());
    println!("reached: {:#?}", found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    for event in [
        "packed: file lengthened",
        "packed: settled",
        "packed: map checkpoint",
        "packed: grave buried",
        "packed: pages moved",
        "packed: file cut",
        "packed: extents punched",
        "trim: extent",
        "recovery: map note applied",
        "log: segment recycled",
        "space: file cut",
    ] {
        assert!(found.reached.get(event).is_some_and(|count| *count > 2), "hardly ever: {event}");
    }
}

#[test]
fn the_engine_in_the_packed_layout() {
    let mut found = SearchResult::default();
    for seed in 0..2 {
        let subject = Engine { part: Part::PackedCompressed, ..Engine::new(120) };
        found.add(search(&subject, Plan::new(seed, images() / 8)));
    }
    println!("packed engine: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
}
