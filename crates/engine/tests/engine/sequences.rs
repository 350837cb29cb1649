//! A sequence returns every value once, in spite of rollbacks, threads and crashes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::thread;

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::NewSequence;

#[test]
fn values_are_unique_and_survive_rollback_and_crash() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let id = txn.create_sequence(NewSequence::ascending("public", "s")).unwrap().id;
    assert_eq!(txn.next_value(id).unwrap(), 1);
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(txn.next_value(id).unwrap(), 2);
    txn.rollback().unwrap();
    let seen: BTreeSet<i64> = thread::scope(|scope| {
        let take = || {
            let mut txn = begin(&database, RC);
            (0..100).map(|_| txn.next_value(id).unwrap()).collect::<Vec<_>>()
        };
        let threads = [scope.spawn(take), scope.spawn(take), scope.spawn(take)];
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(seen, (3..=302).collect());
    load(&database, &create(&database, "t"), [(1, 1)]);
    let database = open(&MemoryDirectory::from_images(directory.images()));
    let next = database.begin(RC).next_value(id).unwrap();
    assert!((303..=340).contains(&next), "{next}");
}

#[test]
fn bounds_cycles_and_setval() {
    let (_directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let bounded = NewSequence { max: 3, ..NewSequence::ascending("public", "s") };
    let cycling = NewSequence { max: 3, cycle: true, ..NewSequence::ascending("public", "c") };
    let (s, c) = (txn.create_sequence(bounded).unwrap().id, txn.create_sequence(cycling).unwrap().id);
    let values: Vec<_> = (0..3).map(|_| txn.next_value(s).unwrap()).collect();
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(state(txn.next_value(s)), "2200H");
    txn.set_value(s, 2, false).unwrap();
    assert_eq!(txn.next_value(s).unwrap(), 2);
    txn.set_value(s, 2, true).unwrap();
    assert_eq!(txn.next_value(s).unwrap(), 3);
    assert_eq!(state(txn.set_value(s, 4, false)), "22003");
    let values: Vec<_> = (0..5).map(|_| txn.next_value(c).unwrap()).collect();
    assert_eq!(values, [1, 2, 3, 1, 2]);
    txn.drop_sequence(s).unwrap();
    assert_eq!(state(txn.next_value(s)), "42P01");
    txn.commit().unwrap();
    is_sound(&database);
}

#[test]
fn what_a_commit_has_acknowledged_is_not_given_again() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let id = txn.create_sequence(NewSequence::ascending("public", "s")).unwrap().id;
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(txn.next_value(id).unwrap(), 1);
    txn.commit().unwrap();
    assert!(database.pager().durable_lsn() == database.pager().log().end());
    let mut txn = begin(&database, RC);
    txn.set_value(id, 1000, true).unwrap();
    txn.commit().unwrap();
    let database = open(&MemoryDirectory::from_images(directory.images()));
    assert_eq!(database.begin(RC).next_value(id).unwrap(), 1001);
    assert_eq!(state(database.begin(RC).alter_column(varve_engine::TableId(1), 9, None, true)), "0A000");
}

#[test]
fn a_clean_shutdown_leaves_no_gap() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let up = txn.create_sequence(NewSequence::ascending("public", "up")).unwrap().id;
    let few = NewSequence { max: 3, ..NewSequence::ascending("public", "few") };
    let few = txn.create_sequence(few).unwrap().id;
    let gone = txn.create_sequence(NewSequence::ascending("public", "gone")).unwrap().id;
    assert_eq!([up, up, few, gone].map(|id| txn.next_value(id).unwrap()), [1, 2, 1, 1]);
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    txn.drop_sequence(gone).unwrap();
    txn.commit().unwrap();
    database.shutdown().unwrap();
    let database = open(&directory);
    let mut txn = begin(&database, RC);
    assert_eq!([up, few, few].map(|id| txn.next_value(id).unwrap()), [3, 2, 3]);
    assert_eq!(state(txn.next_value(few)), "2200H");
    txn.set_value(up, 100, true).unwrap();
    txn.commit().unwrap();
    database.shutdown().unwrap();
    let database = open(&directory);
    assert_eq!(database.begin(RC).next_value(up).unwrap(), 101);
    assert_eq!(state(database.begin(RC).next_value(few)), "2200H");
}

#[test]
fn a_sequence_that_changes_goes_on_where_it_stood() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let made = txn.create_sequence(NewSequence::ascending("public", "s")).unwrap();
    let id = made.id;
    assert_eq!([id, id].map(|id| txn.next_value(id).unwrap()), [1, 2]);
    txn.commit().unwrap();
    let by_ten = NewSequence { increment: 10, ..NewSequence::of(&made) };
    let mut txn = begin(&database, RC);
    txn.alter_sequence(id, by_ten.clone(), None).unwrap();
    assert_eq!(txn.next_value(id).unwrap(), 12);
    txn.rollback().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(txn.next_value(id).unwrap(), 3, "values before the change were given back");
    txn.alter_sequence(id, by_ten, None).unwrap();
    let waiting = thread::scope(|scope| {
        let waits = database.stats().lock_waits;
        let other = scope.spawn(|| begin(&database, RC).next_value(id).unwrap());
        until_one_waits(&database, waits);
        assert_eq!(txn.next_value(id).unwrap(), 13);
        txn.commit().unwrap();
        other.join().unwrap()
    });
    assert_eq!(waiting, 23);
    let state = database.sequence_state(&begin(&database, RC).catalog().sequence("public", "s").unwrap());
    assert_eq!(state.unwrap().last_value, 23);
    let mut txn = begin(&database, RC);
    txn.restart_sequence(id).unwrap();
    let crashed = open(&MemoryDirectory::from_images(directory.images()));
    assert!(crashed.begin(RC).next_value(id).unwrap() > 23, "an uncommitted restart is none");
    is_sound(&crashed);
    txn.commit().unwrap();
    let restarted = open(&MemoryDirectory::from_images(directory.images()));
    assert_eq!(restarted.begin(RC).next_value(id).unwrap(), 1);
    is_sound(&restarted);
}
