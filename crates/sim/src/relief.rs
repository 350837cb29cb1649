//! Tests a full device that gets free space again. For a while the workload continues despite errors. Then
//! the device has space, and the same open database must work again without a restart.
//!
//! Invariants
//! 1. The device gets space once: after some failed steps, or at the end of the workload if that comes first.
//!    Then the workload makes some more commits.
//! 2. After that no operation may fail. An error is reported as [`LATE`].
//! 3. If the database could not be created on the full device, it is created again when the device has space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::search::{PANIC, WRONG, Workbench, guarded};

/// Steps that may fail before the fault is lifted.
const ERRORS_BEFORE: usize = 8;
/// Steps that may fail before a workload gives up: a database that stopped must not come back by itself.
const ERRORS_MAX: usize = 30;
/// Steps behind a panic: none of them may hang.
const STEPS_BEHIND_PANIC: usize = 5;
/// Commits after the fault was lifted, at least.
const COMMITS_AFTER: usize = 20;

/// How the text of an error begins that came when the device had room again.
pub const LATE: &str = "after the device had room again";

/// The end of a fault, shared with the code that judges the run.
#[derive(Clone, Default)]
pub struct Relief {
    lift: Option<Arc<Lift>>,
}

struct Lift {
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    is_made_again: AtomicBool,
    shuts_down: bool,
}

impl Relief {
    /// A fault that `lift` lifts; whether the database is shut down cleanly at the end.
    pub fn new(lift: impl FnOnce() + Send + 'static, shuts_down: bool) -> Relief {
        let work: Box<dyn FnOnce() + Send> = Box::new(lift);
        let lift = Lift { work: Mutex::new(Some(work)), is_made_again: AtomicBool::new(false), shuts_down };
        Relief { lift: Some(Arc::new(lift)) }
    }

    /// Whether the creation of the database failed and was repeated.
    pub fn is_made_again(&self) -> bool {
        self.lift.as_ref().is_some_and(|lift| lift.is_made_again.load(Relaxed))
    }

    fn shuts_down(&self) -> bool {
        self.lift.as_ref().is_some_and(|lift| lift.shuts_down)
    }

    /// Lifts the fault; whether that was still to be done.
    fn lift(&self) -> bool {
        let work = self.lift.as_ref().and_then(|lift| lift.work.lock().take());
        work.map(|work| work()).is_some()
    }

    fn is_lifted(&self) -> bool {
        self.lift.as_ref().is_some_and(|lift| lift.work.lock().is_none())
    }

    fn says(&self, what: String) -> String {
        if self.is_lifted() { format!("{LATE}: {what}") } else { what }
    }

    /// Makes the database: a failure lifts the fault, and it is tried once more.
    pub(crate) fn make<T>(&self, mut make: impl FnMut() -> Result<T, String>) -> Result<T, String> {
        make().or_else(|what| {
            if !self.lift() {
                return Err(self.says(what));
            }
            self.lift.iter().for_each(|lift| lift.is_made_again.store(true, Relaxed));
            make().map_err(|what| self.says(what))
        })
    }
}

/// A workload in steps.
pub(crate) trait Steps {
    /// Where it runs.
    fn bench(&mut self) -> &mut Workbench;
    /// One step.
    fn step(&mut self) -> Result<(), String>;
    /// Whether what is committed is known for sure.
    fn is_sure(&self) -> bool;
    /// The device has room again: finishes what the background would finish in threads.
    fn settle(&mut self) -> Result<(), String>;
    /// Checks everything at the end, takes a checkpoint, and perhaps shuts down.
    fn finish(&mut self, shuts_down: bool) -> Result<(), String>;
}

/// Steps until so many commits are made or too many steps failed; gives the errors.
pub(crate) fn drive(worker: &mut impl Steps, commits: usize) -> Vec<String> {
    let relief = worker.bench().relief.clone();
    let mut errors = Vec::new();
    let mut wanted = commits;
    loop {
        let is_late = relief.is_lifted();
        let errors_max = if is_late { errors.len() + 1 } else { ERRORS_MAX };
        let lifted = steps(worker, wanted, errors_max, &mut errors);
        if has_panicked(&errors) {
            return errors;
        }
        if lifted || !is_late && relief.lift() {
            errors.extend(worker.settle().err().map(|what| relief.says(what)));
            wanted = wanted.max(worker.bench().history.digests().len() + COMMITS_AFTER);
            continue;
        }
        break;
    }
    let is_late = errors.last().is_some_and(|what| what.starts_with(LATE));
    if relief.is_lifted() && !is_late && worker.is_sure() {
        errors.extend(worker.finish(relief.shuts_down()).err().map(|what| relief.says(what)));
    }
    errors
}

/// Whether one of the errors is a panic.
pub(crate) fn has_panicked(errors: &[String]) -> bool {
    errors.iter().any(|what| what.starts_with(PANIC))
}

/// Steps until the end, or until the fault is lifted: whether it was.
fn steps(worker: &mut impl Steps, wanted: usize, errors_max: usize, errors: &mut Vec<String>) -> bool {
    let relief = worker.bench().relief.clone();
    while worker.bench().history.digests().len() <= wanted && errors.len() < errors_max && worker.is_sure() {
        let Err(what) = guarded(|| worker.step()) else { continue };
        let is_panic = what.starts_with(PANIC);
        errors.push(if is_panic { what } else { relief.says(what) });
        if is_panic {
            // What is committed is in doubt, and so is what memory holds.
            let more = (0..STEPS_BEHIND_PANIC).filter_map(|_| guarded(|| worker.step()).err());
            errors.extend(more.filter(|what| !what.starts_with(WRONG)));
            return false;
        }
        if errors.len() == ERRORS_BEFORE && relief.lift() {
            return true;
        }
    }
    false
}
