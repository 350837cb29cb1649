//! Cached plans of general queries. A plan is made once, is used only for the tables and settings for which
//! it was made, and contains no data of an execution.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::Recorder;
use super::support::{database_of, session};
use varve_query::{Queries, QueryOptions};
use varve_sql::{Session, SqlDatabase};

const TABLES: &str = "create table c (id int primary key, name text);
    create table o (id int primary key, c int, day date);
    create table l (o int, n int, amount int, primary key (o, n));
    insert into c select i, 'c' || i from generate_series(1, 20) i;
    insert into o select i, i % 20 + 1, date '2020-01-01' + i from generate_series(1, 200) i;
    insert into l select i % 200 + 1, i, i % 7 from generate_series(1, 1000) i";

const JOIN: &str = "select c.name, count(*), sum(l.amount) from c, o, l
    where o.c + 0 = c.id and l.o = o.id and c.id = $1 group by c.name";

struct Setting {
    queries: Arc<Queries>,
    db: Arc<SqlDatabase>,
    session: Session,
}

fn setting() -> Setting {
    let queries = Arc::new(Queries::new(&QueryOptions::default()).unwrap());
    let db = database_of(queries.clone());
    let mut session = session(&db);
    let mut recorder = Recorder::default();
    recorder.simple(&mut session, TABLES);
    assert!(recorder.lines.iter().all(|l| !l.starts_with('!')), "{:?}", recorder.lines);
    Setting { queries, db, session }
}

impl Setting {
    fn simple(&mut self, sql: &str) -> Vec<String> {
        let mut recorder = Recorder::default();
        recorder.simple(&mut self.session, sql);
        recorder.lines
    }

    /// Returns the rows that the extended protocol gives.
    fn rows(&mut self, sql: &str, params: &[&str]) -> Vec<String> {
        let params: Vec<Option<String>> = params.iter().map(|p| Some((*p).to_owned())).collect();
        let mut recorder = Recorder::default();
        recorder.extended(&mut self.session, sql, &params);
        recorder.lines.into_iter().filter(|l| !l.starts_with("= ")).collect()
    }

    /// Returns the number of plans that are made while the closure runs.
    fn plans(&mut self, run: impl FnOnce(&mut Setting)) -> u64 {
        let before = self.queries.plans_made();
        run(self);
        self.queries.plans_made() - before
    }
}

#[test]
fn a_plan_is_made_once_for_all_parameters() {
    let mut s = setting();
    let made = s.plans(|s| {
        for n in 1..=20 {
            let expect = s.simple(&JOIN.replace("$1", &format!("{n} + 0")).replace("c.id =", "c.id + 0 ="));
            assert_eq!(s.rows(JOIN, &[&n.to_string()]), expect[..1], "{n}");
        }
    });
    // Two plans are made for the prepared statement: in its first execution, and in its second, whose plan is
    // kept. Two more are made for the statement with which it is compared.
    assert_eq!(made, 4);
    let other = s.plans(|s| {
        let mut other = session(&s.db);
        let mut recorder = Recorder::default();
        recorder.extended(&mut other, JOIN, &[Some("3".into())]);
        assert_eq!(recorder.lines.len(), 2, "{:?}", recorder.lines);
    });
    assert_eq!(other, 0, "another session has the same statement");
}

#[test]
fn the_snapshot_is_the_execution_s() {
    let mut s = setting();
    let rows =
        |s: &mut Setting| s.rows("select count(*) from c join o on o.c + 0 = c.id where c.id < $1", &["5"]);
    for _ in 0..3 {
        assert_eq!(rows(&mut s), ["40"]);
    }
    let made = s.plans(|s| {
        s.simple("insert into o select i, 1 from generate_series(1001, 1010) i");
        assert_eq!(rows(s), ["50"]);
        s.simple("begin; delete from o where id > 1000");
        assert_eq!(rows(s), ["40"]);
        s.simple("rollback");
        assert_eq!(rows(s), ["50"]);
    });
    assert_eq!(made, 0);
}

#[test]
fn ddl_settings_and_roles_are_seen() {
    let mut s = setting();
    let expect = s.rows(JOIN, &["7"]);
    let rows = |s: &mut Setting| s.rows(JOIN, &["7"]);
    for _ in 0..3 {
        assert_eq!(rows(&mut s), expect);
    }
    for ddl in [
        "alter table l add column more int",
        "create index o_c on o (c)",
        "drop index o_c",
        "alter table o alter column day set not null",
        "truncate c; insert into c select i, 'c' || i from generate_series(1, 20) i",
    ] {
        let made = s.plans(|s| {
            let done = s.simple(ddl);
            assert!(done.iter().all(|l| !l.starts_with('!')), "{done:?}");
            for _ in 0..4 {
                assert_eq!(rows(s), expect, "after {ddl}");
            }
        });
        assert!((1..=2).contains(&made), "{made} plans after {ddl}");
    }
    s.simple("set search_path = pg_catalog, public");
    assert_eq!(rows(&mut s), expect);
    s.simple("create role clerk; grant select on c, o to clerk; set role clerk");
    assert_eq!(rows(&mut s), ["! 42501 permission denied for table l"]);
    s.simple("reset role; grant select on l to clerk; set role clerk");
    assert_eq!(rows(&mut s), expect);
    s.simple("reset role; revoke select on l from clerk; set role clerk");
    assert_eq!(rows(&mut s), ["! 42501 permission denied for table l"]);
    s.simple("reset role; drop table l");
    assert_eq!(rows(&mut s), ["! 42P01 relation \"l\" does not exist"]);
}

#[test]
fn what_hangs_on_the_execution_is_computed_in_it() {
    let mut s = setting();
    let from = "from c join o on o.c + 0 = c.id";
    for (sql, runs) in [
        // LIMIT and OFFSET
        (format!("select o.id {from} order by 1 limit $1"), vec![("2", "1/2"), ("3", "1/2/3"), ("2", "1/2"), ("1", "1")]),
        // Constants of parameters, with columns and without.
        (format!("select count(*) {from} where o.id < $1::int + 5"), vec![("1", "5"), ("2", "6"), ("3", "7")]),
        (format!("select $1::int * 2, count(*) {from} where o.id = 1"), vec![("1", "2|1"), ("2", "4|1"), ("3", "6|1")]),
        (format!("select count(*) {from} where o.day < $1::date + interval '1 month'"), vec![("2020-01-01", "30"), ("2020-02-01", "59")]),
        // Subqueries that run for each row, and those that are looked up.
        (format!("select count(*) {from} where o.id = (select max(l.n) from l where l.n < c.id + $1)"), vec![("0", "19"), ("1", "0"), ("20", "20")]),
        (format!("select count(*) {from} where o.id in (select n from l where n < $1) or o.id = 200"), vec![("10", "10"), ("20", "20"), ("5", "5")]),
        // WITH
        ("with w as materialized (select id from o where id < $1) select count(*) from w a, w b where a.id + 0 = b.id".to_owned(), vec![("10", "9"), ("20", "19"), ("5", "4")]),
        ("with recursive r(n) as (select 1 union all select n + 1 from r where n < $1) select count(*) from r join c on c.id = n".to_owned(), vec![("10", "10"), ("15", "15"), ("5", "5")]),
        // Window frames
        ("select string_agg(x::text, ',') from (select sum(id) over (order by id rows $1 preceding) as x from c where id < 5) y".to_owned(), vec![("1", "1,3,5,7"), ("2", "1,3,6,9"), ("0", "1,2,3,4")]),
        // UNION, VALUES, series
        ("select string_agg(x::text, ',') from (select $1::int as x union all select i from generate_series(1, $1::int) i) y".to_owned(), vec![("1", "1,1"), ("2", "2,1,2"), ("3", "3,1,2,3")]),
    ] {
        for _ in 0..3 {
            for (param, expect) in &runs {
                assert_eq!(s.rows(&sql, &[param]).join("/"), *expect, "{sql} with {param}");
            }
        }
    }
}

#[test]
fn clock_zone_and_errors_are_the_execution_s() {
    let mut s = setting();
    let sql = "select (timestamptz '2020-06-01 12:00+00')::text, count(*) from c join o on o.c + 0 = c.id where c.id < $1";
    for zone in ["UTC", "Europe/Berlin", "UTC", "Asia/Tokyo", "Europe/Berlin"] {
        s.simple(&format!("set timezone = '{zone}'"));
        let hour = match zone {
            "UTC" => "2020-06-01 12:00:00+00|20",
            "Europe/Berlin" => "2020-06-01 14:00:00+02|20",
            _ => "2020-06-01 21:00:00+09|20",
        };
        assert_eq!(s.rows(sql, &["3"]), [hour]);
    }
    let clock = "select now()::text || count(*) from c join o on o.c + 0 = c.id where c.id < $1";
    let times: Vec<Vec<String>> = (0..4).map(|_| s.rows(clock, &["3"])).collect();
    assert!(times.windows(2).all(|w| w[0] < w[1]), "{times:?}");
    let fails = "select sum(10 / (o.id - $1)) from c join o on o.c + 0 = c.id where c.id = 2";
    for (param, expect) in [
        ("0", "10"),
        ("1", "! 22012 division by zero"),
        ("0", "10"),
        ("21", "! 22012 division by zero"),
        ("0", "10"),
    ] {
        assert_eq!(s.rows(fails, &[param]), [expect]);
    }
}

#[test]
fn plan_cache_mode_is_heeded() {
    let mut s = setting();
    s.simple("set plan_cache_mode = force_custom_plan");
    let made = s.plans(|s| {
        for _ in 0..5 {
            s.rows(JOIN, &["7"]);
        }
    });
    assert_eq!(made, 5);
    assert_eq!(
        s.simple("set plan_cache_mode = sometimes"),
        ["! 22023 invalid value for parameter \"plan_cache_mode\": \"sometimes\""]
    );
}

#[test]
fn changes_by_a_general_query_keep_their_plan() {
    let mut s = setting();
    let sql =
        "update l set amount = amount + $1 from o where l.o = o.id and o.c = 3 and l.n < 100 returning l.n";
    let made = s.plans(|s| {
        let rows = s.rows(sql, &["1"]).len();
        assert!(rows > 0);
        for _ in 0..4 {
            assert_eq!(s.rows(sql, &["1"]).len(), rows);
        }
    });
    assert_eq!(made, 2);
    assert_eq!(
        s.rows("select min(amount) from l join o on l.o = o.id where o.c = 3 and l.n < 100", &[]),
        ["5"]
    );
}

fn extended(session: &mut Session, sql: &str, params: &[&str]) -> Vec<String> {
    let params: Vec<Option<String>> = params.iter().map(|p| Some((*p).to_owned())).collect();
    let mut recorder = Recorder::default();
    recorder.extended(session, sql, &params);
    recorder.lines
}

/// R12-K11: a cached plan had the parameters of the session that made it. When that session read a changed
/// row again, it used the parameters of another session that used the plan meanwhile.
#[test]
fn the_second_look_at_a_row_is_taken_with_the_statement_s_own_parameters() {
    let mut s = setting();
    s.simple("create table acc (id int primary key, v int); insert into acc values (1, 5), (2, 5)");
    s.simple("create table lim (n int primary key); insert into lim select generate_series(1, 100)");
    let sql = "update acc set v = (select max(n) from lim where n <= acc.v) + $2 where acc.id = $1";
    let (mut a, mut b, mut c) = (session(&s.db), session(&s.db), session(&s.db));
    assert_eq!(extended(&mut a, sql, &["1", "10"]), ["= UPDATE 1"]);
    let mut recorder = Recorder::default();
    recorder.simple(&mut c, "begin; update acc set v = v + 1 where id = 1");
    let waits = s.db.engine().stats().lock_waits;
    // This statement makes the plan that is kept, and waits for C.
    let waiting = std::thread::spawn(move || extended(&mut a, sql, &["1", "10"]));
    while !waiting.is_finished() && s.db.engine().stats().lock_waits == waits {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!waiting.is_finished());
    let made = s.plans(|_| assert_eq!(extended(&mut b, sql, &["2", "500"]), ["= UPDATE 1"]));
    assert_eq!(made, 0, "B uses the plan that A has made");
    recorder.simple(&mut c, "commit");
    assert_eq!(waiting.join().unwrap(), ["= UPDATE 1"]);
    assert_eq!(s.rows("select id, v from acc order by id", &[]), ["1|26", "2|505"]);
}

/// R12-K1: DataFusion computed the comparison of a constant column with a parameter when it made the plan. So
/// a cached plan kept the old result.
#[test]
fn nothing_that_hangs_on_the_execution_is_computed_when_the_plan_is_made() {
    let mut s = setting();
    let union = "(select 1 as k, id from c union all select 2, id from o)";
    let named = "(select 'c' as k, id from c union all select 'o', id from o)";
    for (sql, runs) in [
        (format!("select count(*) from {union} s where k = $1"), vec![("1", "20"), ("2", "200"), ("3", "0")]),
        (format!("select count(*) from {union} s where k < $1 + 1"), vec![("1", "20"), ("2", "220"), ("0", "0")]),
        (format!("select count(*) from {union} s where k in ($1, 7)"), vec![("1", "20"), ("2", "200"), ("3", "0")]),
        (format!("select count(*) from {named} s where k = $1"), vec![("c", "20"), ("o", "200"), ("x", "0")]),
        (format!("select count(*) from {named} s where k || 'x' = $1"), vec![("cx", "20"), ("ox", "200"), ("x", "0")]),
        (format!("select sum(k + $1) from {union} s where id = 7"), vec![("1", "5"), ("2", "7"), ("0", "3")]),
        (format!("select count(*) from {union} s join c on c.id = s.k + $1"), vec![("1", "220"), ("19", "20"), ("20", "0")]),
        ("select count(*) from (select 5 as k, id from c) s join o on o.id = s.id where k > $1".into(), vec![("4", "20"), ("5", "0"), ("1", "20")]),
        ("select count(*) from (select 5 as k, id from c) s left join o on o.id = s.id and k > $1 where o.id is null".into(), vec![("4", "0"), ("5", "20")]),
        // Whether NULL passes decides whether the condition may be moved across an outer join.
        ("select count(*) from o left join c on o.id = c.id where coalesce(c.id = 5, $1)".into(), vec![("false", "1"), ("true", "181"), ("false", "1")]),
        ("select count(*) from c full join o on o.id = c.id + 10 where coalesce(c.id < 4, $1)".into(), vec![("false", "3"), ("true", "183")]),
        // A subquery's values differ from run to run.
        (format!("select string_agg((select count(*) from {union} s where s.k = c.id + $1)::text, ',' order by c.id) from c where c.id < 4"),
            vec![("0", "20,200,0"), ("1", "200,0,0"), ("-1", "0,20,200")]),
    ] {
        for _ in 0..3 {
            for (param, expect) in &runs {
                assert_eq!(s.rows(&sql, &[param]).join("/"), *expect, "{sql} with {param}");
            }
        }
    }
    let each = format!(
        "select string_agg((select count(*) from {union} s where s.k = c.id)::text, ',' order by c.id) from c where c.id < 4"
    );
    assert_eq!(s.rows(&each, &[]), ["20,200,0"]);
}

/// R12-K1, with a column of a view that distinguishes its branches. The literals of simple statements are
/// parameters of one plan.
#[test]
fn a_view_s_constant_column_is_compared_with_the_statement_s_own_literal() {
    let mut s = setting();
    s.simple("create view v as select 'few' as kind, id from c union all select 'many', id from o");
    for _ in 0..3 {
        for (kind, expect) in [("few", "20"), ("many", "200"), ("none", "0")] {
            let lines = s.simple(&format!("select count(*) from v where kind = '{kind}'"));
            assert_eq!(lines[0], expect, "{kind}");
        }
    }
}

/// R12-K1, with the session's user or the clock in place of the parameter.
#[test]
fn a_constant_column_is_compared_with_the_execution_s_user_and_clock() {
    let mut s = setting();
    s.simple("create role clerk; grant select on c, o to clerk");
    let sql = "select count(*) from (select 'postgres' as owner, id from c union all select 'clerk', id from o) s where owner = current_user";
    for _ in 0..3 {
        assert_eq!(s.rows(sql, &[]), ["20"]);
    }
    s.simple("set role clerk");
    assert_eq!(s.rows(sql, &[]), ["200"]);
    s.simple("reset role");
    let later = s.simple("select now() + interval '2 s'").remove(0);
    let sql = format!(
        "select count(*) from (select timestamptz '{later}' as d, id from c union all select timestamptz '2020-01-01 00:00+00', id from o) s where d < now()"
    );
    let begin = Instant::now();
    let early: Vec<Vec<String>> = (0..3).map(|_| s.rows(&sql, &[])).collect();
    if begin.elapsed() < Duration::from_secs(1) {
        assert_eq!(early, [["200"], ["200"], ["200"]]);
    }
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(s.rows(&sql, &[]), ["220"]);
}

/// R12-K8: 'now' in a cast of text was the time at which the plan was made.
#[test]
fn a_cast_of_text_to_a_time_reads_the_execution_s_clock() {
    let mut s = setting();
    for cast in
        ["('now'::text::timestamptz)::text", "('now'::text::time)::text", "(('now'::text)::timestamp)::text"]
    {
        let sql = format!("select {cast} || count(*) from c join o on o.c + 0 = c.id where c.id < $1");
        let times: Vec<Vec<String>> = (0..4).map(|_| s.rows(&sql, &["3"])).collect();
        assert!(times.windows(2).all(|w| w[0] != w[1]), "{times:?}");
    }
}

/// R12-K6: LIMIT was computed while other sessions waited for the lock of the cached plans.
#[test]
fn a_limit_that_takes_its_time_keeps_nobody_waiting() {
    let mut s = setting();
    let slow = "select c.id from c join o on o.c + 0 = c.id order by 1 limit (case when pg_sleep($1) is null then 1 else 2 end)";
    let mut other = session(&s.db);
    for _ in 0..3 {
        assert_eq!(extended(&mut other, slow, &["0"])[2..], ["= SELECT 2"]);
        assert_eq!(s.rows(JOIN, &["7"]).len(), 1);
    }
    let sleeping = std::thread::spawn(move || extended(&mut other, slow, &["3"]));
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    assert_eq!(s.rows(JOIN, &["7"]).len(), 1);
    assert!(!sleeping.is_finished());
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    assert_eq!(sleeping.join().unwrap()[2..], ["= SELECT 2"]);
}
