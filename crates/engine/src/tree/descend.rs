//! Descends from the root of a tree to a node.
//!
//! Invariants
//! 1. A child's latch is taken while the parent's latch is held. So the latched child is the right one.
//! 2. No latch is held while a page is read from a device. If a page is not in the pool, the descent releases
//!    its latches, reads the page, and begins again. After several failed attempts, it reads the page under
//!    the parent's latch. Otherwise a descent might never end while pages are evicted as fast as they are
//!    read.
//! 3. Every page on the way must be a node of this tree, one level below its parent. Any other page is
//!    reported as damage.
//!
//! This module does not know what the caller does with the node.

use varve_pager::{Access, H, Mtr, PageId, PageS, Pager, page};

use super::{Tree, TreeError, TreeResult};
use crate::node::{KIND_NODE, NodeRef};

/// The number of attempts to read an absent page without a latch.
const READS_UNLATCHED_MAX: u32 = 8;

/// The bytes of a leaf that are fetched into the cache while it is latched: the header and the slots of about
/// seventy rows.
const LEAF_AHEAD_BYTES: usize = 640;
/// The same as `LEAF_AHEAD_BYTES` for an inner node. Only the header is fetched, because the slots are
/// usually in the cache.
const NODE_AHEAD_BYTES: usize = 64;

/// The child of a node that a descent takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChildChoice<'k> {
    /// The child that may have this key.
    Key(&'k [u8]),
    /// The child that may have the largest key below this one.
    Below(&'k [u8]),
    /// The last child.
    Last,
}

impl ChildChoice<'_> {
    #[inline]
    pub(super) fn child_index(self, node: NodeRef<'_>) -> usize {
        match self {
            Self::Key(key) => node.child_for(key),
            Self::Below(key) => node.child_below(key),
            Self::Last => node.len(),
        }
    }
}

impl Tree {
    /// Latches the leaf shared. `access` says how the leaf is used. (Inner nodes are always used again.)
    #[inline]
    pub(super) fn latch_leaf_s<'p>(
        &self,
        pager: &'p Pager,
        target: ChildChoice<'_>,
        access: Access,
    ) -> TreeResult<PageS<'p>> {
        self.latch_s(pager, target, 0, access)
    }

    /// Latches the node of level `stop` shared. If the tree is lower, latches the root.
    #[inline]
    pub(super) fn latch_s<'p>(
        &self,
        pager: &'p Pager,
        target: ChildChoice<'_>,
        stop: u8,
        access: Access,
    ) -> TreeResult<PageS<'p>> {
        let root = pager.fix_s(self.root, Access::Random)?;
        let mut page = root;
        let mut level = self.node_level(&page, self.root)?;
        let mut reads = 0;
        while level > stop {
            let node = NodeRef::new(&page);
            let child = self.page_id(node.child(target.child_index(node)));
            let (access, ahead) =
                if level == 1 { (access, LEAF_AHEAD_BYTES) } else { (Access::Random, NODE_AHEAD_BYTES) };
            let Some(next) = pager.fix_s_resident_ahead(child, access, ahead) else {
                (page, level) = self.read_or_hold(pager, page, child, access, &mut reads)?;
                continue;
            };
            page = next;
            self.expect_level(&page, child, level - 1)?;
            level -= 1;
        }
        Ok(page)
    }

    /// Reads an absent child without a latch, and returns the root, so that the descent begins again. After
    /// some attempts, reads the child under the parent's latch, and returns the child.
    #[cold]
    fn read_or_hold<'p>(
        &self,
        pager: &'p Pager,
        parent: PageS<'p>,
        child: PageId,
        access: Access,
        reads: &mut u32,
    ) -> TreeResult<(PageS<'p>, u8)> {
        *reads += 1;
        let page = if *reads > READS_UNLATCHED_MAX {
            let page = pager.fix_s(child, access)?;
            self.expect_level(&page, child, NodeRef::new(&parent).level() - 1)?;
            page
        } else {
            drop(parent);
            // The page may not belong to the tree any more. An error is only returned if the page is still
            // needed in the next attempt.
            drop(pager.fix_s(child, access));
            pager.fix_s(self.root, Access::Random)?
        };
        let level = self.node_level(&page, page.id())?;
        Ok((page, level))
    }

    /// Latches the node of `level` exclusively, in the mini-transaction. `None` means that the tree is not
    /// that high.
    pub(super) fn latch_x<'p>(
        &self,
        pager: &'p Pager,
        mtr: &mut Mtr<'p>,
        key: &[u8],
        level: u8,
    ) -> TreeResult<Option<H>> {
        for _ in 0..READS_UNLATCHED_MAX {
            let above = self.latch_s(pager, ChildChoice::Key(key), level + 1, Access::Random)?;
            let node = NodeRef::new(&above);
            if node.level() < level {
                return Ok(None);
            }
            if node.level() == level {
                // The root's level is known only when it is latched, and it may change until it is latched
                // again.
                drop(above);
                if let Some(page) = self.latch_root_x(mtr, level)? {
                    return Ok(Some(page));
                }
                continue;
            }
            let child = self.page_id(node.child(node.child_for(key)));
            match pager.fix_x_resident(child, Access::Random) {
                Some(page) => {
                    self.expect_level(&page, child, level)?;
                    return Ok(Some(mtr.adopt(page)));
                }
                None => {
                    drop(above);
                    drop(pager.fix_s(child, Access::Random));
                }
            }
        }
        self.latch_x_holding(pager, mtr, key, level)
    }

    fn latch_root_x(&self, mtr: &mut Mtr<'_>, level: u8) -> TreeResult<Option<H>> {
        let page = mtr.x(self.root)?;
        if self.node_level(mtr.page(page), self.root)? == level {
            return Ok(Some(page));
        }
        mtr.release(page);
        Ok(None)
    }

    /// Does the same as `latch_x`, but reads pages under the parent's latch.
    #[cold]
    fn latch_x_holding<'p>(
        &self,
        pager: &'p Pager,
        mtr: &mut Mtr<'p>,
        key: &[u8],
        level: u8,
    ) -> TreeResult<Option<H>> {
        loop {
            let above = self.latch_s(pager, ChildChoice::Key(key), level + 1, Access::Random)?;
            let node = NodeRef::new(&above);
            if node.level() < level {
                return Ok(None);
            }
            if node.level() > level {
                let child = self.page_id(node.child(node.child_for(key)));
                let page = mtr.x(child)?;
                self.expect_level(mtr.page(page), child, level)?;
                return Ok(Some(page));
            }
            drop(above);
            if let Some(page) = self.latch_root_x(mtr, level)? {
                return Ok(Some(page));
            }
        }
    }

    /// Latches a child of a latched node exclusively.
    pub(super) fn latch_child_x(&self, mtr: &mut Mtr<'_>, parent: H, index: usize) -> TreeResult<H> {
        let node = NodeRef::new(mtr.page(parent));
        let (level, child) = (node.level(), self.page_id(node.child(index)));
        let held = mtr.x(child)?;
        self.expect_level(mtr.page(held), child, level - 1)?;
        Ok(held)
    }

    #[inline]
    pub(super) fn node_level(&self, bytes: &[u8], id: PageId) -> TreeResult<u8> {
        if page::page_kind(bytes) == KIND_NODE && page::page_owner(bytes) == self.owner {
            return Ok(NodeRef::new(bytes).level());
        }
        Err(self.stranger(bytes, id))
    }

    #[inline]
    fn expect_level(&self, bytes: &[u8], id: PageId, level: u8) -> TreeResult<()> {
        if self.node_level(bytes, id)? == level {
            return Ok(());
        }
        let what =
            format!("it is a node of level {} where level {level} belongs", NodeRef::new(bytes).level());
        Err(TreeError::Damaged { page: id, what })
    }

    #[cold]
    fn stranger(&self, bytes: &[u8], id: PageId) -> TreeError {
        let (kind, owner) = (page::page_kind(bytes), page::page_owner(bytes));
        let what = format!("it is of kind {kind} and segment {owner}, not a node of segment {}", self.owner);
        TreeError::Damaged { page: id, what }
    }
}
