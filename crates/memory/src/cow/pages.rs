//! The file. It consists of pages of 4096 bytes.
//!
//! | page | what it holds |
//! |---:|---|
//! | 0 | magic "VNVMCWF1" (8 bytes; its last character is the version), and the master record (8 bytes) |
//! | 1 to 16 | directory 0 (`cow_tree/roots.rs`) |
//! | 17 to 32 | directory 1 |
//! | 33, 34 | for directories 0 and 1: which of the first 32768 pages are allocated, a bit for each |
//! | from 35 on | nodes |
//! | n * 32768, and the next one | for directories 0 and 1: which of these 32768 pages are allocated |
//!
//! The master record is the number of the last batch. If this number is even, directory 0 is the current one,
//! else directory 1.
//!
//! This module does not know which pages are allocated, or caches.

use crate::files::{FileHandle, FileResult, Files};

/// The number of bytes of a page, and of a node.
pub(super) const PAGE_BYTES: usize = 4096;
/// The number of pages of a group. One page of a bitmap has a bit for each page of a group.
pub(super) const GROUP_PAGES: u64 = 8 * PAGE_BYTES as u64;
/// The number of pages of a new file.
pub(super) const FIRST_PAGES: u64 = 3 + 2 * DIRECTORY_PAGES;
/// The number of pages of a directory: a line of 64 bytes for each table.
pub(super) const DIRECTORY_PAGES: u64 = 16;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"VNVMCWF1");
const MASTER_AT: u64 = 8;

/// One of the two directories, and its bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side(u64);

impl Side {
    /// Returns the side that a batch changes. It is the current side after the end of the batch.
    pub(super) fn of_batch(batch: u64) -> Side {
        Side(batch % 2)
    }

    pub(super) fn directory_at(self) -> u64 {
        (1 + self.0 * DIRECTORY_PAGES) * PAGE_BYTES as u64
    }

    /// Returns the page with the bitmap of a group.
    pub(super) fn bitmap_page(self, group: u64) -> u64 {
        if group == 0 { 1 + 2 * DIRECTORY_PAGES + self.0 } else { group * GROUP_PAGES + self.0 }
    }
}

/// The open file.
pub(super) struct PageFile {
    pub(super) files: Files,
    pub(super) handle: FileHandle,
    /// The number of bytes that are reserved for later writes.
    reserved: u64,
}

impl PageFile {
    pub(super) fn new(files: Files, handle: FileHandle) -> FileResult<PageFile> {
        let reserved = files.len_bytes(handle)?;
        Ok(PageFile { files, handle, reserved })
    }

    /// Returns the number of pages of the file.
    pub(super) fn page_count(&self) -> FileResult<u64> {
        Ok(self.files.len_bytes(self.handle)? / PAGE_BYTES as u64)
    }

    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> FileResult<()> {
        self.files.read_at(self.handle, at, buf)
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> FileResult<()> {
        self.files.write_at(self.handle, at, bytes)
    }

    pub(super) fn fsync(&mut self) -> FileResult<()> {
        self.files.fsync(self.handle)
    }

    /// Reserves room in the region, so that the file can have this many pages. Reserves some more if there is
    /// room.
    ///
    /// Errors: the region is full.
    pub(super) fn reserve(&mut self, pages: u64) -> FileResult<()> {
        /// The pages of the blocks that one publication adds to a file (0113).
        const MORE_PAGES: u64 = 28;
        let needed = pages * PAGE_BYTES as u64;
        if needed <= self.reserved {
            return Ok(());
        }
        let more = needed + (MORE_PAGES - 1) * PAGE_BYTES as u64;
        self.reserved = match self.files.reserve(self.handle, more) {
            Ok(()) => more,
            Err(_) => {
                self.files.reserve(self.handle, needed)?;
                needed
            }
        };
        Ok(())
    }

    /// Cuts the file to this many pages, durably, and gives the rest back to the region. All writes are
    /// durable, and the current directory needs none of the pages that are cut off.
    pub(super) fn cut(&mut self, pages: u64) -> FileResult<()> {
        let len_bytes = pages * PAGE_BYTES as u64;
        self.files.truncate(self.handle, len_bytes)?;
        self.reserved = len_bytes;
        Ok(())
    }

    pub(super) fn read_master(&self) -> FileResult<u64> {
        let mut word = [0; 8];
        self.read(MASTER_AT, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Stores the master record, durably.
    pub(super) fn write_master(&mut self, batch: u64) -> FileResult<()> {
        self.write(MASTER_AT, &batch.to_le_bytes())?;
        self.fsync()
    }
}
