//! Locks rows without changing them. FOR UPDATE and its weaker kinds need this, and foreign keys, which lock
//! the parent row.

use crate::catalog::Table;
use crate::error::Result;
use crate::paged::PagedStore;
use crate::reader::Reader;
use crate::row::RowRef;
use crate::row_access::Outcome;
use crate::share::LockStrength;
use crate::transaction::Transaction;

impl Transaction {
    /// Takes a shared lock on a row until the end of the transaction. Meanwhile no other transaction deletes
    /// the row or changes its unique keys. Waits for transactions that have done so, or have locked the row
    /// FOR UPDATE. Reads the newest row at any isolation level. Returns false if the row does not exist any
    /// more, or if `is_it` does not accept it.
    pub fn share_row(
        &mut self,
        table: &Table,
        key: &[u8],
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Result<bool> {
        PagedStore::needed(table)?.rely_on(&mut self.cx, key, is_it)
    }

    /// Locks the newest version of a row if `decide` requests it, as `modify` would. The result is `Changed`
    /// if the row is locked.
    pub fn lock_row(
        &mut self,
        table: &Table,
        key: &[u8],
        strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome> {
        table.store.lock(&mut self.cx, key, strength, decide)
    }

    /// Returns a reader of the newest committed rows and the transaction's own changes, at any isolation
    /// level.
    pub fn newest_reader(&mut self) -> Reader {
        Reader::of(self.cx.for_newest(), self.readers.get_or_insert_default())
    }
}
