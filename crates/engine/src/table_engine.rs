//! The interface between transactions and the table engines, which store tables (`CREATE TABLE ... USING
//! engine`).
//!
//! Invariants
//! 1. An operation on many rows is one call of this interface. A closure is called for each row.
//! 2. A store is opened for one definition of its table. If the definition changes, another store is opened
//!    on the same data.
//! 3. An operation that fails has changed nothing.
//!
//! This module does not know catalogs or locks on tables (the transaction holds one).

use std::any::Any;
use std::sync::Arc;

use crate::catalog::{IndexId, TableDef};
use crate::context::Context;
use crate::core::Core;
use crate::error::Result;
use crate::row::RowRef;
use crate::row_access::{Change, OnRow, Outcome, ScanSpec};
use crate::share::LockStrength;
use crate::types::Datum;

/// A way to store tables.
pub trait TableEngine: Send + Sync {
    /// Returns the name after `USING`.
    fn name(&self) -> &'static str;

    /// Opens the store of a table.
    fn open(&self, core: &CoreRef<'_>, def: &Arc<TableDef>) -> Arc<dyn TableStore>;
}

/// The internal state of the engine, which table engines of other crates only pass on.
pub struct CoreRef<'a>(pub(crate) &'a Core);

/// Decides whether a row is deleted. `None` means that `modify` must decide.
pub type Decide<'d> = dyn FnMut(RowRef<'_>) -> Option<bool> + 'd;

/// The result of a run of deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The number of rows that were decided.
    pub passed: usize,
    /// The number of these rows that were deleted.
    pub deleted: usize,
}

/// The rows and indexes of one table. Keys are encoded primary keys.
///
/// The trait extends `Any` because DDL, undo and purge of a table engine need their own type of store.
pub trait TableStore: Any + Send + Sync {
    /// Calls `found` with the visible row of a key.
    fn get(&self, cx: &mut Context, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool>;

    /// Finds the visible row that has `key` in a unique index, and calls `found` with its primary key and the
    /// row.
    fn get_by_unique(
        &self,
        cx: &mut Context,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool>;

    /// Calls `on_row` with the visible rows within bounds, in order, until it breaks.
    fn scan(&self, cx: &mut Context, spec: &ScanSpec<'_>, on_row: &mut OnRow<'_>) -> Result<()>;

    /// Adds a row.
    fn insert(&self, cx: &mut Context, row: &[Datum<'_>]) -> Result<()>;

    /// Calls `decide` with the newest version of a row, and makes the change.
    fn modify(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome>;

    /// Begins a statement that deletes many rows and inserts none in this table. Work that is only needed at
    /// the end of the statement may be delayed until `end_deletes`.
    fn begin_deletes(&self, _cx: &mut Context) {}

    /// Deletes the first of the rows with these keys, between `begin_deletes` and `end_deletes`. It deletes
    /// the rows that can be reached together and need no waiting, perhaps none.
    fn delete_run(
        &self,
        _cx: &mut Context,
        _keys: &mut dyn Iterator<Item = &[u8]>,
        _decide: &mut Decide<'_>,
    ) -> Result<Run> {
        Ok(Run::default())
    }

    /// Ends the statement. It is called even if the statement failed.
    fn end_deletes(&self, _cx: &mut Context) -> Result<()> {
        Ok(())
    }

    /// Locks the newest version of a row if `decide` requests it.
    fn lock(
        &self,
        cx: &mut Context,
        key: &[u8],
        strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome>;
}
