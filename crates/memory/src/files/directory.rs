//! The names of the files, and the entries of the directory.
//!
//! ```text
//!            create              remove, rename onto it          finish_removal
//!   free ──────────────> named ────────────────────────> removed ───────────────> free
//!                         │ ^
//!                         └─┘ rename
//! ```
//!
//! Invariants
//! 1. One word or one publication makes each edge durable. So a crash leaves each name with its old file or
//!    its new one, and no chunk is lost.
//! 2. The name of an entry is durable before its seal.
//!
//! This module does not know blocks or lengths.

use std::collections::BTreeMap;

use super::error::{FileError, FileResult};
use super::format::{DIRECTORY_BYTES, ENTRIES, ENTRY_BYTES, MAGIC, entry_at};
use super::space::FileSpace;
use crate::error::MemoryError;
use crate::layout::{NAME_AT, SEAL_AT, decode_name, encode_name, get_u64};
use crate::pointer::{Pointer, Word};
use crate::publish::Step;
use crate::sizes::ROOT_NAME_BYTES_MAX;

/// The directory.
pub(super) struct Directory {
    at: Pointer,
    by_name: BTreeMap<Box<str>, usize>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The first map of the file.
    first: Pointer,
    seal: u64,
}

/// Finds the directory that a root points to. Makes an empty directory if there is none.
pub(super) fn find_or_create(space: &FileSpace, root: &str) -> FileResult<Pointer> {
    let word = match space.allocator().root(root) {
        Err(MemoryError::NoRoot { .. }) => space.allocator().create_root(root)?,
        found => found?,
    };
    let found = Pointer::from_u64(space.load(word));
    if !found.is_none() {
        return Ok(found);
    }
    let mut bytes = [0; DIRECTORY_BYTES];
    bytes.iter_mut().zip(MAGIC.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    let directory = space.allocate_with(&bytes)?;
    space.region().fence();
    let link = Step::Store { word, value: directory.to_u64() };
    let linked = space.publish(&[Step::Activate(directory), link]);
    linked.inspect_err(|_| space.give_up(directory))?;
    Ok(directory)
}

/// Returns the bytes of a name for its field in an entry, and the seal over this field.
fn sealed(name: &str) -> FileResult<([u8; ROOT_NAME_BYTES_MAX], u64)> {
    let refused = |_| FileError::Name { name: name.into(), most_bytes: ROOT_NAME_BYTES_MAX };
    encode_name(name).map_err(refused)
}

impl Directory {
    /// Reads the directory.
    pub(super) fn read(space: &FileSpace, at: Pointer) -> FileResult<Directory> {
        space.check(at, DIRECTORY_BYTES as u64, "the directory of files")?;
        let mut bytes = [0; DIRECTORY_BYTES];
        space.region().read(at.to_u64(), &mut bytes);
        if get_u64(&bytes, 0) != MAGIC {
            return Err(FileError::Damaged { what: "the magic of the directory of files", at });
        }
        let mut directory = Directory { at, by_name: BTreeMap::new(), entries: Vec::with_capacity(ENTRIES) };
        let (lines, _) = bytes.as_chunks::<ENTRY_BYTES>();
        for line in lines.iter().skip(1) {
            let entry =
                Entry { first: Pointer::from_u64(get_u64(line, 0)), seal: get_u64(line, SEAL_AT as usize) };
            if entry.seal != 0 {
                let name = decode_name(line).filter(|_| !entry.first.is_none());
                let name =
                    name.ok_or(FileError::Damaged { what: "an entry of the directory of files", at })?;
                directory.by_name.insert(name.into(), directory.entries.len());
            }
            directory.entries.push(entry);
        }
        Ok(directory)
    }

    /// Returns the directory's chunk.
    pub(super) fn chunk(&self) -> Pointer {
        self.at
    }

    /// Returns the entry of a file.
    pub(super) fn find(&self, name: &str) -> FileResult<usize> {
        self.by_name.get(name).copied().ok_or_else(|| FileError::NoFile { name: name.into() })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// Returns the first map of an entry's file.
    pub(super) fn first(&self, entry: usize) -> Pointer {
        self.entries.get(entry).map(|entry| entry.first).unwrap_or_default()
    }

    /// Returns the entries of files, and of removed files.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().enumerate().filter(|(_, entry)| !entry.first.is_none()).map(|(number, _)| number)
    }

    /// Returns the entries whose files were removed, and still have chunks.
    pub(super) fn removed(&self) -> Vec<usize> {
        let is_removed = |entry: &usize| self.entries.get(*entry).is_some_and(|entry| entry.seal == 0);
        self.used().filter(is_removed).collect()
    }

    /// Returns the word of an entry that has the pointer to the first map.
    pub(super) fn link(&self, space: &FileSpace, entry: usize) -> FileResult<Word> {
        space.word(self.at, entry_at(entry))
    }

    fn seal_word(&self, space: &FileSpace, entry: usize) -> FileResult<Word> {
        space.word(self.at, entry_at(entry) + SEAL_AT)
    }

    fn set(&mut self, number: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(number) {
            *place = entry;
        }
    }

    /// Stores a name durably into a free entry, without the seal. Returns the entry.
    fn prepare(&self, space: &FileSpace, field: &[u8]) -> FileResult<usize> {
        let free = self.entries.iter().position(|entry| entry.first.is_none());
        let free = free.ok_or(FileError::TooMany { most: ENTRIES })?;
        space.region().store_back(self.at.to_u64() + entry_at(free) + NAME_AT, field);
        space.region().fence();
        Ok(free)
    }

    /// Makes a new file whose first map is `first`, durably. Returns the entry of the file. The fence of
    /// [`Directory::prepare`] makes the map durable, too.
    pub(super) fn create(&mut self, space: &FileSpace, name: &str, first: Pointer) -> FileResult<usize> {
        let (field, seal) = sealed(name)?;
        if self.by_name.contains_key(name) {
            return Err(FileError::Exists { name: name.into() });
        }
        let entry = self.prepare(space, &field)?;
        space.publish(&[
            Step::Activate(first),
            Step::Store { word: self.link(space, entry)?, value: first.to_u64() },
            Step::Store { word: self.seal_word(space, entry)?, value: seal },
        ])?;
        self.set(entry, Entry { first, seal });
        self.by_name.insert(name.into(), entry);
        Ok(entry)
    }

    /// Removes the name of a file, durably. Returns the entry, which keeps its chunks until
    /// [`Directory::forget`].
    pub(super) fn remove(&mut self, space: &FileSpace, name: &str) -> FileResult<usize> {
        let entry = self.find(name)?;
        space.store_durably(self.seal_word(space, entry)?, 0);
        self.by_name.remove(name);
        self.set(entry, Entry { first: self.first(entry), seal: 0 });
        Ok(entry)
    }

    /// Makes the entry of a removed file free, in DRAM. The caller has freed the chunks.
    pub(super) fn forget(&mut self, entry: usize) {
        self.set(entry, Entry::default());
    }

    /// Gives a file another name, durably. If another file had this name, the same publication removes it.
    pub(super) fn rename(&mut self, space: &FileSpace, from: &str, to: &str) -> FileResult<Renamed> {
        let (field, seal) = sealed(to)?;
        let old = self.find(from)?;
        let (first, old_seal) = (self.first(old), self.seal_word(space, old)?);
        let replaced = self.by_name.get(to).copied();
        let new = match replaced {
            Some(entry) => entry,
            None => self.prepare(space, &field)?,
        };
        let left_behind = self.first(new);
        let mut steps = vec![
            Step::Store { word: self.link(space, new)?, value: first.to_u64() },
            Step::Store { word: self.link(space, old)?, value: left_behind.to_u64() },
            Step::Store { word: old_seal, value: 0 },
        ];
        if replaced.is_none() {
            steps.push(Step::Store { word: self.seal_word(space, new)?, value: seal });
        }
        space.publish(&steps)?;
        self.set(new, Entry { first, seal });
        self.set(old, Entry { first: left_behind, seal: 0 });
        self.by_name.remove(from);
        self.by_name.insert(to.into(), new);
        Ok(Renamed { old, new })
    }
}

/// The entries after a renaming.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renamed {
    /// The entry that the file had before. If a file was replaced, this entry now has the replaced file, as a
    /// removed one.
    pub(super) old: usize,
    /// The entry that the file has now.
    pub(super) new: usize,
}
