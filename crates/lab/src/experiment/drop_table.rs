//! Measures DROP TABLE of a large compressed table, with pages at fixed offsets and with packed pages, on
//! ext4, xfs and btrfs if they can be made.
//!
//! In MariaDB, dropping a table with compressed pages can take minutes. The reason is that each compressed
//! page ends with a hole in the file, so the file system manages one extent for each page. In Varve the
//! statement only records the drop. A thread frees the pages and their blocks later.
//!
//! 1. The size of a table is the size of its pages in memory, uncompressed.
//! 2. Times are those of the real device. Nothing is emulated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use varve_device::{FileDirectory, FileOptions};
use varve_engine::Database;
use varve_pager::{Algorithm, Compression, HomeLayout, PackedConfig, PagerConfig};

use super::claim::Claim;
use super::copies::allocated_bytes;
use super::filesystem::{FileSystem, Mounted, make_all};
use super::lab::Lab;
use super::row::{Factors, Subject};
use super::table::TextTable;
use super::tell;
use super::verdict::Verdict;
use varve_bench::database::{Connection, MeasuredDatabase, Param};
use varve_bench::driver::histogram;
use varve_bench::embedded::{Embedded, open_with};
use varve_bench::random::Random;
use varve_bench::values::Values;
use varve_bench::workload::load_rows;
use varve_bench::{BenchError, Result};

const PAGE_BYTES: u64 = 8192;
/// Rows that fit into a page, and the characters of a row.
const ROWS_OF_A_PAGE: u64 = 7;
const ROW_CHARS: usize = 1000;
/// The uniqueness of values (see `Motif`) with which lz4 stores a page in about half of its size.
/// `packed-wear` finds such values.
const UNIQUENESS: f64 = 0.4;
/// The size of the dropped table is this many times the size of the other table, and of the pool.
const OTHER_PART: u64 = 16;
const POOL_PART: u64 = 32;
const POOL_BYTES_MIN: u64 = 4 << 20;
const LOG_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;
const LOG_SEGMENTS: u64 = 8;
/// In an aged table, one row in this number was replaced by a row that does not compress.
const AGED_PART: u64 = 20;
/// How long reads are measured before the drop.
const BEFORE: Duration = Duration::from_secs(3);
/// The longest wait for free blocks is `PATIENCE`, and one second more for each `PATIENCE_BYTES` of the
/// table.
const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_BYTES: u64 = 8 << 20;
/// The longest wait until the pages are free.
const PAGES_PATIENCE: Duration = Duration::from_secs(600);
/// The drop is complete when this part of the table's pages is free, or this part of its blocks.
const PAGES_PART: f64 = 0.99;
const BLOCKS_PART: f64 = 0.9;
/// The bar of this project: pages of a table of `BAR_BYTES` must be free after at most `BAR_SECONDS`.
const BAR_SECONDS: f64 = 2.0;
const BAR_BYTES: u64 = 4 << 30;

const READ: usize = 0;
const UPDATE: usize = 1;

/// One configuration: the file system, the layout of pages, and whether the table is aged.
#[derive(Clone, Copy)]
struct Spot {
    filesystem: FileSystem,
    is_packed: bool,
    is_aged: bool,
}

impl Spot {
    fn factors(self) -> Factors {
        Factors::from([
            ("file system", self.filesystem.name().into()),
            ("layout", if self.is_packed { "packed" } else { "in place" }.into()),
            ("aged", self.is_aged.into()),
        ])
    }
}

/// The times of a drop, and the latencies of another session's reads.
#[derive(Debug, Clone, Serialize)]
struct DropRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    load_seconds: f64,
    #[serde(flatten)]
    went: Went,
    /// Point reads of the other table before the drop.
    before: Reads,
    /// Point reads of the other table from the start of the statement until the measurement ends.
    meanwhile: Reads,
}

/// The times of a drop, and the space that it freed.
#[derive(Debug, Clone, Serialize)]
struct Went {
    /// Bytes of the table's pages, uncompressed.
    table_bytes: u64,
    /// Bytes of the blocks that the database had before the drop.
    allocated_bytes: u64,
    statement_seconds: f64,
    /// Seconds from the start of the statement until the table's pages were free.
    pages_free_seconds: f64,
    /// Seconds until the table's blocks were free. It is `None` if this took longer than the longest wait.
    blocks_free_seconds: Option<f64>,
    /// Bytes of the blocks that the file system got back.
    freed_bytes: u64,
}

/// Latencies of point reads.
#[derive(Debug, Clone, Copy, Serialize)]
struct Reads {
    count: u64,
    p99_us: u64,
    longest_us: u64,
}

impl Reads {
    fn of(latency_us: &Histogram<u64>) -> Self {
        Self {
            count: latency_us.len(),
            p99_us: latency_us.value_at_quantile(0.99),
            longest_us: latency_us.max(),
        }
    }
}

/// Runs the experiment `drop-table`.
pub fn drop_table(lab: &mut Lab<'_>) -> Result<()> {
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    for filesystem in filesystems(lab)? {
        for (is_packed, is_aged) in [(false, false), (true, false), (false, true), (true, true)] {
            let spot = Spot { filesystem, is_packed, is_aged };
            if lab.wants(&spot.factors()) {
                let row = point(lab, spot)?;
                lab.write_row(&row)?;
                claims.push(claim(lab, &row)?);
                rows.push(row);
            }
        }
    }
    lab.say(&format!("\n{}{}", table(&rows), tell::claims(&claims)))
}

/// Returns the file systems that can be made on this machine. If none can be made, it is the file system of
/// the directory.
fn filesystems(lab: &mut Lab<'_>) -> Result<Vec<FileSystem>> {
    let place = lab.empty("filesystems")?;
    let kinds = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    let made = make_all(lab, &kinds, &place.place().files, 0)?;
    Ok(made.iter().map(Mounted::kind).collect())
}

/// Returns the bytes of a file system that has space for the tables, for the log, and for growing files.
fn filesystem_bytes(lab: &Lab<'_>) -> u64 {
    2 * lab.scale().dropped_bytes + LOG_BYTES.end()
}

fn config(lab: &Lab<'_>, directory: &Path, spot: Spot) -> Result<PagerConfig> {
    let open = |path: PathBuf| {
        FileDirectory::open_or_create(&path, FileOptions::default()).map_err(std::io::Error::other)
    };
    let mut config = PagerConfig::new(open(directory.join("database"))?);
    config.temporary = open(directory.join("temporary"))?;
    config.page_size = PAGE_BYTES as usize;
    let bytes = lab.scale().dropped_bytes;
    config.pool_bytes = (bytes / POOL_PART).max(POOL_BYTES_MIN) as usize;
    config.log_capacity_bytes = (bytes / 4).clamp(*LOG_BYTES.start(), *LOG_BYTES.end());
    config.log_segment_bytes = config.log_capacity_bytes / LOG_SEGMENTS;
    config.compression = Compression::of(Algorithm::Lz4);
    if spot.is_packed {
        config.layout = HomeLayout::Packed(PackedConfig::DEFAULT);
    }
    Ok(config)
}

fn statements() -> Vec<String> {
    vec![
        "SELECT field FROM other WHERE id = $1".to_owned(),
        "UPDATE dropped SET field = $1 WHERE id = $2".to_owned(),
    ]
}

/// Makes and fills a table, and returns its number of rows.
fn load(c: &mut dyn Connection, name: &str, bytes: u64) -> Result<u64> {
    let rows = (bytes / PAGE_BYTES * ROWS_OF_A_PAGE).max(1);
    let values = Values::named("motif", UNIQUENESS)?;
    let mut random = Random::seeded(rows);
    c.simple(&format!("CREATE TABLE {name} (id bigint PRIMARY KEY, field varchar({ROW_CHARS}))"))?;
    load_rows(c, name, rows, |number, sql| {
        use std::fmt::Write;
        let _ = write!(sql, "({number},'{}')", values.text(&mut random, ROW_CHARS));
    })?;
    Ok(rows)
}

/// Replaces rows all over the table by rows that don't compress. Pages with such rows compress less, so they
/// fill holes that the file had at the end of its pages.
fn age(c: &mut dyn Connection, rows: u64) -> Result<()> {
    let mut random = Random::seeded(AGED_PART);
    for _ in 0..rows / AGED_PART {
        let text = random.letters(ROW_CHARS);
        c.run(UPDATE, &[Param::Text(&text), Param::Int(random.below(rows) as i64)])?;
    }
    Ok(())
}

/// Makes a database with both tables, and shuts it down. Returns the number of rows of the other table, and
/// the seconds of the load.
fn prepare(lab: &Lab<'_>, directory: &Path, spot: Spot) -> Result<(u64, f64)> {
    let bytes = lab.scale().dropped_bytes;
    let began = Instant::now();
    let database = open_with(config(lab, directory, spot)?)?;
    let target = Embedded::new(Arc::clone(&database), "");
    let mut c = target.connect(&[])?;
    let others = load(c.as_mut(), "other", bytes / OTHER_PART)?;
    let rows = load(c.as_mut(), "dropped", bytes)?;
    let took = began.elapsed().as_secs_f64();
    if spot.is_aged {
        age(target.connect(&statements())?.as_mut(), rows)?;
    }
    drop(c);
    database.shutdown()?;
    Ok((others, took))
}

/// Measures one configuration.
fn point(lab: &mut Lab<'_>, spot: Spot) -> Result<DropRow> {
    let place = lab.empty("drop-table")?;
    let mounted = Mounted::make(spot.filesystem, &place.place().files, filesystem_bytes(lab))?;
    let (others, load_seconds) = prepare(lab, mounted.path(), spot)?;
    let database = open_with(config(lab, mounted.path(), spot)?)?;
    let watch = DropRun { database: &database, files: mounted.path().join("database"), others };
    let (went, [before, meanwhile]) = watch.drop_it(lab.scale().dropped_bytes)?;
    database.shutdown()?;
    let Subject { experiment, figure } = lab.subject();
    let factors = spot.factors();
    Ok(DropRow { row: "drop", experiment, figure, factors, load_seconds, went, before, meanwhile })
}

/// A database in which one table is dropped while another one is read.
struct DropRun<'d> {
    database: &'d Arc<Database>,
    files: PathBuf,
    others: u64,
}

impl DropRun<'_> {
    fn data_pages(&self) -> u64 {
        self.database.stats().pager.data_pages
    }

    fn allocated_bytes(&self) -> Result<u64> {
        allocated_bytes(&self.files, |name| !name.starts_with("log"))
    }

    /// Drops the table. Returns the times of the drop, and the reads before and during it.
    fn drop_it(&self, table_bytes: u64) -> Result<(Went, [Reads; 2])> {
        let (phase, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let target = Embedded::new(Arc::clone(self.database), "");
        let (went, latencies) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| self.read(&target, &phase, &stop));
            std::thread::sleep(BEFORE);
            let went = target.connect(&[]).and_then(|mut c| {
                phase.store(1, Relaxed);
                self.watched(c.as_mut(), table_bytes)
            });
            stop.store(true, Relaxed);
            let read = reader.join().map_err(|_| BenchError::Connection("a reader panicked".to_owned()))?;
            Ok::<_, BenchError>((went?, read?))
        })?;
        Ok((went, latencies.each_ref().map(Reads::of)))
    }

    fn watched(&self, c: &mut dyn Connection, table_bytes: u64) -> Result<Went> {
        let (pages, allocated) = (self.data_pages(), self.allocated_bytes()?);
        let table_pages = table_bytes / PAGE_BYTES;
        // Rows of both tables are alike, so the table has as great a share of the blocks as of the pages.
        let blocks = allocated as f64 * table_pages as f64 / pages.max(1) as f64;
        let patience = PATIENCE + Duration::from_secs(table_bytes / PATIENCE_BYTES);
        let began = Instant::now();
        c.simple("DROP TABLE dropped")?;
        let statement_seconds = began.elapsed().as_secs_f64();
        let are_pages_free =
            || Ok(pages.saturating_sub(self.data_pages()) as f64 >= PAGES_PART * table_pages as f64);
        let pages_free_seconds = wait(began, PAGES_PATIENCE, Duration::from_millis(1), are_pages_free)?
            .ok_or_else(|| BenchError::Wrong(format!("pages are not free after {PAGES_PATIENCE:?}")))?;
        let freed = || Ok::<_, BenchError>(allocated.saturating_sub(self.allocated_bytes()?));
        let are_blocks_free = || Ok(freed()? as f64 >= BLOCKS_PART * blocks);
        let blocks_free_seconds = wait(began, patience, Duration::from_millis(20), are_blocks_free)?;
        Ok(Went {
            table_bytes: table_pages * PAGE_BYTES,
            allocated_bytes: allocated,
            statement_seconds,
            pages_free_seconds,
            blocks_free_seconds,
            freed_bytes: freed()?,
        })
    }

    /// Reads the other table until `stop` is set. Collects latencies before the drop (phase 0) and during it
    /// (phase 1).
    fn read(&self, target: &Embedded, phase: &AtomicUsize, stop: &AtomicBool) -> Result<[Histogram<u64>; 2]> {
        let mut c = target.connect(&statements()[..1])?;
        let (mut random, mut latencies) = (Random::seeded(self.others), [histogram(), histogram()]);
        while !stop.load(Relaxed) {
            let (phase, began) = (phase.load(Relaxed), Instant::now());
            c.run(READ, &[Param::Int(random.below(self.others) as i64)])?;
            latencies[phase].saturating_record(began.elapsed().as_micros() as u64);
        }
        Ok(latencies)
    }
}

/// Waits until a condition holds. Returns the seconds since `began`, or `None` after too long a wait.
fn wait(
    began: Instant,
    patience: Duration,
    each: Duration,
    holds: impl Fn() -> Result<bool>,
) -> Result<Option<f64>> {
    while !holds()? {
        if began.elapsed() > patience {
            return Ok(None);
        }
        std::thread::sleep(each);
    }
    Ok(Some(began.elapsed().as_secs_f64()))
}

fn claim(lab: &mut Lab<'_>, row: &DropRow) -> Result<Claim> {
    let Subject { experiment, figure } = lab.subject();
    let verdict = if row.went.table_bytes < BAR_BYTES {
        Verdict::NotJudged(format!(
            "the table has {} MiB, the bar is for {}",
            row.went.table_bytes >> 20,
            BAR_BYTES >> 20
        ))
    } else {
        Verdict::at_most(BAR_SECONDS, row.went.pages_free_seconds)
    };
    let claim = Claim {
        row: "claim",
        experiment,
        figure,
        factors: row.factors.clone(),
        says: "seconds of DROP TABLE until its pages are free".to_owned(),
        ours: row.went.pages_free_seconds,
        rounds: None,
        published: None,
        bar: Some(BAR_SECONDS),
        verdict,
    };
    lab.write_row(&claim)?;
    Ok(claim)
}

fn table(rows: &[DropRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "file system",
        "layout",
        "aged",
        "table MiB",
        "allocated MiB",
        "load s",
        "statement s",
        "pages free s",
        "blocks free s",
        "freed MiB",
        "reads before",
        "p99 ms",
        "longest ms",
        "reads meanwhile",
        "p99 ms",
        "longest ms",
    ]);
    let reads = |reads: &Reads| {
        let ms = |us: u64| format!("{:.2}", us as f64 / 1000.0);
        [reads.count.to_string(), ms(reads.p99_us), ms(reads.longest_us)]
    };
    for row in rows {
        let mut line: Vec<String> = ["file system", "layout", "aged"]
            .map(|name| row.factors.get(name).map(tell::plain).unwrap_or_default())
            .to_vec();
        line.extend([row.went.table_bytes, row.went.allocated_bytes].map(|bytes| (bytes >> 20).to_string()));
        line.push(format!("{:.1}", row.load_seconds));
        line.extend(
            [row.went.statement_seconds, row.went.pages_free_seconds].map(|seconds| format!("{seconds:.3}")),
        );
        line.push(
            row.went
                .blocks_free_seconds
                .map_or_else(|| "not waited for".to_owned(), |seconds| format!("{seconds:.2}")),
        );
        line.push((row.went.freed_bytes >> 20).to_string());
        line.extend(reads(&row.before).into_iter().chain(reads(&row.meanwhile)));
        table.push(line);
    }
    table
}
