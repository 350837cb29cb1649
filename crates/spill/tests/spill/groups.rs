//! The tests compare aggregation with a map in memory: counts, minima of any length, skew, budgets, faults.

use std::collections::BTreeMap;

use varve_device::{ErrorKind, Fault, Operation, Rule, When};
use varve_spill::{AggregateSettings, Aggregator, MemoryBudget, MergeStates, Result, Row};

use crate::bench::{Bench, RowShape, kind, rows};

/// A state is a count (8 bytes) and the largest payload of the group, of any length.
struct CountAndMax;

fn count(state: &[u8]) -> u64 {
    state.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl MergeStates for CountAndMax {
    fn merge(&self, state: &[u8], other: &[u8], merged: &mut Vec<u8>) -> Result<()> {
        merged.extend((count(state) + count(other)).to_le_bytes());
        merged.extend_from_slice((&state[8..]).max(&other[8..]));
        Ok(())
    }
}

type Groups = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the keys and first states.
fn input(shape: RowShape, seed: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let state = |payload: &[u8]| [&1_u64.to_le_bytes()[..], payload].concat();
    rows(shape, seed).into_iter().map(|row| (row.key, state(&row.payload[8..]))).collect()
}

fn model(input: &[(Vec<u8>, Vec<u8>)]) -> Groups {
    let mut groups = Groups::new();
    for (key, state) in input {
        let merged = match groups.get(key) {
            None => state.clone(),
            Some(before) => {
                let mut merged = Vec::new();
                CountAndMax.merge(before, state, &mut merged).unwrap();
                merged
            }
        };
        groups.insert(key.clone(), merged);
    }
    groups
}

fn grouped(bench: &Bench, input: &[(Vec<u8>, Vec<u8>)], budget: usize) -> Result<Groups> {
    let memory = MemoryBudget::new(budget);
    let settings = AggregateSettings { page_bytes: 512, block_pages: 8 };
    let mut aggregator = Aggregator::new(&bench.space, &memory, settings, &CountAndMax)?;
    input.iter().try_for_each(|(key, state)| aggregator.push(Row::new(key, state)))?;
    let mut groups = Groups::new();
    aggregator.finish(&mut |row: Row<'_>| {
        assert!(groups.insert(row.key.to_vec(), row.payload.to_vec()).is_none(), "a group is returned once");
        Ok(())
    })?;
    assert!(memory.peak_bytes() <= budget);
    assert_eq!(memory.left_bytes(), budget);
    Ok(groups)
}

#[test]
fn groups_are_those_of_a_map() {
    let shapes = [
        RowShape::plain(0),
        RowShape { keys: 1, ..RowShape::plain(3_000) },
        RowShape { keys: 20, ..RowShape::plain(3_000) },
        RowShape::plain(8_000),
        RowShape { skew: 2, payload_bytes_max: 400, ..RowShape::plain(4_000) },
        RowShape { payload_bytes_max: 1, keys: 1 << 40, ..RowShape::plain(6_000) },
    ];
    for (seed, shape) in shapes.into_iter().enumerate() {
        let input = input(shape, seed as u64);
        let expected = model(&input);
        for budget in [16 << 10, 48 << 10, 256 << 10, 8 << 20] {
            let bench = Bench::new();
            let groups = grouped(&bench, &input, budget);
            assert!(groups.unwrap_or_else(|error| panic!("{shape:?} {budget}: {error}")) == expected);
            bench.check_empty();
        }
    }
}

#[test]
fn a_failing_device_is_an_error_and_leaves_nothing() {
    let input = input(RowShape::plain(3_000), 9);
    let expected = model(&input);
    for n in 1..200 {
        for operation in [Operation::Open, Operation::Read, Operation::Write, Operation::SetLen] {
            let bench = Bench::new();
            let fault = Fault::Fails(ErrorKind::Io(5));
            bench.device.arm(Rule { operation: Some(operation), space: None, when: When::Nth(n), fault });
            match grouped(&bench, &input, 32 << 10) {
                Ok(groups) => assert!(groups == expected),
                Err(error) => assert_eq!(kind(&error), "device"),
            }
            bench.check_empty();
        }
    }
}

#[test]
fn a_group_larger_than_the_budget_is_an_error() {
    let input = input(RowShape { payload_bytes_max: 1 << 20, ..RowShape::plain(3) }, 10);
    let bench = Bench::new();
    assert_eq!(kind(&grouped(&bench, &input, 32 << 10).unwrap_err()), "memory");
    bench.check_empty();
}

/// A state is a list to which rows are appended, such as that of `string_agg`.
struct Appended;

impl MergeStates for Appended {
    fn merge(&self, state: &[u8], other: &[u8], merged: &mut Vec<u8>) -> Result<()> {
        merged.extend_from_slice(state);
        merged.extend_from_slice(other);
        Ok(())
    }
}

/// Returns the lengths of the states of `keys` groups, by key. Each group gets `rows` rows of 8 bytes.
fn appended(keys: u64, rows: u64, budget: usize) -> Result<BTreeMap<Vec<u8>, usize>> {
    let bench = Bench::new();
    let memory = MemoryBudget::new(budget);
    let settings = AggregateSettings { page_bytes: 512, block_pages: 8 };
    let mut aggregator = Aggregator::new(&bench.space, &memory, settings, &Appended)?;
    for n in 0..keys * rows {
        aggregator.push(Row::new(&(n % keys).to_be_bytes(), &n.to_le_bytes()))?;
    }
    let mut groups = BTreeMap::new();
    aggregator.finish(&mut |row: Row<'_>| {
        assert!(groups.insert(row.key.to_vec(), row.payload.len()).is_none(), "a group is returned once");
        Ok(())
    })?;
    assert!(memory.peak_bytes() <= budget);
    assert_eq!(memory.left_bytes(), budget);
    bench.check_empty();
    Ok(groups)
}

/// The old cells of a state that grows do not fill the memory.
#[test]
fn states_may_grow() {
    for (keys, rows) in [(1, 300), (2, 300), (3, 250), (40, 200)] {
        for budget in [32 << 10, 64 << 10] {
            let groups =
                appended(keys, rows, budget).unwrap_or_else(|error| panic!("{keys} {rows}: {error}"));
            assert_eq!(groups.len() as u64, keys);
            assert!(groups.values().all(|len| *len as u64 == rows * 8), "{groups:?}");
        }
    }
    assert_eq!(kind(&appended(1, 8_000, 32 << 10).unwrap_err()), "memory");
}

#[test]
fn a_page_without_bytes_is_an_error() {
    let (bench, memory) = (Bench::new(), MemoryBudget::new(1 << 20));
    let settings = AggregateSettings { page_bytes: 0, block_pages: 8 };
    let error = Aggregator::new(&bench.space, &memory, settings, &Appended).err().unwrap();
    assert_eq!(kind(&error), "setting");
}

/// Reserves more memory for a merged state than the budget has.
struct Greedy;

impl MergeStates for Greedy {
    fn merge(&self, state: &[u8], _other: &[u8], merged: &mut Vec<u8>) -> Result<()> {
        merged.reserve(1 << 20);
        merged.extend_from_slice(state);
        Ok(())
    }
}

#[test]
fn a_merged_state_counts_in_the_budget() {
    let (bench, memory) = (Bench::new(), MemoryBudget::new(64 << 10));
    let settings = AggregateSettings { page_bytes: 512, block_pages: 8 };
    let mut aggregator = Aggregator::new(&bench.space, &memory, settings, &Greedy).unwrap();
    aggregator.push(Row::new(b"key", b"state")).unwrap();
    assert_eq!(kind(&aggregator.push(Row::new(b"key", b"state")).unwrap_err()), "memory");
}
