//! Rows are there after a commit and a restart, and gone after a rollback.

use varve_engine::{ColumnType, Datum, Error, Outcome, ScanIndex};

use super::*;

#[test]
fn committed_rows_survive_a_restart() {
    for engine in ENGINES {
        let (directory, database) = empty(1);
        let def = make(&database, "t", engine);
        load(&database, &def, (0..500).map(|id| (id, id * 2)));
        let mut txn = begin(&database, RC);
        assert_eq!(update(&mut txn, &def, 7, |v| v + 1).unwrap(), Outcome::Changed);
        assert_eq!(rekey(&mut txn, &def, 8, 1008).unwrap(), Outcome::Changed);
        assert_eq!(delete(&mut txn, &def, 9).unwrap(), Outcome::Changed);
        txn.commit().unwrap();
        let mut expected: Vec<(i32, i32)> = (0..500).map(|id| (id, id * 2)).collect();
        expected[7].1 = 15;
        expected.retain(|(id, _)| *id != 8 && *id != 9);
        expected.push((1008, 16));
        assert_eq!(all(&database, &def), expected, "{engine}");
        is_sound(&database);
        drop((def, database));
        let database = open_in(&directory, 1).unwrap();
        assert_eq!(all(&database, &find(&database, "t")), expected, "{engine} after a restart");
        is_sound(&database);
    }
}

#[test]
fn a_rollback_takes_everything_back() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        load(&database, &def, [(1, 10), (2, 20)]);
        let mut txn = begin(&database, RC);
        put(&mut txn, &def, 3, 30).unwrap();
        update(&mut txn, &def, 1, |_| 11).unwrap();
        delete(&mut txn, &def, 2).unwrap();
        assert_eq!(see(&mut txn, &def, 3), Some(30));
        txn.rollback().unwrap();
        assert_eq!(all(&database, &def), [(1, 10), (2, 20)], "{engine}");
        // A transaction that is dropped is rolled back, too.
        let mut txn = begin(&database, RC);
        put(&mut txn, &def, 4, 40).unwrap();
        drop(txn);
        assert_eq!(all(&database, &def), [(1, 10), (2, 20)], "{engine}");
        is_sound(&database);
    }
}

#[test]
fn savepoints_and_failed_statements_take_back_their_part() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        let mut txn = begin(&database, RC);
        let before = txn.savepoint();
        put(&mut txn, &def, 1, 10).unwrap();
        let savepoint = txn.savepoint();
        put(&mut txn, &def, 2, 20).unwrap();
        txn.rollback_to(savepoint).unwrap();
        assert_eq!(see(&mut txn, &def, 2), None, "{engine}");
        txn.start_statement();
        put(&mut txn, &def, 3, 30).unwrap();
        assert!(matches!(put(&mut txn, &def, 1, 11), Err(Error::UniqueViolation { .. })));
        txn.rollback_statement().unwrap();
        assert_eq!(see(&mut txn, &def, 3), None, "{engine}");
        assert_eq!(see(&mut txn, &def, 1), Some(10), "{engine}");
        txn.rollback_to(before).unwrap();
        assert_eq!(see(&mut txn, &def, 1), None, "{engine}");
        put(&mut txn, &def, 5, 50).unwrap();
        txn.commit().unwrap();
        assert_eq!(all(&database, &def), [(5, 50)], "{engine}");
        is_sound(&database);
    }
}

#[test]
fn a_duplicate_is_refused_with_the_values_of_its_key() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        let def = index_on_v(&database, &def, "t_v", true);
        load(&database, &def, [(1, 10), (2, 20)]);
        let mut txn = begin(&database, RC);
        let refused = |outcome: Result<()>, name: &str, text: &str| match outcome {
            Err(Error::UniqueViolation { constraint, detail, .. }) => {
                assert_eq!((&*constraint, &*detail), (name, text), "{engine}");
            }
            other => panic!("{engine}: {other:?}"),
        };
        refused(put(&mut txn, &def, 1, 30), "t_pkey", "Key (id)=(1) already exists.");
        refused(put(&mut txn, &def, 3, 20), "t_v", "Key (v)=(20) already exists.");
        refused(update(&mut txn, &def, 1, |_| 20).map(|_| ()), "t_v", "Key (v)=(20) already exists.");
        refused(rekey(&mut txn, &def, 1, 2).map(|_| ()), "t_pkey", "Key (id)=(2) already exists.");
        // A row with NULL in the key has no duplicate.
        let table = table(&mut txn, &def);
        for id in [5, 6] {
            txn.insert(&table, &[Datum::Int4(id), Datum::Null, Datum::Null]).unwrap();
        }
        txn.commit().unwrap();
        assert_eq!(find(&database, "t").indexes.len(), 1);
        is_sound(&database);
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_alone() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let mut txn = database.begin(RC);
        let columns = vec![column("id", ColumnType::Text)];
        let key = PrimaryKey { name: "l_pkey".into(), columns: vec![0] };
        let new = NewTable {
            primary_key: Some(key),
            engine: Some(engine.into()),
            ..NewTable::new("public", "l", columns)
        };
        let def = txn.create_table(new).unwrap();
        txn.commit().unwrap();
        let mut txn = begin(&database, RC);
        let table = table(&mut txn, &def);
        let error = txn.insert(&table, &[Datum::Text(&"x".repeat(5000))]).unwrap_err();
        assert_eq!(error.sqlstate(), "54000", "{engine}: {error}");
        txn.insert(&table, &[Datum::Text(&"x".repeat(1000))]).unwrap();
        txn.commit().unwrap();
        is_sound(&database);
    }
}

#[test]
fn a_full_region_refuses_one_statement() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        let wide = "w".repeat(100_000);
        let mut txn = begin(&database, RC);
        let mut rows = 0;
        let error = loop {
            let table = table(&mut txn, &def);
            match txn.insert(&table, &[Datum::Int4(rows), Datum::Int4(0), Datum::Text(&wide)]) {
                Ok(()) => rows += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.sqlstate(), "53100", "{engine}: {error}");
        assert!(rows > 10, "{engine}: {rows} rows");
        // A delete takes room in the log of the engine `inplace`.
        let deleted = delete(&mut txn, &def, 0).is_ok();
        assert!(deleted || engine == "inplace", "{engine}");
        txn.commit().unwrap();
        assert_eq!(all(&database, &def).len(), rows as usize - usize::from(deleted), "{engine}");
        is_sound(&database);
    }
}

#[test]
fn scans_go_both_ways_between_bounds_and_go_on_behind_a_row() {
    use std::ops::{Bound, ControlFlow};
    use varve_engine::ScanSpec;
    for engine in ENGINES {
        let (_, database) = empty(1);
        let def = make(&database, "t", engine);
        let def = index_on_v(&database, &def, "t_v", false);
        load(&database, &def, (0..100).map(|id| (id, id % 10)));
        let index = ScanIndex::Secondary(def.indexes[0].id);
        for (index, reverse) in [ScanIndex::Primary, index].into_iter().flat_map(|i| [(i, false), (i, true)])
        {
            let mut txn = begin(&database, RC);
            let table = table(&mut txn, &def);
            let mut found = Vec::new();
            let mut place: Option<Vec<u8>> = None;
            loop {
                let bound = place.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let (lower, upper) =
                    if reverse { (Bound::Unbounded, bound) } else { (bound, Bound::Unbounded) };
                let spec = ScanSpec { index, lower, upper, reverse, limit_hint: Some(7), columns: None };
                let before = found.len();
                txn.scan(&table, &spec, &mut |_, row| {
                    found.push((int(row.get(1)), int(row.get(0))));
                    let is_full = found.len() == before + 7;
                    Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })
                .unwrap();
                if found.len() < before + 7 {
                    break;
                }
                place = Some(txn.place(index).to_vec());
            }
            let mut expected: Vec<(i32, i32)> = (0..100).map(|id| (id % 10, id)).collect();
            match index {
                ScanIndex::Primary => expected.sort_by_key(|(_, id)| *id),
                ScanIndex::Secondary(_) => expected.sort_unstable(),
            }
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected, "{engine} {index:?} {reverse}");
        }
    }
}
