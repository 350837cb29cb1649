//! Flushes of the MemTable into runs, and merges of runs.
//!
//! A sync does a part of this work, in proportion to the bytes that were added since the last one. It
//! does more while level 0 has many runs.
//!
//! The order of steps of a flush
//! 1. The MemTable is written into a file, and `fsync` makes it durable.
//! 2. The next log file is made.
//! 3. A manifest with the new run and the new log is written and renamed: now they are valid.
//! 4. The old log file is removed.
//!
//! A merge has the same steps without a log. Its output is not in the manifest before, its inputs are not in
//! it behind, and are removed.
//!
//! Invariants
//! 1. A set of runs becomes another one by the renaming of a manifest. So a crash leaves one of the two, and a
//!    start removes the files of the other one.
//! 2. No room for this work is no error: it is done later.
//!
//! What it does not know: transactions.

use super::manifest::{Manifest, run_name};
use crate::files::Files;
use crate::lsm::bloom::Filter;
use crate::lsm::levels::{LsmSettings, MergePlan, merge_of_all};
use crate::lsm::media::{Location, MediaMut};
use crate::lsm::memtable::MemTable;
use crate::lsm::merge::Merge;
use crate::lsm::run::{self, PackedRun, Run, RunForm};
use crate::lsm::store::unless_full;
use crate::lsm::writer::{FileOutput, Output, WrittenRun};
use crate::space::Space;
use crate::store_error::StoreResult;
use crate::wal::{self, Wal};

/// The runs of a store, and the work on them.
pub(super) struct Compaction {
    settings: LsmSettings,
    /// What is valid: tables, log and runs.
    pub(super) manifest: Manifest,
    merge: Option<RunningMerge>,
    /// Bytes of the MemTable when the last sync ended.
    memtable_bytes: u64,
    /// The number of runs for which there was no room to merge them.
    blocked_at: Option<usize>,
}

struct RunningMerge {
    merge: Merge,
    /// The number of the output's file.
    output: u64,
    /// The numbers of the inputs' files.
    inputs: Vec<u64>,
    level: u8,
}

/// The parts of a store that work on runs needs.
pub(super) struct Workplace<'w> {
    pub(super) space: &'w Space,
    pub(super) wal: &'w mut Wal,
}

impl Workplace<'_> {
    fn media(&mut self) -> MediaMut<'_> {
        MediaMut { space: self.space, files: Some(&mut self.wal.files) }
    }

    fn files(&mut self) -> &mut Files {
        &mut self.wal.files
    }
}

/// Makes a written run durable, and describes it.
fn settle(
    files: &mut Files,
    written: WrittenRun,
    level: u8,
    id: u64,
    sequence: u64,
) -> StoreResult<Option<Run>> {
    let WrittenRun { output, root, filter_at, filter, entry_bytes, keys, tombstones } = written;
    let Output::File(FileOutput { file, .. }) = output else { return Ok(None) };
    files.fsync(file)?;
    let form = RunForm::Packed(PackedRun { location: Location::File(file), root });
    let filter = Filter::File { at: filter_at, bits: filter.into() };
    Ok(Some(Run { level, sequence, id, form, filter, entry_bytes, keys, tombstones }))
}

impl Compaction {
    pub(super) fn new(settings: LsmSettings, manifest: Manifest) -> Compaction {
        Compaction { settings, manifest, merge: None, memtable_bytes: 0, blocked_at: None }
    }

    /// The runs, the newest one first.
    pub(super) fn runs(&self) -> &[Run] {
        &self.manifest.runs
    }

    /// The work of a sync. The log is flushed.
    pub(super) fn work(
        &mut self,
        place: &mut Workplace<'_>,
        memtable: &mut MemTable,
        is_in_transaction: bool,
    ) -> StoreResult<()> {
        let used_bytes = memtable.arena().used_bytes();
        let added_bytes = used_bytes.saturating_sub(self.memtable_bytes);
        self.memtable_bytes = used_bytes;
        if used_bytes > self.settings.memtable_bytes && !is_in_transaction {
            let flushed = self.flush(place, memtable);
            unless_full(flushed)?;
        }
        let bytes = self.settings.merged_bytes(self.runs(), added_bytes);
        self.merge_some(place, bytes)
    }

    /// Writes the MemTable into a run of level 0, and begins a new MemTable and a new log. No transaction is
    /// open, and the log is flushed.
    ///
    /// Errors: the region is full. Then MemTable and log go on.
    fn flush(&mut self, place: &mut Workplace<'_>, memtable: &mut MemTable) -> StoreResult<()> {
        let (old_log, id) = (self.manifest.log, self.manifest.next_run);
        let new = memtable.fresh(place.space)?;
        let flushed = self.write_flush(place, memtable);
        if flushed.is_err() {
            self.manifest.runs.retain(|run| run.id != id);
            (self.manifest.log, self.manifest.next_run) = (old_log, id);
            let unfinished = [&*run_name(id), &wal::name_of(old_log + 1)];
            wal::remove_after_error(place.files(), &unfinished);
            let _reserved_until_start = new.arena().give_up(place.space);
            return flushed;
        }
        place.wal.begin(self.manifest.log)?;
        place.files().remove(&wal::name_of(old_log))?;
        std::mem::replace(memtable, new).arena().give_up(place.space)?;
        self.memtable_bytes = 0;
        Ok(())
    }

    fn write_flush(&mut self, place: &mut Workplace<'_>, memtable: &MemTable) -> StoreResult<()> {
        let census = memtable.census(place.space)?;
        let sequence = self.runs().first().map_or(0, |run| run.sequence) + 1;
        let id = self.manifest.next_run;
        let run = Run {
            level: 0,
            sequence,
            id,
            form: RunForm::MemTable(memtable.list()),
            filter: Filter::File { at: 0, bits: Box::new([]) },
            entry_bytes: 0,
            keys: census.hashes.len() as u64,
            tombstones: census.tombstones,
        };
        self.manifest.next_run += 1;
        let output = Output::File(FileOutput::new(place.files().create(&run_name(id))?));
        let is_lowest = self.runs().is_empty();
        let mut merge = Merge::begin(&place.media(), &[&run], output, is_lowest)?;
        merge.step(&mut place.media(), |table| self.manifest.tables.has(table), u64::MAX)?;
        match merge.finish(&mut place.media())? {
            Some(written) => {
                let run = settle(place.files(), written, 0, id, sequence)?;
                self.manifest.runs.splice(0..0, run);
            }
            None => place.files().remove(&run_name(id))?,
        }
        self.manifest.log += 1;
        place.files().create(&wal::name_of(self.manifest.log))?;
        self.manifest.write(place.files())
    }

    /// Continues the merge that runs, or begins one that is due. In a full region the merge ends, and the
    /// next one begins when there are more runs.
    fn merge_some(&mut self, place: &mut Workplace<'_>, bytes: u64) -> StoreResult<()> {
        if self.merge.is_none() && self.blocked_at != Some(self.runs().len()) {
            let Some(plan) = self.settings.next_merge(self.runs()) else { return Ok(()) };
            let begun = self.begin_merge(place, &plan);
            if !unless_full(begun)? {
                self.blocked_at = Some(self.runs().len());
            }
        }
        self.go_on(place, bytes).map(drop)
    }

    fn begin_merge(&mut self, place: &mut Workplace<'_>, plan: &MergePlan) -> StoreResult<()> {
        let runs = plan.runs.iter().filter_map(|number| self.manifest.runs.get(*number));
        let inputs: Vec<u64> = runs.clone().map(|run| run.id).collect();
        let runs: Vec<&Run> = runs.collect();
        if let [run] = runs[..]
            && run.level < plan.level
            && run.level > 0
        {
            return self.lower(place, inputs, plan.level);
        }
        let id = self.manifest.next_run;
        let output = Output::File(FileOutput::new(place.files().create(&run_name(id))?));
        let merge = Merge::begin(&place.media(), &runs, output, plan.is_lowest)?;
        self.manifest.next_run += 1;
        self.merge = Some(RunningMerge { merge, output: id, inputs, level: plan.level });
        Ok(())
    }

    /// Moves a run that is alone on its level to another level.
    fn lower(&mut self, place: &mut Workplace<'_>, run: Vec<u64>, level: u8) -> StoreResult<()> {
        let before = self.manifest.runs.clone();
        let moved = self.manifest.runs.iter_mut().filter(|found| run.contains(&found.id));
        moved.for_each(|run| run.level = level);
        let written = self.manifest.write(place.files());
        written.inspect_err(|_| self.manifest.runs = before)
    }

    /// Continues the merge that runs. `false`: no merge runs, or the region is full.
    fn go_on(&mut self, place: &mut Workplace<'_>, bytes: u64) -> StoreResult<bool> {
        let Some(mut running) = self.merge.take() else { return Ok(false) };
        let tables = &self.manifest.tables;
        let stepped = running.merge.step(&mut place.media(), |table| tables.has(table), bytes);
        let output = running.output;
        match stepped {
            Ok(false) => {
                self.merge = Some(running);
                return Ok(true);
            }
            Ok(true) => {
                let ended = self.end_merge(place, running);
                if unless_full(ended)? {
                    self.blocked_at = None;
                    return Ok(true);
                }
            }
            Err(error) => drop(unless_full(Err(error))?),
        }
        self.blocked_at = Some(self.runs().len());
        wal::remove_if_there(place.files(), &run_name(output))?;
        Ok(false)
    }

    /// Puts the result of a merge into the place of its inputs.
    fn end_merge(&mut self, place: &mut Workplace<'_>, running: RunningMerge) -> StoreResult<()> {
        let RunningMerge { merge, output, inputs, level } = running;
        let written = merge.finish(&mut place.media())?;
        let run = match written {
            Some(written) => settle(place.files(), written, level, output, 0)?,
            None => {
                place.files().remove(&run_name(output))?;
                None
            }
        };
        let before = self.manifest.runs.clone();
        self.manifest.runs.retain(|run| !inputs.contains(&run.id));
        self.manifest.runs.extend(run);
        run::sort(&mut self.manifest.runs);
        let written = self.manifest.write(place.files());
        written.inspect_err(|_| self.manifest.runs = before)?;
        inputs.iter().try_for_each(|input| Ok(place.files().remove(&run_name(*input))?))
    }

    /// Gets room back: ends the merge under way, and merges all runs. Whether that may have helped.
    pub(super) fn make_room(&mut self, place: &mut Workplace<'_>) -> StoreResult<bool> {
        if self.merge.is_none()
            && self.blocked_at != Some(self.runs().len())
            && let Some(plan) = merge_of_all(self.runs()).filter(|plan| plan.runs.len() > 1)
        {
            let begun = self.begin_merge(place, &plan);
            if !unless_full(begun)? {
                self.blocked_at = Some(self.runs().len());
            }
        }
        self.go_on(place, u64::MAX)
    }

    /// Merges the MemTable and all runs into one run, to get the room of a dropped table back, as far as there
    /// is room for this. No transaction is open, and the log is flushed.
    pub(super) fn merge_all(
        &mut self,
        place: &mut Workplace<'_>,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        let flushed = self.flush(place, memtable);
        unless_full(flushed)?;
        self.go_on(place, u64::MAX)?;
        let mut is_merged = false;
        while !is_merged && let Some(plan) = merge_of_all(self.runs()) {
            is_merged = plan.runs.len() == self.runs().len();
            let begun = self.begin_merge(place, &plan);
            if !unless_full(begun)? || !self.go_on(place, u64::MAX)? {
                break;
            }
        }
        Ok(())
    }
}
