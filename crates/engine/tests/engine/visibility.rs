//! Which changes of another transaction are visible under READ COMMITTED and REPEATABLE READ, step by step.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;
use varve_engine::Isolation;

/// Runs the steps of a writer beside a reader. Returns what the reader saw after each step.
fn watch(isolation: Isolation) -> Vec<Option<i32>> {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 10)]);
    let mut reader = begin(&database, isolation);
    let mut seen = vec![see(&mut reader, &def, 1)];
    let mut writer = begin(&database, RC);
    update(&mut writer, &def, 1, |v| v + 1).unwrap();
    seen.push(see(&mut reader, &def, 1));
    update(&mut writer, &def, 1, |v| v + 1).unwrap();
    seen.push(see(&mut reader, &def, 1));
    assert_eq!(see(&mut writer, &def, 1), Some(12), "own writes are visible");
    writer.commit().unwrap();
    seen.push(see(&mut reader, &def, 1));
    let mut writer = begin(&database, RC);
    delete(&mut writer, &def, 1).unwrap();
    seen.push(see(&mut reader, &def, 1));
    assert_eq!(see(&mut writer, &def, 1), None, "own deletes too");
    writer.commit().unwrap();
    seen.push(see(&mut reader, &def, 1));
    load(&database, &def, [(1, 99)]);
    seen.push(see(&mut reader, &def, 1));
    reader.commit().unwrap();
    database.tick().unwrap();
    assert_eq!(all(&database, &def), [(1, 99)]);
    is_sound(&database);
    seen
}

#[test]
fn read_committed_sees_what_was_committed_before_each_statement() {
    let ten = Some(10);
    assert_eq!(watch(RC), [ten, ten, ten, Some(12), Some(12), None, Some(99)]);
}

#[test]
fn repeatable_read_sees_what_was_committed_before_its_first_statement() {
    assert_eq!(watch(RR), [Some(10); 7]);
}

#[test]
fn one_statement_of_read_committed_sees_one_snapshot() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..10).map(|i| (i, 0)));
    let mut reader = begin(&database, RC);
    let before = rows(&mut reader, &def).unwrap();
    load(&database, &def, [(100, 1)]);
    assert_eq!(rows(&mut reader, &def).unwrap(), before);
    reader.start_statement();
    assert_eq!(rows(&mut reader, &def).unwrap().len(), 11);
}

#[test]
fn a_scan_of_an_index_sees_the_versions_of_its_snapshot() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..20).map(|i| (i, i % 2)));
    let mut reader = begin(&database, RR);
    assert_eq!(by_v(&mut reader, &def, 1).len(), 10);
    let mut writer = begin(&database, RC);
    for id in 0..20 {
        update(&mut writer, &def, id, |v| 1 - v).unwrap();
    }
    delete(&mut writer, &def, 1).unwrap();
    writer.commit().unwrap();
    database.tick().unwrap();
    let odd: Vec<_> = (0..20).filter(|i| i % 2 == 1).map(|i| (i, 1)).collect();
    assert_eq!(by_v(&mut reader, &def, 1), odd);
    let mut fresh_reader = begin(&database, RC);
    assert_eq!(by_v(&mut fresh_reader, &def, 0).len(), 9);
    reader.commit().unwrap();
    fresh_reader.commit().unwrap();
    is_sound(&database);
}
