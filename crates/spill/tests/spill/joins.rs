//! The tests compare the four joins with a join in memory: kinds, skew, empty inputs, budgets, wrong
//! expectations, faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use varve_device::{ErrorKind, Fault, Operation, Rule, When};
use varve_spill::{
    BlockIo, CandidatePairs, DriveTimes, InputSize, Join, JoinCondition, JoinInput, JoinKind, JoinMethod,
    JoinOutput, JoinSettings, Joined, MemoryBudget, OwnedInput, PartitionFiles, Partners, Result, Row,
    RowSource, Side, SpillPurpose, Steps,
};

use crate::bench::{Bench, OwnedRow, RowShape, Source, kind, rows};

type Pairs = Vec<(Option<OwnedRow>, Option<OwnedRow>)>;

/// A condition beside the equality of keys. It divides rows with equal keys.
fn are_partners(left: &[u8], right: &[u8]) -> bool {
    (left.len() + right.len()).is_multiple_of(3)
}

/// Returns the join by a table in memory.
fn model(kind: JoinKind, has_condition: bool, left: &[OwnedRow], right: &[OwnedRow]) -> Pairs {
    let mut table: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (n, row) in right.iter().enumerate().filter(|(_, row)| !row.never_matches) {
        table.entry(&row.key).or_default().push(n);
    }
    let mut matched = vec![false; right.len()];
    let mut output = Pairs::new();
    for row in left {
        let mut partners = table.get(&*row.key).filter(|_| !row.never_matches).cloned().unwrap_or_default();
        partners.retain(|n| !has_condition || are_partners(&row.payload, &right[*n].payload));
        partners.iter().for_each(|n| matched[*n] = true);
        let alone = (Some(row.clone()), None);
        match kind {
            JoinKind::Semi if !partners.is_empty() => output.push(alone),
            JoinKind::Anti if partners.is_empty() => output.push(alone),
            JoinKind::Semi | JoinKind::Anti => {}
            JoinKind::Left | JoinKind::Full if partners.is_empty() => output.push(alone),
            _ => output.extend(partners.iter().map(|n| (Some(row.clone()), Some(right[*n].clone())))),
        }
    }
    if matches!(kind, JoinKind::Right | JoinKind::Full) {
        let others = right.iter().zip(matched).filter(|(_, matched)| !matched);
        output.extend(others.map(|(row, _)| (None, Some(row.clone()))));
    }
    output.sort();
    output
}

/// One join of the tests.
#[derive(Debug, Clone, Copy)]
struct Case {
    method: JoinMethod,
    kind: JoinKind,
    build: Side,
    io: BlockIo,
    files: PartitionFiles,
    budget: usize,
    page_bytes: usize,
    /// The probe input can be read only once.
    is_once: bool,
    /// The expected size of the inputs, as a factor of the true size.
    expected: f64,
    has_condition: bool,
    /// The join runs step by step: the inputs wait, and the output is full, now and then.
    has_steps: bool,
}

const CASE: Case = Case {
    method: JoinMethod::Hybrid,
    kind: JoinKind::Inner,
    build: Side::Left,
    io: BlockIo::Blocked,
    files: PartitionFiles::Shared,
    budget: 64 << 10,
    page_bytes: 512,
    is_once: false,
    expected: 1.0,
    has_condition: false,
    has_steps: false,
};

impl Case {
    fn join(self, bench: &Bench, memory: &Arc<MemoryBudget>) -> Join {
        Join {
            space: Arc::clone(&bench.space),
            memory: Arc::clone(memory),
            settings: JoinSettings {
                page_bytes: self.page_bytes,
                io: self.io,
                partition_files: self.files,
                times: DriveTimes::DISK,
            },
            method: self.method,
            kind: self.kind,
            build: self.build,
        }
    }
}

fn size(rows: &[OwnedRow], factor: f64) -> InputSize {
    let bytes: usize = rows.iter().map(|row| row.row().stored_bytes()).sum();
    InputSize { rows: (rows.len() as f64 * factor) as u64, bytes: (bytes as f64 * factor) as u64 }
}

/// The number of rows that the output takes in a step.
const OUTPUT_ROOM: usize = 7;

/// Collects the result.
struct Collect {
    output: Arc<Mutex<Pairs>>,
    case: Case,
    room: usize,
    /// Sizes of batches of candidates.
    batches: Arc<Mutex<Vec<usize>>>,
}

impl JoinOutput for Collect {
    fn joined(&mut self, row: Joined<'_>) -> Result<()> {
        self.output.lock().unwrap().push((row.left.map(OwnedRow::of), row.right.map(OwnedRow::of)));
        self.room = self.room.saturating_sub(1);
        Ok(())
    }
    fn is_full(&mut self) -> Result<bool> {
        // The next time it is asked, it has room again.
        let is_full = self.case.has_steps && self.room == 0;
        self.room = if is_full { OUTPUT_ROOM } else { self.room };
        Ok(is_full)
    }
    fn condition(&mut self) -> Option<&mut dyn JoinCondition> {
        if self.case.has_condition { Some(self) } else { None }
    }
}

impl JoinCondition for Collect {
    fn decide(&mut self, pairs: &CandidatePairs<'_>, partners: &mut Partners) -> Result<()> {
        assert!(pairs.count() > 0);
        assert_eq!(pairs.rows(Side::Left).count(), pairs.count());
        for (n, (left, right)) in pairs.rows(Side::Left).zip(pairs.rows(Side::Right)).enumerate() {
            assert_eq!(left.key, right.key);
            if are_partners(left.payload, right.payload) {
                partners.set(n);
            }
        }
        self.batches.lock().unwrap().push(pairs.count());
        Ok(())
    }
}

/// A source whose rows come some at a time.
struct Waiting<'a> {
    rows: Source<'a>,
    has_waited: bool,
    n: usize,
}

impl RowSource for Waiting<'_> {
    fn rewind(&mut self, memory: &Arc<MemoryBudget>, read_bytes: usize) -> Result<()> {
        self.rows.rewind(memory, read_bytes)
    }
    fn advance(&mut self) -> Result<bool> {
        self.n += 1;
        self.has_waited = self.n.is_multiple_of(10) && !self.has_waited;
        if self.has_waited {
            self.n -= 1;
            return Ok(false);
        }
        self.rows.advance()
    }
    fn row(&self) -> Row<'_> {
        self.rows.row()
    }
    fn waits(&self) -> bool {
        self.has_waited
    }
    fn can_rewind(&self) -> bool {
        self.rows.can_rewind()
    }
}

/// Makes all steps. Each may add few rows only.
fn steps(mut join: Steps<'_>, output: &Mutex<Pairs>) -> Result<()> {
    let (mut before, mut count) = (0, 0);
    while !join.step()? {
        let rows = output.lock().unwrap().len();
        assert!(rows - before <= OUTPUT_ROOM + 2, "{} rows in a step", rows - before);
        (before, count) = (rows, count + 1);
    }
    assert!(count >= before / (OUTPUT_ROOM + 2));
    assert!(join.step()?, "it has ended");
    Ok(())
}

fn run(bench: &Bench, case: Case, left_rows: &[OwnedRow], right_rows: &[OwnedRow]) -> Result<Pairs> {
    run_noting(bench, case, left_rows, right_rows, &Arc::default())
}

/// Does the same as `run`, and also records how many candidates each batch had.
fn run_noting(
    bench: &Bench,
    case: Case,
    left_rows: &[OwnedRow],
    right_rows: &[OwnedRow],
    batches: &Arc<Mutex<Vec<usize>>>,
) -> Result<Pairs> {
    let memory = MemoryBudget::new(case.budget);
    let join = case.join(bench, &memory);
    let source = |rows, side| match case.is_once && side != case.build {
        true => Source::once(rows),
        false => Source::new(rows),
    };
    let (mut left_source, mut right_source) =
        (source(left_rows, Side::Left), source(right_rows, Side::Right));
    let left = JoinInput { source: &mut left_source, size: size(left_rows, case.expected) };
    let right = JoinInput { source: &mut right_source, size: size(right_rows, case.expected) };
    let output = Arc::<Mutex<Pairs>>::default();
    let mut collect = Collect { output: output.clone(), case, room: OUTPUT_ROOM, batches: batches.clone() };
    let result = match case.has_steps {
        false => join.clone().run(left, right, &mut collect),
        true => {
            let owned = |input: JoinInput<'_>, rows, side| {
                let rows =
                    if case.is_once && side != case.build { Source::once(rows) } else { Source::new(rows) };
                OwnedInput { source: Box::new(Waiting { rows, has_waited: false, n: 0 }), size: input.size }
            };
            let (left, right) = (owned(left, left_rows, Side::Left), owned(right, right_rows, Side::Right));
            steps(join.clone().steps(left, right, collect), &output)
        }
    };
    drop(join);
    let mut output = std::mem::take(&mut *output.lock().unwrap());
    assert!(memory.peak_bytes() <= case.budget);
    assert_eq!(memory.left_bytes(), case.budget, "{case:?}: all memory is returned");
    result?;
    output.sort();
    Ok(output)
}

fn check(case: Case, left: &[OwnedRow], right: &[OwnedRow]) {
    let bench = Bench::new();
    let output = run(&bench, case, left, right).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let expected = model(case.kind, case.has_condition, left, right);
    assert!(output == expected, "{case:?}: {} rows, not {}", output.len(), expected.len());
    bench.check_empty();
}

fn check_all(base: Case, left: &[OwnedRow], right: &[OwnedRow]) {
    for method in JoinMethod::ALL {
        for kind in JoinKind::ALL {
            for build in [Side::Left, Side::Right] {
                check(Case { method, kind, build, ..base }, left, right);
            }
        }
    }
}

fn shape(rows: u64, keys: u64) -> RowShape {
    RowShape { rows, keys, skew: 0, payload_bytes_max: 100, nulls: 20 }
}

#[test]
fn every_kind_with_every_budget() {
    let (left, right) = (rows(shape(700, 1_500), 1), rows(shape(2_500, 1_500), 2));
    for budget in [24 << 10, 48 << 10, 128 << 10, 1 << 20] {
        for io in [BlockIo::Blocked, BlockIo::PageSized] {
            check_all(Case { budget, io, ..CASE }, &left, &right);
        }
    }
}

#[test]
fn conditions_beside_keys() {
    let base = Case { has_condition: true, ..CASE };
    let (left, right) = (rows(shape(700, 300), 31), rows(shape(1_500, 300), 32));
    for budget in [24 << 10, 48 << 10, 1 << 20] {
        check_all(Case { budget, ..base }, &left, &right);
        check_all(Case { budget, ..base }, &right, &left);
    }
    let skewed = rows(RowShape { skew: 3, ..shape(900, 4_000) }, 33);
    let other = rows(RowShape { skew: 10, ..shape(600, 4_000) }, 34);
    for budget in [24 << 10, 40 << 10] {
        check_all(Case { budget, ..base }, &skewed, &other);
    }
}

/// Most rows of both sides have one key, and none of the sides fits in memory. So each method joins rows with
/// one key in chunks, and the bits of probe rows are in the temporary space.
#[test]
fn conditions_on_one_key_with_more_rows_than_memory_on_both_sides() {
    let one_key = |rows, seed| {
        let mut rows = self::rows(RowShape { skew: 1, nulls: 50, ..shape(rows, 30) }, seed);
        rows.extend(self::rows(shape(40, 60), seed + 100));
        rows
    };
    let (left, right) = (one_key(170, 39), one_key(220, 40));
    for budget in [8 << 10, 10 << 10] {
        check_all(Case { budget, has_condition: true, is_once: true, ..CASE }, &left, &right);
        check_all(Case { budget, has_condition: true, ..CASE }, &left, &right);
    }
}

/// A row that is longer than the copies of a batch is decided before the input moves on.
#[test]
fn conditions_on_long_rows() {
    let left = rows(RowShape { payload_bytes_max: 6_000, ..shape(160, 40) }, 41);
    let right = rows(RowShape { payload_bytes_max: 5_000, ..shape(150, 40) }, 42);
    for budget in [80 << 10, 130 << 10, 400 << 10] {
        check_all(Case { budget, has_condition: true, ..CASE }, &left, &right);
        check_all(Case { budget, has_condition: true, has_steps: true, ..CASE }, &left, &right);
    }
}

fn kinds_and_sides() -> impl Iterator<Item = (JoinKind, Side)> {
    JoinKind::ALL.into_iter().flat_map(|kind| [(kind, Side::Left), (kind, Side::Right)])
}

/// The condition is asked for many pairs at once, also if all keys are different.
#[test]
fn conditions_are_decided_in_batches() {
    for keys in [3_000, 400] {
        let (left, right) = (rows(shape(3_000, keys), 43), rows(shape(3_000, keys), 44));
        let pairs = model(JoinKind::Inner, false, &left, &right).len();
        for method in JoinMethod::ALL {
            for (kind, build) in kinds_and_sides() {
                let (bench, batches) = (Bench::new(), Arc::<Mutex<Vec<usize>>>::default());
                let case = Case { method, kind, build, budget: 96 << 10, has_condition: true, ..CASE };
                run_noting(&bench, case, &left, &right, &batches).unwrap();
                let batches = batches.lock().unwrap();
                let (count, sum) = (batches.len(), batches.iter().sum::<usize>());
                assert!(sum <= pairs && sum * 2 > pairs / 2, "{case:?}: {sum} of {pairs}");
                assert!(sum / count >= 25, "{case:?}: {sum} pairs in {count} batches");
            }
        }
    }
}

/// A row that needs one partner is not compared with all rows of a frequent key.
#[test]
fn a_semi_join_ends_early_on_a_frequent_key() {
    let one_key = |seed| rows(RowShape { nulls: 0, ..shape(600, 1) }, seed);
    let (left, right) = (one_key(45), one_key(46));
    for method in JoinMethod::ALL {
        for (kind, build) in [JoinKind::Semi, JoinKind::Anti]
            .into_iter()
            .flat_map(|kind| [(kind, Side::Left), (kind, Side::Right)])
        {
            let (bench, batches) = (Bench::new(), Arc::<Mutex<Vec<usize>>>::default());
            let case = Case { method, kind, build, budget: 4 << 20, has_condition: true, ..CASE };
            let output = run_noting(&bench, case, &left, &right, &batches).unwrap();
            assert!(output == model(kind, true, &left, &right), "{case:?}");
            let pairs: usize = batches.lock().unwrap().iter().sum();
            assert!(pairs <= 600 * 64 + 16_384, "{case:?}: {pairs} pairs");
        }
    }
}

#[test]
fn step_by_step_as_at_once() {
    let (left, right) = (rows(shape(500, 300), 35), rows(RowShape { skew: 5, ..shape(700, 300) }, 36));
    for (budget, has_condition) in [(24 << 10, false), (24 << 10, true), (1 << 20, true)] {
        check_all(Case { budget, has_condition, has_steps: true, ..CASE }, &left, &right);
    }
}

/// A caller that needs no more rows drops the join.
#[test]
fn a_join_that_is_dropped_leaves_nothing() {
    let (left, right) = (rows(shape(3_000, 2_000), 37), rows(shape(3_000, 2_000), 38));
    for method in JoinMethod::ALL {
        for count in [1, 10, 200, 600] {
            let bench = Bench::new();
            let memory = MemoryBudget::new(32 << 10);
            let case = Case { method, has_steps: true, ..CASE };
            let join = case.join(&bench, &memory);
            let collect =
                Collect { output: Default::default(), case, room: OUTPUT_ROOM, batches: Default::default() };
            let owned = |rows| OwnedInput {
                source: Box::new(Waiting { rows: Source::new(rows), has_waited: false, n: 0 }),
                size: size(rows, 1.0),
            };
            let mut steps = join.steps(owned(&left), owned(&right), collect);
            (0..count).for_each(|_| assert!(!steps.step().unwrap(), "{method:?} after {count} steps"));
            drop(steps);
            assert_eq!(memory.left_bytes(), memory.limit_bytes());
            bench.check_empty();
        }
    }
}

#[test]
fn empty_inputs() {
    let (none, some) = (Vec::new(), rows(shape(600, 100), 3));
    for budget in [24 << 10, 1 << 20] {
        check_all(Case { budget, ..CASE }, &none, &some);
        check_all(Case { budget, ..CASE }, &some, &none);
        check_all(Case { budget, ..CASE }, &none, &none);
    }
}

/// A third of the build rows and a tenth of the probe rows have one key, which no hash divides.
#[test]
fn one_key_with_more_rows_than_memory() {
    let left = rows(RowShape { skew: 3, ..shape(1_200, 4_000) }, 4);
    let right = rows(RowShape { skew: 10, ..shape(600, 4_000) }, 5);
    for budget in [24 << 10, 40 << 10] {
        check_all(Case { budget, ..CASE }, &left, &right);
    }
}

#[test]
fn rows_longer_than_pages() {
    let left = rows(RowShape { payload_bytes_max: 3_000, ..shape(120, 100) }, 6);
    let right = rows(RowShape { payload_bytes_max: 2_000, ..shape(150, 100) }, 7);
    for budget in [80 << 10, 400 << 10] {
        check_all(Case { budget, ..CASE }, &left, &right);
        check_all(Case { budget, files: PartitionFiles::OneEach, ..CASE }, &left, &right);
    }
}

#[test]
fn wrong_expectations_cost_only_time() {
    let (left, right) = (rows(shape(2_000, 3_000), 8), rows(shape(3_000, 3_000), 9));
    for expected in [0.0, 0.05, 30.0] {
        check_all(Case { expected, kind: JoinKind::Full, ..CASE }, &left, &right);
    }
}

/// With enough memory, hash joins write nothing. Hybrid writes less than Grace otherwise.
#[test]
fn hybrid_writes_less_than_grace() {
    let (left, right) = (rows(shape(3_000, 3_000), 10), rows(shape(6_000, 3_000), 11));
    let written = |method, budget| {
        let bench = Bench::new();
        run(&bench, Case { method, budget, ..CASE }, &left, &right).unwrap();
        bench.space.tally(SpillPurpose::Partitions).written.bytes
    };
    assert_eq!(written(JoinMethod::Hybrid, 2 << 20), 0);
    for budget in [64 << 10, 128 << 10, 200 << 10] {
        assert!(written(JoinMethod::Hybrid, budget) < written(JoinMethod::Grace, budget), "{budget}");
    }
}

fn with_and_without_condition() -> impl Iterator<Item = (JoinMethod, bool)> {
    JoinMethod::ALL.into_iter().flat_map(|method| [(method, false), (method, true)])
}

#[test]
fn a_failing_device_is_an_error_and_leaves_nothing() {
    let (left, right) = (rows(shape(800, 500), 12), rows(shape(900, 500), 13));
    for (method, has_condition) in with_and_without_condition() {
        let case = Case { method, kind: JoinKind::Full, budget: 32 << 10, has_condition, ..CASE };
        let clean = Bench::new();
        let expected = run(&clean, case, &left, &right).unwrap();
        let operations = clean.device.operation_count();
        for n in (1..operations.min(400)).step_by(3) {
            for operation in [Operation::Open, Operation::Read, Operation::Write, Operation::SetLen] {
                let bench = Bench::new();
                let fault = Fault::Fails(ErrorKind::Io(5));
                bench.device.arm(Rule { operation: Some(operation), space: None, when: When::Nth(n), fault });
                match run(&bench, case, &left, &right) {
                    Ok(output) => assert!(output == expected),
                    Err(error) => assert_eq!(kind(&error), "device", "{error}"),
                }
                bench.check_empty();
            }
        }
    }
}

#[test]
fn wrong_bytes_are_found() {
    let (left, right) = (rows(shape(800, 500), 14), rows(shape(900, 500), 15));
    for (method, has_condition) in with_and_without_condition() {
        let case = Case { method, budget: 32 << 10, has_condition, kind: JoinKind::Full, ..CASE };
        let expected = model(case.kind, has_condition, &left, &right);
        for n in 1..60 {
            for (operation, fault) in [
                (Operation::Read, Fault::BitFlip { bit: n * 977 }),
                (Operation::Write, Fault::BitFlip { bit: n * 977 }),
                (Operation::Write, Fault::Lost),
            ] {
                let bench = Bench::new();
                bench.device.arm(Rule { operation: Some(operation), space: None, when: When::Nth(n), fault });
                match run(&bench, case, &left, &right) {
                    Ok(output) => assert!(output == expected),
                    Err(error) => assert_eq!(kind(&error), "corrupt", "{error}"),
                }
                bench.check_empty();
            }
        }
    }
}

#[test]
fn a_full_space_is_an_error() {
    let (left, right) = (rows(shape(3_000, 500), 16), rows(shape(3_000, 500), 17));
    for method in [JoinMethod::SortMerge, JoinMethod::Grace, JoinMethod::Hybrid] {
        let bench = Bench::with_limit(100 << 10);
        let error = run(&bench, Case { method, ..CASE }, &left, &right).unwrap_err();
        assert_eq!(kind(&error), "full");
        bench.check_empty();
    }
}

/// Methods other than nested loops read the probe input once, however little memory there is.
#[test]
fn other_methods_read_the_probe_input_once() {
    let (left, right) = (rows(shape(400, 300), 18), rows(shape(500, 300), 19));
    for budget in [8 << 10, 12 << 10, 16 << 10, 24 << 10, 64 << 10] {
        for method in [JoinMethod::SortMerge, JoinMethod::Grace, JoinMethod::Hybrid] {
            for kind in JoinKind::ALL {
                check(Case { method, kind, budget, is_once: true, ..CASE }, &left, &right);
            }
        }
    }
    // Block nested loops keeps a copy, if the source says that it can't be rewound.
    for (budget, kind) in [8 << 10, 24 << 10, 1 << 20].into_iter().flat_map(|b| JoinKind::ALL.map(|k| (b, k)))
    {
        let case = Case { method: JoinMethod::NestedLoops, budget, is_once: true, kind, ..CASE };
        check(case, &left, &right);
        check(Case { has_condition: true, has_steps: true, ..case }, &left, &right);
    }
}

/// Memory for two pages merges no runs. That is an error of the budget, not a panic.
#[test]
fn a_merge_without_memory_for_a_page_of_each_run_is_an_error() {
    let (left, right) = (rows(shape(500, 300), 20), rows(shape(500, 300), 21));
    let mut refused = Vec::new();
    for budget in (17 << 10..40 << 10).step_by(1 << 10) {
        let bench = Bench::new();
        let case = Case { method: JoinMethod::SortMerge, budget, page_bytes: 8 << 10, ..CASE };
        match run(&bench, case, &left, &right) {
            Ok(output) => assert!(output == model(case.kind, false, &left, &right), "{budget}"),
            Err(error) => {
                assert_eq!(kind(&error), "memory", "{budget}");
                refused.push(budget);
            }
        }
        bench.check_empty();
    }
    assert!(refused.contains(&(20 << 10)) && refused.iter().all(|budget| *budget < 38 << 10), "{refused:?}");
}
