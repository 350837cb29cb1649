//! Errors of a measurement.

use thiserror::Error;

/// The result of a measurement or a part of one.
pub type Result<T> = std::result::Result<T, BenchError>;

/// The reason why a measurement ended without a figure.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The database refused a statement.
    #[error("{sqlstate}: {message}")]
    Statement {
        /// The SQLSTATE of the error, five characters.
        sqlstate: String,
        /// The message of the database.
        message: String,
    },
    /// The connection failed.
    #[error("connection: {0}")]
    Connection(String),
    /// A file or a thread failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The engine refused a call below SQL.
    #[error(transparent)]
    Engine(#[from] varve_engine::Error),
    /// The data violates a condition of the workload.
    #[error("wrong data: {0}")]
    Wrong(String),
    /// The arguments contradict each other.
    #[error("{0}")]
    Arguments(String),
}

impl BenchError {
    /// Returns whether a client would run the transaction again. It would after a serialization failure, a
    /// deadlock, or a duplicate key. A key is a duplicate if another session inserted it between this
    /// session's DELETE and INSERT. sysbench restarts after the same three errors.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Statement { sqlstate, .. } if matches!(sqlstate.as_str(), "40001" | "40P01" | "23505"))
    }
}

impl From<varve_sql::SqlError> for BenchError {
    fn from(error: varve_sql::SqlError) -> Self {
        Self::Statement { sqlstate: error.sqlstate.as_str().to_owned(), message: error.message.to_string() }
    }
}

impl From<postgres::Error> for BenchError {
    fn from(error: postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::Statement {
                sqlstate: refused.code().code().to_owned(),
                message: refused.message().to_owned(),
            },
            None => Self::Connection(error.to_string()),
        }
    }
}
