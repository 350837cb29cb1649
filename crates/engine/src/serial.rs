//! SERIALIZABLE by validated reads (decision 0509): what a transaction has read is compared, when it commits, with what others
//! have committed since its snapshot.
//!
//! Invariants
//! 1. A transaction that has written commits only if nothing that it read was written by another SERIALIZABLE transaction that
//!    committed after its snapshot; so it might have run at once, where it commits.
//! 2. A transaction that has written nothing might have run at once where its snapshot is, and is not asked.
//! 3. Check and commit record are one step among transactions of this level; others note and ask nothing.
//! 4. Memory is bounded: too many ranges become fewer and larger ones, and what is forgotten counts as met.
//!
//! Does not know: rows, keys' meaning; who reads.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use parking_lot::Mutex;
use varve_pager::Lsn;

use crate::error::{Error, Result};

/// Bytes of ranges that one transaction keeps.
const RANGES_BYTES_MAX: usize = 256 << 10;
/// Bytes that are kept of committed transactions.
const RECENT_BYTES_MAX: usize = 32 << 20;
/// What a range takes besides its bounds, about.
const RANGE_BYTES: usize = 64;

/// Ranges of keys in trees, none touching another. An upper bound is not in its range; without one it goes to the tree's end.
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

/// The next key behind one.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Whether a range with this end goes as far as `at`.
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

    fn add(&mut self, tree: u32, mut lower: Vec<u8>, mut upper: Option<Vec<u8>>) {
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
        // Those that the new one touches become part of it.
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

    /// Makes one range of every two neighbours in a tree.
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

    /// Makes whole trees of all ranges.
    fn widen(&mut self) {
        self.bytes = 0;
        for ((tree, _), _) in std::mem::take(&mut self.map) {
            if !self.map.contains_key(&(tree, Vec::new())) {
                self.put(tree, Vec::new(), None);
            }
        }
    }

    /// Whether some key is in both.
    pub(crate) fn meets(&self, other: &Ranges) -> bool {
        let (few, many) = if self.map.len() < other.map.len() { (self, other) } else { (other, self) };
        few.map.iter().any(|((tree, lower), upper)| many.has_in(*tree, lower, upper.as_deref()))
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

/// What one transaction of this level, and its readers, have read and written.
#[derive(Debug, Default)]
pub(crate) struct Serial {
    reads: Mutex<Ranges>,
    writes: Mutex<Ranges>,
}

impl Serial {
    #[cold]
    pub(crate) fn read_point(&self, tree: u32, key: &[u8]) {
        self.reads.lock().add_point(tree, key);
    }

    #[cold]
    pub(crate) fn read_range(&self, tree: u32, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        self.reads.lock().add_bounds(tree, lower, upper);
    }

    #[cold]
    pub(crate) fn wrote(&self, tree: u32, key: &[u8]) {
        self.writes.lock().add_point(tree, key);
    }
}

/// What was committed lately.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    commits: VecDeque<(Lsn, Ranges)>,
    bytes: usize,
    /// Commits up to here may have been forgotten.
    cut: Lsn,
}

impl Recent {
    /// Logs a commit by `log` if nothing that was read since `snapshot` was written meanwhile. `new_trees` count as written as a
    /// whole: what others wrote before is not noted for them. No snapshot is older than what `oldest` gives.
    pub(crate) fn commit(
        &self,
        serial: Option<(&Serial, Lsn)>,
        new_trees: &[u32],
        oldest: impl FnOnce() -> Lsn,
        log: impl FnOnce() -> Result<Lsn>,
    ) -> Result<Lsn> {
        let mut writes = serial.map_or_else(Ranges::default, |(s, _)| std::mem::take(&mut *s.writes.lock()));
        new_trees.iter().for_each(|tree| writes.add(*tree, Vec::new(), None));
        if writes.is_empty() {
            return log();
        }
        let mut kept = self.0.lock();
        if let Some((serial, snapshot)) = serial {
            kept.check(&serial.reads.lock(), snapshot)?;
        }
        let lsn = log()?;
        kept.push(lsn, writes);
        kept.forget(oldest());
        Ok(lsn)
    }
}

impl Kept {
    fn check(&self, reads: &Ranges, snapshot: Lsn) -> Result<()> {
        let later = self.commits.iter().rev().take_while(|(lsn, _)| *lsn > snapshot);
        let is_forgotten = self.cut > snapshot && !reads.is_empty();
        match is_forgotten || later.map(|(_, writes)| writes).any(|writes| writes.meets(reads)) {
            true => Err(Error::ReadWriteConflict),
            false => Ok(()),
        }
    }

    fn push(&mut self, lsn: Lsn, writes: Ranges) {
        self.bytes += writes.bytes;
        self.commits.push_back((lsn, writes));
        while self.bytes > RECENT_BYTES_MAX {
            self.pop();
        }
    }

    /// Forgets what all snapshots see.
    fn forget(&mut self, oldest: Lsn) {
        while self.commits.front().is_some_and(|(lsn, _)| *lsn <= oldest) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((lsn, writes)) = self.commits.pop_front() {
            self.bytes -= writes.bytes;
            self.cut = lsn;
        }
    }
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
            assert_eq!(one.meets(ranges), ranges.meets(&one));
            one.meets(ranges)
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

    /// Too many ranges become fewer; what was in one of them is in one of those.
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

    #[test]
    fn a_commit_meets_what_came_after_its_snapshot_only() {
        let recent = Recent::default();
        let commit = |read: u32, wrote: Option<u32>, snapshot: u64, at: u64| {
            let serial = Serial::default();
            serial.read_point(1, &point(read));
            wrote.iter().for_each(|n| serial.wrote(1, &point(*n)));
            let log = || Ok(Lsn::new(at));
            recent.commit(Some((&serial, Lsn::new(snapshot))), &[], || Lsn::ZERO, log).is_ok()
        };
        assert!(commit(1, Some(2), 0, 10));
        assert!(!commit(2, Some(3), 5, 20), "2 was written at 10");
        assert!(commit(2, Some(3), 10, 20));
        assert!(commit(3, None, 15, 30), "who writes nothing is not asked");
        assert!(commit(4, Some(5), 5, 40));
        recent.0.lock().forget(Lsn::new(20));
        assert_eq!(recent.0.lock().commits.len(), 1);
        assert!(!commit(9, Some(9), 15, 50), "what was at 20 is forgotten");
    }
}
