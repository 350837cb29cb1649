//! Full and damaged regions, and calls that a store must refuse. Each test is for a fault that an earlier
//! version of the engine `nvm_inplace` had.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{
    Allocator, Commit, Direction, KeyRange, MemoryError, NvmInplace, Pointer, Store, StoreError, TableNo,
};

use super::{ENGINES, ROOT, life, owner};
use crate::life::{DATABASE, REGION, empty};

const TABLE: TableNo = TableNo::new(0);

fn region_of(directory: &MemoryDirectory) -> Arc<dyn Region> {
    directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"))
}

fn allocator_of(directory: &MemoryDirectory) -> Arc<Allocator> {
    let allocator = Allocator::open(region_of(directory), DATABASE);
    Arc::new(allocator.unwrap_or_else(|error| panic!("{error}")))
}

fn open(directory: &MemoryDirectory) -> NvmInplace {
    let store = NvmInplace::open(allocator_of(directory), ROOT, owner(1));
    store.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a store with a table with one index.
fn with_table(region_bytes: u64) -> Arc<MemoryDirectory> {
    let directory = empty(region_bytes);
    assert_eq!(open(&directory).create_table(owner(2), 1), Ok(TABLE));
    directory
}

fn insert(store: &mut NvmInplace, number: u32, row: &[u8]) -> Result<(), StoreError> {
    store.insert(TABLE, &[&number.to_be_bytes()], row)
}

fn has(store: &NvmInplace, number: u32) -> bool {
    let is_there = store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new());
    is_there.unwrap_or_else(|error| panic!("{error}"))
}

/// Adds rows until the region is full. Returns the number of rows. All nodes are full, because the keys come
/// in order.
fn fill(store: &mut NvmInplace) -> u32 {
    for number in 0.. {
        match insert(store, number, b"") {
            Ok(()) => drop(store.commit()),
            Err(StoreError::Memory(MemoryError::Full { .. })) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn a_rollback_in_a_full_region_needs_no_room() {
    let directory = with_table(400_000);
    let mut store = open(&directory);
    let rows = fill(&mut store);
    let deleted = [0, 7, rows / 2, rows - 1];
    for is_crashed in [false, true] {
        for number in deleted {
            assert_eq!(store.delete(TABLE, &number.to_be_bytes()), Ok(true));
        }
        match is_crashed {
            false => assert_eq!(store.rollback(), Ok(())),
            true => store = open(&directory),
        }
        assert!((0..rows).all(|number| has(&store, number)));
    }
    // The slot of a removed entry is not taken by another one.
    assert_eq!(store.delete(TABLE, &deleted[1].to_be_bytes()), Ok(true));
    let key = [0, 0, 0, 7, 1];
    let added = store.insert(TABLE, &[&key], b"");
    assert!(matches!(added, Err(StoreError::Memory(MemoryError::Full { .. }))), "{added:?}");
    assert_eq!(store.commit(), Ok(Commit::Durable));
    assert_eq!(store.insert(TABLE, &[&key], b""), Ok(()));
}

#[test]
fn two_stores_cannot_have_one_owner() {
    let directory = with_table(1 << 20);
    let allocator = allocator_of(&directory);
    for taken in [1, 2] {
        let other = NvmInplace::open(Arc::clone(&allocator), "another store", owner(taken));
        assert_eq!(other.map(drop), Err(StoreError::OwnerTaken { owner: taken }));
    }
}

/// Sets or clears a bit that belongs to no chunk, in the bitmap of a slab with chunks of 4096 bytes.
fn flip_bitmap(region: &dyn Region, allocator: &Allocator, chunk: Pointer) {
    let segments = allocator.capacity_bytes() / 65_536;
    let bitmaps_at = 24_576 + 4096;
    let segments_at = (bitmaps_at + 512 * segments).next_multiple_of(4096);
    let bitmap_at = bitmaps_at + (chunk.to_u64() - segments_at) / 65_536 * 512;
    region.store_word(bitmap_at, region.load_word(bitmap_at) ^ 1 << 40);
}

#[test]
fn an_error_behind_a_durable_commit_does_not_undo_it() {
    let directory = with_table(1 << 20);
    let mut store = open(&directory);
    assert_eq!(insert(&mut store, 1, &[1; 3000]), Ok(()));
    assert_eq!(store.commit(), Ok(Commit::Durable));
    let chunks = store.chunks().unwrap_or_else(|error| panic!("{error}"));
    let allocator = allocator_of(&directory);
    let is_tuple = |chunk: &&Pointer| {
        let is_large = allocator.len_bytes(**chunk).is_ok_and(|len_bytes| len_bytes > 512);
        is_large && allocator.owner_of(**chunk) == Ok(Some(owner(2)))
    };
    let Some(tuple) = chunks.iter().find(is_tuple) else { panic!("a row was stored") };
    drop(store);
    let mut store = open(&directory);
    assert_eq!(store.delete(TABLE, &1_u32.to_be_bytes()), Ok(true));
    let region = region_of(&directory);
    flip_bitmap(&*region, &allocator, *tuple);
    assert_eq!(store.commit(), Ok(Commit::Durable));
    assert!(store.rollback().is_err(), "the tuple cannot be freed");
    assert!(!has(&store, 1), "the row is deleted");
    flip_bitmap(&*region, &allocator, *tuple);
    assert_eq!(store.rollback(), Ok(()));
    assert!(!has(&store, 1), "the row is deleted");
    assert_eq!(insert(&mut store, 1, &[2; 3000]), Ok(()));
    assert_eq!(store.commit(), Ok(Commit::Durable));
}

#[test]
fn a_savepoint_that_was_rolled_back_is_refused() {
    for engine in ENGINES.iter().filter(|engine| ["inplace", "nvm_inplace"].contains(&engine.name)) {
        let directory = life::with_table(engine, 2 << 20);
        let store = life::open(engine, &directory);
        let mut store = store.unwrap_or_else(|error| panic!("{error}"));
        let insert = |store: &mut dyn Store, number: u8| {
            let keys: [&[u8]; 3] = [&[number], &[number], &[number]];
            assert_eq!(store.insert(TABLE, &keys, b"row"), Ok(()));
        };
        let beginning = store.savepoint();
        insert(&mut *store, 1);
        let kept = store.savepoint();
        insert(&mut *store, 2);
        let gone = store.savepoint();
        assert_eq!(store.rollback_to(kept), Ok(()), "{}", engine.name);
        assert_eq!(store.rollback_to(gone), Err(StoreError::NoSavepoint), "{}", engine.name);
        (3..6).for_each(|number| insert(&mut *store, number));
        assert_eq!(store.rollback_to(gone), Err(StoreError::NoSavepoint), "{}", engine.name);
        assert_eq!(store.rollback_to(kept), Ok(()), "{}", engine.name);
        assert_eq!(store.rollback_to(beginning), Ok(()), "{}", engine.name);
        store.commit().unwrap_or_else(|error| panic!("{error}"));
        insert(&mut *store, 1);
        assert_eq!(store.rollback_to(beginning), Err(StoreError::NoSavepoint), "{}", engine.name);
    }
}

/// Returns a chunk of the store that fulfils a condition.
fn chunk_of(directory: &MemoryDirectory, condition: impl Fn(u64, u64) -> bool) -> Pointer {
    let (region, allocator) = (region_of(directory), allocator_of(directory));
    let chunks = open(directory).chunks().unwrap_or_else(|error| panic!("{error}"));
    let fulfils = |chunk: &Pointer| {
        condition(allocator.len_bytes(*chunk).unwrap_or(0), region.load_word(chunk.to_u64()))
    };
    chunks.into_iter().find(fulfils).unwrap_or_else(|| panic!("there is such a chunk"))
}

#[test]
fn nodes_that_lead_in_a_circle_are_damage() {
    let directory = with_table(1 << 20);
    let mut store = open(&directory);
    (0..50).for_each(|number| assert_eq!(insert(&mut store, number, &[3; 2000]), Ok(())));
    assert_eq!(store.commit(), Ok(Commit::Durable));
    let root = chunk_of(&directory, |len_bytes, word| len_bytes == 512 && word >> 32 == 0);
    let region = region_of(&directory);
    for slot in 0..20 {
        region.store_word(root.to_u64() + 32 + 24 * slot + 16, root.to_u64());
    }
    let is_damage = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Damaged { .. }));
    assert!(is_damage(store.get(TABLE, 0, &7_u32.to_be_bytes(), &mut Vec::new()).map(drop)));
    let mut on_row = |_: &[u8], _: &[u8]| std::ops::ControlFlow::Continue(());
    for direction in [Direction::Forward, Direction::Backward] {
        assert!(is_damage(store.scan(TABLE, 0, &KeyRange::ALL, direction, &mut on_row)));
    }
    assert!(is_damage(store.chunks().map(drop)));
    assert!(is_damage(insert(&mut store, 99, b"")));
}

#[test]
fn blocks_of_the_log_that_lead_in_a_circle_are_damage() {
    let directory = with_table(1 << 20);
    let block = chunk_of(&directory, |len_bytes, _| len_bytes == 8192);
    region_of(&directory).store_word(block.to_u64() + 8, block.to_u64());
    let opened = NvmInplace::open(allocator_of(&directory), ROOT, owner(1));
    assert!(matches!(opened.map(drop), Err(StoreError::Damaged { .. })));
}
