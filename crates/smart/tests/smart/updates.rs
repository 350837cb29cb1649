//! Random programs give what a plain evaluation of the snapshot's rows gives, while other transactions change
//! rows and pages are written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use varve_engine::{Change, Datum, LeafLayout, RowImage, ScanSpec, TableDef, Transaction, Value};
use varve_smart::{Aggregate, Output};

use crate::bed::{Bed, RC, RR, pk, program, remove};
use crate::programs::{Random, columns, condition, value};

/// The environment variable that sets the number of programs for each layout.
const PROGRAMS: &str = "VARVE_SMART_SCANS";
/// The number of programs if the variable is not set.
const FEW_PROGRAMS: usize = 100;
/// The rows of the table at the beginning.
const ROWS: usize = 500;
/// The columns by which rows are grouped, that are summed, and whose least value is found.
const KEYS: [usize; 4] = [1, 2, 6, 7];
const SUMS: [usize; 3] = [2, 3, 5];
const ORDERED: [usize; 6] = [0, 2, 3, 5, 6, 7];

fn insert(txn: &mut Transaction, def: &TableDef, random: &mut Random, id: usize) {
    let table = txn.table(def).unwrap();
    let row: Vec<Value> = (0..9).map(|column| value(random, column, id)).collect();
    let row: Vec<Datum<'_>> = row.iter().map(Value::as_datum).collect();
    txn.insert(&table, &row).unwrap();
}

/// Gives a row other values.
fn change(txn: &mut Transaction, def: &TableDef, random: &mut Random, id: usize) {
    let table = txn.table(def).unwrap();
    let row: Vec<Value> = (0..9).map(|column| value(random, column, id)).collect();
    let row: Vec<Datum<'_>> = row.iter().map(Value::as_datum).collect();
    txn.modify(&table, &pk(id as i32), &mut |old| Ok(Change::Replace(RowImage::encode(old.schema(), &row)?)))
        .unwrap();
}

/// Returns all rows of the transaction's statement, read by the host alone.
fn rows(txn: &mut Transaction, def: &TableDef) -> Vec<Vec<Value>> {
    let table = txn.table(def).unwrap();
    let mut all = Vec::new();
    let take = &mut |_: &[u8], row: varve_engine::RowRef<'_>| {
        all.push((0..9).map(|column| row.get(column).to_value()).collect());
        Ok(ControlFlow::Continue(()))
    };
    txn.reader().scan(&table, &ScanSpec::ALL, take).unwrap();
    all
}

/// Returns a value as a text.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(v) => i32::from(*v).to_string(),
        Value::Int2(v) => v.to_string(),
        Value::Int4(v) | Value::Date(v) => v.to_string(),
        Value::Int8(v) => v.to_string(),
        Value::Numeric(v) => v.as_ref().to_unscaled().unwrap().0.to_string(),
        Value::Text(v) => v.clone(),
        other => panic!("no text for {other:?}"),
    }
}

/// Returns a row of states as texts.
fn state_texts(states: &RecordBatch, row: usize) -> Vec<String> {
    let cell = |column: &Arc<dyn Array>| match column.data_type() {
        _ if column.is_null(row) => "NULL".into(),
        DataType::Boolean => i32::from(column.as_boolean().value(row)).to_string(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value(row).to_string(),
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        other => panic!("a state of type {other}"),
    };
    states.columns().iter().map(cell).collect()
}

fn whole(value: &Value) -> Option<i128> {
    if matches!(value, Value::Null) { None } else { Some(text(value).parse().unwrap()) }
}

/// Returns the states of an aggregate over these rows, as texts.
fn aggregated(aggregate: Aggregate, rows: &[&Vec<Value>]) -> Vec<String> {
    let some = |column: usize| {
        let values = rows.iter().map(move |row| &row[column]);
        values.filter(|value| !matches!(value, Value::Null)).collect::<Vec<_>>()
    };
    let sum = |column: usize| {
        let total: Option<i128> = some(column).into_iter().filter_map(whole).reduce(|a, b| a + b);
        total.map_or_else(|| "NULL".into(), |total| total.to_string())
    };
    let order = |a: &&Value, b: &&Value| a.as_datum().order(&b.as_datum());
    let found = |value: Option<&Value>| vec![text(value.unwrap_or(&Value::Null))];
    match aggregate {
        Aggregate::CountRows => vec![rows.len().to_string()],
        Aggregate::Count(column) => vec![some(column).len().to_string()],
        Aggregate::Sum(column) => vec![sum(column)],
        Aggregate::Average(column) => vec![sum(column), some(column).len().to_string()],
        Aggregate::Min(column) => found(some(column).into_iter().min_by(order)),
        Aggregate::Max(column) => found(some(column).into_iter().max_by(order)),
    }
}

fn aggregate(random: &mut Random) -> Aggregate {
    match random.below(6) {
        0 => Aggregate::CountRows,
        1 => Aggregate::Count(random.below(9)),
        2 => Aggregate::Sum(SUMS[random.below(3)]),
        3 => Aggregate::Average(SUMS[random.below(3)]),
        4 => Aggregate::Min(ORDERED[random.below(6)]),
        _ => Aggregate::Max(ORDERED[random.below(6)]),
    }
}

/// Runs one random program, and compares.
fn one_program(bed: &Bed, def: &TableDef, random: &mut Random, number: usize) {
    let mut txn = bed.begin(RR);
    if number.is_multiple_of(10) {
        insert(&mut txn, def, random, 1_000_000 + number);
    }
    let all = rows(&mut txn, def);
    let (condition, test) = condition(random, 3);
    let kept: Vec<&Vec<Value>> = all.iter().filter(|row| test(row) == Some(true)).collect();
    let told = format!("program {number}: {condition:?}");
    if random.below(2) == 0 {
        let batches = bed.run(&mut txn, def, program(def, Some(condition), Output::Columns(vec![0, 6, 5])));
        let mut ids = Vec::new();
        for batch in &batches {
            let (id, note) =
                (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_string::<i32>());
            let note = |row: usize| if note.is_null(row) { "NULL" } else { note.value(row) };
            ids.extend((0..batch.num_rows()).map(|row| (id.value(row).to_string(), note(row).to_owned())));
        }
        ids.sort();
        let mut expected: Vec<_> = kept.iter().map(|row| (text(&row[0]), text(&row[6]))).collect();
        expected.sort();
        assert_eq!(ids, expected, "{told}");
    } else {
        let keys: Vec<usize> = if random.below(3) == 0 { vec![] } else { vec![KEYS[random.below(4)]] };
        let aggregates: Vec<Aggregate> = (0..1 + random.below(3)).map(|_| aggregate(random)).collect();
        let mut groups: BTreeMap<Vec<String>, Vec<&Vec<Value>>> = BTreeMap::new();
        if keys.is_empty() {
            groups.insert(Vec::new(), Vec::new());
        }
        for row in kept {
            groups.entry(keys.iter().map(|key| text(&row[*key])).collect()).or_default().push(row);
        }
        let state = |(mut states, rows): (Vec<String>, Vec<&Vec<Value>>)| {
            states.extend(aggregates.iter().flat_map(|aggregate| aggregated(*aggregate, &rows)));
            states
        };
        let mut expected: Vec<Vec<String>> = groups.into_iter().map(state).collect();
        let output = Output::Groups { keys, aggregates: aggregates.clone() };
        let batches = bed.run(&mut txn, def, program(def, Some(condition), output));
        let mut found: Vec<_> = (0..batches[0].num_rows()).map(|row| state_texts(&batches[0], row)).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{told}: {aggregates:?}");
    }
    txn.rollback().unwrap();
}

/// Inserts, changes and deletes rows until `stop` is set. Returns the number of its transactions.
fn write(bed: &Bed, def: &TableDef, stop: &AtomicBool) -> usize {
    let mut random = Random(5);
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut txn = bed.begin(RC);
        let low = random.below(ROWS - 20);
        let present: Vec<usize> =
            rows(&mut txn, def).iter().map(|row| text(&row[0]).parse().unwrap()).collect();
        for id in low..low + 8 {
            match (present.contains(&id), random.below(4)) {
                (true, 0) => remove(&mut txn, def, id as i32),
                (true, _) => change(&mut txn, def, &mut random, id),
                (false, _) => insert(&mut txn, def, &mut random, id),
            }
        }
        if round % 5 == 0 {
            txn.rollback().unwrap()
        } else {
            txn.commit().unwrap()
        }
        if round % 4 == 0 {
            bed.settle();
        }
    }
    round
}

/// The variable `VARVE_SMART_SCANS` sets the number of programs for each layout.
#[test]
fn random_programs_give_the_snapshots_answer_beside_updates() {
    let programs = std::env::var(PROGRAMS).ok().map_or(FEW_PROGRAMS, |n| n.parse().unwrap());
    for layout in [LeafLayout::ByRows, LeafLayout::ByColumns] {
        // Small pages, so that the table has many leaves.
        let bed = Arc::new(Bed::with_pages(varve_smart::Limits::default(), 4096));
        let def = bed.table_of("t", columns(), layout);
        let mut random = Random(23);
        let mut txn = bed.begin(RC);
        (0..ROWS).for_each(|id| insert(&mut txn, &def, &mut random, id));
        txn.commit().unwrap();
        bed.settle();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (bed, def, stop) = (Arc::clone(&bed), Arc::clone(&def), Arc::clone(&stop));
            std::thread::spawn(move || write(&bed, &def, &stop))
        };
        (0..programs).for_each(|number| one_program(&bed, &def, &mut random, number));
        stop.store(true, Ordering::Relaxed);
        let rounds = writer.join().unwrap();
        let (by_device, deferred) = bed.leaves();
        assert!(by_device > programs as u64 && deferred > programs as u64, "{by_device}, {deferred}");
        assert_eq!(bed.failures(), 0);
        println!(
            "{layout:?}: {programs} programs, {rounds} transactions, {by_device} leaves by the device, {deferred} by the host"
        );
    }
}
