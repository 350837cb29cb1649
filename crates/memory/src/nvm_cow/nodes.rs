//! The nodes and tuples of a store: chunks of the region, and images in DRAM of the nodes and tuples that the
//! batch has made.
//!
//! Invariants
//! 1. No line of a dirty node or a new tuple is written back before the end of the batch. The reason is that
//!    a fence waits only for write-backs of its own thread, and the transactions of a batch may be of several
//!    threads.
//! 2. A node or tuple that has an image is read and changed only in this image.
//!
//! This module does not know the format of nodes.

use std::ops::Range;

use varve_device::{LINE_BYTES, WORD_BYTES};

use super::directory::Directory;
use super::images::NodeImage;
use super::space::{BatchChunks, Content};
use crate::cow_tree::{NodeId, NodeStore, TreeNo, kept_ranges};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::TupleHead;

/// The number of bytes of the longest chunk that does not consist of whole cache lines.
const CHUNK_BYTES_UNALIGNED_MAX: u64 = 48;

/// The largest number of bytes of a tuple that are prefetched before its length is known. If a read is
/// longer, the processor detects the sequence and prefetches by itself.
const PREFETCH_BYTES_MAX: u64 = 17 * LINE_BYTES;

/// The nodes and tuples of a store, with its directories.
pub struct NvmNodes {
    pub(super) space: Space,
    pub(super) chunks: BatchChunks,
    pub(super) directory: Directory,
    /// The head of the tuple that is being made.
    pub(super) head: Vec<u8>,
    /// The tuple that is being changed.
    pub(super) tuple: Vec<u8>,
}

/// Returns the pointer to a tuple in a row value.
pub(super) fn tuple_of(value: &[u8]) -> StoreResult<Pointer> {
    let word = value.first_chunk().filter(|_| value.len() == 8);
    let damaged = StoreError::Damaged { what: "a pointer to a tuple", at: Pointer::NONE };
    word.map(|word| Pointer::from_u64(u64::from_le_bytes(*word))).ok_or(damaged)
}

/// The place of the bytes of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeBytes {
    Chunk(Pointer),
    Image(NodeImage),
}

fn outside(node: NodeId) -> StoreError {
    StoreError::Damaged { what: "a node, whose parts are not within it", at: node.pointer() }
}

impl NvmNodes {
    /// Begins to write back all nodes and tuples of the batch.
    pub(super) fn write_back(&self) -> StoreResult<()> {
        let NvmNodes { space, chunks, .. } = self;
        for (chunk, content) in chunks.new_chunks() {
            match content {
                Content::Tuple { len_bytes, image: None } => space.write_back(chunk, len_bytes)?,
                Content::Tuple { len_bytes, image: Some(image) } => {
                    // A chunk of 64 bytes or more consists of whole lines.
                    let is_lines = len_bytes > CHUNK_BYTES_UNALIGNED_MAX;
                    let images = &chunks.images;
                    let bytes = if is_lines { images.tuple_lines(image) } else { images.tuple(image) };
                    space.store_back(chunk, 0, bytes)?;
                }
                Content::Node { image } => self.write_back_node(chunk, image)?,
            }
        }
        Ok(())
    }

    fn write_back_node(&self, chunk: Pointer, image: Option<NodeImage>) -> StoreResult<()> {
        let node = NodeId(chunk.to_u64());
        for Range { start, end } in lines_of(kept_ranges(self, node)?).into_iter().flatten() {
            match image {
                Some(image) => {
                    let bytes =
                        self.chunks.images.node(image).get(start..end).ok_or_else(|| outside(node))?;
                    self.space.store_back(chunk, start as u64, bytes)?;
                }
                None => {
                    let from = Pointer::from_u64(chunk.to_u64() + start as u64);
                    self.space.write_back(from, (end - start) as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the fixed part of the head of a tuple.
    pub(super) fn head(&self, tuple: Pointer) -> StoreResult<TupleHead> {
        match self.chunks.tuple_image(tuple) {
            Some(image) => TupleHead::decode(image, tuple),
            None => {
                // A read or a copy of the tuple follows. So the whole chunk is prefetched, which is not much
                // longer than the tuple.
                let chunk_bytes = self.space.allocator().len_bytes(tuple).unwrap_or_default();
                self.space.prefetch(tuple, 0, chunk_bytes.min(PREFETCH_BYTES_MAX));
                TupleHead::read(&self.space, tuple)
            }
        }
    }

    /// Copies a range of a tuple into a buffer.
    pub(super) fn read_tuple(
        &self,
        tuple: Pointer,
        range: Range<usize>,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        match self.chunks.tuple_image(tuple) {
            Some(image) => {
                let what = "a tuple, whose parts are not within it";
                let bytes = image.get(range).ok_or(StoreError::Damaged { what, at: tuple })?;
                buf.clear();
                buf.extend_from_slice(bytes);
                Ok(())
            }
            None => {
                buf.resize(range.len(), 0);
                self.space.read(tuple, range.start as u64, buf)
            }
        }
    }

    /// Copies the row of a tuple into a buffer.
    pub(super) fn read_row(&self, tuple: Pointer, row: &mut Vec<u8>) -> StoreResult<()> {
        let head = self.head(tuple)?;
        self.read_tuple(tuple, head.head_bytes..head.tuple_bytes(), row)
    }
}

/// Returns the ranges of whole lines that cover two ranges of a node. If the two overlap, they become one
/// range.
fn lines_of([slots, entries]: [Range<usize>; 2]) -> [Option<Range<usize>>; 2] {
    const LINE: usize = LINE_BYTES as usize;
    let (slots_end, entries_at) = (slots.end.next_multiple_of(LINE), entries.start / LINE * LINE);
    match slots_end < entries_at {
        true => [Some(0..slots_end), Some(entries_at..entries.end)],
        false => [Some(0..entries.end), None],
    }
}

impl NodeStore for NvmNodes {
    type Place = NodeBytes;

    fn node_bytes(&self) -> usize {
        self.directory.node_bytes
    }

    #[inline]
    fn locate(&self, node: NodeId) -> StoreResult<NodeBytes> {
        let chunk = node.pointer();
        Ok(self.chunks.node_image(chunk).map_or(NodeBytes::Chunk(chunk), NodeBytes::Image))
    }

    #[inline]
    fn read(&self, place: NodeBytes, at: usize, buf: &mut [u8]) -> StoreResult<()> {
        match place {
            NodeBytes::Chunk(chunk) => self.space.read(chunk, at as u64, buf),
            NodeBytes::Image(image) => {
                let bytes = self.chunks.images.node(image).get(at..at + buf.len());
                buf.copy_from_slice(bytes.ok_or_else(|| outside(NodeId::NONE))?);
                Ok(())
            }
        }
    }

    /// Reads the whole word around the pair, because the processor loads a word at once.
    #[inline]
    fn read_pair(&self, place: NodeBytes, at: usize) -> StoreResult<u16> {
        let NodeBytes::Chunk(chunk) = place else {
            let mut pair = [0; 2];
            self.read(place, at, &mut pair)?;
            return Ok(u16::from_le_bytes(pair));
        };
        let within = at % WORD_BYTES;
        let word = self.space.load(self.space.word(chunk, (at - within) as u64)?);
        Ok((word >> (8 * within)) as u16)
    }

    fn copy(
        &mut self,
        from: NodeBytes,
        into: NodeId,
        ranges: [Range<usize>; 2],
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let into = self.locate(into)?;
        for range in ranges {
            match (from, into) {
                (NodeBytes::Chunk(chunk), NodeBytes::Image(image)) => {
                    let bytes = self.chunks.images.node_mut(image).get_mut(range.clone());
                    let bytes = bytes.ok_or_else(|| outside(NodeId::NONE))?;
                    self.space.read(chunk, range.start as u64, bytes)?;
                }
                _ => {
                    buf.resize(range.len(), 0);
                    self.read(from, range.start, buf)?;
                    self.write(into, range.start, buf)?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, place: NodeBytes, at: usize, bytes: &[u8]) -> StoreResult<()> {
        match place {
            NodeBytes::Chunk(chunk) => self.space.store(chunk, at as u64, bytes),
            NodeBytes::Image(image) => {
                let place = self.chunks.images.node_mut(image).get_mut(at..at + bytes.len());
                place.ok_or_else(|| outside(NodeId::NONE))?.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn is_dirty(&self, node: NodeId) -> bool {
        self.chunks.is_new(node.pointer())
    }

    fn new_node(&mut self, owner: Owner) -> StoreResult<NodeId> {
        let chunk = self.chunks.new_node(&self.space, owner, self.directory.node_bytes)?;
        Ok(NodeId(chunk.to_u64()))
    }

    fn reserve_retirement(&mut self) -> StoreResult<()> {
        self.chunks.promise_one(&self.space)
    }

    fn retire(&mut self, node: NodeId, owner: Owner) -> StoreResult<()> {
        self.chunks.retire(&self.space, node.pointer(), owner)
    }

    /// Frees the tuple that the primary index led to.
    fn forget_value(&mut self, tree: TreeNo, owner: Owner, value: &[u8]) -> StoreResult<()> {
        match tree {
            TreeNo::Index { index: 0, .. } => self.chunks.retire(&self.space, tuple_of(value)?, owner),
            _ => Ok(()),
        }
    }

    /// Changes bytes of a tuple that the batch has made.
    fn change_row(&mut self, value: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
        self.chunks.change_tuple(&self.space, tuple_of(value)?, at, bytes)
    }
}
