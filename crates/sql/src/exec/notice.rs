//! Notices and failures of statements that define objects.
//!
//! Invariants
//! 1. While a statement waits for a table's lock, another transaction may drop or replace the table. The
//!    result is then `Failed::Stale`, and the session looks the names up again and repeats the statement. The
//!    client never sees an error about the old table.

use varve_engine::{Error as EngineError, StorageOptions, TableDef, Transaction};

use crate::error::{SqlError, SqlState};
use crate::sink::Severity;

/// The reason why a statement that defines objects has failed.
pub enum Failed {
    /// An object that the statement names was dropped or replaced meanwhile. The session rolls the statement
    /// back, looks the names up again, and repeats it.
    Stale,
    /// An error for the client.
    Error(SqlError),
}

pub(super) type Result<T, E = Failed> = std::result::Result<T, E>;

impl From<SqlError> for Failed {
    fn from(e: SqlError) -> Self {
        Failed::Error(e)
    }
}

impl From<EngineError> for Failed {
    fn from(e: EngineError) -> Self {
        match e {
            EngineError::StaleDefinition { .. } => Failed::Stale,
            e => Failed::Error(e.into()),
        }
    }
}

/// Receives notices.
pub type Notices = Vec<(Severity, SqlError)>;

/// Adds a notice.
pub(super) fn notice(notices: &mut Notices, state: &'static str, message: String) {
    notices.push((Severity::Notice, SqlError::new(SqlState(state), message)));
}

/// Adds a notice if the storage options ask for a compression that cannot save space in this database.
pub(crate) fn tell_of_compression(txn: &Transaction, storage: StorageOptions, notices: &mut Notices) {
    if storage.compression.is_some_and(|how| !how.is_none())
        && let Some(why) = txn.pager().saves_nothing()
    {
        notice(notices, "00000", why);
    }
}

/// Returns PostgreSQL's error for a duplicate key that is found while an index is built.
pub(super) fn duplicate_in_build(e: EngineError, name: &str, table: &TableDef) -> Failed {
    let out = match Failed::from(e) {
        Failed::Error(e) if e.sqlstate == SqlState::UNIQUE_VIOLATION => e,
        other => return other,
    };
    let detail = out.detail.as_deref().map(|d| d.replace(" already exists.", " is duplicated."));
    let message = format!("could not create unique index \"{name}\"").into();
    let error = SqlError { message, detail: detail.map(Into::into), ..out };
    error.of_table(&table.schema, &table.name).into()
}
