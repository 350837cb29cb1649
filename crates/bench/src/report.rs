//! The rows of results, and their summaries.
//!
//! 1. A row needs no other row to be understood. It names its workload, target and round, and has the hash of
//!    the configuration that made it.
//! 2. Two rows may be compared if they have the same hash. Rows with different hashes were measured with
//!    different configurations.

use std::io::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Result;
use crate::database::MeasuredDatabase;
use crate::driver::{Plan, Round, histogram};
use crate::workload::{TransactionKind, Workload};

/// Everything that could change a figure.
#[derive(Debug, Clone, Serialize)]
pub struct Configuration {
    /// The workload's name.
    pub workload: String,
    /// The workload's parameters.
    pub settings: serde_json::Value,
    /// The differences from the publication, from [`Workload::deviations`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<String>,
    /// The target's name.
    pub target: &'static str,
    /// The target's configuration, from [`MeasuredDatabase::describe`].
    pub target_settings: String,
    /// Numbers of threads and rounds, and the seconds of a round.
    pub plan: Plan,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// Version of this crate.
    pub version: &'static str,
    /// Whether this program was compiled with optimization and without debug assertions.
    pub release: bool,
}

impl Configuration {
    /// Returns the configuration of a run.
    pub fn of(target: &dyn MeasuredDatabase, workload: &dyn Workload, plan: Plan) -> Self {
        Self {
            workload: workload.name(),
            settings: workload.settings(),
            deviations: workload.deviations(),
            target: target.name(),
            target_settings: target.describe(),
            plan,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            version: env!("CARGO_PKG_VERSION"),
            release: !cfg!(debug_assertions),
        }
    }

    /// Returns a hash of everything in the configuration.
    pub fn hash(&self) -> String {
        hash_of(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Returns a hash of a text (FNV-1a), as sixteen hexadecimal digits.
pub fn hash_of(text: &str) -> String {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    format!("{:016x}", text.bytes().fold(0xCBF2_9CE4_8422_2325, fnv))
}

/// One measured round.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The hash of the configuration, from [`Configuration::hash`].
    pub configuration: String,
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: &'static str,
    /// The number of the round, counted from 1.
    pub round: usize,
    /// Transactions a second.
    pub tps: f64,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Transactions that were run again.
    pub restarted: u64,
    /// Latencies of all transactions together.
    #[serde(flatten)]
    pub latency: Latency,
    /// Results of each kind of transaction. The list is empty if the workload has one kind only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindRow>,
}

/// The results of one kind of transaction in a round.
#[derive(Debug, Clone, Serialize)]
pub struct KindRow {
    /// The name of the kind.
    pub kind: &'static str,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Transactions that succeeded, per minute.
    pub per_minute: f64,
    /// Latencies of the transactions of this kind.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Mean latency.
    pub latency_mean_us: f64,
    /// Median latency.
    pub latency_p50_us: u64,
    /// 95th percentile.
    pub latency_p95_us: u64,
    /// 99th percentile.
    pub latency_p99_us: u64,
    /// Latency of the slowest transaction.
    pub latency_max_us: u64,
}

impl Latency {
    /// Returns the latencies in a histogram of microseconds.
    pub fn of(latency_us: &Histogram<u64>) -> Self {
        Self {
            latency_mean_us: latency_us.mean(),
            latency_p50_us: latency_us.value_at_quantile(0.5),
            latency_p95_us: latency_us.value_at_quantile(0.95),
            latency_p99_us: latency_us.value_at_quantile(0.99),
            latency_max_us: latency_us.max(),
        }
    }
}

impl Row {
    /// Returns the row of round `number`, counted from 1.
    pub fn of(configuration: &Configuration, number: usize, round: &Round) -> Self {
        Self {
            configuration: configuration.hash(),
            workload: configuration.workload.clone(),
            target: configuration.target,
            round: number,
            tps: round.tps(),
            transactions: round.transactions,
            restarted: round.restarted,
            latency: Latency::of(&round.latency_us),
            kinds: round.kinds.iter().map(|(kind, us)| KindRow::of(*kind, us, round.elapsed)).collect(),
        }
    }
}

impl KindRow {
    fn of(kind: TransactionKind, latency_us: &Histogram<u64>, elapsed: Duration) -> Self {
        Self {
            kind: kind.name,
            transactions: latency_us.len(),
            per_minute: per_minute(latency_us, elapsed),
            latency: Latency::of(latency_us),
        }
    }
}

fn per_minute(latency_us: &Histogram<u64>, elapsed: Duration) -> f64 {
    latency_us.len() as f64 * 60.0 / elapsed.as_secs_f64()
}

/// The median, the least and the greatest of several figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median. Of an even number of figures, it is the mean of the two in the middle.
    pub median: f64,
    /// The least figure.
    pub min: f64,
    /// The greatest figure.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of these figures. There must be at least one.
    pub fn of(figures: &[f64]) -> Self {
        assert!(!figures.is_empty(), "a spread of nothing");
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: (low + high) / 2.0, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = if self.median < 100.0 { 2 } else { 0 };
        write!(f, "{:.places$} [{:.places$}..{:.places$}]", self.median, self.min, self.max)
    }
}

/// Writes the configuration, a row for each round, and a line that sums them up.
pub fn write(out: &mut dyn Write, configuration: &Configuration, rounds: &[Round]) -> Result<()> {
    let head = serde_json::json!({"configuration": configuration.hash(), "is": configuration});
    writeln!(out, "{head}")?;
    for deviation in &configuration.deviations {
        writeln!(out, "deviates: {deviation}")?;
    }
    let mut rates = Vec::new();
    for (number, round) in (1..).zip(rounds) {
        let row = Row::of(configuration, number, round);
        rates.push(row.tps);
        writeln!(out, "{}", serde_json::to_string(&row).map_err(std::io::Error::other)?)?;
    }
    if !rates.is_empty() {
        writeln!(out, "{} {}: {} tps", configuration.target, configuration.workload, Spread::of(&rates))?;
    }
    let kinds = rounds.first().map_or(0, |round| round.kinds.len());
    (0..kinds).try_for_each(|place| write_kind(out, place, rounds))
}

/// Writes a line for one kind of transaction over all rounds: its share, its latencies, and its rate if the
/// publication gives the rate a name (such as tpmC).
fn write_kind(out: &mut dyn Write, place: usize, rounds: &[Round]) -> Result<()> {
    let (mut all_us, mut rates) = (histogram(), Vec::new());
    for round in rounds {
        let (_, latency_us) = &round.kinds[place];
        all_us += latency_us;
        rates.push(per_minute(latency_us, round.elapsed));
    }
    let (kind, _) = rounds[0].kinds[place];
    let all: u64 = rounds.iter().map(|round| round.transactions).sum();
    let share = 100.0 * all_us.len() as f64 / all.max(1) as f64;
    let Latency { latency_p50_us, latency_p95_us, latency_p99_us, latency_max_us, .. } = Latency::of(&all_us);
    write!(
        out,
        "{:12} {share:5.1} %  p50 {latency_p50_us} us, p95 {latency_p95_us}, p99 {latency_p99_us}, max {latency_max_us}",
        kind.name
    )?;
    match kind.rate {
        Some(unit) => writeln!(out, "; {} {unit}", Spread::of(&rates))?,
        None => writeln!(out)?,
    }
    Ok(())
}
