//! The common interface of the six engines: the tables of one partition of a database (decision 0112).
//!
//! Keys and rows are bytes. Keys are ordered by their bytes. A row comes with the keys of all its indexes,
//! the primary key first. Every index refuses a key that it has already. So for an index that is not unique,
//! the caller appends the primary key to the key.
//!
//! Invariants
//! 1. A transaction begins with its first change, and ends with [`Store::commit`] or [`Store::rollback`]. A
//!    transaction without such an end is rolled back by the next start.
//! 2. A commit is durable when a later [`Store::sync`] has returned. [`Store::commit`] says whether it is
//!    durable already.
//! 3. A partition has one worker. So no two transactions of a store overlap.
//! 4. The calls of one transaction come from one thread, or [`Store::hand_over`] is between two threads.
//!
//! This module does not know types, definitions of tables, or transactions over several partitions.

use std::ops::{Bound, ControlFlow};

use crate::pointer::{Owner, Pointer};
use crate::store_error::StoreResult;

/// The number of a table in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableNo(pub(crate) u16);

impl TableNo {
    /// Returns the table with this number. A new table gets the lowest number that no table has.
    pub const fn new(number: u16) -> TableNo {
        TableNo(number)
    }

    /// Returns the number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// The maximum of tables in a store. The directory of a copy-on-write engine has one line for each of them
/// (`cow_tree/roots.rs`).
pub(crate) const TABLES_MAX: usize = 1023;

/// A table of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreTable {
    /// The number of the table.
    pub number: TableNo,
    /// The owner of the chunks with the table's tuples and nodes.
    pub owner: Owner,
    /// The number of indexes of the table, including the primary key.
    pub indexes: usize,
}

/// A state of a transaction to which a rollback can return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint {
    /// The id of the store.
    pub(crate) store: u64,
    /// The number of the newest change before the savepoint. If there is no such change, it is the number
    /// that the transaction got when it began.
    pub(crate) newest_change: u64,
    /// The number of changes that the transaction had made before the savepoint.
    pub(crate) changes: usize,
}

/// Whether a commit has to wait for [`Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// The commit is durable: it survives a crash.
    Durable,
    /// The commit will be durable when the next [`Store::sync`] has returned.
    Pending,
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Forward,
    /// From the largest key down.
    Backward,
}

/// The keys of a scan.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'k> {
    /// The lower bound.
    pub from: Bound<&'k [u8]>,
    /// The upper bound.
    pub to: Bound<&'k [u8]>,
}

impl KeyRange<'_> {
    /// All keys.
    pub const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
}

/// The function that a scan calls with the key in the scanned index and the row. It can end the scan.
pub type OnRow<'f> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'f;

/// The tables of one partition.
pub trait Store: Send + Sync {
    /// Makes a table with this number of indexes, durably. The chunks of its tuples and nodes belong to
    /// `owner`, which no other table may have.
    ///
    /// Errors: a transaction is open, the owner is taken, or the region is full.
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo>;

    /// Removes a table with its rows, durably. A later table may get its number and its owner. If a crash
    /// interrupts the call, the next start completes it.
    ///
    /// Errors: a transaction is open, or there is no such table.
    fn drop_table(&mut self, table: TableNo) -> StoreResult<()>;

    /// Returns the tables in the order of their numbers.
    fn tables(&self) -> Vec<StoreTable>;

    /// Adds a row with a key for each index.
    ///
    /// Errors: an index has one of the keys already, or the region is full. Then nothing is changed.
    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()>;

    /// Replaces the row with the primary key `keys[0]` by another row. Its other keys may change. Returns
    /// `false` if there is no such row.
    ///
    /// Errors: as [`Store::insert`].
    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool>;

    /// Changes bytes of a row, from its byte `at` on. No key of the row may depend on these bytes. Returns
    /// `false` if there is no such row.
    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool>;

    /// Removes the row with a primary key. Returns `false` if there is no such row. In a full region, deletes
    /// are possible, too, until the transaction has used up the room that the store keeps for deletes
    /// (`delete_reserve.rs`).
    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool>;

    /// Copies the row that an index has under a key into `row`, and drops the old contents of `row`. Returns
    /// `false` if there is no such row.
    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool>;

    /// Calls `on_row` with the rows of a range in the order of an index, until it breaks.
    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()>;

    /// Returns a savepoint at the present state of the transaction.
    fn savepoint(&self) -> Savepoint;

    /// Takes back what the transaction has changed since a savepoint. The savepoint stays valid.
    ///
    /// Errors: the savepoint is of an ended transaction or of another store, or a rollback went past it.
    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()>;

    /// Ends the transaction. Its changes stay.
    fn commit(&mut self) -> StoreResult<Commit>;

    /// Ends the transaction, and takes its changes back.
    fn rollback(&mut self) -> StoreResult<()>;

    /// Makes all commits durable.
    fn sync(&mut self) -> StoreResult<()>;

    /// Waits for the write-backs of this thread. The caller calls it before another thread continues the open
    /// transaction. A fence waits only for the write-backs of its own thread, so the fence of the commit
    /// would not wait for them. An engine that writes lines back only in the commit has nothing to do here.
    fn hand_over(&self) {}

    /// Returns all chunks of the store, for a check. Another active chunk of its owners would be a leaked
    /// one. Reads all indexes.
    fn chunks(&self) -> StoreResult<Vec<Pointer>>;
}
