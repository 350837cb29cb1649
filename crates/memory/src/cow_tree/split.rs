//! Splits nodes that are full.
//!
//! Invariants
//! 1. A split adds and removes no entry of a leaf. The parent gets room before its child is split. So a split
//!    that is refused leaves a whole tree.
//!
//! This module does not know why a node is full.

use super::node::{NewEntry, Node, NodeCopy, entry_bytes};
use super::nodes::{NodeId, NodeStore};
use super::tree::{Cut, Passed, Path, Tree};
use crate::store_error::StoreResult;

/// The size of the number of a child, in bytes.
const CHILD_BYTES: usize = 8;

impl Tree {
    /// Splits a dirty node. `path` leads to the parent of the node, and has dirty nodes only. If the parent
    /// has no room for another child, it is split instead, and the caller tries again.
    ///
    /// Errors: the region is full.
    pub(super) fn split<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        path: Path,
        id: NodeId,
        cut: Cut,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let node = Node::read(nodes, id)?;
        let copy = NodeCopy::read(nodes, &node, buf)?;
        let at = match cut {
            Cut::Middle => copy.middle(),
            Cut::Last => node.count.saturating_sub(1),
        };
        let separator = copy.key(at)?.to_vec();
        let Some(parent) = self.parent_with_room(nodes, path, id, separator.len(), buf)? else {
            return Ok(());
        };
        let right = nodes.new_node(self.owner)?;
        let copy = NodeCopy::read(nodes, &node, buf)?;
        copy.write(nodes, right, at..node.count)?;
        copy.write(nodes, id, 0..at)?;
        add_child(nodes, parent, &separator, right, buf)
    }

    /// Adds an empty leaf after all others, for keys from `key` on. A full parent is split instead, as in
    /// [`Tree::split`].
    pub(super) fn append_leaf<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        path: Path,
        last: NodeId,
        key: &[u8],
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let Some(parent) = self.parent_with_room(nodes, path, last, key.len(), buf)? else { return Ok(()) };
        let right = nodes.new_node(self.owner)?;
        Node::clear(nodes, right, true)?;
        add_child(nodes, parent, key, right, buf)
    }

    /// Returns the parent of a node, which has room for another child. If the node is the root, it gets a new
    /// parent. Returns `None` if the parent had no room and was split. Then the caller tries again.
    fn parent_with_room<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        mut path: Path,
        id: NodeId,
        key_bytes: usize,
        buf: &mut Vec<u8>,
    ) -> StoreResult<Option<Passed>> {
        let is_end = path.is_end();
        let Some(parent) = path.pop() else {
            let root = nodes.new_node(self.owner)?;
            let mut node = Node::clear(nodes, root, false)?;
            node.insert(nodes, 0, NewEntry { key: &[], value: &id.0.to_le_bytes() }, buf)?;
            self.root = root;
            return Ok(Some(Passed { id: root, entry: 0, is_last: true }));
        };
        if Node::read(nodes, parent.id)?.room() >= entry_bytes(key_bytes, CHILD_BYTES) {
            return Ok(Some(parent));
        }
        let cut = if is_end { Cut::Last } else { Cut::Middle };
        self.split(nodes, path, parent.id, cut, buf)?;
        Ok(None)
    }
}

/// Adds a child after the child that the path leads to.
fn add_child<N: NodeStore>(
    nodes: &mut N,
    parent: Passed,
    key: &[u8],
    child: NodeId,
    buf: &mut Vec<u8>,
) -> StoreResult<()> {
    let mut node = Node::read(nodes, parent.id)?;
    let value = child.0.to_le_bytes();
    node.insert(nodes, parent.entry + 1, NewEntry { key, value: &value }, buf)
}
