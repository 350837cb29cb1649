//! A wait for a lock ends with 55P03 after its timeout, and with 57014 if it is cancelled. The transaction
//! can continue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "engine/database/mod.rs"]
mod database;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use database::*;

#[test]
fn a_wait_ends_after_its_time() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0), (2, 0)]);
    let mut holder = begin(&database, RC);
    update(&mut holder, &def, 1, |_| 1).unwrap();
    let mut waiter = begin(&database, RC);
    waiter.set_lock_timeout(Some(Duration::from_millis(30)));
    let start = Instant::now();
    assert_eq!(state(update(&mut waiter, &def, 1, |_| 2)), "55P03");
    assert!(start.elapsed() >= Duration::from_millis(30));
    update(&mut waiter, &def, 2, |_| 2).unwrap();
    waiter.commit().unwrap();
    holder.commit().unwrap();
    assert_eq!(all(&database, &def), [(1, 1), (2, 2)]);
}

/// Review 12, S2: each ROLLBACK TO of the holder woke the waiter. The waiter found the row still locked, and
/// its time limit began again.
#[test]
fn a_wait_ends_after_its_time_whatever_is_given_up_meanwhile() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0), (2, 0)]);
    let mut holder = begin(&database, RC);
    update(&mut holder, &def, 1, |_| 1).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !is_over.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(5) {
                let savepoint = holder.savepoint();
                update(&mut holder, &def, 2, |v| v + 1).unwrap();
                holder.rollback_to(savepoint).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        });
        let mut waiter = begin(&database, RC);
        waiter.set_lock_timeout(Some(Duration::from_millis(100)));
        let start = Instant::now();
        let outcome = state(update(&mut waiter, &def, 1, |_| 2));
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(outcome, "55P03");
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(100), "{waited:?}");
        assert!(waited < Duration::from_secs(4), "{waited:?}: it waited for the holder to come to rest");
    });
}

#[test]
fn a_wait_ends_when_cancelled() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut holder = begin(&database, RC);
    update(&mut holder, &def, 1, |_| 1).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut waiter = begin(&database, RC);
            waiter.set_cancel(Some(Arc::clone(&flag)));
            state(update(&mut waiter, &def, 1, |_| 2))
        });
        thread::sleep(Duration::from_millis(20));
        flag.store(true, Ordering::SeqCst);
        assert_eq!(waiting.join().unwrap(), "57014");
    });
}

#[test]
fn those_who_queued_behind_a_waiter_that_gave_up_get_the_row() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut holder = begin(&database, RC);
    update(&mut holder, &def, 1, |v| v + 1).unwrap();
    thread::scope(|scope| {
        for patience in [40, 2000, 2000, 2000] {
            let (database, def) = (&database, &def);
            scope.spawn(move || {
                let mut txn = begin(database, RC);
                txn.set_lock_timeout(Some(Duration::from_millis(patience)));
                match update(&mut txn, def, 1, |v| v + 1) {
                    Ok(_) => txn.commit().unwrap(),
                    Err(_) => txn.rollback().unwrap(),
                }
            });
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(60));
        holder.commit().unwrap();
    });
    assert_eq!(all(&database, &def), [(1, 4)]);
}
