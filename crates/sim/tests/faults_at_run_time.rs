//! A device that fails at its n-th operation: the workload sees a clean error or none, never a panic, and
//! a restart on a repaired device finds every acknowledged commit.

use std::time::Duration;

use varve_device::{ErrorKind, Fault, Operation, Rule, Space, When};
use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::{Rng, Subject, some_rule, try_fault};

const EIO: Fault = Fault::Fails(ErrorKind::Io(5));
const FULL: Fault = Fault::Fails(ErrorKind::NoSpace);

/// Tries one fault; whether it hit, and how the workload ended.
fn check(subject: &dyn Subject, seed: u64, rule: &Rule) -> (bool, Option<String>) {
    let tried = try_fault(subject, seed, rule);
    assert!(tried.found.failures.is_empty(), "seed {seed}: {:#?}", tried.found.failures);
    (tried.fired, tried.error)
}

/// Tries a fault at growing operation numbers; it must have hit at least once.
fn at_many(subject: &dyn Subject, operation: Operation, space: Space, fault: Fault, lasting: bool) {
    let mut hits = 0;
    for (seed, n) in [1_u64, 2, 3, 5, 8, 13, 34, 89, 233].into_iter().enumerate() {
        let when = if lasting { When::From(n) } else { When::Nth(n) };
        let rule = Rule { operation: Some(operation), space: Some(space), when, fault: fault.clone() };
        let (fired, _) = check(subject, seed as u64, &rule);
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
    let (fired, error) = check(&Pages::new(700), 1, &rule);
    assert_eq!((fired, error), (true, None));
}

#[test]
fn anything_fails_anywhere() {
    let mut hits = 0;
    for seed in 0..60 {
        let rule = some_rule(&mut Rng::new(seed));
        hits += usize::from(check(&Engine::new(60), seed, &rule).0);
    }
    assert!(hits > 20, "only {hits} of 60 faults ever came by");
}
