//! Raw pages, trees and the engine survive crashes with pages of 8 to 64 KiB. The other tests of this crate
//! use 4 KiB.

use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::trees::Trees;
use varve_sim::{Plan, SearchResult, Subject, search};

/// The number of crash images of trees and of the engine at each page size, unless `VARVE_CRASH_IMAGES` sets
/// it. This test gets a fraction of that number.
const IMAGES: usize = 60;
/// Raw pages get more images by this factor, because they are fast and a torn page is rare.
const TIMES_FOR_PAGES: usize = 3;

const SIZES: [usize; 4] = [8192, 16384, 32768, 65536];

fn images() -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(IMAGES, |count: usize| count / 40)
}

/// Searches one subject at all page sizes. The search must reach `events` at each size.
fn check(name: &str, images: usize, events: &[&str], subject: impl Fn(usize) -> Box<dyn Subject>) {
    for (number, page_bytes) in SIZES.into_iter().enumerate() {
        let mut found = SearchResult::default();
        for seed in 0..2 {
            let plan = Plan::new(100 * number as u64 + seed, images.div_ceil(2));
            found.add(search(&*subject(page_bytes), plan));
        }
        println!("{name} with pages of {page_bytes} bytes: {}", found.summary());
        assert!(found.failures.is_empty(), "{name}, {page_bytes}: {:#?}", found.failures);
        assert!(found.images >= images, "{name}, {page_bytes}: {}", found.summary());
        let missed: Vec<_> = events.iter().filter(|event| !found.reached.contains_key(**event)).collect();
        assert!(missed.is_empty(), "{name}, {page_bytes}: the workload did not come by {missed:?}");
    }
}

#[test]
fn raw_pages() {
    let events = ["doublewrite: batch", "doublewrite: single page", "recovery: torn page mended"];
    check("pages", TIMES_FOR_PAGES * images(), &events, |page_bytes| {
        Box::new(Pages { page_bytes, ..Pages::new(600) })
    });
}

#[test]
fn trees() {
    let events = ["tree: split", "tree: merge", "tree: root grown", "recovery: change redone"];
    check("trees", images(), &events, |page_bytes| Box::new(Trees { page_bytes, ..Trees::new(900) }));
}

#[test]
fn trees_by_columns() {
    let events = ["tree: split", "tree: merge", "tree: root grown", "recovery: change redone"];
    check("trees by columns", images(), &events, |page_bytes| {
        Box::new(Trees { page_bytes, ..Trees::by_columns(900) })
    });
}

#[test]
fn the_engine() {
    let events = ["checkpoint", "purge: record", "recovery: change redone", "rollback: row"];
    check("engine", images(), &events, |page_bytes| Box::new(Engine { page_bytes, ..Engine::new(150) }));
}
