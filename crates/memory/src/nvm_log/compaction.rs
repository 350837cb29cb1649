//! Rotation of the MemTable, merges of runs, and freeing of the arenas that merges abandon.
//!
//! A commit does a part of this work, in proportion to the bytes that its transaction has added. It does
//! more while level 0 has many runs.
//!
//! Commits of several threads continue one merge, and a fence waits for the write-backs of its own thread
//! only. So a commit merges before its own fence, which makes the merged lines durable at no extra cost.
//!
//! Invariants
//! 1. A set of runs becomes another one in one publication. So after a crash one of the two sets is valid.
//! 2. Until this publication, the output of the merge counts as abandoned. The publication makes the inputs
//!    abandoned.
//! 3. If there is no room for this work, that is no error. The work is done later.
//! 4. Between two calls of a store, the lines of the merge that runs are durable.
//! 5. The id of a run is the number of its slot.
//!
//! This module does not know transactions, or when runs are merged (`lsm/compaction.rs`).

use super::directory::{ArenaKind, ArenaSlot, ArenaState, Directory, NumberedSlot};
use crate::lsm::arena::{self, Arena, ArenaFacts, Durability};
use crate::lsm::bloom::{self, Filter};
use crate::lsm::compaction::{Merges, RunSet, RunningMerge};
use crate::lsm::levels::{LsmSettings, MergePlan};
use crate::lsm::media::{Location, MediaMut, damaged};
use crate::lsm::memtable::{Census, MemTable};
use crate::lsm::merge::Merge;
use crate::lsm::run::{self, PackedRun, Run, RunForm};
use crate::lsm::skip_list::SkipList;
use crate::lsm::store::unless_full;
use crate::lsm::writer::{Output, WrittenRun};
use crate::pointer::{Owner, Pointer};
use crate::publish::Step;
use crate::space::Space;
use crate::store_error::StoreResult;

/// The largest number of publications in one commit that free chunks.
const FREES_AT_ONCE: usize = 2;

/// The runs of a store, and the work on them.
pub(super) struct Compaction {
    merges: Merges,
    arenas: RunArenas,
    /// The number of bytes of the MemTable when the last commit ended.
    memtable_bytes: u64,
}

/// The arenas of the runs.
struct RunArenas {
    owner: Owner,
    /// The runs, newest first.
    runs: Vec<Run>,
    /// The abandoned arena that is being freed, and its slot.
    freed: Option<FreedArena>,
}

struct FreedArena {
    slot: usize,
    arena: Arena,
}

/// The runs of a store, as merges use them.
struct ArenaRuns<'s> {
    space: &'s Space,
    directory: &'s mut Directory,
    arenas: &'s mut RunArenas,
}

/// Returns the run in a slot, or `None` if the arena in the slot is not a run.
fn run_of(space: &Space, numbered: &NumberedSlot) -> StoreResult<Option<Run>> {
    let NumberedSlot { number, slot: ArenaSlot { page, state } } = *numbered;
    let facts = arena::facts(space, page)?;
    let form = match state.kind {
        ArenaKind::Immutable => RunForm::MemTable(SkipList { page }),
        ArenaKind::Packed => RunForm::Packed(PackedRun { location: Location::Region, root: facts.root }),
        ArenaKind::Mutable | ArenaKind::Abandoned => return Ok(None),
    };
    let filter = Filter::Region { at: facts.filter, len_bytes: facts.filter_bytes };
    let (level, sequence, id) = (state.level, state.sequence, number as u64);
    let ArenaFacts { entry_bytes, keys, tombstones, .. } = facts;
    // A merge reserves memory for these counts. The region's length limits all of them.
    let bytes_max = space.chunks_max(1);
    let is_possible = tombstones <= keys && keys <= entry_bytes && entry_bytes <= bytes_max;
    if !is_possible || facts.filter_bytes > bytes_max {
        return Err(damaged("the counts of a run", page.to_u64()));
    }
    Ok(Some(Run { level, sequence, id, form, filter, entry_bytes, keys, tombstones }))
}

impl Compaction {
    /// Reads a few words of each run of a store.
    pub(super) fn read(
        space: &Space,
        directory: &Directory,
        owner: Owner,
        settings: LsmSettings,
    ) -> StoreResult<Compaction> {
        let mut runs = Vec::new();
        for slot in directory.arenas() {
            runs.extend(run_of(space, &slot)?);
        }
        run::sort(&mut runs);
        let arenas = RunArenas { owner, runs, freed: None };
        Ok(Compaction { merges: Merges::new(settings), arenas, memtable_bytes: 0 })
    }

    /// Returns the runs, newest first.
    pub(super) fn runs(&self) -> &[Run] {
        &self.arenas.runs
    }

    /// Notes that a scan has passed this many tombstones.
    pub(super) fn note_passed(&self, tombstones: u64) {
        self.merges.note_passed(tombstones);
    }

    /// Does the work of a commit before its fences: continues the merge that runs, in proportion to the bytes
    /// that the transaction has added. A later fence of the caller makes the lines durable.
    pub(super) fn merge_some(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &MemTable,
    ) -> StoreResult<()> {
        let used_bytes = memtable.arena().used_bytes();
        let added_bytes = used_bytes.saturating_sub(self.memtable_bytes);
        self.memtable_bytes = used_bytes;
        let mut set = ArenaRuns { space, directory, arenas: &mut self.arenas };
        self.merges.step_for(&mut set, added_bytes)
    }

    /// Does the work of a commit after its fences: all steps that end in publications, which have fences of
    /// their own.
    pub(super) fn work(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        if memtable.arena().used_bytes() > self.merges.settings.memtable_bytes {
            let rotated = self.rotate(space, directory, memtable);
            unless_full(rotated)?;
        }
        let mut set = ArenaRuns { space, directory, arenas: &mut self.arenas };
        for _ in 0..FREES_AT_ONCE {
            if !set.free_some(self.merges.output())? {
                break;
            }
        }
        match self.merges.output() {
            Some(_) => self.merges.end_merged(&mut set).map(drop),
            None => self.merges.begin_due(&mut set),
        }
    }

    /// Makes the MemTable immutable, and begins a new one.
    ///
    /// Errors: the region is full. Then the store keeps its MemTable.
    fn rotate(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        let page = memtable.arena().page();
        let is_mutable = |slot: &NumberedSlot| slot.slot.page == page;
        let Some(NumberedSlot { number, slot }) = directory.arenas().find(is_mutable) else { return Ok(()) };
        let entry_bytes = memtable.arena().used_bytes();
        let Census { hashes, tombstones } = memtable.census(space)?;
        if hashes.is_empty() {
            return Ok(());
        }
        let mut filter = vec![0; bloom::filter_bytes(hashes.len() as u64)];
        hashes.iter().for_each(|hash| bloom::add(&mut filter, *hash));
        let filter_bytes = filter.len() as u64;
        let new_slot = directory.free_slot()?;
        let new_page = arena::new_page(space, self.arenas.owner)?;
        let before = memtable.position();
        let at = memtable.arena_mut().take(space, filter.len());
        let at = at.inspect_err(|_| drop(space.give_up(new_page)))?;
        memtable.arena().store(space, at, &filter)?;
        let keys = hashes.len() as u64;
        let facts = ArenaFacts { filter: at, filter_bytes, root: 0, entry_bytes, keys, tombstones };
        arena::store_facts(space, page, &facts)?;
        space.fence();
        let immutable = ArenaState { kind: ArenaKind::Immutable, ..slot.state };
        let state = ArenaState::mutable(slot.state.sequence + 1);
        let new = ArenaSlot { page: new_page, state };
        let mut steps = directory.fill(space, new_slot, new)?.to_vec();
        steps.push(directory.change(space, number, immutable)?);
        if let Err(error) = space.allocator().publish(&steps) {
            memtable.arena_mut().reset(before);
            space.give_up(new_page)?;
            return Err(error.into());
        }
        directory.note_state(number, immutable);
        directory.note(new_slot, Some(new));
        self.arenas.add(run_of(space, &NumberedSlot { number, slot: ArenaSlot { page, state: immutable } })?);
        *memtable = MemTable::new(Arena::new(self.arenas.owner, Durability::Durable, new_page));
        self.memtable_bytes = 0;
        Ok(())
    }

    /// Gets room back: makes the MemTable immutable, frees abandoned arenas, ends the merge under way, and
    /// merges all runs. Returns whether anything was freed. The caller passes no MemTable while a transaction
    /// is open.
    pub(super) fn make_room(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: Option<&mut MemTable>,
    ) -> StoreResult<bool> {
        if let Some(memtable) = memtable {
            let rotated = self.rotate(space, directory, memtable);
            unless_full(rotated)?;
        }
        let mut set = ArenaRuns { space, directory, arenas: &mut self.arenas };
        let has_freed = set.free_all(self.merges.output())?;
        self.merges.make_room(&mut set)?;
        let has_freed = set.free_all(self.merges.output())? || has_freed;
        space.allocator().free_empty_slabs(self.arenas.owner)?;
        Ok(has_freed)
    }

    /// Merges the MemTable and all runs into one run, to get the room of a dropped table back. Skips a step
    /// if the region has no room for it. No transaction is open.
    pub(super) fn merge_all(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        let rotated = self.rotate(space, directory, memtable);
        unless_full(rotated)?;
        let mut set = ArenaRuns { space, directory, arenas: &mut self.arenas };
        self.merges.merge_all(&mut set)?;
        set.free_all(self.merges.output())?;
        Ok(space.allocator().free_empty_slabs(self.arenas.owner)?)
    }

    /// Adds the chunks of all arenas except the MemTable.
    pub(super) fn add_chunks(
        &self,
        space: &Space,
        directory: &Directory,
        chunks: &mut Vec<Pointer>,
    ) -> StoreResult<()> {
        for slot in directory.arenas().filter(|slot| slot.slot.state.kind != ArenaKind::Mutable) {
            Arena::read(space, self.arenas.owner, slot.slot.page)?.add_chunks(chunks);
        }
        Ok(())
    }
}

impl RunArenas {
    /// Adds a run, if there is one.
    fn add(&mut self, run: Option<Run>) {
        self.runs.extend(run);
        run::sort(&mut self.runs);
    }
}

impl ArenaRuns<'_> {
    /// Makes a written run durable.
    fn store_run(&self, written: &WrittenRun) -> StoreResult<()> {
        if let Output::Arena(arena) = &written.output {
            let facts = ArenaFacts {
                filter: Pointer::from_u64(written.filter_at),
                filter_bytes: written.filter.len() as u64,
                root: written.root,
                entry_bytes: written.entry_bytes,
                keys: written.keys,
                tombstones: written.tombstones,
            };
            arena::store_facts(self.space, arena.page(), &facts)?;
        }
        self.space.fence();
        Ok(())
    }

    /// Frees all abandoned arenas except the output of a merge. Returns whether there were any.
    fn free_all(&mut self, output: Option<u64>) -> StoreResult<bool> {
        let mut has_freed = false;
        while self.free_some(output)? {
            has_freed = true;
        }
        Ok(has_freed)
    }

    /// Frees some chunks of one abandoned arena, which is not the output of a merge. Returns whether there
    /// was such an arena.
    fn free_some(&mut self, output: Option<u64>) -> StoreResult<bool> {
        let mut freed = match self.arenas.freed.take() {
            Some(freed) => freed,
            None => {
                let is_abandoned = |slot: &NumberedSlot| {
                    slot.slot.state.kind == ArenaKind::Abandoned && Some(slot.number as u64) != output
                };
                let Some(found) = self.directory.arenas().find(is_abandoned) else { return Ok(false) };
                let arena = Arena::read(self.space, self.arenas.owner, found.slot.page)?;
                FreedArena { slot: found.number, arena }
            }
        };
        match freed.arena.free_some(self.space)? {
            true => self.directory.free(self.space, freed.slot)?,
            false => self.arenas.freed = Some(freed),
        }
        Ok(true)
    }
}

impl RunSet for ArenaRuns<'_> {
    fn runs(&self) -> &[Run] {
        &self.arenas.runs
    }

    fn begin(&mut self, plan: &MergePlan) -> StoreResult<RunningMerge> {
        let (space, owner) = (self.space, self.arenas.owner);
        let slot = self.directory.free_slot()?;
        let page = arena::new_page(space, owner)?;
        space.fence();
        let filled = ArenaSlot { page, state: ArenaState::ABANDONED };
        let published = space.allocator().publish(&self.directory.fill(space, slot, filled)?);
        if let Err(error) = published {
            space.give_up(page)?;
            return Err(error.into());
        }
        self.directory.note(slot, Some(filled));
        let output = Output::Arena(Arena::new(owner, Durability::Durable, page));
        let runs = plan.picked(&self.arenas.runs);
        let inputs = runs.iter().map(|run| run.id).collect();
        let merge = Merge::begin(&MediaMut { space, files: None }, &runs, output, plan.is_lowest)?;
        Ok(RunningMerge { merge, output: slot as u64, inputs, level: plan.level })
    }

    fn step(&mut self, merge: &mut Merge, bytes: u64) -> StoreResult<bool> {
        let mut media = MediaMut { space: self.space, files: None };
        merge.step(&mut media, |table| self.directory.tables.has(table), bytes)
    }

    fn end(&mut self, running: RunningMerge) -> StoreResult<()> {
        let RunningMerge { merge, output, inputs, level } = running;
        let (space, slot) = (self.space, output as usize);
        let mut steps = Vec::with_capacity(inputs.len() + 1);
        let state = ArenaState { kind: ArenaKind::Packed, level, sequence: 0 };
        let written = merge.finish(&mut MediaMut { space, files: None })?;
        if let Some(written) = &written {
            self.store_run(written)?;
            steps.push(self.directory.change(space, slot, state)?);
        }
        for input in &inputs {
            steps.push(self.directory.change(space, *input as usize, ArenaState::ABANDONED)?);
        }
        space.allocator().publish(&steps)?;
        inputs.iter().for_each(|input| self.directory.note_state(*input as usize, ArenaState::ABANDONED));
        self.arenas.runs.retain(|run| !inputs.contains(&run.id));
        if written.is_some() {
            self.directory.note_state(slot, state);
            let filled = NumberedSlot { number: slot, slot: self.directory.arena(slot)? };
            self.arenas.add(run_of(space, &filled)?);
        }
        Ok(())
    }

    fn discard(&mut self, _output: u64) -> StoreResult<()> {
        self.free_all(None).map(drop)
    }

    fn lower(&mut self, run: u64, level: u8) -> StoreResult<()> {
        let slot = run as usize;
        let state = ArenaState { level, ..self.directory.arena(slot)?.state };
        self.space.allocator().publish(&[self.directory.change(self.space, slot, state)?])?;
        self.directory.note_state(slot, state);
        let lowered = self.arenas.runs.iter_mut().filter(|found| found.id == run);
        lowered.for_each(|run| run.level = level);
        Ok(())
    }
}

/// One publication has enough steps to end the largest merge.
const _: () = assert!(crate::lsm::levels::RUNS_AT_ONCE < crate::sizes::STEPS_MAX && size_of::<Step>() > 0);
