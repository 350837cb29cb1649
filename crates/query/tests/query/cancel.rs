//! Queries that make many rows, or many pairs of rows, from few rows. Each of them ends soon after a cancel
//! request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::{database_with, lines, session};
use varve_query::QueryOptions;
use varve_sql::{Session, SqlDatabase};

const ENDED: &str = "! 57014 canceling statement due to statement timeout";

/// A database whose limit of memory no statement here can reach before its limit of time, however fast the
/// machine is. Otherwise a statement that collects values could end with 53200 instead.
fn roomy() -> Arc<SqlDatabase> {
    database_with(&QueryOptions { memory_bytes: 8 << 30, ..QueryOptions::default() })
}

/// Makes a session with a table of equal, rising and falling numbers, and with little time for each
/// statement.
fn hasty(db: &Arc<SqlDatabase>) -> Session {
    let mut session = session(db);
    lines(&mut session, "create table n (id int primary key, same int, up int, down int)");
    lines(&mut session, "create table few (id int primary key); insert into few values (1), (2), (3)");
    lines(&mut session, "insert into n select i, 1, i, -i from generate_series(1, 20000) as i");
    lines(&mut session, "set statement_timeout = 400");
    session
}

fn ends(session: &mut Session, sql: &str) {
    let begin = Instant::now();
    assert_eq!(lines(session, sql), [ENDED], "{sql}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{sql}: {:?}", begin.elapsed());
}

fn show(session: &mut Session, sql: &str) -> String {
    lines(session, &format!("explain (verbose) {sql}")).join("\n")
}

/// Earlier, the aggregate took batch after batch in one poll, and nothing checked for the cancel request.
#[test]
fn cross_joins_below_an_aggregate_are_ended() {
    let mut session = hasty(&roomy());
    let crossed = "select count(*) from n a, n b, n c";
    assert!(show(&mut session, crossed).contains("CrossJoinExec"));
    ends(&mut session, crossed);
    ends(&mut session, "select max(a.up + b.up) from n a, n b, n c, few");
    ends(&mut session, "select a.same, count(distinct b.up) from n a, n b, n c group by a.same");
    ends(&mut session, "select count(*) from n a left join n b on true left join n c on true");
    assert_eq!(lines(&mut session, "select count(*) from few a, few b"), ["9", "= SELECT 1"]);
}

/// No row passes the condition, so the join returns no batch while it runs.
#[test]
fn joins_that_keep_none_of_their_pairs_are_ended() {
    let mut session = hasty(&roomy());
    let never = "select count(*) from n a join n b on a.up > b.up and a.down > b.down";
    assert!(show(&mut session, never).contains("NestedLoopJoinExec"));
    ends(&mut session, never);
    ends(&mut session, "select a.id from n a left join n b on a.down > b.up order by 1 limit 1");
    ends(&mut session, "select count(*) from n a where exists (select 1 from n b where a.down > b.up)");
    ends(&mut session, "select count(*) from n a where not exists (select 1 from n b where a.up <> b.up)");
    let equal = "select count(*) from n a join n b on a.same = b.same and a.up > b.up and a.down > b.down";
    assert!(show(&mut session, equal).contains("HashJoinExec"));
    ends(&mut session, equal);
}

/// Semi joins and anti joins form all pairs of equal keys and give at most the rows of one side.
#[test]
fn semi_joins_of_many_equal_keys_are_ended() {
    let mut session = hasty(&roomy());
    ends(&mut session, "select count(*) from n a where exists (select 1 from n b where b.same = a.same)");
    ends(&mut session, "select count(*) from n a where same in (select same from n b where up > 3)");
    ends(&mut session, "select count(*) from n a where not exists (select 1 from n b where b.same = a.same)");
}

#[test]
fn parts_that_are_planned_by_themselves_are_ended() {
    let mut session = hasty(&roomy());
    // None of its rows is kept, so that the stored rows of WITH need no memory.
    let kept = "with c as materialized (select a.up from n a, n b, n c where a.up + b.up + c.up < 0) select count(*) from c, c d";
    ends(&mut session, kept);
    ends(
        &mut session,
        "select (select count(*) from n b, n c where b.up > few.id and c.up <> b.down) from few",
    );
    let turns = "with recursive r(x) as (select 1 union all select x + 1 from r, (select max(a.up) m from n a, n b, n c) q where x < m) select max(x) from r";
    ends(&mut session, turns);
    ends(&mut session, "explain analyze select count(*) from n a, n b, n c");
}

/// A cached plan checks the cancel requests of the execution that uses it.
#[test]
fn kept_plans_are_ended() {
    let mut session = hasty(&roomy());
    lines(
        &mut session,
        "prepare paired(int) as select count(*) from n a, n b where a.up <= $1 and a.up > b.up and a.down > b.down",
    );
    lines(&mut session, "set statement_timeout = 0");
    for _ in 0..3 {
        assert_eq!(lines(&mut session, "execute paired(1)"), ["0", "= SELECT 1"]);
    }
    lines(&mut session, "set statement_timeout = 400");
    ends(&mut session, "execute paired(20000)");
}

/// The rows of a moving frame are read again for each row.
#[test]
fn moving_frames_are_ended() {
    let mut session = hasty(&roomy());
    let moving = "select max(s) from (select sum(up) over (order by id rows between 15000 preceding and current row) s from n) w";
    ends(&mut session, moving);
}

/// These are the joins of a query that continues in files.
#[test]
fn merge_joins_are_ended() {
    let spill = tempfile::tempdir().unwrap();
    let options = QueryOptions {
        memory_bytes: 1 << 20,
        spill: Some(spill.path().to_path_buf()),
        ..QueryOptions::default()
    };
    let mut session = hasty(&database_with(&options));
    let joined = "select count(*) from n a, n b where a.same = b.same and a.up > b.up and a.down > b.down";
    ends(&mut session, joined);
}

/// Functions that make many values from few rows check for a cancel request themselves, and so do functions
/// that read many values. The text is made before, so that the timeout ends the function itself and no step
/// before it.
#[test]
fn functions_over_long_values_are_ended() {
    let mut session = hasty(&roomy());
    lines(&mut session, "set statement_timeout = 0");
    let made = "create table long as select repeat('a,', 3000000) s, array_agg(g) a from generate_series(1, 300000) g";
    assert_eq!(lines(&mut session, made), ["= SELECT 1"]);
    lines(&mut session, "set statement_timeout = 100");
    let found = "select * from unnest(string_to_array(repeat('a,', 3000000), ','))";
    ends(&mut session, found);
    for sql in [
        "select cardinality(string_to_array(s, ',')) from long",
        "select count(*) from unnest(string_to_array(repeat('a,', 3000000), ',')) u, few",
        "select unnest(string_to_array(s, ',')) from long",
        "select cardinality(regexp_split_to_array(s, ',')) from long",
        "select length(regexp_replace(s, '(a)', 'b\\1', 'g')) from long",
        "select count(*) from (select regexp_matches(s, 'a', 'g') from long) m",
        "select a @> a from long",
        "select a && array[-1, -2, -3, -4, -5, -6, -7, -8, -9] from long, n",
        "select array_position(a, -1) from long, n",
        "select count(*) from long, n where array_to_string(a, ',') = ''",
        "select length(string_agg(repeat('a', 10), ',')) from n a, n b",
        "select g from generate_series(1, 3000000) g order by -g",
        "select distinct g from generate_series(1, 3000000) g",
        "select max(repeat('a', g)) from generate_series(1, 1000000) g",
    ] {
        ends(&mut session, sql);
    }
}
