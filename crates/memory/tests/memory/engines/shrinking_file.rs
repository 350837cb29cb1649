//! The file of `cow` gives pages back to the region when most of its rows are deleted.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_memory::{Allocator, Store, TableNo};

use super::crash;
use super::life::{self, Life};
use super::random::no_chunk_is_lost;
use super::{Engine, engine, owner};
use crate::crash::cuts;
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(1);
const ROWS: u64 = 6000;
/// Of this many rows one stays.
const KEPT: u64 = 20;
const ROW_BYTES: usize = 300;
/// The number of moments of a crash that are checked.
const CUTS: usize = 60;

/// A store, and the allocator of its region.
struct Opened {
    directory: Arc<MemoryDirectory>,
    allocator: Arc<Allocator>,
    store: Box<dyn Store>,
}

fn open(engine: &Engine, directory: Arc<MemoryDirectory>) -> Opened {
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Arc::new(Allocator::open(region, DATABASE).unwrap_or_else(|error| panic!("{error}")));
    let store = (engine.open)(Arc::clone(&allocator)).unwrap_or_else(|error| panic!("{error}"));
    Opened { directory, allocator, store }
}

/// Returns a row's place in the order of inserts, so that neighbours in the file are not neighbours in the
/// index.
fn mixed(number: u64) -> u64 {
    number * 1511 % ROWS
}

impl Opened {
    fn bytes(&self) -> u64 {
        self.allocator.used_bytes(owner(1)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn fill(&mut self) {
        assert_eq!(self.store.create_table(owner(3), 2), Ok(TABLE));
        for number in (0..ROWS).map(mixed) {
            let key = number.to_be_bytes();
            let row = [number as u8; ROW_BYTES];
            assert_eq!(self.store.insert(TABLE, &[&key, &key], &row), Ok(()));
            assert!(number % 50 > 0 || self.store.commit().is_ok());
        }
        assert_eq!(self.store.commit().and_then(|_| self.store.sync()), Ok(()));
    }

    fn check(&self, is_kept: impl Fn(u64) -> bool) {
        let mut row = Vec::new();
        for number in 0..ROWS {
            let found = self.store.get(TABLE, 1, &number.to_be_bytes(), &mut row);
            assert_eq!(found, Ok(is_kept(number)), "row {number}");
            assert!(!is_kept(number) || row == [number as u8; ROW_BYTES], "row {number}");
        }
        no_chunk_is_lost(&self.allocator, &*self.store).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn deletes_give_pages_back() {
    let engine = engine("cow");
    for portion in [50, ROWS] {
        let mut opened = open(engine, life::with_table(engine, 32 << 20));
        opened.fill();
        let grown = opened.bytes();
        for (count, number) in (1..).zip((0..ROWS).filter(|number| number % KEPT > 0)) {
            assert_eq!(opened.store.delete(TABLE, &number.to_be_bytes()), Ok(true));
            assert!(count % portion > 0 || opened.store.commit().is_ok());
        }
        assert_eq!(opened.store.commit().and_then(|_| opened.store.sync()), Ok(()));
        let left = opened.bytes();
        println!("transactions of {portion} deletes: {grown} bytes, then {left}");
        assert!(2 * left < grown, "transactions of {portion} deletes: {grown} bytes, then {left}");
        opened.check(|number| number.is_multiple_of(KEPT));
        let opened = open(engine, opened.directory);
        opened.check(|number| number.is_multiple_of(KEPT));
    }
}

#[test]
fn a_dropped_table_gives_pages_back() {
    let engine = engine("cow");
    let mut opened = open(engine, life::with_table(engine, 32 << 20));
    let empty = opened.bytes();
    opened.fill();
    let grown = opened.bytes();
    assert_eq!(opened.store.drop_table(TABLE), Ok(()));
    let left = opened.bytes();
    println!("{empty} bytes, with the table {grown}, then {left}");
    assert!(left - empty < (grown - empty) / 4, "{empty} bytes, with the table {grown}, then {left}");
    opened.fill();
    opened.check(|_| true);
}

/// Checks crash images of a life that deletes most of its rows, so that nodes are moved and the file is cut.
#[test]
fn crashes_while_the_file_shrinks_lose_nothing() {
    let engine = engine("cow");
    let deleting = life::live_shrinking(engine).unwrap_or_else(|error| panic!("{error}"));
    let Life { states, .. } = &deleting;
    assert!(states.len() > 2);
    let stride = cuts(&deleting.recording).len() / CUTS;
    let seen = crash::search(engine, &deleting, 1, stride, |_, _| Ok(()));
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    println!("{seen:?}");
    assert!(seen.images > 100, "{seen:?}");
}
