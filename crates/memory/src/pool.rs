//! The pool of segments that are not in slabs: free segments, and runs of segments that are large chunks.
//!
//! Allocation is rotating best fit (Arulraj, Pavlo and Dulloor 2015, section 2.3). It takes the shortest free
//! stretch that is long enough. If several stretches have this length, it takes the next one after the last
//! allocation, so that the region wears evenly.
//!
//! Invariants
//! 1. No two free stretches are adjacent. `by_start` and `by_length` list the same stretches.
//! 2. The descriptors of free segments are durably 0. So splitting and merging stretches changes nothing in
//!    the region, and a crash cannot interrupt it.
//!
//! This module does not know slabs or the region.

use std::collections::{BTreeMap, BTreeSet};

use crate::pointer::Owner;
use crate::slab::{Intent, Refused};

/// A large chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of segments.
    pub(crate) segments: u32,
    /// The owner of the chunk.
    pub(crate) owner: Owner,
    /// Whether the region has the descriptor of the run.
    pub(crate) is_active: bool,
    /// Whether a call is changing the state of the run.
    pub(crate) is_claimed: bool,
}

/// Free segments and runs.
#[derive(Default)]
pub(crate) struct Pool {
    /// The length of each free stretch, by its first segment.
    by_start: BTreeMap<u32, u32>,
    /// The free stretches, ordered by length and then by first segment.
    by_length: BTreeSet<(u32, u32)>,
    free_segments: u32,
    /// The segment after the last stretch that was taken.
    cursor: u32,
    /// Runs by their first segment.
    runs: BTreeMap<u32, Run>,
}

impl Pool {
    /// Returns the number of free segments.
    pub(crate) fn free_segments(&self) -> u32 {
        self.free_segments
    }

    /// Takes this many segments from a free stretch, and returns the first one.
    pub(crate) fn take(&mut self, segments: u32) -> Option<u32> {
        let (length, lowest) = *self.by_length.range((segments, 0)..).next()?;
        let mut same = self.by_length.range((length, self.cursor)..=(length, u32::MAX));
        let start = same.next().map_or(lowest, |(_, start)| *start);
        self.remove(start, length);
        if length > segments {
            self.insert(start + segments, length - segments);
        }
        self.cursor = start + segments;
        Some(start)
    }

    /// Makes segments free, and merges them with neighbouring free segments.
    pub(crate) fn give(&mut self, start: u32, segments: u32) {
        let (mut start, mut length) = (start, segments);
        let before = self.by_start.range(..start).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, before)) = before.filter(|(at, length)| at + length == start) {
            self.remove(at, before);
            (start, length) = (at, before + length);
        }
        if let Some(behind) = self.by_start.get(&(start + length)).copied() {
            self.remove(start + length, behind);
            length += behind;
        }
        self.insert(start, length);
    }

    fn insert(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.free_segments += length;
    }

    fn remove(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.free_segments -= length;
    }

    /// Adds a run, whose segments were taken before.
    pub(crate) fn add_run(&mut self, start: u32, run: Run) {
        self.runs.insert(start, run);
    }

    /// Returns the first segment of the run that a segment is in.
    pub(crate) fn run_around(&self, segment: u32) -> Option<u32> {
        let (start, run) = self.runs.range(..=segment).next_back()?;
        (segment - start < run.segments).then_some(*start)
    }

    /// Claims a run for a change, and returns whether it is active.
    pub(crate) fn claim(&mut self, start: u32, intent: Intent) -> Result<bool, Refused> {
        match self.runs.get_mut(&start) {
            None => Err(Refused::Free),
            Some(run) if run.is_claimed => Err(Refused::Claimed),
            Some(run) if run.is_active && intent == Intent::Activate => Err(Refused::Active),
            Some(run) => {
                run.is_claimed = true;
                Ok(run.is_active)
            }
        }
    }

    /// Ends a claim, and does not change the state of the run.
    pub(crate) fn unclaim(&mut self, start: u32) {
        if let Some(run) = self.runs.get_mut(&start) {
            run.is_claimed = false;
        }
    }

    /// Sets whether a run is active in DRAM. The caller stores the same in the region.
    pub(crate) fn set_active(&mut self, start: u32, is_active: bool) {
        if let Some(run) = self.runs.get_mut(&start) {
            run.is_active = is_active;
        }
    }

    /// Makes the segments of a claimed run free.
    pub(crate) fn release(&mut self, start: u32) {
        if let Some(run) = self.runs.remove(&start) {
            self.give(start, run.segments);
        }
    }

    /// Returns the first segments of an owner's runs.
    pub(crate) fn runs_of(&self, owner: Owner) -> Vec<u32> {
        self.runs().filter(|(_, run)| run.owner == owner).map(|(start, _)| start).collect()
    }

    /// Returns the runs, with their first segments.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, &Run)> {
        self.runs.iter().map(|(start, run)| (*start, run))
    }

    /// Returns the free stretches: first segment and length.
    #[cfg(test)]
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (u32, u32)> {
        self.by_start.iter().map(|(start, length)| (*start, *length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(stretches: &[(u32, u32)]) -> Pool {
        let mut pool = Pool::default();
        stretches.iter().for_each(|(start, length)| pool.give(*start, *length));
        pool
    }

    #[test]
    fn the_shortest_stretch_that_fits_is_cut() {
        let mut pool = pool(&[(0, 8), (10, 3), (20, 5)]);
        assert_eq!(pool.take(4), Some(20));
        assert_eq!(pool.take(3), Some(10));
        assert_eq!(pool.take(9), None);
        assert_eq!(pool.stretches().collect::<Vec<_>>(), [(0, 8), (24, 1)]);
        assert_eq!(pool.free_segments(), 9);
    }

    #[test]
    fn of_equal_ones_the_next_is_cut() {
        let mut pool = pool(&[(0, 2), (10, 2), (20, 2)]);
        assert_eq!([pool.take(2), pool.take(2)], [Some(0), Some(10)]);
        pool.give(0, 2);
        assert_eq!([pool.take(2), pool.take(2), pool.take(2)], [Some(20), Some(0), None]);
    }

    #[test]
    fn neighbours_are_merged() {
        let mut pool = pool(&[(0, 2), (4, 2)]);
        pool.give(2, 2);
        assert_eq!(pool.stretches().collect::<Vec<_>>(), [(0, 6)]);
        assert_eq!(pool.take(6), Some(0));
    }
}
