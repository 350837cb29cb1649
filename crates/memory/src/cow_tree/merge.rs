//! Merges nodes with few entries with a neighbour, or frees them.
//!
//! A node that is less than a third full takes the entries of a neighbour below the same parent, if a quarter
//! of the node then stays free. The parent loses an entry, and may be merged, too. A node without entries is
//! freed. So of two neighbours below a parent, at least one is a third full, or the two are too full for one
//! node.
//!
//! Invariants
//! 1. Nodes are merged between transactions only. So a rollback still finds room for each removed entry in
//!    the leaf where it was.
//! 2. A merge changes dirty nodes only, and makes no node. If the region has no room to record a freed node,
//!    the merge is left out, and the tree stays whole.
//!
//! This module does not know why a node has few entries.

use super::node::{NewEntry, Node, NodeCopy};
use super::nodes::{NodeId, NodeStore};
use super::tree::{LeafOfKey, Passed, Tree};
use crate::store_error::StoreResult;

/// Buffers of a merge.
#[derive(Default)]
pub(super) struct MergeBuffers {
    /// The bytes of the neighbour that is freed.
    neighbour: Vec<u8>,
    separator: Vec<u8>,
}

/// Two nodes below one parent.
struct Neighbours {
    parent: NodeId,
    /// The entry of the left node in the parent.
    left_entry: usize,
    /// The node that stays. It is dirty.
    kept: NodeId,
    /// The node that is freed.
    gone: NodeId,
    /// Whether the left node stays.
    keeps_left: bool,
}

impl Tree {
    /// Merges the leaf that a key belongs to, if it is sparse, and the nodes above it that get sparse.
    pub(super) fn merge_sparse<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        key: &[u8],
        buf: &mut Vec<u8>,
        buffers: &mut MergeBuffers,
    ) -> StoreResult<()> {
        let Some(LeafOfKey { mut path, leaf, .. }) = self.path(nodes, key)? else { return Ok(()) };
        let mut at = leaf.id;
        loop {
            let node = Node::read(nodes, at)?;
            let is_done = !node.is_sparse() || !nodes.is_dirty(at);
            let parent = path.pop();
            match parent {
                _ if is_done => break,
                None if node.count > 0 => break,
                None => {
                    self.root = NodeId::NONE;
                    return nodes.retire(at, self.owner);
                }
                Some(parent) if node.count == 0 => {
                    nodes.retire(at, self.owner)?;
                    Node::read(nodes, parent.id)?.remove(nodes, parent.entry, buf)?;
                }
                Some(parent) if !self.merge(nodes, parent, at, buf, buffers)? => break,
                Some(_) => {}
            }
            let Some(parent) = parent else { break };
            at = parent.id;
        }
        self.lower_root(nodes)
    }

    /// Merges a dirty node with one of its neighbours. Returns whether it could be merged with one.
    fn merge<N: NodeStore>(
        &self,
        nodes: &mut N,
        parent: Passed,
        kept: NodeId,
        buf: &mut Vec<u8>,
        buffers: &mut MergeBuffers,
    ) -> StoreResult<bool> {
        for keeps_left in [true, false] {
            let above = Node::read(nodes, parent.id)?;
            let left_entry = if keeps_left { Some(parent.entry) } else { parent.entry.checked_sub(1) };
            let Some(left_entry) = left_entry.filter(|left| left + 1 < above.count) else { continue };
            let gone = above.child(nodes, left_entry + usize::from(keeps_left))?;
            let pair = Neighbours { parent: parent.id, left_entry, kept, gone, keeps_left };
            let separator = above.entry(nodes, left_entry + 1)?;
            above.key(nodes, &separator, &mut buffers.separator)?;
            let (kept, other) = (Node::read(nodes, kept)?, Node::read(nodes, gone)?);
            if kept.is_leaf != other.is_leaf || !kept.can_take(&other, buffers.separator.len()) {
                continue;
            }
            match nodes.reserve_retirement() {
                Err(error) if error.is_full() => return Ok(false),
                reserved => reserved?,
            }
            pair.merge(nodes, buf, buffers)?;
            nodes.retire(gone, self.owner)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// While the root is dirty and has a single child, makes this child the root.
    fn lower_root<N: NodeStore>(&mut self, nodes: &mut N) -> StoreResult<()> {
        loop {
            let root = Node::read(nodes, self.root)?;
            if root.is_leaf || root.count != 1 || !nodes.is_dirty(root.id) {
                return Ok(());
            }
            self.root = root.child(nodes, 0)?;
            nodes.retire(root.id, self.owner)?;
        }
    }
}

impl Neighbours {
    /// Moves the entries of the freed node into the other node, and removes the freed node from the parent.
    fn merge<N: NodeStore>(
        &self,
        nodes: &mut N,
        buf: &mut Vec<u8>,
        buffers: &mut MergeBuffers,
    ) -> StoreResult<()> {
        let MergeBuffers { neighbour, separator } = buffers;
        let gone = Node::read(nodes, self.gone)?;
        let gone = NodeCopy::read(nodes, &gone, neighbour)?;
        let mut kept = Node::read(nodes, self.kept)?;
        let is_inner = !kept.is_leaf;
        if is_inner && !self.keeps_left {
            // The first entry of an inner node is for all smaller keys, so its own key does not count. Now
            // other entries come before it, so it needs the separator as its key.
            let child = kept.child(nodes, 0)?.0.to_le_bytes();
            kept.remove(nodes, 0, buf)?;
            kept.insert(nodes, 0, NewEntry { key: separator, value: &child }, buf)?;
        }
        for number in 0..gone.node.count {
            let takes_separator = is_inner && self.keeps_left && number == 0;
            let key = if takes_separator { separator.as_slice() } else { gone.key(number)? };
            let at = if self.keeps_left { kept.count } else { number };
            kept.insert(nodes, at, NewEntry { key, value: gone.value(number)? }, buf)?;
        }
        let mut parent = Node::read(nodes, self.parent)?;
        let left = parent.entry(nodes, self.left_entry)?;
        parent.patch(nodes, &left, 0, &self.kept.0.to_le_bytes())?;
        parent.remove(nodes, self.left_entry + 1, buf)
    }
}
