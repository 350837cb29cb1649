//! INSERT ... ON CONFLICT DO UPDATE in several sessions at once: no update is lost.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::support::{database, session};
use crate::waiting::{ask, run, stuck};

#[test]
fn who_waited_for_an_insert_changes_its_row() {
    let db = database();
    let mut a = session(&db);
    run(&mut a, "create table t (id int primary key, n int)");
    let upsert =
        "insert into t values (1, 1) on conflict (id) do update set n = t.n + excluded.n returning n";
    for (end, n) in [("rollback", "1"), ("commit", "3")] {
        run(&mut a, "begin");
        ask(&mut a, upsert);
        let waiting = stuck(&db, &[upsert]);
        assert!(!waiting.is_finished());
        run(&mut a, end);
        assert_eq!(waiting.join().unwrap(), [n]);
    }
    run(&mut a, "begin; delete from t");
    let waiting = stuck(&db, &[upsert]);
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), ["1"]);
}

#[test]
fn all_are_counted_by_primary_key_and_by_unique_index() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table t (id int primary key, k int unique, n int)");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut s = session(db);
                for n in 0..50 {
                    let (key, id) = (n % 3, thread * 1000 + n + 10);
                    run(
                        &mut s,
                        &format!(
                            "insert into t values ({key}, null, 1) on conflict (id) do update set n = t.n + 1"
                        ),
                    );
                    run(
                        &mut s,
                        &format!(
                            "insert into t values ({id}, {key}, 1) on conflict (k) do update set n = t.n + 1"
                        ),
                    );
                }
            });
        }
    });
    assert_eq!(ask(&mut s, "select sum(n) from t where id < 10"), ["200"]);
    assert_eq!(ask(&mut s, "select sum(n), count(*) from t where k is not null"), ["200|3"]);
}
