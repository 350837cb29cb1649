//! The anomalies of each isolation level, produced by two or three sessions. `docs/isolation.md` has a table
//! of them.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use crate::support::{database, session};
use crate::waiting::{ask, run};
use varve_sql::SqlDatabase;

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];
const DEPENDENCIES: [&str; 2] = [
    "! 40001 could not serialize access due to read/write dependencies among transactions",
    "& Reason code: Canceled on identification as a pivot, during commit attempt.",
];

/// A session and its statement. Each session begins at the tested level, except `z`, which reads the outcome.
type Step = (char, &'static str);

/// Returns whether a history happens at a level: no step fails, and the last one returns this row.
fn happens(level: &str, steps: &[Step], seen: &str) -> bool {
    let db = filled();
    let mut sessions: Vec<(char, varve_sql::Session)> = Vec::new();
    let mut last = Vec::new();
    for (name, sql) in steps {
        if !sessions.iter().any(|(n, _)| n == name) {
            let mut s = session(&db);
            run(&mut s, "set lock_timeout = 100");
            if *name != 'z' {
                run(&mut s, &format!("begin isolation level {level}"));
            }
            sessions.push((*name, s));
        }
        let s = &mut sessions.iter_mut().find(|(n, _)| n == name).unwrap().1;
        last = ask(s, sql);
        if let Some(error) = last.first().filter(|l| l.starts_with('!')) {
            assert!(error.starts_with("! 40001") || error.starts_with("! 55P03"), "{sql}: {error}");
            return false;
        }
    }
    last == [seen]
}

fn filled() -> Arc<SqlDatabase> {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table t (id int primary key, k int, v int); create index t_k on t (k)");
    run(&mut s, "insert into t values (1, 1, 10), (2, 2, 20)");
    db
}

const SUM: &str = "select sum(v) from t";

/// Each anomaly has a name, steps, the row that the last step shows if the anomaly happens, and the levels at
/// which it happens.
type Anomaly = (&'static str, &'static [Step], &'static str, [bool; 3]);

const ANOMALIES: &[Anomaly] = &[
    (
        "dirty write",
        &[
            ('a', "update t set v = 11 where id = 1"),
            ('b', "update t set v = 12 where id = 1"),
            ('b', "commit"),
            ('a', "commit"),
            ('z', "select v from t where id = 1"),
        ],
        "12",
        [false; 3],
    ),
    (
        "dirty read",
        &[('a', "update t set v = 11 where id = 1"), ('b', "select v from t where id = 1")],
        "11",
        [false; 3],
    ),
    (
        "non-repeatable read",
        &[
            ('a', "select v from t where id = 1"),
            ('b', "update t set v = 11 where id = 1; commit"),
            ('a', "select v from t where id = 1"),
        ],
        "11",
        [true, false, false],
    ),
    (
        "phantom",
        &[('a', SUM), ('b', "insert into t values (3, 3, 30); commit"), ('a', SUM)],
        "60",
        [true, false, false],
    ),
    (
        "lost update",
        &[
            ('a', "select v from t where id = 1"),
            ('b', "update t set v = 11 where id = 1; commit"),
            ('a', "update t set v = 10 + 5 where id = 1; commit"),
            ('z', "select v from t where id = 1"),
        ],
        "15",
        [true, false, false],
    ),
    (
        "read skew",
        &[
            ('a', "select v from t where id = 1"),
            ('b', "update t set v = v + 1; commit"),
            ('a', "select v from t where id = 2"),
        ],
        "21",
        [true, false, false],
    ),
    (
        "write skew",
        &[
            ('a', SUM),
            ('b', SUM),
            ('a', "update t set v = v - 30 where id = 1"),
            ('b', "update t set v = v - 30 where id = 2"),
            ('a', "commit"),
            ('b', "commit"),
            ('z', SUM),
        ],
        "-30",
        [true, true, false],
    ),
    (
        "write skew by a phantom (through an index)",
        &[
            ('a', "select count(*) from t where k between 5 and 9"),
            ('b', "select count(*) from t where k between 5 and 9"),
            ('a', "insert into t values (3, 6, 0)"),
            ('b', "insert into t values (4, 7, 0)"),
            ('a', "commit"),
            ('b', "commit"),
            ('z', "select count(*) from t where k between 5 and 9"),
        ],
        "2",
        [true, true, false],
    ),
    (
        "write skew by a phantom (through a scan)",
        &[
            ('a', "select count(*) from t where v > 100"),
            ('b', "select count(*) from t where v > 100"),
            ('a', "insert into t values (3, 6, 101)"),
            ('b', "insert into t values (4, 7, 102)"),
            ('a', "commit"),
            ('b', "commit"),
            ('z', "select count(*) from t where v > 100"),
        ],
        "2",
        [true, true, false],
    ),
    (
        "read-only anomaly",
        // Fekete, O'Neil and O'Neil 2004: c sees b's deposit and does not see a's withdrawal, and a did not
        // see the deposit.
        &[
            ('a', SUM),
            ('b', "select v from t where id = 2"),
            ('b', "update t set v = v + 20 where id = 2; commit"),
            ('c', SUM),
            ('c', "commit"),
            ('a', "update t set v = v - 11 where id = 1; commit"),
            ('z', "select v from t where id = 1"),
        ],
        "-1",
        [true, true, false],
    ),
];

/// docs/isolation.md must have this table.
#[test]
fn each_level_allows_what_the_page_says() {
    let mut page =
        String::from("| anomaly | READ COMMITTED | REPEATABLE READ | SERIALIZABLE |\n|---|---|---|---|\n");
    for (name, steps, seen, allowed) in ANOMALIES {
        let met: Vec<bool> = LEVELS.iter().map(|level| happens(level, steps, seen)).collect();
        assert_eq!(met, allowed, "{name}");
        let words = met.iter().map(|m| if *m { "possible" } else { "-" });
        page.push_str(&format!("| {name} | {} |\n", words.collect::<Vec<_>>().join(" | ")));
    }
    let kept =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/isolation.md")).unwrap();
    assert!(kept.contains(&page), "docs/isolation.md should have this table:\n{page}");
}

/// Returns what session A gets at COMMIT. Both sessions begin, A does `first`, B does `second` and commits,
/// and A does `then`.
fn commit_after(first: &str, second: &str, then: &str) -> Vec<String> {
    let db = filled();
    let (mut a, mut b) = (session(&db), session(&db));
    run(&mut a, "create table child (id int primary key, p int references t); create table log (n int)");
    for s in [&mut a, &mut b] {
        drop(ask(s, "begin isolation level serializable; select 1"));
    }
    drop(ask(&mut a, first));
    run(&mut b, second);
    run(&mut b, "commit");
    run(&mut a, then);
    ask(&mut a, "commit")
}

#[test]
fn what_was_read_decides_and_nothing_else() {
    let write = "insert into log values (1)";
    let conflicts = |read: &str, change: &str| {
        let said = commit_after(read, change, write);
        assert!(said.is_empty() || said == DEPENDENCIES, "{said:?}");
        !said.is_empty()
    };
    let by_key = "select v from t where id = 2";
    assert!(conflicts(by_key, "update t set v = 0 where id = 2"));
    assert!(!conflicts(by_key, "update t set v = 0 where id = 1"));
    assert!(conflicts("select v from t where id = 7", "insert into t values (7, 7, 7)"));
    assert!(!conflicts("select v from t where id = 7", "insert into t values (8, 7, 7)"));
    // Scans of the index: entries are inserted, are deleted, or stay.
    let by_index = "select id from t where k = 2";
    assert!(conflicts(by_index, "update t set v = 0 where id = 2"));
    assert!(conflicts(by_index, "update t set k = 2 where id = 1"));
    assert!(conflicts(by_index, "update t set k = 5 where id = 2"));
    assert!(conflicts(by_index, "delete from t where id = 2"));
    assert!(conflicts(by_index, "update t set id = 9 where id = 2"));
    assert!(!conflicts(by_index, "update t set v = 0, k = 3 where id = 1"));
    // A scan that ends early has read only the rows up to its end.
    assert!(!conflicts("select id from t order by id limit 1", "update t set v = 0 where id = 2"));
    assert!(conflicts("select id from t order by id desc limit 1", "update t set v = 0 where id = 2"));
    assert!(!conflicts("select id from t order by id desc limit 1", "update t set v = 0 where id = 1"));
    // A change that finds no row has read that there is none. A rollback to a savepoint does not undo reads.
    assert!(conflicts("update t set v = 0 where id = 7", "insert into t values (7, 7, 7)"));
    assert!(conflicts("delete from t where k = 7", "insert into t values (7, 7, 7)"));
    assert!(conflicts(
        "savepoint s; select v from t where id = 2; rollback to s",
        "update t set v = 0 where id = 2"
    ));
    assert!(conflicts(
        "insert into t values (2, 0, 0) on conflict (id) do nothing",
        "delete from t where id = 2"
    ));
    // The check of a foreign key is not a read of the parent.
    assert!(!conflicts("insert into child values (1, 2)", "update t set v = 0 where id = 2"));
    assert!(!conflicts("insert into t values (3, 3, 3)", "insert into t values (4, 3, 3)"));
}

#[test]
fn who_only_reads_or_is_of_another_level_is_not_asked() {
    let by_key = "select v from t where id = 2";
    let update = "update t set v = 0 where id = 2";
    assert_eq!(commit_after(by_key, update, "savepoint s"), Vec::<String>::new());
    let db = filled();
    let (mut a, mut b) = (session(&db), session(&db));
    run(&mut a, "begin isolation level serializable");
    assert_eq!(ask(&mut a, by_key), ["20"]);
    run(&mut b, update);
    run(&mut a, "update t set v = 0 where id = 1; commit");
}

/// An index that was made after the snapshot does not hide what was written before it was made.
#[test]
fn a_new_index_hides_nothing() {
    let db = filled();
    let (mut a, mut b) = (session(&db), session(&db));
    run(&mut a, "create table log (n int)");
    drop(ask(&mut a, "begin isolation level serializable; select 1"));
    run(&mut b, "begin isolation level serializable; insert into t values (5, 5, 5); commit");
    run(&mut b, "create index t_v on t (v)");
    assert_eq!(ask(&mut a, "select id from t where v = 5"), Vec::<String>::new());
    run(&mut a, "insert into log values (1)");
    assert_eq!(ask(&mut a, "commit"), DEPENDENCIES);
}

/// A transfer checks that the sum of two accounts stays positive. At this level, no order of concurrent
/// transfers makes it negative.
#[test]
fn sums_hold_under_many_sessions() {
    let db = filled();
    let done: u32 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u32)
            .map(|thread| {
                scope.spawn({
                    let db = &db;
                    move || {
                        let mut s = session(db);
                        let (mut random, mut done) = (thread + 1, 0);
                        for _ in 0..60 {
                            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            let (id, by) = ((random >> 16) % 2 + 1, (random >> 20) % 20);
                            drop(ask(&mut s, "begin isolation level serializable"));
                            let sum: i64 = ask(&mut s, SUM)[0].parse().unwrap();
                            let by = if sum >= i64::from(by) { -i64::from(by) } else { 15 };
                            drop(ask(&mut s, &format!("update t set v = v + {by} where id = {id}")));
                            done += u32::from(ask(&mut s, "commit").is_empty());
                            let mut reader = session(db);
                            let sum: i64 = ask(&mut reader, SUM)[0].parse().unwrap();
                            assert!(sum >= 0, "the sum is {sum}");
                        }
                        done
                    }
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert!(done > 20, "only {done} have committed");
}

/// Review 9, N3: a transaction reads a key and finds no row. Another transaction inserts this key. If the
/// first one then inserts it, too, the error must be 40001 (repeat the transaction) and not 23505 (duplicate
/// key).
#[test]
fn a_key_that_was_found_free_is_no_duplicate() {
    const AT_ONCE: &str =
        "! 40001 could not serialize access due to read/write dependencies among transactions";
    let second = |level: &str, looks: &str| {
        let db = filled();
        let (mut a, mut b) = (session(&db), session(&db));
        run(&mut a, "create unique index t_v on t (v)");
        for s in [&mut a, &mut b] {
            drop(ask(s, &format!("begin isolation level {level}; select 1")));
            drop(ask(s, looks));
        }
        run(&mut a, "insert into t values (9, 9, 90); commit");
        ask(&mut b, "insert into t values (9, 9, 91)")[0].clone()
    };
    for looks in ["select * from t where id = 9", "select * from t where k = 9", "select sum(v) from t"] {
        assert_eq!(second("serializable", looks), AT_ONCE, "{looks}");
    }
    assert!(second("serializable", "select * from t where id = 8").starts_with("! 23505"));
    assert!(second("repeatable read", "select * from t where id = 9").starts_with("! 23505"));
    let by_value = |looks: &str| {
        let db = filled();
        let (mut a, mut b) = (session(&db), session(&db));
        run(&mut a, "create unique index t_v on t (v)");
        drop(ask(&mut b, &format!("begin isolation level serializable; {looks}")));
        run(&mut a, "begin isolation level serializable; insert into t values (9, 9, 90); commit");
        ask(&mut b, "insert into t values (8, 8, 90)")[0].clone()
    };
    assert_eq!(by_value("select * from t where v = 90"), AT_ONCE);
    assert!(by_value("select * from t where v = 80").starts_with("! 23505"));
}

/// Review 12, K5: TRUNCATE and similar statements do not record the rows that they remove. So a transaction
/// that has read these rows blocks such a statement, even if it has since rolled back to a savepoint.
#[test]
fn a_table_that_was_read_before_rollback_to_is_not_emptied() {
    for change in ["truncate t", "drop table t", "alter table t drop column v"] {
        let read = |level: &str| {
            let db = filled();
            let (mut a, mut b) = (session(&db), session(&db));
            run(&mut a, "create table x (v int)");
            run(&mut b, "set lock_timeout = 100");
            let read = "savepoint s; select count(*) from t; rollback to s";
            assert_eq!(ask(&mut a, &format!("begin isolation level {level}; {read}")), ["2"]);
            assert_eq!(ask(&mut b, &format!("begin isolation level {level}; select count(*) from x")), ["0"]);
            let changed = ask(&mut b, change);
            run(&mut b, "rollback");
            run(&mut a, "insert into x values (1); commit");
            changed
        };
        assert_eq!(read("serializable"), ["! 55P03 canceling statement due to lock timeout"], "{change}");
        assert_eq!(read("repeatable read"), Vec::<String>::new(), "{change}");
    }
}
