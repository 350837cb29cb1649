//! One tree: paths from its root to a leaf, and changes of its entries.
//!
//! Invariants
//! 1. The path of a change has dirty nodes only. The copy of a node is linked to its dirty parent at once. So
//!    a change that is refused halfway leaves a whole tree with the same entries.
//! 2. Removing an entry frees no node, and moves no other entry. So the bytes of the entry stay free in its
//!    leaf, and a rollback can put the entry back.
//!
//! This module does not know other trees or transactions.

use super::node::{NewEntry, Node, Position, entry_bytes};
use super::nodes::{NodeId, NodeStore};
use crate::pointer::Owner;
use crate::store_error::{StoreError, StoreResult};

/// A number of levels that no tree reaches. An inner node has at least two children, except after many
/// deletions.
const LEVELS_MAX: usize = 40;

/// A tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    pub(super) root: NodeId,
    pub(super) owner: Owner,
}

/// A node on a path, and the entry whose child is the next node of the path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    pub(super) id: NodeId,
    pub(super) entry: usize,
    /// Whether this is the last entry of the node.
    pub(super) is_last: bool,
}

/// The path from the root to the parent of a leaf.
pub(super) struct Path {
    nodes: [Passed; LEVELS_MAX],
    len: usize,
}

impl Path {
    fn empty() -> Path {
        Path { nodes: [Passed::default(); LEVELS_MAX], len: 0 }
    }

    fn push(&mut self, passed: Passed) -> StoreResult<()> {
        let slot = self.nodes.get_mut(self.len);
        *slot.ok_or(StoreError::Damaged { what: "a tree, which is too deep", at: passed.id.pointer() })? =
            passed;
        self.len += 1;
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<Passed> {
        self.len = self.len.checked_sub(1)?;
        self.nodes.get(self.len).copied()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.passed().iter().map(|passed| passed.id)
    }

    /// Returns whether the path leads to the last leaf of the tree.
    pub(super) fn is_end(&self) -> bool {
        self.passed().iter().all(|passed| passed.is_last)
    }

    fn passed(&self) -> &[Passed] {
        self.nodes.get(..self.len).unwrap_or_default()
    }
}

/// Where a node is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Both parts have about the same number of bytes.
    Middle,
    /// The right part has one entry, because the tree grows at its end.
    Last,
}

/// The result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// Nothing was there, because the tree does not have the key.
    Nothing,
    /// An entry, whose leaf has enough others.
    LeavesEnough,
    /// An entry, whose leaf should be merged with a neighbour, or freed.
    LeavesSparse,
}

/// A leaf that a key belongs to.
pub(super) struct LeafOfKey<P> {
    pub(super) path: Path,
    pub(super) leaf: Node<P>,
    pub(super) position: Position,
}

impl Tree {
    /// Copies the value of a key. Returns `false` if the tree does not have the key.
    pub(super) fn find<N: NodeStore>(&self, nodes: &N, key: &[u8], value: &mut Vec<u8>) -> StoreResult<bool> {
        if self.root.is_none() {
            return Ok(false);
        }
        let mut node = Node::read(nodes, self.root)?;
        for _ in 0..LEVELS_MAX {
            if node.is_leaf {
                let Position { entry, is_there } = node.search(nodes, key)?;
                if is_there {
                    node.value(nodes, &node.entry(nodes, entry)?, value)?;
                }
                return Ok(is_there);
            }
            let child = node.child(nodes, node.child_of(nodes, key)?)?;
            node = Node::read(nodes, child)?;
        }
        Err(StoreError::Damaged { what: "a tree, which is too deep", at: self.root.pointer() })
    }

    /// Returns the path to the leaf of a key, or `None` in an empty tree. No node is copied.
    pub(super) fn path<N: NodeStore>(
        &self,
        nodes: &N,
        key: &[u8],
    ) -> StoreResult<Option<LeafOfKey<N::Place>>> {
        if self.root.is_none() {
            return Ok(None);
        }
        let (mut path, mut at) = (Path::empty(), self.root);
        loop {
            let leaf = Node::read(nodes, at)?;
            if leaf.is_leaf {
                let position = leaf.search(nodes, key)?;
                return Ok(Some(LeafOfKey { path, leaf, position }));
            }
            let entry = leaf.child_of(nodes, key)?;
            path.push(Passed { id: at, entry, is_last: entry + 1 == leaf.count })?;
            at = leaf.child(nodes, entry)?;
        }
    }

    /// Does the same as [`Tree::path`], but copies the nodes of the path that are not dirty. An empty tree
    /// gets a leaf.
    ///
    /// Errors: the region is full.
    pub(super) fn dirty_path<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        key: &[u8],
        buf: &mut Vec<u8>,
    ) -> StoreResult<LeafOfKey<N::Place>> {
        if self.root.is_none() {
            let root = nodes.new_node(self.owner)?;
            Node::clear(nodes, root, true)?;
            self.root = root;
        }
        let (mut path, mut at) = (Path::empty(), self.root);
        loop {
            if !nodes.is_dirty(at) {
                at = self.copy(nodes, at, &path, buf)?;
            }
            let leaf = Node::read(nodes, at)?;
            if leaf.is_leaf {
                let position = leaf.search(nodes, key)?;
                return Ok(LeafOfKey { path, leaf, position });
            }
            let entry = leaf.child_of(nodes, key)?;
            path.push(Passed { id: at, entry, is_last: entry + 1 == leaf.count })?;
            at = leaf.child(nodes, entry)?;
        }
    }

    /// Copies a node, and links the copy to the parent instead of the node.
    fn copy<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        old: NodeId,
        path: &Path,
        buf: &mut Vec<u8>,
    ) -> StoreResult<NodeId> {
        let new = nodes.new_node(self.owner)?;
        Node::read(nodes, old)?.copy_into(nodes, new, buf)?;
        match path.passed().last() {
            None => self.root = new,
            Some(parent) => {
                let node = Node::read(nodes, parent.id)?;
                node.patch(nodes, &node.entry(nodes, parent.entry)?, 0, &new.0.to_le_bytes())?;
            }
        }
        nodes.retire(old, self.owner)?;
        Ok(new)
    }

    /// Adds an entry whose key the tree does not have.
    ///
    /// Errors: the region is full.
    pub(super) fn insert<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        entry: NewEntry<'_>,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        loop {
            let LeafOfKey { path, mut leaf, position } = self.dirty_path(nodes, entry.key, buf)?;
            if position.is_there {
                let at = leaf.id.pointer();
                return Err(StoreError::Damaged { what: "a tree, which has a key already", at });
            }
            if leaf.room() >= entry_bytes(entry.key.len(), entry.value.len()) {
                return leaf.insert(nodes, position.entry, entry, buf);
            }
            match position.entry == leaf.count && path.is_end() {
                true => self.append_leaf(nodes, path, leaf.id, entry.key, buf)?,
                false => self.split(nodes, path, leaf.id, Cut::Middle, buf)?,
            }
        }
    }

    /// Returns the leaf of a key that the tree has. The leaf is dirty after the call.
    pub(super) fn dirty_leaf<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        key: &[u8],
        buf: &mut Vec<u8>,
    ) -> StoreResult<LeafOfKey<N::Place>> {
        let found = self.dirty_path(nodes, key, buf)?;
        let damaged = StoreError::Damaged { what: "a tree, which lacks a key", at: found.leaf.id.pointer() };
        if found.position.is_there { Ok(found) } else { Err(damaged) }
    }

    /// Removes the entry of a key, and copies its value into `before`.
    ///
    /// Errors: the region is full.
    pub(super) fn remove<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        key: &[u8],
        before: &mut Vec<u8>,
        buf: &mut Vec<u8>,
    ) -> StoreResult<Removed> {
        if self.root.is_none() {
            return Ok(Removed::Nothing);
        }
        let LeafOfKey { mut leaf, position, .. } = self.dirty_path(nodes, key, buf)?;
        if !position.is_there {
            return Ok(Removed::Nothing);
        }
        let old = leaf.entry(nodes, position.entry)?;
        leaf.value(nodes, &old, before)?;
        leaf.remove(nodes, position.entry, buf)?;
        Ok(if leaf.is_sparse() { Removed::LeavesSparse } else { Removed::LeavesEnough })
    }

    /// Gives a key another value, and copies the old value into `before`. Returns `false` if the tree does
    /// not have the key.
    ///
    /// Errors: the region is full.
    pub(super) fn set<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        new: NewEntry<'_>,
        before: &mut Vec<u8>,
        buf: &mut Vec<u8>,
    ) -> StoreResult<bool> {
        if self.root.is_none() {
            return Ok(false);
        }
        loop {
            let LeafOfKey { path, mut leaf, position } = self.dirty_path(nodes, new.key, buf)?;
            if !position.is_there {
                return Ok(false);
            }
            let old = leaf.entry(nodes, position.entry)?;
            leaf.value(nodes, &old, before)?;
            if old.value_bytes == new.value.len() {
                return leaf.patch(nodes, &old, 0, new.value).map(|()| true);
            }
            if leaf.room() + old.value_bytes >= new.value.len() {
                leaf.remove(nodes, position.entry, buf)?;
                return leaf.insert(nodes, position.entry, new, buf).map(|()| true);
            }
            self.split(nodes, path, leaf.id, Cut::Middle, buf)?;
        }
    }

    /// Changes bytes of the value of a key that the tree has.
    ///
    /// Errors: the region is full.
    pub(super) fn patch<N: NodeStore>(
        &mut self,
        nodes: &mut N,
        key: &[u8],
        at: usize,
        bytes: &[u8],
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let LeafOfKey { leaf, position, .. } = self.dirty_leaf(nodes, key, buf)?;
        leaf.patch(nodes, &leaf.entry(nodes, position.entry)?, at, bytes)
    }

    /// Calls `on_node` with all nodes, a parent before its children.
    pub(super) fn each_node<N: NodeStore>(
        &self,
        nodes: &N,
        on_node: &mut dyn FnMut(NodeId) -> StoreResult<()>,
    ) -> StoreResult<()> {
        if self.root.is_none() { Ok(()) } else { each_below(nodes, self.root, LEVELS_MAX, on_node) }
    }
}

fn each_below<N: NodeStore>(
    nodes: &N,
    id: NodeId,
    levels: usize,
    on_node: &mut dyn FnMut(NodeId) -> StoreResult<()>,
) -> StoreResult<()> {
    on_node(id)?;
    let count = match Node::read(nodes, id)? {
        node if node.is_leaf => 0,
        node => node.count,
    };
    let Some(levels) = levels.checked_sub(1) else {
        return Err(StoreError::Damaged { what: "a tree, which is too deep", at: id.pointer() });
    };
    for entry in 0..count {
        let child = Node::read(nodes, id)?.child(nodes, entry)?;
        each_below(nodes, child, levels, on_node)?;
    }
    Ok(())
}
