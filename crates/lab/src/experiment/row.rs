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

/// The experiment to which a row belongs, and the figure of its publication.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The figure or section that it repeats.
    pub figure: &'static str,
}

/// A run counts only if its model error is at most this.
pub const MODEL_ERROR_MAX: f64 = 0.03;
/// A run counts only if the processors were busy for less than this share of its time.
const CPU_MAX: f64 = 0.85;
/// The share of a flash cache's slots that are dirty may grow in a round by at most this many percentage
/// points.
const DIRTY_GROWTH_MAX: f64 = 5.0;
/// A device limits the throughput if it is busy for at least this share of the time.
const BUSY_MIN: f64 = 0.9;
/// If there are several drives, the limit of the model error holds for a drive only if the drive has at least
/// this share of all modelled time. With less, a single late request would exceed the limit.
const MODELLED_MIN: f64 = 0.05;

/// The report of the emulation for a point: of each figure, the worst value of all rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Emulation {
    /// The name of the profile.
    pub profile: String,
    /// Microseconds of a flush.
    pub flush_us: f64,
    /// The factor by which the times of drives were multiplied. Printed figures are already divided by it.
    pub dilation: f64,
    /// The delay of requests that was too long and was not caught up, as a share of the modelled time.
    pub model_error_share: f64,
    /// The share of the time in which the device was busy: the least of all rounds.
    pub busy_share: f64,
    /// The share of the time in which the processors were busy.
    pub cpu_share: f64,
    /// Whether the emulation was fast enough, so that the point counts.
    pub counts: bool,
    /// Whether the device limits the throughput.
    pub device_limits: bool,
}

impl Emulation {
    /// Summarizes reports by the worst value of each figure. Returns `None` if there are no reports.
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

    /// Summarizes the reports of rounds on several drives. Each drive must have a small model error. The
    /// busiest drive decides whether a device limits the throughput.
    pub fn of_drives(rounds: &[Vec<(&'static str, EmulationReport)>], flush_us: f64) -> Option<Self> {
        let reports: Vec<EmulationReport> = rounds.iter().filter_map(|drives| together(drives)).collect();
        Self::worst(&reports, flush_us)
    }

    /// Returns the reason why results of this emulation are not judged, if there is one. `emulation` is
    /// `None` if real drives were measured.
    pub fn not_judged(emulation: Option<&Self>) -> Option<String> {
        match emulation {
            None => Some("no device was emulated".to_owned()),
            Some(emulation) => (!emulation.counts).then(|| emulation.spoilt()),
        }
    }

    /// Returns the text for an emulation that was not fast enough: its model error, and how busy the
    /// processors were.
    pub fn spoilt(&self) -> String {
        format!(
            "model error {:.1} %, processors {:.0} % busy at dilation {}",
            100.0 * self.model_error_share,
            100.0 * self.cpu_share,
            self.dilation
        )
    }
}

/// Combines the reports of several drives: the worst model error, and the highest busy share.
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

/// The work of one drive for a transaction, if there are several drives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriveFigures {
    /// Bytes read, divided by the size of a page.
    pub pages_read: f64,
    /// Bytes written, divided by the size of a page.
    pub pages_written: f64,
    /// Requests, as the model of the drive counts them.
    pub operations: f64,
    /// The report of the drive's emulation.
    pub emulation: Option<Emulation>,
}

/// The states of a flash cache at the beginning and at the end of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheStates {
    /// The state when the measured time began.
    pub begin: CacheState,
    /// The state when the measured time ended.
    pub end: CacheState,
}

impl CacheStates {
    /// Returns a reason if the throughput would not last in a longer run, else `None`. The reason is that the
    /// number of dirty slots has grown. So fewer pages were written to the data files than must be written in
    /// the long run.
    pub fn unsteady(&self) -> Option<String> {
        let (begin, end) = (self.begin.dirty_percent, self.end.dirty_percent);
        (end - begin > DIRTY_GROWTH_MAX)
            .then(|| format!("dirty frames went from {begin:.0} to {end:.0} % meanwhile"))
    }
}

/// Latencies of a kind of transaction, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KindLatency {
    /// The mean latency.
    pub mean_us: f64,
    /// The 99th percentile of the latencies.
    pub p99_us: f64,
}

impl KindLatency {
    /// Returns the latencies of a run, divided by its dilation.
    pub fn of(latency_us: &Histogram<u64>, dilation: f64) -> Self {
        let p99_us = latency_us.value_at_quantile(0.99) as f64;
        Self { mean_us: latency_us.mean() / dilation, p99_us: p99_us / dilation }
    }
}

/// A measured point.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The kind of the row: `point`.
    pub row: &'static str,
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The figure or table of the publication.
    pub figure: &'static str,
    /// The factors that distinguish the point from others.
    pub factors: Factors,
    /// The hash of the configuration ([`varve_bench::report::Configuration::hash`]).
    pub configuration: String,
    /// A description of the sizes: which were scaled down, and which were not.
    pub scale: String,
    /// The number of rounds.
    pub rounds: usize,
    /// Transactions a second.
    pub tps: Spread,
    /// Mean latency of all rounds.
    pub latency_mean_us: f64,
    /// 99th percentile of the latencies of all rounds.
    pub latency_p99_us: f64,
    /// Latencies by kind of transaction. It is empty if the load has one kind only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<&'static str, KindLatency>,
    /// Bytes written to the drive for each transaction, by purpose.
    pub written_bytes: BTreeMap<&'static str, f64>,
    /// Bytes written to the drive for each transaction, for all purposes together, in each tenth of a round:
    /// the means over the rounds.
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
    /// The report of the emulation. It is missing if no device was emulated.
    pub emulation: Option<Emulation>,
    /// The work of each drive. It is empty if there is only one drive.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drives: BTreeMap<&'static str, DriveFigures>,
    /// The warm-up of the last round, if it had a warm-up without delays of drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmth: Option<Warmth>,
    /// The states of the flash cache in the last round, if there is a flash cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStates>,
}

impl Point {
    /// Returns the milliseconds that each drive, and the processors (`cpu`), are busy for a transaction. All
    /// channels of a drive together count as one. The time from one transaction to the next can't be shorter
    /// than the longest of these times.
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

    /// Returns the drive (or the processors) that limits the throughput, and the bound: the transactions a
    /// second at which it would never be idle.
    pub fn bound(&self) -> Option<(&'static str, f64)> {
        let demands = self.demands_ms();
        let (name, demand_ms) = demands.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (demand_ms > 0.0).then(|| (name, 1000.0 / demand_ms))
    }

    /// Returns the share of the pages that the flash cache had, among all pages that were requested from it.
    pub fn flash_hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.level("flash.read_hits"), self.level("flash.read_misses"));
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Returns the bytes written to the drive for each transaction.
    pub fn written_bytes_all(&self) -> f64 {
        self.written_bytes.values().sum()
    }

    /// Returns the bytes of pages written to their final places, for each transaction.
    pub fn page_bytes(&self) -> f64 {
        ["data page", "undo page"].iter().filter_map(|purpose| self.written_bytes.get(purpose)).sum()
    }

    /// Returns a counter of a level for each transaction. Its name is, for example, `nvm.puts`.
    pub fn level(&self, counter: &str) -> f64 {
        self.levels.get(counter).copied().unwrap_or(0.0)
    }

    /// Returns the share of the time for one purpose.
    pub fn share(&self, what: &str) -> f64 {
        self.time_share.get(what).copied().unwrap_or(0.0)
    }

    /// Returns the text which says that the drive was idle, if the drive does not limit the throughput.
    pub fn drive_idle(&self) -> Option<String> {
        let emulation = self.emulation.as_ref().filter(|emulation| !emulation.device_limits)?;
        let busy = 100.0 * emulation.busy_share;
        Some(format!("drive idle: {busy:.0} % busy under the slower one"))
    }

    /// Returns the reason why the point is not judged, if there is one.
    pub fn not_judged(&self) -> Option<String> {
        let is_warm = self.warmth.as_ref().is_none_or(|warmth| warmth.is_steady);
        let cold = || (!is_warm).then(|| "the cache was neither full nor its hit rate flat".to_owned());
        let unsteady = || self.cache.as_ref().and_then(CacheStates::unsteady);
        Emulation::not_judged(self.emulation.as_ref()).or_else(cold).or_else(unsteady)
    }
}

/// A point as it is written into a row.
#[derive(Debug, Serialize)]
pub struct Judged<'p> {
    #[serde(flatten)]
    point: &'p Point,
    /// The reason why the point is not judged. It is missing if the point is judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
}

impl<'p> Judged<'p> {
    /// Returns the point, with the reason why it is not judged.
    pub fn of(point: &'p Point) -> Self {
        Self { point, not_judged: point.not_judged() }
    }
}

/// The results of a load.
#[derive(Debug, Clone, Serialize)]
pub struct LoadRow {
    /// The kind of the row: `load`.
    pub row: &'static str,
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The figure or table of the publication.
    pub figure: &'static str,
    /// The layout of pages.
    pub layout: &'static str,
    /// The codec that compressed the pages.
    pub compression: String,
    /// Seconds from the first statement to the end of the shutdown.
    pub seconds: f64,
    /// Bytes of allocated pages, uncompressed.
    pub pages_bytes: u64,
    /// Bytes of pages as they were stored, divided by their uncompressed bytes. It is 1 if nothing is
    /// compressed.
    pub stored_share: f64,
    /// Bytes of the blocks that the file system has allocated to the files.
    pub allocated_bytes: u64,
    /// A description of the drive.
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

    /// If any drive is busy all the time, a drive limits the throughput. If any drive's model error is too
    /// large, the point does not count.
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

    /// If dirty slots increase, the cache only postpones writes to the data files. This is no steady state.
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
