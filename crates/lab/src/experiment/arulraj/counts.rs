//! `nvm-wear` and `nvm-footprint`: what engines write to persistent memory, and the space that they take.
//! Both are counts, which are the same in each run.

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::tell;
use super::claims::{Ratio, Stated};
use super::measure::{self, NamedLoad, Plan, Which};
use super::rows::{Figure, StoreRow};
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::{counts_table, loads, write_all};
use super::ycsb_claims::{Group, PAIRS, groups};
use crate::stores::ycsb::{MIXES, Mix, SKEWS, Skew};

const COUNTS_ONLY: Plan = Plan { rounds: 0, models: &[], which: Which::All };

/// The greatest part of the writes that an engine saves, as the paper's abstract states it: half of them.
const WRITES_SAVED: f64 = 0.5;

/// Runs the experiment `nvm-wear`.
pub fn nvm_wear(lab: &mut Lab<'_>) -> Result<()> {
    let cells: Vec<(Mix, Skew)> =
        SKEWS.iter().flat_map(|skew| [(MIXES[2], *skew), (MIXES[3], *skew)]).collect();
    run(lab, &cells, wear_claims)
}

/// Runs the experiment `nvm-footprint`.
pub fn nvm_footprint(lab: &mut Lab<'_>) -> Result<()> {
    run(lab, &[(MIXES[2], SKEWS[0])], footprint_claims)
}

fn run(lab: &mut Lab<'_>, cells: &[(Mix, Skew)], claims_of: fn(&[StoreRow]) -> Vec<Claim>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    for partitions in lab.clients(&[1], &[2]) {
        let placed = PlacedBed::make(lab, &sizes.bed(), partitions)?;
        let mut rows = Vec::new();
        for (mix, skew) in cells {
            let loads = loads(sizes, *mix, *skew, partitions);
            let load = NamedLoad { name: mix.name, skew: skew.name, loads: &loads, node_bytes: None };
            rows.extend(measure::engines(lab, &placed.bed, &load, COUNTS_ONLY)?);
        }
        let claims = write_all(lab, claims_of(&rows))?;
        lab.say_tables(&[counts_table(&rows), tell::claims_table(&claims)])?;
    }
    Ok(())
}

/// Returns claims that NVM-InP wears the medium least (section 5.7), and that an engine for persistent memory
/// needs half the writes in the best case (abstract).
fn wear_claims(rows: &[StoreRow]) -> Vec<Claim> {
    let groups = groups(rows);
    let figure = Figure::MediumWrites;
    let mut claims: Vec<Claim> =
        groups.iter().filter_map(|group| least(group, figure, "nvm_inplace")).collect();
    let pairs = groups
        .iter()
        .flat_map(|group| PAIRS.map(|[nvm, traditional]| group.ratio(Figure::Stores, nvm, traditional)));
    let best = pairs.flatten().min_by(|one, other| one.value().total_cmp(&other.value()));
    let stated = Stated::gain(WRITES_SAVED, WRITES_SAVED);
    claims.extend(best.map(|best| best.judge_saved("stores, at best,", stated)));
    claims
}

/// Returns the claim that an engine has the lowest value of a figure.
fn least(group: &Group<'_>, figure: Figure, engine: &str) -> Option<Claim> {
    let under = group.of(engine)?;
    let others = group.rows.iter().filter(|row| row.spot.engine != engine);
    let by_median =
        |one: &&&StoreRow, other: &&&StoreRow| figure.of(one).median.total_cmp(&figure.of(other).median);
    let over = others.min_by(by_median).copied()?;
    Ratio { figure, over, under }.judge_order("fewest writes of 256 bytes", false)
}

/// Returns claims about the space at its peak (section 5.6).
fn footprint_claims(rows: &[StoreRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for group in groups(rows) {
        for [nvm, traditional] in PAIRS {
            let stated = if nvm == "nvm_cow" { Stated::gain(0.25, 0.25) } else { Stated::gain(0.17, 0.21) };
            let ratio = group.ratio(Figure::Peak, nvm, traditional);
            claims.extend(ratio.map(|ratio| ratio.judge_saved("bytes at the peak", stated)));
        }
    }
    claims
}
