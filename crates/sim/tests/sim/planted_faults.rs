//! Tests that the harness finds each planted fault. Otherwise a search that finds nothing would prove
//! nothing.

use varve_sim::engine::Engine;
use varve_sim::nvm::{Nvm, NvmFlaw};
use varve_sim::pages::Pages;
use varve_sim::planted::{On, Planted, planted_faults};
use varve_sim::trees::Trees;
use varve_sim::{Part, Plan, SearchResult, Subject, search};

const SEEDS: u64 = 60;
const IMAGES_PER_SEED: usize = 100;

fn all_are_found(on: On) {
    let faults: Vec<Planted> = planted_faults().into_iter().filter(|fault| fault.on == on).collect();
    let mut missed = Vec::new();
    for fault in &faults {
        let hunted = fault.hunt(1, SEEDS, IMAGES_PER_SEED);
        println!("{}: {} after {} images", fault.name(), hunted.by(), hunted.images);
        if hunted.caught.is_none() {
            missed.push(fault.name());
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn in_raw_pages() {
    all_are_found(On::Pages);
}

#[test]
fn in_pages_that_come_and_go() {
    all_are_found(On::Drops);
}

#[test]
fn in_compressed_pages() {
    all_are_found(On::Compressed);
}

#[test]
fn in_compressed_pages_that_come_and_go() {
    all_are_found(On::CompressedDrops);
}

#[test]
fn in_pages_damaged_at_rest() {
    all_are_found(On::AtRest);
}

#[test]
fn in_pages_under_full_page_log() {
    all_are_found(On::Images);
}

#[test]
fn in_a_log_in_persistent_memory() {
    all_are_found(On::NvmLog);
}

#[test]
fn in_packed_pages() {
    all_are_found(On::Packed);
}

#[test]
fn in_packed_pages_of_files_that_are_cut() {
    all_are_found(On::PackedCuts);
}

#[test]
fn in_pages_under_full_page_log_that_go_on() {
    all_are_found(On::ImagesLives);
}

#[test]
fn in_pages_in_persistent_memory_that_come_and_go() {
    all_are_found(On::NvmDrops);
}

#[test]
fn in_packed_pages_that_come_and_go_in_persistent_memory() {
    all_are_found(On::NvmHoldsPacked);
}

#[test]
fn in_packed_pages_that_come_and_go() {
    all_are_found(On::PackedDrops);
}

#[test]
fn in_copies_in_persistent_memory() {
    all_are_found(On::NvmCopies);
}

#[test]
fn in_pages_in_persistent_memory() {
    all_are_found(On::NvmPages);
}

#[test]
fn in_pages_in_persistent_memory_that_go_on() {
    all_are_found(On::NvmLives);
}

#[test]
fn in_pages_in_persistent_memory_of_an_earlier_moment() {
    all_are_found(On::NvmEarlier);
}

#[test]
fn in_pages_in_persistent_memory_damaged_at_rest() {
    all_are_found(On::NvmAtRest);
}

#[test]
fn in_pages_that_leave_a_region() {
    all_are_found(On::Moves);
}

#[test]
fn under_protections_that_change() {
    all_are_found(On::Switching);
}

#[test]
fn in_pages_on_devices_with_atomic_writes() {
    all_are_found(On::Atomic);
}

#[test]
fn in_trees() {
    all_are_found(On::Trees);
}

#[test]
fn in_the_engine() {
    all_are_found(On::Engine);
}

#[test]
fn in_the_engine_with_large_rows() {
    all_are_found(On::Large);
}

#[test]
fn in_the_engine_with_parents_and_children() {
    all_are_found(On::Family);
}

#[test]
fn in_tablespaces() {
    all_are_found(On::Tablespaces);
}

#[test]
fn in_the_engine_with_a_catalog_that_changes() {
    all_are_found(On::Catalog);
}

#[test]
fn in_the_toys() {
    all_are_found(On::Toy);
}

#[test]
fn there_are_enough() {
    assert!(planted_faults().len() >= 35);
}

#[test]
fn no_fault_no_finding() {
    let subjects: [&dyn Subject; 5] = [
        &Pages::new(2500),
        &Pages { part: Part::FullPageLog, ..Pages::new(1500) },
        &Trees::new(2000),
        &Engine::new(150),
        &Nvm { flaw: NvmFlaw::None, commits: 40 },
    ];
    let mut found = SearchResult::default();
    for (subject, images) in subjects.into_iter().zip([250, 150, 120, 60, 600]) {
        found.add(search(subject, Plan::new(1, images)));
    }
    assert!(found.failures.is_empty(), "{:?}", found.failures);
}
