//! Tests of the file `tables.varve`. A start creates it, `varve nvm status` shows it, and `varve nvm drain`
//! leaves it unchanged. A start refuses a file that does not fit the configuration.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use super::serve::Served;

/// Runs a command on a directory. Returns the exit code and the output.
fn run(directory: &Path, command: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_varve"));
    let output =
        program.args(command).arg(directory).args(["--pool", "16MiB"]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Runs statements, which must succeed.
fn sql(directory: &Path, statements: &str) -> String {
    let (code, text) = run(directory, &["sql"], &["--create", "--format", "csv", "-c", statements]);
    assert_eq!(code, Some(0), "{statements}: {text}");
    text
}

/// Starts a database, which must fail. Returns the message.
fn refused(directory: &Path) -> String {
    let (code, text) = run(directory, &["sql"], &["-c", "select 1"]);
    assert_eq!(code, Some(1), "{text}");
    text
}

fn status(directory: &Path) -> String {
    run(directory, &["nvm", "status"], &[]).1
}

fn configure(directory: &Path, text: &str) {
    std::fs::write(directory.join("varve.toml"), text).unwrap();
}

/// Returns a section `[nvm]` with these keys.
fn nvm(keys: &str) -> String {
    format!("[nvm]\ndevice = 'main'\n{keys}\n")
}

fn len_bytes(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("tables.varve")).unwrap().len()
}

#[test]
fn without_tables_the_file_follows_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    configure(place, &nvm("tables = '4MiB'"));
    let served = Served::start(place);
    let file = place.join("tables.varve");
    let line = format!("tables in persistent memory: 4 MiB in {}, 1 partition\n", file.display());
    assert!(served.said.contains(&line), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
    assert!(!place.join("nvm.varve").exists(), "tables need no other region");
    let shown = status(place);
    let line = format!("tables: {}, 4 MiB in 1 partition, 0 B used, ", file.display());
    assert!(shown.contains(&line) && shown.contains("configuration: says the same\n"), "{shown}");
    assert!(shown.contains("in persistent memory: nothing\n"), "{shown}");
    let (code, drained) = run(place, &["nvm", "drain"], &[]);
    assert_eq!(code, Some(0));
    let stays = format!("{} stays: the rows of its tables are nowhere else\n", file.display());
    assert_eq!(drained, format!("nothing to do: nothing is in a region\n{stays}"));

    configure(place, &nvm("tables = '8MiB'\npartitions = 2"));
    let shown = status(place);
    assert!(
        shown.contains("tables: the configuration says 8 MiB in 2 partitions, which a start refuses"),
        "{shown}"
    );
    sql(place, "select 1");
    assert_eq!(len_bytes(place), 8 << 20);
    let (code, checked) = run(place, &["check"], &[]);
    assert!(code == Some(0) && checked.contains("no damage found"), "{checked}");
    configure(place, "");
    sql(place, "select 1");
    assert_eq!(len_bytes(place), 8 << 20, "a file that is not configured is left alone");
}

#[test]
fn a_file_of_another_database_or_with_damage_is_refused_and_kept() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = [&first, &second].map(|directory| {
        configure(directory.path(), &nvm("tables = '4MiB'"));
        sql(directory.path(), "select 1");
        directory.path().join("tables.varve")
    });
    let of_second = std::fs::read(&files[1]).unwrap();
    std::fs::copy(&files[0], &files[1]).unwrap();
    let told = refused(second.path());
    assert!(told.contains("tables.varve is not the region of this database's tables: "), "{told}");
    assert!(told.contains("belongs to database") && told.contains("Choose another device"), "{told}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), std::fs::read(&files[1]).unwrap());
    let (code, shown) = run(second.path(), &["nvm", "status"], &[]);
    assert!(
        code == Some(1) && shown.contains("tables: ") && shown.contains("belongs to database"),
        "{shown}"
    );

    let mut damaged = of_second.clone();
    damaged[100] ^= 1;
    std::fs::write(&files[1], &damaged).unwrap();
    let told = refused(second.path());
    assert!(told.contains("the checksum of the header"), "{told}");
    assert_eq!(std::fs::read(&files[1]).unwrap(), damaged);
    std::fs::write(&files[1], &of_second).unwrap();
    sql(second.path(), "select 1");
}

#[test]
fn form_changes_by_alter_system_too() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &nvm("tables = '4MiB'"));
    let served = Served::start(directory.path());
    let mut client = served.connect();
    let shown = |client: &mut postgres::Client, name: &str| -> String {
        client.query_one(&format!("show {name}"), &[]).unwrap().get(0)
    };
    assert_eq!(["nvm_tables", "nvm_partitions"].map(|name| shown(&mut client, name)), ["4 MiB", "1"]);
    let error = client.batch_execute("alter system set nvm_tables = '1MiB'").unwrap_err();
    let told = error.as_db_error().unwrap().message().to_owned();
    assert_eq!(told, "nvm.tables must be 0, or at least 4 MiB and a multiple of 4 KiB");
    client.batch_execute("alter system set nvm_tables = '8MiB'").unwrap();
    client.batch_execute("alter system set nvm_partitions = 3").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(directory.path());
    assert!(served.said.contains("tables in persistent memory: 8 MiB in "), "{}", served.said);
    assert!(served.said.contains(", 3 partitions\n"), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn tables_without_using_take_the_configured_engine() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &nvm("tables = '4MiB'\ndefault_access_method = 'nvm_inplace'"));
    let served = Served::start(directory.path());
    let mut client = served.connect();
    let one = |client: &mut postgres::Client, query: &str| -> String {
        client.query_one(query, &[]).unwrap().get(0)
    };
    let show = "show default_table_access_method";
    let source = "select source from pg_settings where name = 'default_table_access_method'";
    assert_eq!([show, source].map(|query| one(&mut client, query)), ["nvm_inplace", "configuration file"]);
    client.batch_execute("create table stored (a int)").unwrap();
    client.batch_execute("alter system set default_table_access_method = heap").unwrap();
    assert_eq!(one(&mut client, show), "nvm_inplace", "a session keeps its value");
    let mut later = served.connect();
    assert_eq!(one(&mut later, show), "heap");
    later.batch_execute("create table paged (a int)").unwrap();
    for (value, problem) in [("nowhere", "is unknown; choose one of: heap, "), ("btree", "is unknown")] {
        let altered = later.batch_execute(&format!("alter system set default_table_access_method = {value}"));
        let error = altered.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.code().code() == "22023" && error.message().contains(problem), "{value}: {error}");
        let names = ["default_table_access_method", "default_access_method is", "nvm_default"]
            .map(|name| error.message().contains(name));
        assert_eq!(names, [true, false, false], "{error}");
    }
    let refused_method = later.batch_execute("alter table paged set access method cow").unwrap_err();
    let error = refused_method.as_db_error().unwrap();
    assert_eq!(error.code().code(), "0A000");
    assert!(error.hint().is_some_and(|hint| hint.contains("CREATE TABLE ... USING method")), "{error:?}");
    let methods = "select string_agg(relname || ' ' || amname, ', ' order by relname)
        from pg_class c join pg_am a on a.oid = c.relam where relname in ('stored', 'paged')";
    assert_eq!(one(&mut later, methods), "paged heap, stored nvm_inplace");
    assert_eq!(served.stop("-TERM").0, Some(0));
    configure(directory.path(), &nvm("tables = 0\nsize = '4MiB'\ndefault_access_method = 'nvm_inplace'"));
    let told = refused(directory.path());
    let problem = "default_access_method is nvm_inplace, and there is no file for its tables: set tables";
    assert!(told.contains(problem), "{told}");
}

#[test]
fn a_table_partitioned_by_hash_is_spread_over_the_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    configure(place, &nvm("tables = '8MiB'\npartitions = 2"));
    let created = "create table t (id int primary key, v int) partition by hash (id) using nvm_inplace;
        create table t0 partition of t for values with (modulus 2, remainder 0);
        create table t1 partition of t for values with (modulus 2, remainder 1);";
    sql(
        place,
        &format!(
            "{created} insert into t values (1, 10); insert into t values (2, 20); insert into t values (3, 30)"
        ),
    );
    let served = Served::start(place);
    let mut client = served.connect();
    let mut one = |query: &str| -> i64 { client.query_one(query, &[]).unwrap().get(0) };
    assert_eq!(one("select count(*) from t"), 3);
    assert_eq!(one("select (select count(*) from t0) + (select count(*) from t1)"), 3);
    assert_eq!(one("select sum(a.v) from t a join t b on a.id = b.id where b.v > 10"), 50);
    let partitions = "select count(*) from varve_levels
        where level = 'tables' and part like 'nvm_inplace _' and counter = 'tables' and value = 1";
    assert_eq!(one(partitions), 2);
    let shown = "select count(*) from pg_class c join pg_am a on a.oid = c.relam
        where relname in ('t', 't0', 't1') and relkind in ('p', 'r') and amname = 'nvm_inplace'";
    assert_eq!(one(shown), 3, "psql's \\d+ shows the engine");
    assert_eq!(one("select size_bytes from varve_nvm where place like '%tables.varve'"), 8 << 20);
    let error = client.batch_execute("insert into t select n, n from generate_series(10, 30) n").unwrap_err();
    let error = error.as_db_error().unwrap();
    let text = "cannot change rows of table \"t\" in two partitions in one transaction";
    assert_eq!((error.code().code(), error.message()), ("0A000", text));
    client.batch_execute("drop table t").unwrap();
    let filled = format!("begin; {created} insert into t select n, n from generate_series(1, 50) n; commit");
    client.batch_execute(&filled).unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    assert_eq!(sql(place, "select count(*) from t").lines().last(), Some("50"));
    let (code, checked) = run(place, &["check"], &[]);
    assert!(code == Some(0) && checked.contains("no damage found"), "{checked}");
}

/// Makes a database that has a row in a table of `tables.varve`.
fn with_row(keys: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &nvm(keys));
    sql(
        directory.path(),
        "create table item (id integer primary key, name text) using nvm_inplace; insert into item values (1, 'lamp')",
    );
    directory
}

fn has_row(directory: &Path) {
    assert_eq!(sql(directory, "select name from item").lines().last(), Some("lamp"));
}

#[test]
fn with_tables_another_form_of_the_file_is_refused() {
    let directory = with_row("tables = '8MiB'");
    let place = directory.path();
    let shown = status(place);
    assert!(shown.contains("; engines: nvm_inplace; tables with segments of their own: 1\n"), "{shown}");
    assert!(shown.contains("in persistent memory: tables\n"), "{shown}");
    for (text, problem) in [
        (
            String::new(),
            "the table item is in the file tables.varve, and the configuration has no such file: put the key tables",
        ),
        (
            nvm("tables = '16MiB'"),
            "has 8388608 bytes, and nvm.tables is 16777216 bytes: the size can change only while",
        ),
        (nvm("tables = '8MiB'\npartitions = 2"), "is 1, and nvm.partitions is 2: it can change only"),
    ] {
        configure(place, &text);
        let told = refused(place);
        assert!(told.contains(problem), "{told}");
        let shown = status(place);
        assert!(shown.contains("database: shut down cleanly\n"), "a refused start changes nothing: {shown}");
    }
    let (code, drained) = run(place, &["nvm", "drain"], &[]);
    assert!(code == Some(0) && drained.contains("tables.varve stays: the rows of its tables"), "{drained}");

    configure(place, &nvm("tables = '8MiB'"));
    has_row(place);
    let served = Served::start(place);
    let mut client = served.connect();
    for (setting, problem) in [
        ("nvm_tables = '16MiB'", "the size can change only while"),
        ("nvm_tables = 0", "nvm.size is missing"),
        ("nvm_partitions = 2", "it can change only while"),
    ] {
        let error = client.batch_execute(&format!("alter system set {setting}")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.code().code() == "22023" && error.message().contains(problem), "{setting}: {error}");
    }
    client.batch_execute("drop table item").unwrap();
    client.batch_execute("alter system set nvm_partitions = 2").unwrap();
    assert_eq!(served.stop("-TERM").0, Some(0));
    let served = Served::start(place);
    assert!(served.said.contains(", 2 partitions\n"), "{}", served.said);
    assert_eq!(served.stop("-TERM").0, Some(0));
}

#[test]
fn a_missing_or_an_empty_file_is_not_replaced() {
    let directory = with_row("tables = '8MiB'");
    let place = directory.path();
    let (file, away) = (place.join("tables.varve"), place.join("away.varve"));
    std::fs::rename(&file, &away).unwrap();
    let told = refused(place);
    assert!(
        told.contains("tables.varve is missing, and has tables of the database: bring the file back"),
        "{told}"
    );
    assert!(!file.exists(), "no file is made");
    std::fs::write(&file, vec![0; 8 << 20]).unwrap();
    let told = refused(place);
    assert!(told.contains("tables.varve is empty, and has tables of the database"), "{told}");
    std::fs::write(&file, std::fs::read(&away).unwrap().split_at(4 << 20).0).unwrap();
    let told = refused(place);
    assert!(told.contains("has 4194304 bytes, and it was made with 8388608"), "{told}");
    std::fs::rename(&away, &file).unwrap();
    has_row(place);
}

#[test]
fn rows_outlive_a_kill_and_check_reads_them() {
    let directory = with_row("size = '4MiB'\nlog = '2MiB'\ntables = '8MiB'\nemulate = 'pcm'");
    let place = directory.path();
    let served = Served::start(place);
    served
        .connect()
        .batch_execute("update item set name = 'lamps'; insert into item values (2, 'chair')")
        .unwrap();
    assert_eq!(served.stop("-KILL").0, None);
    let (code, drained) = run(place, &["nvm", "drain"], &[]);
    assert!(code == Some(0) && drained.contains("needs no region any more; "), "{drained}");
    assert!(drained.contains("tables.varve stays: ") && !place.join("nvm.varve").exists(), "{drained}");
    assert_eq!(
        sql(place, "select name from item order by id").lines().collect::<Vec<_>>(),
        ["name", "lamps", "chair"]
    );
    let (code, checked) = run(place, &["check"], &[]);
    assert!(code == Some(0) && checked.contains("no damage found"), "{checked}");

    // The damaged bytes are the bitmap of the last segment, which is free.
    let file = place.join("tables.varve");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[28_672 + 512 * 125] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let (code, checked) = run(place, &["check"], &[]);
    assert!(code == Some(1) && checked.contains("the bitmap of a segment without a slab"), "{checked}");
}
