//! A *life* of files is a run of random calls. A model makes the same changes, and the files are compared
//! with it. The life is recorded if a test needs crash images.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, RecordLog, Recorder, Recording, Region};
use varve_memory::{Allocator, FileError, FileResult, Files, MemoryError};

use super::model::{FileModel, Model};
use super::open_on;
use crate::life::{DATABASE, REGION};
use crate::rng::Rng;
use crate::skipping::{Call, Skip, Skipping};

/// A recorded life.
pub struct Life {
    pub recording: Recording,
    /// The states after each operation. The first one is the state at the beginning.
    pub states: Vec<Model>,
    pub most_events: BTreeMap<Call, u64>,
    pub full_count: u64,
}

/// What a life does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub operations: usize,
    pub skip: Option<Skip>,
}

/// An operation on files.
#[derive(Debug, Clone)]
enum Work {
    Create(String),
    Rename { from: String, to: String },
    Remove(String),
    Write { name: String, at: usize, bytes: Vec<u8> },
    Append { name: String, bytes: Vec<u8> },
    Reserve { name: String, len: usize },
    Truncate { name: String, len: usize },
    Fsync(String),
}

fn name(rng: &mut Rng) -> String {
    format!("file {}", rng.below(5))
}

/// Returns the bytes of a write. Most writes are short. Long ones take several blocks.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let len = [0, 3, 30, 64, 500, 500, 3000, 40_000][rng.below(8) as usize];
    let first = rng.draw();
    // Neighbouring bytes and lines differ, so that a byte in a wrong place is noticed.
    (0..len).map(|at: u64| (first.wrapping_add(at * 7 + at / 64)) as u8).collect()
}

fn choose(rng: &mut Rng, model: &Model) -> Work {
    let name = name(rng);
    let len = model.files.get(&name).map_or(0, |file| file.current().len());
    match rng.below(24) {
        0..4 => Work::Create(name),
        4..9 => Work::Append { name, bytes: bytes(rng) },
        9..14 => Work::Write { name, at: rng.below(len as u64 + 1) as usize, bytes: bytes(rng) },
        14..18 => Work::Fsync(name),
        18..20 => Work::Truncate { name, len: rng.below(len as u64 + 1) as usize },
        20 => Work::Reserve { name, len: rng.below(60_000) as usize },
        21..23 => Work::Rename { from: name, to: self::name(rng) },
        _ => Work::Remove(name),
    }
}

struct Working {
    files: Files,
    region: Arc<Skipping>,
}

impl Working {
    fn run(&mut self, work: &Work) -> FileResult<()> {
        let Working { files, region } = self;
        match work {
            Work::Create(name) => region.during(Call::CreateFile, || files.create(name).map(drop)),
            Work::Rename { from, to } => region.during(Call::RenameFile, || files.rename(from, to)),
            Work::Remove(name) => region.during(Call::RemoveFile, || files.remove(name)),
            Work::Write { name, at, bytes } => {
                let file = files.open_file(name)?;
                region.during(Call::WriteFile, || files.write_at(file, *at as u64, bytes))
            }
            Work::Append { name, bytes } => {
                let file = files.open_file(name)?;
                region.during(Call::WriteFile, || files.append(file, bytes).map(drop))
            }
            Work::Reserve { name, len } => {
                let file = files.open_file(name)?;
                region.during(Call::ReserveFile, || files.reserve(file, *len as u64))
            }
            Work::Truncate { name, len } => {
                let file = files.open_file(name)?;
                region.during(Call::TruncateFile, || files.truncate(file, *len as u64))
            }
            Work::Fsync(name) => {
                let file = files.open_file(name)?;
                region.during(Call::Fsync, || files.fsync(file))
            }
        }
    }
}

/// Does an operation on the model. Returns the result that the files should give.
fn note(model: &mut Model, work: &Work) -> FileResult<()> {
    let (Work::Create(name)
    | Work::Rename { from: name, .. }
    | Work::Remove(name)
    | Work::Write { name, .. }
    | Work::Append { name, .. }
    | Work::Reserve { name, .. }
    | Work::Truncate { name, .. }
    | Work::Fsync(name)) = work;
    if let Work::Create(name) = work {
        if model.files.contains_key(name) {
            return Err(FileError::Exists { name: name.as_str().into() });
        }
        model.files.insert(name.clone(), FileModel::with(Vec::new()));
        return Ok(());
    }
    let no_file = FileError::NoFile { name: name.as_str().into() };
    let file = model.files.get_mut(name).ok_or(no_file)?;
    match work {
        Work::Create(_) | Work::Reserve { .. } => {}
        Work::Rename { to, .. } => {
            if let Some(file) = model.files.remove(name) {
                model.files.insert(to.clone(), file);
            }
        }
        Work::Remove(_) => drop(model.files.remove(name)),
        Work::Write { at, bytes, .. } => file.write(*at, bytes),
        Work::Append { bytes, .. } => file.write(file.current().len(), bytes),
        Work::Truncate { len, .. } => file.truncate(*len),
        Work::Fsync(_) => file.fsync(),
    }
    Ok(())
}

/// Runs a life of a number of operations, on a directory whose files are `state`.
pub fn live(directory: Arc<MemoryDirectory>, state: Model, plan: &Plan) -> Result<Life, String> {
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    live_on(region, &log, state, plan)
}

/// Does the same as [`live`], on a region that `log` may record.
pub fn live_on(region: Arc<dyn Region>, log: &RecordLog, state: Model, plan: &Plan) -> Result<Life, String> {
    let region = Skipping::wrap(region, plan.skip);
    let opened = region.during(Call::Open, || {
        let allocator = Allocator::open(region.clone(), DATABASE)?;
        open_on(Arc::new(allocator))
    });
    let mut working = Working { files: opened.map_err(|error| error.to_string())?, region };
    let mut states = vec![state.clone()];
    log.mark(0);
    let (mut model, mut full_count) = (state, 0);
    let mut rng = Rng::new(plan.seed);
    for number in 1..=plan.operations {
        let work = choose(&mut rng, &model);
        let answer = working.run(&work);
        if matches!(answer, Err(FileError::Memory(MemoryError::Full { .. }))) {
            full_count += 1;
        } else {
            let expected = note(&mut model, &work);
            if answer != expected {
                return Err(format!("operation {number}, {work:?}: {answer:?}, not {expected:?}"));
            }
        }
        states.push(model.clone());
        log.mark(number as u64);
        model.compare(&mut working.files).map_err(|error| format!("operation {number}: {error}"))?;
    }
    let most_events = working.region.most_events();
    Ok(Life { recording: log.recording(), states, most_events, full_count })
}
