//! A database moves into persistent memory, out of it, or to another region, and crashes at any step of the
//! move. After the crash, the database opens in the old or the new place, can finish the move, and has the
//! same contents.

use varve_sim::engine::{Engine, Load};
use varve_sim::pages::Pages;
use varve_sim::{Part, Plan, SearchResult, search};

/// The numbers of crash images of raw pages and of the engine, unless `VARVE_CRASH_IMAGES` is set. Then each
/// number is a fraction of that one.
const IMAGES: [usize; 2] = [420, 210];

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
    let (images, mut found) = (images(0), SearchResult::default());
    for (seed, part) in (0..).zip(Part::MOVES) {
        let commits = [60, 300, 900][seed as usize % 3];
        // In some runs, redo after a move changes more pages than fit into memory.
        let pages = if seed % 2 == 0 { Pages::new(commits) } else { Pages::hoard(commits) };
        found.add(search(&Pages { part, ..pages }, Plan::new(seed, images / Part::MOVES.len())));
    }
    let events = [
        "checkpoint: the region is left",
        "nvm: everything is home",
        "nvm: flushed home",
        "nvm: region attached",
        "open: another protection",
        "open: an empty log",
        "recovery: change redone",
    ];
    judge("pages", &found, images, &events);
}

/// The crash ends transactions. The database leaves the region before these transactions are undone.
#[test]
fn the_engine() {
    let (images, mut found) = (images(1), SearchResult::default());
    let loads = [Load::Bank, Load::Mixed, Load::Definitions];
    for (seed, part) in (0..).zip(Part::MOVES) {
        let load = Some(loads[seed as usize % loads.len()]);
        let plan = Plan::new(seed, images / Part::MOVES.len());
        found.add(search(&Engine { part, load, ..Engine::new(100) }, plan));
    }
    let events = ["checkpoint: the region is left", "open: an empty log", "recovery: loser undone"];
    judge("engine", &found, images, &events);
}
