//! A crash at any write of CREATE DATABASE and DROP DATABASE leaves the whole database or nothing of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::*;
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_engine::{Database, DatabaseDef, NewSequence, NewTable, Options, TEMPLATE1};

const ROWS: i32 = 300;
/// The number of moments at which the power fails. They are spread over all writes.
const CUTS: u64 = 40;

fn open_in(directory: Arc<dyn Directory>) -> Arc<Database> {
    let mut options: Options = options(&MemoryDirectory::new());
    let pager = &mut options.pager;
    pager.data = directory.clone();
    pager.log = directory.clone();
    pager.rollback = directory.clone();
    pager.temporary = directory.clone();
    pager.control = directory;
    Database::open(options).unwrap()
}

/// Fills the database `app` in one transaction.
fn fill(database: &Arc<Database>) {
    let app = database.begin(RC).catalog().database_named("app").unwrap().id;
    let mut txn = database.begin_in(app, RC);
    let columns =
        || vec![column("id", varve_engine::ColumnType::Int4), column("v", varve_engine::ColumnType::Int4)];
    let table = txn.create_table(NewTable::new("public", "t", columns())).unwrap();
    txn.create_schema("s").unwrap();
    txn.create_table(NewTable::new("s", "t", columns())).unwrap();
    txn.create_sequence(NewSequence::ascending("s", "q")).unwrap();
    txn.set_about(table.id, |about| about.set_comment(None, Some("said".into()))).unwrap();
    txn.commit().unwrap();
}

fn settle(database: &Arc<Database>) {
    let pager = database.pager();
    pager.flush_log(pager.log().end()).unwrap();
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
}

/// Opens the directory as it is after a crash at many moments of `log`, and gives `judge` the last mark
/// before.
fn at_every_cut(log: &RecordLog, judge: impl Fn(&Arc<Database>, u64, &str)) {
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut in (1..=CUTS).map(|part| end * part / CUTS) {
        timeline.advance(cut);
        let mark = timeline.marks().last().copied().unwrap_or(0);
        let pending = timeline.pending().len() as u64;
        for style in 0..3 {
            let fate = |n: u64| match style {
                0 => Fate::Absent,
                1 => Fate::Present,
                _ if n.is_multiple_of(2) => Fate::Torn { unit_bytes: 512, seed: cut + n },
                _ => Fate::Absent,
            };
            let fates: Vec<Fate> = (0..pending).map(fate).collect();
            let database = open_in(timeline.image(&fates).remove(0));
            judge(&database, mark, &format!("cut {cut} of {end}, style {style}"));
        }
    }
}

/// Returns what is left of the database `app`: all, or nothing.
fn is_there(database: &Arc<Database>, what: &str) -> bool {
    let catalog = database.begin(RC).catalog();
    let found = catalog.database_named("app").cloned();
    let elsewhere: Vec<_> =
        catalog.all_tables().filter(|table| table.database != catalog.database()).collect();
    let Some(app) = found else {
        assert!(elsewhere.is_empty(), "{what}: tables of a database that is gone");
        return false;
    };
    let inside = catalog.of_database(app.id);
    assert!(inside.has_schema("public"), "{what}: a database without its schema");
    assert_eq!(inside.about(app.id).map(|about| about.owner), None, "{what}");
    true
}

#[test]
fn creating_and_dropping_a_database_is_whole_or_nothing() {
    let inner = MemoryDirectory::new();
    settle(&open_in(inner.clone()));
    let log = RecordLog::new();
    let database = open_in(Recorder::wrap(inner, log.clone()));
    let old = create(&database, "old");
    load(&database, &old, (0..ROWS).map(|i| (i, i)));
    log.mark(1);
    let mut txn = database.begin(RC);
    let app = txn.create_database(DatabaseDef::new("app"), TEMPLATE1).unwrap();
    settle(&database);
    txn.commit().unwrap();
    log.mark(2);
    fill(&database);
    log.mark(3);
    let mut txn = database.begin(RC);
    txn.drop_database(app).unwrap();
    settle(&database);
    txn.commit().unwrap();
    log.mark(4);
    settle(&database);
    drop(database);
    at_every_cut(&log, |database, mark, what| {
        let there = is_there(database, what);
        match mark {
            0 => assert!(!there, "{what}: a database that nobody made"),
            2 => assert!(there, "{what}: the database is lost"),
            4 => assert!(!there, "{what}: the database is back"),
            _ => {}
        }
        if there && mark == 3 {
            let app = database.begin(RC).catalog().database_named("app").unwrap().id;
            let inside = database.begin_in(app, RC).catalog();
            assert_eq!(inside.tables().count(), 2, "{what}");
            assert_eq!(inside.sequences().count(), 1, "{what}");
            let table = inside.table("public", "t").unwrap();
            assert_eq!(inside.about(table.id).and_then(|about| about.comment(None)), Some("said"), "{what}");
        }
        if mark > 0 {
            let old = database.begin(RC).catalog().table("public", "old").unwrap();
            assert_eq!(all(database, &old).len(), ROWS as usize, "{what}");
        }
        is_sound(database);
    });
}
