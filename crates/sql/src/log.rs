//! The server's messages: connections, slow statements, errors, and events of the database. They are events
//! of the library `tracing`, with the target [`TARGET`]. The program subscribes to them and writes them.
//!
//! Invariants
//! 1. Before a program calls `keep`, no event is made. A call then costs one relaxed load.
//! 2. An event has a message of limited length.
//!
//! This module does not know which events are wanted, or the file and the format in which they are written.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The target of the events.
pub const TARGET: &str = "varve";

/// The most characters of a text in an event.
const SHOWN_CHARS: usize = 4096;

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static LOGS_CONNECTIONS: AtomicBool = AtomicBool::new(false);
static LOGS_DISCONNECTIONS: AtomicBool = AtomicBool::new(false);
static LOGS_CHECKPOINTS: AtomicBool = AtomicBool::new(false);
static LOST: AtomicU64 = AtomicU64::new(0);

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// An event that was asked for.
    Log,
    /// A condition that an administrator should look at.
    Warning,
    /// A statement failed.
    Error,
    /// A connection ended because of an error.
    Fatal,
}

impl Severity {
    /// Returns PostgreSQL's word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Log => "LOG",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// The connection and session in which an event happened.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// The number of the connection; 0 for the server itself.
    pub process_id: i32,
    /// The role and the database, once they are known.
    pub session: Option<(&'s str, &'s str)>,
}

impl Source<'_> {
    /// The server itself.
    pub const SERVER: Source<'static> = Source { process_id: 0, session: None };
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub struct Event<'e> {
    /// The connection.
    pub source: Source<'e>,
    /// The severity.
    pub severity: Severity,
    /// The SQLSTATE of an error.
    pub code: Option<&'e str>,
    /// What happened.
    pub message: &'e str,
    /// More about it.
    pub detail: Option<&'e str>,
    /// What can be done.
    pub hint: Option<&'e str>,
    /// The statement that caused it.
    pub statement: Option<&'e str>,
}

impl<'e> Event<'e> {
    /// Returns an event that has only a message.
    pub fn new(source: Source<'e>, severity: Severity, message: &'e str) -> Event<'e> {
        Event { source, severity, code: None, message, detail: None, hint: None, statement: None }
    }

    /// Writes the event, if events are written. Long texts are cut.
    pub fn write(self) {
        if is_kept() {
            let (message, statement) = (cut(self.message), self.statement.map(cut));
            let (detail, hint) = (self.detail.map(cut), self.hint.map(cut));
            Event {
                message: &message,
                detail: detail.as_deref(),
                hint: hint.as_deref(),
                statement: statement.as_deref(),
                ..self
            }
            .emit();
        }
    }

    /// Writes the event without a limit of its message.
    pub fn write_whole(self) {
        if is_kept() {
            self.emit();
        }
    }

    #[cold]
    fn emit(self) {
        let Event { source, severity, code, message, detail, hint, statement } = self;
        let pid = i64::from(source.process_id);
        let (user, database) = source.session.unzip();
        let severity_name = severity.name();
        // The level of `tracing` must be a constant.
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET, tracing::Level::$level, severity = severity_name, pid, user, database,
                    code, message, detail, hint, statement
                )
            };
        }
        match severity {
            Severity::Log => event!(INFO),
            Severity::Warning => event!(WARN),
            Severity::Error | Severity::Fatal => event!(ERROR),
        }
    }
}

/// Writes an event that has only a message.
pub fn write(source: Source<'_>, severity: Severity, message: &str) {
    Event::new(source, severity, message).write();
}

/// Returns a text of limited length.
fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{} ...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Switches the events on, for the whole program.
pub fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// Returns whether events are written.
#[inline]
pub fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

/// Sets whether the beginnings and the ends of connections are written (`log_connections`,
/// `log_disconnections`).
pub fn keep_connections(begins: bool, ends: bool) {
    LOGS_CONNECTIONS.store(begins, Ordering::Relaxed);
    LOGS_DISCONNECTIONS.store(ends, Ordering::Relaxed);
}

/// Sets whether checkpoints are written (`log_checkpoints`).
pub fn keep_checkpoints(is_on: bool) {
    LOGS_CHECKPOINTS.store(is_on, Ordering::Relaxed);
}

/// Returns whether the beginnings of connections are written.
pub fn logs_connections() -> bool {
    LOGS_CONNECTIONS.load(Ordering::Relaxed)
}

/// Returns whether the ends of connections are written.
pub fn logs_disconnections() -> bool {
    LOGS_DISCONNECTIONS.load(Ordering::Relaxed)
}

/// Returns whether checkpoints are written.
pub fn logs_checkpoints() -> bool {
    LOGS_CHECKPOINTS.load(Ordering::Relaxed)
}

/// Counts an event that could not be written, because the medium of the log failed or is full.
pub fn count_lost() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of events that could not be written.
pub fn lost_count() -> u64 {
    LOST.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("select 1"), "select 1");
        let long = "ä".repeat(5000);
        let shown = cut(&long);
        assert!(shown.ends_with("ä ...") && shown.chars().count() == SHOWN_CHARS + 4, "{shown}");
    }
}
