//! A full device gives the error 53100 and leaves nothing half done. When there is space again, the database
//! continues.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;
use varve_device::{ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_engine::{Database, Datum, NewSequence, Options};
use varve_pager::PagerConfig;

fn small(directory: &std::sync::Arc<MemoryDirectory>) -> std::sync::Arc<Database> {
    small_on(PagerConfig::new(directory.clone()))
}

fn small_on(pager: PagerConfig) -> std::sync::Arc<Database> {
    Database::open(Options::new(smaller(PagerConfig { growth_extents: 1, ..pager }))).unwrap()
}

fn smaller(pager: PagerConfig) -> PagerConfig {
    PagerConfig {
        pool_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_capacity_bytes: 8 << 20,
        background: false,
        ..pager
    }
}

fn put_large(
    txn: &mut varve_engine::Transaction,
    def: &varve_engine::TableDef,
    id: i32,
) -> varve_engine::Result<()> {
    let table = txn.table(def)?;
    let note = "n".repeat(2000);
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(id), Datum::Text(&note)])
}

#[test]
fn an_insert_that_finds_no_room_fails_cleanly() {
    let directory = MemoryDirectory::with_capacity(24 << 20);
    fill_up(&small(&directory));
}

/// Does the same with each page size.
#[test]
fn every_page_size_meets_a_full_device() {
    for (page_size, capacity_mib) in [(4096, 22), (16384, 28), (32768, 36), (65536, 52)] {
        let directory = MemoryDirectory::with_capacity(capacity_mib << 20);
        let pager = PagerConfig { page_size, growth_extents: 8, ..PagerConfig::new(directory) };
        fill_up(&Database::open(Options::new(smaller(pager))).unwrap());
    }
}

fn fill_up(database: &std::sync::Arc<Database>) {
    let def = create(database, "t");
    load(database, &def, (0..100).map(|i| (i, i)));
    let mut txn = begin(database, RC);
    let mut id = 100;
    let failure = loop {
        match put_large(&mut txn, &def, id) {
            Ok(()) => id += 1,
            Err(error) => break error,
        }
        assert!(id < 1_000_000, "the device never fills up");
    };
    assert_eq!(failure.sqlstate(), "53100", "{failure}");
    txn.rollback().unwrap();
    database.tick().unwrap();
    assert_eq!(all(database, &def).len(), 100);
    is_sound(database);
    load(database, &def, (100..200).map(|i| (i, i)));
    assert_eq!(all(database, &def).len(), 200);
    is_sound(database);
}

/// A shutdown returns the reserved values of sequences, so that there is no gap. Earlier, a shutdown was not
/// clean if the log had no space for this.
#[test]
fn a_shutdown_is_clean_even_if_a_full_log_takes_no_sequence_back() {
    let directory = MemoryDirectory::new();
    let device = Faulty::wrap(directory.clone());
    let database = small_on(PagerConfig { log: device.clone(), ..PagerConfig::new(directory.clone()) });
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    let sequence = txn.create_sequence(NewSequence::ascending("public", "s")).unwrap().id;
    assert_eq!(txn.next_value(sequence).unwrap(), 1);
    txn.commit().unwrap();
    let fault = Fault::Fails(ErrorKind::NoSpace);
    let (operation, space) = (Some(Operation::SetLen), Some(Space::Log));
    device.arm(Rule { operation, space, when: When::From(1), fault });
    let mut ids = 0..;
    let failure = loop {
        let mut txn = begin(&database, RC);
        match put_large(&mut txn, &def, ids.next().unwrap()).and_then(|()| txn.commit()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(failure.sqlstate(), "53100", "{failure}");
    let rows = all(&database, &def).len();
    database.shutdown().unwrap();
    drop(database);
    let database = small(&directory);
    assert_eq!(all(&database, &def_of(&database)).len(), rows);
    assert!(database.begin(RC).next_value(sequence).unwrap() > 1);
}

fn def_of(database: &std::sync::Arc<Database>) -> std::sync::Arc<varve_engine::TableDef> {
    database.begin(RC).catalog().table("public", "t").unwrap()
}
