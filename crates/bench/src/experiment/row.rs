//! The rows of an experiment that tell what a point measured.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;
use varve_device::EmulationReport;

use crate::report::Spread;

/// What tells a point from the others: variant, sessions, page size ...
pub type Factors = BTreeMap<&'static str, Value>;

/// Model error above which a run doesn't count.
const MODEL_ERROR_MAX: f64 = 0.03;
/// Busy share of the processors from which a run doesn't count.
const CPU_MAX: f64 = 0.85;
/// Busy share from which a device is what limits.
const BUSY_MIN: f64 = 0.9;

/// How far the rounds of a point can be believed: the worst of each figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Emulation {
    /// The profile's name.
    pub profile: String,
    /// Time of a flush.
    pub flush_us: f64,
    /// Device times were multiplied by this, and figures put back.
    pub dilation: f64,
    /// Delay that could not be made good, as a share of the modelled time.
    pub model_error_share: f64,
    /// Busy share of the device; the least of all rounds.
    pub busy_share: f64,
    /// Busy share of the processors.
    pub cpu_share: f64,
    /// Whether it counts.
    pub counts: bool,
    /// Whether the device is what limits.
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

    /// Why it doesn't count.
    pub fn spoilt(&self) -> String {
        format!(
            "model error {:.1} %, processors {:.0} % busy at dilation {}",
            100.0 * self.model_error_share,
            100.0 * self.cpu_share,
            self.dilation
        )
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
    /// Of a dilated run, put back.
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
    /// What tells it from the others.
    pub factors: Factors,
    /// [`crate::report::Configuration::hash`].
    pub configuration: String,
    /// What was made smaller, and what stayed.
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
    /// What the levels below the pool did for each transaction.
    pub levels: BTreeMap<&'static str, f64>,
    /// Pages read for each transaction.
    pub pages_read: f64,
    /// Pages written for each transaction by sessions that needed a frame.
    pub pages_written_inline: f64,
    /// Pages written for each transaction by page writers.
    pub pages_written_ahead: f64,
    /// Time of all threads by where it went (`varve_pager::Timing`), as a part of the sum of latencies. A page read holds what it waits for, and
    /// page writers' times count too: the parts don't add up to 1.
    pub time_share: BTreeMap<&'static str, f64>,
    /// Bytes of the database's data pages.
    pub database_bytes: u64,
    /// Missing where no device was emulated.
    pub emulation: Option<Emulation>,
}

impl Point {
    /// Bytes written to the drive for each transaction.
    pub fn written_bytes_all(&self) -> f64 {
        self.written_bytes.values().sum()
    }

    /// Bytes of pages written in their places for each transaction.
    pub fn page_bytes(&self) -> f64 {
        ["data page", "undo page"].iter().filter_map(|purpose| self.written_bytes.get(purpose)).sum()
    }

    /// What a level did for each transaction, by a name such as `nvm.puts`.
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
        match &self.emulation {
            None => Some("no device was emulated".to_owned()),
            Some(emulation) if emulation.counts => None,
            Some(emulation) => Some(emulation.spoilt()),
        }
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
            busy_share,
            cpu_share,
            flash: None,
        }
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
