//! The tests change tuples in place that the open batch of `nvm_cow` has made. They also make more nodes and
//! tuples than the images of the batch have room for.

use std::sync::Arc;

use varve_device::Directory;
use varve_memory::{Allocator, NvmCow, NvmCowSettings, Store, TableNo};

use super::{ROOT, engine, life, owner};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(1);

/// A store, and the allocator of its region.
struct Opened {
    allocator: Arc<Allocator>,
    store: NvmCow,
}

fn open(directory: &varve_device::MemoryDirectory) -> Opened {
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region, DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Arc::new(allocator);
    let settings = NvmCowSettings { batch_transactions: usize::MAX, node_bytes: 512 };
    let store = NvmCow::open(Arc::clone(&allocator), ROOT, owner(1), settings);
    Opened { allocator, store: store.unwrap_or_else(|error| panic!("{error}")) }
}

impl Opened {
    fn insert(&mut self, number: u64, row: &[u8]) {
        assert_eq!(self.store.insert(TABLE, &[&number.to_be_bytes()], row), Ok(()));
    }

    fn patch(&mut self, number: u64, at: usize, byte: u8) {
        assert_eq!(self.store.patch(TABLE, &number.to_be_bytes(), at, &[byte; 5]), Ok(true));
    }

    fn row(&self, number: u64) -> Vec<u8> {
        let mut row = Vec::new();
        assert_eq!(self.store.get(TABLE, 0, &number.to_be_bytes(), &mut row), Ok(true), "row {number}");
        row
    }

    fn used_bytes(&self) -> u64 {
        self.allocator.used_bytes(owner(3)).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn with_table(region_bytes: u64) -> (Arc<varve_device::MemoryDirectory>, Opened) {
    let directory = life::with_table(engine("nvm_cow"), region_bytes);
    let mut opened = open(&directory);
    assert_eq!(opened.store.create_table(owner(3), 1), Ok(TABLE));
    (directory, opened)
}

#[test]
fn a_tuple_of_the_batch_is_changed_in_place() {
    let (directory, mut opened) = with_table(4 << 20);
    opened.insert(1, &[1; 100]);
    assert!(opened.store.commit().is_ok());
    let used = opened.used_bytes();
    (0..20).for_each(|at| opened.patch(1, at, 2));
    assert!(opened.store.commit().is_ok());
    assert_eq!(opened.used_bytes(), used, "no patch has made another tuple");
    let kept = opened.store.savepoint();
    opened.patch(1, 90, 3);
    assert_eq!(opened.store.rollback_to(kept), Ok(()));
    opened.patch(1, 50, 4);
    assert_eq!(opened.store.replace(TABLE, &[&1_u64.to_be_bytes()], &[5; 30]), Ok(true));
    opened.patch(1, 3, 6);
    assert_eq!(opened.store.delete(TABLE, &1_u64.to_be_bytes()), Ok(true));
    assert_eq!(opened.store.rollback(), Ok(()));
    let expected = [[2; 24].as_slice(), &[1; 76]].concat();
    assert_eq!(opened.row(1), expected, "as the committed patches left it");
    assert_eq!(opened.used_bytes(), used);
    assert_eq!(opened.store.sync(), Ok(()));
    opened.patch(1, 0, 7);
    assert!(opened.used_bytes() > used, "a durable tuple is not changed in place");
    drop(opened);
    assert_eq!(open(&directory).row(1), expected);
}

#[test]
fn a_batch_larger_than_its_images_becomes_durable() {
    const ROWS: u64 = 7000;
    let (directory, mut opened) = with_table(24 << 20);
    let row = |number: u64| {
        let mut row = vec![number as u8; 200];
        row[..5].fill(!number as u8);
        row
    };
    for number in (0..ROWS).map(|number| number * 1511 % ROWS) {
        opened.insert(number, &[number as u8; 200]);
        opened.patch(number, 0, !number as u8);
        assert!(number % 7 > 0 || opened.store.commit().is_ok());
    }
    assert!(opened.store.commit().is_ok());
    let is_right = |opened: &Opened| (0..ROWS).all(|number| opened.row(number) == row(number));
    assert!(is_right(&opened), "the batch is read before it ends");
    assert_eq!(opened.store.sync(), Ok(()));
    assert!(is_right(&opened));
    drop(opened);
    assert!(is_right(&open(&directory)), "a start finds the batch");
}
