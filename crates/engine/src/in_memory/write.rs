//! Changes rows: insert, replace, delete.
//!
//! Invariants
//! 1. A call that fails has changed nothing.

use std::sync::atomic::Ordering;

use varve_memory::{Store, StoreError};

use super::MemoryStore;
use super::keys::{RowKeys, push_row_id};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, KeyPartValue, Result};
use crate::paged::violation;
use crate::row::{RowImage, RowRef, encode_into};
use crate::row_access::{Change, Outcome};
use crate::types::Datum;

impl MemoryStore {
    pub(super) fn insert_row(&self, cx: &mut Context, row: &[Datum<'_>]) -> Result<()> {
        cx.begin_store_write(&self.def, self.at)?;
        let mut bytes = std::mem::take(&mut cx.buffers.row);
        let encoded = encode_into(&self.schema, row, &mut bytes).map_err(Error::from);
        let outcome = encoded.and_then(|()| self.insert_encoded(&cx.core, &mut bytes));
        cx.buffers.row = bytes;
        outcome
    }

    /// Inserts an encoded row; a row id is appended to it if the table needs one.
    pub(super) fn insert_encoded(&self, core: &Core, bytes: &mut Vec<u8>) -> Result<()> {
        if self.def.primary_key.is_none() {
            push_row_id(bytes, self.new_row_id(core)?);
        }
        let mut store = core.partitions.write(self.at.partition)?;
        self.insert_stored(&mut **store, bytes)
    }

    /// Inserts a row with what follows it.
    pub(super) fn insert_stored(&self, store: &mut dyn Store, stored: &[u8]) -> Result<()> {
        let (row, id) = self.split(stored)?;
        let mut keys = RowKeys::default();
        self.keys_of(row, id, &mut keys)?;
        store.insert(self.at.table, &keys.all(), stored).map_err(|error| self.refused(error, row))
    }

    pub(super) fn new_row_id(&self, core: &Core) -> Result<u64> {
        if self.next_row_id.load(Ordering::Acquire) == 0 {
            let last = self.last_row_id(core)?;
            let _ = self.next_row_id.compare_exchange(0, last + 1, Ordering::AcqRel, Ordering::Acquire);
        }
        Ok(self.next_row_id.fetch_add(1, Ordering::AcqRel))
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
        if !self.reading(&cx.core)?.get(self.at.table, 0, key, stored)? {
            return Ok(Outcome::Missing);
        }
        let change = decide(self.split(stored)?.0)?;
        match change {
            Change::Skip => return Ok(Outcome::Skipped),
            // The partition is locked already, and so are all of its rows.
            Change::Lock(_) => return Ok(Outcome::Changed),
            Change::Delete | Change::Replace(_) => {}
        }
        cx.begin_store_write(&self.def, self.at)?;
        let mut store = cx.core.partitions.write(self.at.partition)?;
        match change {
            Change::Replace(image) => self.replace(&mut **store, key, stored, image)?,
            _ => {
                store.delete(self.at.table, key)?;
            }
        }
        Ok(Outcome::Changed)
    }

    /// Puts a new row in the place of the stored one.
    fn replace(&self, store: &mut dyn Store, key: &[u8], stored: &[u8], image: RowImage) -> Result<()> {
        let (old, id) = self.split(stored)?;
        let mut bytes = image.into_bytes();
        bytes.extend_from_slice(id);
        let new = self.split(&bytes)?.0;
        if bytes.len() == stored.len() && self.has_same_keys(old, new) {
            return self.patch(store, key, stored, &bytes);
        }
        let mut keys = RowKeys::default();
        self.keys_of(new, id, &mut keys)?;
        if keys.key(0) == key {
            let replaced = store.replace(self.at.table, &keys.all(), &bytes);
            return replaced.map(|_| ()).map_err(|error| self.refused(error, new));
        }
        let before = store.savepoint();
        store.delete(self.at.table, key)?;
        store.insert(self.at.table, &keys.all(), &bytes).map_err(|error| match store.rollback_to(before) {
            Ok(()) => self.refused(error, new),
            Err(worse) => worse.into(),
        })
    }

    /// Changes the bytes from the first to the last one that differ.
    fn patch(&self, store: &mut dyn Store, key: &[u8], old: &[u8], new: &[u8]) -> Result<()> {
        let differs = |(old, new): (&u8, &u8)| old != new;
        let Some(first) = old.iter().zip(new).position(differs) else { return Ok(()) };
        let last = old.iter().zip(new).rposition(differs).unwrap_or(first);
        store.patch(self.at.table, key, first, new.get(first..=last).unwrap_or_default())?;
        Ok(())
    }

    /// What an error of a store is about a row: 23505 with the values of the key, if it is a duplicate.
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
