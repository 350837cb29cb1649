//! Processes that are killed: one runs transactions until SIGKILL, and others start after it.
//!
//! ```text
//!  parent                          child
//!  KilledProcess::spawn ---------> execute: makes, loads, settles the partition
//!  kill_behind(n) <--------------- "acknowledged N" after each group that is durable
//!  SIGKILL ----------------------> dies, at whatever it does
//!  KilledProcess::spawn ---------> execute: maps the region, opens the store, reads a tuple
//!  started() <-------------------- "started MAP OPEN QUERY PROCESSOR" in ns
//!  started() <-------------------- "committed K": all tuples are as the first K transactions left them
//!  SIGKILL ----------------------> dies with an open transaction
//! ```
//!
//! Invariants
//! 1. A child acknowledges a transaction only when it is durable. So K is at least the last N.
//! 2. Between the settled load and the kill there is no checkpoint of `inplace` and no flush of `log`.
//! 3. A child never outlives its parent: it ends when its standard input is closed.
//!
//! This module does not know published values.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use varve_bench::tpcc::Scale;
use varve_bench::{BenchError, Result};
use varve_device::{Region, thread_cpu_ns};

use super::bed::Bed;
use super::driver;
use super::engines::{Engine, StoreSettings};
use super::load::{PartitionLoad, refused};
use super::partition::Partition;
use super::tpcc::{self, Tpcc};
use super::ycsb::{self, MIXES, SKEWS, Ycsb};

/// The hidden command of `varve-lab` that runs a child.
pub const COMMAND: &str = "store-child";
/// Index of the mix in `MIXES`: balanced, as in figure 12 of the paper.
const MIX: usize = 2;
/// Index of the skew in `SKEWS`: low.
const SKEW: usize = 0;
const SEED: u64 = 1;
/// The number of districts of a warehouse in TPC-C.
const DISTRICTS: i64 = 10;
/// Bytes of a node of `nvm_cow`, of the page cache of `cow`, and of a MemTable. They are the defaults of the
/// engines.
const NODE_BYTES: usize = 4096;
const CACHE_BYTES: usize = 16 << 20;
const MEMTABLE_BYTES: u64 = 4 << 20;

/// The task of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Runs transactions.
    Run,
    /// Starts the store, and checks its rows.
    Start,
}

/// The load that a child runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadKind {
    /// YCSB, balanced, with low skew. The child is killed in the middle of its transactions.
    Ycsb,
    /// TPC-C. The child stops in an open transaction, and is killed there. If it ran on until the kill, its
    /// rows would not show how many transactions it has committed.
    Tpcc,
}

impl LoadKind {
    /// Returns the name of the load.
    pub fn name(self) -> &'static str {
        match self {
            LoadKind::Ycsb => "ycsb",
            LoadKind::Tpcc => "tpcc",
        }
    }
}

/// A load whose transactions are drawn.
enum DrawnLoad {
    Ycsb(Ycsb),
    Tpcc(Tpcc),
}

impl DrawnLoad {
    fn as_load(&self) -> &dyn PartitionLoad {
        match self {
            DrawnLoad::Ycsb(load) => load,
            DrawnLoad::Tpcc(load) => load,
        }
    }
}

/// The arguments of a child.
#[derive(Debug, Clone, Args)]
pub struct ChildArgs {
    /// What it does
    #[arg(long, value_enum)]
    pub role: Role,
    /// Directory of the region
    #[arg(long)]
    pub directory: PathBuf,
    /// Length of the region
    #[arg(long)]
    pub region_bytes: u64,
    /// The engine
    #[arg(long)]
    pub engine: String,
    /// The load
    #[arg(long, value_enum)]
    pub load: LoadKind,
    /// Tuples of YCSB
    #[arg(long)]
    pub tuples: u64,
    /// Warehouses of TPC-C
    #[arg(long)]
    pub warehouses: i64,
    /// Customers of a district of TPC-C
    #[arg(long)]
    pub customers: i64,
    /// Items of TPC-C
    #[arg(long)]
    pub items: i64,
    /// Transactions that are committed, if nothing kills the child
    #[arg(long)]
    pub transactions: usize,
    /// Transactions that are certainly there, for a start
    #[arg(long, default_value_t = 0)]
    pub acknowledged: usize,
    /// Commits that are made durable together
    #[arg(long)]
    pub group: usize,
    /// Nanoseconds of a call on a file
    #[arg(long)]
    pub system_call_ns: u64,
}

impl ChildArgs {
    /// Returns the arguments as words of a command line.
    fn words(&self) -> Vec<String> {
        let role = if self.role == Role::Run { "run" } else { "start" };
        let numbers = [
            ("--region-bytes", self.region_bytes),
            ("--tuples", self.tuples),
            ("--warehouses", self.warehouses as u64),
            ("--customers", self.customers as u64),
            ("--items", self.items as u64),
            ("--transactions", self.transactions as u64),
            ("--acknowledged", self.acknowledged as u64),
            ("--group", self.group as u64),
            ("--system-call-ns", self.system_call_ns),
        ];
        let mut words = vec![COMMAND.to_owned(), "--role".to_owned(), role.to_owned()];
        words.extend(["--load".to_owned(), self.load.name().to_owned()]);
        words.extend(["--engine".to_owned(), self.engine.clone()]);
        words.extend(["--directory".to_owned(), self.directory.display().to_string()]);
        words.extend(numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number.to_string()]));
        words
    }

    fn settings(&self) -> StoreSettings {
        StoreSettings {
            system_call: Duration::from_nanos(self.system_call_ns),
            checkpoint_log_bytes: u64::MAX,
            batch_transactions: self.group,
            node_bytes: NODE_BYTES,
            cache_bytes: CACHE_BYTES,
            memtable_bytes: MEMTABLE_BYTES,
        }
    }

    /// Returns settings with which no transaction flushes the MemTable of `log`: it may become as large as the
    /// region. The MemTable of `nvm_log` is durable and no start reads it, so it keeps its size.
    fn unflushed(&self) -> StoreSettings {
        let settings = self.settings();
        match self.engine.as_str() {
            "log" => StoreSettings { memtable_bytes: self.region_bytes, ..settings },
            _ => settings,
        }
    }

    /// Draws the load. The load has one transaction more than the child commits.
    fn drawn(&self) -> DrawnLoad {
        let transactions = self.transactions + 1;
        match self.load {
            LoadKind::Ycsb => {
                let (mix, skew) = (MIXES[MIX], SKEWS[SKEW]);
                DrawnLoad::Ycsb(Ycsb::new(mix, skew, self.tuples, transactions, SEED))
            }
            LoadKind::Tpcc => {
                let Self { warehouses, customers, items, .. } = *self;
                let scale = Scale { warehouses, districts: DISTRICTS, customers, items };
                DrawnLoad::Tpcc(Tpcc::new(scale, transactions, SEED))
            }
        }
    }

    fn region(&self) -> Result<Arc<dyn Region>> {
        let regions = Bed::open(&self.directory, 1, self.region_bytes)?;
        regions.into_iter().next().ok_or_else(|| refused("there is no region"))
    }

    /// Runs the child until its parent kills it or ends.
    ///
    /// Errors: the store refuses a call, or a tuple differs from what the transactions left.
    pub fn execute(&self, out: &mut dyn Write) -> Result<()> {
        let engine = Engine::named(&self.engine)
            .ok_or_else(|| BenchError::Arguments(format!("there is no engine {}", self.engine)))?;
        match self.role {
            Role::Run => self.run(engine, out),
            Role::Start => self.start(engine, out),
        }
    }

    fn run(&self, engine: &Engine, out: &mut dyn Write) -> Result<()> {
        let load = self.drawn();
        let load = load.as_load();
        let mut partition = self.settled(engine, load)?;
        say(out, "acknowledged 0")?;
        let mut worker = load.worker();
        for first in (0..self.transactions).step_by(self.group.max(1)) {
            let end = (first + self.group.max(1)).min(self.transactions);
            driver::run(worker.as_mut(), partition.store.as_mut(), first..end, self.group, &mut || ())?;
            say(out, &format!("acknowledged {end}"))?;
        }
        worker.execute(self.transactions, partition.store.as_mut())?;
        wait_for_the_end()
    }

    /// Makes and loads a partition. Then it lets `inplace` write a checkpoint, and `log` flush its MemTable.
    fn settled(&self, engine: &Engine, load: &dyn PartitionLoad) -> Result<Partition> {
        let (region, settings) = (self.region()?, self.settings());
        let flushing = StoreSettings { checkpoint_log_bytes: 1, memtable_bytes: 1, ..settings };
        let mut partition = Partition::create(engine, Arc::clone(&region), None, settings)?;
        load.load(partition.store.as_mut())?;
        partition.store.sync().map_err(refused)?;
        drop(partition);
        Partition::open(engine, Arc::clone(&region), flushing)?.store.sync().map_err(refused)?;
        Partition::open(engine, region, self.unflushed())
    }

    fn start(&self, engine: &Engine, out: &mut dyn Write) -> Result<()> {
        let (began, cpu_began_ns) = (Instant::now(), thread_cpu_ns());
        let region = self.region()?;
        let mapped = began.elapsed();
        let mut partition = Partition::open(engine, region, self.unflushed())?;
        let opened = began.elapsed();
        match self.load {
            LoadKind::Ycsb => ycsb::read(partition.store.as_ref(), self.tuples / 2, &mut Vec::new())?,
            LoadKind::Tpcc => tpcc::read_warehouse(partition.store.as_ref())?,
        }
        let (answered, cpu_ns) = (began.elapsed(), thread_cpu_ns() - cpu_began_ns);
        let [map_ns, open_ns, query_ns] =
            [mapped, opened - mapped, answered - opened].map(|time| time.as_nanos());
        say(out, &format!("started {map_ns} {open_ns} {query_ns} {cpu_ns}"))?;
        let load = self.drawn();
        let committed = match &load {
            DrawnLoad::Ycsb(load) => load.committed(partition.store.as_ref(), self.acknowledged)?,
            DrawnLoad::Tpcc(_) => self.acknowledged,
        };
        let load = load.as_load();
        load.check(partition.store.as_ref(), committed)?;
        // This transaction stays open, so that the next start finds an open transaction.
        load.worker().execute(committed, partition.store.as_mut())?;
        say(out, &format!("committed {committed}"))?;
        wait_for_the_end()
    }
}

fn say(out: &mut dyn Write, line: &str) -> Result<()> {
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits until the parent has ended.
fn wait_for_the_end() -> Result<()> {
    let mut rest = Vec::new();
    std::io::stdin().lock().read_to_end(&mut rest)?;
    Ok(())
}

/// The times of a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartTimes {
    /// Milliseconds that the mapping of the region took.
    pub map_ms: f64,
    /// Milliseconds from the end of the mapping until the store was open.
    pub open_ms: f64,
    /// Milliseconds that the first query took.
    pub query_ms: f64,
    /// Milliseconds of processor time for mapping, opening and the first query.
    pub cpu_ms: f64,
    /// Milliseconds from the start of the process until the parent read that the query was answered.
    pub process_ms: f64,
}

/// A child process. When it is dropped, the child is killed.
pub struct KilledProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
    spawned: Instant,
}

impl KilledProcess {
    /// Starts a child. `program` is the path of `varve-lab`.
    pub fn spawn(program: &Path, args: &ChildArgs) -> Result<Self> {
        let spawned = Instant::now();
        let mut command = Command::new(program);
        command.args(args.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| refused("a child without output"))?;
        Ok(Self { child, lines: BufReader::new(stdout), spawned })
    }

    /// Returns the numbers in the child's next line, which must begin with this word. Returns `None` if the
    /// output has ended.
    fn next(&mut self, word: &str) -> Result<Option<Vec<u64>>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let is_expected = words.next() == Some(word);
        let numbers = words.map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
        match numbers {
            Ok(numbers) if is_expected => Ok(Some(numbers)),
            _ => Err(BenchError::Wrong(format!("a child says {line:?} and not {word}"))),
        }
    }

    fn expect(&mut self, word: &str) -> Result<Vec<u64>> {
        self.next(word)?.ok_or_else(|| BenchError::Wrong(format!("a child ended before it said {word}")))
    }

    fn acknowledged(&mut self) -> Result<u64> {
        Ok(self.expect("acknowledged")?.first().copied().unwrap_or_default())
    }

    /// Waits until the child has acknowledged `transactions` transactions, and then kills it. Returns how
    /// many transactions the child had acknowledged when it died.
    pub fn kill_behind(mut self, transactions: usize) -> Result<usize> {
        let mut acknowledged = self.acknowledged()?;
        while acknowledged < transactions as u64 {
            acknowledged = self.acknowledged()?;
        }
        self.child.kill()?;
        self.child.wait()?;
        // Lines that were still in the pipe acknowledge transactions, too. The last line may be incomplete.
        while let Ok(Some(numbers)) = self.next("acknowledged") {
            acknowledged = acknowledged.max(numbers.first().copied().unwrap_or_default());
        }
        usize::try_from(acknowledged).map_err(refused)
    }

    /// Waits until the child has started and checked all tuples, and then kills it. Returns the times of the
    /// start, and the number of transactions that the store has.
    pub fn started(mut self) -> Result<(StartTimes, usize)> {
        let times = self.expect("started")?;
        let process_ms = self.spawned.elapsed().as_secs_f64() * 1e3;
        let [map_ns, open_ns, query_ns, cpu_ns] = times.as_slice() else {
            return Err(BenchError::Wrong(format!("a start has four times, and not {times:?}")));
        };
        let ms = |ns: &u64| *ns as f64 / 1e6;
        let (map_ms, open_ms, query_ms) = (ms(map_ns), ms(open_ns), ms(query_ns));
        let times = StartTimes { map_ms, open_ms, query_ms, cpu_ms: ms(cpu_ns), process_ms };
        let committed = self.expect("committed")?.first().copied().unwrap_or_default();
        Ok((times, usize::try_from(committed).map_err(refused)?))
    }
}

impl Drop for KilledProcess {
    fn drop(&mut self) {
        // If the child has already ended, the call fails, and the error does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
