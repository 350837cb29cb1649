//! Errors of the program: one paragraph of text, exit code 1, and no backtrace.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve")).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Runs a command that must fail with 1 and this text; `DIR` stands for the directory.
fn check(directory: &Path, arguments: &[&str], expect: &str) {
    let directory = directory.to_str().unwrap();
    let arguments: Vec<String> = arguments.iter().map(|word| word.replace("DIR", directory)).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (code, text) = run(&arguments);
    assert_eq!(
        (code, text.trim_end()),
        (Some(1), expect.replace("DIR", directory).as_str()),
        "{arguments:?}"
    );
}

/// Runs a command that must succeed.
fn check_runs(directory: &Path, arguments: &[&str]) {
    let arguments: Vec<String> =
        arguments.iter().map(|word| word.replace("DIR", directory.to_str().unwrap())).collect();
    let (code, text) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn foreign_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        std::fs::write(directory.path().join(name), "mine").unwrap();
    }
    let expect = "varve: DIR is not a Varve data directory: it holds other files (a.txt, b.txt, c.txt and 1 \
                  more), and Varve doesn't mix its files with those of others. Choose an empty or a new directory.";
    for command in ["serve", "init"] {
        check(directory.path(), &[command, "DIR"], expect);
    }
    let expect = "varve: There is no database in DIR, but other files (a.txt, b.txt, c.txt and 1 more). Check the \
                  name of the directory.";
    check(directory.path(), &["check", "DIR"], expect);
    check(directory.path(), &["nvm", "drain", "DIR"], expect);
    assert_eq!(names(directory.path()), ["a.txt", "b.txt", "c.txt", "d.txt"]);
}

/// Found earlier: the error named varve.auto.toml, which did not exist.
#[test]
fn a_file_is_no_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let expect = "varve: DIR is a file. A database needs a directory: check the name.";
    for command in ["serve", "init", "check", "sql"] {
        check(&file, &[command, "DIR"], expect);
    }
}

#[test]
fn a_database_without_its_control_file_is_not_initialised_over() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("data.varve"), "rows").unwrap();
    let expect = "varve: DIR holds files of a database, but its control file is missing. Restore the file \
                  \"control\" from a backup of the whole directory; without it the other files can't be used. \
                  Nothing was changed.";
    check(directory.path(), &["serve", "DIR"], expect);
    assert_eq!(std::fs::read(directory.path().join("data.varve")).unwrap(), b"rows");
}

/// A start that is killed while it makes the region of persistent memory leaves the region and no control
/// file. The next start accepts this. A region that has data belongs to a database, so a start refuses it.
#[test]
fn what_a_killed_start_left_of_a_region_is_nobodys() {
    let settings = "[nvm]\ndevice = 'main'\nsize = '4MiB'\n[protection]\nkind = 'nvm-dwb'\n";
    for (name, bytes) in [("nvm.varve.new", 1 << 20), ("nvm.varve", 4 << 20)] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("varve.toml"), settings).unwrap();
        std::fs::write(directory.path().join(name), vec![0; bytes]).unwrap();
        let (code, text) = run(&["init", directory.path().to_str().unwrap()]);
        assert_eq!(code, Some(0), "{name}: {text}");
        assert!(names(directory.path()).contains(&"control".to_owned()), "{name}");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut used = vec![0; 4 << 20];
    used[100] = 1;
    std::fs::write(directory.path().join("nvm.varve"), &used).unwrap();
    let (code, text) = run(&["init", directory.path().to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("its control file is missing"), "{text}");
    assert_eq!(std::fs::read(directory.path().join("nvm.varve")).unwrap(), used);
}

/// Runs a command that must succeed. Returns its output.
fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_varve")).args(arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Before this command existed, a database that had a region of persistent memory needed the region for ever,
/// with the same length.
#[test]
fn a_database_leaves_persistent_memory() {
    for (kind, log, inside) in [
        ("nvm", "0MiB", "the newest pages"),
        ("nvm", "2MiB", "the log and the newest pages"),
        ("nvm-dwb", "2MiB", "the log and the doublewrite copies"),
        ("doublewrite", "2MiB", "the log"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (place, file) = (directory.path().to_str().unwrap(), directory.path().join("varve.toml"));
        let settings = |size: &str| {
            let nvm = format!("[nvm]\ndevice = 'main'\nsize = '{size}'\nlog = '{log}'\n");
            std::fs::write(&file, format!("{nvm}[protection]\nkind = '{kind}'\n")).unwrap();
        };
        let rows = || said(&["sql", place, "--pool", "16MiB", "--format", "csv", "-c", "select a from t"]);
        settings("8MiB");
        let made = "create table t (a integer); insert into t values (42)";
        said(&["sql", place, "--create", "--pool", "16MiB", "-c", made]);
        let status = said(&["nvm", "status", place]);
        assert!(status.contains(&format!("in persistent memory: {inside}\n")), "{kind}: {status}");
        assert!(status.contains("region: ") && status.contains("configuration: says the same\n"), "{status}");

        std::fs::write(&file, "").unwrap();
        let (code, text) = run(&["sql", place, "--pool", "16MiB", "-c", "select 1"]);
        assert!(code == Some(1) && text.contains("into the data files first: `varve nvm drain`"), "{text}");
        let status = said(&["nvm", "status", place]);
        assert!(status.contains(&format!("or run: varve nvm drain {place}\n")), "{status}");
        let drained = said(&["nvm", "drain", place, "--pool", "16MiB"]);
        assert!(drained.contains("needs no persistent memory any more; "), "{drained}");
        assert!(!names(directory.path()).contains(&"nvm.varve".to_owned()));
        assert_eq!(rows().lines().last(), Some("42"), "{kind} in files");
        let again = said(&["nvm", "drain", place]);
        assert_eq!(again, "nothing to do: the database needs no persistent memory\n");

        settings("16MiB");
        let status = said(&["nvm", "status", place]);
        assert!(status.contains("the next start puts persistent memory to use"), "{status}");
        assert_eq!(rows().lines().last(), Some("42"), "{kind} in another region");
        let drained = said(&["nvm", "drain", place, "--pool", "16MiB"]);
        assert!(drained.contains("the configuration still has [nvm] of 16 MiB"), "{drained}");
        settings("4MiB");
        assert_eq!(rows().lines().last(), Some("42"), "{kind} in a smaller region");
    }
}

/// The configuration has the device of the region no more, so the user must name the directory of the region.
#[test]
fn a_region_is_found_where_it_is_said_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir().unwrap();
    let (place, region) = (directory.path().to_str().unwrap(), memory.path().to_str().unwrap());
    let settings = format!(
        "[devices.pmem]\npath = '{region}'\n[nvm]\ndevice = 'pmem'\nsize = '4MiB'\n[protection]\nkind = 'nvm'\n"
    );
    std::fs::write(directory.path().join("varve.toml"), settings).unwrap();
    said(&["sql", place, "--create", "--pool", "16MiB", "-c", "create table t (a integer)"]);
    std::fs::remove_file(directory.path().join("varve.toml")).unwrap();
    let (code, text) = run(&["nvm", "drain", place]);
    assert!(
        code == Some(1) && text.contains("no NVM directory is configured. Pass --region DIRECTORY if"),
        "{text}"
    );
    assert!(text.ends_with(&format!("doesn't name: varve nvm drain {place} --region DIRECTORY\n")), "{text}");
    for wrong in ["nowhere", "control"] {
        let wrong = format!("DIR/{wrong}");
        let expect = format!(
            "varve: --region names {wrong}, which is no directory. Name the directory in which the region's file, nvm.varve, lies."
        );
        check(directory.path(), &["nvm", "drain", "DIR", "--region", &wrong], &expect);
    }
    let status = said(&["nvm", "status", place, "--region", region]);
    assert!(status.contains(&format!("or run: varve nvm drain {place} --region {region}\n")), "{status}");
    said(&["nvm", "drain", place, "--region", region, "--pool", "16MiB"]);
    said(&["sql", place, "--pool", "16MiB", "-c", "select a from t"]);
    check(
        directory.path(),
        &["nvm", "status", "DIR/none"],
        "varve: There is no database in DIR/none. `varve init DIR/none` makes one.",
    );
}

#[test]
fn nothing_to_check() {
    let directory = tempfile::tempdir().unwrap();
    check(
        directory.path(),
        &["check", "DIR"],
        "varve: There is no database in DIR. `varve init DIR` makes one.",
    );
    assert!(names(directory.path()).is_empty());
}

/// Found earlier: a mistyped name created a new database, in which the user's tables were missing.
#[test]
fn a_shell_makes_a_database_only_where_it_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    check(
        directory.path(),
        &["sql", "DIR/shpo", "-c", "select 1"],
        "varve: There is no directory DIR/shpo, so no database in it. Check the name; `varve sql DIR/shpo --create` \
         makes a new database there.",
    );
    assert!(names(directory.path()).is_empty());
    let shop = directory.path().join("shop");
    let shop = shop.to_str().unwrap();
    let select = ["-c", "select 1", "--pool", "8MiB"];
    assert_eq!(run(&[&["sql", shop, "--create"], &select[..]].concat()), (Some(0), String::new()));
    assert_eq!(run(&[&["sql", shop], &select[..]].concat()), (Some(0), String::new()));
    let mut unnamed = Command::new(env!("CARGO_BIN_EXE_varve"));
    let done = unnamed.arg("sql").args(select).current_dir(&directory).output().unwrap();
    assert_eq!(
        (done.status.code(), names(directory.path())),
        (Some(0), vec!["shop".to_owned(), "varve-data".to_owned()])
    );
}

#[test]
fn mistakes_in_the_configuration_name_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[pool]\nsise = \"1GiB\"\n").unwrap();
    let expect = "varve: The configuration is wrong: DIR/varve.toml, line 2: pool.sise is unknown; did you mean \
                  pool.size?.";
    check(directory.path(), &["serve", "DIR"], &expect.replace("?.", "?"));
    check(
        directory.path(),
        &["init", "DIR", "--config", "DIR/other.toml"],
        "varve: Cannot read the configuration file DIR/other.toml: No such file or directory (os error 2).",
    );
    assert_eq!(names(directory.path()), ["varve.toml"]);
}

#[test]
fn a_missing_device_is_named_with_its_space() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[devices.fast]\npath = \"nowhere\"\n[spaces]\nlog = \"fast\"\nrollback = \"fast\"\n";
    std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    check(
        directory.path(),
        &["init", "DIR"],
        "varve: The device \"fast\" (space: log, rollback) has the directory DIR/nowhere, which doesn't exist. \
         Mount it or make it, or correct [devices.fast] in varve.toml.",
    );
}

/// A new user found: a missing device was refused only when a space was placed on it.
#[test]
fn a_missing_device_is_refused_before_anything_is_on_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[devices.fast]\npath = \"nowhere\"\n").unwrap();
    check(
        directory.path(),
        &["init", "DIR"],
        "varve: The device \"fast\" (space: none) has the directory DIR/nowhere, which doesn't exist. \
         Mount it or make it, or correct [devices.fast] in varve.toml.",
    );
}

/// The layout is chosen when the database is made. A start refuses another layout, and needs none in the
/// configuration.
#[test]
fn a_layout_does_not_change() {
    for (made, other) in [("packed", "in-place"), ("in-place", "packed")] {
        let directory = tempfile::tempdir().unwrap();
        let says = |layout: &str| {
            let text = format!("[pool]\nsize = \"8MiB\"\n{layout}");
            std::fs::write(directory.path().join("varve.toml"), text).unwrap();
        };
        says(&format!("[home]\nlayout = \"{made}\"\n"));
        check_runs(directory.path(), &["init", "DIR"]);
        let files = names(directory.path());
        assert_eq!(files.contains(&"data.map.varve".to_owned()), made == "packed", "{files:?}");
        says(&format!("[home]\nlayout = \"{other}\"\n"));
        let expect = format!(
            "varve: DIR was initialised with layout \"{made}\", the configuration asks for \"{other}\". The layout \
             can't change later: remove layout from section [home], or initialise another directory."
        );
        check(directory.path(), &["serve", "DIR"], &expect);
        says("");
        check_runs(directory.path(), &["check", "DIR"]);
    }
}

#[test]
fn a_device_needs_a_directory_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let with_path = |path: &str| {
        let text = format!("[devices.x]\npath = \"{path}\"\n[spaces]\nlog = \"x\"\n");
        std::fs::write(directory.path().join("varve.toml"), text).unwrap();
    };
    with_path(".");
    let expect = "varve: The devices \"main\" and \"x\" have the same directory (DIR/.). Put the spaces of \
                  both on \"main\", or choose another directory for \"x\"; \"main\" is the data directory.";
    check(directory.path(), &["init", "DIR"], expect);
    with_path("varve.toml");
    let expect = "varve: The device \"x\" (space: log) has the path DIR/varve.toml, which is no directory. Choose \
                  a directory in [devices.x] of varve.toml.";
    check(directory.path(), &["init", "DIR"], expect);
}

/// Found earlier: measurements opened any directory without a lock, and dropped tables that had the names of
/// theirs.
#[test]
fn measurements_leave_databases_of_others_alone() {
    let directory = tempfile::tempdir().unwrap();
    let run = ["bench", "run", "oltp_point_select", "--directory", "DIR"];
    let few = [
        "--rows",
        "10",
        "--tables",
        "1",
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--warm-seconds",
        "0",
        "--pool-mib",
        "16",
    ];
    std::fs::write(directory.path().join("a.txt"), "mine").unwrap();
    let foreign = "varve: The measurement failed: DIR is not a Varve data directory: it holds other files (a.txt), and Varve \
                   doesn't mix its files with those of others. Choose an empty or a new directory.";
    check(directory.path(), &run, foreign);
    std::fs::remove_file(directory.path().join("a.txt")).unwrap();
    std::fs::write(directory.path().join("varve.toml"), "[home]\nlayout = \"packed\"").unwrap();
    check_runs(directory.path(), &[&run[..], &few[..]].concat());
    let name = directory.path().to_str().unwrap();
    let layout = ["sql", name, "--pool", "16MiB", "--format", "csv", "-c", "SHOW durability"];
    assert!(said(&layout).contains("packed"), "varve.toml was not read");
    let there = "varve: The measurement failed: There is a database in DIR already, and a measurement drops and makes \
                 tables: nothing was changed. Choose a new or an empty directory, or say --no-load (bench run) or --reuse (the \
                 others) to measure tables that an earlier one left there.";
    check(directory.path(), &run, there);
    check(directory.path(), &["bench", "points", "--directory", "DIR"], there);
    check_runs(directory.path(), &[&run[..], &few[..], &["--no-load"]].concat());
    let _lock = varve_device::DirLock::take(directory.path()).unwrap();
    let me = std::process::id();
    let locked = format!(
        "varve: The measurement failed: DIR is in use by another process (number {me}). One process at a time can open a \
         database: stop that one first, or connect to it."
    );
    check(directory.path(), &[&run[..], &["--no-load"]].concat(), &locked);
}

#[test]
fn a_workload_that_there_is_not_is_answered_with_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let list = "varve: The measurement failed: foo is no workload; choose oltp_point_select, oltp_read_only, oltp_read_write, \
                oltp_write_only, oltp_update_index, oltp_update_non_index, oltp_insert, oltp_delete, tpcb, tpcc, \
                ycsb-a to ycsb-f.";
    check(directory.path(), &["bench", "run", "foo"], list);
}

#[test]
fn a_link_to_nothing_is_not_made_into_a_database() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("nowhere", directory.path().join("link")).unwrap();
    let expect = "varve: DIR/link is a symbolic link to something that doesn't exist. Make or mount what it \
                  points to, or remove the link.";
    check(directory.path(), &["serve", "DIR/link"], expect);
}

#[test]
fn a_second_process_is_told_who_is_first() {
    let directory = tempfile::tempdir().unwrap();
    let lock = varve_device::DirLock::take(directory.path()).unwrap();
    let expect = format!(
        "varve: DIR is in use by another process (number {}). One process at a time can open a database: stop \
         that one first, or connect to it.",
        std::process::id()
    );
    check(directory.path(), &["init", "DIR"], &expect);
    drop(lock);
}

#[test]
fn addresses_that_others_can_reach_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (code, text) = run(&["serve", directory.path().to_str().unwrap(), "--listen", "0.0.0.0:5433"]);
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with("varve: Varve doesn't listen on 0.0.0.0:5433: other machines can reach"),
        "{text}"
    );
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_taken_port_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (code, text) = run(&["serve", directory.path().to_str().unwrap(), "--listen", &address]);
    assert_eq!(code, Some(1));
    let port = listener.local_addr().unwrap().port();
    assert!(
        text.starts_with(&format!("varve: Port {port} of 127.0.0.1 is in use by another process.")),
        "{text}"
    );
}

#[test]
fn a_pool_beyond_memory_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let (code, text) = run(&["serve", directory.path().to_str().unwrap(), "--pool", "900TiB"]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("varve: The buffer pool is to have 900 TiB, but there are only "), "{text}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn wrong_usage_is_exit_code_2_and_help_teaches() {
    let (code, text) = run(&["serve", "--pool", "lots"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("is no size: write a whole number and a unit"), "{text}");
    let (code, text) = run(&["srve"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("a similar subcommand exists: 'serve'"), "{text}");
    let help = Command::new(env!("CARGO_BIN_EXE_varve")).args(["help", "serve"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    for key in ["[devices.fast]", "temporary = \"main\"", "max_connections = 1000", "--listen", "57P01"] {
        assert!(text.contains(key), "{key} is not explained");
    }
    assert!(
        text.contains(include_str!("../../src/config/settings.toml").trim_end()),
        "the file is not shown as it is"
    );
    for key in keys() {
        let shown = [format!("[{key}]"), format!("{key} = "), format!("[{key}.")];
        assert!(
            shown.iter().any(|shown| text.contains(shown)),
            "{key} is not among the settings: \"every key\""
        );
    }
}

/// Returns the sections and keys that the configuration's reader asks for. `[query]` was missing from the
/// help.
fn keys() -> Vec<&'static str> {
    const READER: &str = include_str!("../../src/config/mod.rs");
    let calls = [".section(\"", ".text(\"", ".flag(\"", ".count(\"", ".bytes(\"", ".choice(\""];
    let keys =
        calls.iter().flat_map(|call| READER.split(call).skip(1).filter_map(|rest| rest.split('"').next()));
    let keys: Vec<_> = keys.collect();
    assert!(keys.len() > 15, "{keys:?}");
    keys
}
