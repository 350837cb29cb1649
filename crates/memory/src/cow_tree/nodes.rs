//! What an engine does for the tree.
//!
//! Invariants
//! 1. Only dirty nodes are written. A dirty node stays dirty until the end of the batch.
//! 2. Freeing a node needs no room: [`NodeStore::new_node`] has made sure of what freeing one more takes.
//!
//! What it does not know: the format of nodes.

use crate::pointer::{Owner, Pointer};
use crate::store::TableNo;
use crate::store_error::StoreResult;

/// A node: the pointer to its chunk in `nvm_cow`, the number of its page in `cow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// No node: the root of an empty tree.
    pub(crate) const NONE: NodeId = NodeId(0);

    pub(crate) fn is_none(self) -> bool {
        self == NodeId::NONE
    }

    /// What an error of a damaged node names.
    pub(crate) fn pointer(self) -> Pointer {
        Pointer::from_u64(self.0)
    }
}

/// A tree of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeNo {
    /// An index of a table; index 0 is the primary one.
    Index { table: TableNo, index: usize },
    /// The pieces of a table's long rows (`cow`).
    Pieces { table: TableNo },
}

/// The nodes of a store.
pub(crate) trait NodeStore {
    /// Where the bytes of a node are. For a dirty node that is right until the end of the batch, for another
    /// one until the next call of [`NodeStore::locate`] or [`NodeStore::new_node`].
    type Place: Copy;

    /// Bytes of a node.
    fn node_bytes(&self) -> usize;

    /// Where a node is. Errors: there cannot be one.
    fn locate(&self, node: NodeId) -> StoreResult<Self::Place>;

    /// Copies bytes of a node.
    fn read(&self, place: Self::Place, at: usize, buf: &mut [u8]) -> StoreResult<()>;

    /// Changes bytes of a dirty node.
    fn write(&mut self, place: Self::Place, at: usize, bytes: &[u8]) -> StoreResult<()>;

    /// Whether the batch has made the node.
    fn is_dirty(&self, node: NodeId) -> bool;

    /// Makes a dirty node with arbitrary contents. Errors: the region is full.
    fn new_node(&mut self, owner: Owner) -> StoreResult<NodeId>;

    /// Frees a node: now if it is dirty, after the end of the batch otherwise.
    fn retire(&mut self, node: NodeId, owner: Owner) -> StoreResult<()>;

    /// A tree has had this value, and neither the tree nor the open transaction needs it any more.
    fn forget_value(&mut self, tree: TreeNo, owner: Owner, value: &[u8]) -> StoreResult<()>;
}
