//! Access to words and chunks of the region, for the other modules of this folder.
//!
//! Invariants
//! 1. Bytes are read and stored only within chunks that the allocator knows. So a damaged pointer leads to an
//!    error, not to bytes of other data.
//!
//! This module does not know what chunks hold.

use std::sync::Arc;

use varve_device::Region;

use super::error::{FileError, FileResult};
use crate::intent;
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::state::Allocator;

/// The region, its allocator, and the owner for which chunks of files are allocated.
pub(super) struct FileSpace {
    allocator: Arc<Allocator>,
    region: Arc<dyn Region>,
    owner: Owner,
}

impl FileSpace {
    pub(super) fn new(allocator: Arc<Allocator>, owner: Owner) -> FileSpace {
        FileSpace { region: Arc::clone(allocator.region()), allocator, owner }
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    pub(super) fn region(&self) -> &dyn Region {
        &*self.region
    }

    /// Reserves a chunk.
    pub(super) fn allocate(&self, len_bytes: u64) -> FileResult<Pointer> {
        Ok(self.allocator.allocate(self.owner, len_bytes)?)
    }

    /// Reserves a chunk, and stores `bytes` into it. A later fence of the caller makes them durable.
    pub(super) fn allocate_with(&self, bytes: &[u8]) -> FileResult<Pointer> {
        let chunk = self.allocate(bytes.len() as u64)?;
        self.region.store_back(chunk.to_u64(), bytes);
        Ok(chunk)
    }

    /// Gives up a reserved chunk after an error. If that fails, the failure is not reported: the caller
    /// reports the first error, and the chunk is free after the next start.
    pub(super) fn give_up(&self, chunk: Pointer) {
        let _reserved_until_start = self.allocator.free(chunk);
    }

    /// Checks that a pointer leads to a chunk of the files' owner with this length.
    pub(super) fn check(&self, chunk: Pointer, len_bytes: u64, what: &'static str) -> FileResult<()> {
        let damaged = FileError::Damaged { what, at: chunk };
        if self.allocator.owner_of(chunk)? != Some(self.owner) {
            return Err(damaged);
        }
        let is_right = self.allocator.len_bytes(chunk)? == len_bytes;
        is_right.then_some(()).ok_or(damaged)
    }

    pub(super) fn word(&self, chunk: Pointer, at: u64) -> FileResult<Word> {
        chunk.word(at).ok_or(FileError::Damaged { what: "a pointer", at: chunk })
    }

    pub(super) fn load(&self, word: Word) -> u64 {
        self.region.load_word(word.offset())
    }

    /// Stores a word durably, with one fence.
    pub(super) fn store_durably(&self, word: Word, value: u64) {
        intent::store_back(&*self.region, word.offset(), value);
        self.region.fence();
    }

    /// See [`Allocator::publish`].
    pub(super) fn publish(&self, steps: &[Step]) -> FileResult<()> {
        Ok(self.allocator.publish(steps)?)
    }
}
