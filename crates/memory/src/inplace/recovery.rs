//! The start of a store: it reads the checkpoint, then the committed transactions of the log.
//!
//! The start first finds the last version of each row, outside of the region. Then it stores these rows, the
//! largest first, and adds them to the indexes in the order of their keys, which fills all nodes. So it needs
//! no more room than the store had: the store keeps the tuples and nodes of the last durable state until the
//! next state is durable.
//!
//! Invariants
//! 1. Records of a transaction are applied only when its commit was read.
//! 2. A start has room if the store had room before, except if rows are longer than a segment. Such rows need
//!    free segments that are side by side.
//!
//! This module does not know the format of records and checkpoints.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::checkpoint;
use super::heap::Heap;
use super::record::Record;
use crate::files::Files;
use crate::pointer::{Owner, Pointer};
use crate::store::{TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple;
use crate::wal::Wal;

/// A row, and its keys in all indexes.
struct RecoveredRow<'r> {
    keys: Vec<&'r [u8]>,
    bytes: Cow<'r, [u8]>,
}

/// A table, with its rows by their primary keys.
struct RecoveredTable<'r> {
    owner: Owner,
    indexes: usize,
    rows: FxHashMap<&'r [u8], RecoveredRow<'r>>,
}

/// The tables that the files have.
#[derive(Default)]
struct RecoveredTables<'r> {
    tables: BTreeMap<TableNo, RecoveredTable<'r>>,
}

/// A row that is stored, and in no index yet.
struct StoredRow<'t> {
    table: TableNo,
    row: &'t RecoveredRow<'t>,
    tuple: Pointer,
}

/// Fills an empty heap with the tables of the files. Returns the log, to which the store adds further
/// records.
pub(super) fn recover(heap: &mut Heap, mut files: Files) -> StoreResult<Wal> {
    let found = checkpoint::read(&mut files)?;
    let log = Wal::open(files, found.log)?;
    let bytes = log.read()?;
    let mut tables = RecoveredTables::default();
    let mut rest = &found.records[..];
    while !rest.is_empty() {
        let decoded = Record::decode(rest).ok_or(damaged("a record of a checkpoint"))?;
        tables.apply(decoded.record)?;
        rest = decoded.rest;
    }
    tables.replay(&bytes)?;
    tables.store(heap)?;
    Ok(log)
}

fn damaged(what: &'static str) -> StoreError {
    StoreError::Damaged { what, at: Pointer::NONE }
}

fn missing() -> StoreError {
    damaged("the log, which changes a row or a table that is not there")
}

impl<'r> RecoveredTables<'r> {
    fn replay(&mut self, bytes: &'r [u8]) -> StoreResult<()> {
        let (mut rest, mut transaction) = (bytes, Vec::new());
        while !rest.is_empty() {
            let decoded = Record::decode(rest).ok_or(damaged("a record of the log"))?;
            rest = decoded.rest;
            match decoded.record {
                Record::Commit => transaction.drain(..).try_for_each(|record| self.apply(record))?,
                record => transaction.push(record),
            }
        }
        Ok(())
    }

    fn table(&mut self, table: TableNo) -> StoreResult<&mut RecoveredTable<'r>> {
        self.tables.get_mut(&table).ok_or_else(missing)
    }

    /// Repeats a change. The change succeeded before the crash. So a failure now means that the files are
    /// damaged.
    fn apply(&mut self, record: Record<'r>) -> StoreResult<()> {
        match record {
            Record::CreateTable { table, owner, indexes } => {
                let owner = Owner::new(owner).ok_or(damaged("the owner of a table"))?;
                let rows = FxHashMap::default();
                let before = self.tables.insert(table, RecoveredTable { owner, indexes, rows });
                let is_new = before.is_none() && usize::from(table.0) < TABLES_MAX;
                is_new.then_some(()).ok_or(damaged("the log, which makes a table twice"))
            }
            Record::Insert { table, keys, row } => match self.table(table)?.put(keys, row)? {
                None => Ok(()),
                Some(_) => Err(damaged("the log, which adds a row twice")),
            },
            Record::Replace { table, keys, row, .. } => {
                self.table(table)?.put(keys, row)?.map(drop).ok_or_else(missing)
            }
            Record::Patch { table, key, at, after, .. } => {
                let row = self.table(table)?.rows.get_mut(key).ok_or_else(missing)?;
                let end = at.checked_add(after.len());
                let changed = end.and_then(|end| row.bytes.to_mut().get_mut(at..end));
                changed.map(|changed| changed.copy_from_slice(after)).ok_or_else(missing)
            }
            Record::Delete { table, key, .. } => {
                self.table(table)?.rows.remove(key).map(drop).ok_or_else(missing)
            }
            Record::DropTable { table } => self.tables.remove(&table).map(drop).ok_or_else(missing),
            Record::Commit => Ok(()),
        }
    }

    /// Stores all tables and rows in the region.
    fn store(&self, heap: &mut Heap) -> StoreResult<()> {
        for (number, RecoveredTable { owner, indexes, .. }) in &self.tables {
            heap.next_table(*owner, *indexes)?;
            heap.add_table(*number, *owner, *indexes)?;
        }
        let rows = self.tables.iter().flat_map(|(table, found)| found.rows.values().map(|row| (*table, row)));
        let stored = |(table, row)| StoredRow { table, row, tuple: Pointer::NONE };
        let mut rows: Vec<StoredRow<'_>> = rows.map(stored).collect();
        rows.sort_unstable_by_key(|stored| Reverse(stored.row.bytes.len()));
        for StoredRow { table, row, tuple } in &mut rows {
            *tuple = heap.new_tuple(*table, &row.keys, &row.bytes)?;
        }
        rows.sort_unstable_by_key(|stored| stored.table);
        for rows in rows.chunk_by_mut(|left, right| left.table == right.table) {
            let Some(indexes) = rows.first().map(|stored| stored.row.keys.len()) else { continue };
            (0..indexes).try_for_each(|index| add_to_index(heap, rows, index))?;
        }
        Ok(())
    }
}

impl<'r> RecoveredTable<'r> {
    /// Puts a row into the table. Returns the row that had the same primary key before, if there was one.
    fn put(&mut self, keys: Vec<&'r [u8]>, row: &'r [u8]) -> StoreResult<Option<RecoveredRow<'r>>> {
        tuple::check(self.indexes, &keys, row)?;
        let primary = keys.first().copied().unwrap_or_default();
        Ok(self.rows.insert(primary, RecoveredRow { keys, bytes: Cow::Borrowed(row) }))
    }
}

/// Adds rows of one table to an index, in the order of their keys.
fn add_to_index(heap: &mut Heap, rows: &mut [StoredRow<'_>], index: usize) -> StoreResult<()> {
    fn key<'k>(row: &RecoveredRow<'k>, index: usize) -> &'k [u8] {
        row.keys.get(index).copied().unwrap_or_default()
    }
    rows.sort_unstable_by_key(|stored| key(stored.row, index));
    let mut before: Option<&[u8]> = None;
    for StoredRow { table, row, tuple } in rows.iter() {
        let key = key(row, index);
        if before.replace(key) == Some(key) {
            return Err(damaged("the files of a store, which have a key twice"));
        }
        heap.add_entry(*table, index, key, *tuple)?;
    }
    Ok(())
}
