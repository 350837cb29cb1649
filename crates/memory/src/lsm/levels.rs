//! Decides which runs are merged next.
//!
//! A full MemTable becomes a run of level 0. When level 0 has as many runs as the growth factor k, they are
//! merged with the run of level 1 into a new run of level 1. Level 1 and each level below it have one run.
//! The run of a level may be k times as large as the run of the level above (Arulraj 2015, section 3.3). A
//! run that is larger is merged into the next level. A run with more tombstones than other entries is merged,
//! too, because tombstones and the entries that they hide take room.
//!
//! Invariants
//! 1. The runs of a merge are neighbours in the order of age. So the result can take their place in this
//!    order.
//!
//! This module does not know how runs are merged.

use super::run::Run;

/// The settings of an LSM tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LsmSettings {
    /// A MemTable that has more bytes than this becomes immutable, after the end of a transaction.
    pub memtable_bytes: u64,
    /// The growth factor k: how many times larger a level is than the one above, and the number of runs of
    /// level 0 that begin a merge. It is between 2 and 8. For any other value, the nearest of these numbers
    /// is used.
    pub growth: u64,
}

impl Default for LsmSettings {
    fn default() -> LsmSettings {
        LsmSettings { memtable_bytes: 4 << 20, growth: 4 }
    }
}

/// The smallest and the largest growth factor. A merge with the largest growth factor has so few runs that
/// one publication can end it.
const GROWTH_MIN: u64 = 2;
const GROWTH_MAX: u64 = 8;
/// If level 0 has this many runs, a merge is done at once to its end.
const FRESH_MAX: u64 = 32;
/// The largest number of runs in one merge.
pub(crate) const RUNS_AT_ONCE: usize = 12;

/// A merge that should be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergePlan {
    /// The positions of the runs among all runs, newest first.
    pub(crate) runs: Vec<usize>,
    /// The level of the result.
    pub(crate) level: u8,
    /// Whether no run is older than the runs of the merge.
    pub(crate) is_lowest: bool,
}

impl MergePlan {
    /// Returns the runs of the merge among all runs.
    pub(crate) fn picked<'r>(&self, runs: &'r [Run]) -> Vec<&'r Run> {
        self.runs.iter().filter_map(|number| runs.get(*number)).collect()
    }
}

impl LsmSettings {
    fn growth(&self) -> u64 {
        self.growth.clamp(GROWTH_MIN, GROWTH_MAX)
    }

    /// Returns the number of bytes that the run of a level may have.
    fn limit(&self, level: u8) -> u64 {
        self.memtable_bytes.saturating_mul(self.growth().saturating_pow(u32::from(level) + 1))
    }

    /// Returns how many bytes to merge after transactions have added `added_bytes`. Each level is rewritten
    /// about k times until a run of its size has come from the level above. The more runs level 0 has beyond
    /// k, the more bytes are merged.
    pub(crate) fn merged_bytes(&self, runs: &[Run], added_bytes: u64) -> u64 {
        let levels = runs.last().map_or(0, |run| u64::from(run.level)) + 2;
        let fresh = runs.iter().filter(|run| run.level == 0).count() as u64;
        let behind = (fresh + 1).saturating_sub(self.growth()).max(1);
        match fresh < FRESH_MAX {
            true => added_bytes.saturating_mul(2 * self.growth() * levels * behind),
            false => u64::MAX,
        }
    }

    /// Returns the merge that should be done next. `runs` are sorted, newest first.
    pub(crate) fn next_merge(&self, runs: &[Run]) -> Option<MergePlan> {
        let (fresh, deep) = runs.split_at(runs.iter().take_while(|run| run.level == 0).count());
        if fresh.len() as u64 >= self.growth() {
            // If there are too many runs for one merge, the oldest ones are merged.
            let from = fresh.len().saturating_sub(RUNS_AT_ONCE - 1);
            let has_next = deep.first().is_some_and(|run| run.level == 1);
            return Some(plan(runs, from, fresh.len() + usize::from(has_next), 1));
        }
        let is_due = |run: &Run| run.entry_bytes > self.limit(run.level) || has_many_tombstones(run);
        let number = deep.iter().position(is_due)?;
        let from = fresh.len() + number;
        let run = runs.get(from)?;
        if from + 1 == runs.len() && has_many_tombstones(run) {
            return Some(plan(runs, from, from + 1, run.level));
        }
        let level = run.level + 1;
        let has_next = runs.get(from + 1).is_some_and(|run| run.level == level);
        Some(plan(runs, from, from + 1 + usize::from(has_next), level))
    }
}

/// Returns whether more than half of the keys of a run are tombstones. Then the run is merged to free space.
fn has_many_tombstones(run: &Run) -> bool {
    2 * run.tombstones > run.keys
}

/// Returns a merge of all runs, or of the oldest ones if there are too many for one merge. The merge gets
/// room back. Returns `None` if there are no runs.
pub(crate) fn merge_of_all(runs: &[Run]) -> Option<MergePlan> {
    let lowest = runs.last()?;
    let from = runs.len().saturating_sub(RUNS_AT_ONCE);
    Some(plan(runs, from, runs.len(), lowest.level.max(1)))
}

fn plan(runs: &[Run], from: usize, end: usize, level: u8) -> MergePlan {
    MergePlan { runs: (from..end).collect(), level, is_lowest: end == runs.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::bloom::Filter;
    use crate::lsm::media::Location;
    use crate::lsm::run::{PackedRun, RunForm};

    fn run(level: u8, entry_bytes: u64) -> Run {
        let form = RunForm::Packed(PackedRun { location: Location::Region, root: 0 });
        let filter = Filter::File { at: 0, bits: Box::new([]) };
        Run { level, sequence: 0, id: 0, form, filter, entry_bytes, keys: 10, tombstones: 0 }
    }

    /// Checks which of these runs are merged next. A run is given by its level and its kilobytes. `merged`
    /// has the numbers of the merged runs, and `level` is the level of the result.
    fn check(runs: &[(u8, u64)], merged: &[usize], level: u8, is_lowest: bool) {
        let settings = LsmSettings { memtable_bytes: 1000, growth: 3 };
        let runs: Vec<Run> = runs.iter().map(|(level, bytes)| run(*level, bytes * 1000)).collect();
        let plan = (!merged.is_empty()).then(|| MergePlan { runs: merged.to_vec(), level, is_lowest });
        assert_eq!(settings.next_merge(&runs), plan);
    }

    #[test]
    fn neighbours_are_merged() {
        check(&[], &[], 0, true);
        check(&[(0, 1), (0, 1)], &[], 0, true);
        check(&[(0, 1), (0, 1), (0, 1)], &[0, 1, 2], 1, true);
        check(&[(0, 1), (0, 1), (0, 1), (1, 5)], &[0, 1, 2, 3], 1, true);
        check(&[(0, 1), (0, 1), (0, 1), (2, 5)], &[0, 1, 2], 1, false);
        check(&[(0, 1), (1, 9), (2, 20)], &[], 0, true);
        check(&[(0, 1), (1, 10), (2, 20)], &[1, 2], 2, true);
        check(&[(0, 1), (1, 10), (2, 20), (3, 50)], &[1, 2], 2, false);
        check(&[(1, 9), (2, 28)], &[1], 3, true);
    }

    #[test]
    fn tombstones_sink_to_the_lowest_level() {
        let settings = LsmSettings { memtable_bytes: 1000, growth: 3 };
        let mut runs = [run(1, 1), run(2, 1)];
        runs[0].tombstones = 6;
        let plan = |runs, level| Some(MergePlan { runs, level, is_lowest: true });
        assert_eq!(settings.next_merge(&runs), plan(vec![0, 1], 2));
        assert_eq!(settings.next_merge(&runs[..1]), plan(vec![0], 1));
        runs[0].tombstones = 5;
        assert_eq!(settings.next_merge(&runs), None);
    }
}
