//! A long-running reader sees its snapshot to the end, in spite of many updates and purge. After its end,
//! purge frees the old versions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::database::*;
use varve_engine::{Change, ScanIndex, ScanSpec};

#[test]
fn a_reader_sees_one_state_while_everything_changes() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..200).map(|i| (i, i)));
    let mut reader = begin(&database, RR);
    let snapshot = rows(&mut reader, &def).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (database, def, done) = (&database, &def, &done);
            scope.spawn(move || {
                for round in 0..15 {
                    for id in (writer..200).step_by(3) {
                        let mut txn = begin(database, RC);
                        if (id + round) % 10 == 0 && delete(&mut txn, def, id).is_ok() {
                            put(&mut txn, def, id, round).unwrap();
                        } else {
                            update(&mut txn, def, id, |v| v + 1000).unwrap();
                        }
                        if id % 7 == 0 { txn.rollback().unwrap() } else { txn.commit().unwrap() }
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                database.tick().unwrap();
            }
        });
        while !done.load(Ordering::SeqCst) {
            assert_eq!(rows(&mut reader, &def).unwrap(), snapshot);
            for v in [0, 50, 199] {
                assert_eq!(by_v(&mut reader, &def, v), [(v, v)]);
            }
        }
    });
    assert_eq!(rows(&mut reader, &def).unwrap(), snapshot);
    let held = database.stats().pager.rollback_pages;
    reader.commit().unwrap();
    database.tick().unwrap();
    assert!(database.stats().pager.rollback_pages < held);
    assert_eq!(database.stats().purge_backlog, 0);
    is_sound(&database);
}

#[test]
fn beyond_the_rollback_limit_the_reader_loses() {
    let directory = varve_device::MemoryDirectory::new();
    let mut options = options(&directory);
    options.rollback_limit_bytes = Some(200 << 10);
    let database = varve_engine::Database::open(options).unwrap();
    let def = create(&database, "t");
    load(&database, &def, (0..100).map(|i| (i, i)));
    let mut reader = begin(&database, RR);
    assert_eq!(rows(&mut reader, &def).unwrap().len(), 100);
    let mut statement = begin(&database, RC);
    assert_eq!(rows(&mut statement, &def).unwrap().len(), 100);
    for round in 0..200 {
        let mut txn = begin(&database, RC);
        for id in 0..100 {
            update(&mut txn, &def, id, |v| v + round).unwrap();
        }
        txn.commit().unwrap();
        database.tick().unwrap();
    }
    assert_eq!(state(rows(&mut reader, &def)), "72000");
    assert_eq!(state(update(&mut reader, &def, 5, |v| v + 1)), "72000");
    // The statement can no longer find out whether the row has got another key. So it must fail, and must not
    // skip the row.
    let table = statement.table(&def).unwrap();
    assert_eq!(state(statement.modify(&table, &pk(5), &mut |_| Ok(Change::Delete))), "72000");
    statement.rollback().unwrap();
    assert!(database.stats().pager.rollback_pages < 100);
    reader.rollback().unwrap();
    is_sound(&database);
}

/// An index has an entry for each version while an old reader lives. A scan must read the versions of a row
/// once, and not once for each entry. Otherwise the work grows with the square of the versions, and this test
/// takes minutes.
#[test]
fn an_old_reader_scans_an_index_of_many_versions() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..10).map(|i| (i, i)));
    let mut reader = begin(&database, RR);
    assert_eq!(rows(&mut reader, &def).unwrap().len(), 10);
    for round in 1..=3000 {
        let mut txn = begin(&database, RC);
        for id in 0..10 {
            update(&mut txn, &def, id, |v| if round == 3000 { id } else { v + 10 }).unwrap();
        }
        txn.commit().unwrap();
    }
    let index = ScanIndex::Secondary(def.indexes[0].id);
    let seen = collect(&mut reader, &def, &ScanSpec { index, ..ScanSpec::ALL }).unwrap();
    assert_eq!(seen, (0..10).map(|i| (i, i)).collect::<Vec<_>>());
}
