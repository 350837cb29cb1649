//! Tests of the program `varve-lab`: its lists, and its errors (one paragraph and exit code 1).

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varve-lab")).args(arguments).output().unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn experiments_are_named() {
    let output = lab(&["experiment", "list"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("doublewrite-cost"), "{text}");
    let refused = refused(&["experiment", "perpetual-motion"]);
    assert!(refused.contains("there is no experiment perpetual-motion"), "{refused}");
}

/// An experiment makes and removes databases in its directory.
#[test]
fn files_of_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.txt"), "mine").unwrap();
    let name = directory.path().to_str().unwrap();
    let expect = format!(
        "varve-lab: The measurement failed: {name} holds files of others (a.txt), and an experiment makes and removes \
         databases there: choose a new or an empty directory, or one that an earlier experiment made."
    );
    assert_eq!(refused(&["experiment", "drop-table", "--directory", name]).trim_end(), expect);
    assert!(directory.path().join("a.txt").is_file());
}

/// Without the programs that make file systems, each missing one has a row that says why.
#[test]
fn file_systems_that_are_missing_have_rows() {
    let directory = tempfile::tempdir().unwrap();
    let arguments =
        ["experiment", "filesystem-log", "--rounds", "1", "--only", "file=recycled", "--directory"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve-lab"));
    let output = command.args(arguments).arg(directory.path()).env("PATH", "/nowhere").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let rows: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for kind in ["raw", "ext4", "xfs", "btrfs"] {
        let is_this =
            |row: &&serde_json::Value| row["row"] == "file-system" && row["factors"]["file system"] == kind;
        let row = rows.iter().find(is_this).unwrap();
        assert!(
            row["missing"].as_str().is_some_and(|why| why.contains("losetup") || why.contains("root")),
            "{row}"
        );
        assert!(text.contains(&format!("no {kind} on a loop device here: ")), "{text}");
    }
    let measured: Vec<_> = rows.iter().filter(|row| row["row"] == "append").collect();
    assert!(measured.len() == 1 && measured[0]["factors"]["file system"] == "here", "{text}");
}

#[test]
fn workloads_of_users_are_elsewhere() {
    let refused = refused(&["run", "tpcc", "--server", "host=127.0.0.1"]);
    assert!(refused.contains("choose linkbench, tpce-like or tpch-like, or see varve bench"), "{refused}");
}
