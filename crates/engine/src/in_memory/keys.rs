//! The keys of a row in the indexes of its table.
//!
//! Invariants
//! 1. Two rows get the same key in an index exactly if the index must refuse one of them.
//!
//! This module does not know stores.

use smallvec::SmallVec;

use super::MemoryStore;
use crate::catalog::IndexDef;
use crate::error::{Error, Result};
use crate::key;
use crate::row::RowRef;
use crate::types::{ColumnType, Datum};

/// The length of a row id's key in bytes. In a table without a primary key, this key follows the row.
pub(super) const ROW_ID_BYTES: usize = 9;

/// The keys of one row, one after the other. The primary key is the first one.
#[derive(Default)]
pub(super) struct RowKeys {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; 7]>,
}

impl RowKeys {
    /// Returns an empty list of keys that reuses a buffer.
    pub(super) fn in_buffer(bytes: Vec<u8>) -> RowKeys {
        RowKeys { bytes, ends: SmallVec::new() }
    }

    /// Returns the buffer for later use.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the key in the index with this number. The key is empty if there is no such index.
    pub(super) fn key(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let span = start.zip(self.ends.get(number).copied());
        span.and_then(|(start, end)| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// Returns all keys, in the form that a store expects.
    pub(super) fn all(&self) -> SmallVec<[&[u8]; 7]> {
        (0..self.ends.len()).map(|number| self.key(number)).collect()
    }
}

/// Appends the key of a row id.
pub(super) fn push_row_id(out: &mut Vec<u8>, id: u64) {
    key::push(out, ColumnType::Int8, &Datum::Int8(id.cast_signed()));
}

/// Returns the row id in its key.
pub(super) fn row_id(key: &[u8]) -> Option<u64> {
    let raw = key.get(1..ROW_ID_BYTES)?;
    Some(u64::from_be_bytes(raw.try_into().ok()?) ^ (1 << 63))
}

impl MemoryStore {
    /// Splits stored bytes into the row and the row id's key. The key is empty if the table has a primary
    /// key.
    pub(super) fn split<'r>(&'r self, stored: &'r [u8]) -> Result<(RowRef<'r>, &'r [u8])> {
        let id_bytes = if self.def.primary_key.is_some() { 0 } else { ROW_ID_BYTES };
        let split = stored.len().checked_sub(id_bytes).and_then(|at| stored.split_at_checked(at));
        let short = || Error::corrupt(format!("a row of table {} has no row id", self.def.name));
        let (row, id) = split.ok_or_else(short)?;
        Ok((self.row(row)?, id))
    }

    /// Appends the primary key of a row. In a table without a primary key, appends `id`, the row id's key.
    pub(super) fn push_primary_key(&self, row: RowRef<'_>, id: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Some(primary) = &self.def.primary_key else {
            out.extend_from_slice(id);
            return Ok(());
        };
        for ordinal in &primary.columns {
            let datum = row.get(*ordinal);
            if datum.is_null() {
                let column = self.def.columns.get(*ordinal).map_or("", |column| &column.name).to_owned();
                return Err(Error::NullInKey { table: self.def.name.clone(), column });
            }
            self.def.push_key(out, *ordinal, &datum);
        }
        Ok(())
    }

    /// Computes the keys of a row.
    pub(super) fn keys_of(&self, row: RowRef<'_>, id: &[u8], keys: &mut RowKeys) -> Result<()> {
        keys.clear();
        self.push_primary_key(row, id, &mut keys.bytes)?;
        let primary_end = keys.bytes.len();
        keys.ends.push(primary_end);
        for index in &self.def.indexes {
            if self.push_columns(index, row, &mut keys.bytes) || !index.unique {
                keys.bytes.extend_from_within(..primary_end);
            }
            keys.ends.push(keys.bytes.len());
        }
        Ok(())
    }

    /// Appends the columns of an index. Returns whether one of them is NULL.
    fn push_columns(&self, index: &IndexDef, row: RowRef<'_>, out: &mut Vec<u8>) -> bool {
        let mut has_null = false;
        for ordinal in &index.columns {
            let datum = row.get(*ordinal);
            has_null |= datum.is_null();
            self.def.push_key(out, *ordinal, &datum);
        }
        has_null
    }

    /// Returns whether two rows have the same keys in all indexes.
    pub(super) fn has_same_keys(&self, old: RowRef<'_>, new: RowRef<'_>) -> bool {
        let indexed = self.def.indexes.iter().flat_map(|index| &index.columns);
        let mut columns = self.def.key_columns().iter().chain(indexed);
        columns.all(|column| old.get(*column).order(&new.get(*column)).is_eq())
    }
}
