//! Tests of the views that show what the server does: accesses to tables, statements, devices, resets.

use std::sync::Arc;

use crate::support::{Recorder, database, session};
use varve_sql::{Session, SqlDatabase, StatementStats};

fn run(session: &mut Session, sql: &str) -> Vec<String> {
    let mut recorder = Recorder::default();
    recorder.simple(session, sql);
    recorder.lines
}

/// Returns the cells of the result's only row.
fn row(session: &mut Session, sql: &str) -> Vec<String> {
    let lines = run(session, sql);
    assert_eq!(lines.len(), 2, "{sql}: {lines:?}");
    lines[0].split('|').map(str::to_owned).collect()
}

const TABLE: &str = "create table t (id int primary key, v int, w int); create index t_v on t (v);
                     insert into t select n, n, n from generate_series(1, 10) n";

/// Found earlier: these counters were NULL or 0.
#[test]
fn accesses_to_tables_and_indexes_are_counted() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, TABLE);
    run(&mut s, "update t set w = 0 where id = 3");
    run(&mut s, "delete from t where id = 4");
    let counts =
        "select n_tup_ins, n_tup_upd, n_tup_del, n_live_tup, seq_scan, seq_tup_read, idx_scan, idx_tup_fetch
                  from pg_stat_user_tables where relname = 't'";
    let before = row(&mut s, counts);
    assert_eq!(before[..4], ["10", "1", "1", "9"], "{before:?}");
    let difference = |s: &mut Session, before: &[String], sql: &str| -> Vec<i64> {
        run(s, sql);
        let after = row(s, counts);
        let pairs = before.iter().zip(&after).skip(4);
        pairs.map(|(a, b)| b.parse::<i64>().unwrap() - a.parse::<i64>().unwrap()).collect()
    };
    assert_eq!(difference(&mut s, &before, "select sum(w) from t"), [1, 9, 0, 0]);
    let before = row(&mut s, counts);
    assert_eq!(difference(&mut s, &before, "select w from t where id = 7"), [0, 0, 1, 1]);
    let before = row(&mut s, counts);
    assert_eq!(difference(&mut s, &before, "select w from t where v = 7"), [0, 0, 1, 1]);
    let index = "select idx_scan > 0, idx_tup_read > 0 from pg_stat_user_indexes where indexrelname = 't_v'";
    assert_eq!(row(&mut s, index), ["t", "t"]);
    // A new definition of the table keeps the counters, and a rollback does not undo them.
    run(&mut s, "alter table t add column x int");
    run(&mut s, "begin; insert into t values (20, 20, 20); rollback");
    assert_eq!(row(&mut s, counts)[0], "11");
    run(&mut s, "select pg_stat_reset()");
    assert_eq!(
        row(&mut s, "select n_tup_ins, n_tup_upd, seq_scan from pg_stat_user_tables where relname = 't'"),
        ["0", "0", "0"]
    );
    let reset = "select xact_commit, stats_reset > now() - interval '1 hour' from pg_stat_database where datname = 'postgres'";
    assert_eq!(row(&mut s, reset), ["0", "t"]);
}

#[test]
fn only_superusers_reset_counters() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create role reader");
    for call in ["pg_stat_reset()", "pg_stat_reset_shared('bgwriter')", "pg_stat_statements_reset()"] {
        let refused = run(&mut s, &format!("set role reader; select {call}")).join("\n");
        assert!(refused.contains("42501"), "{call}: {refused}");
        let done = run(&mut s, &format!("reset role; select {call}")).join("\n");
        assert!(!done.contains('!'), "{call}: {done}");
    }
    let unknown = run(&mut s, "select pg_stat_reset_shared('nothing')").join("\n");
    assert!(unknown.contains("22023") && unknown.contains("unrecognized reset target"), "{unknown}");
}

#[test]
fn checkpoints_and_the_log_are_counted() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, TABLE);
    run(&mut s, "select pg_stat_reset_shared('bgwriter'), pg_stat_reset_shared('wal')");
    let counts = "select checkpoints_req from pg_stat_bgwriter";
    assert_eq!(row(&mut s, counts), ["0"]);
    run(&mut s, "checkpoint");
    assert_eq!(row(&mut s, counts), ["1"]);
    run(&mut s, "insert into t values (11, 11, 11)");
    let log = "select wal_records > 0, wal_bytes > 0, wal_write > 0 from pg_stat_wal";
    assert_eq!(row(&mut s, log), ["t", "t", "t"]);
}

fn counted(max: usize) -> (Arc<SqlDatabase>, Arc<StatementStats>) {
    let statements = Arc::new(StatementStats::default());
    statements.set_max(max);
    let engine = Arc::clone(database().engine());
    (Arc::new(SqlDatabase::new(engine).with_statements(Arc::clone(&statements))), statements)
}

#[test]
fn statements_are_counted_without_their_literals() {
    let (db, statements) = counted(100);
    let mut s = session(&db);
    run(&mut s, TABLE);
    for id in 1..=3 {
        run(&mut s, &format!("select w from t where id = {id}"));
    }
    run(&mut s, "select w from t where id = 99");
    run(&mut s, "select 1 / 0");
    let of = |text: &str| {
        format!(
            "select query, calls, rows, total_exec_time > 0, min_exec_time <= mean_exec_time,
                    mean_exec_time <= max_exec_time, shared_blks_hit + shared_blks_read > 0, toplevel
             from pg_stat_statements where query like '{text}'"
        )
    };
    let found = row(&mut s, &of("select w from t where id = %"));
    assert_eq!(found, ["select w from t where id = $1", "4", "3", "t", "t", "t", "t", "t"]);
    let insert = row(&mut s, "select calls, rows from pg_stat_statements where query like 'insert into t%'");
    assert_eq!(insert, ["1", "10"]);
    assert_eq!(
        row(&mut s, "select count(*) from pg_stat_statements where query like '%/%'"),
        ["0"],
        "it failed"
    );
    // A prepared statement counts under its own text, and EXECUTE does not count.
    run(&mut s, "prepare p (int) as select v from t where id = $1");
    run(&mut s, "execute p(1); execute p(2)");
    let prepared =
        row(&mut s, "select calls from pg_stat_statements where query like 'select v from t where id%'");
    assert_eq!(prepared, ["2"]);
    // Statements that run within another one do not count.
    run(&mut s, "create table made as select w from t");
    let within =
        "select query, calls from pg_stat_statements where query ilike '%made%' and query not like '%ilike%'";
    assert_eq!(row(&mut s, within), ["create table made as select w from t", "1"]);
    let levels = "select count(*) > 0 from varve_statement_pages where level = 'pool' and pages > 0";
    assert_eq!(row(&mut s, levels), ["t"]);
    // Other roles see no text.
    run(&mut s, "create role reader; set role reader");
    let hidden = "select count(*) from pg_stat_statements where query = '<insufficient privilege>' and queryid is null";
    assert_ne!(row(&mut s, hidden), ["0"]);
    run(&mut s, "reset role; select pg_stat_statements_reset()");
    assert_eq!(row(&mut s, "select count(*) from pg_stat_statements where query like 'select w%'"), ["0"]);
    assert_eq!(row(&mut s, "select dealloc, stats_reset is null from pg_stat_statements_info"), ["0", "f"]);
    statements.set_max(0);
    run(&mut s, "select w from t where id = 5");
    assert_eq!(row(&mut s, "select count(*) from pg_stat_statements where query like 'select w%'"), ["0"]);
}

#[test]
fn pages_of_tables_are_counted_while_statements_are() {
    let (db, _statements) = counted(100);
    let mut s = session(&db);
    run(&mut s, TABLE);
    run(&mut s, "select w from t where id = 7; select w from t where v = 7");
    let pages = "select heap_blks_hit + heap_blks_read > 0, idx_blks_hit + idx_blks_read > 0 from pg_statio_user_tables
                 where relname = 't'";
    assert_eq!(row(&mut s, pages), ["t", "t"]);
}

#[test]
fn devices_and_the_pool_are_shown() {
    let db = database();
    let mut s = session(&db);
    db.engine().set_io_latencies(true);
    run(&mut s, TABLE);
    run(&mut s, "checkpoint");
    let devices = "select count(*) > 0, sum(written_bytes) > 0 from varve_devices
                   where coalesce(durable_write_p50_us, write_p50_us) is not null";
    assert_eq!(row(&mut s, devices), ["t", "t"]);
    let device = db.engine().devices()[0].location.clone();
    db.engine().set_rated_bytes(vec![(device, 1 << 50)]);
    let rated =
        "select count(*) from varve_devices where rated_write_bytes = 1125899906842624 and rated_years > 0";
    assert_eq!(row(&mut s, rated), ["1"]);
    run(&mut s, "select pg_stat_reset_shared('io')");
    db.engine().set_io_latencies(false);
    let pool = "select count(*) from varve_levels where level = 'pool' and value > 0 and counter in ('used_bytes', 'read_hits')";
    assert_eq!(row(&mut s, pool), ["2"]);
}
