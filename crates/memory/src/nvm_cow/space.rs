//! The chunks of a batch.
//!
//! Invariants
//! 1. A new chunk is reserved until the end of the batch. So a crash before it frees the chunk.
//! 2. A chunk that the current directory needs is freed only after the flip.
//! 3. The list of chunks has room for what the batch has allocated, and for as many chunks that it frees. So
//!    the end of a batch needs no room.
//!
//! What it does not know: what chunks hold, except which are nodes and which are tuples.

use rustc_hash::FxHashMap;

use super::list::{ChunkList, Listed};
use crate::pointer::{Owner, Pointer};
use crate::space::{OwnedChunk, Space};
use crate::store_error::StoreResult;

/// What a new chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Node,
    Tuple { len_bytes: u64 },
}

#[derive(Debug, Clone, Copy)]
struct NewChunk {
    owner: Owner,
    content: Content,
}

/// The chunks that a batch has made, and those that it does not need any more.
pub(super) struct BatchChunks {
    list: ChunkList,
    new: FxHashMap<Pointer, NewChunk>,
    old: Vec<OwnedChunk>,
    /// The most chunks that the list of this batch will have.
    listed_max: usize,
    listed: Vec<Listed>,
}

impl BatchChunks {
    pub(super) fn new(list: ChunkList) -> BatchChunks {
        let (new, old) = (FxHashMap::default(), Vec::new());
        BatchChunks { list, new, old, listed_max: 0, listed: Vec::new() }
    }

    pub(super) fn list_blocks(&self) -> &[Pointer] {
        self.list.blocks()
    }

    /// Reserves a chunk, and makes sure that one that it takes the place of can be freed.
    ///
    /// Errors: the region is full.
    pub(super) fn allocate(
        &mut self,
        space: &Space,
        owner: Owner,
        content: Content,
        len_bytes: usize,
    ) -> StoreResult<Pointer> {
        self.promise(space, 2)?;
        let chunk = space.allocator().allocate(owner, len_bytes as u64)?;
        self.new.insert(chunk, NewChunk { owner, content });
        Ok(chunk)
    }

    /// Makes sure that a chunk can be freed that no new one takes the place of.
    ///
    /// Errors: the region is full.
    pub(super) fn promise_one(&mut self, space: &Space) -> StoreResult<()> {
        self.promise(space, 1)
    }

    fn promise(&mut self, space: &Space, count: usize) -> StoreResult<()> {
        self.list.reserve(space, self.listed_max + count)?;
        self.listed_max += count;
        Ok(())
    }

    pub(super) fn is_new(&self, chunk: Pointer) -> bool {
        self.new.contains_key(&chunk)
    }

    /// Frees a chunk: now if the batch has made it, after the flip otherwise.
    pub(super) fn retire(&mut self, space: &Space, chunk: Pointer, owner: Owner) -> StoreResult<()> {
        match self.new.remove(&chunk) {
            Some(_) => Ok(space.give_up(chunk)?),
            None => {
                self.old.push(OwnedChunk { pointer: chunk, owner });
                Ok(())
            }
        }
    }

    /// The chunks that the batch has made.
    pub(super) fn new_chunks(&self) -> impl Iterator<Item = (Pointer, Content)> {
        self.new.iter().map(|(chunk, new)| (*chunk, new.content))
    }

    /// Stores the list; the caller's fence makes it durable.
    pub(super) fn stage(&mut self, space: &Space, batch: u64) -> StoreResult<()> {
        let chunk = |pointer, owner| OwnedChunk { pointer, owner };
        let new = self.new.iter().map(|(at, new)| Listed { chunk: chunk(*at, new.owner), is_old: false });
        let old = self.old.iter().map(|old| Listed { chunk: *old, is_old: true });
        self.listed.clear();
        self.listed.extend(new.chain(old));
        // Chunks of one slab in turn have their bits in the same line.
        self.listed.sort_unstable_by_key(|listed| listed.chunk.pointer);
        self.list.stage(space, batch, &self.listed)
    }

    /// Makes the new chunks active, durably.
    pub(super) fn activate(&self, space: &Space) -> StoreResult<()> {
        let mut new = self.listed.iter().filter(|listed| !listed.is_old).peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        for listed in new {
            space.allocator().activate_unfenced(listed.chunk.pointer)?;
        }
        space.fence();
        Ok(())
    }

    /// Frees the old chunks, durably, and ends the batch.
    pub(super) fn end(&mut self, space: &Space) -> StoreResult<()> {
        let old: Vec<Pointer> = self.old.iter().map(|old| old.pointer).collect();
        self.new.clear();
        self.old.clear();
        self.listed_max = 0;
        Ok(space.allocator().free_all(&old)?)
    }
}
