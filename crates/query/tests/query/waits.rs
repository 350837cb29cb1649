//! UPDATE and DELETE with subqueries wait for another session. After the wait, their conditions are checked
//! on the new version of the row.

use std::time::Duration;

use super::support::{database, lines, session};

/// Returns what B gets for the last of its texts, and then the tables. A has made its change, B waits for A,
/// and then A commits.
fn after(change: &str, b: &[&str], shown: &str) -> Vec<String> {
    let db = database();
    let mut a = session(&db);
    lines(&mut a, "create table acc (id int primary key, bal int, note text)");
    lines(&mut a, "create table lim (min int primary key, name text)");
    lines(&mut a, "insert into acc values (1, 150, 'x'), (2, 150, 'y')");
    lines(&mut a, "insert into lim values (100, 'hundred'), (50, 'fifty')");
    lines(&mut a, "begin");
    assert_eq!(lines(&mut a, change), ["= UPDATE 1"]);
    let (waits, other) = (db.engine().stats().lock_waits, db.clone());
    let texts: Vec<String> = b.iter().map(|t| (*t).to_owned()).collect();
    let waiting = std::thread::spawn(move || {
        let mut s = session(&other);
        texts.iter().map(|t| lines(&mut s, t)).last().unwrap_or_default()
    });
    while !waiting.is_finished() && db.engine().stats().lock_waits == waits {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!waiting.is_finished(), "{b:?} does not wait for {change}");
    lines(&mut a, "commit");
    let mut out = waiting.join().unwrap();
    out.extend(lines(&mut a, shown).into_iter().filter(|l| !l.starts_with("= ")));
    out
}

const ACC: &str = "select id, bal from acc order by id";
const SPENT: &str = "update acc set bal = bal - 100 where id = 1";

/// R7-A7: the condition with a subquery was evaluated only on the version that was found, not on the one
/// after the wait. So the balance went below zero.
#[test]
fn a_condition_with_a_subquery_is_looked_at_again_on_the_version_that_is_changed() {
    let exists = "where id = 1 and exists (select 1 from lim where name = 'hundred' and acc.bal >= lim.min)";
    let spend = format!("update acc set bal = bal - 100 {exists}");
    assert_eq!(after(SPENT, &[&spend], ACC), ["= UPDATE 0", "1|50", "2|150"]);
    let remove = format!("delete from acc {exists}");
    assert_eq!(after(SPENT, &[&remove], ACC), ["= DELETE 0", "1|50", "2|150"]);
    let compared = "update acc set bal = 0 where bal > (select min(min) from lim) returning id";
    assert_eq!(after(SPENT, &[compared], ACC), ["2", "= UPDATE 1", "1|50", "2|0"]);
    let joined = "update acc set bal = 0 from lim where lim.min = 100 and acc.bal not in (select min from lim) returning id, lim.name";
    assert_eq!(after(SPENT, &[joined], ACC), ["2|hundred", "= UPDATE 1", "1|50", "2|0"]);
}

#[test]
fn a_value_of_a_subquery_is_that_for_the_version_that_is_changed() {
    let set =
        "update acc set note = (select name from lim where lim.min = acc.bal) where id = 1 returning note";
    assert_eq!(after(SPENT, &[set], ACC), ["fifty", "= UPDATE 1", "1|50", "2|150"]);
    let returned = "delete from acc where id = 1 returning (select name from lim where lim.min = acc.bal)";
    assert_eq!(after(SPENT, &[returned], ACC), ["fifty", "= DELETE 1", "2|150"]);
}

#[test]
fn what_subqueries_do_not_read_may_have_changed() {
    let set = "update acc set note = (select max(name) from lim), bal = bal + 1 where id in (select 1) returning bal, note";
    assert_eq!(after(SPENT, &[set], ACC), ["51|hundred", "= UPDATE 1", "1|51", "2|150"]);
}

#[test]
fn a_row_that_has_moved_is_asked_about_again() {
    let moved = "update acc set id = 7 where id = 1";
    let set = "update acc set bal = 0 where exists (select 1 from lim where lim.min > 90 and acc.id < 5) returning id";
    assert_eq!(after(moved, &[set], ACC), ["2", "= UPDATE 1", "2|0", "7|150"]);
    let set = "update acc set bal = 0 where exists (select 1 from lim where lim.min > 90 and acc.id < 9) returning id";
    assert_eq!(after(moved, &[set], ACC), ["7", "2", "= UPDATE 2", "2|0", "7|0"]);
}

#[test]
fn repeatable_read_fails_instead() {
    let begin = "begin isolation level repeatable read";
    let set = "update acc set bal = 0 where exists (select 1 from lim where lim.min > 90 and acc.id < 9)";
    let failed = ["! 40001 could not serialize access due to concurrent update", "1|50", "2|150"];
    assert_eq!(after(SPENT, &[begin, "select 1 from acc", set], ACC), failed);
}

/// FOR UPDATE over a join returns the rows as they are committed when they are locked: changed, no longer
/// matching, or deleted.
#[test]
fn a_join_that_locks_sees_what_it_waited_for() {
    let locked =
        "select acc.id, bal, name from acc join lim on acc.bal >= lim.min order by 1, 3 for update of acc";
    let nothing = "select 1 where false";
    assert_eq!(
        after(SPENT, &[locked], nothing),
        ["1|50|fifty", "2|150|fifty", "2|150|hundred", "= SELECT 3"]
    );
    let rich = "select id from acc where bal > (select max(min) from lim) order by id for no key update";
    assert_eq!(after(SPENT, &[rich], nothing), ["2", "= SELECT 1"]);
    let moved = "update acc set id = 7 where id = 1";
    let pairs = "select acc.id from acc, lim where lim.min = 50 order by acc.id for update";
    assert_eq!(after(moved, &[pairs], nothing), ["2", "7", "= SELECT 2"]);
    let begun = "begin isolation level repeatable read; select 1 from acc, lim limit 1";
    let late = "! 40001 could not serialize access due to concurrent update";
    assert_eq!(after(SPENT, &[begun, pairs], nothing), [late]);
}

/// NOWAIT and SKIP LOCKED over a join. Rows that are skipped do not count for LIMIT.
#[test]
fn a_join_passes_by_what_others_hold() {
    let db = database();
    let (mut a, mut b) = (session(&db), session(&db));
    lines(
        &mut a,
        "create table cu (id int primary key, name text); create table o (id int primary key, cu int)",
    );
    lines(
        &mut a,
        "insert into cu values (1, 'a'), (2, 'b'); insert into o values (10, 1), (11, 1), (12, 2), (13, 2)",
    );
    lines(&mut a, "begin; update cu set name = 'c' where id = 1");
    let joined = "select o.id, name from o join cu on cu.id = o.cu order by o.id";
    let mut ask = |tail: &str| lines(&mut b, &format!("{joined} {tail}"));
    assert_eq!(ask("for update of cu nowait"), ["! 55P03 could not obtain lock on row in relation \"cu\""]);
    assert_eq!(ask("for update of cu skip locked"), ["12|b", "13|b", "= SELECT 2"]);
    assert_eq!(ask("limit 1 for update of cu skip locked"), ["12|b", "= SELECT 1"]);
    assert_eq!(ask("limit 1 offset 1 for update skip locked"), ["13|b", "= SELECT 1"]);
    assert_eq!(ask("limit 1 for key share of cu nowait"), ["10|a", "= SELECT 1"]);
    assert_eq!(ask("limit 1 for update of o nowait"), ["10|a", "= SELECT 1"]);
}
