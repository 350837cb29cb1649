//! Helpers for the engine's tests: they make a small database in memory, tables and rows.
#![allow(dead_code, reason = "each test file uses a part")]

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use varve_device::MemoryDirectory;
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Error, Isolation, LeafLayout, NewIndex, NewTable,
    Options, Outcome, PrimaryKey, Result, RowImage, ScanIndex, ScanSpec, StorageOptions, Table, TableDef,
    Transaction, key,
};
use varve_pager::PagerConfig;

pub const RC: Isolation = Isolation::ReadCommitted;
pub const RR: Isolation = Isolation::RepeatableRead;

pub fn options(directory: &Arc<MemoryDirectory>) -> Options {
    let mut pager = PagerConfig::new(directory.clone());
    pager.pool_bytes = 8 << 20;
    pager.log_segment_bytes = 1 << 20;
    pager.log_capacity_bytes = 16 << 20;
    pager.background = false;
    Options::new(pager)
}

pub fn open(directory: &Arc<MemoryDirectory>) -> Arc<Database> {
    Database::open(options(directory)).unwrap()
}

/// Makes a new database in memory.
pub fn fresh() -> (Arc<MemoryDirectory>, Arc<Database>) {
    let directory = MemoryDirectory::new();
    let database = open(&directory);
    (directory, database)
}

pub fn column(name: &str, column_type: ColumnType) -> ColumnDef {
    ColumnDef::new(name, column_type)
}

/// `CREATE TABLE name (id int PRIMARY KEY, v int, note text)`, committed.
pub fn create(database: &Arc<Database>, name: &str) -> Arc<TableDef> {
    let mut txn = database.begin(RC);
    let def = create_in(&mut txn, name, true).unwrap();
    txn.commit().unwrap();
    def
}

pub fn create_in(txn: &mut Transaction, name: &str, keyed: bool) -> Result<Arc<TableDef>> {
    let columns =
        vec![column("id", ColumnType::Int4), column("v", ColumnType::Int4), column("note", ColumnType::Text)];
    let key = PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] };
    let primary_key = keyed.then_some(key);
    txn.create_table(NewTable { primary_key, ..NewTable::new("public", name, columns) })
}

/// Does the same as `create`, WITH (layout = 'pax').
pub fn create_by_columns(database: &Arc<Database>, name: &str) -> Arc<TableDef> {
    let def = create(database, name);
    let mut txn = database.begin(RC);
    let storage = StorageOptions { layout: LeafLayout::ByColumns, ..def.storage };
    let def = txn.set_storage(def.id, storage).unwrap();
    txn.commit().unwrap();
    def
}

/// `CREATE [UNIQUE] INDEX name ON def (v)`, committed. Returns the new definition.
pub fn index_on_v(database: &Arc<Database>, def: &TableDef, name: &str, unique: bool) -> Arc<TableDef> {
    let mut txn = database.begin(RC);
    let columns = vec![1];
    let new =
        NewIndex { table: def.id, name: name.into(), columns, unique, constraint: false, tablespace: None };
    let def = txn.create_index(new).unwrap();
    txn.commit().unwrap();
    def
}

pub fn pk(id: i32) -> Vec<u8> {
    let mut out = Vec::new();
    key::push(&mut out, ColumnType::Int4, &Datum::Int4(id));
    out
}

pub fn begin(database: &Arc<Database>, isolation: Isolation) -> Transaction {
    let mut txn = database.begin(isolation);
    txn.start_statement();
    txn
}

pub fn table(txn: &mut Transaction, def: &TableDef) -> Arc<Table> {
    txn.table(def).unwrap()
}

pub fn put(txn: &mut Transaction, def: &TableDef, id: i32, v: i32) -> Result<()> {
    let table = txn.table(def)?;
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(v), Datum::Text("note")])
}

/// Inserts rows and commits.
pub fn load(database: &Arc<Database>, def: &TableDef, rows: impl IntoIterator<Item = (i32, i32)>) {
    let mut txn = begin(database, RC);
    for (id, v) in rows {
        put(&mut txn, def, id, v).unwrap();
    }
    txn.commit().unwrap();
}

/// `SELECT v FROM def WHERE id = id`, as a statement of its own.
pub fn see(txn: &mut Transaction, def: &TableDef, id: i32) -> Option<i32> {
    txn.start_statement();
    see_again(txn, def, id).unwrap()
}

pub fn see_again(txn: &mut Transaction, def: &TableDef, id: i32) -> Result<Option<i32>> {
    let table = txn.table(def)?;
    let mut v = None;
    txn.get(&table, &pk(id), &mut |row| v = Some(int(row.get(1))))?;
    Ok(v)
}

pub fn int(datum: Datum<'_>) -> i32 {
    match datum {
        Datum::Int4(v) => v,
        other => panic!("{other:?} is no int4"),
    }
}

/// `UPDATE def SET v = f(v) WHERE id = id`, as a statement of its own.
pub fn update(txn: &mut Transaction, def: &TableDef, id: i32, f: impl Fn(i32) -> i32) -> Result<Outcome> {
    txn.start_statement();
    let table = txn.table(def)?;
    txn.modify(&table, &pk(id), &mut |row| {
        let data = [row.get(0), Datum::Int4(f(int(row.get(1)))), row.get(2)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
}

/// `UPDATE def SET id = to WHERE id = id`.
pub fn rekey(txn: &mut Transaction, def: &TableDef, id: i32, to: i32) -> Result<Outcome> {
    txn.start_statement();
    let table = txn.table(def)?;
    txn.modify(&table, &pk(id), &mut |row| {
        let data = [Datum::Int4(to), row.get(1), row.get(2)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
}

pub fn delete(txn: &mut Transaction, def: &TableDef, id: i32) -> Result<Outcome> {
    txn.start_statement();
    let table = txn.table(def)?;
    txn.modify(&table, &pk(id), &mut |_| Ok(Change::Delete))
}

/// Returns all (id, v) in primary key order, in the statement that runs.
pub fn rows(txn: &mut Transaction, def: &TableDef) -> Result<Vec<(i32, i32)>> {
    collect(txn, def, &ScanSpec::ALL)
}

pub fn collect(txn: &mut Transaction, def: &TableDef, spec: &ScanSpec<'_>) -> Result<Vec<(i32, i32)>> {
    let table = txn.table(def)?;
    let mut found = Vec::new();
    txn.scan(&table, spec, &mut |_, row| {
        found.push((int(row.get(0)), int(row.get(1))));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Returns all (id, v) with v = `v`, through the first secondary index.
pub fn by_v(txn: &mut Transaction, def: &TableDef, v: i32) -> Vec<(i32, i32)> {
    txn.start_statement();
    let (lower, mut upper) = (pk(v), pk(v));
    key::prefix_end(&mut upper);
    let spec = ScanSpec {
        index: ScanIndex::Secondary(def.indexes[0].id),
        lower: Bound::Included(&lower),
        upper: Bound::Excluded(&upper),
        reverse: false,
        limit_hint: None,
        columns: None,
    };
    collect(txn, def, &spec).unwrap()
}

/// Returns the whole table as a new transaction sees it.
pub fn all(database: &Arc<Database>, def: &TableDef) -> Vec<(i32, i32)> {
    rows(&mut begin(database, RC), def).unwrap()
}

pub fn state<T: std::fmt::Debug>(outcome: Result<T>) -> &'static str {
    match outcome {
        Ok(value) => panic!("expected an error, got {value:?}"),
        Err(error) => error.sqlstate(),
    }
}

pub fn is_sound(database: &Arc<Database>) {
    let report = database.check().unwrap();
    assert!(report.damages.is_empty(), "{:#?}", report.damages);
}

pub fn is_unique_violation(error: &Error) -> bool {
    matches!(error, Error::UniqueViolation { .. })
}

/// Sleeps until one more transaction than `before` (of `DatabaseStats::lock_waits`) has begun to wait.
pub fn until_one_waits(database: &Arc<Database>, before: u64) {
    while database.stats().lock_waits == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
