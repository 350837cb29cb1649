//! A crash at any moment of DDL leaves nothing half done: no segment without an owner, no name without its
//! object.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::{
    ColumnDef, ColumnSource, ColumnType, Database, NewIndex, NewSequence, PrimaryKey, RowRef, TableDef, Value,
};

/// Runs `steps` one by one in one transaction. After each step, opens a copy of the directory as a crash
/// would leave it.
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
            let new = NewIndex {
                table,
                name: "new_v".into(),
                columns: vec![1],
                unique: true,
                constraint: true,
                tablespace: None,
            };
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

/// `id` becomes bigint (a key that is stored anew), `v` text.
fn other_types(txn: &mut varve_engine::Transaction, def: &TableDef) {
    let of = |name: &str, column_type| ColumnDef::new(name, column_type);
    let columns = vec![
        (ColumnDef { not_null: true, ..of("id", ColumnType::Int8) }, ColumnSource::Computed(0)),
        (of("v", ColumnType::Text), ColumnSource::Computed(1)),
        (of("note", ColumnType::Varchar(None)), ColumnSource::Column(2)),
    ];
    let mut compute = |column: usize, row: RowRef<'_>| {
        let value = int(row.get(column));
        Ok(if column == 0 { Value::Int8(i64::from(value) << 33) } else { Value::Text(format!("<{value}>")) })
    };
    txn.recompute_columns(def.id, columns, &mut compute).unwrap();
}

/// Returns the rows of a table after `other_types`, with the values that they had before.
fn as_before(database: &Arc<Database>, def: &TableDef) -> Vec<(i32, i32)> {
    let mut txn = begin(database, RC);
    let table = txn.table(def).unwrap();
    let mut found = Vec::new();
    txn.scan(&table, &varve_engine::ScanSpec::ALL, &mut |_, row| {
        let id = row.get(0).as_integer().unwrap() >> 33;
        let varve_engine::Datum::Text(v) = row.get(1) else { panic!("{:?} is no text", row.get(1)) };
        found.push((id as i32, v.trim_matches(['<', '>']).parse().unwrap()));
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

#[test]
fn changing_the_types_of_keys_and_indexed_columns() {
    for flushed in [false, true] {
        let (directory, database) = fresh();
        let def = create(&database, "t");
        load(&database, &def, (0..400).map(|i| (i, 1000 - i)));
        let def = index_on_v(&database, &def, "t_v", true);
        let before = all(&database, &def);
        let mut txn = begin(&database, RC);
        other_types(&mut txn, &def);
        if flushed {
            let pager = database.pager();
            pager.flush_log(pager.log().end()).unwrap();
            pager.checkpoint().unwrap();
        }
        let crashed = reopen(&directory);
        is_sound(&crashed);
        let old = crashed.begin(RC).catalog().table("public", "t").unwrap();
        assert_eq!(old.columns, def.columns);
        assert_eq!(all(&crashed, &old), before);
        txn.commit().unwrap();
        for database in [reopen(&directory), database] {
            is_sound(&database);
            let new = database.begin(RC).catalog().table("public", "t").unwrap();
            assert_eq!(new.columns[1].column_type, ColumnType::Text);
            assert_eq!(as_before(&database, &new), before);
        }
    }
}
