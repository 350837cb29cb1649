//! The harness finds no fault in the correct toy database, and a fault in each faulty variant.

use varve_device::{Lies, Space};
use varve_sim::toy::{Flaw, Toy};
use varve_sim::{Plan, SearchResult, search};

fn found(flaw: Flaw, lies: Lies) -> SearchResult {
    let plan = Plan { lies, second_crash_every: 2, ..Plan::new(1, 600) };
    search(&Toy { flaw, commits: 40 }, plan)
}

#[test]
fn a_right_database_passes() {
    let found = found(Flaw::None, Lies::default());
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    assert_eq!(found.commits, 40);
    assert!(found.images >= 600, "{}", found.summary());
    assert!(found.second_crashes > 50, "{}", found.summary());
}

#[test]
fn every_flaw_is_found() {
    let flaws = [
        Flaw::EarlyAcknowledgement,
        Flaw::NoFlush,
        Flaw::NoChecksum,
        Flaw::NoDirectorySync,
        Flaw::ForgetfulRecovery,
    ];
    for flaw in flaws {
        assert!(!found(flaw, Lies::default()).failures.is_empty(), "{flaw:?} was not found");
    }
}

#[test]
fn every_lie_of_the_device_is_found() {
    let lies = [
        Lies { durable_writes_of: Some(Space::Log), ..Lies::default() },
        Lies { directory_syncs: true, ..Lies::default() },
    ];
    for lie in lies {
        assert!(!found(Flaw::None, lie).failures.is_empty(), "{lie:?} was not found");
    }
}

#[test]
fn the_same_seed_finds_the_same_image() {
    let what = || found(Flaw::NoFlush, Lies::default()).failures[0].what.clone();
    assert_eq!(what(), what());
    assert!(what().contains("seed 1, image "), "{}", what());
}
