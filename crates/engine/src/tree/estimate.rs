//! Estimates the number of entries in a tree, and finds keys that are spread evenly over its leaves.
//!
//! Invariants
//! 1. No latch is held while a page is read. So a path may lead to a page that is no longer a node of the
//!    tree. Such a path is left out.
//!
//! The estimate is Knuth's: the product of the numbers of children along a path, averaged over paths (Knuth,
//! "Estimating the efficiency of backtrack programs", 1975). It is exact for a tree of one leaf.
//!
//! This module knows nothing about visibility. Delete-marked entries count.

use varve_pager::{Access, PageId, Pager};

use super::{Tree, TreeResult};
use crate::node::NodeRef;

/// The result of an estimate along some paths of a tree.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// The number of entries in the tree.
    pub entries: u64,
    /// The lower fences of leaves that are spread evenly over the tree, ascending. That of the leftmost leaf
    /// is empty.
    pub places: Vec<Vec<u8>>,
}

impl Tree {
    /// Estimates the number of entries along up to `paths` paths to leaves.
    pub fn estimate(&self, pager: &Pager, paths: usize) -> TreeResult<Estimate> {
        let mut out = Estimate::default();
        let (mut sum, mut followed) = (0.0, 0u32);
        for n in 0..paths {
            let fraction = (n as f64 + 0.5) / paths as f64;
            let Some((entries, place)) = self.follow(pager, fraction)? else { continue };
            sum += entries;
            followed += 1;
            if out.places.last() != Some(&place) {
                out.places.push(place);
            }
        }
        out.entries = if followed == 0 { 0 } else { (sum / f64::from(followed)) as u64 };
        Ok(out)
    }

    /// Follows the path to the leaf at this fraction of the tree. `None` means that the tree changed in the
    /// meantime.
    fn follow(&self, pager: &Pager, mut fraction: f64) -> TreeResult<Option<(f64, Vec<u8>)>> {
        let mut product = 1.0;
        let mut page = pager.fix_s(self.root, Access::Random)?;
        let mut level = self.node_level(&page, self.root)?;
        loop {
            let node = NodeRef::new(&page);
            if node.is_leaf() {
                return Ok(Some((product * node.len() as f64, node.lower_fence().to_vec())));
            }
            let children = node.len() + 1;
            let at = ((fraction * children as f64) as usize).min(node.len());
            fraction = fraction * children as f64 - at as f64;
            product *= children as f64;
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
