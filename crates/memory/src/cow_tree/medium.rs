//! The trait that an engine implements for its store: batches, and rows.
//!
//! The primary index of a table has a *row value* under each primary key. Each engine has its own format of
//! row values.
//!
//! Invariants
//! 1. The end of a batch and the removal of a row cannot fail for lack of room: the calls that make nodes and
//!    rows have reserved this room.
//!
//! This module does not know transactions or secondary indexes.

use super::nodes::{NodeStore, RowPatch, StoredRow};
use super::roots::Roots;
use super::trees::Trees;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store::TableNo;
use crate::store_error::StoreResult;

/// The nodes and rows of a store, and how a batch of changes becomes durable.
pub(crate) trait CowMedium: NodeStore + Sized {
    /// Returns the region.
    fn space(&self) -> &Space;

    /// Ends the batch: makes everything durable that these roots lead to.
    fn end_batch(&mut self, roots: &mut Roots) -> StoreResult<()>;

    /// Gives room back to the region, after a batch has ended. No batch is open.
    fn shrink(trees: &mut Trees<Self>) -> StoreResult<()>;

    /// Returns whether the batch should end, because it holds much memory.
    fn is_crowded(&mut self) -> bool;

    /// Returns whether an owner has chunks.
    fn is_taken(&self, owner: Owner) -> StoreResult<bool>;

    /// Makes sure that the directories have lines for this many tables. Errors: the region is full.
    fn reserve_lines(&mut self, tables: usize) -> StoreResult<()>;

    /// Removes an existing table, and ends the batch. The caller has checked that no transaction is open.
    fn drop_table(trees: &mut Trees<Self>, table: TableNo) -> StoreResult<()>;

    /// Stores a new row, to which no index leads yet. `value` becomes the row value. Errors: the region is
    /// full.
    fn new_row(
        trees: &mut Trees<Self>,
        table: TableNo,
        keys: &[&[u8]],
        row: &[u8],
        value: &mut Vec<u8>,
    ) -> StoreResult<()>;

    /// Frees a new row whose row value the primary index has refused.
    fn give_up_row(trees: &mut Trees<Self>, table: TableNo, value: &[u8]) -> StoreResult<()>;

    /// Removes what a row has outside its row value and outside secondary indexes, as a change of the open
    /// transaction.
    fn take_out_row(trees: &mut Trees<Self>, row: StoredRow<'_>) -> StoreResult<()>;

    /// Changes bytes of a row. Errors: the bytes are not within the row; the region is full.
    fn patch_row(trees: &mut Trees<Self>, row: StoredRow<'_>, patch: RowPatch<'_>) -> StoreResult<()>;

    /// Copies the keys that a row has in the secondary indexes.
    fn secondary_keys(trees: &Trees<Self>, row: StoredRow<'_>, keys: &mut [Vec<u8>]) -> StoreResult<()>;

    /// Replaces the row value in the buffer `row` by the row.
    fn load_row(trees: &Trees<Self>, table: TableNo, row: &mut Vec<u8>) -> StoreResult<()>;

    /// Returns the row of a row value, as a part of `value` or of `buf`.
    fn row_of<'b>(
        trees: &Trees<Self>,
        table: TableNo,
        value: &'b [u8],
        buf: &'b mut Vec<u8>,
    ) -> StoreResult<&'b [u8]>;

    /// Returns all chunks of the store.
    fn chunks(trees: &Trees<Self>) -> StoreResult<Vec<Pointer>>;
}
