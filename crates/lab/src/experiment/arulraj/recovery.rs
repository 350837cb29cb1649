//! `nvm-recovery`: how long a start after SIGKILL takes, by the number of transactions since the last
//! checkpoint (Arulraj 2015, section 5.4, figure 12).
//!
//! A process of its own runs transactions, and is killed in the middle of them. Then further processes start,
//! one after another. Each one answers a query, compares all rows with those that the acknowledged
//! transactions left, begins a transaction, and is killed, too. A start also reads the checkpoint of
//! `inplace`. So a start after no transaction is measured, too: it shows the time for the checkpoint alone.
//!
//! Bars hold for wall time. Comparisons of times use the processor's time, because other work of the machine
//! changes it less.

use serde::Serialize;

use varve_bench::report::Spread;
use varve_bench::{BenchError, Result};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::{Better, Verdict};
use super::sizes::{GROUP, StoreSizes, TpccSizes};
use super::ycsb::write_all;
use crate::stores::killed::{ChildArgs, KilledProcess, LoadKind, Role, StartTimes};
use crate::stores::{ENGINES, Engine, system_call};

/// Numbers of transactions after which processes are killed. The last one is for `--full` only.
const TRANSACTIONS: [usize; 5] = [0, 1_000, 10_000, 100_000, 1_000_000];
/// With fewer tuples than this, parts of the load's length are used instead of `TRANSACTIONS`.
const TUPLES_MIN: u64 = 10_000;
/// An upper bound of the transactions that a process runs from the decision to kill it until SIGKILL ends it.
const RUN_ON: usize = 20_000;
/// Bytes of the region for each transaction of TPC-C: the rows that it adds, with their index entries.
const TPCC_ROW_BYTES: usize = 1_600;
/// Bytes of the region for each transaction, for its log records and its part of the MemTable. Only `inplace`
/// and `log` need them: they keep these until a checkpoint or a flush, and the run has neither.
const YCSB_LOG_BYTES: usize = 1_000;
const TPCC_LOG_BYTES: usize = 6_000;
/// Number of starts that are measured after each kill.
const STARTS: usize = 5;
/// The paper's text states that a start takes less than this.
const SECONDS_MAX: f64 = 1.0;
/// This project's goal: a start of an engine for persistent memory takes at most this.
const MILLISECONDS_MAX: f64 = 20.0;

/// The times of starts of an engine after one number of transactions.
#[derive(Debug, Clone, Serialize)]
struct StartRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    #[serde(skip)]
    load: &'static str,
    #[serde(skip)]
    engine: &'static str,
    #[serde(skip)]
    transactions: usize,
    /// Transactions that were acknowledged when the process was killed.
    acknowledged: usize,
    /// Transactions whose rows the store had when it was open.
    committed: usize,
    /// Milliseconds that mapping the region took.
    map_ms: Spread,
    /// Milliseconds that opening the store took.
    open_ms: Spread,
    /// Milliseconds from the beginning of the mapping until the first query was answered.
    answer_ms: Spread,
    /// Milliseconds of processor time from the beginning of the mapping until the first query was answered.
    cpu_ms: Spread,
    /// Milliseconds from the start of the process until the query was answered.
    process_ms: Spread,
}

/// A point: a load on an engine, and the number of transactions after which its process is killed.
#[derive(Clone, Copy)]
struct Spot {
    load: LoadKind,
    engine: &'static Engine,
    transactions: usize,
    /// The greatest number of transactions among all points of the load.
    most: usize,
}

impl Spot {
    fn factors(&self) -> Factors {
        Factors::from([
            ("load", self.load.name().into()),
            ("engine", self.engine.name.into()),
            ("transactions", self.transactions.into()),
        ])
    }

    /// Returns the arguments of the process that is killed at this point.
    fn args(&self, args: &ChildArgs) -> ChildArgs {
        let transactions = match self.load {
            LoadKind::Ycsb => self.transactions + RUN_ON,
            LoadKind::Tpcc => self.transactions,
        };
        let region_bytes = args.region_bytes + self.extra_bytes();
        ChildArgs { engine: self.engine.name.to_owned(), transactions, region_bytes, ..args.clone() }
    }

    /// Returns the bytes of the region for what the transactions add. An engine that keeps no log gets the
    /// same region size at every number of transactions. The reason is that a start reads 8 bytes for each 64
    /// KiB of the region: with different sizes, the times of the starts would differ for that reason alone.
    fn extra_bytes(&self) -> u64 {
        let (row_bytes, log_bytes) = match self.load {
            LoadKind::Ycsb => (0, YCSB_LOG_BYTES),
            LoadKind::Tpcc => (TPCC_ROW_BYTES, TPCC_LOG_BYTES),
        };
        let keeps_log = matches!(self.engine.name, "inplace" | "log");
        let logged = if keeps_log { self.transactions + RUN_ON } else { 0 };
        ((self.most + RUN_ON) * row_bytes + logged * log_bytes).next_multiple_of(REGION_UNIT_BYTES) as u64
    }
}

/// The size of a region is a multiple of this number of bytes.
const REGION_UNIT_BYTES: usize = 1 << 20;

/// Runs the experiment `nvm-recovery`.
pub fn nvm_recovery(lab: &mut Lab<'_>) -> Result<()> {
    let place = lab.empty("stores")?;
    let directory = &place.place().region;
    let (sizes, tpcc) = (StoreSizes::of(lab), TpccSizes::of(lab));
    let args = ChildArgs {
        role: Role::Run,
        directory: directory.clone(),
        region_bytes: sizes.bed().region_bytes(),
        engine: String::new(),
        load: LoadKind::Ycsb,
        tuples: sizes.tuples,
        warehouses: tpcc.scale.warehouses,
        customers: tpcc.scale.customers,
        items: tpcc.scale.items,
        transactions: 0,
        acknowledged: 0,
        group: GROUP,
        system_call_ns: u64::try_from(system_call(directory)?.as_nanos()).unwrap_or(u64::MAX),
    };
    lab.say(&describe(&args))?;
    let mut rows = measure_all(lab, &args, &counts(lab, sizes.transactions))?;
    let region_bytes = tpcc.bed().region_bytes();
    let args = ChildArgs { load: LoadKind::Tpcc, region_bytes, ..args };
    rows.extend(measure_all(lab, &args, &counts(lab, tpcc.transactions))?);
    let claims = write_all(lab, claims(&rows))?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

/// Measures a load on all engines that the user asked for, after each of these numbers of transactions.
fn measure_all(lab: &mut Lab<'_>, args: &ChildArgs, counts: &[usize]) -> Result<Vec<StartRow>> {
    let (mut rows, most) = (Vec::new(), counts.iter().copied().max().unwrap_or_default());
    for engine in ENGINES {
        for transactions in counts {
            let spot = Spot { load: args.load, engine, transactions: *transactions, most };
            if lab.wants(&spot.factors()) {
                let row = measure(lab, spot, &spot.args(args))?;
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Returns the numbers of transactions after which processes are killed: the user's numbers and 0, if the
/// user named some. Otherwise they are the paper's, or parts of the load's length if the load is small.
fn counts(lab: &Lab<'_>, transactions: usize) -> Vec<usize> {
    let scale = lab.scale();
    let short = if scale.is_full() { TRANSACTIONS.len() } else { TRANSACTIONS.len() - 1 };
    match lab.kills() {
        Some(kills) => [0].into_iter().chain(kills.iter().copied().filter(|count| *count > 0)).collect(),
        None if scale.store_tuples < TUPLES_MIN => {
            vec![0, transactions / 100, transactions / 10, transactions]
        }
        None => TRANSACTIONS.into_iter().take(short).collect(),
    }
}

/// Kills a process after this number of transactions. Then it starts a process several times on the same
/// region.
fn measure(lab: &Lab<'_>, spot: Spot, args: &ChildArgs) -> Result<StartRow> {
    let program = lab.program()?;
    let acknowledged = KilledProcess::spawn(&program, args)?.kill_behind(spot.transactions)?;
    let args = ChildArgs { role: Role::Start, acknowledged, ..args.clone() };
    let (mut starts, mut committed) = (Vec::new(), None);
    for _ in 0..STARTS {
        let (times, found) = KilledProcess::spawn(&program, &args)?.started()?;
        if *committed.get_or_insert(found) != found {
            return Err(BenchError::Wrong(format!(
                "{found} transactions, and at the first start {committed:?}"
            )));
        }
        starts.push(times);
    }
    std::fs::remove_dir_all(&args.directory)?;
    std::fs::create_dir_all(&args.directory)?;
    let spread = |of: fn(&StartTimes) -> f64| Spread::of(&starts.iter().map(of).collect::<Vec<_>>());
    let Subject { experiment, figure } = lab.subject();
    Ok(StartRow {
        row: "start",
        experiment,
        figure,
        factors: spot.factors(),
        load: spot.load.name(),
        engine: spot.engine.name,
        transactions: spot.transactions,
        acknowledged,
        committed: committed.unwrap_or_default(),
        map_ms: spread(|times| times.map_ms),
        open_ms: spread(|times| times.open_ms),
        answer_ms: spread(|times| times.map_ms + times.open_ms + times.query_ms),
        cpu_ms: spread(|times| times.cpu_ms),
        process_ms: spread(|times| times.process_ms),
    })
}

fn describe(args: &ChildArgs) -> String {
    format!(
        "a process is killed by SIGKILL behind the acknowledged transactions, and each of {STARTS} starts behind \
         it is a new process, which is killed, too\n\
         YCSB: {} tuples, balanced, low skew; TPC-C: {} warehouses, {} items; groups of {} commits; \
         YCSB has a region of {} MiB; \
         a call on a file takes {} ns beside \
         its work; inplace writes no checkpoint and log flushes no MemTable between its load and the kill\n\
         load average of the machine at the beginning: {}",
        args.tuples,
        args.warehouses,
        args.items,
        args.group,
        args.region_bytes >> 20,
        args.system_call_ns,
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    )
}

fn claims(rows: &[StartRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let own = |engine: &Engine, load: LoadKind| -> Vec<&StartRow> {
        rows.iter().filter(|row| row.engine == engine.name && row.load == load.name()).collect()
    };
    for engine in ENGINES {
        let (ycsb, tpcc) = (own(engine, LoadKind::Ycsb), own(engine, LoadKind::Tpcc));
        claims.extend(claims_of(engine.name, &ycsb));
        claims.extend(claims_of(engine.name, &tpcc));
        if let ("nvm_inplace" | "nvm_log", Some(ycsb), Some(tpcc)) = (engine.name, ycsb.last(), tpcc.last()) {
            claims.extend(slightly_higher(ycsb, tpcc));
        }
    }
    claims
}

/// Returns the claims about an engine under one load. `own` has its rows, by increasing number of
/// transactions.
fn claims_of(engine: &str, own: &[&StartRow]) -> Vec<Claim> {
    match (engine, own) {
        ("inplace" | "log", [none, .., few, many]) => vec![linear(none, few, many)],
        ("nvm_inplace" | "nvm_log", [_, few, .., many]) => {
            let bars = [at_most(many, "seconds", SECONDS_MAX, 1e-3), within_milliseconds(many)];
            constant(few, many).into_iter().chain(bars).collect()
        }
        // The paper's text says that the CoW engines need no recovery, and states no time for their start.
        ("nvm_cow", [_, few, .., many]) => {
            constant(few, many).into_iter().chain([within_milliseconds(many)]).collect()
        }
        ("cow", [_, few, .., many]) => constant(few, many).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the claim that a start takes longer after TPC-C than after YCSB (section 5.4).
fn slightly_higher(ycsb: &StartRow, tpcc: &StartRow) -> Option<Claim> {
    let factors = Factors::from([("engine", tpcc.engine.into())]);
    let placed = vec![ranked(tpcc, tpcc.load.to_owned(), 2.0), ranked(ycsb, ycsb.load.to_owned(), 1.0)];
    order::judge_figures("processor time until the first answer, by load", &factors, STARTS, placed)
}

/// Returns the processor time of a start, as a figure that is ranked among others.
fn ranked(row: &StartRow, name: String, published: f64) -> RankedFigure {
    let ends = (row.cpu_ms.min, row.cpu_ms.max);
    RankedFigure { name, median: row.cpu_ms.median, ends, published, spoilt: None }
}

fn engine_of(row: &StartRow) -> Factors {
    Factors::from([("load", row.load.into()), ("engine", row.engine.into())])
}

fn constant(few: &StartRow, many: &StartRow) -> Option<Claim> {
    let of = |row: &StartRow| ranked(row, format!("behind {}", row.transactions), 1.0);
    let placed = vec![of(few), of(many)];
    order::judge_figures("processor time until the first answer", &engine_of(many), STARTS, placed)
}

fn within_milliseconds(row: &StartRow) -> Claim {
    at_most(row, "milliseconds", MILLISECONDS_MAX, 1.0)
}

fn at_most(row: &StartRow, unit: &str, bar: f64, of_ms: f64) -> Claim {
    let ours = row.answer_ms.median * of_ms;
    let says = format!("{unit} until the first answer (less than {bar})");
    Claim::found(&row.factors, says, ours).of_rounds(STARTS).judged(bar, Verdict::at_most(bar, ours))
}

/// Returns the claim that the time which transactions add to a start grows in proportion to their number.
fn linear(none: &StartRow, few: &StartRow, many: &StartRow) -> Claim {
    let added = |row: &StartRow| row.cpu_ms.median - none.cpu_ms.median;
    let published = many.transactions as f64 / few.transactions.max(1) as f64;
    let ours = added(many) / added(few);
    let is_noise = few.cpu_ms.min <= none.cpu_ms.max;
    let verdict = match is_noise {
        true => Verdict::NotJudged("what fewer transactions add is within the noise".to_owned()),
        false => Verdict::of(ours, published, Better::Neither),
    };
    let slope = added(many) * 1e3 / many.transactions.max(1) as f64;
    let says = format!(
        "what {} transactions add to a start / {} ({slope:.2} us for each transaction)",
        many.transactions, few.transactions
    );
    let claim = Claim::found(&engine_of(many), says, ours).of_rounds(STARTS).beside(Some(published));
    Claim { verdict, ..claim }
}

fn table(rows: &[StartRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "load",
        "engine",
        "transactions",
        "acknowledged",
        "found",
        "ms to map",
        "ms to open",
        "ms to answer",
        "ms of the processor",
        "ms of the process",
    ]);
    for row in rows {
        table.push(vec![
            row.load.to_owned(),
            row.engine.to_owned(),
            row.transactions.to_string(),
            row.acknowledged.to_string(),
            row.committed.to_string(),
            row.map_ms.to_string(),
            row.open_ms.to_string(),
            row.answer_ms.to_string(),
            row.cpu_ms.to_string(),
            row.process_ms.to_string(),
        ]);
    }
    table
}
