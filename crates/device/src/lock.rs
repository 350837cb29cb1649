//! The lock of a data directory, so that one process at a time uses it.
//!
//! Invariants
//! 1. The kernel's lock on the open file decides. The kernel releases the lock when the process ends, for any
//!    reason. The process id in the file is only for the error message.
//! 2. The lock file of an earlier process is overwritten and not replaced, because a full device has no space
//!    for a new file.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::owner;

const LOCK_FILE: &str = "varve.lock";

/// The lock of a data directory. A process holds it as long as it uses the directory.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
    path: PathBuf,
}

impl DirLock {
    /// Locks `directory`, which must exist.
    ///
    /// Errors: [`ErrorKind::Locked`] with the process id of the holder, or the reason why the lock file
    /// cannot be made.
    pub fn take(directory: &Path) -> Result<DirLock> {
        let path = directory.join(LOCK_FILE);
        let shown = directory.display().to_string();
        let fail = |kind| DeviceError::new(&shown, Operation::Lock, kind);
        let opened = owner::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|error| fail(ErrorKind::from_io(&error)))?;
        owner::tighten(&file);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(fail(ErrorKind::Locked { pid: holder(&mut file) })),
            Err(TryLockError::Error(error)) => return Err(fail(ErrorKind::from_io(&error))),
        }
        match sign(&file).map_err(|error| ErrorKind::from_io(&error)) {
            // The lock is valid even if the process id could not be written.
            Ok(()) | Err(ErrorKind::NoSpace) => {}
            Err(kind) => return Err(fail(kind)),
        }
        Ok(DirLock { _file: file, path })
    }

    /// Returns the lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the lock file within its directory.
    pub fn file_name() -> &'static str {
        LOCK_FILE
    }
}

/// Overwrites the process id of an earlier holder by the own one. Both are padded to the same length.
fn sign(file: &File) -> std::io::Result<()> {
    let line = format!("{:<10}\n", std::process::id());
    file.write_all_at(line.as_bytes(), 0)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
