//! NOWAIT, SKIP LOCKED and `lock_timeout` on tables of the memory-oriented engines. A transaction locks the
//! whole partition that has the rows.

use std::time::{Duration, Instant};

use varve_sql::Session;

use super::support::{database, lines, session};

const ENGINES: [&str; 6] = ["nvm_inplace", "inplace", "nvm_cow", "cow", "nvm_log", "log"];
const REFUSED: [&str; 1] = ["! 55P03 could not obtain lock on row in relation \"t\""];

/// Returns the rows of a query, or its error. The query must not wait.
fn at_once(session: &mut Session, sql: &str) -> Vec<String> {
    let began = Instant::now();
    let mut found = lines(session, sql);
    assert!(began.elapsed() < Duration::from_secs(20), "{sql} has waited");
    found.retain(|line| !line.starts_with("= SELECT"));
    found
}

#[test]
fn locks_of_rows_wait_only_as_long_as_they_say() {
    for engine in ENGINES {
        let db = database();
        let (mut a, mut b) = (session(&db), session(&db));
        lines(&mut a, &format!("create table t (id int primary key, n int) using {engine}"));
        lines(&mut a, "insert into t values (1, 0), (2, 0), (3, 0)");
        lines(&mut a, "create table p (id int primary key, n int); insert into p values (1, 0), (2, 0)");
        // This limit only makes a wait end, if there is one by mistake.
        lines(&mut b, "set lock_timeout = '30s'");
        lines(&mut a, "begin; update t set n = 1 where id = 1");

        for sql in [
            "select id from t where id = 2 for update nowait",
            "select id from t order by n for share nowait",
            "select t.id from t join p on p.id = t.id for update of t nowait",
            "select id from p where id in (select id from t for update nowait)",
        ] {
            assert_eq!(at_once(&mut b, sql), REFUSED, "{engine}: {sql}");
        }
        for sql in [
            "select id from t where id = 2 for update skip locked",
            "select id from t order by n desc limit 1 for no key update skip locked",
            "select t.id from t join p on p.id = t.id for update skip locked",
        ] {
            assert_eq!(at_once(&mut b, sql), Vec::<String>::new(), "{engine}: {sql}");
        }
        let changed =
            at_once(&mut b, "update p set n = 1 where id in (select id from t for update skip locked)");
        assert_eq!(changed, ["= UPDATE 0"], "{engine}");
        lines(&mut b, "begin");
        let locked = at_once(&mut b, "lock table t in row share mode nowait");
        assert_eq!(locked, ["! 55P03 could not obtain lock on relation \"t\""], "{engine}");
        lines(&mut b, "rollback; set lock_timeout = '20ms'");
        for sql in
            ["select n from t where id = 3", "select id from t for update", "delete from t where id = 3"]
        {
            let timed_out = ["! 55P03 canceling statement due to lock timeout"];
            assert_eq!(at_once(&mut b, sql), timed_out, "{engine}: {sql}");
        }

        lines(&mut a, "commit");
        lines(&mut b, "begin");
        let free = at_once(&mut b, "select id from t order by id for update skip locked");
        assert_eq!(free, ["1", "2", "3"], "{engine}");
        assert_eq!(
            at_once(&mut a, "select id from t for update skip locked"),
            Vec::<String>::new(),
            "{engine}"
        );
        assert_eq!(at_once(&mut a, "select id from t for update nowait"), REFUSED, "{engine}");
        // A transaction never waits for its own changes.
        lines(&mut b, "update t set n = 5 where id = 2");
        assert_eq!(at_once(&mut b, "select n from t where id = 2 for update nowait"), ["5"], "{engine}");
        lines(&mut b, "commit");
        assert_eq!(at_once(&mut a, "select n from t where id = 2 for update nowait"), ["5"], "{engine}");
    }
}
