//! Random transactions, rollbacks and savepoints are compared with a model. Then a start must leave exactly
//! the chunks of the store.

use varve_device::{Directory, RecordLog};
use varve_memory::{Allocator, Store};

use super::life::{self, Plan};
use super::model::{Model, Row};
use super::{ENGINES, Engine};
use crate::life::{DATABASE, REGION};
use crate::traced::Calls;

/// Checks that the store is as the model says, and that no chunk is lost.
pub fn judge(engine: &Engine, allocator: Allocator, model: &Model) -> Result<(), String> {
    let allocator = std::sync::Arc::new(allocator);
    let store = (engine.open)(allocator.clone()).map_err(|error| error.to_string())?;
    model.compare(&*store)?;
    no_chunk_is_lost(&allocator, &*store)
}

pub fn no_chunk_is_lost(allocator: &Allocator, store: &dyn Store) -> Result<(), String> {
    let mut held = store.chunks().map_err(|error| error.to_string())?;
    held.sort_unstable();
    let active = allocator.active_chunks().map_err(|error| error.to_string())?;
    let active: Vec<_> = active.iter().map(|chunk| chunk.pointer).collect();
    match held == active {
        true => allocator.check().map_err(|error| error.to_string()),
        false => Err(format!("{} chunks are active, and the store holds {}", active.len(), held.len())),
    }
}

fn check(engine: &Engine, region_bytes: u64, plan: &Plan) -> u64 {
    let fail = |error: String| -> ! { panic!("{} {plan:?}: {error}", engine.name) };
    let directory = life::with_table(engine, region_bytes);
    let region = || directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let life = life::live_on(engine, region(), &RecordLog::new(), Model::default(), plan);
    let life = life.unwrap_or_else(|error| fail(error));
    let allocator = Allocator::open(region(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let last = life.states.last().cloned().unwrap_or_default();
    judge(engine, allocator, &last).unwrap_or_else(|error| fail(error));
    println!("{} {plan:?}: {} rows, full {} times", engine.name, life.rows_count, life.full_count);
    life.full_count
}

#[test]
fn stores_are_as_the_model_says() {
    for engine in &ENGINES {
        for (seed, keys) in (0..).zip([6, 40, 300, 1500]) {
            check(engine, 16 << 20, &Plan { seed, operations: 1500, keys, traced: Calls::None });
        }
    }
}

#[test]
fn a_full_region_refuses_a_change_and_nothing_else() {
    for engine in &ENGINES {
        let full: u64 = (0..4)
            .map(|seed| {
                check(engine, 800_000, &Plan { seed, operations: 1200, keys: 2000, traced: Calls::None })
            })
            .sum();
        // The engine log packs its rows, so it meets a full region seldom.
        assert!(full >= 5, "{}: full {full} times", engine.name);
    }
}

/// The common beginning of the keys is longer than an entry of a node. So separators are long, too.
#[test]
fn indexes_grow_and_shrink() {
    for engine in &ENGINES {
        let fail = |error: String| -> ! { panic!("{}: {error}", engine.name) };
        let directory = life::with_table(engine, 16 << 20);
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
        let allocator = Allocator::open(region, DATABASE).unwrap_or_else(|error| panic!("{error}"));
        let allocator = std::sync::Arc::new(allocator);
        let mut store = (engine.open)(allocator.clone()).unwrap_or_else(|error| panic!("{error}"));
        let mut model = Model::default();
        let key =
            |index: u64, number: u64| format!("{} {number:06}", "beginning ".repeat(3 + index as usize));
        // 1009 is a prime, so that multiples of 400 reach every number.
        for step in 0..1009 {
            let number = step * 400 % 1009;
            let keys =
                [key(0, number), key(1, 1009 - number), key(2, number * 7 % 1009)].map(String::into_bytes);
            let row = Row { keys, bytes: number.to_be_bytes().to_vec() };
            let inserted = store.insert(model.table(), &row.keys(), &row.bytes);
            inserted.unwrap_or_else(|error| panic!("{error}"));
            model.rows.insert(row.keys[0].clone(), row);
        }
        store.commit().unwrap_or_else(|error| panic!("{error}"));
        model.compare(&*store).unwrap_or_else(|error| fail(error));
        assert_eq!(store.sync(), Ok(()));
        let grown = store.chunks().map_or(0, |chunks| chunks.len());
        for step in 0..1009 {
            let gone = key(0, step * 700 % 1009).into_bytes();
            assert_eq!(store.delete(model.table(), &gone), Ok(true));
            model.rows.remove(&gone);
            if step % 10 == 9 {
                store.commit().unwrap_or_else(|error| panic!("{error}"));
            }
            if step % 200 == 0 {
                model.compare(&*store).unwrap_or_else(|error| fail(error));
            }
        }
        // An engine with group commit gives room back in a sync.
        store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
        model.compare(&*store).unwrap_or_else(|error| fail(error));
        assert_eq!(store.sync(), Ok(()));
        let shrunk = store.chunks().map_or(0, |chunks| chunks.len());
        println!("{}: {grown} chunks, then {shrunk}", engine.name);
        // A file does not shrink; a batch takes pages for copies before it frees others.
        let most = if engine.name == "cow" { 2 * grown } else { 40 };
        assert!(shrunk < most, "{}: {shrunk} chunks hold no row", engine.name);
        no_chunk_is_lost(&allocator, &*store).unwrap_or_else(|error| fail(error));
    }
}
