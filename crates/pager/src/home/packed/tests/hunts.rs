//! Test: the crash search of `crashes.rs` finds planted faults in code that the single-threaded harness never
//! runs.

use proptest::test_runner::{Config, TestRunner};
use varve_device::{plant, planted_hits};

use super::crashes::{CrashableSpace, op};

/// Returns the first failure that the search finds with this fault, or `None` if it finds none.
fn hunt(fault: &'static str) -> Option<String> {
    let config = Config { cases: 4000, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new(config);
    plant(Some(fault));
    let searched = runner.run(&proptest::collection::vec(op(), 1..200), |ops| {
        let mut world = CrashableSpace::new();
        for op in &ops {
            world.run(op);
            world.check();
        }
        Ok(())
    });
    let hits = planted_hits();
    plant(None);
    assert!(hits > 0, "{fault}: no run came by");
    searched.err().map(|found| found.to_string())
}

#[test]
fn faults_that_need_threads_are_found() {
    for fault in [
        "packed: reclamation ignores a newer slot",
        "packed: a move of a discarded page counts",
        "packed: a discard frees its slots at once",
        "packed: recovery takes notes of discarded pages",
        "packed: an extent is free while its notes are not durable",
        "packed: what was moved gives its slot back without a note",
    ] {
        let found = hunt(fault);
        println!("{fault}: {}", found.as_deref().unwrap_or("NOT FOUND").lines().next().unwrap_or_default());
        assert!(found.is_some(), "{fault}: not found");
    }
}
