//! Tests of a tablespace with the real server: its tables survive a kill, a start without its directory is
//! refused, and `varve check` reads it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use crate::serve::Served;

/// Runs `varve check`. Returns its exit code and its output.
fn check(directory: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["check", directory.to_str().unwrap(), "--pool", "16MiB"])
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn a_tablespace_outlives_a_kill_and_is_missed_at_a_start() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, fast, away] = ["data", "fast", "away"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&fast).unwrap();
    let server = Served::start(&data);
    let mut client = server.connect();
    client.batch_execute(&format!("create tablespace fast location '{}'", fast.display())).unwrap();
    client.batch_execute("create table t (a int primary key, b text) tablespace fast").unwrap();
    client
        .batch_execute("insert into t select n, repeat('x', 100) from generate_series(1, 20000) n")
        .unwrap();
    server.stop("-KILL");

    std::fs::rename(&fast, &away).unwrap();
    let (code, text) = check(&data);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("tablespace \"fast\" is at") && text.contains("Nothing was changed"), "{text}");
    std::fs::rename(&away, &fast).unwrap();

    let server = Served::start(&data);
    let mut client = server.connect();
    let count: i64 =
        client.query_one("select count(*) from t where b = repeat('x', 100)", &[]).unwrap().get(0);
    assert_eq!(count, 20_000);
    client.batch_execute("alter table t set tablespace pg_default").unwrap();
    client.batch_execute("drop tablespace fast").unwrap();
    let left: Vec<_> = std::fs::read_dir(&fast).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "varve.lock"), "{left:?}");
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
    let (code, text) = check(&data);
    assert!(code == Some(0) && text.contains("no damage found"), "{text}");
}
