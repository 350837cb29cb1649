//! Decides where a full node is split.
//!
//! Invariants
//! 1. Both halves fit in their pages with their new fences, before the new entry is added.
//! 2. Each split leaves fewer entries in the half that gets the new key, so repeated splits end.
//! 3. If keys are inserted in ascending order, the left half stays nearly full. Otherwise both halves get
//!    equally many bytes.
//!
//! This module does not know parents or page numbers. Source of the shortest separators: Bayer and Unterauer,
//! "Prefix B-Trees" (1977).

use super::{NodeRef, common_prefix_bytes, entry_bytes, usable_bytes};

/// After this number of successive inserts, each at the slot after the one before, a node counts as filled in
/// ascending order.
const RUN_MIN: usize = 4;

/// The point at which a node is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Entries `0..keep` stay in the node.
    pub keep: usize,
    /// The upper fence of the left and the lower fence of the right half. In an inner node it is the key of
    /// entry `keep`, which moves up.
    pub separator: Vec<u8>,
}

/// Finds a cut of a leaf after which `key` with a value of `value_bytes` has more space. Returns `None` if
/// there is nothing to cut, because the key's own entry is the only one.
pub fn cut_leaf(node: NodeRef<'_>, key: &[u8], value_bytes: usize) -> Option<Cut> {
    let list = Wanted::new(node, key, value_bytes);
    if list.len() < 2 {
        return None;
    }
    let preferred = list.preferred();
    let at = nearest(preferred, 1..list.len(), |at| list.fits(at))?;
    Some(Cut { keep: list.kept(at), separator: list.separator(at) })
}

/// Finds a cut of an inner node. The entry at the cut moves to the parent.
pub fn cut_inner(node: NodeRef<'_>) -> Option<Cut> {
    let sizes: Vec<usize> = (0..node.len()).map(|index| node.entry_bytes(index)).collect();
    let ascending = node.run() >= RUN_MIN && node.last_insert() + 1 == node.len();
    let preferred = if ascending { last_percent(&sizes, node.page_bytes()) } else { middle(&sizes) };
    let keep = nearest(preferred, 0..node.len(), |at| inner_halves_fit(node, &sizes, at))?;
    Some(Cut { keep, separator: node.key(keep) })
}

/// The entries of a leaf together with the new one.
struct Wanted<'a> {
    node: NodeRef<'a>,
    key: &'a [u8],
    slot: usize,
    exact: bool,
    sizes: Vec<usize>,
}

impl<'a> Wanted<'a> {
    fn new(node: NodeRef<'a>, key: &'a [u8], value_bytes: usize) -> Self {
        let found = node.search(key);
        let size = entry_bytes(key.len().saturating_sub(node.prefix_bytes()), value_bytes);
        let mut sizes: Vec<usize> = (0..node.len()).map(|index| node.entry_bytes(index)).collect();
        match found.exact {
            true => sizes[found.slot] = size,
            false => sizes.insert(found.slot, size),
        }
        Self { node, key, slot: found.slot, exact: found.exact, sizes }
    }

    fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the number of entries of the real node that stay in the left half, for a cut before entry `at`
    /// of this list.
    fn kept(&self, at: usize) -> usize {
        if self.exact || at <= self.slot { at } else { at - 1 }
    }

    fn key_at(&self, at: usize) -> Vec<u8> {
        if at == self.slot {
            return self.key.to_vec();
        }
        self.node.key(self.kept(at))
    }

    fn separator(&self, at: usize) -> Vec<u8> {
        let (left, mut right) = (self.key_at(at - 1), self.key_at(at));
        right.truncate(common_prefix_bytes(&left, &right) + 1);
        right
    }

    fn preferred(&self) -> usize {
        let follows = !self.exact && self.slot == self.node.last_insert() + 1 && self.node.run() >= RUN_MIN;
        match follows {
            true if self.slot == self.node.len() => last_percent(&self.sizes, self.node.page_bytes()),
            true => self.slot + 1,
            false => middle(&self.sizes),
        }
    }

    fn fits(&self, at: usize) -> bool {
        let keep = self.kept(at);
        let (node, separator) = (self.node, self.separator(at));
        let left: usize = (0..keep).map(|index| node.entry_bytes(index)).sum();
        let right: usize = (keep..node.len()).map(|index| node.entry_bytes(index)).sum();
        halves_fit(node, left, right, separator.len())
    }
}

fn inner_halves_fit(node: NodeRef<'_>, sizes: &[usize], at: usize) -> bool {
    let left: usize = sizes[..at].iter().sum();
    let right: usize = sizes[at + 1..].iter().sum();
    halves_fit(node, left, right, node.prefix_bytes() + node.suffix(at).len())
}

fn halves_fit(node: NodeRef<'_>, left_bytes: usize, right_bytes: usize, separator_bytes: usize) -> bool {
    let usable = usable_bytes(node.page_bytes()) - node.prefix_bytes() - node.directory_bytes();
    let (lower, upper) = (node.lower_fence().len(), node.upper_fence().map_or(0, <[u8]>::len));
    left_bytes + lower + separator_bytes <= usable && right_bytes + separator_bytes + upper <= usable
}

/// Returns the cut after which both sides have about half of the bytes.
fn middle(sizes: &[usize]) -> usize {
    let total: usize = sizes.iter().sum();
    let mut left = 0;
    for (at, size) in sizes.iter().enumerate() {
        if (left + size) * 2 > total {
            // The middle is within entry `at`. The entry goes to the smaller side.
            return if (left * 2 + size) > total { at } else { at + 1 };
        }
        left += size;
    }
    sizes.len()
}

/// Returns the cut after which the right half has a twentieth of a page, and at least the last entry.
fn last_percent(sizes: &[usize], page_bytes: usize) -> usize {
    let mut right = 0;
    for (at, size) in sizes.iter().enumerate().rev() {
        right += size;
        if right > page_bytes / 20 {
            return (at + 1).min(sizes.len() - 1);
        }
    }
    0
}

fn nearest(preferred: usize, range: std::ops::Range<usize>, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let start = preferred.clamp(range.start, range.end.max(range.start + 1) - 1);
    (0..range.len()).find_map(|distance| {
        let both = [start.checked_sub(distance), Some(start + distance)];
        both.into_iter().flatten().find(|at| range.contains(at) && fits(*at))
    })
}
