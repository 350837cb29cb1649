//! A cycle of waits is found at once: one transaction gets 40P01, the others continue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Barrier;
use std::thread;

use crate::database::*;

#[test]
fn of_two_that_cross_exactly_one_is_the_victim() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0), (2, 0)]);
    let both = Barrier::new(2);
    let run = |first: i32, second: i32| {
        let mut txn = begin(&database, RC);
        update(&mut txn, &def, first, |v| v + 1).unwrap();
        both.wait();
        match update(&mut txn, &def, second, |v| v + 1) {
            Ok(_) => {
                txn.commit().unwrap();
                "ok"
            }
            Err(error) => {
                txn.rollback().unwrap();
                error.sqlstate()
            }
        }
    };
    let mut outcomes = thread::scope(|scope| {
        let a = scope.spawn(|| run(1, 2));
        let b = scope.spawn(|| run(2, 1));
        [a.join().unwrap(), b.join().unwrap()]
    });
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["40P01", "ok"]);
    assert_eq!(all(&database, &def), [(1, 1), (2, 1)]);
    assert_eq!(database.stats().deadlocks, 1);
}

#[test]
fn a_ring_of_five_loses_one() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..5).map(|i| (i, 0)));
    let all_locked = Barrier::new(5);
    let victims = thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|me| {
                let (database, def, all_locked) = (&database, &def, &all_locked);
                scope.spawn(move || {
                    let mut txn = begin(database, RC);
                    update(&mut txn, def, me, |v| v + 1).unwrap();
                    all_locked.wait();
                    let outcome = update(&mut txn, def, (me + 1) % 5, |v| v + 1);
                    match outcome {
                        Ok(_) => txn.commit().unwrap(),
                        Err(_) => txn.rollback().unwrap(),
                    }
                    outcome.is_err()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).filter(|victim| *victim).count()
    });
    assert_eq!(victims, 1);
    is_sound(&database);
}
