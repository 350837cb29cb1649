//! Queries whose pipelines run on several threads give the same answers as on one thread.

use std::path::Path;
use std::time::{Duration, Instant};

use super::shared::slt::run_directory;
use super::support::{forced_with, lines, session};
use varve_query::QueryOptions;
use varve_sql::Session;

/// Three threads for each table, however small it is.
fn threaded() -> QueryOptions {
    QueryOptions { threads: 3, threads_rows: 0, memory_bytes: 64 << 20, ..QueryOptions::default() }
}

/// `c` lies by columns. Statements in one string are one transaction, in which VACUUM cannot run.
const TABLES: [&str; 7] = [
    "create table p (id int primary key, v int, f float8)",
    "create table n (a int, b int, t text, primary key (a, b))",
    "create table c (id int primary key, a int, x numeric, t text) with (layout = 'pax')",
    "insert into p select i, i % 10, i / 7.0 from generate_series(1, 1000) as i",
    "insert into n select i % 100, i, 'v' || i % 13 from generate_series(1, 5000) as i",
    "insert into c select i, i % 77, i * 0.25, 'text ' || i % 5 from generate_series(1, 6000) as i",
    "vacuum full c",
];

fn fill(session: &mut Session) {
    for statement in TABLES {
        let told = lines(session, statement);
        assert!(told[0].starts_with("= "), "{statement}: {told:?}");
    }
}

/// Queries with at least one pipeline.
const GATHERED: [&str; 10] = [
    "select count(*), sum(b), min(t), max(b) from n where n.a + 0 < 50 and b % 3 <> 1",
    "select v, count(*), sum(n.b) from p join n on n.a = p.id group by v order by v",
    "select t, count(distinct a), sum(x), avg(x) from c where a > 3 and x < 1400.5 group by t order by t",
    "select count(*), sum(x) from c where id + 0 between 700 and 5300 and a in (1, 5, 9)",
    "select count(*), count(p.id) from n left join p on p.id = n.b and p.v = 3",
    "select count(*), count(n.a) from p full join n on p.id = n.b",
    "select count(*), sum(x) from c where exists (select from n where n.b = c.id and n.t = 'v3')",
    "select count(*) from c where not exists (select from p where p.id = c.a and p.v < 5)",
    "select c.t, n.t, sum(c.x) from c join n on n.b = c.id join p on p.id = n.a
        group by c.t, n.t order by 1, 2 limit 7",
    "select b, t from n where t > 'v2' order by t, b desc limit 20",
];

#[test]
fn several_threads_give_the_answers_of_one() {
    let databases = [QueryOptions::default(), threaded()].map(|options| forced_with(&options));
    let mut sessions = databases.each_ref().map(session);
    sessions.iter_mut().for_each(fill);
    for change in
        ["", "delete from c where id % 9 = 4; update c set x = x + 1, t = t || '.' where id % 50 = 7"]
    {
        for session in &mut sessions {
            lines(session, change);
        }
        for sql in GATHERED {
            let plans = sessions.each_mut().map(|session| lines(session, &format!("explain {sql}")));
            let has_gather = plans.each_ref().map(|plan| plan.iter().any(|line| line.contains("Gather")));
            assert_eq!(has_gather, [false, true], "{plans:#?}");
            // The later runs use a plan from the cache.
            for _ in 0..4 {
                let [one, several] = sessions.each_mut().map(|session| lines(session, sql));
                assert_eq!(one, several, "{sql}");
                assert!(one.last().unwrap().starts_with("= SELECT"), "{one:?}");
            }
        }
    }
}

#[test]
fn what_depends_on_the_order_of_rows_stays_on_one_thread() {
    let mut session = session(&forced_with(&threaded()));
    fill(&mut session);
    for sql in [
        "select string_agg(t, ',') from n where b + 0 < 50",
        "select string_agg(t, ',') from p join n on n.a = p.id",
        "select a, array_agg(v) from (select a, v, count(*) from n join p on p.id = n.b group by a, v) x group by a",
        "select sum(f) from p where v + 0 > 2",
        "select sum(f) from n join p on p.id = n.b where n.b + p.v > 5",
        "select * from n where a + b > 20 limit 5",
        "select count(random()) from n where a + b > 20",
        "select a, count(*) from n where b % 2 = 0 group by a, b order by a limit 3",
        "select t, a from n where b % 2 = 0 order by a, b limit 3",
        // A row that fails is behind the limit.
        "select 10 / (b - 4000) from n where t like 'v%' limit 2",
    ] {
        let plan = lines(&mut session, &format!("explain {sql}"));
        assert!(plan.iter().all(|line| !line.contains("Gather")), "{sql}: {plan:#?}");
    }
}

#[test]
fn an_error_of_a_thread_ends_the_query() {
    let mut session = session(&forced_with(&threaded()));
    fill(&mut session);
    let fails = "select count(*), sum(10 / (b - 4000)) from n where t like 'v%'";
    for _ in 0..5 {
        assert_eq!(lines(&mut session, fails), ["! 22012 division by zero"]);
        assert_eq!(lines(&mut session, "select count(*) from n where b + 0 > 0"), ["5000", "= SELECT 1"]);
    }
}

/// The first thread that needs the left side of a join builds its hash table, and the others wait for it.
#[test]
fn a_panic_of_a_thread_ends_the_query() {
    if !varve_device::IN_HARNESS {
        return;
    }
    // The left side of the join is read by several threads, or by one of those that read the right side.
    for rows_min in [0, 2000] {
        let mut session = session(&forced_with(&QueryOptions { threads_rows: rows_min, ..threaded() }));
        fill(&mut session);
        let sql = "select count(*) from p join n on n.b = p.id where n.b + 0 > 0";
        let plan = lines(&mut session, &format!("explain {sql}"));
        assert!(plan.iter().any(|line| line.contains("Gather")), "{plan:#?}");
        for _ in 0..10 {
            lines(&mut session, "set application_name = 'panic at operator'");
            let failed = lines(&mut session, sql);
            assert!(
                failed[0].starts_with("! XX000 internal error: planted: panic at operator"),
                "{failed:?}"
            );
            lines(&mut session, "reset application_name");
            assert_eq!(lines(&mut session, sql), ["1000", "= SELECT 1"]);
        }
    }
}

/// The reader that needs the first row of `w` stops at once, and the others still need all of its rows.
#[test]
fn the_rows_of_with_outlive_the_reader_that_began_them() {
    let databases = [QueryOptions::default(), threaded()].map(|options| forced_with(&options));
    let mut sessions = databases.each_ref().map(session);
    sessions.iter_mut().for_each(fill);
    let sql = "with w as materialized (select a, count(*) as m from n where b % 7 <> 2 group by a)
        select count(*), sum(c.a), sum(w.m)
        from c join w on w.a = c.a join (select a from w limit 1) f on f.a >= 0 where c.id + 0 > 9";
    for _ in 0..4 {
        let [one, several] = sessions.each_mut().map(|session| lines(session, sql));
        assert_eq!(one, several);
        assert!(one.last().unwrap().starts_with("= SELECT"), "{one:?}");
    }
}

#[test]
fn a_wish_to_cancel_reaches_all_threads() {
    let mut session = session(&forced_with(&threaded()));
    fill(&mut session);
    let endless =
        "select count(*) from n x join n y on x.t < y.t || 'a' join n z on z.t < y.t where x.b + z.b < 0";
    lines(&mut session, "set statement_timeout = 300");
    for endless in
        [endless, "select count(*) from n x, n y, n z where x.a = y.a and y.a = z.a and x.b + z.b < 0"]
    {
        let begin = Instant::now();
        let ended = lines(&mut session, endless);
        assert_eq!(ended, ["! 57014 canceling statement due to statement timeout"], "{endless}");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
    lines(&mut session, "set statement_timeout = 0");
    assert_eq!(lines(&mut session, "select count(*) from n where b + 0 > 0"), ["5000", "= SELECT 1"]);
}

#[test]
fn a_query_sees_the_changes_of_its_transaction_and_no_others() {
    let database = forced_with(&threaded());
    let (mut own, mut other) = (session(&database), session(&database));
    fill(&mut own);
    let sql = "select count(*), sum(x) from c where a + 0 >= 0";
    for (level, nth) in [("repeatable read", 101), ("serializable", 103)] {
        let before = lines(&mut other, sql);
        lines(&mut own, &format!("begin isolation level {level}"));
        assert_eq!(lines(&mut own, sql), before);
        lines(&mut other, "update c set x = x + 1 where id % 2 = 0; delete from c where id % 100 = 3");
        assert_eq!(lines(&mut own, sql), before);
        lines(&mut own, "rollback");
        assert_ne!(lines(&mut own, sql), before);
        lines(&mut own, &format!("begin; delete from c where id % {nth} = 0"));
        let within = lines(&mut own, sql);
        assert_ne!(within, lines(&mut other, sql));
        lines(&mut own, "commit");
        assert_eq!(within, lines(&mut other, sql));
    }
}

#[test]
fn explain_analyze_counts_the_work_of_all_threads() {
    let mut session = session(&forced_with(&threaded()));
    fill(&mut session);
    let sql = "select count(*) from c where a + 0 >= 0";
    let shown =
        lines(&mut session, &format!("explain (analyze, buffers, costs off, timing off, summary off) {sql}"));
    let shown = shown.join("\n");
    for part in
        ["Gather (actual rows=3 loops=1)", "Workers Planned: 3", "Seq Scan on c (actual rows=2000 loops=3)"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    // The node above the threads has their pages.
    let hits: Vec<u64> =
        shown.lines().filter_map(|line| line.split("shared hit=").nth(1)?.parse().ok()).collect();
    assert!(
        hits.len() >= 3 && hits.iter().all(|hit| *hit >= hits[hits.len() - 1]) && hits[0] > 30,
        "{shown}"
    );
}

/// All files of statements, but those that show plans.
#[test]
fn both_paths_give_the_same_on_several_threads() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/tests");
    let failures = run_directory(&directory, true, &|| forced_with(&threaded()), &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
