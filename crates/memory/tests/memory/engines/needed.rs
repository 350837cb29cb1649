//! Write-backs and fences of an engine are needed: if one is left out, some crash image is wrong.

use super::life::Plan;
use super::{ENGINES, Engine, crash};
use crate::skipping::{Call, Skip};

/// Whether images of a life show that a write-back or fence is missing.
fn shows(engine: &Engine, seed: u64, skip: Skip) -> bool {
    let plan = Plan { seed, operations: 25, keys: 60, skip: Some(skip) };
    let life = crash::recorded(engine, &plan);
    life.and_then(|life| crash::search(engine, &life, seed, 1, |_, _| Ok(()))).is_err()
}

/// Fills the table: tries lives until one shows the fault. Minutes.
#[test]
#[ignore = "a long search, for the table SHOWN"]
fn search_for_the_table() {
    let calls = [
        Call::InsertRow,
        Call::ReplaceRow,
        Call::PatchRow,
        Call::DeleteRow,
        Call::Commit,
        Call::Rollback,
        Call::RollbackTo,
    ];
    for engine in &ENGINES {
        for call in calls {
            let plan = Plan { seed: 0, operations: 25, keys: 60, skip: None };
            let most = crash::recorded(engine, &plan).map(|life| life.most_events.get(&call).copied());
            for event in 0..most.ok().flatten().unwrap_or_default() {
                let seed = (0..5).find(|seed| shows(engine, *seed, Skip { call, event }));
                println!("{} {call:?} {event}: {seed:?}", engine.name);
            }
        }
    }
}
