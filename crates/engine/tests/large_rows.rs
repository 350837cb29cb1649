//! Rows larger than a page: written, replaced, deleted, rolled back; their chains come and go with their versions.

mod database;

use database::*;
use varve_engine::{Change, Datum, RowImage, TableDef, Transaction};

fn put_note(txn: &mut Transaction, def: &TableDef, id: i32, note: &str) {
    let table = txn.table(def).unwrap();
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(id), Datum::Text(note)]).unwrap();
}

fn note(txn: &mut Transaction, def: &TableDef, id: i32) -> Option<String> {
    let table = txn.table(def).unwrap();
    let mut found = None;
    txn.get(&table, &pk(id), &mut |row| match row.get(2) {
        Datum::Text(text) => found = Some(text.to_owned()),
        other => panic!("{other:?}"),
    })
    .unwrap();
    found
}

fn set_note(txn: &mut Transaction, def: &TableDef, id: i32, note: &str) {
    txn.start_statement();
    let table = txn.table(def).unwrap();
    txn.modify(&table, &pk(id), &mut |row| {
        let data = [row.get(0), row.get(1), Datum::Text(note)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
    .unwrap();
}

#[test]
fn chains_follow_their_versions() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    let (small, big, huge) = ("s".to_owned(), "b".repeat(9_000), "h".repeat(300_000));
    let mut txn = begin(&database, RC);
    put_note(&mut txn, &def, 1, &big);
    put_note(&mut txn, &def, 2, &huge);
    put_note(&mut txn, &def, 3, &small);
    txn.commit().unwrap();
    is_sound(&database);
    let pages = database.stats().pager.data_pages;
    let mut old = begin(&database, RR);
    assert_eq!(note(&mut old, &def, 2).as_ref(), Some(&huge));
    let mut txn = begin(&database, RC);
    set_note(&mut txn, &def, 1, &huge);
    set_note(&mut txn, &def, 2, &small);
    set_note(&mut txn, &def, 3, &big);
    set_note(&mut txn, &def, 3, &huge);
    assert_eq!(note(&mut txn, &def, 3).as_ref(), Some(&huge));
    txn.rollback().unwrap();
    is_sound(&database);
    assert_eq!(database.stats().pager.data_pages, pages);
    let mut txn = begin(&database, RC);
    set_note(&mut txn, &def, 2, &small);
    set_note(&mut txn, &def, 3, &big);
    delete(&mut txn, &def, 1).unwrap();
    txn.commit().unwrap();
    database.tick().unwrap();
    for (id, text) in [(1, &big), (2, &huge), (3, &small)] {
        assert_eq!(note(&mut old, &def, id).as_ref(), Some(text));
    }
    old.commit().unwrap();
    is_sound(&database);
    assert!(database.stats().pager.data_pages < pages);
    let mut txn = begin(&database, RC);
    assert_eq!(by_v(&mut txn, &def, 3), [(3, 3)]);
    assert_eq!(note(&mut txn, &def, 1), None);
}

#[test]
fn a_loser_with_chains_is_undone() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    let big = "x".repeat(50_000);
    let mut txn = begin(&database, RC);
    put_note(&mut txn, &def, 1, &big);
    txn.commit().unwrap();
    let mut loser = begin(&database, RC);
    put_note(&mut loser, &def, 2, &big);
    set_note(&mut loser, &def, 1, "short");
    load(&database, &create(&database, "other"), [(1, 1)]);
    let database = open(&varve_device::MemoryDirectory::from_images(directory.images()));
    let def = database.begin(RC).catalog().table("public", "t").unwrap();
    is_sound(&database);
    let mut txn = begin(&database, RC);
    assert_eq!(note(&mut txn, &def, 1), Some(big));
    assert_eq!(note(&mut txn, &def, 2), None);
}
