//! Sets of key ranges: first collected, then frozen for comparison.
//!
//! Invariants
//! 1. Memory is bounded. Too many ranges are merged into fewer and larger ones, which cover at least the same
//!    keys.
//! 2. `bytes` is the approximate memory of a set.
//!
//! This module does not know which transactions have read or written the ranges.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use varve_pager::Lsn;

/// Memory limit for the ranges of one transaction.
const RANGES_BYTES_MAX: usize = 256 << 10;
/// The approximate size of a range without its bounds: its entry in a node that is two thirds full, and two
/// allocations.
const RANGE_BYTES: usize = 128;
/// The approximate overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;

/// Ranges of keys in trees, with a gap between each two of them. An upper bound is not in its range. A range
/// without an upper bound ends with the tree.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    map: BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>>,
    bytes: usize,
}

/// A range of a tree, and whether it was joined from two.
type Joined = (u32, Vec<u8>, Option<Vec<u8>>, bool);

fn cost(lower: &[u8], upper: Option<&[u8]>) -> usize {
    RANGE_BYTES + lower.len() + upper.map_or(0, <[u8]>::len)
}

/// Returns the next key after this one.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Returns whether a range with this end reaches `at`.
fn reaches(upper: Option<&[u8]>, at: &[u8]) -> bool {
    upper.is_none_or(|upper| upper >= at)
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn add_point(&mut self, tree: u32, key: &[u8]) {
        self.add(tree, key.to_vec(), Some(behind(key)));
    }

    pub(crate) fn add_bounds(&mut self, tree: u32, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        let lower = match lower {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let upper = match upper {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        if upper.as_ref().is_none_or(|upper| *upper > lower) {
            self.add(tree, lower, upper);
        }
    }

    pub(crate) fn add(&mut self, tree: u32, mut lower: Vec<u8>, mut upper: Option<Vec<u8>>) {
        let before = self.map.range(..=(tree, lower.clone())).next_back();
        if let Some(((of, start), end)) = before
            && *of == tree
            && reaches(end.as_deref(), &lower)
        {
            if upper.as_ref().is_some_and(|upper| reaches(end.as_deref(), upper)) {
                return;
            }
            lower = start.clone();
        }
        // The new range absorbs the ranges that it touches.
        loop {
            let next = self.map.range((tree, lower.clone())..).next();
            let Some(((of, start), _)) = next else { break };
            if *of != tree || !reaches(upper.as_deref(), start) {
                break;
            }
            let start = start.clone();
            let end = self.take(tree, start);
            upper = upper.zip(end).map(|(a, b)| a.max(b));
        }
        self.put(tree, lower, upper);
        while self.bytes > RANGES_BYTES_MAX {
            let before = self.map.len();
            self.coarsen();
            if self.map.len() == before {
                self.widen();
                break;
            }
        }
    }

    fn put(&mut self, tree: u32, lower: Vec<u8>, upper: Option<Vec<u8>>) {
        self.bytes += cost(&lower, upper.as_deref());
        self.map.insert((tree, lower), upper);
    }

    fn take(&mut self, tree: u32, lower: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = RANGE_BYTES + lower.len();
        let upper = self.map.remove(&(tree, lower)).flatten();
        self.bytes -= bytes + upper.as_ref().map_or(0, Vec::len);
        upper
    }

    /// Merges every two neighbouring ranges of a tree into one.
    fn coarsen(&mut self) {
        let mut last: Option<Joined> = None;
        self.bytes = 0;
        for ((tree, lower), upper) in std::mem::take(&mut self.map) {
            last = match last {
                Some((of, start, _, false)) if of == tree => Some((tree, start, upper, true)),
                before => {
                    self.put_last(before);
                    Some((tree, lower, upper, false))
                }
            };
        }
        self.put_last(last);
    }

    fn put_last(&mut self, last: Option<Joined>) {
        if let Some((tree, lower, upper, _)) = last {
            self.put(tree, lower, upper);
        }
    }

    /// Replaces all ranges by whole trees.
    fn widen(&mut self) {
        self.bytes = 0;
        for ((tree, _), _) in std::mem::take(&mut self.map) {
            if !self.map.contains_key(&(tree, Vec::new())) {
                self.put(tree, Vec::new(), None);
            }
        }
    }

    /// Returns whether a key is in one of the ranges.
    pub(crate) fn has(&self, tree: u32, key: &[u8]) -> bool {
        self.has_in(tree, key, Some(&behind(key)))
    }

    fn has_in(&self, tree: u32, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let before = self.map.range(..=(tree, lower.to_vec())).next_back();
        let covers = |((of, _), end): (&(u32, Vec<u8>), &Option<Vec<u8>>)| {
            *of == tree && end.as_ref().is_none_or(|end| end.as_slice() > lower)
        };
        if before.is_some_and(covers) {
            return true;
        }
        let next = self.map.range((tree, lower.to_vec())..).next();
        next.is_some_and(|((of, start), _)| *of == tree && upper.is_none_or(|upper| start.as_slice() < upper))
    }
}

/// The end of a range.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// Just after its lower bound, so the range is one key.
    Point,
    /// Before this key.
    Before(&'a [u8]),
    /// At the end of the tree.
    Tree,
}

/// A range of keys in a tree.
#[derive(Clone, Copy, Debug)]
struct Range<'a> {
    tree: u32,
    lower: &'a [u8],
    end: End<'a>,
}

impl Range<'_> {
    /// Returns whether the range has `key`, or continues after it.
    fn reaches(&self, key: &[u8]) -> bool {
        match self.end {
            End::Point => key <= self.lower,
            End::Before(upper) => key < upper,
            End::Tree => true,
        }
    }
}

/// Ranges that do not change any more, in order, in a compact form.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    spans: Box<[Span]>,
    keys: Box<[u8]>,
}

/// The position of a range's bounds in the keys. The upper bound follows the lower one.
#[derive(Debug)]
struct Span {
    tree: u32,
    at: u32,
    lower_bytes: u32,
    /// Length of the upper bound, or one of the two below.
    end: u32,
}

const POINT: u32 = u32::MAX;
const TREE_END: u32 = u32::MAX - 1;

impl Frozen {
    pub(crate) fn of(ranges: &Ranges) -> Self {
        let mut spans = Vec::with_capacity(ranges.map.len());
        let mut keys = Vec::new();
        for ((tree, lower), upper) in &ranges.map {
            let at = keys.len() as u32;
            keys.extend_from_slice(lower);
            let end = match upper {
                None => TREE_END,
                Some(upper) if is_behind(upper, lower) => POINT,
                Some(upper) => {
                    keys.extend_from_slice(upper);
                    upper.len() as u32
                }
            };
            spans.push(Span { tree: *tree, at, lower_bytes: lower.len() as u32, end });
        }
        Self { spans: spans.into(), keys: keys.into() }
    }

    /// Returns the memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        // The queue of commits refers to it with an `Arc`.
        let fixed = size_of::<(Lsn, Arc<Self>)>() + size_of::<Self>() + 3 * ALLOCATION_BYTES;
        fixed + size_of_val(&*self.spans) + self.keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn range(&self, span: &Span) -> Range<'_> {
        let (lower, rest) = self.keys[span.at as usize..].split_at(span.lower_bytes as usize);
        let end = match span.end {
            POINT => End::Point,
            TREE_END => End::Tree,
            bytes => End::Before(&rest[..bytes as usize]),
        };
        Range { tree: span.tree, lower, end }
    }

    /// Returns whether a key is in both sets.
    pub(crate) fn meets(&self, other: &Frozen) -> bool {
        let (few, many) = if self.spans.len() < other.spans.len() { (self, other) } else { (other, self) };
        few.spans.iter().any(|span| many.meets_range(few.range(span)))
    }

    fn meets_range(&self, range: Range<'_>) -> bool {
        let start = |span: &Span| {
            let range = self.range(span);
            (range.tree, range.lower)
        };
        let next = self.spans.partition_point(|span| start(span) <= (range.tree, range.lower));
        let before = next.checked_sub(1).map(|at| self.range(&self.spans[at]));
        let after = self.spans.get(next).map(|span| self.range(span));
        before.is_some_and(|b| b.tree == range.tree && b.reaches(range.lower))
            || after.is_some_and(|a| a.tree == range.tree && range.reaches(a.lower))
    }
}

/// Returns whether `upper` is the next key after `lower`.
fn is_behind(upper: &[u8], lower: &[u8]) -> bool {
    upper.split_last().is_some_and(|(last, rest)| *last == 0 && rest == lower)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn point(n: u32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    fn bounds(ranges: &mut Ranges, tree: u32, from: u32, to: u32) {
        ranges.add_bounds(tree, Bound::Included(&point(from)), Bound::Excluded(&point(to)));
    }

    #[test]
    fn ranges_are_merged_and_met() {
        let mut ranges = Ranges::default();
        bounds(&mut ranges, 1, 10, 20);
        bounds(&mut ranges, 1, 30, 40);
        assert_eq!(ranges.map.len(), 2);
        let meets = |ranges: &Ranges, tree, n| {
            let mut one = Ranges::default();
            one.add_point(tree, &point(n));
            let (one, frozen) = (Frozen::of(&one), Frozen::of(ranges));
            assert_eq!(one.meets(&frozen), frozen.meets(&one));
            assert_eq!(one.meets(&frozen), ranges.has(tree, &point(n)));
            one.meets(&frozen)
        };
        assert!(
            meets(&ranges, 1, 10)
                && meets(&ranges, 1, 19)
                && !meets(&ranges, 1, 20)
                && !meets(&ranges, 2, 10)
        );
        bounds(&mut ranges, 1, 20, 30);
        assert_eq!(ranges.map.len(), 1);
        assert!(meets(&ranges, 1, 20) && !meets(&ranges, 1, 40) && !meets(&ranges, 1, 9));
        ranges.add_bounds(1, Bound::Excluded(&point(50)), Bound::Unbounded);
        assert!(
            !meets(&ranges, 1, 50)
                && meets(&ranges, 1, 51)
                && meets(&ranges, 1, u32::MAX)
                && !meets(&ranges, 2, 60)
        );
        bounds(&mut ranges, 1, 30, 60);
        assert_eq!(ranges.map.len(), 1);
        ranges.add_bounds(1, Bound::Included(&point(5)), Bound::Excluded(&point(5)));
        assert!(!meets(&ranges, 1, 5));
    }

    /// Too many ranges are merged. The merged ranges cover the same keys.
    #[test]
    fn ranges_are_bounded_and_forget_nothing() {
        let (mut ranges, mut kept) = (Ranges::default(), BTreeSet::new());
        let mut random = 7u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ranges.add_point(random % 3, &point(random >> 3));
            kept.insert((random % 3, random >> 3));
            assert!(ranges.bytes <= RANGES_BYTES_MAX);
        }
        let sum: usize = ranges.map.iter().map(|((_, l), u)| cost(l, u.as_deref())).sum();
        assert_eq!(sum, ranges.bytes);
        assert!(kept.into_iter().all(|(tree, n)| ranges.has_in(tree, &point(n), Some(&behind(&point(n))))));
        let mut wide = Ranges::default();
        (0..3).for_each(|tree| wide.add_point(tree, &vec![1; RANGES_BYTES_MAX]));
        assert!(wide.bytes <= RANGES_BYTES_MAX && wide.map.len() == 3);
    }

    /// Frozen ranges answer like the ranges themselves: for points, ranges and whole trees.
    #[test]
    fn frozen_ranges_meet_as_their_keys_do() {
        let mut random = 11u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for _ in 0..2_000 {
            let mut sides = [Ranges::default(), Ranges::default()];
            for ranges in &mut sides {
                for _ in 0..next(4) {
                    let (tree, from, shape) = (next(2), next(30), next(8));
                    match shape {
                        0 => ranges.add_bounds(tree, Bound::Excluded(&point(from)), Bound::Unbounded),
                        1..4 => bounds(ranges, tree, from, from + next(6)),
                        _ => ranges.add_point(tree, &point(from)),
                    }
                }
            }
            let in_both = |tree, key: &[u8]| sides.iter().all(|ranges| ranges.has(tree, key));
            let keys = (0..40).flat_map(|n| [point(n), behind(&point(n))]);
            let expected = keys.into_iter().any(|key| in_both(0, &key) || in_both(1, &key));
            let [a, b] = sides.each_ref().map(Frozen::of);
            assert_eq!((a.meets(&b), b.meets(&a)), (expected, expected), "{sides:?}");
        }
    }

    /// In an earlier version, 32 MiB of small commits took about 300 MiB of memory.
    #[test]
    fn a_small_commit_is_small_and_counted_in_full() {
        let mut one = Ranges::default();
        one.add_point(7, &[0; 9]);
        let frozen = Frozen::of(&one);
        assert_eq!((frozen.spans.len(), frozen.keys.len()), (1, 9));
        assert!(frozen.bytes() >= 9 + 16 + 16 + 32 && frozen.bytes() < 256, "{}", frozen.bytes());
    }
}
