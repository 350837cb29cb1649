//! The changes of a transaction, and reads.
//!
//! Invariants
//! 1. Room in the log and in the MemTable is reserved before a change begins. So a refused change is in
//!    neither.
//! 2. A full region refuses changes only. A sync leaves work undone for which there is no room.
//!
//! What it does not know: the format of records, how runs are merged (`compaction.rs`).

use std::sync::Arc;

use super::compaction::{Compaction, Workplace};
use super::manifest::Manifest;
use super::record;
use super::recovery;
use crate::error::MemoryError;
use crate::files::{CallCounts, FileCosts, Files};
use crate::lsm::arena::{self, Arena, Durability, Position};
use crate::lsm::changes::{self, PatchedBytes};
use crate::lsm::entry::EntryBuffer;
use crate::lsm::key::SearchKey;
use crate::lsm::levels::LsmSettings;
use crate::lsm::media::Media;
use crate::lsm::memtable::{MemTable, Planned};
use crate::lsm::tables::LsmTable;
use crate::lsm::view::View;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple;
use crate::wal::Wal;

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSettings {
    /// MemTable and levels.
    pub lsm: LsmSettings,
    /// What calls on files cost.
    pub files: FileCosts,
}

/// A change of the open transaction: one entry.
struct Change {
    /// Its number among all changes since the start, also those that were taken back.
    number: u64,
    planned: Planned,
    /// Where the MemTable's arena ended before it.
    position: Position,
    /// Where its record begins in the log's buffer.
    record_at: usize,
    /// Where the bytes before a patch begin in `before`.
    before_at: usize,
}

/// The tables of one partition: an LSM tree with a log and runs in files.
pub struct LogStructured {
    space: Space,
    owner: Owner,
    memtable: MemTable,
    wal: Wal,
    compaction: Compaction,
    /// Numbers that were given to changes and to beginnings of transactions.
    numbers_used: u64,
    /// The number of the beginning of the transaction.
    first_number: u64,
    changes: Vec<Change>,
    entries: EntryBuffer,
    /// The bytes before the patches of the transaction.
    before: Vec<u8>,
}

impl LogStructured {
    /// Opens the store whose files have this root; makes an empty one if there is none. The time depends on the
    /// length of the log, and on the number and the Bloom filters of the runs. All chunks are counted for
    /// `owner`.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: LogSettings,
    ) -> StoreResult<LogStructured> {
        let mut files = Files::open(Arc::clone(&allocator), name, owner, settings.files)?;
        let space = Space::new(allocator);
        let manifest = Manifest::read(&mut files)?;
        let wal = Wal::open(files, manifest.log)?;
        let page = arena::new_page(&space, owner)?;
        let mut memtable = MemTable::new(Arena::new(owner, Durability::Volatile, page));
        recovery::replay(&space, &mut memtable, &wal.read()?)?;
        Ok(LogStructured {
            space,
            owner,
            memtable,
            wal,
            compaction: Compaction::new(settings.lsm, manifest),
            numbers_used: 0,
            first_number: 0,
            changes: Vec::new(),
            entries: EntryBuffer::default(),
            before: Vec::new(),
        })
    }

    /// Calls on files since the start.
    pub fn file_calls(&self) -> CallCounts {
        self.wal.files.counts()
    }

    fn table(&self, table: TableNo) -> StoreResult<LsmTable> {
        self.compaction.manifest.tables.table(table)
    }

    fn view(&self) -> View<'_> {
        let media = Media { space: &self.space, files: Some(&self.wal.files) };
        View { media, memtable: self.memtable.list(), runs: self.compaction.runs() }
    }

    /// Undoes the changes behind the first `kept` ones.
    fn undo_behind(&mut self, kept: usize) -> StoreResult<()> {
        while self.changes.len() > kept
            && let Some(change) = self.changes.pop()
        {
            match change.planned {
                Planned::Node { node, .. } => self.memtable.unlink(&self.space, node)?,
                Planned::Record { node, older, .. } => {
                    self.memtable.set_newest(&self.space, node, older)?;
                }
                Planned::Bytes { at, .. } => {
                    let before = self.before.get(change.before_at..).unwrap_or_default();
                    self.memtable.restore(&self.space, at, before)?;
                    self.before.truncate(change.before_at);
                }
            }
            self.memtable.arena_mut().reset(change.position);
            self.wal.truncate(change.record_at);
        }
        Ok(())
    }

    /// Collects the entries of a change and adds them; what `collect` says. If there is no room, merges get
    /// some back, and it is tried again.
    fn change<T>(
        &mut self,
        collect: impl FnOnce(&View<'_>, &mut EntryBuffer) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let collected = collect(&self.view(), &mut entries);
        let added = collected.and_then(|answer| self.add_with_room(&entries).map(|()| answer));
        self.entries = entries;
        added
    }

    fn add_with_room(&mut self, entries: &EntryBuffer) -> StoreResult<()> {
        match self.add_or_undo(entries) {
            Err(StoreError::Memory(MemoryError::Full { .. })) if self.make_room()? => {
                self.add_or_undo(entries)
            }
            added => added,
        }
    }

    fn make_room(&mut self) -> StoreResult<bool> {
        let mut place = Workplace { space: &self.space, wal: &mut self.wal };
        self.compaction.make_room(&mut place)
    }

    fn add_or_undo(&mut self, entries: &EntryBuffer) -> StoreResult<()> {
        let (before, kept) = (self.memtable.position(), self.changes.len());
        let added = self.add(entries);
        if added.is_err() {
            self.undo_behind(kept)?;
            self.memtable.arena_mut().reset(before);
        }
        added
    }

    fn add(&mut self, entries: &EntryBuffer) -> StoreResult<()> {
        let records = entries.iter().map(|entry| record::record_bytes(entry.len())).sum::<usize>();
        self.wal.reserve(records + record::record_bytes(0))?;
        self.memtable.reserve(&self.space, entries.iter())?;
        for entry in entries.iter() {
            let position = self.memtable.position();
            let planned = self.memtable.plan(&self.space, entry)?;
            let (record_at, before_at) = (self.wal.end(), self.before.len());
            if let Planned::Bytes { at, len_bytes } = planned {
                self.before.resize(before_at + len_bytes, 0);
                self.space.read(at, 0, self.before.get_mut(before_at..).unwrap_or_default())?;
            }
            self.wal.append(|buffer| record::encode(entry, buffer));
            self.numbers_used += 1;
            let number = self.numbers_used;
            self.changes.push(Change { number, planned, position, record_at, before_at });
            self.memtable.apply(&self.space, &planned, entry)?;
        }
        Ok(())
    }

    fn end(&mut self) {
        self.changes.clear();
        self.before.clear();
        self.numbers_used += 1;
        self.first_number = self.numbers_used;
    }

    /// The number of the newest of this many changes. Without changes, a number that only this transaction has.
    fn newest(&self, changes: usize) -> u64 {
        let newest = changes.checked_sub(1).and_then(|last| self.changes.get(last));
        newest.map_or(self.first_number, |change| change.number)
    }

    fn flush_log(&mut self) -> StoreResult<()> {
        let written = self.wal.flush()?;
        self.changes.iter_mut().for_each(|change| change.record_at -= written);
        Ok(())
    }
}

impl Store for LogStructured {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        if !self.changes.is_empty() {
            return Err(StoreError::InTransaction);
        }
        let manifest = &mut self.compaction.manifest;
        let new = manifest.tables.next(&self.space, owner, indexes)?;
        let table = manifest.tables.add(&new);
        let written = manifest.write(&mut self.wal.files);
        written.inspect_err(|_| manifest.tables.remove(table))?;
        Ok(table)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        if !self.changes.is_empty() {
            return Err(StoreError::InTransaction);
        }
        let dropped = self.table(table)?;
        self.flush_log()?;
        let manifest = &mut self.compaction.manifest;
        manifest.tables.remove(table);
        let written = manifest.write(&mut self.wal.files);
        written.inspect_err(|_| manifest.tables.put_back(table, dropped))?;
        if self.view().has_entries(dropped.id)? {
            let mut place = Workplace { space: &self.space, wal: &mut self.wal };
            self.compaction.merge_all(&mut place, &mut self.memtable)?;
        }
        Ok(self.space.allocator().free_empty_slabs(self.owner)?)
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.compaction.manifest.tables.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let LsmTable { id, indexes, .. } = self.table(table)?;
        tuple::check(indexes, keys, row)?;
        self.change(|view, entries| changes::insert(view, id, keys, row, entries))
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        let LsmTable { id, indexes, .. } = self.table(table)?;
        tuple::check(indexes, keys, row)?;
        self.change(|view, entries| changes::replace(view, id, keys, row, entries))
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        let key = SearchKey::of(self.table(table)?.id, 0, key);
        self.change(|view, entries| changes::patch(view, &key, PatchedBytes { at, bytes }, entries))
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let table = self.table(table)?;
        self.change(|view, entries| changes::delete(view, &table, key, entries))
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        let id = self.compaction.manifest.tables.with_index(table, index)?.id;
        self.view().get(id, index, key, row)
    }

    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()> {
        let id = self.compaction.manifest.tables.with_index(table, index)?.id;
        self.view().scan(id, index, range, direction, on_row)
    }

    fn savepoint(&self) -> Savepoint {
        Savepoint { transaction: self.newest(self.changes.len()), entries: self.changes.len() }
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        let entries = savepoint.entries;
        if entries > self.changes.len() || savepoint.transaction != self.newest(entries) {
            return Err(StoreError::NoSavepoint);
        }
        self.undo_behind(savepoint.entries)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if !self.changes.is_empty() {
            self.wal.append(|buffer| record::encode(&[], buffer));
            self.wal.commit();
            self.end();
        }
        Ok(if self.wal.has_pending() { Commit::Pending } else { Commit::Durable })
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.undo_behind(0)?;
        self.end();
        Ok(())
    }

    fn sync(&mut self) -> StoreResult<()> {
        self.flush_log()?;
        let mut place = Workplace { space: &self.space, wal: &mut self.wal };
        self.compaction.work(&mut place, &mut self.memtable, !self.changes.is_empty())
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        Ok(self.wal.files.chunks()?)
    }
}
