//! An undo record that a reader needs was purged, overwritten or is unreadable. The reader gets the right
//! version or an error, never another row, and never silently no row.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::database::*;
use varve_device::{ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_engine::{Database, NewIndex, Result, ScanSpec, TableDef, Transaction};

/// Scans the table. Calls `meanwhile` after the first row, when the scan has already copied the other rows.
/// Stops after `limit` rows.
fn scan_while(
    txn: &mut Transaction,
    def: &TableDef,
    limit: usize,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<(i32, i32)>> {
    let table = txn.table(def)?;
    let mut found = Vec::new();
    txn.scan(&table, &ScanSpec::ALL, &mut |_, row| {
        if found.is_empty() {
            meanwhile();
        }
        found.push((int(row.get(0)), int(row.get(1))));
        Ok(if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Makes a database that gives up every snapshot at each tick.
fn ruthless() -> Arc<Database> {
    let mut options = options(&MemoryDirectory::new());
    options.rollback_limit_bytes = Some(1);
    Database::open(options).unwrap()
}

/// Makes enough changes in a transaction to fill some more undo pages.
fn fill_undo(txn: &mut Transaction, def: &TableDef) {
    for _ in 0..1000 {
        update(txn, def, 9, |v| v + 1).unwrap();
    }
}

/// Purge removes a delete-marked row and its undo after the scan has copied the row. The scan must fail, and
/// must not skip the row.
#[test]
fn a_row_that_purge_takes_in_the_middle_of_a_scan_is_missed_loudly() {
    let database = ruthless();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1), (2, 2), (3, 3), (9, 0)]);
    let mut reader = begin(&database, RR);
    assert_eq!(see_again(&mut reader, &def, 2).unwrap(), Some(2));
    let mut writer = begin(&database, RC);
    delete(&mut writer, &def, 2).unwrap();
    fill_undo(&mut writer, &def);
    writer.commit().unwrap();
    let seen = scan_while(&mut reader, &def, 2, &mut || {
        for _ in 0..20 {
            database.tick().unwrap();
            let mut writer = begin(&database, RC);
            fill_undo(&mut writer, &def);
            writer.commit().unwrap();
        }
    });
    assert_eq!(state(seen), "72000");
}

/// The undo page that the scan needs now belongs to another transaction, which has changed the same rows.
#[test]
fn an_undo_page_that_was_filled_again_is_not_taken_for_the_old_one() {
    let database = ruthless();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1), (2, 2), (3, 3), (9, 0)]);
    let mut reader = begin(&database, RR);
    assert_eq!(see_again(&mut reader, &def, 2).unwrap(), Some(2));
    let change = |v: i32| {
        let mut writer = begin(&database, RC);
        update(&mut writer, &def, 2, |_| v).unwrap();
        fill_undo(&mut writer, &def);
        writer.commit().unwrap();
    };
    change(20);
    let seen = scan_while(&mut reader, &def, 2, &mut || {
        for round in 0..20 {
            database.tick().unwrap();
            change(100 + round);
        }
    });
    assert_eq!(state(seen), "72000");
}

/// A rollback to a savepoint empties undo slots, and the same transaction fills them again.
#[test]
fn an_undo_slot_that_was_popped_and_filled_again_leads_to_the_committed_row() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1), (2, 2), (3, 3)]);
    let mut writer = begin(&database, RC);
    let start = writer.savepoint();
    update(&mut writer, &def, 2, |_| 20).unwrap();
    update(&mut writer, &def, 2, |_| 21).unwrap();
    update(&mut writer, &def, 3, |_| 30).unwrap();
    let mut reader = begin(&database, RC);
    let seen = scan_while(&mut reader, &def, 3, &mut || {
        writer.rollback_to(start).unwrap();
        update(&mut writer, &def, 3, |_| 31).unwrap();
        update(&mut writer, &def, 2, |_| 22).unwrap();
        update(&mut writer, &def, 2, |_| 23).unwrap();
    });
    assert_eq!(seen.unwrap(), [(1, 1), (2, 2), (3, 3)]);
}

/// Makes a row with an older version, whose undo page is not in memory, a snapshot that needs it, and a
/// device that can fail.
fn with_undo_on_disk() -> (Arc<Faulty>, Arc<Database>, Arc<TableDef>, Transaction) {
    let faulty = Faulty::wrap(MemoryDirectory::new());
    let mut options = options(&MemoryDirectory::new());
    options.pager.rollback = faulty.clone();
    options.pager.pool_bytes = 4 << 20;
    let database = Database::open(options).unwrap();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1), (9, 0)]);
    let reader = begin(&database, RR);
    let mut writer = begin(&database, RC);
    update(&mut writer, &def, 1, |_| 2).unwrap();
    fill_undo(&mut writer, &def);
    writer.commit().unwrap();
    let large = create(&database, "large");
    load(&database, &large, (0..60_000).map(|id| (id, id)));
    database.checkpoint().unwrap();
    assert_eq!(all(&database, &large).len(), 60_000);
    (faulty, database, def, reader)
}

fn break_undo(faulty: &Faulty) {
    let fault = Fault::Fails(ErrorKind::Io(5));
    let (operation, space) = (Some(Operation::Read), Some(Space::Rollback));
    faulty.arm(Rule { operation, space, when: When::From(1), fault });
}

#[test]
fn a_reader_reports_undo_that_cannot_be_read() {
    let (faulty, _database, def, mut reader) = with_undo_on_disk();
    break_undo(&faulty);
    assert_eq!(state(see_again(&mut reader, &def, 1)), "58030");
    assert_eq!(state(rows(&mut reader, &def)), "58030");
    assert!(faulty.fired_count() < 10, "read {} times", faulty.fired_count());
    faulty.disarm();
    assert_eq!(see_again(&mut reader, &def, 1).unwrap(), Some(1));
}

/// An index without entries for the versions that cannot be read would hide these versions from the old
/// snapshot.
#[test]
fn an_index_is_not_built_from_versions_that_cannot_be_read() {
    let (faulty, database, def, mut reader) = with_undo_on_disk();
    let (name, columns) = ("t_v".to_owned(), vec![1]);
    let new = NewIndex { table: def.id, name, columns, unique: false, constraint: false, tablespace: None };
    break_undo(&faulty);
    let mut ddl = begin(&database, RC);
    assert_eq!(state(ddl.create_index(new.clone())), "58030");
    faulty.disarm();
    let def = ddl.create_index(new).unwrap();
    ddl.commit().unwrap();
    assert_eq!(by_v(&mut reader, &def, 1), [(1, 1)]);
}
