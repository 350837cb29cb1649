//! A start is refused if the region of persistent memory is lost, older than the database, shortened, or of
//! another database.

use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::{Part, SearchResult, Subject, Swap, run, swap_regions};

const SEEDS: u64 = 8;
const IMAGES_PER_SEED: usize = 24;

fn of_part(part: Part, seed: u64) -> Box<dyn Subject> {
    match seed % 5 {
        0 => Box::new(Engine { part, ..Engine::new(100) }),
        _ => Box::new(Pages { part, ..Pages::new([300, 600, 900][seed as usize % 3]) }),
    }
}

#[test]
fn every_such_region_is_refused() {
    let parts = [&Part::IN_NVM[..], &[Part::NvmPacked, Part::NvmAllPacked, Part::NvmImages]].concat();
    let mut found = SearchResult::default();
    for seed in 0..SEEDS {
        let subject = of_part(Part::of_seed(&parts, seed), seed);
        let [mine, foreign] = [seed, seed + 1000].map(|seed| run(&*subject, seed, |device| device));
        assert_eq!([&mine.error, &foreign.error], [&None, &None]);
        found.add(swap_regions(&*subject, &mine, &foreign, &Swap::ALL, seed, IMAGES_PER_SEED));
    }
    println!("{}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
    assert!(found.images >= 150, "{}", found.summary());
}
