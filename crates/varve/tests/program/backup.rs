//! `varve backup` and `varve restore` with the real server: a backup under load has one moment, damage and
//! interruptions are seen, and rights are checked.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::serve::Served;

const ACCOUNTS: i32 = 2000;

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

fn fill(client: &mut Client) {
    client.batch_execute("create table account (id int primary key, balance bigint, note text)").unwrap();
    client.batch_execute("create table moves (id bigserial primary key, amount int)").unwrap();
    client
        .batch_execute(&format!(
            "insert into account select n, 100, repeat('x', 200) from generate_series(1, {ACCOUNTS}) n"
        ))
        .unwrap();
    client.batch_execute("create index account_balance on account (balance)").unwrap();
}

/// Checks a restored database: no damage, and the sum of all balances.
fn check_restored(data: &Path) -> i64 {
    assert!(succeeds(&["check", text(data)]).contains("no damage found"));
    let server = Served::start(data);
    let mut client = server.connect();
    let row = client.query_one("select sum(balance)::bigint, count(*) from account", &[]).unwrap();
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i64>(1)),
        (i64::from(ACCOUNTS) * 100, i64::from(ACCOUNTS))
    );
    let moves = client.query_one("select count(*) from moves", &[]).unwrap().get(0);
    client.batch_execute("insert into moves (amount) values (1)").unwrap();
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
    moves
}

#[test]
fn a_backup_of_a_busy_server_has_one_moment() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, full, later, copy, again] =
        ["data", "full", "later", "copy", "again"].map(|name| scratch.path().join(name));
    let server = Served::start(&data);
    let mut client = server.connect();
    fill(&mut client);
    // A transaction that is open at the end of the backup is rolled back by the restored database.
    let mut open = client.transaction().unwrap();
    open.execute("update account set balance = balance + 1000000 where id = 1", &[]).unwrap();
    let (url, stops) = (server.url("postgres"), AtomicBool::new(false));
    let before = std::thread::scope(|scope| {
        let (url, stops) = (&url, &stops);
        (2..4).for_each(|seed| drop(scope.spawn(move || transfer(url, seed, stops))));
        std::thread::sleep(Duration::from_millis(300));
        let said = succeeds(&["backup", url, "--to", text(&full), "--max-rate", "4MiB", "--progress"]);
        assert!(said.contains("of the state at LSN"), "{said}");
        std::thread::sleep(Duration::from_millis(100));
        let said = succeeds(&["backup", url, "--to", text(&later), "--earlier", text(&full)]);
        assert!(said.contains("unchanged ones are in the earlier backup"), "{said}");
        stops.store(true, Ordering::Relaxed);
        text(&full).to_owned()
    });
    assert!(succeeds(&["backup", "verify", &before]).contains("no damage found"));
    assert!(succeeds(&["backup", "verify", text(&later)]).contains("it is incremental"));
    let both = succeeds(&["backup", "verify", text(&later), "--earlier", &before]);
    assert!(both.contains(&before) && !both.contains("it is incremental"), "{both}");
    let itself = fails(&["backup", "verify", text(&later), "--earlier", text(&data)]);
    assert!(itself.contains("no complete backup"), "{itself}");
    drop(open);
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
    succeeds(&["restore", "--from", text(&full), "--to", text(&copy)]);
    succeeds(&["restore", "--from", text(&later), "--to", text(&again)]);
    let (first, second) = (check_restored(&copy), check_restored(&again));
    assert!(first > 0 && second > first, "{first} and {second} moves");
    assert!(fails(&["restore", "--from", text(&full), "--to", text(&copy)]).contains("database"));
}

/// Moves money between accounts until `stops`, except the first one, which another transaction has locked. The
/// sum of all balances never changes.
fn transfer(url: &str, seed: i32, stops: &AtomicBool) {
    let mut client = Client::connect(url, NoTls).unwrap();
    client.batch_execute("set lock_timeout = '50ms'").unwrap();
    let mut at = seed;
    while !stops.load(Ordering::Relaxed) {
        at = (at * 37 + 11) % (ACCOUNTS - 20) + 2;
        let mut transaction = client.transaction().unwrap();
        let sql = "update account set balance = balance + $1 where id = $2";
        let low = transaction.execute(sql, &[&-5_i64, &at]);
        let high = low.and_then(|_| transaction.execute(sql, &[&5_i64, &(at + 7 + seed)]));
        let logged = high.and_then(|_| transaction.execute("insert into moves (amount) values (5)", &[]));
        match logged {
            Ok(_) => transaction.commit().unwrap(),
            Err(_) => transaction.rollback().unwrap(),
        }
    }
}

#[test]
fn a_stopped_directory_is_backed_up_and_damage_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, place, copy] = ["data", "place", "copy"].map(|name| scratch.path().join(name));
    let server = Served::start(&data);
    let mut client = server.connect();
    fill(&mut client);
    assert!(fails(&["backup", text(&data), "--to", text(&place)]).contains("is in use by another process"));
    drop(client);
    server.stop("-KILL");
    succeeds(&["backup", text(&data), "--to", text(&place), "--compress", "zstd"]);
    assert!(fails(&["backup", text(&data), "--to", text(&place)]).contains("is not empty"));
    let manifest = std::fs::read_to_string(place.join("manifest.toml")).unwrap();
    assert!(manifest.contains("layout = \"in-place\"") && manifest.contains("end_lsn"), "{manifest}");
    succeeds(&["restore", "--from", text(&place), "--to", text(&copy)]);
    assert_eq!(check_restored(&copy), 0);

    let file = place.join("backup.varve");
    let bytes = std::fs::read(&file).unwrap();
    let other = scratch.path().join("other");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 4;
    std::fs::write(&file, &damaged).unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("is damaged"));
    assert!(fails(&["restore", "--from", text(&place), "--to", text(&other)]).contains("is damaged"));
    assert!(!other.join("control").exists());
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("damaged"));
    std::fs::write(&file, &bytes).unwrap();
    std::fs::write(place.join("manifest.toml"), manifest.replace("bytes = ", "bytes = 1")).unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("its checksum is wrong"));
    // A manifest with a right checksum that does not fit the file.
    let changed = manifest.replace("bytes = ", "bytes = 1");
    let (body, _) = changed.rsplit_once("# CRC-32C of the text above: ").unwrap();
    let sealed = format!("{body}# CRC-32C of the text above: {:08x}\n", crc32c::crc32c(body.as_bytes()));
    std::fs::write(place.join("manifest.toml"), sealed).unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("not the one that the manifest describes"));
    std::fs::remove_file(place.join("manifest.toml")).unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("no complete backup"));
}

#[test]
fn an_interrupted_backup_is_recognized_and_its_directory_can_be_used_again() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, place] = ["data", "place"].map(|name| scratch.path().join(name));
    let server = Served::start(&data);
    let mut client = server.connect();
    fill(&mut client);
    let url = server.url("postgres");
    let mut slow = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["backup", &url, "--to", text(&place), "--max-rate", "32KiB", "--compress", "none"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let file = place.join("backup.varve.new");
    while std::fs::metadata(&file).map_or(0, |found| found.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = fails(&["backup", &url, "--to", text(&place)]);
    assert!(second.contains("is in use by process"), "{second}");
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(fails(&["backup", "verify", text(&place)]).contains("it was interrupted"));
    client.batch_execute("update account set balance = 100").unwrap();
    succeeds(&["backup", &url, "--to", text(&place)]);
    assert!(succeeds(&["backup", "verify", text(&place)]).contains("no damage found"));
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

#[test]
fn only_some_roles_take_backups_and_not_in_transactions() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, place] = ["data", "place"].map(|name| scratch.path().join(name));
    let server = Served::start(&data);
    let mut client = server.connect();
    client.batch_execute("create role plain login").unwrap();
    client.batch_execute("create role keeper login replication").unwrap();
    let refused = fails(&["backup", &server.url("plain"), "--to", text(&place)]);
    assert!(refused.contains("permission denied to take a backup"), "{refused}");
    succeeds(&["backup", &server.url("keeper"), "--to", text(&place)]);
    let code = |error: postgres::Error| error.as_db_error().unwrap().code().code().to_owned();
    assert_eq!(code(client.batch_execute("begin; base_backup").unwrap_err()), "25001");
    client.batch_execute("rollback").unwrap();
    assert_eq!(code(client.batch_execute("base_backup (what 1)").unwrap_err()), "42601");
    assert_eq!(code(client.batch_execute("base_backup (compression 'rar')").unwrap_err()), "22023");
    assert_eq!(code(client.batch_execute("base_backup (earlier '1/2/3/4/5/6')").unwrap_err()), "55000");
    assert_eq!(code(client.batch_execute("base_backup (earlier '1/2/3')").unwrap_err()), "22023");
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

#[test]
fn tablespaces_are_restored_elsewhere() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, place, copy, fast, new] =
        ["data", "place", "copy", "fast", "new"].map(|name| scratch.path().join(name));
    [&fast, &new].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let server = Served::start(&data);
    let mut client = server.connect();
    fill(&mut client);
    client.batch_execute(&format!("create tablespace fast location '{}'", fast.display())).unwrap();
    client.batch_execute("alter table account set tablespace fast").unwrap();
    succeeds(&["backup", &server.url("postgres"), "--to", text(&place)]);
    drop(client);
    let in_use = fails(&["restore", "--from", text(&place), "--to", text(&copy)]);
    assert!(in_use.contains("fast"), "{in_use}");
    let wrong = fails(&["restore", "--from", text(&place), "--to", text(&copy), "--tablespace", "/slow=/x"]);
    let known = format!("the tablespaces of the backup are fast in {}", fast.display());
    assert!(wrong.contains("was in /slow") && wrong.contains(&known), "{wrong}");
    assert!(!copy.join("control").exists());
    let moved = format!("{}={}", fast.display(), new.display());
    succeeds(&["restore", "--from", text(&place), "--to", text(&copy), "--tablespace", &moved]);
    assert_eq!(server.stop("-TERM").0, Some(0));
    assert_eq!(check_restored(&copy), 0);
    assert!(new.join("tablespace-16.varve").exists());
}

#[test]
fn tables_of_memory_oriented_engines_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, place] = ["data", "place"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("varve.toml"), "[nvm]\ndevice = 'main'\ntables = '4MiB'\n").unwrap();
    let server = Served::start(&data);
    let mut client = server.connect();
    client.batch_execute("create table item (id integer primary key, name text) using nvm_inplace").unwrap();
    let error = client.batch_execute("base_backup").unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "0A000");
    let said = fails(&["backup", &server.url("postgres"), "--to", text(&place)]);
    assert!(said.contains("\"item\" uses the engine nvm_inplace"), "{said}");
    client.batch_execute("drop table item").unwrap();
    succeeds(&["backup", &server.url("postgres"), "--to", text(&place)]);
    drop(client);
    assert_eq!(server.stop("-TERM").0, Some(0));
}
