//! AS OF and the setting `as_of`: queries that read an earlier moment.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Recorder, database, session};
use crate::waiting::{ask, run};
use varve_sql::{Session, SqlDatabase};

fn filled() -> (Arc<SqlDatabase>, Session) {
    let db = database();
    db.engine().set_undo_retention(Duration::from_secs(3600));
    let mut s = session(&db);
    run(&mut s, "create table t (id int primary key, v int); create index t_v on t (v)");
    run(&mut s, "insert into t values (1, 10), (2, 20)");
    (db, s)
}

fn one(s: &mut Session, sql: &str) -> String {
    let [line] = <[String; 1]>::try_from(ask(s, sql)).unwrap();
    line
}

/// Returns the present as a time and as an LSN, and then changes rows.
fn then_changed(s: &mut Session) -> (String, String) {
    let lsn = one(s, "select pg_current_wal_lsn()");
    let time = one(s, "select clock_timestamp()");
    std::thread::sleep(Duration::from_millis(1));
    run(s, "update t set v = v + 1; delete from t where id = 2; insert into t values (3, 30)");
    (time, lsn)
}

#[test]
fn a_query_reads_an_earlier_moment() {
    let (_db, mut s) = filled();
    let (time, lsn) = then_changed(&mut s);
    let (present, past) = (["1|11", "3|30"], ["1|10", "2|20"]);
    for as_of in [format!("as of timestamp '{time}'"), format!("AS OF LSN '{lsn}' ;")] {
        assert_eq!(ask(&mut s, &format!("select id, v from t order by id {as_of}")), past, "{as_of}");
        assert_eq!(ask(&mut s, &format!("select id from t where v = 20 {as_of}")), ["2"]);
        assert_eq!(ask(&mut s, &format!("select id from t where id = 3 {as_of}")), [""; 0]);
        assert_eq!(ask(&mut s, &format!("select sum(v) from t {as_of}")), ["30"]);
        assert_eq!(ask(&mut s, "select id, v from t order by id"), present, "the next statement");
    }
    let texts = format!("select count(*) from t as of lsn '{lsn}'; select sum(v) from t");
    assert_eq!(ask(&mut s, &texts), ["2", "41"]);
    let mut recorder = Recorder::default();
    recorder.extended(&mut s, &format!("select v from t where id = 2 as of lsn '{lsn}'"), &[]);
    assert_eq!(recorder.lines.first().map(String::as_str), Some("20"), "{:?}", recorder.lines);
}

#[test]
fn the_setting_holds_for_all_statements() {
    let (_db, mut s) = filled();
    let (time, lsn) = then_changed(&mut s);
    for value in [time, format!("lsn {lsn}")] {
        run(&mut s, &format!("set as_of = '{value}'"));
        assert_eq!(ask(&mut s, "select sum(v) from t"), ["30"], "{value}");
        assert_eq!(
            ask(&mut s, "begin; select count(*) from t where v = 20; select v from t where id = 1; commit"),
            ["1", "10"]
        );
        for change in ["insert into t values (9, 9)", "create table u (a int)", "truncate t"] {
            let refused = one(&mut s, change);
            assert!(refused.starts_with("! 25006"), "{change}: {refused}");
        }
        run(&mut s, "reset as_of");
        assert_eq!(ask(&mut s, "select sum(v) from t"), ["41"]);
    }
    run(&mut s, "begin");
    run(&mut s, &format!("set local as_of = 'LSN {lsn}'"));
    assert_eq!(ask(&mut s, "select sum(v) from t"), ["30"]);
    run(&mut s, "commit");
    run(&mut s, "update t set v = 12 where id = 1");
    run(&mut s, "set as_of = '-0 s'");
    assert_eq!(ask(&mut s, "select sum(v) from t"), ["42"]);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let (_db, mut s) = filled();
    let (_, lsn) = then_changed(&mut s);
    let refused = |s: &mut Session, sql: &str, state: &str| {
        let line = one(s, sql);
        assert!(line.starts_with(&format!("! {state}")), "{sql}: {line}");
    };
    refused(&mut s, "select 1 as of timestamp '2001-01-01'", "72000");
    refused(&mut s, "select 1 as of timestamp '-2 hours'", "72000");
    refused(&mut s, "select 1 as of timestamp '2999-01-01'", "22023");
    refused(&mut s, "select 1 as of timestamp 'infinity'", "22023");
    refused(&mut s, "select 1 as of lsn 'FFFFFFFF/0'", "22023");
    refused(&mut s, "select 1 as of lsn '12'", "22P02");
    refused(&mut s, "select 1 as of timestamp 'soon'", "22007");
    refused(&mut s, "select 1 as of timestamp '-1 month'", "22023");
    refused(&mut s, "set as_of = 'soon'", "22007");
    refused(&mut s, "set as_of = 'lsn x'", "22P02");
    refused(&mut s, "update t set v = 1 as of lsn '0/0'", "0A000");
    run(&mut s, "begin");
    refused(&mut s, &format!("select 1 as of lsn '{lsn}'"), "25001");
    run(&mut s, "rollback");
    refused(&mut s, &format!("select * from t for update as of lsn '{lsn}'"), "25006");
    run(&mut s, "create table m (a int primary key) using nvm_inplace");
    let lsn = one(&mut s, "select pg_current_wal_lsn()");
    refused(&mut s, &format!("select * from m as of lsn '{lsn}'"), "0A000");
    run(&mut s, "create table later (a int primary key)");
    let message = "relation \"later\" did not exist at this moment: it was created later";
    assert_eq!(one(&mut s, &format!("select * from later as of lsn '{lsn}'")), format!("! 42P01 {message}"));
    assert_eq!(ask(&mut s, "select * from later"), [""; 0]);
    run(&mut s, "truncate t");
    refused(&mut s, &format!("select * from t as of lsn '{lsn}'"), "72000");
}

/// A cursor and COPY read the moment of the setting, too.
#[test]
fn cursors_and_copy_read_the_moment() {
    let (_db, mut s) = filled();
    let (_, lsn) = then_changed(&mut s);
    run(&mut s, &format!("set as_of = 'lsn {lsn}'"));
    run(&mut s, "begin; declare c cursor for select v from t order by id");
    assert_eq!(ask(&mut s, "fetch all from c"), ["10", "20"]);
    run(&mut s, "commit");
    let mut recorder = Recorder::default();
    recorder.simple(&mut s, "copy t to stdout");
    assert_eq!(recorder.lines, ["1\t10", "2\t20", "= COPY 2"]);
    assert!(one(&mut s, "copy t from stdin").starts_with("! 25006"));
    assert!(!ask(&mut s, "explain select sum(v) from t").is_empty());
}

/// The moment may be any expression that reads no row, with the parameters of the statement.
#[test]
fn the_moment_is_an_expression() {
    let (_db, mut s) = filled();
    let (time, lsn) = then_changed(&mut s);
    for as_of in [
        format!("timestamp cast('{time}' as timestamptz)"),
        format!("timestamp '{time}'::timestamptz + interval '0 s'"),
        format!("lsn '' || '{lsn}'"),
    ] {
        assert_eq!(
            ask(&mut s, &format!("select sum(v) from t where id < 9 as of {as_of}")),
            ["30"],
            "{as_of}"
        );
    }
    assert_eq!(ask(&mut s, "select sum(v) from t as of timestamp now() - interval '0 s'"), ["41"]);
    let mut bound = Recorder::default();
    bound.extended(
        &mut s,
        "select v from t where id = $1 as of timestamp $2",
        &[Some("2".into()), Some(time)],
    );
    assert_eq!(bound.lines.first().map(String::as_str), Some("20"), "{:?}", bound.lines);
    let mut bound = Recorder::default();
    bound.extended(&mut s, "select v from t where id = $2 as of lsn $1", &[Some(lsn), Some("2".into())]);
    assert_eq!(bound.lines.first().map(String::as_str), Some("20"), "{:?}", bound.lines);
    for (moment, state) in [
        ("now() - interval '2 hours'", "72000"),
        ("now() + interval '2 hours'", "22023"),
        ("null", "22004"),
        ("v", "42703"),
        ("(select now())", "0A000"),
        ("max(now())", "42803"),
        ("5", "42846"),
    ] {
        let refused = one(&mut s, &format!("select 1 from t as of timestamp {moment}"));
        assert!(refused.starts_with(&format!("! {state}")), "{moment}: {refused}");
    }
}
