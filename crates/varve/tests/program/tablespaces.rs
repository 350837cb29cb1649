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
    let lock = varve_device::DirLock::take(&fast);
    assert!(lock.is_ok(), "the directory is not in use any more: {lock:?}");
    drop(lock);
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
    let (code, text) = check(&data);
    assert!(code == Some(0) && text.contains("no damage found"), "{text}");
}

/// The codes of PostgreSQL 15 for the same mistakes.
#[test]
fn a_bad_location_has_the_code_of_postgresql() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, file, used] = ["data", "file", "used"].map(|name| scratch.path().join(name));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&used).unwrap();
    let lock = varve_device::DirLock::take(&used).unwrap();
    let server = Served::start(&data);
    let mut client = server.connect();
    let mut refused = |location: &Path| {
        let error = client.batch_execute(&format!("create tablespace x location '{}'", location.display()));
        error.unwrap_err().as_db_error().unwrap().code().code().to_owned()
    };
    assert_eq!(refused(Path::new("relative")), "42P17");
    assert_eq!(refused(&scratch.path().join("missing")), "58P01");
    assert_eq!(refused(&file), "42809");
    assert_eq!(refused(&file.join("below")), "42809");
    assert_eq!(refused(&used), "55006");
    drop(lock);
    assert_eq!(refused(&data), "55006");
    client.batch_execute(&format!("create tablespace x location '{}'", used.display())).unwrap();
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
}
