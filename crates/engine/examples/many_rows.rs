//! Measures operations on many rows in the engine alone, with one thread and all pages in memory: DELETE row
//! by row and leaf by leaf, CREATE INDEX, a range of an index. `cargo run --release -p varve-engine --example
//! many_rows [rows [rounds]]` prints the processor time for each row.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use varve_device::MemoryDirectory;
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, NewIndex, NewTable, Options, PrimaryKey,
    Result, ScanIndex, ScanSpec, TableDef, Transaction, key,
};
use varve_pager::PagerConfig;

fn main() -> Result<()> {
    let number = |n: usize, default: i64| {
        std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (rows, rounds) = (number(1, 300_000), number(2, 5));
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = (rows as usize * 1200).max(256 << 20);
    let database = Database::open(Options::new(pager))?;
    let def = create(&database)?;
    load(&database, &def, rows)?;
    let def = index(&database, &def, "big_k", 1)?;
    let def = index(&database, &def, "big_t", 3)?;
    for _ in 0..rounds {
        undone(&database, "delete, row by row", rows, |txn| delete_each(txn, &def, rows))?;
        undone(&database, "delete, leaf by leaf", rows, |txn| delete_together(txn, &def, rows))?;
        undone(&database, "create index", rows, |txn| {
            txn.create_index(new_index(&def, "big_n", 2)).map(drop)
        })?;
        undone(&database, "a tenth by an index", rows / 10, |txn| sum_by_index(txn, &def, rows / 10))?;
    }
    database.shutdown()
}

/// Calls `run` and prints the thread's own processor time of it for each row. Then rolls the changes back.
fn undone(
    database: &Arc<Database>,
    what: &str,
    rows: i64,
    run: impl FnOnce(&mut Transaction) -> Result<()>,
) -> Result<()> {
    let mut txn = database.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let start = cpu_ns();
    run(&mut txn)?;
    println!("{what:24} {:8.1} ns", (cpu_ns() - start) / rows as f64);
    txn.rollback()
}

fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

fn create(database: &Arc<Database>) -> Result<Arc<TableDef>> {
    let int = |name| ColumnDef { not_null: true, ..ColumnDef::new(name, ColumnType::Int4) };
    let text = |name| ColumnDef { not_null: true, ..ColumnDef::new(name, ColumnType::Text) };
    let columns = vec![int("id"), int("k"), int("n"), text("t"), text("pad")];
    let primary_key = Some(PrimaryKey { name: "big_pkey".into(), columns: vec![0] });
    let mut txn = database.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let table = txn.create_table(NewTable { primary_key, ..NewTable::new("public", "big", columns) })?;
    txn.commit()?;
    Ok(table)
}

fn new_index(def: &TableDef, name: &str, column: usize) -> NewIndex {
    NewIndex {
        table: def.id,
        name: name.into(),
        columns: vec![column],
        unique: false,
        constraint: false,
        tablespace: None,
    }
}

fn index(database: &Arc<Database>, def: &TableDef, name: &str, column: usize) -> Result<Arc<TableDef>> {
    let mut txn = database.begin(Isolation::ReadCommitted);
    let def = txn.create_index(new_index(def, name, column))?;
    txn.commit()?;
    Ok(def)
}

fn load(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let pad = "x".repeat(40);
    let mut txn = database.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let table = txn.table(def)?;
    for id in 0..rows {
        let (k, n, t) = (id * 7919 % rows, id * 48_271 % 1_000_003, format!("text {}", id % 1000));
        let int = |value: i64| Datum::Int4(value as i32);
        txn.insert(&table, &[int(id), int(k), int(n), Datum::Text(&t), Datum::Text(&pad)])?;
    }
    txn.commit()
}

fn int_key(value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    key::push(&mut out, ColumnType::Int4, &Datum::Int4(value as i32));
    out
}

fn delete_each(txn: &mut Transaction, def: &TableDef, rows: i64) -> Result<()> {
    let table = txn.table(def)?;
    (0..rows).try_for_each(|id| txn.modify(&table, &int_key(id), &mut |_| Ok(Change::Delete)).map(drop))
}

fn delete_together(txn: &mut Transaction, def: &TableDef, rows: i64) -> Result<()> {
    let table = txn.table(def)?;
    let keys: Vec<_> = (0..rows).map(int_key).collect();
    let mut at = 0;
    txn.begin_deletes(&table);
    while let Some(key) = keys.get(at) {
        let mut rest = keys[at..].iter().map(Vec::as_slice);
        let passed = txn.delete_run(&table, &mut rest, &mut |_| Some(true))?.passed;
        if passed == 0 {
            txn.modify(&table, key, &mut |_| Ok(Change::Delete))?;
        }
        at += passed.max(1);
    }
    txn.end_deletes(&table)
}

fn sum_by_index(txn: &mut Transaction, def: &TableDef, count: i64) -> Result<()> {
    let table = txn.table(def)?;
    let (lower, upper) = (int_key(count), int_key(2 * count));
    let spec = ScanSpec {
        index: ScanIndex::Secondary(def.indexes[0].id),
        lower: Bound::Included(&lower),
        upper: Bound::Excluded(&upper),
        ..ScanSpec::ALL
    };
    let (mut met, mut sum) = (0, 0);
    txn.scan(&table, &spec, &mut |_, row| {
        if let Datum::Int4(k) = row.get(1) {
            (met, sum) = (met + 1, sum + i64::from(k));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!((met, sum), (count, (count..2 * count).sum()), "rows of the range");
    Ok(())
}
