//! Errors of the table stores: the request, and the reason why it was refused.
//!
//! Invariants
//! 1. A call that is refused has changed nothing that a reader sees, unless its documentation says otherwise.
//!
//! This module does not know which SQLSTATE an error becomes.

use crate::error::MemoryError;
use crate::files::FileError;
use crate::pointer::Pointer;

/// Result of an operation of a store.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// The reason why an operation of a store was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The allocator refused: usually, the region is full.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A call on a file of the store failed.
    #[error(transparent)]
    File(FileError),
    /// A store was requested in a partition that does not exist.
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
        /// The index. Index 0 is the primary key.
        index: usize,
    },
    /// A key is empty or too long.
    #[error(
        "a key of {len_bytes} bytes is not possible: keys of this table engine have 1 to {most_bytes} bytes"
    )]
    KeyLength {
        /// The length of the key.
        len_bytes: usize,
        /// The longest key.
        most_bytes: usize,
    },
    /// A row is too long.
    #[error("a row of {len_bytes} bytes: a row has at most {most_bytes}")]
    RowLength {
        /// The length of the row.
        len_bytes: usize,
        /// The longest row.
        most_bytes: usize,
    },
    /// The number of keys of a row is not the number of indexes of its table.
    #[error("{found} keys for a table with {expected} indexes")]
    KeyCount {
        /// The number of keys of the row.
        found: usize,
        /// The number of indexes of the table.
        expected: usize,
    },
    /// A patch reaches beyond the end of its row.
    #[error("bytes {at}..+{len_bytes} are not within a row of {row_bytes}")]
    PatchRange {
        /// The byte of the row at which the patch begins.
        at: usize,
        /// The length of the patch.
        len_bytes: usize,
        /// The length of the row.
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
    /// The store has the largest number of tables, or a new table would have too many indexes.
    #[error("a store has at most {tables} tables, and a table 1 to {indexes} indexes")]
    TooMany {
        /// The largest number of tables.
        tables: usize,
        /// The largest number of indexes of a table.
        indexes: usize,
    },
    /// Tables are made and dropped only outside of transactions.
    #[error("a table cannot be made or dropped while a transaction is open")]
    InTransaction,
    /// A new table would have an owner that has chunks already.
    #[error("owner {owner} has chunks already: each table of a region needs an owner of its own")]
    OwnerTaken {
        /// The owner's number.
        owner: u16,
    },
    /// A savepoint is of another transaction, or a rollback went past it.
    #[error("there is no such savepoint in the transaction")]
    NoSavepoint,
    /// The end of a batch has failed, so no further batch is stored.
    #[error(
        "no change is stored after an earlier error. Restart the server. It keeps what was committed before"
    )]
    Stopped,
    /// Bytes in the region have a value that is impossible.
    #[error("the store is damaged: {what} at {at}")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// The place of the damage.
        at: Pointer,
    },
}

impl StoreError {
    /// Returns whether the region is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, StoreError::Memory(MemoryError::Full { .. }))
    }
}

impl From<FileError> for StoreError {
    /// If the region is full, the error is the same for a file and for a tuple.
    fn from(error: FileError) -> StoreError {
        match error {
            FileError::Memory(error) => StoreError::Memory(error),
            error => StoreError::File(error),
        }
    }
}
