//! Repeats chapter 4 of Do 2012: a warm database is stopped by a shutdown or by a crash, and started again.
//! Two times are measured: until the database is open, and until it has its earlier throughput again.
//!
//! 1. The time from peak to peak is the sum of shutdown, recovery and ramp-up. The load starts as soon as the
//!    database is open, and its throughput is sampled at intervals. The ramp-up ends when the mean of a few
//!    samples in a row reaches nine tenths of the earlier throughput. Its end is the middle one of these
//!    samples. One sample would have too few transactions: even at the peak, every fourth sample is below
//!    nine tenths by chance.
//! 2. The ramp-up has a longest permitted time. If a ramp-up takes longer, its result row says so. The ratios
//!    with this time are then only lower bounds, so they cannot miss a goal.
//! 3. All restart schemes that are compared with each other run with the same dilation (the factor on the
//!    drives' times). The dilation is so large that the machine can emulate the drives for all of them.
//! 4. Each configuration is stopped and started several times, and the round with the median time is
//!    reported. A warm start is so short that a single sample is a large part of its time.
//!
//! These few rounds show only roughly what a scheme costs. The experiment `flash-hardening` measures the
//! cost.

use std::ops::ControlFlow;

use serde::Serialize;
use varve_device::EmulationReport;
use varve_pager::{FlashDesign, FlashRestart};

use super::claim::Claim;
use super::device::Device;
use super::drives::HOME;
use super::flash::Mix;
use super::flash_kept::{self, DESIGNS, KeptVariant, SCHEMES, SESSIONS, TPCC, TPCE, UNITS};
use super::flash_stop::{Fate, Ground, Redone, Spoilt, Started, Stop, begin_reports, reports};
use super::lab::{Attempt, Lab};
use super::measure::{mib_per_second, moved_bytes};
use super::row::{Emulation, Factors, Subject};
use super::scale::ByScale;
use super::stand::OpenStand;
use super::table::TextTable;
use super::tell;
use super::verdict::{Better, Verdict};
use super::warm::{CacheState, Warmth};
use varve_bench::Result;
use varve_bench::driver::{self, RoundObserver};
use varve_bench::report::Spread;
use varve_bench::workload::Workload;

/// Milliseconds of load at the peak before a stop, and of the load before that. The longest ramp-up lasts
/// `RAMP_UP_PEAKS` times as long as the load at the peak.
const PEAK_MS: ByScale<u64> = ByScale { quick: 20_000, full: 60_000 };
const SETTLE_MS: ByScale<u64> = ByScale { quick: 10_000, full: 60_000 };
const RAMP_UP_PEAKS: u64 = 15;
/// The number of stops and starts of each configuration.
const ROUNDS: ByScale<usize> = ByScale { quick: 3, full: 5 };
/// The time between two samples of the throughput, in milliseconds of the drives. The thesis samples once a
/// minute, with pool, cache and database about 500 times as large as with `--quick`. So drives of the same
/// speed need about 500 times as long to fill its memory, and the interval is shorter here by about the same
/// factor.
const SLICE_MS: ByScale<u64> = ByScale { quick: 100, full: 500 };
/// The throughput is back if this many samples in a row together have this share of the earlier throughput.
/// The moment is the end of the middle one of these samples.
const SLICES: usize = 5;
const PEAK: f64 = 0.9;

/// The course of one configuration from peak to peak. Times are seconds of the drives.
#[derive(Debug, Serialize)]
struct RestartRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// Transactions per second before the stop.
    peak_tps: f64,
    /// The median of `peak_tps` over all rounds.
    sustained_tps: f64,
    shutdown_seconds: f64,
    recovery_seconds: f64,
    /// Three parts of the recovery: analysis, opening the levels, and redo.
    recovery_parts_seconds: [f64; 3],
    /// Seconds from the beginning of the start to the answer of the first query.
    first_query_seconds: f64,
    /// Seconds until the throughput was back. It is missing if this took longer than the longest ramp-up.
    ramp_up_seconds: Option<f64>,
    /// The sum of shutdown, recovery and ramp-up, or a lower bound of it. The value is that of the round with
    /// the median time, as in all fields that do not say otherwise.
    peak_to_peak_seconds: f64,
    /// The results of all rounds, in the order in which they ran.
    rounds: Vec<Round>,
    /// The number of further rounds, which the emulation spoilt.
    spoilt_rounds: u32,
    /// Transactions per second of each sample after the start.
    tps: Vec<f64>,
    /// MiB per second that were read from and written to the data files: at the peak before the stop, and in
    /// each sample after the start.
    peak_home_mib_per_second: [f64; 2],
    home_mib_per_second: Vec<[f64; 2]>,
    /// Bytes of the log that the start read, and slots of the cache that it reused.
    log_read_bytes: u64,
    restored_pages: u64,
    /// The work of redo.
    redone: Redone,
    /// Messages of all stops and starts with this dilation.
    told: Vec<String>,
    /// The warm-up, and its part that is repeated before each further round.
    warmths: Vec<Warmth>,
    /// The state of the cache at the stop.
    cache: Option<CacheState>,
    emulation: Option<Emulation>,
}

/// The results of one round.
#[derive(Debug, Clone, Copy, Serialize)]
struct Round {
    peak_tps: f64,
    peak_to_peak_seconds: f64,
    is_back: bool,
    /// The share of the cache's slots that were allocated before the stop, in percent.
    filled_percent: Option<f64>,
}

impl Round {
    fn of(row: &RestartRow) -> Round {
        let RestartRow { peak_tps, peak_to_peak_seconds, ramp_up_seconds, cache, .. } = row;
        Round {
            peak_tps: *peak_tps,
            peak_to_peak_seconds: *peak_to_peak_seconds,
            is_back: ramp_up_seconds.is_some(),
            filled_percent: cache.map(|cache| cache.filled_percent),
        }
    }
}

impl RestartRow {
    /// Returns the reason why the round is not judged, if there is one.
    fn not_judged(&self) -> Option<String> {
        Emulation::not_judged(self.emulation.as_ref())
    }

    fn is(&self, factor: &str, value: &str) -> bool {
        self.factors.get(factor).is_some_and(|found| found == value)
    }
}

/// Samples of the throughput after a start.
#[derive(Default)]
struct Ramp {
    last: (f64, u64),
    last_home: [u64; 2],
    /// The ends of the samples, in seconds of the drives since the database was open.
    seconds: Vec<f64>,
    tps: Vec<f64>,
    home: Vec<[f64; 2]>,
}

impl Ramp {
    fn look(&mut self, seconds: f64, transactions: u64, home: [u64; 2]) {
        let (last_seconds, last_transactions) = self.last;
        self.home.push(mib_per_second(self.last_home, home, seconds - last_seconds));
        self.last_home = home;
        self.seconds.push(seconds);
        self.tps.push((transactions - last_transactions) as f64 / (seconds - last_seconds).max(1e-3));
        self.last = (seconds, transactions);
    }

    /// Returns the moment at which the throughput was back at this peak.
    fn back(&self, peak: f64) -> Option<f64> {
        let is_back = |slices: &[f64]| slices.iter().sum::<f64>() >= PEAK * peak * SLICES as f64;
        let first = self.tps.windows(SLICES).position(is_back)?;
        self.seconds.get(first + SLICES / 2).copied()
    }
}

/// Returns the bytes that were read from and written to the data files so far.
fn home_bytes(opened: &OpenStand) -> [u64; 2] {
    let home = opened.drives.iter().find(|drive| drive.name == HOME);
    home.map(|drive| moved_bytes(&drive.account)).unwrap_or_default()
}

/// Lengths of the parts of a round, in milliseconds of the drives, and the number of rounds.
#[derive(Clone, Copy)]
struct Lengths {
    settle: u64,
    peak: u64,
    slice: u64,
    rounds: usize,
}

impl Lengths {
    fn of(lab: &Lab<'_>) -> Lengths {
        let (settle, peak, rounds) = (lab.scale().warm_ms, lab.scale().round_ms, lab.scale().rounds);
        let slice = SLICE_MS.of(lab.scale().is_full());
        Lengths { settle, peak, slice, rounds }
    }
}

/// Runs the load from the moment at which the database is open, and takes samples until the throughput is
/// back.
fn ramp_up(on: Ground<'_>, started: &Started, peak: f64, lengths: Lengths, seed: u64) -> Result<Ramp> {
    let looks = (lengths.peak * RAMP_UP_PEAKS).div_ceil(lengths.slice).max(SLICES as u64);
    let mut ramp = Ramp { last_home: home_bytes(&started.opened), ..Ramp::default() };
    let mut look = |done: &dyn Fn() -> u64| {
        ramp.look(on.seconds(started.at), done(), home_bytes(&started.opened));
        if ramp.back(peak).is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let watch = RoundObserver { looks: looks as u32, look: &mut look };
    let (target, length) = (on.target(&started.opened), on.dilated(looks * lengths.slice));
    driver::round_watched(&target, on.workload, on.plan(), length, seed, Some(watch))?;
    Ok(ramp)
}

/// Runs all rounds of a configuration. Returns the round with the median time from peak to peak, or `None` if
/// too many rounds were spoilt and a larger dilation may help.
fn run(on: Ground<'_>, stop: Stop, lengths: Lengths, is_last: bool) -> Result<Option<RestartRow>> {
    let (mut opened, warmth) = on.warmed()?;
    let (mut rows, mut spans, mut warmths) = (Vec::new(), Vec::new(), Vec::from_iter(warmth));
    let (mut told, mut spoilt) = (Vec::new(), Spoilt::default());
    for number in 0.. {
        let ((mut row, of_row), started) = round(on, (opened, stop), lengths, number)?;
        opened = started;
        told.append(&mut row.told);
        let counts = emulation(&of_row, on.device).is_none_or(|emulation| emulation.counts);
        match spoilt.judge(counts, is_last) {
            Fate::Keep => {
                rows.push(row);
                spans.extend(of_row);
            }
            Fate::RunAgain => {}
            Fate::GiveUp => return Ok(None),
        }
        if rows.len() == lengths.rounds {
            break;
        }
        warmths.extend(on.warm_again(&opened, number + 1)?);
    }
    opened.take_times(false);
    opened.database.shutdown()?;
    let rounds = rows.iter().map(Round::of).collect::<Vec<_>>();
    let sustained_tps = Spread::of(&rounds.iter().map(|round| round.peak_tps).collect::<Vec<_>>()).median;
    rows.sort_by(|one, other| one.peak_to_peak_seconds.total_cmp(&other.peak_to_peak_seconds));
    // If the number of rounds is even, this is the slower one of the two in the middle.
    let middle = rows.swap_remove(rows.len() / 2);
    let (emulation, spoilt_rounds) = (emulation(&spans, on.device), spoilt.count);
    Ok(Some(RestartRow { sustained_tps, rounds, spoilt_rounds, told, warmths, emulation, ..middle }))
}

/// The reports of the drives' emulations for an interval.
type Span = Vec<(&'static str, EmulationReport)>;

/// Runs one round: a stop, a start, and the ramp-up. Returns its row, the drives' reports until the stop and
/// since the start, and the database, which is open again.
fn round(
    on: Ground<'_>,
    (opened, stop): (OpenStand, Stop),
    lengths: Lengths,
    number: u64,
) -> Result<((RestartRow, [Span; 2]), OpenStand)> {
    on.rate(&opened, lengths.settle, 10 * number + 1)?;
    begin_reports(&opened);
    let home = home_bytes(&opened);
    let peak_tps = on.rate(&opened, lengths.peak, 10 * number + 2)?;
    let peak_home_mib_per_second = mib_per_second(home, home_bytes(&opened), lengths.peak as f64 / 1e3);
    let cache = CacheState::of(&opened.database);
    let shutdown_seconds = on.stop(&opened, stop)?;
    let before = reports(&opened);
    let mut told = opened.database.pager().take_notices();
    drop(opened);
    let started = on.start()?;
    told.extend(started.warnings.iter().cloned());
    let ramp = ramp_up(on, &started, peak_tps, lengths, 10 * number + 3)?;
    let after = reports(&started.opened);
    let ramp_up_seconds = ramp.back(peak_tps);
    let at_least = ramp_up_seconds.unwrap_or(ramp.last.0);
    let Started {
        opened,
        recovery_seconds,
        parts_seconds,
        first_query_seconds,
        log_read_bytes,
        restored_pages,
        redone,
        ..
    } = started;
    let row = RestartRow {
        row: "restart",
        experiment: "",
        figure: "",
        factors: Factors::new(),
        peak_tps,
        sustained_tps: peak_tps,
        shutdown_seconds,
        recovery_seconds,
        recovery_parts_seconds: parts_seconds,
        first_query_seconds,
        ramp_up_seconds,
        peak_to_peak_seconds: shutdown_seconds + recovery_seconds + at_least,
        rounds: Vec::new(),
        spoilt_rounds: 0,
        tps: ramp.tps,
        peak_home_mib_per_second,
        home_mib_per_second: ramp.home,
        log_read_bytes,
        restored_pages,
        redone,
        told,
        warmths: Vec::new(),
        cache,
        emulation: None,
    };
    Ok(((row, [before, after]), opened))
}

fn emulation(reports: &[Span], device: &Device) -> Option<Emulation> {
    Emulation::of_drives(reports, device.flush_us())
}

/// The configurations that differ only in their restart scheme.
#[derive(Clone, Copy)]
struct Group<'a> {
    mix: &'static Mix,
    workload: &'a dyn Workload,
    device: &'a Device,
    design: FlashDesign,
    stop: Stop,
    clients: usize,
}

impl Group<'_> {
    /// Measures all schemes. Returns `None` if one of them was spoilt and a larger dilation may help. The
    /// fastest scheme is spoilt most easily, so it is measured first.
    fn rows(self, lab: &Lab<'_>, Attempt { dilation, is_last }: Attempt) -> Result<Option<Vec<RestartRow>>> {
        let Group { mix, workload, device, design, stop, clients } = self;
        let lengths = Lengths::of(lab);
        let mut rows = Vec::new();
        for scheme in SCHEMES.into_iter().rev() {
            let variant = KeptVariant::of(mix, design, scheme).variant(lab);
            for stand in lab.stands(workload, flash_kept::sizes(lab), &[variant])? {
                let on = Ground { stand: &stand, device, workload, clients, dilation };
                let Some(row) = run(on, stop, lengths, is_last)? else { return Ok(None) };
                let Subject { experiment, figure } = lab.subject();
                let mut factors = stand.variant.factors.clone();
                factors.extend([
                    ("workload", mix.name.into()),
                    ("stop", stop.name().into()),
                    ("clients", clients.into()),
                ]);
                rows.push(RestartRow { experiment, figure, factors, ..row });
            }
        }
        rows.reverse();
        Ok(Some(rows))
    }
}

/// Repeats figures 4.11, 4.12, 4.14 and 4.15: the time from peak to peak.
pub fn restart(lab: &mut Lab<'_>) -> Result<()> {
    flash_kept::begin(lab, PEAK_MS, SETTLE_MS)?;
    lab.prefer_rounds(ROUNDS);
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    for mix in [&TPCC, &TPCE] {
        if lab.wants(&Factors::from([("workload", mix.name.into())])) {
            restart_mix(lab, mix, &mut rows, &mut claims)?;
        }
    }
    tell_rows(lab, &rows, &claims)
}

fn restart_mix(
    lab: &mut Lab<'_>,
    mix: &'static Mix,
    rows: &mut Vec<RestartRow>,
    claims: &mut Vec<Claim>,
) -> Result<()> {
    let (workload, device) = (mix.load(lab, UNITS)?, flash_kept::drives(lab)?);
    for (design, stop) in DESIGNS.into_iter().flat_map(|design| Stop::ALL.map(|stop| (design, stop))) {
        let factors = Factors::from([("design", design.name().into()), ("stop", stop.name().into())]);
        if !lab.wants(&factors) {
            continue;
        }
        for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
            let group = Group { mix, workload: &*workload, device: &device, design, stop, clients };
            let measured = lab.dilated(|lab, attempt| group.rows(lab, attempt))?;
            measured.iter().try_for_each(|row| lab.write_row(row))?;
            claims.extend(claim_schemes(lab, mix, design, stop, &measured)?);
            rows.extend(measured);
        }
    }
    Ok(())
}

/// Returns the bars of this project for the time from peak to peak with lazy verification. They hold for both
/// workloads, after a shutdown and after a crash. With dual-write the bar is the largest ratio that the
/// thesis measured for any scheme. The published value is shown beside the bar.
fn bar(design: FlashDesign, scheme: FlashRestart) -> Option<f64> {
    match (scheme, design) {
        (FlashRestart::LazyVerification, FlashDesign::DualWrite) => Some(3.8),
        (FlashRestart::LazyVerification, FlashDesign::LazyCleaning) => Some(2.5),
        _ => None,
    }
}

/// Returns the ratio of the times from peak to peak that the thesis states in its text, as the ends of a
/// range. It depends on scheme, design, workload and kind of stop (sections 4.4.2.2 and 4.4.3.2).
fn published_gain(mix: &Mix, scheme: FlashRestart, design: FlashDesign, stop: Stop) -> Option<(f64, f64)> {
    use FlashRestart::{LazyVerification, LogBased, MemoryMapped};
    let is_dual = design == FlashDesign::DualWrite;
    let is_tpce = mix.name == TPCE.name;
    match (is_tpce, stop, scheme) {
        (false, Stop::Shutdown, _) if is_dual => Some((3.5, 3.5)),
        (false, Stop::Shutdown, MemoryMapped) => Some((2.8, 2.8)),
        (false, Stop::Shutdown, _) => Some((1.4, 1.5)),
        (false, Stop::Crash, _) => Some((1.3, 1.8)),
        (true, Stop::Shutdown, _) if is_dual => Some((3.8, 3.8)),
        (true, Stop::Shutdown, _) => Some((3.4, 3.4)),
        (true, Stop::Crash, MemoryMapped) if is_dual => Some((3.5, 3.5)),
        (true, Stop::Crash, MemoryMapped) => Some((3.2, 3.2)),
        (true, Stop::Crash, LazyVerification) => Some((2.4, 2.4)),
        (true, Stop::Crash, LogBased) if is_dual => Some((2.4, 3.5)),
        (true, Stop::Crash, LogBased) => Some((2.4, 3.2)),
        (true, Stop::Crash, _) => None,
    }
}

/// Returns the sustained throughput of a scheme, divided by that of the scheme `none`, as the thesis states
/// it for TPC-C (section 4.4.2.1). The thesis has no value for TPC-E or for lazy verification.
pub(super) fn published_throughput(design: FlashDesign, scheme: FlashRestart) -> Option<(f64, f64)> {
    match (scheme, design) {
        (FlashRestart::MemoryMapped, FlashDesign::DualWrite) => Some((0.62, 0.62)),
        (FlashRestart::MemoryMapped, FlashDesign::LazyCleaning) => Some((0.46, 0.46)),
        (FlashRestart::LogBased, _) => Some((0.93, 0.95)),
        _ => None,
    }
}

/// Compares the figure of a claim with a published range. The claim shows the lower end of the range.
pub(super) fn held(claim: Claim, published: Option<(f64, f64)>, spoilt: Option<String>) -> Claim {
    let verdict = match (published, spoilt) {
        (None, _) => Verdict::NotInText,
        (Some(_), Some(reason)) => Verdict::NotJudged(reason),
        (Some(range), None) => Verdict::within(claim.ours, range, Better::Higher),
    };
    let published = published.map(|(least, _)| least);
    Claim { published, verdict, ..claim }
}

/// Returns claims about each scheme: how much faster it gets from peak to peak, and how much throughput it
/// costs at the peak.
fn claim_schemes(
    lab: &mut Lab<'_>,
    mix: &Mix,
    design: FlashDesign,
    stop: Stop,
    rows: &[RestartRow],
) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let of = |scheme: FlashRestart| rows.iter().find(|row| row.is("scheme", scheme.name()));
    let Some(none) = of(FlashRestart::None) else { return Ok(claims) };
    for scheme in SCHEMES.into_iter().filter(|scheme| *scheme != FlashRestart::None) {
        let Some(row) = of(scheme) else { continue };
        let gain = none.peak_to_peak_seconds / row.peak_to_peak_seconds;
        let sign = if none.ramp_up_seconds.is_some() { "" } else { ", at least" };
        let found =
            |says: String, ours: f64| Claim::found(&row.factors, says, ours).of_rounds(row.rounds.len());
        let spoilt = none.not_judged().or_else(|| row.not_judged());
        let published = published_gain(mix, scheme, design, stop);
        let range = published.filter(|(least, most)| least != most);
        let range = range.map_or_else(String::new, |(least, most)| format!(" (thesis: {least} to {most})"));
        let says = format!("peak to peak, none / {}{sign}{range}", scheme.name());
        let never = (row.ramp_up_seconds.is_none() || none.ramp_up_seconds.is_none())
            .then(|| "throughput was not back".to_owned());
        let claim = held(found(says, gain), published, spoilt.clone().or(never));
        claims.push(lab.write_claim(claim)?);
        if let Some(bar) = bar(design, scheme) {
            let claim = found(format!("bar: peak to peak, none / {}{sign}", scheme.name()), gain);
            claims.push(lab.write_claim(claim.judged(bar, judge(bar, gain, none, row)))?);
        }
        let says = format!("sustained throughput, {} / none", scheme.name());
        let claim = found(says, row.sustained_tps / none.sustained_tps);
        let published = published_throughput(design, scheme).filter(|_| mix.name == TPCC.name);
        claims.push(lab.write_claim(held(claim, published, spoilt))?);
    }
    Ok(claims)
}

/// Returns the verdict on a bar. A gain that is only a lower bound can meet a bar, but cannot miss it.
fn judge(bar: f64, gain: f64, none: &RestartRow, row: &RestartRow) -> Verdict {
    match none.not_judged().or_else(|| row.not_judged()) {
        Some(reason) => Verdict::NotJudged(reason),
        None if row.ramp_up_seconds.is_none() => Verdict::Missed("throughput was not back".to_owned()),
        None if none.ramp_up_seconds.is_none() && gain < bar => {
            Verdict::NotJudged("without it throughput was not back: at least so much".to_owned())
        }
        None => Verdict::at_least(bar, gain),
    }
}

fn tell_rows(lab: &mut Lab<'_>, rows: &[RestartRow], claims: &[Claim]) -> Result<()> {
    let head = [
        "workload",
        "design",
        "stop",
        "scheme",
        "sustained tps",
        "shutdown s",
        "recovery s",
        "analysis, levels, redo s",
        "first query s",
        "ramp-up s",
        "peak to peak s",
        "rounds",
        "spoilt",
        "log read MiB",
        "restored",
        "dirty %",
        "steady",
        "counts",
        "tps after",
        "home MiB/s read+written, peak: after",
    ];
    let mut table = TextTable::headed(&head);
    rows.iter().for_each(|row| table.push(told(row)));
    lab.say(&format!("\nIn the drives' seconds; throughput after the start slice by slice:\n{table}"))?;
    lab.say(&tell::claims(claims))
}

fn told(row: &RestartRow) -> Vec<String> {
    let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
    let mut line = ["workload", "design", "stop", "scheme"].map(factor).to_vec();
    line.push(format!("{:.1}", row.sustained_tps));
    let told = |seconds: f64| format!("{seconds:.2}");
    line.extend([row.shutdown_seconds, row.recovery_seconds].map(told));
    line.push(row.recovery_parts_seconds.map(told).join(", "));
    line.push(told(row.first_query_seconds));
    let (ramp_up, sign) = match row.ramp_up_seconds {
        Some(seconds) => (format!("{seconds:.1}"), ""),
        None => ("not back".to_owned(), "at least "),
    };
    line.extend([ramp_up, format!("{sign}{:.2}", row.peak_to_peak_seconds)]);
    let of_round = |round: &Round| {
        let sign = if round.is_back { "" } else { "at least " };
        format!("{sign}{:.2}", round.peak_to_peak_seconds)
    };
    line.push(row.rounds.iter().map(of_round).collect::<Vec<_>>().join(" "));
    line.push(row.spoilt_rounds.to_string());
    line.push(format!("{:.1}", row.log_read_bytes as f64 / f64::from(1 << 20)));
    line.push(row.restored_pages.to_string());
    line.push(row.cache.map_or_else(String::new, |cache| format!("{:.1}", cache.dirty_percent)));
    let is_steady = row.warmths.iter().all(|warmth| warmth.is_steady);
    line.push(if is_steady { "yes" } else { "no" }.to_owned());
    line.push(tell::counts(row.emulation.as_ref()));
    line.push(slices(row.tps.iter().map(|tps| format!("{tps:.0}"))));
    let both = |[read, written]: [f64; 2]| format!("{read:.1}+{written:.1}");
    line.push(format!(
        "{}: {}",
        both(row.peak_home_mib_per_second),
        slices(row.home_mib_per_second.iter().copied().map(both))
    ));
    line
}

/// Returns the texts of the first twenty samples, and then of every tenth one.
fn slices(told: impl Iterator<Item = String>) -> String {
    let shown = told.enumerate().filter(|(at, _)| *at < 20 || at % 10 == 0);
    shown.map(|(_, told)| told).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(tps: &[u64]) -> Ramp {
        let mut ramp = Ramp::default();
        let mut done = 0;
        for (second, tps) in tps.iter().enumerate() {
            done += tps;
            ramp.look(second as f64 + 1.0, done, [0; 2]);
        }
        ramp
    }

    #[test]
    fn throughput_is_back_with_the_third_of_five_slices_that_have_it_together() {
        assert_eq!(ramp(&[10, 50, 91, 85, 95, 95, 90]).back(100.0), Some(5.0));
        assert_eq!(ramp(&[10, 50, 91, 85, 95, 95, 80]).back(100.0), None);
        assert_eq!(ramp(&[99; 4]).back(100.0), None);
        assert_eq!(ramp(&[99, 99]).tps, [99.0, 99.0]);
    }

    fn row(peak_to_peak_seconds: f64, ramp_up_seconds: Option<f64>) -> RestartRow {
        let report = EmulationReport {
            profile: "p".to_owned(),
            dilation: 1.0,
            operations: 1,
            model_error_share: 0.0,
            modelled_ns: 1,
            busy_share: 1.0,
            cpu_share: 0.1,
            flash: None,
        };
        RestartRow {
            row: "restart",
            experiment: "",
            figure: "",
            factors: Factors::new(),
            peak_tps: 1.0,
            sustained_tps: 1.0,
            shutdown_seconds: 0.0,
            recovery_seconds: 0.0,
            recovery_parts_seconds: [0.0; 3],
            first_query_seconds: 0.0,
            ramp_up_seconds,
            peak_to_peak_seconds,
            rounds: Vec::new(),
            spoilt_rounds: 0,
            tps: Vec::new(),
            peak_home_mib_per_second: [0.0; 2],
            home_mib_per_second: Vec::new(),
            log_read_bytes: 0,
            restored_pages: 0,
            redone: Redone::default(),
            told: Vec::new(),
            warmths: Vec::new(),
            cache: None,
            emulation: Emulation::worst(&[report], 0.0),
        }
    }

    #[test]
    fn a_lower_bound_meets_a_bar_and_misses_none() {
        let judge = |none: RestartRow, row: RestartRow| {
            judge(3.8, none.peak_to_peak_seconds / row.peak_to_peak_seconds, &none, &row)
        };
        let back = |seconds: f64| row(seconds, Some(seconds));
        assert_eq!(judge(back(40.0), back(10.0)), Verdict::Met);
        assert!(matches!(judge(back(30.0), back(10.0)), Verdict::Missed(_)));
        assert_eq!(judge(row(40.0, None), back(10.0)), Verdict::Met);
        assert!(matches!(judge(row(30.0, None), back(10.0)), Verdict::NotJudged(_)));
        assert!(matches!(judge(back(40.0), row(10.0, None)), Verdict::Missed(_)));
        let real = RestartRow { emulation: None, ..back(10.0) };
        assert!(matches!(judge(back(40.0), real), Verdict::NotJudged(_)));
    }
}
