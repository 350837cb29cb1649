//! The errors of the log.
//!
//! Invariants
//! 1. Damage of the log is never cut off silently. It has its own error, which names the file and what proves
//!    the damage.
//!
//! This module does not know pages.

use std::sync::Arc;

use varve_device::DeviceError;

use crate::base::lsn::Lsn;

/// The reason why the bytes of a group make no sense, although their checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A length points beyond the group.
    #[error("a record runs over the end of its group")]
    Overrun,
    /// A change came before any page was named.
    #[error("a change names no page")]
    NoPage,
    /// A page number or space out of range.
    #[error("a record names a page that can't exist")]
    BadPage,
}

/// What went wrong with the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The log's device refused an operation.
    #[error("the log's device failed: {0}")]
    Device(#[from] DeviceError),
    /// An earlier failure stopped the log.
    #[error(
        "the log takes no more changes since: {0}; nothing since then was acknowledged; \
         reads go on; restart to recover"
    )]
    Poisoned(Arc<str>),
    /// A part of the log that was durable can't be read.
    #[error(
        "the log is damaged at LSN {at} (file {file}, byte {offset}), or is not of the same moment as the control file: no valid block \
         there, although {evidence}; put back the file that was there, or restore the whole database from a backup"
    )]
    Damaged {
        /// First LSN that can't be read.
        at: Lsn,
        /// The file in which this part of the log is, or should be.
        file: String,
        /// Byte in that file.
        offset: u64,
        /// The proof that the log continued.
        evidence: String,
    },
    /// There is no file of a log that is needed.
    #[error(
        "no file of the log is in {location}, and the database needs its log. If the configuration names another place for the \
         log than before, move the files {names} there while the database is stopped. Otherwise put them back, or restore a \
         backup of all directories"
    )]
    Missing {
        /// Where the log should be.
        location: String,
        /// Names of its files.
        names: &'static str,
    },
    /// A valid block with contents that make no sense.
    #[error("the log's group at LSN {at} makes no sense: {why}")]
    Nonsense {
        /// Start of the group.
        at: Lsn,
        /// What is wrong with it.
        why: RecordError,
    },
    /// A segment of another database lies in the log directory.
    #[error(
        "log file {file} belongs to another database (id {database:016x}) than the control file: put back the one of the two that \
         is wrong, or move a log away that nobody needs"
    )]
    Foreign {
        /// The file.
        file: String,
        /// Its database.
        database: u64,
    },
    /// Two files claim to be the same segment.
    #[error("log file {file} claims to be segment {number}, which another file is too: remove the copy")]
    Twice {
        /// The second file.
        file: String,
        /// The number both carry.
        number: u64,
    },
    /// A segment has a number that no log can have reached.
    #[error(
        "log file {file} is damaged: under a right checksum it claims to be segment {number}: restore it"
    )]
    Impossible {
        /// The file.
        file: String,
        /// The number it carries.
        number: u64,
    },
    /// A segment of the wrong size.
    #[error("log file {file} has {got_bytes} bytes instead of {expect_bytes}: restore it")]
    SegmentSize {
        /// The file.
        file: String,
        /// The configured size.
        expect_bytes: u64,
        /// Its size.
        got_bytes: u64,
    },
    /// The control file says that an empty log begins at a place where the log has records.
    #[error(
        "the control file is an older copy than the log goes with, or one of another copy of the database: it says that an empty log begins \
         in {location}, and {file} has one that has begun: put back the control file that was there, or all files of one backup"
    )]
    Begun {
        /// A file of the log.
        file: String,
        /// The log's directory.
        location: String,
    },
    /// The log files are there, the control file is not.
    #[error(
        "{location} holds log files, but the control file is missing: restore it, or empty the directory"
    )]
    NoControl {
        /// The log's directory.
        location: String,
    },
}

impl LogError {
    /// Returns whether more space on the device would have helped.
    pub fn is_no_space(&self) -> bool {
        matches!(self, LogError::Device(error) if error.is_no_space())
    }
}
