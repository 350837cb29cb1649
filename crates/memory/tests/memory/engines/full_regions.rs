//! Full regions: changes are refused, and nothing is lost. Commits, rollbacks and starts always find room.

use std::sync::Arc;

use varve_device::{Directory, RecordLog};
use varve_memory::{Allocator, MemoryError, Store, StoreError, TableNo};

use super::life::{self, Plan};
use super::model::Model;
use super::random::judge;
use super::{ENGINES, Engine};
use crate::life::{DATABASE, REGION};
use crate::traced::Calls;

const TABLE: TableNo = TableNo::new(0);
/// The size of the smallest region of the sweep. Each further region is a segment larger.
const REGION_BYTES_MIN: u64 = 700_000;
const STEP_BYTES: u64 = 65_536;
/// The number of lives in one region, one after the other, with a start before each.
const LIVES: u64 = 4;

/// Runs several lives in one region. Returns how often a change was refused.
fn live_again_and_again(engine: &Engine, region_bytes: u64, seed: u64) -> u64 {
    let directory = life::with_table(engine, region_bytes);
    let mut state = Model::default();
    let mut refused_count = 0;
    for number in 0..LIVES {
        let plan = Plan { seed: seed * 100 + number, operations: 200, keys: 1200, traced: Calls::None };
        let fail =
            |error: String| -> ! { panic!("{}, {region_bytes} bytes, {plan:?}: {error}", engine.name) };
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| fail(error.to_string()));
        let life = life::live_on(engine, Arc::clone(&region), &RecordLog::new(), state, &plan);
        let life = life.unwrap_or_else(|error| fail(error));
        state = life.states.last().cloned().unwrap_or_default();
        refused_count += life.full_count;
        let allocator = Allocator::open(region, DATABASE).unwrap_or_else(|error| fail(error.to_string()));
        judge(engine, allocator, &state).unwrap_or_else(|error| fail(error));
    }
    refused_count
}

#[test]
fn every_start_finds_room_in_regions_of_many_sizes() {
    for engine in ENGINES.iter().filter(|engine| ["inplace", "nvm_inplace"].contains(&engine.name)) {
        let runs = (0..5).map(|step| REGION_BYTES_MIN + step * STEP_BYTES).zip(1..);
        let refused: u64 = runs.map(|(bytes, seed)| live_again_and_again(engine, bytes, seed)).sum();
        println!("{}: {refused} changes were refused", engine.name);
        assert!(refused > 20, "{}: {refused} changes were refused", engine.name);
    }
}

fn insert(store: &mut dyn Store, number: u32, bytes: usize) -> Result<(), StoreError> {
    let key = number.to_be_bytes();
    let keys: [&[u8]; 3] = [&key, &key, &key];
    store.insert(TABLE, &keys, &vec![number as u8; bytes])
}

/// Adds rows, and commits each, until the region is full. Returns the number of rows.
fn fill(store: &mut dyn Store, first: u32, bytes: usize) -> u32 {
    for number in first.. {
        match insert(store, number, bytes) {
            Ok(()) => drop(store.commit()),
            Err(StoreError::Memory(MemoryError::Full { .. })) => return number - first,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

/// The engine `inplace` makes commits durable later. The rows that they removed have to be kept until then.
#[test]
fn a_start_finds_room_for_rows_whose_removal_is_not_durable() {
    for engine in ENGINES.iter().filter(|engine| engine.name == "inplace") {
        let directory = life::with_table(engine, 3 << 20);
        let open = || life::open(engine, &directory).unwrap_or_else(|error| panic!("{error}"));
        let mut store = open();
        let count = fill(&mut *store, 0, 900);
        assert_eq!(store.sync(), Ok(()));
        drop(store);
        let mut store = open();
        let deleted = (0..count).filter(|number| {
            let is_gone = store.delete(TABLE, &number.to_be_bytes()) == Ok(true);
            is_gone && store.commit().is_ok()
        });
        let deleted = deleted.count();
        let added = fill(&mut *store, count, 30_000);
        println!("{count} rows, {deleted} deleted, {added} added, all of this without a sync");
        drop(store);
        let store = open();
        let is_there = |number: &u32| store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true);
        // A delete that found the region full has made those before it durable.
        let first = (0..count).find(is_there).unwrap_or(count);
        assert!(first < count / 2, "{first} of {count} rows are gone");
        assert_eq!((first..count + added).filter(is_there).count(), (count - first) as usize);
    }
}

/// Adds rows until the region is full, also when all commits are durable. Returns the number of rows.
fn fill_whole(store: &mut dyn Store) -> u32 {
    let mut count = 0;
    loop {
        let added = fill(store, count, ROW_BYTES);
        assert_eq!(store.sync(), Ok(()));
        count += added;
        if added == 0 {
            return count;
        }
    }
}

const ROW_BYTES: usize = 900;

/// Fills a region, and deletes all rows in transactions of `portion` deletes. Then there is room for half of
/// the rows.
fn deletes_make_room(engine: &Engine, portion: usize) {
    let directory = life::with_table(engine, 4 << 20);
    let mut store = life::open(engine, &directory).unwrap_or_else(|error| panic!("{error}"));
    let count = fill_whole(&mut *store);
    let name = engine.name;
    let delete = |store: &mut dyn Store, number: u32| {
        assert_eq!(store.delete(TABLE, &number.to_be_bytes()), Ok(true), "{name}: row {number} of {count}");
    };
    (0..10).for_each(|number| delete(&mut *store, number));
    assert_eq!(store.rollback(), Ok(()), "{name}");
    let numbers: Vec<u32> = (0..count).collect();
    for numbers in numbers.chunks(portion) {
        numbers.iter().for_each(|number| delete(&mut *store, *number));
        assert!(store.commit().is_ok(), "{name}");
    }
    assert_eq!(store.sync(), Ok(()));
    let is_there = |number: &u32| store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true);
    assert_eq!((0..count).filter(is_there).count(), 0, "{name}");
    let again = fill_whole(&mut *store);
    println!("{name}, transactions of {portion}: {count} rows, then {again}");
    assert!(2 * again >= count, "{name}, transactions of {portion}: {count} rows, then {again}");
}

#[test]
fn deletes_of_one_row_make_room_in_a_full_region() {
    ENGINES.iter().for_each(|engine| deletes_make_room(engine, 1));
}

#[test]
fn deletes_of_ten_rows_make_room_in_a_full_region() {
    ENGINES.iter().for_each(|engine| deletes_make_room(engine, 10));
}
