//! Writes to rollback segments under TPC-C (figure 4 and section 5.1): their addresses over time, and how
//! long each of the two drives takes for a write.
//!
//! 1. A rollback segment appends pages to extents of 1 MiB. The trace shows how far the page writers still
//!    write these pages in their order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use varve_bench::Result;
use varve_bench::driver::{self, Plan};
use varve_bench::tpcc::{self, Tpcc};
use varve_device::{Space, Timed, TraceEntry};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Emulation, Factors, Subject};
use super::super::scale::ByScale;
use super::super::stand::Sizes;
use super::super::table::TextTable;
use super::super::tell;
use super::super::trace::DrawnTrace;
use super::super::verdict::Better;
use super::stand::{MemoryStand, StudiedSpace};
use super::{DISK, DRIVES, PAGE_BYTES, PublishedRatio, judge_unless, not_judged};

/// The number of sessions.
const CLIENTS: usize = 20;
/// The size of the pool. It is so large that all tables fit.
const POOL_BYTES: ByScale<usize> = ByScale { quick: 64 << 20, full: 256 << 20 };
/// The pool is this many times as large as the log. The log is so short that pages must be written all the
/// time.
const LOG_BYTES_OF_POOL: u64 = 8;
const LOG_SEGMENTS: u64 = 8;
/// The most requests that are traced.
const TRACE_MAX: usize = 1_000_000;
const EXTENT_BYTES: u64 = 1 << 20;
/// The time of a write is judged only if there are at least this many writes for each read.
const WRITES_A_READ_MIN: u64 = 100;
/// Milliseconds of a write on the disk and on flash (section 5.1).
const PUBLISHED_MS: [f64; 2] = [7.1, 6.8];

/// How sequential some writes are.
#[derive(Debug, Clone, Copy, Serialize)]
struct WriteOrder {
    writes: u64,
    /// The share of the writes that begin where the last write to the same extent ended.
    appended_share: f64,
    /// The share of the writes that begin where the last write before them ended.
    sequential_share: f64,
    /// The share of the writes to a page that was written before.
    again_share: f64,
    /// The number of different extents that were written.
    extents: u64,
}

impl WriteOrder {
    fn of(entries: &[TraceEntry]) -> Self {
        let (mut ends, mut written) = (BTreeMap::new(), std::collections::BTreeSet::new());
        let (mut appended, mut sequential, mut again, mut writes) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut last_end = None;
        let is_write = |entry: &&TraceEntry| entry.space == Space::Rollback && entry.what != Timed::Read;
        for entry in entries.iter().filter(is_write) {
            let (from, end) = (entry.offset, entry.offset + entry.len_bytes);
            let in_extent = ends.insert(from / EXTENT_BYTES, end);
            writes += 1;
            appended += u64::from(in_extent == Some(from));
            sequential += u64::from(last_end == Some(from));
            again += u64::from(!written.insert(from));
            last_end = Some(end);
        }
        let share = |part: u64| part as f64 / writes.max(1) as f64;
        Self {
            writes,
            appended_share: share(appended),
            sequential_share: share(sequential),
            again_share: share(again),
            extents: ends.len() as u64,
        }
    }
}

/// The results of the writes on one drive.
#[derive(Debug, Serialize)]
struct WriteRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    scale: String,
    tps: f64,
    /// Milliseconds of the drive for a request. The emulation does not report reads and writes separately. So
    /// a row with many reads is not judged.
    write_ms: f64,
    /// The number of reads from the drive.
    reads: u64,
    published_ms: f64,
    order: WriteOrder,
    merges: u64,
    trace: DrawnTrace,
    emulation: Option<Emulation>,
}

impl WriteRow {
    /// Returns the reason why the time of a write is not judged, if there is one.
    fn not_judged(&self) -> Option<String> {
        let has_many_reads = self.reads * WRITES_A_READ_MIN > self.order.writes;
        let reads = || format!("{} reads beside {} writes", self.reads, self.order.writes);
        not_judged(self.emulation.as_ref()).or_else(|| has_many_reads.then(reads))
    }
}

/// Repeats figure 4: the addresses at which rollback segments are written.
pub fn rollback_pattern(lab: &mut Lab<'_>) -> Result<()> {
    let is_full = lab.scale().is_full();
    let scale = if is_full { tpcc::Scale::full(1) } else { lab.scale().store_tpcc };
    let workload = Tpcc::new(scale);
    let mut rows = Vec::new();
    for (drive, published_ms) in DRIVES.into_iter().zip(PUBLISHED_MS) {
        let mut factors = Factors::new();
        factors.insert("drive", drive.into());
        if lab.wants(&factors) {
            let row = write_row(lab, &workload, factors, published_ms)?;
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let mut claims = Vec::new();
    if let [disk, flash] = rows.as_slice() {
        let [disk_ms, flash_ms] = PUBLISHED_MS;
        let asked = PublishedRatio {
            says: "time of a write, disk / flash",
            factors: &Factors::new(),
            ours: disk.write_ms / flash.write_ms,
            published: Some(disk_ms / flash_ms),
            better: Better::Neither,
            rounds: 1,
        };
        claims.push(judge_unless(lab, asked, disk.not_judged().or_else(|| flash.not_judged()))?);
    }
    tell(lab, &rows, &claims)
}

fn write_row(lab: &Lab<'_>, workload: &Tpcc, factors: Factors, published_ms: f64) -> Result<WriteRow> {
    let scale = lab.scale();
    let pool_bytes = POOL_BYTES.of(scale.is_full());
    let segment_bytes = pool_bytes as u64 / LOG_BYTES_OF_POOL / LOG_SEGMENTS;
    let sizes = Sizes::new(PAGE_BYTES, pool_bytes).with_log(LOG_SEGMENTS, segment_bytes);
    let profile = if factors.get("drive") == Some(&DISK.into()) { "hdd-7200" } else { "ssd-2008" };
    let stand = MemoryStand::empty(lab, "rollback", StudiedSpace::Rollback, sizes)?;
    stand.load(workload)?;
    let opened = stand.open(profile)?;
    let target = opened.target(profile);
    let plan = Plan {
        threads: lab.clients(&[CLIENTS], &[CLIENTS]).into_iter().next_back().unwrap_or(CLIENTS),
        rounds: 1,
        seconds: scale.round_ms.div_ceil(1000),
        warm_seconds: scale.warm_ms.div_ceil(1000),
    };
    let run = |ms: u64, seed: u64| driver::round(&target, workload, plan, Duration::from_millis(ms), seed);
    if scale.warm_ms > 0 {
        run(scale.warm_ms, 2)?;
    }
    let merges = || opened.drive.as_ref().map_or(0, |drive| drive.merges().merges);
    let merges_before = merges();
    opened.account.observe(false, TRACE_MAX);
    let begin = opened.begin();
    let done = run(scale.round_ms, 3)?;
    let (used, report) = (opened.since(&begin), opened.report());
    let (entries, _) = opened.account.trace().take();
    opened.account.observe(false, 0);
    let order = WriteOrder::of(&entries);
    let requests = used.written.operations + used.read.operations;
    let busy_ms = report.as_ref().map_or(0.0, |report| 1e3 * report.busy_share * used.seconds);
    let Subject { experiment, figure } = lab.subject();
    let row = WriteRow {
        row: "rollback-write",
        experiment,
        figure,
        factors,
        scale: format!("{}, TPC-C in memory", scale.name),
        tps: done.tps(),
        write_ms: busy_ms / requests.max(1) as f64,
        reads: used.read.operations,
        published_ms,
        order,
        merges: merges() - merges_before,
        trace: DrawnTrace::of(&entries, Space::Rollback),
        emulation: opened.emulation(),
    };
    drop(target);
    opened.close()?;
    Ok(row)
}

fn tell(lab: &mut Lab<'_>, rows: &[WriteRow], claims: &[Claim]) -> Result<()> {
    let mut table = TextTable::headed(&[
        "drive",
        "profile",
        "tps",
        "writes",
        "reads",
        "ms a request",
        "Lee",
        "appended %",
        "sequential %",
        "again %",
        "extents",
        "merges",
        "busy %",
    ]);
    for row in rows {
        let of = |figure: fn(&Emulation) -> String| row.emulation.as_ref().map_or_else(String::new, figure);
        let WriteOrder { writes, appended_share, sequential_share, again_share, extents } = row.order;
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        table.push(vec![
            row.factors.get("drive").map_or_else(String::new, tell::plain),
            of(|one| format!("emulated {}", one.profile)),
            format!("{:.0}", row.tps),
            writes.to_string(),
            row.reads.to_string(),
            format!("{:.2}", row.write_ms),
            format!("{}", row.published_ms),
            percent(appended_share),
            percent(sequential_share),
            percent(again_share),
            extents.to_string(),
            row.merges.to_string(),
            of(|one| format!("{:.1}", 100.0 * one.busy_share)),
        ]);
    }
    lab.say(&format!("\n{table}\n{}", tell::claims(claims)))
}
