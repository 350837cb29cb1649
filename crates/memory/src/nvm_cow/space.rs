//! The chunks of a batch.
//!
//! Invariants
//! 1. A new chunk is reserved until the end of the batch. So a crash before it frees the chunk.
//! 2. A chunk that the current directory needs is freed only after the flip.
//! 3. The list of chunks has room for all chunks that the batch has allocated, and for the same number of
//!    freed ones. So the end of a batch needs no room.
//!
//! This module does not know what chunks hold, but it knows which chunks are nodes and which are tuples.

use rustc_hash::FxHashMap;

use super::images::{Images, NodeImage, TupleImage};
use super::list::{ChunkList, Listed};
use crate::pointer::{Owner, Pointer};
use crate::space::{OwnedChunk, Space};
use crate::store_error::{StoreError, StoreResult};

/// The content of a new chunk. If it has an image, its bytes are in DRAM until the batch ends. Otherwise they
/// are in the chunk, but not written back yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Node { image: Option<NodeImage> },
    Tuple { len_bytes: u64, image: Option<TupleImage> },
}

#[derive(Debug, Clone, Copy)]
struct NewChunk {
    owner: Owner,
    content: Content,
}

/// The chunks that a batch has made, and the chunks that it does not need any more.
pub(super) struct BatchChunks {
    list: ChunkList,
    pub(super) images: Images,
    new: FxHashMap<Pointer, NewChunk>,
    old: Vec<OwnedChunk>,
    /// The largest number of chunks that the list of this batch can have. The list has room for them.
    listed_max: usize,
    listed: Vec<Listed>,
}

impl BatchChunks {
    pub(super) fn new(list: ChunkList) -> BatchChunks {
        let (new, old) = (FxHashMap::default(), Vec::new());
        BatchChunks { list, images: Images::default(), new, old, listed_max: 0, listed: Vec::new() }
    }

    pub(super) fn list_blocks(&self) -> &[Pointer] {
        self.list.blocks()
    }

    /// Reserves a chunk, and makes sure that the list has room for it and for an old chunk that it replaces.
    fn allocate(&mut self, space: &Space, owner: Owner, len_bytes: usize) -> StoreResult<Pointer> {
        self.promise(space, 2)?;
        Ok(space.allocator().allocate(owner, len_bytes as u64)?)
    }

    /// Makes a node with arbitrary contents. Errors: the region is full.
    pub(super) fn new_node(
        &mut self,
        space: &Space,
        owner: Owner,
        node_bytes: usize,
    ) -> StoreResult<Pointer> {
        let chunk = self.allocate(space, owner, node_bytes)?;
        let content = Content::Node { image: self.images.add_node(node_bytes) };
        self.new.insert(chunk, NewChunk { owner, content });
        Ok(chunk)
    }

    /// Makes a tuple from a head and a row. Errors: the region is full.
    pub(super) fn new_tuple(
        &mut self,
        space: &Space,
        owner: Owner,
        head: &[u8],
        row: &[u8],
    ) -> StoreResult<Pointer> {
        let len_bytes = head.len() + row.len();
        let chunk = self.allocate(space, owner, len_bytes)?;
        let image = self.images.add_tuple(head, row);
        if image.is_none() {
            space.store(chunk, 0, head)?;
            space.store(chunk, head.len() as u64, row)?;
        }
        let content = Content::Tuple { len_bytes: len_bytes as u64, image };
        self.new.insert(chunk, NewChunk { owner, content });
        Ok(chunk)
    }

    /// Returns the image of a node that the batch has made, if it has one.
    #[inline]
    pub(super) fn node_image(&self, chunk: Pointer) -> Option<NodeImage> {
        match self.new.get(&chunk)?.content {
            Content::Node { image } => image,
            Content::Tuple { .. } => None,
        }
    }

    /// Returns the bytes of a tuple that the batch has made, if they are in an image.
    #[inline]
    pub(super) fn tuple_image(&self, chunk: Pointer) -> Option<&[u8]> {
        match self.new.get(&chunk)?.content {
            Content::Tuple { image, .. } => image.map(|image| self.images.tuple(image)),
            Content::Node { .. } => None,
        }
    }

    /// Changes bytes of a tuple that the batch has made. Errors: the bytes are not within the tuple.
    pub(super) fn change_tuple(
        &mut self,
        space: &Space,
        tuple: Pointer,
        at: usize,
        bytes: &[u8],
    ) -> StoreResult<()> {
        let no_tuple = StoreError::Damaged { what: "a tuple, which the batch has not made", at: tuple };
        let Some(Content::Tuple { len_bytes, image }) = self.new.get(&tuple).map(|new| new.content) else {
            return Err(no_tuple);
        };
        let end = at.checked_add(bytes.len()).filter(|end| *end as u64 <= len_bytes);
        match (image, end) {
            (Some(image), Some(end)) => {
                let place = self.images.tuple_mut(image).get_mut(at..end);
                place.ok_or(no_tuple)?.copy_from_slice(bytes);
                Ok(())
            }
            (None, Some(_)) => space.store(tuple, at as u64, bytes),
            (_, None) => Err(no_tuple),
        }
    }

    /// Reserves an entry in the list of freed chunks, for a node or row that is freed without a replacement.
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

    /// Frees a chunk. A chunk that the batch has made is freed at once. Any other chunk is freed after the
    /// flip.
    pub(super) fn retire(&mut self, space: &Space, chunk: Pointer, owner: Owner) -> StoreResult<()> {
        match self.new.remove(&chunk) {
            Some(new) => {
                if let Content::Node { image: Some(image) } = new.content {
                    self.images.remove_node(image);
                }
                Ok(space.give_up(chunk)?)
            }
            None => {
                self.old.push(OwnedChunk { pointer: chunk, owner });
                Ok(())
            }
        }
    }

    /// Returns the chunks that the batch has made, in the order of the list ([`BatchChunks::list_chunks`]).
    pub(super) fn new_chunks(&self) -> impl Iterator<Item = (Pointer, Content)> {
        let new = self.listed.iter().filter(|listed| !listed.is_old).map(|listed| listed.chunk.pointer);
        new.filter_map(|chunk| Some((chunk, self.new.get(&chunk)?.content)))
    }

    /// Makes the list in DRAM. The batch makes and frees no more chunks.
    pub(super) fn list_chunks(&mut self) {
        let chunk = |pointer, owner| OwnedChunk { pointer, owner };
        let new = self.new.iter().map(|(at, new)| Listed { chunk: chunk(*at, new.owner), is_old: false });
        let old = self.old.iter().map(|old| Listed { chunk: *old, is_old: true });
        self.listed.clear();
        self.listed.extend(new.chain(old));
        // In this order, chunks of one slab follow each other. Their bits are in the same line, which is then
        // stored once.
        self.listed.sort_unstable_by_key(|listed| listed.chunk.pointer);
    }

    /// Stores the list. A later fence of the caller makes it durable.
    pub(super) fn stage(&self, space: &Space, batch: u64) -> StoreResult<()> {
        self.list.stage(space, batch, &self.listed)
    }

    /// Makes the new chunks active, durably.
    pub(super) fn activate(&self, space: &Space) -> StoreResult<()> {
        let new: Vec<Pointer> = self.pointers(false).collect();
        Ok(space.allocator().activate_all(&new)?)
    }

    fn pointers(&self, is_old: bool) -> impl Iterator<Item = Pointer> {
        let listed = self.listed.iter().filter(move |listed| listed.is_old == is_old);
        listed.map(|listed| listed.chunk.pointer)
    }

    /// Frees the old chunks, durably, and ends the batch.
    pub(super) fn end(&mut self, space: &Space) -> StoreResult<()> {
        let old: Vec<Pointer> = self.pointers(true).collect();
        self.new.clear();
        self.old.clear();
        self.images.clear();
        self.listed_max = 0;
        Ok(space.allocator().free_all(&old)?)
    }
}
