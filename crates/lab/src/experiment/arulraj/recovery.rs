//! `nvm-recovery`: how long a start takes, by the transactions since the last checkpoint (Arulraj 2015, section
//! 5.4, figure 12).
//!
//! The store is dropped with an open transaction and without a clean end. All stores of the process are in
//! its region then, as after SIGKILL. The start opens the allocator and the store again in the same process.
//! It includes the checkpoint that `inplace` reads, so a start behind no transaction is shown, too.
//!
//! Loads are YCSB (figure 12a) and TPC-C (figure 12b). Behind each start the rows are checked.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use varve_bench::Result;
use varve_bench::report::Spread;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::{Better, Verdict};
use super::sizes::{BedSizes, PlacedBed, StoreSizes, TpccSizes};
use super::tpcc::TPCC;
use super::ycsb::write_all;
use crate::stores::tpcc::Tpcc;
use crate::stores::ycsb::{MIXES, SKEWS, Ycsb};
use crate::stores::{Bed, ENGINES, Engine, Partition, PartitionLoad, StoreSettings, refused, run};

/// Transactions that the paper varies.
const TRANSACTIONS: [usize; 4] = [0, 1_000, 10_000, 100_000];
/// The name of the other load in rows.
const YCSB: &str = "ycsb";
/// Starts of a point.
const STARTS: usize = 5;
/// A start takes less, by the text.
const SECONDS_MAX: f64 = 1.0;

/// A start of an engine.
#[derive(Debug, Clone, Serialize)]
struct StartRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    #[serde(skip)]
    engine: &'static str,
    #[serde(skip)]
    load: &'static str,
    #[serde(skip)]
    transactions: usize,
    /// Milliseconds until the store is open.
    open_ms: Spread,
}

/// `nvm-recovery`.
pub fn nvm_recovery(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    let ycsb = Ycsb::new(MIXES[2], SKEWS[0], sizes.tuples, sizes.transactions, 1);
    let mut rows = starts_of(lab, &sizes.bed(), YCSB, &ycsb)?;
    let sizes = TpccSizes::of(lab);
    let tpcc = Tpcc::new(sizes.scale, sizes.transactions, 1);
    rows.extend(starts_of(lab, &sizes.bed(), TPCC, &tpcc)?);
    let claims = write_all(lab, claims(&rows))?;
    lab.say(&format!("\n{}{}", table(&rows), tell::claims(&claims)))
}

/// Starts of all engines under a load.
fn starts_of<L: PartitionLoad>(
    lab: &mut Lab<'_>,
    sizes: &BedSizes,
    name: &'static str,
    load: &L,
) -> Result<Vec<StartRow>> {
    let placed = PlacedBed::make(lab, sizes, 1)?;
    let most = load.transactions().saturating_sub(STARTS);
    let is_large = TRANSACTIONS.iter().all(|count| *count <= most);
    let counts = if is_large { TRANSACTIONS } else { [0, most / 100, most / 10, most] };
    let mut rows = Vec::new();
    for engine in ENGINES {
        for transactions in counts {
            let factors = Factors::from([
                ("engine", engine.name.into()),
                ("load", name.into()),
                ("transactions", transactions.into()),
            ]);
            if lab.wants(&factors) {
                let open_ms = Spread::of(&starts(&placed.bed, engine, load, transactions)?);
                let Subject { experiment, figure } = lab.subject();
                let (row, engine, load) = ("start", engine.name, name);
                let row = StartRow { row, experiment, figure, factors, engine, load, transactions, open_ms };
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Milliseconds of several starts behind this number of transactions.
fn starts<L: PartitionLoad>(bed: &Bed, engine: &Engine, load: &L, transactions: usize) -> Result<Vec<f64>> {
    let region = bed.region(0).ok_or_else(|| refused("there is no region"))?;
    let open = |settings| Partition::open(engine, Arc::clone(region), settings);
    let endless = u64::MAX >> 1;
    let no_checkpoint =
        StoreSettings { checkpoint_log_bytes: endless, memtable_bytes: endless, ..bed.settings };
    let mut partition = Partition::create(engine, Arc::clone(region), None, no_checkpoint)?;
    load.load(partition.store.as_mut())?;
    partition.store.sync().map_err(refused)?;
    drop(partition);
    // A checkpoint behind the load, or a run of the MemTable.
    let at_once = StoreSettings { checkpoint_log_bytes: 1, memtable_bytes: 1, ..bed.settings };
    open(at_once)?.store.sync().map_err(refused)?;
    let mut partition = open(no_checkpoint)?;
    run(load.worker().as_mut(), partition.store.as_mut(), 0..transactions, bed.group, &mut || ())?;
    let mut times = Vec::new();
    for number in 0..STARTS {
        load.worker().execute(transactions + number, partition.store.as_mut())?;
        drop(partition);
        let began = Instant::now();
        partition = open(no_checkpoint)?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        load.check(partition.store.as_ref(), transactions)?;
    }
    Ok(times)
}

fn claims(rows: &[StartRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let own = |engine: &str, load: &str| -> Vec<&StartRow> {
        rows.iter().filter(|row| row.engine == engine && row.load == load).collect()
    };
    for engine in ENGINES {
        let (ycsb, tpcc) = (own(engine.name, YCSB), own(engine.name, TPCC));
        claims.extend(claims_of(engine.name, &ycsb));
        claims.extend(claims_of(engine.name, &tpcc));
        if let ("nvm_inplace" | "nvm_log", Some(ycsb), Some(tpcc)) = (engine.name, ycsb.last(), tpcc.last()) {
            claims.extend(slightly_higher(ycsb, tpcc));
        }
    }
    claims
}

/// Claims about an engine under one load.
fn claims_of(engine: &str, own: &[&StartRow]) -> Vec<Claim> {
    match (engine, own) {
        ("nvm_inplace" | "nvm_log", [_, few, .., many]) => {
            constant(few, many).into_iter().chain([below_a_second(many)]).collect()
        }
        ("inplace" | "log", [none, .., few, many]) => vec![linear(none, few, many)],
        // The text says that the CoW pair has no recovery, and states no time.
        _ => Vec::new(),
    }
}

/// That a start takes longer behind TPC-C than behind YCSB (section 5.4).
fn slightly_higher(ycsb: &StartRow, tpcc: &StartRow) -> Option<Claim> {
    let ranked = |row: &StartRow, published| RankedFigure {
        name: row.load.to_owned(),
        median: row.open_ms.median,
        ends: (row.open_ms.min, row.open_ms.max),
        published,
        spoilt: None,
    };
    let factors = Factors::from([("engine", tpcc.engine.into())]);
    let placed = vec![ranked(tpcc, 2.0), ranked(ycsb, 1.0)];
    order::judge_figures("time of a start, by load", &factors, STARTS, placed)
}

fn engine_of(row: &StartRow) -> Factors {
    Factors::from([("engine", row.engine.into()), ("load", row.load.into())])
}

fn constant(few: &StartRow, many: &StartRow) -> Option<Claim> {
    let ranked = |row: &StartRow| RankedFigure {
        name: format!("behind {}", row.transactions),
        median: row.open_ms.median,
        ends: (row.open_ms.min, row.open_ms.max),
        published: 1.0,
        spoilt: None,
    };
    let placed = vec![ranked(few), ranked(many)];
    order::judge_figures("time of a start", &engine_of(many), STARTS, placed)
}

fn below_a_second(row: &StartRow) -> Claim {
    let seconds = row.open_ms.median / 1000.0;
    let says = "seconds of a start (published: less than 1)".to_owned();
    let verdict = Verdict::at_most(SECONDS_MAX, seconds);
    Claim::found(&row.factors, says, seconds).of_rounds(STARTS).judged(SECONDS_MAX, verdict)
}

/// What transactions add to a start grows as their number does.
fn linear(none: &StartRow, few: &StartRow, many: &StartRow) -> Claim {
    let added = |row: &StartRow| row.open_ms.median - none.open_ms.median;
    let published = many.transactions as f64 / few.transactions.max(1) as f64;
    let ours = added(many) / added(few);
    let is_noise = few.open_ms.min <= none.open_ms.max;
    let verdict = match is_noise {
        true => Verdict::NotJudged("what fewer transactions add is within the noise".to_owned()),
        false => Verdict::of(ours, published, Better::Neither),
    };
    let says = format!("what {} transactions add to a start / {}", many.transactions, few.transactions);
    let claim = Claim::found(&engine_of(many), says, ours).of_rounds(STARTS).beside(Some(published));
    Claim { verdict, ..claim }
}

fn table(rows: &[StartRow]) -> TextTable {
    let mut table = TextTable::headed(&["engine", "load", "transactions", "ms until open"]);
    for row in rows {
        table.push(vec![
            row.engine.to_owned(),
            row.load.to_owned(),
            row.transactions.to_string(),
            row.open_ms.to_string(),
        ]);
    }
    table
}
