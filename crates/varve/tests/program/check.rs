//! `varve check` of a database whose server was killed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use postgres::{Client, NoTls};

const PROGRAM: &str = env!("CARGO_BIN_EXE_varve");

/// The start rolls the transaction back in the background, while the check reads all pages.
#[test]
fn an_open_transaction_that_was_killed_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut server = Command::new(PROGRAM)
        .args(["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let listening = "listening on 127.0.0.1:";
    let port = lines.find_map(|line| line.unwrap().strip_prefix(listening).map(str::to_owned)).unwrap();
    let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let mut client = Client::connect(&config, NoTls).unwrap();
    client.batch_execute("create table t (id int primary key, v int); create index on t (v)").unwrap();
    client.batch_execute("insert into t select i, i from generate_series(1, 20000) i").unwrap();
    client.batch_execute("begin; update t set v = v + 1; checkpoint").unwrap();
    client.batch_execute("insert into t select i, i from generate_series(20001, 100000) i").unwrap();
    // Another session makes the log durable.
    let mut other = Client::connect(&config, NoTls).unwrap();
    other.batch_execute("create table u (id int primary key)").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let checked = Command::new(PROGRAM).arg("check").arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{told}{}", String::from_utf8_lossy(&checked.stderr));
    assert!(told.contains("no damage found"), "{told}");
}
