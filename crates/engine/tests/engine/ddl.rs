//! DDL is transactional: names, tables, indexes and sequences are created and dropped together with their
//! transaction.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;
use std::time::Duration;

use crate::database::*;
use varve_engine::{Error, NewIndex, NewSequence, PrimaryKey};

fn unique_on_v(table: varve_engine::TableId, name: &str) -> NewIndex {
    NewIndex { table, name: name.into(), columns: vec![1], unique: true, constraint: false, tablespace: None }
}

#[test]
fn own_ddl_is_seen_by_its_transaction_only_and_goes_with_it() {
    let (_directory, database) = fresh();
    let version = database.begin(RC).catalog().version();
    let mut txn = begin(&database, RC);
    let def = create_in(&mut txn, "t", true).unwrap();
    let def = txn.create_index(unique_on_v(def.id, "t_v")).unwrap();
    for id in 0..300 {
        put(&mut txn, &def, id, id).unwrap();
    }
    assert_eq!(by_v(&mut txn, &def, 7), [(7, 7)]);
    assert!(txn.catalog().version() > version);
    assert!(database.begin(RC).catalog().table("public", "t").is_none());
    txn.rollback().unwrap();
    assert_eq!(database.begin(RC).catalog().version(), version);
    assert_eq!(state(database.begin(RC).table(&def)), "0A000");
    is_sound(&database);
    create(&database, "t");
    assert!(database.begin(RC).catalog().table("public", "t").is_some());
    is_sound(&database);
}

#[test]
fn an_index_on_a_filled_table_covers_old_snapshots_too() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..2000).map(|i| (i, i)));
    let mut old = begin(&database, RR);
    let mut txn = begin(&database, RC);
    for id in 0..100 {
        update(&mut txn, &def, id, |v| v + 10_000).unwrap();
    }
    delete(&mut txn, &def, 500).unwrap();
    txn.commit().unwrap();
    let def = index_on_v(&database, &def, "t_v", true);
    assert_eq!(by_v(&mut old, &def, 5), [(5, 5)]);
    assert_eq!(by_v(&mut old, &def, 10_005), []);
    assert_eq!(by_v(&mut old, &def, 500), [(500, 500)]);
    old.commit().unwrap();
    let mut new = begin(&database, RC);
    assert_eq!(by_v(&mut new, &def, 10_005), [(5, 10_005)]);
    assert_eq!(by_v(&mut new, &def, 500), []);
    new.commit().unwrap();
    is_sound(&database);
}

#[test]
fn a_unique_index_refuses_duplicates_that_are_there() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 5), (2, 6), (3, 5)]);
    let mut txn = begin(&database, RC);
    match txn.create_index(unique_on_v(def.id, "t_v")) {
        Err(Error::UniqueViolation { constraint, detail, .. }) => {
            assert_eq!((&constraint[..], &detail[..]), ("t_v", "Key (v)=(5) already exists."));
        }
        other => panic!("{other:?}"),
    }
    txn.commit().unwrap();
    is_sound(&database);
    let mut txn = begin(&database, RC);
    assert!(txn.catalog().index("public", "t_v").is_none());
    update(&mut txn, &def, 3, |_| 7).unwrap();
    txn.create_index(unique_on_v(def.id, "t_v")).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
}

#[test]
fn names_are_taken_once_and_waited_for() {
    let (_directory, database) = fresh();
    let mut first = begin(&database, RC);
    create_in(&mut first, "t", true).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            let outcome = create_in(&mut txn, "t", true);
            txn.commit().unwrap();
            state(outcome)
        });
        thread::sleep(Duration::from_millis(20));
        first.commit().unwrap();
        assert_eq!(second.join().unwrap(), "42P07");
    });
    let mut txn = begin(&database, RC);
    assert_eq!(state(txn.create_sequence(NewSequence::ascending("public", "t"))), "42P07");
    assert_eq!(state(txn.create_sequence(NewSequence::ascending("nowhere", "s"))), "3F000");
    txn.commit().unwrap();
    is_sound(&database);
}

#[test]
fn ddl_waits_for_who_uses_the_table_and_users_wait_for_ddl() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1)]);
    let mut user = begin(&database, RC);
    assert_eq!(see(&mut user, &def, 1), Some(1));
    thread::scope(|scope| {
        let ddl = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            txn.truncate(def.id).unwrap();
            thread::sleep(Duration::from_millis(30));
            txn.commit().unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        let late = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            state(see_again(&mut txn, &def, 1))
        });
        thread::sleep(Duration::from_millis(20));
        assert_eq!(see(&mut user, &def, 1), Some(1));
        user.commit().unwrap();
        ddl.join().unwrap();
        assert_eq!(late.join().unwrap(), "0A000", "the definition is stale");
    });
    let def = database.begin(RC).catalog().table("public", "t").unwrap();
    assert_eq!(all(&database, &def), []);
    is_sound(&database);
}

#[test]
fn a_primary_key_can_be_added_to_a_filled_table() {
    let (_directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let def = create_in(&mut txn, "t", false).unwrap();
    let def = txn.create_index(unique_on_v(def.id, "t_v")).unwrap();
    for id in (0..1000).rev() {
        put(&mut txn, &def, id, -id).unwrap();
    }
    put(&mut txn, &def, 5, -1000).unwrap();
    txn.commit().unwrap();
    let key = PrimaryKey { name: "t_pkey".into(), columns: vec![0] };
    let mut txn = begin(&database, RC);
    assert_eq!(state(txn.add_primary_key(def.id, key.clone())), "23505");
    txn.commit().unwrap();
    is_sound(&database);
    let mut txn = begin(&database, RC);
    let spec = varve_engine::ScanSpec { limit_hint: Some(1), reverse: true, ..varve_engine::ScanSpec::ALL };
    let table = table(&mut txn, &def);
    let mut last = Vec::new();
    let stop = &mut |key: &[u8], _: varve_engine::RowRef<'_>| {
        last = key.to_vec();
        Ok(std::ops::ControlFlow::Break(()))
    };
    txn.scan(&table, &spec, stop).unwrap();
    txn.modify(&table, &last, &mut |_| Ok(varve_engine::Change::Delete)).unwrap();
    let def = txn.add_primary_key(def.id, key).unwrap();
    assert_eq!(by_v(&mut txn, &def, -7), [(7, -7)]);
    txn.commit().unwrap();
    assert_eq!(all(&database, &def), (0..1000).map(|i| (i, -i)).collect::<Vec<_>>());
    is_sound(&database);
}

#[test]
fn drop_and_savepoints() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..500).map(|i| (i, i)));
    let mut txn = begin(&database, RC);
    put(&mut txn, &def, 1000, 1).unwrap();
    let savepoint = txn.savepoint();
    txn.drop_table(def.id).unwrap();
    assert!(txn.catalog().table("public", "t").is_none());
    let other = create_in(&mut txn, "t", true).unwrap();
    put(&mut txn, &other, 1, 1).unwrap();
    txn.rollback_to(savepoint).unwrap();
    let back = txn.catalog().table("public", "t").unwrap();
    assert_eq!(rows(&mut txn, &back).unwrap().len(), 501);
    txn.drop_table(def.id).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
    let pages = database.stats().pager.data_pages;
    assert!(pages < 60, "{pages} pages are still in use");
    assert!(database.begin(RC).catalog().table("public", "t").is_none());
}

fn add_key(txn: &mut varve_engine::Transaction, def: &varve_engine::TableDef) -> &'static str {
    let key = PrimaryKey { name: format!("{}_pkey", def.name), columns: vec![0] };
    txn.add_primary_key(def.id, key).map_or_else(|error| error.sqlstate(), |_| "00000")
}

/// A statement that rewrites a table does not copy the older versions of its rows.
#[test]
fn a_snapshot_from_before_a_rewrite_is_refused_not_answered_wrongly() {
    let (_directory, database) = fresh();
    let other = create(&database, "other");
    let mut txn = begin(&database, RC);
    let keyless = create_in(&mut txn, "keyless", false).unwrap();
    txn.commit().unwrap();
    let emptied = create(&database, "emptied");
    load(&database, &keyless, [(1, 10)]);
    load(&database, &emptied, [(1, 10)]);
    let [mut old, mut old_statement] = [RR, RC].map(|isolation| begin(&database, isolation));
    assert_eq!(rows(&mut old, &other).unwrap(), []);
    load(&database, &keyless, [(2, 20)]);
    let mut ddl = begin(&database, RC);
    assert_eq!(add_key(&mut ddl, &keyless), "00000");
    ddl.truncate(emptied.id).unwrap();
    ddl.commit().unwrap();
    database.tick().unwrap();
    let catalog = database.begin(RC).catalog();
    let [keyless, emptied] = ["keyless", "emptied"].map(|name| catalog.table("public", name).unwrap());
    assert_eq!(see_again(&mut old_statement, &keyless, 1).unwrap(), Some(10));
    assert_eq!(rows(&mut old_statement, &keyless).unwrap(), [(1, 10), (2, 20)]);
    assert_eq!(rows(&mut old_statement, &emptied).unwrap(), []);
    assert_eq!(rows(&mut begin(&database, RR), &keyless).unwrap(), [(1, 10), (2, 20)]);
    old_statement.commit().unwrap();
    // A later definition of the table still refuses the old snapshot.
    let keyless = index_on_v(&database, &keyless, "keyless_v", false);
    for def in [&keyless, &emptied] {
        assert_eq!(state(see_again(&mut old, def, 1)), "40001", "{}", def.name);
    }
    old.rollback().unwrap();
    is_sound(&database);
}

#[test]
fn a_rewrite_under_an_old_snapshot_of_its_own_is_refused() {
    let (_directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let def = create_in(&mut txn, "t", false).unwrap();
    put(&mut txn, &def, 1, 10).unwrap();
    txn.commit().unwrap();
    let mut old = begin(&database, RR);
    let mut quiet = begin(&database, RR);
    assert_eq!(add_key(&mut quiet, &def), "00000");
    quiet.rollback().unwrap();
    load(&database, &def, [(2, 20)]);
    assert_eq!(add_key(&mut old, &def), "40001");
    assert_eq!(rows(&mut old, &def).unwrap(), [(1, 10)]);
    old.rollback().unwrap();
    let mut own = begin(&database, RR);
    put(&mut own, &def, 3, 30).unwrap();
    assert_eq!(add_key(&mut own, &def), "00000");
    let def = own.catalog().table("public", "t").unwrap();
    assert_eq!(rows(&mut own, &def).unwrap(), [(1, 10), (2, 20), (3, 30)]);
    own.commit().unwrap();
    is_sound(&database);
}

/// Rows that were not committed when the statement began count, too.
#[test]
fn set_not_null_looks_at_the_rows_once_it_is_alone() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut writer = begin(&database, RC);
    let table = table(&mut writer, &def);
    writer
        .insert(&table, &[varve_engine::Datum::Int4(1), varve_engine::Datum::Null, varve_engine::Datum::Null])
        .unwrap();
    thread::scope(|scope| {
        let ddl = scope.spawn(|| {
            let mut ddl = begin(&database, RC);
            let outcome = state(ddl.alter_column(def.id, 1, None, true));
            ddl.commit().unwrap();
            outcome
        });
        thread::sleep(Duration::from_millis(20));
        writer.commit().unwrap();
        assert_eq!(ddl.join().unwrap(), "23502");
    });
    is_sound(&database);
}
