//! Measures durable commits of single rows through the public interface, in turn with plain 4 KiB writes with
//! fdatasync. Then many threads commit, first on rows of their own, then on a few common rows.
//!
//! `cargo run --release -p varve-engine --example commits -- DIR [seconds a round]`

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use varve_device::{FileDirectory, FileOptions};
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, NewTable, Options, PrimaryKey, RowImage,
    TableDef, key,
};
use varve_pager::PagerConfig;

const ROUNDS: usize = 4;
const ROWS: i64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: commits DIR [seconds a round]")?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let round = Duration::from_secs_f64(seconds);
    std::fs::create_dir_all(&directory)?;
    let bare = bare_file(Path::new(&directory))?;
    let home = Path::new(&directory).join("database");
    std::fs::create_dir_all(&home)?;
    let mut pager = PagerConfig::new(FileDirectory::open(&home, FileOptions::default())?);
    pager.pool_bytes = 256 << 20;
    let database = Database::open(Options::new(pager))?;
    let table = create(&database)?;
    for _ in 0..ROUNDS {
        let (bare_us, commit_us) = pair(&bare, &database, &table, round)?;
        let ratio = commit_us / bare_us;
        println!("1 thread, medians: fdatasync {bare_us:.1} us, commit {commit_us:.1} us, ratio {ratio:.3}");
    }
    for (threads, rows) in [(1, ROWS), (2, ROWS), (4, ROWS), (8, ROWS), (16, ROWS), (32, ROWS), (16, 20)] {
        let rate = crowd(&database, &table, threads, rows, round)?;
        println!("{threads:2} threads on {rows:5} rows: {rate:8.0} commits a second");
    }
    Ok(database.shutdown()?)
}

/// Makes a zero-filled file that is as long as a log segment.
fn bare_file(directory: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(directory.join("bare"))?;
    let zeros = vec![0; 1 << 20];
    (0..64).try_for_each(|at| file.write_all_at(&zeros, at << 20))?;
    file.sync_all()?;
    Ok(file)
}

fn create(database: &Arc<Database>) -> varve_engine::Result<Arc<TableDef>> {
    let column = |name: &str, column_type| ColumnDef { not_null: true, ..ColumnDef::new(name, column_type) };
    let columns =
        vec![column("id", ColumnType::Int8), column("v", ColumnType::Int8), column("pad", ColumnType::Text)];
    let primary_key = Some(PrimaryKey { name: "t_pkey".into(), columns: vec![0] });
    let mut txn = database.begin(Isolation::ReadCommitted);
    let name = "t";
    let def = txn.create_table(NewTable { primary_key, ..NewTable::new("public", name, columns) })?;
    let table = txn.table(&def)?;
    let pad = "p".repeat(80);
    for id in 0..ROWS {
        txn.insert(&table, &[Datum::Int8(id), Datum::Int8(0), Datum::Text(&pad)])?;
    }
    txn.commit()?;
    Ok(def)
}

fn update(database: &Arc<Database>, def: &TableDef, id: i64) -> varve_engine::Result<()> {
    let mut txn = database.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let table = txn.table(def)?;
    let mut row_key = Vec::with_capacity(16);
    key::push(&mut row_key, ColumnType::Int8, &Datum::Int8(id));
    txn.modify(&table, &row_key, &mut |row| {
        let next = row.get(1).as_integer().unwrap_or(0) + 1;
        let data = [row.get(0), Datum::Int8(next), row.get(2)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })?;
    txn.commit()
}

/// Returns median latencies in microseconds. Both are measured in turn, so that other load on the machine
/// affects both equally.
fn pair(
    bare: &File,
    database: &Arc<Database>,
    def: &TableDef,
    round: Duration,
) -> Result<(f64, f64), Box<dyn Error>> {
    let block = vec![7; 4096];
    let (mut bare_us, mut commit_us) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut at = 0;
    while start.elapsed() < round {
        let begin = Instant::now();
        bare.write_all_at(&block, at % (64 << 20))?;
        bare.sync_data()?;
        bare_us.push(begin.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        update(database, def, (at / 4096) as i64 % ROWS)?;
        commit_us.push(begin.elapsed().as_secs_f64() * 1e6);
        at += 4096;
    }
    Ok((median(bare_us), median(commit_us)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn crowd(
    database: &Arc<Database>,
    def: &TableDef,
    threads: i64,
    rows: i64,
    round: Duration,
) -> varve_engine::Result<f64> {
    let (count, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|me| {
                let (count, done) = (&count, &done);
                scope.spawn(move || {
                    let mut at = me * 7919;
                    while !done.load(Ordering::Relaxed) {
                        update(database, def, at % rows)?;
                        count.fetch_add(1, Ordering::Relaxed);
                        at += 31 * threads + 1;
                    }
                    varve_engine::Result::Ok(())
                })
            })
            .collect();
        thread::sleep(round);
        done.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|w| w.join().unwrap_or(Ok(())))
    })?;
    Ok(count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}
