//! Tests of the statistics that SHOW prints about the server.

use crate::support::{Recorder, database, session};
use varve_sql::Session;

fn rows(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let mut recorder = Recorder::default();
    recorder.simple(session, sql);
    let rows = recorder.lines.iter().filter(|line| line.contains('|') && !line.starts_with(['#', '=', '!']));
    rows.map(|line| line.trim().split('|').map(str::to_owned).collect()).collect()
}

fn bytes_written(session: &mut Session, purpose: &str) -> u64 {
    let all = rows(session, "show varve.io");
    all.iter().filter(|row| row[1] == purpose).filter_map(|row| row[5].parse::<u64>().ok()).sum()
}

fn commits(session: &mut Session) -> u64 {
    let all = rows(session, "show varve.stats");
    all.iter()
        .find(|row| row[0] == "commits")
        .and_then(|row| row[1].parse().ok())
        .expect("a count of commits")
}

#[test]
fn a_commit_is_written_to_the_log_and_counted() {
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(&mut s, "create table t (a int primary key)");
    let (bytes_before, commits_before) = (bytes_written(&mut s, "log"), commits(&mut s));
    Recorder::default().simple(&mut s, "insert into t values (1)");
    assert!(bytes_written(&mut s, "log") > bytes_before);
    assert_eq!(commits(&mut s), commits_before + 1);
}

/// SHOW and the system table of the same name return the same columns and rows.
#[test]
fn what_show_says_can_be_queried() {
    let mut s = session(&database());
    for (name, table) in [
        ("durability", "varve_durability"),
        ("varve.archive", "varve_archive"),
        ("varve.compression", "varve_compression"),
        ("varve.devices", "varve_devices"),
        ("varve.io", "varve_io"),
        ("varve.io_trace", "varve_io_trace"),
        ("varve.levels", "varve_levels"),
        ("varve.nvm", "varve_nvm"),
        ("varve.stats", "varve_stats"),
    ] {
        let (mut shown, mut queried) = (Recorder::default(), Recorder::default());
        shown.simple(&mut s, &format!("show {name}"));
        queried.simple(&mut s, &format!("select * from {table}"));
        assert_eq!(shown.columns, queried.columns, "{name}");
        assert_eq!(shown.lines.len(), queried.lines.len(), "{name}: {:?}", shown.lines);
    }
    let mut durable = Recorder::default();
    durable.simple(&mut s, "select part, medium, survives from varve_durability order by part");
    let memory = ["control", "copies", "log", "old versions", "pages", "protection"].map(|part| {
        let medium = if part == "protection" { "doublewrite" } else { "memory" };
        format!("{part}|{medium}|nothing")
    });
    assert_eq!(durable.lines[..6], memory);
    let levels = rows(&mut s, "show varve.levels");
    let mut names: Vec<_> = levels.iter().map(|row| &row[..3]).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), levels.len(), "a counter has one row: {levels:?}");
    assert!(levels.iter().any(|row| row[0] == "home" && row[2] == "pages_written"), "{levels:?}");
}

/// Only superusers and members of `pg_read_all_stats` see devices.
#[test]
fn the_trace_is_not_for_every_role() {
    let db = database();
    let mut s = session(&db);
    db.engine().set_io_trace(100);
    let run = |s: &mut Session, sql: &str| {
        let mut recorder = Recorder::default();
        recorder.simple(s, sql);
        recorder.lines.join("\n")
    };
    run(&mut s, "create role reader; create table t (a int primary key)");
    assert!(rows(&mut s, "show varve.io_trace").iter().any(|row| row[4] == "log"));
    // Another number begins a new trace.
    db.engine().set_io_trace(101);
    assert!(rows(&mut s, "show varve.io_trace").is_empty());
    let refused = run(&mut s, "set role reader; select * from varve_io_trace");
    assert!(refused.contains("42501"), "{refused}");
    let allowed = run(
        &mut s,
        "reset role; grant pg_read_all_stats to reader; set role reader; select count(*) from varve_io_trace",
    );
    assert!(!allowed.contains("42501"), "{allowed}");
}
