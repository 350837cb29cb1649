//! An open file: its length, its blocks, and its lines that are not durable yet.
//!
//! Invariants
//! 1. The length in the region is never greater than the length of the file. It grows only after all bytes
//!    before it are durable.
//! 2. The blocks have room for at least the length of the file.
//!
//! This module does not know the name of the file.

use super::dirty::DirtyLines;
use super::error::{FileError, FileResult};
use super::format::LENGTH_AT;
use super::map::BlockMap;
use super::space::FileSpace;
use crate::pointer::{Pointer, Word};

/// An open file.
pub(super) struct OpenFile {
    map: BlockMap,
    /// The word in the region with the durable length: the file has this length after a crash.
    length: Word,
    durable_bytes: u64,
    len_bytes: u64,
    dirty: DirtyLines,
}

impl OpenFile {
    /// Opens the file with this first map.
    pub(super) fn read(space: &FileSpace, first: Pointer) -> FileResult<OpenFile> {
        OpenFile::with(space, BlockMap::read(space, first)?)
    }

    /// Opens a new file.
    pub(super) fn empty(space: &FileSpace, first: Pointer) -> FileResult<OpenFile> {
        OpenFile::with(space, BlockMap::empty(first))
    }

    fn with(space: &FileSpace, map: BlockMap) -> FileResult<OpenFile> {
        let length = space.word(map.first(), LENGTH_AT)?;
        let len_bytes = space.load(length);
        if len_bytes > map.capacity_bytes() {
            return Err(FileError::Damaged { what: "the length of a file", at: map.first() });
        }
        Ok(OpenFile { map, length, durable_bytes: len_bytes, len_bytes, dirty: DirtyLines::new() })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn map(&self) -> &BlockMap {
        &self.map
    }

    pub(super) fn into_map(self) -> BlockMap {
        self.map
    }

    fn range_error(&self, at: u64, len_bytes: usize) -> FileError {
        FileError::Range { at, len_bytes: len_bytes as u64, file_bytes: self.len_bytes }
    }

    /// Adds blocks, durably, until they have room for this many bytes. The length stays the same.
    pub(super) fn reserve(&mut self, space: &FileSpace, len_bytes: u64) -> FileResult<()> {
        self.map.grow_to(space, len_bytes)
    }

    /// Stores bytes. The next [`OpenFile::fsync`] makes them durable.
    pub(super) fn write_at(&mut self, space: &FileSpace, at: u64, bytes: &[u8]) -> FileResult<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|_| at <= self.len_bytes);
        let end = end.ok_or_else(|| self.range_error(at, bytes.len()))?;
        self.map.grow_to(space, end)?;
        let (mut at, mut rest) = (at, bytes);
        while let Some(stretch) = self.map.locate(at).filter(|_| !rest.is_empty()) {
            let (now, later) = rest.split_at(rest.len().min(stretch.len_bytes));
            space.region().store(stretch.offset, now);
            self.dirty.add(stretch.offset, now.len() as u64);
            at += now.len() as u64;
            rest = later;
        }
        self.len_bytes = self.len_bytes.max(end);
        Ok(())
    }

    /// Copies bytes of the file into `buf`.
    pub(super) fn read_at(&self, space: &FileSpace, at: u64, buf: &mut [u8]) -> FileResult<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len_bytes) {
            return Err(self.range_error(at, buf.len()));
        }
        let (mut at, mut rest) = (at, buf);
        while let Some(stretch) = self.map.locate(at).filter(|_| !rest.is_empty()) {
            let (now, later) = rest.split_at_mut(rest.len().min(stretch.len_bytes));
            space.region().read(stretch.offset, now);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Makes all earlier writes durable.
    pub(super) fn fsync(&mut self, space: &FileSpace) {
        if !self.dirty.is_empty() {
            let region = space.region();
            self.dirty
                .take()
                .iter()
                .for_each(|lines| region.write_back(lines.start, lines.end - lines.start));
            region.fence();
        }
        if self.durable_bytes != self.len_bytes {
            self.set_durable(space, self.len_bytes);
        }
    }

    fn set_durable(&mut self, space: &FileSpace, len_bytes: u64) {
        space.store_durably(self.length, len_bytes);
        self.durable_bytes = len_bytes;
    }

    /// Cuts the file to this length, durably, and frees the blocks after it.
    pub(super) fn truncate(&mut self, space: &FileSpace, len_bytes: u64) -> FileResult<()> {
        if len_bytes > self.len_bytes {
            return Err(self.range_error(len_bytes, 0));
        }
        self.len_bytes = len_bytes;
        if len_bytes < self.durable_bytes {
            self.set_durable(space, len_bytes);
        }
        self.map.cut_to(space, len_bytes)
    }
}
