//! The merges of a store, one at a time. The module decides when a merge begins, how many bytes each step
//! merges, and what happens in a full region.
//!
//! ```text
//!               begin_due, make_room,                        step         end_merged
//!   no merge ──── merge_all ────> [`RunningMerge`] ──step──> ... ──> all merged ────> no merge
//!       ^                                │                                │
//!       └──────── give_up: the region is full, the merge is blocked ──────┘
//! ```
//!
//! Invariants
//! 1. At most one merge runs.
//! 2. If there is no room for a merge, that is no error. The next merge begins when the number of runs has
//!    changed.
//!
//! This module does not know how a set of runs becomes durable (the [`RunSet`] of an engine), or
//! transactions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::levels::{LsmSettings, MergePlan, merge_of_all};
use super::merge::Merge;
use super::run::Run;
use super::store::unless_full;
use crate::store_error::{StoreError, StoreResult};

/// The bytes that are merged for each tombstone that a scan has passed. This number is a guess of what takes
/// the same time as passing a tombstone.
const BYTES_FOR_PASSED: u64 = 64;
/// The most passed tombstones that one step makes up for, so that no commit waits long.
const PASSED_AT_ONCE: u64 = 1 << 14;

/// A merge that runs.
pub(crate) struct RunningMerge {
    pub(crate) merge: Merge,
    /// The id of the output in the engine: the number of its slot or of its file.
    pub(crate) output: u64,
    /// The ids of the runs that are merged.
    pub(crate) inputs: Vec<u64>,
    /// The level of the output.
    pub(crate) level: u8,
}

/// The runs of an engine, and the operations that durably replace one set of runs by another one.
pub(crate) trait RunSet {
    /// Returns the runs, newest first.
    fn runs(&self) -> &[Run];

    /// Makes an output, and begins a merge. Errors: the region is full.
    fn begin(&mut self, plan: &MergePlan) -> StoreResult<RunningMerge>;

    /// Merges at least this many bytes of entries. Returns whether all entries are merged. Errors: the region
    /// is full.
    fn step(&mut self, merge: &mut Merge, bytes: u64) -> StoreResult<bool>;

    /// Replaces the inputs of a merge by its output. Errors: the region is full.
    fn end(&mut self, running: RunningMerge) -> StoreResult<()>;

    /// Frees the output of a merge that is given up.
    fn discard(&mut self, output: u64) -> StoreResult<()>;

    /// Moves a run that is alone on its level to another level. Errors: the region is full.
    fn lower(&mut self, run: u64, level: u8) -> StoreResult<()>;
}

/// The merge that runs, and when the next one may begin.
pub(crate) struct Merges {
    pub(crate) settings: LsmSettings,
    running: Option<RunningMerge>,
    /// Whether the merge that runs has merged all entries.
    is_merged: bool,
    /// The number of runs when a merge last failed for lack of room. `None` means that merges are not
    /// blocked.
    blocked_at: Option<usize>,
    /// The tombstones that scans have passed since the last merge of all runs began.
    passed: AtomicU64,
}

impl Merges {
    pub(crate) fn new(settings: LsmSettings) -> Merges {
        Merges { settings, running: None, is_merged: false, blocked_at: None, passed: AtomicU64::new(0) }
    }

    /// Returns the output of the merge that runs.
    pub(crate) fn output(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.output)
    }

    /// Returns whether a merge of these runs has failed for lack of room, and the number of runs is still the
    /// same.
    fn is_blocked(&self, set: &impl RunSet) -> bool {
        self.blocked_at == Some(set.runs().len())
    }

    /// Begins a merge that is due, unless one runs.
    pub(crate) fn begin_due(&mut self, set: &mut impl RunSet) -> StoreResult<()> {
        if self.running.is_some() || self.is_blocked(set) {
            return Ok(());
        }
        match self.due(set.runs()) {
            Some(plan) => self.begin(set, &plan).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the merge that should be done next. If scans have passed more tombstones than there are keys,
    /// that is a merge of all runs, which removes tombstones. It handles each key once, as these scans did. A
    /// table that is used as a queue needs it: a scan for the oldest row begins at the tombstones of all rows
    /// that were deleted before.
    fn due(&mut self, runs: &[Run]) -> Option<MergePlan> {
        if let Some(plan) = self.settings.next_merge(runs) {
            return Some(plan);
        }
        let keys: u64 = runs.iter().map(|run| run.keys).sum();
        let has_tombstones = runs.iter().any(|run| run.tombstones > 0);
        let passed = self.passed.get_mut();
        if !has_tombstones || *passed <= keys {
            return None;
        }
        *passed = 0;
        merge_of_all(runs)
    }

    /// Notes that a scan has passed this many tombstones.
    pub(crate) fn note_passed(&self, tombstones: u64) {
        if tombstones > 0 {
            self.passed.fetch_add(tombstones, Relaxed);
        }
    }

    /// Begins a merge. Returns `false` if the region is full.
    fn begin(&mut self, set: &mut impl RunSet, plan: &MergePlan) -> StoreResult<bool> {
        let begun = self.begin_or_lower(set, plan);
        let is_begun = unless_full(begun)?;
        if !is_begun {
            self.blocked_at = Some(set.runs().len());
        }
        Ok(is_begun)
    }

    fn begin_or_lower(&mut self, set: &mut impl RunSet, plan: &MergePlan) -> StoreResult<()> {
        if let [number] = plan.runs[..]
            && let Some(run) = set.runs().get(number)
            && (1..plan.level).contains(&run.level)
        {
            let id = run.id;
            return set.lower(id, plan.level);
        }
        self.running = Some(set.begin(plan)?);
        self.is_merged = false;
        Ok(())
    }

    /// Continues the merge that runs, in proportion to the bytes that transactions have added, and to the
    /// tombstones that scans have passed meanwhile.
    pub(crate) fn step_for(&mut self, set: &mut impl RunSet, added_bytes: u64) -> StoreResult<()> {
        let mut bytes = self.settings.merged_bytes(set.runs(), added_bytes);
        if self.running.is_some() {
            let left = self.passed.get_mut();
            let passed = (*left).min(PASSED_AT_ONCE);
            *left -= passed;
            bytes = bytes.saturating_add(passed * BYTES_FOR_PASSED);
        }
        self.step(set, bytes).map(drop)
    }

    /// Continues the merge that runs. Returns `false` if no merge runs, or the region is full.
    fn step(&mut self, set: &mut impl RunSet, bytes: u64) -> StoreResult<bool> {
        let Some(running) = self.running.as_mut() else { return Ok(false) };
        if self.is_merged {
            return Ok(true);
        }
        match set.step(&mut running.merge, bytes) {
            Ok(is_merged) => {
                self.is_merged = is_merged;
                Ok(true)
            }
            Err(error) => {
                let output = running.output;
                self.give_up(set, output, error)
            }
        }
    }

    /// Ends the merge that runs, if all entries are merged. Returns `false` if the region is full.
    pub(crate) fn end_merged(&mut self, set: &mut impl RunSet) -> StoreResult<bool> {
        let Some(running) = self.running.take_if(|_| self.is_merged) else { return Ok(true) };
        let output = running.output;
        match set.end(running) {
            Ok(()) => {
                self.blocked_at = None;
                Ok(true)
            }
            Err(error) => self.give_up(set, output, error),
        }
    }

    /// Gives up a merge after an error. Returns `false` if the error was that the region is full. All other
    /// errors are returned.
    fn give_up(&mut self, set: &mut impl RunSet, output: u64, error: StoreError) -> StoreResult<bool> {
        self.running = None;
        let is_done = unless_full(Err(error))?;
        self.blocked_at = Some(set.runs().len());
        set.discard(output)?;
        Ok(is_done)
    }

    /// Ends the merge that runs. Returns `false` if no merge runs, or the region is full.
    fn merge_rest(&mut self, set: &mut impl RunSet) -> StoreResult<bool> {
        Ok(self.step(set, u64::MAX)? && self.end_merged(set)?)
    }

    /// Gets room back: ends the merge that runs, or merges all runs. Returns whether that may have freed
    /// room.
    pub(crate) fn make_room(&mut self, set: &mut impl RunSet) -> StoreResult<bool> {
        if self.running.is_none()
            && !self.is_blocked(set)
            && let Some(plan) = merge_of_all(set.runs()).filter(|plan| plan.runs.len() > 1)
        {
            self.begin(set, &plan)?;
        }
        self.merge_rest(set)
    }

    /// Merges all runs into one, as far as there is room for this.
    pub(crate) fn merge_all(&mut self, set: &mut impl RunSet) -> StoreResult<()> {
        self.merge_rest(set)?;
        let mut is_all = false;
        while !is_all && let Some(plan) = merge_of_all(set.runs()) {
            is_all = plan.runs.len() == set.runs().len();
            if !self.begin(set, &plan)? || !self.merge_rest(set)? {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::bloom::Filter;
    use crate::lsm::media::Location;
    use crate::lsm::run::{PackedRun, RunForm};

    #[test]
    fn scans_over_tombstones_make_a_merge_of_all_runs_due() {
        let run = |level, tombstones| Run {
            level,
            sequence: 0,
            id: 0,
            form: RunForm::Packed(PackedRun { location: Location::Region, root: 0 }),
            filter: Filter::File { at: 0, bits: Box::new([]) },
            entry_bytes: 100,
            keys: 1000,
            tombstones,
        };
        let mut merges = Merges::new(LsmSettings::default());
        let runs = [run(0, 0), run(1, 7)];
        merges.note_passed(2000);
        assert_eq!(merges.due(&runs), None);
        assert_eq!(merges.due(&[run(1, 0)]), None, "there is nothing to remove");
        merges.note_passed(1);
        assert_eq!(merges.due(&runs), Some(MergePlan { runs: vec![0, 1], level: 1, is_lowest: true }));
        assert_eq!(merges.due(&runs), None, "the count begins anew");
    }
}
