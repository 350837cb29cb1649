//! Unique keys: which transaction waits, which one gets 23505, and that concurrent inserts never store two
//! equal keys.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;
use std::time::Duration;

use crate::database::*;
use varve_engine::Error;

#[test]
fn the_error_names_constraint_and_key() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(1, 10)]);
    let mut txn = begin(&database, RC);
    for (id, v, name, key) in [(1, 11, "t_pkey", "Key (id)=(1)"), (2, 10, "t_v", "Key (v)=(10)")] {
        match put(&mut txn, &def, id, v) {
            Err(Error::UniqueViolation { constraint, detail, .. }) => {
                assert_eq!((&constraint[..], &detail[..]), (name, &format!("{key} already exists.")[..]));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A first transaction does `first`, and commits or rolls back. Meanwhile, a second one inserts (2, 10).
fn second_insert(
    first: impl FnOnce(&mut varve_engine::Transaction, &varve_engine::TableDef),
    commits: bool,
) -> bool {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(7, 70)]);
    let mut txn = begin(&database, RC);
    first(&mut txn, &def);
    let is_in = thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            let outcome = put(&mut txn, &def, 2, 70);
            txn.commit().unwrap();
            outcome.inspect_err(|error| assert!(is_unique_violation(error))).is_ok()
        });
        thread::sleep(Duration::from_millis(20));
        if commits {
            txn.commit().unwrap()
        } else {
            txn.rollback().unwrap()
        }
        second.join().unwrap()
    });
    is_sound(&database);
    is_in
}

#[test]
fn a_duplicate_in_doubt_is_waited_for() {
    let gone = |txn: &mut varve_engine::Transaction, def: &varve_engine::TableDef| {
        delete(txn, def, 7).unwrap();
    };
    assert!(second_insert(gone, true));
    assert!(!second_insert(gone, false));
    let changed = |txn: &mut varve_engine::Transaction, def: &varve_engine::TableDef| {
        update(txn, def, 7, |_| 71).unwrap();
    };
    assert!(second_insert(changed, true));
    assert!(!second_insert(changed, false));
    let twice = |txn: &mut varve_engine::Transaction, def: &varve_engine::TableDef| {
        update(txn, def, 7, |_| 71).unwrap();
        put(txn, def, 2, 5).unwrap();
    };
    assert!(!second_insert(twice, true), "the primary key is taken");
    assert!(!second_insert(twice, false), "the value is back");
}

#[test]
fn of_many_that_insert_one_value_one_gets_in() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    for round in 0..20 {
        let winners: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|me| {
                    let (database, def) = (&database, &def);
                    scope.spawn(move || {
                        let mut txn = begin(database, RC);
                        let is_in = put(&mut txn, def, round * 10 + me, round).is_ok();
                        txn.commit().unwrap();
                        is_in
                    })
                })
                .collect();
            threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
        });
        assert_eq!(winners, 1, "round {round}");
    }
    assert_eq!(all(&database, &def).len(), 20);
    is_sound(&database);
}

#[test]
fn delete_and_insert_of_one_key_in_one_transaction() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(1, 10)]);
    let mut reader = begin(&database, RR);
    let mut txn = begin(&database, RC);
    for v in [10, 11, 10] {
        delete(&mut txn, &def, 1).unwrap();
        put(&mut txn, &def, 1, v).unwrap();
        assert_eq!(by_v(&mut txn, &def, v), [(1, v)]);
    }
    txn.commit().unwrap();
    database.tick().unwrap();
    assert_eq!(by_v(&mut reader, &def, 10), [(1, 10)]);
    reader.commit().unwrap();
    is_sound(&database);
    assert_eq!(all(&database, &def), [(1, 10)]);
}
