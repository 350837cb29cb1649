//! Measures all queries on all drives, and keeps a row for each.

use serde::Serialize;
use serde_json::Value;
use varve_bench::Result;
use varve_bench::report::Spread;

use super::super::lab::{Attempt, Lab};
use super::super::row::{Emulation, Factors, Subject};
use super::super::scale::{ByScale, Scale};
use super::super::spilled::ClaimPlace;
use super::super::table::TextTable;
use super::super::tell;
use super::bed::{ScanDrive, ScanLayout, ScanQuery, ScanRun, SmartBed};
use super::energy::watts;

/// Rows of the table.
const ROWS: ByScale<u64> = ByScale { quick: 300_000, full: 1_500_000 };
/// The same in tests.
const TINY_ROWS: u64 = 4_000;
/// Rows of the published table.
const PUBLISHED_ROWS: f64 = 600e6;

/// One query of one layout on one drive.
#[derive(Debug, Clone, Serialize)]
pub struct ScanRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    /// Layout, query, percent, drive.
    pub factors: Factors,
    scale: String,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of the query. Times of drives and of the device are modelled.
    pub seconds: Spread,
    /// Seconds for as many rows as the publication has, the median.
    pub published_size_s: f64,
    /// Bytes between the host and its drive or the device, the median.
    pub host_bytes: f64,
    /// Leaves that the device scanned.
    pub device_leaves: u64,
    /// Leaves of a scan in the device that the host had to read.
    deferred_leaves: u64,
    /// Bytes of the database's pages for each row.
    page_bytes_a_row: f64,
    /// Joules of the server and the drive, modelled.
    pub modelled_joules: f64,
    /// The report of the emulation.
    pub emulation: Option<Emulation>,
    #[serde(skip)]
    at: ScanPoint,
}

/// What one row measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanPoint {
    /// The layout of the leaves.
    pub layout: ScanLayout,
    /// The query.
    pub query: ScanQuery,
    /// The drive.
    pub drive: ScanDrive,
}

impl ScanPoint {
    /// Whether a claim needs the point. `pax-dense` only shows what the published rows of a page change.
    fn is_needed(self) -> bool {
        let is_few = self.query == ScanQuery::rows(0.1);
        self.layout != ScanLayout::DensePax
            || is_few && matches!(self.drive, ScanDrive::Flash | ScanDrive::Smart)
    }

    fn factors(self) -> Factors {
        let percent = self.query.percent;
        let percent: Value = if percent.fract() == 0.0 { (percent as u64).into() } else { percent.into() };
        Factors::from([
            ("layout", self.layout.name().into()),
            ("query", self.query.name().into()),
            ("percent", percent),
            ("drive", self.drive.name().into()),
        ])
    }
}

impl ScanRow {
    /// Whether the device scanned the table, also if the planner has chosen this.
    pub fn is_in_device(&self) -> bool {
        self.device_leaves > 0
    }

    /// The place of a claim that compares rows with other values of these factors.
    pub fn claim_place(&self, compared: &[&str]) -> ClaimPlace {
        ClaimPlace::of(&self.factors, compared, self.rounds)
    }

    /// The reason why no time of this row is judged.
    pub fn not_judged(&self) -> Option<String> {
        Emulation::not_judged(self.emulation.as_ref())
    }

    /// The reason why this row is not judged as the slower one of two: its drive did not limit it.
    pub fn idle(&self) -> Option<String> {
        let emulation = self.emulation.as_ref().filter(|emulation| !emulation.device_limits)?;
        let busy = 100.0 * emulation.busy_share;
        Some(format!("drive idle: {busy:.0} % busy under the slower one"))
    }
}

/// All measured rows.
pub struct ScanRows {
    rows: Vec<ScanRow>,
}

/// The number of rows of the table.
fn table_rows(scale: Scale) -> u64 {
    if scale.name == Scale::TINY.name { TINY_ROWS } else { ROWS.of(scale.is_full()) }
}

impl ScanRows {
    /// Measures what the user wants.
    pub fn measure(lab: &mut Lab<'_>) -> Result<Self> {
        let mut rows = Vec::new();
        for layout in ScanLayout::ALL {
            let comparisons = ScanQuery::ALL.map(|query| {
                let all = ScanDrive::ALL.map(|drive| ScanPoint { layout, query, drive });
                all.into_iter()
                    .filter(|point| point.is_needed() && lab.wants(&point.factors()))
                    .collect::<Vec<_>>()
            });
            if comparisons.iter().all(Vec::is_empty) {
                continue;
            }
            let bed = SmartBed::load(lab.empty("smart-scan")?, layout, table_rows(lab.scale()))?;
            for points in comparisons.iter().filter(|points| !points.is_empty()) {
                let runs = lab.dilated(|lab, attempt| compare(lab, &bed, points, attempt))?;
                for (point, runs) in points.iter().zip(&runs) {
                    let row = row_of(lab, &bed, *point, runs);
                    lab.write_row(&row)?;
                    rows.push(row);
                }
            }
        }
        Ok(Self { rows })
    }

    /// The row of a point, if it was measured.
    pub fn at(&self, layout: ScanLayout, query: ScanQuery, drive: ScanDrive) -> Option<&ScanRow> {
        self.rows.iter().find(|row| row.at == ScanPoint { layout, query, drive })
    }

    /// A table of all rows.
    pub fn table(&self) -> TextTable {
        let mut table = TextTable::headed(&[
            "layout",
            "query",
            "%",
            "drive",
            "ms, modelled",
            "s of 600 million rows",
            "page bytes a row",
            "KiB to the host",
            "leaves in the device",
            "left to the host",
            "J, modelled",
            "busy %",
            "counts",
        ]);
        for row in &self.rows {
            let ScanPoint { layout, query, drive } = row.at;
            let busy = row.emulation.as_ref().map(|emulation| format!("{:.0}", 100.0 * emulation.busy_share));
            table.push(vec![
                layout.name().to_owned(),
                query.name().to_owned(),
                query.percent.to_string(),
                drive.name().to_owned(),
                format!("{:.1}", 1e3 * row.seconds.median),
                format!("{:.0}", row.published_size_s),
                format!("{:.0}", row.page_bytes_a_row),
                format!("{:.0}", row.host_bytes / 1024.0),
                row.device_leaves.to_string(),
                row.deferred_leaves.to_string(),
                format!("{:.1}", row.modelled_joules),
                busy.unwrap_or_default(),
                tell::counts(row.emulation.as_ref()),
            ]);
        }
        table
    }
}

/// Measures these points in turns. Returns `None` if a larger dilation is needed.
fn compare(
    lab: &Lab<'_>,
    bed: &SmartBed,
    points: &[ScanPoint],
    attempt: Attempt,
) -> Result<Option<Vec<Vec<ScanRun>>>> {
    let is_last = attempt.is_last || lab.scale().name == Scale::TINY.name;
    let mut all: Vec<Vec<ScanRun>> = points.iter().map(|_| Vec::new()).collect();
    for _ in 0..lab.scale().rounds {
        for (point, runs) in points.iter().zip(&mut all) {
            let run = bed.run(point.query, point.drive, attempt.dilation)?;
            let is_sound = emulation(std::slice::from_ref(&run)).is_some_and(|one| is_sound(*point, &one));
            if !is_sound && !is_last {
                return Ok(None);
            }
            runs.push(run);
        }
    }
    Ok(Some(all))
}

/// Whether the emulation was fast enough for a run. If the planner chooses, it first reads a sample from the
/// drive. Then the query waits for the device. So neither of the two limits the whole run.
fn is_sound(point: ScanPoint, emulation: &Emulation) -> bool {
    emulation.counts && (emulation.device_limits || point.drive == ScanDrive::Planner)
}

fn emulation(runs: &[ScanRun]) -> Option<Emulation> {
    let rounds: Vec<_> = runs.iter().map(|run| run.reports.clone()).collect();
    Emulation::of_drives(&rounds, 0.0)
}

fn row_of(lab: &Lab<'_>, bed: &SmartBed, point: ScanPoint, runs: &[ScanRun]) -> ScanRow {
    let spread = |of: fn(&ScanRun) -> f64| Spread::of(&runs.iter().map(of).collect::<Vec<f64>>());
    let Subject { experiment, figure } = lab.subject();
    let (seconds, rows) = (spread(|run| run.seconds), table_rows(lab.scale()));
    let device_leaves = runs.iter().map(|run| run.device_leaves).min().unwrap_or(0);
    ScanRow {
        row: "smart-scan",
        experiment,
        figure,
        factors: point.factors(),
        scale: format!("{}, a table of {rows} rows, cold pool", lab.scale().name),
        rounds: runs.len(),
        seconds,
        published_size_s: seconds.median * PUBLISHED_ROWS / rows as f64,
        host_bytes: spread(|run| run.host_bytes as f64).median,
        device_leaves,
        deferred_leaves: runs.iter().map(|run| run.deferred_leaves).max().unwrap_or(0),
        page_bytes_a_row: bed.page_bytes_a_row(),
        modelled_joules: seconds.median * watts(point.drive, device_leaves > 0),
        emulation: emulation(runs),
        at: point,
    }
}
