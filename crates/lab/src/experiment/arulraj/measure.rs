//! Measures engines under a load: their times in turns, then their counts.

use std::collections::BTreeMap;

use varve_bench::Result;
use varve_bench::report::{Spread, hash_of};

use super::super::lab::Lab;
use super::super::row::Subject;
use super::rows::{Model, Spot, StoreRow};
use crate::stores::{Bed, Counted, ENGINES, Engine, Lookups, PartitionLoad, RawRun, VARIANTS};

/// The least processor time of a round. If a round takes less, its times are not judged.
pub const CPU_NS_MIN: u64 = 100_000_000;
const MEMORY: &str = "ordinary memory; latencies are modelled";

/// A load and its name. It has a part for each partition.
pub struct NamedLoad<'l, L> {
    /// The name of the load: a mix of YCSB, or another load.
    pub name: &'static str,
    /// The skew of YCSB. It is empty for other loads.
    pub skew: &'static str,
    /// One load for each partition.
    pub loads: &'l [L],
    /// Bytes of an index node, if the experiment varies them.
    pub node_bytes: Option<usize>,
}

/// The engines that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All engines, with the settings of the paper.
    All,
    /// All engines with the settings of the paper, and some of them also with other settings.
    AllAndVariants,
    /// The engines for persistent memory.
    Nvm,
    /// The engine with this name.
    Named(&'static str),
}

impl Which {
    fn has(self, engine: &Engine) -> bool {
        match self {
            Which::AllAndVariants => true,
            _ if engine.lookups == Some(Lookups::Cached) => false,
            Which::All => true,
            Which::Nvm => engine.traditional.is_some(),
            Which::Named(name) => engine.name == name,
        }
    }
}

impl<L> NamedLoad<'_, L> {
    fn spot(&self, engine: &Engine) -> Spot {
        let Engine { name: engine, lookups, .. } = *engine;
        let (load, skew, partitions) = (self.name, self.skew, self.loads.len());
        Spot { engine, load, skew, partitions, node_bytes: self.node_bytes, lookups }
    }
}

/// The plan of a measurement: the engines and the figures that are measured.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Number of rounds in which times are measured. If it is 0, only counts are taken.
    pub rounds: usize,
    /// The models of persistent memory for which throughput is computed.
    pub models: &'static [Model],
    /// The engines that are measured.
    pub which: Which,
}

/// Measures all engines that the user asked for, and writes their rows.
pub fn engines<L: PartitionLoad>(
    lab: &mut Lab<'_>,
    bed: &Bed,
    load: &NamedLoad<'_, L>,
    plan: Plan,
) -> Result<Vec<StoreRow>> {
    let takes_part = |engine: &&Engine| plan.which.has(engine) && lab.wants(&load.spot(engine).factors());
    let wanted: Vec<&Engine> = ENGINES.iter().chain(VARIANTS).filter(takes_part).collect();
    let mut times: Vec<Vec<RawRun>> = wanted.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds {
        for (engine, times) in wanted.iter().zip(&mut times) {
            times.push(bed.time(engine, load.loads)?);
        }
    }
    let mut rows = Vec::new();
    for (engine, times) in wanted.iter().zip(&times) {
        let counted = bed.count(engine, load.loads)?;
        let run = EngineRun { spot: load.spot(engine), times, counted: &counted, models: plan.models };
        let row = run.row(lab.subject(), bed, load.loads);
        lab.write_row(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// The measurements of one engine.
struct EngineRun<'r> {
    spot: Spot,
    times: &'r [RawRun],
    counted: &'r [Counted],
    models: &'static [Model],
}

impl EngineRun<'_> {
    fn row<L: PartitionLoad>(&self, subject: Subject, bed: &Bed, loads: &[L]) -> StoreRow {
        let Subject { experiment, figure } = subject;
        let transactions: usize = loads.iter().map(PartitionLoad::transactions).sum();
        let count = transactions.max(1) as f64;
        let each = |of: &dyn Fn(&Counted) -> u64| self.counted.iter().map(of).sum::<u64>() as f64 / count;
        let sum = |of: fn(&Counted) -> u64| self.counted.iter().map(of).sum::<u64>();
        let factors = self.spot.factors();
        let settings = format!("{:?} {:?} {}", bed.cache, bed.settings, bed.group);
        let shared = format!("{} {settings} {transactions}", serde_json::json!(factors));
        StoreRow {
            row: "engine",
            experiment,
            figure,
            spot: self.spot,
            factors,
            configuration: hash_of(&shared),
            memory: MEMORY,
            rounds: self.times.len(),
            transactions,
            tps: self.spread(|run| count * 1e9 / slowest(run.times.iter().map(|times| times.wall_ns as f64))),
            cpu_us: self.spread(|run| {
                run.times.iter().map(|times| times.cpu_ns as f64).sum::<f64>() / 1000.0 / count
            }),
            modelled_tps: self.modelled(count),
            loads: each(&|counted| counted.counts.loaded_lines()),
            stores: each(&|counted| counted.counts.stored_lines()),
            fences: each(&|counted| counted.counts.fences()),
            medium_writes: each(&|counted| counted.counts.medium_writes),
            stored_bytes: each(&|counted| counted.stored_bytes),
            worn_lines: sum(|counted| counted.wear.worn_lines),
            most_writes: self.counted.iter().map(|counted| counted.wear.most_writes).max().unwrap_or(0),
            peak_bytes: sum(|counted| counted.peak_bytes),
            loaded_bytes: sum(|counted| counted.loaded_bytes),
            not_judged: self.not_judged(),
        }
    }

    /// Returns the spread of a figure over all rounds. Returns `None` if no times were measured.
    fn spread(&self, of: impl Fn(&RawRun) -> f64) -> Option<Spread> {
        let figures: Vec<f64> = self.times.iter().map(of).collect();
        (!figures.is_empty()).then(|| Spread::of(&figures))
    }

    fn modelled(&self, transactions: f64) -> BTreeMap<&'static str, Spread> {
        let tps = |model: &Model, run: &RawRun| {
            let partitions = run.times.iter().zip(self.counted);
            let ns = partitions.map(|(times, counted)| times.cpu_ns as f64 + model.extra_ns(&counted.counts));
            transactions * 1e9 / slowest(ns)
        };
        let named = |model: &Model| Some((model.name, self.spread(|run| tps(model, run))?));
        self.models.iter().filter_map(named).collect()
    }

    fn not_judged(&self) -> Option<String> {
        let shortest = self.times.iter().flat_map(|run| &run.times).map(|times| times.cpu_ns).min()?;
        (shortest < CPU_NS_MIN).then(|| format!("a round took {:.0} ms only", shortest as f64 / 1e6))
    }
}

/// Returns the longest of several times. It is at least a nanosecond.
fn slowest(times_ns: impl Iterator<Item = f64>) -> f64 {
    times_ns.fold(1.0, f64::max)
}
