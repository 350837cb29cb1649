//! The errors of the engine. An error has an SQLSTATE. It says what happened to which object, and what the
//! user can do.
//!
//! Invariants
//! 1. Every error has exactly one SQLSTATE ([`Error::sqlstate`]).
//! 2. After an error of `insert`, `modify` or a DDL call, this call has changed nothing, and the transaction
//!    can continue.
//!
//! This module does not know positions in a statement, severity or the wire protocol.

use thiserror::Error;
use varve_memory::{MemoryError, StoreError, TablesFileError};
use varve_pager::{LocationFlaw, PageId, PagerError};

use crate::row::RowError;
use crate::types::{ColumnType, Value};

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of catalog object an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A schema.
    Schema,
    /// A table.
    Table,
    /// An index.
    Index,
    /// A sequence.
    Sequence,
    /// A table engine.
    Engine,
    /// A column.
    Column,
    /// A constraint.
    Constraint,
    /// A view.
    View,
    /// A role.
    Role,
    /// A database.
    Database,
}

impl ObjectKind {
    /// Returns the name for messages, in PostgreSQL's words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Table | Self::Sequence | Self::View => "relation",
            Self::Index => "index",
            Self::Engine => "access method",
            Self::Column => "column",
            Self::Constraint => "constraint",
            Self::Role => "role",
            Self::Database => "database",
        }
    }
}

/// One part of the key of a unique index: a column, or an expression.
#[derive(Clone, Debug)]
pub struct KeyPartValue {
    /// The column's name, or the expression's text.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// Its value in the row that was refused.
    pub value: Value,
}

/// An error of the engine.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// A key exists already.
    #[error("duplicate key value violates unique constraint \"{constraint}\"")]
    UniqueViolation {
        /// Name of the constraint or index.
        constraint: String,
        /// PostgreSQL's detail line: `Key (a)=(1) already exists.`
        detail: String,
        /// The parts of the key, for a caller that shows values in another way.
        key: Box<[KeyPartValue]>,
    },
    /// REPEATABLE READ: the row was changed after the snapshot.
    #[error("could not serialize access due to concurrent update")]
    SerializationFailure,
    /// SERIALIZABLE: something that was read has been written by another transaction since.
    #[error("could not serialize access due to read/write dependencies among transactions")]
    ReadWriteConflict,
    /// This transaction was ended to break a cycle of waits.
    #[error("deadlock detected")]
    Deadlock,
    /// The lock time-out passed.
    #[error("canceling statement due to lock timeout")]
    LockTimeout,
    /// The limit of advisory locks is reached ([`crate::lock_queue::ADVISORY_MAX`]).
    #[error("out of shared memory")]
    TooManyLocks,
    /// Temporary files would exceed their limit.
    #[error("temporary file size exceeds temp_file_limit ({kilobytes}kB)")]
    TemporaryQuota {
        /// The limit.
        kilobytes: u64,
    },
    /// A backup of a database that has tables outside of pages.
    #[error(
        "cannot back up a database with tables of memory-oriented engines: \"{table}\" uses the engine {engine}"
    )]
    NoBackup {
        /// One of the tables.
        table: String,
        /// Its engine.
        engine: String,
    },
    /// The session asked to stop.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// Undo that the snapshot needs was given up because the rollback space was full.
    #[error(
        "snapshot too old: the rollback space reached its limit; run the reader again or raise the limit"
    )]
    SnapshotTooOld,
    /// AS OF names a moment whose row versions are gone or were never kept.
    #[error("{}", if *.retained {
        "cannot read the database as of this moment: the row versions of then are not kept any more"
    } else {
        "cannot read the database as of a moment: undo_retention is 0, so no row versions are kept for it"
    })]
    MomentTooOld {
        /// Whether row versions are kept for some time.
        retained: bool,
    },
    /// AS OF names a moment in the future.
    #[error("cannot read the database as of a moment in the future")]
    MomentAhead,
    /// AS OF reads a table that has been rewritten since then.
    #[error("cannot read the table as of then: it has been emptied or rewritten since")]
    RewrittenSince,
    /// AS OF reads a table that has been created since then.
    #[error("relation \"{table}\" did not exist at this moment: it was created later")]
    CreatedSince {
        /// The name of the table.
        table: String,
    },
    /// AS OF in a transaction that has read or changed something.
    #[error("a transaction reads an earlier moment from its first statement on, or not at all")]
    HasBegun,
    /// A change in a transaction that reads the past.
    #[error("cannot change anything in a transaction that reads the database as of an earlier moment")]
    PastIsReadOnly,
    /// A name is not known.
    #[error("{} \"{name}\" does not exist", .kind.name())]
    Undefined {
        /// What was looked for.
        kind: ObjectKind,
        /// Its name.
        name: String,
    },
    /// A name is taken.
    #[error("{} \"{name}\" already exists", .kind.name())]
    Duplicate {
        /// What was to be made.
        kind: ObjectKind,
        /// Its name.
        name: String,
    },
    /// The object cannot be dropped or changed because another one needs it.
    #[error("cannot drop {what} because {because}")]
    Dependent {
        /// The object.
        what: String,
        /// What needs it.
        because: String,
    },
    /// The table definition that the caller holds is no longer current: look it up again and repeat the
    /// statement.
    #[error("the definition of \"{table}\" changed; plan the statement again")]
    StaleDefinition {
        /// Name of the table.
        table: String,
    },
    /// A sequence has no further value.
    #[error("nextval: reached limit of sequence \"{name}\" ({limit})")]
    SequenceExhausted {
        /// Name of the sequence.
        name: String,
        /// Its bound.
        limit: i64,
    },
    /// A value outside of what is allowed.
    #[error("{what}")]
    OutOfRange {
        /// Which value, and of what.
        what: String,
    },
    /// NULL in a column of a key.
    #[error("column \"{column}\" of relation \"{table}\" contains null values")]
    NullInKey {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A key or row is too large.
    #[error("{what} of {bytes} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Key or row, of which table.
        what: String,
        /// Its size.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A definition makes no sense.
    #[error("{what}")]
    InvalidDefinition {
        /// What is wrong with it.
        what: String,
    },
    /// A table with more columns than it can have.
    #[error("{what}")]
    TooManyColumns {
        /// The limit, and what it is of.
        what: String,
    },
    /// A tablespace that cannot be made.
    #[error("{what}")]
    BadTablespace {
        /// What is wrong with its location, if the location is the reason.
        flaw: Option<LocationFlaw>,
        /// The reason, and what to do.
        what: String,
    },
    /// A function that this engine does not have.
    #[error("{what} is not supported")]
    Unsupported {
        /// What was asked for.
        what: String,
    },
    /// An expression that the layer above computes failed.
    #[error("{message}")]
    Expression {
        /// The SQLSTATE that the layer above gave it.
        sqlstate: &'static str,
        /// What it said.
        message: String,
    },
    /// A transaction changes objects that cannot be committed together (decision 0117).
    #[error("{}", mixed(.written, .refused))]
    MixedStores {
        /// The table that the transaction has changed; empty for definitions.
        written: String,
        /// The table whose change was refused; empty for definitions.
        refused: String,
    },
    /// A memory-oriented engine has no region of persistent memory.
    #[error("table engine {engine} has no persistent memory")]
    NoRegion {
        /// Name of the engine.
        engine: &'static str,
    },
    /// The file of tables does not have the tables of memory-oriented engines that the catalog names.
    #[error(
        "{place} lacks {tables} tables that the catalog names: bring the right file back, or restore a backup of all files"
    )]
    RegionLost {
        /// The file.
        place: String,
        /// How many tables.
        tables: usize,
    },
    /// A store of a memory-oriented engine could not be opened at the start.
    #[error(
        "tables of engine {engine} in partition {partition} of {place} cannot be used since the start: {why}"
    )]
    StoreUnusable {
        /// Name of the engine.
        engine: &'static str,
        /// Number of the partition.
        partition: u16,
        /// The file.
        place: String,
        /// What is wrong with the store.
        why: StoreError,
    },
    /// A store of a memory-oriented engine refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The savepoint does not exist any more.
    #[error("savepoint does not exist")]
    NoSuchSavepoint,
    /// Stored structures contradict each other.
    #[error("database is damaged: {what}; run `varve check`")]
    Corrupt {
        /// What and where.
        what: String,
    },
    /// The file with tables in persistent memory does not fit the database.
    #[error(transparent)]
    TablesFile(#[from] TablesFileError),
    /// The pager or a device failed.
    #[error(transparent)]
    Pager(#[from] PagerError),
}

impl Error {
    /// Returns the five characters that PostgreSQL clients understand.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::UniqueViolation { .. } => "23505",
            Self::SerializationFailure | Self::ReadWriteConflict => "40001",
            Self::Deadlock => "40P01",
            Self::LockTimeout => "55P03",
            Self::TooManyLocks => "53200",
            Self::TemporaryQuota { .. } => "53400",
            Self::Cancelled => "57014",
            Self::SnapshotTooOld | Self::MomentTooOld { .. } | Self::RewrittenSince => "72000",
            Self::CreatedSince { .. } => "42P01",
            Self::MomentAhead => "22023",
            Self::PastIsReadOnly => "25006",
            Self::HasBegun => "25001",
            Self::Undefined { kind, .. } => undefined_state(*kind),
            Self::Duplicate { kind, .. } => duplicate_state(*kind),
            Self::Dependent { .. } => "2BP01",
            Self::StaleDefinition { .. } | Self::NoBackup { .. } => "0A000",
            Self::SequenceExhausted { .. } => "2200H",
            Self::OutOfRange { .. } => "22003",
            Self::NullInKey { .. } => "23502",
            Self::TooLarge { .. } => "54000",
            Self::InvalidDefinition { .. } => "42P16",
            Self::TooManyColumns { .. } => "54011",
            Self::Unsupported { .. } => "0A000",
            Self::BadTablespace { flaw, .. } => flaw.map_or("55000", location_state),
            Self::Expression { sqlstate, .. } => sqlstate,
            Self::MixedStores { .. } => "0A000",
            Self::NoRegion { .. } => "55000",
            Self::RegionLost { .. } => "XX001",
            Self::Store(error) | Self::StoreUnusable { why: error, .. } => store_state(error),
            Self::NoSuchSavepoint => "3B001",
            Self::Corrupt { .. } => "XX001",
            Self::TablesFile(error) => tables_file_state(error),
            Self::Pager(error) => pager_state(error),
        }
    }

    /// Returns the detail line, where PostgreSQL has one.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::UniqueViolation { detail, .. } => Some(detail),
            Self::ReadWriteConflict => {
                Some("Reason code: Canceled on identification as a pivot, during commit attempt.")
            }
            _ => None,
        }
    }

    /// Returns the hint, where PostgreSQL has one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::ReadWriteConflict => Some("The transaction might succeed if retried."),
            Self::StoreUnusable { .. } => Some(
                "Restore a backup of all files. Without a backup, copy the tables of the file that can be read, drop all of its tables, stop the server, and remove the file.",
            ),
            Self::Store(error) if store_state(error) == "XX001" => {
                Some("`varve check` names the damaged tables. Restore a backup of all files.")
            }
            Self::Store(error) if store_state(error) == "53100" => Some(
                "Delete rows or drop tables. To make the file larger, first drop its tables, then raise `tables` in section [nvm] of varve.toml.",
            ),
            Self::NoRegion { .. } => {
                Some("Set `device` and `tables` in section [nvm] of varve.toml, and start again.")
            }
            Self::MixedStores { .. } => Some(
                "Tables in persistent memory are committed by their own engine: one transaction changes tables of one partition, or tables in pages.",
            ),
            Self::TooManyLocks => {
                Some("Advisory locks of all sessions: there are 131,072. Give some back, or lock fewer keys.")
            }
            _ => None,
        }
    }

    /// Returns the damaged page, if the error is a damaged page.
    pub fn damaged_page(&self) -> Option<PageId> {
        match self {
            Self::Pager(PagerError::DamagedPage { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// Adds the name of the refused table to the error [`Error::MixedStores`]. Returns other errors
    /// unchanged.
    #[cold]
    pub(crate) fn refused_for(self, table: &str) -> Self {
        match self {
            Self::MixedStores { written, .. } => Self::MixedStores { written, refused: table.to_owned() },
            other => other,
        }
    }

    /// Returns the error for a stored structure that contradicts itself.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }
}

const fn undefined_state(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Schema => "3F000",
        ObjectKind::Table | ObjectKind::Sequence | ObjectKind::View => "42P01",
        ObjectKind::Index | ObjectKind::Constraint | ObjectKind::Engine | ObjectKind::Role => "42704",
        ObjectKind::Column => "42703",
        ObjectKind::Database => "3D000",
    }
}

const fn duplicate_state(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Schema => "42P06",
        ObjectKind::Table | ObjectKind::Sequence | ObjectKind::Index | ObjectKind::View => "42P07",
        ObjectKind::Constraint | ObjectKind::Engine | ObjectKind::Role => "42710",
        ObjectKind::Column => "42701",
        ObjectKind::Database => "42P04",
    }
}

fn mixed(written: &str, refused: &str) -> String {
    let named = |table: &str| match table {
        "" => "a definition".to_owned(),
        table => format!("table \"{table}\""),
    };
    if written == refused && !written.is_empty() {
        return format!("cannot change rows of {} in two partitions in one transaction", named(written));
    }
    format!("cannot change {} in a transaction that has changed {}", named(refused), named(written))
}

const fn store_state(error: &StoreError) -> &'static str {
    match error {
        StoreError::Memory(MemoryError::Full { .. }) => "53100",
        StoreError::KeyLength { .. } | StoreError::RowLength { .. } | StoreError::TooMany { .. } => "54000",
        StoreError::InTransaction => "0A000",
        _ => "XX001",
    }
}

/// PostgreSQL's codes for bad locations.
const fn location_state(flaw: LocationFlaw) -> &'static str {
    match flaw {
        LocationFlaw::Missing => "58P01",
        LocationFlaw::NotDirectory => "42809",
        LocationFlaw::NotAbsolute => "42P17",
        LocationFlaw::NoAccess => "42501",
        LocationFlaw::InUse => "55006",
        LocationFlaw::Full => "53100",
        LocationFlaw::Io => "58030",
        LocationFlaw::NotPossible => "55000",
    }
}

fn pager_state(error: &PagerError) -> &'static str {
    match error {
        PagerError::Device(device) if device.is_no_space() => "53100",
        PagerError::NoFreePage { .. } => "53100",
        PagerError::NoSuchTablespace { .. } => "42704",
        PagerError::Backup { .. } | PagerError::ArchiveStore { .. } => "55000",
        PagerError::PoolExhausted { .. } => "53200",
        PagerError::Device(_) | PagerError::Stopped { .. } => "58030",
        _ => "XX001",
    }
}

const fn tables_file_state(error: &TablesFileError) -> &'static str {
    match error {
        TablesFileError::NoSpace { .. } => "53100",
        TablesFileError::Device(_) => "58030",
        TablesFileError::NewSize { .. }
        | TablesFileError::Size { .. }
        | TablesFileError::Partitions { .. }
        | TablesFileError::NotConfigured { .. } => "55000",
        _ => "XX001",
    }
}

impl From<RowError> for Error {
    fn from(error: RowError) -> Self {
        match error {
            RowError::TooLarge { bytes } => {
                Self::TooLarge { what: "row".into(), bytes, limit: crate::row::ROW_BYTES_MAX }
            }
            RowError::Damaged { what } => Self::corrupt(format!("row: {what}")),
        }
    }
}
