//! Measures the time from a start of the database to the answer of the first query. The database reuses its
//! flash cache (restart scheme lazy verification). Several configurations are measured. They differ in the
//! size of the cache, and in the log budget, which limits how much log a start replays.
//!
//! 1. The warm-up has the same number of transactions for every configuration, whatever the size of its
//!    cache.
//! 2. Each configuration is stopped and started several times, and the result is the median time. Between two
//!    starts, a part of the warm-up is repeated on drives without delays. Then the load runs for a while at
//!    the drives' speed.
//! 3. The time must hardly depend on the size of the cache. With four times the size it may be a fifth
//!    longer, because two measurements of the same configuration can differ by that much.

use serde::Serialize;
use varve_device::EmulationReport;
use varve_pager::{FlashDesign, FlashRestart};

use super::claim::Claim;
use super::device::Device;
use super::flash_kept::{self, CACHE_UNITS, DESIGNS, KeptVariant, LOG_BUDGET_UNITS, SESSIONS, TPCC, UNITS};
use super::flash_stop::{Fate, Ground, Redone, Spoilt, Stop, reports};
use super::lab::{Attempt, Lab};
use super::row::{Emulation, Factors, Subject};
use super::scale::{ByScale, NO_TIME};
use super::stand::Variant;
use super::table::TextTable;
use super::tell;
use super::verdict::{TOLERANCE, Verdict};
use super::warm::Warmth;
use varve_bench::Result;
use varve_bench::report::Spread;
use varve_bench::workload::Workload;

/// Milliseconds of load before each stop. This experiment has no rounds.
const SETTLE_MS: ByScale<u64> = ByScale { quick: 15_000, full: 30_000 };
/// The number of starts that are measured after each kind of stop.
const STARTS: ByScale<usize> = ByScale { quick: 3, full: 5 };
/// The size of the small cache, in units. It is a quarter of the large one.
const SMALL_CACHE_UNITS: u64 = 35;
/// Log budgets of lazy cleaning. Under lazy cleaning, redo must replay the changes that are only in the
/// cache. The budgets are so small that even the small cache has slots for all pages that a log of this
/// length changes.
const LOG_BUDGETS_UNITS: [u64; 2] = [LOG_BUDGET_UNITS / 6, LOG_BUDGET_UNITS / 2];
/// The limit of dirty slots with lazy cleaning, in percent. It is so high that only the log budget limits the
/// number of dirty slots, whatever the size of the cache.
const DIRTY_PERCENT: u8 = 80;

/// The starts of one variant after one kind of stop. Times are seconds of the drives.
#[derive(Debug, Serialize)]
struct FirstQueryRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// Seconds from the beginning of a start to the answer of the first query.
    first_query_seconds: Spread,
    /// Seconds from the beginning of a start until the database was open.
    recovery_seconds: Spread,
    /// Three parts of this time: analysis, opening the levels, and redo. Each is a mean over the starts.
    recovery_parts_seconds: [f64; 3],
    /// Means over the starts: bytes of the log that a start read, and slots of the cache that it reused.
    log_read_bytes: f64,
    restored_pages: f64,
    /// The work of redo in each start.
    redone: Vec<Redone>,
    starts: usize,
    /// The number of further starts, which the emulation spoilt.
    spoilt_starts: u32,
    /// Messages of all stops and starts with this dilation.
    told: Vec<String>,
    warmth: Option<Warmth>,
    emulation: Option<Emulation>,
}

impl FirstQueryRow {
    fn not_judged(&self) -> Option<String> {
        Emulation::not_judged(self.emulation.as_ref())
    }
}

/// The results of one start.
struct Start {
    first_query_seconds: f64,
    recovery_seconds: f64,
    parts_seconds: [f64; 3],
    log_read_bytes: u64,
    restored_pages: u64,
    redone: Redone,
    reports: Vec<(&'static str, EmulationReport)>,
}

/// The starts after one kind of stop.
struct Point {
    stop: Stop,
    starts: Vec<Start>,
    spoilt: Spoilt,
    /// Messages of all starts, including spoilt ones.
    told: Vec<String>,
}

/// The conditions that all starts of a measurement have in common.
#[derive(Clone, Copy)]
struct StartConditions<'a> {
    workload: &'a dyn Workload,
    device: &'a Device,
    clients: usize,
    settle_ms: u64,
    starts: usize,
}

fn variants(lab: &Lab<'_>, design: FlashDesign) -> Vec<Variant> {
    let (budgets_units, dirty_percent): (&[u64], u8) = match design {
        FlashDesign::LazyCleaning => (&LOG_BUDGETS_UNITS, DIRTY_PERCENT),
        _ => (&[LOG_BUDGET_UNITS], TPCC.dirty_percent),
    };
    let mut variants = Vec::new();
    for log_budget_units in budgets_units.iter().copied() {
        for cache_units in [SMALL_CACHE_UNITS, CACHE_UNITS] {
            let kept = KeptVariant::of(&TPCC, design, FlashRestart::LazyVerification);
            let kept = KeptVariant { cache_units, log_budget_units, dirty_percent, ..kept };
            let variant = kept.variant(lab).with("cache", cache_units).with("log budget", log_budget_units);
            variants.push(variant.with("lambda", dirty_percent));
        }
    }
    variants
}

/// Stops and starts the database as often as asked, after each kind of stop. Returns `None` if too many
/// starts were spoilt and a larger dilation may help.
fn starts(
    on: Ground<'_>,
    asked: StartConditions<'_>,
    is_last: bool,
) -> Result<Option<(Vec<Point>, Option<Warmth>)>> {
    let (mut opened, warmth) = on.warmed()?;
    let (mut points, mut rewarmed, mut number) = (Vec::new(), Vec::new(), 0);
    // Crashes are measured first, but their row is the last.
    for stop in Stop::ALL.into_iter().rev() {
        let mut point = Point { stop, starts: Vec::new(), spoilt: Spoilt::default(), told: Vec::new() };
        while point.starts.len() < asked.starts {
            if number > 0 {
                rewarmed.extend(on.warm_again(&opened, number)?);
            }
            on.rate(&opened, asked.settle_ms, 100 + number)?;
            on.stop(&opened, stop)?;
            point.told.extend(opened.database.pager().take_notices());
            drop(opened);
            let started = on.start()?;
            let reports = reports(&started.opened);
            let rounds = std::slice::from_ref(&reports);
            let counts = Emulation::of_drives(rounds, 0.0).is_none_or(|emulation| emulation.counts);
            point.told.extend(started.warnings);
            match point.spoilt.judge(counts, is_last) {
                Fate::Keep => point.starts.push(Start {
                    first_query_seconds: started.first_query_seconds,
                    recovery_seconds: started.recovery_seconds,
                    parts_seconds: started.parts_seconds,
                    log_read_bytes: started.log_read_bytes,
                    restored_pages: started.restored_pages,
                    redone: started.redone,
                    reports,
                }),
                Fate::RunAgain => {}
                Fate::GiveUp => return Ok(None),
            }
            opened = started.opened;
            number += 1;
        }
        points.push(point);
    }
    points.reverse();
    opened.take_times(false);
    opened.database.shutdown()?;
    let is_steady = rewarmed.iter().all(|warmth: &Warmth| warmth.is_steady);
    let warmth = warmth.map(|first| Warmth { is_steady: first.is_steady && is_steady, ..first });
    Ok(Some((points, warmth)))
}

fn row(point: Point, asked: StartConditions<'_>, warmth: &Option<Warmth>) -> FirstQueryRow {
    let Point { stop, starts, spoilt, told } = point;
    let spread = |of: fn(&Start) -> f64| Spread::of(&starts.iter().map(of).collect::<Vec<_>>());
    let mean = |of: &dyn Fn(&Start) -> f64| starts.iter().map(of).sum::<f64>() / starts.len() as f64;
    let reports: Vec<_> = starts.iter().map(|start| start.reports.clone()).collect();
    FirstQueryRow {
        row: "first query",
        experiment: "",
        figure: "",
        factors: Factors::from([("stop", stop.name().into()), ("clients", asked.clients.into())]),
        first_query_seconds: spread(|start| start.first_query_seconds),
        recovery_seconds: spread(|start| start.recovery_seconds),
        recovery_parts_seconds: [0, 1, 2].map(|part| mean(&|start| start.parts_seconds[part])),
        log_read_bytes: mean(&|start| start.log_read_bytes as f64),
        restored_pages: mean(&|start| start.restored_pages as f64),
        redone: starts.iter().map(|start| start.redone).collect(),
        starts: starts.len(),
        spoilt_starts: spoilt.count,
        told,
        warmth: warmth.clone(),
        emulation: Emulation::of_drives(&reports, asked.device.flush_us()),
    }
}

/// Measures all variants of a design. Returns `None` if too many starts were spoilt and a larger dilation may
/// help.
fn rows(
    lab: &Lab<'_>,
    design: FlashDesign,
    asked: StartConditions<'_>,
    Attempt { dilation, is_last }: Attempt,
) -> Result<Option<Vec<FirstQueryRow>>> {
    let StartConditions { workload, device, clients, .. } = asked;
    let mut rows = Vec::new();
    for variant in variants(lab, design) {
        for stand in lab.stands(workload, flash_kept::sizes(lab), &[variant])? {
            let on = Ground { stand: &stand, device, workload, clients, dilation };
            let Some((points, warmth)) = starts(on, asked, is_last)? else { return Ok(None) };
            for point in points {
                let Subject { experiment, figure } = lab.subject();
                let row = row(point, asked, &warmth);
                let mut factors = stand.variant.factors.clone();
                factors.extend(row.factors.clone());
                rows.push(FirstQueryRow { experiment, figure, factors, ..row });
            }
        }
    }
    Ok(Some(rows))
}

/// Measures the time to the first query by size of the cache and by log budget.
pub fn first_query(lab: &mut Lab<'_>) -> Result<()> {
    flash_kept::begin(lab, NO_TIME, SETTLE_MS)?;
    lab.prefer_rounds(STARTS);
    let (workload, device) = (TPCC.load(lab, UNITS)?, flash_kept::drives(lab)?);
    let (mut all, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
        let (settle_ms, starts) = (lab.scale().warm_ms, lab.scale().rounds);
        let asked = StartConditions { workload: &*workload, device: &device, clients, settle_ms, starts };
        for design in DESIGNS {
            let measured = lab.dilated(|lab, attempt| rows(lab, design, asked, attempt))?;
            measured.iter().try_for_each(|row| lab.write_row(row))?;
            claims.extend(claim_times(lab, &measured)?);
            all.extend(measured);
        }
    }
    tell_rows(lab, &all, &claims)
}

/// Returns the pairs of rows that differ only in this factor. The first row of a pair has the value `less`,
/// the second the value `more`.
fn pairs<'r>(
    rows: &'r [FirstQueryRow],
    factor: &'static str,
    [less, more]: [u64; 2],
) -> Vec<[&'r FirstQueryRow; 2]> {
    let is_less = |row: &&FirstQueryRow| row.factors.get(factor).is_some_and(|value| *value == less);
    let pair = |row: &'r FirstQueryRow| {
        let mut factors = row.factors.clone();
        factors.insert(factor, more.into());
        Some([row, rows.iter().find(|other| other.factors == factors)?])
    };
    rows.iter().filter(is_less).filter_map(pair).collect()
}

/// Returns claims that compare the larger cache with the smaller one, which has a bar, and the larger log
/// budget with the smaller one.
fn claim_times(lab: &mut Lab<'_>, rows: &[FirstQueryRow]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let ratio =
        |[less, more]: [&FirstQueryRow; 2]| more.first_query_seconds.median / less.first_query_seconds.median;
    let bar = 1.0 + TOLERANCE;
    for pair @ [less, more] in pairs(rows, "cache", [SMALL_CACHE_UNITS, CACHE_UNITS]) {
        let (ours, spoilt) = (ratio(pair), less.not_judged().or_else(|| more.not_judged()));
        let verdict = spoilt.map_or_else(|| Verdict::at_most(bar, ours), Verdict::NotJudged);
        let says = format!("time to the first query, cache of {CACHE_UNITS} / {SMALL_CACHE_UNITS} units");
        let claim = Claim::found(&more.factors, says, ours).of_rounds(more.starts);
        claims.push(lab.write_claim(claim.judged(bar, verdict))?);
    }
    let [less, more] = LOG_BUDGETS_UNITS;
    for pair @ [_, long] in pairs(rows, "log budget", LOG_BUDGETS_UNITS) {
        let says = format!("time to the first query, log budget of {more} / {less} units");
        claims.push(lab.write_claim(Claim::found(&long.factors, says, ratio(pair)).of_rounds(long.starts))?);
    }
    Ok(claims)
}

fn tell_rows(lab: &mut Lab<'_>, rows: &[FirstQueryRow], claims: &[Claim]) -> Result<()> {
    let head = [
        "design",
        "stop",
        "cache",
        "log budget",
        "lambda",
        "first query s",
        "least",
        "most",
        "open s",
        "analysis, levels, redo s",
        "log read MiB",
        "restored",
        "starts",
        "spoilt",
        "counts",
    ];
    let mut table = TextTable::headed(&head);
    for row in rows {
        let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
        let mut line = ["design", "stop", "cache", "log budget", "lambda"].map(factor).to_vec();
        let Spread { median, min, max } = row.first_query_seconds;
        line.extend([median, min, max, row.recovery_seconds.median].map(|seconds| format!("{seconds:.3}")));
        line.push(row.recovery_parts_seconds.map(|seconds| format!("{seconds:.2}")).join(", "));
        line.push(format!("{:.1}", row.log_read_bytes / f64::from(1 << 20)));
        line.push(format!("{:.0}", row.restored_pages));
        line.extend([row.starts.to_string(), row.spoilt_starts.to_string()]);
        line.push(tell::counts(row.emulation.as_ref()));
        table.push(line);
    }
    lab.say(&format!(
        "\nIn the drives' seconds from the beginning of a start; cache and log budget in units:\n{table}{}",
        tell::claims(claims)
    ))
}
