//! Foreign keys between sessions: who waits for whom, and that no child is left without its parent.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;
mod waiting;

use std::sync::Arc;

use support::{database, session};
use varve_sql::{Session, SqlDatabase};
use waiting::{ask, run, stuck};

const ABSENT: &str = "! 23503 insert or update on table \"c\" violates foreign key constraint \"c_p_fkey\"";
const NEEDED: &str =
    "! 23503 update or delete on table \"p\" violates foreign key constraint \"c_p_fkey\" on table \"c\"";

fn family(action: &str) -> (Arc<SqlDatabase>, Session) {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table p (id int primary key, code int unique, n int)");
    run(&mut s, &format!("create table c (id int primary key, p int references p {action})"));
    run(&mut s, "create table d (id int primary key, code int references p (code))");
    run(&mut s, "insert into p values (1, 10, 0), (2, 20, 0)");
    (db, s)
}

/// The first line that B gets after A has done `first` and then `end` while B waited with `second`.
fn after(first: &str, second: &str, end: &str) -> Option<String> {
    let (db, mut a) = family("");
    run(&mut a, "begin");
    run(&mut a, first);
    let waiting = stuck(&db, &[second]);
    assert!(!waiting.is_finished(), "{second} does not wait for {first}");
    run(&mut a, end);
    waiting.join().unwrap().into_iter().next()
}

#[test]
fn a_child_waits_for_who_deletes_its_parent() {
    let child = "insert into c values (1, 1)";
    assert_eq!(after("delete from p where id = 1", child, "commit").as_deref(), Some(ABSENT));
    assert_eq!(after("delete from p where id = 1", child, "rollback"), None);
    assert_eq!(after("update p set id = 5 where id = 1", child, "commit").as_deref(), Some(ABSENT));
    assert_eq!(after("update p set id = 5 where id = 1", child, "rollback"), None);
    let by_code = "insert into d values (1, 10)";
    let absent = "! 23503 insert or update on table \"d\" violates foreign key constraint \"d_code_fkey\"";
    assert_eq!(after("delete from p where id = 1", by_code, "commit").as_deref(), Some(absent));
    assert_eq!(after("update p set code = 5 where id = 1", by_code, "commit").as_deref(), Some(absent));
    assert_eq!(after("update p set code = 5 where id = 1", by_code, "rollback"), None);
}

#[test]
fn who_deletes_a_parent_waits_for_its_children() {
    let child = "insert into c values (1, 1)";
    assert_eq!(after(child, "delete from p where id = 1", "commit").as_deref(), Some(NEEDED));
    assert_eq!(after(child, "delete from p where id = 1", "rollback"), None);
    assert_eq!(after(child, "update p set id = 7 where id = 1", "commit").as_deref(), Some(NEEDED));
    assert_eq!(after(child, "delete from p", "rollback"), None);
    let moved = "insert into c values (3, 2); update c set p = 1 where id = 3";
    assert_eq!(after(moved, "delete from p where id = 1", "commit").as_deref(), Some(NEEDED));
}

#[test]
fn updates_that_leave_the_key_alone_are_in_nobodys_way() {
    let (db, mut a) = family("");
    let mut b = session(&db);
    run(&mut a, "begin; update p set n = 1 where id = 1");
    run(&mut b, "begin; insert into c values (1, 1); insert into d values (1, 20)");
    run(&mut b, "set lock_timeout = 200");
    run(&mut a, "update p set n = 2, id = id, code = 20 where id = 2; insert into c values (2, 1)");
    run(&mut a, "commit");
    run(&mut b, "update p set n = 3 where id = 1; commit");
    assert_eq!(ask(&mut a, "select n from p order by id"), ["3", "2"]);
}

#[test]
fn a_cascade_takes_the_children_that_it_waited_for() {
    let (db, mut a) = family("on delete cascade");
    run(&mut a, "begin; insert into c values (1, 1)");
    let waiting = stuck(&db, &["delete from p where id = 1"]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), Vec::<String>::new());
    assert_eq!(ask(&mut a, "select id from c"), Vec::<String>::new());
}

/// As in PostgreSQL, a parent that the snapshot does not see is a parent, and a child that it does not see is a child.
#[test]
fn checks_look_beyond_the_snapshot() {
    let (db, mut a) = family("");
    let mut b = session(&db);
    run(&mut b, "begin isolation level repeatable read");
    assert_eq!(ask(&mut b, "select count(*) from p"), ["2"]);
    run(&mut a, "insert into p values (3, 30, 0); insert into c values (1, 2)");
    run(&mut b, "insert into c values (3, 3)");
    assert_eq!(
        ask(&mut b, "delete from p where id = 2"),
        [NEEDED, "& Key (id)=(2) is still referenced from table \"c\"."]
    );
    run(&mut b, "rollback");
}

#[test]
fn a_deferred_check_waits_at_commit() {
    let (db, mut a) = family("deferrable initially deferred");
    run(&mut a, "begin; delete from p where id = 1");
    let waiting = stuck(&db, &["begin", "insert into c values (1, 1)", "commit"]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap()[0], ABSENT);
    assert_eq!(ask(&mut a, "select id from c"), Vec::<String>::new());
}

/// Sessions that make and delete parents and children of few keys: a child without its parent would be a lost share.
#[test]
fn no_child_is_left_without_its_parent() {
    let (db, mut s) = family("");
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let db = &db;
            scope.spawn(move || {
                let mut s = session(db);
                let mut random = 0x9E37_79B9u32.wrapping_mul(thread + 1);
                for n in 0..150 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let p = (random >> 16) % 4;
                    let id = thread * 1000 + n;
                    // Whatever is refused is rolled back whole.
                    ask(&mut s, "begin");
                    match (random >> 24) % 4 {
                        0 => drop(ask(&mut s, &format!("delete from p where id = {p}"))),
                        1 => drop(ask(&mut s, &format!("insert into p values ({p}, {p}, 0)"))),
                        2 => drop(ask(&mut s, &format!("delete from c where p = {p}"))),
                        _ => drop(ask(&mut s, &format!("insert into c values ({id}, {p})"))),
                    }
                    ask(&mut s, if (random >> 20).is_multiple_of(8) { "rollback" } else { "commit" });
                }
            });
        }
    });
    let parents = ask(&mut s, "select id from p");
    let children = ask(&mut s, "select distinct p from c");
    assert!(children.iter().all(|p| parents.contains(p)), "parents {parents:?}, children of {children:?}");
}
