//! Builds a tree from sorted entries. Every page is written once, nearly full, from left to right.
//!
//! Invariants
//! 1. The tree is complete only when `bulk_build` returns. If the build fails, the caller drops the tree's
//!    segment.
//! 2. Nodes are filled to `FILL_PERCENT` of a page. The last nodes of each level may be emptier.
//!
//! This module does not know where the entries come from. The keys of the entries must ascend strictly.
//! Otherwise the result is an error.

use thiserror::Error;
use varve_pager::{PageId, Pager, SpaceId};

use super::{Tree, TreeError, TreeKind};
use crate::node::edit::Frame;
use crate::node::{self, KIND_NODE, Stamp, common_prefix_bytes, entry_bytes, prefix_bytes_max, usable_bytes};
use crate::redo::{self, NodeOp};

const FILL_PERCENT: usize = 95;
/// The number of pages that are reserved in a space together.
const RESERVE_PAGES: u32 = 64;

/// The reason why a build failed.
#[derive(Debug, Error)]
pub enum BulkError<E> {
    /// The tree could not be written.
    #[error(transparent)]
    Tree(TreeError),
    /// The input failed.
    #[error(transparent)]
    Input(E),
    /// Two entries have the same key, or are in the wrong order.
    #[error("an entry does not ascend")]
    NotAscending {
        /// The key of the later entry.
        key: Vec<u8>,
    },
}

/// Builds a tree in an empty segment from the given entries (key, stamp, payload). Their keys ascend
/// strictly. The leaves lie by columns if there are `widths` (`Frame::widths`).
pub fn bulk_build<E>(
    pager: &Pager,
    space: SpaceId,
    owner: u32,
    kind: TreeKind,
    widths: &[u8],
    entries: impl IntoIterator<Item = Result<(Vec<u8>, Stamp, Vec<u8>), E>>,
) -> Result<Tree, BulkError<E>> {
    let tree = Tree::create_in(pager, space, owner, kind).map_err(BulkError::Tree)?;
    let mut builder = Builder { pager, tree: &tree, widths, levels: vec![], reserved: 0, newest_txn: 0 };
    let first = builder.new_page().map_err(BulkError::Tree)?;
    builder.levels.push(Level::new(first, 0));
    let limit = node::key_bytes_max(pager.page_size());
    for entry in entries {
        let (key, stamp, payload) = entry.map_err(BulkError::Input)?;
        if key.len() > limit {
            return Err(BulkError::Tree(TreeError::KeyTooLong { bytes: key.len(), limit }));
        }
        if builder.levels[0].last_key().is_some_and(|last| last >= &key[..]) {
            return Err(BulkError::NotAscending { key });
        }
        let value = match kind {
            TreeKind::Clustered => [&node::encode_stamp(stamp)[..], &payload].concat(),
            TreeKind::Secondary => vec![stamp.flags],
        };
        builder.newest_txn = builder.newest_txn.max(stamp.txn);
        builder.push(0, key, value).map_err(BulkError::Tree)?;
    }
    builder.finish().map_err(BulkError::Tree)?;
    Ok(tree)
}

/// The rightmost node of a level, which is not written yet.
struct Level {
    page: PageId,
    leftmost: u32,
    lower: Vec<u8>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    full_bytes: usize,
}

impl Level {
    fn new(page: PageId, leftmost: u32) -> Self {
        Self { page, leftmost, lower: Vec::new(), entries: Vec::new(), full_bytes: 0 }
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|(key, _)| &key[..])
    }

    fn shared(&self, key: &[u8], page_bytes: usize) -> usize {
        let first = self.entries.first().map_or(key, |(first, _)| first);
        common_prefix_bytes(first, key).min(prefix_bytes_max(page_bytes))
    }

    /// Returns whether the node would be too full with one more entry and an upper fence as long as its key.
    fn is_full_for(&self, key: &[u8], value: &[u8], page_bytes: usize, directory: usize) -> bool {
        let shared = self.shared(key, page_bytes);
        let saved = shared * self.entries.len();
        let fixed = shared + self.lower.len() + key.len() + directory;
        let bytes = fixed + self.full_bytes - saved.min(self.full_bytes)
            + entry_bytes(key.len() - shared, value.len());
        bytes > usable_bytes(page_bytes) * FILL_PERCENT / 100
    }
}

struct Builder<'p> {
    pager: &'p Pager,
    tree: &'p Tree,
    /// The widths of the columns of a leaf. The list is empty for leaves by rows.
    widths: &'p [u8],
    levels: Vec<Level>,
    reserved: u32,
    newest_txn: u64,
}

impl Builder<'_> {
    fn push(&mut self, level: usize, key: Vec<u8>, value: Vec<u8>) -> Result<(), TreeError> {
        let page_bytes = self.pager.page_size();
        let open = &self.levels[level];
        let directory =
            if level == 0 { Frame { widths: self.widths, ..Frame::EMPTY }.fixed_bytes() } else { 0 };
        if !open.entries.is_empty() && open.is_full_for(&key, &value, page_bytes, directory) {
            return self.close_and_push(level, key, value);
        }
        let open = &mut self.levels[level];
        open.full_bytes += entry_bytes(key.len(), value.len());
        open.entries.push((key, value));
        Ok(())
    }

    /// Writes the open node of a level, and begins the next one with the entry. The child of an entry becomes
    /// the leftmost child of an inner node.
    fn close_and_push(&mut self, level: usize, key: Vec<u8>, value: Vec<u8>) -> Result<(), TreeError> {
        let next = self.new_page()?;
        let separator = match level {
            0 => shortest_separator(self.levels[0].last_key().unwrap_or(&[]), &key),
            _ => key.clone(),
        };
        let leftmost = if level == 0 { 0 } else { child_of(&value) };
        let closed = std::mem::replace(&mut self.levels[level], Level::new(next, leftmost));
        self.levels[level].lower = separator.clone();
        self.write(level, closed.page, &closed, next.no().0, &separator)?;
        if level == 0 {
            self.push(0, key, value)?;
        }
        if level + 1 == self.levels.len() {
            let page = self.new_page()?;
            self.levels.push(Level::new(page, closed.page.no().0));
        }
        self.push(level + 1, separator, next.no().0.to_le_bytes().to_vec())
    }

    /// Writes the open nodes. The topmost node is written to the root page.
    fn finish(mut self) -> Result<(), TreeError> {
        let levels = std::mem::take(&mut self.levels);
        let top = levels.len() - 1;
        for (level, open) in levels.iter().enumerate() {
            let page = if level == top { self.tree.root } else { open.page };
            self.write(level, page, open, 0, &[])?;
        }
        self.give_back(levels[top].page)
    }

    fn write(
        &self,
        level: usize,
        page: PageId,
        open: &Level,
        right: u32,
        upper: &[u8],
    ) -> Result<(), TreeError> {
        let page_bytes = self.pager.page_size();
        let shared = open.last_key().map_or(0, |last| open.shared(last, page_bytes));
        let mut entries = Vec::with_capacity(page_bytes);
        for (key, value) in &open.entries {
            redo::push_entry(&mut entries, &key[shared..], value);
        }
        let frame = Frame {
            level: level as u8,
            stamped: self.tree.is_stamped(),
            right,
            leftmost: open.leftmost,
            newest_txn: if self.tree.is_stamped() { 0 } else { self.newest_txn },
            lower: &open.lower,
            upper,
            prefix: open.entries.first().map_or(&[], |(first, _)| &first[..shared]),
            widths: if level == 0 { self.widths } else { &[] },
        };
        let mut mtr = self.pager.begin()?;
        let held = match page == self.tree.root {
            true => mtr.x(page)?,
            false => mtr.create(page, KIND_NODE, self.tree.owner)?,
        };
        redo::apply(&mut mtr, held, &NodeOp::Build { frame, entries: &entries });
        mtr.commit();
        Ok(())
    }

    fn new_page(&mut self) -> Result<PageId, TreeError> {
        let space = self.tree.root.space();
        if self.reserved == 0 {
            self.pager.reserve(space, RESERVE_PAGES)?;
            self.reserved = RESERVE_PAGES;
        }
        self.reserved -= 1;
        let mut mtr = self.pager.begin()?;
        let page = mtr.allocate(space, self.tree.owner, None)?;
        mtr.create(page, KIND_NODE, self.tree.owner)?;
        mtr.commit();
        Ok(page)
    }

    /// Frees the page of the topmost node, whose content is in the root page.
    fn give_back(&self, page: PageId) -> Result<(), TreeError> {
        let mut mtr = self.pager.begin()?;
        mtr.x(page)?;
        mtr.free(page)?;
        mtr.commit();
        Ok(())
    }
}

/// Returns the shortest string that is above `left` and not above `right`.
fn shortest_separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    right[..common_prefix_bytes(left, right) + 1].to_vec()
}

fn child_of(value: &[u8]) -> u32 {
    let mut raw = [0; node::CHILD_BYTES];
    raw.copy_from_slice(&value[..node::CHILD_BYTES]);
    u32::from_le_bytes(raw)
}
