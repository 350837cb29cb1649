//! The tables of one partition in copy-on-write trees: transactions, batches, and indexes. The engines `cow`
//! and `nvm_cow` are this store over two media.
//!
//! Invariants
//! 1. Nothing that the current directory leads to is changed.
//! 2. A change that is refused takes back the entries that it has made.
//! 3. A batch has whole transactions only.
//!
//! This module does not know where nodes and rows are, or how a batch becomes durable (`medium.rs`).

use std::ops::ControlFlow;

use super::medium::CowMedium;
use super::node::key_bytes_max;
use super::nodes::{RowPatch, StoredRow, TreeNo};
use super::trees::Trees;
use crate::delete_reserve::DeleteReserve;
use crate::pointer::{Owner, Pointer};
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, INDEXES_MAX, KEY_BYTES_MAX};

/// The tables of one partition: copy-on-write trees.
pub struct CowStore<M> {
    pub(crate) trees: Trees<M>,
    reserve: DeleteReserve,
    /// A commit ends the batch when the batch has this many transactions.
    batch_transactions: usize,
    /// The number of transactions of the batch that have changed something.
    pending: usize,
    /// The row value before a change.
    value: Vec<u8>,
    /// The row value of a new row.
    new_value: Vec<u8>,
    /// The secondary keys of a row before a change.
    old_keys: [Vec<u8>; INDEXES_MAX - 1],
}

fn index_of(table: TableNo, index: usize) -> TreeNo {
    TreeNo::Index { table, index }
}

/// Returns the error that an index lacks an entry to which another index leads.
pub(crate) fn lacks_entry() -> StoreError {
    StoreError::Damaged { what: "an index, which lacks an entry of a row", at: Pointer::NONE }
}

#[expect(private_bounds, reason = "only engines of this crate are media")]
impl<M: CowMedium> CowStore<M> {
    pub(crate) fn new(trees: Trees<M>, owner: Owner, batch_transactions: usize) -> StoreResult<CowStore<M>> {
        let (value, new_value, old_keys) = (Vec::new(), Vec::new(), Default::default());
        let mut reserve = DeleteReserve::new(owner);
        reserve.fill(trees.nodes.space())?;
        Ok(CowStore { trees, reserve, batch_transactions, pending: 0, value, new_value, old_keys })
    }

    fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let most_bytes = key_bytes_max(self.trees.nodes.node_bytes());
        if let Some(key) = keys.iter().find(|key| key.len() > most_bytes) {
            return Err(StoreError::KeyLength { len_bytes: key.len(), most_bytes });
        }
        tuple::check(self.trees.roots.index_count(table)?, keys, row)
    }

    fn check_no_transaction(&self) -> StoreResult<()> {
        if self.trees.has_changes() { Err(StoreError::InTransaction) } else { Ok(()) }
    }

    /// Runs a change of several entries, and takes back what it has done if it is refused.
    fn all_or_nothing(&mut self, change: impl FnOnce(&mut Trees<M>) -> StoreResult<()>) -> StoreResult<()> {
        let before = self.trees.savepoint();
        change(&mut self.trees).or_else(|error| self.trees.rollback_to(before).and(Err(error)))
    }

    /// Calls `run` with the row value of a primary key. Returns `false` if there is no such row.
    fn with_row(
        &mut self,
        table: TableNo,
        key: &[u8],
        run: impl FnOnce(&mut CowStore<M>, StoredRow<'_>) -> StoreResult<()>,
    ) -> StoreResult<bool> {
        let mut value = std::mem::take(&mut self.value);
        let is_there = self.trees.find(index_of(table, 0), key, &mut value)?;
        let done = if is_there { run(self, StoredRow { table, key, value: &value }) } else { Ok(()) };
        self.value = value;
        done.map(|()| is_there)
    }

    /// Copies the secondary keys of a row into `old_keys`, and returns their number.
    fn load_old_keys(&mut self, row: StoredRow<'_>) -> StoreResult<usize> {
        let count = self.trees.roots.index_count(row.table)? - 1;
        let keys = self.old_keys.get_mut(..count).unwrap_or_default();
        M::secondary_keys(&self.trees, row, keys)?;
        Ok(count)
    }

    /// Refuses a key that another row has.
    fn check_duplicate(&mut self, table: TableNo, index: usize, key: &[u8]) -> StoreResult<()> {
        match self.trees.find(index_of(table, index), key, &mut self.new_value)? {
            true => Err(StoreError::Duplicate { index }),
            false => Ok(()),
        }
    }

    /// Copies the row value of a primary key to which a secondary index leads.
    fn find_primary(&self, table: TableNo, key: &[u8], value: &mut Vec<u8>) -> StoreResult<()> {
        let is_there = self.trees.find(index_of(table, 0), key, value)?;
        is_there.then_some(()).ok_or_else(lacks_entry)
    }

    /// Replaces the row `old` by a new row with the same primary key.
    fn exchange(&mut self, old: StoredRow<'_>, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let StoredRow { table, key, .. } = old;
        self.load_old_keys(old)?;
        let old_keys = std::mem::take(&mut self.old_keys);
        let changed =
            || (1..).zip(keys.iter().skip(1).zip(&old_keys)).filter(|(_, (new, old))| **new != **old);
        let is_free = changed().try_for_each(|(index, (new, _))| self.check_duplicate(table, index, new));
        let mut value = std::mem::take(&mut self.new_value);
        let done = is_free.and_then(|()| {
            self.all_or_nothing(|trees| {
                M::take_out_row(trees, old)?;
                M::new_row(trees, table, keys, row, &mut value)?;
                let set = trees.set(index_of(table, 0), key, &value);
                set.map(drop).or_else(|error| M::give_up_row(trees, table, &value).and(Err(error)))?;
                changed().try_for_each(|(index, (new, old))| {
                    trees.remove(index_of(table, index), old)?;
                    trees.insert(index_of(table, index), new, key)
                })
            })
        });
        (self.old_keys, self.new_value) = (old_keys, value);
        done
    }

    /// Removes a row and its entries. In a full region the end of the batch or the reserve gives room.
    fn remove_with_room(&mut self, row: StoredRow<'_>) -> StoreResult<()> {
        match self.remove(row) {
            Err(error) if error.is_full() && self.make_room()? => self.remove_with_room(row),
            removed => removed,
        }
    }

    /// Makes room for a delete in a full region. Returns whether a second try can succeed.
    fn make_room(&mut self) -> StoreResult<bool> {
        if self.pending > 0 && !self.trees.has_changes() {
            self.end_batch()?;
            return Ok(true);
        }
        self.reserve.give_up(self.trees.nodes.space())
    }

    /// Removes a row and its entries.
    fn remove(&mut self, row: StoredRow<'_>) -> StoreResult<()> {
        let count = self.load_old_keys(row)?;
        self.trees.nodes.reserve_retirement()?;
        let old_keys = std::mem::take(&mut self.old_keys);
        let done = self.all_or_nothing(|trees| {
            M::take_out_row(trees, row)?;
            let secondary = (1..).zip(old_keys.iter().take(count).map(Vec::as_slice));
            [(0, row.key)].into_iter().chain(secondary).try_for_each(|(index, key)| {
                let was_there = trees.remove(index_of(row.table, index), key)?;
                was_there.then_some(()).ok_or_else(lacks_entry)
            })
        });
        self.old_keys = old_keys;
        done
    }

    /// Ends the batch, and so makes its transactions durable.
    fn end_batch(&mut self) -> StoreResult<()> {
        self.trees.check_whole()?;
        self.trees.or_broken(|trees| trees.nodes.end_batch(&mut trees.roots))?;
        self.ended();
        Ok(())
    }

    /// Does the work after a batch became durable. An error in this work is no error of the batch. It stops
    /// the store, and the next change reports this.
    fn ended(&mut self) {
        self.pending = 0;
        let _stopped = self.trees.or_broken(M::shrink);
    }
}

impl<M: CowMedium + Send + Sync> Store for CowStore<M> {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        self.check_no_transaction()?;
        let is_taken = self.trees.nodes.is_taken(owner)?;
        let table = self.trees.roots.add(owner, indexes, is_taken)?;
        let reserved = self.trees.nodes.reserve_lines(usize::from(table.0) + 1);
        reserved.inspect_err(|_| self.trees.roots.remove(table))?;
        self.end_batch()?;
        Ok(table)
    }

    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        self.check_no_transaction()?;
        self.trees.check_whole()?;
        self.trees.roots.owner_of(table)?;
        self.trees.or_broken(|trees| M::drop_table(trees, table))?;
        self.ended();
        Ok(())
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.trees.roots.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.check(table, keys, row)?;
        (0..).zip(keys).try_for_each(|(index, key)| self.check_duplicate(table, index, key))?;
        let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
        let mut value = std::mem::take(&mut self.new_value);
        let done = self.all_or_nothing(|trees| {
            M::new_row(trees, table, keys, row, &mut value)?;
            let inserted = trees.insert(index_of(table, 0), primary, &value);
            inserted.or_else(|error| M::give_up_row(trees, table, &value).and(Err(error)))?;
            let mut secondary = (1..).zip(secondary);
            secondary.try_for_each(|(index, key)| trees.insert(index_of(table, index), key, primary))
        });
        self.new_value = value;
        done
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.check(table, keys, row)?;
        let Some(primary) = keys.first() else { return Ok(false) };
        self.with_row(table, primary, |store, old| store.exchange(old, keys, row))
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        self.with_row(table, key, |store, row| {
            store.all_or_nothing(|trees| M::patch_row(trees, row, RowPatch { at, bytes }))
        })
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        self.with_row(table, key, CowStore::remove_with_room)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        if !self.trees.find(index_of(table, index), key, row)? {
            return Ok(false);
        }
        if index > 0 {
            let mut primary = [0; KEY_BYTES_MAX];
            let primary = primary.get_mut(..row.len()).ok_or_else(lacks_entry)?;
            primary.copy_from_slice(row);
            self.find_primary(table, primary, row)?;
        }
        M::load_row(&self.trees, table, row)?;
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
        let (mut primary, mut row) = (Vec::new(), Vec::new());
        let mut on_entry = |key: &[u8], value: &[u8]| -> StoreResult<ControlFlow<()>> {
            let value = match index {
                0 => value,
                _ => {
                    self.find_primary(table, value, &mut primary)?;
                    &primary
                }
            };
            Ok(on_row(key, M::row_of(&self.trees, table, value, &mut row)?))
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
        let has_changes = self.trees.has_changes();
        self.trees.commit()?;
        if has_changes {
            self.pending += 1;
            if self.pending >= self.batch_transactions || self.trees.nodes.is_crowded() {
                self.end_batch()?;
            }
        }
        self.reserve.fill(self.trees.nodes.space())?;
        Ok(if self.pending > 0 { Commit::Pending } else { Commit::Durable })
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.trees.rollback()
    }

    fn sync(&mut self) -> StoreResult<()> {
        if self.pending == 0 {
            return Ok(());
        }
        self.check_no_transaction()?;
        self.end_batch()
    }

    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        M::chunks(&self.trees)
    }
}
