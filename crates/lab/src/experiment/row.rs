//! The result rows of an experiment. A row holds the settings of one measured point, and its figures.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;
use varve_device::EmulationReport;

use super::warm::{CacheState, Warmth};
use varve_bench::report::Spread;

/// The factors that distinguish a point from others: variant, sessions, page size ...
pub type Factors = BTreeMap<&'static str, Value>;

/// The experiment and the figure of a publication that a row belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The figure or section that it repeats.
    pub figure: &'static str,
}

/// Model error above which a run doesn't count.
pub const MODEL_ERROR_MAX: f64 = 0.03;
/// Busy share of the processors from which a run doesn't count.
const CPU_MAX: f64 = 0.85;
/// Percentage points that the dirty slots of a flash cache may grow by in a round.
const DIRTY_GROWTH_MAX: f64 = 5.0;
/// The busy share from which a device is called the limit.
const BUSY_MIN: f64 = 0.9;
/// If there are several drives, a drive with less than this share of all modelled time need not keep to the
/// limit of the model error by itself, because a single late request would spoil it.
const MODELLED_MIN: f64 = 0.05;

/// The report of the emulation over the rounds of a point: the worst of each figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Emulation {
    /// The profile's name.
    pub profile: String,
    /// Time of a flush.
    pub flush_us: f64,
    /// The factor by which device times were multiplied. The printed figures are converted back.
    pub dilation: f64,
    /// Delay that was not caught up, as a share of the modelled time.
    pub model_error_share: f64,
    /// Busy share of the device; the least of all rounds.
    pub busy_share: f64,
    /// Busy share of the processors.
    pub cpu_share: f64,
    /// Whether it counts.
    pub counts: bool,
    /// Whether the device is the limit.
    pub device_limits: bool,
}

impl Emulation {
    /// Of at least one report.
    pub fn worst(reports: &[EmulationReport], flush_us: f64) -> Option<Self> {
        let first = reports.first()?;
        let worst = |of: fn(&EmulationReport) -> f64| reports.iter().map(of).fold(0.0, f64::max);
        let (model_error_share, cpu_share) = (worst(|r| r.model_error_share), worst(|r| r.cpu_share));
        let busy_share = reports.iter().map(|report| report.busy_share).fold(f64::INFINITY, f64::min);
        Some(Self {
            profile: first.profile.clone(),
            flush_us,
            dilation: first.dilation,
            model_error_share,
            busy_share,
            cpu_share,
            counts: model_error_share <= MODEL_ERROR_MAX && cpu_share < CPU_MAX,
            device_limits: busy_share >= BUSY_MIN,
        })
    }

    /// The report for rounds on several drives. Each must keep to its model, and the busiest one is the
    /// limit.
    pub fn of_drives(rounds: &[Vec<(&'static str, EmulationReport)>], flush_us: f64) -> Option<Self> {
        let reports: Vec<EmulationReport> = rounds.iter().filter_map(|drives| together(drives)).collect();
        Self::worst(&reports, flush_us)
    }

    /// The reason why nothing is judged that was measured under this emulation. `None` as `emulation` means
    /// real drives.
    pub fn not_judged(emulation: Option<&Self>) -> Option<String> {
        match emulation {
            None => Some("no device was emulated".to_owned()),
            Some(emulation) => (!emulation.counts).then(|| emulation.spoilt()),
        }
    }

    /// The reason why it does not count.
    pub fn spoilt(&self) -> String {
        format!(
            "model error {:.1} %, processors {:.0} % busy at dilation {}",
            100.0 * self.model_error_share,
            100.0 * self.cpu_share,
            self.dilation
        )
    }
}

/// Several drives as one: the worst model error, the busiest.
fn together(drives: &[(&'static str, EmulationReport)]) -> Option<EmulationReport> {
    let ((_, first), beside) = drives.split_first()?;
    if beside.is_empty() {
        return Some(first.clone());
    }
    let of = |name: &str, report: &EmulationReport| format!("{name} {}", report.profile);
    let names: Vec<String> = drives.iter().map(|(name, report)| of(name, report)).collect();
    let reports = || drives.iter().map(|(_, report)| report);
    let modelled_ns: u64 = reports().map(|report| report.modelled_ns).sum();
    let late_ns: f64 = reports().map(|report| report.model_error_share * report.modelled_ns as f64).sum();
    let own = reports().filter(|report| report.modelled_ns as f64 >= MODELLED_MIN * modelled_ns as f64);
    let worst_own = own.map(|report| report.model_error_share).fold(0.0, f64::max);
    let most = |of: fn(&EmulationReport) -> f64| reports().map(of).fold(0.0, f64::max);
    Some(EmulationReport {
        profile: names.join(", "),
        operations: reports().map(|report| report.operations).sum(),
        model_error_share: worst_own.max(late_ns / (modelled_ns as f64).max(1.0)),
        modelled_ns,
        busy_share: most(|report| report.busy_share),
        cpu_share: most(|report| report.cpu_share),
        ..first.clone()
    })
}

/// The work of one of several drives for each transaction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriveFigures {
    /// Pages' worth of bytes read.
    pub pages_read: f64,
    /// Pages' worth of bytes written.
    pub pages_written: f64,
    /// Requests by the model.
    pub operations: f64,
    /// The report of its emulation.
    pub emulation: Option<Emulation>,
}

/// A flash cache before and after the measured time: the mean of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheStates {
    /// When measuring began.
    pub begin: CacheState,
    /// When it ended.
    pub end: CacheState,
}

impl CacheStates {
    /// The reason why the throughput would not have lasted: fewer pages were written home than in the long
    /// run.
    pub fn unsteady(&self) -> Option<String> {
        let (begin, end) = (self.begin.dirty_percent, self.end.dirty_percent);
        (end - begin > DIRTY_GROWTH_MAX)
            .then(|| format!("dirty frames went from {begin:.0} to {end:.0} % meanwhile"))
    }
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KindLatency {
    /// Mean.
    pub mean_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

impl KindLatency {
    /// The latencies of a dilated run, converted back.
    pub fn of(latency_us: &Histogram<u64>, dilation: f64) -> Self {
        let p99_us = latency_us.value_at_quantile(0.99) as f64;
        Self { mean_us: latency_us.mean() / dilation, p99_us: p99_us / dilation }
    }
}

/// A measured point.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// `point`.
    pub row: &'static str,
    /// The experiment.
    pub experiment: &'static str,
    /// Figure or table of the publication.
    pub figure: &'static str,
    /// The factors that distinguish it from others.
    pub factors: Factors,
    /// [`varve_bench::report::Configuration::hash`].
    pub configuration: String,
    /// What was scaled down, and what was not.
    pub scale: String,
    /// Rounds.
    pub rounds: usize,
    /// Transactions a second.
    pub tps: Spread,
    /// Mean latency of all rounds.
    pub latency_mean_us: f64,
    /// 99th percentile of all rounds.
    pub latency_p99_us: f64,
    /// The same by kind of transaction; empty for a load of one kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<&'static str, KindLatency>,
    /// Bytes written to the drive for each transaction, by purpose.
    pub written_bytes: BTreeMap<&'static str, f64>,
    /// The same of all purposes together, by tenths of a round: the mean of the rounds.
    pub written_over_time: Vec<f64>,
    /// Bytes written to persistent memory for each transaction, by purpose.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nvm_bytes: BTreeMap<&'static str, f64>,
    /// The work of the levels below the pool for each transaction.
    pub levels: BTreeMap<&'static str, f64>,
    /// Pages read for each transaction.
    pub pages_read: f64,
    /// Pages written for each transaction by sessions that needed a frame.
    pub pages_written_inline: f64,
    /// Pages written for each transaction by page writers.
    pub pages_written_ahead: f64,
    /// Time of all threads by purpose (`varve_pager::Timing`), as a share of the sum of latencies. A page
    /// read includes the waits within it, and the times of page writers count, too. So the shares don't add
    /// up to 1.
    pub time_share: BTreeMap<&'static str, f64>,
    /// Bytes of the database's data pages.
    pub database_bytes: u64,
    /// Missing where no device was emulated.
    pub emulation: Option<Emulation>,
    /// What each of several drives did.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drives: BTreeMap<&'static str, DriveFigures>,
    /// How the last round was warmed up, if it was before drives took their time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmth: Option<Warmth>,
    /// The flash cache of the last round, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStates>,
}

impl Point {
    /// Milliseconds that each drive, and the processors (`cpu`), are busy for a transaction. All channels of
    /// a drive together count as one. The time between two transactions can't be shorter than the longest of
    /// these.
    pub fn demands_ms(&self) -> BTreeMap<&'static str, f64> {
        let rate = self.tps.median.max(f64::MIN_POSITIVE);
        let of = |share: f64| 1000.0 * share / rate;
        let drives = self.drives.iter();
        let mut demands: BTreeMap<&'static str, f64> = drives
            .filter_map(|(name, drive)| Some((*name, of(drive.emulation.as_ref()?.busy_share))))
            .collect();
        demands.extend(self.emulation.as_ref().map(|emulation| ("cpu", of(emulation.cpu_share))));
        demands
    }

    /// What limits, and the transactions a second that it would allow if it were never idle.
    pub fn bound(&self) -> Option<(&'static str, f64)> {
        let demands = self.demands_ms();
        let (name, demand_ms) = demands.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (demand_ms > 0.0).then(|| (name, 1000.0 / demand_ms))
    }

    /// Part of the pages asked of the flash cache that it had.
    pub fn flash_hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.level("flash.read_hits"), self.level("flash.read_misses"));
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Bytes written to the drive for each transaction.
    pub fn written_bytes_all(&self) -> f64 {
        self.written_bytes.values().sum()
    }

    /// Bytes of pages written in their places for each transaction.
    pub fn page_bytes(&self) -> f64 {
        ["data page", "undo page"].iter().filter_map(|purpose| self.written_bytes.get(purpose)).sum()
    }

    /// A counter of a level for each transaction, by a name such as `nvm.puts`.
    pub fn level(&self, counter: &str) -> f64 {
        self.levels.get(counter).copied().unwrap_or(0.0)
    }

    /// A part of the time that went there.
    pub fn share(&self, what: &str) -> f64 {
        self.time_share.get(what).copied().unwrap_or(0.0)
    }

    /// That the drive is not what limits, if it isn't.
    pub fn drive_idle(&self) -> Option<String> {
        let emulation = self.emulation.as_ref().filter(|emulation| !emulation.device_limits)?;
        let busy = 100.0 * emulation.busy_share;
        Some(format!("drive idle: {busy:.0} % busy under the slower one"))
    }

    /// Why nothing may be concluded from it.
    pub fn not_judged(&self) -> Option<String> {
        let is_warm = self.warmth.as_ref().is_none_or(|warmth| warmth.is_steady);
        let cold = || (!is_warm).then(|| "the cache was neither full nor its hit rate flat".to_owned());
        let unsteady = || self.cache.as_ref().and_then(CacheStates::unsteady);
        Emulation::not_judged(self.emulation.as_ref()).or_else(cold).or_else(unsteady)
    }
}

/// A point as it is written.
#[derive(Debug, Serialize)]
pub struct Judged<'p> {
    #[serde(flatten)]
    point: &'p Point,
    /// Why nothing may be concluded from it; missing if something may.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
}

impl<'p> Judged<'p> {
    /// Of a point.
    pub fn of(point: &'p Point) -> Self {
        Self { point, not_judged: point.not_judged() }
    }
}

/// How a load went.
#[derive(Debug, Clone, Serialize)]
pub struct LoadRow {
    /// `load`.
    pub row: &'static str,
    /// The experiment.
    pub experiment: &'static str,
    /// Figure or table of the publication.
    pub figure: &'static str,
    /// How pages lie.
    pub layout: &'static str,
    /// How they were compressed.
    pub compression: String,
    /// From the first statement to the end of the shutdown.
    pub seconds: f64,
    /// Bytes of pages in use, uncompressed.
    pub pages_bytes: u64,
    /// What was written of them, as a part; 1 where nothing is compressed.
    pub stored_share: f64,
    /// Bytes of blocks that the file system has given to the files.
    pub allocated_bytes: u64,
    /// The drive.
    pub device: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(model_error_share: f64, busy_share: f64, cpu_share: f64) -> EmulationReport {
        EmulationReport {
            profile: "p".to_owned(),
            dilation: 2.0,
            operations: 1,
            model_error_share,
            modelled_ns: 1_000,
            busy_share,
            cpu_share,
            flash: None,
        }
    }

    /// Whichever drive limits: the busiest one; and an error counts where it is.
    #[test]
    fn of_several_drives_each_must_keep_to_its_model() {
        let of = |home, flash| Emulation::of_drives(&[vec![("home", home), ("flash", flash)]], 0.0);
        let both = of(report(0.01, 0.3, 0.2), report(0.02, 0.95, 0.2)).expect("two reports");
        assert!(both.counts && both.device_limits && both.profile == "home p, flash p", "{both:?}");
        let one_off = of(report(0.0, 0.95, 0.2), report(0.05, 0.3, 0.2)).expect("two reports");
        assert!(!one_off.counts, "{one_off:?}");
        let hardly_used = EmulationReport { modelled_ns: 10, ..report(0.5, 0.1, 0.2) };
        let both = of(report(0.0, 0.95, 0.2), hardly_used).expect("two reports");
        assert!(both.counts && both.model_error_share < 0.01, "{both:?}");
        let alone = Emulation::of_drives(&[vec![("home", report(0.01, 0.3, 0.2))]], 0.0);
        assert_eq!(alone, Emulation::worst(&[report(0.01, 0.3, 0.2)], 0.0));
    }

    /// A cache that only swallows what home will have to be written is no steady state.
    #[test]
    fn dirty_frames_that_grow_are_told() {
        let state = |dirty_percent| CacheState { filled_percent: 99.0, dirty_percent, invalid_percent: 0.0 };
        let grown = CacheStates { begin: state(48.0), end: state(67.0) }.unsteady().expect("it grew");
        assert!(grown.contains("48 to 67 %"), "{grown}");
        assert_eq!(CacheStates { begin: state(50.0), end: state(52.0) }.unsteady(), None);
    }

    #[test]
    fn the_worst_round_decides() {
        let good = [report(0.01, 0.95, 0.5), report(0.03, 0.97, 0.84)];
        let worst = Emulation::worst(&good, 0.0).expect("two reports");
        assert!(worst.counts && worst.device_limits);
        assert_eq!((worst.model_error_share, worst.busy_share, worst.cpu_share), (0.03, 0.95, 0.84));
        let late =
            Emulation::worst(&[report(0.01, 0.9, 0.5), report(0.04, 0.9, 0.5)], 0.0).expect("two reports");
        assert!(!late.counts && late.spoilt().contains("4.0 %"));
        let busy = Emulation::worst(&[report(0.0, 0.5, 0.85)], 0.0).expect("a report");
        assert!(!busy.counts && !busy.device_limits && busy.spoilt().contains("dilation 2"));
        assert!(Emulation::worst(&[], 0.0).is_none());
    }
}
