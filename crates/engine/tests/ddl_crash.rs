//! A crash anywhere in DDL leaves nothing half done: no orphan segment, no name without its object.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;

use std::sync::Arc;

use database::*;
use varve_device::MemoryDirectory;
use varve_engine::{Database, NewIndex, NewSequence, PrimaryKey};

/// Runs `steps` one by one in one transaction; after each, opens a copy of the directory as a crash would leave it.
fn crash_after_each(steps: &[&dyn Fn(&mut varve_engine::Transaction)]) {
    for flushed in [false, true] {
        let (directory, database) = fresh();
        let def = create(&database, "old");
        load(&database, &def, (0..200).map(|i| (i, i)));
        let before = all(&database, &def);
        let mut txn = begin(&database, RC);
        for step in steps {
            step(&mut txn);
            if flushed {
                let pager = database.pager();
                pager.flush_log(pager.log().end()).unwrap();
                pager.checkpoint().unwrap();
            }
            let crashed = reopen(&directory);
            is_sound(&crashed);
            let def = crashed.begin(RC).catalog().table("public", "old").unwrap();
            assert_eq!(all(&crashed, &def), before);
            assert!(crashed.begin(RC).catalog().table("public", "new").is_none());
            create(&crashed, "new");
        }
        txn.commit().unwrap();
        let after = reopen(&directory);
        is_sound(&after);
        is_sound(&database);
        assert!(after.begin(RC).catalog().table("public", "new").is_some());
    }
}

fn reopen(directory: &Arc<MemoryDirectory>) -> Arc<Database> {
    open(&MemoryDirectory::from_images(directory.images()))
}

#[test]
fn creating_filling_indexing_and_dropping() {
    crash_after_each(&[
        &|txn| {
            create_in(txn, "new", false).unwrap();
        },
        &|txn| {
            let def = txn.catalog().table("public", "new").unwrap();
            (0..300).for_each(|i| put(txn, &def, i, i).unwrap());
        },
        &|txn| {
            let table = txn.catalog().table("public", "new").unwrap().id;
            let new =
                NewIndex { table, name: "new_v".into(), columns: vec![1], unique: true, constraint: true };
            txn.create_index(new).unwrap();
        },
        &|txn| {
            let table = txn.catalog().table("public", "new").unwrap().id;
            txn.add_primary_key(table, PrimaryKey { name: "new_pkey".into(), columns: vec![0] }).unwrap();
        },
        &|txn| {
            txn.create_sequence(NewSequence::ascending("public", "s")).unwrap();
        },
        &|txn| {
            let table = txn.catalog().table("public", "old").unwrap().id;
            txn.truncate(table).unwrap();
        },
        &|txn| {
            let def = txn.catalog().table("public", "old").unwrap();
            (0..300).for_each(|i| put(txn, &def, i, 9).unwrap());
        },
        &|txn| {
            let table = txn.catalog().table("public", "old").unwrap().id;
            txn.drop_table(table).unwrap();
        },
    ]);
}
