//! The store of the engine: the changes of a transaction, and reads.
//!
//! Invariants
//! 1. An undo entry is durable before its change becomes visible. Before that, only bytes are stored that no
//!    reader reaches: a reserved tuple and invalid index entries.
//! 2. A call that fails before it has added its undo entry has only split nodes. A split changes nothing for
//!    readers.
//! 3. A slot of a node is filled again only after a fence has made its cleared bit durable. Slots that the
//!    transaction itself has cleared are withheld (`removed.rs`).
//! 4. When a transaction has ended durably, a later error does not undo it. Tuples that could not be freed
//!    are freed by the next call that changes something.
//!
//! This module does not know how changes are taken back (`recovery.rs`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::index::{LeafSlot, ReadTuple, SearchKey, WantedBytes};
use super::recovery::Undo;
use super::removed::RemovedEntries;
use super::scan::IndexScan;
use super::tables::{self, Tables};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, INDEXES_MAX, TupleHead};
use crate::undo_log::{Kind, PATCH_BYTES_MAX, Phase, UndoEntry, UndoLog};

/// The tables of one partition, updated in place in persistent memory.
pub struct NvmInplace {
    space: Space,
    tables: Tables,
    log: UndoLog,
    removed: RemovedEntries,
    /// A buffer for the head of the tuple that is being made.
    head: Vec<u8>,
    /// A buffer for the old bytes of a patch, or for a key.
    before: Vec<u8>,
    /// The index whose cache of lookups should grow, as a number that [`cache_number`] has made. It is 0 if
    /// no cache should grow.
    growing: AtomicU32,
}

/// Settings of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmInplaceSettings {
    /// The largest number of bytes of DRAM for the cache of lookups of an index. With 0, there is no cache.
    /// The cache grows with the number of rows that are used, by about 12 bytes for each.
    pub lookup_cache_bytes_max: u64,
}

impl NvmInplaceSettings {
    /// The settings of the paper: all lookups search the tree in persistent memory.
    pub const WITHOUT_CACHE: NvmInplaceSettings = NvmInplaceSettings { lookup_cache_bytes_max: 0 };
    /// A cache with room for about 6,000,000 rows of an index.
    pub const WITH_CACHE: NvmInplaceSettings = NvmInplaceSettings { lookup_cache_bytes_max: 64 << 20 };
}

/// Returns a number for an index of a table. It is never 0.
fn cache_number(table: TableNo, index: usize) -> u32 {
    (u32::from(table.0) << 8 | index as u32 & 0xFF) + 1
}

/// A tuple that is stored, but not reachable.
struct PreparedTuple {
    tuple: Pointer,
    checksum: u32,
}

impl NvmInplace {
    /// Opens the store with this name, or makes an empty store if there is none. A transaction that was open
    /// is rolled back, in a time that depends only on its length. The chunks of the log belong to `owner`.
    /// There is no cache of lookups.
    pub fn open(allocator: Arc<Allocator>, name: &str, owner: Owner) -> StoreResult<NvmInplace> {
        NvmInplace::open_with(allocator, name, owner, NvmInplaceSettings::WITHOUT_CACHE)
    }

    /// Does the same as [`NvmInplace::open`], with settings.
    pub fn open_with(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: NvmInplaceSettings,
    ) -> StoreResult<NvmInplace> {
        let space = Space::new(allocator);
        let first_page = tables::find_or_create(&space, name, owner)?;
        let tables = Tables::read(&space, first_page, owner, settings.lookup_cache_bytes_max)?;
        let mut log = UndoLog::read(&space, owner, tables::log_of(&space, first_page)?)?;
        Undo { space: &space, tables: &tables, log: &mut log, removed: None }.recover()?;
        let (removed, head, before) = (RemovedEntries::default(), Vec::new(), Vec::new());
        Ok(NvmInplace { space, tables, log, removed, head, before, growing: AtomicU32::new(0) })
    }

    fn undo(&mut self) -> Undo<'_> {
        let removed = Some(&mut self.removed);
        Undo { space: &self.space, tables: &self.tables, log: &mut self.log, removed }
    }

    /// If an error interrupted the freeing of the tuples of a transaction that has ended durably, frees the
    /// rest of them.
    #[inline]
    fn finish_ended(&mut self) -> StoreResult<()> {
        match self.log.phase() {
            Phase::Open => Ok(()),
            Phase::Committed | Phase::Undone => self.undo().recover(),
        }
    }

    /// Takes the result of a commit or a rollback. If an error came after the durable end of the transaction,
    /// the error is dropped, because the transaction has ended.
    fn ended(&mut self, result: StoreResult<()>) -> StoreResult<()> {
        if self.log.phase() == Phase::Open {
            result?;
        }
        // An empty leaf that cannot be freed stays, and is used again.
        let (space, tables) = (&self.space, &self.tables);
        self.removed.end(|table, index, key| {
            let _stays = tables.index(table, index).and_then(|index| index.remove_if_empty(space, key));
        });
        Ok(())
    }

    /// Returns the tuple of a key in an index.
    fn find(
        &self,
        table: TableNo,
        number: usize,
        key: &[u8],
        wanted: WantedBytes,
    ) -> StoreResult<Option<ReadTuple>> {
        let index = self.tables.index(table, number)?;
        let found = index.lookup(&self.space, key, wanted)?;
        if index.cache.wants_growth() {
            self.growing.store(cache_number(table, number), Relaxed);
        }
        Ok(found)
    }

    /// Makes a cache of lookups larger, if one should grow.
    fn grow_cache(&mut self) {
        if let Some(number) = std::mem::take(self.growing.get_mut()).checked_sub(1) {
            self.tables.grow_cache(TableNo((number >> 8) as u16), (number & 0xFF) as usize);
        }
    }

    fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        tuple::check(self.tables.table(table)?.indexes.len(), keys, row)
    }

    /// Stores a tuple in a reserved chunk. A later fence of the caller makes it durable.
    fn prepare_tuple(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<PreparedTuple> {
        tuple::encode_head(keys, row.len(), &mut self.head);
        let owner = self.tables.table(table)?.owner;
        let len_bytes = self.head.len() + row.len();
        let tuple = self.space.allocator().allocate(owner, len_bytes as u64)?;
        // Both parts are written back together, because the end of the head and the beginning of the row can
        // share a line.
        self.space.store(tuple, 0, &self.head)?;
        self.space.store(tuple, self.head.len() as u64, row)?;
        self.space.write_back(tuple, len_bytes as u64)?;
        Ok(PreparedTuple { tuple, checksum: crc32c::crc32c(&self.head) })
    }

    /// Stores entries for those keys for which `is_new` is true, and the undo entry, all before the first
    /// fence.
    fn prepare_entries(
        &mut self,
        table: TableNo,
        keys: &[&[u8]],
        is_new: &[bool],
        undo: UndoEntry,
    ) -> StoreResult<[Option<LeafSlot>; INDEXES_MAX]> {
        let mut slots = [None; INDEXES_MAX];
        let indexes = &self.tables.table(table)?.indexes;
        for ((index, key), slot) in indexes.iter().zip(keys).zip(&mut slots) {
            if is_new.get(index.number).is_some_and(|is_new| *is_new) {
                let key = SearchKey::of(key);
                *slot = Some(index.prepare(&self.space, &key, undo.tuple, &mut self.removed)?);
            }
        }
        self.log.append(&self.space, undo, &[])?;
        self.space.fence();
        self.space.allocator().activate_unfenced(undo.tuple)?;
        Ok(slots)
    }

    /// Makes the entry of a tuple in an index invalid.
    fn remove_entry(&mut self, table: TableNo, number: usize, tuple: Pointer) -> StoreResult<()> {
        let index = self.tables.index(table, number)?;
        TupleHead::read(&self.space, tuple)?.key(&self.space, tuple, number, &mut self.before)?;
        if index.remove(&self.space, &self.before, tuple, &mut self.removed)? {
            self.removed.add_emptied(table, number, &self.before);
        }
        Ok(())
    }

    /// Makes a new tuple, and changes the indexes, so that they lead to it instead of `old`.
    fn exchange(&mut self, table: TableNo, keys: &[&[u8]], old: Pointer, row: &[u8]) -> StoreResult<()> {
        let mut is_new = [false; INDEXES_MAX];
        for ((number, key), is_new) in keys.iter().enumerate().zip(&mut is_new) {
            *is_new = tuple::compare(&self.space, old, number, key)?.is_ne();
            let index = self.tables.index(table, number)?;
            if *is_new && index.find(&self.space, &SearchKey::of(key))?.is_some() {
                return Err(StoreError::Duplicate { index: number });
            }
        }
        let PreparedTuple { tuple, checksum } = self.prepare_tuple(table, keys, row)?;
        let undo = UndoEntry { kind: Kind::Replace, table: table.0, tuple, old, checksum };
        let slots = self.prepare_entries(table, keys, &is_new, undo);
        let slots = slots.inspect_err(|_| self.space.give_up_after_error(tuple))?;
        for ((number, key), slot) in keys.iter().enumerate().zip(&slots) {
            let index = self.tables.index(table, number)?;
            match slot {
                Some(slot) => {
                    index.set_valid(&self.space, slot, true)?;
                    self.remove_entry(table, number, old)?;
                }
                None => index.exchange_tuple(&self.space, key, old, tuple)?,
            }
        }
        Ok(())
    }
}

impl Store for NvmInplace {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        self.finish_ended()?;
        match self.log.len() {
            0 => self.tables.create(&self.space, owner, indexes),
            _ => Err(StoreError::InTransaction),
        }
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        self.finish_ended()?;
        match self.log.len() {
            0 => self.tables.drop_table(&self.space, table),
            _ => Err(StoreError::InTransaction),
        }
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.tables.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.finish_ended()?;
        self.check(table, keys, row)?;
        for (index, key) in self.tables.table(table)?.indexes.iter().zip(keys) {
            if index.find(&self.space, &SearchKey::of(key))?.is_some() {
                return Err(StoreError::Duplicate { index: index.number });
            }
        }
        let PreparedTuple { tuple, checksum } = self.prepare_tuple(table, keys, row)?;
        let undo = UndoEntry { kind: Kind::Insert, table: table.0, tuple, old: Pointer::NONE, checksum };
        let is_new = [true; INDEXES_MAX];
        let slots = self.prepare_entries(table, keys, &is_new, undo);
        let slots = slots.inspect_err(|_| self.space.give_up_after_error(tuple))?;
        for (index, slot) in self.tables.table(table)?.indexes.iter().zip(slots.iter().flatten()) {
            index.set_valid(&self.space, slot, true)?;
        }
        for (index, key) in self.tables.table(table)?.indexes.iter().zip(keys) {
            index.note(key, tuple);
            if index.cache.wants_growth() {
                self.growing.store(cache_number(table, index.number), Relaxed);
            }
        }
        Ok(())
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.finish_ended()?;
        self.check(table, keys, row)?;
        let old = match keys.first() {
            Some(key) => self.find(table, 0, key, WantedBytes { from: 0, len: 0 })?,
            None => None,
        };
        let Some(ReadTuple { at: old, .. }) = old else { return Ok(false) };
        self.exchange(table, keys, old, row)?;
        Ok(true)
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        self.finish_ended()?;
        let wanted = WantedBytes { from: at, len: bytes.len() };
        let Some(ReadTuple { at: tuple, head }) = self.find(table, 0, key, wanted)? else {
            return Ok(false);
        };
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
        self.space.fence();
        self.space.store_back(from, 0, bytes)?;
        Ok(true)
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        self.finish_ended()?;
        let wanted = WantedBytes { from: 0, len: 0 };
        let Some(ReadTuple { at: tuple, .. }) = self.find(table, 0, key, wanted)? else { return Ok(false) };
        let undo = UndoEntry { kind: Kind::Delete, table: table.0, tuple, old: Pointer::NONE, checksum: 0 };
        self.log.append(&self.space, undo, &[])?;
        self.space.fence();
        for number in 0..self.tables.table(table)?.indexes.len() {
            self.remove_entry(table, number, tuple)?;
        }
        Ok(true)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        // The prefetch assumes that the row is as long as the last row in the buffer. Callers reuse the
        // buffer, and rows of a table often have the same length.
        let wanted = WantedBytes { from: 0, len: row.len() };
        let Some(tuple) = self.find(table, index, key, wanted)? else { return Ok(false) };
        tuple.head.row(&self.space, tuple.at, row)?;
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
        self.log.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.finish_ended()?;
        self.log.check_savepoint(savepoint)?;
        self.undo().roll_back_to(savepoint.changes)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        self.finish_ended()?;
        self.grow_cache();
        if self.log.len() == 0 {
            self.log.begin();
            return Ok(Commit::Durable);
        }
        self.space.fence();
        let result = self.undo().finish_commit();
        self.ended(result)?;
        Ok(Commit::Durable)
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.finish_ended()?;
        if self.log.len() == 0 {
            self.log.begin();
            return Ok(());
        }
        let result = self.undo().roll_back();
        self.ended(result)
    }

    fn sync(&mut self) -> StoreResult<()> {
        Ok(())
    }

    fn hand_over(&self) {
        self.space.fence();
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        let mut chunks = self.log.blocks().to_vec();
        self.tables.add_chunks(&self.space, &mut chunks)?;
        Ok(chunks)
    }
}
