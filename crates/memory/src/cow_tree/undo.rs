//! Two lists in DRAM. One has what is needed to undo the changes of the open transaction. The other has the
//! leaves that may have to be merged when the transaction ends.
//!
//! Invariants
//! 1. Changes are undone newest first.
//!
//! This module does not know how changes are undone (`trees.rs`).

use super::nodes::TreeNo;

/// What was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An entry was added.
    Insert,
    /// An entry was removed. The list has its value.
    Remove,
    /// An entry got another value; the list has the old value.
    Set,
    /// Bytes of a value were changed, from this byte on. The list has the old bytes.
    Patch { at: usize },
    /// Bytes of the row that the value leads to were changed in place, from this byte on. The list has the
    /// old bytes.
    Row { at: usize },
}

/// A change of one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'l> {
    pub(super) tree: TreeNo,
    pub(super) kind: Kind,
    pub(super) key: &'l [u8],
    /// The value before the change, or the old bytes that the change has overwritten.
    pub(super) before: &'l [u8],
}

#[derive(Debug, Clone, Copy)]
struct Noted {
    tree: TreeNo,
    kind: Kind,
    key_at: usize,
    before_at: usize,
}

/// The changes of the open transaction.
#[derive(Default)]
pub(super) struct UndoList {
    noted: Vec<Noted>,
    /// The key and the old bytes of each change.
    bytes: Vec<u8>,
}

impl UndoList {
    pub(super) fn len(&self) -> usize {
        self.noted.len()
    }

    pub(super) fn push(&mut self, change: Change<'_>) {
        let Change { tree, kind, key, before } = change;
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.noted.push(Noted { tree, kind, key_at, before_at: self.bytes.len() });
        self.bytes.extend_from_slice(before);
    }

    /// Returns the change with this number. The oldest change has the number 0.
    pub(super) fn get(&self, number: usize) -> Option<Change<'_>> {
        let Noted { tree, kind, key_at, before_at } = *self.noted.get(number)?;
        let end = self.noted.get(number + 1).map_or(self.bytes.len(), |next| next.key_at);
        Some(Change {
            tree,
            kind,
            key: self.bytes.get(key_at..before_at)?,
            before: self.bytes.get(before_at..end)?,
        })
    }

    /// Forgets the newest changes, and keeps the `kept` oldest ones.
    pub(super) fn truncate(&mut self, kept: usize) {
        if let Some(first) = self.noted.get(kept) {
            self.bytes.truncate(first.key_at);
            self.noted.truncate(kept);
        }
    }
}

/// The leaves that may be sparse. Each is named by its tree and by a key that belongs to it.
#[derive(Default)]
pub(super) struct SparseLeaves {
    /// For each leaf, its tree, and the position in `keys` at which its key begins.
    noted: Vec<SparseLeaf>,
    keys: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct SparseLeaf {
    tree: TreeNo,
    key_at: usize,
}

impl SparseLeaves {
    pub(super) fn push(&mut self, tree: TreeNo, key: &[u8]) {
        self.noted.push(SparseLeaf { tree, key_at: self.keys.len() });
        self.keys.extend_from_slice(key);
    }

    /// Takes the leaf that was added last. Returns its tree, and copies its key into `key`.
    pub(super) fn pop(&mut self, key: &mut Vec<u8>) -> Option<TreeNo> {
        let SparseLeaf { tree, key_at } = self.noted.pop()?;
        key.clear();
        key.extend_from_slice(self.keys.get(key_at..).unwrap_or_default());
        self.keys.truncate(key_at);
        Some(tree)
    }
}
