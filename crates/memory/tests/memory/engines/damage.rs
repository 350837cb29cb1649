//! Bytes of an engine's chunks are damaged. Then the calls of the engine return errors or wrong rows, and
//! never panic or loop.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve_device::{Directory, MemoryDirectory, RecordLog, Region, RegionFacts, RegionTally, Result};
use varve_memory::{
    Allocator, Direction, FileCosts, Files, Inplace, InplaceSettings, KeyRange, Pointer, Store, TableNo,
};

use super::life::{self, Plan};
use super::model::{INDEXES, Model, TABLE};
use super::{ENGINES, Engine, ROOT, owner};
use crate::life::{DATABASE, REGION};
use crate::rng::Rng;
use crate::traced::Calls;

/// The largest number of calls of the region in one trial. It is far more than any trial without a loop
/// needs. If a skip list has a circle, a lookup passes as many nodes as the region has space for before it
/// gives up, and a trial has more than a hundred lookups.
const CALLS_MAX: u64 = 60_000_000;
/// Rows of one scan, likewise.
const ROWS_MAX: usize = 100_000;
const TRIALS: u64 = 150;

/// A region that panics after too many calls.
struct Bounded {
    inner: Arc<dyn Region>,
    calls: AtomicU64,
}

impl Bounded {
    fn count(&self) {
        assert!(self.calls.fetch_add(1, Relaxed) < CALLS_MAX, "an endless loop");
    }
}

impl Region for Bounded {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.count();
        self.inner.read(offset, buf);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.count();
        self.inner.store(offset, bytes);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
    }

    fn fence(&self) {
        self.inner.fence();
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }
}

/// A store with rows, and its chunks. If `is_open`, a transaction was open at the crash.
struct Stored {
    directory: Arc<MemoryDirectory>,
    chunks: Vec<(Pointer, u64)>,
}

fn stored(engine: &Engine, is_open: bool) -> std::result::Result<Stored, String> {
    let directory = life::with_table(engine, 2 << 20);
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let plan = Plan { seed: 5, operations: 300, keys: 200, traced: Calls::None };
    life::live_on(engine, Arc::clone(&region), &RecordLog::new(), Model::default(), &plan)?;
    let allocator = Arc::new(Allocator::open(region, DATABASE).map_err(|error| error.to_string())?);
    let mut store = (engine.open)(Arc::clone(&allocator)).map_err(|error| error.to_string())?;
    if is_open {
        (0..10).for_each(|number| change(&mut *store, number));
    }
    let chunks = store.chunks().map_err(|error| error.to_string())?;
    let with_len = |chunk: Pointer| Some((chunk, allocator.len_bytes(chunk).ok()?));
    Ok(Stored { directory, chunks: chunks.into_iter().filter_map(with_len).collect() })
}

/// A few changes; their errors are of no interest.
fn change(store: &mut dyn Store, number: u64) {
    let table = TableNo::new(TABLE);
    let key = number.to_be_bytes();
    let keys: [&[u8]; INDEXES] = [&key, &key, &key];
    let _refused = store.insert(table, &keys, &[3; 80]);
    let _refused = store.patch(table, &key, 10, &[4; 30]);
    let _refused = store.replace(table, &keys, &[5; 90]);
    let _refused = store.delete(table, &(number / 2).to_be_bytes());
}

/// Damages a word or a byte of a chunk.
fn damage(stored: &Stored, region: &dyn Region, rng: &mut Rng) -> Option<()> {
    let (chunk, len_bytes) = rng.pick(&stored.chunks)?;
    // Heads of chunks have the structure; what follows them is often data.
    let end = if rng.below(4) > 0 { len_bytes.min(256) } else { len_bytes };
    let at = chunk.to_u64() + rng.below(end) / 8 * 8;
    let old = region.load_word(at);
    let other = rng.pick(&stored.chunks)?.0.to_u64();
    let new = match rng.below(7) {
        0 | 1 => old ^ 1 << rng.below(64),
        2 => old ^ 0xFF << (8 * rng.below(8)),
        3 => 0,
        4 => u64::MAX,
        5 => rng.draw(),
        _ => other,
    };
    region.store_word(at, new);
    Some(())
}

/// Opens the store, reads everything, and changes something. Returns whether there was an error.
fn use_it(engine: &Engine, region: Arc<dyn Region>) -> bool {
    let Ok(allocator) = Allocator::open(region, DATABASE) else { return true };
    let allocator = Arc::new(allocator);
    let Ok(mut store) = (engine.open)(Arc::clone(&allocator)) else { return true };
    let table = TableNo::new(TABLE);
    let mut has_failed = false;
    for index in 0..INDEXES {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = 0;
            let mut on_row = |_: &[u8], _: &[u8]| {
                rows += 1;
                assert!(rows < ROWS_MAX, "an endless scan");
                ControlFlow::Continue(())
            };
            has_failed |= store.scan(table, index, &KeyRange::ALL, direction, &mut on_row).is_err();
        }
    }
    has_failed |= store.chunks().is_err();
    for number in 0..40 {
        has_failed |= store.get(table, 0, &u64::to_be_bytes(number), &mut Vec::new()).is_err();
        change(&mut *store, number);
        let _ended = if number % 3 == 0 { store.rollback() } else { store.commit().map(drop) };
    }
    has_failed |= store.rollback().and_then(|()| store.sync()).is_err();
    has_failed | store.drop_table(table).is_err()
}

fn trial(engine: &Engine, stored: &Stored, seed: u64) -> std::result::Result<bool, String> {
    let copy = MemoryDirectory::from_images(stored.directory.images());
    let region = copy.map(REGION, 4096).map_err(|error| error.to_string())?;
    let mut rng = Rng::new(seed);
    let damages = 1 + rng.below(3);
    (0..damages).try_for_each(|_| damage(stored, &*region, &mut rng)).ok_or("no chunk")?;
    let bounded = Arc::new(Bounded { inner: region, calls: AtomicU64::new(0) });
    let used = catch_unwind(AssertUnwindSafe(|| use_it(engine, bounded)));
    used.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string())).unwrap_or_default()
    })
}

/// Runs trials of one engine. Returns the number of trials with an error, and what was wrong in the others.
fn trials(engine: &Engine, seeds: std::ops::Range<u64>) -> (u64, Vec<String>) {
    let stores =
        [false, true].map(|is_open| stored(engine, is_open).unwrap_or_else(|error| panic!("{error}")));
    let (mut errors, mut wrong) = (0, Vec::new());
    for seed in seeds {
        let Some(stored) = stores.get(seed as usize % 2) else { continue };
        match trial(engine, stored, seed) {
            Ok(has_failed) => errors += u64::from(has_failed),
            Err(panic) => wrong.push(format!("{} seed {seed}: {panic}", engine.name)),
        }
    }
    (errors, wrong)
}

fn check(count: u64) {
    for engine in &ENGINES {
        let (errors, wrong) = trials(engine, 0..count);
        println!("{}: {count} damaged regions, {errors} with an error", engine.name);
        assert!(wrong.is_empty(), "{} of {count}: {wrong:#?}", wrong.len());
        assert!(errors > count / 20, "{}: {errors} errors", engine.name);
    }
}

#[test]
fn damaged_bytes_are_an_error_and_never_a_panic_or_a_loop() {
    check(TRIALS);
}

/// Does the same as the test above, with `TRIALS` regions of each engine.
#[test]
#[ignore = "a long search, which `make crash` runs"]
fn many_damaged_regions() {
    check(std::env::var("TRIALS").ok().and_then(|value| value.parse().ok()).unwrap_or(5000));
}

/// A checkpoint with a damaged number names a log file that does not exist. In an earlier version, a start
/// took the true log for an unfinished file and removed it. So the changes since the checkpoint were lost.
#[test]
fn a_start_removes_no_log_if_the_checkpoint_names_another_one()
-> std::result::Result<(), Box<dyn std::error::Error>> {
    let region = MemoryDirectory::new().map(REGION, 1 << 20)?;
    drop(Allocator::format(Arc::clone(&region), DATABASE)?);
    // A start clears what is not in files.
    let allocator = || Allocator::open(Arc::clone(&region), DATABASE).map(Arc::new);
    let open = || Inplace::open(allocator()?, ROOT, owner(1), InplaceSettings::default());
    let names = || Files::open(allocator()?, ROOT, owner(1), FileCosts::default()).map(|files| files.names());
    let mut store = open()?;
    let table = store.create_table(owner(9), 1)?;
    store.insert(table, &[b"a"], b"first")?;
    store.commit()?;
    store.checkpoint()?;
    store.insert(table, &[b"b"], b"second")?;
    store.commit()?;
    store.sync()?;
    drop(store);
    let before = names()?;
    assert!(before.iter().any(|name| **name == *"log.1"), "{before:?}");
    // The number is the second word of the file, whose bytes are somewhere in the region.
    let magic = u64::from_le_bytes(*b"VINPCHK1");
    let heads = (0..region.len_bytes() / 8).map(|word| word * 8).filter(|at| region.load_word(*at) == magic);
    let heads: Vec<u64> = heads.collect();
    for (at, number) in heads.iter().flat_map(|at| [(*at, 0), (*at, 2), (*at, u64::MAX)]) {
        region.store_word(at + 8, number);
        let error = open().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("the number of the log in a checkpoint"), "{number}: {error}");
        assert_eq!(names()?, before);
    }
    heads.iter().for_each(|at| region.store_word(at + 8, 1));
    let store = open()?;
    let mut row = Vec::new();
    assert!(store.get(table, 0, b"b", &mut row)? && row == b"second");
    Ok(())
}

/// The first chunk of `nvm_cow` has the number of the last batch in its third word (`nvm_cow/directory.rs`).
#[test]
fn a_damaged_number_of_the_last_batch_is_an_error() {
    let engine = super::engine("nvm_cow");
    let Stored { directory, .. } = stored(engine, false).unwrap_or_else(|error| panic!("{error}"));
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(Arc::clone(&region), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let root = allocator.root(super::ROOT).unwrap_or_else(|error| panic!("{error}"));
    region.store_word(region.load_word(root.offset()) + 16, u64::MAX);
    drop(allocator);
    let opened = life::open(engine, &directory).map(drop);
    assert!(opened.is_err_and(|error| error.contains("the number of the last batch")));
}
