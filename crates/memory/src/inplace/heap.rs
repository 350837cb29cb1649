//! The tuples and indexes of the tables. A crash forgets them.
//!
//! Invariants
//! 1. A change that is refused has changed nothing that a reader sees.
//! 2. To undo a change, no new room in the region is needed: no node is freed before the transaction ends.
//!
//! This module does not know transactions or the log.

use std::sync::Arc;

use super::tree::Tree;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{StoreTable, TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, INDEXES_MAX, TupleHead};

/// A table: its indexes, the primary one first.
pub(super) struct Table {
    pub(super) owner: Owner,
    pub(super) indexes: Vec<Tree>,
}

/// A leaf that may be empty. It is found by a key that was in it.
struct EmptiedLeaf {
    table: TableNo,
    index: usize,
    key: Vec<u8>,
}

/// The tables.
pub(super) struct Heap {
    pub(super) space: Space,
    /// The tables by their numbers; `None` if no table has the number.
    tables: Vec<Option<Table>>,
    emptied: Vec<EmptiedLeaf>,
    /// The head of the tuple that is being made.
    head: Vec<u8>,
}

impl Heap {
    pub(super) fn new(allocator: Arc<Allocator>) -> Heap {
        Heap { space: Space::new(allocator), tables: Vec::new(), emptied: Vec::new(), head: Vec::new() }
    }

    /// Returns the tables in the order of their numbers.
    pub(super) fn tables(&self) -> impl Iterator<Item = (TableNo, &Table)> {
        (0..).zip(&self.tables).filter_map(|(number, table)| Some((TableNo(number), table.as_ref()?)))
    }

    /// Returns the same list without the indexes.
    pub(super) fn list(&self) -> Vec<StoreTable> {
        let tables = self.tables();
        tables
            .map(|(number, Table { owner, indexes })| StoreTable {
                number,
                owner: *owner,
                indexes: indexes.len(),
            })
            .collect()
    }

    pub(super) fn table(&self, table: TableNo) -> StoreResult<&Table> {
        let no_table = StoreError::NoIndex { table: table.0, index: 0 };
        self.tables.get(usize::from(table.0)).and_then(Option::as_ref).ok_or(no_table)
    }

    pub(super) fn index(&self, table: TableNo, index: usize) -> StoreResult<&Tree> {
        let no_index = StoreError::NoIndex { table: table.0, index };
        self.table(table)?.indexes.get(index).ok_or(no_index)
    }

    fn index_mut(&mut self, table: TableNo, index: usize) -> StoreResult<IndexMut<'_>> {
        let no_index = StoreError::NoIndex { table: table.0, index };
        let tree = self.tables.get_mut(usize::from(table.0)).and_then(Option::as_mut);
        let tree = tree.and_then(|table| table.indexes.get_mut(index));
        Ok(IndexMut { space: &self.space, tree: tree.ok_or(no_index)? })
    }

    /// Returns the tuple with a primary key.
    pub(super) fn find(&self, table: TableNo, key: &[u8]) -> StoreResult<Option<Pointer>> {
        self.index(table, 0)?.find(&self.space, key)
    }

    /// Returns the number that a new table gets.
    ///
    /// Errors: there are too many tables or indexes, or the owner has chunks already.
    pub(super) fn next_table(&self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        let number = self.tables.iter().position(Option::is_none).unwrap_or(self.tables.len());
        if number >= TABLES_MAX || !(1..=INDEXES_MAX).contains(&indexes) {
            return Err(StoreError::TooMany { tables: TABLES_MAX, indexes: INDEXES_MAX });
        }
        match self.space.allocator().used_bytes(owner)? {
            0 => Ok(TableNo(number as u16)),
            _ => Err(StoreError::OwnerTaken { owner: owner.number() }),
        }
    }

    /// Adds an empty table with this number.
    pub(super) fn add_table(&mut self, table: TableNo, owner: Owner, indexes: usize) -> StoreResult<()> {
        let mut trees = Vec::with_capacity(indexes);
        for index in 0..indexes {
            let tree = Tree::create(&self.space, owner, index);
            let tree = tree.inspect_err(|_| trees.iter().for_each(|tree: &Tree| tree.give_up(&self.space)));
            trees.push(tree?);
        }
        let number = usize::from(table.0);
        if number >= self.tables.len() {
            self.tables.resize_with(number + 1, || None);
        }
        if let Some(free) = self.tables.get_mut(number) {
            *free = Some(Table { owner, indexes: trees });
        }
        Ok(())
    }

    /// Removes a table and frees all its chunks.
    pub(super) fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        let owner = self.table(table)?.owner;
        if let Some(found) = self.tables.get_mut(usize::from(table.0)) {
            *found = None;
        }
        Ok(self.space.allocator().free_owner(owner)?)
    }

    pub(super) fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        tuple::check(self.table(table)?.indexes.len(), keys, row)
    }

    /// Refuses keys that a tuple other than `old` has.
    fn check_duplicates(&self, table: TableNo, keys: &[&[u8]], old: Pointer) -> StoreResult<()> {
        for (index, key) in keys.iter().enumerate() {
            let found = self.index(table, index)?.find(&self.space, key)?;
            if found.is_some_and(|found| found != old) {
                return Err(StoreError::Duplicate { index });
            }
        }
        Ok(())
    }

    /// Stores a tuple that is in no index yet. Errors: the region is full.
    pub(super) fn new_tuple(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<Pointer> {
        tuple::encode_head(keys, row.len(), &mut self.head);
        let owner = self.table(table)?.owner;
        let tuple = self.space.allocator().allocate(owner, (self.head.len() + row.len()) as u64)?;
        self.space.store(tuple, 0, &self.head)?;
        self.space.store(tuple, self.head.len() as u64, row)?;
        Ok(tuple)
    }

    /// Adds entries for those keys of a tuple for whose index `is_new` is true: all these entries or none.
    fn add_entries(
        &mut self,
        table: TableNo,
        keys: &[&[u8]],
        is_new: impl Fn(usize) -> bool,
        tuple: Pointer,
    ) -> StoreResult<()> {
        let new = || keys.iter().enumerate().filter(|(index, _)| is_new(*index));
        for (index, key) in new() {
            if let Err(error) = self.add_entry(table, index, key, tuple) {
                for (before, key) in new().take_while(|(before, _)| *before < index) {
                    self.remove_entry(table, before, key, tuple)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds an entry of a tuple to an index that does not have the key. Errors: the region is full.
    pub(super) fn add_entry(
        &mut self,
        table: TableNo,
        index: usize,
        key: &[u8],
        tuple: Pointer,
    ) -> StoreResult<()> {
        let IndexMut { space, tree } = self.index_mut(table, index)?;
        tree.insert(space, key, tuple)
    }

    fn remove_entry(&mut self, table: TableNo, index: usize, key: &[u8], tuple: Pointer) -> StoreResult<()> {
        if self.index(table, index)?.remove(&self.space, key, tuple)? {
            self.emptied.push(EmptiedLeaf { table, index, key: key.to_vec() });
        }
        Ok(())
    }

    /// Adds a row. Errors: an index has one of the keys already, or the region is full.
    pub(super) fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<Pointer> {
        self.check_duplicates(table, keys, Pointer::NONE)?;
        let tuple = self.new_tuple(table, keys, row)?;
        match self.add_entries(table, keys, |_| true, tuple) {
            Ok(()) => Ok(tuple),
            Err(error) => {
                self.space.give_up_after_error(tuple);
                Err(error)
            }
        }
    }

    /// Replaces the tuple `old` by a new one in all indexes. `old` stays allocated. Errors: the same as of
    /// [`Heap::insert`].
    pub(super) fn replace(
        &mut self,
        table: TableNo,
        keys: &[&[u8]],
        row: &[u8],
        old: Pointer,
    ) -> StoreResult<Pointer> {
        self.check_duplicates(table, keys, old)?;
        let tuple = self.new_tuple(table, keys, row)?;
        match self.exchange(table, old, tuple) {
            Ok(()) => Ok(tuple),
            Err(error) => {
                self.space.give_up_after_error(tuple);
                Err(error)
            }
        }
    }

    /// Changes the indexes, so that they lead to `new` instead of `old`.
    fn exchange(&mut self, table: TableNo, old: Pointer, new: Pointer) -> StoreResult<()> {
        let (old_keys, new_keys) = (self.keys(table, old)?, self.keys(table, new)?);
        let slices: Vec<&[u8]> = new_keys.iter().map(Vec::as_slice).collect();
        let is_same = |index: usize| old_keys.get(index) == new_keys.get(index);
        self.add_entries(table, &slices, |index| !is_same(index), new)?;
        for (index, key) in old_keys.iter().enumerate() {
            match is_same(index) {
                true => self.index(table, index)?.exchange(&self.space, key, old, new)?,
                false => self.remove_entry(table, index, key, old)?,
            }
        }
        Ok(())
    }

    /// Takes an exchange back. The entries of `new` are removed first, so that the nodes have room for the
    /// entries of `old`.
    pub(super) fn undo_exchange(&mut self, table: TableNo, old: Pointer, new: Pointer) -> StoreResult<()> {
        let (old_keys, new_keys) = (self.keys(table, old)?, self.keys(table, new)?);
        for (index, (old_key, new_key)) in old_keys.iter().zip(&new_keys).enumerate() {
            if old_key == new_key {
                self.index(table, index)?.exchange(&self.space, new_key, new, old)?;
                continue;
            }
            self.remove_entry(table, index, new_key, new)?;
            self.add_entry(table, index, old_key, old)?;
        }
        Ok(())
    }

    /// Returns the keys of a tuple.
    pub(super) fn keys(&self, table: TableNo, tuple: Pointer) -> StoreResult<Vec<Vec<u8>>> {
        let head = TupleHead::read(&self.space, tuple)?;
        let key = |index| {
            let mut key = Vec::new();
            head.key(&self.space, tuple, index, &mut key)?;
            Ok(key)
        };
        (0..self.table(table)?.indexes.len()).map(key).collect()
    }

    /// Copies the row of a tuple into a buffer.
    pub(super) fn row(&self, tuple: Pointer, row: &mut Vec<u8>) -> StoreResult<()> {
        TupleHead::read(&self.space, tuple)?.row(&self.space, tuple, row)
    }

    /// Changes bytes of a row.
    pub(super) fn patch(&self, tuple: Pointer, at: usize, bytes: &[u8]) -> StoreResult<()> {
        let head = TupleHead::read(&self.space, tuple)?;
        self.space.store(tuple, (head.head_bytes + at) as u64, bytes)
    }

    /// Takes a tuple out of all indexes. The tuple stays allocated.
    pub(super) fn remove(&mut self, table: TableNo, tuple: Pointer) -> StoreResult<()> {
        for (index, key) in self.keys(table, tuple)?.iter().enumerate() {
            self.remove_entry(table, index, key, tuple)?;
        }
        Ok(())
    }

    /// Puts a tuple back into all indexes.
    pub(super) fn put_back(&mut self, table: TableNo, tuple: Pointer) -> StoreResult<()> {
        let keys = self.keys(table, tuple)?;
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.add_entries(table, &slices, |_| true, tuple)
    }

    /// Frees a tuple that no index leads to.
    pub(super) fn free(&self, tuple: Pointer) -> StoreResult<()> {
        Ok(self.space.give_up(tuple)?)
    }

    /// Frees leaves without entries, after the end of a transaction.
    pub(super) fn remove_emptied(&mut self) -> StoreResult<()> {
        while let Some(EmptiedLeaf { table, index, key }) = self.emptied.pop() {
            let IndexMut { space, tree } = self.index_mut(table, index)?;
            tree.remove_if_empty(space, &key)?;
        }
        Ok(())
    }
}

/// An index that is changed, and the space that has its nodes.
struct IndexMut<'h> {
    space: &'h Space,
    tree: &'h mut Tree,
}
