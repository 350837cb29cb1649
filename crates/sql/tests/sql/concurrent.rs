//! Concurrent statements of several sessions: which session waits for which, and what it sees after the wait.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{database, session};
use crate::waiting::{ask, run, stuck};
use varve_sql::{Session, SqlDatabase};

fn accounts(extra: &str) -> (Arc<SqlDatabase>, Session) {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table a (id int primary key, v int); create index on a (v)");
    run(&mut s, "insert into a values (1, 10), (2, 20), (3, 30)");
    if !extra.is_empty() {
        run(&mut s, extra);
    }
    (db, s)
}

/// Returns what B gets. A has done `change`, B waits for A, and then A commits.
fn after(change: &str, b: &[&str]) -> Vec<String> {
    let (db, mut a) = accounts("");
    run(&mut a, "begin");
    run(&mut a, change);
    let waiting = stuck(&db, b);
    assert!(!waiting.is_finished(), "{b:?} does not wait for {change}");
    run(&mut a, "commit");
    waiting.join().unwrap()
}

const REPEATABLE: &str = "begin isolation level repeatable read; select count(*) from a";

#[test]
fn the_condition_holds_for_the_version_that_is_locked() {
    let change = "update a set v = 500 where id = 2";
    let none = Vec::<String>::new();
    assert_eq!(after(change, &["select v + 1 from a where v = 20 for update"]), none);
    assert_eq!(after(change, &["update a set v = v + 1 where v = 20 returning v"]), none);
    assert_eq!(after(change, &["delete from a where v = 20 returning v"]), none);
    assert_eq!(after(change, &["select id from a where v >= 20 for update"]), ["2", "3"]);
    let serialization = ["! 40001 could not serialize access due to concurrent update"];
    assert_eq!(after(change, &[REPEATABLE, "select v + 1 from a where v = 20 for update"]), serialization);
    assert_eq!(after(change, &[REPEATABLE, "update a set v = 1 where v = 20"]), serialization);
    assert_eq!(after(change, &[REPEATABLE, "delete from a where v = 20"]), serialization);
}

#[test]
fn the_condition_on_the_primary_key_is_looked_at_again_when_the_row_has_moved() {
    let change = "update a set id = 500 where id = 2";
    let none = Vec::<String>::new();
    assert_eq!(after(change, &["select v from a where id = 2 for update"]), none);
    assert_eq!(after(change, &["update a set v = 0 where id = 2 returning v"]), none);
    assert_eq!(after(change, &["delete from a where id = 2 returning v"]), none);
    assert_eq!(after(change, &["select id from a where v = 20 for update"]), ["500"]);
}

#[test]
fn limit_locks_what_it_returns_and_nothing_else() {
    let (db, mut a) = accounts("");
    let mut b = session(&db);
    run(&mut a, "begin");
    assert_eq!(ask(&mut a, "select id from a order by v desc limit 1 for update"), ["3"]);
    assert_eq!(ask(&mut b, "select id from a order by id for update skip locked"), ["1", "2"]);
    run(&mut a, "commit; begin");
    assert_eq!(ask(&mut a, "(select id from a order by id limit 1) for update"), ["1"]);
    assert_eq!(ask(&mut b, "select id from a order by id for update skip locked"), ["2", "3"]);
    assert_eq!(ask(&mut b, "select id from a order by id limit 1 for update skip locked"), ["2"]);
    run(&mut a, "rollback");
}

#[test]
fn rows_that_vanish_during_the_wait_do_not_count_against_limit() {
    let limited = "select id from a order by id limit 2 for update";
    assert_eq!(after("delete from a where id = 1", &[limited]), ["2", "3"]);
    assert_eq!(
        after("update a set v = 0 where id = 2", &["select id from a where v > 5 limit 2 for update"]),
        ["1", "3"]
    );
    assert_eq!(
        after("delete from a where id = 2", &["select id from a order by v desc limit 2 for update"]),
        ["3", "1"]
    );
}

#[test]
fn nowait_fails_at_once() {
    let (db, mut a) = accounts("");
    let mut b = session(&db);
    run(&mut a, "begin; update a set v = 11 where id = 1");
    let refused = ["! 55P03 could not obtain lock on row in relation \"a\""];
    assert_eq!(ask(&mut b, "select id from a where id = 1 for update nowait"), refused);
    assert_eq!(ask(&mut b, "select id from a for share nowait"), refused);
    // A wait here would be a deadlock, but neither statement waits.
    run(&mut b, "begin; update a set v = 21 where id = 2");
    let waits = db.engine().stats().lock_waits;
    let waiting = std::thread::spawn(move || {
        let lines = ask(&mut a, "update a set v = 22 where id = 2 returning v");
        run(&mut a, "commit");
        lines
    });
    while db.engine().stats().lock_waits == waits {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(ask(&mut b, "select id from a where id = 1 for update skip locked"), Vec::<String>::new());
    assert_eq!(ask(&mut b, "select id from a where id = 1 for update nowait"), refused);
    run(&mut b, "rollback");
    assert_eq!(waiting.join().unwrap(), ["22"]);
}

#[test]
fn a_row_is_changed_once_however_its_key_moves() {
    let (_, mut s) = accounts("");
    assert_eq!(ask(&mut s, "update a set id = id - 1 returning id"), ["0", "1", "2"]);
    assert_eq!(ask(&mut s, "update a set id = id + 10, v = v + 1 returning id"), ["10", "11", "12"]);
    assert_eq!(ask(&mut s, "update a set v = v + 10 where v > 5 returning v"), ["21", "31", "41"]);
    assert_eq!(
        ask(&mut s, "update a set v = v + 10, id = id + 1 where v > 5 and id = 12 returning v"),
        ["51"]
    );
}

#[test]
fn a_row_is_changed_once_also_where_others_moved_it_meanwhile() {
    // A row moves to the key of another row, which the statement is to change, too.
    let once = "delete from a where id = 3; update a set id = 3 where id = 1";
    assert_eq!(after(once, &["update a set v = v + 1 returning id, v"]), ["3|11", "2|21"]);
    assert_eq!(after(once, &["select id from a for update"]), ["3", "2"]);
    // The statement itself moves a row to where another one was.
    assert_eq!(
        after(
            "delete from a where id = 3",
            &["update a set id = id + 2, v = v + 1 where id <> 2 returning id, v"]
        ),
        ["3|11"],
    );
}

#[test]
fn both_rows_of_an_exchange_of_keys_are_followed() {
    // A reviewer found this fault: the row that went to key 8 was never searched for, because its old key
    // then had another row.
    let swap = "update a set id = 8 where id = 2; update a set id = 2 where id = 1";
    assert_eq!(after(swap, &["update a set v = v + 1 returning id, v"]), ["2|11", "8|21", "3|31"]);
    assert_eq!(after(swap, &["select id, v from a for update"]), ["2|10", "8|20", "3|30"]);
    assert_eq!(after(swap, &["delete from a where v < 25 returning v"]), ["10", "20"]);
    // The other row must not be used in its place.
    let three = "update a set id = 4 where id = 1; update a set id = 1 where id = 2; update a set id = 2 where id = 4";
    assert_eq!(after(three, &["update a set v = 110 where v = 10 returning id, v"]), ["2|110"]);
    assert_eq!(after(three, &["update a set v = v + 1 where v < 25 returning id, v"]), ["2|11", "1|21"]);
    assert_eq!(after(three, &["update a set v = 0 where id = 1 returning id"]), Vec::<String>::new());
    // The row comes back to where it was.
    let back = "update a set id = 4 where id = 1; update a set id = 1 where id = 2; update a set id = 2 where id = 1; \
                update a set v = 21 where id = 2; update a set id = 1 where id = 4";
    assert_eq!(after(back, &["update a set v = v + 1 returning id, v"]), ["1|11", "2|22", "3|31"]);
}

#[test]
fn an_exchange_of_keys_is_followed_over_several_transactions() {
    let (db, mut a) = accounts("");
    let mut c = session(&db);
    run(&mut a, "begin; update a set v = 31 where id = 3");
    // The statement waits at key 3. Meanwhile, rows that it has not reached yet move twice.
    let waiting = stuck(&db, &["update a set v = v + 100 where id <> 77 returning id, v"]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), ["1|110", "2|120", "3|131"]);
    run(&mut a, "begin; update a set v = 111 where id = 1");
    let waiting = stuck(&db, &["update a set v = v + 100 returning id, v"]);
    run(&mut c, "begin; update a set id = 5 where id = 3; update a set id = 3 where id = 2; commit");
    run(&mut c, "begin; update a set id = 2 where id = 5; update a set v = 1 where id = 3; commit");
    run(&mut c, "update a set id = 9 where id = 2; insert into a values (2, 7)");
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), ["1|211", "3|101", "9|231"]);
    assert_eq!(ask(&mut a, "select id, v from a order by id"), ["1|211", "2|7", "3|101", "9|231"]);
}

#[test]
fn a_place_that_was_taken_comes_back_when_the_move_is_rolled_back() {
    let (db, mut a) = accounts("");
    run(&mut a, "begin; update a set id = 4 where id = 1");
    run(&mut a, "savepoint s; update a set id = 1 where id = 2; rollback to s");
    let waiting = stuck(&db, &["update a set v = v + 1 where v = 10 returning id, v"]);
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), ["4|11"]);
    run(&mut a, "begin; update a set id = 1 where id = 4; update a set id = 4 where id = 2; rollback");
    assert_eq!(ask(&mut a, "select id, v from a order by id"), ["2|20", "3|30", "4|11"]);
    assert_eq!(ask(&mut a, "update a set id = id - 1 returning id, v"), ["1|20", "2|30", "3|11"]);
}

#[test]
fn a_row_in_a_random_order_is_locked_and_returned_once() {
    // A reviewer found this fault: half of the first rows were locked. After them, the search went on in
    // another order.
    let (db, mut a) = accounts("insert into a select n, n from generate_series(4, 100) n");
    let mut b = session(&db);
    run(&mut a, "begin");
    assert_eq!(ask(&mut a, "select id from a where id % 2 = 0 for update").len(), 50);
    for limited in [
        "select id from a order by random() limit 40 for update skip locked",
        "select id from a where random() < 0.9 limit 40 for update skip locked",
    ] {
        for _ in 0..20 {
            let mut ids = ask(&mut b, limited);
            let count = ids.len();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), count, "{limited}");
            assert!(count >= 30, "{limited}: {count} rows");
        }
    }
}

#[test]
fn locking_many_rows_is_cancelled_between_them() {
    let (_, mut s) = accounts("insert into a select n, n from generate_series(4, 5000) n");
    run(&mut s, "set statement_timeout = 20");
    let lines = ask(&mut s, "select length(repeat('x', 300000)) from a for update");
    assert_eq!(lines.last().unwrap(), "! 57014 canceling statement due to statement timeout");
}

/// Review 12, K3: the transaction block had kept an old catalog. Compared with this catalog, the same plan
/// was out of date again and again.
#[test]
fn explain_execute_in_a_block_sees_that_the_table_was_altered() {
    let (db, mut a) = accounts("create sequence s");
    run(&mut a, "set statement_timeout = 10000");
    run(&mut a, "prepare whole as select * from a; prepare part as select id from a");
    let altered = |a: &mut Session, column: &str, explain: &str| {
        assert_eq!(ask(a, "begin; select nextval('s')").len(), 1);
        run(&mut session(&db), &format!("alter table a add column {column} int"));
        let lines = ask(a, explain);
        run(a, "rollback");
        lines
    };
    let changed = ["! 0A000 cached plan must not change result type"];
    assert_eq!(altered(&mut a, "b", "explain analyze execute whole"), changed);
    assert_eq!(altered(&mut a, "c", "explain execute whole"), changed);
    let lines = altered(&mut a, "d", "explain (analyze, costs off, timing off, summary off) execute part");
    assert!(lines[0].contains("rows=3"), "{lines:?}");
}

/// Review 13, A4: if a search path is set, each definition of another session makes the plan that writes the
/// rows stale.
#[test]
fn create_table_as_goes_on_while_others_define_tables() {
    let (db, mut a) = accounts("create schema s");
    run(&mut a, "set search_path to s, public");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut b = session(&db);
            while !done.load(Ordering::Relaxed) {
                run(&mut b, "create table strange (a int); drop table strange");
            }
        });
        run(&mut a, "create table big as select g from generate_series(1, 3000) g");
        done.store(true, Ordering::Relaxed);
        others.join().unwrap();
    });
    assert_eq!(ask(&mut a, "select count(*) from s.big")[0], "3000");
}

/// Returns what B gets. While B waits for A, A drops the table `a` and makes another table of this name.
fn after_replacement(b: &str) -> (Vec<String>, Arc<SqlDatabase>) {
    let (db, mut a) = accounts("create sequence s");
    run(
        &mut a,
        "begin; drop table a; create table a (id int primary key, v int, w int); insert into a values (7, 70, 700)",
    );
    run(&mut a, "drop sequence s; create sequence s start 50");
    let waiting = stuck(&db, &[b]);
    assert!(!waiting.is_finished(), "{b} does not wait");
    run(&mut a, "commit");
    (waiting.join().unwrap(), db)
}

#[test]
fn a_name_is_looked_up_again_after_the_wait_for_a_table_that_was_replaced() {
    // A new user got the error `relation "with id 17053" does not exist`.
    let none = Vec::<String>::new();
    let shape = |db: &Arc<SqlDatabase>| ask(&mut session(db), "select * from a");
    for (definition, left) in [
        ("create index on a (v)", vec!["7|70|700"]),
        ("truncate a", vec![]),
        ("alter table a alter column v set not null", vec!["7|70|700"]),
        ("create sequence t; truncate a; create sequence u", vec![]),
    ] {
        let (lines, db) = after_replacement(definition);
        assert_eq!(lines, none, "{definition}");
        assert_eq!(shape(&db), left, "{definition}");
    }
    assert_eq!(after_replacement("select * from a").0, ["7|70|700"]);
    assert_eq!(after_replacement("update a set v = 8 returning id, v").0, ["7|8"]);
    assert_eq!(after_replacement("drop table a").0, none);
    assert_eq!(after_replacement("drop index a_v_idx").0, ["! 42704 index \"a_v_idx\" does not exist"]);
    assert_eq!(after_replacement("drop sequence s").0, none);
    assert_eq!(after_replacement("drop sequence s; create sequence s start 3; select nextval('s')").0, ["3"]);
}

#[test]
fn what_is_gone_after_the_wait_has_its_name_in_the_error() {
    for (change, b, error) in [
        ("drop table a", "truncate a", "! 42P01 relation \"a\" does not exist"),
        ("drop table a", "drop table a", "! 42P01 table \"a\" does not exist"),
        ("drop table a", "create index on a (v)", "! 42P01 relation \"a\" does not exist"),
        ("drop index a_v_idx", "drop index a_v_idx", "! 42704 index \"a_v_idx\" does not exist"),
    ] {
        assert_eq!(after(change, &[b]), [error], "{change}; {b}");
    }
    assert_eq!(
        after("drop table a", &["drop table if exists a"]),
        ["~ Notice table \"a\" does not exist, skipping"]
    );
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Makes the changes of one transaction to the rows from `from` on. Rows move to free keys and change their
/// values, and other rows move to the keys that became free.
fn moves(random: &mut Random, session: &mut Session, from: u64) {
    for _ in 0..1 + random.below(6) {
        let (key, to) = (from + random.below(9 - from), from + random.below(9 - from));
        match random.below(6) {
            0 => run(session, &format!("update a set v = v + 1000 where id = {key}")),
            1 => run(session, &format!("insert into a values ({key}, 5, 0) on conflict do nothing")),
            2 => run(session, &format!("savepoint s; update a set id = 60 where id = {key}; rollback to s")),
            _ => {
                // An exchange, or a move to a free key.
                run(
                    session,
                    &format!("update a set id = 50 where id = {to}; update a set id = {to} where id = {key}"),
                );
                run(session, &format!("update a set id = {key} where id = 50"));
            }
        }
    }
}

/// Rows move while a statement waits. The statement still changes each row that it had found once, at any
/// key.
#[test]
fn every_row_is_changed_once_after_random_moves() {
    for seed in 1..=60 {
        let mut random = Random(seed * 0x9e37_79b9);
        let (db, mut a) = accounts(
            "drop table a; create table a (id int primary key, v int, was int); create index on a (v)",
        );
        let mut c = session(&db);
        run(&mut a, "insert into a select n, n * 10, n from generate_series(1, 5) n");
        run(&mut a, "begin; update a set v = v where id = 1");
        let waiting = stuck(&db, &["update a set v = v + 100 returning was"]);
        for _ in 0..random.below(4) {
            run(&mut c, "begin");
            moves(&mut random, &mut c, 2);
            run(&mut c, if random.below(4) == 0 { "rollback" } else { "commit" });
        }
        moves(&mut random, &mut a, 1);
        let before = ask(&mut a, "select was, v, id from a order by was, id");
        run(&mut a, "commit");
        let mut changed = waiting.join().unwrap();
        changed.sort();
        assert_eq!(changed, ["1", "2", "3", "4", "5"], "seed {seed}: {before:?}");
        let raised =
            ask(&mut a, "select was, v - case when was > 0 then 100 else 0 end, id from a order by was, id");
        assert_eq!(raised, before, "seed {seed}");
        drop(c);
        let sound = db.engine().check().unwrap();
        assert!(sound.damages.is_empty(), "seed {seed}: {:?}", sound.damages);
    }
}

/// Exchanges the keys of two rows. Meanwhile, one of them has the key `own_key`. Returns whether the
/// transaction was committed.
fn exchange(session: &mut Session, random: &mut Random, own_key: u64) -> bool {
    let (x, y) = (random.below(10), random.below(10));
    let text = format!(
        "begin; update a set id = {own_key} where id = {x}; update a set id = {x} where id = {y}; \
         update a set id = {y} where id = {own_key}; commit"
    );
    committed(session, &text, &["40P01", "23505"])
}

/// Runs a text that ends in a commit. Returns whether it was committed. If it failed with one of these
/// errors, it is rolled back.
fn committed(session: &mut Session, text: &str, may_fail_with: &[&str]) -> bool {
    let lines = ask(session, text);
    let Some(error) = lines.iter().find(|l| l.starts_with("! ")) else { return true };
    assert!(may_fail_with.contains(&&error[2..7]), "{text}: {error}");
    drop(ask(session, "rollback"));
    false
}

/// Rows exchange their keys all the time, versions are purged, and each statement changes every row once.
#[test]
fn every_statement_changes_every_row_once_while_rows_exchange_their_keys() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table a (id int primary key, v int); create index on a (v)");
    run(&mut s, "insert into a select n, 0 from generate_series(0, 9) n");
    let rounds = std::env::var("VARVE_ROUNDS").map_or(60, |n| n.parse().unwrap());
    let done = AtomicBool::new(false);
    let updates = std::thread::scope(|scope| {
        for mover in 0..2 {
            let mut s = session(&db);
            scope.spawn(move || {
                let mut random = Random(0x5eed + mover);
                (0..4 * rounds).filter(|_| exchange(&mut s, &mut random, 100 + mover)).count()
            });
        }
        let updater = || {
            let mut s = session(&db);
            move || {
                let update = "begin; update a set v = v + 1; commit";
                (0..rounds).filter(|_| committed(&mut s, update, &["40P01"])).count()
            }
        };
        let updaters = [scope.spawn(updater()), scope.spawn(updater())];
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.engine().tick().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let updates = updaters.into_iter().map(|u| u.join().unwrap()).sum::<usize>();
        done.store(true, Ordering::Relaxed);
        updates
    });
    assert!(updates > 0, "all updates ended in deadlocks");
    assert_eq!(ask(&mut s, "select count(*), min(v), max(v) from a"), [format!("10|{updates}|{updates}")]);
    drop(s);
    let damages = db.engine().check().unwrap().damages;
    assert!(damages.is_empty(), "{damages:?}");
}

/// Review of session 5: a role ran a definition, such as CREATE INDEX. Objects that another session made
/// meanwhile then belonged to that role.
#[test]
fn a_definition_owns_only_what_it_has_made_itself() {
    let (db, mut a) = accounts("create role bob; grant create on schema public to bob");
    run(&mut a, "set role bob; create table mine (id int primary key, v int); set role none");
    run(&mut a, "begin; insert into mine values (1, 1); create table held (x int)");
    let waits = stuck(&db, &["set role bob", "create index on mine (v, id)"]);
    let mut other = session(&db);
    run(&mut other, "create table secret (x int); create schema hidden; create sequence hidden.s");
    run(&mut a, "commit");
    assert_eq!(waits.join().unwrap(), Vec::<String>::new());
    run(&mut a, "set role bob");
    assert_eq!(ask(&mut a, "select * from secret"), ["! 42501 permission denied for table secret"]);
    assert_eq!(ask(&mut a, "drop schema hidden"), ["! 42501 must be owner of schema hidden"]);
}

/// Review of session 5: the second GRANT was refused.
#[test]
fn two_grants_at_once_both_count() {
    let (db, mut a) = accounts("create role bob; create role carl");
    run(&mut a, "begin; grant select on a to bob");
    let waits = stuck(&db, &["grant update on a to bob, carl"]);
    run(&mut a, "commit");
    assert_eq!(waits.join().unwrap(), Vec::<String>::new());
    run(&mut a, "set role bob; update a set v = 11 where id = 1");
    assert_eq!(ask(&mut a, "select v from a where id = 1"), ["11"]);
    run(&mut a, "set role none; begin; alter role bob createrole");
    let waits = stuck(&db, &["alter role bob createdb"]);
    run(&mut a, "commit");
    assert_eq!(waits.join().unwrap(), Vec::<String>::new());
    let flags = ask(&mut a, "select rolcreaterole, rolcreatedb from pg_roles where rolname = 'bob'");
    assert_eq!(flags, ["t|t"]);
}

/// Review of session 5: COPY was refused, although other statements are planned again in this case.
#[test]
fn copy_goes_on_with_the_table_that_another_session_has_altered() {
    let (db, mut a) = accounts("");
    run(&mut a, "begin; alter table a add column w int");
    let waits = stuck(&db, &["copy a from stdin"]);
    run(&mut a, "commit");
    assert_eq!(waits.join().unwrap(), Vec::<String>::new());
}

/// Returns what a second session gets at once after the first one has done something in its transaction
/// block. The answers are PostgreSQL's.
fn beside(first: &str, second: &str) -> Vec<String> {
    let db = database();
    let (mut a, mut b) = (session(&db), session(&db));
    run(
        &mut a,
        "create table t (id int primary key, u int unique, n int); insert into t values (1, 1, 10), (2, 2, 20)",
    );
    run(&mut b, "set lock_timeout = 1");
    run(&mut a, "begin");
    drop(ask(&mut a, first));
    ask(&mut b, second)
}

/// Tests each pair of lock strengths, and each pair of a strength and a change: whether the first excludes
/// the second.
#[test]
fn row_locks_are_as_strong_as_they_say() {
    let clauses = ["for key share", "for share", "for no key update", "for update"];
    let changes =
        ["update t set n = 11 where id = 1", "update t set u = 9 where id = 1", "delete from t where id = 1"];
    // The rows are the strengths that are held, and the columns the requested ones.
    let free = [
        [true, true, true, false],
        [true, true, false, false],
        [true, false, false, false],
        [false, false, false, false],
    ];
    let held = "! 55P03 could not obtain lock on row in relation \"t\"";
    let as_strong = [2, 3, 3];
    for (n, has) in clauses.iter().enumerate() {
        let has = format!("select 1 from t where id = 1 {has}");
        for (m, asks) in clauses.iter().enumerate() {
            let asked = beside(&has, &format!("select n from t where id = 1 {asks} nowait"));
            assert_eq!(asked, [if free[n][m] { "10" } else { held }], "{has}, then {asks}");
            let rest = beside(&has, &format!("select id from t {asks} skip locked"));
            assert_eq!(rest.len(), if free[n][m] { 2 } else { 1 }, "{has}, then {asks}");
        }
        for (change, strength) in changes.iter().zip(as_strong) {
            let done = beside(&has, change);
            assert_eq!(done.is_empty(), free[n][strength], "{has}, then {change}: {done:?}");
            let asked = beside(change, &format!("select n from t where id = 1 {} nowait", clauses[n]));
            assert_eq!(asked, [if free[strength][n] { "10" } else { held }], "{change}, then {}", clauses[n]);
        }
    }
    // An update after FOR UPDATE, and FOR UPDATE after an update, exclude what FOR UPDATE excludes.
    let both = "update t set n = 11 where id = 1; select 1 from t where id = 1 for update; update t set n = 12 where id = 1";
    assert_eq!(beside(both, "select n from t where id = 1 for key share nowait"), [held]);
    // ROLLBACK TO releases some locks and keeps others.
    let back =
        "savepoint s; select 1 from t for share; rollback to s; select 1 from t where id = 2 for key share";
    assert_eq!(beside(back, "select id from t for no key update nowait"), ["1", "2"]);
    assert_eq!(beside(back, "select id from t for update skip locked"), ["1"]);
}

/// A statement that relies only on a row's keys sees the committed version if another transaction has changed
/// the row and is not finished.
#[test]
fn key_share_passes_by_an_open_update() {
    assert_eq!(
        beside("update t set n = 11 where id = 1", "select n from t where n = 10 for key share"),
        ["10"]
    );
    let wide = format!("update t set n = 11 where id = 1; update t set n = {}", "12");
    assert_eq!(beside(&wide, "select n from t order by id for key share"), ["10", "20"]);
}

#[test]
fn lock_table_keeps_out_whom_it_says() {
    let denied = "! 55P03 could not obtain lock on relation \"t\"";
    for (mode, keeps_writers) in
        [("row exclusive", false), ("share", true), ("exclusive", true), ("access exclusive", true)]
    {
        let first = format!("lock table t in {mode} mode");
        let done = beside(&first, "update t set n = 11 where id = 1");
        assert_eq!(done.is_empty(), !keeps_writers, "{mode}: {done:?}");
        let asked = beside(&first, "begin; lock table t in exclusive mode nowait");
        assert_eq!(asked, [denied], "{mode}");
    }
    assert_eq!(
        beside("lock t in access share mode", "begin; lock t in row exclusive mode nowait"),
        Vec::<String>::new()
    );
    // A statement that has waited for the lock sees the changes for which it has waited.
    let db = database();
    let mut a = session(&db);
    run(&mut a, "create table t (id int primary key)");
    run(&mut a, "begin; lock table t");
    let waiting = stuck(&db, &["select * from t"]);
    run(&mut a, "insert into t values (7); commit");
    assert_eq!(waiting.join().unwrap(), ["7"]);
    // The lock is taken before the snapshot.
    let db = database();
    let (mut a, mut b) = (session(&db), session(&db));
    run(&mut a, "create table t (id int primary key)");
    run(&mut a, "begin; insert into t values (1)");
    run(&mut b, "begin isolation level repeatable read");
    let waiting = std::thread::spawn(move || {
        run(&mut b, "lock table t in exclusive mode");
        ask(&mut b, "select * from t")
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), ["1"]);
}

#[test]
fn pg_locks_shows_what_is_held_and_what_is_awaited() {
    let db = database();
    let (mut holder, mut viewer) = (session(&db), session(&db));
    run(&mut holder, "create table lk (id int primary key, v int); insert into lk values (1, 1)");
    run(&mut holder, "create schema held");
    run(&mut holder, "begin; update lk set v = 2 where id = 1; create table held.t (a int)");
    let writer = stuck(&db, &["begin", "update lk set v = 3 where id = 1"]);
    let locker = stuck(&db, &["begin", "lock table lk"]);
    let awaited =
        "select locktype, relation::regclass::text, mode from pg_locks where not granted order by 1";
    assert_eq!(
        ask(&mut viewer, awaited),
        ["relation|lk|AccessExclusiveLock", "transactionid|NULL|ShareLock"]
    );
    let held = "select locktype, mode from pg_locks where granted and relation = 'lk'::regclass";
    assert_eq!(ask(&mut viewer, held), ["relation|RowExclusiveLock", "relation|RowExclusiveLock"]);
    let object = "select classid::regclass::text, objid::regnamespace::text, mode from pg_locks where locktype = 'object'";
    assert_eq!(ask(&mut viewer, object), ["pg_namespace|held|AccessShareLock"]);
    let own =
        "select virtualxid = virtualtransaction, mode, granted from pg_locks where locktype = 'virtualxid'";
    assert_eq!(ask(&mut viewer, own), ["t|ExclusiveLock|t"; 4]);
    run(&mut holder, "rollback");
    writer.join().unwrap();
    locker.join().unwrap();
    assert_eq!(ask(&mut viewer, own), ["t|ExclusiveLock|t"]);
}

/// Review 12, K10: only superusers and a session's own role may see what the session waits for and what it
/// runs.
#[test]
fn who_waits_is_not_told_to_other_roles() {
    let (db, mut a) = accounts("create role spy");
    run(&mut a, "begin; update a set v = 11 where id = 1");
    let waiting = stuck(&db, &["update a set v = 12 where id = 1"]);
    let mut spy = session(&db);
    let seen = "select distinct query, state, query_start, backend_type, wait_event_type, wait_event \
                from pg_stat_activity";
    let waits =
        "select wait_event_type, wait_event from pg_stat_activity where query like 'update a set v = 12%'";
    assert_eq!(ask(&mut spy, waits), ["Lock|transactionid"]);
    run(&mut spy, "set role spy");
    assert_eq!(ask(&mut spy, seen), ["<insufficient privilege>|NULL|NULL|NULL|NULL|NULL"]);
    run(&mut a, "rollback");
    assert_eq!(waiting.join().unwrap(), Vec::<String>::new());
}
