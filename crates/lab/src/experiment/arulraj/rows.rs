//! The result row of an engine under a load, and its figures.
//!
//! 1. Counts are exact. Every run of the same sizes has the same counts.
//! 2. Modelled throughput is computed from the processor time of one run and from the counts of another run
//!    of the same transactions. A run takes as long as its slowest partition.

use std::collections::BTreeMap;

use serde::Serialize;

use varve_bench::report::Spread;
use varve_device::{CacheCounts, NvmProfile};

use super::super::order::{ROUND_NOISE, RankedFigure};
use super::super::row::Factors;
use crate::stores::Lookups;

/// A model of persistent memory: its latency, and whether a processor fetches several lines of one access at
/// once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// The name of the model in rows.
    pub name: &'static str,
    /// The profile of the memory. It is `None` for memory that is as fast as main memory.
    profile: Option<&'static str>,
    /// Whether lines of one access are fetched in parallel.
    is_parallel: bool,
    /// Nanoseconds that a fence takes in addition to the profile's, if it has lines to wait for.
    persist_ns: f64,
}

const fn model(name: &'static str, profile: Option<&'static str>, is_parallel: bool) -> Model {
    Model { name, profile, is_parallel, persist_ns: 0.0 }
}

/// The name of the model with the latency of main memory.
pub const DRAM: &str = "1x";
/// The name of the model with twice the latency of main memory.
pub const LOW: &str = "2x";
/// The name of the model with eight times the latency of main memory.
pub const HIGH: &str = "8x";
/// The name of the model with eight times the latency, in which the lines of one access are fetched in
/// parallel.
pub const HIGH_PARALLEL: &str = "8x parallel";

/// The paper's three latencies (section 5.2). The paper's processor fetches lines in parallel, but the text
/// does not say how many. So throughput is computed for both extremes: one line at a time, and all lines of
/// an access at once.
pub const MODELS: [Model; 5] = [
    model(DRAM, None, false),
    model(LOW, Some("nvm-2x"), false),
    model(HIGH, Some("nvm-8x"), false),
    model("2x parallel", Some("nvm-2x"), true),
    model(HIGH_PARALLEL, Some("nvm-8x"), true),
];

/// Models with twice the latency of main memory, and with the nanoseconds that the sync primitive costs
/// (appendix C). The first model adds nothing: its sync primitive costs what the instructions of this machine
/// take.
pub const SYNC_MODELS: [Model; 5] = [
    sync_model("current", 0.0),
    sync_model("10 ns", 10.0),
    sync_model("100 ns", 100.0),
    sync_model("1000 ns", 1e3),
    sync_model("10000 ns", 1e4),
];

const fn sync_model(name: &'static str, persist_ns: f64) -> Model {
    Model { name, profile: Some("nvm-2x"), is_parallel: false, persist_ns }
}

impl Model {
    /// Returns the nanoseconds that the counted accesses would take beyond the processor's time.
    pub fn extra_ns(&self, counts: &CacheCounts) -> f64 {
        let Some(mut profile) = self.profile.and_then(|name| NvmProfile::shipped(name).ok()) else {
            return 0.0;
        };
        profile.persist_extra_ns += self.persist_ns;
        match self.is_parallel {
            true => counts.overlapped_extra_ns(&profile),
            false => counts.extra_ns(&profile),
        }
    }
}

/// An engine, its settings, and the load on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The name of the engine.
    pub engine: &'static str,
    /// The name of the load: a mix of YCSB, or another load.
    pub load: &'static str,
    /// The skew of YCSB. It is empty for other loads.
    pub skew: &'static str,
    /// The number of partitions. Each partition has a worker.
    pub partitions: usize,
    /// Bytes of an index node, if the experiment varies them.
    pub node_bytes: Option<usize>,
    /// How the engine finds the tuple of a key, if this is a setting of the engine.
    pub lookups: Option<Lookups>,
}

impl Spot {
    /// Returns whether the engine runs with another setting than the paper's.
    pub fn is_variant(&self) -> bool {
        self.lookups == Some(Lookups::Cached)
    }

    /// Returns the name of the engine, with its setting if that differs from the paper's.
    pub fn label(&self) -> String {
        let setting = if self.is_variant() { " (cached)" } else { "" };
        format!("{}{setting}", self.engine)
    }

    /// Returns the spot as factors of a row.
    pub fn factors(&self) -> Factors {
        let mut factors = Factors::from([
            ("engine", self.engine.into()),
            ("load", self.load.into()),
            ("partitions", self.partitions.into()),
        ]);
        if !self.skew.is_empty() {
            factors.insert("skew", self.skew.into());
        }
        if let Some(node_bytes) = self.node_bytes {
            factors.insert("node_bytes", node_bytes.into());
        }
        if let Some(lookups) = self.lookups {
            factors.insert("lookups", lookups.name().into());
        }
        factors
    }
}

/// The results of an engine. Counts are averages for one transaction, unless the field says otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct StoreRow {
    /// The kind of the row: `engine`.
    pub row: &'static str,
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The figure of the publication.
    pub figure: &'static str,
    #[serde(skip)]
    pub spot: Spot,
    /// The engine, its settings and its load, as factors.
    pub factors: Factors,
    /// The hash of the configuration.
    pub configuration: String,
    /// A note that the memory was ordinary memory, and that latencies are modelled.
    pub memory: &'static str,
    /// Rounds in which times were measured. It is 0 if only counts were taken.
    pub rounds: usize,
    /// The number of transactions of all partitions.
    pub transactions: usize,
    /// Transactions a second by wall time, in main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<Spread>,
    /// Microseconds of processor time for a transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<Spread>,
    /// Modelled transactions a second, by the name of the model ([`Model::name`]).
    pub modelled_tps: BTreeMap<&'static str, Spread>,
    /// Cache lines that were fetched.
    pub loads: f64,
    /// Cache lines that were written to the medium.
    pub stores: f64,
    /// Fences that the engine executed.
    pub fences: f64,
    /// Blocks of 256 bytes that the medium wrote.
    pub medium_writes: f64,
    /// Bytes that the engine stored.
    pub stored_bytes: f64,
    /// Different cache lines that all transactions together wrote to the medium.
    pub worn_lines: u64,
    /// Writes of the cache line that was written to the medium most often.
    pub most_writes: u64,
    /// The most bytes that were allocated at once, summed over all partitions.
    pub peak_bytes: u64,
    /// Bytes that were allocated when the rows were loaded.
    pub loaded_bytes: u64,
    /// The reason why the times are not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
}

/// A figure that every row has, and that claims compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// The modelled throughput under the model with this name.
    Throughput(&'static str),
    /// Lines that were fetched for a transaction.
    Loads,
    /// Lines that were written to the medium for a transaction.
    Stores,
    /// Blocks that the medium wrote for a transaction.
    MediumWrites,
    /// The most bytes that were allocated at once.
    Peak,
}

impl Figure {
    /// Returns the figure of a row: its median and its ends.
    pub fn of(self, row: &StoreRow) -> Spread {
        let exact = |value: f64| Spread { median: value, min: value, max: value };
        match self {
            Figure::Throughput(model) => {
                row.modelled_tps.get(model).copied().unwrap_or_else(|| exact(f64::NAN))
            }
            Figure::Loads => exact(row.loads),
            Figure::Stores => exact(row.stores),
            Figure::MediumWrites => exact(row.medium_writes),
            Figure::Peak => exact(row.peak_bytes as f64),
        }
    }

    /// Returns the reason why the figure of a row is not judged, if there is one.
    pub fn not_judged(self, row: &StoreRow) -> Option<String> {
        row.not_judged.clone().filter(|_| matches!(self, Figure::Throughput(_)))
    }

    /// Returns the figure of a row in an order. `published` is the rank that the publication gives it: a
    /// higher figure has a higher rank.
    pub fn ranked(self, row: &StoreRow, published: f64) -> RankedFigure {
        let spread = self.of(row);
        let is_single = matches!(self, Figure::Throughput(_)) && row.rounds == 1;
        let noise = if is_single { ROUND_NOISE / 2.0 } else { 0.0 };
        let ends = (spread.min * (1.0 - noise), spread.max * (1.0 + noise));
        let spoilt = self.not_judged(row);
        RankedFigure { name: row.spot.label(), median: spread.median, ends, published, spoilt }
    }
}
