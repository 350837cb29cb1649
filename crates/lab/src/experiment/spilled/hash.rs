//! The experiment `hash-pattern`: time and address of the requests of a hash join (Lee 2008, section 6.2,
//! figure 8).
//!
//! Two tables of 200 MB are joined with a buffer of 2 MB. The tables are not on the drive of the temporary
//! space, so only its requests are counted. Nothing is scaled, because a smaller buffer would have no memory
//! for as many partitions, and each partition would be divided again.

use std::sync::Arc;

use serde::Serialize;
use varve_bench::{BenchError, Result};
use varve_device::thread_cpu_ns;
use varve_spill::{
    BlockIo, DriveTimes, InputSize, Join, JoinInput, JoinKind, JoinMethod, JoinOutput, JoinSettings, Joined,
    MemoryBudget, PartitionFiles, Side,
};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Emulation, Factors, Subject};
use super::super::scale::Scale;
use super::super::table::TextTable;
use super::super::tell;
use super::super::trace::DrawnTrace;
use super::super::verdict::Better;
use super::bed::{DriveKind, HeapShape, LEE_DRIVES, SpillBed, refused, scattered};
use super::judge::ClaimPlace;
use super::traced::{self, RequestOrder};

/// Rows of each table, and bytes of a row without its key.
const ROWS: u64 = 2_000_000;
const PAYLOAD_BYTES: usize = 88;
const BUFFER_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 2 << 10;
const FULL_PERCENT: usize = 100;
/// The published ratio: 661.1 s on the disk, 226.0 s on flash (section 6.2).
const PUBLISHED_S: [f64; 2] = [661.1, 226.0];

#[derive(Debug, Serialize)]
struct HashRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    scale: String,
    first_io_s: f64,
    second_io_s: f64,
    processor_s: f64,
    /// Seconds of the whole join in the publication.
    published_s: f64,
    order: RequestOrder,
    trace: DrawnTrace,
    emulation: Option<Emulation>,
}

struct ResultCounter<'a> {
    bed: &'a SpillBed,
    rows: u64,
    first_io: f64,
}

impl JoinOutput for ResultCounter<'_> {
    fn joined(&mut self, _row: Joined<'_>) -> varve_spill::Result<()> {
        self.rows += 1;
        Ok(())
    }

    fn second_phase(&mut self) {
        self.first_io = self.bed.io_s();
    }
}

/// Returns the number by which the tables and the buffer are divided. It is greater than 1 only in tests.
fn divisor(scale: Scale) -> u64 {
    if scale.name == Scale::TINY.name { 32 } else { 1 }
}

/// Runs the experiment `hash-pattern`.
pub fn hash_pattern(lab: &mut Lab<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for (drive, published_s) in DriveKind::BOTH.into_iter().zip(PUBLISHED_S) {
        let factors = Factors::from([("drive", drive.name().into())]);
        if lab.wants(&factors) {
            let row = measure(lab, drive, published_s)?;
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let claims: Vec<Claim> =
        claims(&rows).into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

fn measure(lab: &Lab<'_>, drive: DriveKind, published_s: f64) -> Result<HashRow> {
    let divisor = divisor(lab.scale());
    let profile = LEE_DRIVES.profile(drive)?;
    let bed = SpillBed::new(profile.clone(), traced::dilation(lab.scale()))?;
    let tables = SpillBed::new(profile, 1.0)?;
    let rows = ROWS / divisor;
    let shape =
        HeapShape { page_bytes: PAGE_BYTES, fill_percent: FULL_PERCENT, rows, payload_bytes: PAYLOAD_BYTES };
    let heap = |salt| {
        let key = move |number: u64| scattered((number + salt) % rows);
        tables.heap_file(shape, key)
    };
    let (mut build, mut probe) = (heap(0)?, heap(rows / 2)?);
    let size = InputSize { rows, bytes: build.bytes() };
    let join = join(&bed, BUFFER_BYTES / divisor as usize);
    let mut counter = ResultCounter { bed: &bed, rows: 0, first_io: 0.0 };
    traced::begin(&bed);
    bed.begin();
    let processor_ns = thread_cpu_ns();
    let build = JoinInput { source: &mut build, size };
    let probe = JoinInput { source: &mut probe, size };
    join.run(build, probe, &mut counter).map_err(refused)?;
    let processor_s = (thread_cpu_ns() - processor_ns) as f64 / 1e9;
    let (io_s, emulation) = (bed.io_s(), bed.end());
    if counter.rows != rows {
        return Err(BenchError::Wrong(format!("{} results of {rows} pairs", counter.rows)));
    }
    let (order, trace) = traced::end(&bed);
    let Subject { experiment, figure } = lab.subject();
    Ok(HashRow {
        row: "hash-pattern",
        experiment,
        figure,
        factors: Factors::from([("drive", drive.name().into())]),
        scale: format!("{}, two tables of {rows} rows", lab.scale().name),
        first_io_s: counter.first_io,
        second_io_s: io_s - counter.first_io,
        processor_s,
        published_s,
        order,
        trace,
        emulation,
    })
}

/// Returns a Grace join whose partitions share one file, which is what the publication saw.
fn join(bed: &SpillBed, buffer_bytes: usize) -> Join {
    Join {
        space: Arc::clone(bed.space()),
        memory: MemoryBudget::new(buffer_bytes),
        settings: JoinSettings {
            page_bytes: PAGE_BYTES,
            io: BlockIo::Blocked,
            partition_files: PartitionFiles::Shared,
            times: DriveTimes::DISK,
        },
        method: JoinMethod::Grace,
        kind: JoinKind::Inner,
        build: Side::Left,
    }
}

fn claims(rows: &[HashRow]) -> Vec<Claim> {
    let at = |row: &HashRow| ClaimPlace { factors: row.factors.clone(), rounds: 1 };
    let mut claims: Vec<Claim> = rows.iter().flat_map(|row| row.order.claims(&at(row))).collect();
    if let [disk, flash] = rows {
        let io_s = |row: &HashRow| row.first_io_s + row.second_io_s;
        let [on_disk, on_flash] = PUBLISHED_S;
        let both = ClaimPlace { factors: Factors::new(), rounds: 1 };
        let (says, ours) = ("I/O time of the join, disk / flash", io_s(disk) / io_s(flash));
        claims.push(both.published(says, ours, on_disk / on_flash, Better::Higher));
    }
    claims
}

fn table(rows: &[HashRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "drive",
        "I/O of partitioning s",
        "I/O of joining s",
        "processor s",
        "Lee s",
        "writes",
        "sequential %",
        "reads",
        "sequential %",
        "model error %",
    ]);
    for row in rows {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        table.push(vec![
            row.factors.get("drive").map_or_else(String::new, tell::plain),
            format!("{:.1}", row.first_io_s),
            format!("{:.1}", row.second_io_s),
            format!("{:.1}", row.processor_s),
            row.published_s.to_string(),
            row.order.writes.to_string(),
            percent(row.order.sequential_writes_share),
            row.order.reads.to_string(),
            percent(row.order.sequential_reads_share),
            row.emulation.as_ref().map_or_else(String::new, |one| percent(one.model_error_share)),
        ]);
    }
    table
}
