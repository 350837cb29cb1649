//! Indexes over expressions and partial indexes. The SQL layer computes their keys. Index entries must follow
//! the rows through changes, rollback, purge and a crash.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::{
    ColumnType, Database, Datum, DeriveKey, Derived, Error, IndexDef, KeyPart, NewIndex, Options, Result,
    RowRef, ScanIndex, ScanSpec, TableDef, Transaction, Value,
};

/// The key is `1000 / v` of rows with `v >= 0`.
struct Quotient;

impl DeriveKey for Quotient {
    fn derive(&self, row: RowRef<'_>) -> Result<Option<Vec<Value>>> {
        match int(row.get(1)) {
            0 => Err(Error::Expression { sqlstate: "22012", message: "division by zero".into() }),
            v if v < 0 => Ok(None),
            v => Ok(Some(vec![Value::Int4(1000 / v)])),
        }
    }
}

fn with_quotients(directory: &Arc<MemoryDirectory>) -> Arc<Database> {
    let derive = |_: &TableDef, _: &IndexDef| Ok(Arc::new(Quotient) as Arc<dyn DeriveKey>);
    Database::open(Options { derive: Some(Arc::new(derive)), ..options(directory) }).unwrap()
}

fn indexed(database: &Arc<Database>, unique: bool) -> Result<Arc<TableDef>> {
    let mut txn = begin(database, RC);
    let table = txn.catalog().table("public", "t").unwrap().id;
    let key = KeyPart::Expression { text: "1000 / v".into(), column_type: ColumnType::Int4 };
    let derived = Derived { keys: vec![key], predicate: Some("v >= 0".into()) };
    let new =
        NewIndex { table, name: "q".into(), columns: vec![1], unique, constraint: false, tablespace: None };
    let def = txn.create_derived_index(new, derived)?;
    txn.commit().unwrap();
    Ok(def)
}

/// Returns ids and values in the order of the index.
fn in_order(txn: &mut Transaction, def: &TableDef) -> Vec<(i32, i32)> {
    txn.start_statement();
    let spec = ScanSpec { index: ScanIndex::Secondary(def.indexes[0].id), ..ScanSpec::ALL };
    collect(txn, def, &spec).unwrap()
}

#[test]
fn entries_follow_rows_that_come_into_the_index_and_leave_it() {
    let directory = MemoryDirectory::new();
    let database = with_quotients(&directory);
    let def = create(&database, "t");
    load(&database, &def, [(1, 10), (2, -5), (3, 500), (4, 400)]);
    assert_eq!(state(indexed(&database, true)), "23505", "1000 / 500 = 1000 / 400");
    let mut txn = begin(&database, RC);
    update(&mut txn, &def, 4, |_| 5).unwrap();
    txn.commit().unwrap();
    let def = indexed(&database, true).unwrap();
    assert_eq!(def.indexes[0].columns, [1]);
    let mut before = begin(&database, RR);
    assert_eq!(in_order(&mut before, &def), [(3, 500), (1, 10), (4, 5)]);
    let mut txn = begin(&database, RC);
    put(&mut txn, &def, 5, 1001).unwrap();
    assert_eq!(state(put(&mut txn, &def, 6, 5)), "23505");
    assert_eq!(state(put(&mut txn, &def, 6, 0)), "22012");
    assert_eq!(state(update(&mut txn, &def, 1, |_| 0)), "22012");
    assert_eq!(state(update(&mut txn, &def, 2, |_| 499)), "23505");
    update(&mut txn, &def, 2, |_| 250).unwrap();
    update(&mut txn, &def, 1, |_| -1).unwrap();
    delete(&mut txn, &def, 4).unwrap();
    assert_eq!(in_order(&mut txn, &def), [(5, 1001), (3, 500), (2, 250)]);
    txn.commit().unwrap();
    assert_eq!(in_order(&mut before, &def), [(3, 500), (1, 10), (4, 5)]);
    before.rollback().unwrap();
    is_sound(&database);
    database.tick().unwrap();
    is_sound(&database);
}

#[test]
fn a_crash_and_a_rollback_leave_what_the_rows_say() {
    let directory = MemoryDirectory::new();
    let database = with_quotients(&directory);
    let def = create(&database, "t");
    load(&database, &def, (1..200).map(|i| (i, i)));
    let def = indexed(&database, false).unwrap();
    let before = in_order(&mut begin(&database, RC), &def);
    let mut txn = begin(&database, RC);
    for id in 1..200 {
        update(&mut txn, &def, id, |v| if v % 2 == 0 { -v } else { v * 3 }).unwrap();
    }
    let pager = database.pager();
    pager.flush_log(pager.log().end()).unwrap();
    let crashed = with_quotients(&MemoryDirectory::from_images(directory.images()));
    is_sound(&crashed);
    let recovered = crashed.begin(RC).catalog().table("public", "t").unwrap();
    assert_eq!(in_order(&mut begin(&crashed, RC), &recovered), before);
    txn.rollback().unwrap();
    is_sound(&database);
    assert_eq!(in_order(&mut begin(&database, RC), &def), before);
}

#[test]
fn a_value_that_is_equal_but_not_the_same_makes_another_key() {
    struct Shown;
    impl DeriveKey for Shown {
        fn derive(&self, row: RowRef<'_>) -> Result<Option<Vec<Value>>> {
            let Datum::Numeric(value) = row.get(1) else { return Ok(None) };
            Ok(Some(vec![Value::Text(value.to_owned().to_string())]))
        }
    }
    let directory = MemoryDirectory::new();
    let derive = |_: &TableDef, _: &IndexDef| Ok(Arc::new(Shown) as Arc<dyn DeriveKey>);
    let database = Database::open(Options { derive: Some(Arc::new(derive)), ..options(&directory) }).unwrap();
    let mut txn = begin(&database, RC);
    let columns = vec![column("id", ColumnType::Int4), column("n", ColumnType::Numeric { precision: None })];
    let def = txn.create_table(varve_engine::NewTable::new("public", "t", columns)).unwrap();
    let key = KeyPart::Expression { text: "n::text".into(), column_type: ColumnType::Text };
    let derived = Derived { keys: vec![key], predicate: None };
    let new = NewIndex {
        table: def.id,
        name: "q".into(),
        columns: vec![1],
        unique: false,
        constraint: false,
        tablespace: None,
    };
    let def = txn.create_derived_index(new, derived).unwrap();
    let table = txn.table(&def).unwrap();
    let numeric = |text: &str| text.parse::<varve_engine::Numeric>().unwrap();
    let (short, long) = (numeric("1.0"), numeric("1.00"));
    txn.insert(&table, &[Datum::Int4(1), Datum::Numeric(short.as_ref())]).unwrap();
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    let mut key = Vec::new();
    txn.scan(&table, &ScanSpec::ALL, &mut |k, _| {
        key = k.to_vec();
        Ok(std::ops::ControlFlow::Break(()))
    })
    .unwrap();
    txn.modify(&table, &key, &mut |row| {
        let data = [Datum::Int4(1), Datum::Numeric(long.as_ref())];
        Ok(varve_engine::Change::Replace(varve_engine::RowImage::encode(row.schema(), &data)?))
    })
    .unwrap();
    txn.commit().unwrap();
    is_sound(&database);
}
