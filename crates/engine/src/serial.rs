//! Isolation level SERIALIZABLE by validated reads (decision 0509). When a transaction commits, its reads are
//! compared with what other transactions have committed since its snapshot.
//!
//! Invariants
//! 1. A transaction that has written may commit only if, since its snapshot, no other SERIALIZABLE
//!    transaction has committed a change of rows that the first one has read. Then its place in the
//!    serial order is its commit.
//! 2. A transaction that has used only tables in pages and has written nothing is not checked. Its place in
//!    the serial order is its snapshot.
//! 3. The check and the commit record are one atomic step among SERIALIZABLE transactions. Transactions of
//!    other isolation levels record no reads or writes and are not checked.
//! 4. A transaction that has used tables of memory-oriented engines is checked before their stores commit,
//!    even if it has written nothing. It has locked the partitions of these tables. So its place in the
//!    serial order is the check.
//! 5. Memory is bounded. If a transaction has too many ranges of keys, they are merged into fewer and larger
//!    ones. If the ranges of a commit were dropped, later checks against this commit count as conflicts.
//!
//! This module does not know rows or the meaning of keys.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use varve_pager::Lsn;

use crate::error::{Error, Result};
use crate::ranges::{Frozen, Ranges};

/// Memory limit for the writes of committed transactions.
const RECENT_BYTES_MAX: usize = 32 << 20;
/// The number of commits that are compared while other transactions wait to commit.
const CHECKED_AT_ONCE: usize = 256;
/// The number of commits after which those that all snapshots see are removed.
const FORGET_PERIOD: usize = 64;

/// The reads and writes of one transaction of this level, and of its readers.
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

    /// Returns whether a range that was read has this key.
    pub(crate) fn has_read(&self, tree: u32, key: &[u8]) -> bool {
        self.reads.lock().has(tree, key)
    }

    #[cold]
    pub(crate) fn wrote(&self, tree: u32, key: &[u8]) {
        self.writes.lock().add_point(tree, key);
    }
}

/// The writes of recent commits.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    commits: VecDeque<(Lsn, Arc<Frozen>)>,
    bytes: usize,
    /// Commits up to this LSN may have been removed.
    cut: Lsn,
    /// The number of removed commits, which is the number of the first remaining one.
    forgotten: u64,
    /// The number of commits since commits that all snapshots see were last removed.
    since_asked: usize,
}

impl Recent {
    /// Logs a commit by calling `log`, unless another transaction has written after `snapshot` what this one
    /// has read. The trees in `new_trees` count as written completely, because the writes of other
    /// transactions to the old trees are not recorded for the new ones. No snapshot is older than the result
    /// of `oldest`.
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
        let writes = Arc::new(Frozen::of(&writes));
        let reads = serial.map(|(serial, snapshot)| (Frozen::of(&serial.reads.lock()), snapshot));
        let mut kept = match reads {
            Some((reads, snapshot)) if !reads.is_empty() => self.checked(&reads, snapshot)?,
            _ => self.0.lock(),
        };
        let lsn = log()?;
        kept.push(lsn, writes);
        if kept.since_asked >= FORGET_PERIOD {
            kept.forget(oldest());
        }
        Ok(lsn)
    }

    /// Returns an error if another transaction has written after `snapshot` what this one has read. The
    /// transaction is one whose changes are not in the log. Its locks keep its changes in order with those of
    /// others.
    pub(crate) fn check(&self, serial: &Serial, snapshot: Lsn) -> Result<()> {
        let reads = Frozen::of(&serial.reads.lock());
        if reads.is_empty() { Ok(()) } else { self.checked(&reads, snapshot).map(drop) }
    }

    /// Compares the reads with everything that was committed since the snapshot. No transaction can commit
    /// until the guard is dropped.
    fn checked(&self, reads: &Frozen, snapshot: Lsn) -> Result<MutexGuard<'_, Kept>> {
        let mut kept = self.0.lock();
        let mut at = kept.first_after(snapshot)?;
        loop {
            let next = kept.some_from(at)?;
            let is_last = next.len() < CHECKED_AT_ONCE;
            let meets = || next.iter().any(|writes| writes.meets(reads));
            // During most comparisons of a long transaction, the mutex is not locked, so other transactions
            // can commit.
            if if is_last { meets() } else { MutexGuard::unlocked(&mut kept, meets) } {
                return Err(Error::ReadWriteConflict);
            }
            if is_last {
                return Ok(kept);
            }
            at += next.len() as u64;
        }
    }
}

impl Kept {
    /// Returns the number of the first commit that the snapshot does not see.
    fn first_after(&self, snapshot: Lsn) -> Result<u64> {
        if self.cut > snapshot {
            return Err(Error::ReadWriteConflict);
        }
        Ok(self.forgotten + self.commits.partition_point(|(lsn, _)| *lsn <= snapshot) as u64)
    }

    /// Returns some commits from this number on.
    fn some_from(&self, at: u64) -> Result<Vec<Arc<Frozen>>> {
        let skipped = at.checked_sub(self.forgotten).ok_or(Error::ReadWriteConflict)?;
        let next = self.commits.iter().skip(skipped as usize).take(CHECKED_AT_ONCE);
        Ok(next.map(|(_, writes)| Arc::clone(writes)).collect())
    }

    fn push(&mut self, lsn: Lsn, writes: Arc<Frozen>) {
        self.bytes += writes.bytes();
        self.since_asked += 1;
        self.commits.push_back((lsn, writes));
        while self.bytes > RECENT_BYTES_MAX {
            self.pop();
        }
    }

    /// Removes the commits that all snapshots see.
    fn forget(&mut self, oldest: Lsn) {
        self.since_asked = 0;
        while self.commits.front().is_some_and(|(lsn, _)| *lsn <= oldest) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((lsn, writes)) = self.commits.pop_front() {
            self.bytes -= writes.bytes();
            self.cut = lsn;
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(n: u32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
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

    /// During the comparison of a long transaction, other transactions can commit, and none of these commits
    /// is missed.
    #[test]
    fn commits_during_a_long_comparison_are_compared_as_well() {
        let recent = Recent::default();
        let write = |n: u32, at: u64| {
            let serial = Serial::default();
            serial.wrote(1, &point(n));
            recent.commit(Some((&serial, Lsn::new(at - 1))), &[], || Lsn::ZERO, || Ok(Lsn::new(at))).unwrap();
        };
        let last = 10 * CHECKED_AT_ONCE as u64;
        (1..=last).for_each(|at| write(1_000 + at as u32, at));
        let long = |read: u32, snapshot: u64| {
            let serial = Serial::default();
            serial.read_point(1, &point(read));
            recent.checked(&Frozen::of(&serial.reads.lock()), Lsn::new(snapshot)).is_ok()
        };
        assert!(long(1, 0));
        for at in [1, 2, CHECKED_AT_ONCE as u64, CHECKED_AT_ONCE as u64 + 1, last - 1, last] {
            assert!(!long(1_000 + at as u32, at - 1) && long(1_000 + at as u32, at), "{at}");
        }
        recent.0.lock().forget(Lsn::new(last / 2));
        assert!(!long(1, 1) && long(1, last / 2) && !long(1_000 + last as u32, last / 2));
    }
}
