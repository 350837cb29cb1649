//! Rows of up to 16 MiB through the public interface. Their pages are freed when nobody needs the versions
//! any more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::{RC, RR, begin, create, delete, fresh, is_sound, open, pk, state};
use varve_engine::{Change, Database, Datum, NewIndex, Result, RowImage, TableDef, Transaction};

fn text(len: usize) -> String {
    (0..len).map(|at| char::from(b'a' + (at % 26) as u8)).collect()
}

fn insert(txn: &mut Transaction, def: &TableDef, id: i32, len: usize) -> Result<()> {
    let table = txn.table(def)?;
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(0), Datum::Text(&text(len))])
}

fn resize(txn: &mut Transaction, def: &TableDef, id: i32, len: usize) {
    txn.start_statement();
    let table = txn.table(def).unwrap();
    let mut change = |row: varve_engine::RowRef<'_>| {
        let text = text(len);
        Ok(Change::Replace(RowImage::encode(row.schema(), &[row.get(0), row.get(1), Datum::Text(&text)])?))
    };
    txn.modify(&table, &pk(id), &mut change).unwrap();
}

fn length(txn: &mut Transaction, def: &TableDef, id: i32) -> Option<usize> {
    txn.start_statement();
    let table = txn.table(def).unwrap();
    let mut found = None;
    txn.get(&table, &pk(id), &mut |row| {
        let Datum::Text(note) = row.get(2) else { panic!("no text") };
        assert!(note == text(note.len()), "the text of row {id} is damaged");
        found = Some(note.len());
    })
    .unwrap();
    found
}

fn pages(database: &Arc<Database>) -> u64 {
    database.tick().unwrap();
    database.stats().pager.data_pages
}

/// The row is inserted before its index entry is refused. Earlier, the rollback searched for this entry, was
/// refused, too, and was repeated for ever.
#[test]
fn an_entry_that_no_index_can_hold_is_taken_back() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    let new = NewIndex {
        table: def.id,
        name: "t_note".into(),
        columns: vec![2],
        unique: false,
        constraint: false,
        tablespace: None,
    };
    let def = txn.create_index(new).unwrap();
    insert(&mut txn, &def, 1, 10).unwrap();
    assert_eq!(state(insert(&mut txn, &def, 2, 3000)), "54000");
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(state(insert(&mut txn, &def, 2, 3000)), "54000");
    txn.rollback().unwrap();
    is_sound(&database);
    drop(database);
    let database = open(&directory);
    is_sound(&database);
    let mut txn = begin(&database, RC);
    let def = txn.catalog().table("public", "t").unwrap().clone();
    assert_eq!((length(&mut txn, &def, 1), length(&mut txn, &def, 2)), (Some(10), None));
    txn.drop_table(def.id).unwrap();
    txn.commit().unwrap();
}

#[test]
fn sixteen_mebibytes_come_and_go() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    let before = pages(&database);
    let largest = (16 << 20) - 100;
    let mut txn = begin(&database, RC);
    insert(&mut txn, &def, 1, largest).unwrap();
    assert_eq!(state(insert(&mut txn, &def, 2, 16 << 20)), "54000");
    assert_eq!(length(&mut txn, &def, 1), Some(largest));
    txn.commit().unwrap();
    assert!(pages(&database) > before + 2000);
    is_sound(&database);

    database.shutdown().unwrap();
    let database = open(&directory);
    let def = begin(&database, RC).catalog().table("public", "t").unwrap();
    assert_eq!(length(&mut begin(&database, RC), &def, 1), Some(largest));
    let mut txn = begin(&database, RC);
    delete(&mut txn, &def, 1).unwrap();
    txn.commit().unwrap();
    assert!(pages(&database) <= before + 2, "{} pages are left of {before}", pages(&database));
    is_sound(&database);
}

#[test]
fn old_versions_keep_their_pages_until_nobody_needs_them() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    insert(&mut txn, &def, 1, 100_000).unwrap();
    txn.commit().unwrap();
    let small = pages(&database);
    let mut old = begin(&database, RR);
    assert_eq!(length(&mut old, &def, 1), Some(100_000));
    for len in [300_000, 10, 200_000] {
        let mut txn = begin(&database, RC);
        resize(&mut txn, &def, 1, len);
        resize(&mut txn, &def, 1, len + 1);
        txn.commit().unwrap();
        assert_eq!(length(&mut old, &def, 1), Some(100_000));
    }
    assert!(pages(&database) > small + 60);
    old.commit().unwrap();
    assert!(pages(&database) < small + 20);
    assert_eq!(length(&mut begin(&database, RC), &def, 1), Some(200_001));
    is_sound(&database);
}

#[test]
fn rollback_frees_what_was_written() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    insert(&mut txn, &def, 1, 50_000).unwrap();
    txn.commit().unwrap();
    let before = pages(&database);
    let mut txn = begin(&database, RC);
    resize(&mut txn, &def, 1, 500_000);
    insert(&mut txn, &def, 2, 500_000).unwrap();
    let savepoint = txn.savepoint();
    resize(&mut txn, &def, 1, 5);
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(length(&mut txn, &def, 1), Some(500_000));
    txn.rollback().unwrap();
    assert_eq!(length(&mut begin(&database, RC), &def, 1), Some(50_000));
    assert_eq!(length(&mut begin(&database, RC), &def, 2), None);
    assert!(pages(&database) <= before + 1);
    is_sound(&database);
}
