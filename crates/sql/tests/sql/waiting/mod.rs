//! Helpers for tests in which sessions wait for each other.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use varve_sql::{Session, SqlDatabase};

use crate::support::{Recorder, session};

/// Runs a text. Returns its rows and errors, without tags.
pub fn ask(s: &mut Session, sql: &str) -> Vec<String> {
    let mut sink = Recorder::default();
    sink.simple(s, sql);
    sink.lines.into_iter().filter(|l| !l.starts_with("= ")).collect()
}

pub fn run(s: &mut Session, sql: &str) {
    assert_eq!(ask(s, sql), Vec::<String>::new(), "{sql}");
}

/// Runs texts in a session of their own. Returns when the last one waits for a lock or has ended, or after a
/// limit of time.
pub fn stuck(db: &Arc<SqlDatabase>, texts: &[&str]) -> JoinHandle<Vec<String>> {
    let mut s = session(db);
    let (last, before) = texts.split_last().unwrap();
    before.iter().for_each(|sql| drop(ask(&mut s, sql)));
    let (db, last) = (db.clone(), (*last).to_owned());
    let (started, wait) = channel();
    let waits = db.engine().stats().lock_waits;
    let handle = std::thread::spawn(move || {
        started.send(()).unwrap();
        ask(&mut s, &last)
    });
    wait.recv().unwrap();
    for _ in 0..500 {
        if handle.is_finished() || db.engine().stats().lock_waits > waits {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    handle
}
