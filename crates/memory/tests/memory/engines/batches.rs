//! Batches of the copy-on-write engines: the fences and stores that they cost, and their state after a start.
//! Counts are exact.

use std::sync::Arc;

use varve_device::{Directory, Region};
use varve_memory::{Allocator, Commit, Store, StoreError, TableNo};

use super::{ENGINES, Engine, life, owner};
use crate::life::{DATABASE, REGION};

/// A table with a primary index only.
const TABLE: TableNo = TableNo::new(1);
/// The bytes of a row of YCSB: ten fields of 100 bytes.
const ROW_BYTES: u64 = 1000;
const FIELD_BYTES: u64 = 100;
const NODE_BYTES: u64 = 4096;

/// A store and its region.
struct Opened {
    region: Arc<dyn Region>,
    store: Box<dyn Store>,
}

fn engines() -> impl Iterator<Item = &'static Engine> {
    ENGINES.iter().filter(|engine| ["cow", "nvm_cow"].contains(&engine.name))
}

fn open(engine: &Engine, region: Arc<dyn Region>) -> Opened {
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let store = (engine.open)(Arc::new(allocator));
    Opened { region, store: store.unwrap_or_else(|error| panic!("{}: {error}", engine.name)) }
}

/// Returns a table with this many rows, all durable.
fn with_rows(engine: &Engine, rows: u64) -> Opened {
    let directory = life::with_table(engine, 32 << 20);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let mut opened = open(engine, region);
    assert_eq!(opened.store.create_table(owner(3), 1), Ok(TABLE));
    (0..rows).for_each(|number| opened.insert(2 * number));
    assert_eq!(opened.store.sync(), Ok(()));
    opened
}

impl Opened {
    fn insert(&mut self, number: u64) {
        let inserted = self.store.insert(TABLE, &[&number.to_be_bytes()], &[7; ROW_BYTES as usize]);
        assert_eq!(inserted.and_then(|()| self.store.commit()).map(drop), Ok(()));
    }

    fn patch(&mut self, number: u64) {
        let patched = self.store.patch(TABLE, &number.to_be_bytes(), 300, &[9; FIELD_BYTES as usize]);
        assert_eq!(patched, Ok(true));
        assert_eq!(self.store.commit(), Ok(Commit::Pending));
    }

    fn has(&self, number: u64) -> bool {
        self.store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true)
    }

    /// Returns the number of bytes that a change stores.
    fn stored(&mut self, change: impl FnOnce(&mut Opened)) -> u64 {
        let before = self.region.tally().stored_bytes;
        change(self);
        self.region.tally().stored_bytes - before
    }
}

#[test]
fn a_batch_costs_a_few_fences() {
    for engine in engines() {
        let mut opened = with_rows(engine, 10);
        let before = opened.region.tally().fences_count;
        (0..10).for_each(|number| opened.patch(2 * number));
        assert_eq!(opened.region.tally().fences_count, before, "{}: a commit waits", engine.name);
        assert_eq!(opened.store.sync(), Ok(()));
        let fences = opened.region.tally().fences_count - before;
        // `nvm_cow`: data, activation, flip, frees. `cow`: pages, perhaps the length of the file, flip.
        let expected = if engine.name == "cow" { 2..=3 } else { 4..=4 };
        assert!(expected.contains(&fences), "{}: {fences} fences", engine.name);
        assert_eq!(opened.store.sync(), Ok(()));
        assert_eq!(opened.region.tally().fences_count, before + fences, "{}: nothing was left", engine.name);
    }
}

#[test]
fn a_start_finds_whole_batches() {
    for engine in engines() {
        let Opened { region, mut store } = with_rows(engine, 10);
        assert_eq!(store.delete(TABLE, &0_u64.to_be_bytes()), Ok(true));
        assert_eq!(store.commit(), Ok(Commit::Pending));
        assert_eq!(store.delete(TABLE, &2_u64.to_be_bytes()), Ok(true));
        assert_eq!(store.sync(), Err(StoreError::InTransaction), "{}", engine.name);
        assert_eq!(store.rollback(), Ok(()));
        let opened = Opened { region, store };
        assert!(!opened.has(0) && opened.has(2), "{}: the rollback keeps the batch", engine.name);
        let Opened { region, store } = opened;
        drop(store);
        let mut opened = open(engine, region);
        assert!(opened.has(0), "{}: the batch was not durable", engine.name);
        opened.patch(4);
        assert_eq!(opened.store.sync(), Ok(()));
        assert!(open(engine, opened.region).has(4), "{}", engine.name);
    }
}

/// Table 3 of Arulraj and others (2015). T is a tuple, F a field, B a node, p a pointer. Two levels of nodes
/// are copied.
#[test]
fn bytes_stored_are_near_the_cost_model() {
    for engine in engines() {
        let mut opened = with_rows(engine, 500);
        let absent = opened.stored(|opened| opened.patch(400));
        let present = opened.stored(|opened| opened.patch(400));
        let inserted = opened.stored(|opened| opened.insert(401));
        let ended = opened.stored(|opened| assert_eq!(opened.store.sync(), Ok(())));
        let name = engine.name;
        println!(
            "{name}: update {absent}, again {present}, insert {inserted}, end of the batch {ended} bytes"
        );
        let small = 200;
        // `nvm_cow` stores tuples and nodes at the end of the batch.
        let (update, end) = match name {
            "cow" => (FIELD_BYTES, 6 * NODE_BYTES),
            _ => (0, 2 * (ROW_BYTES + FIELD_BYTES) + 2 * NODE_BYTES + 600),
        };
        assert!(name == "cow" || absent + present + inserted == 0, "{name}: a tuple is stored too early");
        // A node has the bytes of its entries only, and copies of clean pages into frames count too.
        assert!(absent <= update + 5 * NODE_BYTES, "{name}: {absent} bytes");
        assert!(present <= update + small, "{name}: {present} bytes");
        assert!(inserted <= ROW_BYTES + 2 * NODE_BYTES + small, "{name}: {inserted} bytes");
        assert!(ended <= end, "{name}: {ended} bytes");
    }
}
