//! Only its owner can read the data directory, whatever the umask is. A copy that was taken while the
//! database ran is recognized.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use varve::Embedded;

use crate::serve::{Served, check};

/// Runs the program under a umask that removes no permission. Returns its exit code and its output.
fn varve(arguments: &[&str]) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_varve")]).args(arguments);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn runs(arguments: &[&str]) -> String {
    let (code, text) = varve(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Files that others can read or write.
fn open_files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let is_ours = |entry: &std::fs::DirEntry| entry.file_name() != "varve.toml";
    let open = entries.filter(is_ours).filter(|entry| mode(&entry.path()) & 0o077 != 0);
    open.map(|entry| format!("{:?} {:o}", entry.file_name(), mode(&entry.path()))).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    set_mode(to, 0o700);
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // Temporary files of queries may disappear meanwhile.
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Counts the rows of the table `t` in a copy with the program. Returns its exit code and its output.
fn count(directory: &Path, more: &[&str]) -> (Option<i32>, String) {
    let directory = directory.to_str().unwrap();
    let select = ["sql", directory, "--pool", "16MiB", "--format", "csv", "-c", "select count(*) from t"];
    varve(&[&select[..], more].concat())
}

#[test]
fn what_is_made_is_its_owners() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, memory, cache] = ["above/data", "memory", "cache"].map(|name| scratch.path().join(name));
    let settings = scratch.path().join("varve.toml");
    for device in [&memory, &cache] {
        std::fs::create_dir(device).unwrap();
        set_mode(device, 0o755);
    }
    let text = format!(
        "[devices.memory]\npath = '{}'\n[devices.cache]\npath = '{}'\n[nvm]\ndevice = 'memory'\nsize = '16MiB'\nlog = '8MiB'\n\
         [flash]\ndevice = 'cache'\nsize = '16MiB'\n[protection]\nkind = 'nvm'\n[pool]\nsize = '16MiB'\n",
        memory.display(),
        cache.display()
    );
    std::fs::write(&settings, text).unwrap();
    let (path, file) = (data.to_str().unwrap(), settings.to_str().unwrap());
    runs(&["init", path, "--config", file]);
    runs(&[
        "sql",
        path,
        "--config",
        file,
        "-c",
        "create table t (a int)",
        "-c",
        "alter system set checkpoint_interval = '20'",
    ]);
    assert_eq!(mode(&data), 0o700);
    for directory in [&data, &memory, &cache] {
        assert!(open_files(directory).is_empty(), "{}: {:?}", directory.display(), open_files(directory));
    }
    assert!(memory.join("nvm.varve").exists() && cache.join("flash.varve").exists());
    // A directory that existed before the database was made is closed, too.
    let made = scratch.path().join("made");
    std::fs::create_dir(&made).unwrap();
    set_mode(&made, 0o777);
    drop(Embedded::open(&made).unwrap());
    assert_eq!((mode(&made), open_files(&made)), (0o700, Vec::new()));
    runs(&["sql", scratch.path().join("new").to_str().unwrap(), "--create", "-c", "select 1"]);
    assert_eq!(mode(&scratch.path().join("new")), 0o700);
}

#[test]
fn a_directory_that_others_may_write_in_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let path = data.to_str().unwrap();
    runs(&["init", path]);
    for open in [0o770, 0o702, 0o777] {
        set_mode(&data, open);
        for command in ["serve", "sql", "check"] {
            let (code, text) = varve(&[command, path]);
            let words = [
                format!("data directory \"{path}\" has invalid permissions (0{open:o})"),
                "Permissions should be u=rwx (0700) or u=rwx,g=rx (0750)".to_owned(),
            ];
            assert!(code == Some(1) && words.iter().all(|word| text.contains(word)), "{command}: {text}");
        }
    }
    set_mode(&data, 0o750);
    assert!(!runs(&["check", path]).contains("warning"));
    assert_eq!(mode(&data), 0o750, "a group may be let in to read");
}

/// An older program left the directory and its files open to other users.
#[test]
fn an_older_directory_is_closed_and_that_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let path = data.to_str().unwrap();
    runs(&["init", path]);
    set_mode(&data, 0o755);
    for entry in std::fs::read_dir(&data).unwrap() {
        set_mode(&entry.unwrap().path(), 0o644);
    }
    let text = runs(&["sql", path, "-c", "create table t (a int)"]);
    assert!(text.contains("others could read the data directory") && text.contains("0755"), "{text}");
    assert_eq!((mode(&data), open_files(&data)), (0o700, Vec::new()));
    assert!(!runs(&["check", path]).contains("warning"));
}

#[test]
fn a_copy_of_a_running_database_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, hot, cold] = ["data", "hot", "cold"].map(|name| scratch.path().join(name));
    let database = Embedded::open(&data).unwrap();
    let mut session = database.session().unwrap();
    session.run("create table t (a int primary key); insert into t select generate_series(1, 100)").unwrap();
    copy(&data, &hot);
    drop(session);
    database.close().unwrap();
    copy(&data, &cold);

    let (code, text) = count(&hot, &[]);
    assert!(code == Some(1) && text.contains("is a copy") && text.contains("--accept-copy"), "{text}");
    let (code, text) = count(&hot, &["--accept-copy"]);
    assert!(code == Some(0) && text.contains("100"), "{text}");
    // From then on, the copy opens as any other database.
    assert_eq!(count(&hot, &[]).0, Some(0));
    assert_eq!(count(&cold, &[]), (Some(0), "count\n100\n".to_owned()));
}

#[test]
fn a_crash_is_no_copy() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, moved] = ["data", "moved"].map(|name| scratch.path().join(name));
    let database = Embedded::open(&data).unwrap();
    database.session().unwrap().run("create table t (a int primary key); insert into t values (1)").unwrap();
    // This leaves the directory as a killed process does.
    drop(database);
    std::fs::rename(&data, &moved).unwrap();
    assert_eq!(count(&moved, &[]), (Some(0), "count\n1\n".to_owned()));
}

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Served::start(directory.path()).stop("-TERM").0, Some(0));
    let file = directory.path().join("control");
    let mut bytes = std::fs::read(&file).unwrap();
    for slot in bytes.chunks_exact_mut(4096) {
        slot[8..12].copy_from_slice(&99_u32.to_le_bytes());
        let checksum = crc32c::crc32c(&slot[..4092]);
        slot[4092..].copy_from_slice(&checksum.to_le_bytes());
    }
    std::fs::write(&file, &bytes).unwrap();
    let (code, text) = check(directory.path());
    assert_eq!(code, Some(1));
    assert!(text.contains("format 99"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "the directory was changed");
}
