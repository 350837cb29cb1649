//! Foreign keys between sessions: which session waits for which, and that every child keeps its parent.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use crate::support::{database, session};
use crate::waiting::{ask, run, stuck};
use varve_sql::{Session, SqlDatabase};

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

/// Returns the first line that B gets. A has done `first`, B waits in `second`, and then A does `end`.
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

const TOO_LATE: &str = "! 40001 could not serialize access due to concurrent update";

/// As in PostgreSQL, a check counts children that the snapshot does not see, but not parents that it does not
/// see. A deleted parent that the snapshot still sees is a conflict (review 7, A21).
#[test]
fn checks_under_repeatable_read() {
    let (db, mut a) = family("");
    let mut b = session(&db);
    let begin = |b: &mut Session| {
        run(b, "begin isolation level repeatable read");
        drop(ask(b, "select count(*) from p"));
    };
    begin(&mut b);
    run(&mut a, "insert into p values (3, 30, 0); insert into c values (1, 2)");
    assert_eq!(
        ask(&mut b, "delete from p where id = 2"),
        [NEEDED, "& Key (id)=(2) is still referenced from table \"c\"."]
    );
    run(&mut b, "rollback");
    begin(&mut b);
    run(&mut a, "insert into p values (4, 40, 0)");
    assert_eq!(ask(&mut b, "insert into c values (4, 4)")[0], ABSENT);
    run(&mut b, "rollback");
    begin(&mut b);
    run(&mut a, "delete from p where id = 3");
    assert_eq!(ask(&mut b, "insert into c values (3, 3)"), [TOO_LATE]);
    run(&mut b, "rollback");
    begin(&mut b);
    run(&mut a, "delete from c where id = 1");
    run(&mut b, "delete from p where id = 2; commit");
}

/// Review 7, A1: a transaction deletes a row and inserts it again. Other transactions cannot rely on this row
/// before the commit.
#[test]
fn a_parent_that_a_savepoint_may_take_away_is_waited_for() {
    for (take, put) in [
        ("delete from p where id = 1", "insert into p values (1, 10, 0)"),
        ("update p set id = 5 where id = 1", "update p set id = 1 where id = 5"),
    ] {
        let first = format!("{take}; savepoint s; {put}");
        let child = "insert into c values (1, 1)";
        assert_eq!(after(&first, child, "rollback to s; commit").as_deref(), Some(ABSENT), "{first}");
        assert_eq!(after(&first, child, "commit"), None, "{first}");
    }
    let first = "update p set code = 5 where id = 1; savepoint s; update p set code = 10 where id = 1";
    let absent = "! 23503 insert or update on table \"d\" violates foreign key constraint \"d_code_fkey\"";
    let child = "insert into d values (1, 10)";
    assert_eq!(after(first, child, "rollback to s; commit").as_deref(), Some(absent));
}

/// Review 7, A2: a transaction that has already inserted a child may go on using the parent, even if another
/// one waits to delete the parent.
#[test]
fn who_relies_on_a_parent_is_not_kept_from_it() {
    for again in [
        "insert into c values (2, 1)",
        "update p set n = 1 where id = 1",
        "select 1 from p where id = 1 and n < 0 for update",
    ] {
        let (db, mut a) = family("");
        run(&mut a, "begin; insert into c values (1, 1)");
        let waiting = stuck(&db, &["delete from p where id = 1"]);
        assert!(!waiting.is_finished());
        run(&mut a, again);
        run(&mut a, "commit");
        assert_eq!(waiting.join().unwrap()[0], NEEDED, "{again}");
    }
}

/// Review 7, A3: DELETE of a parent waits for a transaction that has deleted a child, but not for one that
/// has changed a child to refer to another parent. This is as in PostgreSQL.
#[test]
fn who_deletes_a_parent_waits_for_who_deletes_its_children() {
    let with_child = |first: &str, end: &str| {
        let (db, mut a) = family("");
        run(&mut a, "insert into c values (1, 1)");
        run(&mut a, &format!("begin; {first}"));
        let waiting = stuck(&db, &["delete from p where id = 1"]);
        let waits = !waiting.is_finished();
        run(&mut a, end);
        (waits, waiting.join().unwrap().into_iter().next())
    };
    assert_eq!(with_child("delete from c where id = 1", "commit"), (true, None));
    assert_eq!(with_child("delete from c where id = 1", "rollback"), (true, Some(NEEDED.into())));
    assert_eq!(with_child("update c set p = 2 where id = 1", "commit"), (false, Some(NEEDED.into())));
}

/// Review 6, A34: a reference relies on the parent's row, no matter to which of its keys it refers.
#[test]
fn a_parent_keeps_its_primary_key_while_another_key_is_referred_to() {
    let child = "insert into d values (1, 10)";
    assert_eq!(after(child, "update p set id = 7 where id = 1", "commit"), None);
}

/// Review 7, A15: an ON CONFLICT DO UPDATE that sets the key to its present value waits for nobody.
#[test]
fn an_upsert_that_keeps_the_key_waits_for_nobody() {
    let (db, mut a) = family("");
    let mut b = session(&db);
    run(&mut a, "begin; insert into c values (1, 1)");
    run(&mut b, "set lock_timeout = 200");
    let upsert =
        "insert into p values (1, 10, 9) on conflict (id) do update set id = excluded.id, n = excluded.n";
    run(&mut b, upsert);
    run(&mut a, "commit");
}

/// Review 6, A40: as in PostgreSQL, new references must wait for FOR UPDATE, but not for FOR NO KEY UPDATE.
#[test]
fn for_update_keeps_references_out() {
    let child = "insert into c values (1, 1)";
    let (db, mut a) = family("");
    run(&mut a, "begin; select 1 from p where id = 1 and n < 0 for update");
    drop(ask(&mut a, "select 1 from p where id = 1 for update"));
    let waiting = stuck(&db, &[child]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    assert_eq!(waiting.join().unwrap(), Vec::<String>::new());
}

const DEFERRED: &str = "create table dp (id int primary key);
    create table dc (p int, constraint fk foreign key (p) references dp deferrable initially deferred)";
const DEFERRED_ABSENT: &str =
    "! 23503 insert or update on table \"dc\" violates foreign key constraint \"fk\"";

/// Review 6, A35: a check that failed in SET CONSTRAINTS is made again at COMMIT. ROLLBACK TO undoes the SET
/// CONSTRAINTS.
#[test]
fn a_broken_check_is_not_forgotten() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, DEFERRED);
    run(&mut s, "begin; insert into dc values (5); savepoint s");
    assert_eq!(ask(&mut s, "set constraints all immediate")[0], DEFERRED_ABSENT);
    run(&mut s, "rollback to s; insert into dc values (6)");
    assert_eq!(ask(&mut s, "commit")[0], DEFERRED_ABSENT);
    assert_eq!(ask(&mut s, "select p from dc"), Vec::<String>::new());
}

/// Review 7, A17: a check that succeeded is made again if ROLLBACK TO may have removed the rows that it
/// needs.
#[test]
fn a_good_check_is_made_again_after_rollback_to() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, DEFERRED);
    run(&mut s, "begin; insert into dc values (5); savepoint s; insert into dp values (5)");
    run(&mut s, "set constraints all immediate; rollback to s");
    assert_eq!(ask(&mut s, "commit")[0], DEFERRED_ABSENT);
    // The check is kept after a second savepoint, and succeeds in the end.
    run(&mut s, "begin; insert into dc values (5); savepoint s; insert into dp values (5)");
    run(
        &mut s,
        "set constraints all immediate; savepoint t; set constraints all deferred; insert into dc values (6)",
    );
    run(&mut s, "rollback to s; insert into dp values (5); commit");
    assert_eq!(ask(&mut s, "select p from dc"), ["5"]);
}

/// Review 7, A4: a statement searches for referring tables after it has got the lock.
#[test]
fn truncate_sees_a_child_that_was_made_while_it_waited() {
    let (db, mut a) = family("");
    run(&mut a, "drop table c; drop table d");
    run(
        &mut a,
        "begin; create table c (id int primary key, p int references p); insert into c values (1, 1)",
    );
    let waiting = stuck(&db, &["truncate p"]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    let refused = "! 0A000 cannot truncate a table referenced in a foreign key constraint";
    assert_eq!(waiting.join().unwrap()[0], refused);
    run(&mut a, "drop table c; create unique index pn on p (n, id)");
    run(&mut a, "begin; create table c (n int, id int, foreign key (n, id) references p (n, id))");
    let waiting = stuck(&db, &["drop index pn"]);
    assert!(!waiting.is_finished());
    run(&mut a, "commit");
    assert!(waiting.join().unwrap()[0].starts_with("! 2BP01 cannot drop index pn"));
}

/// Review 6, A36: a new foreign key checks all rows, in batches. After the check, it has no locks on the
/// parents.
#[test]
fn a_new_foreign_key_looks_at_many_rows() {
    let db = database();
    let mut s = session(&db);
    run(&mut s, "create table p (id int primary key); create table c (p int)");
    run(
        &mut s,
        "insert into p select * from generate_series(1, 9000); insert into c select * from generate_series(1, 9001)",
    );
    let add = "alter table c add constraint c_p_fkey foreign key (p) references p";
    assert_eq!(ask(&mut s, add)[0], ABSENT);
    run(&mut s, "delete from c where p = 9001");
    run(&mut s, add);
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

/// Sessions make and delete parents and children of few keys. A child without its parent would mean that the
/// lock of a reference was lost.
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
                    // A transaction with a refused statement is rolled back completely.
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
