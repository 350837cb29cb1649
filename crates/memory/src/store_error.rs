//! Errors of the table stores: what was asked for, and why it was refused.
//!
//! Invariants
//! 1. A call that is refused has changed nothing that a reader sees, except where it says otherwise.
//!
//! What it does not know: which SQLSTATE an error becomes.

use crate::error::MemoryError;
use crate::files::FileError;
use crate::pointer::Pointer;

/// Result of an operation of a store.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// Why an operation of a store was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The allocator refused: usually, the region is full.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A file of the store refused.
    #[error(transparent)]
    File(FileError),
    /// A store was asked for in a partition that cannot be.
    #[error("partition {partition}: there are at most {most}")]
    NoPartition {
        /// The partition, counted from 0.
        partition: u16,
        /// Most partitions.
        most: u16,
    },
    /// An index has the key already.
    #[error("index {index} has this key already")]
    Duplicate {
        /// The index, counted from 0, the primary key.
        index: usize,
    },
    /// A key is empty or too long.
    #[error(
        "a key of {len_bytes} bytes is not possible: keys of this table engine have 1 to {most_bytes} bytes"
    )]
    KeyLength {
        /// Its length.
        len_bytes: usize,
        /// The longest key.
        most_bytes: usize,
    },
    /// A row is too long.
    #[error("a row of {len_bytes} bytes: a row has at most {most_bytes}")]
    RowLength {
        /// Its length.
        len_bytes: usize,
        /// The longest row.
        most_bytes: usize,
    },
    /// A row came with another number of keys than its table has indexes.
    #[error("{found} keys for a table with {expected} indexes")]
    KeyCount {
        /// Keys that came.
        found: usize,
        /// Indexes of the table.
        expected: usize,
    },
    /// A patch reaches beyond the end of its row.
    #[error("bytes {at}..+{len_bytes} are not within a row of {row_bytes}")]
    PatchRange {
        /// Where it begins in the row.
        at: usize,
        /// Its length.
        len_bytes: usize,
        /// Length of the row.
        row_bytes: usize,
    },
    /// There is no such table, or no such index of it.
    #[error("there is no table {table} with an index {index}")]
    NoIndex {
        /// The table's number.
        table: u16,
        /// The index's number.
        index: usize,
    },
    /// The store has as many tables as it can have, or a table was to have more indexes than it can.
    #[error("a store has at most {tables} tables, and a table 1 to {indexes} indexes")]
    TooMany {
        /// Most tables.
        tables: usize,
        /// Most indexes of a table.
        indexes: usize,
    },
    /// Tables are made and dropped outside of transactions only.
    #[error("a table cannot be made or dropped while a transaction is open")]
    InTransaction,
    /// A table was to have an owner that has chunks already.
    #[error("owner {owner} has chunks already: each table of a region needs an owner of its own")]
    OwnerTaken {
        /// The owner's number.
        owner: u16,
    },
    /// A savepoint is not of this transaction, or it was rolled back.
    #[error("there is no such savepoint in the transaction")]
    NoSavepoint,
    /// Something in the region cannot be.
    #[error("the store is damaged: {what} at {at}")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// Where.
        at: Pointer,
    },
}

impl StoreError {
    /// Whether the region is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, StoreError::Memory(MemoryError::Full { .. }))
    }
}

impl From<FileError> for StoreError {
    /// A full region is the same error, whether a file or a tuple found it.
    fn from(error: FileError) -> StoreError {
        match error {
            FileError::Memory(error) => StoreError::Memory(error),
            error => StoreError::File(error),
        }
    }
}
