//! Moves schemas and rows between databases: `varve import` and `varve dump`.
//!
//! | file | part |
//! |---|---|
//! | `link.rs` | a connection to a server, or a session in this process |
//! | `schema.rs`, `read.rs` | the definitions of a database, and the queries that read them |
//! | `types.rs` | which type of Varve a column of PostgreSQL gets |
//! | `definitions.rs` | the statements that make the objects again |
//! | `trial.rs` | which of these statements the target accepts, and the report about it |
//! | `foreign.rs` | objects of PostgreSQL that Varve does not have |
//! | `import.rs`, `load.rs` | `varve import`: its steps, and the copies of rows |
//! | `dump.rs` | `varve dump` |
//!
//! The definitions are read with PostgreSQL's own catalog queries, which Varve answers, too. So one reader
//! serves both directions.

pub mod definitions;
pub mod dump;
pub mod foreign;
pub mod import;
pub mod link;
pub mod load;
pub mod read;
pub mod schema;
pub mod trial;
pub mod types;

use std::path::PathBuf;

use crate::error::OpenError;

/// The reason why a dump or an import failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A database in a directory does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A server cannot be reached.
    #[error("Cannot connect to {server}: {why}.")]
    Connect {
        /// The server, without its password.
        server: String,
        /// The reason, and what to do.
        why: String,
    },
    /// The address is not one that the command takes.
    #[error("{0}")]
    Address(String),
    /// A statement failed.
    #[error("{what}: {error}")]
    Statement {
        /// The object or the step.
        what: String,
        /// The error of the database.
        error: StatementError,
    },
    /// The output cannot be written.
    #[error("The output cannot be written: {0}.")]
    Output(#[from] std::io::Error),
    /// The target has some of the objects already.
    #[error(
        "{target} has some of these objects already: {names}. Nothing was changed. Import into an empty database, or drop these objects first."
    )]
    Present {
        /// The target.
        target: String,
        /// The names of the objects, not all if they are many.
        names: String,
    },
    /// No object has this name.
    #[error(
        "{source_name} has no {what} that is named {name}. Check the name; `\\d` of psql lists the names."
    )]
    Absent {
        /// The database.
        source_name: String,
        /// "table" or "schema".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A part was not loaded. The message lists what was loaded.
    #[error("{0}")]
    Incomplete(String),
    /// A directory for trying statements can't be made.
    #[error("Cannot make a directory in {}: {error}.", path.display())]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// The error of one statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLSTATE {sqlstate}){}", context.as_ref().map(|context| format!("; {context}")).unwrap_or_default())]
pub struct StatementError {
    /// SQLSTATE, or 08006 if the connection broke.
    pub sqlstate: String,
    /// The message.
    pub message: String,
    /// The place, such as a line of COPY.
    pub context: Option<String>,
}

impl StatementError {
    /// Names the object or step of the statement.
    pub fn of(self, what: impl Into<String>) -> TransferError {
        TransferError::Statement { what: what.into(), error: self }
    }
}
