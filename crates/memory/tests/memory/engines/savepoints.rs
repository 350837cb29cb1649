//! A savepoint is valid until its transaction ends, or is rolled back past the savepoint. Other savepoints
//! are refused.

use varve_memory::{Store, StoreError, TableNo};

use super::{ENGINES, Engine, life};

const TABLE: TableNo = TableNo::new(0);

fn open(engine: &Engine) -> Box<dyn Store> {
    let directory = life::with_table(engine, 3 << 20);
    life::open(engine, &directory).unwrap_or_else(|error| panic!("{}: {error}", engine.name))
}

fn insert(store: &mut dyn Store, number: u32) {
    let key = number.to_be_bytes();
    assert_eq!(store.insert(TABLE, &[&key, &key, &key], &[7; 30]), Ok(()));
}

fn has(store: &dyn Store, number: u32) -> bool {
    store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true)
}

/// The error of going back, and whether row 1 is still there.
fn refused(store: &mut dyn Store, engine: &Engine, savepoint: varve_memory::Savepoint, why: &str) {
    assert_eq!(store.rollback_to(savepoint), Err(StoreError::NoSavepoint), "{}: {why}", engine.name);
    assert!(has(store, 1), "{}: {why}", engine.name);
}

#[test]
fn a_savepoint_of_an_ended_transaction_is_refused() {
    for engine in &ENGINES {
        let mut store = open(engine);
        let empty = store.savepoint();
        insert(&mut *store, 1);
        let with_a_row = store.savepoint();
        assert!(store.commit().is_ok());
        let behind_a_commit = store.savepoint();
        refused(&mut *store, engine, empty, "the transaction was committed");
        insert(&mut *store, 2);
        refused(&mut *store, engine, with_a_row, "as many changes, in a later transaction");
        assert_eq!(store.rollback(), Ok(()));
        refused(&mut *store, engine, behind_a_commit, "the transaction was rolled back");
        let unchanged = store.savepoint();
        assert!(store.commit().is_ok());
        refused(&mut *store, engine, unchanged, "a transaction without changes was committed");
        let unchanged = store.savepoint();
        assert_eq!(store.rollback(), Ok(()));
        refused(&mut *store, engine, unchanged, "a transaction without changes was rolled back");
    }
}

#[test]
fn a_savepoint_that_was_rolled_back_past_is_refused() {
    for engine in &ENGINES {
        let mut store = open(engine);
        insert(&mut *store, 1);
        let kept = store.savepoint();
        insert(&mut *store, 2);
        let gone = store.savepoint();
        insert(&mut *store, 3);
        assert_eq!(store.rollback_to(kept), Ok(()));
        refused(&mut *store, engine, gone, "fewer changes than it has");
        insert(&mut *store, 4);
        refused(&mut *store, engine, gone, "as many changes, but others");
        assert!(has(&*store, 4), "{}", engine.name);
        assert_eq!((store.rollback_to(kept), store.rollback_to(kept)), (Ok(()), Ok(())), "{}", engine.name);
        assert!(has(&*store, 1) && !has(&*store, 4), "{}", engine.name);
    }
}

#[test]
fn a_savepoint_of_another_store_is_refused() {
    for engine in &ENGINES {
        let (mut store, mut other) = (open(engine), open(engine));
        insert(&mut *store, 1);
        insert(&mut *other, 1);
        refused(&mut *store, engine, other.savepoint(), "of another store");
    }
}
