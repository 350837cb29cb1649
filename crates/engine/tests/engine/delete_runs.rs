//! Rows are deleted leaf by leaf, and their index entries are marked together. The result must be the same as
//! with single deletes. This is also tested with locked rows, with a partial rollback, and with a stop of the
//! database in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;
use varve_engine::{Change, Error, Outcome, RowRef, Run, TableDef, Transaction};

const ROWS: i32 = 3000;

/// Deletes the rows with these keys for which `is_wanted` holds, as DELETE does. Returns how many were
/// deleted together and how many alone.
fn sweep(
    txn: &mut Transaction,
    def: &TableDef,
    ids: impl IntoIterator<Item = i32>,
    is_wanted: impl Fn(RowRef<'_>) -> bool,
) -> Result<(usize, usize), Error> {
    txn.start_statement();
    let table = table(txn, def);
    let keys: Vec<_> = ids.into_iter().map(pk).collect();
    let (mut at, mut together, mut alone) = (0, 0, 0);
    txn.begin_deletes(&table);
    while at < keys.len() {
        let mut rest = keys[at..].iter().map(Vec::as_slice);
        let Run { passed, deleted } = txn.delete_run(&table, &mut rest, &mut |row| Some(is_wanted(row)))?;
        (at, together) = (at + passed, together + deleted);
        if let Some(key) = keys.get(at) {
            let change =
                &mut |row: RowRef<'_>| Ok(if is_wanted(row) { Change::Delete } else { Change::Skip });
            alone += usize::from(txn.modify(&table, key, change)? == Outcome::Changed);
            at += 1;
        }
    }
    txn.end_deletes(&table)?;
    txn.end_statement();
    Ok((together, alone))
}

fn filled(database: &std::sync::Arc<varve_engine::Database>) -> std::sync::Arc<TableDef> {
    let def = create(database, "t");
    let def = index_on_v(database, &def, "t_v", false);
    load(database, &def, (0..ROWS).map(|id| (id, id * 7 % 100)));
    def
}

#[test]
fn most_rows_are_deleted_together_and_nothing_is_left_of_them() {
    let (_directory, database) = fresh();
    let def = filled(&database);
    let mut txn = begin(&database, RC);
    let (together, alone) = sweep(&mut txn, &def, 0..ROWS, |row| int(row.get(0)) % 3 != 0).unwrap();
    assert_eq!(together + alone, 2000);
    assert!(together > 10 * alone, "{together} together, {alone} alone");
    let left: Vec<_> = (0..ROWS).filter(|id| id % 3 == 0).map(|id| (id, id * 7 % 100)).collect();
    let of_six = |rows: &[(i32, i32)]| rows.iter().filter(|row| row.1 == 6).copied().collect::<Vec<_>>();
    assert_eq!((rows(&mut txn, &def).unwrap(), by_v(&mut txn, &def, 6)), (left.clone(), of_six(&left)));
    assert_eq!(all(&database, &def).len(), 3000);
    txn.commit().unwrap();
    assert_eq!(
        (all(&database, &def), by_v(&mut begin(&database, RC), &def, 6)),
        (left.clone(), of_six(&left))
    );
    database.tick().unwrap();
    is_sound(&database);
    load(&database, &def, (0..ROWS).filter(|id| id % 3 != 0).map(|id| (id, 6)));
    assert_eq!(by_v(&mut begin(&database, RC), &def, 6).len(), 2000 + of_six(&left).len());
    is_sound(&database);
}

#[test]
fn what_is_rolled_back_has_its_entries_again() {
    let (_directory, database) = fresh();
    let def = filled(&database);
    let mut txn = begin(&database, RC);
    put(&mut txn, &def, ROWS, 6).unwrap();
    let savepoint = txn.savepoint();
    sweep(&mut txn, &def, 0..=ROWS, |_| true).unwrap();
    assert_eq!((rows(&mut txn, &def).unwrap(), by_v(&mut txn, &def, 6)), (vec![], vec![]));
    txn.rollback_to(savepoint).unwrap();
    assert_eq!((rows(&mut txn, &def).unwrap().len(), by_v(&mut txn, &def, 6).len()), (3001, 31));
    sweep(&mut txn, &def, 0..=ROWS, |_| true).unwrap();
    txn.rollback().unwrap();
    assert_eq!((all(&database, &def).len(), by_v(&mut begin(&database, RC), &def, 6).len()), (3000, 30));
    is_sound(&database);
}

#[test]
fn a_row_of_another_transaction_is_waited_for() {
    let (_directory, database) = fresh();
    let def = filled(&database);
    let mut other = begin(&database, RC);
    update(&mut other, &def, 500, |_| 1000).unwrap();
    let mut impatient = begin(&database, RC);
    impatient.set_lock_timeout(Some(std::time::Duration::from_millis(5)));
    assert_eq!(state(sweep(&mut impatient, &def, 0..ROWS, |_| true)), "55P03");
    impatient.rollback().unwrap();
    is_sound(&database);
    let mut late = begin(&database, RR);
    assert_eq!(see(&mut late, &def, 500), Some(0));
    let waits = database.stats().lock_waits;
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            let swept = sweep(&mut txn, &def, 0..ROWS, |row| int(row.get(1)) < 1000).unwrap();
            txn.commit().unwrap();
            swept
        });
        until_one_waits(&database, waits);
        other.commit().unwrap();
        let (together, alone) = sweeper.join().unwrap();
        assert_eq!(together + alone, 2999);
    });
    assert_eq!(all(&database, &def), [(500, 1000)]);
    assert_eq!(state(sweep(&mut late, &def, 0..ROWS, |_| true)), "40001");
    late.rollback().unwrap();
    database.tick().unwrap();
    is_sound(&database);
}

/// The statement ends without `end_deletes`, as it does if its connection ends. Its rows come back with their
/// entries.
#[test]
fn a_statement_that_breaks_off_leaves_nothing() {
    let (_directory, database) = fresh();
    let def = filled(&database);
    let mut txn = begin(&database, RC);
    let table = table(&mut txn, &def);
    let keys: Vec<_> = (0..ROWS).map(pk).collect();
    txn.begin_deletes(&table);
    let mut at = 0;
    while at < 1000 {
        let mut rest = keys[at..1000].iter().map(Vec::as_slice);
        at += txn.delete_run(&table, &mut rest, &mut |_| Some(true)).unwrap().passed;
        let alone = keys[at..].iter().take(1);
        at += alone.map(|key| txn.modify(&table, key, &mut |_| Ok(Change::Delete)).unwrap()).count();
    }
    drop(txn);
    database.tick().unwrap();
    assert_eq!((all(&database, &def).len(), by_v(&mut begin(&database, RC), &def, 6).len()), (3000, 30));
    is_sound(&database);
}
