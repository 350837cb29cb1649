//! A volatile B+tree: an index of a table of this engine (the STX B+tree of the paper). A crash loses it.
//!
//! Invariants
//! 1. An insert that is refused has changed nothing: chunks for all splits are reserved first.
//! 2. Removing an entry frees no node. So a rollback finds room for the entry that it puts back. Nodes
//!    without entries are freed after the end of the transaction ([`Tree::remove_if_empty`]).
//! 3. An inner node has at least one entry.
//!
//! This module does not know rows or the log.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use super::node::{ENTRIES, Entry, NODE_BYTES, Node, TreeKey, compare, new_separator};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store::{Direction, KeyRange};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::TupleHead;

/// An index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    /// The number of the index in its table, which is also the number of its key in a tuple.
    number: usize,
    owner: Owner,
    root: Pointer,
}

/// A node on the path from the root to a leaf.
#[derive(Debug, Clone, Copy, Default)]
struct PathNode {
    at: Pointer,
    /// In an inner node, the entry whose child is next on the path. In a leaf, the first entry whose key is
    /// not smaller than the search key.
    entry: usize,
    is_full: bool,
}

/// The number of levels of the deepest tree that is accepted. A tree gets a level only when its root is full.
/// So a tree with more levels must be damaged.
const LEVELS_MAX: usize = 40;

/// The path from the root to a leaf.
struct Path {
    nodes: [PathNode; LEVELS_MAX],
    len: usize,
    leaf: Node,
}

impl Path {
    fn push(&mut self, node: PathNode) -> StoreResult<()> {
        let slot = self.nodes.get_mut(self.len);
        *slot.ok_or(StoreError::Damaged { what: "a tree, which is too deep", at: node.at })? = node;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<PathNode> {
        self.len = self.len.checked_sub(1)?;
        self.nodes.get(self.len).copied()
    }

    fn nodes(&self) -> &[PathNode] {
        self.nodes.get(..self.len).unwrap_or_default()
    }
}

/// Chunks for the splits of an insert.
struct SplitChunks {
    nodes: Vec<Pointer>,
    separator: Pointer,
}

/// The two halves of a node.
struct Split {
    left: Node,
    right: Node,
}

/// Cuts a full node in two halves, and adds an entry to one of them. If the new entry is greater than all
/// others, it is alone in the right half. So inserts in the order of the keys leave full nodes.
fn split(node: &Node, number: usize, added: Entry) -> Split {
    if number >= node.count() {
        return Split { left: *node, right: Node::new(node.is_leaf(), &[added]) };
    }
    let (mut left, mut right) = (node.part(0..ENTRIES / 2), node.part(ENTRIES / 2..node.count()));
    // An entry between the halves goes to the left one, because it is smaller than the first entry of the
    // right half.
    match number.checked_sub(left.count()).filter(|behind| *behind > 0) {
        Some(behind) => right.insert(behind, added),
        None => left.insert(number, added),
    }
    Split { left, right }
}

/// The function that a scan calls with each tuple. It can end the scan.
pub(super) type OnTuple<'f> = dyn FnMut(Pointer) -> StoreResult<ControlFlow<()>> + 'f;

fn new_node(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    Ok(space.allocator().allocate(owner, NODE_BYTES as u64)?)
}

impl Tree {
    /// Makes an empty index.
    pub(super) fn create(space: &Space, owner: Owner, number: usize) -> StoreResult<Tree> {
        let root = new_node(space, owner)?;
        Node::new(true, &[]).write(space, root)?;
        Ok(Tree { number, owner, root })
    }

    /// Frees a new index whose table could not be made.
    pub(super) fn give_up(&self, space: &Space) {
        let _reserved_until_start = space.give_up(self.root);
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Returns the entry of an inner node whose child is the one for a key.
    fn child_of(&self, space: &Space, node: &Node, key: &TreeKey<'_>) -> StoreResult<usize> {
        // The first entry has no key. Only entries with the same prefix need a comparison of whole keys.
        let mut next = node.first_from(1, key.prefix);
        while next < node.count()
            && compare(space, self.number, node, &node.entry(next), key)? != Ordering::Greater
        {
            next += 1;
        }
        Ok(next - 1)
    }

    /// Returns the first entry of a leaf whose key is not smaller than `key`, and whether its key is equal.
    fn position(&self, space: &Space, leaf: &Node, key: &TreeKey<'_>) -> StoreResult<(usize, bool)> {
        for number in leaf.first_from(0, key.prefix)..leaf.count() {
            match compare(space, self.number, leaf, &leaf.entry(number), key)? {
                Ordering::Less => {}
                order => return Ok((number, order == Ordering::Equal)),
            }
        }
        Ok((leaf.count(), false))
    }

    fn path(&self, space: &Space, key: &TreeKey<'_>) -> StoreResult<Path> {
        let mut path = Path { nodes: [PathNode::default(); LEVELS_MAX], len: 0, leaf: Node::new(true, &[]) };
        let mut at = self.root;
        loop {
            let node = Node::read(space, at)?;
            let (is_leaf, is_full) = (node.is_leaf(), node.is_full());
            let entry = match is_leaf {
                true => self.position(space, &node, key)?.0,
                false => self.child_of(space, &node, key)?,
            };
            path.push(PathNode { at, entry, is_full })?;
            if is_leaf {
                path.leaf = node;
                return Ok(path);
            }
            at = node.entry(entry).child;
        }
    }

    /// Returns the tuple with a key.
    pub(super) fn find(&self, space: &Space, key: &[u8]) -> StoreResult<Option<Pointer>> {
        let key = TreeKey::of(key);
        let mut node = Node::read(space, self.root)?;
        while !node.is_leaf() {
            let child = self.child_of(space, &node, &key)?;
            node = Node::read(space, node.entry(child).child)?;
        }
        let (entry, is_there) = self.position(space, &node, &key)?;
        Ok(is_there.then(|| node.entry(entry).child))
    }

    /// Adds a tuple under a key that the index does not have. Errors: the region is full.
    pub(super) fn insert(&mut self, space: &Space, key: &[u8], tuple: Pointer) -> StoreResult<()> {
        let key = TreeKey::of(key);
        let mut path = self.path(space, &key)?;
        let mut chunks = self.reserve(space, &path, &key)?;
        let mut added = Entry { prefix: key.prefix, separator: Pointer::NONE, child: tuple };
        let mut leaf = Some(path.leaf);
        while let Some(PathNode { at, entry, .. }) = path.pop() {
            let mut node = leaf.take().map_or_else(|| Node::read(space, at), Ok)?;
            // The new child of an inner node comes after the child that was split.
            let number = if node.is_leaf() { entry } else { entry + 1 };
            if !node.is_full() {
                node.insert(number, added);
                return node.write(space, at);
            }
            let Some(right_at) = chunks.nodes.pop() else { break };
            let Split { left, mut right } = split(&node, number, added);
            let first = right.entry(0);
            let separator = if node.is_leaf() { chunks.separator } else { first.separator };
            if !node.is_leaf() {
                right.set(0, Entry { prefix: 0, separator: Pointer::NONE, child: first.child });
            }
            right.write(space, right_at)?;
            left.write(space, at)?;
            added = Entry { prefix: first.prefix, separator, child: right_at };
            if path.nodes().is_empty() {
                let Some(root) = chunks.nodes.pop() else { break };
                let left = Entry { prefix: 0, separator: Pointer::NONE, child: at };
                Node::new(false, &[left, added]).write(space, root)?;
                self.root = root;
            }
        }
        Ok(())
    }

    /// Reserves the chunks that an insert along this path needs for its splits.
    fn reserve(&self, space: &Space, path: &Path, key: &TreeKey<'_>) -> StoreResult<SplitChunks> {
        let full = path.nodes().iter().rev().take_while(|on_path| on_path.is_full).count();
        let mut chunks = SplitChunks { nodes: Vec::new(), separator: Pointer::NONE };
        let count = if full == path.len { full + 1 } else { full };
        let Some(last) = path.nodes().last().filter(|_| full > 0) else { return Ok(chunks) };
        let reserved = (0..count).try_for_each(|_| {
            chunks.nodes.push(new_node(space, self.owner)?);
            Ok(())
        });
        match reserved.and_then(|()| self.separator(space, &path.leaf, last.entry, key)) {
            Ok(separator) => {
                chunks.separator = separator;
                Ok(chunks)
            }
            Err(error) => {
                chunks.nodes.iter().for_each(|node| space.give_up_after_error(*node));
                Err(error)
            }
        }
    }

    /// Returns a chunk with the separator between the two halves of a full leaf. Returns `None` if the first
    /// 8 bytes of the keys are enough to separate the halves.
    fn separator(
        &self,
        space: &Space,
        leaf: &Node,
        number: usize,
        key: &TreeKey<'_>,
    ) -> StoreResult<Pointer> {
        let added = Entry { prefix: key.prefix, separator: Pointer::NONE, child: Pointer::NONE };
        let Split { left, right } = split(leaf, number, added);
        let (last, first) = (left.entry(left.count().saturating_sub(1)), right.entry(0));
        if last.prefix != first.prefix {
            return Ok(Pointer::NONE);
        }
        if first.child.is_none() {
            return new_separator(space, self.owner, key.bytes);
        }
        let mut key = Vec::new();
        TupleHead::read(space, first.child)?.key(space, first.child, self.number, &mut key)?;
        new_separator(space, self.owner, &key)
    }

    /// Removes the entry of a tuple. Returns whether its leaf has no entries left.
    pub(super) fn remove(&self, space: &Space, key: &[u8], tuple: Pointer) -> StoreResult<bool> {
        let mut path = self.path(space, &TreeKey::of(key))?;
        let mut leaf = path.leaf;
        match path.pop() {
            Some(PathNode { at, entry, .. }) if leaf.entry(entry).child == tuple => {
                leaf.remove(entry);
                leaf.write(space, at)?;
                Ok(leaf.count() == 0)
            }
            _ => Err(StoreError::Damaged { what: "an index, which lacks the entry of a tuple", at: tuple }),
        }
    }

    /// Changes the entry of a key, so that it leads to another tuple.
    pub(super) fn exchange(&self, space: &Space, key: &[u8], old: Pointer, new: Pointer) -> StoreResult<()> {
        let mut path = self.path(space, &TreeKey::of(key))?;
        let mut leaf = path.leaf;
        match path.pop() {
            Some(PathNode { at, entry, .. }) if leaf.entry(entry).child == old => {
                leaf.set(entry, Entry { child: new, ..leaf.entry(entry) });
                leaf.write(space, at)
            }
            _ => Err(StoreError::Damaged { what: "an index, which lacks the entry of a tuple", at: old }),
        }
    }

    /// Frees the leaf that a key belongs to if it has no entries, and then inner nodes that have no child
    /// left.
    pub(super) fn remove_if_empty(&mut self, space: &Space, key: &[u8]) -> StoreResult<()> {
        let mut path = self.path(space, &TreeKey::of(key))?;
        let mut node = path.leaf;
        while path.len > 1
            && node.count() == 0
            && let (Some(empty), Some(above)) = (path.pop(), path.nodes().last().copied())
        {
            space.give_up(empty.at)?;
            let mut parent = Node::read(space, above.at)?;
            let gone = parent.entry(above.entry);
            parent.remove(above.entry);
            if !gone.separator.is_none() {
                space.give_up(gone.separator)?;
            }
            let first = parent.entry(0);
            if !first.separator.is_none() {
                space.give_up(first.separator)?;
                parent.set(0, Entry { prefix: 0, separator: Pointer::NONE, child: first.child });
            }
            parent.write(space, above.at)?;
            node = parent;
        }
        self.lower_root(space)
    }

    /// Replaces a root that has one child by this child. Makes a root without children an empty leaf.
    fn lower_root(&mut self, space: &Space) -> StoreResult<()> {
        loop {
            let root = Node::read(space, self.root)?;
            match root.count() {
                0 if !root.is_leaf() => return Node::new(true, &[]).write(space, self.root),
                1 if !root.is_leaf() => {
                    space.give_up(self.root)?;
                    self.root = root.entry(0).child;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Calls `on_tuple` with the tuples of a range in the order of their keys.
    pub(super) fn scan(
        &self,
        space: &Space,
        range: &KeyRange<'_>,
        direction: Direction,
        on_tuple: &mut OnTuple<'_>,
    ) -> StoreResult<()> {
        self.scan_node(space, self.root, range, direction, on_tuple).map(drop)
    }

    fn scan_node(
        &self,
        space: &Space,
        at: Pointer,
        range: &KeyRange<'_>,
        direction: Direction,
        on_tuple: &mut OnTuple<'_>,
    ) -> StoreResult<ControlFlow<()>> {
        let node = Node::read(space, at)?;
        let (first, end) = (self.first(space, &node, range.from)?, self.end(space, &node, range.to)?);
        for step in 0..end.saturating_sub(first) {
            let number = match direction {
                Direction::Forward => first + step,
                Direction::Backward => end - 1 - step,
            };
            let child = node.entry(number).child;
            let flow = match node.is_leaf() {
                true => on_tuple(child)?,
                false => self.scan_node(space, child, range, direction, on_tuple)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the first entry of a node that can be in a range with this lower bound.
    fn first(&self, space: &Space, node: &Node, from: Bound<&[u8]>) -> StoreResult<usize> {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else { return Ok(0) };
        let key = TreeKey::of(key);
        if !node.is_leaf() {
            return self.child_of(space, node, &key);
        }
        let (number, is_there) = self.position(space, node, &key)?;
        Ok(if is_there && matches!(from, Bound::Excluded(_)) { number + 1 } else { number })
    }

    /// Returns the number of the entry after the last one of a node that can be in a range with this upper
    /// bound.
    fn end(&self, space: &Space, node: &Node, to: Bound<&[u8]>) -> StoreResult<usize> {
        let (Bound::Included(key) | Bound::Excluded(key)) = to else { return Ok(node.count()) };
        let key = TreeKey::of(key);
        if !node.is_leaf() {
            return Ok(self.child_of(space, node, &key)? + 1);
        }
        let (number, is_there) = self.position(space, node, &key)?;
        Ok(if is_there && matches!(to, Bound::Included(_)) { number + 1 } else { number })
    }
}
