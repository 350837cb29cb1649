//! Columns are added and dropped by a rewrite of the table, and references by number are adjusted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;
use varve_engine::{
    ColumnDef, ColumnSource, ColumnType, NewSequence, NewView, ScanIndex, ScanSpec, Use, Value, ViewColumn,
};

fn kept(def: &varve_engine::TableDef, columns: &[usize]) -> Vec<(ColumnDef, ColumnSource)> {
    columns.iter().map(|c| (def.columns[*c].clone(), ColumnSource::Column(*c))).collect()
}

#[test]
fn a_rewrite_keeps_rows_indexes_sequences_and_views_together() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..500).map(|i| (i, i + 1000)));
    let def = index_on_v(&database, &def, "t_v", true);
    let mut txn = begin(&database, RC);
    let owned = NewSequence { owned_by: Some((def.id, 1)), ..NewSequence::ascending("public", "s") };
    txn.create_sequence(owned).unwrap();
    let columns = vec![ViewColumn { name: "v".into(), type_id: 23, modifier: -1 }];
    let uses = vec![Use { object: def.id.into(), columns: vec![1] }];
    let (schema, name, text) = ("public".into(), "w".into(), "SELECT v FROM t".into());
    txn.create_view(NewView { schema, name, columns, text, uses, security_invoker: None }).unwrap();
    txn.set_about(def.id, |about| {
        about.set_comment(Some(1), Some("v".into()));
        about.set_comment(Some(2), Some("note".into()));
    })
    .unwrap();
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(state(txn.rewrite_columns(def.id, kept(&def, &[0, 2]))), "2BP01");
    assert_eq!(state(txn.rewrite_columns(def.id, kept(&def, &[1, 2]))), "2BP01");
    let mut columns = vec![(ColumnDef::new("new", ColumnType::Text), ColumnSource::Value(Value::Null))];
    columns.extend(kept(&def, &[1, 0]));
    let new = txn.rewrite_columns(def.id, columns).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
    drop(database);
    let database = open(&directory);
    let catalog = database.begin(RC).catalog();
    let def = catalog.table("public", "t").unwrap();
    assert_eq!(def.columns, new.columns);
    assert_eq!((def.key_columns(), &*def.indexes[0].columns), (&[2][..], &[1][..]));
    assert_eq!(catalog.sequence("public", "s").unwrap().owned_by, Some((def.id, 1)));
    assert_eq!(catalog.view("public", "w").unwrap().uses[0].columns, [1]);
    let about = catalog.about(def.id).unwrap();
    assert_eq!((about.comments.len(), about.comment(Some(1))), (1, Some("v")));
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    let mut row = None;
    txn.get(&table, &pk(7), &mut |r| row = Some((r.get(0).is_null(), int(r.get(1)), int(r.get(2))))).unwrap();
    assert_eq!(row, Some((true, 1007, 7)));
    is_sound(&database);
}

#[test]
fn without_its_primary_key_a_table_keeps_its_rows_in_their_order() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(2, 5), (1, 6), (3, 5)]);
    let mut txn = begin(&database, RC);
    let def = txn.drop_primary_key(def.id).unwrap();
    put(&mut txn, &def, 1, 7).unwrap();
    assert_eq!(rows(&mut txn, &def).unwrap(), [(1, 6), (2, 5), (3, 5), (1, 7)]);
    txn.commit().unwrap();
    assert!(database.begin(RC).catalog().resolve("public", "t_pkey").is_none());
    is_sound(&database);
}

#[test]
fn names_change_in_place() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let mut txn = begin(&database, RC);
    create_in(&mut txn, "u", true).unwrap();
    assert_eq!(state(txn.rename_table(def.id, "u")), "42P07");
    txn.rename_table(def.id, "t2").unwrap();
    txn.rename_column(def.id, 1, "w", Vec::new(), Vec::new()).unwrap();
    assert_eq!(state(txn.rename_column(def.id, 1, "id", Vec::new(), Vec::new())), "42701");
    txn.rename_constraint(def.id, "t_pkey", "key").unwrap();
    txn.commit().unwrap();
    let catalog = database.begin(RC).catalog();
    let def = catalog.table("public", "t2").unwrap();
    assert_eq!((def.column("w"), catalog.table("public", "t").is_none()), (Some(1), true));
    assert!(catalog.resolve("public", "key").is_some() && catalog.resolve("public", "t_pkey").is_none());
    is_sound(&database);
}

#[test]
fn types_change_by_a_rewrite_or_in_the_definition_alone() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 5), (2, 6), (3, 4)]);
    let def = index_on_v(&database, &def, "t_v", true);
    let other = create(&database, "other");
    let mut old = begin(&database, RR);
    assert_eq!(see_again(&mut old, &other, 1).unwrap(), None);
    let mut txn = begin(&database, RC);
    let longer = txn.retype_columns(def.id, &[(2, ColumnType::Varchar(Some(9)))]).unwrap();
    txn.commit().unwrap();
    assert_eq!(longer.columns[2].column_type, ColumnType::Varchar(Some(9)));
    assert_eq!(see_again(&mut old, &longer, 1).unwrap(), Some(5), "no row was moved");
    old.rollback().unwrap();
    let mut txn = begin(&database, RC);
    let mut columns = kept(&longer, &[0, 1, 2]);
    columns[1].0.column_type = ColumnType::Int8;
    columns[1].1 = ColumnSource::Computed(1);
    let mut same = |_: usize, _: varve_engine::RowRef<'_>| Ok(Value::Int8(7));
    assert_eq!(state(txn.recompute_columns(def.id, columns.clone(), &mut same)), "23505");
    let mut negative =
        |of: usize, row: varve_engine::RowRef<'_>| Ok(Value::Int8(-i64::from(int(row.get(of)))));
    let new = txn.recompute_columns(def.id, columns, &mut negative).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
    let mut txn = begin(&database, RC);
    let table = txn.table(&new).unwrap();
    let mut ids = Vec::new();
    let by_v = ScanSpec { index: ScanIndex::Secondary(new.indexes[0].id), ..ScanSpec::ALL };
    txn.scan(&table, &by_v, &mut |_, row| {
        ids.push((int(row.get(0)), row.get(1).as_integer()));
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(ids, [(2, Some(-6)), (1, Some(-5)), (3, Some(-4))]);
}
