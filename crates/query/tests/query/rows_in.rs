//! `(a, b) IN (SELECT ...)` as a value, whose members have NULLs in many different columns: memory and cancel
//! requests.

use std::time::{Duration, Instant};

use varve_query::QueryOptions;

use super::support::{database_with, lines, session};

/// Returns a query over rows of `columns` equal numbers from 1 on. Member `j` has NULL where `j` has a bit, and
/// `j` elsewhere. No member has only NULLs.
fn query(columns: u32, rows: u32) -> String {
    let list = |each: &dyn Fn(u32) -> String| (0..columns).map(each).collect::<Vec<_>>().join(", ");
    let row = list(&|_| "i".into());
    let member = list(&|at| format!("case when j & {} = 0 then j end", 1 << at));
    let last = (1_u32 << columns) - 2;
    format!(
        "select count(*), count(f), sum(f::int) from (select ({row}) in
        (select {member} from generate_series(1, {last}) j) as f from generate_series(1, {rows}) i) x"
    )
}

#[test]
fn rows_that_are_looked_up_stay_within_the_memory_of_queries() {
    for memory_bytes in [2 << 20, 256 << 20] {
        let db = database_with(&QueryOptions { memory_bytes, ..QueryOptions::default() });
        assert_eq!(lines(&mut session(&db), &query(8, 2000)), ["2000|1746|0", "= SELECT 1"]);
    }
}

#[test]
fn a_lookup_of_rows_can_be_cancelled() {
    let db = database_with(&QueryOptions::default());
    let mut session = session(&db);
    lines(&mut session, "set statement_timeout = 500");
    let begin = Instant::now();
    let ended = lines(&mut session, &query(15, 8192));
    assert_eq!(ended, ["! 57014 canceling statement due to statement timeout"]);
    assert!(begin.elapsed() < Duration::from_secs(30));
}
