//! The cache of lookups of `nvm_inplace`: it saves loads, and never leads to a row that is gone.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{Allocator, NvmInplace, NvmInplaceSettings, Store, TableNo};

use super::{ENGINES, ROOT, life, owner};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(0);

struct Opened {
    region: Arc<dyn Region>,
    store: NvmInplace,
}

fn opened(directory: &MemoryDirectory, settings: NvmInplaceSettings) -> Opened {
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let store = NvmInplace::open_with(Arc::new(allocator), ROOT, owner(1), settings);
    Opened { region, store: store.unwrap_or_else(|error| panic!("{error}")) }
}

/// Returns the keys of a row. They differ between the indexes.
fn keys_of(number: u32) -> [[u8; 4]; 3] {
    [number.to_be_bytes(), (number + 1000).to_be_bytes(), (number + 2000).to_be_bytes()]
}

fn put(store: &mut NvmInplace, number: u32, value: u8) {
    let keys = keys_of(number);
    let keys: [&[u8]; 3] = [&keys[0], &keys[1], &keys[2]];
    store.insert(TABLE, &keys, &[value; 100]).unwrap_or_else(|error| panic!("row {number}: {error}"));
}

/// Returns the first byte of the row that each of the three indexes leads to.
fn values(store: &NvmInplace, number: u32) -> [Option<u8>; 3] {
    let keys = keys_of(number);
    [0, 1, 2].map(|index| {
        let mut row = Vec::new();
        let is_there = store.get(TABLE, index, &keys[index], &mut row);
        is_there.unwrap_or_else(|error| panic!("{error}")).then(|| row[0])
    })
}

fn commit(store: &mut NvmInplace) {
    store.commit().unwrap_or_else(|error| panic!("{error}"));
}

/// Returns a store whose rows 0 to 99 have the value 1, and are in the cache.
fn with_rows(directory: &MemoryDirectory, settings: NvmInplaceSettings) -> Opened {
    let mut opened = opened(directory, settings);
    for number in 0..100 {
        put(&mut opened.store, number, 1);
        commit(&mut opened.store);
    }
    for number in 0..100 {
        assert_eq!(values(&opened.store, number), [Some(1); 3]);
    }
    opened
}

/// Returns the number of loads when all rows are read once.
fn loads_of_gets(opened: &Opened) -> u64 {
    let before = opened.region.tally().loads_count;
    (0..100).for_each(|number| assert_eq!(values(&opened.store, number), [Some(1); 3]));
    opened.region.tally().loads_count - before
}

#[test]
fn a_lookup_in_the_cache_loads_the_tuple_only() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let opened = with_rows(&directory, NvmInplaceSettings::WITH_CACHE);
    // These are the head of a tuple, its key and its row.
    assert!(loads_of_gets(&opened) <= 300 * 3, "{}", loads_of_gets(&opened));
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let opened = with_rows(&directory, NvmInplaceSettings::WITHOUT_CACHE);
    assert!(loads_of_gets(&opened) >= 300 * 4, "{}", loads_of_gets(&opened));
}

#[test]
fn a_row_that_is_gone_is_not_found() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let mut store = with_rows(&directory, NvmInplaceSettings::WITH_CACHE).store;
    assert_eq!(store.delete(TABLE, &keys_of(7)[0]), Ok(true));
    assert_eq!(values(&store, 7), [None; 3], "deleted");
    store.rollback().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(values(&store, 7), [Some(1); 3], "rolled back");
    assert_eq!(store.delete(TABLE, &keys_of(7)[0]), Ok(true));
    commit(&mut store);
    assert_eq!(values(&store, 7), [None; 3], "deleted for good");
    put(&mut store, 7, 2);
    assert_eq!(values(&store, 7), [Some(2); 3], "inserted again");
    store.rollback().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(values(&store, 7), [None; 3], "the insert is rolled back");
}

#[test]
fn a_replaced_row_is_found_by_its_new_keys_only() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let mut store = with_rows(&directory, NvmInplaceSettings::WITH_CACHE).store;
    let (old, new) = (keys_of(7), keys_of(500));
    let keys: [&[u8]; 3] = [&old[0], &new[1], &old[2]];
    let savepoint = store.savepoint();
    assert_eq!(store.replace(TABLE, &keys, &[3; 200]), Ok(true));
    assert_eq!(values(&store, 7), [Some(3), None, Some(3)]);
    assert_eq!(values(&store, 500), [None, Some(3), None]);
    store.rollback_to(savepoint).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(values(&store, 7), [Some(1); 3]);
    assert_eq!(values(&store, 500), [None; 3]);
}

#[test]
fn a_new_table_has_no_row_of_a_dropped_one() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let mut store = with_rows(&directory, NvmInplaceSettings::WITH_CACHE).store;
    store.drop_table(TABLE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(store.create_table(owner(9), 3), Ok(TABLE));
    assert_eq!(values(&store, 7), [None; 3]);
}
