//! Three measurements of the embedded API below SQL. Each one also measures a figure of the machine for
//! comparison.
//!
//! 1. [`points`]: point reads of 100-byte rows in memory, under READ COMMITTED, with one thread.
//! 2. [`commits`]: durable commits of one row, compared with plain writes of 4 KiB and fdatasync. The two
//!    alternate (A B A B).
//! 3. [`random_reads`]: reads by many threads from a table larger than the buffer pool. The script
//!    `bench/random-read` runs fio for comparison.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, NewTable, PrimaryKey, RowImage, TableDef,
    Transaction,
};

use crate::driver::histogram;
use crate::random::Random;
use crate::report::Spread;
use crate::{BenchError, Result};

const SCHEMA: &str = "public";
/// Rows that each transaction of the load inserts.
const LOAD_BATCH_ROWS: i64 = 1000;

/// A table of `id bigint PRIMARY KEY, body text`.
pub struct Rows {
    database: Arc<Database>,
    table: Arc<TableDef>,
    count: u64,
}

impl Rows {
    /// Makes table `name` with rows `0..count` of about `row_bytes` bytes each.
    pub fn load(database: &Arc<Database>, name: &str, count: u64, row_bytes: usize) -> Result<Self> {
        let table = create(database, name)?;
        let mut random = Random::seeded(count);
        for first in (0..count as i64).step_by(LOAD_BATCH_ROWS as usize) {
            let mut transaction = begin(database);
            let handle = transaction.table(&table)?;
            for id in first..(first + LOAD_BATCH_ROWS).min(count as i64) {
                let body = random.letters(row_bytes.saturating_sub(size_of::<i64>()));
                transaction.insert(&handle, &[Datum::Int8(id), Datum::Text(&body)])?;
            }
            transaction.commit()?;
        }
        Ok(Self { database: Arc::clone(database), table, count })
    }

    /// Returns the table that an earlier [`Rows::load`] made, if the database has it.
    pub fn find(database: &Arc<Database>, name: &str, count: u64) -> Result<Option<Self>> {
        let mut transaction = begin(database);
        let table = transaction.catalog().table(SCHEMA, name);
        transaction.rollback()?;
        Ok(table.map(|table| Self { database: Arc::clone(database), table, count }))
    }

    fn key(&self, id: i64, key: &mut Vec<u8>) {
        key.clear();
        self.table.push_key(key, 0, &Datum::Int8(id));
    }

    fn random_key(&self, random: &mut Random, key: &mut Vec<u8>) {
        self.key(random.below(self.count) as i64, key);
    }
}

fn create(database: &Arc<Database>, name: &str) -> Result<Arc<TableDef>> {
    let column = |name, column_type| ColumnDef { not_null: true, ..ColumnDef::new(name, column_type) };
    let columns = vec![column("id", ColumnType::Int8), column("body", ColumnType::Text)];
    let mut transaction = begin(database);
    let table = transaction.create_table(NewTable {
        primary_key: Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] }),
        ..NewTable::new(SCHEMA, name, columns)
    })?;
    transaction.commit()?;
    Ok(table)
}

fn begin(database: &Arc<Database>) -> Transaction {
    let mut transaction = database.begin(Isolation::ReadCommitted);
    transaction.start_statement();
    transaction
}

/// Measures point reads: how many rows one thread reads a second, in one READ COMMITTED transaction. Each
/// read is a statement with a snapshot of its own, and touches every byte of the row's text.
pub fn points(rows: &Rows, length: Duration) -> Result<f64> {
    let (mut random, mut key, mut touched) = (Random::seeded(1), Vec::new(), 0u64);
    let mut transaction = begin(&rows.database);
    let handle = transaction.table(&rows.table)?;
    let (began, mut count) = (Instant::now(), 0u64);
    while began.elapsed() < length {
        for _ in 0..1000 {
            rows.random_key(&mut random, &mut key);
            transaction.start_statement();
            let found = transaction.get(&handle, &key, &mut |row| touched += sum_of(row.get(1)))?;
            transaction.end_statement();
            assert!(found, "a loaded row is missing");
        }
        count += 1000;
    }
    std::hint::black_box(touched);
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn sum_of(datum: Datum<'_>) -> u64 {
    match datum {
        Datum::Text(text) => text.bytes().map(u64::from).sum(),
        _ => 0,
    }
}

/// Latencies of durable commits and of plain durable writes: the median of each round, in microseconds.
#[derive(Debug, Clone)]
pub struct Commits {
    /// Latency of a transaction that updates one row, and of its commit.
    pub commit_us: Vec<f64>,
    /// Latency of a 4 KiB write into an allocated file, with fdatasync.
    pub bare_us: Vec<f64>,
}

impl Commits {
    /// Returns the median latency of a commit, divided by the median latency of a plain write.
    pub fn ratio(&self) -> f64 {
        Spread::of(&self.commit_us).median / Spread::of(&self.bare_us).median
    }
}

/// Measures `rounds` rounds. Each one has `count` commits, and then `count` plain writes into a file in
/// `directory`.
pub fn commits(rows: &Rows, directory: &Path, rounds: usize, count: u64) -> Result<Commits> {
    let probe = SyncProbe::make(directory)?;
    let mut measured = Commits { commit_us: Vec::new(), bare_us: Vec::new() };
    for round in 0..rounds as u64 {
        let mut random = Random::seeded(round);
        measured.bare_us.push(median_us(count, |number| probe.write(number))?);
        measured.commit_us.push(median_us(count, |_| commit_one(rows, &mut random))?);
    }
    Ok(measured)
}

/// Returns the median time that `act` takes, in microseconds. `act` is called `count` times.
fn median_us(count: u64, mut act: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut nanoseconds = histogram();
    for number in 0..count {
        let began = Instant::now();
        act(number)?;
        nanoseconds.saturating_record(began.elapsed().as_nanos() as u64);
    }
    Ok(nanoseconds.value_at_quantile(0.5) as f64 / 1000.0)
}

fn commit_one(rows: &Rows, random: &mut Random) -> Result<()> {
    let (mut key, body) = (Vec::new(), random.letters(92));
    let id = random.below(rows.count) as i64;
    rows.key(id, &mut key);
    let mut transaction = begin(&rows.database);
    let handle = transaction.table(&rows.table)?;
    transaction.modify(&handle, &key, &mut |_| {
        let row = [Datum::Int8(id), Datum::Text(&body)];
        Ok(Change::Replace(RowImage::encode(rows.table.row_schema(), &row)?))
    })?;
    Ok(transaction.commit()?)
}

/// A file for plain durable writes. Each of its blocks was written before, so a write changes no metadata.
struct SyncProbe(File);

const PROBE_BLOCK_BYTES: usize = 4096;
const PROBE_BLOCKS: u64 = 4096;

impl SyncProbe {
    fn make(directory: &Path) -> Result<Self> {
        let path = directory.join("sync-probe");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        for number in 0..PROBE_BLOCKS {
            file.write_all_at(&[0; PROBE_BLOCK_BYTES], number * PROBE_BLOCK_BYTES as u64)?;
        }
        file.sync_all()?;
        std::fs::remove_file(path)?;
        Ok(Self(file))
    }

    fn write(&self, number: u64) -> Result<()> {
        let offset = number % PROBE_BLOCKS * PROBE_BLOCK_BYTES as u64;
        self.0.write_all_at(&[number as u8; PROBE_BLOCK_BYTES], offset)?;
        Ok(self.0.sync_data()?)
    }
}

/// Measures random reads: how many rows `threads` threads read a second. Each row is read by a random key.
/// The pool is much smaller than the table, so nearly every read of a row reads a page.
pub fn random_reads(rows: &Rows, threads: usize, length: Duration) -> Result<f64> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let start = |seed| {
            let random = Random::seeded(seed);
            let (stop, count) = (&stop, &count);
            scope.spawn(move || read_until(rows, random, stop, count))
        };
        let readers: Vec<_> = (1..=threads as u64).map(start).collect();
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| BenchError::Connection("a reader panicked".to_owned());
        readers.into_iter().try_for_each(|reader| reader.join().map_err(panicked)?)
    })?;
    Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

fn read_until(rows: &Rows, mut random: Random, stop: &AtomicBool, count: &AtomicU64) -> Result<()> {
    let mut key = Vec::new();
    let mut transaction = begin(&rows.database);
    let handle = transaction.table(&rows.table)?;
    while !stop.load(Ordering::Relaxed) {
        rows.random_key(&mut random, &mut key);
        transaction.start_statement();
        let found = transaction.get(&handle, &key, &mut |row| _ = std::hint::black_box(row.get(0)))?;
        transaction.end_statement();
        assert!(found, "a loaded row is missing");
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
