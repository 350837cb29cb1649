//! The medium of the engine `log`: it makes changes in a MemTable and in the log's buffer, and undoes them.
//!
//! Invariants
//! 1. Room in the log and in the MemTable is reserved before a change begins.
//! 2. If there is no room for the work of a sync on runs, the sync leaves this work for later.
//!
//! This module does not know rows, the format of records, or how runs are merged (`compaction.rs`).

use std::sync::Arc;

use super::compaction::{Compaction, Workplace};
use super::manifest::Manifest;
use super::record;
use super::recovery;
use crate::change_numbers::ChangeNumbers;
use crate::files::{CallCounts, FileCosts, Files};
use crate::lsm::arena::{self, Arena, Durability, Position};
use crate::lsm::block_cache::BlockCache;
use crate::lsm::entry::EntryBuffer;
use crate::lsm::levels::LsmSettings;
use crate::lsm::media::Media;
use crate::lsm::medium::LsmMedium;
use crate::lsm::memtable::{MemTable, Planned};
use crate::lsm::store::LsmStore;
use crate::lsm::tables::Tables;
use crate::lsm::view::View;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Savepoint, TableNo};
use crate::store_error::StoreResult;
use crate::wal::Wal;

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSettings {
    /// The settings of the MemTable and of the levels.
    pub lsm: LsmSettings,
    /// What calls on files cost.
    pub files: FileCosts,
    /// The number of bytes of the block cache for runs, which is in memory. If it is less than 4096, there is
    /// no cache.
    pub cache_bytes: usize,
}

/// A change of the open transaction: one entry.
struct Change {
    planned: Planned,
    /// The end of the used part of the MemTable's arena before the change.
    position: Position,
    /// The position in the log's buffer at which the record of the change begins.
    record_at: usize,
    /// The position in `before` at which the old bytes of a patch begin.
    before_at: usize,
}

/// The tables of one partition: an LSM tree with a log and runs in files.
pub type LogStructured = LsmStore<LogMedium>;

/// The MemTable, the log and the runs of a store.
pub struct LogMedium {
    space: Space,
    owner: Owner,
    memtable: MemTable,
    cache: Option<BlockCache>,
    wal: Wal,
    compaction: Compaction,
    changes: Vec<Change>,
    numbers: ChangeNumbers,
    /// The old bytes that the patches of the transaction have overwritten.
    before: Vec<u8>,
}

impl LogStructured {
    /// Opens the store whose files have the root `name`, or makes an empty store if there is none. The time
    /// depends on the length of the log, and on the number and the Bloom filters of the runs. All chunks
    /// belong to `owner`.
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
        let medium = LogMedium {
            space,
            owner,
            memtable,
            cache: BlockCache::new(owner, settings.cache_bytes),
            wal,
            compaction: Compaction::new(settings.lsm, manifest),
            changes: Vec::new(),
            numbers: ChangeNumbers::new(),
            before: Vec::new(),
        };
        LsmStore::new(medium, owner)
    }

    /// Returns the number of calls on files since the store was opened.
    pub fn file_calls(&self) -> CallCounts {
        self.medium.wal.files.counts()
    }
}

impl LogMedium {
    fn end(&mut self) {
        self.changes.clear();
        self.before.clear();
        self.numbers.begin();
    }

    fn flush_log(&mut self) -> StoreResult<()> {
        let written = self.wal.flush()?;
        self.changes.iter_mut().for_each(|change| change.record_at -= written);
        Ok(())
    }
}

impl LsmMedium for LogMedium {
    fn note_passed(&self, tombstones: u64) {
        self.compaction.note_passed(tombstones);
    }

    fn view(&self) -> View<'_> {
        let media = Media { space: &self.space, files: Some(&self.wal.files), cache: self.cache.as_ref() };
        View { media, memtable: self.memtable.list(), runs: self.compaction.runs() }
    }

    fn tables(&self) -> &Tables {
        &self.compaction.manifest.tables
    }

    fn memtable_mut(&mut self) -> &mut MemTable {
        &mut self.memtable
    }

    fn change_count(&self) -> usize {
        self.changes.len()
    }

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
            self.numbers.truncate(self.changes.len());
        }
        Ok(())
    }

    fn make_room(&mut self) -> StoreResult<bool> {
        let has_cleared = match &self.cache {
            Some(cache) => cache.clear(&self.space)?,
            None => false,
        };
        let memtable = match self.changes.is_empty() {
            true => {
                self.flush_log()?;
                Some(&mut self.memtable)
            }
            false => None,
        };
        let mut place = Workplace { space: &self.space, wal: &mut self.wal };
        let has_freed = self.compaction.make_room(&mut place, memtable)?;
        self.space.allocator().free_empty_slabs(self.owner)?;
        Ok(has_freed || has_cleared)
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
            self.numbers.push();
            self.changes.push(Change { planned, position, record_at, before_at });
            self.memtable.apply(&self.space, &planned, entry)?;
        }
        Ok(())
    }

    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        let manifest = &mut self.compaction.manifest;
        let new = manifest.tables.next(&self.space, owner, indexes)?;
        let table = manifest.tables.add(&new);
        let written = manifest.write(&mut self.wal.files);
        written.inspect_err(|_| manifest.tables.remove(table))?;
        Ok(table)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        let dropped = self.tables().table(table)?;
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

    fn savepoint(&self) -> Savepoint {
        self.numbers.savepoint()
    }

    fn check_savepoint(&self, savepoint: Savepoint) -> StoreResult<()> {
        self.numbers.check(savepoint)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if !self.changes.is_empty() {
            self.wal.append(|buffer| record::encode(&[], buffer));
            self.wal.commit();
        }
        self.end();
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
