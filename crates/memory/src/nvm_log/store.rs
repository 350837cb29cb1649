//! The medium of the engine `nvm_log`: it makes changes in a MemTable in persistent memory, with an undo log.
//!
//! Invariants
//! 1. Before the undo entries of a change are durable, nothing leads to its entries.
//! 2. If there is no room for the work of a commit on runs, the commit leaves this work for later.
//!
//! This module does not know rows, how changes are taken back (`recovery.rs`), or how runs are merged
//! (`compaction.rs`).

use std::sync::Arc;

use super::compaction::Compaction;
use super::directory::{self, ArenaKind, Directory};
use super::recovery::Undo;
use crate::lsm::arena::{Arena, Position};
use crate::lsm::entry::EntryBuffer;
use crate::lsm::levels::LsmSettings;
use crate::lsm::media::{Media, damaged};
use crate::lsm::medium::LsmMedium;
use crate::lsm::memtable::{self, MemTable, Planned};
use crate::lsm::store::LsmStore;
use crate::lsm::tables::Tables;
use crate::lsm::view::View;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Savepoint, TableNo};
use crate::store_error::StoreResult;
use crate::undo_log::{Kind, PATCH_BYTES_MAX, UndoEntry, UndoLog};

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NvmLogSettings {
    /// The settings of the MemTable and of the levels.
    pub lsm: LsmSettings,
}

/// The tables of one partition: an LSM tree of MemTables in persistent memory.
pub type NvmLogStructured = LsmStore<NvmLogMedium>;

/// The MemTable, the undo log and the runs of a store.
pub struct NvmLogMedium {
    space: Space,
    directory: Directory,
    memtable: MemTable,
    log: UndoLog,
    compaction: Compaction,
    /// For each entry of the log, the end of the used part of the MemTable's arena before its change.
    positions: Vec<Position>,
    planned: Vec<Planned>,
    /// A buffer for the old bytes of a patch.
    before: Vec<u8>,
}

impl NvmLogStructured {
    /// Opens the store with this name, or makes an empty store if there is none. A transaction that was open
    /// is rolled back, in a time that depends on its length. Nothing else is replayed. The chunks belong to
    /// `owner`.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: NvmLogSettings,
    ) -> StoreResult<NvmLogStructured> {
        let space = Space::new(allocator);
        let at = directory::find_or_create(&space, name, owner)?;
        let directory = Directory::read(&space, at)?;
        let is_mutable = |slot: &directory::NumberedSlot| slot.slot.state.kind == ArenaKind::Mutable;
        let mutable = directory.arenas().find(is_mutable);
        let page = mutable.ok_or(damaged("a store without a MemTable", at.to_u64()))?.slot.page;
        let memtable = MemTable::new(Arena::read(&space, owner, page)?);
        let mut log = UndoLog::read(&space, owner, directory::log_of(&space, at)?)?;
        Undo { space: &space, memtable: &memtable, log: &mut log }.roll_back()?;
        let compaction = Compaction::read(&space, &directory, owner, settings.lsm)?;
        let medium = NvmLogMedium {
            space,
            directory,
            memtable,
            log,
            compaction,
            positions: Vec::new(),
            planned: Vec::new(),
            before: Vec::new(),
        };
        LsmStore::new(medium, owner)
    }
}

impl NvmLogMedium {
    fn undo(&mut self) -> Undo<'_> {
        Undo { space: &self.space, memtable: &self.memtable, log: &mut self.log }
    }

    /// Makes entries and their undo entries durable, and links the entries from `first` on.
    fn apply(&self, entries: &EntryBuffer, planned: &[Planned], first: usize) -> StoreResult<()> {
        self.space.fence();
        let mut linked = planned.iter().zip(entries.iter()).skip(first);
        linked.try_for_each(|(planned, entry)| self.memtable.apply(&self.space, planned, entry))
    }

    /// Adds undo entries for a change to the log.
    fn log_undo(&mut self, planned: &Planned, entry: &[u8], position: Position) -> StoreResult<()> {
        let none =
            UndoEntry { kind: Kind::Insert, table: 0, tuple: Pointer::NONE, old: Pointer::NONE, checksum: 0 };
        match *planned {
            Planned::Node { node, levels, .. } => {
                let checksum = memtable::checksum_of(levels, entry);
                self.append(UndoEntry { tuple: node, checksum, ..none }, &[], position)
            }
            Planned::Record { node, older, .. } => {
                let undo = UndoEntry { kind: Kind::Replace, tuple: node, old: older, ..none };
                self.append(undo, &[], position)
            }
            Planned::Bytes { at, len_bytes } => {
                let mut before = std::mem::take(&mut self.before);
                before.resize(len_bytes, 0);
                self.space.read(at, 0, &mut before)?;
                for (number, part) in before.chunks(PATCH_BYTES_MAX).enumerate() {
                    let tuple = Pointer::from_u64(at.to_u64() + (number * PATCH_BYTES_MAX) as u64);
                    self.append(UndoEntry { kind: Kind::Patch, tuple, ..none }, part, position)?;
                }
                self.before = before;
                Ok(())
            }
        }
    }

    fn append(&mut self, undo: UndoEntry, before: &[u8], position: Position) -> StoreResult<()> {
        self.log.append(&self.space, undo, before)?;
        self.positions.push(position);
        Ok(())
    }
}

impl LsmMedium for NvmLogMedium {
    fn note_passed(&self, tombstones: u64) {
        self.compaction.note_passed(tombstones);
    }

    fn view(&self) -> View<'_> {
        let media = Media { space: &self.space, files: None, cache: None };
        View { media, memtable: self.memtable.list(), runs: self.compaction.runs() }
    }

    fn tables(&self) -> &Tables {
        &self.directory.tables
    }

    fn memtable_mut(&mut self) -> &mut MemTable {
        &mut self.memtable
    }

    fn change_count(&self) -> usize {
        self.log.len()
    }

    fn add(&mut self, entries: &EntryBuffer) -> StoreResult<()> {
        self.memtable.reserve(&self.space, entries.iter())?;
        let mut planned = std::mem::take(&mut self.planned);
        planned.clear();
        let mut first = 0;
        for entry in entries.iter() {
            let position = self.memtable.position();
            let mut plan = self.memtable.plan(&self.space, entry)?;
            if planned.iter().skip(first).any(|other| plan.shares_links(other)) {
                self.apply(entries, &planned, first)?;
                first = planned.len();
                self.memtable.arena_mut().reset(position);
                plan = self.memtable.plan(&self.space, entry)?;
            }
            self.log_undo(&plan, entry, position)?;
            planned.push(plan);
        }
        self.apply(entries, &planned, first)?;
        self.planned = planned;
        Ok(())
    }

    fn undo_behind(&mut self, kept: usize) -> StoreResult<()> {
        while self.log.len() > kept {
            self.undo().undo_last()?;
            if let Some(position) = self.positions.pop() {
                self.memtable.arena_mut().reset(position);
            }
        }
        Ok(())
    }

    fn make_room(&mut self) -> StoreResult<bool> {
        let memtable = (self.log.len() == 0).then_some(&mut self.memtable);
        self.compaction.make_room(&self.space, &mut self.directory, memtable)
    }

    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        self.directory.create_table(&self.space, owner, indexes)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        let id = self.directory.tables.table(table)?.id;
        self.directory.drop_table(&self.space, table)?;
        match self.view().has_entries(id)? {
            true => self.compaction.merge_all(&self.space, &mut self.directory, &mut self.memtable),
            false => Ok(()),
        }
    }

    fn savepoint(&self) -> Savepoint {
        self.log.savepoint()
    }

    fn check_savepoint(&self, savepoint: Savepoint) -> StoreResult<()> {
        self.log.check_savepoint(savepoint)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if self.log.len() == 0 {
            self.log.begin();
        } else {
            self.compaction.merge_some(&self.space, &mut self.directory, &self.memtable)?;
            self.memtable.arena().store_position(&self.space)?;
            self.space.fence();
            self.log.end(&self.space)?;
            self.positions.clear();
            self.compaction.work(&self.space, &mut self.directory, &mut self.memtable)?;
        }
        Ok(Commit::Durable)
    }

    fn rollback(&mut self) -> StoreResult<()> {
        if self.log.len() == 0 {
            self.log.begin();
            return Ok(());
        }
        self.undo().roll_back()?;
        if let Some(first) = self.positions.first().copied() {
            self.memtable.arena_mut().reset(first);
        }
        self.positions.clear();
        Ok(())
    }

    fn sync(&mut self) -> StoreResult<()> {
        Ok(())
    }

    fn hand_over(&self) {
        self.space.fence();
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        let mut chunks = self.log.blocks().to_vec();
        chunks.push(self.directory.chunk());
        self.memtable.arena().add_chunks(&mut chunks);
        self.compaction.add_chunks(&self.space, &self.directory, &mut chunks)?;
        Ok(chunks)
    }
}
