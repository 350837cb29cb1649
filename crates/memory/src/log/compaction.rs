//! Flushes of the MemTable into runs, and merges of runs.
//!
//! Each sync does a part of this work, in proportion to the bytes that were added since the previous sync. It
//! does more while level 0 has many runs.
//!
//! The order of steps of a flush
//! 1. The MemTable is written into a file, and `fsync` makes it durable.
//! 2. The next log file is made.
//! 3. A manifest with the new run and the new log is written and renamed: now they are valid.
//! 4. The old log file is removed.
//!
//! A merge has the same steps without a log. Before the renaming, the manifest does not name the output.
//! After the renaming, it does not name the inputs any more, and their files are removed.
//!
//! Invariants
//! 1. The renaming of a manifest replaces one set of runs by another. So after a crash one of the two sets is
//!    valid, and a start removes all files that its manifest does not name.
//! 2. If there is no room for this work, that is no error. The work is done later.
//!
//! This module does not know transactions, or when runs are merged (`lsm/compaction.rs`).

use super::manifest::{Manifest, run_name};
use crate::files::{FileHandle, Files};
use crate::lsm::bloom::Filter;
use crate::lsm::compaction::{Merges, RunSet, RunningMerge};
use crate::lsm::levels::{LsmSettings, MergePlan};
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
    merges: Merges,
    /// The valid tables, log and runs.
    pub(super) manifest: Manifest,
    /// The number of bytes of the MemTable when the last sync ended.
    memtable_bytes: u64,
}

/// The parts of a store that are needed to work on its runs.
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

/// The runs of a store, as merges use them. The id of a run is the number of its file.
struct FileRuns<'s, 'w> {
    manifest: &'s mut Manifest,
    place: &'s mut Workplace<'w>,
}

/// Makes a written run durable, and returns its description.
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
        Compaction { merges: Merges::new(settings), manifest, memtable_bytes: 0 }
    }

    /// Returns the runs, newest first.
    pub(super) fn runs(&self) -> &[Run] {
        &self.manifest.runs
    }

    /// Notes that a scan has passed this many tombstones.
    pub(super) fn note_passed(&self, tombstones: u64) {
        self.merges.note_passed(tombstones);
    }

    /// Does the work of one sync. The caller has flushed the log.
    pub(super) fn work(
        &mut self,
        place: &mut Workplace<'_>,
        memtable: &mut MemTable,
        is_in_transaction: bool,
    ) -> StoreResult<()> {
        let used_bytes = memtable.arena().used_bytes();
        let added_bytes = used_bytes.saturating_sub(self.memtable_bytes);
        self.memtable_bytes = used_bytes;
        if used_bytes > self.merges.settings.memtable_bytes && !is_in_transaction {
            let flushed = self.flush(place, memtable);
            unless_full(flushed)?;
        }
        let mut set = FileRuns { manifest: &mut self.manifest, place };
        self.merges.begin_due(&mut set)?;
        self.merges.step_for(&mut set, added_bytes)?;
        self.merges.end_merged(&mut set).map(drop)
    }

    /// Writes the MemTable into a run of level 0, and begins a new MemTable and a new log. No transaction is
    /// open, and the log is flushed.
    ///
    /// Errors: the region is full. Then the store keeps its MemTable and its log.
    fn flush(&mut self, place: &mut Workplace<'_>, memtable: &mut MemTable) -> StoreResult<()> {
        let (old_log, id) = (self.manifest.log, self.manifest.next_run);
        let new = memtable.fresh(place.space)?;
        let log = match self.write_flush(place, memtable) {
            Ok(log) => log,
            Err(error) => {
                self.manifest.runs.retain(|run| run.id != id);
                (self.manifest.log, self.manifest.next_run) = (old_log, id);
                let unfinished = [&*run_name(id), &wal::name_of(old_log + 1)];
                wal::remove_after_error(place.files(), &unfinished);
                let _reserved_until_start = new.arena().give_up(place.space);
                return Err(error);
            }
        };
        place.wal.begin(self.manifest.log, log);
        std::mem::replace(memtable, new).arena().give_up(place.space)?;
        self.memtable_bytes = 0;
        Ok(place.files().remove(&wal::name_of(old_log))?)
    }

    /// Writes the run, and makes it valid together with the next log file. Returns this file.
    fn write_flush(&mut self, place: &mut Workplace<'_>, memtable: &MemTable) -> StoreResult<FileHandle> {
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
        let log = place.files().create(&wal::name_of(self.manifest.log))?;
        self.manifest.write(place.files())?;
        Ok(log)
    }

    /// Gets room back: flushes the MemTable, ends the merge under way, and merges all runs. Returns whether
    /// that may have freed room. The caller passes no MemTable while a transaction is open.
    pub(super) fn make_room(
        &mut self,
        place: &mut Workplace<'_>,
        memtable: Option<&mut MemTable>,
    ) -> StoreResult<bool> {
        let mut has_flushed = false;
        if let Some(memtable) = memtable.filter(|memtable| memtable.arena().used_bytes() > 0) {
            let flushed = self.flush(place, memtable);
            has_flushed = unless_full(flushed)?;
        }
        let mut set = FileRuns { manifest: &mut self.manifest, place };
        Ok(self.merges.make_room(&mut set)? || has_flushed)
    }

    /// Merges the MemTable and all runs into one run, to get the room of a dropped table back. Skips a step
    /// if the region has no room for it. No transaction is open, and the log is flushed.
    pub(super) fn merge_all(
        &mut self,
        place: &mut Workplace<'_>,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        let flushed = self.flush(place, memtable);
        unless_full(flushed)?;
        self.merges.merge_all(&mut FileRuns { manifest: &mut self.manifest, place })
    }
}

impl RunSet for FileRuns<'_, '_> {
    fn runs(&self) -> &[Run] {
        &self.manifest.runs
    }

    fn begin(&mut self, plan: &MergePlan) -> StoreResult<RunningMerge> {
        let id = self.manifest.next_run;
        let output = Output::File(FileOutput::new(self.place.files().create(&run_name(id))?));
        self.manifest.next_run += 1;
        let runs = plan.picked(&self.manifest.runs);
        let inputs = runs.iter().map(|run| run.id).collect();
        let merge = Merge::begin(&self.place.media(), &runs, output, plan.is_lowest)?;
        Ok(RunningMerge { merge, output: id, inputs, level: plan.level })
    }

    fn step(&mut self, merge: &mut Merge, bytes: u64) -> StoreResult<bool> {
        let tables = &self.manifest.tables;
        merge.step(&mut self.place.media(), |table| tables.has(table), bytes)
    }

    fn end(&mut self, running: RunningMerge) -> StoreResult<()> {
        let RunningMerge { merge, output, inputs, level } = running;
        let run = match merge.finish(&mut self.place.media())? {
            Some(written) => settle(self.place.files(), written, level, output, 0)?,
            None => {
                self.place.files().remove(&run_name(output))?;
                None
            }
        };
        let before = self.manifest.runs.clone();
        self.manifest.runs.retain(|run| !inputs.contains(&run.id));
        self.manifest.runs.extend(run);
        run::sort(&mut self.manifest.runs);
        let written = self.manifest.write(self.place.files());
        written.inspect_err(|_| self.manifest.runs = before)?;
        inputs.iter().try_for_each(|input| Ok(self.place.files().remove(&run_name(*input))?))
    }

    fn discard(&mut self, output: u64) -> StoreResult<()> {
        wal::remove_if_there(self.place.files(), &run_name(output))
    }

    fn lower(&mut self, run: u64, level: u8) -> StoreResult<()> {
        let before = self.manifest.runs.clone();
        let lowered = self.manifest.runs.iter_mut().filter(|found| found.id == run);
        lowered.for_each(|run| run.level = level);
        let written = self.manifest.write(self.place.files());
        written.inspect_err(|_| self.manifest.runs = before)
    }
}
