//! Finds the partition of a row whose table is spread over the partitions of its engine.
//!
//! A table with PARTITION BY HASH has one table in each store of its engine. The hash of the partition key,
//! modulo the number of stores, is the number of the row's partition. So a part with a modulus that is a
//! multiple of this number is in one partition. Without a primary key, the row id modulo the number of stores
//! is the number of the partition, too.
//!
//! Invariants
//! 1. A row, its primary key and each of its keys in unique indexes lead to the same partition. Unique keys
//!    have all columns of the partition key.
//! 2. No value of the partition key leads to another partition when its type has another length.
//!
//! This module does not know stores or bounds of parts.

use std::ops::Bound;

use super::MemoryStore;
use super::keys::{ROW_ID_BYTES, row_id};
use crate::catalog::{PartitionMethod, TableDef};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::key;
use crate::partition_hash::{combined, hash_bytes, hash_of, is_hashable, key_hash};
use crate::partitions::StoredTable;
use crate::row::RowRef;
use crate::types::{ColumnType, Datum};

/// Returns the ordinals of the columns by which a new table is spread over partitions. Returns `None` if the
/// table is in one partition.
pub(crate) fn spread_by(def: &TableDef) -> Option<&[usize]> {
    let cut = def.partitions.as_ref().filter(|cut| cut.method == PartitionMethod::Hash)?;
    let is_hashed = |column: &usize| def.columns.get(*column).is_some_and(|c| is_hashable(c.column_type));
    cut.columns.iter().all(is_hashed).then_some(&*cut.columns)
}

/// Fails with 0A000 if a unique key of a spread table lacks a column of the table's partition key.
pub(crate) fn refuse_key(def: &TableDef, unique: Option<&[usize]>) -> Result<()> {
    let (Some(columns), Some(cut)) = (unique, spread_by(def).filter(|_| !def.spread.is_empty())) else {
        return Ok(());
    };
    match cut.iter().all(|column| columns.contains(column)) {
        true => Ok(()),
        false => {
            let what = "a unique key without the columns of the partition key".to_owned();
            Err(Error::Unsupported { what })
        }
    }
}

impl MemoryStore {
    pub(super) fn is_spread(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns all parts of the table in stores, in the order of their partitions.
    pub(super) fn tables(&self) -> impl Iterator<Item = StoredTable> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// Returns the number of parts of the table in stores.
    pub(super) fn table_count(&self) -> u64 {
        1 + self.others.len() as u64
    }

    /// Returns the table for a hash or a row id.
    fn table_numbered(&self, number: u64) -> StoredTable {
        let number = (number % self.table_count()) as usize;
        number.checked_sub(1).and_then(|at| self.others.get(at)).copied().unwrap_or(self.first)
    }

    /// Locks the partition, if the table is spread, before rows are read. The partition of any other table is
    /// locked when the table is opened. Returns false if SKIP LOCKED skips the partition.
    pub(super) fn reach(&self, cx: &mut Context, at: StoredTable) -> Result<bool> {
        if self.is_spread() && !cx.is_reader {
            cx.reach_partition(at.partition)?;
        }
        Ok(!cx.passed_by.contains(&at.partition))
    }

    /// Locks the partition, if the table is spread, before a row is changed.
    pub(super) fn reach_to_change(&self, cx: &mut Context, at: StoredTable) -> Result<()> {
        if self.is_spread() { cx.lock_partition(at.partition) } else { Ok(()) }
    }

    /// Returns the table for a row.
    pub(super) fn table_of_row(&self, row: RowRef<'_>) -> StoredTable {
        let Some(columns) = spread_by(&self.def).filter(|_| self.is_spread()) else { return self.first };
        let value = |column: &usize| without_padding(self.def.key_type(*column), row.get(*column));
        self.table_numbered(key_hash(columns.iter().map(value)))
    }

    /// Returns the table for a key in an index, of which the first bytes are known. Returns `None` if every
    /// table can have the key.
    pub(super) fn table_of_key(&self, index: usize, key: &[u8], known_bytes: usize) -> Option<StoredTable> {
        if !self.is_spread() {
            return Some(self.first);
        }
        let key = key.get(..known_bytes)?;
        let columns = match index.checked_sub(1) {
            Some(at) => &*self.def.indexes.get(at)?.columns,
            None if self.def.primary_key.is_none() => {
                return row_id(key.get(..ROW_ID_BYTES)?).map(|id| self.table_numbered(id));
            }
            None => self.def.key_columns(),
        };
        let cut = spread_by(&self.def)?;
        let hash = cut.iter().try_fold(0, |hash, column| self.with_column(hash, columns, key, *column))?;
        Some(self.table_numbered(hash))
    }

    /// Adds a column of a key to a hash, and returns the new hash. Returns `None` if the key does not have
    /// this column.
    fn with_column(&self, hash: u64, columns: &[usize], mut key: &[u8], wanted: usize) -> Option<u64> {
        for column in columns {
            let column_type = self.def.key_type(*column);
            let (part, rest) = key.split_at_checked(key::part_bytes(column_type, key)?)?;
            if *column == wanted {
                return match (key::is_null(part), key::fixed_value(column_type, part)) {
                    (true, _) => Some(hash),
                    (false, Some(value)) => Some(combined(hash, hash_of(value))),
                    (false, None) => Some(combined(hash, hash_of_bytes(part))),
                };
            }
            key = rest;
        }
        None
    }

    /// Returns the only table that can have a key of a range.
    pub(super) fn table_of_range(
        &self,
        index: usize,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<StoredTable> {
        let key = |bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[][..],
        };
        let (lower, upper) = (key(lower), key(upper));
        let common_bytes = lower.iter().zip(upper).take_while(|(a, b)| a == b).count();
        self.table_of_key(index, lower, common_bytes)
    }
}

/// Returns the form of a partition key's value that is hashed, in which a `char(n)` has no spaces at its end.
pub(crate) fn without_padding(column_type: ColumnType, value: Datum<'_>) -> Datum<'_> {
    match (column_type, value) {
        (ColumnType::Char(_), Datum::Text(text)) => Datum::Text(text.trim_end_matches(' ')),
        (_, value) => value,
    }
}

/// Returns the hash of an encoded text or bytea.
fn hash_of_bytes(part: &[u8]) -> u64 {
    let plain = part.get(1..part.len().saturating_sub(2)).unwrap_or_default();
    if !plain.contains(&0) {
        return hash_bytes(plain);
    }
    let mut bytes = Vec::new();
    key::append_bytes(&mut bytes, part);
    hash_bytes(&bytes)
}
