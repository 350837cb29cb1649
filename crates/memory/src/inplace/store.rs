//! The store of the engine: the changes of a transaction, and reads.
//!
//! Invariants
//! 1. Room in the log is reserved before a change begins, and the record is added after the change. So a
//!    refused change is not in the log.
//! 2. A tuple that the transaction removed stays until its commit is durable. A rollback may put it back. And
//!    after a crash, a start must have room for it.
//!
//! This module does not know the format of records.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::checkpoint;
use super::heap::Heap;
use super::record::{COMMIT_BYTES, Record};
use super::recovery;
use super::start_reserve::StartReserve;
use crate::change_numbers::ChangeNumbers;
use crate::delete_reserve::DeleteReserve;
use crate::error::MemoryError;
use crate::files::{CallCounts, FileCosts, Files};
use crate::pointer::{Owner, Pointer};
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::TupleHead;
use crate::wal::Wal;

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InplaceSettings {
    /// What calls on files cost.
    pub files: FileCosts,
    /// If the log has more bytes than this after a sync, the sync writes a checkpoint.
    pub checkpoint_log_bytes: u64,
}

impl Default for InplaceSettings {
    fn default() -> InplaceSettings {
        InplaceSettings { files: FileCosts::default(), checkpoint_log_bytes: 64 << 20 }
    }
}

/// The kind of a change, with what is needed to undo it.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Insert,
    /// The row got a new tuple. The pointer leads to the tuple that was replaced.
    Replace(Pointer),
    /// Bytes were changed. The old bytes are in the record.
    Patch,
    Delete,
}

/// A change of the open transaction.
#[derive(Debug, Clone, Copy)]
struct Change {
    kind: Kind,
    table: TableNo,
    tuple: Pointer,
    /// The position in the log's buffer at which the record of the change begins.
    record_at: usize,
}

/// The tables of one partition. They are in memory that a crash clears, with a log and checkpoints in files.
pub struct Inplace {
    heap: Heap,
    log: Wal,
    start_reserve: StartReserve,
    delete_reserve: DeleteReserve,
    settings: InplaceSettings,
    changes: Vec<Change>,
    numbers: ChangeNumbers,
    /// The tuples that were removed by transactions whose commits are not durable yet.
    removed: Vec<Pointer>,
    /// The row before a change.
    before: Vec<u8>,
}

impl Inplace {
    /// Opens the store whose files have the root `name`, or makes an empty store if there is none. The chunks
    /// of the files belong to `owner`. The time depends on the size of the data, and on the length of the
    /// log.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: InplaceSettings,
    ) -> StoreResult<Inplace> {
        let files = Files::open(Arc::clone(&allocator), name, owner, settings.files)?;
        let mut heap = Heap::new(allocator);
        let log = recovery::recover(&mut heap, files)?;
        let mut start_reserve = StartReserve::new(owner);
        start_reserve.fill(&heap.space)?;
        let mut delete_reserve = DeleteReserve::new(owner);
        delete_reserve.fill(&heap.space)?;
        let (changes, removed, before) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Inplace {
            heap,
            log,
            start_reserve,
            delete_reserve,
            settings,
            changes,
            numbers: ChangeNumbers::new(),
            removed,
            before,
        })
    }

    /// Returns the number of calls on files since the store was opened.
    pub fn file_calls(&self) -> CallCounts {
        self.log.files.counts()
    }

    /// Writes a checkpoint, so that the next start replays no log. No transaction may be open.
    ///
    /// Errors: a transaction is open, or the region is full.
    pub fn checkpoint(&mut self) -> StoreResult<()> {
        if !self.changes.is_empty() {
            return Err(StoreError::InTransaction);
        }
        self.flush()?;
        checkpoint::write(&self.heap, &mut self.log)?;
        self.start_reserve.fill(&self.heap.space)
    }

    /// Makes sure that the log has room for a record of this many bytes, and for the commit after it.
    fn reserve_log(&mut self, record_bytes: usize) -> StoreResult<()> {
        self.log.reserve(record_bytes + COMMIT_BYTES)
    }

    /// Makes room for the record of a delete in a full region. Returns whether a second try can succeed.
    fn make_room(&mut self) -> StoreResult<bool> {
        if self.changes.is_empty() && self.log.has_pending() {
            self.flush()?;
            return Ok(true);
        }
        self.delete_reserve.give_up(&self.heap.space)
    }

    fn commit_log(&mut self) {
        self.log.append(|buffer| Record::Commit.encode(buffer));
        self.log.commit();
    }

    fn note(&mut self, kind: Kind, table: TableNo, tuple: Pointer, record: &Record<'_>) {
        let record_at = self.log.end();
        self.log.append(|buffer| record.encode(buffer));
        self.numbers.push();
        self.changes.push(Change { kind, table, tuple, record_at });
    }

    fn undo(&mut self, change: &Change) -> StoreResult<()> {
        let Change { kind, table, tuple, record_at, .. } = *change;
        match kind {
            Kind::Insert => {
                self.heap.remove(table, tuple)?;
                self.heap.free(tuple)?;
            }
            Kind::Replace(old) => {
                self.heap.undo_exchange(table, old, tuple)?;
                self.heap.free(tuple)?;
            }
            Kind::Patch => {
                let decoded = Record::decode(self.log.records(record_at));
                if let Some(Record::Patch { at, before, .. }) = decoded.map(|decoded| decoded.record) {
                    self.heap.patch(tuple, at, before)?;
                }
            }
            Kind::Delete => self.heap.put_back(table, tuple)?,
        }
        self.log.truncate(record_at);
        Ok(())
    }

    fn undo_behind(&mut self, kept: usize) -> StoreResult<()> {
        while self.changes.len() > kept
            && let Some(change) = self.changes.pop()
        {
            self.numbers.truncate(self.changes.len());
            self.undo(&change)?;
        }
        Ok(())
    }

    fn end(&mut self) -> StoreResult<()> {
        self.changes.clear();
        self.numbers.begin();
        self.free_removed()
    }

    /// Makes all commits durable.
    fn flush(&mut self) -> StoreResult<()> {
        let written = self.log.flush()?;
        self.changes.iter_mut().for_each(|change| change.record_at -= written);
        self.free_removed()
    }

    /// Frees tuples and nodes that neither the durable state nor the open transaction needs.
    fn free_removed(&mut self) -> StoreResult<()> {
        if self.log.has_pending() {
            return Ok(());
        }
        while let Some(tuple) = self.removed.pop() {
            self.heap.free(tuple)?;
        }
        if self.changes.is_empty() { self.heap.remove_emptied() } else { Ok(()) }
    }
}

impl Store for Inplace {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        if !self.changes.is_empty() {
            return Err(StoreError::InTransaction);
        }
        self.reserve_log(Record::bytes_max(&[], 0))?;
        let table = self.heap.next_table(owner, indexes)?;
        self.heap.add_table(table, owner, indexes)?;
        let record = Record::CreateTable { table, owner: owner.number(), indexes };
        self.log.append(|buffer| record.encode(buffer));
        self.commit_log();
        self.flush()?;
        Ok(table)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        if !self.changes.is_empty() {
            return Err(StoreError::InTransaction);
        }
        self.heap.table(table)?;
        self.reserve_log(Record::bytes_max(&[], 0))?;
        self.log.append(|buffer| Record::DropTable { table }.encode(buffer));
        self.commit_log();
        self.flush()?;
        self.heap.drop_table(table)
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.heap.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.heap.check(table, keys, row)?;
        self.reserve_log(Record::bytes_max(keys, row.len()))?;
        let tuple = self.heap.insert(table, keys, row)?;
        self.note(Kind::Insert, table, tuple, &Record::Insert { table, keys: keys.to_vec(), row });
        Ok(())
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.heap.check(table, keys, row)?;
        let key = keys.first().copied().unwrap_or_default();
        let Some(old) = self.heap.find(table, key)? else { return Ok(false) };
        let mut before = std::mem::take(&mut self.before);
        self.heap.row(old, &mut before)?;
        self.reserve_log(Record::bytes_max(keys, row.len() + before.len()))?;
        let tuple = self.heap.replace(table, keys, row, old)?;
        let record = Record::Replace { table, keys: keys.to_vec(), row, before: &before };
        self.note(Kind::Replace(old), table, tuple, &record);
        self.before = before;
        Ok(true)
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        let Some(tuple) = self.heap.find(table, key)? else { return Ok(false) };
        let mut before = std::mem::take(&mut self.before);
        self.heap.row(tuple, &mut before)?;
        let changed = at.checked_add(bytes.len()).and_then(|end| before.get(at..end));
        let (len_bytes, row_bytes) = (bytes.len(), before.len());
        let changed = changed.ok_or(StoreError::PatchRange { at, len_bytes, row_bytes })?;
        self.reserve_log(Record::bytes_max(&[key], 2 * bytes.len()))?;
        self.heap.patch(tuple, at, bytes)?;
        let record = Record::Patch { table, key, at, before: changed, after: bytes };
        self.note(Kind::Patch, table, tuple, &record);
        self.before = before;
        Ok(true)
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let Some(tuple) = self.heap.find(table, key)? else { return Ok(false) };
        let record_bytes = Record::bytes_max(&[key], 0);
        while let Err(error) = self.reserve_log(record_bytes) {
            if !error.is_full() || !self.make_room()? {
                return Err(error);
            }
        }
        self.heap.remove(table, tuple)?;
        self.note(Kind::Delete, table, tuple, &Record::Delete { table, key, before: &[] });
        Ok(true)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        match self.heap.index(table, index)?.find(&self.heap.space, key)? {
            Some(tuple) => self.heap.row(tuple, row).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()> {
        let (tree, space) = (self.heap.index(table, index)?, &self.heap.space);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let mut on_tuple = |tuple| -> StoreResult<ControlFlow<()>> {
            let head = TupleHead::read(space, tuple)?;
            head.key(space, tuple, tree.number(), &mut key)?;
            head.row(space, tuple, &mut row)?;
            Ok(on_row(&key, &row))
        };
        tree.scan(space, range, direction, &mut on_tuple)
    }

    fn savepoint(&self) -> Savepoint {
        self.numbers.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.numbers.check(savepoint)?;
        self.undo_behind(savepoint.changes)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if !self.changes.is_empty() {
            self.commit_log();
            for change in &self.changes {
                match change.kind {
                    Kind::Replace(old) => self.removed.push(old),
                    Kind::Delete => self.removed.push(change.tuple),
                    Kind::Insert | Kind::Patch => {}
                }
            }
        }
        self.end()?;
        self.delete_reserve.fill(&self.heap.space)?;
        Ok(if self.log.has_pending() { Commit::Pending } else { Commit::Durable })
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.undo_behind(0)?;
        self.end()
    }

    fn sync(&mut self) -> StoreResult<()> {
        self.flush()?;
        if self.log.file_bytes() > self.settings.checkpoint_log_bytes && self.changes.is_empty() {
            // If the region has no room for a checkpoint, the old log is used further. That is no error,
            // because all commits are durable in the log.
            match checkpoint::write(&self.heap, &mut self.log) {
                Err(StoreError::Memory(MemoryError::Full { .. })) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        Ok(self.log.files.chunks()?)
    }
}
