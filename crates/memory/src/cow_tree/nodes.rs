//! The trait that an engine implements for the tree: it stores the nodes.
//!
//! Invariants
//! 1. Only dirty nodes are written. A dirty node stays dirty until the end of the batch.
//! 2. Freeing a node needs no room: [`NodeStore::new_node`] has reserved the room that is needed to free one
//!    more node.
//!
//! This module does not know the format of nodes.

use std::ops::Range;

use crate::pointer::{Owner, Pointer};
use crate::store::TableNo;
use crate::store_error::StoreResult;

/// A node: the pointer to its chunk in `nvm_cow`, the number of its page in `cow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The id that means no node. An empty tree has it as its root.
    pub(crate) const NONE: NodeId = NodeId(0);

    pub(crate) fn is_none(self) -> bool {
        self == NodeId::NONE
    }

    /// Returns the node as a pointer, for errors that name a damaged node.
    pub(crate) fn pointer(self) -> Pointer {
        Pointer::from_u64(self.0)
    }
}

/// A tree of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeNo {
    /// An index of a table. Index 0 is the primary one.
    Index { table: TableNo, index: usize },
    /// The pieces of a table's long rows (`cow`).
    Pieces { table: TableNo },
}

/// A row in the primary index of its table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredRow<'r> {
    pub(crate) table: TableNo,
    /// The primary key.
    pub(crate) key: &'r [u8],
    /// The row value.
    pub(crate) value: &'r [u8],
}

/// Bytes of a row that are to be changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPatch<'p> {
    /// The byte of the row at which these bytes begin.
    pub(crate) at: usize,
    pub(crate) bytes: &'p [u8],
}

/// The nodes of a store.
pub(crate) trait NodeStore {
    /// The place of the bytes of a node. For a dirty node, it is valid until the end of the batch. For
    /// another node it is valid until the next call of [`NodeStore::locate`] or [`NodeStore::new_node`].
    type Place: Copy;

    /// Returns the number of bytes of a node.
    fn node_bytes(&self) -> usize;

    /// Returns the place of a node. Errors: this id is not the id of a node.
    fn locate(&self, node: NodeId) -> StoreResult<Self::Place>;

    /// Copies bytes of a node.
    fn read(&self, place: Self::Place, at: usize, buf: &mut [u8]) -> StoreResult<()>;

    /// Reads two aligned bytes of a node as a number.
    #[inline]
    fn read_pair(&self, place: Self::Place, at: usize) -> StoreResult<u16> {
        let mut pair = [0; 2];
        self.read(place, at, &mut pair)?;
        Ok(u16::from_le_bytes(pair))
    }

    /// Copies ranges of bytes from a node into a dirty one. `buf` is for engines that need a buffer.
    fn copy(
        &mut self,
        from: Self::Place,
        into: NodeId,
        ranges: [Range<usize>; 2],
        buf: &mut Vec<u8>,
    ) -> StoreResult<()>;

    /// Changes bytes of a dirty node.
    fn write(&mut self, place: Self::Place, at: usize, bytes: &[u8]) -> StoreResult<()>;

    /// Returns whether the batch has made the node.
    fn is_dirty(&self, node: NodeId) -> bool;

    /// Makes a dirty node with arbitrary contents. Errors: the region is full.
    fn new_node(&mut self, owner: Owner) -> StoreResult<NodeId>;

    /// Reserves an entry in the list of freed chunks, for a node or row that is freed without a replacement.
    ///
    /// Errors: the region is full.
    fn reserve_retirement(&mut self) -> StoreResult<()>;

    /// Frees a node: now if it is dirty, after the end of the batch otherwise.
    fn retire(&mut self, node: NodeId, owner: Owner) -> StoreResult<()>;

    /// Frees what a value leads to. A tree has had this value, and neither the tree nor the open transaction
    /// needs it any more.
    fn forget_value(&mut self, tree: TreeNo, owner: Owner, value: &[u8]) -> StoreResult<()>;

    /// Changes bytes of the row that a row value leads to. Only the open batch has this row, so the bytes are
    /// changed in place.
    fn change_row(&mut self, value: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()>;
}
