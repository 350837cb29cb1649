//! A definition waits for another session's definition of the same object. After the wait it must use the new
//! state of the object. Each test covers a fault that a review found: names, ordinals and dependent objects
//! had been looked up before the wait.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::support::{database, session};
use crate::waiting::{ask, run, stuck};

/// Runs `b`, which waits for the transaction of `a`. Returns what `b` gets, and what `look` then shows.
fn after(start: &[&str], a: &[&str], b: &str, look: &str) -> (Vec<String>, Vec<String>) {
    let db = database();
    let mut s = session(&db);
    start.iter().for_each(|sql| run(&mut s, sql));
    run(&mut s, "begin");
    a.iter().for_each(|sql| run(&mut s, sql));
    let waiting = stuck(&db, &[b]);
    assert!(!waiting.is_finished(), "{b} does not wait for {a:?}");
    run(&mut s, "commit");
    let lines = waiting.join().unwrap();
    (lines, ask(&mut s, look))
}

/// Starts with a table `t (a, b, c)` that has the row (1, 2, 3). Statement `b` waits until the transaction of
/// `a` has ended. Returns what `look` then shows.
fn left(a: &str, b: &str, look: &str) -> Vec<String> {
    let start = ["create table t (a int, b int, c int)", "insert into t values (1, 2, 3)"];
    let (lines, left) = after(&start, &[a], b, look);
    assert_eq!(lines, Vec::<String>::new(), "{b} after {a}");
    left
}

#[test]
fn alter_table_keeps_a_column_that_was_added_while_it_waited() {
    let add = "alter table t add column x int default 8";
    assert_eq!(left(add, "alter table t add column y int default 9", "select * from t"), ["1|2|3|8|9"]);
}

#[test]
fn alter_table_means_the_column_by_its_name_after_another_one_is_gone() {
    let drop = "alter table t drop column a";
    assert_eq!(left(drop, "alter table t drop column b", "select * from t"), ["3"]);
    let look = "insert into t (c) values (7); select b, c from t order by c";
    assert_eq!(left(drop, "alter table t alter b set default 5", look), ["2|3", "5|7"]);
    assert_eq!(left(drop, "alter table t rename b to z", "select z, c from t"), ["2|3"]);
    let index = "select pg_get_indexdef('t_b_idx'::regclass)";
    let shown = ["CREATE INDEX t_b_idx ON public.t USING btree (b)"];
    assert_eq!(left(drop, "create index on t (b)", index), shown);
    let index = "select pg_get_indexdef('t_b_key'::regclass)";
    let shown = ["CREATE UNIQUE INDEX t_b_key ON public.t USING btree (b)"];
    assert_eq!(left(drop, "alter table t add unique (b)", index), shown);
    let comment = "select col_description('t'::regclass, 1), col_description('t'::regclass, 2)";
    assert_eq!(left(drop, "comment on column t.c is 'third'", comment), ["NULL|third"]);
}

#[test]
fn alter_column_leaves_what_it_does_not_name() {
    let not_null = "alter table t alter a set not null";
    let look = "select attnotnull from pg_attribute where attrelid = 't'::regclass and attname = 'a'";
    assert_eq!(left(not_null, "alter table t alter a set default 1", look), ["t"]);
}

#[test]
fn a_name_is_looked_up_again_when_tables_have_changed_places() {
    let start = [
        "create table t (a int)",
        "create table other (a int)",
        "insert into t values (1)",
        "insert into other values (2)",
    ];
    let swap = ["alter table t rename to old", "alter table other rename to t"];
    let none = Vec::<String>::new();
    let counts = "select count(*) from old; select count(*) from t";
    assert_eq!(after(&start, &swap, "truncate t", counts), (none.clone(), vec!["1".into(), "0".into()]));
    let names = "select relname from pg_class where relkind = 'r' and relname in ('t', 'old')";
    assert_eq!(after(&start, &swap, "drop table t", names), (none, vec!["old".into()]));
}

#[test]
fn a_view_that_was_made_meanwhile_stands_in_the_way() {
    let start = ["create table t (a int, b int)", "create view v as select a from t"];
    let more = ["create view w as select a from t"];
    let refused = |what: &str, detail: &str| {
        vec![format!("! 2BP01 cannot drop {what} because other objects depend on it"), format!("& {detail}")]
    };
    let (lines, _) = after(&start[..1], &more, "drop table t", "select 1");
    assert_eq!(lines, refused("table t", "view w depends on table t"));
    let (lines, _) = after(&start[..1], &more, "alter table t drop column a", "select 1");
    assert_eq!(lines, refused("column a of table t", "view w depends on column a of table t"));
    let (lines, left) =
        after(&start, &["create view w as select * from v"], "drop view v", "select to_regclass('v')");
    assert_eq!((lines, left), (refused("view v", "view w depends on view v"), vec!["v".into()]));
    let (lines, _) = after(&start, &["drop view v"], "create view w as select * from v", "select 1");
    assert_eq!(lines, ["! 42P01 relation \"v\" does not exist"]);
}

#[test]
fn a_dropped_part_takes_its_own_rows_along() {
    let start = [
        "create table h (a int, k int) partition by hash (k)",
        "create table h0 partition of h for values with (modulus 2, remainder 0)",
        "create table h1 partition of h for values with (modulus 2, remainder 1)",
        "insert into h select 1, g from generate_series(1, 40) g",
    ];
    let drop = ["alter table h drop column a"];
    let look = "select count(*) from h; select count(*) from h1";
    let (lines, left) = after(&start, &drop, "drop table h0", look);
    assert_eq!(lines, Vec::<String>::new());
    assert_eq!(left[0], left[1]);
    assert_ne!(left[0], "0");
}

#[test]
fn a_new_constraint_looks_at_rows_that_are_newer_than_the_snapshot() {
    for (constraint, error) in [
        (
            "add check (a > 0)",
            "! 23514 check constraint \"t_a_check\" of relation \"t\" is violated by some row",
        ),
        ("alter a set not null", "! 23502 column \"a\" of relation \"t\" contains null values"),
    ] {
        let db = database();
        let (mut s, mut other) = (session(&db), session(&db));
        run(&mut s, "create table t (a int)");
        assert_eq!(ask(&mut s, "begin isolation level repeatable read; select count(*) from t"), ["0"]);
        run(&mut other, "insert into t values (-1), (null)");
        assert_eq!(ask(&mut s, &format!("alter table t {constraint}")), [error]);
    }
}

/// Finding A4 of review 8: a schema or role could be dropped while another session created an object in it or
/// for it. So tables belonged to schemas and roles that did not exist.
#[test]
fn a_schema_is_not_dropped_while_something_is_made_in_it() {
    let refused = |what: &str| {
        let detail = format!("& {what} depends on schema s");
        vec!["! 2BP01 cannot drop schema s because other objects depend on it".to_owned(), detail]
    };
    for (make, what) in [
        ("create table s.t (a int)", "table s.t"),
        ("create view s.t as select 1 as a", "view s.t"),
        ("create sequence s.t", "sequence s.t"),
    ] {
        let (lines, _) = after(&["create schema s"], &[make], "drop schema s", "");
        assert_eq!(lines, refused(what));
    }
    let make = ["create table s.t (a int)"];
    let (lines, left) = after(&["create schema s"], &make, "drop schema s cascade", "select 1 from s.t");
    assert_eq!(lines, ["~ Notice drop cascades to table s.t"]);
    assert_eq!(left[0], "! 42P01 relation \"s.t\" does not exist");
    let (lines, _) = after(&["create schema s"], &["drop schema s"], "create table s.t (a int)", "");
    assert_eq!(lines, ["! 3F000 schema \"s\" does not exist"]);
}

/// The same is true of roles.
#[test]
fn a_role_is_not_dropped_while_something_is_made_for_it() {
    let start = ["create role bob", "grant create on schema public to bob", "create table t (a int)"];
    let refused = "! 2BP01 role \"bob\" cannot be dropped because some objects depend on it";
    let (lines, left) = after(
        &start,
        &["set role bob", "create table bt (a int)"],
        "drop role bob",
        "select count(*) from bt",
    );
    assert_eq!(lines, [refused, "& privileges for schema public / owner of table bt"]);
    assert_eq!(left, ["0"]);
    let start = ["create role bob", "create table t (a int)"];
    let (lines, _) = after(&start, &["grant select on t to bob"], "drop role bob", "");
    assert_eq!(lines, [refused, "& privileges for table t"]);
    let (lines, _) = after(&start, &["drop role bob"], "grant select on t to bob", "");
    assert_eq!(lines, ["! 42704 role \"bob\" does not exist"]);
    let start = ["create role bob", "create role crew"];
    let look = "select count(*) from pg_auth_members where member >= 16384";
    assert_eq!(after(&start, &["grant crew to bob"], "drop role crew", look), (vec![], vec!["0".to_owned()]));
}

#[test]
fn the_session_of_a_role_that_is_gone_makes_nothing_any_more() {
    let db = database();
    let (mut s, mut bob) = (session(&db), session(&db));
    run(&mut s, "create role bob; grant create on schema public to public");
    run(&mut bob, "set role bob");
    run(&mut s, "drop role bob");
    let lines = ask(&mut bob, "create table t (a int)");
    assert!(lines[0].starts_with("! 42704 role "), "{lines:?}");
    assert_eq!(ask(&mut s, "select count(*) from pg_tables where tablename = 't'"), ["0"]);
}
