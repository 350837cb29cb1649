//! The gate of the harness: each planted fault is found, or the silence of the other tests means nothing.
//!
//! The faults are planted below or beside the pager: a device that lies about durability, spoils single
//! writes, or a configuration without protection. Without a fault, the same searches find nothing.

use std::sync::Arc;

use varve_device::{Directory, Fault, Faulty, Lies, Operation, Rule, Space, When};
use varve_pager::{PagerConfig, ProtectionKind};
use varve_sim::engine::{Engine, Plant};
use varve_sim::pages::Pages;
use varve_sim::{Found, Plan, Subject, run, search_run};

const COMMITS: usize = 2500;
const SEEDS: u64 = 24;

/// Searches a few seeds until something is found.
fn found(subject: &dyn Subject, lies: Lies, rule: Option<Rule>) -> Found {
    let mut all = Found::default();
    for seed in 1..=SEEDS {
        let plan = Plan { lies, ..Plan::new(seed, 250) };
        let wrap = |device: Arc<dyn Directory>| -> Arc<dyn Directory> {
            let faulty = Faulty::wrap(device);
            rule.iter().for_each(|rule| faulty.arm(rule.clone()));
            faulty
        };
        let run = run(subject, seed, wrap);
        // A workload that stops with an error has found the fault itself.
        match &run.error {
            None => all.add(search_run(subject, &run, plan)),
            Some(what) => all.failures.push(varve_sim::Failure { image: 0, what: what.clone() }),
        }
        if !all.failures.is_empty() {
            break;
        }
    }
    all
}

fn report(what: &str, found: &Found) -> bool {
    let first = found.failures.first().map_or("NOT FOUND", |failure| failure.what.as_str());
    println!("{what}: {} images, {first}", found.images);
    !found.failures.is_empty()
}

fn lying_devices() -> Vec<(String, Lies)> {
    let none = Lies::default();
    let mut lies = vec![("directory syncs".to_string(), Lies { directory_syncs: true, ..none })];
    for space in [Space::Control, Space::Data, Space::Log] {
        // Nothing depends on flushes of the control file: its writes are durable ones.
        if space != Space::Control {
            lies.push((format!("flushes of {}", space.name()), Lies { flushes_of: Some(space), ..none }));
        }
        let durable_writes_of = Some(space);
        lies.push((format!("durable writes of {}", space.name()), Lies { durable_writes_of, ..none }));
    }
    lies
}

fn spoiled_writes() -> Vec<(String, Rule)> {
    let mut rules = Vec::new();
    for space in [Space::Data, Space::Log] {
        for fault in [Fault::Lost, Fault::Misdirected { by_bytes: 8192 }, Fault::BitFlip { bit: 12_345 }] {
            let rule =
                Rule { operation: Some(Operation::Write), space: Some(space), when: When::Every(40), fault };
            rules.push((format!("{:?} writes of {}", rule.fault, space.name()), rule));
        }
    }
    rules
}

#[test]
fn no_fault_no_finding() {
    let found = found(&Pages::new(COMMITS), Lies::default(), None);
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    println!("{}", found.summary());
}

#[test]
fn a_lying_device_is_found() {
    let pages = Pages::new(COMMITS);
    let missed =
        lying_devices().into_iter().filter(|(what, lies)| !report(what, &found(&pages, *lies, None)));
    let missed: Vec<String> = missed.map(|(what, _)| what).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn spoiled_writes_are_found() {
    let pages = Pages::new(COMMITS);
    let honest = Lies::default();
    let missed = spoiled_writes()
        .into_iter()
        .filter(|(what, rule)| !report(what, &found(&pages, honest, Some(rule.clone()))));
    let missed: Vec<String> = missed.map(|(what, _)| what).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_lying_device_is_found_by_the_engine() {
    let engine = Engine::new(150);
    let none = Lies::default();
    let of =
        |space| [Lies { flushes_of: Some(space), ..none }, Lies { durable_writes_of: Some(space), ..none }];
    let lies = of(Space::Log).into_iter().chain(of(Space::Data)).chain(of(Space::Rollback));
    let missed: Vec<Lies> =
        lies.filter(|lies| !report(&format!("engine, {lies:?}"), &found(&engine, *lies, None))).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn an_early_acknowledgement_is_found() {
    let hasty = Engine { plant: Plant::EarlyAcknowledgement, ..Engine::new(150) };
    assert!(report("early acknowledgement", &found(&hasty, Lies::default(), None)));
}

#[test]
fn a_lost_row_is_found() {
    let forgetful = Engine { plant: Plant::LostRow, ..Engine::new(150) };
    assert!(report("a row that is lost", &found(&forgetful, Lies::default(), None)));
}

#[test]
fn missing_protection_is_found() {
    let unprotected = |config: &mut PagerConfig| config.protection = ProtectionKind::None;
    let pages = Pages { configure: unprotected, ..Pages::new(COMMITS) };
    assert!(report("no protection", &found(&pages, Lies::default(), None)));
}
