//! Programs give what a plain evaluation of the rows gives, for all types and random conditions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use varve_engine::{ColumnDef, ColumnType, Datum, LeafLayout, Numeric, RowImage, ScanSpec, TableDef, Value};
use varve_smart::{
    Aggregate, ColumnKind, Comparison, Condition, Constant, DECIMAL_NAN, Evaluator, LeafReader, Output,
    Program, RowSource, SmartScan,
};

use crate::bed::{Bed, RC, program};

/// A small generator of random numbers (xorshift64*), so that tests are repeatable.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize % limit
    }
}

const ROWS: usize = 3000;

pub fn columns() -> Vec<ColumnDef> {
    [
        ("id", ColumnType::Int4),
        ("b", ColumnType::Bool),
        ("s", ColumnType::Int2),
        ("l", ColumnType::Int8),
        ("f", ColumnType::Float8),
        ("n", ColumnType::Numeric { precision: Some((10, 2)) }),
        ("t", ColumnType::Text),
        ("d", ColumnType::Date),
        ("y", ColumnType::Bytea),
    ]
    .map(|(name, ty)| ColumnDef::new(name, ty))
    .into()
}

/// Returns a value for a column. Every fifth value is NULL, except in the key.
pub fn value(random: &mut Random, column: usize, id: usize) -> Value {
    if column > 0 && random.below(5) == 0 {
        return Value::Null;
    }
    let n = random.below(20) as i64 - 10;
    match column {
        0 => Value::Int4(id as i32),
        1 => Value::Bool(n > 0),
        2 => Value::Int2(n as i16),
        3 => Value::Int8(n * 1_000_000_007),
        4 => Value::Float8([0.0, -0.0, f64::NAN, f64::INFINITY, n as f64 / 4.0][random.below(5)]),
        5 => Value::Numeric(Numeric::from_unscaled(n * 25, 2)),
        6 => Value::Text(["", "a", "ab", "abc", "b", "\u{e4}"][random.below(6)].into()),
        7 => Value::Date(n as i32 * 100),
        _ => Value::Bytea(vec![n as u8; random.below(3)]),
    }
}

fn constant(value: &Value) -> Constant {
    match value {
        Value::Bool(v) => Constant::Bool(*v),
        Value::Int2(v) => Constant::Int(i64::from(*v)),
        Value::Int4(v) | Value::Date(v) => Constant::Int(i64::from(*v)),
        Value::Int8(v) => Constant::Int(*v),
        Value::Float8(v) => Constant::Float(v.to_bits()),
        Value::Numeric(v) => Constant::Decimal(v.as_ref().to_unscaled().unwrap().0),
        Value::Text(v) => Constant::Text(v.as_str().into()),
        Value::Bytea(v) => Constant::Bytes(v.to_vec()),
        other => panic!("no constant for {other:?}"),
    }
}

/// A condition as a function of a row.
pub type Test = Box<dyn Fn(&[Value]) -> Option<bool>>;

fn order(row: &[Value], column: usize, with: &Value) -> Option<Ordering> {
    if matches!(row[column], Value::Null) {
        None
    } else {
        Some(row[column].as_datum().order(&with.as_datum()))
    }
}

pub fn condition(random: &mut Random, depth: usize) -> (Condition, Test) {
    let kind = random.below(if depth == 0 { 4 } else { 7 });
    let column = random.below(9);
    let mut some = |column| loop {
        match value(random, column, 1500) {
            Value::Null => {}
            value => return value,
        }
    };
    match kind {
        0 => (Condition::IsNull(column), Box::new(move |row| Some(matches!(row[column], Value::Null)))),
        1 => {
            let (low, high) = (some(column), some(column));
            let condition = Condition::Between(column, constant(&low), constant(&high));
            let test = move |row: &[Value]| {
                Some(order(row, column, &low)?.is_ge() && order(row, column, &high)?.is_le())
            };
            (condition, Box::new(test))
        }
        2 => {
            let prefix = ["", "a", "ab", "\u{e4}"][random.below(4)];
            let test = move |row: &[Value]| match &row[6] {
                Value::Text(text) => Some(text.starts_with(prefix)),
                _ => None,
            };
            (Condition::Prefix(6, prefix.into()), Box::new(test))
        }
        3 => {
            let with = some(column);
            let (comparison, holds): (_, fn(Ordering) -> bool) = match random.below(6) {
                0 => (Comparison::Equal, Ordering::is_eq),
                1 => (Comparison::NotEqual, Ordering::is_ne),
                2 => (Comparison::Less, Ordering::is_lt),
                3 => (Comparison::LessOrEqual, Ordering::is_le),
                4 => (Comparison::Greater, Ordering::is_gt),
                _ => (Comparison::GreaterOrEqual, Ordering::is_ge),
            };
            let condition = Condition::Compare(column, comparison, constant(&with));
            (condition, Box::new(move |row| order(row, column, &with).map(holds)))
        }
        4 => {
            let (inner, test) = condition(random, depth - 1);
            (Condition::Not(Box::new(inner)), Box::new(move |row| test(row).map(|holds| !holds)))
        }
        which => {
            let (parts, tests): (Vec<_>, Vec<_>) =
                (0..random.below(4)).map(|_| condition(random, depth - 1)).unzip();
            let decides = which == 6;
            let test = move |row: &[Value]| {
                let found: Vec<_> = tests.iter().map(|test| test(row)).collect();
                if found.contains(&Some(decides)) {
                    Some(decides)
                } else if found.contains(&None) {
                    None
                } else {
                    Some(!decides)
                }
            };
            let condition = if decides { Condition::Or(parts) } else { Condition::And(parts) };
            (condition, Box::new(test))
        }
    }
}

struct Filled {
    bed: Bed,
    def: std::sync::Arc<TableDef>,
    rows: Vec<Vec<Value>>,
}

fn filled(layout: LeafLayout) -> Filled {
    let bed = Bed::new();
    let def = bed.table_of("t", columns(), layout);
    let mut random = Random(7);
    let rows: Vec<Vec<Value>> =
        (0..ROWS).map(|id| (0..9).map(|column| value(&mut random, column, id)).collect()).collect();
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    for row in &rows {
        let row: Vec<Datum<'_>> = row.iter().map(Value::as_datum).collect();
        txn.insert(&table, &row).unwrap();
    }
    txn.commit().unwrap();
    bed.settle();
    Filled { bed, def, rows }
}

/// Returns the ids, and the values of a column as text, of kept rows.
fn texts(batches: &[RecordBatch], kind: ColumnKind) -> BTreeMap<i32, String> {
    let mut all = BTreeMap::new();
    for batch in batches {
        let ids = batch.column(0).as_primitive::<Int32Type>();
        let column = batch.column(1);
        for row in 0..batch.num_rows() {
            let text = match kind {
                _ if column.is_null(row) => "NULL".into(),
                ColumnKind::Text => column.as_string::<i32>().value(row).into(),
                ColumnKind::Decimal(_) | ColumnKind::Numeric => {
                    let bytes = column.as_binary::<i32>().value(row);
                    varve_engine::NumericRef::from_bytes(bytes).unwrap().to_string()
                }
                kind => panic!("column of kind {kind:?}"),
            };
            assert_eq!(all.insert(ids.value(row), text), None);
        }
    }
    all
}

#[test]
fn random_conditions_keep_the_rows_that_they_hold_for() {
    for layout in [LeafLayout::ByRows, LeafLayout::ByColumns] {
        let Filled { bed, def, rows } = filled(layout);
        let mut random = Random(11);
        let mut kept_rows = 0;
        for round in 0..150 {
            let (condition, test) = condition(&mut random, 3);
            let column = 5 + round % 2;
            let output = Output::Columns(vec![0, column]);
            let batches = bed.run(&mut bed.begin(RC), &def, program(&def, Some(condition.clone()), output));
            let found = texts(&batches, ColumnKind::of(def.columns[column].column_type));
            let expected: BTreeMap<i32, String> = rows
                .iter()
                .enumerate()
                .filter(|(_, row)| test(row) == Some(true))
                .map(|(id, row)| match &row[column] {
                    Value::Numeric(v) => (id as i32, v.as_ref().to_string()),
                    Value::Text(v) => (id as i32, v.as_str().to_owned()),
                    _ => (id as i32, "NULL".to_owned()),
                })
                .collect();
            assert_eq!(found, expected, "round {round}: {condition:?}");
            kept_rows += found.len();
        }
        assert!(kept_rows > ROWS * 10, "{kept_rows} rows in all");
        assert_eq!((bed.leaves().1, bed.failures()), (0, 0));
        // The host reads the same rows.
        let mut txn = bed.begin(RC);
        let table = txn.table(&def).unwrap();
        let mut count = 0;
        let take = &mut |_: &[u8], _: varve_engine::RowRef<'_>| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        };
        txn.scan(&table, &ScanSpec::ALL, take).unwrap();
        assert_eq!(count, ROWS);
    }
}

/// Sum, count, least and greatest value of a group.
#[derive(Debug, PartialEq)]
struct Facts {
    rows: i64,
    count: i64,
    sum: Option<i128>,
    least: Option<String>,
    last: Option<i32>,
}

fn expected_groups(rows: &[Vec<Value>]) -> BTreeMap<Option<String>, Facts> {
    let mut groups = BTreeMap::new();
    for row in rows {
        let text = |column: usize| match &row[column] {
            Value::Text(text) => Some(text.as_str().to_owned()),
            _ => None,
        };
        let new = || Facts { rows: 0, count: 0, sum: None, least: None, last: None };
        let facts = groups.entry(text(6)).or_insert_with(new);
        facts.rows += 1;
        if let Value::Numeric(v) = &row[5] {
            facts.count += 1;
            let value = i128::from(v.as_ref().to_unscaled().unwrap().0);
            facts.sum = Some(facts.sum.unwrap_or(0) + value);
        }
        if let Value::Int4(id) = row[0] {
            facts.last = facts.last.max(Some(id));
        }
        facts.least = [facts.least.take(), text(6)].into_iter().flatten().min();
    }
    groups
}

/// A part of the table is dirty, so device and host each aggregate a part.
#[test]
fn groups_of_device_and_host_are_merged() {
    for layout in [LeafLayout::ByRows, LeafLayout::ByColumns] {
        let Filled { bed, def, mut rows } = filled(layout);
        let mut writer = bed.begin(RC);
        let table = writer.table(&def).unwrap();
        let row = [
            Datum::Int4(9_000_000),
            Datum::Null,
            Datum::Null,
            Datum::Null,
            Datum::Null,
            Datum::Null,
            Datum::Text("late"),
            Datum::Null,
            Datum::Null,
        ];
        writer.insert(&table, &row).unwrap();
        writer.commit().unwrap();
        rows.push(row.iter().map(Datum::to_value).collect());
        let aggregates =
            vec![Aggregate::CountRows, Aggregate::Average(5), Aggregate::Min(6), Aggregate::Max(0)];
        let output = Output::Groups { keys: vec![6], aggregates };
        let batches = bed.run(&mut bed.begin(RC), &def, program(&def, None, output));
        let [states] = batches.as_slice() else { panic!("{} batches", batches.len()) };
        let mut found = BTreeMap::new();
        for row in 0..states.num_rows() {
            let text = |at: usize| {
                let column = states.column(at).as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            let count = |at: usize| states.column(at).as_primitive::<Int64Type>().value(row);
            let sum = states.column(2).as_primitive::<Decimal128Type>();
            let last = states.column(5).as_primitive::<Int32Type>();
            let facts = Facts {
                rows: count(1),
                count: count(3),
                sum: sum.is_valid(row).then(|| sum.value(row)),
                least: text(4),
                last: last.is_valid(row).then(|| last.value(row)),
            };
            assert!(found.insert(text(0), facts).is_none());
        }
        assert_eq!(found, expected_groups(&rows));
        let (by_device, deferred) = bed.leaves();
        assert!(by_device > 0 && deferred > 0, "{by_device} by the device, {deferred} deferred");
    }
}

#[test]
fn aggregates_without_rows_are_one_group() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    let output = Output::Groups { keys: vec![], aggregates: vec![Aggregate::CountRows, Aggregate::Sum(1)] };
    let batches = bed.run(&mut bed.begin(RC), &def, program(&def, None, output));
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 0);
    assert!(batches[0].column(1).is_null(0));
}

/// Returns a table with a key, numeric(10, 2) in which every tenth value is NaN, and numeric(30, 2).
fn with_numerics(bed: &Bed, layout: LeafLayout) -> std::sync::Arc<TableDef> {
    let numeric = |digits| ColumnType::Numeric { precision: Some((digits, 2)) };
    let columns = [("id", ColumnType::Int4), ("n", numeric(10)), ("wide", numeric(30))];
    let columns = columns.map(|(name, ty)| ColumnDef::new(name, ty)).into();
    let def = bed.table_of("t", columns, layout);
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    for id in 0..1000 {
        let n = if id % 10 == 0 { Numeric::nan() } else { Numeric::from_unscaled(i64::from(id) * 25, 2) };
        let wide: Numeric = format!("{id}123456789012345678901234.25").parse().unwrap();
        let row = [Datum::Int4(id), Datum::Numeric(n.as_ref()), Datum::Numeric(wide.as_ref())];
        txn.insert(&table, &row).unwrap();
    }
    txn.commit().unwrap();
    def
}

/// The device reads the table if `is_settled`, else the host does.
fn numerics_are_scanned(layout: LeafLayout, is_settled: bool) {
    let bed = Bed::new();
    let def = with_numerics(&bed, layout);
    if is_settled {
        bed.settle();
    }
    let run = |condition, output| bed.run(&mut bed.begin(RC), &def, program(&def, condition, output));
    let above = Condition::Compare(1, Comparison::Greater, Constant::Decimal(999 * 25 - 1));
    let batches = run(Some(above), Output::Columns(vec![0, 1]));
    let found = texts(&batches, ColumnKind::Decimal(2));
    assert_eq!((found.len(), &*found[&0], &*found[&999]), (101, "NaN", "249.75"));
    let aggregates = vec![Aggregate::Min(1), Aggregate::Max(1), Aggregate::Sum(1), Aggregate::Average(1)];
    let below = Condition::Between(1, Constant::Decimal(0), Constant::Decimal(50));
    for (condition, expected) in
        [(None, [25, DECIMAL_NAN, DECIMAL_NAN, DECIMAL_NAN]), (Some(below), [25, 50, 75, 75])]
    {
        let batches = run(condition, Output::Groups { keys: vec![], aggregates: aggregates.clone() });
        let value = |at: usize| batches[0].column(at).as_primitive::<Decimal128Type>().value(0);
        assert_eq!([value(0), value(1), value(2), value(3)], expected);
    }
    // More than 18 digits are returned, but not compared.
    assert_eq!(ColumnKind::of(def.columns[2].column_type), ColumnKind::Numeric);
    let batches = run(None, Output::Columns(vec![0, 2]));
    let found = texts(&batches, ColumnKind::Numeric);
    assert_eq!((found.len(), &*found[&999]), (1000, "999123456789012345678901234.25"));
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    let output = Output::Groups { keys: vec![], aggregates: vec![Aggregate::Sum(2)] };
    let refused = SmartScan::new(&bed.device, &table, program(&def, None, output)).err().unwrap();
    assert!(refused.to_string().contains("has no sum"), "{refused}");
    let (by_device, deferred) = bed.leaves();
    assert_eq!((by_device > 0, deferred > 0, bed.failures()), (is_settled, !is_settled, 0));
}

#[test]
fn nan_is_above_all_numbers_and_wide_numerics_are_returned() {
    for layout in [LeafLayout::ByRows, LeafLayout::ByColumns] {
        numerics_are_scanned(layout, true);
        numerics_are_scanned(layout, false);
    }
}

fn of_texts(aggregate: Aggregate) -> Program {
    let output = Output::Groups { keys: vec![0], aggregates: vec![aggregate] };
    Program { columns: vec![ColumnKind::Int4, ColumnKind::Text], condition: None, output }
}

/// Takes one row with this key and text.
fn push(evaluator: &mut Evaluator, program: &Program, id: i32, text: &str) {
    let leaf = LeafReader::new(program);
    let image = RowImage::encode(leaf.schema(), &[Datum::Int4(id), Datum::Text(text)]).unwrap();
    assert!(evaluator.push(&[RowSource::Whole(image.as_row(leaf.schema()))]));
}

#[test]
fn kept_strings_count_in_the_memory_of_groups() {
    let program = of_texts(Aggregate::Max(1));
    let mut evaluator = Evaluator::new(&program, 100_000).unwrap();
    let long = |n: u8| char::from(b'a' + n).to_string().repeat(10_000);
    (0..50).for_each(|id| push(&mut evaluator, &program, id, "a"));
    // A string that is replaced no longer counts.
    (0..20).for_each(|n| push(&mut evaluator, &program, 7, &long(n)));
    evaluator.evaluate().unwrap();
    (0..20).for_each(|id| push(&mut evaluator, &program, id, &long(25)));
    let error = evaluator.evaluate().unwrap_err().to_string();
    assert!(error.contains("groups take") && error.contains("100000"), "{error}");
    // Strings in sent states do not count either.
    let mut whole = Evaluator::new(&program, 1 << 20).unwrap();
    (0..20).for_each(|id| push(&mut whole, &program, id, &long(25)));
    let states = whole.finish().unwrap().unwrap();
    assert!(Evaluator::new(&program, 100_000).unwrap().merge(&states).is_err());
    Evaluator::new(&program, 1 << 20).unwrap().merge(&states).unwrap();
}

#[test]
fn counts_of_a_false_device_are_refused() {
    let program = of_texts(Aggregate::CountRows);
    let mut evaluator = Evaluator::new(&program, 1 << 20).unwrap();
    let counts = |count: Option<i64>| {
        let keys = arrow_array::Int32Array::from(vec![1]);
        let counts = arrow_array::Int64Array::from(vec![count]);
        let schema = Evaluator::new(&program, 1 << 20).unwrap().schema().clone();
        RecordBatch::try_new(schema, vec![std::sync::Arc::new(keys), std::sync::Arc::new(counts)]).unwrap()
    };
    let mut refused = |count| {
        let error = evaluator.merge(&counts(count)).unwrap_err();
        assert!(matches!(error, varve_smart::SmartError::Malformed(_)), "{error}");
    };
    refused(Some(-1));
    refused(None);
    evaluator.merge(&counts(Some(i64::MAX))).unwrap();
    let error = evaluator.merge(&counts(Some(1))).unwrap_err().to_string();
    assert!(error.contains("63 bits"), "{error}");
    push(&mut evaluator, &program, 1, "one more");
    assert!(evaluator.evaluate().is_err());
}
