//! Measures embedded databases side by side: Varve's six memory-oriented engines, LMDB, RocksDB and redb, on
//! the YCSB of Arulraj, Pavlo and Dulloor ("Let's Talk About Storage & Recovery Methods for Non-Volatile
//! Memory Database Systems", SIGMOD 2015, section 5.1).
//!
//! 1. Every database gets the same transactions, which are drawn before the first round. One thread runs
//!    them.
//! 2. Databases run in turns, one at a time. A round makes each database anew, in the same directory. The
//!    next round begins with another database.
//! 3. A transaction is acknowledged when it is durable. With groups, a group is acknowledged together.
//! 4. At the end of a round all rows of a database are compared with what the transactions must have left.
//! 5. On a file system that is not in memory, Varve's engines do not run, because there their region survives
//!    the end of the process, but not a power failure.
//!
//! This program does not know SQL or several threads.

mod database;
mod lmdb;
mod redb_file;
mod report;
mod rocks;
mod varve;
mod workload;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;

use database::{Database, Kind, Sizes};
use report::{Figure, Report};
use workload::{MIXES, Mix, Workload};

/// An error of one of the libraries.
pub type Failure = Box<dyn Error>;

/// Measures embedded databases on the same YCSB transactions, durable at each commit
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the files are made: a directory in main memory, which stands for persistent memory, or on a disk
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
    /// Rows of 1008 bytes
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: u64,
    /// Transactions of a mix
    #[arg(long, default_value_t = 500_000)]
    transactions: usize,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Transactions of a group, for the rows with group commit
    #[arg(long, default_value_t = 64)]
    group: usize,
    /// Only these databases
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.directory)?;
    let kinds = chosen(&arguments)?;
    let loads: Vec<Workload> =
        MIXES.iter().map(|mix| Workload::new(*mix, arguments.rows, arguments.transactions)).collect();
    let mut report = Report::new(arguments.group);
    for round in 0..arguments.rounds {
        for turn in 0..kinds.len() {
            let kind = &kinds[(turn + round) % kinds.len()];
            report.note_load();
            measure(kind, &arguments, &loads, &mut report)
                .map_err(|error| format!("{}: {error}", kind.name))?;
            eprintln!("round {}: {} is done", round + 1, kind.name);
        }
    }
    report.note_load();
    println!("{}", describe(&arguments));
    println!("{report}");
    Ok(())
}

/// Returns the databases that can be measured in the directory, or those of them that were asked for.
fn chosen(arguments: &Arguments) -> Result<Vec<Kind>, Failure> {
    let is_memory = is_in_memory(&arguments.directory)?;
    let all: Vec<Kind> =
        database::kinds().into_iter().filter(|kind| is_memory || !kind.needs_memory).collect();
    let names: Vec<&str> = all.iter().map(|kind| kind.name).collect();
    if let Some(unknown) = arguments.only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("{unknown} is not among {}", names.join(", ")).into());
    }
    let is_wanted =
        |kind: &Kind| arguments.only.is_empty() || arguments.only.iter().any(|name| name == kind.name);
    Ok(all.into_iter().filter(is_wanted).collect())
}

/// Returns whether a directory is in main memory: its mount is of the type tmpfs.
fn is_in_memory(directory: &Path) -> Result<bool, Failure> {
    let directory = directory.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let fields = |line: &str| -> Option<(PathBuf, bool)> {
        let mut words = line.split(' ').skip(1);
        Some((PathBuf::from(words.next()?), words.next()? == "tmpfs"))
    };
    let above = mounts.lines().filter_map(fields).filter(|(mount, _)| directory.starts_with(mount));
    let nearest = above.max_by_key(|(mount, _)| mount.components().count());
    Ok(nearest.is_some_and(|(_, is_memory)| is_memory))
}

/// Runs one round of one database: makes and loads it, runs all mixes with each commit durable and then in
/// groups, and checks its rows.
fn measure(
    kind: &Kind,
    arguments: &Arguments,
    loads: &[Workload],
    report: &mut Report,
) -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(&arguments.directory)?;
    let sizes = Sizes::of(arguments.rows);
    let mut database = (kind.create)(directory.path(), sizes)?;
    let last = loads.last().ok_or("no mix")?;
    database.load(last)?;
    for group in [1, arguments.group] {
        for load in loads {
            if group == 1 || load.mix.reads_percent < 100 {
                report.push(kind, load.mix, group, timed(database.as_mut(), load, group)?);
            }
        }
    }
    check(database.as_mut(), loads)
}

fn timed(database: &mut dyn Database, load: &Workload, group: usize) -> Result<Figure, Failure> {
    let (began, cpu_began) = (Instant::now(), process_cpu_us()?);
    database.run(load, group)?;
    let count = load.transactions() as f64;
    Ok(Figure {
        per_second: count / began.elapsed().as_secs_f64(),
        cpu_us: (process_cpu_us()? - cpu_began) / count,
    })
}

/// Returns the microseconds of the processor that all threads of the process have used. The kernel counts
/// them in steps of 10 ms, in the fields 14 and 15 of the process's `stat` (proc(5)).
fn process_cpu_us() -> Result<f64, Failure> {
    const TICK_US: f64 = 10_000.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program can have spaces. It ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? * TICK_US)
}

/// Compares all rows with those that the mixes must have left. Each mix runs on the rows that the mix before
/// has left.
fn check(database: &mut dyn Database, loads: &[Workload]) -> Result<(), Failure> {
    let (mut expected, mut row) = (Vec::new(), Vec::new());
    let Some(first) = loads.first() else { return Ok(()) };
    let changed = workload::left_by(loads);
    for key in 0..first.rows() {
        first.row(key, &mut expected);
        changed.apply(first, key, &mut expected);
        if !database.read(key, &mut row)? || row != expected {
            return Err(format!("row {key} is not what its updates left").into());
        }
    }
    Ok(())
}

fn describe(arguments: &Arguments) -> String {
    let mixes: Vec<String> = MIXES.iter().map(Mix::to_string).collect();
    format!(
        "{} rows of {} bytes, {} transactions of each mix ({} reads/updates), low skew, one thread, {} rounds in \
         turns; files in {}",
        arguments.rows,
        workload::ROW_BYTES,
        arguments.transactions,
        mixes.join(", "),
        arguments.rounds,
        arguments.directory.display(),
    )
}
