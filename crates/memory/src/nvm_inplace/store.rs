//! The changes of a transaction, and reads.
//!
//! Invariants
//! 1. Before an undo entry is durable, nothing that it undoes is changed. What is stored before is not
//!    reachable: a reserved tuple, entries that are not valid.
//! 2. A call that fails before its undo entry has only split nodes, which no reader notices.
//!
//! What it does not know: how changes are taken back (`recovery.rs`).

use std::ops::ControlFlow;
use std::sync::Arc;

use super::index::{Index, LeafSlot, SearchKey};
use super::recovery::Undo;
use super::scan::IndexScan;
use super::tables::{self, Tables};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, INDEXES_MAX, TupleHead};
use crate::undo_log::{Kind, PATCH_BYTES_MAX, UndoEntry, UndoLog};

/// The tables of one partition, updated in place in persistent memory.
pub struct NvmInplace {
    space: Space,
    tables: Tables,
    log: UndoLog,
    /// Whether bits of index nodes were cleared since the last fence; their slots must not be filled before
    /// the next one.
    has_unfenced_clears: bool,
    /// Leaves that the transaction has left without entries.
    emptied: Vec<EmptiedLeaf>,
    /// The head of the tuple that is being made.
    head: Vec<u8>,
    /// The bytes before a patch.
    before: Vec<u8>,
}

/// A leaf that may be empty, by a key in it.
struct EmptiedLeaf {
    index: Index,
    key: Vec<u8>,
}

/// A tuple that is stored, but not reachable.
struct PreparedTuple {
    tuple: Pointer,
    checksum: u32,
}

impl NvmInplace {
    /// Opens the store with this name; makes an empty one if there is none. A transaction that was open is
    /// rolled back: the time of that depends on its length only. The log is counted for `owner`.
    pub fn open(allocator: Arc<Allocator>, name: &str, owner: Owner) -> StoreResult<NvmInplace> {
        let space = Space::new(allocator);
        let first_page = tables::find_or_create(&space, name, owner)?;
        let tables = Tables::read(&space, first_page, owner)?;
        let mut log = UndoLog::read(&space, owner, tables::log_of(&space, first_page)?)?;
        Undo { space: &space, tables: &tables, log: &mut log }.recover()?;
        let (head, before) = (Vec::new(), Vec::new());
        Ok(NvmInplace { space, tables, log, has_unfenced_clears: false, emptied: Vec::new(), head, before })
    }

    fn undo(&mut self) -> Undo<'_> {
        Undo { space: &self.space, tables: &self.tables, log: &mut self.log }
    }

    fn fence(&mut self) {
        self.space.fence();
        self.has_unfenced_clears = false;
    }

    /// The tuple with a primary key.
    fn find(&self, table: TableNo, key: &[u8]) -> StoreResult<Option<Pointer>> {
        let found = self.tables.index(table, 0)?.find(&self.space, &SearchKey::of(key))?;
        Ok(found.map(|slot| slot.tuple()))
    }

    fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        tuple::check(self.tables.table(table)?.indexes.len(), keys, row)
    }

    /// Stores a tuple in a reserved chunk; a caller's fence makes it durable.
    fn prepare_tuple(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<PreparedTuple> {
        tuple::encode_head(keys, row.len(), &mut self.head);
        let owner = self.tables.table(table)?.owner;
        let len_bytes = self.head.len() + row.len();
        let tuple = self.space.allocator().allocate(owner, len_bytes as u64)?;
        // A line with the end of the head and the beginning of the row is written back once.
        self.space.store(tuple, 0, &self.head)?;
        self.space.store(tuple, self.head.len() as u64, row)?;
        self.space.write_back(tuple, len_bytes as u64)?;
        Ok(PreparedTuple { tuple, checksum: crc32c::crc32c(&self.head) })
    }

    /// Stores entries for those keys that `is_new` says, and the undo entry, all before the first fence.
    fn prepare_entries(
        &mut self,
        table: TableNo,
        keys: &[&[u8]],
        is_new: &[bool],
        undo: UndoEntry,
    ) -> StoreResult<[Option<LeafSlot>; INDEXES_MAX]> {
        if self.has_unfenced_clears {
            self.fence();
        }
        let mut slots = [None; INDEXES_MAX];
        let indexes = &self.tables.table(table)?.indexes;
        for ((index, key), slot) in indexes.iter().zip(keys).zip(&mut slots) {
            if is_new.get(index.number).is_some_and(|is_new| *is_new) {
                *slot = Some(index.prepare(&self.space, &SearchKey::of(key), undo.tuple)?);
            }
        }
        self.log.append(&self.space, undo, &[])?;
        self.fence();
        self.space.allocator().activate_unfenced(undo.tuple)?;
        Ok(slots)
    }

    /// Makes the entry of a tuple in an index not valid.
    fn remove_entry(&mut self, index: &Index, key: &[u8], tuple: Pointer) -> StoreResult<()> {
        let Some(slot) = index.find_tuple(&self.space, &SearchKey::of(key), tuple)? else {
            return Err(StoreError::Damaged {
                what: "an index, which lacks the entry of a tuple",
                at: tuple,
            });
        };
        self.has_unfenced_clears = true;
        if index.set_valid(&self.space, &slot, false)? == 0 {
            self.emptied.push(EmptiedLeaf { index: *index, key: key.to_vec() });
        }
        Ok(())
    }

    /// Lets the indexes lead to `new` in place of `old`.
    fn exchange(&mut self, table: TableNo, keys: &[&[u8]], old: Pointer, row: &[u8]) -> StoreResult<()> {
        let head = TupleHead::read(&self.space, old)?;
        let mut old_keys: [Vec<u8>; INDEXES_MAX] = Default::default();
        let mut is_new = [false; INDEXES_MAX];
        for (number, key) in keys.iter().enumerate() {
            let (Some(old_key), Some(is_new)) = (old_keys.get_mut(number), is_new.get_mut(number)) else {
                break;
            };
            head.key(&self.space, old, number, old_key)?;
            *is_new = old_key != key;
            if *is_new && self.tables.index(table, number)?.find(&self.space, &SearchKey::of(key))?.is_some()
            {
                return Err(StoreError::Duplicate { index: number });
            }
        }
        let prepared = self.prepare_tuple(table, keys, row)?;
        let PreparedTuple { tuple, checksum } = prepared;
        let undo = UndoEntry { kind: Kind::Replace, table: table.0, tuple, old, checksum };
        let slots = self.prepare_entries(table, keys, &is_new, undo).inspect_err(|_| self.give_up(tuple))?;
        for (number, old_key) in old_keys.iter().enumerate().take(keys.len()) {
            let index = *self.tables.index(table, number)?;
            match slots.get(number).copied().flatten() {
                Some(slot) => {
                    index.set_valid(&self.space, &slot, true)?;
                    self.remove_entry(&index, old_key, old)?;
                }
                None => {
                    let slot = index.find_tuple(&self.space, &SearchKey::of(old_key), old)?;
                    let damaged =
                        StoreError::Damaged { what: "an index, which lacks the entry of a tuple", at: old };
                    index.exchange(&self.space, &slot.ok_or(damaged)?, tuple)?;
                }
            }
        }
        Ok(())
    }

    /// Gives up a tuple after an error. A failure of that is less than the error that is reported: the chunk
    /// is free after the next start.
    fn give_up(&self, tuple: Pointer) {
        let _reserved_until_start = self.space.give_up(tuple);
    }

    /// Frees leaves without entries. They are reachable, so a failure or a crash leaves nothing wrong.
    fn remove_emptied(&mut self) -> StoreResult<()> {
        while let Some(EmptiedLeaf { index, key }) = self.emptied.pop() {
            index.remove_if_empty(&self.space, &key)?;
        }
        Ok(())
    }
}

impl Store for NvmInplace {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        match self.log.len() {
            0 => self.tables.create(&self.space, owner, indexes),
            _ => Err(StoreError::InTransaction),
        }
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        match self.log.len() {
            0 => self.tables.drop_table(&self.space, table),
            _ => Err(StoreError::InTransaction),
        }
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.tables.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.check(table, keys, row)?;
        for (index, key) in self.tables.table(table)?.indexes.iter().zip(keys) {
            if index.find(&self.space, &SearchKey::of(key))?.is_some() {
                return Err(StoreError::Duplicate { index: index.number });
            }
        }
        let PreparedTuple { tuple, checksum } = self.prepare_tuple(table, keys, row)?;
        let undo = UndoEntry { kind: Kind::Insert, table: table.0, tuple, old: Pointer::NONE, checksum };
        let is_new = [true; INDEXES_MAX];
        let slots = self.prepare_entries(table, keys, &is_new, undo).inspect_err(|_| self.give_up(tuple))?;
        for (index, slot) in self.tables.table(table)?.indexes.iter().zip(slots.iter().flatten()) {
            index.set_valid(&self.space, slot, true)?;
        }
        Ok(())
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.check(table, keys, row)?;
        let old = match keys.first() {
            Some(key) => self.find(table, key)?,
            None => None,
        };
        let Some(old) = old else { return Ok(false) };
        self.exchange(table, keys, old, row)?;
        Ok(true)
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        let Some(tuple) = self.find(table, key)? else { return Ok(false) };
        let head = TupleHead::read(&self.space, tuple)?;
        if at.checked_add(bytes.len()).is_none_or(|end| end > head.row_bytes) {
            let (len_bytes, row_bytes) = (bytes.len(), head.row_bytes);
            return Err(StoreError::PatchRange { at, len_bytes, row_bytes });
        }
        let from = Pointer::from_u64(tuple.to_u64() + (head.head_bytes + at) as u64);
        for (number, part) in bytes.chunks(PATCH_BYTES_MAX).enumerate() {
            let to = Pointer::from_u64(from.to_u64() + (number * PATCH_BYTES_MAX) as u64);
            self.before.resize(part.len(), 0);
            self.space.read(to, 0, &mut self.before)?;
            let old = Pointer::NONE;
            let undo = UndoEntry { kind: Kind::Patch, table: table.0, tuple: to, old, checksum: 0 };
            self.log.append(&self.space, undo, &self.before)?;
        }
        self.fence();
        self.space.store_back(from, 0, bytes)?;
        Ok(true)
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let Some(tuple) = self.find(table, key)? else { return Ok(false) };
        let head = TupleHead::read(&self.space, tuple)?;
        let undo = UndoEntry { kind: Kind::Delete, table: table.0, tuple, old: Pointer::NONE, checksum: 0 };
        self.log.append(&self.space, undo, &[])?;
        self.fence();
        let mut key = Vec::new();
        for number in 0..self.tables.table(table)?.indexes.len() {
            let index = *self.tables.index(table, number)?;
            head.key(&self.space, tuple, number, &mut key)?;
            self.remove_entry(&index, &key, tuple)?;
        }
        Ok(true)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        let found = self.tables.index(table, index)?.find(&self.space, &SearchKey::of(key))?;
        let Some(slot) = found else { return Ok(false) };
        TupleHead::read(&self.space, slot.tuple())?.row(&self.space, slot.tuple(), row)?;
        Ok(true)
    }

    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()> {
        let index = self.tables.index(table, index)?;
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let mut on_tuple = |tuple| -> StoreResult<ControlFlow<()>> {
            let head = TupleHead::read(&self.space, tuple)?;
            head.key(&self.space, tuple, index.number, &mut key)?;
            head.row(&self.space, tuple, &mut row)?;
            Ok(on_row(&key, &row))
        };
        IndexScan::new(&self.space, index, range, direction).run(&mut on_tuple)
    }

    fn savepoint(&self) -> Savepoint {
        Savepoint { transaction: self.log.transaction(), entries: self.log.len() }
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        if savepoint.transaction != self.log.transaction() || savepoint.entries > self.log.len() {
            return Err(StoreError::NoSavepoint);
        }
        self.fence();
        self.undo().roll_back_to(savepoint.entries)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if self.log.len() > 0 {
            self.fence();
            self.undo().finish_commit()?;
            self.remove_emptied()?;
        }
        Ok(Commit::Durable)
    }

    fn rollback(&mut self) -> StoreResult<()> {
        if self.log.len() > 0 {
            self.fence();
            self.undo().roll_back()?;
            self.remove_emptied()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> StoreResult<()> {
        Ok(())
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        let mut chunks = self.log.blocks().to_vec();
        self.tables.add_chunks(&self.space, &mut chunks)?;
        Ok(chunks)
    }
}
