//! The interface between transactions and the table engines, which store tables (`CREATE TABLE ... USING
//! engine`).
//!
//! Invariants
//! 1. An operation on many rows is one call of this interface. A closure is called for each row.
//! 2. A store is opened for one definition of its table. If the definition changes, another store is opened
//!    on the same data.
//! 3. An operation that fails has changed nothing.
//!
//! This module knows nothing about catalogs and locks on tables (the transaction holds one).

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
    /// The name after `USING`.
    fn name(&self) -> &'static str;

    /// Opens the store of a table.
    fn open(&self, core: &CoreRef<'_>, def: &Arc<TableDef>) -> Arc<dyn TableStore>;
}

/// The engine's innards, as far as table engines of other crates may pass them on.
pub struct CoreRef<'a>(pub(crate) &'a Core);

/// Decides whether a row is deleted. `None`: `modify` must decide.
pub type Decide<'d> = dyn FnMut(RowRef<'_>) -> Option<bool> + 'd;

/// How far a run of deletes came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Rows that were decided about.
    pub passed: usize,
    /// Those of them that were deleted.
    pub deleted: usize,
}

/// The rows and indexes of one table. Keys are encoded primary keys.
///
/// It is `Any` because DDL, undo and purge of a table engine look for their own kind of store.
pub trait TableStore: Any + Send + Sync {
    /// Calls `found` with the visible row of a key.
    fn get(&self, cx: &mut Context, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool>;

    /// Calls `found` with primary key and row of the visible row that a unique index has under `key`.
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

    /// Decides about the newest version of a row and carries the decision out.
    fn modify(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome>;

    /// Begins a statement that deletes many rows and makes none in this table: what only has to be so once it
    /// is over may be left until `end_deletes`.
    fn begin_deletes(&self, _cx: &mut Context) {}

    /// Deletes the first of the rows with these keys, between `begin_deletes` and `end_deletes`: those that
    /// can be reached together and need no waiting. It may be none.
    fn delete_run(
        &self,
        _cx: &mut Context,
        _keys: &mut dyn Iterator<Item = &[u8]>,
        _decide: &mut Decide<'_>,
    ) -> Result<Run> {
        Ok(Run::default())
    }

    /// The end of that statement, whether it failed or not.
    fn end_deletes(&self, _cx: &mut Context) -> Result<()> {
        Ok(())
    }

    /// Locks the newest version of a row if `decide` wants it.
    fn lock(
        &self,
        cx: &mut Context,
        key: &[u8],
        strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome>;
}
