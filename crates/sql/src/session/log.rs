//! Decides which statements of a session are written to the server's log: chosen kinds, slow statements,
//! statements with temporary files, and errors.
//!
//! Invariants
//! 1. Damaged pages, full and failing devices, and internal errors are logged with all settings.
//!
//! This module does not know where the log is (`crate::log`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pg_query::NodeEnum;
use varve_engine::{Database, LockInfo, Locked, LongWait, WaitNotice};

use super::Session;
use crate::activity::Activity;
use crate::error::{Result, SqlError, SqlState};
use crate::log::{self, Event, Severity, Source};
use crate::settings::Settings;
use crate::{panics, parse};

/// The kinds of statements that are written before they run (`log_statement`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Kinds {
    #[default]
    None,
    Definitions,
    Changes,
    All,
}

/// The kinds of log lines for a session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Logging {
    kinds: Kinds,
    /// The time from which on a statement counts as slow and is logged (`log_min_duration_statement`).
    slow: Option<Duration>,
    /// Whether all errors are logged (`log_min_messages`).
    errors: bool,
    /// Whether the statement is logged with its error (`log_min_error_statement`).
    error_statements: bool,
    /// The bytes of temporary files from which on a statement is logged (`log_temp_files`).
    temporary_bytes: Option<u64>,
}

/// What the log needs to know about the beginning of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    at: Option<Instant>,
    /// The bytes of the session's temporary files until then.
    temporary_bytes: u64,
}

impl Logging {
    /// Reads the session's settings.
    pub(super) fn of(settings: &Settings) -> Logging {
        let kinds = match settings.get("log_statement").unwrap_or_default().as_str() {
            "ddl" => Kinds::Definitions,
            "mod" => Kinds::Changes,
            "all" => Kinds::All,
            _ => Kinds::None,
        };
        let has_errors = |setting: &str| {
            let level = settings.get(setting).unwrap_or_default();
            !matches!(level.as_str(), "log" | "fatal" | "panic")
        };
        Logging {
            kinds,
            slow: settings.duration("log_min_duration_statement"),
            errors: has_errors("log_min_messages"),
            error_statements: has_errors("log_min_error_statement"),
            temporary_bytes: settings.bytes("log_temp_files"),
        }
    }
}

impl Session {
    fn event<'e>(&'e self, severity: Severity, message: &'e str) -> Event<'e> {
        let session = Some((self.facts.session_user.as_str(), self.facts.database.as_str()));
        Event::new(Source { process_id: self.facts.process_id, session }, severity, message)
    }

    /// Logs a statement that begins. `how` is PostgreSQL's word for the way in which it came, such as
    /// "statement" or "execute".
    pub(super) fn log_statement(&self, how: &str, sql: &str) -> Begun {
        let logging = &self.logging;
        if logging.kinds != Kinds::None && log::is_kept() && is_of(sql, logging.kinds) {
            self.event(Severity::Log, &format!("{how}: {sql}")).write();
        }
        let at = logging.slow.filter(|_| log::is_kept()).map(|_| Instant::now());
        let temporary_bytes = logging.temporary_bytes.map_or(0, |_| self.temporary.taken_bytes());
        Begun { at, temporary_bytes }
    }

    /// Logs the error or the duration of a statement that has ended.
    pub(super) fn log_end<T>(&self, how: &str, sql: &str, began: Begun, result: &Result<T>) {
        self.log_failure(sql, result);
        self.log_temporary(sql, began);
        let (Some(at), Some(slow)) = (began.at, self.logging.slow) else { return };
        let took = at.elapsed();
        if took >= slow && result.is_ok() {
            let millis = took.as_secs_f64() * 1000.0;
            self.event(Severity::Log, &format!("duration: {millis:.3} ms  {how}: {sql}")).write();
        }
    }

    /// Logs the error of a statement, if there is one and the settings ask for it. A panic is in the log
    /// already, with its place.
    pub(super) fn log_failure<T>(&self, sql: &str, result: &Result<T>) {
        if let Err(error) = result
            && (self.logging.errors || is_grave(error))
            && !(error.sqlstate == SqlState::INTERNAL_ERROR && panics::is_logged())
        {
            self.log_error(error, sql);
        }
    }

    fn log_error(&self, error: &SqlError, sql: &str) {
        let event = Event {
            code: Some(error.sqlstate.as_str()),
            detail: error.detail.as_deref(),
            hint: error.hint.as_deref(),
            statement: self.logging.error_statements.then_some(sql),
            ..self.event(Severity::Error, &error.message)
        };
        event.write();
    }

    /// Logs the size of the statement's temporary files, if it has reached the limit.
    fn log_temporary(&self, sql: &str, began: Begun) {
        let Some(least_bytes) = self.logging.temporary_bytes else { return };
        let bytes = self.temporary.taken_bytes().saturating_sub(began.temporary_bytes);
        if bytes > 0 && bytes >= least_bytes {
            let message = format!("temporary files: size {bytes}");
            Event { statement: Some(sql), ..self.event(Severity::Log, &message) }.write();
        }
    }

    /// Returns the same session with the notice that its first settings ask for.
    pub(super) fn with_wait_notice(mut self) -> Session {
        self.wait_notice = self.lock_wait_notice();
        self
    }

    /// Returns the function that logs long waits for locks, if the settings ask for it (`log_lock_waits`).
    pub(super) fn lock_wait_notice(&self) -> Option<Arc<WaitNotice>> {
        if !self.settings.is_on("log_lock_waits") || !log::is_kept() {
            return None;
        }
        let after = self.settings.duration("deadlock_timeout").unwrap_or(Duration::from_secs(1));
        let (engine, activity) = (Arc::downgrade(self.shared.engine()), Arc::clone(self.seat.activity()));
        let database = self.facts.database.clone();
        let awaited = Mutex::new(None);
        let tell = move |step| {
            if let Some(engine) = engine.upgrade() {
                log_wait(&engine, &activity, &database, &awaited, step);
            }
        };
        Some(Arc::new(WaitNotice { after, tell: Box::new(tell) }))
    }
}

/// Logs a step of a long wait for a lock. `awaited` keeps the description of the lock.
fn log_wait(
    engine: &Database,
    activity: &Activity,
    database: &str,
    awaited: &Mutex<Option<String>>,
    step: LongWait,
) {
    let (me, mut awaited) = (activity.process_id, awaited.lock());
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let (message, detail) = match step {
        LongWait::Continues(time) => {
            let locks = engine.locks();
            let own = |lock: &&LockInfo| lock.label.cast_signed() == me && !lock.is_granted;
            let Some(lock) = locks.iter().find(own) else { return };
            let shown = format!("{} on {}", lock.mode.name(), shown(lock.on));
            let message = format!("process {me} still waiting for {shown} after {:.3} ms", millis(time));
            *awaited = Some(shown);
            let holders: Vec<String> =
                engine.blockers(me.cast_unsigned()).iter().map(u32::to_string).collect();
            (
                message,
                Some(format!("Processes holding the lock or ahead in its queue: {}.", holders.join(", "))),
            )
        }
        LongWait::Granted(time) => {
            let Some(lock) = awaited.take() else { return };
            (format!("process {me} acquired {lock} after {:.3} ms", millis(time)), None)
        }
        LongWait::Ended(time) => {
            let Some(lock) = awaited.take() else { return };
            (format!("process {me} gave up waiting for {lock} after {:.3} ms", millis(time)), None)
        }
    };
    let source = Source { process_id: me, session: Some((&activity.user, database)) };
    let statement = activity.now().query;
    let event = Event::new(source, Severity::Log, &message);
    Event { detail: detail.as_deref(), statement: Some(&statement), ..event }.write();
}

/// Returns a description of a lock, in PostgreSQL's words.
fn shown(lock: Locked) -> String {
    match lock {
        Locked::Whole((place, serial)) => format!("virtual transaction {}/{serial}", place + 1),
        Locked::Identity(id) => format!("transaction {id}"),
        Locked::Object(object) => format!("object {}", object.0),
        Locked::Advisory(key) => {
            let kind = if key.is_pair { 2 } else { 1 };
            format!("advisory lock [{},{},{},{kind}]", key.database, key.class, key.object)
        }
        Locked::Partition(engine, number) => format!("partition {number} of the engine {engine}"),
    }
}

/// Returns whether an error says that something is wrong with the server or its devices.
fn is_grave(error: &SqlError) -> bool {
    [SqlState::DISK_FULL, SqlState::IO_ERROR, SqlState("XX001")].contains(&error.sqlstate)
}

/// Returns whether a statement of the text is of the chosen kinds. A text that cannot be parsed matches only
/// the kind "all".
fn is_of(sql: &str, chosen: Kinds) -> bool {
    chosen == Kinds::All || parse::postgres::any(sql, &|statement| kind(statement) <= chosen).unwrap_or(false)
}

fn kind(statement: &NodeEnum) -> Kinds {
    match statement {
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::TruncateStmt(_) => Kinds::Changes,
        NodeEnum::CopyStmt(copy) if copy.is_from => Kinds::Changes,
        NodeEnum::PrepareStmt(prepare) => inner(prepare.query.as_deref()),
        NodeEnum::ExplainStmt(explain) => inner(explain.query.as_deref()),
        NodeEnum::SelectStmt(select) if select.into_clause.is_some() => Kinds::Definitions,
        NodeEnum::SelectStmt(_)
        | NodeEnum::CopyStmt(_)
        | NodeEnum::TransactionStmt(_)
        | NodeEnum::VariableSetStmt(_)
        | NodeEnum::VariableShowStmt(_)
        | NodeEnum::ConstraintsSetStmt(_)
        | NodeEnum::DiscardStmt(_)
        | NodeEnum::ExecuteStmt(_)
        | NodeEnum::DeallocateStmt(_)
        | NodeEnum::VacuumStmt(_)
        | NodeEnum::LockStmt(_)
        | NodeEnum::CheckPointStmt(_)
        | NodeEnum::DeclareCursorStmt(_)
        | NodeEnum::FetchStmt(_)
        | NodeEnum::ClosePortalStmt(_) => Kinds::All,
        _ => Kinds::Definitions,
    }
}

fn inner(statement: Option<&pg_query::protobuf::Node>) -> Kinds {
    statement.and_then(|node| node.node.as_ref()).map_or(Kinds::All, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_of_the_kinds_that_postgresql_says() {
        for (sql, expect) in [
            ("select 1", Kinds::All),
            ("insert into t values (1)", Kinds::Changes),
            ("copy t from stdin", Kinds::Changes),
            ("copy t to stdout", Kinds::All),
            ("create table t (a int)", Kinds::Definitions),
            ("grant select on t to a", Kinds::Definitions),
            ("prepare p as update t set a = 1", Kinds::Changes),
            ("begin; drop table t", Kinds::Definitions),
        ] {
            for chosen in [Kinds::Definitions, Kinds::Changes, Kinds::All] {
                assert_eq!(is_of(sql, chosen), expect <= chosen, "{sql}");
            }
        }
        assert!(!is_of("selec", Kinds::Changes) && is_of("selec", Kinds::All));
    }
}
