//! Splits nodes to make space for an entry. It begins at the lowest ancestor of the leaf that has enough
//! space, and continues downwards.
//!
//! Invariants
//! 1. One mini-transaction latches a parent, one child and one new page, in this order, and leaves a complete
//!    tree.
//! 2. If a parent has no space for one more separator, it is split first, by a mini-transaction of its own.
//! 3. If the root is full, its content is moved to one new child. Then the child is split like any other
//!    node.
//!
//! This module does not know the entry that needs the space.

use varve_device::reached;
use varve_pager::{H, Pager};

use super::write::{self, InsertSpace};
use super::{Position, Tree, TreeError, TreeResult};
use crate::node::edit::{self, Frame};
use crate::node::split::{self, Cut};
use crate::node::{self, CHILD_BYTES, NodeRef};
use crate::redo::{self, NodeOp};

/// The number of pages that one step may need.
const STEP_PAGES: u32 = 1;

/// The result of one step.
enum Step {
    HasRoom,
    Split,
    RootGrew,
    ParentFull,
}

/// The entry that needs space.
#[derive(Clone, Copy)]
struct Wanted<'k> {
    key: &'k [u8],
    value_bytes: usize,
}

impl Tree {
    /// Makes space in the leaf of `key` for an entry with a payload of `payload_bytes`. Another thread may
    /// use this space first. The caller holds no latch.
    pub fn make_room(&self, pager: &Pager, key: &[u8], payload_bytes: usize) -> TreeResult<()> {
        let limit = node::key_bytes_max(pager.page_size());
        if key.len() > limit {
            return Err(TreeError::KeyTooLong { bytes: key.len(), limit });
        }
        let wanted = Wanted { key, value_bytes: self.value_bytes(payload_bytes) };
        let _alone = self.structure.lock();
        let mut level = 0;
        loop {
            match self.step(pager, wanted, level)? {
                Step::HasRoom => return Ok(()),
                Step::Split if level > 0 => level -= 1,
                Step::Split | Step::RootGrew => {}
                Step::ParentFull => level += 1,
            }
        }
    }

    fn step(&self, pager: &Pager, wanted: Wanted<'_>, level: u8) -> TreeResult<Step> {
        pager.reserve(self.root.space(), STEP_PAGES)?;
        let mut mtr = pager.begin()?;
        let Some(parent) = self.latch_x(pager, &mut mtr, wanted.key, level + 1)? else {
            drop(mtr);
            return self.grow_root(pager, wanted, level);
        };
        let slot = NodeRef::new(mtr.page(parent)).child_for(wanted.key);
        let left = self.latch_child_x(&mut mtr, parent, slot)?;
        let node = NodeRef::new(mtr.page(left));
        if level == 0 && has_room(node, wanted) {
            return Ok(Step::HasRoom);
        }
        let cut = self.cut(node, wanted, mtr.id(left))?;
        let upper = NodeRef::new(mtr.page(parent));
        if write::room(upper, slot, false, &cut.separator, CHILD_BYTES) == InsertSpace::None {
            return Ok(Step::ParentFull);
        }
        let near = mtr.id(left);
        let (right_id, right) = self.new_node(&mut mtr, near)?;
        split(&mut mtr, left, right, right_id.no().0, &cut);
        let mut place = Position { page: parent, slot, found: false };
        let child = right_id.no().0.to_le_bytes();
        let done = write::insert_or_replace(&mut mtr, &mut place, &cut.separator, &child);
        assert!(done, "room was made sure of");
        reached("tree: split");
        mtr.commit();
        Ok(Step::Split)
    }

    fn cut(&self, node: NodeRef<'_>, wanted: Wanted<'_>, page: varve_pager::PageId) -> TreeResult<Cut> {
        let cut = match node.is_leaf() {
            true => split::cut_leaf(node, wanted.key, wanted.value_bytes),
            false => split::cut_inner(node),
        };
        cut.ok_or_else(|| TreeError::Damaged { page, what: "it is full but cannot be split".into() })
    }

    /// Moves the root's content to a new child, if the root is still at `level` and, as a leaf, has too
    /// little space.
    fn grow_root(&self, pager: &Pager, wanted: Wanted<'_>, level: u8) -> TreeResult<Step> {
        let mut mtr = pager.begin()?;
        let root = mtr.x(self.root)?;
        let node = NodeRef::new(mtr.page(root));
        if node.level() != level {
            return Ok(Step::RootGrew);
        }
        if level == 0 && has_room(node, wanted) {
            return Ok(Step::HasRoom);
        }
        let (child_id, child) = self.new_node(&mut mtr, self.root)?;
        let old = mtr.page(root).to_vec();
        let old = NodeRef::new(&old);
        let entries = redo::entries(old, 0..old.len(), old.prefix().len());
        redo::apply(&mut mtr, child, &NodeOp::Build { frame: Frame::of(old), entries: &entries });
        let frame =
            Frame { level: level + 1, stamped: old.is_stamped(), leftmost: child_id.no().0, ..Frame::EMPTY };
        redo::apply(&mut mtr, root, &NodeOp::Build { frame, entries: &[] });
        reached("tree: root grown");
        mtr.commit();
        Ok(Step::RootGrew)
    }
}

fn has_room(node: NodeRef<'_>, wanted: Wanted<'_>) -> bool {
    let found = node.search_inside(wanted.key);
    write::room(node, found.slot, found.exact, wanted.key, wanted.value_bytes) != InsertSpace::None
}

/// Moves the entries after the cut from `left` to the new page `right`.
fn split(mtr: &mut varve_pager::Mtr<'_>, left: H, right: H, right_no: u32, cut: &Cut) {
    let old = mtr.page(left).to_vec();
    let old = NodeRef::new(&old);
    let (start, leftmost) = match old.is_leaf() {
        true => (cut.keep, 0),
        false => (cut.keep + 1, old.child(cut.keep + 1)),
    };
    let prefix = edit::best_prefix(old, start..old.len());
    let frame = Frame { leftmost, lower: &cut.separator, prefix: &prefix, ..Frame::of(old) };
    let entries = redo::entries(old, start..old.len(), prefix.len());
    redo::apply(mtr, right, &NodeOp::Build { frame, entries: &entries });
    let op = NodeOp::KeepLeft { keep: cut.keep, right: right_no, upper: &cut.separator };
    redo::apply(mtr, left, &op);
}
