//! The two traits through which the program uses devices: a directory of files, and a file of blocks.
//!
//! All implementations of the two traits do the same, and keep the invariants of the crate (`lib.rs`). They
//! may differ in speed, and a fault injector may return errors.

use std::fmt;
use std::sync::Arc;

use crate::accounting::Accounting;
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::purpose::{Purpose, Space};
use crate::region::Region;

/// When a write has to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the next successful flush of the file.
    Later,
    /// Before the call returns (force unit access). It does not make other writes durable.
    Now,
}

/// Whether opening may or must create the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// The file must exist.
    Never,
    /// Creates an empty file if there is none.
    IfMissing,
    /// The file must not exist.
    MustBeNew,
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenHow {
    /// Whether opening may or must create the file.
    pub create: Create,
    /// The space under which reads and writes of the file are counted.
    pub space: Space,
    /// Whether changes through this handle are refused.
    pub read_only: bool,
}

impl OpenHow {
    /// Opens an existing file for reading and writing.
    pub fn existing(space: Space) -> OpenHow {
        OpenHow { create: Create::Never, space, read_only: false }
    }

    /// Opens a file for reading and writing. If it does not exist, creates an empty one.
    pub fn or_create(space: Space) -> OpenHow {
        OpenHow { create: Create::IfMissing, space, read_only: false }
    }

    /// Makes a file that must not exist yet.
    pub fn new_file(space: Space) -> OpenHow {
        OpenHow { create: Create::MustBeNew, space, read_only: false }
    }

    /// Opens an existing file for reading only.
    pub fn read_only(space: Space) -> OpenHow {
        OpenHow { create: Create::Never, space, read_only: true }
    }
}

/// One read of a batch.
pub struct ReadOp<'a> {
    /// The byte offset in the file.
    pub offset: u64,
    /// The buffer, which is filled completely if the read succeeds.
    pub buf: &'a mut [u8],
    /// The purpose under which the operation is counted.
    pub why: Purpose,
}

/// One write of a batch.
pub struct WriteOp<'a> {
    /// The byte offset in the file.
    pub offset: u64,
    /// Bytes to write.
    pub buf: &'a [u8],
    /// The purpose under which the operation is counted.
    pub why: Purpose,
    /// The moment until which the write has to be durable.
    pub durability: Durability,
}

/// The location of a file, for messages: its full path, or another text if it has no path.
///
/// It is not a `str`, so that it cannot be passed to a [`Directory`], which knows files by their names.
#[derive(Clone, PartialEq, Eq)]
pub struct Location(Box<str>);

impl Location {
    /// Returns a location with this text.
    pub fn new(text: impl Into<Box<str>>) -> Location {
        Location(text.into())
    }

    /// Returns the text, for errors of a device.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Fails if a name is not a plain file name: empty, `.`, `..`, or with a separator or a byte 0 in it.
pub(crate) fn check_name(name: &str, operation: Operation) -> Result<()> {
    let is_plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    if is_plain { Ok(()) } else { Err(DeviceError::new(name, operation, ErrorKind::NoPlainName)) }
}

/// A device: a flat directory of files.
///
/// Names are plain file names. Other names are refused ([`ErrorKind::NoPlainName`]). Creation, rename and
/// removal are durable only after [`Directory::sync`].
pub trait Directory: Send + Sync {
    /// Opens or creates a file. If the file is open already, returns a handle of the same underlying file.
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>>;
    /// Returns whether the name exists, as a file or as something else (a directory).
    fn exists(&self, name: &str) -> Result<bool>;
    /// Returns the names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Renames a file. A file that has the new name is replaced, and its handles keep working on the unlinked
    /// file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file. Open handles keep working on the unlinked file.
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes earlier creations, renames and removals durable.
    fn sync(&self) -> Result<()>;
    /// Maps a region of persistent memory. If there is none, makes one of this length, durably. An existing
    /// region keeps its own length. A device without persistent memory returns an error.
    fn map(&self, name: &str, _len_bytes: u64) -> Result<Arc<dyn Region>> {
        Err(DeviceError::new(name, Operation::Open, ErrorKind::Unsupported))
    }
    /// Returns an identity of the file that no copy of the file has. It stays the same after a restart of the
    /// machine, and is never 0. Returns `None` if the file system cannot tell a file from its copies.
    fn identity(&self, _name: &str) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Returns the free bytes for files of this directory, for messages, or `None` if they are not known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
    /// Returns the properties of the device that probing has found.
    fn capabilities(&self) -> &Capabilities;
    /// Returns the counters of this device.
    fn accounting(&self) -> &Arc<Accounting>;
    /// Returns the location of the directory, for messages: a path, or another text if it has no path.
    fn location(&self) -> String;
}

/// A file of blocks. All calls block until they are done. Many threads may make calls at the same time. Two
/// operations at the same time whose ranges overlap have no defined order.
pub trait BlockFile: Send + Sync {
    /// Returns the file's name within its directory when it was opened.
    fn name(&self) -> &str;
    /// Returns the location of the file, for messages.
    fn location(&self) -> &Location;
    /// Returns the length in bytes.
    fn len_bytes(&self) -> Result<u64>;
    /// Returns the number of bytes of a sector: offsets and lengths are multiples of it, and the medium may
    /// tear a write only between sectors.
    fn sector_bytes(&self) -> u32;
    /// Fills `buf` from `offset`. Reading past the end is an error ([`crate::ErrorKind::ShortRead`]).
    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()>;
    /// Writes `buf` at `offset`, extending the file if needed.
    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()>;
    /// Makes all writes and length changes that completed before this call durable.
    fn flush(&self) -> Result<()>;
    /// Gives a range back to the device. From then on it reads as zeros. The length of the file stays the
    /// same.
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()>;
    /// Sets the length. New bytes read as zeros, and their space is reserved if the file system can do this.
    fn set_len(&self, len_bytes: u64) -> Result<()>;

    /// Reserves space for a range within the file, so that later writes into the range do not fail for lack
    /// of space. Not all devices can do this. The contents stay the same. It is used for ranges into which
    /// holes were punched.
    fn reserve(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Writes like `write_at`, but atomically: after a crash, the write is there as a whole or not at all. A
    /// device that cannot do this refuses the write ([`Capabilities::atomic_write_bytes`]).
    fn write_atomic(&self, offset: u64, _buf: &[u8], _why: Purpose, _durability: Durability) -> Result<()> {
        Err(DeviceError::at(self.location().text(), Operation::Write, offset, ErrorKind::Unsupported))
    }

    /// Does the same as `write_batch`, but each write of the batch is atomic.
    fn write_batch_atomic(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.write_atomic(op.offset, op.buf, op.why, op.durability))
    }

    /// Submits all reads together and waits for all. After an error, some buffers may be filled. The error is
    /// that of the first failed operation.
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read_at(op.offset, op.buf, op.why))
    }

    /// Submits all writes together and waits for all. After an error, any subset of the writes may have
    /// happened. The error is that of the first failed operation. The order on the medium is not defined.
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.write_at(op.offset, op.buf, op.why, op.durability))
    }
}

/// Asserts invariant 1 of the crate.
#[inline]
pub(crate) fn assert_aligned(sector_bytes: u32, offset: u64, buf: &[u8]) {
    let unit = sector_bytes as usize;
    let bits = offset as usize | buf.len() | buf.as_ptr() as usize;
    assert!(
        bits & (unit - 1) == 0,
        "unaligned I/O: offset {offset}, {} bytes at {:p}, sector {unit}",
        buf.len(),
        buf.as_ptr()
    );
}
