//! What an engine does for its store: how changes survive a crash, and how they are taken back.
//!
//! Invariants
//! 1. A change that is refused is undone by [`LsmMedium::undo_behind`], also if it was made in part.
//! 2. Undoing, a commit and a rollback find room.
//!
//! What it does not know: rows, indexes.

use super::entry::EntryBuffer;
use super::memtable::MemTable;
use super::tables::Tables;
use super::view::View;
use crate::pointer::{Owner, Pointer};
use crate::store::{Commit, Savepoint, TableNo};
use crate::store_error::StoreResult;

/// The MemTable, the log and the runs of a store.
pub(crate) trait LsmMedium {
    /// All entries.
    fn view(&self) -> View<'_>;

    /// The tables.
    fn tables(&self) -> &Tables;

    /// The MemTable.
    fn memtable_mut(&mut self) -> &mut MemTable;

    /// Number of the changes that the open transaction can undo.
    fn change_count(&self) -> usize;

    /// Adds the entries of a change to the MemTable and to the log. Errors: the region is full. Then a part of
    /// them may be added.
    fn add(&mut self, entries: &EntryBuffer) -> StoreResult<()>;

    /// Undoes the changes behind the first `kept` ones, newest first.
    fn undo_behind(&mut self, kept: usize) -> StoreResult<()>;

    /// Gets room back by merges. Whether that may have helped.
    fn make_room(&mut self) -> StoreResult<bool>;

    /// As [`crate::store::Store::create_table`]. No transaction is open.
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo>;

    /// As [`crate::store::Store::drop_table`]. No transaction is open, and the table is there.
    fn drop_table(&mut self, table: TableNo) -> StoreResult<()>;

    /// The present moment of the transaction.
    fn savepoint(&self) -> Savepoint;

    /// Refuses a savepoint that is not one of this transaction, or was rolled back.
    fn check_savepoint(&self, savepoint: Savepoint) -> StoreResult<()>;

    /// Ends the transaction; its changes stay.
    fn commit(&mut self) -> StoreResult<Commit>;

    /// Ends the transaction; its changes are taken back.
    fn rollback(&mut self) -> StoreResult<()>;

    /// Makes all commits durable.
    fn sync(&mut self) -> StoreResult<()>;

    /// All chunks of the store.
    fn chunks(&self) -> StoreResult<Vec<Pointer>>;
}
