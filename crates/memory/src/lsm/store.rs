//! The tables of one partition in an LSM tree. The engines `log` and `nvm_log` are this store over two media.
//!
//! Invariants
//! 1. A refused change is neither in the log nor in the MemTable.
//! 2. Inserts and updates leave room for a merge of all entries (`merge_room.rs`). Only deletes use this
//!    room. So a full region still takes deletes, and merges can give the room of the deleted rows back.
//!
//! This module does not know how changes survive a crash (`medium.rs`).

use super::changes::{self, PatchedBytes};
use super::entry::EntryBuffer;
use super::key::SearchKey;
use super::medium::LsmMedium;
use super::merge_room::MergeRoom;
use super::tables::LsmTable;
use super::view::View;
use crate::delete_reserve::DeleteReserve;
use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple;

/// The tables of one partition: an LSM tree.
pub struct LsmStore<M> {
    pub(crate) medium: M,
    owner: Owner,
    reserve: DeleteReserve,
    /// The entries of a change.
    entries: EntryBuffer,
}

/// The effect of a change on the room that its rows take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The rows may take more room: inserts and updates.
    Grows,
    /// The rows will take less room after the next merges: deletes.
    Shrinks,
}

/// Turns the error that the region is full into `false`. Success is `true`.
pub(crate) fn unless_full(done: StoreResult<()>) -> StoreResult<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(StoreError::Memory(MemoryError::Full { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

#[expect(private_bounds, reason = "only engines of this crate are media")]
impl<M: LsmMedium> LsmStore<M> {
    /// Returns the store over a medium whose chunks belong to `owner`.
    pub(crate) fn new(medium: M, owner: Owner) -> StoreResult<LsmStore<M>> {
        let mut reserve = DeleteReserve::new(owner);
        reserve.fill(medium.view().media.space)?;
        Ok(LsmStore { medium, owner, reserve, entries: EntryBuffer::default() })
    }

    fn check_no_transaction(&self) -> StoreResult<()> {
        if self.medium.change_count() > 0 { Err(StoreError::InTransaction) } else { Ok(()) }
    }

    /// Returns a table, after a check that these keys and this row are valid for it.
    fn checked(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<LsmTable> {
        let table = self.medium.tables().table(table)?;
        tuple::check(table.indexes, keys, row)?;
        Ok(table)
    }

    /// Collects the entries of a change and adds them. Returns the answer of `collect`.
    fn change<T>(
        &mut self,
        effect: Effect,
        collect: impl FnOnce(&View<'_>, &mut EntryBuffer) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let collected = collect(&self.medium.view(), &mut entries);
        let added = collected.and_then(|answer| self.add_with_room(effect, &entries).map(|()| answer));
        self.entries = entries;
        added
    }

    /// Adds entries. If the region is full, merges get room back, or a delete uses the reserve.
    fn add_with_room(&mut self, effect: Effect, entries: &EntryBuffer) -> StoreResult<()> {
        self.keep_merge_room(effect, entries)?;
        match self.add_or_undo(entries) {
            Err(error) if error.is_full() && self.medium.make_room()? => match self.add_or_undo(entries) {
                Err(error) if error.is_full() => self.add_from_reserve(effect, entries, error),
                added => added,
            },
            Err(error) if error.is_full() => self.add_from_reserve(effect, entries, error),
            added => added,
        }
    }

    /// Gives up the reserve and adds entries. Returns `full` if there is no reserve for them.
    fn add_from_reserve(
        &mut self,
        effect: Effect,
        entries: &EntryBuffer,
        full: StoreError,
    ) -> StoreResult<()> {
        let is_allowed = effect == Effect::Shrinks && !entries.is_empty();
        match is_allowed && self.reserve.give_up(self.medium.view().media.space)? {
            true => self.add_or_undo(entries),
            false => Err(full),
        }
    }

    /// Is called before the MemTable takes more room. Merges if there would be too little room left for a
    /// merge of all entries.
    ///
    /// Errors: the change makes the rows longer, and there is too little room even after the merge.
    fn keep_merge_room(&mut self, effect: Effect, entries: &EntryBuffer) -> StoreResult<()> {
        if entries.is_empty() || self.medium.memtable_mut().has_room(entries.iter()) {
            return Ok(());
        }
        let room = self.merge_room();
        if room.is_kept() {
            return Ok(());
        }
        if room.is_merge_worthwhile() {
            self.medium.make_room()?;
        }
        let room = self.merge_room();
        match effect {
            Effect::Grows if !room.is_kept() => Err(room.refusal().into()),
            Effect::Grows | Effect::Shrinks => Ok(()),
        }
    }

    fn merge_room(&mut self) -> MergeRoom {
        let memtable_bytes = self.medium.memtable_mut().arena().used_bytes();
        let view = self.medium.view();
        MergeRoom::of(view.runs, memtable_bytes, view.media.space.allocator(), self.owner)
    }

    fn add_or_undo(&mut self, entries: &EntryBuffer) -> StoreResult<()> {
        let (before, kept) = (self.medium.memtable_mut().position(), self.medium.change_count());
        let added = self.medium.add(entries);
        if added.is_err() {
            self.medium.undo_behind(kept)?;
            self.medium.memtable_mut().arena_mut().reset(before);
        }
        added
    }
}

impl<M: LsmMedium + Send + Sync> Store for LsmStore<M> {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        self.check_no_transaction()?;
        self.medium.create_table(owner, indexes)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        self.check_no_transaction()?;
        self.medium.tables().table(table)?;
        self.medium.drop_table(table)
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.medium.tables().list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let id = self.checked(table, keys, row)?.id;
        self.change(Effect::Grows, |view, entries| changes::insert(view, id, keys, row, entries))
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        let id = self.checked(table, keys, row)?.id;
        self.change(Effect::Grows, |view, entries| changes::replace(view, id, keys, row, entries))
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        let key = SearchKey::of(self.medium.tables().table(table)?.id, 0, key);
        let patched = PatchedBytes { at, bytes };
        self.change(Effect::Grows, |view, entries| changes::patch(view, &key, patched, entries))
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let table = self.medium.tables().table(table)?;
        self.change(Effect::Shrinks, |view, entries| changes::delete(view, &table, key, entries))
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        let id = self.medium.tables().with_index(table, index)?.id;
        self.medium.view().get(id, index, key, row)
    }

    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()> {
        let id = self.medium.tables().with_index(table, index)?.id;
        let tombstones = self.medium.view().scan(id, index, range, direction, on_row)?;
        self.medium.note_passed(tombstones);
        Ok(())
    }

    fn savepoint(&self) -> Savepoint {
        self.medium.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.medium.check_savepoint(savepoint)?;
        self.medium.undo_behind(savepoint.changes)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        let commit = self.medium.commit()?;
        self.reserve.fill(self.medium.view().media.space)?;
        Ok(commit)
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.medium.rollback()
    }

    fn sync(&mut self) -> StoreResult<()> {
        self.medium.sync()
    }

    fn hand_over(&self) {
        self.medium.hand_over();
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        self.medium.chunks()
    }
}
