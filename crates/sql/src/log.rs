//! The server's log: one line on stderr for each event. A program switches the log on with `keep`.
//!
//! Invariants
//! 1. Before a program calls `keep`, nothing is written and no time is spent.
//!
//! This module does not know which events are logged. Panics have a format of their own (`panics`).

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::eval::func::clock_us;
use crate::time;

/// The most characters of a text in a line.
const SHOWN_CHARS: usize = 4096;

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static LOGS_CONNECTIONS: AtomicBool = AtomicBool::new(false);
static LOGS_DISCONNECTIONS: AtomicBool = AtomicBool::new(false);

/// The connection and session in which an event happened.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// The number of the connection.
    pub process_id: i32,
    /// The role and the database, once they are known.
    pub session: Option<(&'s str, &'s str)>,
}

/// Switches the log on, for the whole program.
pub fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// Returns whether events are written.
pub fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

/// Sets whether the beginnings and the ends of connections are written (`log_connections`,
/// `log_disconnections`).
pub fn keep_connections(begins: bool, ends: bool) {
    LOGS_CONNECTIONS.store(begins, Ordering::Relaxed);
    LOGS_DISCONNECTIONS.store(ends, Ordering::Relaxed);
}

/// Returns whether the beginnings of connections are written.
pub fn logs_connections() -> bool {
    LOGS_CONNECTIONS.load(Ordering::Relaxed)
}

/// Returns whether the ends of connections are written.
pub fn logs_disconnections() -> bool {
    LOGS_DISCONNECTIONS.load(Ordering::Relaxed)
}

/// Writes an event. `severity` is PostgreSQL's word: LOG, ERROR, FATAL.
pub fn write(source: Source<'_>, severity: &str, text: &str) {
    if !is_kept() {
        return;
    }
    // If the log can't be written, the error can't be reported either.
    let _ = std::io::stderr().write_all(line(source, severity, text, clock_us()).as_bytes());
}

fn line(source: Source<'_>, severity: &str, text: &str, now_us: i64) -> String {
    let mut moment = Vec::new();
    time::write_timestamp(now_us, true, &time::PLAIN, &mut moment);
    let (moment, process) = (String::from_utf8_lossy(&moment), source.process_id);
    let session = source.session.map_or(String::new(), |(user, database)| format!(" {user}@{database}"));
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < text.len() { " ..." } else { "" };
    // Further lines of an event are indented, so that no text looks like another event.
    let shown = shown.replace('\n', "\n\t");
    format!("varve: {moment} [{process}]{session} {severity}:  {shown}{cut}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_its_text_cannot_look_like_another() {
        let source = Source { process_id: 7, session: Some(("ada", "postgres")) };
        let said = line(source, "LOG", "statement: select 1\nvarve: FATAL", 0);
        assert_eq!(
            said,
            "varve: 2000-01-01 00:00:00+00 [7] ada@postgres LOG:  statement: select 1\n\tvarve: FATAL\n"
        );
        let unknown = Source { process_id: 7, session: None };
        let said = line(unknown, "LOG", &"x".repeat(5000), 0);
        assert!(said.ends_with("x ...\n") && said.len() < 4200, "{said}");
    }
}
