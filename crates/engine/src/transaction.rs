//! A transaction: the only way to read or change anything.
//!
//! Invariants
//! 1. An identity (and with it the right to write) is taken at the first write; a reader logs nothing.
//! 2. A call that fails has changed nothing.
//! 3. Dropping a transaction rolls it back.
//!
//! Does not know: SQL, implicit transactions, what a session is.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::catalog::{
    Catalog, IndexId, NewIndex, NewSequence, NewTable, PrimaryKey, SequenceDef, SequenceId, TableDef, TableId,
};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::row::{RowImage, RowRef};
use crate::types::Datum;

/// Isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed when the first one began; the first updater of a row wins.
    RepeatableRead,
}

/// A point in a transaction to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavepointId(u64);

/// Which tree a scan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanIndex {
    /// The order of the primary key (or of the hidden row id).
    Primary,
    /// The order of a secondary index, then of the primary key.
    Secondary(IndexId),
}

/// What to scan. Bounds are key prefixes as built by `TableDef::push_key`: they are compared byte by byte with full keys,
/// so an inclusive upper bound of a prefix is `Excluded(prefix + key::prefix_end)`.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec<'a> {
    /// The tree.
    pub index: ScanIndex,
    /// Lower bound.
    pub lower: Bound<&'a [u8]>,
    /// Upper bound.
    pub upper: Bound<&'a [u8]>,
    /// From the upper bound down.
    pub reverse: bool,
    /// The caller expects to stop after about this many rows.
    pub limit_hint: Option<usize>,
}

impl ScanSpec<'_> {
    /// All rows in primary key order.
    pub const ALL: ScanSpec<'static> = ScanSpec {
        index: ScanIndex::Primary,
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
        reverse: false,
        limit_hint: None,
    };
}

/// What the closure of [`Transaction::modify`] wants done with the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing; the row is not locked.
    Skip,
    /// The row is replaced; its key may change.
    Replace(RowImage),
    /// The row is deleted.
    Delete,
    /// The row is locked (SELECT ... FOR UPDATE).
    LockOnly,
}

/// What [`Transaction::modify`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such row (any more).
    Missing,
    /// The closure chose `Skip`.
    Skipped,
    /// The change was made.
    Changed,
}

/// An open table: hand it to the row calls of the transaction that opened it.
pub struct Table {
    def: Arc<TableDef>,
}

impl Table {
    /// Its definition.
    pub fn def(&self) -> &Arc<TableDef> {
        &self.def
    }
}

/// Receives the rows of a scan: the row's key (what `get` and `modify` take) and the row. Must not call the database.
pub type OnRow<'f> = dyn FnMut(&[u8], RowRef<'_>) -> Result<ControlFlow<()>> + 'f;

/// A transaction.
pub struct Transaction {
    database: Arc<Database>,
    isolation: Isolation,
    cancel: Option<Arc<AtomicBool>>,
    lock_timeout: Option<Duration>,
}

fn skeleton<T>() -> Result<T> {
    Err(Error::Unsupported { what: "this call".into() })
}

#[expect(unused_variables, reason = "skeleton")]
impl Transaction {
    pub(crate) fn new(database: Arc<Database>, isolation: Isolation) -> Self {
        Self { database, isolation, cancel: None, lock_timeout: None }
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Changes the level; only before the first statement.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
    }

    /// Waits of this transaction end with 57014 soon after the flag is set.
    pub fn set_cancel(&mut self, cancel: Option<Arc<AtomicBool>>) {
        self.cancel = cancel;
    }

    /// Overrides the lock time-out; `None` waits for as long as it takes.
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.lock_timeout = timeout;
    }

    /// Begins a statement: takes a snapshot (READ COMMITTED: a new one each time) and marks the point that
    /// `rollback_statement` goes back to.
    pub fn start_statement(&mut self) {}

    /// Ends a statement: READ COMMITTED holds no old versions back while the session is idle. Optional.
    pub fn end_statement(&mut self) {}

    /// Undoes everything since `start_statement`.
    pub fn rollback_statement(&mut self) -> Result<()> {
        skeleton()
    }

    /// Marks a point to roll back to.
    pub fn savepoint(&mut self) -> SavepointId {
        SavepointId(0)
    }

    /// Undoes everything since the savepoint, which stays; later ones are gone.
    pub fn rollback_to(&mut self, savepoint: SavepointId) -> Result<()> {
        skeleton()
    }

    /// Forgets a savepoint and later ones.
    pub fn release(&mut self, savepoint: SavepointId) -> Result<()> {
        skeleton()
    }

    /// Commits. When it returns `Ok`, the changes are durable and visible. A reader's commit writes nothing.
    pub fn commit(self) -> Result<()> {
        skeleton()
    }

    /// Rolls back.
    pub fn rollback(self) -> Result<()> {
        skeleton()
    }

    /// Whether anything was written.
    pub fn has_written(&self) -> bool {
        false
    }

    /// The catalog as this transaction sees it: the newest committed one with its own DDL.
    pub fn catalog(&mut self) -> Arc<Catalog> {
        Arc::default()
    }

    /// Opens a table for reading and writing; holds a shared lock until the transaction ends, so DDL waits.
    /// `StaleDefinition` if the definition is no longer the current one.
    pub fn table(&mut self, def: &TableDef) -> Result<Arc<Table>> {
        skeleton()
    }

    /// The visible row with this primary key.
    pub fn get(&mut self, table: &Table, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool> {
        skeleton()
    }

    /// The visible row whose unique index `index` has exactly this key (all columns, none NULL); the closure gets the
    /// primary key and the row.
    pub fn get_by_unique(
        &mut self,
        table: &Table,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        skeleton()
    }

    /// The visible rows within bounds, in order, until the closure breaks.
    pub fn scan(&mut self, table: &Table, spec: &ScanSpec<'_>, on_row: &mut OnRow<'_>) -> Result<()> {
        skeleton()
    }

    /// Inserts a row (a datum of the right type for every column).
    pub fn insert(&mut self, table: &Table, row: &[Datum<'_>]) -> Result<()> {
        skeleton()
    }

    /// Changes, deletes or locks the newest version of a row. READ COMMITTED: the closure sees the newest committed (or
    /// own) version and is run again after a wait. REPEATABLE READ: 40001 if that version is newer than the snapshot.
    /// The closure runs under the row's latch and must not call the database.
    pub fn modify(
        &mut self,
        table: &Table,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        skeleton()
    }

    /// Makes a schema.
    pub fn create_schema(&mut self, name: &str) -> Result<()> {
        skeleton()
    }

    /// Drops an empty schema.
    pub fn drop_schema(&mut self, name: &str) -> Result<()> {
        skeleton()
    }

    /// Makes a table.
    pub fn create_table(&mut self, new: NewTable) -> Result<Arc<TableDef>> {
        skeleton()
    }

    /// Drops a table with its indexes and the sequences it owns.
    pub fn drop_table(&mut self, table: TableId) -> Result<()> {
        skeleton()
    }

    /// Empties a table.
    pub fn truncate(&mut self, table: TableId) -> Result<()> {
        skeleton()
    }

    /// Makes a secondary index on what the table holds.
    pub fn create_index(&mut self, new: NewIndex) -> Result<Arc<TableDef>> {
        skeleton()
    }

    /// Drops a secondary index.
    pub fn drop_index(&mut self, table: TableId, index: IndexId) -> Result<()> {
        skeleton()
    }

    /// Gives a table without one a primary key: rebuilds it in the order of the key.
    pub fn add_primary_key(&mut self, table: TableId, key: PrimaryKey) -> Result<Arc<TableDef>> {
        skeleton()
    }

    /// Replaces default expression and NOT NULL of a column (the caller has checked the rows).
    pub fn alter_column(
        &mut self,
        table: TableId,
        column: usize,
        default: Option<String>,
        not_null: bool,
    ) -> Result<Arc<TableDef>> {
        skeleton()
    }

    /// Makes a sequence.
    pub fn create_sequence(&mut self, new: NewSequence) -> Result<Arc<SequenceDef>> {
        skeleton()
    }

    /// Drops a sequence.
    pub fn drop_sequence(&mut self, sequence: SequenceId) -> Result<()> {
        skeleton()
    }

    /// The next value; never given twice, not given back by a rollback.
    pub fn next_value(&mut self, sequence: SequenceId) -> Result<i64> {
        skeleton()
    }

    /// `setval(sequence, value, called)`: the next value is `value`, or the one after it if `called`. Not rolled back.
    pub fn set_value(&mut self, sequence: SequenceId, value: i64, called: bool) -> Result<()> {
        skeleton()
    }
}
