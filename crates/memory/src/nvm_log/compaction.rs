//! Rotation of the MemTable, merges of runs, and freeing of what merges leave behind.
//!
//! A commit does a part of this work, in proportion to the bytes that its transaction has added. It does
//! more while level 0 has many runs.
//!
//! Commits of several threads continue one merge, and a fence waits for the write-backs of its own thread
//! only. So a commit merges before its own fence, which makes the merged lines durable at no extra cost.
//!
//! Invariants
//! 1. A set of runs becomes another one in one publication. So a crash leaves one of the two.
//! 2. The output of a merge is abandoned until this publication, its inputs are abandoned by it.
//! 3. No room for this work is no error: it is done later.
//! 4. Between two calls of a store, the lines of the merge that runs are durable.
//!
//! What it does not know: transactions.

use super::directory::{ArenaKind, ArenaSlot, ArenaState, Directory, NumberedSlot};
use crate::lsm::arena::{self, Arena, ArenaFacts, Durability};
use crate::lsm::bloom::{self, Filter};
use crate::lsm::levels::{LsmSettings, MergePlan, merge_of_all};
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
use crate::store_error::{StoreError, StoreResult};

/// Publications that free chunks, at most for each commit.
const FREES_AT_ONCE: usize = 2;

/// The runs of a store, and the work on them.
pub(super) struct Compaction {
    owner: Owner,
    settings: LsmSettings,
    /// The newest one first.
    runs: Vec<Run>,
    merge: Option<RunningMerge>,
    /// The abandoned arena that is being freed, and its slot.
    freed: Option<FreedArena>,
    /// Bytes of the MemTable when the last commit ended.
    memtable_bytes: u64,
    /// The number of runs for which there was no room to merge them.
    blocked_at: Option<usize>,
}

struct RunningMerge {
    merge: Merge,
    /// The slot of the output.
    slot: usize,
    /// The slots of the inputs.
    inputs: Vec<usize>,
    level: u8,
    /// Whether all entries are merged.
    is_merged: bool,
}

struct FreedArena {
    slot: usize,
    arena: Arena,
}

/// The run in a slot; `None` if it is none.
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
    /// Reads the runs of a store: a few words of each.
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
        let (merge, freed, blocked_at) = (None, None, None);
        Ok(Compaction { owner, settings, runs, merge, freed, memtable_bytes: 0, blocked_at })
    }

    /// The runs, the newest one first.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The work of a commit before its fences: continues the merge that runs, in proportion to the bytes that
    /// the transaction has added. A caller's fence makes the lines durable.
    pub(super) fn merge_some(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &MemTable,
    ) -> StoreResult<()> {
        let used_bytes = memtable.arena().used_bytes();
        let added_bytes = used_bytes.saturating_sub(self.memtable_bytes);
        self.memtable_bytes = used_bytes;
        let bytes = self.settings.merged_bytes(&self.runs, added_bytes);
        self.step_merge(space, directory, bytes).map(drop)
    }

    /// The work of a commit behind its fences: whatever ends in publications, which have fences of their own.
    pub(super) fn work(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        if memtable.arena().used_bytes() > self.settings.memtable_bytes {
            let rotated = self.rotate(space, directory, memtable);
            unless_full(rotated)?;
        }
        for _ in 0..FREES_AT_ONCE {
            if !self.free_some(space, directory)? {
                break;
            }
        }
        match self.merge {
            Some(_) => self.end_merged(space, directory).map(drop),
            None => self.begin_due_merge(space, directory),
        }
    }

    /// Makes the MemTable immutable, and begins a new one.
    ///
    /// Errors: the region is full. Then the MemTable goes on.
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
        let new_page = arena::new_page(space, self.owner)?;
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
        self.runs
            .extend(run_of(space, &NumberedSlot { number, slot: ArenaSlot { page, state: immutable } })?);
        run::sort(&mut self.runs);
        *memtable = MemTable::new(Arena::new(self.owner, Durability::Durable, new_page));
        self.memtable_bytes = 0;
        Ok(())
    }

    /// Begins a merge that is due. In a full region the next one begins when there are more runs.
    fn begin_due_merge(&mut self, space: &Space, directory: &mut Directory) -> StoreResult<()> {
        if self.blocked_at == Some(self.runs.len()) {
            return Ok(());
        }
        let Some(plan) = self.settings.next_merge(&self.runs) else { return Ok(()) };
        let begun = self.begin_merge(space, directory, &plan);
        if !unless_full(begun)? {
            self.blocked_at = Some(self.runs.len());
        }
        Ok(())
    }

    /// Ends the merge that runs. `false`: no merge runs, or the region is full.
    fn merge_rest(&mut self, space: &Space, directory: &mut Directory) -> StoreResult<bool> {
        Ok(self.step_merge(space, directory, u64::MAX)? && self.end_merged(space, directory)?)
    }

    /// Continues the merge that runs. `false`: no merge runs, or the region is full. A caller's fence makes the
    /// lines durable.
    fn step_merge(&mut self, space: &Space, directory: &mut Directory, bytes: u64) -> StoreResult<bool> {
        let Some(running) = self.merge.as_mut() else { return Ok(false) };
        if running.is_merged {
            return Ok(true);
        }
        let mut media = MediaMut { space, files: None };
        match running.merge.step(&mut media, |table| directory.tables.has(table), bytes) {
            Ok(is_merged) => {
                running.is_merged = is_merged;
                Ok(true)
            }
            Err(error) => self.give_merge_up(space, directory, error),
        }
    }

    /// Ends the merge that runs, if all entries are merged. `false`: the region is full.
    fn end_merged(&mut self, space: &Space, directory: &mut Directory) -> StoreResult<bool> {
        let Some(running) = self.merge.take_if(|running| running.is_merged) else { return Ok(true) };
        match self.end_merge(space, directory, running) {
            Ok(()) => {
                self.blocked_at = None;
                Ok(true)
            }
            Err(error) => self.give_merge_up(space, directory, error),
        }
    }

    /// Frees what a merge has written for which there is no room. The next one begins when there are more runs.
    ///
    /// Errors: any other than a full region.
    fn give_merge_up(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        error: StoreError,
    ) -> StoreResult<bool> {
        self.merge = None;
        let is_done = unless_full(Err(error))?;
        self.blocked_at = Some(self.runs.len());
        while self.free_some(space, directory)? {}
        Ok(is_done)
    }

    fn begin_merge(&mut self, space: &Space, directory: &mut Directory, plan: &MergePlan) -> StoreResult<()> {
        let runs: Vec<&Run> = plan.runs.iter().filter_map(|number| self.runs.get(*number)).collect();
        if let [run] = runs[..]
            && run.level < plan.level
            && run.level > 0
        {
            return self.lower(space, directory, run.id as usize, plan.level);
        }
        let slot = directory.free_slot()?;
        let page = arena::new_page(space, self.owner)?;
        space.fence();
        let filled = ArenaSlot { page, state: ArenaState::ABANDONED };
        let published = space.allocator().publish(&directory.fill(space, slot, filled)?);
        if let Err(error) = published {
            space.give_up(page)?;
            return Err(error.into());
        }
        directory.note(slot, Some(filled));
        let output = Output::Arena(Arena::new(self.owner, Durability::Durable, page));
        let media = MediaMut { space, files: None };
        let merge = Merge::begin(&media, &runs, output, plan.is_lowest)?;
        let inputs = runs.iter().map(|run| run.id as usize).collect();
        self.merge = Some(RunningMerge { merge, slot, inputs, level: plan.level, is_merged: false });
        Ok(())
    }

    /// Moves a run that is alone on its level to the next level.
    fn lower(&mut self, space: &Space, directory: &mut Directory, slot: usize, level: u8) -> StoreResult<()> {
        let state = ArenaState { level, ..directory.arena(slot)?.state };
        space.allocator().publish(&[directory.change(space, slot, state)?])?;
        directory.note_state(slot, state);
        self.runs.iter_mut().filter(|run| run.id == slot as u64).for_each(|run| run.level = level);
        Ok(())
    }

    /// Puts the result of a merge into the place of its inputs.
    fn end_merge(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        running: RunningMerge,
    ) -> StoreResult<()> {
        let RunningMerge { merge, slot, inputs, level, .. } = running;
        let mut steps = Vec::with_capacity(inputs.len() + 1);
        let state = ArenaState { kind: ArenaKind::Packed, level, sequence: 0 };
        let is_empty = match merge.finish(&mut MediaMut { space, files: None })? {
            Some(written) => {
                self.store_run(space, &written)?;
                steps.push(directory.change(space, slot, state)?);
                false
            }
            None => true,
        };
        for input in &inputs {
            steps.push(directory.change(space, *input, ArenaState::ABANDONED)?);
        }
        space.allocator().publish(&steps)?;
        inputs.iter().for_each(|input| directory.note_state(*input, ArenaState::ABANDONED));
        self.runs.retain(|run| !inputs.contains(&(run.id as usize)));
        if !is_empty {
            directory.note_state(slot, state);
            self.runs.extend(run_of(space, &NumberedSlot { number: slot, slot: directory.arena(slot)? })?);
            run::sort(&mut self.runs);
        }
        Ok(())
    }

    /// Makes a written run durable.
    fn store_run(&self, space: &Space, written: &WrittenRun) -> StoreResult<()> {
        if let Output::Arena(arena) = &written.output {
            let facts = ArenaFacts {
                filter: Pointer::from_u64(written.filter_at),
                filter_bytes: written.filter.len() as u64,
                root: written.root,
                entry_bytes: written.entry_bytes,
                keys: written.keys,
                tombstones: written.tombstones,
            };
            arena::store_facts(space, arena.page(), &facts)?;
        }
        space.fence();
        Ok(())
    }

    /// Frees some chunks of abandoned arenas; whether there are more.
    fn free_some(&mut self, space: &Space, directory: &mut Directory) -> StoreResult<bool> {
        let output = self.merge.as_ref().map(|running| running.slot);
        let mut freed = match self.freed.take() {
            Some(freed) => freed,
            None => {
                let is_abandoned = |slot: &NumberedSlot| {
                    slot.slot.state.kind == ArenaKind::Abandoned && Some(slot.number) != output
                };
                let Some(found) = directory.arenas().find(is_abandoned) else { return Ok(false) };
                let arena = Arena::read(space, self.owner, found.slot.page)?;
                FreedArena { slot: found.number, arena }
            }
        };
        match freed.arena.free_some(space)? {
            true => directory.free(space, freed.slot)?,
            false => self.freed = Some(freed),
        }
        Ok(true)
    }

    /// Gets room back: frees what is abandoned, ends the merge under way, and merges all runs. Whether that may
    /// have helped.
    pub(super) fn make_room(&mut self, space: &Space, directory: &mut Directory) -> StoreResult<bool> {
        let mut has_freed = false;
        while self.free_some(space, directory)? {
            has_freed = true;
        }
        if self.merge.is_none()
            && self.blocked_at != Some(self.runs.len())
            && let Some(plan) = merge_of_all(&self.runs).filter(|plan| plan.runs.len() > 1)
        {
            let begun = self.begin_merge(space, directory, &plan);
            if !unless_full(begun)? {
                self.blocked_at = Some(self.runs.len());
            }
        }
        if self.merge.is_some() {
            self.merge_rest(space, directory)?;
            while self.free_some(space, directory)? {
                has_freed = true;
            }
        }
        Ok(has_freed)
    }

    /// Merges the MemTable and all runs into one run, to get the room of a dropped table back, as far as there
    /// is room for this. No transaction is open.
    pub(super) fn merge_all(
        &mut self,
        space: &Space,
        directory: &mut Directory,
        memtable: &mut MemTable,
    ) -> StoreResult<()> {
        let rotated = self.rotate(space, directory, memtable);
        unless_full(rotated)?;
        self.merge_rest(space, directory)?;
        let mut is_merged = false;
        while !is_merged && let Some(plan) = merge_of_all(&self.runs) {
            is_merged = plan.runs.len() == self.runs.len();
            let begun = self.begin_merge(space, directory, &plan);
            if !unless_full(begun)? || !self.merge_rest(space, directory)? {
                break;
            }
        }
        while self.free_some(space, directory)? {}
        Ok(space.allocator().free_empty_slabs(self.owner)?)
    }

    /// Adds the chunks of all arenas but the MemTable.
    pub(super) fn add_chunks(
        &self,
        space: &Space,
        directory: &Directory,
        chunks: &mut Vec<Pointer>,
    ) -> StoreResult<()> {
        for slot in directory.arenas().filter(|slot| slot.slot.state.kind != ArenaKind::Mutable) {
            Arena::read(space, self.owner, slot.slot.page)?.add_chunks(chunks);
        }
        Ok(())
    }
}

/// A publication can end the largest merge.
const _: () = assert!(crate::lsm::levels::RUNS_AT_ONCE < crate::sizes::STEPS_MAX && size_of::<Step>() > 0);
