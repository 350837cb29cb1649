//! Do 2012, chapter 4: from one peak to the next. A warm database is shut down, or stopped as by a crash; how long it takes until it is open again,
//! and until its throughput is what it was.
//!
//! 1. The drives take their time from the peak before to the peak after, shutdown and recovery among it; only the warm-up before has none.
//! 2. A crash is a database that is let go of: what was in memory is lost, files stay as they are.
//! 3. What takes longer than the longest ramp-up is told as that, and no ratio is made of it.
//!
//! Not known here: what a scheme keeps.

use std::time::{Duration, Instant};

use serde::Serialize;
use varve_device::EmulationReport;
use varve_pager::{FlashDesign, FlashRestart};

use super::claim::Claim;
use super::device::Device;
use super::flash::{self, TPCC};
use super::lab::Lab;
use super::row::{Emulation, Factors};
use super::stand::{Opened, Stand, Variant};
use super::table::Table;
use super::tell;
use super::verdict::Verdict;
use super::warm;
use crate::Result;
use crate::driver::{self, Plan};
use crate::embedded::Embedded;
use crate::workload::Workload;

/// Sessions.
const SESSIONS: usize = 64;
/// Database, in units.
const UNITS: u64 = 200;
/// Milliseconds of the peak before, and of the longest ramp-up after, are rounds and this many of them.
const PEAK_MS: (u64, u64) = (20_000, 60_000);
const SETTLE_MS: (u64, u64) = (10_000, 60_000);
const RAMP_UP_ROUNDS: u32 = 12;
/// Throughput is looked at so often.
const SLICE_MS: u64 = 4_000;
/// Throughput is back when it is this part of what it was, twice.
const PEAK: f64 = 0.9;
/// Part of its throughput that a database keeps whose cache outlives a restart.
const BAR: f64 = 0.98;

/// How a database ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Shutdown,
    Crash,
}

impl Stop {
    const ALL: [Stop; 2] = [Stop::Shutdown, Stop::Crash];

    fn name(self) -> &'static str {
        match self {
            Stop::Shutdown => "shutdown",
            Stop::Crash => "crash",
        }
    }
}

/// From peak to peak, in seconds of the drives.
#[derive(Debug, Serialize)]
struct RestartRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// Transactions a second before.
    peak_tps: f64,
    shutdown_seconds: f64,
    recovery_seconds: f64,
    /// Missing if throughput wasn't back before the longest ramp-up was over.
    ramp_up_seconds: Option<f64>,
    /// All three, or at least so long.
    peak_to_peak_seconds: f64,
    /// Transactions a second after, slice by slice.
    tps: Vec<f64>,
    warmth: Option<warm::Warmth>,
    emulation: Option<Emulation>,
}

impl RestartRow {
    /// Why nothing may be concluded from it.
    fn not_judged(&self) -> Option<String> {
        match &self.emulation {
            None => Some("no device was emulated".to_owned()),
            Some(emulation) => (!emulation.counts).then(|| emulation.spoilt()),
        }
    }
}

/// What is stopped and started.
struct Case<'a> {
    stand: &'a Stand,
    device: &'a Device,
    workload: &'a dyn Workload,
    clients: usize,
    dilation: f64,
}

impl Case<'_> {
    fn plan(&self) -> Plan {
        Plan { threads: self.clients, rounds: 1, seconds: 0, warm_seconds: 0 }
    }

    fn dilated(&self, ms: u64) -> Duration {
        Duration::from_millis(ms).mul_f64(self.dilation)
    }

    /// Seconds of the drives.
    fn seconds(&self, since: Instant) -> f64 {
        since.elapsed().as_secs_f64() / self.dilation
    }

    fn target(&self, opened: &Opened) -> Embedded {
        Embedded::new(opened.database.clone(), "")
    }

    /// Transactions a second of the drives' time.
    fn rate(&self, target: &Embedded, ms: u64, seed: u64) -> Result<f64> {
        let round = driver::round(target, self.workload, self.plan(), self.dilated(ms), seed)?;
        Ok(round.tps() * self.dilation)
    }

    /// Slices until throughput is back, and when that was.
    fn ramp_up(&self, opened: &Opened, (peak, longest_ms): (f64, u64)) -> Result<(Vec<f64>, Option<f64>)> {
        let (target, began, mut tps) = (self.target(opened), Instant::now(), Vec::new());
        for slice in 0..longest_ms.div_ceil(SLICE_MS) {
            tps.push(self.rate(&target, SLICE_MS.min(longest_ms), 1_000 + slice)?);
            if let [.., last_but_one, last] = tps.as_slice()
                && last_but_one.min(*last) >= PEAK * peak
            {
                return Ok((tps, Some(self.seconds(began))));
            }
        }
        Ok((tps, None))
    }

    fn run(&self, stop: Stop, (settle_ms, peak_ms): (u64, u64)) -> Result<RestartRow> {
        let opened = self.stand.open(self.device, self.dilation)?;
        let target = self.target(&opened);
        let load = (self.workload, self.plan());
        let warm = |transactions| warm::up(&opened, &target, load, (transactions, 0));
        let warmth = self.stand.variant.warm_transactions().map(warm).transpose()?;
        opened.take_times(true);
        if settle_ms > 0 {
            self.rate(&target, settle_ms, 1)?;
        }
        begin_reports(&opened);
        let peak_tps = self.rate(&target, peak_ms, 2)?;
        drop(target);
        let began = Instant::now();
        if stop == Stop::Shutdown {
            opened.database.shutdown()?;
        }
        let shutdown_seconds = if stop == Stop::Shutdown { self.seconds(began) } else { 0.0 };
        let before = reports(&opened);
        drop(opened);
        let began = Instant::now();
        let opened = self.stand.open_at_once(self.device, self.dilation)?;
        let recovery_seconds = self.seconds(began);
        let longest_ms = peak_ms * u64::from(RAMP_UP_ROUNDS);
        let (tps, ramp_up_seconds) = self.ramp_up(&opened, (peak_tps, longest_ms))?;
        let after = reports(&opened);
        opened.take_times(false);
        opened.database.shutdown()?;
        let at_least = ramp_up_seconds.unwrap_or(longest_ms as f64 / 1000.0);
        Ok(RestartRow {
            row: "restart",
            experiment: "",
            figure: "",
            factors: Factors::new(),
            peak_tps,
            shutdown_seconds,
            recovery_seconds,
            ramp_up_seconds,
            peak_to_peak_seconds: shutdown_seconds + recovery_seconds + at_least,
            tps,
            warmth,
            emulation: Emulation::of_drives(&[before, after], self.device.flush_us()),
        })
    }
}

fn begin_reports(opened: &Opened) {
    opened.drives.iter().filter_map(|drive| drive.emulated.as_ref()).for_each(|drive| drive.begin_report());
}

fn reports(opened: &Opened) -> Vec<(&'static str, EmulationReport)> {
    let drives = opened.drives.iter();
    drives.filter_map(|drive| Some((drive.name, drive.emulated.as_ref()?.report()))).collect()
}

fn variants(lab: &Lab<'_>) -> Vec<Variant> {
    let mut variants = vec![flash::baseline(lab, &TPCC).with("scheme", FlashRestart::None.name())];
    for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        variants.extend(FlashRestart::ALL.map(|restart| flash::kept(lab, &TPCC, design, restart)));
    }
    variants
}

/// Figures 4.11 and 4.12: from peak to peak.
pub fn restart(lab: &mut Lab<'_>) -> Result<()> {
    flash::begin(lab, (PEAK_MS, SETTLE_MS))?;
    let (workload, device) = (TPCC.load(lab, UNITS)?, flash::drives(lab)?);
    let mut rows = Vec::new();
    for stop in Stop::ALL {
        let shared = Factors::from([("stop", stop.name().into())]);
        if !lab.wants(&shared) {
            continue;
        }
        for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
            for stand in lab.stands(&*workload, flash::sizes(lab), &variants(lab))? {
                let lengths = (lab.scale().warm_ms, lab.scale().round_ms);
                let case =
                    Case { stand: &stand, device: &device, workload: &*workload, clients, dilation: 1.0 };
                let (experiment, figure) = lab.subject();
                let mut factors = shared.clone();
                factors.extend(stand.variant.factors.clone());
                factors.insert("clients", clients.into());
                let row = RestartRow { experiment, figure, factors, ..case.run(stop, lengths)? };
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
    }
    let claims = claim_schemes(lab, &rows)?;
    tell_rows(lab, &rows, &claims)
}

/// What a scheme gains from peak to peak, and what it costs at the peak.
fn claim_schemes(lab: &mut Lab<'_>, rows: &[RestartRow]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for row in rows.iter().filter(|row| row.factors.get("scheme") != Some(&FlashRestart::None.name().into()))
    {
        let mut factors = row.factors.clone();
        factors.insert("scheme", FlashRestart::None.name().into());
        let Some(none) = rows.iter().find(|other| other.factors == factors) else { continue };
        let spoilt = row.not_judged().or_else(|| none.not_judged());
        let at_peak = row.peak_tps / none.peak_tps;
        let verdict = spoilt.map_or_else(|| Verdict::at_least(BAR, at_peak), Verdict::NotJudged);
        let gain = none.peak_to_peak_seconds / row.peak_to_peak_seconds;
        let sign = if none.ramp_up_seconds.is_some() { "" } else { ", at least" };
        for (says, ours, bar, verdict) in [
            (format!("peak to peak without / with it{sign}"), gain, None, Verdict::NoBar),
            ("throughput with it / without".to_owned(), at_peak, Some(BAR), verdict),
        ] {
            let ((experiment, figure), factors) = (lab.subject(), row.factors.clone());
            let (row, rounds, published) = ("claim", Some(1), None);
            let claim =
                Claim { row, experiment, figure, factors, says, ours, rounds, published, bar, verdict };
            lab.write_row(&claim)?;
            claims.push(claim);
        }
    }
    Ok(claims)
}

fn tell_rows(lab: &mut Lab<'_>, rows: &[RestartRow], claims: &[Claim]) -> Result<()> {
    let head = [
        "stop",
        "scheme",
        "design",
        "peak tps",
        "shutdown s",
        "recovery s",
        "ramp-up s",
        "peak to peak s",
        "steady",
        "counts",
        "tps after",
    ];
    let mut table = Table::headed(&head);
    for row in rows {
        let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
        let mut line = ["stop", "scheme", "design"].map(factor).to_vec();
        line.extend(
            [row.peak_tps, row.shutdown_seconds, row.recovery_seconds].map(|figure| format!("{figure:.1}")),
        );
        line.push(
            row.ramp_up_seconds.map_or_else(|| "not back".to_owned(), |seconds| format!("{seconds:.1}")),
        );
        let sign = if row.ramp_up_seconds.is_some() { "" } else { "> " };
        line.push(format!("{sign}{:.1}", row.peak_to_peak_seconds));
        let is_steady = row.warmth.as_ref().is_none_or(|warmth| warmth.is_steady);
        line.push(if is_steady { "yes" } else { "no" }.to_owned());
        line.push(match &row.emulation {
            None => "real".to_owned(),
            Some(emulation) if emulation.counts => "yes".to_owned(),
            Some(emulation) => emulation.spoilt(),
        });
        let each: Vec<String> = row.tps.iter().step_by(4).map(|tps| format!("{tps:.0}")).collect();
        line.push(each.join(" "));
        table.push(line);
    }
    lab.say(&format!("\n{table}{}", tell::claims(claims)))
}
