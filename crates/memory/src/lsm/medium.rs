//! The trait that an engine implements for its store: it makes changes survive a crash, and takes them back.
//!
//! Invariants
//! 1. A change that is refused is undone by [`LsmMedium::undo_behind`], even if only a part of it was made.
//! 2. Undo, commit and rollback never fail for lack of room.
//!
//! This module does not know rows or indexes.

use super::entry::EntryBuffer;
use super::memtable::MemTable;
use super::tables::Tables;
use super::view::View;
use crate::pointer::{Owner, Pointer};
use crate::store::{Commit, Savepoint, TableNo};
use crate::store_error::StoreResult;

/// The MemTable, the log and the runs of a store.
pub(crate) trait LsmMedium {
    /// Returns all entries.
    fn view(&self) -> View<'_>;

    /// Notes that a scan has passed this many tombstones ([`super::compaction::Merges::note_passed`]).
    fn note_passed(&self, tombstones: u64);

    /// Returns the tables.
    fn tables(&self) -> &Tables;

    /// Returns the MemTable.
    fn memtable_mut(&mut self) -> &mut MemTable;

    /// Returns the number of the changes that the open transaction can undo.
    fn change_count(&self) -> usize;

    /// Adds the entries of a change to the MemTable and to the log. Errors: the region is full. Then a part
    /// of the entries may be added.
    fn add(&mut self, entries: &EntryBuffer) -> StoreResult<()>;

    /// Undoes all changes after the first `kept` ones, newest first.
    fn undo_behind(&mut self, kept: usize) -> StoreResult<()>;

    /// Gets room back by merges of the runs, and of the MemTable if no transaction is open. Returns whether
    /// that may have freed room.
    fn make_room(&mut self) -> StoreResult<bool>;

    /// Does the same as [`crate::store::Store::create_table`]. No transaction is open.
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo>;

    /// Does the same as [`crate::store::Store::drop_table`]. No transaction is open, and the table exists.
    fn drop_table(&mut self, table: TableNo) -> StoreResult<()>;

    /// Returns a savepoint at the present state of the transaction.
    fn savepoint(&self) -> Savepoint;

    /// Refuses a savepoint of another transaction, and a savepoint that a rollback went past.
    fn check_savepoint(&self, savepoint: Savepoint) -> StoreResult<()>;

    /// Ends the transaction. Its changes stay.
    fn commit(&mut self) -> StoreResult<Commit>;

    /// Ends the transaction, and takes its changes back.
    fn rollback(&mut self) -> StoreResult<()>;

    /// Makes all commits durable.
    fn sync(&mut self) -> StoreResult<()>;

    /// See [`crate::store::Store::hand_over`].
    fn hand_over(&self) {}

    /// Returns all chunks of the store.
    fn chunks(&self) -> StoreResult<Vec<Pointer>>;
}
