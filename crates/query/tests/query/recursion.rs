//! WITH RECURSIVE and memory: the rows are counted against the memory limit, and the query can be cancelled.

use varve_query::QueryOptions;

use super::support::{database_with, lines, session};

#[test]
fn rows_of_a_recursion_come_out_of_the_memory_of_queries() {
    let db = database_with(&QueryOptions { memory_bytes: 2 << 20, ..QueryOptions::default() });
    let mut s = session(&db);
    let endless = "with recursive t(n) as (select 1 union select n + 1 from t) select count(*) from t";
    let told = lines(&mut s, endless);
    assert!(told.iter().any(|l| l.starts_with("! 53200")), "{told:?}");
    // The memory of finished iterations is released.
    let long = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3000) select count(*), max(n) from t";
    assert_eq!(lines(&mut s, long), ["3000|3000", "= SELECT 1"]);
}

#[test]
fn a_query_that_is_read_twice_is_kept_within_the_memory_of_queries() {
    let db = database_with(&QueryOptions { memory_bytes: 2 << 20, ..QueryOptions::default() });
    let mut s = session(&db);
    let large = "with r as (select repeat('x', 1000 + g % 2) as a from generate_series(1, 10000) g) select count(*) from r a, (select 1 from r limit 1) b";
    let told = lines(&mut s, large);
    assert!(told.iter().any(|l| l.starts_with("! 53200")), "{told:?}");
}
