//! Runs the crash tests on real files. They also test paths, descriptors, direct I/O and the kernel.

use varve_device::{plant, planted_hits};
use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::{Medium, Part, Plan, SearchResult, Subject, search};

/// The numbers of crash images of raw pages, of the engine, and of logs with another capacity, unless
/// `VARVE_CRASH_IMAGES` is set. Then each number is a fraction of that one.
const IMAGES: [usize; 3] = [120, 40, 60];

/// Each of these parts has files, or a way to open files, that the other parts lack.
const PARTS: [Part; 6] = [
    Part::Doublewrite,
    Part::FullPageLog,
    Part::PackedCompressed,
    Part::NvmAll,
    Part::FlashLazy,
    Part::MoveOut,
];

fn images(at: usize) -> usize {
    let asked = std::env::var("VARVE_CRASH_IMAGES").ok().and_then(|count| count.parse().ok());
    asked.map_or(IMAGES[at], |count: usize| count * IMAGES[at] / 8000)
}

fn on_files(subject: &dyn Subject, seed: u64, images: usize) -> SearchResult {
    search(subject, Plan { medium: Medium::Files, ..Plan::new(seed, images) })
}

fn judge(what: &str, found: &SearchResult, images: usize, events: &[&str]) {
    println!("{what} on files: {}\nreached: {:#?}", found.summary(), found.reached);
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    let missed: Vec<_> = events.iter().filter(|event| !found.reached.contains_key(*event)).collect();
    assert!(missed.is_empty(), "no workload came by {missed:?}");
    assert!(found.images >= images, "{}", found.summary());
}

#[test]
fn raw_pages() {
    let (images, mut found) = (images(0), SearchResult::default());
    for (seed, part) in (0..).zip(PARTS) {
        let commits = [600, 1500][seed as usize % 2];
        let subject = Pages { part, ..Pages::new(commits) };
        found.add(on_files(&subject, seed, images.div_ceil(PARTS.len())));
    }
    let events = ["log: segment recycled", "nvm: flushed home", "packed: settled", "space: file lengthened"];
    judge("pages", &found, images, &events);
}

#[test]
fn the_engine() {
    let (images, mut found) = (images(1), SearchResult::default());
    for seed in 0..2 {
        found.add(on_files(&Engine::new(150), seed, images.div_ceil(2)));
    }
    judge("engine", &found, images, &["recovery: loser undone"]);
}

#[test]
fn a_log_of_another_capacity() {
    let (images, mut found) = (images(2), SearchResult::default());
    for (seed, part) in (0..).zip(Part::OTHER_CAPACITY) {
        let subject = Pages { part, ..Pages::new(2000) };
        found.add(on_files(&subject, seed, images.div_ceil(Part::OTHER_CAPACITY.len())));
    }
    let events = ["log: a file beyond the capacity is removed", "log: segment recycled"];
    judge("logs", &found, images, &events);
}

/// A caller passes a whole path where a directory expects a name. Found earlier: directories in memory
/// accepted such a path, so no test failed.
#[test]
fn a_path_that_is_taken_for_a_name_is_found() {
    plant(Some("log: a file beyond the capacity is removed by its path"));
    let found = on_files(&Pages { part: Part::LogLowered, ..Pages::new(2000) }, 0, 20);
    let hits = planted_hits();
    plant(None);
    assert!(hits > 0 && !found.failures.is_empty(), "{hits} hits: {}", found.summary());
}
