//! Tests faults at run time: a device fails at its n-th operation. Then the database crashes, and starts
//! again on a device that works.
//!
//! Invariants
//! 1. The workload may end with an error. It must not panic, and must not have read a wrong answer.
//! 2. The state after the restart is judged like the state after a crash at the end of the workload.
//!
//! The test does not check which error the database returns.

use std::sync::Arc;
use std::time::Duration;

use varve_device::{Directory, ErrorKind, Fault, Faulty, Operation, RecordLog, Rule, Space, When};

use crate::devices::{Devices, Medium};
use crate::relief::{LATE, Relief};
use crate::rng::Rng;
use crate::search::{
    Failure, PANIC, Plan, Run, STOPPED, SearchResult, Subject, WRONG, run, run_on, search_run,
};

/// The result of one fault.
pub struct Tried {
    /// Whether the fault happened.
    pub fired: bool,
    /// The error with which the workload ended, if any.
    pub error: Option<String>,
    /// The result of the restarts.
    pub found: SearchResult,
    /// The number of commits that the workload began.
    pub commits: usize,
}

/// Runs a workload with one fault, crashes it at its end, and judges the state after restarts.
pub fn try_fault(subject: &dyn Subject, seed: u64, rule: &Rule) -> Tried {
    let mut armed: Vec<Arc<Faulty>> = Vec::new();
    let run = run(subject, seed, |device: Arc<dyn Directory>| {
        let faulty = Faulty::wrap(device);
        faulty.arm(rule.clone());
        armed.push(Arc::clone(&faulty));
        faulty
    });
    let plan = Plan { at_end: true, images_per_cut: 3, second_crash_every: 0, ..Plan::new(seed, 3) };
    judge(subject, rule, run, plan, &armed)
}

fn judge(subject: &dyn Subject, rule: &Rule, run: Run, plan: Plan, armed: &[Arc<Faulty>]) -> Tried {
    let mut found = search_run(subject, &run, plan);
    // A database that has stopped permanently is a separate outcome.
    let late = |error: &String| error.contains(LATE) && !error.contains(STOPPED);
    let is_asked_for = rule.fault == Fault::Panics;
    let panicked = |error: &String| error.starts_with(PANIC) && !is_asked_for;
    let bad = |error: &&String| panicked(error) || error.contains(WRONG) || late(error);
    if let Some(error) = run.error.as_ref().filter(bad) {
        found.failures.push(Failure { image: 0, what: error.clone() });
    }
    for failure in &mut found.failures {
        failure.what = format!("{rule:?}, workload ended with {:?}: {}", run.error, failure.what);
    }
    let commits = run.digests().len() - 1;
    Tried { commits, fired: armed.iter().any(|faulty| faulty.fired_count() > 0), error: run.error, found }
}

/// Does the same as [`try_fault`], but the fault ends after some errors or at the end of the workload. Then
/// the same open database must continue. The database may be shut down cleanly at the end. Crashes are tried
/// at several moments. Also returns whether the creation of the database had to be repeated.
pub fn try_relieved_fault(subject: &dyn Subject, seed: u64, rule: &Rule, shuts_down: bool) -> (Tried, bool) {
    let log = RecordLog::new();
    let mut armed: Vec<Arc<Faulty>> = Vec::new();
    let devices = Devices::recorded(Medium::Memory, seed, &log).wrapped(|device| {
        let faulty = Faulty::wrap(device);
        faulty.arm(rule.clone());
        armed.push(Arc::clone(&faulty));
        faulty
    });
    let lifted = armed.clone();
    let relief = Relief::new(move || lifted.iter().for_each(|faulty| faulty.disarm()), shuts_down);
    let run = run_on(subject, seed, &log, devices, relief.clone());
    let plan = Plan { images_per_cut: 2, second_crash_every: 0, ..Plan::new(seed, 6) };
    (judge(subject, rule, run, plan, &armed), relief.is_made_again())
}

/// Returns a random fault.
pub fn some_rule(rng: &mut Rng) -> Rule {
    let full = Fault::Fails(ErrorKind::NoSpace);
    let broken = Fault::Fails(ErrorKind::Io(5));
    let choices = [
        (Operation::Read, broken.clone()),
        (Operation::Read, Fault::Short),
        (Operation::Read, Fault::BitFlip { bit: rng.draw() }),
        (Operation::Write, broken.clone()),
        (Operation::Write, full.clone()),
        (Operation::Write, Fault::Short),
        (Operation::Write, Fault::Gone),
        (Operation::Flush, broken.clone()),
        (Operation::SetLen, full.clone()),
        (Operation::SetLen, broken.clone()),
        (Operation::SyncDirectory, broken),
        (Operation::Write, Fault::Slow(Duration::from_millis(1))),
    ];
    let (operation, fault) = choices[rng.below(choices.len() as u64) as usize].clone();
    let spaces = [Some(Space::Data), Some(Space::Log), Some(Space::Rollback), Some(Space::Control)];
    // Operations on directories belong to no space.
    let any = operation == Operation::SyncDirectory || rng.one_in(2);
    let space = if any { None } else { spaces[rng.below(spaces.len() as u64) as usize] };
    // Early operations, which create the database, are chosen as often as all later ones.
    let reach = 1 << rng.below(9);
    let n = 1 + rng.below(reach);
    let when = [When::Nth(n), When::From(n), When::Every(n.max(20))][rng.below(3) as usize];
    Rule { operation: Some(operation), space, when, fault }
}
