//! Access to words, bytes and chunks of the region, for the engines.
//!
//! Invariants
//! 1. Bytes are read and stored within the region only. So a damaged pointer leads to an error.
//! 2. [`Space::free_allocated`] frees a chunk only if it is allocated and belongs to the expected owner. An
//!    earlier recovery may have freed the chunk, and then another owner may have got it.
//!
//! This module does not know what chunks hold.

use std::sync::Arc;

use varve_device::{Region, WORD_BYTES};

use crate::error::Result;
use crate::intent;
use crate::pointer::{Owner, Pointer, Word};
use crate::state::Allocator;
use crate::store_error::{StoreError, StoreResult};

/// The region, with its allocator.
pub(crate) struct Space {
    allocator: Arc<Allocator>,
    region: Arc<dyn Region>,
    len_bytes: u64,
}

impl Space {
    pub(crate) fn new(allocator: Arc<Allocator>) -> Space {
        let region = Arc::clone(allocator.region());
        Space { len_bytes: region.len_bytes(), region, allocator }
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Reads bytes. Errors: they are not within the region, so something is damaged.
    #[inline]
    pub(crate) fn read(&self, at: Pointer, plus: u64, buf: &mut [u8]) -> StoreResult<()> {
        self.region.read(self.checked(at, plus, buf.len() as u64)?, buf);
        Ok(())
    }

    /// Asks the processor to prefetch the lines of a range that will be read soon. A range beyond the end is
    /// ignored.
    #[inline]
    pub(crate) fn prefetch(&self, at: Pointer, plus: u64, len_bytes: u64) {
        self.region.prefetch(at.to_u64().saturating_add(plus), len_bytes);
    }

    /// Returns the offset that is `plus` bytes after a pointer. Errors: the range from there on is not within
    /// the region.
    #[inline]
    fn checked(&self, at: Pointer, plus: u64, len_bytes: u64) -> StoreResult<u64> {
        let offset = at.to_u64().checked_add(plus);
        let is_within = |from: &u64| {
            from.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes) && !at.is_none()
        };
        let Some(offset) = offset.filter(is_within) else {
            return Err(StoreError::Damaged { what: "a pointer", at });
        };
        Ok(offset)
    }

    /// Stores bytes, and begins to write them back.
    #[inline]
    pub(crate) fn store_back(&self, at: Pointer, plus: u64, bytes: &[u8]) -> StoreResult<()> {
        self.region.store_back(self.checked(at, plus, bytes.len() as u64)?, bytes);
        Ok(())
    }

    /// Stores bytes.
    pub(crate) fn store(&self, at: Pointer, plus: u64, bytes: &[u8]) -> StoreResult<()> {
        self.region.store(self.checked(at, plus, bytes.len() as u64)?, bytes);
        Ok(())
    }

    /// Begins to write a range back.
    pub(crate) fn write_back(&self, at: Pointer, len_bytes: u64) -> StoreResult<()> {
        self.region.write_back(self.checked(at, 0, len_bytes)?, len_bytes);
        Ok(())
    }

    /// Returns the word that is `plus` bytes after a pointer.
    #[inline]
    pub(crate) fn word(&self, at: Pointer, plus: u64) -> StoreResult<Word> {
        let offset = self.checked(at, plus, WORD_BYTES as u64)?;
        Word::at(offset).ok_or(StoreError::Damaged { what: "a pointer", at })
    }

    #[inline]
    pub(crate) fn load(&self, word: Word) -> u64 {
        self.region.load_word(word.offset())
    }

    /// Stores a word, and begins to write it back.
    #[inline]
    pub(crate) fn store_word(&self, word: Word, value: u64) {
        intent::store_back(&*self.region, word.offset(), value);
    }

    #[inline]
    pub(crate) fn fence(&self) {
        self.region.fence();
    }

    /// Gives up a chunk that was reserved and not activated.
    pub(crate) fn give_up(&self, chunk: Pointer) -> Result<()> {
        self.allocator.free(chunk)
    }

    /// Gives up a reserved chunk after an error. If that fails, the failure is not reported: the caller
    /// reports the first error, and the chunk is free after the next start.
    pub(crate) fn give_up_after_error(&self, chunk: Pointer) {
        let _reserved_until_start = self.allocator.free(chunk);
    }

    /// Returns the largest number of chunks of this many bytes that the region could have.
    pub(crate) fn chunks_max(&self, len_bytes: u64) -> u64 {
        self.len_bytes / len_bytes.max(1)
    }

    /// Frees chunks, durably. Chunks that are not allocated to their owner are skipped (invariant 2).
    pub(crate) fn free_allocated(&self, owned: &[OwnedChunk]) -> StoreResult<()> {
        let is_owned = |chunk: &OwnedChunk| -> StoreResult<bool> {
            Ok(self.allocator.owner_of(chunk.pointer)? == Some(chunk.owner))
        };
        if let [chunk] = owned {
            return if is_owned(chunk)? { Ok(self.allocator.free(chunk.pointer)?) } else { Ok(()) };
        }
        let mut chunks = Vec::with_capacity(owned.len());
        for chunk in owned {
            if is_owned(chunk)? {
                chunks.push(chunk.pointer);
            }
        }
        Ok(self.allocator.free_all(&chunks)?)
    }
}

/// A chunk and the owner that it should have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnedChunk {
    pub(crate) pointer: Pointer,
    pub(crate) owner: Owner,
}
