//! Plans of general queries that are kept from one execution to the next: made once, valid only for what they were made for, and
//! nothing of an execution in them.

use std::sync::Arc;

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

    /// Rows by the extended protocol.
    fn rows(&mut self, sql: &str, params: &[&str]) -> Vec<String> {
        let params: Vec<Option<String>> = params.iter().map(|p| Some((*p).to_owned())).collect();
        let mut recorder = Recorder::default();
        recorder.extended(&mut self.session, sql, &params);
        recorder.lines.into_iter().filter(|l| !l.starts_with("= ")).collect()
    }

    /// Plans made while the closure runs.
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
    // The prepared statement's first execution, and its second, which is kept; as many for the statement that it is compared with.
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
