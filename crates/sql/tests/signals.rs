//! Tests: one session ends the statements and sessions of others.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "sql/support/mod.rs"]
mod support;
#[path = "sql/waiting/mod.rs"]
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{database, session};
use varve_sql::{Session, SessionParams, SqlDatabase};
use waiting::{ask, run};

const CANCELLED: &str = "! 57014 canceling statement due to user request";

fn session_of(db: &Arc<SqlDatabase>, user: &str, process_id: i32) -> Session {
    let (user, database) = (user.to_owned(), "postgres".to_owned());
    Session::new(db.clone(), SessionParams { user, database, process_id, ..SessionParams::default() })
        .unwrap()
}

/// Runs a statement that another session ends by `signal`. Returns its lines, and those of the next
/// statement.
fn signalled(db: &Arc<SqlDatabase>, mut victim: Session, signal: &str) -> Vec<String> {
    let sleeping = std::thread::spawn(move || {
        let given = ask(&mut victim, "select pg_sleep(20)");
        [given, ask(&mut victim, "select 5")].concat()
    });
    let mut watcher = session(db);
    let active = "select count(*) from pg_stat_activity where pid = 42 and query like 'select pg_sleep%'";
    while ask(&mut watcher, active) != ["1"] {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(ask(&mut watcher, signal), ["t"]);
    sleeping.join().unwrap()
}

#[test]
fn a_cancelled_statement_ends_and_its_session_goes_on() {
    let db = database();
    let victim = session_of(&db, "postgres", 42);
    assert_eq!(signalled(&db, victim, "select pg_cancel_backend(42)"), [CANCELLED, "5"]);
}

/// A request to end a session lasts longer than the statement that it ends.
#[test]
fn a_session_that_is_to_end_runs_nothing_more() {
    let db = database();
    let victim = session_of(&db, "postgres", 42);
    let ends = Arc::new(AtomicUsize::new(0));
    let counted = ends.clone();
    victim.set_ender(Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
    let signal = "select pg_terminate_backend(pid) from pg_stat_activity where pid = 42";
    let given = signalled(&db, victim, signal);
    assert_eq!((given[0].as_str(), ends.load(Ordering::Relaxed)), (CANCELLED, 1));
}

#[test]
fn who_asks_with_a_time_waits_for_the_end() {
    let db = database();
    let victim = session_of(&db, "postgres", 42);
    victim.set_ender(Box::new(|| {}));
    let mut asking = session(&db);
    let late = "~ Warning backend with PID 42 did not terminate within 50 milliseconds";
    assert_eq!(ask(&mut asking, "select pg_terminate_backend(42, 50)"), ["f", late]);
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(victim);
    });
    assert_eq!(ask(&mut asking, "select pg_terminate_backend(42, 20000)"), ["t"]);
    ending.join().unwrap();
}

#[test]
fn roles_end_only_what_is_theirs() {
    let db = database();
    let mut first = session(&db);
    run(&mut first, "create role a login; create role b login; create role a_too login; grant a to a_too");
    let _victim = session_of(&db, "a", 42);
    let _first = session_of(&db, "postgres", 43);
    let ask_as = |user, sql| ask(&mut session_of(&db, user, 50), sql);
    assert_eq!(ask_as("a", "select pg_cancel_backend(42)"), ["t"]);
    assert_eq!(ask_as("a_too", "select pg_cancel_backend(42)"), ["t"]);
    let member = "or member of pg_signal_backend";
    assert_eq!(
        ask_as("b", "select pg_cancel_backend(42)"),
        [format!("! 42501 must be a member of the role whose query is being canceled {member}")]
    );
    assert_eq!(
        ask_as("b", "select pg_terminate_backend(42)"),
        [format!("! 42501 must be a member of the role whose process is being terminated {member}")]
    );
    assert_eq!(
        ask_as("b", "select pg_cancel_backend(43)"),
        ["! 42501 must be a superuser to cancel superuser query"]
    );
}
