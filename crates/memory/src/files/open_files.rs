//! The calls on files.
//!
//! Invariants
//! 1. A handle leads to the same file as long as the file exists, even after a renaming. Each handle has a
//!    number that no other handle gets.
//! 2. Removed files have no chunks between two calls.
//!
//! This module does not know the format (`format.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::calls::{Call, CallCounts, Calls, FileCosts};
use super::directory::{self, Directory};
use super::error::{FileError, FileResult};
use super::file::OpenFile;
use super::map::{self, BlockMap};
use super::space::FileSpace;
use crate::pointer::{Owner, Pointer};
use crate::state::Allocator;

/// An open file of one [`Files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(u64);

/// Files in persistent memory. One thread uses them at a time.
pub struct Files {
    space: FileSpace,
    calls: Calls,
    directory: Directory,
    open: BTreeMap<FileHandle, Opened>,
    handles: u64,
}

struct Opened {
    entry: usize,
    file: OpenFile,
}

impl Files {
    /// Opens the files of a root, or makes an empty directory if there is no such root. Chunks are allocated
    /// for `owner`. Finishes removals that a crash has interrupted, in a time that depends on the length of
    /// the removed files. Apart from that, only the directory is read.
    ///
    /// Errors: the region is full, or something in it is damaged.
    pub fn open(allocator: Arc<Allocator>, root: &str, owner: Owner, costs: FileCosts) -> FileResult<Files> {
        let space = FileSpace::new(allocator, owner);
        let at = directory::find_or_create(&space, root)?;
        let directory = Directory::read(&space, at)?;
        let calls = Calls::new(costs);
        let mut files = Files { space, calls, directory, open: BTreeMap::new(), handles: 0 };
        for entry in files.directory.removed() {
            let map = BlockMap::read(&files.space, files.directory.first(entry))?;
            files.finish_removal(entry, map)?;
        }
        Ok(files)
    }

    /// Returns the number of calls since the files were opened.
    pub fn counts(&self) -> CallCounts {
        self.calls.counts()
    }

    /// Returns the names of the files, sorted.
    pub fn names(&self) -> Vec<Box<str>> {
        self.directory.names().map(Box::from).collect()
    }

    /// Makes an empty file, durably.
    ///
    /// Errors: the name is taken, empty or too long, there are too many files, or the region is full.
    pub fn create(&mut self, name: &str) -> FileResult<FileHandle> {
        self.calls.enter(Call::Name)?;
        let first = map::new_map(&self.space)?;
        let created = self.directory.create(&self.space, name, first);
        let entry = created.inspect_err(|_| self.space.give_up(first))?;
        let file = OpenFile::empty(&self.space, first)?;
        Ok(self.add(Opened { entry, file }))
    }

    /// Opens a file by its name. The time depends on its length: a word for each 16 KiB is read.
    ///
    /// Errors: there is no such file, or it is damaged.
    pub fn open_file(&mut self, name: &str) -> FileResult<FileHandle> {
        self.calls.enter(Call::Name)?;
        let entry = self.directory.find(name)?;
        if let Some(handle) = self.handle_of(entry) {
            return Ok(handle);
        }
        let file = OpenFile::read(&self.space, self.directory.first(entry))?;
        Ok(self.add(Opened { entry, file }))
    }

    fn add(&mut self, opened: Opened) -> FileHandle {
        self.handles += 1;
        let handle = FileHandle(self.handles);
        self.open.insert(handle, opened);
        handle
    }

    fn handle_of(&self, entry: usize) -> Option<FileHandle> {
        self.open.iter().find(|(_, opened)| opened.entry == entry).map(|(handle, _)| *handle)
    }

    /// Removes a file, durably. Calls with its handle fail from now on.
    ///
    /// Errors: there is no such file.
    pub fn remove(&mut self, name: &str) -> FileResult<()> {
        self.calls.enter(Call::Name)?;
        let entry = self.directory.find(name)?;
        let map = self.take_map(entry)?;
        self.directory.remove(&self.space, name)?;
        self.finish_removal(entry, map)
    }

    /// Gives a file another name, durably. If another file has this name, it is removed: after a crash the
    /// name leads to one of the two files. Only an earlier `fsync` makes the bytes of the file durable.
    /// Handles of the file stay valid.
    ///
    /// Errors: there is no such file, or the name is empty or too long.
    pub fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        self.calls.enter(Call::Name)?;
        if from == to {
            return self.directory.find(from).map(drop);
        }
        let replaced = match self.directory.find(to) {
            Ok(entry) if self.directory.find(from).is_ok() => Some(self.take_map(entry)?),
            _ => None,
        };
        let renamed = self.directory.rename(&self.space, from, to)?;
        for opened in self.open.values_mut().filter(|opened| opened.entry == renamed.old) {
            opened.entry = renamed.new;
        }
        match replaced {
            Some(map) => self.finish_removal(renamed.old, map),
            None => Ok(()),
        }
    }

    /// Closes a file that will be removed, and returns its blocks.
    fn take_map(&mut self, entry: usize) -> FileResult<BlockMap> {
        let opened = self.handle_of(entry).and_then(|handle| self.open.remove(&handle));
        match opened {
            Some(opened) => Ok(opened.file.into_map()),
            None => BlockMap::read(&self.space, self.directory.first(entry)),
        }
    }

    /// Frees the chunks of a removed file.
    fn finish_removal(&mut self, entry: usize, map: BlockMap) -> FileResult<()> {
        map.release(&self.space, self.directory.link(&self.space, entry)?)?;
        self.directory.forget(entry);
        Ok(())
    }

    fn opened(&self, handle: FileHandle) -> FileResult<&OpenFile> {
        self.open.get(&handle).map(|opened| &opened.file).ok_or(FileError::Stale)
    }

    /// Returns the length of a file in bytes. Writes that are not durable yet count, too.
    pub fn len_bytes(&self, handle: FileHandle) -> FileResult<u64> {
        self.opened(handle).map(OpenFile::len_bytes)
    }

    /// Copies bytes out of a file, also bytes that are not durable yet.
    ///
    /// Errors: the range reaches beyond the end.
    pub fn read_at(&self, handle: FileHandle, at: u64, buf: &mut [u8]) -> FileResult<()> {
        self.calls.enter(Call::Read { len_bytes: buf.len() })?;
        self.opened(handle)?.read_at(&self.space, at, buf)
    }

    /// Writes bytes into a file from its byte `at` on. The bytes may reach beyond its end. They are durable
    /// after the next [`Files::fsync`] of the file. Until then a crash may lose any of their cache lines.
    ///
    /// Errors: the range begins beyond the end, or the region is full. Then nothing is written.
    pub fn write_at(&mut self, handle: FileHandle, at: u64, bytes: &[u8]) -> FileResult<()> {
        self.calls.enter(Call::Write { len_bytes: bytes.len() })?;
        let opened = self.open.get_mut(&handle).ok_or(FileError::Stale)?;
        opened.file.write_at(&self.space, at, bytes)
    }

    /// Writes bytes after the end of a file, and returns the position at which they begin. They become
    /// durable as in [`Files::write_at`].
    ///
    /// Errors: the region is full. Then nothing is written.
    pub fn append(&mut self, handle: FileHandle, bytes: &[u8]) -> FileResult<u64> {
        self.calls.enter(Call::Write { len_bytes: bytes.len() })?;
        let opened = self.open.get_mut(&handle).ok_or(FileError::Stale)?;
        let at = opened.file.len_bytes();
        opened.file.write_at(&self.space, at, bytes)?;
        Ok(at)
    }

    /// Makes all earlier writes of a file durable.
    pub fn fsync(&mut self, handle: FileHandle) -> FileResult<()> {
        self.calls.enter(Call::Fsync)?;
        let opened = self.open.get_mut(&handle).ok_or(FileError::Stale)?;
        opened.file.fsync(&self.space);
        Ok(())
    }

    /// Reserves room, so that writes up to this length cannot fail because the region is full. The length
    /// stays the same.
    ///
    /// Errors: the region is full. Then nothing is reserved.
    pub fn reserve(&mut self, handle: FileHandle, len_bytes: u64) -> FileResult<()> {
        self.calls.enter(Call::Resize)?;
        let opened = self.open.get_mut(&handle).ok_or(FileError::Stale)?;
        opened.file.reserve(&self.space, len_bytes)
    }

    /// Cuts a file to a length, durably, and frees the blocks after the new end. Earlier writes to the rest
    /// of the file still need an [`Files::fsync`] to become durable.
    ///
    /// Errors: the file is shorter.
    pub fn truncate(&mut self, handle: FileHandle, len_bytes: u64) -> FileResult<()> {
        self.calls.enter(Call::Resize)?;
        let opened = self.open.get_mut(&handle).ok_or(FileError::Stale)?;
        opened.file.truncate(&self.space, len_bytes)
    }

    /// Returns all chunks of the files, for a check. Another active chunk of their owner would be a leaked
    /// one.
    pub fn chunks(&self) -> FileResult<Vec<Pointer>> {
        let mut chunks = vec![self.directory.chunk()];
        for entry in self.directory.used() {
            match self.open.values().find(|opened| opened.entry == entry) {
                Some(opened) => opened.file.map().add_chunks(&mut chunks),
                None => {
                    BlockMap::read(&self.space, self.directory.first(entry))?.add_chunks(&mut chunks);
                }
            }
        }
        Ok(chunks)
    }
}
