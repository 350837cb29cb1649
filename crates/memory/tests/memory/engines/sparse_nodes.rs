//! Deletes leave few rows in each node of the copy-on-write engines, and nodes are merged.

use std::sync::Arc;

use varve_device::Directory;
use varve_memory::{Allocator, NvmCow, NvmCowSettings, Store, StoreError, StoreResult, TableNo};

use super::crash::search;
use super::{ENGINES, Engine, ROOT, life, owner, random};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(1);
const ROWS: u64 = 6000;
/// Of this many rows one stays.
const KEPT: u64 = 50;
/// After deletes, a store has at most this many nodes for each node of a store that has never had other rows.
const NODES_MAX: u64 = 3;
const NODE_BYTES: u64 = 1024;
/// Bytes of the chunk of a row with its key.
const TUPLE_BYTES: u64 = 128;

fn cow_engines() -> impl Iterator<Item = &'static Engine> {
    ENGINES.iter().filter(|engine| ["cow", "nvm_cow"].contains(&engine.name))
}

/// Opens an engine with small nodes, so that trees have many of them.
fn open_small(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = NvmCowSettings { batch_transactions: 64, node_bytes: NODE_BYTES as usize };
    NvmCow::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

static SMALL: Engine = Engine { name: "nvm_cow", open: open_small };

/// A store, and the allocator of its region.
struct Opened {
    allocator: Arc<Allocator>,
    store: Box<dyn Store>,
}

fn with_empty_table(engine: &Engine) -> Opened {
    let directory = life::with_table(engine, 24 << 20);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region, DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Arc::new(allocator);
    let store = (engine.open)(Arc::clone(&allocator));
    let mut store = store.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    assert_eq!(store.create_table(owner(3), 1), Ok(TABLE));
    Opened { allocator, store }
}

impl Opened {
    /// Runs a change of each row. Transactions have 70 of them.
    fn each(&mut self, numbers: impl Iterator<Item = u64>, change: impl Fn(&mut dyn Store, u64)) {
        for (count, number) in (1..).zip(numbers) {
            change(&mut *self.store, number);
            assert!(count % 70 > 0 || self.store.commit().is_ok());
        }
        assert_eq!(self.store.commit().and_then(|_| self.store.sync()), Ok(()));
    }

    fn insert(&mut self, numbers: impl Iterator<Item = u64>) {
        self.each(numbers, |store, number| {
            assert_eq!(store.insert(TABLE, &[&number.to_be_bytes()], &[7; 60]), Ok(()));
        });
    }

    fn delete(&mut self, numbers: impl Iterator<Item = u64>) {
        self.each(numbers, |store, number| {
            assert_eq!(store.delete(TABLE, &number.to_be_bytes()), Ok(true), "row {number}");
        });
    }

    /// Returns the number of nodes of the table of a store with this number of rows in `nvm_cow`.
    fn node_count(&self, rows: u64) -> u64 {
        let bytes = self.allocator.used_bytes(owner(3)).unwrap_or_else(|error| panic!("{error}"));
        assert!((bytes - rows * TUPLE_BYTES).is_multiple_of(NODE_BYTES), "{bytes} bytes");
        (bytes - rows * TUPLE_BYTES) / NODE_BYTES
    }

    fn chunk_count(&self) -> usize {
        self.store.chunks().map_or(0, |chunks| chunks.len())
    }

    fn count(&self, mut numbers: std::ops::Range<u64>) -> u64 {
        let has = |number: u64| self.store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true);
        numbers.by_ref().map(|number| u64::from(has(number))).sum()
    }
}

/// Returns the rows that are deleted, in an order that a multiplication mixes. With `step` 1, it is the order
/// of the keys.
fn deleted(step: u64) -> impl Iterator<Item = u64> {
    (0..ROWS).map(move |number| number * step % ROWS).filter(|number| number % KEPT > 0)
}

#[test]
fn nodes_with_few_rows_are_merged() {
    let mut fresh = with_empty_table(&SMALL);
    fresh.insert((0..ROWS).filter(|number| number % KEPT == 0));
    let fresh_nodes = fresh.node_count(ROWS / KEPT);
    for step in [1, 1511, ROWS - 1] {
        let mut opened = with_empty_table(&SMALL);
        opened.insert(0..ROWS);
        let all_nodes = opened.node_count(ROWS);
        opened.delete(deleted(step));
        let nodes = opened.node_count(ROWS / KEPT);
        println!("step {step}: {all_nodes} nodes, then {nodes}; {fresh_nodes} in a fresh store");
        assert!(nodes <= NODES_MAX * fresh_nodes, "step {step}: {nodes} nodes, {fresh_nodes} would do");
        assert_eq!(opened.count(0..ROWS), ROWS / KEPT);
        random::no_chunk_is_lost(&opened.allocator, &*opened.store).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The file of `cow` does not shrink, so its pages have to be used again.
#[test]
fn pages_of_merged_nodes_are_used_again() {
    for engine in cow_engines() {
        let mut opened = with_empty_table(engine);
        opened.insert(0..ROWS);
        let grown = opened.chunk_count();
        opened.delete(deleted(1511));
        opened.insert(ROWS..2 * ROWS - ROWS / KEPT);
        let again = opened.chunk_count();
        println!("{}: {grown} chunks, and {again} with as many other rows", engine.name);
        assert!(again <= grown + 16, "{}: {grown} chunks, then {again}", engine.name);
        assert_eq!(opened.count(0..ROWS), ROWS / KEPT, "{}", engine.name);
        assert_eq!(opened.count(ROWS..2 * ROWS), ROWS - ROWS / KEPT, "{}", engine.name);
    }
}

/// A rollback takes inserts back, and leaves nodes with few entries.
#[test]
fn a_rollback_of_inserts_leaves_no_sparse_nodes() {
    let mut opened = with_empty_table(&SMALL);
    opened.insert((0..ROWS).filter(|number| number % KEPT == 0));
    let before = opened.node_count(ROWS / KEPT);
    for number in (0..ROWS).filter(|number| number % KEPT > 0) {
        assert_eq!(opened.store.insert(TABLE, &[&number.to_be_bytes()], &[7; 60]), Ok(()));
    }
    assert_eq!(opened.store.rollback(), Ok(()));
    opened.insert(ROWS..ROWS + 1);
    let after = opened.node_count(ROWS / KEPT + 1);
    assert!(after <= NODES_MAX * before, "{before} nodes, then {after}");
    assert_eq!(opened.count(0..2 * ROWS), ROWS / KEPT + 1);
}

#[test]
fn a_crash_while_nodes_are_merged_leaves_what_was_acknowledged() {
    for engine in cow_engines().filter(|engine| engine.name == "cow").chain([&SMALL]) {
        let life = life::live_deleting(engine).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        let seen = search(engine, &life, 5, 3, |_, _| Ok(())).unwrap_or_else(|error| panic!("{error}"));
        println!("{}: {seen:?}", engine.name);
        assert!(seen.images > 200, "{}: {seen:?}", engine.name);
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_with_its_limit() {
    for engine in cow_engines() {
        let directory = life::with_table(engine, 3 << 20);
        let mut store = life::open(engine, &directory).unwrap_or_else(|error| panic!("{error}"));
        let key = [7; 1020];
        let refused = store.insert(TableNo::new(0), &[&[1], &key, &[1]], b"row");
        assert_eq!(refused, Err(StoreError::KeyLength { len_bytes: 1020, most_bytes: 1019 }));
        let text = refused.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(text.contains("1020 bytes") && text.contains("1 to 1019 bytes"), "{text}");
        assert_eq!(store.insert(TableNo::new(0), &[&[1], &key[..1019], &[1]], b"row"), Ok(()));
    }
}
