//! Measures how many transactions a second the table engines make on a mapped region. The workload is YCSB of
//! Arulraj, Pavlo and Dulloor (2015, section 5.1).
//!
//! The call is `transactions DIRECTORY [ROWS [TRANSACTIONS [ENGINE [PARTITIONS]]]]`. The program makes a
//! region in the directory, and removes it at the end. The directory should be in main memory or persistent
//! memory. Every row has a key of 8 bytes and 10 columns of 100 bytes. A transaction reads a row or changes
//! one column, with equal probability. Half of the transactions go to a fifth of the rows. The transactions
//! are drawn before the clock starts. A hash of the key chooses the partition. Each partition has a thread
//! and a store. The partitions share the rows, and each of them runs TRANSACTIONS. All threads begin a round
//! together, so the slowest one ends it.
//!
//! A file system in main memory should have huge pages (`mount -t tmpfs -o huge=advise`), as the DAX mapping of
//! persistent memory has.
//!
//! This program does not know latencies of persistent memory (`varve-lab` models them).

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use varve_device::{Directory, FileDirectory, FileOptions, Region, RegionTally};
use varve_memory::{
    Allocator, Commit, Inplace, InplaceSettings, NvmInplace, NvmInplaceSettings, Owner, Store, StoreResult,
    TableNo,
};

const REGION: &str = "transactions.region";
const DATABASE: u64 = 1;
const COLUMNS: usize = 10;
const COLUMN_BYTES: usize = 100;
/// Bytes of the region for each row, with some room for indexes, logs and checkpoints.
const BYTES_OF_A_ROW: u64 = 1400;
/// Commits of an engine with group commit between two syncs.
const GROUP: u64 = 64;

type Failure = Box<dyn std::error::Error>;
type OpenedStore = StoreResult<Box<dyn Store>>;

struct Engine {
    name: &'static str,
    open: fn(Arc<Allocator>, &str, Owner) -> OpenedStore,
}

const ENGINES: [Engine; 3] = [
    Engine {
        name: "nvm_inplace",
        open: |allocator, name, owner| {
            let settings = NvmInplaceSettings::WITH_CACHE;
            Ok(Box::new(NvmInplace::open_with(allocator, name, owner, settings)?))
        },
    },
    Engine {
        name: "nvm_inplace_without_cache",
        open: |allocator, name, owner| Ok(Box::new(NvmInplace::open(allocator, name, owner)?)),
    },
    Engine {
        name: "inplace",
        open: |allocator, name, owner| {
            let settings = InplaceSettings::default();
            Ok(Box::new(Inplace::open(allocator, name, owner, settings)?))
        },
    },
];

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Rows of all partitions.
    rows: u64,
    /// Transactions of each partition in a round.
    transactions: u64,
    partitions: u64,
}

/// A part of the rows, with the thread that works on them.
struct Partition {
    number: u64,
    store: Box<dyn Store>,
    table: TableNo,
}

/// One transaction.
#[derive(Debug, Clone, Copy)]
struct Work {
    key: u64,
    column: usize,
    is_update: bool,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

/// Returns the transactions of a partition. Half of them use a fifth of the rows.
fn works(load: Load, partition: u64) -> Vec<Work> {
    let mut random = Random(7);
    let mut work = || {
        let hot = load.rows / 5;
        let number =
            if random.below(2) == 0 { random.below(hot) } else { hot + random.below(load.rows - hot) };
        let column = random.below(COLUMNS as u64) as usize;
        Work { key: key_of(number), column, is_update: random.below(2) == 0 }
    };
    let all = std::iter::repeat_with(&mut work);
    all.filter(|work| work.key % load.partitions == partition).take(load.transactions as usize).collect()
}

/// Returns the key of a row. Keys are spread, so that hot rows are not neighbours.
fn key_of(number: u64) -> u64 {
    Random(number).draw()
}

#[derive(Clone, Copy, Default)]
struct Timing {
    seconds: f64,
    /// The seconds in which the thread had a processor, if the system reports them.
    cpu_seconds: f64,
}

/// Runs the work of a thread.
fn timed(work: impl FnOnce() -> StoreResult<()>) -> StoreResult<Timing> {
    let (cpu_before, start) = (cpu_seconds(), Instant::now());
    work()?;
    Ok(Timing { seconds: start.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu_before })
}

/// Returns the seconds in which this thread has had a processor, or 0 if the system does not report them. On
/// a machine with other work, they are less than the time that passes.
fn cpu_seconds() -> f64 {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = read.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

/// Prints the counts of each partition, and the counts of the region for the same time. `count` is the number
/// of transactions of all partitions.
fn report(what: &str, count: u64, timings: &[Timing], before: RegionTally, after: RegionTally) {
    let slowest = timings.iter().map(|timing| timing.seconds).fold(0.0, f64::max);
    let cpu_seconds: f64 = timings.iter().map(|timing| timing.cpu_seconds).sum();
    let each = |before: u64, after: u64| (after - before) as f64 / count as f64;
    println!(
        "{what}: {:.0} a second, {:.0} ns of processor time each; {:.1} loads, {:.1} stores, {:.1} lines written back, {:.2} fences each",
        count as f64 / slowest,
        cpu_seconds * 1e9 / count as f64,
        each(before.loads_count, after.loads_count),
        each(before.stores_count, after.stores_count),
        each(before.written_back_lines, after.written_back_lines),
        each(before.fences_count, after.fences_count),
    );
    let partition_count = count as f64 / timings.len() as f64;
    for (number, timing) in timings.iter().enumerate().filter(|_| timings.len() > 1) {
        let (a_second, ns) = (partition_count / timing.seconds, timing.cpu_seconds * 1e9 / partition_count);
        println!("    partition {number}: {a_second:.0} a second, {ns:.0} ns of processor time each");
    }
}

fn insert(partition: &mut Partition, load: Load) -> StoreResult<()> {
    let row = [1; COLUMNS * COLUMN_BYTES];
    let keys = (0..load.rows).map(key_of).filter(|key| key % load.partitions == partition.number);
    for (number, key) in (0..).zip(keys) {
        partition.store.insert(partition.table, &[&key.to_be_bytes()], &row)?;
        finish(&mut *partition.store, number)?;
    }
    partition.store.sync()
}

/// Commits. A group of commits becomes durable together.
fn finish(store: &mut dyn Store, number: u64) -> StoreResult<()> {
    if store.commit()? == Commit::Pending && number % GROUP == GROUP - 1 {
        store.sync()?;
    }
    Ok(())
}

fn run(store: &mut dyn Store, table: TableNo, works: &[Work]) -> StoreResult<()> {
    let (mut row, mut missing) = (Vec::new(), 0);
    for (number, work) in (0..).zip(works) {
        let key = work.key.to_be_bytes();
        let is_there = match work.is_update {
            true => store.patch(table, &key, work.column * COLUMN_BYTES, &[number as u8; COLUMN_BYTES])?,
            false => store.get(table, 0, &key, &mut row)?,
        };
        missing += u64::from(!is_there);
        finish(store, number)?;
    }
    store.sync()?;
    assert_eq!(missing, 0, "all rows are there");
    Ok(())
}

/// Runs the work of all partitions at the same time.
fn in_threads(
    region: &dyn Region,
    what: &str,
    count: u64,
    partitions: &mut [Partition],
    work: impl Fn(&mut Partition) -> StoreResult<()> + Sync,
) -> Result<(), Failure> {
    let (begin, before) = (Barrier::new(partitions.len()), region.tally());
    let one = |partition: &mut Partition| {
        begin.wait();
        timed(|| work(partition))
    };
    let timings: Vec<StoreResult<Timing>> = std::thread::scope(|scope| {
        let started = partitions.iter_mut().map(|partition| scope.spawn(|| one(partition)));
        let threads: Vec<_> = started.collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    assert_eq!(timings.len(), partitions.len(), "a thread has panicked");
    let timings = timings.into_iter().collect::<StoreResult<Vec<Timing>>>()?;
    report(what, count, &timings, before, region.tally());
    Ok(())
}

fn measure(engine: &Engine, path: &Path, load: Load) -> Result<(), Failure> {
    let directory = FileDirectory::open_or_create(path, FileOptions::default())?;
    let region_bytes = (load.rows * BYTES_OF_A_ROW + (256 << 20)).next_multiple_of(1 << 20);
    let region = directory.map(REGION, region_bytes)?;
    let facts = region.facts();
    let Load { rows, partitions: count, .. } = load;
    println!(
        "{}: {rows} rows, partitions: {count}, {}, {}",
        engine.name,
        facts.medium.name(),
        facts.write_back.name()
    );
    let allocator = Arc::new(Allocator::format(Arc::clone(&region), DATABASE)?);
    let owner = |number: u64| Owner::new(number as u16).ok_or("an owner's number");
    let partition = |number| -> Result<Partition, Failure> {
        let name = format!("store {number}");
        let mut store = (engine.open)(Arc::clone(&allocator), &name, owner(2 * number + 1)?)?;
        let table = store.create_table(owner(2 * number + 2)?, 1)?;
        Ok(Partition { number, store, table })
    };
    let mut partitions = (0..count).map(partition).collect::<Result<Vec<Partition>, Failure>>()?;
    let insert = |partition: &mut Partition| insert(partition, load);
    in_threads(&*region, "  inserts", rows, &mut partitions, insert)?;
    let works: Vec<Vec<Work>> = (0..count).map(|number| works(load, number)).collect();
    for _ in 0..3 {
        let run = |partition: &mut Partition| {
            let works = works.get(partition.number as usize).map_or(&[][..], Vec::as_slice);
            run(&mut *partition.store, partition.table, works)
        };
        in_threads(&*region, "  transactions", count * load.transactions, &mut partitions, run)?;
    }
    drop(partitions);
    directory.remove(REGION)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    const CALL: &str = "call: transactions DIRECTORY [ROWS [TRANSACTIONS [ENGINE [PARTITIONS]]]]";
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(CALL)?;
    let rows = arguments.next().map_or(Ok(200_000), |rows| rows.parse())?;
    let transactions = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let only = arguments.next();
    let partitions = arguments.next().map_or(Ok(1), |count| count.parse())?;
    if partitions == 0 {
        return Err(CALL.into());
    }
    let load = Load { rows, transactions, partitions };
    let chosen = |engine: &&Engine| only.as_ref().is_none_or(|only| only == engine.name);
    ENGINES.iter().filter(chosen).try_for_each(|engine| measure(engine, Path::new(&path), load))
}
