//! The experiment `sort-pattern`: time and address of the requests of a sort (Lee 2008, figure 6).
//!
//! The publication does not state the cluster of figure 6. Each drive has the cluster that figure 7b uses.

use serde::Serialize;
use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Emulation, Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::trace::DrawnTrace;
use super::super::verdict::Better;
use super::bed::{DriveKind, LEE_DRIVES, SpillBed};
use super::judge::ClaimPlace;
use super::sort::SortSetup;
use super::sort_cluster::BEST_KIB;
use super::traced::{self, RequestOrder};

const BUFFER_MIB: usize = 2;
/// The published ratios (section 6.1): runs take "a comparable amount of time", and merges are "almost an
/// order of magnitude" shorter.
const MERGE_GAIN: f64 = 10.0;

#[derive(Debug, Serialize)]
struct PatternRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    scale: String,
    runs: usize,
    runs_io_s: f64,
    merge_io_s: f64,
    processor_s: f64,
    order: RequestOrder,
    trace: DrawnTrace,
    emulation: Option<Emulation>,
}

/// Runs the experiment `sort-pattern`.
pub fn sort_pattern(lab: &mut Lab<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for (drive, cluster_kib) in DriveKind::BOTH.into_iter().zip(BEST_KIB) {
        let factors = Factors::from([
            ("buffer MiB", BUFFER_MIB.into()),
            ("cluster KiB", cluster_kib.into()),
            ("drive", drive.name().into()),
        ]);
        if lab.wants(&factors) {
            let row = measure(lab, drive, cluster_kib, factors)?;
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let claims: Vec<Claim> =
        claims(&rows).into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

fn measure(lab: &Lab<'_>, drive: DriveKind, cluster_kib: usize, factors: Factors) -> Result<PatternRow> {
    let bed = SpillBed::new(LEE_DRIVES.profile(drive)?, traced::dilation(lab.scale()))?;
    let setup = SortSetup::published(lab.scale(), BUFFER_MIB, cluster_kib);
    traced::begin(&bed);
    let times = setup.run(&bed)?;
    let emulation = bed.end();
    let (order, trace) = traced::end(&bed);
    let Subject { experiment, figure } = lab.subject();
    Ok(PatternRow {
        row: "sort-pattern",
        experiment,
        figure,
        factors,
        scale: setup.scale(lab.scale()),
        runs: times.runs,
        runs_io_s: times.runs_io,
        merge_io_s: times.merge_io,
        processor_s: times.processor,
        order,
        trace,
        emulation,
    })
}

fn claims(rows: &[PatternRow]) -> Vec<Claim> {
    let at = |row: &PatternRow| ClaimPlace { factors: row.factors.clone(), rounds: 1 };
    let mut claims: Vec<Claim> = rows.iter().flat_map(|row| row.order.claims(&at(row))).collect();
    if let [disk, flash] = rows {
        let both = ClaimPlace { factors: Factors::from([("buffer MiB", BUFFER_MIB.into())]), rounds: 1 };
        let ours = disk.runs_io_s / flash.runs_io_s;
        claims.push(both.similar("I/O time of runs, disk / flash", ours));
        let ours = disk.merge_io_s / flash.merge_io_s;
        claims.push(both.published("I/O time of merges, disk / flash", ours, MERGE_GAIN, Better::Higher));
    }
    claims
}

fn table(rows: &[PatternRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "drive",
        "cluster KiB",
        "runs",
        "I/O of runs s",
        "I/O of merges s",
        "processor s",
        "writes",
        "sequential %",
        "reads",
        "sequential %",
        "model error %",
    ]);
    for row in rows {
        let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        table.push(vec![
            factor("drive"),
            factor("cluster KiB"),
            row.runs.to_string(),
            format!("{:.1}", row.runs_io_s),
            format!("{:.1}", row.merge_io_s),
            format!("{:.1}", row.processor_s),
            row.order.writes.to_string(),
            percent(row.order.sequential_writes_share),
            row.order.reads.to_string(),
            percent(row.order.sequential_reads_share),
            row.emulation.as_ref().map_or_else(String::new, |one| percent(one.model_error_share)),
        ]);
    }
    table
}
