//! A *life* of a store is a run of random transactions. A model makes the same changes, and the store is
//! compared with it. The life is recorded if a test needs crash images.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, RecordLog, Recorder, Recording, Region};
use varve_memory::{Allocator, Commit, KeyRange, SEGMENT_BYTES, Savepoint, Store, StoreError, TableNo};

use super::model::{INDEXES, Model, Row, TABLE};
use super::{Engine, owner};
use crate::life::{DATABASE, REGION, empty};
use crate::rng::Rng;
use crate::skipping::Call;
use crate::traced::{Calls, Site, Traced};

/// In a store with more rows than this, only one in this number of reads compares a range.
const ROWS_OFTEN: usize = 100;
const RANGES_ONE_IN: u64 = 6;

/// A recorded life.
pub struct Life {
    pub recording: Recording,
    /// The committed states. The first one is the state at the beginning.
    pub states: Vec<Model>,
    /// The lines of code that made the write-backs and fences, if the plan asks for them.
    pub sites: BTreeMap<u64, Site>,
    pub rows_count: usize,
    pub full_count: u64,
}

/// What a life does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub operations: usize,
    /// Different keys.
    pub keys: u64,
    /// The calls whose write-backs and fences are recorded. The recording is slow.
    pub traced: Calls,
}

/// Returns a region whose free segments hold garbage, as those of a region that was in use do.
fn used(region_bytes: u64) -> Arc<MemoryDirectory> {
    let directory = empty(region_bytes);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::open(region.clone(), DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let mut rng = Rng::new(region_bytes);
    while let Ok(segment) = allocator.allocate(owner(9), SEGMENT_BYTES) {
        // Words that could be pointers.
        let words = (0..SEGMENT_BYTES / 8).flat_map(|_| (rng.below(region_bytes) / 16 * 16).to_le_bytes());
        region.store(segment.to_u64(), &words.collect::<Vec<u8>>());
    }
    directory
}

/// Returns a region with an empty table.
pub fn with_table(engine: &Engine, region_bytes: u64) -> Arc<MemoryDirectory> {
    let directory = used(region_bytes);
    let mut store = open(engine, &directory).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    let table = store.create_table(owner(2), INDEXES);
    assert_eq!(table, Ok(TableNo::new(TABLE)));
    directory
}

/// The commits that a store has acknowledged so far, as numbers of states.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// The number of the last state that is durable.
    pub durable: usize,
    /// The number of the last state that is committed.
    pub commits: usize,
}

impl Acknowledged {
    fn encode(self) -> u64 {
        (self.durable as u64) << 32 | self.commits as u64
    }

    /// Returns what a mark of a recording says.
    pub fn decode(mark: u64) -> Acknowledged {
        Acknowledged { durable: (mark >> 32) as usize, commits: mark as u32 as usize }
    }
}

/// Opens the store in a directory.
pub fn open(engine: &Engine, directory: &Arc<MemoryDirectory>) -> Result<Box<dyn Store>, String> {
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let allocator = Allocator::open(region, DATABASE).map_err(|error| error.to_string())?;
    (engine.open)(Arc::new(allocator)).map_err(|error| error.to_string())
}

/// Returns a key. Keys have many lengths. Some of them fit into an entry of a node, and most have equal first
/// 15 bytes.
fn key(number: u64) -> Vec<u8> {
    match number % 4 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("a long beginning {number:06}").into_bytes(),
        2 => format!("a long beginning {number:06} and {}", "more ".repeat(20)).into_bytes(),
        _ => number.to_string().into_bytes(),
    }
}

fn row(rng: &mut Rng, primary: u64, keys: u64) -> Row {
    let unique = key(rng.below(keys * 3));
    let mut other = key(rng.below(5));
    other.extend_from_slice(&key(primary));
    let len = [0, 5, 60, 200, 900, 40_000][rng.below(6) as usize];
    let byte = rng.draw() as u8;
    Row {
        keys: [key(primary), unique, other],
        bytes: vec![byte; len.min(if rng.below(8) > 0 { 200 } else { len })],
    }
}

/// A store at work.
pub struct Working {
    store: Box<dyn Store>,
    region: Arc<Traced>,
    /// The rows that the open transaction sees.
    model: Model,
    savepoints: Vec<(Savepoint, Model)>,
    full_count: u64,
}

/// Runs a life of a number of operations, on the store of a directory, which has the contents `state`.
pub fn live(
    engine: &Engine,
    directory: Arc<MemoryDirectory>,
    state: Model,
    plan: &Plan,
) -> Result<Life, String> {
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    live_on(engine, region, &log, state, plan)
}

/// Runs a life whose transactions patch more bytes than a block of an undo log has. One transaction is rolled
/// back, and one is committed.
pub fn live_long(engine: &Engine) -> Result<Life, String> {
    let directory = with_table(engine, 3 << 20);
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Traced::wrap(region, Arc::clone(&log), Calls::All);
    let allocator = Allocator::open(region.clone(), DATABASE).map_err(|error| error.to_string())?;
    let store = (engine.open)(Arc::new(allocator)).map_err(|error| error.to_string())?;
    let mut working = Working::new(store, region, Model::default());
    let mut rng = Rng::new(1);
    let mut states = vec![Model::default()];
    for is_kept in [true, false, true] {
        for number in 0..5 {
            let mut row = row(&mut rng, number, 1000);
            row.bytes = vec![number as u8; 6000];
            working.insert(row)?;
            working.patch(&key(number), &mut rng)?;
        }
        log.mark(end_durably(&mut working, is_kept, &mut states)?);
    }
    let sites = working.region.sites();
    Ok(Life { recording: log.recording(), states, sites, rows_count: 5, full_count: 0 })
}

/// Commits or rolls back, and makes the newest state durable. Returns the mark for the recording.
fn end_durably(working: &mut Working, is_kept: bool, states: &mut Vec<Model>) -> Result<u64, String> {
    working.end(is_kept)?;
    working.sync()?;
    match is_kept {
        true => states.push(working.model.clone()),
        false => working.model = states.last().cloned().unwrap_or_default(),
    }
    let newest = states.len() - 1;
    Ok(Acknowledged { durable: newest, commits: newest }.encode())
}

/// Runs a life that deletes most of its rows, so that nodes of the copy-on-write engines get sparse. One
/// transaction is rolled back.
pub fn live_deleting(engine: &Engine) -> Result<Life, String> {
    const ROWS: u64 = 200;
    let directory = with_table(engine, 3 << 20);
    let filled = filled(engine, &directory, ROWS)?;
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Traced::wrap(region, Arc::clone(&log), Calls::None);
    let allocator = Allocator::open(region.clone(), DATABASE).map_err(|error| error.to_string())?;
    let store = (engine.open)(Arc::new(allocator)).map_err(|error| error.to_string())?;
    let mut working = Working::new(store, region, filled.clone());
    let mut states = vec![filled];
    log.mark(0);
    for (part, is_kept) in [(0, true), (1, false), (1, true), (2, true)] {
        for number in (0..ROWS).filter(|number| number % 3 == part && number % 25 > 0) {
            working.delete(&key(number))?;
        }
        log.mark(end_durably(&mut working, is_kept, &mut states)?);
    }
    working.model.compare(&*working.store)?;
    let sites = working.region.sites();
    Ok(Life { recording: log.recording(), states, sites, rows_count: 8, full_count: 0 })
}

/// Runs a life in which two transactions delete most rows, so that the file of `cow` shrinks.
pub fn live_shrinking(engine: &Engine) -> Result<Life, String> {
    const ROWS: u64 = 2500;
    let directory = with_table(engine, 6 << 20);
    let filled = filled(engine, &directory, ROWS)?;
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Traced::wrap(region, Arc::clone(&log), Calls::None);
    let allocator = Arc::new(Allocator::open(region.clone(), DATABASE).map_err(|error| error.to_string())?);
    let store = (engine.open)(Arc::clone(&allocator)).map_err(|error| error.to_string())?;
    let mut working = Working::new(store, region, filled.clone());
    let used_bytes = || allocator.used_bytes(owner(1)).map_err(|error| error.to_string());
    let (mut states, before_bytes) = (vec![filled], used_bytes()?);
    log.mark(0);
    for part in [0, 1] {
        for number in (0..ROWS).filter(|number| number % 2 == part && number % 40 > 1) {
            working.delete(&key(number))?;
        }
        log.mark(end_durably(&mut working, true, &mut states)?);
    }
    working.model.compare(&*working.store)?;
    let left_bytes = used_bytes()?;
    if left_bytes >= before_bytes {
        return Err(format!("{before_bytes} bytes, then {left_bytes}"));
    }
    let sites = working.region.sites();
    Ok(Life { recording: log.recording(), states, sites, rows_count: 0, full_count: 0 })
}

/// Runs a life in which the thread changes after each change of a row, also within a transaction. `hand_over`
/// is called in between.
pub fn live_in_turns(
    engine: &Engine,
    seed: u64,
    transactions: u64,
    hand_over: fn(&dyn Store),
) -> Result<Life, String> {
    let directory = with_table(engine, 3 << 20);
    let filled = filled(engine, &directory, 60)?;
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Traced::wrap(region, Arc::clone(&log), Calls::None);
    let allocator = Allocator::open(region.clone(), DATABASE).map_err(|error| error.to_string())?;
    let store = (engine.open)(Arc::new(allocator)).map_err(|error| error.to_string())?;
    let (mut working, mut rng) = (Working::new(store, region, filled.clone()), Rng::new(seed));
    let (mut states, mut newest) = (vec![filled], 0);
    log.mark(newest);
    for _ in 0..transactions {
        for _ in 0..1 + rng.below(5) {
            working.operate(&mut rng, 100)?;
            hand_over(&*working.store);
            log.mark(newest);
        }
        newest = end_durably(&mut working, rng.below(4) > 0, &mut states)?;
        log.mark(newest);
    }
    working.model.compare(&*working.store)?;
    let sites = working.region.sites();
    Ok(Life { recording: log.recording(), states, sites, rows_count: 0, full_count: 0 })
}

/// Fills the store of a directory with short rows, durably. Returns the contents of the store.
fn filled(engine: &Engine, directory: &Arc<MemoryDirectory>, rows: u64) -> Result<Model, String> {
    let log = RecordLog::new();
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Traced::wrap(region, log, Calls::None);
    let allocator = Allocator::open(region.clone(), DATABASE).map_err(|error| error.to_string())?;
    let store = (engine.open)(Arc::new(allocator)).map_err(|error| error.to_string())?;
    let mut working = Working::new(store, region, Model::default());
    for number in 0..rows {
        let keys = [key(number), key(number + rows), key(number)];
        working.insert(Row { keys, bytes: vec![number as u8; 20] })?;
    }
    working.end_all()
}

/// Does the same as [`live`], on a region that `log` may record.
pub fn live_on(
    engine: &Engine,
    region: Arc<dyn Region>,
    log: &Arc<RecordLog>,
    state: Model,
    plan: &Plan,
) -> Result<Life, String> {
    let region = Traced::wrap(region, Arc::clone(log), plan.traced);
    let opened = region.during(Call::Open, || {
        let allocator = Allocator::open(region.clone(), DATABASE)?;
        (engine.open)(Arc::new(allocator))
    });
    let store = opened.map_err(|error| error.to_string())?;
    let mut working = Working::new(store, region, state.clone());
    let mut states = vec![state];
    log.mark(0);
    let (mut rng, mut durable) = (Rng::new(plan.seed), 1);
    for _ in 0..plan.operations {
        if rng.below(5) == 0 {
            let is_kept = rng.below(4) > 0;
            let is_durable = working.end(is_kept)?;
            if is_kept {
                states.push(working.model.clone());
            } else {
                working.model = states.last().cloned().unwrap_or_default();
            }
            if is_kept && is_durable {
                durable = states.len();
            }
            // A commit that is not durable may wait for others.
            if durable < states.len() && rng.below(2) == 0 {
                working.sync()?;
                durable = states.len();
            }
            log.mark(Acknowledged { durable: durable - 1, commits: states.len() - 1 }.encode());
        } else {
            working.operate(&mut rng, plan.keys)?;
        }
        working.read(&mut rng, plan.keys)?;
    }
    working.model.compare(&*working.store)?;
    if durable < states.len() {
        working.end(false)?;
        working.sync()?;
    }
    Ok(Life {
        recording: log.recording(),
        sites: working.region.sites(),
        rows_count: states.last().map_or(0, |state| state.rows.len()),
        full_count: working.full_count,
        states,
    })
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

impl Working {
    /// Returns a store that holds `state`.
    pub fn new(store: Box<dyn Store>, region: Arc<Traced>, state: Model) -> Working {
        Working { store, region, model: state, savepoints: Vec::new(), full_count: 0 }
    }

    /// Returns the number of operations that were refused because the region was full.
    pub fn full_count(&self) -> u64 {
        self.full_count
    }

    /// Does the work of a plan. `around` is called with each piece of work, and may repeat it as long as it
    /// is refused.
    pub fn work_between(
        &mut self,
        plan: &Plan,
        mut around: impl FnMut(
            &mut Working,
            &mut dyn FnMut(&mut Working) -> Result<(), String>,
        ) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rng = Rng::new(plan.seed);
        let mut committed = self.model.clone();
        for _ in 0..plan.operations {
            if rng.below(5) > 0 {
                let drawn = rng.draw();
                around(self, &mut |working| working.operate(&mut Rng::new(drawn), plan.keys))?;
            } else {
                let is_kept = rng.below(4) > 0;
                around(self, &mut |working| working.end(is_kept).and_then(|_| working.sync()))?;
                match is_kept {
                    true => committed = self.model.clone(),
                    false => self.model = committed.clone(),
                }
            }
            self.read(&mut rng, plan.keys)?;
        }
        self.model.compare(&*self.store)
    }

    /// Ends the transaction durably. Returns the contents of the store.
    pub fn end_all(mut self) -> Result<Model, String> {
        self.end(true)?;
        self.sync()?;
        Ok(self.model)
    }

    /// Ends the transaction. Returns whether its end is durable.
    fn end(&mut self, is_kept: bool) -> Result<bool, String> {
        self.savepoints.clear();
        let store = &mut self.store;
        let ended = match is_kept {
            true => self.region.during(Call::Commit, || store.commit()),
            false => self.region.during(Call::Rollback, || store.rollback()).map(|()| Commit::Durable),
        };
        ended.map(|commit| commit == Commit::Durable).map_err(|error| error.to_string())
    }

    fn sync(&mut self) -> Result<(), String> {
        let store = &mut self.store;
        self.region.during(Call::SyncStore, || store.sync()).map_err(|error| error.to_string())
    }

    fn operate(&mut self, rng: &mut Rng, keys: u64) -> Result<(), String> {
        let number = rng.below(keys);
        match rng.below(20) {
            0..8 => self.insert(row(rng, number, keys)),
            8..11 => self.replace(row(rng, number, keys)),
            11..14 => self.patch(&key(number), rng),
            14..18 => self.delete(&key(number)),
            18 => {
                self.savepoints.push((self.store.savepoint(), self.model.clone()));
                Ok(())
            }
            _ => self.go_back(rng),
        }
    }

    /// Returns whether a call failed because the region is full. Then nothing is changed.
    fn is_full<T>(&mut self, result: &Result<T, StoreError>) -> bool {
        let is_full = matches!(result, Err(StoreError::Memory(varve_memory::MemoryError::Full { .. })));
        self.full_count += u64::from(is_full);
        is_full
    }

    fn insert(&mut self, row: Row) -> Result<(), String> {
        let store = &mut self.store;
        let table = TableNo::new(TABLE);
        let found = self.region.during(Call::InsertRow, || store.insert(table, &row.keys(), &row.bytes));
        if self.is_full(&found) {
            return Ok(());
        }
        let expected = match self.model.duplicate(&row, b"") {
            Some(index) => Err(StoreError::Duplicate { index }),
            None => Ok(()),
        };
        if expected.is_ok() {
            self.model.rows.insert(row.keys[0].clone(), row);
        }
        expect("insert", found, expected)
    }

    fn replace(&mut self, row: Row) -> Result<(), String> {
        let store = &mut self.store;
        let table = TableNo::new(TABLE);
        let found = self.region.during(Call::ReplaceRow, || store.replace(table, &row.keys(), &row.bytes));
        if self.is_full(&found) {
            return Ok(());
        }
        let is_there = self.model.rows.contains_key(&row.keys[0]);
        let expected = match self.model.duplicate(&row, &row.keys[0]) {
            Some(index) if is_there => Err(StoreError::Duplicate { index }),
            _ => Ok(is_there),
        };
        if expected == Ok(true) {
            self.model.rows.insert(row.keys[0].clone(), row);
        }
        expect("replace", found, expected)
    }

    fn patch(&mut self, key: &[u8], rng: &mut Rng) -> Result<(), String> {
        let (table, store) = (TableNo::new(TABLE), &mut self.store);
        let row_bytes = self.model.rows.get(key).map_or(0, |row| row.bytes.len());
        let at = rng.below(row_bytes as u64 + 1) as usize;
        let len = rng.below((row_bytes - at) as u64 + 1) as usize;
        let bytes = vec![rng.draw() as u8; len];
        let found = self.region.during(Call::PatchRow, || store.patch(table, key, at, &bytes));
        if self.is_full(&found) {
            return Ok(());
        }
        let row = self.model.rows.get_mut(key);
        let expected = row.map(|row| row.bytes[at..at + len].copy_from_slice(&bytes)).is_some();
        expect("patch", found, Ok(expected))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), String> {
        let (table, store) = (TableNo::new(TABLE), &mut self.store);
        let found = self.region.during(Call::DeleteRow, || store.delete(table, key));
        if self.is_full(&found) {
            return Ok(());
        }
        expect("delete", found, Ok(self.model.rows.remove(key).is_some()))
    }

    fn go_back(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(at) = rng.below(self.savepoints.len() as u64 + 1).checked_sub(1) else { return Ok(()) };
        self.savepoints.truncate(at as usize + 1);
        let Some((savepoint, model)) = self.savepoints.last() else { return Ok(()) };
        self.model = model.clone();
        let (store, savepoint) = (&mut self.store, *savepoint);
        let done = self.region.during(Call::RollbackTo, || store.rollback_to(savepoint));
        done.map_err(|error| error.to_string())
    }

    /// Compares the rows that a transaction sees with the model: one row by a random index, and a random
    /// range. A large store is compared by ranges less often, because a range has half of its rows.
    fn read(&self, rng: &mut Rng, keys: u64) -> Result<(), String> {
        let index = rng.below(INDEXES as u64) as usize;
        let numbers = [rng.below(keys), rng.below(keys)];
        let mut bounds = numbers.map(key);
        bounds.sort();
        let [from, to] = &bounds;
        let found = self.model.rows.values().find(|row| row.keys[index] == *from);
        let mut bytes = Vec::new();
        let is_there = self.store.get(TableNo::new(TABLE), index, from, &mut bytes);
        expect("get", is_there.map_err(|error| error.to_string())?, found.is_some())?;
        if let Some(found) = found {
            expect("the row", &bytes, &found.bytes)?;
        }
        let bound = |key, kind| match kind {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let range = KeyRange { from: bound(&from[..], rng.below(3)), to: bound(&to[..], rng.below(3)) };
        match self.model.rows.len() > ROWS_OFTEN && numbers.iter().sum::<u64>() % RANGES_ONE_IN > 0 {
            true => Ok(()),
            false => self.model.compare_range(&*self.store, index, &range),
        }
    }
}
