//! Counters of the accesses to each table and index since the database was opened, for pg_stat_user_tables
//! and similar views.
//!
//! Invariants
//! 1. An access costs a few relaxed additions, in one of several copies of the counters. So threads on
//!    different processors rarely write to the same cache lines.
//! 2. A definition that replaces another one keeps the counters of its table.
//! 3. The counters include accesses of transactions that were rolled back, as in PostgreSQL.
//! 4. The counters of dropped tables and indexes are removed some time after the drop, many at once.
//!
//! This module does not know how rows are found.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::RwLock;
use varve_pager::PageMeter;

use crate::error::Result;
use crate::leaf_rows::{OnShown, Shown};
use crate::object_ids::{IndexId, TableId};
use crate::row::RowRef;
use crate::row_access::{Change, OnRow, Outcome, ScanIndex, ScanSpec};

/// The number of copies of the counters of one table.
const STRIPES: usize = 4;

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the copy that this thread uses.
fn stripe() -> usize {
    STRIPE.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT_STRIPE.fetch_add(1, Relaxed) % STRIPES);
        }
        own.get()
    })
}

/// What is counted.
#[derive(Clone, Copy)]
enum Counter {
    Scans,
    RowsRead,
    KeyScans,
    KeyRows,
    Inserted,
    Updated,
    Deleted,
    PagesRead,
    PagesHit,
}

const COUNTERS: usize = 9;

/// One copy of the counters.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; COUNTERS]);

/// The counters of a table or of a secondary index.
#[derive(Default)]
pub(crate) struct AccessCounters([Stripe; STRIPES]);

impl AccessCounters {
    fn add(&self, counter: Counter, count: u64) {
        if count > 0
            && let Some(Stripe(counters)) = self.0.get(stripe())
        {
            counters[counter as usize].fetch_add(count, Relaxed);
        }
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|Stripe(counters)| counters[counter as usize].load(Relaxed)).sum()
    }

    fn clear(&self) {
        self.0.iter().flat_map(|Stripe(counters)| counters).for_each(|counter| counter.store(0, Relaxed));
    }
}

/// The accesses to a table. Pages are counted only while the pages of statements are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableAccesses {
    /// Scans of all rows.
    pub scans: u64,
    /// The rows that these scans have passed.
    pub rows_read: u64,
    /// Reads by the primary key: of one row, or of a range.
    pub key_scans: u64,
    /// The rows that these reads have passed.
    pub key_rows: u64,
    /// The number of inserted rows.
    pub inserted: u64,
    /// The number of updated rows.
    pub updated: u64,
    /// The number of deleted rows.
    pub deleted: u64,
    /// The number of pages that were read from a level below the buffer pool.
    pub pages_read: u64,
    /// The number of pages that were in the buffer pool.
    pub pages_hit: u64,
}

/// The counters that an open table uses.
pub(crate) struct TableCounters {
    own: Arc<AccessCounters>,
    indexes: Box<[(IndexId, Arc<AccessCounters>)]>,
}

/// The counters of all tables and indexes that were opened.
#[derive(Default)]
pub(crate) struct AllCounters {
    tables: RwLock<HashMap<TableId, Arc<AccessCounters>>>,
    indexes: RwLock<HashMap<IndexId, Arc<AccessCounters>>>,
    /// Trees that were dropped since the counters of dropped tables were removed.
    drops: AtomicUsize,
}

/// The tables and indexes in the catalog.
#[derive(Default)]
pub(crate) struct Present {
    pub(crate) tables: HashSet<TableId>,
    pub(crate) indexes: HashSet<IndexId>,
}

/// Unused counters are removed after this many drops, or after more of them if there are many tables.
const DROPS: usize = 64;

impl AllCounters {
    /// Is called when a tree of a table or an index was dropped. After some calls, removes the counters of
    /// tables and indexes that are not `present` in the catalog. Those of open tables stay, because a table of
    /// an open transaction is not in the catalog yet.
    pub(crate) fn note_drop(&self, present: impl FnOnce() -> Present) {
        let known = self.tables.read().len() + self.indexes.read().len();
        if self.drops.fetch_add(1, Relaxed) + 1 < DROPS.max(known / 4) {
            return;
        }
        self.drops.store(0, Relaxed);
        let Present { tables, indexes } = present();
        let is_open = |counters: &Arc<AccessCounters>| Arc::strong_count(counters) > 1;
        self.tables.write().retain(|id, counters| tables.contains(id) || is_open(counters));
        self.indexes.write().retain(|id, counters| indexes.contains(id) || is_open(counters));
    }

    /// Returns the counters of a table with these indexes.
    pub(crate) fn of(&self, table: TableId, indexes: impl Iterator<Item = IndexId>) -> TableCounters {
        let own = Arc::clone(self.tables.write().entry(table).or_default());
        let mut known = self.indexes.write();
        let indexes = indexes.map(|id| (id, Arc::clone(known.entry(id).or_default()))).collect();
        TableCounters { own, indexes }
    }

    /// Returns the accesses to a table.
    pub(crate) fn table(&self, table: TableId) -> TableAccesses {
        self.tables.read().get(&table).map(|counters| counters.accesses()).unwrap_or_default()
    }

    /// Returns the accesses to a secondary index.
    pub(crate) fn index(&self, index: IndexId) -> TableAccesses {
        self.indexes.read().get(&index).map(|counters| counters.accesses()).unwrap_or_default()
    }

    /// Sets all counters to zero.
    pub(crate) fn clear(&self) {
        self.tables.read().values().for_each(|counters| counters.clear());
        self.indexes.read().values().for_each(|counters| counters.clear());
    }
}

impl AccessCounters {
    fn accesses(&self) -> TableAccesses {
        TableAccesses {
            scans: self.sum(Counter::Scans),
            rows_read: self.sum(Counter::RowsRead),
            key_scans: self.sum(Counter::KeyScans),
            key_rows: self.sum(Counter::KeyRows),
            inserted: self.sum(Counter::Inserted),
            updated: self.sum(Counter::Updated),
            deleted: self.sum(Counter::Deleted),
            pages_read: self.sum(Counter::PagesRead),
            pages_hit: self.sum(Counter::PagesHit),
        }
    }
}

impl TableCounters {
    fn of_index(&self, index: ScanIndex) -> &AccessCounters {
        let ScanIndex::Secondary(id) = index else { return &self.own };
        self.indexes.iter().find(|(own, _)| *own == id).map_or(&self.own, |(_, counters)| counters)
    }

    /// Counts the pages that `access` uses, if the pages of statements are counted.
    fn with_pages<T>(counters: &AccessCounters, access: impl FnOnce() -> T) -> T {
        if !PageMeter::is_on() {
            return access();
        }
        let before = PageMeter::counts();
        let result = access();
        let used = PageMeter::counts() - before;
        counters.add(Counter::PagesHit, used.hits);
        counters.add(Counter::PagesRead, used.read_count());
        result
    }

    /// Counts a search for one row. `access` returns whether there is the row.
    #[inline]
    pub(crate) fn get(&self, index: ScanIndex, access: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let counters = self.of_index(index);
        let found = Self::with_pages(counters, access);
        counters.add(Counter::KeyScans, 1);
        counters.add(Counter::KeyRows, u64::from(matches!(found, Ok(true))));
        found
    }

    /// Counts a scan. `continues` says that the scan continues an earlier one.
    pub(crate) fn scan(
        &self,
        spec: &ScanSpec<'_>,
        continues: bool,
        on_row: &mut OnRow<'_>,
        access: impl FnOnce(&mut OnRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let counters = self.of_index(spec.index);
        let mut rows = 0_u64;
        let mut counted = |key: &[u8], row: RowRef<'_>| -> Result<ControlFlow<()>> {
            rows += 1;
            on_row(key, row)
        };
        let done = Self::with_pages(counters, || access(&mut counted));
        self.add_scan(spec, continues, rows);
        done
    }

    /// Counts a scan that may pass many rows at once.
    pub(crate) fn scan_leaves<T>(
        &self,
        spec: &ScanSpec<'_>,
        continues: bool,
        on_shown: &mut OnShown<'_>,
        access: impl FnOnce(&mut OnShown<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = 0_u64;
        let mut counted = |shown: Shown<'_>| {
            let passed = match &shown {
                Shown::Row(..) => 1,
                Shown::Leaf(leaf) => leaf.numbers().len(),
            };
            let flow = on_shown(shown)?;
            rows += match flow {
                ControlFlow::Break(taken) => taken.min(passed),
                ControlFlow::Continue(()) => passed,
            } as u64;
            Ok(flow)
        };
        let done = Self::with_pages(self.of_index(spec.index), || access(&mut counted));
        self.add_scan(spec, continues, rows);
        done
    }

    fn add_scan(&self, spec: &ScanSpec<'_>, continues: bool, rows: u64) {
        let has_lower = !continues && !matches!(spec.lower, Bound::Unbounded);
        let is_whole = !has_lower && matches!(spec.upper, Bound::Unbounded);
        let (scans, read) = match (spec.index, is_whole) {
            (ScanIndex::Primary, true) => (Counter::Scans, Counter::RowsRead),
            _ => (Counter::KeyScans, Counter::KeyRows),
        };
        let counters = self.of_index(spec.index);
        counters.add(scans, u64::from(!continues));
        counters.add(read, rows);
    }

    /// Counts an inserted row.
    pub(crate) fn insert(&self, access: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = Self::with_pages(&self.own, access);
        self.own.add(Counter::Inserted, u64::from(done.is_ok()));
        done
    }

    /// Counts a changed row.
    pub(crate) fn modify(
        &self,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
        access: impl FnOnce(&mut dyn FnMut(RowRef<'_>) -> Result<Change>) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let mut counter = None;
        let mut seen = |row: RowRef<'_>| {
            let change = decide(row)?;
            counter = match change {
                Change::Replace(_) => Some(Counter::Updated),
                Change::Delete => Some(Counter::Deleted),
                Change::Skip | Change::Lock(_) => None,
            };
            Ok(change)
        };
        let done = Self::with_pages(&self.own, || access(&mut seen));
        if let (Ok(Outcome::Changed), Some(counter)) = (&done, counter) {
            self.own.add(counter, 1);
        }
        done
    }

    /// Counts rows that were deleted together.
    pub(crate) fn deleted(&self, count: usize) {
        self.own.add(Counter::Deleted, count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_dropped_tables_are_removed_and_those_of_open_ones_stay() {
        let all = AllCounters::default();
        let open = all.of(TableId(1), [IndexId(2)].into_iter());
        for id in 3..40 {
            drop(all.of(TableId(id), [IndexId(id + 100)].into_iter()));
        }
        let present = || Present { tables: [TableId(5)].into(), indexes: [IndexId(105)].into() };
        (1..DROPS).for_each(|_| all.note_drop(present));
        assert_eq!((all.tables.read().len(), all.indexes.read().len()), (38, 38), "only after some drops");
        all.note_drop(present);
        assert_eq!((all.tables.read().len(), all.indexes.read().len()), (2, 2));
        open.deleted(1);
        assert_eq!(all.table(TableId(1)).deleted, 1);
    }

    #[test]
    fn the_next_definition_of_a_table_keeps_its_counters() {
        let all = AllCounters::default();
        let (table, index) = (TableId(7), IndexId(8));
        let first = all.of(table, [index].into_iter());
        assert!(first.get(ScanIndex::Primary, || Ok(true)).unwrap());
        assert!(!first.get(ScanIndex::Secondary(index), || Ok(false)).unwrap());
        first.insert(|| Ok(())).unwrap();
        let next = all.of(table, std::iter::empty());
        next.deleted(3);
        next.modify(&mut |_| Ok(Change::Delete), |_| Ok(Outcome::Missing)).unwrap();
        let expect =
            TableAccesses { key_scans: 1, key_rows: 1, inserted: 1, deleted: 3, ..Default::default() };
        assert_eq!(all.table(table), expect);
        assert_eq!(all.index(index), TableAccesses { key_scans: 1, ..Default::default() });
        all.clear();
        assert_eq!(all.table(table), TableAccesses::default());
    }

    #[test]
    fn a_scan_with_a_bound_is_by_the_key_and_a_continued_scan_counts_once() {
        let counters = AllCounters::default();
        let table = counters.of(TableId(7), std::iter::empty());
        let scan = |spec: &ScanSpec<'_>, continues| {
            table.scan(spec, continues, &mut |_, _| Ok(ControlFlow::Continue(())), |_| Ok(())).unwrap();
        };
        scan(&ScanSpec::ALL, false);
        scan(&ScanSpec { lower: Bound::Excluded(&[1]), ..ScanSpec::ALL }, true);
        scan(&ScanSpec { lower: Bound::Included(&[1]), ..ScanSpec::ALL }, false);
        let seen = counters.table(TableId(7));
        assert_eq!((seen.scans, seen.key_scans), (1, 1));
    }
}
