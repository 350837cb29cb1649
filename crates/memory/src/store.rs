//! What the six engines have in common: the tables of one partition of a database (decision 0112).
//!
//! Keys and rows are bytes. Keys sort as their bytes do. A row comes with the keys of all its indexes, the
//! primary key first. Every index refuses a key that it has; for an index that is not unique the caller
//! appends the primary key.
//!
//! Invariants
//! 1. A transaction begins with its first change, and ends with [`Store::commit`] or [`Store::rollback`].
//!    Without either, the next start rolls it back.
//! 2. A commit is durable when [`Store::sync`] has returned behind it. [`Store::commit`] says whether it is
//!    durable already.
//! 3. A partition has one worker. So no two transactions of a store overlap.
//!
//! What it does not know: types, definitions of tables, transactions over several partitions.

use std::ops::{Bound, ControlFlow};

use crate::pointer::{Owner, Pointer};
use crate::store_error::StoreResult;

/// The number of a table in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableNo(pub(crate) u16);

impl TableNo {
    /// A new table gets the lowest number that no table has.
    pub const fn new(number: u16) -> TableNo {
        TableNo(number)
    }

    /// The number.
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
    /// Its number.
    pub number: TableNo,
    /// The owner that its tuples and nodes are counted for.
    pub owner: Owner,
    /// Number of its indexes, with the primary key.
    pub indexes: usize,
}

/// A moment of a transaction that it can go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint {
    /// The id of its store.
    pub(crate) store: u64,
    /// The number of the newest change before it; without changes, of the transaction's beginning.
    pub(crate) newest_change: u64,
    /// Changes of the transaction so far.
    pub(crate) changes: usize,
}

/// Whether a commit has to wait for [`Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// A crash keeps it.
    Durable,
    /// It is durable when the next [`Store::sync`] has returned.
    Pending,
}

/// The way of a scan.
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
    /// Where it begins, seen from the smallest key.
    pub from: Bound<&'k [u8]>,
    /// Where it ends, seen from the smallest key.
    pub to: Bound<&'k [u8]>,
}

impl KeyRange<'_> {
    /// All keys.
    pub const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
}

/// What a scan calls with the key in the scanned index and the row.
pub type OnRow<'f> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'f;

/// The tables of one partition.
pub trait Store: Send + Sync {
    /// Makes a table with this number of indexes, durably. Its tuples and nodes are counted for `owner`, which
    /// no other table may have.
    ///
    /// Errors: a transaction is open; the owner is taken; the region is full.
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo>;

    /// Removes a table with its rows, durably. A later table may get its number and its owner. If a crash
    /// interrupts the call, the next start completes it.
    ///
    /// Errors: a transaction is open; there is no such table.
    fn drop_table(&mut self, table: TableNo) -> StoreResult<()>;

    /// The tables, by number.
    fn tables(&self) -> Vec<StoreTable>;

    /// Adds a row with a key for each index.
    ///
    /// Errors: an index has its key; the region is full. Then nothing is changed.
    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()>;

    /// Puts another row in the place of the one with the primary key `keys[0]`. Its other keys may change.
    /// `false`: there is none.
    ///
    /// Errors: as [`Store::insert`].
    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool>;

    /// Changes bytes of a row, from its byte `at` on. No key may follow from these bytes. `false`: there is no
    /// such row.
    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool>;

    /// Removes the row with a primary key. `false`: there is none. In a full region this works, too, until
    /// the transaction has used up what the store keeps for deletes (`delete_reserve.rs`).
    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool>;

    /// Copies the row that an index has under a key into `row`, whose old contents are gone. `false`: there is
    /// none.
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

    /// The present moment of the transaction.
    fn savepoint(&self) -> Savepoint;

    /// Takes back what the transaction has changed since a savepoint, which stays.
    ///
    /// Errors: the savepoint is of an ended transaction or of another store, or it was rolled back past.
    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()>;

    /// Ends the transaction; its changes stay.
    fn commit(&mut self) -> StoreResult<Commit>;

    /// Ends the transaction; its changes are taken back.
    fn rollback(&mut self) -> StoreResult<()>;

    /// Makes all commits durable.
    fn sync(&mut self) -> StoreResult<()>;

    /// All chunks that the store holds, for a check: an active chunk of its owners that is not among them is
    /// lost. Reads all indexes.
    fn chunks(&self) -> StoreResult<Vec<Pointer>>;
}
