//! Each write-back and each fence of an engine is needed: if one is left out, some crash image is wrong.

use std::collections::BTreeMap;

use super::life::Plan;
use super::{ENGINES, Engine, crash};
use crate::skipping::{Call, Skip};

const CALLS: [Call; 8] = [
    Call::SyncStore,
    Call::InsertRow,
    Call::ReplaceRow,
    Call::PatchRow,
    Call::DeleteRow,
    Call::Commit,
    Call::Rollback,
    Call::RollbackTo,
];

/// Lives that the search for the table tries.
const SEEDS: u64 = 40;

/// The write-backs and fences of each kind of call of `nvm_inplace`, in their order: for each the seed of a
/// life whose crash images show that it is missing. A call has more of them when it needs a new slab, or a
/// fence for slots that were cleared before. Not searched yet: the later ones of a replace, patches, deletes,
/// commits, rollbacks.
const SHOWN: [(Call, &[u64]); 2] =
    [(Call::InsertRow, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]), (Call::ReplaceRow, &[0, 0, 0, 0, 0, 0, 0])];

/// The same for `nvm_cow`. A sync ends a batch: nodes, list, directory, fence; activations, fence; master
/// record, fence; frees, fence. The number of nodes varies, so an event has several meanings. The fence of a
/// new slab is not in the table: the fences of the batch make it superfluous here.
const SHOWN_NVM_COW: [(Call, &[u64]); 2] = [
    (Call::SyncStore, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 3, 3, 4]),
    (Call::InsertRow, &[0]),
];

/// The same for `cow`: pages, fence; the length of the file, fence; the master record, fence.
const SHOWN_COW: [(Call, &[u64]); 1] = [(Call::SyncStore, &[0, 0, 0, 6, 0, 0, 0, 0])];

/// A short life with few rows, so that its images are small. Its nodes are not split.
fn plan(seed: u64, skip: Option<Skip>) -> Plan {
    Plan { seed, operations: 20, keys: 10, skip }
}

/// Whether images of a life show that a write-back or fence is missing.
fn shows(engine: &Engine, seed: u64, skip: Skip) -> bool {
    let life = crash::recorded(engine, 12, &plan(seed, Some(skip)));
    life.and_then(|life| crash::search(engine, &life, seed, 1, |_, _| Ok(()))).is_err()
}

fn check(engine: &Engine, table: &[(Call, &[u64])]) {
    for (call, seeds) in table {
        for (event, seed) in (0..).zip(*seeds) {
            let skip = Skip { call: *call, event };
            // A life depends on the lanes of its threads too, so the seed of the table may fail.
            let is_shown = shows(engine, *seed, skip) || (0..SEEDS).any(|other| shows(engine, other, skip));
            assert!(is_shown, "{}, {call:?}: no image shows that event {event} is missing", engine.name);
        }
    }
}

#[test]
fn each_write_back_and_fence_of_a_change_is_needed() {
    check(&ENGINES[0], &SHOWN);
}

#[test]
fn each_write_back_and_fence_of_a_batch_is_needed() {
    let engine = |name| ENGINES.iter().find(|engine| engine.name == name);
    check(engine("nvm_cow").unwrap_or(&ENGINES[0]), &SHOWN_NVM_COW);
    check(engine("cow").unwrap_or(&ENGINES[0]), &SHOWN_COW);
}

/// Fills the table: tries lives until one shows the fault. Minutes.
#[test]
#[ignore = "a long search, for the table SHOWN"]
fn search_for_the_table() {
    // One engine at a time: `NEEDED=nvm_cow`.
    let wanted = std::env::var("NEEDED").unwrap_or_default();
    for engine in ENGINES.iter().filter(|engine| engine.name == wanted) {
        let mut most: BTreeMap<Call, u64> = BTreeMap::new();
        for seed in 0..SEEDS {
            let life =
                crash::recorded(engine, 12, &plan(seed, None)).unwrap_or_else(|error| panic!("{error}"));
            for (call, events) in life.most_events {
                let known = most.entry(call).or_default();
                *known = events.max(*known);
            }
        }
        println!("{most:?}");
        for call in CALLS {
            for event in 0..most.get(&call).copied().unwrap_or_default() {
                let seed = (0..SEEDS).find(|seed| shows(engine, *seed, Skip { call, event }));
                println!("{} {call:?} {event}: {seed:?}", engine.name);
            }
        }
    }
}
