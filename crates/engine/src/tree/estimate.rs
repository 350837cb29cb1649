//! Estimates the number of entries in a tree and in a range of keys, and finds keys that are spread evenly
//! over its leaves.
//!
//! Invariants
//! 1. No latch is held while a page is read. So a path may lead to a page that is no longer a node of the
//!    tree. Such a path is left out.
//!
//! The estimate is Knuth's: the product of the numbers of children along a path, averaged over paths (Knuth,
//! "Estimating the efficiency of backtrack programs", 1975). It is exact for a tree of one leaf.
//!
//! This module does not know which entries are visible. Delete-marked entries count.

use varve_pager::{Access, PageId, Pager};

use super::{Tree, TreeResult};
use crate::node::NodeRef;

/// The result of an estimate along some paths of a tree.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// The number of entries in the tree.
    pub entries: u64,
    /// The number of leaves, which are pages. It is 0 if the table is not stored in pages.
    pub leaves: u64,
    /// The lower fences of leaves that are spread evenly over the tree, in ascending order. The lower fence
    /// of the leftmost leaf is empty.
    pub places: Vec<Vec<u8>>,
}

impl Estimate {
    /// Adds a place if it is above the last one. The paths hold no common latch, so nodes can split between
    /// two of them. Then a later path can lead to a lower leaf. Ranges between places that do not ascend
    /// would overlap.
    fn add(&mut self, place: Vec<u8>) {
        if self.places.last().is_none_or(|last| *last < place) {
            self.places.push(place);
        }
    }
}

/// The end of a path from the root to a leaf.
struct Followed {
    /// The product of the numbers of children on the path: an estimate of the number of leaves.
    leaves: f64,
    /// `leaves` times the number of entries in this leaf: an estimate of the number of entries.
    entries: f64,
    /// The lower fence of the leaf.
    place: Vec<u8>,
}

impl Tree {
    /// Estimates the numbers of entries and leaves along up to `paths` paths to leaves.
    pub fn estimate(&self, pager: &Pager, paths: usize) -> TreeResult<Estimate> {
        let mut out = Estimate::default();
        let (mut entries, mut leaves, mut followed) = (0.0, 0.0, 0u32);
        for n in 0..paths {
            let mut fraction = (n as f64 + 0.5) / paths as f64;
            let found = self.follow(pager, |node| {
                let children = node.len() + 1;
                let at = ((fraction * children as f64) as usize).min(node.len());
                fraction = fraction * children as f64 - at as f64;
                at
            })?;
            let Some(found) = found else { continue };
            entries += found.entries;
            leaves += found.leaves;
            followed += 1;
            out.add(found.place);
        }
        if followed > 0 {
            out.entries = (entries / f64::from(followed)) as u64;
            out.leaves = (leaves / f64::from(followed)) as u64;
        }
        Ok(out)
    }

    /// Estimates the fraction of the tree's entries with keys below `key`. `None` means that the tree changed
    /// in the meantime.
    pub fn fraction_below(&self, pager: &Pager, key: &[u8]) -> TreeResult<Option<f64>> {
        let (mut below, mut width) = (0.0, 1.0);
        let followed = self.follow(pager, |node| {
            let found = node.search(key);
            let parts = if node.is_leaf() { node.len() } else { node.len() + 1 };
            let at = found.slot + usize::from(found.exact && !node.is_leaf());
            width /= parts.max(1) as f64;
            below += at as f64 * width;
            at
        })?;
        Ok(followed.map(|_| below))
    }

    /// Follows a path to a leaf. `choose` returns the child to go to, as an index from 0 to the node's
    /// length. It is also called for the leaf, where its result does not matter. `None` means that the tree
    /// changed in the meantime.
    fn follow(
        &self,
        pager: &Pager,
        mut choose: impl FnMut(&NodeRef<'_>) -> usize,
    ) -> TreeResult<Option<Followed>> {
        let mut leaves = 1.0;
        let mut page = pager.fix_s(self.root, Access::Random)?;
        let mut level = self.node_level(&page, self.root)?;
        loop {
            let node = NodeRef::new(&page);
            let at = choose(&node);
            if node.is_leaf() {
                let (entries, place) = (leaves * node.len() as f64, node.lower_fence().to_vec());
                return Ok(Some(Followed { leaves, entries, place }));
            }
            leaves *= (node.len() + 1) as f64;
            let child: PageId = self.page_id(node.child(at));
            drop(page);
            let Ok(next) = pager.fix_s(child, Access::Random) else { return Ok(None) };
            level -= 1;
            if self.node_level(&next, child).ok() != Some(level) {
                return Ok(None);
            }
            page = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    #[test]
    fn places_ascend_even_if_nodes_split_between_two_paths() {
        let mut estimate = Estimate::default();
        for place in ["", "b", "d", "c", "d", "e"] {
            estimate.add(place.into());
        }
        assert_eq!(estimate.places, ["", "b", "d", "e"].map(Vec::from));
    }
}
