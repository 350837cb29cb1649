//! The B+tree on top of mini-transactions. A clustered tree maps keys to rows, a secondary tree has keys
//! alone.
//!
//! Invariants
//! 1. Latches are taken from the root down and from left to right. The next latch is taken before the
//!    previous one is released (coupling). So no reader sees a half-finished split or merge.
//! 2. A change of one entry latches one leaf. If the leaf is full, it is split before the change
//!    (`make_room`). If it has become too empty, it is merged after the change (`tidy`). Splits and merges
//!    are separate mini-transactions, each for one parent and its children, and are never undone.
//! 3. The root keeps its page.
//! 4. In a mini-transaction, everything that can fail is done before the first change.
//!
//! This module does not know transactions, visibility, or what keys and payloads mean.

mod bulk;
mod check;
mod descend;
mod estimate;
mod grow;
mod leaves;
mod scan;
mod shrink;
mod write;

use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use varve_pager::{Access, H, Mtr, PageId, PageNo, Pager, PagerError, SpaceId};

use crate::ids::TreeAddress;
use crate::node::edit::Frame;
use crate::node::{EntryRef, KIND_NODE, NodeRef};
use crate::redo::{self, NodeOp};

pub use bulk::{BulkError, bulk_build};
pub use check::Checker;
pub use estimate::Estimate;
pub use leaves::LeafList;
pub use scan::{Direction, Scan};

/// The content of a tree's leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Rows, each with a stamp (transaction id, roll pointer, flags).
    Clustered,
    /// Keys, each with flags. A leaf also stores the id of the newest transaction that changed it.
    Secondary,
}

/// The reason why a tree operation failed.
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

/// The position of a key in an exclusively latched leaf, or the position where it would be inserted.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The leaf.
    pub page: H,
    /// The slot of the key, or of the first larger one.
    pub slot: usize,
    /// Whether the leaf has the key.
    pub found: bool,
}

/// Outcome of `put`.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The entry is in its leaf.
    Done,
    /// Nothing was changed. The caller ends the mini-transaction, calls `make_room`, and locates the key
    /// again.
    NeedsRoom,
}

impl Tree {
    /// Makes an empty tree in a new segment. If the machine crashes before the caller has recorded the
    /// segment durably, the segment is lost. So tables use `create_in`.
    pub fn create(pager: &Pager, space: SpaceId, kind: TreeKind) -> TreeResult<Self> {
        let owner = pager.create_segment(space)?;
        Self::create_in(pager, space, owner, kind)
    }

    /// Makes an empty tree in an existing, empty segment.
    pub fn create_in(pager: &Pager, space: SpaceId, owner: u32, kind: TreeKind) -> TreeResult<Self> {
        Self::create_with(pager, space, owner, kind, &[])
    }

    /// Does the same as `create_in`. The leaves lie by columns if there are `widths` (`Frame::widths`).
    pub fn create_with(
        pager: &Pager,
        space: SpaceId,
        owner: u32,
        kind: TreeKind,
        widths: &[u8],
    ) -> TreeResult<Self> {
        pager.reserve(space, 1)?;
        let mut mtr = pager.begin()?;
        let root = mtr.allocate(space, owner, None)?;
        let page = mtr.create(root, KIND_NODE, owner)?;
        let frame = Frame { stamped: kind == TreeKind::Clustered, widths, ..Frame::EMPTY };
        redo::apply(&mut mtr, page, &NodeOp::Build { frame, entries: &[] });
        mtr.commit();
        Ok(Self::open(root, owner, kind))
    }

    /// Returns an existing tree.
    pub fn open(root: PageId, owner: u32, kind: TreeKind) -> Self {
        Self { root, owner, kind, structure: Arc::default() }
    }

    /// Returns the root page. It never changes.
    pub const fn root(&self) -> PageId {
        self.root
    }

    /// Returns the segment of all its pages.
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the address of the tree.
    pub(crate) const fn address(&self) -> TreeAddress {
        TreeAddress { space: self.root.space(), root: self.root.no().0, owner: self.owner }
    }

    /// Returns the content of its leaves.
    pub const fn kind(&self) -> TreeKind {
        self.kind
    }

    /// Calls `read` with the entry of a key, under the leaf's shared latch. Returns `None` if there is no
    /// entry.
    #[inline]
    pub fn get<R>(
        &self,
        pager: &Pager,
        key: &[u8],
        read: impl FnOnce(EntryRef<'_>) -> R,
    ) -> TreeResult<Option<R>> {
        let leaf = self.latch_leaf_s(pager, descend::ChildChoice::Key(key), Access::Random)?;
        let node = NodeRef::new(&leaf);
        let found = node.search_inside(key);
        Ok(found.exact.then(|| read(node.entry(found.slot))))
    }

    fn page_id(&self, no: u32) -> PageId {
        PageId::new(self.root.space(), PageNo(no))
    }

    fn is_stamped(&self) -> bool {
        self.kind == TreeKind::Clustered
    }

    /// Allocates and latches a page of the tree, near the page `near` if possible.
    fn new_node(&self, mtr: &mut Mtr<'_>, near: PageId) -> TreeResult<(PageId, H)> {
        let id = mtr.allocate(self.root.space(), self.owner, Some(near))?;
        Ok((id, mtr.create(id, KIND_NODE, self.owner)?))
    }
}
