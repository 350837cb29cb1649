//! An indexed value changes from 1 to 2 and back to 1, while snapshots, purge and rollback are active.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;

#[test]
fn every_snapshot_finds_the_row_under_its_own_value_only() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(7, 1)]);
    let mut readers = Vec::new();
    for v in [2, 1, 2, 1] {
        let mut reader = begin(&database, RR);
        let seen = see(&mut reader, &def, 7).unwrap();
        readers.push((reader, seen));
        let mut txn = begin(&database, RC);
        update(&mut txn, &def, 7, |_| v).unwrap();
        txn.commit().unwrap();
        database.tick().unwrap();
    }
    while let Some((mut reader, seen)) = readers.pop() {
        assert_eq!(by_v(&mut reader, &def, seen), [(7, seen)]);
        assert_eq!(by_v(&mut reader, &def, 3 - seen), []);
        reader.commit().unwrap();
        database.tick().unwrap();
        is_sound(&database);
    }
}

#[test]
fn rollback_of_the_way_back_keeps_what_older_snapshots_need() {
    for ticks_between in [false, true] {
        let (_directory, database) = fresh();
        let def = create(&database, "t");
        let def = index_on_v(&database, &def, "t_v", true);
        load(&database, &def, [(7, 1)]);
        let mut old = begin(&database, RR);
        assert_eq!(see(&mut old, &def, 7), Some(1));
        let mut txn = begin(&database, RC);
        update(&mut txn, &def, 7, |_| 2).unwrap();
        txn.commit().unwrap();
        let mut back = begin(&database, RC);
        update(&mut back, &def, 7, |_| 1).unwrap();
        if ticks_between {
            database.tick().unwrap();
        }
        back.rollback().unwrap();
        assert_eq!(by_v(&mut old, &def, 1), [(7, 1)]);
        let mut new = begin(&database, RC);
        assert_eq!((by_v(&mut new, &def, 1), by_v(&mut new, &def, 2)), (vec![], vec![(7, 2)]));
        new.commit().unwrap();
        old.commit().unwrap();
        database.tick().unwrap();
        is_sound(&database);
        load(&database, &def, [(8, 1)]);
    }
}

#[test]
fn rollback_after_purge_removes_the_entry_for_good() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(7, 1)]);
    let mut txn = begin(&database, RC);
    update(&mut txn, &def, 7, |_| 2).unwrap();
    txn.commit().unwrap();
    let mut back = begin(&database, RC);
    update(&mut back, &def, 7, |_| 1).unwrap();
    back.end_statement();
    database.tick().unwrap();
    back.rollback().unwrap();
    database.tick().unwrap();
    is_sound(&database);
    load(&database, &def, [(8, 1)]);
    assert_eq!(all(&database, &def), [(7, 2), (8, 1)]);
}
