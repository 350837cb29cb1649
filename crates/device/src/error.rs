//! Errors of a device: which file, which operation, at which offset, and the reason.
//!
//! Invariants
//! 1. Every error names the operation, and the file or the directory's path.
//! 2. Callers make decisions by [`ErrorKind`]. The text is for people.

use std::fmt;

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// The operation that failed. Messages and fault rules use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making earlier writes durable.
    Flush,
    /// Punching a hole (trim).
    Punch,
    /// Changing the length of a file.
    SetLen,
    /// Reserving room for writes into a hole.
    Reserve,
    /// Reading the length of a file, asking whether it exists, or listing a directory.
    Stat,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Making directory changes durable.
    SyncDirectory,
    /// Taking the lock of a data directory.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Punch => "punch a hole in",
            Operation::SetLen => "change the length of",
            Operation::Reserve => "reserve room in",
            Operation::Stat => "look up",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::SyncDirectory => "sync the directory of",
            Operation::Lock => "lock",
        })
    }
}

/// What went wrong, as far as a caller can act on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The kernel refused with this errno.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Io(i32),
    /// The medium is full. This also happens if a punched hole cannot be filled again.
    #[error(
        "no space left on the device: free some space; or stop the database, move the files of the space to a larger device, and name that device in [spaces] of varve.toml"
    )]
    NoSpace,
    /// The file or medium takes no writes, or this user may not open it.
    #[error(
        "it is read-only, or this user has no access: make it readable and writable, or choose another directory"
    )]
    ReadOnly,
    /// The device no longer answers.
    #[error("the device is gone: check the mount and the cable, then restart")]
    Gone,
    /// The file ended before the requested range did.
    #[error("short read: {got_bytes} of {wanted_bytes} bytes")]
    ShortRead {
        /// The number of bytes that were requested.
        wanted_bytes: u64,
        /// The number of bytes that were read.
        got_bytes: u64,
    },
    /// The device took only a part of the bytes.
    #[error("short write: {got_bytes} of {wanted_bytes} bytes")]
    ShortWrite {
        /// The number of bytes that should be written.
        wanted_bytes: u64,
        /// The number of bytes that were written.
        got_bytes: u64,
    },
    /// An earlier flush failed; what reached the medium is unknown.
    #[error(
        "an earlier flush of this file failed, so it takes no more writes: restart to recover from the log"
    )]
    Poisoned,
    /// There is no such file.
    #[error("there is no such file or directory")]
    NotFound,
    /// A file within a directory has a name without separators.
    #[error("it is no plain file name")]
    NoPlainName,
    /// The file had to be new, but exists already.
    #[error("it exists already")]
    AlreadyExists,
    /// Another process holds the lock.
    #[error("it is in use by process {}: stop that process first", .pid.map_or_else(|| "(unknown)".to_string(), |pid| pid.to_string()))]
    Locked {
        /// The process id of the holder, if it could be read.
        pid: Option<u32>,
    },
    /// The kernel or file system cannot do this.
    #[error("the file system does not support this operation")]
    Unsupported,
    /// A setting requires something that the machine does not have.
    #[error("{0}")]
    Setting(Box<str>),
}

impl ErrorKind {
    /// Classifies an errno.
    pub fn from_errno(errno: i32) -> ErrorKind {
        match errno {
            libc::ENOSPC | libc::EDQUOT => ErrorKind::NoSpace,
            libc::EROFS | libc::EACCES | libc::EPERM => ErrorKind::ReadOnly,
            libc::ENODEV | libc::ENXIO => ErrorKind::Gone,
            libc::ENOENT => ErrorKind::NotFound,
            libc::EEXIST => ErrorKind::AlreadyExists,
            libc::EOPNOTSUPP | libc::ENOSYS => ErrorKind::Unsupported,
            other => ErrorKind::Io(other),
        }
    }

    /// Classifies a standard-library error.
    pub fn from_io(error: &std::io::Error) -> ErrorKind {
        error.raw_os_error().map_or(ErrorKind::Io(libc::EIO), ErrorKind::from_errno)
    }
}

/// A failed device operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {file}{}: {kind}", .offset.map_or_else(String::new, |at| format!(" at byte {at}")))]
pub struct DeviceError {
    /// File name (or path of the directory).
    pub file: Box<str>,
    /// The operation that failed.
    pub operation: Operation,
    /// Byte offset in the file, if the operation has one.
    pub offset: Option<u64>,
    /// What went wrong.
    pub kind: ErrorKind,
}

impl DeviceError {
    /// Returns an error of an operation on a whole file.
    #[cold]
    pub fn new(file: &str, operation: Operation, kind: ErrorKind) -> DeviceError {
        DeviceError { file: file.into(), operation, offset: None, kind }
    }

    /// Returns an error at a byte offset.
    #[cold]
    pub fn at(file: &str, operation: Operation, offset: u64, kind: ErrorKind) -> DeviceError {
        DeviceError { file: file.into(), operation, offset: Some(offset), kind }
    }

    /// Returns whether the device had no space, and the operation may be repeated when there is space. A
    /// flush that fails for lack of space may not be repeated: like any failed flush, it may have lost
    /// earlier writes.
    pub fn is_no_space(&self) -> bool {
        let is_flush = matches!(self.operation, Operation::Flush | Operation::SyncDirectory);
        self.kind == ErrorKind::NoSpace && !is_flush
    }
}
