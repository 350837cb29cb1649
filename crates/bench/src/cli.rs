//! The command line of `varve bench`, which the program `varve` includes.

use std::any::Any;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use varve_engine::Database;
use varve_sql::general::General;

use crate::embedded::Embedded;
use crate::gates::{self, Rows};
use crate::measure::{self, MeasureArgs};
use crate::random::YCSB_THETA;
use crate::report::Spread;
use crate::sysbench::Sysbench;
use crate::tpcb::Tpcb;
use crate::tpcc::{Scale, Tpcc};
use crate::values::Values;
use crate::wire::Wire;
use crate::workload::Workload;
use crate::ycsb::Ycsb;
use crate::{BenchError, Result};

/// Arguments of `varve bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A workload of sysbench, TPC-B, TPC-C or YCSB, in this process or over the wire
    Run(RunArgs),
    /// Resident point reads of 100-byte rows through the embedded API, one thread
    Points(GateArgs),
    /// Durable single-row commits beside bare 4 KiB writes with fdatasync
    Commits(GateArgs),
    /// Random reads from a table larger than the pool
    RandomReads(GateArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// oltp_point_select, oltp_read_only, oltp_read_write, oltp_write_only, oltp_update_index,
    /// oltp_update_non_index, oltp_insert, oltp_delete, tpcb, tpcc, ycsb-a to ycsb-f
    workload: String,
    /// A server to measure, as a connection string: "host=127.0.0.1 port=5433 user=postgres"; without it,
    /// embedded
    #[arg(long)]
    server: Option<String>,
    #[command(flatten)]
    place: DatabaseArgs,
    #[command(flatten)]
    measured: MeasureArgs,
    /// Tables of sysbench
    #[arg(long, default_value_t = 4)]
    tables: u64,
    /// Rows of each table of sysbench, or of YCSB's one
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// YCSB's fields: letters, or motif, which compresses
    #[arg(long, default_value = "letters", value_parser = ["letters", "motif"])]
    values: String,
    /// Share of YCSB's motif values that repeats nothing
    #[arg(long, default_value_t = 0.45)]
    uniqueness: f64,
    /// Skew of YCSB's keys
    #[arg(long, default_value_t = YCSB_THETA)]
    theta: f64,
    /// Branches of TPC-B
    #[arg(long, default_value_t = 1)]
    scale: u64,
    /// Warehouses of TPC-C
    #[arg(long, default_value_t = 1)]
    warehouses: u64,
    /// A hundredth of TPC-C's customers and 200 items: a figure of it means nothing
    #[arg(long)]
    small: bool,
    /// Isolation level of TPC-C's transactions
    #[arg(long, default_value = "read committed", value_parser = ["read committed", "repeatable read", "serializable"])]
    isolation: String,
    /// Declare TPC-C's foreign keys
    #[arg(long)]
    foreign_keys: bool,
}

/// Arguments for an embedded database.
#[derive(Debug, Args)]
struct DatabaseArgs {
    /// Directory for the embedded database, new or empty; it is kept. Without it, a directory below the
    /// working directory that is removed afterwards
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Configuration of the embedded database; without it, varve.toml in --directory, if there is one
    #[arg(long, value_name = "FILE", requires = "directory")]
    config: Option<PathBuf>,
    /// Pool of the embedded database, in MiB [default: the pool of the configuration, or 512]
    #[arg(long)]
    pool_mib: Option<u64>,
}

/// The pool if neither an option nor a configuration gives one.
const POOL_BYTES: u64 = 512 << 20;

/// A database that is to be measured.
#[derive(Debug)]
pub struct DatabaseRequest<'a> {
    /// The database's directory.
    pub directory: &'a Path,
    /// The configuration file. If it is `None`, the opener uses varve.toml in the directory, if there is one.
    pub config: Option<&'a Path>,
    /// Bytes of the buffer pool, if an option of the command line gives them.
    pub pool_bytes: Option<u64>,
    /// Bytes of the buffer pool if neither the command line nor the configuration gives them.
    pub pool_bytes_default: u64,
    /// Whether the directory may have an existing database. Otherwise the directory must be new or empty,
    /// because loading drops tables.
    pub may_exist: bool,
}

/// A database that was opened to be measured.
pub struct OpenedDatabase {
    /// The database.
    pub database: Arc<Database>,
    /// A lock on the database's directories. It keeps other processes out until it is dropped.
    pub lock: Box<dyn Any>,
}

/// A function that opens a database as the program that includes this command line does.
pub type Opener<'a> = &'a dyn Fn(&DatabaseRequest<'_>) -> Result<OpenedDatabase>;

#[derive(Debug, Args)]
struct GateArgs {
    #[command(flatten)]
    place: DatabaseArgs,
    /// Rows
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Bytes of a row
    #[arg(long, default_value_t = 100)]
    row_bytes: usize,
    /// Threads (random-reads only)
    #[arg(long, default_value_t = 32)]
    threads: usize,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of a round (points, random-reads)
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Commits of a round (commits)
    #[arg(long, default_value_t = 5000)]
    commits: u64,
    /// Use the table that an earlier run left in the directory
    #[arg(long, requires = "directory")]
    reuse: bool,
}

/// The name of the table that points, commits and random-reads use.
const TABLE: &str = "bench_rows";

/// Runs the command. Figures are written to `out`. `open` opens an embedded database, and `general` runs its
/// general queries.
pub fn run(args: &BenchArgs, open: Opener<'_>, general: Arc<dyn General>, out: &mut dyn Write) -> Result<()> {
    match &args.what {
        What::Run(run) => run_workload(run, open, general, out),
        What::Points(gate) => with_rows(gate, open, |rows, _| {
            let rates = repeat(gate.rounds, || gates::points(rows, Duration::from_secs(gate.seconds)))?;
            writeln!(
                out,
                "point reads a second, one thread, {} rows of {} bytes: {rates}",
                gate.rows, gate.row_bytes
            )?;
            Ok(())
        }),
        What::Commits(gate) => with_rows(gate, open, |rows, opened| {
            let measured = gates::commits(rows, opened.directory, gate.rounds, gate.commits)?;
            let (commit, bare) = (Spread::of(&measured.commit_us), Spread::of(&measured.bare_us));
            writeln!(
                out,
                "durable commit {commit} us, bare 4 KiB write and fdatasync {bare} us, ratio {:.3}",
                measured.ratio()
            )?;
            Ok(())
        }),
        What::RandomReads(gate) => with_rows(gate, open, |rows, opened| {
            let length = Duration::from_secs(gate.seconds);
            let rates = repeat(gate.rounds, || gates::random_reads(rows, gate.threads, length))?;
            writeln!(
                out,
                "random reads a second, {} threads, pool {} MiB: {rates}",
                gate.threads, opened.pool_mib
            )?;
            Ok(())
        }),
    }
}

fn repeat(rounds: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<Spread> {
    let figures = (0..rounds.max(1)).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
    Ok(Spread::of(&figures))
}

/// A database that is being measured.
struct Measured<'a> {
    database: &'a Arc<Database>,
    directory: &'a Path,
    pool_mib: u64,
}

/// Loads or finds the table of a gate, calls `measure`, and shuts the database down.
fn with_rows(
    gate: &GateArgs,
    open: Opener<'_>,
    measure: impl FnOnce(&Rows, &Measured<'_>) -> Result<()>,
) -> Result<()> {
    with_database(&gate.place, open, gate.reuse, |opened| {
        let found = if gate.reuse { Rows::find(opened.database, TABLE, gate.rows)? } else { None };
        let rows = match found {
            Some(rows) => rows,
            None => Rows::load(opened.database, TABLE, gate.rows, gate.row_bytes)?,
        };
        measure(&rows, opened)
    })
}

/// Opens a database in the named directory, or in a new one below the working directory that is removed
/// afterwards.
fn with_database(
    place: &DatabaseArgs,
    open: Opener<'_>,
    may_exist: bool,
    act: impl FnOnce(&Measured<'_>) -> Result<()>,
) -> Result<()> {
    let fresh = PathBuf::from(format!("varve-bench-{}", std::process::id()));
    let directory = place.directory.as_deref().unwrap_or(&fresh);
    let opened = open(&DatabaseRequest {
        directory,
        config: place.config.as_deref(),
        pool_bytes: place.pool_mib.map(|mib| mib << 20),
        pool_bytes_default: POOL_BYTES,
        may_exist,
    })?;
    let database = &opened.database;
    let pool_mib = database.pager().config().pool_bytes as u64 >> 20;
    let done = act(&Measured { database, directory, pool_mib }).and_then(|()| Ok(database.shutdown()?));
    drop(opened);
    if place.directory.is_none() {
        std::fs::remove_dir_all(&fresh)?;
    }
    done
}

fn run_workload(
    args: &RunArgs,
    open: Opener<'_>,
    general: Arc<dyn General>,
    out: &mut dyn Write,
) -> Result<()> {
    let workload = workload_of(args)?;
    if let Some(server) = &args.server {
        return measure::run(&Wire::new(server), workload.as_ref(), &args.measured, out);
    }
    with_database(&args.place, open, args.measured.no_load, |opened| {
        let settings = describe(opened);
        let target = Embedded::with_general(Arc::clone(opened.database), general, &settings);
        measure::run(&target, workload.as_ref(), &args.measured, out)
    })
}

/// Returns a description of the measured database: the settings that its configuration can change.
fn describe(opened: &Measured<'_>) -> String {
    let config = opened.database.pager().config();
    let (layout, protection) = (config.layout.name(), config.protection.name());
    format!(
        "pool {} MiB, layout {layout}, protection {protection}, compression {}",
        opened.pool_mib, config.compression.algorithm
    )
}

fn workload_of(args: &RunArgs) -> Result<Box<dyn Workload>> {
    match args.workload.as_str() {
        "tpcb" => Ok(Box::new(Tpcb::new(args.scale))),
        "tpcc" => Ok(Box::new(tpcc_of(args)?)),
        name => match name.strip_prefix("ycsb-").map(|letter| letter.chars().collect::<Vec<_>>()) {
            Some(letters) if letters.len() == 1 => Ok(Box::new(ycsb_of(letters[0], args)?)),
            Some(_) => Err(BenchError::Arguments(format!("{name}: YCSB's workloads are ycsb-a to ycsb-f"))),
            None => Ok(Box::new(Sysbench::new(name, args.tables, args.rows)?)),
        },
    }
}

fn ycsb_of(letter: char, args: &RunArgs) -> Result<Ycsb> {
    let values = Values::named(&args.values, args.uniqueness)?;
    Ycsb::new(letter, args.rows)?.values(values).theta(args.theta)
}

fn tpcc_of(args: &RunArgs) -> Result<Tpcc> {
    if args.warehouses == 0 {
        return Err(BenchError::Arguments("tpcc needs --warehouses of at least 1".to_owned()));
    }
    let scale = if args.small { Scale::small(args.warehouses) } else { Scale::full(args.warehouses) };
    Ok(Tpcc::new(scale).isolation(&args.isolation).foreign_keys(args.foreign_keys))
}
