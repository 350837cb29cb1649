//! The nodes of the tree: chunks of the region.
//!
//! Invariants
//! 1. Nothing of a dirty node or a new tuple is written back before the end of the batch. A fence waits for
//!    its own thread only, and the transactions of a batch may be of several threads.
//!
//! What it does not know: the format of nodes.

use super::directory::Directory;
use super::space::{BatchChunks, Content};
use crate::cow_tree::{NodeId, NodeStore, TreeNo, kept_ranges};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// The nodes and tuples of a store, with its directories.
pub struct NvmNodes {
    pub(super) space: Space,
    pub(super) chunks: BatchChunks,
    pub(super) directory: Directory,
    /// The head of the tuple that is being made.
    pub(super) head: Vec<u8>,
    /// The row of the tuple that is being changed.
    pub(super) row: Vec<u8>,
}

/// The pointer that the primary index has as the value of a key.
pub(super) fn tuple_of(value: &[u8]) -> StoreResult<Pointer> {
    let word = value.first_chunk().filter(|_| value.len() == 8);
    let damaged = StoreError::Damaged { what: "a pointer to a tuple", at: Pointer::NONE };
    word.map(|word| Pointer::from_u64(u64::from_le_bytes(*word))).ok_or(damaged)
}

impl NvmNodes {
    /// Begins to write back all nodes and tuples of the batch.
    pub(super) fn write_back(&self) -> StoreResult<()> {
        for (chunk, content) in self.chunks.new_chunks() {
            match content {
                Content::Tuple { len_bytes } => self.space.write_back(chunk, len_bytes)?,
                Content::Node => self.write_back_node(chunk)?,
            }
        }
        Ok(())
    }

    fn write_back_node(&self, node: Pointer) -> StoreResult<()> {
        for range in kept_ranges(self, NodeId(node.to_u64()))? {
            let from = Pointer::from_u64(node.to_u64() + range.start as u64);
            self.space.write_back(from, range.len() as u64)?;
        }
        Ok(())
    }
}

impl NodeStore for NvmNodes {
    type Place = Pointer;

    fn node_bytes(&self) -> usize {
        self.directory.node_bytes
    }

    #[inline]
    fn locate(&self, node: NodeId) -> StoreResult<Pointer> {
        Ok(node.pointer())
    }

    #[inline]
    fn read(&self, place: Pointer, at: usize, buf: &mut [u8]) -> StoreResult<()> {
        self.space.read(place, at as u64, buf)
    }

    fn write(&mut self, place: Pointer, at: usize, bytes: &[u8]) -> StoreResult<()> {
        self.space.store(place, at as u64, bytes)
    }

    fn is_dirty(&self, node: NodeId) -> bool {
        self.chunks.is_new(node.pointer())
    }

    fn new_node(&mut self, owner: Owner) -> StoreResult<NodeId> {
        let chunk = self.chunks.allocate(&self.space, owner, Content::Node, self.directory.node_bytes)?;
        Ok(NodeId(chunk.to_u64()))
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
}
