//! Changes rows: insert, replace, delete.
//!
//! Invariants
//! 1. A call that fails has changed nothing.

use std::sync::atomic::Ordering;

use varve_memory::{Store, StoreError, TableNo};

use super::MemoryStore;
use super::keys::{ROW_ID_BYTES, RowKeys, push_row_id};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, KeyPartValue, Result};
use crate::paged::violation;
use crate::partitions::StoredTable;
use crate::row::{RowRef, encode_into};
use crate::row_access::{Change, Outcome};
use crate::types::Datum;

impl MemoryStore {
    pub(super) fn insert_row(&self, cx: &mut Context, row: &[Datum<'_>]) -> Result<()> {
        let mut bytes = std::mem::take(&mut cx.buffers.row);
        let encoded = encode_into(&self.schema, row, &mut bytes).map_err(Error::from);
        let outcome = encoded.and_then(|()| self.insert_encoded(cx, &mut bytes));
        cx.buffers.row = bytes;
        outcome
    }

    /// Inserts an encoded row. If the table has no primary key, a row id is appended to it first.
    fn insert_encoded(&self, cx: &mut Context, bytes: &mut Vec<u8>) -> Result<()> {
        let at = if self.is_spread() { self.table_of_row(self.row(bytes)?) } else { self.first };
        self.reach_to_change(cx, at)?;
        cx.begin_store_write(&self.def, at)?;
        if self.def.primary_key.is_none() {
            push_row_id(bytes, self.new_row_id(&cx.core, at)?);
        }
        self.insert_at(cx, at, bytes)
    }

    /// Calls `call` with a buffer for the keys of a row, which is kept for the next call.
    pub(super) fn with_keys(
        &self,
        cx: &mut Context,
        call: impl FnOnce(&Context, &mut RowKeys) -> Result<()>,
    ) -> Result<()> {
        let mut keys = RowKeys::in_buffer(std::mem::take(&mut cx.buffers.keys));
        let outcome = call(cx, &mut keys);
        cx.buffers.keys = keys.into_buffer();
        outcome
    }

    /// Inserts a row (with its row id, if it has one) into the store of its partition.
    pub(super) fn insert_at(&self, cx: &mut Context, at: StoredTable, stored: &[u8]) -> Result<()> {
        let (row, id) = self.split(stored)?;
        self.with_keys(cx, |cx, keys| {
            self.keys_of(row, id, keys)?;
            let inserted = cx.core.partitions.write(at.partition)?.insert(at.table, &keys.all(), stored);
            inserted.map_err(|error| self.refused(error, row))
        })
    }

    /// Returns a new row id that leads to the partition of `at`.
    pub(super) fn new_row_id(&self, core: &Core, at: StoredTable) -> Result<u64> {
        let count = self.table_count();
        if self.next_row_id.load(Ordering::Acquire) == 0 {
            let last = self.last_row_id(core)?;
            let next = last / count + 1;
            let _ = self.next_row_id.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
        }
        let number = self.tables().position(|table| table == at).unwrap_or(0);
        Ok(self.next_row_id.fetch_add(1, Ordering::AcqRel) * count + number as u64)
    }

    pub(super) fn modify_row(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        let mut stored = std::mem::take(&mut cx.buffers.row);
        let outcome = self.modify_stored(cx, key, &mut stored, decide);
        cx.buffers.row = stored;
        outcome
    }

    fn modify_stored(
        &self,
        cx: &mut Context,
        key: &[u8],
        stored: &mut Vec<u8>,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        let Some(at) = self.table_of_key(0, key, key.len()) else { return Ok(Outcome::Missing) };
        self.reach_to_change(cx, at)?;
        if !cx.core.partitions.read(at.partition)?.get(at.table, 0, key, stored)? {
            return Ok(Outcome::Missing);
        }
        let change = decide(self.split(stored)?.0)?;
        match change {
            Change::Skip => return Ok(Outcome::Skipped),
            // The transaction has locked the partition, and so all rows in it.
            Change::Lock(_) => return Ok(Outcome::Changed),
            Change::Delete => {
                cx.begin_store_write(&self.def, at)?;
                cx.core.partitions.write(at.partition)?.delete(at.table, key)?;
            }
            Change::Replace(image) => {
                let (_, id) = self.split(stored)?;
                let mut bytes = image.into_bytes();
                bytes.extend_from_slice(id);
                let new = self.split(&bytes)?.0;
                let to = self.table_of_row(new);
                cx.begin_store_write(&self.def, at)?;
                match to == at {
                    true => self.with_keys(cx, |cx, keys| {
                        let mut store = cx.core.partitions.write(at.partition)?;
                        self.replace(&mut **store, at.table, &Replaced { key, stored, new: &bytes }, keys)
                    })?,
                    false => self.move_row(cx, [at, to], key, bytes)?,
                }
            }
        }
        Ok(Outcome::Changed)
    }

    /// Moves a row whose new partition key leads to another partition.
    #[cold]
    fn move_row(
        &self,
        cx: &mut Context,
        [at, to]: [StoredTable; 2],
        key: &[u8],
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        self.reach_to_change(cx, to)?;
        cx.begin_store_write(&self.def, to)?;
        if self.def.primary_key.is_none() {
            bytes.truncate(bytes.len().saturating_sub(ROW_ID_BYTES));
            push_row_id(&mut bytes, self.new_row_id(&cx.core, to)?);
        }
        let mut old = cx.core.partitions.write(at.partition)?;
        let before = old.savepoint();
        old.delete(at.table, key)?;
        drop(old);
        self.insert_at(cx, to, &bytes).map_err(|error| {
            let restored = cx.core.partitions.write(at.partition).map(|mut old| old.rollback_to(before));
            restored
                .map_or_else(Err::<(), _>, |restored| restored.map_err(Error::from))
                .err()
                .unwrap_or(error)
        })
    }

    /// Replaces the stored row by a new one.
    fn replace(
        &self,
        store: &mut dyn Store,
        table: TableNo,
        row: &Replaced<'_>,
        keys: &mut RowKeys,
    ) -> Result<()> {
        let Replaced { key, stored, new: bytes } = *row;
        let (old, _) = self.split(stored)?;
        let (new, id) = self.split(bytes)?;
        if bytes.len() == stored.len() && self.has_same_keys(old, new) {
            return patch(store, table, row);
        }
        self.keys_of(new, id, keys)?;
        if keys.key(0) == key {
            let replaced = store.replace(table, &keys.all(), bytes);
            return replaced.map(|_| ()).map_err(|error| self.refused(error, new));
        }
        let before = store.savepoint();
        store.delete(table, key)?;
        store.insert(table, &keys.all(), bytes).map_err(|error| match store.rollback_to(before) {
            Ok(()) => self.refused(error, new),
            Err(worse) => worse.into(),
        })
    }

    /// Converts an error of a store about a row. A duplicate key becomes 23505 with the values of the key.
    fn refused(&self, error: StoreError, row: RowRef<'_>) -> Error {
        let StoreError::Duplicate { index } = error else { return error.into() };
        let (name, columns) = match index.checked_sub(1).and_then(|at| self.def.indexes.get(at)) {
            Some(index) => (&*index.name, &*index.columns),
            None => (self.def.primary_key.as_ref().map_or("", |key| &key.name), self.def.key_columns()),
        };
        let part = |column: &usize| {
            let def = self.def.columns.get(*column)?;
            let (name, column_type) = (def.name.clone(), def.column_type);
            Some(KeyPartValue { name, column_type, value: row.get(*column).to_value() })
        };
        violation(name, columns.iter().filter_map(part).collect())
    }
}

/// A stored row with its key, and its new version. Both have the row id, if the table needs one.
#[derive(Clone, Copy)]
struct Replaced<'r> {
    key: &'r [u8],
    stored: &'r [u8],
    new: &'r [u8],
}

/// Changes only the bytes from the first to the last difference.
fn patch(store: &mut dyn Store, table: TableNo, row: &Replaced<'_>) -> Result<()> {
    let differs = |(old, new): (&u8, &u8)| old != new;
    let Some(first) = row.stored.iter().zip(row.new).position(differs) else { return Ok(()) };
    let last = row.stored.iter().zip(row.new).rposition(differs).unwrap_or(first);
    store.patch(table, row.key, first, row.new.get(first..=last).unwrap_or_default())?;
    Ok(())
}
