//! Measures the speed of the public embedded interface: one thread, rows of 100 bytes, all pages in memory.
//! `cargo run --release -p varve-engine --example embedded_speed [rows [step]]`

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use varve_device::MemoryDirectory;
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, NewTable, Options, PrimaryKey, Result,
    RowImage, ScanIndex, ScanSpec, TableDef, key,
};
use varve_pager::PagerConfig;

const TEXT_BYTES: usize = 84;
const READS: usize = 2_000_000;
const WRITES: i64 = 200_000;

fn main() -> Result<()> {
    let rows: i64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = (rows as usize * 600).max(256 << 20);
    let database = Database::open(Options::new(pager))?;
    let table = create(&database)?;
    timed("insert, 1,000 a transaction", rows as usize, || load(&database, &table, rows))?;
    step("random get, READ COMMITTED", READS, || reads(&database, &table, rows))?;
    step("random get, a transaction each", READS, || single_reads(&database, &table, rows))?;
    step("scan of 100 rows", READS, || scans(&database, &table, rows))?;
    step("update, 1,000 a transaction", WRITES as usize, || updates(&database, &table, rows))?;
    step("update, a transaction each", WRITES as usize / 4, || single_updates(&database, &table, rows))?;
    database.shutdown()
}

/// Runs and measures a step, unless a second argument names other steps.
fn step(what: &str, count: usize, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let is_wanted = std::env::args().nth(2).is_none_or(|wanted| what.contains(&wanted));
    if is_wanted { timed(what, count, run) } else { Ok(()) }
}

/// Prints wall time and the thread's own processor time (what counts on a busy machine).
fn timed<T>(what: &str, count: usize, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let (start, start_cpu) = (Instant::now(), cpu_ns());
    let result = run()?;
    let ns = start.elapsed().as_secs_f64() * 1e9 / count as f64;
    let cpu = (cpu_ns() - start_cpu) / count as f64;
    println!("{what:32} {ns:8.1} ns each ({cpu:8.1} ns of processor time), {:10.0} a second", 1e9 / ns);
    Ok(result)
}

fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

fn create(database: &Arc<Database>) -> Result<Arc<TableDef>> {
    let columns = vec![
        ColumnDef::new("id", ColumnType::Int4),
        ColumnDef::new("k", ColumnType::Int4),
        ColumnDef::new("pad", ColumnType::Varchar(None)),
    ];
    let primary_key = Some(PrimaryKey { name: "t_pkey".into(), columns: vec![0] });
    let mut txn = database.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let new = NewTable { primary_key, ..NewTable::new("public", "t", columns) };
    let table = txn.create_table(new)?;
    txn.commit()?;
    Ok(table)
}

fn load(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let pad = "x".repeat(TEXT_BYTES);
    for start in (0..rows).step_by(1000) {
        let mut txn = database.begin(Isolation::ReadCommitted);
        txn.start_statement();
        let table = txn.table(def)?;
        for id in start..(start + 1000).min(rows) {
            txn.insert(&table, &[Datum::Int4(id as i32), Datum::Int4(0), Datum::Text(&pad)])?;
        }
        txn.commit()?;
    }
    Ok(())
}

fn pick(n: usize, rows: i64, out: &mut Vec<u8>) {
    let value = ((n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) as i64 % rows;
    out.clear();
    key::push(out, ColumnType::Int4, &Datum::Int4(value as i32));
}

fn reads(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let (mut key, mut bytes) = (Vec::new(), 0);
    let mut txn = database.begin(Isolation::ReadCommitted);
    let table = txn.table(def)?;
    for n in 0..READS {
        txn.start_statement();
        pick(n, rows, &mut key);
        txn.get(&table, &key, &mut |row| bytes += sum_of(row.get(2)))?;
        txn.end_statement();
    }
    assert_eq!(bytes, READS * TEXT_BYTES * usize::from(b'x'));
    txn.commit()
}

/// Touches every byte of a text.
fn sum_of(datum: Datum<'_>) -> usize {
    match datum {
        Datum::Text(text) => text.bytes().map(usize::from).sum(),
        _ => 0,
    }
}

fn single_reads(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let (mut key, mut bytes) = (Vec::new(), 0);
    for n in 0..READS {
        let mut txn = database.begin(Isolation::ReadCommitted);
        txn.start_statement();
        let table = txn.table(def)?;
        pick(n, rows, &mut key);
        txn.get(&table, &key, &mut |row| bytes += row.as_bytes().len())?;
        txn.commit()?;
    }
    assert!(bytes >= READS * TEXT_BYTES);
    Ok(())
}

fn scans(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let (mut key, mut seen) = (Vec::new(), 0);
    let mut txn = database.begin(Isolation::ReadCommitted);
    let table = txn.table(def)?;
    for n in 0..READS / 100 {
        txn.start_statement();
        pick(n, rows - 100, &mut key);
        let mut left = 100;
        let spec = ScanSpec {
            index: ScanIndex::Primary,
            lower: Bound::Included(&key),
            upper: Bound::Unbounded,
            reverse: false,
            limit_hint: Some(100),
            columns: None,
        };
        txn.scan(&table, &spec, &mut |_, row| {
            left -= 1;
            seen += usize::from(!row.get(0).is_null());
            Ok(if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
    }
    assert_eq!(seen, READS / 100 * 100);
    txn.commit()
}

fn increment(row: varve_engine::RowRef<'_>) -> Result<Change> {
    let k = row.get(1).as_integer().unwrap_or(0) as i32 + 1;
    let image = RowImage::encode(row.schema(), &[row.get(0), Datum::Int4(k), row.get(2)])?;
    Ok(Change::Replace(image))
}

fn updates(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let mut key = Vec::new();
    for start in (0..WRITES as usize).step_by(1000) {
        let mut txn = database.begin(Isolation::ReadCommitted);
        let table = txn.table(def)?;
        for n in start..start + 1000 {
            txn.start_statement();
            pick(n, rows, &mut key);
            txn.modify(&table, &key, &mut increment)?;
        }
        txn.commit()?;
    }
    Ok(())
}

fn single_updates(database: &Arc<Database>, def: &TableDef, rows: i64) -> Result<()> {
    let mut key = Vec::new();
    for n in 0..WRITES as usize / 4 {
        let mut txn = database.begin(Isolation::ReadCommitted);
        txn.start_statement();
        let table = txn.table(def)?;
        pick(n, rows, &mut key);
        txn.modify(&table, &key, &mut increment)?;
        txn.commit()?;
    }
    Ok(())
}
