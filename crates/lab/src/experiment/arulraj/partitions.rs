//! `nvm-partitions`: two partitions, each with a worker, against one (Arulraj 2015, section 3: transactions
//! of different partitions share nothing).
//!
//! The paper ran eight partitions on eight cores and did not vary their number. So the paper has no value for
//! this ratio, and the bar is this project's. Throughput is measured by wall time. Two partitions need two
//! processors that no other program uses.

use serde::Serialize;

use varve_bench::Result;
use varve_bench::report::Spread;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::Verdict;
use super::measure::CPU_NS_MIN;
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::{loads, write_all};
use crate::stores::ycsb::{MIXES, SKEWS, Ycsb};
use crate::stores::{Bed, ENGINES, Engine, PartitionLoad, RawRun};

/// The bar: the throughput of two partitions, divided by that of one partition, is at least this.
const GAIN_MIN: f64 = 1.8;
/// Index of the mix in `MIXES`: balanced.
const MIX: usize = 2;
/// Each worker must have had a processor for at least this part of its time. If one had less, other programs
/// ran, and the throughput is not judged.
const PROCESSOR_MIN: f64 = 0.9;

/// Throughput of an engine in one partition and in two.
#[derive(Debug, Clone, Serialize)]
struct PartitionsRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    rounds: usize,
    /// Transactions a second in one partition.
    one_tps: Spread,
    /// Transactions a second in two partitions.
    two_tps: Spread,
    /// Microseconds of the processor for a transaction, in one partition and in two.
    cpu_us: [f64; 2],
    /// Whether two runs of two partitions had the same counts of loads, stores and fences, and the same wear.
    counts_repeat: bool,
    /// The reason why the throughput is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
}

/// Runs the experiment `nvm-partitions`.
pub fn nvm_partitions(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    let placed = PlacedBed::make(lab, &sizes.bed(), 2)?;
    let loads = loads(sizes, MIXES[MIX], SKEWS[0], 2);
    let mut rows = Vec::new();
    for engine in ENGINES {
        let factors = Factors::from([("engine", engine.name.into())]);
        if lab.wants(&factors) {
            let row = measure(lab, &placed.bed, engine, &loads)?;
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let claims = rows.iter().flat_map(|row| [scales(row), repeats(row)]).collect();
    let claims = write_all(lab, claims)?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

fn measure(lab: &Lab<'_>, bed: &Bed, engine: &Engine, loads: &[Ycsb]) -> Result<PartitionsRow> {
    let rounds = lab.scale().rounds;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(bed.time(engine, loads.get(..1).unwrap_or(loads))?);
        two.push(bed.time(engine, loads)?);
    }
    let counted = || -> Result<Vec<_>> {
        let counted = bed.count(engine, loads)?;
        Ok(counted.into_iter().map(|counted| (counted.counts, counted.wear)).collect())
    };
    let Subject { experiment, figure } = lab.subject();
    Ok(PartitionsRow {
        row: "partitions",
        experiment,
        figure,
        factors: Factors::from([("engine", engine.name.into())]),
        rounds,
        one_tps: tps(&one, loads),
        two_tps: tps(&two, loads),
        cpu_us: [cpu_us(&one, loads), cpu_us(&two, loads)],
        counts_repeat: counted()? == counted()?,
        not_judged: not_judged(&one).or_else(|| not_judged(&two)),
    })
}

/// Returns the transactions a second of runs, by wall time. A run lasts until its slowest partition ends.
fn tps(runs: &[RawRun], loads: &[Ycsb]) -> Spread {
    let of = |run: &RawRun| {
        let transactions: usize = loads.iter().take(run.times.len()).map(PartitionLoad::transactions).sum();
        let ns = run.times.iter().map(|times| times.wall_ns).max().unwrap_or_default().max(1);
        transactions as f64 * 1e9 / ns as f64
    };
    Spread::of(&runs.iter().map(of).collect::<Vec<_>>())
}

fn cpu_us(runs: &[RawRun], loads: &[Ycsb]) -> f64 {
    let of = |run: &RawRun| {
        let transactions: usize = loads.iter().take(run.times.len()).map(PartitionLoad::transactions).sum();
        run.times.iter().map(|times| times.cpu_ns).sum::<u64>() as f64 / 1e3 / transactions.max(1) as f64
    };
    Spread::of(&runs.iter().map(of).collect::<Vec<_>>()).median
}

/// Returns the reason why the throughput of runs is not judged: a round was too short, or another program had
/// the processors.
fn not_judged(runs: &[RawRun]) -> Option<String> {
    let times = || runs.iter().flat_map(|run| &run.times);
    let shortest = times().map(|times| times.cpu_ns).min().unwrap_or_default();
    if shortest < CPU_NS_MIN {
        return Some(format!("a round took {:.0} ms only", shortest as f64 / 1e6));
    }
    let had = times().map(|times| times.cpu_ns as f64 / times.wall_ns.max(1) as f64).fold(1.0, f64::min);
    (had < PROCESSOR_MIN).then(|| format!("a worker had a processor for {:.0} % of its time", 100.0 * had))
}

fn scales(row: &PartitionsRow) -> Claim {
    let ratio = row.two_tps.median / row.one_tps.median;
    let verdict = match row.not_judged.clone() {
        Some(reason) => Verdict::NotJudged(reason),
        None => Verdict::at_least(GAIN_MIN, ratio),
    };
    let says = "throughput of two partitions / of one".to_owned();
    Claim::found(&row.factors, says, ratio).of_rounds(row.rounds).judged(GAIN_MIN, verdict)
}

fn repeats(row: &PartitionsRow) -> Claim {
    let ours = f64::from(u8::from(row.counts_repeat));
    let says = "counts of two partitions are the same in another run (1 = yes)".to_owned();
    Claim::found(&row.factors, says, ours).judged(1.0, Verdict::at_least(1.0, ours))
}

fn table(rows: &[PartitionsRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "engine",
        "tps of one",
        "tps of two",
        "ratio",
        "cpu us, one",
        "cpu us, two",
        "counts repeat",
    ]);
    for row in rows {
        let mut line = vec![row.factors.get("engine").map_or_else(String::new, tell::plain)];
        line.extend([row.one_tps.to_string(), row.two_tps.to_string()]);
        line.push(format!("{:.2}", row.two_tps.median / row.one_tps.median));
        line.extend(row.cpu_us.map(|us| format!("{us:.2}")));
        line.push(if row.counts_repeat { "yes" } else { "no" }.to_owned());
        table.push(line);
    }
    table
}
