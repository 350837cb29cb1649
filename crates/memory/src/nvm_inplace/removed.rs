//! The entries that the open transaction has removed from indexes.
//!
//! A removed entry keeps its slot in its node until the transaction ends: the slot is *withheld*. So a
//! rollback finds the entry there and makes it valid again, and needs no room in the region.
//!
//! Invariants
//! 1. A withheld slot still has its entry, and the tuple of the entry is not freed.
//! 2. At a start nothing is withheld, because recovery adds no entries.
//!
//! This module does not know how entries are removed and put back (`index.rs`), or transactions.

use rustc_hash::FxHashMap;

use super::node::Slots;
use crate::pointer::Pointer;
use crate::store::TableNo;

/// Slots of removed entries, and leaves that may be empty.
#[derive(Default)]
pub(super) struct RemovedEntries {
    /// A bit for each withheld slot of a node.
    withheld: FxHashMap<Pointer, u64>,
    emptied: Vec<EmptiedLeaf>,
    /// The keys of `emptied`, one after the other.
    keys: Vec<u8>,
}

/// A leaf that may be empty. It is found by a key that was in it.
struct EmptiedLeaf {
    table: TableNo,
    index: usize,
    key_from: usize,
}

impl RemovedEntries {
    /// Returns the withheld slots of a node.
    #[inline]
    pub(super) fn withheld(&self, node: Pointer) -> Slots {
        match self.withheld.is_empty() {
            true => Slots::NONE,
            false => Slots::of(self.withheld.get(&node).copied().unwrap_or_default()),
        }
    }

    /// Withholds a slot.
    pub(super) fn withhold(&mut self, node: Pointer, slot: usize) {
        *self.withheld.entry(node).or_default() |= 1 << slot;
    }

    /// Releases a slot.
    pub(super) fn release(&mut self, node: Pointer, slot: usize) {
        if let Some(slots) = self.withheld.get_mut(&node) {
            *slots &= !(1 << slot);
        }
    }

    /// Adds a leaf that has no valid entries left. `key` was in this leaf.
    pub(super) fn add_emptied(&mut self, table: TableNo, index: usize, key: &[u8]) {
        self.emptied.push(EmptiedLeaf { table, index, key_from: self.keys.len() });
        self.keys.extend_from_slice(key);
    }

    /// Releases all slots, because the transaction has ended. Calls `each` for each leaf that may be empty,
    /// with its table, its index and a key.
    pub(super) fn end(&mut self, mut each: impl FnMut(TableNo, usize, &[u8])) {
        self.withheld.clear();
        while let Some(EmptiedLeaf { table, index, key_from }) = self.emptied.pop() {
            each(table, index, self.keys.get(key_from..).unwrap_or_default());
            self.keys.truncate(key_from);
        }
    }
}
