//! Decides which statements of a session are written to the server's log: chosen kinds, slow statements, and
//! errors.
//!
//! Invariants
//! 1. Damaged pages, full and failing devices, and internal errors are logged with all settings.
//!
//! This module does not know where the log is (`crate::log`).

use std::time::{Duration, Instant};

use pg_query::NodeEnum;

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::log::{self, Source};
use crate::parse;
use crate::settings::Settings;

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
        let level = settings.get("log_min_messages").unwrap_or_default();
        Logging {
            kinds,
            slow: settings.duration("log_min_duration_statement"),
            errors: !matches!(level.as_str(), "log" | "fatal" | "panic"),
        }
    }

    /// Returns the current time, if the duration of the statement will be needed.
    fn start(self) -> Option<Instant> {
        self.slow.filter(|_| log::is_kept()).map(|_| Instant::now())
    }
}

impl Session {
    fn log(&self, severity: &str, text: &str) {
        let session = Some((self.facts.session_user.as_str(), self.facts.database.as_str()));
        log::write(Source { process_id: self.facts.process_id, session }, severity, text);
    }

    /// Logs a statement that begins. `how` is PostgreSQL's word for the way in which it came, such as
    /// "statement" or "execute".
    pub(super) fn log_statement(&self, how: &str, sql: &str) -> Option<Instant> {
        if self.logging.kinds != Kinds::None && log::is_kept() && is_of(sql, self.logging.kinds) {
            self.log("LOG", &format!("{how}: {sql}"));
        }
        self.logging.start()
    }

    /// Logs the error or the duration of a statement that has ended.
    pub(super) fn log_end<T>(&self, how: &str, sql: &str, began: Option<Instant>, result: &Result<T>) {
        if let Err(error) = result
            && (self.logging.errors || is_grave(error))
        {
            self.log("ERROR", &told(error, sql));
        }
        let (Some(began), Some(slow)) = (began, self.logging.slow) else { return };
        let took = began.elapsed();
        if took >= slow && result.is_ok() {
            let millis = took.as_secs_f64() * 1000.0;
            self.log("LOG", &format!("duration: {millis:.3} ms  {how}: {sql}"));
        }
    }
}

/// Returns the log text of an error: the parts that the client gets, and the statement.
fn told(error: &SqlError, sql: &str) -> String {
    let mut text = format!("{}: {}", error.sqlstate.as_str(), error.message);
    for (name, more) in [("DETAIL", &error.detail), ("HINT", &error.hint)] {
        if let Some(more) = more {
            text += &format!("\n{name}:  {more}");
        }
    }
    text + "\nSTATEMENT:  " + sql
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
