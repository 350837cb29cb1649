//! Tables of the memory-oriented engines (`USING nvm_inplace` and the others): one adapter over any store of
//! the crate `memory` (decision 0117).
//!
//! Keys are encoded as those of the engine `paged`. The first key of a row is its primary key. The key of a
//! secondary index has the index's columns. If one of them is NULL, or if the index is not unique, the
//! primary key follows. A table without a primary key has a row id, an `int8` key, whose 9 bytes follow the
//! row.
//!
//! Invariants
//! 1. The transaction has locked a partition before a call of this module reads or changes a row there
//!    (`Transaction::table_for`, or `MemoryStore::reach` for a table that is spread over partitions). So no
//!    other transaction reads or changes the row meanwhile, and there are no older versions.
//! 2. Before the first change, the transaction has noted the partition (`Context::begin_store_write`).
//!
//! This module does not know how a store keeps rows.

mod check;
mod definition;
mod estimate;
mod keys;
mod merge;
mod read;
mod spread;
mod transaction;
mod write;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use varve_memory::EngineKind;

use crate::catalog::{IndexId, Table, TableDef};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::partitions::StoredTable;
use crate::row::{RowRef, RowSchema};
use crate::row_access::{Change, OnRow, Outcome, ScanSpec};
use crate::share::LockStrength;
use crate::table_engine::{CoreRef, TableEngine, TableStore};
use crate::types::Datum;

pub(crate) use check::check_chunks;
pub(crate) use definition::refuse_kinds;
pub(crate) use spread::{refuse_key, spread_by, without_padding};

/// One of the memory-oriented engines.
pub(crate) struct MemoryEngine(pub(crate) EngineKind);

impl TableEngine for MemoryEngine {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn open(&self, core: &CoreRef<'_>, def: &Arc<TableDef>) -> Arc<dyn TableStore> {
        Arc::new(MemoryStore::open(core.0, def))
    }
}

/// An open table.
pub(crate) struct MemoryStore {
    def: Arc<TableDef>,
    schema: Arc<RowSchema>,
    /// The table in the store of its partition. If the table is spread over partitions, this is its part in
    /// the first store.
    first: StoredTable,
    /// The parts in the other stores, if the table is spread.
    others: Box<[StoredTable]>,
    /// The next row id. It is 0 until it is looked up.
    next_row_id: Arc<AtomicU64>,
}

impl MemoryStore {
    fn open(core: &Core, def: &Arc<TableDef>) -> MemoryStore {
        let tables = def.stored_tables();
        let Some((first, others)) = tables.split_first() else { panic!("a table of another engine") };
        MemoryStore {
            schema: Arc::clone(&def.row_schema),
            next_row_id: core.catalog.trees.row_ids(def.place),
            def: Arc::clone(def),
            first: *first,
            others: others.into(),
        }
    }

    /// Returns the `MemoryStore` of a table, or `None` if the table belongs to another engine.
    pub(crate) fn of(table: &Table) -> Option<&MemoryStore> {
        (&*table.store as &dyn Any).downcast_ref()
    }

    /// Returns the number of an index in the store. The primary key is index 0.
    fn index_number(&self, id: IndexId) -> Result<usize> {
        let found = self.def.indexes.iter().position(|index| index.id == id);
        let stale = || Error::StaleDefinition { table: self.def.name.clone() };
        found.map(|at| at + 1).ok_or_else(stale)
    }
}

impl TableStore for MemoryStore {
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
        _strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome> {
        let mut decided = Ok(false);
        let is_there = self.read_row(cx, key, &mut |row| decided = decide(row))?;
        // The transaction has locked the partition, and so all rows in it.
        Ok(match (is_there, decided?) {
            (false, _) => Outcome::Missing,
            (true, true) => Outcome::Changed,
            (true, false) => Outcome::Skipped,
        })
    }
}
