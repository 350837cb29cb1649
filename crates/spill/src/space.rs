//! The temporary space: files of pages on one device, for rows that do not fit in the memory of an operator.
//!
//! A file grows by extents and is written by appending. Its pages are read in any order. Each step that
//! writes has one file (the runs of a sort, a merge pass, the partitions of a join).
//!
//! Invariants
//! 1. A file is removed when its last user drops it, also after an error. Files that are left after a crash
//!    are removed when the space is opened.
//! 2. The files together are never longer than the limit.
//! 3. Each page that is read is checked (see `page.rs`).
//! 4. A file of the space is never flushed, because it is not needed after a crash.
//!
//! This module does not know what rows are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use varve_device::{BlockFile, DeviceError, Directory, Durability, OpenHow, Purpose, Space, Tally};

use crate::error::{Result, SpillError};
use crate::page::{self, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PageHeader};

const PREFIX: &str = "spill-";
/// The number of bytes by which a file grows.
const EXTENT_BYTES: u64 = 1 << 20;

/// The purpose for which a page of the temporary space is read or written. Requests are counted by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpillPurpose {
    /// Sorted runs made from the input, and the last merge, which reads them.
    Runs,
    /// Merges that write longer runs.
    Merges,
    /// Partitions of rows by the hashes of their keys.
    Partitions,
    /// Rows that are stored in their order to be read again, and lists of bits.
    Lists,
}

impl SpillPurpose {
    /// All purposes, in the order in which they are counted.
    pub const ALL: [SpillPurpose; 4] =
        [SpillPurpose::Runs, SpillPurpose::Merges, SpillPurpose::Partitions, SpillPurpose::Lists];

    /// Returns the lower-case name of the purpose in reports.
    pub fn name(self) -> &'static str {
        match self {
            SpillPurpose::Runs => "runs",
            SpillPurpose::Merges => "merges",
            SpillPurpose::Partitions => "partitions",
            SpillPurpose::Lists => "lists",
        }
    }
}

/// The requests and bytes of one purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpillTally {
    /// The reads.
    pub read: Tally,
    /// The writes.
    pub written: Tally,
}

impl std::ops::Add for SpillTally {
    type Output = SpillTally;
    fn add(self, other: SpillTally) -> SpillTally {
        SpillTally { read: self.read + other.read, written: self.written + other.written }
    }
}

#[derive(Default)]
struct Counter {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn tally(&self) -> Tally {
        Tally { operations: self.requests.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// The temporary space.
pub struct TemporarySpace {
    directory: Arc<dyn Directory>,
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    files: AtomicU32,
    reads: [Counter; SpillPurpose::ALL.len()],
    writes: [Counter; SpillPurpose::ALL.len()],
}

impl TemporarySpace {
    /// Opens the space in a directory, and removes the files that are left there after a crash.
    pub fn open(directory: Arc<dyn Directory>, limit_bytes: u64) -> Result<Arc<TemporarySpace>> {
        for name in directory.list()?.iter().filter(|name| name.starts_with(PREFIX)) {
            directory.remove(name)?;
        }
        Ok(Arc::new(TemporarySpace {
            directory,
            limit_bytes: AtomicU64::new(limit_bytes),
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            files: AtomicU32::new(0),
            reads: Default::default(),
            writes: Default::default(),
        }))
    }

    /// Changes the limit of all files together, in bytes (`temp_file_limit`).
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Relaxed);
    }

    /// Returns the number of bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Returns the largest number of bytes of all files so far.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }

    /// Returns the requests and bytes of one purpose.
    pub fn tally(&self, purpose: SpillPurpose) -> SpillTally {
        let of = |counters: &[Counter; 4]| counters.get(purpose as usize).map(Counter::tally);
        SpillTally {
            read: of(&self.reads).unwrap_or_default(),
            written: of(&self.writes).unwrap_or_default(),
        }
    }

    /// Returns the requests and bytes of all purposes.
    pub fn tally_all(&self) -> SpillTally {
        let tallies = SpillPurpose::ALL.into_iter().map(|purpose| self.tally(purpose));
        tallies.fold(SpillTally::default(), |sum, tally| sum + tally)
    }

    /// Creates an empty file with pages of this size. The size must be 512 bytes to 32 KiB, and a multiple of
    /// the sector size of the device.
    pub(crate) fn create(self: &Arc<Self>, page_bytes: usize) -> Result<Arc<TemporaryFile>> {
        if !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(SpillError::Setting("a page of the temporary space has 512 bytes to 32 KiB"));
        }
        let number = self.files.fetch_add(1, Relaxed);
        let name = format!("{PREFIX}{number}");
        let file = self.directory.open(&name, OpenHow::new_file(Space::Temporary))?;
        let file = TemporaryFile {
            space: Arc::clone(self),
            name,
            file,
            salt: number,
            page_bytes,
            pages: AtomicU32::new(0),
            reserved_bytes: AtomicU64::new(0),
        };
        if !page_bytes.is_multiple_of(file.file.sector_bytes() as usize) {
            return Err(SpillError::Setting("a page of the temporary space is a multiple of the sector"));
        }
        Ok(Arc::new(file))
    }

    /// Reserves a part of the limit: `wished_bytes` if possible, or else `needed_bytes`.
    fn reserve(&self, wished_bytes: u64, needed_bytes: u64) -> Result<u64> {
        let limit_bytes = self.limit_bytes.load(Relaxed);
        for bytes in [wished_bytes, needed_bytes] {
            let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
            if let Ok(before) = self.used_bytes.fetch_update(Relaxed, Relaxed, more) {
                self.peak_bytes.fetch_max(before + bytes, Relaxed);
                return Ok(bytes);
            }
        }
        Err(self.full(needed_bytes))
    }

    #[cold]
    fn full(&self, wanted_bytes: u64) -> SpillError {
        SpillError::Full {
            space: self.directory.location(),
            used_bytes: self.used_bytes(),
            wanted_bytes,
            limit_bytes: self.limit_bytes.load(Relaxed),
        }
    }

    /// Returns the error for an error of the device. It is [`SpillError::DeviceFull`] if the device is full.
    #[cold]
    fn device_error(&self, error: DeviceError, wanted_bytes: usize) -> SpillError {
        if !error.is_no_space() {
            return SpillError::Device(error);
        }
        SpillError::DeviceFull {
            space: self.directory.location(),
            used_bytes: self.used_bytes(),
            wanted_bytes: wanted_bytes as u64,
        }
    }
}

/// A file of pages. Only one step at a time appends to it, but several steps may read it.
pub(crate) struct TemporaryFile {
    space: Arc<TemporarySpace>,
    name: String,
    file: Arc<dyn BlockFile>,
    salt: u32,
    page_bytes: usize,
    pages: AtomicU32,
    reserved_bytes: AtomicU64,
}

impl TemporaryFile {
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Allocates the next pages at the end of the file. Returns the number of the first one.
    fn allocate(&self, pages: u32) -> Result<u32> {
        let first = self.pages.load(Relaxed);
        let end = first
            .checked_add(pages)
            .ok_or(SpillError::Setting("a temporary file has at most 2^32 - 1 pages"))?;
        let end_bytes = u64::from(end) * self.page_bytes as u64;
        let reserved_bytes = self.reserved_bytes.load(Relaxed);
        if end_bytes > reserved_bytes {
            let needed_bytes = end_bytes - reserved_bytes;
            let granted_bytes = self.space.reserve(needed_bytes.max(EXTENT_BYTES), needed_bytes)?;
            let reserved_bytes = reserved_bytes + granted_bytes;
            self.reserved_bytes.store(reserved_bytes, Relaxed);
            let grown = self.file.set_len(reserved_bytes / self.page_bytes as u64 * self.page_bytes as u64);
            grown.map_err(|error| self.space.device_error(error, granted_bytes as usize))?;
        }
        self.pages.store(end, Relaxed);
        Ok(first)
    }

    /// Writes the checksums of pages, and appends the pages with one request. Returns the number of the first
    /// page.
    pub(crate) fn append(&self, pages: &mut [u8], purpose: SpillPurpose) -> Result<u32> {
        let count = pages.len() / self.page_bytes;
        let first = self.allocate(count as u32)?;
        for (page, number) in pages.chunks_exact_mut(self.page_bytes).zip(first..) {
            page::seal(page, self.salt, number);
        }
        let at = u64::from(first) * self.page_bytes as u64;
        let written = self.file.write_at(at, pages, Purpose::Temporary, Durability::Later);
        written.map_err(|error| self.space.device_error(error, pages.len()))?;
        if let Some(counter) = self.space.writes.get(purpose as usize) {
            counter.add(pages.len());
        }
        Ok(first)
    }

    /// Reads pages with one request. They are checked later, by [`TemporaryFile::header`].
    pub(crate) fn read(&self, first: u32, pages: &mut [u8], purpose: SpillPurpose) -> Result<()> {
        let at = u64::from(first) * self.page_bytes as u64;
        self.file.read_at(at, pages, Purpose::Temporary)?;
        if let Some(counter) = self.space.reads.get(purpose as usize) {
            counter.add(pages.len());
        }
        Ok(())
    }

    /// Checks a page that was read, and returns its header.
    pub(crate) fn header(&self, page: &[u8], number: u32) -> Result<PageHeader> {
        PageHeader::decode(page, self.salt, number).map_err(|what| self.corrupt(number, what))
    }

    #[cold]
    pub(crate) fn corrupt(&self, page: u32, what: &'static str) -> SpillError {
        SpillError::Corrupt { file: self.file.location().to_string(), page, what }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If the file could not be removed, it is removed when the space is opened again.
        let _ = self.space.directory.remove(&self.name);
        self.space.used_bytes.fetch_sub(self.reserved_bytes.load(Relaxed), Relaxed);
    }
}
