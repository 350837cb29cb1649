//! Errors of the files: the file, the range, and the cause.
//!
//! Invariants
//! 1. A call that returns an error has changed nothing that a reader sees.
//!
//! This module does not know what the caller keeps in the file.

use crate::error::MemoryError;
use crate::pointer::Pointer;

/// Result of a call on files.
pub type FileResult<T> = std::result::Result<T, FileError>;

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The allocator refused: usually, the region is full.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is a file of this name.
    #[error("there is a file {name:?} already")]
    Exists {
        /// The name.
        name: Box<str>,
    },
    /// There is no file of this name.
    #[error("there is no file {name:?}")]
    NoFile {
        /// The name.
        name: Box<str>,
    },
    /// The handle is of a file that was removed or replaced.
    #[error("the file was removed, or another file has replaced it")]
    Stale,
    /// A file cannot have this name.
    #[error("{name:?} is no name for a file: it has 1 to {most_bytes} bytes")]
    Name {
        /// The name.
        name: Box<str>,
        /// The size of the longest name, in bytes.
        most_bytes: usize,
    },
    /// There are as many files as the directory has entries.
    #[error("all {most} files are in use")]
    TooMany {
        /// The number of entries of the directory.
        most: usize,
    },
    /// A read reaches beyond the end of the file, or a write or cut begins beyond it.
    #[error("bytes {at}..+{len_bytes} are not within a file of {file_bytes}")]
    Range {
        /// Where the range begins.
        at: u64,
        /// The length of the range.
        len_bytes: u64,
        /// The length of the file.
        file_bytes: u64,
    },
    /// A test has made this call fail ([`super::FileCosts::failing_call`]).
    #[error("{what} failed on a file in persistent memory. Restart the server. It keeps what was committed")]
    Failed {
        /// The call.
        what: &'static str,
    },
    /// Bytes in the region have a value that is impossible.
    #[error("the files are damaged: {what} at {at}")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// The place of the damage.
        at: Pointer,
    },
}
