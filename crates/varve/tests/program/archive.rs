//! The log archive with the real server: the loss of the machine costs at most the configured seconds, and
//! each moment after a backup can be restored.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postgres::{Client, NoTls};
use varve::sql::time::{PLAIN, UNIX_SHIFT_US, write_timestamp};

use crate::serve::Served;

/// Runs the program. Returns its exit code and its output.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve")).args(arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

fn succeeds(arguments: &[&str]) -> String {
    let (code, text) = run(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

fn fails(arguments: &[&str]) -> String {
    let (code, text) = run(arguments);
    assert_eq!(code, Some(1), "{arguments:?}: {text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn now_us() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A data directory with a configuration, and an archive.
struct Places {
    scratch: tempfile::TempDir,
}

impl Places {
    fn new(more: &str) -> Places {
        let places = Places { scratch: tempfile::tempdir().unwrap() };
        std::fs::create_dir(places.of("archive")).unwrap();
        places.configure("data", more);
        places
    }

    fn of(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Writes the configuration of a data directory.
    fn configure(&self, name: &str, more: &str) {
        std::fs::create_dir_all(self.of(name)).unwrap();
        let archive = self.of("archive");
        let config = format!("[archive]\ndirectory = \"{}\"\ninterval = 1\n{more}", archive.display());
        std::fs::write(self.of(name).join("varve.toml"), config).unwrap();
    }

    fn restore(&self, to: &str, more: &[&str]) -> Vec<String> {
        let [from, to, archive] = ["backup", to, "archive"].map(|name| text(&self.of(name)).to_owned());
        let fixed = ["restore", "--from", &from, "--to", &to, "--archive", &archive];
        fixed.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    }

    fn restored(&self, to: &str, more: &[&str]) -> String {
        let arguments = self.restore(to, more);
        succeeds(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn refused(&self, more: &[&str]) -> String {
        let arguments = self.restore("refused", more);
        fails(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// A commit: the times before the statement and after the acknowledgement, in microseconds since 1970.
type Times = (i64, i64);

/// Inserts numbered rows until `stops`. Returns the times of each acknowledged commit.
fn insert(url: &str, client: i32, stops: &AtomicBool) -> Vec<Times> {
    let mut connection = Client::connect(url, NoTls).unwrap();
    let mut times = Vec::new();
    while !stops.load(Ordering::Relaxed) {
        let number = times.len() as i32 + 1;
        let before = now_us();
        connection.execute("insert into entry values ($1, $2)", &[&client, &number]).unwrap();
        times.push((before, now_us()));
        std::thread::sleep(Duration::from_millis(u64::from(client.unsigned_abs())));
    }
    times
}

/// Returns the number of rows of a client, which are 1..n.
fn rows_of(connection: &mut Client, client: i32) -> i64 {
    let sql = "select count(*), coalesce(max(number), 0)::bigint from entry where client = $1";
    let row = connection.query_one(sql, &[&client]).unwrap();
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1), "the rows are 1..n");
    row.get(0)
}

/// Checks a database that was restored to a moment, if the moment is known.
fn check(data: &Path, all: &[Vec<Times>], least_us: i64, most_us: i64) {
    let server = Served::start(data);
    let mut connection = server.connect();
    for (client, times) in all.iter().enumerate() {
        let rows = rows_of(&mut connection, client as i32);
        let least = times.iter().filter(|(_, after)| *after <= least_us).count() as i64;
        let most = times.iter().filter(|(before, _)| *before <= most_us).count() as i64;
        assert!(least <= rows && rows <= most, "client {client}: {rows} rows, not {least} to {most}");
    }
    drop(connection);
    assert_eq!(server.stop("-TERM").0, Some(0));
    assert!(succeeds(&["check", text(data)]).contains("no damage found"));
}

fn timestamp(us: i64) -> String {
    let mut out = Vec::new();
    write_timestamp(us - UNIX_SHIFT_US, true, &PLAIN, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_loss_of_the_machine_costs_at_most_a_second_and_each_moment_can_be_restored() {
    let places = Places::new("[log]\nsegment = \"1MiB\"\ncapacity = \"16MiB\"\n");
    let server = Served::start(&places.of("data"));
    server
        .connect()
        .batch_execute("create table entry (client int, number int, primary key (client, number))")
        .unwrap();
    let (url, stops) = (server.url("postgres"), AtomicBool::new(false));
    let (all, backup_us) = std::thread::scope(|scope| {
        let (url, stops) = (&url, &stops);
        let clients: Vec<_> = (0..3).map(|client| scope.spawn(move || insert(url, client, stops))).collect();
        std::thread::sleep(Duration::from_millis(300));
        succeeds(&["backup", url, "--to", text(&places.of("backup"))]);
        let backup_us = now_us();
        std::thread::sleep(Duration::from_millis(2500));
        stops.store(true, Ordering::Relaxed);
        (clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>(), backup_us)
    });
    let lost_us = now_us();
    assert_eq!(server.stop("-KILL").0, None);
    std::fs::remove_dir_all(places.of("data")).unwrap();
    let said = places.restored("latest", &[]);
    assert!(said.contains("commits up to"), "{said}");
    check(&places.of("latest"), &all, lost_us - 1_000_000, lost_us);
    for part in [1, 4, 7] {
        let moment_us = backup_us + (lost_us - 1_000_000 - backup_us) * part / 8;
        let name = format!("moment-{part}");
        places.restored(&name, &["--until", &timestamp(moment_us)]);
        check(&places.of(&name), &all, moment_us, moment_us);
    }
    assert!(places.refused(&["--until", "2020-01-01"]).contains("before the end of the backup"));
    assert!(places.refused(&["--until", &timestamp(lost_us + 1_000_000)]).contains("the archive ends at"));
    assert!(!places.of("refused").join("control").exists());
}

#[test]
fn a_missing_archive_is_told_and_does_not_stop_the_server() {
    let places = Places::new("");
    std::fs::remove_dir(places.of("archive")).unwrap();
    let server = Served::start(&places.of("data"));
    let mut client = server.connect();
    client
        .batch_execute("create table entry (client int, number int); insert into entry values (0, 1)")
        .unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    std::fs::create_dir(places.of("archive")).unwrap();
    succeeds(&["backup", &server.url("postgres"), "--to", text(&places.of("backup"))]);
    client.batch_execute("insert into entry values (0, 2)").unwrap();
    drop(client);
    // The rest of the log is archived when the server stops.
    assert_eq!(server.stop("-TERM").0, Some(0));
    places.restored("latest", &[]);
    let server = Served::start(&places.of("latest"));
    assert_eq!(rows_of(&mut server.connect(), 0), 2);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

#[test]
fn a_tablespace_that_is_newer_than_the_backup_is_restored_elsewhere() {
    let places = Places::new("");
    let server = Served::start(&places.of("data"));
    succeeds(&["backup", &server.url("postgres"), "--to", text(&places.of("backup"))]);
    let [later, moved] = ["later", "moved"].map(|name| places.of(name));
    [&later, &moved].into_iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
    let mut client = server.connect();
    client.batch_execute(&format!("create tablespace later location '{}'", later.display())).unwrap();
    let sql = "create table entry (client int, number int) tablespace later; insert into entry values (0, 1)";
    client.batch_execute(sql).unwrap();
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
    let option = |old: &Path| format!("{}={}", old.display(), moved.display());
    let refused = places.refused(&["--tablespace", &option(&places.of("unknown"))]);
    assert!(refused.contains("no tablespace") && refused.contains("later in"), "{refused}");
    places.restored("latest", &["--tablespace", &option(&later)]);
    let server = Served::start(&places.of("latest"));
    assert_eq!(rows_of(&mut server.connect(), 0), 1);
    assert!(std::fs::read_dir(&moved).unwrap().count() > 0, "its files are there");
    assert_eq!(server.stop("-TERM").0, Some(0));
}
