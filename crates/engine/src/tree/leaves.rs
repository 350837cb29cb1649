//! Lists the leaves of a tree from its inner nodes, without reading a leaf.
//!
//! Invariants
//! 1. The listed leaves are neighbours: the upper fence of a leaf is the lower fence of the next one. (The
//!    fences of a leaf are the bounds of the keys that belong in it.) So together the leaves have all keys
//!    between the first fence and the last one.
//! 2. A leaf is listed with the fences that its parent gives it. The list is made from one parent after the
//!    other, so a leaf may have been split or merged since.
//! 3. A list that continues another one begins exactly where that one ended. If leaves were merged between
//!    the two lists, the first leaf may have lower keys. Then its listed fences are not those of the leaf.
//!
//! This module does not know what the list is for.

use varve_pager::{Access, PageId, Pager};

use super::descend::ChildChoice;
use super::{Tree, TreeResult};
use crate::node::NodeRef;

/// Leaves of a tree in key order, with their fences.
#[derive(Debug, Default)]
pub struct LeafList {
    pages: Vec<PageId>,
    /// The lower fences of all leaves, one after the other.
    fences: Vec<u8>,
    /// The end of each lower fence in `fences`.
    ends: Vec<usize>,
    /// The upper fence of the last leaf, or `None` if it has none.
    next: Option<Vec<u8>>,
}

impl LeafList {
    /// Returns the leaves.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Returns the lowest key that a leaf may have.
    pub fn lower_fence(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.fences[start..self.ends[index]]
    }

    /// Returns the first key after those of a leaf, or `None` if there is no limit.
    pub fn upper_fence(&self, index: usize) -> Option<&[u8]> {
        if index + 1 < self.pages.len() { Some(self.lower_fence(index + 1)) } else { self.next.as_deref() }
    }

    /// Returns the first key after those of all listed leaves, or `None` if the last one is the tree's last
    /// leaf.
    pub fn next(&self) -> Option<&[u8]> {
        self.next.as_deref()
    }

    fn push(&mut self, page: PageId, lower_fence: &[u8]) {
        self.pages.push(page);
        self.fences.extend_from_slice(lower_fence);
        self.ends.push(self.fences.len());
    }
}

impl Tree {
    /// Lists up to `leaves_max` leaves, at least one. `from` is empty, or `next` of an earlier list.
    pub fn leaves(&self, pager: &Pager, from: &[u8], leaves_max: usize) -> TreeResult<LeafList> {
        let mut list = LeafList::default();
        let mut from = from.to_vec();
        loop {
            let page = self.latch_s(pager, ChildChoice::Key(&from), 1, Access::Random)?;
            let node = NodeRef::new(&page);
            if node.is_leaf() {
                // This leaf is the root, so no leaf comes after it.
                list.push(page.id(), &from);
                list.next = None;
                return Ok(list);
            }
            let first = node.child_for(&from);
            let last = node.len().min(first + leaves_max.max(1) - list.pages.len().min(leaves_max) - 1);
            for index in first..=last {
                let page = self.page_id(node.child(index));
                match index == first {
                    true => list.push(page, &from),
                    false => list.push(page, &node.key(index - 1)),
                }
            }
            list.next = match last < node.len() {
                true => Some(node.key(last)),
                false => node.upper_fence().map(<[u8]>::to_vec),
            };
            match &list.next {
                Some(next) if list.pages.len() < leaves_max => from.clone_from(next),
                _ => return Ok(list),
            }
        }
    }
}
