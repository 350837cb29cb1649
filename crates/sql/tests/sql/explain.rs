//! Tests of EXPLAIN (FORMAT JSON) and (BUFFERS). They are not `.slt` files, because JSON is one row of
//! several lines, and because the pages that a statement reads depend on earlier statements.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::support::{Recorder, reopened, session};
use varve_device::MemoryDirectory;
use varve_sql::Session;

fn lines(session: &mut Session, sql: &str) -> Vec<String> {
    let mut recorder = Recorder::default();
    recorder.simple(session, sql);
    recorder.lines
}

const UPDATED: &str = r#"[
  {
    "Plan": {
      "Node Type": "ModifyTable",
      "Operation": "Update",
      "Parallel Aware": false,
      "Async Capable": false,
      "Relation Name": "t",
      "Actual Rows": 0,
      "Actual Loops": 1,
      "Plans": [
        {
          "Node Type": "Index Scan",
          "Scan Direction": "Forward",
          "Parent Relationship": "Outer",
          "Parallel Aware": false,
          "Async Capable": false,
          "Index Name": "t_pkey",
          "Relation Name": "t",
          "Actual Rows": 2,
          "Actual Loops": 1,
          "Index Cond": "(a < 3)"
        }
      ]
    },
    "Triggers": [
    ]
  }
]"#;

#[test]
fn json_is_postgresql_s() {
    let db = reopened(&MemoryDirectory::new());
    let mut session = session(&db);
    lines(&mut session, "create table t (a int primary key, b int)");
    lines(&mut session, "insert into t select i, i from generate_series(1, 10) i");
    let sql = "explain (analyze, timing off, summary off, format json) update t set b = 1 where a < 3";
    assert_eq!(lines(&mut session, sql), [UPDATED, "= EXPLAIN"]);
    assert_eq!(lines(&mut session, "select count(*) from t where b = 1"), ["2", "= SELECT 1"]);
    let timed =
        lines(&mut session, "explain (analyze, buffers, format json) select * from t where b > 5").remove(0);
    let json: serde_json::Value = serde_json::from_str(&timed).unwrap();
    let plan = &json[0]["Plan"];
    assert_eq!(plan["Rows Removed by Filter"], 5);
    assert!(plan["Actual Total Time"].as_f64().unwrap() >= plan["Actual Startup Time"].as_f64().unwrap());
    assert!(json[0]["Execution Time"].as_f64().unwrap() >= plan["Actual Total Time"].as_f64().unwrap());
    assert!(plan["Shared Hit Blocks"].as_u64().unwrap() > 0, "{timed}");
    assert_eq!(plan["Pages by Level"]["home"], plan["Shared Read Blocks"]);
}

/// Pages that were found in the pool, and read.
fn pages(session: &mut Session, sql: &str) -> (u64, u64) {
    let json =
        lines(session, &format!("explain (analyze, buffers, timing off, format json) {sql}")).remove(0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let count = |key: &str| json[0]["Plan"][key].as_u64().unwrap();
    (count("Shared Hit Blocks"), count("Shared Read Blocks"))
}

#[test]
fn pages_are_counted_where_they_were_found() {
    let directory = MemoryDirectory::new();
    let db = reopened(&directory);
    let mut before = session(&db);
    lines(&mut before, "create table t (a int primary key, b text)");
    lines(&mut before, "insert into t select i, repeat('x', 100) from generate_series(1, 5000) i");
    drop(before);
    db.engine().shutdown().unwrap();
    drop(db);
    let db = reopened(&directory);
    let mut session = session(&db);
    let sql = "select count(*) from t";
    let (_, read) = pages(&mut session, sql);
    assert!(read > 50, "{read} pages were read of a table that nobody had in the pool");
    let (hit, read_again) = pages(&mut session, sql);
    assert!(hit > 50 && read_again == 0, "{hit} hit, {read_again} read");
    let told = lines(&mut session, "explain (analyze, buffers) select count(*) from t");
    assert!(told.iter().any(|l| l.trim() == format!("Buffers: shared hit={hit}")), "{told:?}");
    let inner = told.iter().filter(|l| l.contains("Buffers: shared")).count();
    assert_eq!(inner, 2, "of the scan, and of the aggregate above it: {told:?}");
}

/// Pages that are compressed at home are counted where they are made plain, and a table tells what that
/// saves.
#[test]
fn pages_that_were_compressed_are_counted() {
    let directory = MemoryDirectory::new();
    let db = reopened(&directory);
    let mut before = session(&db);
    lines(&mut before, "create table t (a int primary key, b text) with (compression = 'zstd')");
    lines(&mut before, "insert into t select i, repeat('x', 100) from generate_series(1, 5000) i");
    db.engine().checkpoint().unwrap();
    while db.engine().pager().tick_write(100).unwrap() > 0 {}
    let saved = "select relname, algorithm, level, home_bytes, pages_written * 8192 = written_plain_bytes, \
                 plain_bytes >= 60 * 8192, written_bytes < written_plain_bytes / 4, saved_percent > 75 \
                 from varve_compression";
    assert_eq!(lines(&mut before, saved)[0], "t|zstd|0|NULL|t|t|t|t");
    drop(before);
    db.engine().shutdown().unwrap();
    drop(db);
    let db = reopened(&directory);
    let mut session = session(&db);
    let told = lines(&mut session, "explain (analyze, buffers) select count(*) from t");
    let note = told.iter().find(|l| l.trim().starts_with("Decompressed: "));
    assert!(note.is_some_and(|l| l.ends_with("kB stored")), "{told:?}");
    let told = lines(&mut session, "explain (analyze, buffers) select count(*) from t");
    assert!(!told.iter().any(|l| l.contains("Decompressed")), "they are plain in the pool: {told:?}");
}
