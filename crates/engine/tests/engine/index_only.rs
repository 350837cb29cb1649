//! A scan that reads only an index returns the same rows as a scan that reads the table, even during
//! concurrent changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::{
    Array, ColumnDef, ColumnType, Database, Datum, Interval, Moment, NewIndex, NewTable, Numeric, PrimaryKey,
    ScanIndex, ScanSpec, TableDef, Transaction, Value,
};

/// What a scan of the index on v has given: id and v of each row, and how many rows came without their note.
#[derive(Debug, PartialEq, Eq, Default)]
struct Seen {
    rows: Vec<(i32, i32)>,
    without_note: usize,
}

/// Returns what a scan reads: the two columns that the index has, or all columns.
fn spec(def: &TableDef, reverse: bool, is_covered: bool) -> ScanSpec<'static> {
    let index = ScanIndex::Secondary(def.indexes[0].id);
    ScanSpec { index, reverse, columns: is_covered.then_some(&[0, 1]), ..ScanSpec::ALL }
}

fn read(scan: impl FnOnce(&mut varve_engine::OnRow<'_>) -> varve_engine::Result<()>) -> Seen {
    let mut seen = Seen::default();
    scan(&mut |_, row| {
        seen.rows.push((int(row.get(0)), int(row.get(1))));
        seen.without_note += usize::from(row.get(2).is_null());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    seen
}

/// Reads the index in both ways, in the statement that runs. Returns the rows, and how many came from the
/// index alone.
fn compared(txn: &mut Transaction, def: &TableDef) -> (Vec<(i32, i32)>, usize) {
    let table = txn.table(def).unwrap();
    let [by_row, alone, backward] =
        [(false, false), (false, true), (true, true)].map(|(reverse, covered)| {
            let spec = spec(def, reverse, covered);
            read(|on_row| txn.scan(&table, &spec, on_row))
        });
    assert_eq!(by_row.without_note, 0);
    assert_eq!(alone.rows, by_row.rows);
    assert!(backward.rows.iter().rev().eq(&by_row.rows));
    (alone.rows, alone.without_note)
}

fn compared_now(txn: &mut Transaction, def: &TableDef) -> (Vec<(i32, i32)>, usize) {
    txn.start_statement();
    compared(txn, def)
}

/// Makes a table with an index on v and these rows. All rows are visible to everybody.
fn with_rows(rows: impl IntoIterator<Item = (i32, i32)>) -> (Arc<Database>, Arc<TableDef>) {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, rows);
    settle(&database);
    (database, def)
}

/// Purges what can be purged. From then on, everybody sees what is committed.
fn settle(database: &Arc<Database>) {
    database.tick().unwrap();
    database.tick().unwrap();
}

#[test]
fn settled_entries_are_read_alone() {
    let (database, def) = with_rows((0..1000).map(|i| (i, i % 7)));
    let (rows, alone) = compared_now(&mut begin(&database, RC), &def);
    assert_eq!((rows.len(), alone), (1000, 1000));
    // Another column than these is not in the index.
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    let spec = ScanSpec { columns: Some(&[0, 2]), ..spec(&def, false, true) };
    assert_eq!(read(|on_row| txn.scan(&table, &spec, on_row)).without_note, 0);
    assert!(def.covers(spec.index, &[0, 1]) && !def.covers(spec.index, &[0, 2]));
    assert!(!def.covers(ScanIndex::Primary, &[0]));
}

#[test]
fn own_changes_are_seen_and_taken_back() {
    let (database, def) = with_rows((0..50).map(|i| (i, i)));
    let mut txn = begin(&database, RC);
    update(&mut txn, &def, 3, |v| v + 100).unwrap();
    delete(&mut txn, &def, 4).unwrap();
    put(&mut txn, &def, 60, 5).unwrap();
    rekey(&mut txn, &def, 7, 70).unwrap();
    let (rows, _) = compared_now(&mut txn, &def);
    assert!(rows.contains(&(3, 103)) && rows.contains(&(60, 5)) && rows.contains(&(70, 7)));
    assert!(!rows.iter().any(|(id, _)| *id == 4 || *id == 7));
    let savepoint = txn.savepoint();
    update(&mut txn, &def, 9, |_| -1).unwrap();
    delete(&mut txn, &def, 10).unwrap();
    compared_now(&mut txn, &def);
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(compared_now(&mut txn, &def).0, rows);
    txn.rollback().unwrap();
    settle(&database);
    let (rows, alone) = compared_now(&mut begin(&database, RC), &def);
    assert_eq!((rows, alone), ((0..50).map(|i| (i, i)).collect(), 50));
}

#[test]
fn an_old_snapshot_stays_as_it_is() {
    let (database, def) = with_rows((0..300).map(|i| (i, i)));
    let mut reader = begin(&database, RR);
    let before = compared(&mut reader, &def);
    assert_eq!(before.1, 300);
    for id in 0..300 {
        let mut txn = begin(&database, RC);
        match id % 4 {
            0 => _ = update(&mut txn, &def, id, |v| v + 1000).unwrap(),
            1 => _ = delete(&mut txn, &def, id).unwrap(),
            2 => put(&mut txn, &def, id + 1000, id).unwrap(),
            _ => {
                delete(&mut txn, &def, id).unwrap();
                put(&mut txn, &def, id, -id).unwrap();
            }
        }
        if id % 5 == 0 {
            txn.rollback().unwrap()
        } else {
            txn.commit().unwrap()
        }
        if id % 50 == 0 {
            database.tick().unwrap();
            assert_eq!(compared(&mut reader, &def).0, before.0);
            compared_now(&mut begin(&database, RC), &def);
        }
    }
    let mut back = begin(&database, RC);
    for id in (0..300).step_by(4) {
        update(&mut back, &def, id, |_| id).unwrap();
    }
    assert_eq!(compared(&mut reader, &def).0, before.0);
    back.commit().unwrap();
    assert_eq!(compared(&mut reader, &def).0, before.0);
    reader.commit().unwrap();
    settle(&database);
    let (rows, alone) = compared_now(&mut begin(&database, RC), &def);
    assert_eq!(rows.len(), alone, "nobody sees the changes otherwise any more");
}

/// Writers that commit and roll back, purge, and readers of old and new snapshots run at the same time.
#[test]
fn readers_agree_while_everything_changes() {
    let (database, def) = with_rows((0..400).map(|i| (i, i % 40)));
    let (done, alone, turns) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (database, def) = (&database, &def);
                scope.spawn(move || {
                    for round in 0..12 {
                        for id in (writer..400).step_by(2) {
                            let mut txn = begin(database, RC);
                            match (id / 2 + round) % 5 {
                                0 => _ = delete(&mut txn, def, id).unwrap(),
                                1 => _ = put(&mut txn, def, id, round),
                                2 => _ = update(&mut txn, def, id, |v| v).unwrap(),
                                _ => _ = update(&mut txn, def, id, |v| (v + 7) % 40).unwrap(),
                            }
                            if (id + round) % 3 == 0 {
                                txn.rollback().unwrap()
                            } else {
                                txn.commit().unwrap()
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                database.tick().unwrap();
            }
        });
        let readers = [RC, RR].map(|isolation| {
            let (database, def, done, alone, turns) = (&database, &def, &done, &alone, &turns);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let mut txn = begin(database, isolation);
                    let first = compared(&mut txn, def).0;
                    for _ in 0..4 {
                        let (again, without) = compared(&mut txn, def);
                        assert_eq!(again, first, "one snapshot");
                        alone.fetch_add(without as u64, Ordering::SeqCst);
                    }
                    txn.commit().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert!(turns.load(Ordering::SeqCst) > 0);
    settle(&database);
    let (rows, without) = compared_now(&mut begin(&database, RC), &def);
    assert_eq!(rows.len(), without);
    is_sound(&database);
}

#[test]
fn deletes_whose_marks_are_gathered_are_seen() {
    let (database, def) = with_rows((0..100).map(|i| (i, i)));
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    txn.begin_deletes(&table);
    let keys: Vec<Vec<u8>> = (0..100).step_by(2).map(pk).collect();
    let mut keys_left = keys.iter().map(Vec::as_slice).peekable();
    while keys_left.peek().is_some() {
        let run = txn.delete_run(&table, &mut keys_left.clone(), &mut |_| Some(true)).unwrap();
        if run.passed == 0 {
            let key = keys_left.next().unwrap();
            txn.modify(&table, key, &mut |_| Ok(varve_engine::Change::Delete)).unwrap();
        }
        keys_left.by_ref().take(run.passed).for_each(|_| {});
    }
    // A reader runs beside the statement, before the index entries are marked.
    let mut beside = txn.reader();
    let seen = read(|on_row| beside.fork().scan(&table, &spec(&def, false, true), on_row));
    assert_eq!(seen.rows, (1..100).step_by(2).map(|i| (i, i)).collect::<Vec<_>>());
    drop(beside);
    txn.end_deletes(&table).unwrap();
    assert_eq!(compared_now(&mut txn, &def).0.len(), 50);
    txn.rollback().unwrap();
    assert_eq!(compared_now(&mut begin(&database, RC), &def).0.len(), 100);
}

#[test]
fn a_crash_in_the_middle_leaves_the_same_answers() {
    let directory = MemoryDirectory::new();
    let database = open(&directory);
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..500).map(|i| (i, i)));
    let mut loser = begin(&database, RC);
    for id in 0..250 {
        match id % 3 {
            0 => _ = update(&mut loser, &def, id, |v| v + 1000).unwrap(),
            1 => _ = delete(&mut loser, &def, id).unwrap(),
            _ => put(&mut loser, &def, id + 5000, id).unwrap(),
        }
    }
    let mut winner = begin(&database, RC);
    for id in 250..300 {
        update(&mut winner, &def, id, |v| -v).unwrap();
    }
    winner.commit().unwrap();
    let pager = database.pager();
    pager.flush_log(pager.log().end()).unwrap();
    let crashed = open(&MemoryDirectory::from_images(directory.images()));
    // The loser's changes are rolled back in the background, and this may not have happened yet.
    for turn in 0..3 {
        let mut txn = begin(&crashed, RC);
        let opened = txn.catalog().table("public", "t").unwrap();
        let (rows, alone) = compared(&mut txn, &opened);
        let wanted = |id: i32| if (250..300).contains(&id) { (id, -id) } else { (id, id) };
        let mut rows = rows;
        rows.sort_unstable();
        assert_eq!(rows, (0..500).map(wanted).collect::<Vec<_>>());
        if turn == 2 {
            assert_eq!(alone, 500);
        }
        txn.commit().unwrap();
        settle(&crashed);
    }
    is_sound(&crashed);
    loser.rollback().unwrap();
}

/// Makes a table with a column of each type, an index on each of them, and a primary key of two columns.
fn of_all_types(database: &Arc<Database>, types: &[ColumnType]) -> Arc<TableDef> {
    let mut txn = begin(database, RC);
    let mut columns: Vec<ColumnDef> = vec![column("id", ColumnType::Int2), column("key", ColumnType::Text)];
    columns.extend(types.iter().enumerate().map(|(n, t)| column(&format!("c{n}"), *t)));
    let primary_key = Some(PrimaryKey { name: "a_pkey".into(), columns: vec![1, 0] });
    let mut def =
        txn.create_table(NewTable { primary_key, ..NewTable::new("public", "a", columns) }).unwrap();
    for n in 0..types.len() {
        // Each index has a column and its neighbour, so that one follows the other in the key.
        let columns = vec![2 + n, 2 + (n + 1) % types.len()];
        let name = format!("a_{n}");
        def = txn
            .create_index(NewIndex {
                table: def.id,
                name,
                columns,
                unique: false,
                constraint: false,
                tablespace: None,
            })
            .unwrap();
    }
    txn.commit().unwrap();
    def
}

/// Returns some values of each type. Some of them differ, but have the same key.
fn values() -> Vec<(ColumnType, Vec<Value>)> {
    let numeric = |text: &str| Value::Numeric(text.parse::<Numeric>().unwrap());
    let text = |text: &str| Value::Text(text.into());
    let element: &'static ColumnType = &ColumnType::Int4;
    let array = |items: &[i32]| {
        let mut array = Array::new(*element);
        items.iter().for_each(|item| array.push(Datum::Int4(*item)));
        Value::Array(array)
    };
    let interval = |months, days, micros| Value::Interval(Interval { months, days, micros });
    vec![
        (ColumnType::Bool, vec![Value::Bool(true), Value::Bool(false)]),
        (ColumnType::Int2, vec![Value::Int2(i16::MIN), Value::Int2(-1), Value::Int2(i16::MAX)]),
        (ColumnType::Int4, vec![Value::Int4(i32::MIN), Value::Int4(0), Value::Int4(i32::MAX)]),
        (ColumnType::Int8, vec![Value::Int8(i64::MIN), Value::Int8(-7), Value::Int8(i64::MAX)]),
        (
            ColumnType::Numeric { precision: None },
            ["1.0", "1.00", "-12.340", "0.0", "12345678901234567890.5"].map(numeric).into(),
        ),
        (ColumnType::Float4, vec![Value::Float4(-0.0), Value::Float4(0.0), Value::Float4(f32::NAN)]),
        (ColumnType::Text, ["", "a", "a\u{0}b", "ähm", "zz"].map(text).into()),
        (ColumnType::Float8, vec![Value::Float8(-0.0), Value::Float8(0.0), Value::Float8(-1.5)]),
        (ColumnType::Char(5), ["a    ", "b    "].map(text).into()),
        (ColumnType::Varchar(Some(9)), ["x ", "x", "longer"].map(text).into()),
        (
            ColumnType::Bytea,
            vec![Value::Bytea(vec![]), Value::Bytea(vec![0, 255, 0, 0]), Value::Bytea(vec![7])],
        ),
        (ColumnType::Date, vec![Value::Date(i32::MIN), Value::Date(-1), Value::Date(9000)]),
        (ColumnType::Timestamp, vec![Value::Timestamp(i64::MIN), Value::Timestamp(77)]),
        (ColumnType::Interval, vec![interval(1, 0, 0), interval(0, 30, 0), interval(0, 0, -5)]),
        (ColumnType::TimestampTz, vec![Value::TimestampTz(-3), Value::TimestampTz(i64::MAX)]),
        (ColumnType::Rounded(Moment::Timestamp, 0), vec![Value::Timestamp(3_000_000)]),
        (ColumnType::Rounded(Moment::Interval, 0), vec![interval(0, 1, 0), interval(0, 0, 86_400_000_000)]),
        (ColumnType::Time, vec![Value::Time(0), Value::Time(86_400_000_000)]),
        (ColumnType::Uuid, vec![Value::Uuid([0; 16]), Value::Uuid([255; 16])]),
        (ColumnType::Oid, vec![Value::Int8(0), Value::Int8(4_000_000_000)]),
        (ColumnType::Array(element), vec![array(&[]), array(&[1, 2])]),
    ]
}

/// Returns all rows as text, with their keys. A row has the wanted columns, and the rows are in the order of
/// the index.
fn shown(txn: &mut Transaction, def: &TableDef, spec: &ScanSpec<'_>, columns: &[usize]) -> Vec<String> {
    let table = txn.table(def).unwrap();
    let mut out = Vec::new();
    txn.scan(&table, spec, &mut |key, row| {
        let values: Vec<String> = columns.iter().map(|c| format!("{:?}", row.get(*c))).collect();
        out.push(format!("{key:?} {values:?}"));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    out
}

#[test]
fn columns_come_from_the_key_as_they_are_stored() {
    let (_directory, database) = fresh();
    let values = values();
    let types: Vec<ColumnType> = values.iter().map(|(t, _)| *t).collect();
    let def = of_all_types(&database, &types);
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    for n in 0..40usize {
        let key = format!("k\u{0}{}", n % 6);
        let mut row = vec![Datum::Int2(n as i16 - 20), Datum::Text(&key)];
        // Each column has each value followed by NULL, but each column goes through the values in other
        // steps.
        row.extend(values.iter().enumerate().map(|(c, (_, of_type))| {
            let turn = (n + c * (1 + n / 7)) % (of_type.len() + 1);
            of_type.get(turn).map_or(Datum::Null, Value::as_datum)
        }));
        txn.insert(&table, &row).unwrap();
    }
    txn.commit().unwrap();
    settle(&database);
    let mut txn = begin(&database, RC);
    let mut covered = Vec::new();
    for (n, index) in def.indexes.iter().enumerate() {
        let index = ScanIndex::Secondary(index.id);
        let can = |columns: &[usize]| def.covers(index, columns);
        let readable: Vec<usize> = (0..def.columns.len()).filter(|c| can(&[*c])).collect();
        assert!(readable.contains(&0) && readable.contains(&1) && can(&[]) && can(&readable));
        covered.push(readable.contains(&(2 + n)));
        let columns: [&[usize]; 4] = [&readable, &[0], &[1], &[]];
        for columns in columns {
            for reverse in [false, true] {
                let by_row = ScanSpec { index, reverse, ..ScanSpec::ALL };
                let alone = ScanSpec { columns: Some(columns), ..by_row };
                let wanted = shown(&mut txn, &def, &by_row, columns);
                assert_eq!(wanted.len(), 40);
                assert_eq!(shown(&mut txn, &def, &alone, columns), wanted, "{:?}", types[n]);
            }
        }
    }
    let inexact = |t: &ColumnType| {
        use ColumnType::{Array, Char, Float4, Float8, Interval, Numeric, Rounded};
        matches!(
            t,
            Numeric { .. } | Float4 | Float8 | Char(_) | Interval | Array(_) | Rounded(Moment::Interval, _)
        )
    };
    assert_eq!(covered, types.iter().map(|t| !inexact(t)).collect::<Vec<_>>());
}

/// A scan that was ended early continues at the next row, with and without reading only the index.
#[test]
fn a_scan_goes_on_where_it_ended() {
    let (database, def) = with_rows((0..100).map(|i| (i, i / 10)));
    let mut busy = begin(&database, RC);
    update(&mut busy, &def, 55, |v| v).unwrap();
    put(&mut busy, &def, 500, 3).unwrap();
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    let (mut place, mut rows): (Option<Vec<u8>>, _) = (None, Vec::new());
    loop {
        let whole = spec(&def, false, true);
        let lower = place.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut row_seen = None;
        txn.scan(&table, &ScanSpec { lower, limit_hint: Some(1), ..whole }, &mut |_, row| {
            row_seen = Some((int(row.get(0)), int(row.get(1))));
            Ok(ControlFlow::Break(()))
        })
        .unwrap();
        let Some(row) = row_seen else { break };
        rows.push(row);
        place = Some(txn.place(whole.index).to_vec());
    }
    assert_eq!(rows, (0..100).map(|i| (i, i / 10)).collect::<Vec<_>>());
    busy.rollback().unwrap();
}
