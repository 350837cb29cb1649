//! Joins by the crate `spill`: each method and kind gives the rows of the hash join in memory, with 64 KiB of
//! memory, NULLs, equal keys, skew, empty inputs and conditions. Errors leave nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::{database_with, error_of, lines, session};
use varve_device::{Emulated, MemoryDirectory, Profile};
use varve_query::{EmulatedDrive, QueryOptions};
use varve_sql::{Session, SqlDatabase};

const METHODS: [(&str, &str); 4] = [
    ("block_nested_loops", "block nested loops"),
    ("sort_merge", "sort-merge"),
    ("grace_hash", "Grace hash"),
    ("hybrid_hash", "hybrid hash"),
];

/// Table `l` and `r`: unique and common keys, NULLs, one key with a tenth of the rows, values of several
/// types.
const SETUP: &str = "
    create table l (id int primary key, k int, t text, n numeric, f float8, pad text);
    create table r (id int primary key, k int, t text, n numeric, f float8, pad text);
    create table none (id int primary key, k int, t text, n numeric, f float8, pad text);
    insert into l select i, case when i % 13 = 0 then null when i % 10 = 0 then 7 else i % 250 end,
        'key ' || i % 90, case when i % 2 = 0 then i % 50 else (i % 50)::numeric(9, 2) end,
        case when i % 3 = 0 then 0.0 when i % 3 = 1 then '-0'::float8 else 'NaN'::float8 end, repeat('l', i % 240)
        from generate_series(1, 700) as i;
    insert into r select i, case when i % 11 = 0 then null when i % 100 = 0 then 7 else (i * 7) % 330 end,
        'key ' || i % 140, (i % 70)::numeric(9, 1),
        case when i % 50 = 0 then 0 when i % 50 = 1 then 'NaN'::float8 else i end, repeat('r', i % 300)
        from generate_series(1, 1100) as i";

/// Joins of each kind. None of them sorts, so the order is that of the join.
const JOINS: [&str; 22] = [
    "select l.id, r.id, l.pad, r.pad from l join r on l.k = r.k",
    "select l.id, r.id, r.pad from l left join r on l.k = r.k",
    "select l.id, r.id, l.pad from l right join r on l.k = r.k",
    "select l.id, r.id, l.t, r.t from l full join r on l.k = r.k",
    "select l.id, l.pad from l where exists (select from r where r.k = l.k)",
    "select l.id, l.pad from l where not exists (select from r where r.k = l.k)",
    "select r.id from r where r.k in (select k from l)",
    "select r.id, r.pad from r where not exists (select from l where l.k = r.k and l.t = r.t)",
    // Conditions beside the keys.
    "select l.id, r.id from l join r on l.k = r.k and l.id < r.id",
    "select l.id, r.id from l left join r on l.k = r.k and l.id + r.id > 800",
    "select l.id, r.id from l right join r on l.k = r.k and length(l.pad) < length(r.pad)",
    "select l.id, r.id from l full join r on l.k = r.k and l.t < r.t",
    "select l.id from l where exists (select from r where r.k = l.k and r.id <> l.id)",
    "select l.id from l where not exists (select from r where r.k = l.k and r.id > l.id)",
    "select r.id from r where not exists (select from l where r.k = l.k and r.id > l.id + 100)",
    // Keys whose equality is not that of their bytes, and several keys.
    "select l.id, r.id from l join r on l.n = r.n and l.k = r.k",
    "select l.id, r.id from l join r on l.f = r.f and l.t = r.t",
    "select count(*), sum(l.id), sum(r.id) from l full join r on l.t = r.t and l.f = r.f",
    // Empty inputs.
    "select l.id, none.id from l left join none on l.k = none.k and none.id > l.id",
    "select none.id, r.id from none right join r on none.k = r.k",
    "select l.id from l join none on l.k = none.k",
    "select a.id, b.id, c.id from l a join r b on a.k = b.k and a.t = b.t left join l c on c.t = b.t and c.k = a.k",
];

/// So little memory that no side of a join fits.
const POOL_BYTES: usize = 3 << 20;

fn spilling(memory_bytes: usize) -> (tempfile::TempDir, Arc<SqlDatabase>) {
    let home = tempfile::tempdir().unwrap();
    let spill = Some(home.path().to_owned());
    let database = database_with(&QueryOptions { memory_bytes, spill, ..QueryOptions::default() });
    (home, database)
}

fn sorted(session: &mut Session, sql: &str) -> Vec<String> {
    let mut lines = lines(session, sql);
    lines.sort();
    lines
}

fn force(session: &mut Session, method: &str, work_mem: &str) {
    let set = format!("set join_method = '{method}'; set work_mem = '{work_mem}'");
    assert_eq!(lines(session, &set), ["= SET", "= SET"]);
}

#[test]
fn each_method_gives_the_rows_of_the_hash_join() {
    let (home, database) = spilling(64 << 20);
    let mut session = session(&database);
    assert_eq!(lines(&mut session, SETUP).last().map(String::as_str), Some("= INSERT 0 1100"));
    let expected = JOINS.map(|sql| sorted(&mut session, sql));
    for (sql, expected) in JOINS.iter().zip(&expected) {
        assert!(expected.len() > 1 || sql.contains("none"), "{sql}: {expected:?}");
    }
    for (method, name) in METHODS {
        for work_mem in ["64kB", "8MB"] {
            force(&mut session, method, work_mem);
            for (sql, expected) in JOINS.iter().zip(&expected) {
                let shown = lines(&mut session, &format!("explain {sql}")).join("\n");
                assert!(shown.contains(&format!("Join Method: {name}")), "{sql}\n{shown}");
                let rows = sorted(&mut session, sql);
                assert!(
                    rows == *expected,
                    "{method} {work_mem} {sql}: {} rows, not {}",
                    rows.len(),
                    expected.len()
                );
            }
        }
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "files have no names");
}

#[test]
fn explain_analyze_shows_what_a_join_has_done() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    lines(&mut session, SETUP);
    for (method, name) in METHODS {
        force(&mut session, method, "64kB");
        let shown = lines(&mut session, &format!("explain (analyze, timing off) {}", JOINS[0])).join("\n");
        assert!(shown.contains(&format!("Join Method: {name}")), "{shown}");
        assert!(shown.contains("Disk Usage: ") && shown.contains("Peak Memory: "), "{shown}");
        assert_eq!(shown.contains("Partitions: "), method.contains("hash"), "{shown}");
    }
}

/// A hash join in memory is planned again, even if the session sets nothing.
#[test]
fn a_join_beyond_memory_spills_by_the_cheapest_method() {
    let (_home, database) = spilling(6 << 20);
    let mut session = session(&database);
    lines(&mut session, "create table t (a int primary key, b int, c text)");
    let rows = "insert into t select i, (i::bigint * 7919) % 60013, repeat('x', 150) || i from generate_series(1, 60000) as i";
    lines(&mut session, rows);
    let joined = "select count(*), sum(length(x.c)), sum(y.a) from t x join t y on x.c = y.c";
    assert_eq!(lines(&mut session, joined), ["60000|9288894|1800030000", "= SELECT 1"]);
    let shown = lines(&mut session, &format!("explain (analyze, timing off) {joined}")).join("\n");
    assert!(
        shown.contains(" hash\n") && shown.contains("Partitions: ") && shown.contains("Disk Usage: "),
        "{shown}"
    );
}

/// Returns the predicted times in milliseconds of each method for a join that the cost model has planned.
fn predicted_ms(profile: Option<&str>) -> Vec<(String, f64)> {
    let home = tempfile::tempdir().unwrap();
    let spill = Some(home.path().to_owned());
    let emulated_spill = profile.map(|name| {
        let profile = Profile::shipped(name).unwrap();
        // The times of the profile divided by 1,000, so that the test does not wait for the disk.
        let directory = Emulated::wrap(MemoryDirectory::new(), profile.clone(), 0.001);
        EmulatedDrive { directory, profile }
    });
    let options = QueryOptions { memory_bytes: 6 << 20, spill, emulated_spill, ..QueryOptions::default() };
    let mut session = session(&database_with(&options));
    lines(&mut session, "create table t (a int primary key, c text)");
    lines(&mut session, "insert into t select i, repeat('x', 150) || i from generate_series(1, 40000) as i");
    let joined = "explain (analyze, timing off) select count(*) from t x join t y on x.c = y.c";
    let shown = lines(&mut session, joined);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "a measurement leaves no file");
    let line = shown.iter().find_map(|line| line.trim().strip_prefix("Predicted Times: "));
    let line = line.unwrap_or_else(|| panic!("{shown:?}"));
    let entry = |entry: &str| {
        let (method, ms) = entry.strip_suffix(" ms")?.rsplit_once(' ')?;
        Some((method.to_owned(), ms.parse().ok()?))
    };
    line.split(", ").map(|text| entry(text).unwrap()).collect()
}

/// The cost model uses the profile of the drive. Without one, the drive is measured, and no file is left.
#[test]
fn the_cost_model_knows_the_drive() {
    let names = |times: &[(String, f64)]| Vec::from_iter(times.iter().map(|(name, _)| name.clone()));
    let disk = predicted_ms(Some("hdd-5400"));
    let flash = predicted_ms(Some("nvme"));
    assert_eq!(names(&disk), ["sort-merge", "Grace hash", "hybrid hash"]);
    assert!(disk.iter().zip(&flash).all(|(disk, flash)| disk.1 > 5.0 * flash.1), "{disk:?} {flash:?}");
    let measured = predicted_ms(None);
    assert!(measured.iter().all(|(_, ms)| *ms > 0.0), "{measured:?}");
}

/// Joins with a condition beside their keys: with unique keys, with equal keys on both sides, and of each
/// kind.
const CONDITIONS: [&str; 8] = [
    "select count(*), sum(x.a), sum(y.a) from t x left join t y on x.c = y.c and x.b < y.a",
    "select count(*), sum(x.a), sum(y.a) from t x right join t y on x.c = y.c and x.b < y.a",
    "select count(*), sum(x.a), sum(y.a) from t x full join t y on x.c = y.c and x.b < y.a",
    "select count(*), sum(x.a) from t x where exists (select from t y where x.c = y.c and x.b < y.a)",
    "select count(*), sum(x.a) from t x where not exists (select from t y where x.c = y.c and x.b < y.a)",
    "select count(*), sum(x.a), sum(y.a) from t x left join t y on x.k = y.k and x.c < y.c and y.a % 7 = x.a % 5",
    "select count(*), sum(x.a), sum(y.a) from t x full join t y on x.k = y.k and x.c > y.c and y.b > 7 * x.b",
    "select count(*), sum(x.a) from t x where not exists (select from t y where x.k = y.k and x.c < y.c and x.b < y.b)",
];

/// Joins with such a condition are planned again, too, and spill. Their answers are the same as with enough
/// memory.
#[test]
fn joins_with_conditions_beyond_memory_spill() {
    let ((_home, small), (_other, large)) = (spilling(POOL_BYTES), spilling(256 << 20));
    let (mut small, mut large) = (session(&small), session(&large));
    for session in [&mut small, &mut large] {
        lines(session, "create table t (a int primary key, b int, k int, c text)");
        let rows = "insert into t select i, (i::bigint * 7919) % 10007, i / 40, repeat('x', 400) || i from generate_series(1, 10000) as i";
        assert_eq!(lines(session, rows), ["= INSERT 0 10000"]);
    }
    for sql in CONDITIONS {
        let expected = lines(&mut large, sql);
        assert_eq!(lines(&mut small, sql), expected, "{sql}");
        let shown = lines(&mut small, &format!("explain (analyze, timing off) {sql}")).join("\n");
        assert!(shown.contains("Join Method: ") && shown.contains("Disk Usage: "), "{sql}\n{shown}");
    }
}

#[test]
fn a_refused_file_is_an_error_of_its_statement() {
    let (home, database) = spilling(64 << 20);
    let mut session = session(&database);
    lines(&mut session, SETUP);
    let sql = "select count(*) from l join r on l.k = r.k and l.pad <> r.pad";
    let expected = lines(&mut session, sql);
    for (method, _) in METHODS {
        force(&mut session, method, "64kB");
        lines(&mut session, "set temp_file_limit = '100kB'");
        let error = error_of(&mut session, sql);
        let message = "temporary file size exceeds temp_file_limit (100kB)";
        assert_eq!((error.sqlstate.0, &*error.message), ("53400", message), "{method}");
        lines(&mut session, "reset temp_file_limit");
        assert_eq!(lines(&mut session, sql), expected, "{method}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// An error of a condition ends the join, and so does a cancel request.
#[test]
fn errors_and_cancel_requests_end_a_join() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    lines(&mut session, SETUP);
    lines(&mut session, "create table n (id int primary key, same int, up int, down int)");
    lines(&mut session, "insert into n select i, 1, i, -i from generate_series(1, 20000) as i");
    for (method, _) in METHODS {
        force(&mut session, method, "64kB");
        for kind in ["join", "left join", "full join"] {
            let sql = format!("select count(*) from l {kind} r on l.k = r.k and 1 / (l.id - r.id) > 0");
            assert_eq!(lines(&mut session, &sql), ["! 22012 division by zero"], "{method}");
        }
        lines(&mut session, "set statement_timeout = 400");
        for sql in [
            "select count(*) from n a join n b on a.same = b.same and a.up > b.up and a.down > b.down",
            "select count(*) from n a left join n b on a.same = b.same and a.up > b.up and a.down > b.down",
            "select max(a.up + b.up) from n a join n b on a.same = b.same",
            "select count(*) from n a where not exists (select from n b where b.same = a.same and b.up < -a.up)",
        ] {
            let begin = Instant::now();
            let ended = ["! 57014 canceling statement due to statement timeout"];
            assert_eq!(lines(&mut session, sql), ended, "{method} {sql}");
            // The whole join takes minutes. A busy machine needs seconds for what precedes the first step.
            assert!(begin.elapsed() < Duration::from_secs(30), "{method} {sql}: {:?}", begin.elapsed());
        }
        lines(&mut session, "set statement_timeout = 0");
        assert_eq!(
            lines(&mut session, "select count(*) from l join none on l.k = none.k"),
            ["0", "= SELECT 1"]
        );
    }
}

/// A row may be longer than `work_mem`.
#[test]
fn rows_longer_than_the_budget() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    lines(&mut session, "create table big (k int, v text)");
    lines(
        &mut session,
        "insert into big select i % 5, repeat('v', i * 4000) from generate_series(1, 40) as i",
    );
    let sql = "select count(*), sum(length(a.v) + length(b.v)) from big a join big b on a.k = b.k";
    let expected = lines(&mut session, sql);
    for (method, _) in METHODS {
        force(&mut session, method, "64kB");
        assert_eq!(lines(&mut session, sql), expected, "{method}");
    }
}

#[test]
fn the_setting_takes_its_values_only() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    assert_eq!(lines(&mut session, "show join_method"), ["auto", "= SHOW"]);
    let error = error_of(&mut session, "set join_method = magic");
    let message = "invalid value for parameter \"join_method\": \"magic\"";
    assert_eq!((error.sqlstate.0, &*error.message), ("22023", message));
    let hint = "Available values: auto, block_nested_loops, sort_merge, grace_hash, hybrid_hash.";
    assert_eq!(error.hint.as_deref(), Some(hint));
    assert_eq!(
        lines(&mut session, "set join_method = SORT_MERGE; show join_method"),
        ["= SET", "sort_merge", "= SHOW"]
    );
}

/// Earlier, DataFusion's nested loop join lost the unmatched rows of its right input if its memory ended with
/// the last batch of the left input.
#[test]
fn nested_loops_beyond_memory_lose_no_unmatched_rows() {
    let (_home, database) = spilling(3 << 20);
    let mut session = session(&database);
    let tables = "
        create table l (id int, s text);
        create table r (id int, s varchar(500));
        insert into l select i, repeat('a', 100) || (i % 500) from generate_series(1, 30000) i;
        insert into r select i, repeat('a', 100) || i from generate_series(1, 3000) i";
    lines(&mut session, tables);
    let count = 9000;
    let left = format!("(select a.id, a.s from l a left join l b on a.id = b.id where a.id <= {count}) q");
    let joined = |kind: &str| {
        let columns = "count(*), count(q.id), count(c.id)";
        format!("select {columns} from {left} {kind} join r c on q.s = c.s or q.id < 0")
    };
    // 499 rows of r match those rows of l whose number is not divisible by 500.
    let matched = count - count / 500;
    let right = format!("{}|{matched}|{}", matched + 2501, matched + 2501);
    assert_eq!(lines(&mut session, &joined("right")), [right, "= SELECT 1".into()], "{count}");
    let full = lines(&mut session, &joined("full"));
    let expected = format!("{}|{count}|{}", count + 2501, matched + 2501);
    assert!(full[0] == expected || full[0].starts_with("! 53200"), "{count}: {full:?}");
}

/// Earlier, such a join was a nested loop, and was 180 times as slow.
#[test]
fn text_and_varchar_are_joined_by_a_hash() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    let tables = "
        create table l (id int, s text);
        create table r (id int, s varchar(20), v varchar);
        insert into l select i, 'a ' || i from generate_series(1, 300) i;
        insert into r select i, 'a ' || i * 2, 'a ' || i * 3 from generate_series(1, 300) i";
    lines(&mut session, tables);
    for (sql, expected) in [
        ("select count(*), sum(l.id) from l join r on l.s = r.s", "150|22650"),
        ("select count(*), count(l.id) from l right join r on r.v = l.s", "300|100"),
        ("select count(*), sum(l.id) from l where not exists (select from r where r.s = l.s)", "150|22500"),
        ("select count(*), sum(l.id) from l where s in (select v from r)", "100|15150"),
    ] {
        assert_eq!(lines(&mut session, sql)[0], expected, "{sql}");
        let shown = lines(&mut session, &format!("explain {sql}")).join("\n");
        assert!(shown.contains("Hash") && !shown.contains("Nested Loop"), "{sql}\n{shown}");
    }
}

/// A guarded full join runs again for each row of the outer query. The guard refuses only a second reading
/// within one run.
#[test]
fn a_guarded_full_join_runs_again_in_a_subquery() {
    let mut session = session(&super::support::database());
    let tables = "
        create table o (k int);
        create table l (id int);
        create table r (id int);
        insert into o values (1), (2), (3), (5);
        insert into l select generate_series(1, 5);
        insert into r select generate_series(1, 4)";
    lines(&mut session, tables);
    let joined = "
        select k, (select count(*) || ' ' || count(q.id) || ' ' || count(r.id)
            from (select id from l where id <= o.k) q full join r on q.id < r.id - 1) from o order by k";
    let shown = lines(&mut session, &format!("explain {joined}")).join("\n");
    assert!(shown.contains("Nested Loop Full Join"), "{shown}");
    // With q = {1, 2}: 1 < 3 - 1 and 1 < 4 - 1, 2 < 4 - 1. The rows 1 and 2 of r have no partner.
    let expected = ["1|4 2 4", "2|5 3 5", "3|6 4 5", "5|8 6 5", "= SELECT 4"];
    for _ in 0..2 {
        assert_eq!(lines(&mut session, joined), expected);
    }
}

/// Earlier, each forced join reserved a quarter of the memory. With four of them, nothing was left for a
/// cross join.
#[test]
fn many_joins_leave_memory_to_others() {
    let (_home, database) = spilling(64 << 20);
    let mut session = session(&database);
    lines(&mut session, SETUP);
    let sql = "select count(*), max(x.n) from l a join r b on b.id = a.id + 0 join l c on c.id = b.id + 0
        left join r d on d.id = c.id + 0 join l e on e.id = d.id + 0 join r f on f.id = e.id + 0,
        (select count(*) n from r) x";
    for (method, _) in METHODS {
        lines(&mut session, &format!("set join_method = '{method}'"));
        assert_eq!(lines(&mut session, sql), ["700|1100", "= SELECT 1"], "{method}");
    }
}
