//! The write-ahead log: a file, and a buffer of records that are not in it yet.
//!
//! ```text
//!   buffer:  records of committed transactions | records of the open transaction
//!            flush writes these into the file    truncate takes these back
//! ```
//!
//! Invariants
//! 1. The file has room for the whole buffer and a commit. So a commit or a flush never fails because the
//!    region is full. Only a change can fail for this reason, and is refused.
//! 2. The file has whole transactions only, because `fsync` makes all appended bytes durable together.
//! 3. After a failed flush the log takes no more records, and no commit becomes durable, until the next
//!    start.
//!
//! This module does not know what records do.

use crate::files::{FileError, FileHandle, FileResult, Files};
use crate::store_error::StoreResult;

/// Room in the file is reserved in steps of this many bytes, so that few changes need a call on the file.
const STEP_BYTES: u64 = 16_384;

/// Removes a file if it exists.
pub(crate) fn remove_if_there(files: &mut Files, name: &str) -> StoreResult<()> {
    match files.names().iter().any(|found| **found == *name) {
        true => Ok(files.remove(name)?),
        false => Ok(()),
    }
}

/// Removes files that a failed operation has left. If a removal fails, its error is not reported, because the
/// caller reports the error of the operation, and the next start removes the rest.
pub(crate) fn remove_after_error(files: &mut Files, names: &[&str]) {
    for name in names {
        let _removed_by_the_next_start = remove_if_there(files, name);
    }
}

/// The log.
pub(crate) struct Wal {
    pub(crate) files: Files,
    file: FileHandle,
    /// The number in the name of the log file. A checkpoint begins a new file.
    number: u64,
    buffer: Vec<u8>,
    committed_bytes: usize,
    file_bytes: u64,
    reserved_bytes: u64,
    /// Why a flush failed.
    failed: Option<FileError>,
}

/// Returns the name of a log file.
pub(crate) fn name_of(number: u64) -> String {
    format!("log.{number}")
}

impl Wal {
    /// Opens the log file with this number, or makes it if there is none.
    pub(crate) fn open(mut files: Files, number: u64) -> StoreResult<Wal> {
        let name = name_of(number);
        let file = match files.names().iter().any(|found| **found == *name) {
            true => files.open_file(&name)?,
            false => files.create(&name)?,
        };
        let file_bytes = files.len_bytes(file)?;
        let (buffer, reserved_bytes, failed) = (Vec::new(), file_bytes, None);
        Ok(Wal { files, file, number, buffer, committed_bytes: 0, file_bytes, reserved_bytes, failed })
    }

    /// Returns the bytes of the file.
    pub(crate) fn read(&self) -> StoreResult<Vec<u8>> {
        let mut bytes = vec![0; self.file_bytes as usize];
        self.files.read_at(self.file, 0, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of bytes of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns whether a commit waits for [`Wal::flush`].
    pub(crate) fn has_pending(&self) -> bool {
        self.committed_bytes > 0
    }

    /// Returns where the next record begins in the buffer.
    pub(crate) fn end(&self) -> usize {
        self.buffer.len()
    }

    /// Makes sure that the file has room for records of this many bytes. The caller includes the bytes of the
    /// commit.
    pub(crate) fn reserve(&mut self, records_bytes: usize) -> StoreResult<()> {
        self.check()?;
        let needed = self.file_bytes + (self.buffer.len() + records_bytes) as u64;
        if needed > self.reserved_bytes {
            let reserved_bytes = needed.next_multiple_of(STEP_BYTES);
            self.files.reserve(self.file, reserved_bytes)?;
            self.reserved_bytes = reserved_bytes;
        }
        Ok(())
    }

    /// Adds a record, for which room was reserved. `encode` appends its bytes.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.buffer);
    }

    /// Marks all records of the buffer as committed. The last one is a commit.
    pub(crate) fn commit(&mut self) {
        self.committed_bytes = self.buffer.len();
    }

    /// Returns the bytes of the buffer from `at` on: records of the open transaction.
    pub(crate) fn records(&self, at: usize) -> &[u8] {
        self.buffer.get(at..).unwrap_or_default()
    }

    /// Removes the records from `at` on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.buffer.truncate(at);
    }

    /// Makes all commits durable. Returns how many bytes have left the buffer.
    pub(crate) fn flush(&mut self) -> StoreResult<usize> {
        let written = self.committed_bytes;
        if written > 0 {
            self.check()?;
            self.write(written).inspect_err(|error| self.failed = Some(error.clone()))?;
            self.file_bytes += written as u64;
            self.buffer.drain(..written);
            self.committed_bytes = 0;
        }
        Ok(written)
    }

    fn write(&mut self, len_bytes: usize) -> FileResult<()> {
        self.files.append(self.file, self.buffer.get(..len_bytes).unwrap_or_default())?;
        self.files.fsync(self.file)
    }

    /// Errors: a flush has failed.
    fn check(&self) -> StoreResult<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    /// Continues the log in a new file, which is empty. The buffer is empty, too.
    pub(crate) fn begin(&mut self, number: u64, file: FileHandle) {
        (self.file, self.number, self.file_bytes, self.reserved_bytes) = (file, number, 0, 0);
    }
}
