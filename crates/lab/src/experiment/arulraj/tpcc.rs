//! `tpcc-engines`: TPC-C on all engines (Arulraj 2015, sections 5.2, 5.3 and 5.6; figures 8, 11 and 14).
//!
//! 1. After each run, consistency conditions of TPC-C are checked. The check also finds a missing order or
//!    payment.
//! 2. Values that are only in a plot are not compared.

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::tell;
use super::super::verdict::Verdict;
use super::claims::{Stated, factors_of};
use super::measure::{self, NamedLoad, Plan, Which};
use super::rows::{DRAM, Figure, HIGH, HIGH_PARALLEL, MODELS, StoreRow};
use super::sizes::{PlacedBed, TpccSizes};
use super::ycsb::{counts_table, table, write_all};
use super::ycsb_claims::{Group, PAIRS, faster, groups};
use crate::stores::tpcc::Tpcc;

/// The name of the load in rows.
pub const TPCC: &str = "tpcc";

/// Throughput of an engine for persistent memory, divided by that of its traditional relative, at the latency
/// of main memory.
const GAIN: Stated = Stated::gain(1.8, 2.1);
/// This ratio for the copy-on-write engines, which gain most.
const COW_GAIN: Stated = Stated::gain(2.3, 2.3);
/// This ratio for all engines at eight times the latency.
const GAIN_AT_HIGH: Stated = Stated::gain(1.7, 1.9);
/// The part of its traditional relative's stores that an engine for persistent memory saves.
const STORES_SAVED: Stated = Stated::gain(0.31, 0.42);
/// The part of its traditional relative's space that an engine for persistent memory saves.
const SPACE_SAVED: Stated = Stated::gain(0.31, 0.38);

/// Runs the experiment `tpcc-engines`.
pub fn tpcc_engines(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = TpccSizes::of(lab);
    for partitions in lab.clients(&[1], &[2]) {
        let placed = PlacedBed::make(lab, &sizes.bed(), partitions)?;
        let plan = Plan { rounds: lab.scale().rounds, models: &MODELS, which: Which::AllAndVariants };
        let loads = loads(sizes, partitions);
        let load = NamedLoad { name: TPCC, skew: "", loads: &loads, node_bytes: None };
        let rows = measure::engines(lab, &placed.bed, &load, plan)?;
        let claims = write_all(lab, claims(&rows))?;
        lab.say_tables(&[table(&rows), counts_table(&rows), tell::claims_table(&claims)])?;
    }
    Ok(())
}

/// Draws the transactions of each partition.
pub fn loads(sizes: TpccSizes, partitions: usize) -> Vec<Tpcc> {
    (1..=partitions as u64).map(|seed| Tpcc::new(sizes.scale, sizes.transactions, seed)).collect()
}

fn claims(rows: &[StoreRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for group in groups(rows) {
        claims.extend(PAIRS.into_iter().flat_map(|pair| gains(&group, pair)));
        claims.extend(highest_gain(&group));
        claims.extend(PAIRS.into_iter().flat_map(|pair| savings(&group, pair)));
        claims.extend(group.most("best throughput", Figure::Throughput(DRAM), "nvm_inplace"));
        let variants = rows.iter().filter(|row| row.spot.is_variant());
        claims.extend(variants.filter_map(|row| Some(faster(row, group.of(row.spot.engine)?))));
    }
    claims
}

fn gains(group: &Group<'_>, [nvm, traditional]: [&str; 2]) -> Vec<Claim> {
    let at_dram = if nvm == "nvm_cow" { COW_GAIN } else { GAIN };
    let stated = [(DRAM, at_dram), (HIGH, GAIN_AT_HIGH), (HIGH_PARALLEL, GAIN_AT_HIGH)];
    let each = stated.into_iter().filter_map(|(model, stated)| {
        let ratio = group.ratio(Figure::Throughput(model), nvm, traditional)?;
        Some(ratio.judge("throughput", stated))
    });
    each.collect()
}

/// Returns the claim that the copy-on-write engines gain most.
fn highest_gain(group: &Group<'_>) -> Option<Claim> {
    let figure = Figure::Throughput(DRAM);
    let mut placed = Vec::new();
    for [nvm, traditional] in PAIRS {
        let ratio = group.ratio(figure, nvm, traditional)?;
        let (over, under) = (figure.of(ratio.over), figure.of(ratio.under));
        placed.push(RankedFigure {
            name: nvm.to_owned(),
            median: ratio.value(),
            ends: (over.min / under.max, over.max / under.min),
            published: if nvm == "nvm_cow" { 2.0 } else { 1.0 },
            spoilt: figure.not_judged(ratio.over).or_else(|| figure.not_judged(ratio.under)),
        });
    }
    // The text states no order of the other two engines, so the claim compares with the better one of them.
    let others = placed.iter().filter(|one| one.published < 2.0);
    let best = others.max_by(|one, other| one.median.total_cmp(&other.median))?.name.clone();
    placed.retain(|one| one.published == 2.0 || one.name == best);
    let first = group.rows.first()?;
    order::judge_figures("gain over the traditional engine", &factors_of(first, figure), first.rounds, placed)
}

/// Returns claims about the stores, loads and space that an engine saves. For loads under TPC-C, the text has
/// no number.
fn savings(group: &Group<'_>, [nvm, traditional]: [&str; 2]) -> Vec<Claim> {
    let ratio = |figure| group.ratio(figure, nvm, traditional);
    let stores = ratio(Figure::Stores).map(|ratio| ratio.judge_saved("stores", STORES_SAVED));
    let space = ratio(Figure::Peak).map(|ratio| ratio.judge_saved("bytes at the peak", SPACE_SAVED));
    let loads = ratio(Figure::Loads).map(|ratio| {
        let claim = ratio.judge_saved("loads", STORES_SAVED);
        let says = format!("part of loads that {nvm} saves of {traditional}");
        Claim { says, published: None, verdict: Verdict::NotInText, ..claim }
    });
    [stores, loads, space].into_iter().flatten().collect()
}
