//! `persist-latency`: throughput of the engines for persistent memory, by the latency that makes stores
//! durable (Arulraj 2015, appendix C, figure 16).
//!
//! The measured processor times include the write-backs and fences of this machine. The varied latency is
//! added to them, once for each fence that has lines to wait for.

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::Verdict;
use super::claims::factors_of;
use super::measure::{self, NamedLoad, Plan, Which};
use super::rows::{Figure, SYNC_MODELS, StoreRow};
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::{loads, write_all};
use super::ycsb_claims::{Group, groups};
use crate::stores::ycsb::{MIXES, SKEWS};

const SHORT: Figure = Figure::Throughput("10 ns");
const MIDDLE: Figure = Figure::Throughput("1000 ns");
const LONG: Figure = Figure::Throughput("10000 ns");

/// Runs the experiment `persist-latency`.
pub fn persist_latency(lab: &mut Lab<'_>) -> Result<()> {
    let (sizes, [low, _]) = (StoreSizes::of(lab), SKEWS);
    let plan = Plan { rounds: lab.scale().rounds, models: &SYNC_MODELS, which: Which::Nvm };
    let placed = PlacedBed::make(lab, &sizes.bed(), 1)?;
    let mut rows = Vec::new();
    for mix in MIXES {
        let loads = loads(sizes, mix, low, 1);
        let load = NamedLoad { name: mix.name, skew: low.name, loads: &loads, node_bytes: None };
        rows.extend(measure::engines(lab, &placed.bed, &load, plan)?);
    }
    let claims = write_all(lab, claims(&rows))?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

fn claims(rows: &[StoreRow]) -> Vec<Claim> {
    let groups = groups(rows);
    let writes = groups.iter().filter(|group| group.load != "read-only");
    let mut claims: Vec<Claim> =
        writes.clone().flat_map(|group| group.rows.iter().map(|row| falls(row))).collect();
    claims.extend(writes.filter_map(least_sensitive));
    let of = |load: &str| groups.iter().find(|group| group.load == load)?.of("nvm_log");
    if let (Some(balanced), Some(heavy)) = (of("balanced"), of("write-heavy")) {
        claims.extend(overtaken(MIDDLE, heavy, balanced));
        claims.extend(overtaken(LONG, balanced, heavy));
    }
    claims
}

/// Returns the throughput with the longest latency, as a part of the throughput with the shortest one.
fn kept(row: &StoreRow) -> f64 {
    LONG.of(row).median / SHORT.of(row).median
}

/// Returns the claim that the throughput of an engine falls as the latency grows.
fn falls(row: &StoreRow) -> Claim {
    let ratio = 1.0 / kept(row);
    let verdict = match LONG.not_judged(row) {
        Some(reason) => Verdict::NotJudged(reason),
        None => Verdict::at_least(1.0, ratio),
    };
    let says = format!("throughput at 10 ns / 10000 ns: {}", row.spot.engine);
    Claim::found(&factors_of(row, LONG), says, ratio).of_rounds(row.rounds).judged(1.0, verdict)
}

/// Returns the claim that NVM-CoW keeps a greater part of its throughput than the other engines.
fn least_sensitive(group: &Group<'_>) -> Option<Claim> {
    let first = group.rows.first()?;
    group.of("nvm_cow")?;
    let ranked = |row: &&StoreRow| {
        let (long, short) = (LONG.of(row), SHORT.of(row));
        RankedFigure {
            name: row.spot.engine.to_owned(),
            median: kept(row),
            ends: (long.min / short.min, long.max / short.max),
            published: if row.spot.engine == "nvm_cow" { 2.0 } else { 1.0 },
            spoilt: LONG.not_judged(row),
        }
    };
    let cow = group.rows.iter().filter(|row| row.spot.engine == "nvm_cow");
    let others = group.rows.iter().filter(|row| row.spot.engine != "nvm_cow");
    let closest = others.max_by(|one, other| kept(one).total_cmp(&kept(other)));
    let placed = cow.chain(closest).map(ranked).collect();
    order::judge_figures(
        "part of throughput kept at 10000 ns",
        &factors_of(first, LONG),
        first.rounds,
        placed,
    )
}

/// Returns the claim that NVM-Log is faster under one mix than under another.
fn overtaken(figure: Figure, faster: &StoreRow, slower: &StoreRow) -> Option<Claim> {
    let named =
        |row: &StoreRow, rank| RankedFigure { name: row.spot.load.to_owned(), ..figure.ranked(row, rank) };
    let mut factors = factors_of(slower, figure);
    factors.remove("load");
    let placed = vec![named(faster, 2.0), named(slower, 1.0)];
    order::judge_figures("throughput of nvm_log", &factors, slower.rounds, placed)
}

fn table(rows: &[StoreRow]) -> TextTable {
    let mut head = vec!["load", "engine", "cpu us", "fences"];
    head.extend(SYNC_MODELS.map(|model| model.name));
    let mut table = TextTable::headed(&head);
    for row in rows {
        let mut line = vec![row.spot.load.to_owned(), row.spot.engine.to_owned()];
        line.push(row.cpu_us.map_or_else(String::new, |us| format!("{:.2}", us.median)));
        line.push(format!("{:.2}", row.fences));
        let tps = |name: &str| row.modelled_tps.get(name).map_or(0.0, |spread| spread.median);
        line.extend(SYNC_MODELS.map(|model| format!("{:.0}", tps(model.name))));
        table.push(line);
    }
    table
}
