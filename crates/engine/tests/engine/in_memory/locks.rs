//! Transactions are serial in a partition.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use varve_engine::{Error, Isolation};

use super::*;

#[test]
fn a_partition_is_locked_from_the_first_read_on() {
    let (_, database) = empty(2);
    let (a, b) = (make(&database, "a", "nvm_inplace"), make(&database, "b", "nvm_inplace"));
    let mut reader = begin(&database, Isolation::RepeatableRead);
    assert_eq!(see(&mut reader, &a, 1), None);
    let mut other = begin(&database, RC);
    other.set_lock_timeout(Some(Duration::from_millis(5)));
    assert!(matches!(put(&mut other, &a, 1, 1), Err(Error::LockTimeout)));
    put(&mut other, &b, 1, 1).unwrap();
    reader.commit().unwrap();
    other.commit().unwrap();
    load(&database, &a, [(1, 10)]);
    assert_eq!(all(&database, &a), [(1, 10)]);
}

#[test]
fn a_waiter_sees_what_it_has_waited_for() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        load(&database, &def, [(1, 0)]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut txn = begin(&database, RC);
                        update(&mut txn, &def, 1, |v| v + 1).unwrap();
                        txn.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(all(&database, &def), [(1, 200)], "{engine}");
    }
}

#[test]
fn a_deadlock_between_two_partitions_is_found() {
    let (_, database) = empty(2);
    let (a, b) = (make(&database, "a", "nvm_inplace"), make(&database, "b", "nvm_inplace"));
    let mut first = begin(&database, RC);
    see(&mut first, &a, 1);
    let (locked, wait) = mpsc::channel();
    thread::scope(|scope| {
        let (database, a, b) = (&database, &a, &b);
        let second = scope.spawn(move || {
            let mut txn = begin(database, RC);
            see(&mut txn, b, 1);
            locked.send(()).unwrap();
            let outcome = see_again(&mut txn, a, 1);
            drop(txn);
            outcome.map(|_| ())
        });
        wait.recv().unwrap();
        let outcome = see_again(&mut first, b, 1).map(|_| ());
        drop(first);
        let outcomes = [outcome, second.join().unwrap()];
        let deadlocks = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Deadlock))).count();
        assert_eq!(deadlocks, 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    });
}
