//! Runs a short search of every model, and a search for each planted bug. `make models` searches longer.
//!
//! VARVE_MODELS_EXECUTIONS sets the number of executions of a search, VARVE_MODELS_SEED the seed.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;

use varve_models::{MODELS, flaws::FLAWS};

/// The number of bugs that are planted in a model itself and not in the copied sources.
const BY_MODELS: usize = 1;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    setting("VARVE_MODELS_SEED", 1)
}

#[test]
fn without_a_flaw_nothing_is_found() {
    let executions = setting("VARVE_MODELS_EXECUTIONS", 150) as usize;
    for model in MODELS {
        let began = std::time::Instant::now();
        let found = model.search(seed(), executions);
        println!("{}: {executions} executions in {:.1?}", model.name, began.elapsed());
        assert_eq!(found, None, "{}, seed {}", model.name, seed());
    }
}

#[test]
fn every_planted_flaw_is_found() {
    let executions = setting("VARVE_MODELS_EXECUTIONS", 100_000) as usize;
    let mut missed = Vec::new();
    for (model, flaw) in MODELS.iter().flat_map(|model| model.flaws.iter().map(move |flaw| (model, *flaw))) {
        let began = std::time::Instant::now();
        let found = model.finds(flaw, seed(), executions);
        let what = found.as_deref().unwrap_or("NOT FOUND").lines().next().unwrap_or_default().to_owned();
        println!("{flaw}: {what} ({:.1?})", began.elapsed());
        missed.extend(found.is_none().then_some(flaw));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn every_flaw_is_named_by_one_model() {
    let named: Vec<&str> = MODELS.iter().flat_map(|model| model.flaws).copied().collect();
    let distinct: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(named.len(), distinct.len(), "a flaw is named twice");
    assert!(FLAWS.iter().all(|(name, ..)| distinct.contains(name)), "a flaw is named by no model");
    assert_eq!(named.len(), FLAWS.len() + BY_MODELS);
}
