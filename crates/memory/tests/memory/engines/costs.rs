//! The tests count the fences of changes. They also check that the loads of a start do not depend on the
//! stored data. Counts are exact.

use std::sync::Arc;

use varve_device::Directory;
use varve_memory::{Allocator, NvmInplace, Store, TableNo};

use super::life;
use super::{ENGINES, ROOT, owner};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(0);

fn insert(store: &mut dyn Store, number: u64) {
    let (key, row) = (number.to_be_bytes(), [7; 100]);
    let keys: [&[u8]; 3] = [&key, &key, &key];
    store.insert(TABLE, &keys, &row).unwrap_or_else(|error| panic!("{error}"));
    store.commit().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn fences_of_nvm_inplace_are_as_few_as_said() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let store = NvmInplace::open(Arc::new(allocator), ROOT, owner(1));
    let mut store = store.unwrap_or_else(|error| panic!("{error}"));
    let fences = |store: &mut NvmInplace, change: &dyn Fn(&mut NvmInplace)| {
        let before = region.tally().fences_count;
        change(store);
        region.tally().fences_count - before
    };
    insert(&mut store, 1);
    assert_eq!(
        fences(&mut store, &|store| insert(store, 2)),
        3,
        "before it, the changes, the end of the log"
    );
    let key = 2_u64.to_be_bytes();
    let patch = |store: &mut NvmInplace| {
        assert_eq!(store.patch(TABLE, &key, 3, &[9; 50]), Ok(true));
        store.commit().unwrap_or_else(|error| panic!("{error}"));
    };
    assert_eq!(fences(&mut store, &patch), 3);
    let delete = |store: &mut NvmInplace| {
        assert_eq!(store.delete(TABLE, &key), Ok(true));
        store.commit().unwrap_or_else(|error| panic!("{error}"));
    };
    assert_eq!(fences(&mut store, &delete), 5, "the phase, and the freed tuple, in between");
    assert_eq!(fences(&mut store, &|store| drop(store.commit())), 0, "nothing was changed");
}

/// An entry of the undo log has 12 bytes before those of a patch, and its lines have room for 56.
#[test]
fn a_patch_of_nvm_inplace_writes_few_lines() {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let store = NvmInplace::open(Arc::new(allocator), ROOT, owner(1));
    let mut store = store.unwrap_or_else(|error| panic!("{error}"));
    insert(&mut store, 1);
    let mut lines = |len: usize| {
        let before = region.tally().written_back_lines;
        assert_eq!(store.patch(TABLE, &1_u64.to_be_bytes(), 0, &vec![9; len]), Ok(true));
        store.commit().unwrap_or_else(|error| panic!("{error}"));
        region.tally().written_back_lines - before
    };
    assert_eq!(lines(44), 1 + 2 + 1, "the log, the tuple, the end of the log");
    assert_eq!(lines(45), 2 + 2 + 1);
    assert_eq!(lines(100), 2 + 3 + 1);
}

/// Returns the number of loads when a store with this number of rows and an open transaction is opened.
fn loads_of_a_start(rows: u64) -> u64 {
    let directory = life::with_table(&ENGINES[0], 8 << 20);
    let mut store = life::open(&ENGINES[0], &directory).unwrap_or_else(|error| panic!("{error}"));
    (0..rows).for_each(|number| insert(&mut *store, number));
    assert_eq!(store.patch(TABLE, &1_u64.to_be_bytes(), 3, &[9; 50]), Ok(true));
    drop(store);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let before = region.tally().loads_count;
    let store = NvmInplace::open(Arc::new(allocator), ROOT, owner(1));
    let loads = region.tally().loads_count - before;
    let mut row = Vec::new();
    let is_there = store.and_then(|store| store.get(TABLE, 0, &1_u64.to_be_bytes(), &mut row));
    assert_eq!((is_there, row), (Ok(true), vec![7; 100]), "the patch is taken back");
    loads
}

#[test]
fn a_start_of_nvm_inplace_reads_the_same_whatever_is_stored() {
    let (few, many) = (loads_of_a_start(5), loads_of_a_start(4000));
    println!("{few} loads with 5 rows, {many} with 4000");
    assert_eq!(few, many);
}
