//! The tests compare the external sort with a sort in memory. They also check budgets, faults, a full space,
//! and the length of runs.

use varve_device::{ErrorKind, Fault, Operation, Rule, When};
use varve_spill::{MemoryBudget, Result, RunMethod, SortSettings, Sorter, SpillPurpose};

use crate::bench::{Bench, OwnedRow, RowShape, kind, rows};

fn settings(runs: RunMethod) -> SortSettings {
    SortSettings { page_bytes: 512, write_pages: 4, cluster_bytes: None, runs }
}

fn sorted(bench: &Bench, input: &[OwnedRow], settings: SortSettings, budget: usize) -> Result<Vec<OwnedRow>> {
    let memory = MemoryBudget::new(budget);
    let mut sorter = Sorter::new(&bench.space, &memory, settings)?;
    input.iter().try_for_each(|row| sorter.push(row.row()))?;
    let mut result = sorter.finish(0)?;
    let mut output = Vec::new();
    while result.advance()? {
        output.push(OwnedRow::of(result.row()));
    }
    assert!(memory.peak_bytes() <= budget);
    drop(result);
    assert_eq!(memory.left_bytes(), budget, "all memory is returned");
    Ok(output)
}

/// Checks the order, and that each row is returned once.
fn check(output: Vec<OwnedRow>, input: &[OwnedRow], context: &str) {
    assert!(output.is_sorted_by(|a, b| a.key <= b.key), "{context}");
    let (mut output, mut input) = (output, input.to_vec());
    output.sort();
    input.sort();
    assert!(output == input, "{context}");
}

#[test]
fn rows_are_sorted_with_every_budget() {
    let shapes = [
        RowShape::plain(0),
        RowShape::plain(1),
        RowShape::plain(4_000),
        RowShape { keys: 3, ..RowShape::plain(3_000) },
        RowShape { payload_bytes_max: 3_000, ..RowShape::plain(500) },
        RowShape { payload_bytes_max: 1, nulls: 5, ..RowShape::plain(6_000) },
    ];
    for (seed, shape) in shapes.into_iter().enumerate() {
        let input = rows(shape, seed as u64);
        for method in [RunMethod::ReplacementSelection, RunMethod::Quicksort] {
            for budget in [24 << 10, 64 << 10, 200 << 10, 16 << 20] {
                let bench = Bench::new();
                let context = format!("{shape:?} {method:?} {budget}");
                let output = sorted(&bench, &input, settings(method), budget);
                check(output.unwrap_or_else(|error| panic!("{context}: {error}")), &input, &context);
                bench.check_empty();
            }
        }
    }
}

#[test]
fn a_small_fan_in_needs_several_passes() {
    let input = rows(RowShape::plain(20_000), 1);
    let bytes: u64 = input.iter().map(|row| row.row().stored_bytes() as u64).sum();
    let passes = |cluster_bytes| {
        let bench = Bench::new();
        let settings = SortSettings { cluster_bytes, ..settings(RunMethod::Quicksort) };
        check(sorted(&bench, &input, settings, 64 << 10).unwrap(), &input, "passes");
        let merges = bench.space.tally(SpillPurpose::Merges);
        bench.check_empty();
        merges.written.bytes as f64 / bytes as f64
    };
    let (even, small, large) = (passes(None), passes(Some(512)), passes(Some(16 << 10)));
    assert_eq!((even, small), (0.0, 0.0));
    assert!((2.0..6.0).contains(&large), "a fan-in of 3 reads most rows several times: {large}");
}

#[test]
fn replacement_selection_makes_runs_of_twice_the_memory() {
    for payload_bytes_max in [1, 200] {
        let input = rows(RowShape { payload_bytes_max, keys: 1 << 40, ..RowShape::plain(40_000) }, 3);
        let runs = |method| {
            let bench = Bench::new();
            let memory = MemoryBudget::new(128 << 10);
            let mut sorter = Sorter::new(&bench.space, &memory, settings(method)).unwrap();
            input.iter().for_each(|row| sorter.push(row.row()).unwrap());
            sorter.runs() as f64
        };
        let ratio = runs(RunMethod::Quicksort) / runs(RunMethod::ReplacementSelection);
        assert!((1.7..2.3).contains(&ratio), "{ratio}");
    }
}

#[test]
fn sorted_input_is_one_run() {
    let mut input = rows(RowShape::plain(10_000), 4);
    input.sort();
    let bench = Bench::new();
    let memory = MemoryBudget::new(64 << 10);
    let mut sorter = Sorter::new(&bench.space, &memory, settings(RunMethod::ReplacementSelection)).unwrap();
    input.iter().for_each(|row| sorter.push(row.row()).unwrap());
    assert_eq!(sorter.runs(), 0, "the first run is still being written");
    let mut result = sorter.finish(0).unwrap();
    let mut count = 0;
    while result.advance().unwrap() {
        assert_eq!(result.row().key, input[count].key);
        count += 1;
    }
    assert_eq!(count, input.len());
}

#[test]
fn a_failing_device_is_an_error_and_leaves_nothing() {
    let input = rows(RowShape::plain(3_000), 5);
    let clean = Bench::new();
    sorted(&clean, &input, settings(RunMethod::ReplacementSelection), 32 << 10).unwrap();
    let operations = clean.device.operation_count();
    for n in (1..operations).step_by(7) {
        let bench = Bench::new();
        let fault = Fault::Fails(ErrorKind::Io(5));
        // A file that can't be removed stays until the next start.
        for operation in [Operation::Open, Operation::Read, Operation::Write, Operation::SetLen] {
            let rule =
                Rule { operation: Some(operation), space: None, when: When::Nth(n), fault: fault.clone() };
            bench.device.arm(rule);
        }
        match sorted(&bench, &input, settings(RunMethod::ReplacementSelection), 32 << 10) {
            Ok(output) => check(output, &input, "no fault"),
            Err(error) => assert_eq!(kind(&error), "device", "{error}"),
        }
        bench.check_empty();
    }
}

#[test]
fn wrong_bytes_are_found() {
    let input = rows(RowShape::plain(3_000), 6);
    for n in 1..40 {
        for (operation, fault) in [
            (Operation::Read, Fault::BitFlip { bit: n * 977 }),
            (Operation::Write, Fault::BitFlip { bit: n * 977 }),
            (Operation::Write, Fault::Lost),
            (Operation::Write, Fault::Misdirected { by_bytes: 512 }),
        ] {
            let bench = Bench::new();
            bench.device.arm(Rule { operation: Some(operation), space: None, when: When::Nth(n), fault });
            let result = sorted(&bench, &input, settings(RunMethod::ReplacementSelection), 32 << 10);
            let fired = bench.device.fired_count() > 0;
            match result {
                Ok(output) => assert!(!fired || output.len() == input.len()),
                Err(error) => assert!(matches!(kind(&error), "corrupt" | "device"), "{error}"),
            }
            bench.check_empty();
        }
    }
}

#[test]
fn a_full_space_is_named() {
    let input = rows(RowShape::plain(20_000), 7);
    let bench = Bench::with_limit(300 << 10);
    let error = sorted(&bench, &input, settings(RunMethod::Quicksort), 64 << 10).unwrap_err();
    assert_eq!(kind(&error), "full");
    assert!(error.to_string().contains("307200"), "{error}");
    assert!(bench.space.peak_bytes() <= 300 << 10);
    bench.check_empty();
}

#[test]
fn a_row_larger_than_the_budget_is_an_error() {
    let input = rows(RowShape { payload_bytes_max: 1 << 20, ..RowShape::plain(3) }, 8);
    let bench = Bench::new();
    for method in [RunMethod::ReplacementSelection, RunMethod::Quicksort] {
        let error = sorted(&bench, &input, settings(method), 48 << 10).unwrap_err();
        assert_eq!(kind(&error), "memory");
    }
    bench.check_empty();
}
