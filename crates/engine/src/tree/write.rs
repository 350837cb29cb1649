//! Changes one entry of one latched leaf.
//!
//! Invariants
//! 1. If `put` returns `NeedsRoom`, it has changed nothing.
//! 2. A leaf with fragmented free space is compacted within the caller's mini-transaction. Splits and merges
//!    are not done here.
//!
//! This module does not know what the caller logs for undo.

use smallvec::SmallVec;
use varve_pager::{H, Mtr, Pager};

use super::{Position, Put, Tree, TreeError, TreeResult};
use crate::node::{self, EntryRef, NodeRef, Stamp, common_prefix_bytes, edit, entry_bytes};
use crate::redo::{self, NodeOp};

/// The space for a new entry in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertSpace {
    /// There is enough space.
    Now,
    /// There is enough space after a compaction with this prefix length.
    Rebuild(usize),
    /// There is enough space after removing the old entry and compacting.
    Swap,
    /// There is not enough space.
    None,
}

impl Tree {
    /// Latches the leaf of a key exclusively. No other page of the tree stays latched. Must be called before
    /// any change of `mtr`.
    pub fn locate_x<'p>(&self, pager: &'p Pager, mtr: &mut Mtr<'p>, key: &[u8]) -> TreeResult<Position> {
        let limit = node::key_bytes_max(pager.page_size());
        if key.len() > limit {
            return Err(TreeError::KeyTooLong { bytes: key.len(), limit });
        }
        match self.latch_x(pager, mtr, key, 0)? {
            Some(page) => Ok(Self::position(mtr, page, key)),
            None => unreachable!("every tree has leaves"),
        }
    }

    fn position(mtr: &Mtr<'_>, page: H, key: &[u8]) -> Position {
        let found = NodeRef::new(mtr.page(page)).search_inside(key);
        Position { page, slot: found.slot, found: found.exact }
    }

    /// Finds a key in the leaf of another position. If the key is not found there, it may be in another leaf.
    /// This is fast for the key after that of the position.
    pub fn find_beside(&self, mtr: &Mtr<'_>, position: &Position, key: &[u8]) -> Position {
        let found = NodeRef::new(mtr.page(position.page)).search_from(position.slot, key);
        Position { page: position.page, slot: found.slot, found: found.exact }
    }

    /// Returns the entry at a position where the key was found.
    pub fn entry<'m>(&self, mtr: &'m Mtr<'_>, position: &Position) -> EntryRef<'m> {
        assert!(position.found, "no entry at a position where nothing was found");
        NodeRef::new(mtr.page(position.page)).entry(position.slot)
    }

    /// Returns whether `put` would succeed.
    pub fn has_room(&self, mtr: &Mtr<'_>, position: &Position, key: &[u8], payload_bytes: usize) -> bool {
        let node = NodeRef::new(mtr.page(position.page));
        room(node, position.slot, position.found, key, self.value_bytes(payload_bytes)) != InsertSpace::None
    }

    /// Inserts or replaces the entry of `key`. In a secondary tree the payload is empty, and only the flags
    /// of the stamp are stored. The stamp's transaction raises the leaf's newest transaction. Afterwards the
    /// position is that of the entry.
    pub fn put(
        &self,
        mtr: &mut Mtr<'_>,
        position: &mut Position,
        key: &[u8],
        stamp: Stamp,
        payload: &[u8],
    ) -> Put {
        let value = self.leaf_value(key, stamp, payload, mtr.page(position.page).len());
        if !insert_or_replace(mtr, position, key, &value) {
            return Put::NeedsRoom;
        }
        if !self.is_stamped() {
            redo::apply(mtr, position.page, &NodeOp::Newest { txn: stamp.txn });
        }
        Put::Done
    }

    fn leaf_value(&self, key: &[u8], stamp: Stamp, payload: &[u8], page_bytes: usize) -> SmallVec<[u8; 256]> {
        if !self.is_stamped() {
            assert!(payload.is_empty(), "secondary entries have no payload");
            return SmallVec::from_slice(&[stamp.flags]);
        }
        let limit = node::payload_bytes_max(page_bytes, key.len());
        assert!(payload.len() <= limit, "a payload of {} bytes belongs in an overflow chain", payload.len());
        let mut value = SmallVec::with_capacity(node::STAMP_BYTES + payload.len());
        value.extend_from_slice(&node::encode_stamp(stamp));
        value.extend_from_slice(payload);
        value
    }

    pub(super) fn value_bytes(&self, payload_bytes: usize) -> usize {
        if self.is_stamped() { node::STAMP_BYTES + payload_bytes } else { node::SECONDARY_VALUE_BYTES }
    }

    /// Overwrites the stamp (clustered) or the flags (secondary) of a found entry in place. This always
    /// succeeds.
    pub fn stamp(&self, mtr: &mut Mtr<'_>, position: &Position, stamp: Stamp) {
        assert!(position.found, "no entry to stamp");
        let slot = position.slot;
        let op = match self.is_stamped() {
            true => NodeOp::Stamp { slot, stamp },
            false => NodeOp::Flags { slot, flags: stamp.flags, txn: stamp.txn },
        };
        redo::apply(mtr, position.page, &op);
    }

    /// Removes a found entry. The position is then that of the next larger key.
    pub fn remove(&self, mtr: &mut Mtr<'_>, position: &mut Position) {
        assert!(position.found, "no entry to remove");
        redo::apply(mtr, position.page, &NodeOp::Remove { slot: position.slot });
        position.found = false;
    }

    /// Returns whether the leaf at a position is so empty that `tidy` should be called.
    pub fn is_underfull(&self, mtr: &Mtr<'_>, position: &Position) -> bool {
        super::shrink::is_underfull(NodeRef::new(mtr.page(position.page)))
    }
}

/// Returns whether and how an entry fits into a node at `slot`. `exact` says whether the node already has the
/// key.
pub(super) fn room(
    node: NodeRef<'_>,
    slot: usize,
    exact: bool,
    key: &[u8],
    value_bytes: usize,
) -> InsertSpace {
    if exact {
        return room_to_replace(node, slot, value_bytes);
    }
    let prefix = node.prefix();
    if key.starts_with(prefix) && edit::has_gap(node, key.len() - prefix.len(), value_bytes) {
        return InsertSpace::Now;
    }
    let shared = shared_prefix(node, key);
    let needed = entry_bytes(key.len() - shared, value_bytes) as isize;
    if edit::free_after_rebuild(node, shared) >= needed {
        InsertSpace::Rebuild(shared)
    } else {
        InsertSpace::None
    }
}

fn room_to_replace(node: NodeRef<'_>, slot: usize, value_bytes: usize) -> InsertSpace {
    if edit::can_replace(node, slot, value_bytes) {
        return InsertSpace::Now;
    }
    let free = node.free_bytes() + node.entry_bytes(slot);
    if free >= entry_bytes(node.suffix(slot).len(), value_bytes) {
        InsertSpace::Swap
    } else {
        InsertSpace::None
    }
}

/// Returns the length of the longest common prefix of the node's keys and `key`.
fn shared_prefix(node: NodeRef<'_>, key: &[u8]) -> usize {
    let limit = node::prefix_bytes_max(node.page_bytes());
    if node.is_empty() {
        return common_prefix_bytes(node.prefix(), key);
    }
    let (first, last) = (node.key(0), node.key(node.len() - 1));
    common_prefix_bytes(&first, &last).min(common_prefix_bytes(&first, key)).min(limit)
}

/// Inserts or replaces an entry in a latched node. Returns false, and changes nothing, if there is not enough
/// space.
pub(super) fn insert_or_replace(
    mtr: &mut Mtr<'_>,
    position: &mut Position,
    key: &[u8],
    value: &[u8],
) -> bool {
    let (page, slot, exact) = (position.page, position.slot, position.found);
    let node = NodeRef::new(mtr.page(page));
    let room = match exact && edit::can_replace_by(node, slot, value) {
        true => InsertSpace::Now,
        false => room(node, slot, exact, key, value.len()),
    };
    let prefix_bytes = node.prefix().len();
    match room {
        InsertSpace::None => return false,
        InsertSpace::Now => {}
        InsertSpace::Rebuild(prefix_bytes) => redo::apply(mtr, page, &NodeOp::Rebuild { prefix_bytes }),
        InsertSpace::Swap => {
            redo::apply(mtr, page, &NodeOp::Remove { slot });
            redo::apply(mtr, page, &NodeOp::Rebuild { prefix_bytes });
        }
    }
    let suffix = &key[NodeRef::new(mtr.page(page)).prefix().len()..];
    match exact && room != InsertSpace::Swap {
        true => redo::apply(mtr, page, &NodeOp::Replace { slot, value }),
        false => redo::apply(mtr, page, &NodeOp::Insert { slot, suffix, value }),
    }
    position.found = true;
    true
}
