//! A runtime filter lets a scan leave out rows that cannot have a partner in a join above it. `CollectKeys`
//! publishes the set of a join's keys in a `RuntimeFilter`, and `RuntimeChecks` checks the rows of a scan.
//!
//! Invariants
//! 1. A scan that finds no set leaves out no row. A row with a NULL in a checked column has no partner.
//! 2. A check that leaves out few rows ends after `PROBATION_ROWS` rows, because it only costs time.
//!
//! `filtered_scans.rs` decides which scans get filters.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use varve_engine::{Datum, LeafRows, RowRef};

use crate::key_set::{KeySet, KeySetBuilder};
use crate::observed::Observer;

/// The number of rows after which a check must have left out one row in eight.
const PROBATION_ROWS: u64 = 16_384;

/// The place where a join leaves the set of its keys for scans.
#[derive(Debug, Default)]
pub struct RuntimeFilter(Mutex<Option<Arc<KeySet>>>);

impl RuntimeFilter {
    /// Sets or removes the keys.
    pub fn publish(&self, keys: Option<KeySet>) {
        *self.0.lock() = keys.map(Arc::new);
    }

    fn keys(&self) -> Option<Arc<KeySet>> {
        self.0.lock().clone()
    }
}

/// The check of one column.
struct Check {
    /// The ordinal of the column in the table.
    column: usize,
    filter: Arc<RuntimeFilter>,
    /// The keys, once the join has published them.
    keys: Option<Arc<KeySet>>,
    seen: u64,
    passed: u64,
    is_over: bool,
}

impl Check {
    /// Counts rows, and ends the check if it leaves out too few.
    fn note(&mut self, seen: usize, passed: usize) {
        self.seen += seen as u64;
        self.passed += passed as u64;
        self.is_over = self.seen >= PROBATION_ROWS && self.passed * 8 > self.seen * 7;
    }
}

/// The checks of one run of a scan.
pub struct RuntimeChecks(Vec<Check>);

impl RuntimeChecks {
    /// Returns checks for these filters, each with the ordinal of its column in the table. The columns have
    /// integers, dates or timestamps.
    pub fn new(filters: &[(usize, Arc<RuntimeFilter>)]) -> RuntimeChecks {
        let check = |(column, filter): &(usize, Arc<RuntimeFilter>)| Check {
            column: *column,
            filter: filter.clone(),
            keys: None,
            seen: 0,
            passed: 0,
            is_over: false,
        };
        RuntimeChecks(filters.iter().map(check).collect())
    }

    /// Looks for sets that were published since the last call. Returns whether no row can have a partner.
    pub fn renew(&mut self) -> bool {
        let checks = &mut self.0;
        checks.iter_mut().filter(|check| check.keys.is_none()).for_each(|check| {
            check.keys = check.filter.keys();
        });
        checks.iter().any(|check| check.keys.as_ref().is_some_and(|keys| keys.is_empty()))
    }

    /// Returns whether a row may have a partner.
    pub fn passes(&mut self, row: &RowRef<'_>) -> bool {
        self.0.iter_mut().filter(|check| !check.is_over).all(|check| {
            let Some(keys) = &check.keys else { return true };
            let passes = match row.get(check.column) {
                Datum::Int4(v) | Datum::Date(v) => keys.has(i64::from(v)),
                Datum::Int8(v) | Datum::Timestamp(v) | Datum::TimestampTz(v) => keys.has(v),
                Datum::Int2(v) => keys.has(i64::from(v)),
                _ => false,
            };
            check.note(1, usize::from(passes));
            passes
        })
    }

    /// Removes rows of a leaf that have no partner from `positions`, which are positions of
    /// `LeafRows::numbers`.
    pub fn sift(&mut self, rows: &LeafRows<'_>, positions: &mut Vec<u16>) {
        for check in self.0.iter_mut().filter(|check| !check.is_over) {
            let Some(keys) = check.keys.clone() else { continue };
            let (seen, column) = (positions.len(), rows.column(check.column));
            let page = column.minipage();
            let row = |position: u16| usize::from(rows.numbers()[usize::from(position)]);
            if let Some(words) = page.fixed::<4>() {
                let has = |row: usize| keys.has(i64::from(i32::from_le_bytes(words[row])));
                keep(positions, |position| has(row(position)) & !page.is_null(row(position)));
            } else if let Some(words) = page.fixed::<8>() {
                let has = |row: usize| keys.has(i64::from_le_bytes(words[row]));
                keep(positions, |position| has(row(position)) & !page.is_null(row(position)));
            } else if let Some(words) = page.fixed::<2>() {
                let has = |row: usize| keys.has(i64::from(i16::from_le_bytes(words[row])));
                keep(positions, |position| has(row(position)) & !page.is_null(row(position)));
            }
            check.note(seen, positions.len());
        }
    }
}

/// Collects the keys of a join's left input.
#[derive(Clone)]
pub struct CollectKeys {
    /// The columns of the keys, and where their sets go.
    columns: Arc<[(usize, Arc<RuntimeFilter>)]>,
}

impl CollectKeys {
    /// Returns an observer that publishes the keys of columns when all rows were read.
    pub fn of(columns: Vec<(usize, Arc<RuntimeFilter>)>) -> CollectKeys {
        CollectKeys { columns: columns.into() }
    }
}

impl Observer for CollectKeys {
    fn execute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.columns.iter().for_each(|(_, filter)| filter.publish(None));
        let rows = plan.execute(partition, context)?;
        let sets = self.columns.iter().map(|_| KeySetBuilder::default()).collect();
        Ok(Box::pin(KeyedRows { rows, columns: self.columns.clone(), sets }))
    }

    fn forget(&self) {
        self.columns.iter().for_each(|(_, filter)| filter.publish(None));
    }
}

/// The rows of a left input, whose keys are collected.
struct KeyedRows {
    rows: SendableRecordBatchStream,
    columns: Arc<[(usize, Arc<RuntimeFilter>)]>,
    /// The sets. There are none after the last row.
    sets: Vec<KeySetBuilder>,
}

impl Stream for KeyedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let polled = this.rows.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => {
                for ((column, _), set) in this.columns.iter().zip(&mut this.sets) {
                    set.add_all(batch.column(*column));
                }
            }
            Poll::Ready(None) => {
                for ((_, filter), set) in this.columns.iter().zip(this.sets.drain(..)) {
                    filter.publish(set.finish());
                }
            }
            _ => {}
        }
        polled
    }
}

impl RecordBatchStream for KeyedRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// Does the same as `Vec::retain`, without a branch that depends on the values.
pub fn keep(positions: &mut Vec<u16>, mut holds: impl FnMut(u16) -> bool) {
    let mut kept = 0;
    for at in 0..positions.len() {
        let position = positions[at];
        positions[kept] = position;
        kept += usize::from(holds(position));
    }
    positions.truncate(kept);
}
