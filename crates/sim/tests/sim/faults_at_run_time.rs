//! A device fails at its n-th operation. The workload gets an error or no error, but never panics. After a
//! restart on a device that works, the database has every acknowledged commit. `make faults` tries every n,
//! and this test tries some of them.

use varve_device::{ErrorKind, Fault, Operation, Rule, Space, When};
use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::sweep::{Make, Outcome, Row, kinds, sweep};
use varve_sim::{Part, Rng, STOPPED, Subject, some_rule, try_fault, try_relieved_fault};

/// The distance between two operation numbers that are tried.
const STEP: u64 = 97;
/// The same distance for faults that end, after which the database must continue.
const STEP_LIFTED: u64 = 31;
/// The number of faults for each part. Seeds choose them.
const FAULTS_OF_A_PART: u64 = 8;

fn slice(subject: &str, make: Make, seed: u64) {
    let mut all = Row::default();
    for kind in kinds() {
        let mut row = Row::default();
        for (at, space) in kind.spaces().into_iter().enumerate() {
            let first = 1 + (seed * 31 + at as u64 * 7 + kind.name.len() as u64) % 11;
            let step = if kind.lifted { STEP_LIFTED } else { STEP };
            row.add(sweep(make, &kind, space, seed, first, step));
        }
        println!("{subject}, {}: {:?}", kind.name, row.counts);
        all.add(row);
    }
    assert!(all.failures.is_empty(), "{:#?}", all.failures);
    let [right, error, went_on, made_again, stopped, ..] = all.counts;
    assert!(right > 5 && error > 5 && stopped > 5, "every outcome shows: {:?}", all.counts);
    assert!(went_on > 10 && made_again > 0, "full devices that get room again: {:?}", all.counts);
}

#[test]
fn of_raw_pages() {
    slice("pages", || Box::new(Pages::new(700)), 1);
}

#[test]
fn of_packed_pages() {
    slice("packed", || Box::new(Pages { part: Part::Packed, ..Pages::new(700) }), 3);
}

#[test]
fn of_the_engine() {
    slice("engine", || Box::new(Engine::new(60)), 2);
}

#[test]
fn anything_fails_anywhere() {
    let mut hits = 0;
    for seed in 0..60 {
        let tried = try_fault(&Engine::new(60), seed, &some_rule(&mut Rng::new(seed)));
        assert!(tried.found.failures.is_empty(), "seed {seed}: {:#?}", tried.found.failures);
        hits += usize::from(tried.fired);
    }
    assert!(hits > 20, "only {hits} of 60 faults ever came by");
}

/// Tries a few of the faults that `make faults` tries one by one, with all configurations.
#[test]
fn anything_fails_anywhere_in_any_part() {
    let (mut hits, mut tried) = (0, 0);
    for (part, first) in Part::of_levels().into_iter().zip((0..).step_by(100)) {
        for seed in first..first + FAULTS_OF_A_PART {
            let subject = Pages { part, ..Pages::new(250) };
            let outcome = try_fault(&subject, seed, &some_rule(&mut Rng::new(seed)));
            let failures = outcome.found.failures;
            assert!(failures.is_empty(), "{}, seed {seed}: {failures:#?}", part.name());
            tried += 1;
            hits += usize::from(outcome.fired);
        }
    }
    assert!(hits * 3 > tried, "only {hits} of {tried} faults ever came by");
}

/// Tries full devices that get space again, with all configurations.
#[test]
fn any_part_goes_on_when_there_is_room_again() {
    let (mut hits, mut went_on) = (0, 0);
    let full = [(Operation::Write, Fault::HalfFull), (Operation::SetLen, Fault::Fails(ErrorKind::NoSpace))];
    for (part, seed) in Part::of_levels().into_iter().filter(|part| !part.changes()).zip(0..) {
        for (operation, fault) in full.clone() {
            let when = When::From(30 + Rng::new(seed).below(40));
            let rule = Rule { operation: Some(operation), space: Some(Space::Data), when, fault };
            let subject = Pages { part, ..Pages::new(250) };
            let (tried, _) = try_relieved_fault(&subject, seed, &rule, seed % 2 == 0);
            let failures = tried.found.failures;
            assert!(failures.is_empty(), "{}, seed {seed}, {rule:?}: {failures:#?}", part.name());
            let error = tried.error.unwrap_or_default();
            assert!(!error.contains(STOPPED), "{}, seed {seed}, {rule:?}: {error}", part.name());
            hits += usize::from(tried.fired);
            went_on += usize::from(tried.fired && !error.is_empty());
        }
    }
    assert!(hits > 5 && went_on > 0, "{hits} came by, {went_on} met errors and went on");
}

/// Runs a workload on a device that is full for several growths of a file in a row, and then has space again.
/// Returns whether the fault happened.
fn goes_on(subject: &dyn Subject, commits: usize, space: Space, first: u64) -> bool {
    let when = When::Between(first, first + 4);
    let fault = Fault::Fails(ErrorKind::NoSpace);
    let rule = Rule { operation: Some(Operation::SetLen), space: Some(space), when, fault };
    let tried = try_fault(subject, 2, &rule);
    assert!(tried.found.failures.is_empty(), "{:#?}", tried.found.failures);
    let error = tried.error.unwrap_or_default();
    assert!(!error.contains(STOPPED), "growth {first} of {}: {error}", space.name());
    assert!(tried.commits >= commits, "growth {first} of {}: only {} commits", space.name(), tried.commits);
    tried.fired
}

/// Found by this test: a file that could not be shortened for lack of space stopped the database.
#[test]
fn once_there_is_room_again_the_database_goes_on_without_a_restart() {
    // The first growths of files create the database itself.
    for (space, first) in [(Space::Data, 6), (Space::Rollback, 4), (Space::Log, 3)] {
        let mut hits = 0;
        for first in first..first + 4 {
            hits += usize::from(goes_on(&Engine::new(300), 300, space, first));
            hits += usize::from(goes_on(&Pages::new(2500), 2500, space, first));
            let packed = Pages { part: Part::Packed, ..Pages::new(2500) };
            // The creation of a packed database has more growths: for the page maps, and for the space that
            // is reserved for pages.
            hits += usize::from(goes_on(&packed, 2500, space, first + 8));
        }
        assert!(hits > 0, "no growth of {} was ever refused", space.name());
    }
}

#[test]
fn outcomes_are_in_the_order_of_the_table() {
    assert_eq!(Outcome::Hung as usize + 1, Row::default().counts.len());
}
