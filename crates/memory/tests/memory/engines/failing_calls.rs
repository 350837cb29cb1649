//! Each call on a file fails in turn, in the engines that use files. An error is reported, and nothing that
//! was acknowledged is lost.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, RecordLog};
use varve_memory::{
    Allocator, Commit, Cow, CowSettings, FileCosts, FileError, Inplace, InplaceSettings, LogSettings,
    LogStructured, Store, StoreError, StoreResult,
};

use super::life::{self, Plan};
use super::model::{Model, Row};
use super::random::judge;
use super::{ENGINES, Engine, LSM, ROOT, owner};
use crate::life::{DATABASE, REGION};
use crate::rng::Rng;
use crate::traced::Calls;

/// The number of transactions of a life. The next constant is the number of changes of a transaction.
const TRANSACTIONS: u64 = 12;
const CHANGES: u64 = 6;
const KEYS: u64 = 40;
/// The number of lives in a row without an error after which the search ends. A single life without an error
/// does not show that all calls were tried: an engine can continue after a failed call, and make fewer calls.
const SILENT: u64 = 20;
/// More calls than a life has.
const CALLS_MAX: u64 = 5_000;

/// Opens an engine so that the call on its files with this number fails.
fn open_failing(name: &str, allocator: Arc<Allocator>, failing_call: u64) -> StoreResult<Box<dyn Store>> {
    let files = FileCosts { failing_call, ..FileCosts::default() };
    Ok(match name {
        "inplace" => {
            let settings = InplaceSettings { files, checkpoint_log_bytes: 3000 };
            Box::new(Inplace::open(allocator, ROOT, owner(1), settings)?)
        }
        "cow" => {
            let settings = CowSettings { files, cache_bytes: 80_000, batch_transactions: 3 };
            Box::new(Cow::open(allocator, ROOT, owner(1), settings)?)
        }
        _ => {
            let settings = LogSettings { lsm: LSM, files, cache_bytes: 20_000 };
            Box::new(LogStructured::open(allocator, ROOT, owner(1), settings)?)
        }
    })
}

/// A store in use, with the states that it has acknowledged.
struct Life {
    store: Box<dyn Store>,
    /// The states after commits.
    states: Vec<Model>,
    durable: usize,
    /// The rows that the open transaction sees.
    model: Model,
    failed: u64,
}

fn row(rng: &mut Rng, number: u64) -> Row {
    let key = number.to_be_bytes().to_vec();
    let bytes = vec![rng.draw() as u8; 100 + rng.below(300) as usize];
    Row { keys: [key.clone(), key.clone(), key], bytes }
}

impl Life {
    /// Counts the expected error; other errors are wrong.
    fn note<T>(&mut self, found: StoreResult<T>) -> Result<Option<T>, String> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::File(FileError::Failed { .. }) | StoreError::Stopped) => {
                self.failed += 1;
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn change(&mut self, rng: &mut Rng) -> Result<(), String> {
        let (table, number) = (self.model.table(), rng.below(KEYS));
        let row = row(rng, number);
        let is_there = self.model.rows.contains_key(&row.keys[0]);
        match (is_there, rng.below(3)) {
            (false, _) => {
                let done = self.store.insert(table, &row.keys(), &row.bytes);
                if self.note(done)?.is_some() {
                    self.model.rows.insert(row.keys[0].clone(), row);
                }
            }
            (true, 0) => {
                let done = self.store.delete(table, &row.keys[0]);
                if self.note(done)?.is_some() {
                    self.model.rows.remove(&row.keys[0]);
                }
            }
            (true, _) => {
                let done = self.store.replace(table, &row.keys(), &row.bytes);
                if self.note(done)?.is_some() {
                    self.model.rows.insert(row.keys[0].clone(), row);
                }
            }
        }
        Ok(())
    }

    /// Runs a transaction. Returns `false` if a commit has failed. Then the contents of the store are not
    /// known until the next start.
    fn transaction(&mut self, rng: &mut Rng) -> Result<bool, String> {
        for _ in 0..CHANGES {
            self.change(rng)?;
        }
        let committed = self.store.commit();
        self.states.push(self.model.clone());
        match self.note(committed)? {
            Some(Commit::Durable) => self.durable = self.states.len() - 1,
            Some(Commit::Pending) => {}
            None => return Ok(false),
        }
        if rng.below(3) > 0 {
            let synced = self.store.sync();
            if self.note(synced)?.is_some() {
                self.durable = self.states.len() - 1;
            }
        }
        self.compare()?;
        Ok(true)
    }

    /// Compares the store with the rows that readers should see. A read may be the call that fails.
    fn compare(&mut self) -> Result<(), String> {
        match self.model.compare(&*self.store) {
            Err(error) if error.contains("failed on a file") => {
                self.failed += 1;
                self.model.compare(&*self.store)
            }
            compared => compared,
        }
    }
}

/// Runs a life in which one call fails. Returns whether the call failed. The life continues after the error,
/// or ends there.
fn live(engine: &Engine, image: &MemoryDirectory, state: &Model, nth: u64) -> Result<bool, String> {
    let directory = MemoryDirectory::from_images(image.images());
    let map = || directory.map(REGION, 4096).map_err(|error| error.to_string());
    let open = || Allocator::open(map()?, DATABASE).map_err(|error| error.to_string());
    let opened = open_failing(engine.name, Arc::new(open()?), nth);
    let store = match opened {
        Ok(store) => store,
        Err(StoreError::File(FileError::Failed { .. })) => {
            return judge(engine, open()?, state).map(|()| true);
        }
        Err(error) => return Err(error.to_string()),
    };
    let model = state.clone();
    let mut life = Life { store, states: vec![state.clone()], durable: 0, model, failed: 0 };
    let mut rng = Rng::new(7);
    for _ in 0..TRANSACTIONS {
        if !life.transaction(&mut rng)? || life.failed > 0 && nth.is_multiple_of(2) {
            break;
        }
    }
    let Life { store, states, durable, failed, .. } = life;
    drop(store);
    let mut errors = Vec::new();
    for state in states.iter().skip(durable) {
        let copy = MemoryDirectory::from_images(directory.images());
        let region = copy.map(REGION, 4096).map_err(|error| error.to_string())?;
        let allocator = Allocator::open(region, DATABASE).map_err(|error| error.to_string())?;
        match judge(engine, allocator, state) {
            Ok(()) => return Ok(failed > 0),
            Err(error) => errors.push(error),
        }
    }
    Err(format!("state {durable} is durable: {}", errors.join("; ")))
}

#[test]
fn a_failing_call_on_a_file_loses_nothing() {
    for engine in ENGINES.iter().filter(|engine| ["inplace", "cow", "log"].contains(&engine.name)) {
        let fail = |error: String| -> ! { panic!("{}: {error}", engine.name) };
        let directory = life::with_table(engine, 900_000);
        let plan = Plan { seed: 3, operations: 0, keys: KEYS, traced: Calls::None };
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| fail(error.to_string()));
        let first = life::live_on(engine, region, &RecordLog::new(), Model::default(), &plan);
        let state = first.unwrap_or_else(|error| fail(error)).states.pop().unwrap_or_default();
        let (mut failed, mut silent) = (0, 0);
        for nth in 1..CALLS_MAX {
            let has_failed = live(engine, &directory, &state, nth)
                .unwrap_or_else(|error| fail(format!("call {nth} failed: {error}")));
            (failed, silent) = if has_failed { (failed + 1, 0) } else { (failed, silent + 1) };
            if silent == SILENT {
                break;
            }
        }
        println!("{}: each of {failed} calls failed in a life of its own", engine.name);
        assert!((30..CALLS_MAX - 1).contains(&failed), "{}: {failed} calls", engine.name);
    }
}
