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
    let sql =
        "explain (analyze, costs off, timing off, summary off, format json) update t set b = 1 where a < 3";
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

/// Returns the number of pages that were found in the pool, and of pages that were read.
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

/// EXPLAIN counts the pages of the data file that a statement decompresses. A system table shows how much
/// compression saves.
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

/// Returns the estimate of the first step: startup cost, total cost, rows and width.
fn estimated(session: &mut Session, sql: &str) -> [f64; 4] {
    let json = lines(session, &format!("explain (format json) {sql}")).remove(0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let plan = &json[0]["Plan"];
    ["Startup Cost", "Total Cost", "Plan Rows", "Plan Width"].map(|key| plan[key].as_f64().unwrap())
}

#[test]
fn rows_are_estimated_from_the_tables() {
    let db = reopened(&MemoryDirectory::new());
    let mut session = session(&db);
    lines(&mut session, "create table t (a int primary key, b int, c text)");
    lines(&mut session, "insert into t select i, i / 100, 'row ' || i from generate_series(1, 20000) i");
    lines(&mut session, "create index tb on t (b)");
    let mut near = |sql: &str, rows: f64| {
        let [startup, total, estimate, _] = estimated(&mut session, sql);
        assert!((rows * 0.7 - 1.0..=rows * 1.4 + 1.0).contains(&estimate), "{sql}: {estimate} for {rows}");
        assert!(0.0 <= startup && startup <= total && total > 0.0, "{sql}: {startup}..{total}");
    };
    near("select * from t", 20_000.0);
    near("select * from t where a = 77", 1.0);
    near("select * from t where a between 5000 and 9999", 5_000.0);
    near("select * from t where a < 2000", 2_000.0);
    near("select * from t where a > 2000", 18_000.0);
    near("select * from t where a in (1, 3, 5)", 3.0);
    near("select * from t where b = 50", 100.0);
    near("select b from t where b between 20 and 39", 2_000.0);
    near("select * from t where a > 10000 and c like '%7'", 1_000.0);
    near("select * from t where c <> 'x' limit 10", 10.0);
    near("select x.a from t x, t y where x.a = 5000 and y.a = x.b", 1.0);
    near("select count(*) from t where a < 100", 1.0);
    // A scan of the whole table costs more than a scan of a part of an index.
    let whole = estimated(&mut session, "select * from t")[1];
    assert!(estimated(&mut session, "select * from t where a < 200")[1] < whole / 20.0);
    assert_eq!(estimated(&mut session, "select a, b from t where a < 10")[3], 8.0);
    // A change without RETURNING returns no row, and EXPLAIN does not run it.
    assert_eq!(estimated(&mut session, "delete from t where a < 100")[2], 0.0);
    assert_eq!(lines(&mut session, "select count(*) from t"), ["20000", "= SELECT 1"]);
}

#[test]
fn costs_follow_the_settings_and_can_be_left_out() {
    let db = reopened(&MemoryDirectory::new());
    let mut session = session(&db);
    lines(&mut session, "create table t (a int primary key, b text)");
    lines(&mut session, "insert into t select i, repeat('x', 100) from generate_series(1, 2000) i");
    let before = estimated(&mut session, "select * from t")[1];
    lines(&mut session, "set cpu_tuple_cost = 1");
    assert!(estimated(&mut session, "select * from t")[1] > before + 1000.0);
    lines(&mut session, "reset cpu_tuple_cost");
    lines(&mut session, "set seq_page_cost = 0; set cpu_tuple_cost = 0; set cpu_operator_cost = 0");
    assert_eq!(estimated(&mut session, "select * from t")[1], 0.0);
    let shown = lines(&mut session, "explain select * from t where a = 5");
    assert_eq!(shown[0], "Index Scan using t_pkey on t  (cost=0.00..4.00 rows=1 width=36)");
    let shown = lines(&mut session, "explain (costs off) select * from t where a = 5");
    assert_eq!(shown[0], "Index Scan using t_pkey on t");
    let shown = lines(&mut session, "explain (analyze, timing off) select * from t where a = 5");
    let both = "Index Scan using t_pkey on t  (cost=0.00..4.00 rows=1 width=36) (actual rows=1 loops=1)";
    assert_eq!(shown[0], both);
}
