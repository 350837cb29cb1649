//! Measures a scan under a snapshot that needs old versions of all rows (figure 5 and table 4).
//!
//! 1. A transaction scans a table. Three other transactions each update all rows. Then the first transaction
//!    scans the table again, and must get the rows as they were. The second scan is measured.
//! 2. The buffer pool is as large as the table, as in section 5.2. Pages of the table that leave the pool
//!    come back from memory. Pages of rollback segments come back from the drive.

use std::fmt::Write;

use serde::Serialize;
use varve_bench::database::{Connection, MeasuredDatabase, Statement};
use varve_bench::random::Random;
use varve_bench::workload::{Workload, load_rows};
use varve_bench::{BenchError, Result};
use varve_device::{Space, thread_cpu_ns};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Emulation, Factors, Subject};
use super::super::scale::Scale;
use super::super::stand::Sizes;
use super::super::table::TextTable;
use super::super::tell;
use super::super::trace::DrawnTrace;
use super::super::verdict::Better;
use super::stand::{MemoryStand, OpenMemoryStand, StudiedSpace};
use super::{DISK, DRIVES, PAGE_BYTES, PublishedRatio, judge, judge_unless};

/// The number of the table's pages (section 5.2).
const PAGES_FULL: u64 = 12_500;
const PAGES_QUICK: u64 = 1_250;
const PAGES_TINY: u64 = 40;
/// The number of rows in a page, and the characters that fill up a row.
const ROWS_OF_PAGE: u64 = 70;
const FILLER_CHARS: usize = 80;
const POOL_BYTES_MIN: usize = 4 << 20;
const LOG_SEGMENTS: u64 = 8;
const LOG_SEGMENT_BYTES: u64 = 32 << 20;
/// The number of transactions that each update all rows.
const UPDATES: usize = 3;
const TRACE_MAX: usize = 1_000_000;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const SCAN: &str = "SELECT id, version, filler FROM versions";
/// The beginning of the statement that reads the version of one row. It checks that the snapshot sees the old
/// row.
const VERSION_OF: &str = "SELECT version FROM versions WHERE id = ";

/// The values of table 4 for disk and flash: pages read, seconds of reading, seconds of the processors, and
/// total seconds.
const PUBLISHED: [PublishedScan; 2] = [
    PublishedScan { pages_read: 39_703, read_seconds: 328.0, cpu_seconds: 3.0, seconds: 351.0 },
    PublishedScan { pages_read: 40_787, read_seconds: 21.0, cpu_seconds: 3.0, seconds: 23.6 },
];

/// A column of table 4.
#[derive(Debug, Clone, Copy, Serialize)]
struct PublishedScan {
    pages_read: u64,
    read_seconds: f64,
    cpu_seconds: f64,
    seconds: f64,
}

/// The workload, with the number of the table's rows.
#[derive(Debug)]
struct VersionedTable {
    rows: u64,
}

fn filler(number: u64) -> String {
    let mut random = Random::seeded(number);
    (0..FILLER_CHARS).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

impl Workload for VersionedTable {
    fn name(&self) -> String {
        "versions".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"rows": self.rows})
    }

    fn statements(&self) -> Vec<Statement> {
        Vec::new()
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        c.simple(&format!(
            "CREATE TABLE versions (id bigint PRIMARY KEY, version bigint NOT NULL, filler varchar({FILLER_CHARS}))"
        ))?;
        load_rows(c, "versions", self.rows, |number, sql| {
            let _ = write!(sql, "({number}, 0, '{}')", filler(number));
        })
    }

    /// Updates all rows once.
    fn transaction(&self, kind: usize, c: &mut dyn Connection, _random: &mut Random) -> Result<()> {
        let text = filler(self.rows + kind as u64);
        c.simple(&format!("UPDATE versions SET version = version + 1, filler = '{text}'"))
    }
}

/// The results of the second scan on one drive.
#[derive(Debug, Serialize)]
struct ReadRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    scale: String,
    table_pages: u64,
    pages_read: u64,
    read_ms: f64,
    read_seconds: f64,
    cpu_seconds: f64,
    seconds: f64,
    published: PublishedScan,
    trace: DrawnTrace,
    emulation: Option<Emulation>,
}

/// Repeats figure 5 and table 4: how long the second scan takes.
pub fn rollback_read(lab: &mut Lab<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for (drive, published) in DRIVES.into_iter().zip(PUBLISHED) {
        let mut factors = Factors::new();
        factors.insert("drive", drive.into());
        if lab.wants(&factors) {
            let row = read_row(lab, factors, published)?;
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let mut claims = Vec::new();
    if let [disk, flash] = rows.as_slice() {
        let emulations = [disk.emulation.as_ref(), flash.emulation.as_ref()];
        let asked = |says, ours, published, better| PublishedRatio {
            says,
            factors: &NO_FACTORS,
            ours,
            published: Some(published),
            better,
            rounds: 1,
        };
        let [on_disk, on_flash] = PUBLISHED;
        let scan = asked(
            "time of the scan, disk / flash",
            disk.seconds / flash.seconds,
            on_disk.seconds / on_flash.seconds,
            Better::Higher,
        );
        claims.push(judge(lab, scan, emulations)?);
        let per_page = asked(
            "pages of rollback segments read for each page of the table",
            disk.pages_read as f64 / disk.table_pages.max(1) as f64,
            on_disk.pages_read as f64 / PAGES_FULL as f64,
            Better::Lower,
        );
        // The number of pages does not depend on the drive's times.
        claims.push(judge_unless(lab, per_page, None)?);
    }
    tell(lab, &rows, &claims)
}

static NO_FACTORS: Factors = Factors::new();

fn read_row(lab: &Lab<'_>, factors: Factors, published: PublishedScan) -> Result<ReadRow> {
    let scale = lab.scale();
    let pages = match (scale.is_full(), scale.name == Scale::TINY.name) {
        (true, _) => PAGES_FULL,
        (_, true) => PAGES_TINY,
        _ => PAGES_QUICK,
    };
    let table = VersionedTable { rows: pages * ROWS_OF_PAGE };
    let pool_bytes = (pages as usize * PAGE_BYTES).next_multiple_of(1 << 20).max(POOL_BYTES_MIN);
    let sizes = Sizes::new(PAGE_BYTES, pool_bytes).with_log(LOG_SEGMENTS, LOG_SEGMENT_BYTES);
    let profile = if factors.get("drive") == Some(&DISK.into()) { "hdd-7200" } else { "ssd-2008" };
    let stand = MemoryStand::empty(lab, "versions", StudiedSpace::Rollback, sizes)?;
    stand.load(&table)?;
    let opened = stand.open(profile)?;
    let table_pages = opened.database.stats().pager.data_pages;
    opened.take_times(false);
    let mut snapshot = opened.target(profile).connect(&[])?;
    snapshot.simple(BEGIN)?;
    snapshot.simple(SCAN)?;
    let mut other = opened.target(profile).connect(&[])?;
    for number in 0..UPDATES {
        table.transaction(number, other.as_mut(), &mut Random::seeded(0))?;
    }
    opened.take_times(true);
    let scan = second_scan(&opened, snapshot.as_mut())?;
    opened.take_times(false);
    check(snapshot.as_mut(), table.rows)?;
    drop((snapshot, other));
    opened.close()?;
    let Subject { experiment, figure } = lab.subject();
    let scale = format!("{}, a table of {table_pages} pages, pool as large", scale.name);
    Ok(ReadRow { experiment, figure, factors, scale, table_pages, published, ..scan })
}

/// Runs the measured scan, and returns its row. The caller fills in the fields that are still empty.
fn second_scan(opened: &OpenMemoryStand, snapshot: &mut dyn Connection) -> Result<ReadRow> {
    opened.account.observe(false, TRACE_MAX);
    let begin = opened.begin();
    let cpu_before_ns = thread_cpu_ns();
    snapshot.simple(SCAN)?;
    let cpu_ns = thread_cpu_ns() - cpu_before_ns;
    let (used, report) = (opened.since(&begin), opened.report());
    let (entries, _) = opened.account.trace().take();
    opened.account.observe(false, 0);
    let read_seconds = report.as_ref().map_or(0.0, |report| report.busy_share * used.seconds);
    let pages_read = used.read.bytes / PAGE_BYTES as u64;
    Ok(ReadRow {
        row: "rollback-read",
        experiment: "",
        figure: "",
        factors: Factors::new(),
        scale: String::new(),
        table_pages: 0,
        pages_read,
        read_ms: 1e3 * read_seconds / pages_read.max(1) as f64,
        read_seconds,
        cpu_seconds: cpu_ns as f64 / 1e9,
        seconds: used.seconds,
        published: PUBLISHED[0],
        trace: DrawnTrace::of(&entries, Space::Rollback),
        emulation: opened.emulation(),
    })
}

/// Checks that the snapshot still sees the first and the last row without the updates.
fn check(snapshot: &mut dyn Connection, rows: u64) -> Result<()> {
    for id in [0, rows - 1] {
        let version = snapshot.scalar(&format!("{VERSION_OF}{id}"))?;
        if version != "0" {
            return Err(BenchError::Wrong(format!("row {id} has version {version} under the snapshot")));
        }
    }
    Ok(())
}

fn tell(lab: &mut Lab<'_>, rows: &[ReadRow], claims: &[Claim]) -> Result<()> {
    let mut table = TextTable::headed(&[
        "drive",
        "profile",
        "table pages",
        "read pages",
        "Lee",
        "ms a read",
        "read s",
        "Lee",
        "cpu s",
        "Lee",
        "s",
        "Lee",
    ]);
    for row in rows {
        let published = row.published;
        table.push(vec![
            row.factors.get("drive").map_or_else(String::new, tell::plain),
            row.emulation.as_ref().map_or_else(String::new, |one| format!("emulated {}", one.profile)),
            row.table_pages.to_string(),
            row.pages_read.to_string(),
            published.pages_read.to_string(),
            format!("{:.2}", row.read_ms),
            format!("{:.1}", row.read_seconds),
            published.read_seconds.to_string(),
            format!("{:.1}", row.cpu_seconds),
            published.cpu_seconds.to_string(),
            format!("{:.1}", row.seconds),
            published.seconds.to_string(),
        ]);
    }
    lab.say(&format!("\n{table}\n{}", tell::claims(claims)))
}
