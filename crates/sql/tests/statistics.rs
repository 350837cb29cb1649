//! What SHOW says about the server itself.

mod support;

use support::{Recorder, database, session};
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
