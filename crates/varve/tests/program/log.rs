//! The server's log: what `varve serve` writes on stderr, or to a file.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
    let quiet = logged(&["create table t (a int)", "set log_min_messages = 'fatal'", "select 1/0"]);
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

    let errors = logged(&["select 1/0", "selec", "set log_min_error_statement = 'fatal'", "select 2/0"]);
    assert!(errors.contains("ERROR:  22012: division by zero\n\tSTATEMENT:  select 1/0\n"), "{errors}");
    assert!(errors.contains("42601") && errors.contains("\tSTATEMENT:  selec\n"), "{errors}");
    let (first, second) = (errors.matches("22012").count(), errors.matches("select 2/0").count());
    assert_eq!((first, second), (2, 0), "{errors}");
}

/// Starts a server with these lines in varve.toml.
fn serve_with(directory: &Path, settings: &str) -> (Child, u16) {
    std::fs::write(directory.join("varve.toml"), settings).unwrap();
    serve(directory)
}

/// Waits until the text of a file is as wanted, and returns it.
fn await_text(path: &Path, is_right: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for _ in 0..200 {
        text = std::fs::read_to_string(path).unwrap_or_default();
        if is_right(&text) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{} has only: {text}", path.display());
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_file_of_json_lines_is_opened_again_after_sighup() {
    let directory = tempfile::tempdir().unwrap();
    let settings = "[server]\nlog_file = 'messages.json'\nlog_format = 'json'\nlog_connections = true\n\
                    log_min_duration_statement = '0ms'\n";
    let (process, port) = serve_with(directory.path(), settings);
    let file = directory.path().join("messages.json");
    let mut client = connect(port, "postgres").unwrap();
    client.batch_execute("select 'first\nline'").unwrap();
    let text = await_text(&file, |text| text.contains("first"));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    for line in &lines {
        let moment = line["timestamp"].as_str().unwrap();
        assert!(moment.starts_with("20") && moment.ends_with("+00"), "{line}");
        assert!(["LOG", "WARNING"].contains(&line["error_severity"].as_str().unwrap()), "{line}");
    }
    let slow = lines.last().unwrap();
    assert!(slow["message"].as_str().unwrap().ends_with("ms  statement: select 'first\nline'"), "{slow}");
    assert_eq!((slow["user"].as_str(), slow["dbname"].as_str()), (Some("postgres"), Some("postgres")));
    assert!(text.contains("connection authorized: user=postgres"), "{text}");

    std::fs::rename(&file, directory.path().join("old")).unwrap();
    let hang_up = Command::new("kill").args(["-HUP", &process.id().to_string()]).status().unwrap();
    assert!(hang_up.success());
    await_text(&file, |_| file.exists());
    client.batch_execute("alter system set server_log_format = 'text'").unwrap();
    client.batch_execute("select 'second'").unwrap();
    let text = await_text(&file, |text| text.contains("statement: select 'second'"));
    assert!(text.contains("postgres@postgres LOG:  duration: "), "{text}");
    end(process);
}

/// The device /dev/full refuses each write.
#[test]
fn a_log_that_cannot_be_written_does_not_stop_statements() {
    let directory = tempfile::tempdir().unwrap();
    let settings = "[server]\nlog_file = '/dev/full'\nlog_min_duration_statement = 0\n";
    let (process, port) = serve_with(directory.path(), settings);
    let mut client = connect(port, "postgres").unwrap();
    client.batch_execute("create table t (a int); insert into t values (1)").unwrap();
    assert_eq!(client.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 1);
    end(process);
}

#[test]
fn a_log_file_without_a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[server]\nlog_file = 'none/messages'\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["serve", directory.path().to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && told.contains("none/messages cannot be opened: No such file"),
        "{told}"
    );
}

#[test]
fn waits_for_locks_checkpoints_and_temporary_files_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let settings = "[server]\nlog_file = 'messages'\nlog_lock_waits = true\nlog_checkpoints = true\n\
                    log_temp_files = '1MB'\n";
    let (process, port) = serve_with(directory.path(), settings);
    let file = directory.path().join("messages");
    let (mut one, mut two) = (connect(port, "postgres").unwrap(), connect(port, "postgres").unwrap());
    let pid =
        |client: &mut Client| -> i32 { client.query_one("select pg_backend_pid()", &[]).unwrap().get(0) };
    let (first, second) = (pid(&mut one), pid(&mut two));
    one.batch_execute("create table t (a int primary key, b int); insert into t values (1, 0)").unwrap();
    one.batch_execute("begin; update t set b = 1").unwrap();
    two.batch_execute("set deadlock_timeout = '20ms'").unwrap();
    let waiter = std::thread::spawn(move || two.batch_execute("update t set b = b + 1").map(|()| two));
    let text = await_text(&file, |text| text.contains("still waiting"));
    assert!(text.contains(&format!("process {second} still waiting for ")), "{text}");
    let holders = format!("DETAIL:  Processes holding the lock or ahead in its queue: {first}.");
    assert!(text.contains(&holders) && text.contains("STATEMENT:  update t set b = b + 1"), "{text}");
    one.batch_execute("commit").unwrap();
    let mut two = waiter.join().unwrap().unwrap();
    await_text(&file, |text| text.contains(&format!("process {second} acquired ")));
    // A wait that ends by a time-out gets no lock.
    one.batch_execute("begin; lock table t in exclusive mode").unwrap();
    two.batch_execute("set lock_timeout = '100ms'; update t set b = 2").unwrap_err();
    await_text(&file, |text| text.contains(&format!("process {second} gave up waiting for ")));
    one.batch_execute("rollback; checkpoint").unwrap();
    await_text(&file, |text| text.contains("[0] LOG:  checkpoint complete: request; wrote "));
    one.batch_execute("set work_mem = '64kB'").unwrap();
    // The rows of a cursor that is not at its end are kept in a temporary file.
    let rows = "select n, repeat('x', 200) from generate_series(1, 60000) n";
    one.batch_execute(&format!("begin; declare c cursor for {rows}; fetch 1 from c; commit")).unwrap();
    await_text(&file, |text| text.contains("LOG:  temporary files: size "));
    // A new session takes the settings of the server, and each session can change them.
    let shown = |client: &mut Client, name: &str| -> String {
        client.query_one(&format!("select current_setting('{name}')"), &[]).unwrap().get(0)
    };
    assert_eq!(shown(&mut one, "log_temp_files"), "1MB");
    one.batch_execute("alter system set log_min_duration_statement = '2s'").unwrap();
    assert_eq!(shown(&mut connect(port, "postgres").unwrap(), "log_min_duration_statement"), "2s");
    let refused = one.batch_execute("set log_checkpoints = off").unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55P02");
    end(process);
}
