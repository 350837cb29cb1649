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

/// The number of steps that fail before the fault ends.
const ERRORS_BEFORE: usize = 8;
/// The number of failed steps after which a workload ends, because a stopped database must not work again by
/// itself.
const ERRORS_MAX: usize = 30;
/// The number of steps after a panic. None of them may hang.
const STEPS_BEHIND_PANIC: usize = 5;
/// The minimum of commits after the end of the fault.
const COMMITS_AFTER: usize = 20;

/// The beginning of the text of an error that comes after the device has space again.
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
    /// Returns the relief of a fault that `lift` ends. `shuts_down` says whether the database is shut down
    /// cleanly at the end.
    pub fn new(lift: impl FnOnce() + Send + 'static, shuts_down: bool) -> Relief {
        let work: Box<dyn FnOnce() + Send> = Box::new(lift);
        let lift = Lift { work: Mutex::new(Some(work)), is_made_again: AtomicBool::new(false), shuts_down };
        Relief { lift: Some(Arc::new(lift)) }
    }

    /// Returns whether the creation of the database failed and was repeated.
    pub fn is_made_again(&self) -> bool {
        self.lift.as_ref().is_some_and(|lift| lift.is_made_again.load(Relaxed))
    }

    fn shuts_down(&self) -> bool {
        self.lift.as_ref().is_some_and(|lift| lift.shuts_down)
    }

    /// Ends the fault. Returns false if it had already ended.
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

    /// Creates the database. If that fails, ends the fault, and tries once more.
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
    /// Returns the workbench of the workload.
    fn bench(&mut self) -> &mut Workbench;
    /// Runs one step.
    fn step(&mut self) -> Result<(), String>;
    /// Returns whether the committed state is known.
    fn is_sure(&self) -> bool;
    /// Finishes the work that background threads would do. The caller uses this function when the device has
    /// space again.
    fn settle(&mut self) -> Result<(), String>;
    /// Checks everything at the end, takes a checkpoint, and perhaps shuts down.
    fn finish(&mut self, shuts_down: bool) -> Result<(), String>;
}

/// Runs steps until there are this many commits, or too many steps have failed. Returns the errors.
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

/// Returns whether one of the errors is a panic.
pub(crate) fn has_panicked(errors: &[String]) -> bool {
    errors.iter().any(|what| what.starts_with(PANIC))
}

/// Runs steps until the end, or until the fault ends. Returns whether the fault has ended.
fn steps(worker: &mut impl Steps, wanted: usize, errors_max: usize, errors: &mut Vec<String>) -> bool {
    let relief = worker.bench().relief.clone();
    while worker.bench().history.digests().len() <= wanted && errors.len() < errors_max && worker.is_sure() {
        let Err(what) = guarded(|| worker.step()) else { continue };
        let is_panic = what.starts_with(PANIC);
        errors.push(if is_panic { what } else { relief.says(what) });
        if is_panic {
            // After a panic, the committed state and the state in memory are unknown.
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
