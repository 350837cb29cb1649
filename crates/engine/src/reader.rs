//! A reader reads what a transaction's running statement sees. Another thread, or a stream of batches, can
//! use it.
//!
//! Invariants
//! 1. A reader sees the snapshot of the transaction's running statement, and the transaction's own changes.
//! 2. While a reader exists, its transaction does not write, and neither begins nor ends a statement. So the
//!    transaction's snapshot stays registered, and purge keeps the versions that the reader needs.
//!
//! This module does not know which tables it may read. The transaction has opened them.

use std::ops::Bound;
use std::sync::Arc;

use crate::catalog::{IndexId, Table};
use crate::context::Context;
use crate::error::Result;
use crate::in_memory::MemoryStore;
use crate::leaf_facts::LeafBounds;
use crate::leaf_rows::{LeafCounts, OnShown};
use crate::paged::PagedStore;
use crate::row::RowRef;
use crate::row_access::{OnRow, ScanIndex, ScanSpec};
use crate::transaction::Transaction;
use crate::tree::Estimate;

/// The number of paths that an estimate of leaves follows.
const LEAVES_PATHS: usize = 4;

/// Reads at the snapshot of a statement.
pub struct Reader {
    pub(crate) cx: Context,
    /// The transaction counts its readers by the references to this.
    open: Arc<()>,
}

impl Transaction {
    /// Returns a reader of what the running statement sees.
    pub fn reader(&mut self) -> Reader {
        Reader { cx: self.cx.for_reader(), open: Arc::clone(self.readers.get_or_insert_default()) }
    }

    /// Returns a reader for the check of constraints. It is like that of `reader`, but its reads are not
    /// recorded for SERIALIZABLE.
    pub fn constraint_reader(&mut self) -> Reader {
        let mut reader = self.reader();
        reader.cx.serial = None;
        reader
    }
}

impl Reader {
    pub(crate) fn of(cx: Context, open: &Arc<()>) -> Reader {
        Reader { cx, open: Arc::clone(open) }
    }

    /// Passes the visible row that has exactly this key in the unique index `index` to the closure. Returns
    /// the same as `Transaction::get_by_unique`.
    pub fn get_by_unique(
        &mut self,
        table: &Table,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        let by = ScanIndex::Secondary(index);
        table.counters.get(by, || table.store.get_by_unique(&mut self.cx, index, key, found))
    }

    /// Passes the visible row with this primary key to `found`. Returns false if there is none.
    pub fn get(&mut self, table: &Table, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool> {
        table.counters.get(ScanIndex::Primary, || table.store.get(&mut self.cx, key, found))
    }

    /// Returns the approximate number of rows of a table, and up to `places` primary keys with about equally
    /// many rows between them. They are lower bounds for scans that take a sample.
    pub fn estimate(&mut self, table: &Table, places: usize) -> Result<Estimate> {
        if let Some(store) = MemoryStore::of(table) {
            return store.estimate(&self.cx.core);
        }
        match PagedStore::of(table) {
            Some(store) => Ok(store.tree.estimate(&self.cx.core.pager, places)?),
            None => Ok(Estimate::default()),
        }
    }

    /// Returns the approximate number of leaves of an index, which are pages. It is 0 if the table is not
    /// stored in pages.
    pub fn leaves(&mut self, table: &Table, index: ScanIndex) -> Result<u64> {
        let tree = PagedStore::of(table).and_then(|store| store.index_tree(index));
        let Some(tree) = tree else { return Ok(0) };
        Ok(tree.estimate(&self.cx.core.pager, LEAVES_PATHS)?.leaves)
    }

    /// Returns the approximate fraction of the entries of an index that are within these bounds. Returns
    /// `None` if the fraction is not known, because the table is not stored in pages, or its index is being
    /// changed.
    pub fn fraction_within(
        &mut self,
        table: &Table,
        index: ScanIndex,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<Option<f64>> {
        let Some(store) = PagedStore::of(table) else { return Ok(None) };
        let Some(tree) = store.index_tree(index) else { return Ok(None) };
        let below = |bound: Bound<&[u8]>, open: f64| match bound {
            Bound::Unbounded => Ok(Some(open)),
            Bound::Included(key) | Bound::Excluded(key) => tree.fraction_below(&self.cx.core.pager, key),
        };
        let (lower, upper) = (below(lower, 0.0)?, below(upper, 1.0)?);
        Ok(lower.zip(upper).map(|(lower, upper)| (upper - lower).max(0.0)))
    }

    /// Returns another reader of the same rows.
    pub fn fork(&mut self) -> Reader {
        Reader { cx: self.cx.for_reader(), open: Arc::clone(&self.open) }
    }

    /// Returns another reader of the same rows, for reads that do not affect results, such as a sample. Its
    /// reads are not recorded for SERIALIZABLE.
    pub fn fork_unnoted(&mut self) -> Reader {
        let mut reader = self.fork();
        reader.cx.serial = None;
        reader
    }

    /// Passes the visible rows within bounds to the closure, in order, until the closure breaks.
    pub fn scan(&mut self, table: &Table, spec: &ScanSpec<'_>, on_row: &mut OnRow<'_>) -> Result<()> {
        let continues = self.cx.continues(spec);
        table.counters.scan(spec, continues, on_row, |on_row| table.store.scan(&mut self.cx, spec, on_row))
    }

    /// As `scan`, but rows that lie by columns are passed together, in the order of the primary key. The
    /// index of `spec` is `Primary`. The scan may leave out rows that are not within all `bounds`. Returns
    /// how the leaves were read.
    ///
    /// Fails if the table is not of the engine `paged`.
    pub fn scan_leaves(
        &mut self,
        table: &Table,
        spec: &ScanSpec<'_>,
        bounds: &[LeafBounds],
        on_shown: &mut OnShown<'_>,
    ) -> Result<LeafCounts> {
        let (store, continues) = (PagedStore::needed(table)?, self.cx.continues(spec));
        table.counters.scan_leaves(spec, continues, on_shown, |on_shown| {
            store.read_leaves(&mut self.cx, spec, bounds, on_shown)
        })
    }

    /// Returns the same as `Transaction::place`.
    pub fn place(&self, index: ScanIndex) -> &[u8] {
        self.cx.place(index)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cx.leave();
    }
}
