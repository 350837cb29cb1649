//! The B+tree: keys to rows (clustered) or keys alone (secondary), over mini-transactions.
//!
//! Invariants
//! 1. Latches are taken from the root down and from left to right, the next before the last is let go (coupling), so no
//!    reader sees a split or a merge half done.
//! 2. A change of one entry latches one leaf; whatever needs more pages happens before, in mini-transactions of its own
//!    (`make_room`) or after (`tidy`), one parent and its children at a time. They are never undone.
//! 3. The root keeps its page.
//! 4. Everything that can fail happens before the first change of a mini-transaction.
//!
//! Does not know: transactions, visibility, what keys and payloads mean.

mod scan;

use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use varve_pager::{H, Mtr, PageId, Pager, PagerError, SpaceId};

use crate::node::{EntryRef, Stamp};

pub use scan::{Direction, Scan};

/// What the leaves of a tree hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Rows, each with a stamp (transaction id, roll pointer, flags).
    Clustered,
    /// Keys, each with flags; the leaf carries its newest transaction.
    Secondary,
}

/// Why a tree operation failed.
#[derive(Clone, Debug, Error)]
pub enum TreeError {
    /// The pager failed.
    #[error(transparent)]
    Pager(#[from] PagerError),
    /// SQLSTATE 54000.
    #[error("key of {bytes} bytes is longer than the limit of {limit} bytes")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
        /// Longest key that a page of this size allows.
        limit: usize,
    },
    /// SQLSTATE XX001.
    #[error("page {page} is damaged: {what}")]
    Damaged {
        /// The page.
        page: PageId,
        /// What is wrong.
        what: String,
    },
}

/// Result of a tree operation.
pub type TreeResult<T> = Result<T, TreeError>;

/// A B+tree. Clones share the mutex of its structure changes.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PageId,
    owner: u32,
    kind: TreeKind,
    structure: Arc<Mutex<()>>,
}

/// Where a key is in an exclusively latched leaf, or where it would go.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The leaf.
    pub page: H,
    /// The slot of the key, or of the first larger one.
    pub slot: usize,
    /// Whether the key is there.
    pub found: bool,
}

/// Outcome of `put`.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The entry is in its leaf.
    Done,
    /// Nothing was changed: end the mini-transaction, call `make_room` and locate again.
    NeedsRoom,
}

impl Tree {
    /// Makes an empty tree of its own segment.
    pub fn create(pager: &Pager, space: SpaceId, kind: TreeKind) -> TreeResult<Self> {
        unimplemented!()
    }

    /// A tree that exists.
    pub fn open(root: PageId, owner: u32, kind: TreeKind) -> Self {
        Self { root, owner, kind, structure: Arc::default() }
    }

    /// The root page; stays the same for the life of the tree.
    pub const fn root(&self) -> PageId {
        self.root
    }

    /// The segment of all its pages.
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// What its leaves hold.
    pub const fn kind(&self) -> TreeKind {
        self.kind
    }

    /// Calls `read` with the entry of a key, under the leaf's shared latch; `None` if there is none.
    pub fn get<R>(
        &self,
        pager: &Pager,
        key: &[u8],
        read: impl FnOnce(EntryRef<'_>) -> R,
    ) -> TreeResult<Option<R>> {
        unimplemented!()
    }

    /// Copies the next batch of entries into the scan (at most its limit, at most one leaf's); `false` when it is at its end.
    pub fn next_batch(&self, pager: &Pager, scan: &mut Scan) -> TreeResult<bool> {
        unimplemented!()
    }

    /// Latches the leaf of a key exclusively; no other page of the tree stays latched. Before any change of `mtr`.
    pub fn locate_x(&self, pager: &Pager, mtr: &mut Mtr<'_>, key: &[u8]) -> TreeResult<Position> {
        unimplemented!()
    }

    /// The entry at a position where the key was found.
    pub fn entry<'m>(&self, mtr: &'m Mtr<'_>, position: &Position) -> EntryRef<'m> {
        unimplemented!()
    }

    /// Whether `put` would succeed.
    pub fn has_room(&self, mtr: &Mtr<'_>, position: &Position, key: &[u8], payload_bytes: usize) -> bool {
        unimplemented!()
    }

    /// Inserts or replaces the entry of `key` (a secondary tree: `payload` empty, the stamp's transaction raises the leaf's newest).
    pub fn put(
        &self,
        mtr: &mut Mtr<'_>,
        position: &Position,
        key: &[u8],
        stamp: Stamp,
        payload: &[u8],
    ) -> Put {
        unimplemented!()
    }

    /// Overwrites the stamp (clustered) or the flags (secondary) of a found entry in place; always succeeds.
    pub fn stamp(&self, mtr: &mut Mtr<'_>, position: &Position, stamp: Stamp) {
        unimplemented!()
    }

    /// Removes a found entry.
    pub fn remove(&self, mtr: &mut Mtr<'_>, position: &Position) {
        unimplemented!()
    }

    /// Makes sure that the leaf of `key` has room for an entry with a payload of `payload_bytes`. No latch may be held.
    pub fn make_room(&self, pager: &Pager, key: &[u8], payload_bytes: usize) -> TreeResult<()> {
        unimplemented!()
    }

    /// Merges the leaf of `key` with a neighbour if it is nearly empty. No latch may be held.
    pub fn tidy(&self, pager: &Pager, key: &[u8]) -> TreeResult<()> {
        unimplemented!()
    }
}
