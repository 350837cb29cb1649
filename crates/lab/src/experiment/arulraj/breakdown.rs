//! `nvm-breakdown`: where the time of the engines goes (Arulraj 2015, section 5.5, figure 13).
//!
//! The paper took the split from a profiler. Here, samples between two calls on the region show to which
//! functions of the engine a time belongs (`stores/sampled.rs`). So no other program is needed.
//!
//! 1. One run splits the processor's time. Another run, on the modelled cache, splits the extra latency of
//!    persistent memory (2x). Each of the two is split in the ratio of its samples.
//! 2. The category recovery has what only a restart needs: logs, checkpoints, directories, and master
//!    records. The category storage has rows, runs, files, and the allocator.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::{Better, Verdict};
use super::rows::{LOW, MODELS};
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::{loads, write_all};
use super::ycsb_claims::PAIRS;
use crate::stores::ycsb::{MIXES, Mix, SKEWS, Ycsb};
use crate::stores::{Bed, ENGINES, Engine, Metered, Part, split};

/// The categories of the paper's figure.
const CATEGORIES: [&str; 4] = ["storage", "recovery", "index", "other"];
const RECOVERY: &str = "recovery";
/// The part of their time that the engines for persistent memory spend on recovery, as the paper states it.
const NVM_SHARE: (f64, f64) = (0.13, 0.18);
/// The greatest part of its time that a traditional engine spends on recovery, as the paper states it.
const TRADITIONAL_SHARE_MAX: f64 = 0.33;
/// If the traditional engine spends a smaller part than this on recovery, it has too few samples for a
/// comparison.
const SHARE_MIN: f64 = 0.01;
/// The claims are about these mixes, which write most.
const WRITES: [&str; 2] = ["balanced", "write-heavy"];

fn category_of(part: Part) -> &'static str {
    match part {
        Part::Tuple | Part::Runs | Part::Allocator | Part::Files => "storage",
        Part::Log | Part::Checkpoint | Part::Directory => RECOVERY,
        Part::Index => "index",
        Part::Other => "other",
    }
}

/// The time of an engine under a mix, by categories and parts.
#[derive(Debug, Clone, Serialize)]
struct TimeRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    #[serde(skip)]
    engine: &'static str,
    #[serde(skip)]
    load: &'static str,
    /// Numbers of samples of the processor's time, and of the extra latency.
    samples: [usize; 2],
    /// Number of samples that were left out, because another process ran during them.
    left_out: usize,
    /// Microseconds for a transaction by part of the engine, at twice the latency of main memory.
    us_by_part: BTreeMap<&'static str, f64>,
    /// The share of each category in the time, between 0 and 1.
    share: BTreeMap<&'static str, f64>,
}

impl TimeRow {
    fn recovery(&self) -> f64 {
        self.share.get(RECOVERY).copied().unwrap_or_default()
    }

    fn us(&self) -> f64 {
        self.us_by_part.values().sum()
    }
}

/// Runs the experiment `nvm-breakdown`.
pub fn nvm_breakdown(lab: &mut Lab<'_>) -> Result<()> {
    let (sizes, [low, _]) = (StoreSizes::of(lab), SKEWS);
    let placed = PlacedBed::make(lab, &sizes.bed(), 1)?;
    let mut rows = Vec::new();
    for mix in MIXES {
        let loads = loads(sizes, mix, low, 1);
        for engine in ENGINES {
            let factors = Factors::from([("engine", engine.name.into()), ("load", mix.name.into())]);
            if lab.wants(&factors) {
                let row = measure(lab.subject(), &placed.bed, Spot { engine, mix, loads: &loads })?;
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
    }
    let claims = write_all(lab, claims(&rows))?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

/// The configuration of a row: an engine under a mix.
struct Spot<'l> {
    engine: &'static Engine,
    mix: Mix,
    loads: &'l [Ycsb],
}

fn measure(subject: Subject, bed: &Bed, spot: Spot<'_>) -> Result<TimeRow> {
    let Spot { engine, mix, loads } = spot;
    let raw = bed.time(engine, loads)?;
    let cpu_ns: u64 = raw.times.iter().map(|times| times.cpu_ns).sum();
    let transactions: usize = loads.iter().map(crate::stores::PartitionLoad::transactions).sum();
    let cpu_us = cpu_ns as f64 / 1e3 / transactions.max(1) as f64;
    let mut us_by_part = BTreeMap::new();
    let (mut samples, mut left_out) = ([0, 0], 0);
    for load in loads {
        let time = split(bed, engine, load, Metered::Time)?;
        let extra_ns =
            |counts: &_| MODELS.iter().find(|one| one.name == LOW).map_or(0.0, |one| one.extra_ns(counts));
        let extra = split(bed, engine, load, Metered::Extra(Arc::new(extra_ns)))?;
        let extra_us = extra.total / 1e3 / extra.transactions.max(1) as f64;
        for part in Part::ALL {
            let us = cpu_us * time.share(part) + extra_us * extra.share(part);
            *us_by_part.entry(part.name()).or_default() += us;
        }
        (samples, left_out) = ([time.samples, extra.samples], left_out + time.left_out);
    }
    let all: f64 = us_by_part.values().sum();
    let mut share = BTreeMap::from(CATEGORIES.map(|category| (category, 0.0)));
    for part in Part::ALL {
        let us = us_by_part.get(part.name()).copied().unwrap_or_default();
        *share.entry(category_of(part)).or_default() += us / all.max(f64::MIN_POSITIVE);
    }
    let Subject { experiment, figure } = subject;
    let factors = Factors::from([("engine", engine.name.into()), ("load", mix.name.into())]);
    let (row, engine, load) = ("time", engine.name, mix.name);
    Ok(TimeRow { row, experiment, figure, factors, engine, load, samples, left_out, us_by_part, share })
}

fn claims(rows: &[TimeRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for load in WRITES {
        let of = |engine: &str| rows.iter().find(|row| row.engine == engine && row.load == load);
        for [nvm, traditional] in PAIRS {
            claims.extend(of(nvm).map(nvm_share));
            if let (Some(over), Some(under)) = (of(nvm), of(traditional)) {
                claims.push(lower(over, under));
            }
        }
        let traditional = PAIRS.iter().filter_map(|[_, traditional]| of(traditional));
        let most = traditional.max_by(|one, other| one.recovery().total_cmp(&other.recovery()));
        claims.extend(most.map(traditional_share));
    }
    claims
}

fn nvm_share(row: &TimeRow) -> Claim {
    let says = format!("part of the time for recovery (published: {} to {})", NVM_SHARE.0, NVM_SHARE.1);
    let claim = Claim::found(&row.factors, says, row.recovery()).beside(Some(NVM_SHARE.0));
    Claim { verdict: Verdict::within(row.recovery(), NVM_SHARE, Better::Lower), ..claim }
}

fn traditional_share(row: &TimeRow) -> Claim {
    let says = "the greatest part of a traditional engine's time for recovery".to_owned();
    let claim = Claim::found(&row.factors, says, row.recovery()).beside(Some(TRADITIONAL_SHARE_MAX));
    Claim { verdict: Verdict::of(row.recovery(), TRADITIONAL_SHARE_MAX, Better::Neither), ..claim }
}

/// Returns the claim that an engine for persistent memory spends a smaller part of its time on recovery than
/// its traditional relative.
fn lower(over: &TimeRow, under: &TimeRow) -> Claim {
    let ratio = over.recovery() / under.recovery().max(f64::MIN_POSITIVE);
    let says = format!("part of the time for recovery: {} / {} (published: less)", over.engine, under.engine);
    let mut factors = under.factors.clone();
    factors.remove("engine");
    let verdict = match under.recovery() < SHARE_MIN {
        true => Verdict::NotJudged(format!(
            "recovery takes less than a hundredth of the time of {}",
            under.engine
        )),
        false => Verdict::at_most(1.0, ratio),
    };
    Claim::found(&factors, says, ratio).judged(1.0, verdict)
}

fn table(rows: &[TimeRow]) -> TextTable {
    let mut head = vec!["load", "engine", "us at 2x"];
    head.extend(CATEGORIES.map(|category| match category {
        "storage" => "storage %",
        RECOVERY => "recovery %",
        "index" => "index %",
        _ => "other %",
    }));
    head.extend(Part::ALL.map(Part::name));
    head.push("left out");
    let mut table = TextTable::headed(&head);
    for row in rows {
        let mut line = vec![row.load.to_owned(), row.engine.to_owned(), format!("{:.2}", row.us())];
        let percent = |share: f64| format!("{:.0}", 100.0 * share);
        line.extend(CATEGORIES.map(|category| percent(row.share.get(category).copied().unwrap_or_default())));
        let us = |part: Part| row.us_by_part.get(part.name()).copied().unwrap_or_default();
        line.extend(Part::ALL.map(|part| percent(us(part) / row.us().max(f64::MIN_POSITIVE))));
        line.push(row.left_out.to_string());
        table.push(line);
    }
    table
}
