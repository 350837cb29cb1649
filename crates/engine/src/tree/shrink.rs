//! Merges nodes that are too empty.
//!
//! Invariants
//! 1. One mini-transaction latches a parent and two neighbouring children, left before right, and leaves a
//!    complete tree.
//! 2. A page is freed while it and its parent are latched exclusively, so no descent is on the way to it.
//! 3. Only leaves whose columns have the same widths are merged. Other leaves are damaged.
//! 4. A merged node has so much free space that the next insert does not split it again.
//!
//! This module does not know when it is called. A tree stays correct if leaves are not merged.

use varve_device::{planted, reached};
use varve_pager::{H, Mtr, Pager};

use super::{Tree, TreeError, TreeResult};
use crate::node::edit::Frame;
use crate::node::{CHILD_BYTES, NodeRef, common_prefix_bytes, entry_bytes, prefix_bytes_max, usable_bytes};
use crate::redo::{self, NodeOp};

/// Returns whether less than a quarter of a node is in use.
pub(super) fn is_underfull(node: NodeRef<'_>) -> bool {
    node.live_bytes() < usable_bytes(node.page_bytes()) / 4
}

/// The next step of `tidy`.
enum Then {
    Stop,
    Again,
    Up,
}

/// The content of two neighbours as one node.
struct Merged {
    prefix: Vec<u8>,
    entries: Vec<u8>,
    bytes: usize,
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour if it is nearly empty, and then its ancestors in the same
    /// way. The caller holds no latch.
    pub fn tidy(&self, pager: &Pager, key: &[u8]) -> TreeResult<()> {
        let _alone = self.structure.lock();
        let mut level = 0;
        loop {
            match self.tidy_level(pager, key, level)? {
                Then::Stop => return Ok(()),
                Then::Again => {}
                Then::Up => level += 1,
            }
        }
    }

    fn tidy_level(&self, pager: &Pager, key: &[u8], level: u8) -> TreeResult<Then> {
        let mut mtr = pager.begin()?;
        let Some(parent) = self.latch_x(pager, &mut mtr, key, level + 1)? else { return Ok(Then::Stop) };
        let upper = NodeRef::new(mtr.page(parent));
        let index = upper.child_for(key);
        if upper.is_empty() {
            let is_root = mtr.id(parent) == self.root;
            return if is_root { self.lower_root(mtr, parent) } else { Ok(Then::Up) };
        }
        let first = index.saturating_sub(1);
        let left = self.latch_child_x(&mut mtr, parent, first)?;
        let right = self.latch_child_x(&mut mtr, parent, first + 1)?;
        let (left_node, right_node) = (NodeRef::new(mtr.page(left)), NodeRef::new(mtr.page(right)));
        if !is_underfull(left_node) && !is_underfull(right_node) {
            return Ok(Then::Stop);
        }
        if left_node.widths() != right_node.widths() {
            let what = format!("its columns have other widths than those of page {}", mtr.id(left));
            return Err(TreeError::Damaged { page: mtr.id(right), what });
        }
        let merged = merge(left_node, right_node);
        // An empty node is removed even if its neighbour is full, because tables that are used as queues
        // empty their leaves from the left.
        let usable = usable_bytes(left_node.page_bytes()) - left_node.directory_bytes();
        let is_one_empty = left_node.live_bytes() == 0 || right_node.live_bytes() == 0;
        if merged.bytes > if is_one_empty { usable } else { usable * 4 / 5 } {
            return Ok(Then::Stop);
        }
        self.replace_two(mtr, parent, first, left, right, &merged)
    }

    fn replace_two(
        &self,
        mut mtr: Mtr<'_>,
        parent: H,
        slot: usize,
        left: H,
        right: H,
        merged: &Merged,
    ) -> TreeResult<Then> {
        reached("tree: merge");
        if !planted("tree: a merged page is not freed") {
            mtr.free(mtr.id(right))?;
        }
        let (old_left, old_right) = (mtr.page(left).to_vec(), mtr.page(right).to_vec());
        let (old_left, old_right) = (NodeRef::new(&old_left), NodeRef::new(&old_right));
        let frame = Frame {
            right: old_right.right(),
            upper: old_right.upper_fence().unwrap_or(&[]),
            newest_txn: old_left.newest_txn().max(old_right.newest_txn()),
            prefix: &merged.prefix,
            ..Frame::of(old_left)
        };
        redo::apply(&mut mtr, left, &NodeOp::Build { frame, entries: &merged.entries });
        redo::apply(&mut mtr, parent, &NodeOp::Remove { slot });
        let upper = NodeRef::new(mtr.page(parent));
        let then = match (upper.is_empty(), is_underfull(upper)) {
            (true, _) if mtr.id(parent) == self.root => Then::Again,
            (_, true) => Then::Up,
            (_, false) => Then::Stop,
        };
        mtr.commit();
        Ok(then)
    }

    /// Moves the content of the only child to the root.
    fn lower_root(&self, mut mtr: Mtr<'_>, root: H) -> TreeResult<Then> {
        let child = self.latch_child_x(&mut mtr, root, 0)?;
        reached("tree: root lowered");
        mtr.free(mtr.id(child))?;
        let old = mtr.page(child).to_vec();
        let old = NodeRef::new(&old);
        let entries = redo::entries(old, 0..old.len(), old.prefix().len());
        redo::apply(&mut mtr, root, &NodeOp::Build { frame: Frame::of(old), entries: &entries });
        mtr.commit();
        Ok(Then::Stop)
    }
}

fn merge(left: NodeRef<'_>, right: NodeRef<'_>) -> Merged {
    let mut keys: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(left.len() + right.len() + 1);
    keys.extend((0..left.len()).map(|at| (left.key(at), left.whole_value(at))));
    if !left.is_leaf() {
        // The separator between the two becomes the key of the right node's leftmost child.
        keys.push((right.lower_fence().to_vec(), right.leftmost_child().to_le_bytes().to_vec()));
    }
    keys.extend((0..right.len()).map(|at| (right.key(at), right.whole_value(at))));
    let prefix = match (keys.first(), keys.last()) {
        (Some((first, _)), Some((last, _))) => {
            let common = common_prefix_bytes(first, last).min(prefix_bytes_max(left.page_bytes()));
            first[..common].to_vec()
        }
        _ => Vec::new(),
    };
    let mut entries = Vec::new();
    let mut bytes =
        prefix.len() + left.lower_fence().len() + right.upper_fence().map_or(0, <[u8]>::len) + CHILD_BYTES;
    for (key, value) in &keys {
        let suffix = &key[prefix.len()..];
        bytes += entry_bytes(suffix.len(), value.len());
        redo::push_entry(&mut entries, suffix, value);
    }
    Merged { prefix, entries, bytes }
}
