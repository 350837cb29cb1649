//! The effects and the costs of the group commit and of the checkpoints of `inplace`. Counts are exact.

use std::ops::Range;
use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{Allocator, Commit, Inplace, InplaceSettings, Store, StoreError, TableNo};

use super::life::with_table;
use super::{ENGINES, ROOT, owner};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(0);

fn region_of(directory: &MemoryDirectory) -> Arc<dyn Region> {
    directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"))
}

fn open(region: &Arc<dyn Region>) -> Inplace {
    let allocator = Allocator::open(Arc::clone(region), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let store = Inplace::open(Arc::new(allocator), ROOT, owner(1), InplaceSettings::default());
    store.unwrap_or_else(|error| panic!("{error}"))
}

fn insert(store: &mut Inplace, number: u64) -> Commit {
    let (key, row) = (number.to_be_bytes(), [number as u8; 100]);
    let keys: [&[u8]; 3] = [&key, &key, &key];
    store.insert(TABLE, &keys, &row).unwrap_or_else(|error| panic!("{error}"));
    store.commit().unwrap_or_else(|error| panic!("{error}"))
}

fn insert_all(store: &mut Inplace, numbers: Range<u64>) {
    for number in numbers {
        insert(store, number);
    }
}

fn count(store: &Inplace) -> usize {
    let is_there = |number: &u64| store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true);
    (0..3000).filter(is_there).count()
}

#[test]
fn a_group_of_commits_costs_two_fences() {
    let directory = with_table(&ENGINES[1], 8 << 20);
    let region = region_of(&directory);
    let mut store = open(&region);
    // After this commit there is room in the log, and there are slabs.
    insert(&mut store, 0);
    assert_eq!(store.sync(), Ok(()));
    let (before, calls) = (region.tally(), store.file_calls());
    assert!((1..11).all(|number| insert(&mut store, number) == Commit::Pending));
    assert_eq!(region.tally().fences_count, before.fences_count, "a commit waits for the sync");
    assert_eq!(store.sync(), Ok(()));
    assert_eq!(region.tally().fences_count, before.fences_count + 2, "the bytes, then the length");
    let after = store.file_calls();
    assert_eq!(after.writes_count - calls.writes_count, 1);
    assert_eq!(after.fsyncs_count - calls.fsyncs_count, 1);
    assert_eq!(store.commit(), Ok(Commit::Durable), "nothing was changed, and nothing waits");
    assert_eq!(store.sync(), Ok(()));
    assert_eq!(region.tally().fences_count, before.fences_count + 2, "nothing was left");
}

#[test]
fn commits_that_were_not_synced_are_gone_after_a_start() {
    let directory = with_table(&ENGINES[1], 8 << 20);
    let region = region_of(&directory);
    let mut store = open(&region);
    insert_all(&mut store, 0..20);
    assert_eq!(store.sync(), Ok(()));
    insert_all(&mut store, 20..30);
    assert_eq!(count(&store), 30);
    drop(store);
    assert_eq!(count(&open(&region)), 20);
}

#[test]
fn a_checkpoint_shortens_the_start() {
    let directory = with_table(&ENGINES[1], 8 << 20);
    let region = region_of(&directory);
    let mut store = open(&region);
    insert_all(&mut store, 0..1000);
    for number in 0..900_u64 {
        assert_eq!(store.delete(TABLE, &number.to_be_bytes()), Ok(true));
    }
    assert_eq!(store.checkpoint(), Err(StoreError::InTransaction));
    assert_eq!(store.commit(), Ok(Commit::Pending));
    assert_eq!(store.sync(), Ok(()));
    drop(store);
    let store = open(&region);
    let replayed = store.file_calls().read_bytes;
    drop(store);
    let mut store = open(&region);
    assert_eq!(store.checkpoint(), Ok(()));
    assert_eq!(insert(&mut store, 2000), Commit::Pending);
    assert_eq!(store.sync(), Ok(()));
    drop(store);
    let store = open(&region);
    let read = store.file_calls().read_bytes;
    assert_eq!(count(&store), 101);
    println!("{replayed} bytes of log, {read} of checkpoint and log");
    assert!(read * 20 < replayed, "{read} bytes, and {replayed} without a checkpoint");
}
