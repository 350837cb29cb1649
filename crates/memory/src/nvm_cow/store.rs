//! The changes of transactions, and reads.
//!
//! Invariants
//! 1. Nothing that the current directory leads to is changed or freed.
//! 2. A tuple is written back before its pointer is in a node; both are durable with the end of the batch.
//! 3. A refused change has given up its tuple, and the entries that it had made before.
//!
//! What it does not know: the format of nodes and directories.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::directory::Directory;
use super::nodes::{NvmNodes, tuple_of};
use super::recovery;
use super::space::{BatchChunks, Content};
use crate::cow_tree::{NodeId, TreeNo, Trees, key_bytes_max};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, INDEXES_MAX, KEY_BYTES_MAX, TupleHead};

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmCowSettings {
    /// A commit ends the batch when the batch has this many transactions.
    pub batch_transactions: usize,
    /// Bytes of a node, from 512 to 16384. It is for a new store only: a store keeps its size.
    pub node_bytes: usize,
}

impl Default for NvmCowSettings {
    fn default() -> NvmCowSettings {
        NvmCowSettings { batch_transactions: 64, node_bytes: 4096 }
    }
}

/// The tables of one partition: copy-on-write trees in persistent memory.
pub struct NvmCow {
    trees: Trees<NvmNodes>,
    directory: Directory,
    settings: NvmCowSettings,
    /// Transactions of the batch that have changed something.
    pending: usize,
    /// The head of the tuple that is being made.
    head: Vec<u8>,
    row: Vec<u8>,
    value: Vec<u8>,
}

fn index_of(table: TableNo, index: usize) -> TreeNo {
    TreeNo::Index { table, index }
}

impl NvmCow {
    /// Opens the store with this name; makes an empty one if there is none. Its directory and its list are
    /// counted for `owner`. Commits that were not durable are gone. The time depends on the length of the
    /// last batch.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: NvmCowSettings,
    ) -> StoreResult<NvmCow> {
        let space = Space::new(allocator);
        let directory = Directory::open(&space, name, owner, settings.node_bytes)?;
        let list = recovery::recover(&space, &directory, owner)?;
        let roots = directory.current()?;
        let nodes = NvmNodes { space, chunks: BatchChunks::new(list), node_bytes: directory.node_bytes };
        let mut store = NvmCow {
            trees: Trees::new(nodes, roots),
            directory,
            settings,
            pending: 0,
            head: Vec::new(),
            row: Vec::new(),
            value: Vec::new(),
        };
        store.end_drops()?;
        Ok(store)
    }

    fn space(&self) -> &Space {
        &self.trees.nodes.space
    }

    fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let most_bytes = key_bytes_max(self.directory.node_bytes);
        if let Some(key) = keys.iter().find(|key| key.len() > most_bytes) {
            return Err(StoreError::KeyLength { len_bytes: key.len(), most_bytes });
        }
        tuple::check(self.trees.roots.index_count(table)?, keys, row)
    }

    /// The tuple with a primary key.
    fn find(&mut self, table: TableNo, key: &[u8]) -> StoreResult<Option<Pointer>> {
        let is_there = self.trees.find(index_of(table, 0), key, &mut self.value)?;
        if is_there { tuple_of(&self.value).map(Some) } else { Ok(None) }
    }

    /// Stores a tuple in a new chunk, and begins to write it back.
    fn new_tuple(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<Pointer> {
        tuple::encode_head(keys, row.len(), &mut self.head);
        let (owner, len_bytes) = (self.trees.roots.owner_of(table)?, self.head.len() + row.len());
        let NvmNodes { space, chunks, .. } = &mut self.trees.nodes;
        let tuple = chunks.allocate(space, owner, Content::Tuple, len_bytes)?;
        // A line with the end of the head and the beginning of the row is written back once.
        space.store(tuple, 0, &self.head)?;
        space.store(tuple, self.head.len() as u64, row)?;
        space.write_back(tuple, len_bytes as u64)?;
        Ok(tuple)
    }

    /// Gives up a tuple that no index leads to, after an error.
    fn give_up(&mut self, table: TableNo, tuple: Pointer) -> StoreResult<()> {
        let owner = self.trees.roots.owner_of(table)?;
        let NvmNodes { space, chunks, .. } = &mut self.trees.nodes;
        chunks.retire(space, tuple, owner)
    }

    /// Lets the primary index lead to another tuple.
    fn set_tuple(&mut self, table: TableNo, key: &[u8], tuple: Pointer) -> StoreResult<()> {
        let set = self.trees.set(index_of(table, 0), key, &tuple.to_u64().to_le_bytes());
        set.map(drop).or_else(|error| self.give_up(table, tuple).and(Err(error)))
    }

    /// Copies the keys of a tuple.
    fn keys(&self, table: TableNo, tuple: Pointer) -> StoreResult<[Vec<u8>; INDEXES_MAX]> {
        let head = TupleHead::read(self.space(), tuple)?;
        let mut keys: [Vec<u8>; INDEXES_MAX] = Default::default();
        let count = self.trees.roots.index_count(table)?;
        for (index, key) in keys.iter_mut().enumerate().take(count) {
            head.key(self.space(), tuple, index, key)?;
        }
        Ok(keys)
    }

    /// Runs a change of several entries, and takes back what it has done if it is refused.
    fn all_or_nothing(&mut self, change: impl FnOnce(&mut NvmCow) -> StoreResult<()>) -> StoreResult<()> {
        let before = self.trees.savepoint();
        change(self).or_else(|error| self.trees.rollback_to(before).and(Err(error)))
    }

    /// Copies what the primary index has under a key that a secondary index leads to.
    fn find_primary(&self, table: TableNo, key: &[u8], value: &mut Vec<u8>) -> StoreResult<()> {
        let is_there = self.trees.find(index_of(table, 0), key, value)?;
        let damaged =
            StoreError::Damaged { what: "an index, whose primary key is not there", at: Pointer::NONE };
        is_there.then_some(()).ok_or(damaged)
    }

    /// Frees what dropped tables have, and then their numbers. The list of the last batch names none of it.
    fn end_drops(&mut self) -> StoreResult<()> {
        let dropped = self.trees.roots.dropped();
        for table in &dropped {
            self.space().allocator().free_owner(table.owner)?;
            self.trees.roots.remove(table.number);
        }
        if dropped.is_empty() { Ok(()) } else { self.end_batch() }
    }

    /// Ends the batch: its transactions are durable.
    fn end_batch(&mut self) -> StoreResult<()> {
        let Trees { nodes, roots, .. } = &mut self.trees;
        nodes.write_back()?;
        let NvmNodes { space, chunks, .. } = nodes;
        chunks.stage(space, self.directory.batch() + 1)?;
        self.directory.stage(space, roots)?;
        space.fence();
        chunks.activate(space)?;
        self.directory.flip(space)?;
        self.pending = 0;
        chunks.end(space)
    }
}

impl Store for NvmCow {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        if self.trees.has_changes() {
            return Err(StoreError::InTransaction);
        }
        let is_taken = self.space().allocator().used_bytes(owner)? > 0;
        let table = self.trees.roots.add(owner, indexes, is_taken)?;
        let reserved = self.directory.reserve(&self.trees.nodes.space, usize::from(table.0) + 1);
        if let Err(error) = reserved {
            self.trees.roots.remove(table);
            return Err(error);
        }
        self.end_batch()?;
        Ok(table)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        if self.trees.has_changes() {
            return Err(StoreError::InTransaction);
        }
        self.trees.roots.owner_of(table)?;
        // The list of this batch must not name chunks that are freed with the table.
        self.end_batch()?;
        self.trees.roots.mark_dropped(table)?;
        self.end_batch()?;
        self.end_drops()
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.trees.roots.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.check(table, keys, row)?;
        for (index, key) in keys.iter().enumerate() {
            if self.trees.find(index_of(table, index), key, &mut self.value)? {
                return Err(StoreError::Duplicate { index });
            }
        }
        self.all_or_nothing(|store| {
            let tuple = store.new_tuple(table, keys, row)?;
            let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
            let inserted = store.trees.insert(index_of(table, 0), primary, &tuple.to_u64().to_le_bytes());
            inserted.or_else(|error| store.give_up(table, tuple).and(Err(error)))?;
            let mut secondary = (1..).zip(secondary);
            secondary.try_for_each(|(index, key)| store.trees.insert(index_of(table, index), key, primary))
        })
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.check(table, keys, row)?;
        let Some(primary) = keys.first() else { return Ok(false) };
        let Some(old) = self.find(table, primary)? else { return Ok(false) };
        let old_keys = self.keys(table, old)?;
        let changed = || (0..).zip(keys).zip(&old_keys).filter(|((_, new), old)| **new != **old);
        for ((index, key), _) in changed() {
            if self.trees.find(index_of(table, index), key, &mut self.value)? {
                return Err(StoreError::Duplicate { index });
            }
        }
        self.all_or_nothing(|store| {
            let tuple = store.new_tuple(table, keys, row)?;
            store.set_tuple(table, primary, tuple)?;
            changed().try_for_each(|((index, new), old)| {
                store.trees.remove(index_of(table, index), old)?;
                store.trees.insert(index_of(table, index), new, primary)
            })
        })?;
        Ok(true)
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        let Some(old) = self.find(table, key)? else { return Ok(false) };
        let head = TupleHead::read(self.space(), old)?;
        let mut row = std::mem::take(&mut self.row);
        head.row(self.space(), old, &mut row)?;
        let (len_bytes, row_bytes) = (bytes.len(), row.len());
        let changed = at.checked_add(len_bytes).and_then(|end| row.get_mut(at..end));
        changed.ok_or(StoreError::PatchRange { at, len_bytes, row_bytes })?.copy_from_slice(bytes);
        let keys = self.keys(table, old)?;
        let slices: [&[u8]; INDEXES_MAX] =
            std::array::from_fn(|index| keys.get(index).map_or(&[][..], |key| key));
        let slices = slices.get(..self.trees.roots.index_count(table)?).unwrap_or_default();
        let tuple = self.new_tuple(table, slices, &row)?;
        self.row = row;
        self.set_tuple(table, key, tuple)?;
        Ok(true)
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let Some(tuple) = self.find(table, key)? else { return Ok(false) };
        let keys = self.keys(table, tuple)?;
        let count = self.trees.roots.index_count(table)?;
        let NvmNodes { space, chunks, .. } = &mut self.trees.nodes;
        chunks.promise_one(space)?;
        self.all_or_nothing(|store| {
            keys.iter().enumerate().take(count).try_for_each(|(index, key)| {
                let was_there = store.trees.remove(index_of(table, index), key)?;
                let damaged =
                    StoreError::Damaged { what: "an index, which lacks a key of a tuple", at: tuple };
                was_there.then_some(()).ok_or(damaged)
            })
        })?;
        Ok(true)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        if !self.trees.find(index_of(table, index), key, row)? {
            return Ok(false);
        }
        if index > 0 {
            let mut primary = [0; KEY_BYTES_MAX];
            let len = row.len();
            let damaged = StoreError::Damaged { what: "a key of an index", at: Pointer::NONE };
            let primary = primary.get_mut(..len).ok_or(damaged)?;
            primary.copy_from_slice(row);
            self.find_primary(table, primary, row)?;
        }
        let tuple = tuple_of(row)?;
        TupleHead::read(self.space(), tuple)?.row(self.space(), tuple, row)?;
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
        let (mut pointer, mut row) = (Vec::new(), Vec::new());
        let mut on_entry = |key: &[u8], value: &[u8]| -> StoreResult<ControlFlow<()>> {
            let tuple = match index {
                0 => tuple_of(value)?,
                _ => {
                    self.find_primary(table, value, &mut pointer)?;
                    tuple_of(&pointer)?
                }
            };
            TupleHead::read(self.space(), tuple)?.row(self.space(), tuple, &mut row)?;
            Ok(on_row(key, &row))
        };
        self.trees.scan(index_of(table, index), range, direction, &mut on_entry)
    }

    fn savepoint(&self) -> Savepoint {
        self.trees.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.trees.rollback_to(savepoint)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if self.trees.has_changes() {
            self.trees.commit()?;
            self.pending += 1;
            if self.pending >= self.settings.batch_transactions {
                self.end_batch()?;
            }
        }
        Ok(if self.pending > 0 { Commit::Pending } else { Commit::Durable })
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.trees.rollback()
    }

    fn sync(&mut self) -> StoreResult<()> {
        match self.pending {
            0 => Ok(()),
            _ if self.trees.has_changes() => Err(StoreError::InTransaction),
            _ => self.end_batch(),
        }
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        let mut chunks = self.directory.chunks().to_vec();
        chunks.extend_from_slice(self.trees.nodes.chunks.list_blocks());
        let roots = self.directory.current()?;
        for tree in roots.trees() {
            self.trees.each_node(&roots, tree, &mut |node: NodeId| {
                chunks.push(node.pointer());
                Ok(())
            })?;
        }
        for tree in roots.trees().filter(|tree| matches!(tree, TreeNo::Index { index: 0, .. })) {
            self.trees.each_entry(&roots, tree, &mut |_, value| {
                chunks.push(tuple_of(value)?);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(chunks)
    }
}
