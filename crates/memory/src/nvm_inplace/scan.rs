//! Scans of an index, in both directions.
//!
//! Nodes have no links to their neighbours. A scan begins at the root, and visits the children of each node
//! in the order of their keys.
//!
//! Invariants
//! 1. The index does not change during a scan, because a scan borrows the store.
//!
//! This module does not know what is done with the rows.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use super::index::{CYCLE, Index, LEVELS_MAX, SearchKey, TOO_MANY_LEVELS};
use super::node::{NODE_BYTES, Node};
use crate::pointer::Pointer;
use crate::space::Space;
use crate::store::{Direction, KeyRange};
use crate::store_error::{StoreError, StoreResult};

/// The function that a scan calls with each tuple. It can end the scan.
type OnTuple<'f> = dyn FnMut(Pointer) -> StoreResult<ControlFlow<()>> + 'f;

/// A scan of one index.
pub(super) struct IndexScan<'s> {
    space: &'s Space,
    index: &'s Index,
    from: Bound<SearchKey<'s>>,
    to: Bound<SearchKey<'s>>,
    direction: Direction,
    /// The number of nodes that the scan may still visit. If a scan needs more, the nodes lead in a circle.
    nodes_left: u64,
}

impl<'s> IndexScan<'s> {
    pub(super) fn new(
        space: &'s Space,
        index: &'s Index,
        range: &'s KeyRange<'s>,
        direction: Direction,
    ) -> IndexScan<'s> {
        let (from, to) = (range.from.map(SearchKey::of), range.to.map(SearchKey::of));
        IndexScan { space, index, from, to, direction, nodes_left: space.chunks_max(NODE_BYTES as u64) }
    }

    /// Calls `on_tuple` with the tuples of the range.
    pub(super) fn run(&mut self, on_tuple: &mut OnTuple<'_>) -> StoreResult<()> {
        self.visit(self.index.root(self.space), 0, on_tuple).map(|_| ())
    }

    fn visit(
        &mut self,
        at: Pointer,
        level: usize,
        on_tuple: &mut OnTuple<'_>,
    ) -> StoreResult<ControlFlow<()>> {
        if level == LEVELS_MAX {
            return Err(StoreError::Damaged { what: TOO_MANY_LEVELS, at });
        }
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(StoreError::Damaged { what: CYCLE, at })?;
        let node = Node::read(self.space, at)?;
        let sorted = self.index.sorted(self.space, &node, node.slots())?;
        let slots = sorted.as_slice();
        for step in 0..slots.len() {
            let place = match self.direction {
                Direction::Forward => step,
                Direction::Backward => slots.len() - 1 - step,
            };
            let slot_at = |place: usize| slots.get(place).map(|slot| usize::from(*slot));
            let Some(slot) = slot_at(place) else { break };
            let flow = match node.is_leaf() {
                true if self.has(&node, slot)? => on_tuple(node.pointer(slot))?,
                false if self.overlaps(&node, slot, slot_at(place + 1))? => {
                    self.visit(node.pointer(slot), level + 1, on_tuple)?
                }
                _ => ControlFlow::Continue(()),
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn compare(&self, node: &Node, slot: usize, key: &SearchKey<'_>) -> StoreResult<Ordering> {
        self.index.compare(self.space, node, slot, key)
    }

    /// Returns whether the key of a leaf's entry is within the range.
    fn has(&self, node: &Node, slot: usize) -> StoreResult<bool> {
        let is_behind = match &self.from {
            Bound::Included(from) => self.compare(node, slot, from)?.is_ge(),
            Bound::Excluded(from) => self.compare(node, slot, from)?.is_gt(),
            Bound::Unbounded => true,
        };
        let is_before = match &self.to {
            Bound::Included(to) => self.compare(node, slot, to)?.is_le(),
            Bound::Excluded(to) => self.compare(node, slot, to)?.is_lt(),
            Bound::Unbounded => true,
        };
        Ok(is_behind && is_before)
    }

    /// Returns whether keys between an entry of an inner node and the next one can be within the range.
    fn overlaps(&self, node: &Node, slot: usize, next: Option<usize>) -> StoreResult<bool> {
        let begins = match &self.to {
            Bound::Included(to) | Bound::Excluded(to) => self.compare(node, slot, to)?.is_le(),
            Bound::Unbounded => true,
        };
        let ends = match (&self.from, next) {
            (Bound::Included(from) | Bound::Excluded(from), Some(next)) => {
                self.compare(node, next, from)?.is_gt()
            }
            _ => true,
        };
        Ok(begins && ends)
    }
}
