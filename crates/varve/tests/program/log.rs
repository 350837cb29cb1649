//! The server's log: what `varve serve` writes on stderr.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use postgres::{Client, NoTls};

fn serve(directory: &std::path::Path) -> (Child, u16) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["serve", directory.to_str().unwrap(), "--listen", "127.0.0.1:0", "--pool", "16MiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("listening on 127.0.0.1:")?.parse().ok()).unwrap();
    (process, port)
}

fn connect(port: u16, database: &str) -> Result<Client, postgres::Error> {
    Client::connect(&format!("host=127.0.0.1 port={port} user=postgres dbname={database}"), NoTls)
}

/// Runs statements. Returns what the server wrote on stderr.
fn logged(statements: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (mut process, port) = serve(directory.path());
    assert!(connect(port, "nosuch").is_err());
    let mut client = connect(port, "postgres").unwrap();
    for statement in statements {
        // Some statements are meant to fail.
        let _ = client.simple_query(statement);
    }
    client.execute("select $1::text", &[&"prepared"]).unwrap();
    drop(client);
    process.kill().unwrap();
    process.wait().unwrap();
    let mut text = String::new();
    process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Found earlier: neither name was a setting.
#[test]
fn connections_are_in_the_log_if_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (mut process, port) = serve(directory.path());
    let mut client = connect(port, "postgres").unwrap();
    client.batch_execute("alter system set log_connections = on").unwrap();
    client.batch_execute("alter system set log_disconnections = on").unwrap();
    let shown = |client: &mut Client| -> String {
        client.query_one("select current_setting('log_connections')", &[]).unwrap().get(0)
    };
    assert_eq!(shown(&mut client), "off", "a session keeps what it began with");
    assert_eq!(shown(&mut connect(port, "postgres").unwrap()), "on");
    let refused = client.batch_execute("set log_connections = off").unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55P02");
    drop(client);
    drop(connect(port, "postgres").unwrap());
    // The first session began before its connection was to be logged.
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let wanted = [
        "LOG:  connection received: host=127.0.0.1 port=",
        "LOG:  connection authorized: user=postgres database=postgres",
        "LOG:  disconnection: session time: 0:00:0",
    ];
    // The end of this session may be noted after the beginning of the next one, which has another number.
    let first = lines.next().unwrap();
    let number = &first[first.find('[').unwrap()..=first.find(']').unwrap()];
    let of_session = std::iter::once(first.clone()).chain(lines.filter(|line| line.contains(number)));
    // The order matters, because the test does not wait for lines after the last wanted one.
    for (wanted, line) in wanted.into_iter().zip(of_session) {
        assert!(line.contains(wanted), "{line}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Found earlier: `SET log_statement` and similar settings had no effect, and refused sessions were not
/// logged.
#[test]
fn what_was_asked_for_is_in_the_log() {
    let quiet = logged(&["create table t (a int)", "select 1/0"]);
    let refused = "FATAL:  3D000: database \"nosuch\" does not exist (client 127.0.0.1:";
    assert!(quiet.contains(refused), "{quiet}");
    assert_eq!(quiet.lines().count(), 1, "{quiet}");

    let ddl = logged(&["set log_statement = 'ddl'", "create table t (a int)", "insert into t values (1)"]);
    assert!(ddl.contains("postgres@postgres LOG:  statement: create table t (a int)\n"), "{ddl}");
    assert!(!ddl.contains("insert") && !ddl.contains("prepared") && !ddl.contains("$1"), "{ddl}");

    let all = logged(&["set log_statement = 'all'", "select 1", "set log_statement = 'none'", "select 2"]);
    assert!(all.contains("LOG:  statement: select 1\n") && !all.contains("select 2"), "{all}");
    let prepared = logged(&["set log_statement = 'all'"]);
    assert!(prepared.contains("LOG:  execute: select $1::text\n"), "{prepared}");

    let slow =
        logged(&["set log_min_duration_statement = 0", "select 3", "reset log_min_duration_statement"]);
    assert!(slow.contains("LOG:  duration: ") && slow.contains(" ms  statement: select 3\n"), "{slow}");

    let errors = logged(&["set log_min_messages = 'error'", "select 1/0"]);
    assert!(errors.contains("ERROR:  22012: division by zero\n\tSTATEMENT:  select 1/0\n"), "{errors}");
}
