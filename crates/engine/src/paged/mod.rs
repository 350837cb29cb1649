//! Tables in B+trees on top of the pager. This is the first and default table engine (`USING paged`).
//!
//! A table has a clustered tree of its rows, in the order of the primary key (or of a hidden row id). For
//! each secondary index it has another tree. An index entry's key is: index columns, primary key, length of
//! the primary key (u16, big endian).
//!
//! Invariants
//! 1. The newest version of a row is in the clustered tree. The stamp of an entry (the id of the transaction
//!    that wrote it) is also the lock of the row.
//! 2. An index has an entry for every version that a snapshot may see. The newest version has a live entry,
//!    other versions have entries with a delete mark. An entry is made after the row's change. It is removed
//!    before purge removes the version.
//! 3. While a latch of a secondary leaf is held, a latch in the clustered tree may be taken. The other order
//!    is not allowed.
//!
//! This module does not know catalogs or SQL.

mod build;
mod check;
mod earlier;
mod follow;
mod index;
mod lock;
mod marks;
mod moved;
mod purge;
mod read;
mod read_leaves;
mod runs;
mod undo;
mod write;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use build::ChangedInPlace;
pub(crate) use index::violation;
pub(crate) use undo::{roll_back, undo_newest};

use crate::catalog::Keys;
use crate::catalog::{Catalog, IndexDef, IndexId, Table, TableDef};
use crate::context::Context;
use crate::core::Core;
use crate::entry_columns::EntryColumns;
use crate::error::{Error, Result};
use crate::key;
use crate::overflow;
use crate::row::{RowRef, RowSchema};
use crate::row_access::{Change, OnRow, Outcome, ScanIndex, ScanSpec};
use crate::share::LockStrength;
use crate::table_engine::{CoreRef, Decide, Run, TableEngine, TableStore};
use crate::tree::{Tree, TreeError};
use crate::types::Datum;

/// The size of the length field at the end of an index entry's key.
const KEY_LENGTH_BYTES: usize = 2;

/// Name of the engine that stores tables in pages.
pub(crate) const PAGED: &str = "paged";

/// The engine `paged`.
pub(crate) struct PagedEngine;

impl TableEngine for PagedEngine {
    fn name(&self) -> &'static str {
        PAGED
    }

    fn open(&self, core: &CoreRef<'_>, def: &Arc<TableDef>) -> Arc<dyn TableStore> {
        Arc::new(PagedStore::open(core.0, def))
    }
}

/// A secondary index of an open table.
pub(crate) struct PagedIndex {
    pub(crate) def: Arc<IndexDef>,
    pub(crate) tree: Tree,
    /// Computes the keys of a derived index.
    keys: Option<Keys>,
    /// The columns that can be read from its entries.
    columns: EntryColumns,
}

/// The structure of an index entry's key.
#[derive(Clone, Copy)]
struct EntryShape {
    /// The number of bytes before the primary key.
    prefix_bytes: usize,
    /// Whether a part is NULL.
    has_null: bool,
}

/// An open paged table.
pub struct PagedStore {
    def: Arc<TableDef>,
    schema: Arc<RowSchema>,
    pub(crate) tree: Tree,
    pub(crate) indexes: Vec<PagedIndex>,
    next_row_id: Arc<AtomicU64>,
}

impl PagedStore {
    /// Opens the trees of a definition.
    pub(crate) fn open(core: &Core, def: &Arc<TableDef>) -> Self {
        let trees = &core.catalog.trees;
        let indexes = def
            .indexes
            .iter()
            .map(|index| PagedIndex::open(core, def, Arc::clone(index), trees.secondary(index.place)));
        Self {
            schema: Arc::clone(&def.row_schema),
            tree: trees.clustered(def.place),
            indexes: indexes.collect(),
            next_row_id: trees.row_ids(def.place),
            def: Arc::clone(def),
        }
    }

    /// Returns the paged store of a table, or `None` if another engine stores it.
    pub(crate) fn of(table: &Table) -> Option<&Self> {
        (&*table.store as &dyn Any).downcast_ref()
    }

    /// Does the same as `of`, but returns an error if another engine stores the table.
    pub(crate) fn needed(table: &Table) -> Result<&Self> {
        let other = || Error::Unsupported { what: format!("this on engine {}", table.def().engine) };
        Self::of(table).ok_or_else(other)
    }

    /// Returns the tree that a scan of this index reads, or `None` if the table has no such index.
    pub(crate) fn index_tree(&self, index: ScanIndex) -> Option<&Tree> {
        match index {
            ScanIndex::Primary => Some(&self.tree),
            ScanIndex::Secondary(id) => self.indexes.iter().find(|i| i.def.id == id).map(|i| &i.tree),
        }
    }

    /// Returns the paged table, of any database, whose clustered tree the segment `owner` has.
    pub(crate) fn of_tree(catalog: &Catalog, owner: u32) -> Option<&Self> {
        Self::of(catalog.table_of_tree(owner)?)
    }

    /// Makes sure that the transaction can change pages.
    fn begin_write(&self, cx: &mut Context) -> Result<()> {
        match cx.begin_write() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(cx, error)),
        }
    }

    #[cold]
    fn refused(&self, cx: &Context, error: Error) -> Error {
        let is_system = cx.core.catalog.current().open_table(self.def.id).is_none();
        if is_system { error } else { error.refused_for(&self.def.name) }
    }

    pub(crate) fn row<'a>(&'a self, payload: &'a [u8]) -> RowRef<'a> {
        RowRef::new(&self.schema, payload)
    }

    fn index(&self, id: IndexId) -> Result<&PagedIndex> {
        let found = self.indexes.iter().find(|i| i.def.id == id);
        found.ok_or_else(|| Error::StaleDefinition { table: self.def.name.clone() })
    }

    /// Encodes the primary key of a row. Returns false if the table has none, so that its rows have row ids.
    fn primary_key(&self, row: &[Datum<'_>], out: &mut Vec<u8>) -> Result<bool> {
        let Some(primary) = &self.def.primary_key else { return Ok(false) };
        out.clear();
        for ordinal in &primary.columns {
            self.refuse_null(*ordinal, &row[*ordinal])?;
            self.def.push_key(out, *ordinal, &row[*ordinal]);
        }
        Ok(true)
    }

    /// Does the same as `primary_key` for an encoded row.
    fn primary_key_of(&self, row: RowRef<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let Some(primary) = &self.def.primary_key else { return Ok(false) };
        out.clear();
        for ordinal in &primary.columns {
            let datum = row.get(*ordinal);
            self.refuse_null(*ordinal, &datum)?;
            self.def.push_key(out, *ordinal, &datum);
        }
        Ok(true)
    }

    fn refuse_null(&self, ordinal: usize, datum: &Datum<'_>) -> Result<()> {
        if !datum.is_null() {
            return Ok(());
        }
        let column = self.def.columns[ordinal].name.clone();
        Err(Error::NullInKey { table: self.def.name.clone(), column })
    }

    /// Makes a key for a row of a table without a primary key.
    fn new_row_id(&self, core: &Core, out: &mut Vec<u8>) -> Result<()> {
        if self.next_row_id.load(Ordering::Acquire) == 0 {
            let last = self.last_row_id(core)?;
            let _ = self.next_row_id.compare_exchange(0, last + 1, Ordering::AcqRel, Ordering::Acquire);
        }
        let id = self.next_row_id.fetch_add(1, Ordering::AcqRel);
        out.clear();
        key::push(out, crate::types::ColumnType::Int8, &Datum::Int8(id as i64));
        Ok(())
    }

    /// Returns the row's content. If it is not in the leaf, it is read from its chain.
    pub(crate) fn whole_row<'a>(
        &self,
        core: &Core,
        payload: &'a [u8],
        spare: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        if payload.is_empty() || !overflow::is_pointer(payload) {
            return Ok(payload);
        }
        spare.clear();
        overflow::read(&core.pager, &self.tree, payload, spare)?;
        Ok(spare)
    }
}

impl PagedIndex {
    fn open(core: &Core, table: &TableDef, def: Arc<IndexDef>, tree: Tree) -> Self {
        let keys = def.derived.is_some().then(|| Keys::new(core.derive.clone()));
        let columns = table.entry_columns(&def);
        Self { def, tree, keys, columns }
    }

    /// Returns the key of the entry of an existing row. `None` means that the index has no entry for it.
    /// Either the index does not include the row, or the row's key could not be computed, so that the row is
    /// being rolled back.
    fn entry_key(
        &self,
        table: &TableDef,
        row: RowRef<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<EntryShape>> {
        match self.new_entry_key(table, row, key, out) {
            Err(Error::Expression { .. }) => {
                out.clear();
                Ok(None)
            }
            made => made,
        }
    }

    /// Returns the key of the entry for a new row, or `None` if the index does not include the row.
    fn new_entry_key(
        &self,
        table: &TableDef,
        row: RowRef<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<EntryShape>> {
        out.clear();
        let mut has_null = false;
        match (&self.keys, &self.def.derived) {
            (Some(keys), Some(derived)) => {
                let Some(values) = keys.of(table, &self.def, row)? else { return Ok(None) };
                for (part, value) in values.iter().enumerate() {
                    has_null |= value.is_null();
                    key::push(out, derived.key_type(part, table), &value.as_datum());
                }
            }
            _ => {
                for ordinal in &self.def.columns {
                    let datum = row.get(*ordinal);
                    has_null |= datum.is_null();
                    table.push_key(out, *ordinal, &datum);
                }
            }
        }
        let prefix_bytes = out.len();
        out.extend_from_slice(key);
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        Ok(Some(EntryShape { prefix_bytes, has_null }))
    }
}

/// Splits an entry's key into index columns and primary key.
fn split_entry_key(entry: &[u8]) -> Result<(&[u8], &[u8])> {
    let split = || {
        let end = entry.len().checked_sub(KEY_LENGTH_BYTES)?;
        let bytes = usize::from(u16::from_be_bytes([entry[end], entry[end + 1]]));
        Some((end.checked_sub(bytes)?, end))
    };
    let (start, end) =
        split().ok_or_else(|| Error::corrupt("an index entry is shorter than its primary key"))?;
    Ok((&entry[..start], &entry[start..end]))
}

impl TableStore for PagedStore {
    fn get(&self, cx: &mut Context, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool> {
        self.read_row(cx, key, found)
    }

    fn get_by_unique(
        &self,
        cx: &mut Context,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        self.read_unique(cx, index, key, found)
    }

    fn scan(&self, cx: &mut Context, spec: &ScanSpec<'_>, on_row: &mut OnRow<'_>) -> Result<()> {
        self.read_range(cx, spec, on_row)
    }

    fn insert(&self, cx: &mut Context, row: &[Datum<'_>]) -> Result<()> {
        self.insert_row(cx, row)
    }

    fn begin_deletes(&self, cx: &mut Context) {
        self.gather_marks(cx);
    }

    fn end_deletes(&self, cx: &mut Context) -> Result<()> {
        self.settle_marks(cx)
    }

    fn delete_run(
        &self,
        cx: &mut Context,
        keys: &mut dyn Iterator<Item = &[u8]>,
        decide: &mut Decide<'_>,
    ) -> Result<Run> {
        self.delete_rows(cx, keys, decide)
    }

    fn modify(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        self.modify_row(cx, key, decide)
    }

    fn lock(
        &self,
        cx: &mut Context,
        key: &[u8],
        strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome> {
        self.lock_row(cx, key, strength, decide)
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Pager(error) => Self::Pager(error),
            TreeError::KeyTooLong { bytes, limit } => {
                Self::TooLarge { what: "index row".into(), bytes, limit }
            }
            TreeError::Damaged { .. } => Self::corrupt(error.to_string()),
        }
    }
}
