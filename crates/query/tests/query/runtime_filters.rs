//! Scans leave out rows without a partner in a join above them, and every query has the same answer as with a
//! key that no scan can check.

use super::support::{database, lines, session};

const LAYOUTS: [&str; 2] = ["row", "pax"];

/// Makes a table of 30,000 rows and two tables whose keys are few of its keys.
fn fill(session: &mut varve_sql::Session, layout: &str) {
    for sql in [
        format!("create table f (id int primary key, k int, w bigint, d date, n numeric(10,2), t text) with (layout = '{layout}')"),
        "insert into f select i, case when i % 7 = 0 then null else i * 31 % 4000 end, (i % 50)::bigint << 40, date '2024-01-01' + i % 300, i / 100.0, 'text ' || i from generate_series(1, 30000) i".into(),
        format!("create table small (k int, w bigint, d date, name text) with (layout = '{layout}')"),
        "insert into small select i * 400, (i::bigint % 3) << 40, date '2024-02-01' + i, 'name ' || i from generate_series(1, 9) i".into(),
        "create table holes (k int, x int)".into(),
        "insert into holes select case when i % 3 = 0 then null else i * 13 end, i from generate_series(1, 40) i".into(),
        "create table nothing (k int)".into(),
        "analyze".into(),
    ] {
        let said = lines(session, &sql);
        assert!(!said[0].starts_with('!'), "{sql}: {said:?}");
    }
}

/// Returns the rows that runtime filters have left out, by EXPLAIN ANALYZE.
fn left_out(session: &mut varve_sql::Session, sql: &str) -> u64 {
    let told = lines(session, &format!("explain (analyze, timing off, costs off) {sql}"));
    assert!(told.iter().all(|line| !line.starts_with('!')), "{sql}: {told:?}");
    let counts = told.iter().filter_map(|line| line.split_once("Rows Removed by Runtime Filter: "));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// Each query with the join condition `{f.k} = ...`, and whether a filter must leave out rows.
const QUERIES: [(&str, bool); 16] = [
    ("select count(*), sum(f.n), min(f.t) from f join small s on {f.k} = s.k", true),
    ("select s.k, count(f.id), max(f.n) from small s left join f on {f.k} = s.k group by 1", true),
    ("select count(*), sum(n) from f where {f.k} in (select k from small)", true),
    ("select s.k from small s where exists (select from f where {f.k} = s.k and f.n > 290)", true),
    ("select s.k from small s where not exists (select from f where {f.k} = s.k and f.n > 290)", true),
    ("select count(*), sum(id) from f where not exists (select from small s where s.k = {f.k})", false),
    ("select count(*), count(s.k) from f left join small s on {f.k} = s.k", false),
    ("select count(*), count(s.k), count(f.k) from f full join small s on {f.k} = s.k", false),
    ("select count(*), sum(f.id) from f join holes h on {f.k} = h.k and h.x % 2 = 0", true),
    ("select count(*) from f join nothing o on {f.k} = o.k", false),
    ("select count(*), sum(f.n) from f join small s on {f.w} = s.w", true),
    ("select count(*), sum(f.n) from f join small s on {f.d} = s.d and {f.k} = s.k", true),
    (
        "select s.name, g.c, g.a from small s join (select {f.k} as k, count(*) c, avg(n) a from f group by 1) g on g.k = s.k",
        true,
    ),
    (
        "select count(*), sum(f.id) from f join f e on e.id = f.id join small s on s.k = {f.k} where e.n < 250",
        true,
    ),
    (
        "select count(*) from small s join (select {f.k} as k, id from f order by id limit 500) l on l.k = s.k",
        false,
    ),
    ("select s.k, (select count(*) from f join small z on z.k = {f.k} where z.k > s.k) from small s", true),
];

#[test]
fn answers_are_those_without_filters() {
    let db = database();
    for layout in LAYOUTS {
        let mut session = session(&db);
        lines(&mut session, &format!("create schema s_{layout}; set search_path to s_{layout}"));
        fill(&mut session, layout);
        for (query, filters) in QUERIES {
            let plain = query.replace(['{', '}'], "");
            let mut computed = query.replace("{f.d}", "(f.d + 0)");
            for column in ["f.k", "f.w"] {
                computed = computed.replace(&format!("{{{column}}}"), &format!("({column} + 0)"));
            }
            let (mut is, mut should) = (lines(&mut session, &plain), lines(&mut session, &computed));
            is.sort();
            should.sort();
            assert_eq!(is, should, "{layout}: {plain}");
            assert!(!is[0].starts_with('!'), "{plain}: {is:?}");
            let count = left_out(&mut session, &plain);
            assert_eq!(count > 0, filters, "{layout}: {plain}: {count} rows");
        }
    }
}

#[test]
fn a_cached_plan_collects_the_keys_of_each_run() {
    let mut session = session(&database());
    fill(&mut session, "pax");
    let sql = "select count(*), coalesce(sum(f.id), 0) from f join small s on f.k = s.k";
    lines(&mut session, &format!("prepare p as {sql}"));
    let mut counts = Vec::new();
    for _ in 0..4 {
        let should = lines(&mut session, &sql.replace("f.k", "(f.k + 0)"));
        for _ in 0..3 {
            assert_eq!(lines(&mut session, "execute p"), should);
        }
        counts.push(should[0].clone());
        lines(&mut session, "insert into small select max(k) + 62, 0, null, null from small");
    }
    counts.dedup();
    assert_eq!(counts.len(), 4, "the runs have different answers: {counts:?}");
    lines(&mut session, "delete from small");
    assert_eq!(lines(&mut session, "execute p"), ["0|0", "= SELECT 1"]);
}

#[test]
fn conditions_of_the_scan_are_checked_first() {
    let mut session = session(&database());
    fill(&mut session, "pax");
    // The row with id 30000 has no partner. Its condition still fails.
    let sql = "select count(*) from f join small s on f.k = s.k where 1 / (30000 - f.id) >= 0";
    assert_eq!(lines(&mut session, sql), ["! 22012 division by zero"]);
}
