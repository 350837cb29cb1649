//! Scans in both directions, one leaf at a time.
//!
//! Invariants
//! 1. A scan copies a leaf as a batch. Between batches it holds no latch and no pin, and it finds the next
//!    leaf by the copied leaf's fence. So a scan waits for no other page, and is not disturbed by splits and
//!    merges.
//! 2. Each entry that is in the tree during the whole scan is seen exactly once, in order.
//!
//! This module does not know which entries are visible. A batch also has delete-marked entries.

use std::ops::Bound;

use varve_pager::{Access, Lsn, PageId, Pager};

use super::descend::ChildChoice;
use super::{Tree, TreeResult};
use crate::node::{EntryRef, NodeRef};

/// After this number of leaves a scan counts as long. Then it reads ahead, and its leaves do not evict other
/// pages.
const LONG_LEAVES: u32 = 4;
/// The number of leaves that are read ahead together.
const AHEAD_LEAVES: usize = 32;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The start of the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// At the end where the scan begins.
    Edge,
    /// At this key, inclusive.
    At,
    /// After this key, in the scan's direction.
    Beyond,
    /// The scan has ended.
    Done,
}

/// A scan between two bounds. `reset` starts another scan with the same buffers.
#[derive(Debug)]
pub struct Scan {
    direction: Direction,
    next: Next,
    next_key: Vec<u8>,
    stop: Bound<Vec<u8>>,
    limit: usize,
    leaves: u32,
    /// The number of leaves that were read ahead and not reached yet.
    ahead: usize,
    page: Vec<u8>,
    first: usize,
    len: usize,
}

impl Scan {
    /// Returns a scan of the keys between `lower` and `upper`. A batch has at most `limit` entries; 0 means a
    /// whole leaf.
    pub fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction, limit: usize) -> Self {
        let mut scan = Self {
            direction,
            next: Next::Done,
            next_key: Vec::new(),
            stop: Bound::Unbounded,
            limit: 0,
            leaves: 0,
            ahead: 0,
            page: Vec::new(),
            first: 0,
            len: 0,
        };
        scan.reset(lower, upper, direction, limit);
        scan
    }

    /// Begins another scan with the same buffers.
    pub fn reset(&mut self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction, limit: usize) {
        let (start, stop) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Backward => (upper, lower),
        };
        self.direction = direction;
        self.next_key.clear();
        self.next = match start {
            Bound::Unbounded => Next::Edge,
            Bound::Included(_) => Next::At,
            Bound::Excluded(_) => Next::Beyond,
        };
        if let Bound::Included(key) | Bound::Excluded(key) = start {
            self.next_key.extend_from_slice(key);
        }
        self.stop = stop.map(<[u8]>::to_vec);
        self.limit = if limit == 0 { usize::MAX } else { limit };
        (self.leaves, self.ahead, self.first, self.len) = (0, 0, 0, 0);
    }

    /// Returns the number of entries in the current batch.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the current batch is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an entry of the current batch, in the scan's order.
    #[inline]
    pub fn entry(&self, index: usize) -> EntryRef<'_> {
        NodeRef::new(&self.page).entry(self.slot(index))
    }

    /// Returns the slot of an entry of the current batch.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> usize {
        assert!(index < self.len, "entry {index} of a batch of {}", self.len);
        match self.direction {
            Direction::Forward => self.first + index,
            Direction::Backward => self.first + self.len - 1 - index,
        }
    }

    /// Returns the leaf of the current batch, which is not empty.
    pub(crate) fn leaf(&self) -> NodeRef<'_> {
        NodeRef::new(&self.page)
    }

    /// Whether the current batch has all entries of its leaf.
    pub(crate) fn has_whole_leaf(&self) -> bool {
        self.first == 0 && self.len == self.leaf().len()
    }

    /// Newest transaction that changed the leaf of the current batch (secondary trees).
    pub fn newest_txn(&self) -> u64 {
        if self.page.is_empty() { 0 } else { NodeRef::new(&self.page).newest_txn() }
    }

    fn target(&self) -> ChildChoice<'_> {
        match (self.direction, self.next) {
            (Direction::Forward, Next::Edge) => ChildChoice::Key(&[]),
            (Direction::Backward, Next::Edge) => ChildChoice::Last,
            (Direction::Backward, Next::Beyond) => ChildChoice::Below(&self.next_key),
            _ => ChildChoice::Key(&self.next_key),
        }
    }

    const fn access(&self) -> Access {
        if self.leaves >= LONG_LEAVES { Access::Sequential } else { Access::Random }
    }

    /// Copies a leaf, and finds the slots that are within the scan's bounds.
    fn take(&mut self, leaf: &[u8]) {
        let node = NodeRef::new(leaf);
        let (from, to) = match self.direction {
            Direction::Forward => (self.first_slot(node), self.end_slot(node)),
            Direction::Backward => (self.lowest_slot(node), self.last_slot(node)),
        };
        let wanted = to.saturating_sub(from);
        self.len = wanted.min(self.limit);
        self.first = match self.direction {
            Direction::Forward => from,
            Direction::Backward => to - self.len,
        };
        self.leaves += 1;
        self.advance(node, wanted > self.len);
        if self.len > 0 {
            self.page.clear();
            self.page.extend_from_slice(leaf);
        }
    }

    /// Goes on behind a leaf without its entries.
    fn pass_by(&mut self, leaf: &[u8]) {
        (self.first, self.len) = (0, 0);
        self.leaves += 1;
        self.advance(NodeRef::new(leaf), false);
    }

    /// The first slot of a forward scan.
    fn first_slot(&self, node: NodeRef<'_>) -> usize {
        match self.next {
            Next::Edge => 0,
            _ => {
                let found = node.search_inside(&self.next_key);
                found.slot + usize::from(found.exact && self.next == Next::Beyond)
            }
        }
    }

    /// Returns the slot after the last one of a forward scan.
    fn end_slot(&self, node: NodeRef<'_>) -> usize {
        match &self.stop {
            Bound::Unbounded => node.len(),
            Bound::Included(key) => {
                let found = node.search(key);
                found.slot + usize::from(found.exact)
            }
            Bound::Excluded(key) => node.search(key).slot,
        }
    }

    /// Returns the slot after the first one of a backward scan.
    fn last_slot(&self, node: NodeRef<'_>) -> usize {
        match self.next {
            Next::Edge => node.len(),
            _ => {
                let found = node.search_inside(&self.next_key);
                found.slot + usize::from(found.exact && self.next == Next::At)
            }
        }
    }

    /// Returns the lowest slot of a backward scan.
    fn lowest_slot(&self, node: NodeRef<'_>) -> usize {
        match &self.stop {
            Bound::Unbounded => 0,
            Bound::Included(key) => node.search(key).slot,
            Bound::Excluded(key) => {
                let found = node.search(key);
                found.slot + usize::from(found.exact)
            }
        }
    }

    /// Stores where the next batch begins. `more` means that this batch ended at the limit.
    fn advance(&mut self, node: NodeRef<'_>, more: bool) {
        if more {
            let last = match self.direction {
                Direction::Forward => self.first + self.len - 1,
                Direction::Backward => self.first,
            };
            self.seek(Next::Beyond, &[node.prefix(), node.suffix(last)]);
            return;
        }
        match self.direction {
            Direction::Forward => match node.upper_fence() {
                Some(fence) if self.may_go_on(fence) => self.seek(Next::At, &[fence]),
                _ => self.next = Next::Done,
            },
            Direction::Backward => match node.lower_fence() {
                [] => self.next = Next::Done,
                fence if self.may_go_on(fence) => self.seek(Next::Beyond, &[fence]),
                _ => self.next = Next::Done,
            },
        }
    }

    fn seek(&mut self, next: Next, parts: &[&[u8]]) {
        self.next = next;
        self.next_key.clear();
        parts.iter().for_each(|part| self.next_key.extend_from_slice(part));
    }

    /// Returns the child of an inner node in which the scan ends. If the scan goes further, returns the last
    /// child in the scan's direction.
    fn last_child(&self, node: NodeRef<'_>) -> usize {
        match (&self.stop, self.direction) {
            (Bound::Included(stop) | Bound::Excluded(stop), _) => {
                let found = node.search(stop);
                found.slot + usize::from(found.exact)
            }
            (Bound::Unbounded, Direction::Forward) => node.len(),
            (Bound::Unbounded, Direction::Backward) => 0,
        }
    }

    /// Returns whether keys beyond a leaf's fence can be within the scan's bounds.
    fn may_go_on(&self, fence: &[u8]) -> bool {
        match (&self.stop, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(stop), Direction::Forward) => fence <= &stop[..],
            (Bound::Excluded(stop), Direction::Forward) => fence < &stop[..],
            // The fence belongs to this leaf. All keys to the left are below it.
            (Bound::Included(stop) | Bound::Excluded(stop), Direction::Backward) => fence > &stop[..],
        }
    }
}

impl Tree {
    /// Copies the next batch of entries into the scan. A batch has at most the entries of one leaf, up to the
    /// scan's limit. Returns false when the scan has ended.
    pub fn next_batch(&self, pager: &Pager, scan: &mut Scan) -> TreeResult<bool> {
        scan.len = 0;
        while scan.next != Next::Done && scan.len == 0 {
            self.read_ahead(pager, scan)?;
            let leaf = self.latch_leaf_s(pager, scan.target(), scan.access())?;
            scan.take(&leaf);
        }
        Ok(scan.len > 0)
    }

    /// As `next_batch`, but goes on by one leaf only, and passes it by if `is_passed_by` says so. It gets the
    /// page and its LSN. The batch is empty if the leaf was passed by, or has no entry within the bounds.
    pub(crate) fn next_leaf(
        &self,
        pager: &Pager,
        scan: &mut Scan,
        is_passed_by: &mut dyn FnMut(PageId, Lsn) -> bool,
    ) -> TreeResult<bool> {
        scan.len = 0;
        if scan.next == Next::Done {
            return Ok(false);
        }
        self.read_ahead(pager, scan)?;
        let leaf = self.latch_leaf_s(pager, scan.target(), scan.access())?;
        match is_passed_by(leaf.id(), leaf.lsn()) {
            true => scan.pass_by(&leaf),
            false => scan.take(&leaf),
        }
        Ok(true)
    }

    /// Reads the next leaves of a long scan together, up to the one in which the scan ends. No latch is held
    /// meanwhile.
    fn read_ahead(&self, pager: &Pager, scan: &mut Scan) -> TreeResult<()> {
        if scan.leaves < LONG_LEAVES {
            return Ok(());
        }
        if scan.ahead > 0 {
            scan.ahead -= 1;
            return Ok(());
        }
        let parent = self.latch_s(pager, scan.target(), 1, Access::Random)?;
        let node = NodeRef::new(&parent);
        if node.is_leaf() {
            return Ok(());
        }
        let at = scan.target().child_index(node);
        let range = match (scan.direction, scan.last_child(node)) {
            (Direction::Forward, last) => at..(at + AHEAD_LEAVES).min(last.max(at) + 1),
            (Direction::Backward, last) => (at + 1).saturating_sub(AHEAD_LEAVES).max(last.min(at))..at + 1,
        };
        scan.ahead = range.len();
        let pages: Vec<_> = range.map(|index| self.page_id(node.child(index))).collect();
        drop(parent);
        pager.prefetch(&pages);
        Ok(())
    }
}
