//! Measures transactions a second of the table engines in place, on a mapped region: the workload YCSB of
//! Arulraj, Pavlo and Dulloor (2015, section 5.1).
//!
//! Call: `transactions DIRECTORY [ROWS [TRANSACTIONS [ENGINE]]]`. It makes a region in the directory, which
//! should be in main memory or persistent memory, and removes it at the end. Every row has a key of 8 bytes and
//! 10 columns of 100 bytes. A transaction reads a row or changes one column, with equal probability. Half of
//! the transactions go to a fifth of the rows. The transactions are drawn before the clock starts.
//!
//! What it does not know: several partitions; latencies of persistent memory (`varve-lab` models them).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use varve_device::{Directory, FileDirectory, FileOptions, Region, RegionTally};
use varve_memory::{
    Allocator, Commit, Inplace, InplaceSettings, NvmInplace, Owner, Store, StoreResult, TableNo,
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

struct Engine {
    name: &'static str,
    open: fn(Arc<Allocator>, Owner) -> StoreResult<Box<dyn Store>>,
}

const ENGINES: [Engine; 2] = [
    Engine {
        name: "nvm_inplace",
        open: |allocator, owner| Ok(Box::new(NvmInplace::open(allocator, "store", owner)?)),
    },
    Engine {
        name: "inplace",
        open: |allocator, owner| {
            let settings = InplaceSettings::default();
            Ok(Box::new(Inplace::open(allocator, "store", owner, settings)?))
        },
    },
];

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

/// Half of the transactions use a fifth of the rows.
fn works(rows: u64, count: u64) -> Vec<Work> {
    let mut random = Random(7);
    let mut work = || {
        let hot = rows / 5;
        let number = if random.below(2) == 0 { random.below(hot) } else { hot + random.below(rows - hot) };
        let column = random.below(COLUMNS as u64) as usize;
        Work { key: key_of(number), column, is_update: random.below(2) == 0 }
    };
    (0..count).map(|_| work()).collect()
}

/// Keys are spread, so that hot rows are not neighbours.
fn key_of(number: u64) -> u64 {
    Random(number).draw()
}

struct Timing {
    seconds: f64,
    /// Seconds in which the thread had a processor, if the system says.
    cpu_seconds: f64,
    tally: RegionTally,
}

/// Runs works, and counts what the region did meanwhile.
fn timed(region: &dyn Region, work: impl FnOnce() -> StoreResult<()>) -> StoreResult<Timing> {
    let (before, cpu_before, start) = (region.tally(), cpu_seconds(), Instant::now());
    work()?;
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    let after = region.tally();
    Ok(Timing {
        seconds,
        cpu_seconds,
        tally: RegionTally {
            loads_count: after.loads_count - before.loads_count,
            stores_count: after.stores_count - before.stores_count,
            written_back_lines: after.written_back_lines - before.written_back_lines,
            fences_count: after.fences_count - before.fences_count,
            ..after
        },
    })
}

/// Seconds in which this thread has had a processor; 0 where the system does not say. On a machine with other
/// work, this is less than the time that passes.
fn cpu_seconds() -> f64 {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = read.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

fn report(what: &str, count: u64, timing: &Timing) {
    let each = |count_all: u64| count_all as f64 / count as f64;
    let RegionTally { loads_count, stores_count, written_back_lines, fences_count, .. } = timing.tally;
    println!(
        "{what}: {:.0} a second, {:.0} ns of processor time each; {:.1} loads, {:.1} stores, {:.1} lines written back, {:.2} fences each",
        count as f64 / timing.seconds,
        timing.cpu_seconds * 1e9 / count as f64,
        each(loads_count),
        each(stores_count),
        each(written_back_lines),
        each(fences_count),
    );
}

fn load(store: &mut dyn Store, table: TableNo, rows: u64) -> StoreResult<()> {
    let row = [1; COLUMNS * COLUMN_BYTES];
    for number in 0..rows {
        store.insert(table, &[&key_of(number).to_be_bytes()], &row)?;
        finish(store, number)?;
    }
    store.sync()
}

/// Commits; a group of commits becomes durable together.
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

fn measure(engine: &Engine, path: &Path, rows: u64, count: u64) -> Result<(), Failure> {
    let directory = FileDirectory::open_or_create(path, FileOptions::default())?;
    let region_bytes = (rows * BYTES_OF_A_ROW + (256 << 20)).next_multiple_of(1 << 20);
    let region = directory.map(REGION, region_bytes)?;
    let facts = region.facts();
    println!("{}: {rows} rows, {}, {}", engine.name, facts.medium.name(), facts.write_back.name());
    let allocator = Arc::new(Allocator::format(Arc::clone(&region), DATABASE)?);
    let owner = |number| Owner::new(number).ok_or("an owner's number");
    let mut store = (engine.open)(allocator, owner(1)?)?;
    let table = store.create_table(owner(2)?, 1)?;
    report("  inserts", rows, &timed(&*region, || load(&mut *store, table, rows))?);
    let works = works(rows, count);
    for _ in 0..3 {
        report("  transactions", count, &timed(&*region, || run(&mut *store, table, &works))?);
    }
    drop(store);
    directory.remove(REGION)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("call: transactions DIRECTORY [ROWS [TRANSACTIONS [ENGINE]]]")?;
    let rows = arguments.next().map_or(Ok(200_000), |rows| rows.parse())?;
    let count = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let only = arguments.next();
    let chosen = |engine: &&Engine| only.as_ref().is_none_or(|only| only == engine.name);
    ENGINES.iter().filter(chosen).try_for_each(|engine| measure(engine, Path::new(&path), rows, count))
}
