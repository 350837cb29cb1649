//! Each write-back and each fence of the calls on files is needed: if one is left out, some crash image is
//! wrong.

use std::collections::BTreeMap;

use super::crash;
use super::life::Plan;
use crate::skipping::{Call, Skip};

/// The number of lives that the search for the table tries.
const SEEDS: u64 = 40;

/// The write-backs and fences of each kind of call, in their order. Each of them has the seed of a life whose
/// crash images are wrong if it is left out. An `fsync` writes back each range of dirty lines. Then come a
/// fence, the write-back of the length, and a fence. The other calls mostly consist of publications.
const SHOWN: [(Call, &[u64]); 1] = [(Call::Fsync, &[0, 0, 0, 0])];

fn plan(seed: u64, skip: Option<Skip>) -> Plan {
    Plan { seed, operations: 25, skip }
}

/// Returns whether images of a life show that a write-back or fence is missing.
fn shows(seed: u64, skip: Skip) -> bool {
    let life = crash::recorded(15, &plan(seed, Some(skip)));
    life.and_then(|life| crash::search(&life, seed, 1, |_, _| Ok(()))).is_err()
}

#[test]
fn each_write_back_and_fence_is_needed() {
    for (call, seeds) in SHOWN {
        for (event, seed) in (0..).zip(seeds) {
            let skip = Skip { call, event };
            // A life depends on the lane of its thread too, so the seed of the table may fail.
            let is_shown = shows(*seed, skip) || (0..SEEDS).any(|other| shows(other, skip));
            assert!(is_shown, "{call:?}: no image shows that event {event} is missing");
        }
    }
}

/// Finds the seeds for the table: tries lives until one shows the fault. The search takes minutes.
#[test]
#[ignore = "a long search, for the table SHOWN"]
fn search_for_the_table() {
    let mut most: BTreeMap<Call, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let life = crash::recorded(15, &plan(seed, None)).unwrap_or_else(|error| panic!("{error}"));
        for (call, events) in life.most_events {
            let known = most.entry(call).or_default();
            *known = events.max(*known);
        }
    }
    println!("{most:?}");
    most.remove(&Call::Open);
    for (call, events) in most {
        for event in 0..events.min(14) {
            let seed = (0..SEEDS).find(|seed| shows(*seed, Skip { call, event }));
            println!("{call:?} {event}: {seed:?}");
        }
    }
}
