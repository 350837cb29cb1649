//! The errors of the pager.
//!
//! Invariants
//! 1. An error of one page names the page.
//! 2. After [`PagerError::Stopped`] nothing more is acknowledged. The database recovers at the next open.
//! 3. After the error of a full device ([`PagerError::is_no_space`]) the pager continues as soon as the
//!    device has space. The only exception is a refused write of the log, which stops the pager.
//!
//! This module does not know SQLSTATEs (the engine maps them).

use varve_device::{DeviceError, ErrorKind};

use crate::base::ids::{PageId, SpaceId};
use crate::base::log_error::LogError;
use crate::base::page::PageDamage;

/// Result of a pager operation.
pub type Result<T> = std::result::Result<T, PagerError>;

/// Why a location cannot have a tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationFlaw {
    /// The directory does not exist.
    Missing,
    /// It is not a directory.
    NotDirectory,
    /// It is neither an absolute path nor the name of a device.
    NotAbsolute,
    /// The operating system refuses access.
    NoAccess,
    /// A database or another tablespace uses the directory.
    InUse,
    /// The device has no space.
    Full,
    /// Another failure of the device.
    Io,
    /// The database has no directories for tablespaces.
    NotPossible,
}

/// A location that cannot have a tablespace.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct BadLocation {
    /// The reason.
    pub flaw: LocationFlaw,
    /// The reason for the user, and what to do.
    pub what: String,
}

impl BadLocation {
    /// A location with this flaw. `what` is for the user.
    pub fn new(flaw: LocationFlaw, what: impl Into<String>) -> BadLocation {
        BadLocation { flaw, what: what.into() }
    }
}

impl From<DeviceError> for BadLocation {
    fn from(error: DeviceError) -> BadLocation {
        let flaw = match error.kind {
            ErrorKind::NotFound => LocationFlaw::Missing,
            ErrorKind::Locked { .. } => LocationFlaw::InUse,
            ErrorKind::ReadOnly => LocationFlaw::NoAccess,
            ErrorKind::NoSpace => LocationFlaw::Full,
            _ => LocationFlaw::Io,
        };
        BadLocation::new(flaw, error.to_string())
    }
}

/// An error of the pager.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PagerError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The log can't be used as it is.
    #[error(transparent)]
    Log(LogError),
    /// A page on a device is not what was written.
    #[error("page {id} is damaged: {damage}; restore it from a backup")]
    DamagedPage {
        /// The page.
        id: PageId,
        /// What is wrong.
        damage: PageDamage,
    },
    /// A caller requested a page that is beyond the end of its space.
    #[error(
        "page {id} lies outside {}, which has {pages} pages: its file was cut, or what names the page is \
         damaged; restore it from a backup",
        .id.space().title()
    )]
    NoSuchPage {
        /// The page.
        id: PageId,
        /// Pages in the space.
        pages: u32,
    },
    /// No page is free in a space, and its file could not be made larger within this call.
    #[error("{} has no free page left: free some room on its device and try again", .space.title())]
    NoFreePage {
        /// The space.
        space: SpaceId,
    },
    /// The tablespace was dropped.
    #[error("{} does not exist: it was dropped", .id.title())]
    NoSuchTablespace {
        /// The tablespace.
        id: SpaceId,
    },
    /// A location cannot have a tablespace.
    #[error(transparent)]
    BadLocation(#[from] BadLocation),
    /// All frames of the pool are latched or being written.
    #[error("all {frames} frames of the buffer pool are latched or being written: give the pool more memory")]
    PoolExhausted {
        /// Frames in the pool.
        frames: usize,
    },
    /// Stored structures contradict each other.
    #[error("{what}")]
    Corrupt {
        /// What and where.
        what: String,
    },
    /// The files cannot be used with this configuration or version.
    #[error("{what}")]
    Incompatible {
        /// What differs and what to do.
        what: String,
    },
    /// A backup could not be made or read. The database is not affected.
    #[error("{what}")]
    Backup {
        /// The reason, and what to do.
        what: String,
    },
    /// The store of a log archive failed. What it stores may be in order, so the call can be tried again.
    #[error("{what}")]
    ArchiveStore {
        /// The place of the archive, and the reason.
        what: String,
        /// Whether the store does not have what was to be read.
        is_missing: bool,
    },
    /// An earlier failure made further changes unsafe.
    #[error(
        "the database takes no more changes since an earlier failure ({cause}): restart it to recover from the log"
    )]
    Stopped {
        /// The earlier failure.
        cause: std::sync::Arc<str>,
    },
}

impl PagerError {
    /// Returns whether a device was full. Then the same call can be tried again when the device has room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, PagerError::Device(error) if error.is_no_space())
    }
}

impl From<LogError> for PagerError {
    fn from(error: LogError) -> PagerError {
        match error {
            LogError::Device(error) => PagerError::Device(error),
            LogError::Poisoned(cause) => PagerError::Stopped { cause },
            error => PagerError::Log(error),
        }
    }
}
