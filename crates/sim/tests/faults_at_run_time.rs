//! A device that fails at its n-th operation: the workload sees a clean error or none, never a panic, and
//! a restart on a repaired device finds every acknowledged commit.

use std::sync::Arc;
use std::time::Duration;

use varve_device::{Directory, ErrorKind, Fault, Faulty, Operation, Rule, Space, When};
use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::{PANIC, Plan, Subject, WRONG, run, search_run};

const EIO: Fault = Fault::Fails(ErrorKind::Io(5));
const FULL: Fault = Fault::Fails(ErrorKind::NoSpace);

/// Runs a workload with one fault and judges what a restart finds. Gives the workload's error.
fn try_fault(subject: &dyn Subject, seed: u64, rule: &Rule) -> (bool, Option<String>) {
    let mut fired = None;
    let run = run(subject, seed, |device: Arc<dyn Directory>| {
        let faulty = Faulty::wrap(device);
        faulty.arm(rule.clone());
        fired = Some(Arc::clone(&faulty));
        faulty
    });
    let plan = Plan { at_end: true, images_per_cut: 6, second_crash_every: 0, ..Plan::new(seed, 6) };
    let found = search_run(subject, &run, plan);
    assert!(
        found.failures.is_empty(),
        "{rule:?}, workload ended with {:?}: {:#?}",
        run.error,
        found.failures
    );
    let bad = |error: &String| error.starts_with(PANIC) || error.starts_with(WRONG);
    assert!(!run.error.as_ref().is_some_and(bad), "{rule:?}, seed {seed}: {:?}", run.error);
    (fired.is_some_and(|faulty| faulty.fired_count() > 0), run.error)
}

/// Tries a fault at growing operation numbers; it must have hit at least once.
fn at_many(subject: &dyn Subject, operation: Operation, space: Space, fault: Fault, lasting: bool) {
    let mut hits = 0;
    for (seed, n) in [1_u64, 2, 3, 5, 8, 13, 34, 89, 233].into_iter().enumerate() {
        let when = if lasting { When::From(n) } else { When::Nth(n) };
        let rule = Rule { operation: Some(operation), space: Some(space), when, fault: fault.clone() };
        let (fired, _) = try_fault(subject, seed as u64, &rule);
        hits += usize::from(fired);
    }
    assert!(hits > 0, "{operation:?} of {space:?} never came by");
}

/// Both levels: raw pages and the engine.
fn on_both(operation: Operation, space: Space, fault: &Fault, lasting: bool) {
    at_many(&Pages::new(700), operation, space, fault.clone(), lasting);
    at_many(&Engine::new(120), operation, space, fault.clone(), lasting);
}

#[test]
fn reads_fail() {
    on_both(Operation::Read, Space::Data, &EIO, false);
    on_both(Operation::Read, Space::Data, &Fault::Short, true);
}

#[test]
fn writes_fail_once() {
    for space in [Space::Data, Space::Log, Space::Control] {
        on_both(Operation::Write, space, &EIO, false);
        on_both(Operation::Write, space, &Fault::Short, false);
    }
}

#[test]
fn writes_fail_for_good() {
    for space in [Space::Data, Space::Log, Space::Control] {
        on_both(Operation::Write, space, &EIO, true);
    }
}

#[test]
fn flushes_fail() {
    for space in [Space::Data, Space::Log] {
        on_both(Operation::Flush, space, &EIO, false);
    }
}

#[test]
fn the_device_is_full() {
    for space in [Space::Data, Space::Log] {
        on_both(Operation::Write, space, &FULL, true);
        on_both(Operation::Write, space, &FULL, false);
        on_both(Operation::SetLen, space, &FULL, true);
    }
}

#[test]
fn the_device_is_gone() {
    for space in [Space::Data, Space::Log, Space::Control] {
        on_both(Operation::Write, space, &Fault::Gone, true);
    }
}

#[test]
fn the_device_is_slow() {
    let slow = Fault::Slow(Duration::from_millis(5));
    let when = When::Every(50);
    let rule = Rule { operation: Some(Operation::Write), space: None, when, fault: slow };
    let (fired, error) = try_fault(&Pages::new(700), 1, &rule);
    assert_eq!((fired, error), (true, None));
}
