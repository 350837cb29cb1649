//! The way from the root to a node.
//!
//! Invariants
//! 1. A child's latch is taken while the parent's is held, so the child is the right one when it is latched.
//! 2. Every page on the way is a node of this tree, one level below its parent; anything else is reported as damage.
//!
//! Does not know: what is done with the node.

use varve_pager::{Access, H, Mtr, PageId, PageS, Pager, page};

use super::{KIND_NODE, Tree, TreeError, TreeResult};
use crate::node::NodeRef;

/// Which of a node's children to take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'k> {
    /// The one that may hold this key.
    Key(&'k [u8]),
    /// The one that may hold the largest key below this one.
    Below(&'k [u8]),
    /// The last one.
    Last,
}

impl Target<'_> {
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
    /// Latches the leaf shared; `access` says how the leaf is used (inner nodes are always wanted again).
    #[inline]
    pub(super) fn latch_leaf_s<'p>(
        &self,
        pager: &'p Pager,
        target: Target<'_>,
        access: Access,
    ) -> TreeResult<PageS<'p>> {
        self.latch_s(pager, target, 0, access)
    }

    /// Latches the node of level `stop` shared, or the root if the tree is lower.
    #[inline]
    pub(super) fn latch_s<'p>(
        &self,
        pager: &'p Pager,
        target: Target<'_>,
        stop: u8,
        access: Access,
    ) -> TreeResult<PageS<'p>> {
        let mut page = pager.fix_s(self.root, Access::Random)?;
        let mut level = self.node_level(&page, self.root)?;
        while level > stop {
            let node = NodeRef::new(&page);
            let child = self.page_id(node.child(target.child_index(node)));
            let access = if level == 1 { access } else { Access::Random };
            page = pager.fix_s(child, access)?;
            self.expect_level(&page, child, level - 1)?;
            level -= 1;
        }
        Ok(page)
    }

    /// Latches the node of `level` exclusively, into the mini-transaction; `None` if the tree is not that high.
    pub(super) fn latch_x(
        &self,
        pager: &Pager,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        level: u8,
    ) -> TreeResult<Option<H>> {
        loop {
            let root = pager.fix_s(self.root, Access::Random)?;
            let root_level = self.node_level(&root, self.root)?;
            if root_level < level {
                return Ok(None);
            }
            if root_level > level {
                return self.latch_below(pager, mtr, root, key, level).map(Some);
            }
            // The root's level is only known once it is latched, and it may grow until it is latched again.
            drop(root);
            let page = mtr.x(self.root)?;
            if self.node_level(mtr.page(page), self.root)? == level {
                return Ok(Some(page));
            }
            mtr.release(page);
        }
    }

    fn latch_below<'p>(
        &self,
        pager: &'p Pager,
        mtr: &mut Mtr<'_>,
        root: PageS<'p>,
        key: &[u8],
        level: u8,
    ) -> TreeResult<H> {
        let mut page = root;
        loop {
            let node = NodeRef::new(&page);
            let (child_level, child) = (node.level() - 1, self.page_id(node.child(node.child_for(key))));
            if child_level == level {
                let held = mtr.x(child)?;
                self.expect_level(mtr.page(held), child, level)?;
                return Ok(held);
            }
            page = pager.fix_s(child, Access::Random)?;
            self.expect_level(&page, child, child_level)?;
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
