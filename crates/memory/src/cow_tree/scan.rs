//! Scans ranges of keys.
//!
//! Invariants
//! 1. After each call of `on_entry` the node is located again. The call may read other nodes, and then the
//!    place of this node is not valid any more.
//!
//! This module does not know what values mean.

use std::ops::{Bound, ControlFlow};

use super::node::Node;
use super::nodes::{NodeId, NodeStore};
use super::tree::Tree;
use crate::store::{Direction, KeyRange};
use crate::store_error::StoreResult;

/// The function that a scan calls with each key and value. It can end the scan.
pub(crate) type OnEntry<'f> = dyn FnMut(&[u8], &[u8]) -> StoreResult<ControlFlow<()>> + 'f;

/// A scan of a tree.
pub(super) struct TreeScan<'s, N> {
    pub(super) nodes: &'s N,
    pub(super) range: &'s KeyRange<'s>,
    pub(super) direction: Direction,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl<N: NodeStore> TreeScan<'_, N> {
    /// Calls `on_entry` with the entries of the range, until it breaks.
    pub(super) fn run(&mut self, tree: &Tree, on_entry: &mut OnEntry<'_>) -> StoreResult<()> {
        if tree.root.is_none() { Ok(()) } else { self.visit(tree.root, on_entry).map(drop) }
    }

    fn visit(&mut self, id: NodeId, on_entry: &mut OnEntry<'_>) -> StoreResult<ControlFlow<()>> {
        let node = Node::read(self.nodes, id)?;
        let (first, end) = (self.first(&node)?, self.end(&node)?);
        for step in 0..end.saturating_sub(first) {
            let number = match self.direction {
                Direction::Forward => first + step,
                Direction::Backward => end - 1 - step,
            };
            let node = Node::read(self.nodes, id)?;
            let flow = match node.is_leaf {
                true => {
                    let entry = node.entry(self.nodes, number)?;
                    node.key(self.nodes, &entry, &mut self.key)?;
                    node.value(self.nodes, &entry, &mut self.value)?;
                    on_entry(&self.key, &self.value)?
                }
                false => self.visit(node.child(self.nodes, number)?, on_entry)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the first entry of a node that can be in the range.
    fn first(&self, node: &Node<N::Place>) -> StoreResult<usize> {
        let (Bound::Included(key) | Bound::Excluded(key)) = self.range.from else { return Ok(0) };
        if !node.is_leaf {
            return node.child_of(self.nodes, key);
        }
        let position = node.search(self.nodes, key)?;
        let is_out = position.is_there && matches!(self.range.from, Bound::Excluded(_));
        Ok(position.entry + usize::from(is_out))
    }

    /// Returns the number of the entry after the last one of a node that can be in the range.
    fn end(&self, node: &Node<N::Place>) -> StoreResult<usize> {
        let (Bound::Included(key) | Bound::Excluded(key)) = self.range.to else { return Ok(node.count) };
        if !node.is_leaf {
            return Ok(node.child_of(self.nodes, key)? + 1);
        }
        let position = node.search(self.nodes, key)?;
        let is_in = position.is_there && matches!(self.range.to, Bound::Included(_));
        Ok(position.entry + usize::from(is_in))
    }
}
