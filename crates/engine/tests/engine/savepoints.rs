//! The rollback to a savepoint, or of a statement, undoes exactly the changes after it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;

#[test]
fn rolling_back_to_a_savepoint_keeps_what_was_before() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(1, 10), (2, 20)]);
    let mut txn = begin(&database, RC);
    update(&mut txn, &def, 1, |_| 11).unwrap();
    let outer = txn.savepoint();
    delete(&mut txn, &def, 2).unwrap();
    put(&mut txn, &def, 3, 20).unwrap();
    let inner = txn.savepoint();
    rekey(&mut txn, &def, 1, 4).unwrap();
    assert_eq!(rows(&mut txn, &def).unwrap(), [(3, 20), (4, 11)]);
    txn.rollback_to(inner).unwrap();
    assert_eq!(rows(&mut txn, &def).unwrap(), [(1, 11), (3, 20)]);
    txn.rollback_to(outer).unwrap();
    assert_eq!(rows(&mut txn, &def).unwrap(), [(1, 11), (2, 20)]);
    assert_eq!(state(txn.rollback_to(inner)), "3B001");
    update(&mut txn, &def, 2, |_| 21).unwrap();
    txn.commit().unwrap();
    assert_eq!(all(&database, &def), [(1, 11), (2, 21)]);
    is_sound(&database);
}

#[test]
fn a_statement_can_be_taken_back_alone() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    for id in 0..10 {
        put(&mut txn, &def, id, id).unwrap();
    }
    txn.start_statement();
    for id in 10..2000 {
        put(&mut txn, &def, id, id).unwrap();
    }
    txn.rollback_statement().unwrap();
    assert_eq!(rows(&mut txn, &def).unwrap().len(), 10);
    txn.commit().unwrap();
    assert_eq!(all(&database, &def).len(), 10);
    is_sound(&database);
}

#[test]
fn a_call_that_fails_changes_nothing() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(1, 10), (2, 20)]);
    let mut txn = begin(&database, RC);
    assert_eq!(state(put(&mut txn, &def, 1, 30)), "23505");
    assert_eq!(state(put(&mut txn, &def, 3, 20)), "23505");
    assert_eq!(state(update(&mut txn, &def, 1, |_| 20)), "23505");
    assert_eq!(state(rekey(&mut txn, &def, 1, 2)), "23505");
    assert_eq!(rows(&mut txn, &def).unwrap(), [(1, 10), (2, 20)]);
    assert_eq!(by_v(&mut txn, &def, 20), [(2, 20)]);
    txn.commit().unwrap();
    is_sound(&database);
}

#[test]
fn dropping_a_transaction_rolls_it_back() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    put(&mut txn, &def, 1, 1).unwrap();
    drop(txn);
    assert_eq!(all(&database, &def), []);
    assert_eq!(database.stats().rollbacks, 1);
    is_sound(&database);
}

#[test]
fn rolling_back_to_a_savepoint_gives_the_rows_to_who_waits() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut txn = begin(&database, RC);
    let savepoint = txn.savepoint();
    update(&mut txn, &def, 1, |v| v + 1).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut other = begin(&database, RC);
            other.set_lock_timeout(Some(std::time::Duration::from_secs(20)));
            update(&mut other, &def, 1, |v| v + 10).unwrap();
            other.commit().unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        txn.rollback_to(savepoint).unwrap();
        other.join().unwrap();
    });
    txn.commit().unwrap();
    assert_eq!(all(&database, &def), [(1, 10)]);
}

/// Review 9, N4: a table that was locked since a savepoint stayed locked after ROLLBACK TO.
#[test]
fn locks_of_tables_since_a_savepoint_are_given_back() {
    let (_directory, database) = fresh();
    let (before, since, read) = (create(&database, "a"), create(&database, "b"), create(&database, "c"));
    let mut txn = begin(&database, RC);
    txn.lock_exclusive(before.id).unwrap();
    let savepoint = txn.savepoint();
    txn.lock_exclusive(since.id).unwrap();
    txn.lock_exclusive(before.id).unwrap();
    assert_eq!(rows(&mut txn, &read).unwrap(), []);
    let mut other = begin(&database, RC);
    other.set_lock_timeout(Some(std::time::Duration::from_millis(5)));
    assert_eq!(state(rows(&mut other, &since)), "55P03");
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(rows(&mut other, &since).unwrap(), []);
    assert_eq!(state(rows(&mut other, &before)), "55P03");
    other.lock_exclusive(read.id).unwrap();
    // A lock that was released can be taken again.
    other.commit().unwrap();
    assert_eq!(rows(&mut txn, &read).unwrap(), []);
    let mut other = begin(&database, RC);
    other.set_lock_timeout(Some(std::time::Duration::from_millis(5)));
    assert_eq!(state(other.lock_exclusive(read.id)), "55P03");
    // A table that was truncated since the savepoint is unlocked, too, and is as it was.
    let again = txn.savepoint();
    txn.truncate(since.id).unwrap();
    txn.rollback_to(again).unwrap();
    load(&database, &since, [(1, 1)]);
    assert_eq!(all(&database, &since), [(1, 1)]);
    txn.commit().unwrap();
    is_sound(&database);
}
