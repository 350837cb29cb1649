//! A panic within a statement is the error of that statement, at every step. The connection can end its
//! transaction and continue, and other connections are not disturbed. The panics are planted (decision 0905).

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use postgres::{Client, NoTls, SimpleQueryMessage};
use varve::Embedded;

struct Served {
    process: Child,
    port: u16,
}

impl Served {
    fn start(directory: &Path) -> Served {
        Served::start_with(directory, "")
    }

    /// Starts a server with these settings in its file.
    fn start_with(directory: &Path, settings: &str) -> Served {
        std::fs::write(directory.join("varve.toml"), settings).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["serve", directory.join("db").to_str().unwrap(), "--listen", "127.0.0.1:0"])
            .args(["--pool", "16MiB", "--config", directory.join("varve.toml").to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(File::create(directory.join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let said =
            lines.find_map(|line| line.unwrap().strip_prefix("listening on 127.0.0.1:").map(str::to_owned));
        Served { process, port: said.unwrap().parse().unwrap() }
    }

    fn connect(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        Client::connect(&config, NoTls).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Returns the message of a result that must be the error XX000.
fn internal<T>(result: Result<T, postgres::Error>) -> String {
    let error = result.err().unwrap();
    let told = error.as_db_error().unwrap_or_else(|| panic!("no error of the server: {error}"));
    assert_eq!((told.code().code(), told.severity()), ("XX000", "ERROR"), "{told:?}");
    assert!(told.hint().unwrap().contains("report"));
    told.message().to_owned()
}

fn arm(client: &mut Client, place: &str) {
    client.batch_execute(&format!("set application_name = 'panic at {place}'")).unwrap();
}

fn count(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap().get(0)
}

const TABLE: &str =
    "create table t (id int primary key, v int); insert into t select n, n from generate_series(1, 9) n";
const GENERAL: &str = "select a.v, count(*) from t a join t b on a.v >= b.v group by 1";

#[test]
fn a_panic_is_an_error_at_every_step_of_both_protocols() {
    if !varve_device::IN_HARNESS {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute(TABLE).unwrap();
    // Each panic happens first in a transaction of its own, and then in a transaction block. The block is
    // then aborted.
    for (place, simple) in [
        ("execute", "select v from t where id = 3"),
        ("row", "select v from t where id = 3"),
        ("row", GENERAL),
        ("plan", GENERAL),
        ("operator", GENERAL),
        ("execute", "update t set v = 0 where id = 3"),
        ("plan", "update t set v = s.v from (select max(v) v from t) s where t.id > s.v"),
    ] {
        arm(&mut client, place);
        let expect = format!("internal error: planted: panic at {place}");
        assert_eq!(internal(client.simple_query(simple)), expect);
        assert_eq!(internal(client.query(&format!("{simple} /* {place} */"), &[])), expect);
        client.batch_execute("begin").unwrap();
        arm(&mut client, place);
        assert_eq!(internal(client.query(&format!("{simple} /* {place} again */"), &[])), expect);
        let after = client.simple_query("select 1").err().unwrap();
        assert_eq!(after.code().unwrap().code(), "25P02");
        client.batch_execute("rollback; reset application_name").unwrap();
        assert_eq!(count(&mut client, "select sum(v) from t"), 45, "{place}");
    }
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("internal error: planted: panic at operator, at crates/"), "{log}");
    assert!(log.contains("statement: select a.v, count(*)"), "{log}");
    assert!(log.contains("varve_query::"), "no backtrace: {log}");
}

#[test]
fn the_log_has_the_statement_and_the_place_of_a_panic_on_a_thread_of_a_query() {
    if !varve_device::IN_HARNESS {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), "[query]\nthreads = 2\nthreads_rows = 0\n");
    let mut client = served.connect();
    client.batch_execute(TABLE).unwrap();
    let sql = "select a.v, count(*) from t a join t b on a.v = b.v group by 1";
    let plan = client.query(&format!("explain {sql}"), &[]).unwrap();
    assert!(plan.iter().any(|row| row.get::<_, &str>(0).contains("Gather")), "{plan:?}");
    arm(&mut client, "operator");
    assert_eq!(internal(client.simple_query(sql)), "internal error: planted: panic at operator");
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("planted: panic at operator, at crates/"), "{log}");
    assert!(log.contains("statement: select a.v, count(*)"), "{log}");
    assert_eq!(log.matches("internal error").count(), 1, "{log}");
    assert!(!log.contains("panicked at"), "{log}");
}

#[test]
fn messages_of_the_extended_protocol_and_fetches_from_cursors() {
    if !varve_device::IN_HARNESS {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute(TABLE).unwrap();
    let statement = client.prepare("select v from t order by id").unwrap();
    for place in ["bind", "describe"] {
        arm(&mut client, place);
        let failed = match place {
            "bind" => internal(client.query(&statement, &[])),
            _ => internal(client.prepare("select id from t")),
        };
        assert_eq!(failed, format!("internal error: planted: panic at {place}"));
        client.batch_execute("reset application_name").unwrap();
        assert_eq!(client.query(&statement, &[]).unwrap().len(), 9);
    }
    let mut block = client.transaction().unwrap();
    let portal = block.bind(&statement, &[]).unwrap();
    assert_eq!(block.query_portal(&portal, 2).unwrap().len(), 2);
    block.batch_execute("set application_name = 'panic at fetch'").unwrap();
    assert_eq!(internal(block.query_portal(&portal, 2)), "internal error: planted: panic at fetch");
    block.rollback().unwrap();
    client.batch_execute("begin; declare c cursor for select v from t; fetch 1 from c").unwrap();
    client.batch_execute("savepoint s; set application_name = 'panic at row'").unwrap();
    internal(client.simple_query("fetch 1 from c"));
    client.batch_execute("rollback to s").unwrap();
    assert_eq!(client.simple_query("fetch 1 from c").unwrap().len(), 3);
    client.batch_execute("commit").unwrap();
}

#[test]
fn in_the_middle_of_copy_at_commit_and_at_rollback() {
    if !varve_device::IN_HARNESS {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut client, mut other) = (served.connect(), served.connect());
    client.batch_execute(TABLE).unwrap();
    arm(&mut client, "copy");
    let mut copy = client.copy_in("copy t from stdin").unwrap();
    copy.write_all(b"10\t10\n11\t11\n").unwrap();
    assert_eq!(internal(copy.finish()), "internal error: planted: panic at copy");
    client.batch_execute("begin; insert into t values (13, 13)").unwrap();
    arm(&mut client, "commit");
    internal(client.batch_execute("commit"));
    client.batch_execute("rollback").unwrap();
    // A statement that is sent after the setting and is not in the cache must be parsed.
    client.batch_execute("begin").unwrap();
    arm(&mut client, "parse");
    internal(client.batch_execute("select 'never seen'"));
    client.batch_execute("rollback").unwrap();
    assert_eq!(count(&mut other, "select count(*) from t"), 9);
    // The rollback itself panics: first in the session, then in the engine, which undoes the rest in the
    // background.
    for place in ["rollback", "undo"] {
        client.batch_execute("begin; update t set v = 100 where id = 1; savepoint s").unwrap();
        arm(&mut client, place);
        client.simple_query("select 1 / 0").err().unwrap();
        let _ = client.batch_execute("rollback");
        client.batch_execute("rollback").unwrap();
        client.batch_execute("reset application_name").unwrap();
        other.batch_execute("set lock_timeout = '10s'; update t set v = v + 1 where id = 1").unwrap();
    }
    assert_eq!(count(&mut client, "select sum(v) from t"), 47);
    assert!(matches!(
        client.simple_query("select 1").unwrap()[..],
        [.., SimpleQueryMessage::CommandComplete(1)]
    ));
}

#[test]
fn an_embedded_session_returns_an_error_and_goes_on() {
    if !varve_device::IN_HARNESS {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let db = Embedded::open(directory.path()).unwrap();
    let mut session = db.session().unwrap();
    session.run(TABLE).unwrap();
    for place in ["execute", "plan", "operator"] {
        session.run(&format!("set application_name = 'panic at {place}'")).unwrap();
        let error = session.query(GENERAL).unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "XX000");
        session.run("reset application_name").unwrap();
        assert_eq!(session.query(GENERAL).unwrap().len(), 9);
    }
}
