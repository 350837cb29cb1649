//! A damaged sector is repaired, refused or reported. It never leads to a wrong result.

use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::trees::Trees;
use varve_sim::{Part, Subject, damage, run};

fn check(what: &str, subject: &dyn Subject, images: usize) {
    let mut caught = 0;
    for seed in 0..3 {
        let run = run(subject, seed, |device| device);
        assert_eq!(run.error, None);
        let verdicts = damage(subject, &run, seed, images);
        println!(
            "{what}: {} refused, {} reported, {} harmless, {} older",
            verdicts.refused, verdicts.reported, verdicts.harmless, verdicts.older
        );
        assert!(verdicts.found.failures.is_empty(), "{what}: {:#?}", verdicts.found.failures);
        caught += verdicts.refused + verdicts.reported;
    }
    assert!(caught > 20, "{what}: damage must be noticed now and then, was {caught} times");
}

#[test]
fn of_raw_pages() {
    check("pages", &Pages::new(1500), 150);
}

#[test]
fn of_raw_pages_with_log_and_copies_in_persistent_memory() {
    check("nvm", &Pages { part: Part::NvmDoublewriteLog, ..Pages::new(1500) }, 80);
}

#[test]
fn of_packed_pages() {
    check("packed", &Pages { part: Part::Packed, ..Pages::new(1500) }, 100);
}

#[test]
fn of_compressed_pages() {
    check("compressed", &Pages { part: Part::Compressed, ..Pages::new(900) }, 80);
}

#[test]
fn of_packed_pages_that_are_compressed() {
    check("packed, compressed", &Pages { part: Part::PackedCompressed, ..Pages::new(900) }, 60);
}

#[test]
fn of_pages_under_full_page_log() {
    check("full-page-log", &Pages { part: Part::FullPageLog, ..Pages::new(900) }, 60);
}

#[test]
fn of_pages_in_persistent_memory() {
    check("nvm pages", &Pages { part: Part::NvmPages, ..Pages::new(900) }, 60);
}

#[test]
fn of_a_database() {
    check("engine", &Engine::new(100), 150);
}

#[test]
fn of_a_tree() {
    check("trees", &Trees::new(1500), 150);
}
