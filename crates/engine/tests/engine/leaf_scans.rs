//! A scan that passes the rows of leaves by columns gives the rows of an ordinary scan, for random tables,
//! changes, snapshots and bounds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::common::Random;
use crate::database::*;
use varve_engine::{
    Change, ColumnSource, ColumnType, Database, Datum, Isolation, LeafBounds, LeafCounts, LeafLayout,
    LeafNumber, NewTable, Numeric, PrimaryKey, Reader, RowImage, ScanSpec, Shown, StorageOptions, Table,
    TableDef, Transaction, Value,
};

const ROWS: i32 = 2000;

/// A row: its key and its columns as text.
type Line = (Vec<u8>, Vec<String>);

fn line(key: &[u8], columns: impl Iterator<Item = String>) -> Line {
    (key.to_vec(), columns.collect())
}

/// Returns the rows of an ordinary scan.
fn by_rows(reader: &mut Reader, table: &Table, spec: &ScanSpec<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    reader
        .scan(table, spec, &mut |key, row| {
            lines.push(line(key, (0..row.len()).map(|column| format!("{:?}", row.get(column)))));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    lines
}

/// Appends what a scan of leaves passes. A row is read from the columns, and also put together.
fn append(shown: &Shown<'_>, lines: &mut Vec<Line>) {
    let rows = match shown {
        Shown::Row(key, row) => {
            lines.push(line(key, (0..row.len()).map(|column| format!("{:?}", row.get(column)))));
            return;
        }
        Shown::Leaf(rows) => rows,
    };
    let (mut key, mut spare) = (Vec::new(), Vec::new());
    let columns: Vec<_> = (0..rows.column_count()).map(|column| rows.column(column)).collect();
    for (position, number) in rows.numbers().iter().enumerate() {
        rows.copy_key(position, &mut key);
        lines.push(line(&key, columns.iter().map(|column| format!("{:?}", column.get(*number)))));
        let row = rows.row(*number, &mut spare);
        let whole = line(&key, (0..row.len()).map(|column| format!("{:?}", row.get(column))));
        assert_eq!(lines.last(), Some(&whole));
    }
    for column in columns {
        let nulls = rows.numbers().iter().filter(|number| column.minipage().is_null(usize::from(**number)));
        assert_eq!(column.minipage().has_null(rows.numbers()), nulls.count() > 0);
    }
}

/// Returns the rows of a scan of leaves, and how it has read the leaves.
fn by_leaves(reader: &mut Reader, table: &Table, spec: &ScanSpec<'_>) -> (Vec<Line>, LeafCounts) {
    let mut lines = Vec::new();
    let counts = reader.scan_leaves(table, spec, &[], &mut |shown| {
        append(&shown, &mut lines);
        Ok(ControlFlow::Continue(()))
    });
    (lines, counts.unwrap())
}

/// Returns the rows of several scans of leaves. Each one stops after a few rows, and the next one continues
/// after the last row.
fn in_parts(random: &mut Random, reader: &mut Reader, table: &Table) -> Vec<Line> {
    let (mut lines, mut last) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let lower = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let wanted = lines.len() + 1 + random.below(300);
        let mut is_stopped = false;
        let spec = ScanSpec { lower, ..ScanSpec::ALL };
        let scanned = reader.scan_leaves(table, &spec, &[], &mut |shown| {
            let before = lines.len();
            append(&shown, &mut lines);
            if lines.len() < wanted {
                return Ok(ControlFlow::Continue(()));
            }
            lines.truncate(wanted);
            is_stopped = true;
            Ok(ControlFlow::Break(wanted - before))
        });
        scanned.unwrap();
        if !is_stopped {
            return lines;
        }
        last = Some(reader.place(spec.index).to_vec());
        assert_eq!(last.as_ref(), lines.last().map(|line| &line.0), "the place is that of the last row");
    }
}

/// Compares both scans in the statement that runs, in both directions and within bounds. Returns how all
/// leaves were read, and the rows.
fn compared(random: &mut Random, txn: &mut Transaction, def: &TableDef) -> (LeafCounts, Vec<Line>) {
    let table = txn.table(def).unwrap();
    let mut reader = txn.reader();
    let expected = by_rows(&mut reader, &table, &ScanSpec::ALL);
    let (lines, counts) = by_leaves(&mut reader, &table, &ScanSpec::ALL);
    assert_eq!(lines, expected);
    assert_eq!(in_parts(random, &mut reader, &table), expected);
    let bound = |random: &mut Random| pk(random.below(ROWS as usize) as i32);
    let (a, b) = (bound(random), bound(random));
    let limit_hint = (random.below(2) == 0).then_some(7);
    let spec = ScanSpec {
        lower: Bound::Excluded(a.as_slice().min(&b)),
        upper: Bound::Included(a.as_slice().max(&b)),
        reverse: true,
        limit_hint,
        ..ScanSpec::ALL
    };
    let expected = by_rows(&mut reader, &table, &spec);
    assert_eq!(by_leaves(&mut reader, &table, &spec).0, expected);
    (counts, lines)
}

/// Compares scans with bounds of columns in the statement that runs. They may leave out rows outside of the
/// bounds, but no others. Returns how many leaves the scans have passed by.
fn bounded(random: &mut Random, txn: &mut Transaction, def: &TableDef, pairs: usize) -> u64 {
    let table = txn.table(def).unwrap();
    let mut reader = txn.reader();
    let mut skipped = 0;
    for _ in 0..pairs {
        let column = [0, 0, 1, 5, 6, 7][random.below(6)];
        let word = match column {
            0 => random.below(ROWS as usize) as i64,
            1 => random.next() as i64,
            5 => random.next() as i64 >> 30,
            6 => random.next() as i64 % 9000,
            _ => random.next() as i64 % (1 << 16),
        };
        let scale = if column == 5 { [0, 2, 5][random.below(3)] } else { 0 };
        let low = LeafNumber { unscaled: word, scale };
        let high = LeafNumber { unscaled: word.saturating_add(random.below(50) as i64), scale };
        let (low, high) = [(Some(low), None), (None, Some(low)), (Some(low), Some(high))][random.below(3)];
        let bounds = [LeafBounds { column, low, high }];
        let is_within = |row: &varve_engine::RowRef<'_>| {
            let value = row.get(column);
            // NaN is above all numbers.
            let Some(value) = LeafNumber::of(&value) else { return !value.is_null() && high.is_none() };
            let lifted = |n: LeafNumber| i128::from(n.unscaled) * 10i128.pow(u32::from(18 - n.scale));
            low.is_none_or(|low| lifted(low) <= lifted(value))
                && high.is_none_or(|high| lifted(value) <= lifted(high))
        };
        let mut expected = Vec::new();
        let scanned = reader.scan(&table, &ScanSpec::ALL, &mut |key, row| {
            expected.extend(is_within(&row).then(|| key.to_vec()));
            Ok(ControlFlow::Continue(()))
        });
        scanned.unwrap();
        for reverse in [false, true] {
            let mut found = Vec::new();
            let (mut key, mut spare) = (Vec::new(), Vec::new());
            let spec = ScanSpec { reverse, ..ScanSpec::ALL };
            let counts = reader.scan_leaves(&table, &spec, &bounds, &mut |shown| {
                match shown {
                    Shown::Row(key, row) => found.extend(is_within(&row).then(|| key.to_vec())),
                    Shown::Leaf(rows) => {
                        for (position, number) in rows.numbers().iter().enumerate() {
                            rows.copy_key(position, &mut key);
                            found.extend(is_within(&rows.row(*number, &mut spare)).then(|| key.clone()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            });
            if reverse {
                found.reverse();
            }
            assert_eq!(found, expected, "{bounds:?}");
            skipped += counts.unwrap().skipped;
        }
    }
    skipped
}

/// The values of a row; a fifth of them are NULL, and few rows need an overflow chain.
fn values(random: &mut Random, id: i32) -> Vec<Value> {
    let word = random.next() as i64;
    let long = if random.below(100) == 0 { 900 } else { 3 };
    let number = match random.below(40) {
        0 => Numeric::nan(),
        n => Numeric::from_unscaled(word >> 30, [0, 2, 7][n % 3]),
    };
    let all = [
        Value::Int8(word),
        Value::Text(format!("{id}é").repeat(random.below(4) * long)),
        Value::Float8(word as f64 / 8.0),
        Value::Bool(word % 2 == 0),
        Value::Numeric(number),
        Value::Date(word as i32 % 9000),
        Value::Int2(word as i16),
        Value::Text(String::new()),
    ];
    let nullable = all.into_iter().map(|value| if random.below(5) == 0 { Value::Null } else { value });
    [Value::Int4(id)].into_iter().chain(nullable).collect()
}

const TYPES: [ColumnType; 9] = [
    ColumnType::Int4,
    ColumnType::Int8,
    ColumnType::Text,
    ColumnType::Float8,
    ColumnType::Bool,
    ColumnType::Numeric { precision: None },
    ColumnType::Date,
    ColumnType::Int2,
    ColumnType::Varchar(None),
];

fn data(values: &[Value]) -> Vec<Datum<'_>> {
    values.iter().map(Value::as_datum).collect()
}

fn put_any(random: &mut Random, txn: &mut Transaction, def: &TableDef, id: i32) {
    let table = txn.table(def).unwrap();
    let values = values(random, id);
    // A row with this key may exist, or another transaction may hold it.
    _ = txn.insert(&table, &data(&values));
}

/// Makes a table by columns. All its rows are in the columns of its leaves.
fn built(random: &mut Random) -> (Arc<Database>, Arc<TableDef>) {
    let (_, database) = fresh();
    let columns = TYPES.iter().enumerate().map(|(n, column_type)| column(&format!("c{n}"), *column_type));
    let primary_key = Some(PrimaryKey { name: "t_pkey".into(), columns: vec![0] });
    let storage = StorageOptions { layout: LeafLayout::ByColumns, ..StorageOptions::default() };
    let new = NewTable { primary_key, storage, ..NewTable::new("public", "t", columns.collect()) };
    let mut txn = begin(&database, RC);
    let def = txn.create_table(new).unwrap();
    (0..ROWS).filter(|id| id % 3 != 0).for_each(|id| put_any(random, &mut txn, &def, id));
    txn.commit().unwrap();
    let def = rewritten(&database, &def);
    (database, def)
}

fn rewritten(database: &Arc<Database>, def: &TableDef) -> Arc<TableDef> {
    let mut txn = begin(database, RC);
    let def = txn.rewrite(def.id).unwrap();
    txn.commit().unwrap();
    def
}

/// Inserts, updates or deletes some rows, in a run of keys or everywhere.
fn change(random: &mut Random, txn: &mut Transaction, def: &TableDef) {
    txn.start_statement();
    let table = txn.table(def).unwrap();
    let (what, first, count) = (random.below(4), random.below(ROWS as usize), random.below(80));
    for n in 0..count {
        let id = if what % 2 == 0 { first + n } else { random.below(ROWS as usize) } as i32;
        let new = values(random, id);
        let changed = txn.modify(&table, &pk(id), &mut |row| {
            let mut data: Vec<_> = (0..row.len()).map(|column| row.get(column)).collect();
            match what {
                0 => return Ok(Change::Delete),
                // The new row has the lengths of the old one.
                1 => data[1] = new[1].as_datum(),
                _ => data = self::data(&new),
            }
            Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
        });
        if changed.is_ok_and(|outcome| outcome == varve_engine::Outcome::Missing) && what == 3 {
            put_any(random, txn, def, id);
        }
    }
}

#[test]
fn a_table_that_was_just_built_is_read_by_columns() {
    let mut random = Random::new(3);
    let (database, def) = built(&mut random);
    let (counts, _) = compared(&mut random, &mut begin(&database, RC), &def);
    assert!(counts.by_columns + counts.mixed > 10 && counts.by_rows == 0, "{counts:?}");
    // Only rows in overflow chains are read by themselves.
    assert!(counts.whole_rows < ROWS as u64 / 50, "{counts:?}");
}

#[test]
fn leaves_give_the_rows_of_each_snapshot_during_changes() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let (database, mut def) = built(&mut random);
        let (mut mixed, mut skipped) = (0, 0);
        for _ in 0..3 {
            // The floor passes by the transaction that has built the leaves.
            database.tick().unwrap();
            skipped += bounded(&mut random, &mut begin(&database, RC), &def, 8);
            let isolation = if seed % 2 == 0 { RR } else { Isolation::Serializable };
            let mut old = begin(&database, isolation);
            let (_, before) = compared(&mut random, &mut old, &def);
            for _ in 0..5 {
                let mut txn = begin(&database, RC);
                change(&mut random, &mut txn, &def);
                let savepoint = txn.savepoint();
                change(&mut random, &mut txn, &def);
                if random.below(3) == 0 {
                    txn.rollback_to(savepoint).unwrap();
                }
                txn.start_statement();
                mixed += compared(&mut random, &mut txn, &def).0.mixed;
                compared(&mut random, &mut begin(&database, RC), &def);
                skipped += bounded(&mut random, &mut txn, &def, 3);
                skipped += bounded(&mut random, &mut begin(&database, RC), &def, 3);
                if random.below(4) == 0 {
                    txn.rollback().unwrap()
                } else {
                    txn.commit().unwrap()
                }
                database.tick().unwrap();
                old.start_statement();
                let (_, now) = compared(&mut random, &mut old, &def);
                assert!(now == before, "the snapshot has changed");
                skipped += bounded(&mut random, &mut old, &def, 3);
            }
            old.rollback().unwrap();
            database.tick().unwrap();
            if random.below(2) == 0 {
                def = rewritten(&database, &def);
            }
        }
        assert!(mixed > 0, "no leaf had rows of both kinds");
        assert!(skipped > 0, "no leaf was passed by");
        is_sound(&database);
    }
}

/// The key ascends from leaf to leaf, so bounds of the key rule out almost all leaves.
#[test]
fn leaves_outside_of_the_bounds_are_passed_by() {
    let mut random = Random::new(7);
    let (database, def) = built(&mut random);
    // The floor passes by the transaction that has built the leaves.
    database.tick().unwrap();
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    let number = |unscaled| Some(LeafNumber { unscaled, scale: 0 });
    let bounds = [LeafBounds { column: 0, low: number(500), high: number(510) }];
    let mut reader = txn.reader();
    let mut counted = || {
        let mut rows = 0;
        let counts = reader.scan_leaves(&table, &ScanSpec::ALL, &bounds, &mut |shown| {
            rows += match shown {
                Shown::Row(..) => 1,
                Shown::Leaf(leaf) => leaf.numbers().len(),
            };
            Ok(ControlFlow::Continue(()))
        });
        (counts.unwrap(), rows)
    };
    let (first, all) = counted();
    let (second, few) = counted();
    assert_eq!(first.skipped, 0);
    // Leaves with rows in overflow chains are always read.
    let settled = first.by_columns;
    assert!(settled > 5 && second.skipped + 2 >= settled && few < all, "{first:?} {second:?}");
}

#[test]
fn a_column_that_was_added_is_read_by_columns() {
    let mut random = Random::new(5);
    let (database, def) = built(&mut random);
    let kept = |n: usize| (def.columns[n].clone(), ColumnSource::Column(n));
    let added = (column("added", ColumnType::Int8), ColumnSource::Value(Value::Int8(77)));
    let mut columns: Vec<_> = (0..TYPES.len()).map(kept).collect();
    columns.insert(4, added);
    columns.remove(2);
    let mut txn = begin(&database, RC);
    let def = txn.rewrite_columns(def.id, columns).unwrap();
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    compared(&mut random, &mut txn, &def);
    let table = txn.table(&def).unwrap();
    let (lines, counts) = by_leaves(&mut txn.reader(), &table, &ScanSpec::ALL);
    assert!(counts.by_columns > 10, "{counts:?}");
    assert!(lines.len() > 1000 && lines.iter().all(|line| line.1[3] == "Int8(77)"));
}

/// A scan of leaves records for SERIALIZABLE what it has read. This is the range up to the row at which it
/// stopped.
#[test]
fn serializable_knows_what_a_scan_of_leaves_has_read() {
    for (changed, is_read) in [(100, true), (ROWS - 1, false)] {
        let (_, database) = fresh();
        let def = create_by_columns(&database, "t");
        load(&database, &def, (0..ROWS).map(|id| (id, 0)));
        let def = rewritten(&database, &def);
        let mut txn = begin(&database, Isolation::Serializable);
        let table = txn.table(&def).unwrap();
        let mut reader = txn.reader();
        let mut count = 0;
        let scanned = reader.scan_leaves(&table, &ScanSpec::ALL, &[], &mut |shown| {
            let Shown::Leaf(rows) = shown else { panic!("a row by itself") };
            count += rows.numbers().len();
            Ok(if count > 500 { ControlFlow::Break(1) } else { ControlFlow::Continue(()) })
        });
        scanned.unwrap();
        drop(reader);
        let mut other = begin(&database, Isolation::Serializable);
        update(&mut other, &def, changed, |_| 1).unwrap();
        other.commit().unwrap();
        put(&mut txn, &def, ROWS, 0).unwrap();
        match is_read {
            true => assert_eq!(state(txn.commit()), "40001"),
            false => txn.commit().unwrap(),
        }
    }
}
