//! Estimates statistics of a table: the number of rows, how many rows satisfy a condition, and how many
//! different values a column has. They are estimated from a sample that is read when a query is planned.
//!
//! No statistics are stored, so they cannot be out of date. Any condition can be estimated, because it is
//! evaluated on the sample. The planner of joins uses the statistics, and EXPLAIN shows estimates from them.
//!
//! Invariants
//! 1. Under SERIALIZABLE, reading a sample does not count as a read of the transaction. The reason is that a
//!    sample affects only the plan, never the result of a query.
//! 2. A sample reads at most `PLACES` evenly spread leaves, twice. It never fails a query: if a page can't be
//!    read or a condition fails, a default is used.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};

use varve_engine::{Reader, ScanIndex, ScanSpec, Table};

use crate::access::{choose, conjuncts, joined};
use crate::error::Result;
use crate::eval::Expr;
use crate::explain::cost::ScanWork;
use crate::general::{Around, KeyBytes};
use crate::plan::{Access, KeyRange, TableAccess};
use crate::value_bytes::push_key;

/// The maximum number of leaves that a sample reads.
pub const PLACES: usize = 24;
/// The maximum number of rows of a sample.
const ROWS: usize = 480;
/// The maximum number of ranges of one scan whose rows are estimated. Further ranges are assumed to have as
/// many rows as these.
const RANGES_MAX: usize = 64;
/// The assumed fraction of rows that satisfy a condition about which nothing is known.
pub const GUESSED: f64 = 0.3;

/// What is known about the rows of one scan.
#[derive(Debug, Clone)]
pub struct ScanFacts {
    /// The number of rows of the whole table.
    pub table_rows: f64,
    /// The number of rows that satisfy the conditions of the scan.
    pub rows: f64,
    /// The number of distinct values in the whole table, by the ordinal of the column.
    distinct: HashMap<usize, f64>,
    /// The columns of each unique key, as ordinals.
    unique: Vec<Vec<usize>>,
}

impl ScanFacts {
    /// Returns the facts about a scan of which nothing is known.
    pub fn unknown() -> ScanFacts {
        ScanFacts { table_rows: 0.0, rows: 0.0, distinct: HashMap::new(), unique: Vec::new() }
    }

    /// Returns the estimated number of distinct combinations of values of these columns in the whole table.
    pub fn distinct(&self, columns: &[usize]) -> f64 {
        if self.unique.iter().any(|key| key.iter().all(|c| columns.contains(c))) {
            return self.table_rows;
        }
        let mut counts: Vec<f64> = columns.iter().filter_map(|c| self.distinct.get(c).copied()).collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        // Columns are rarely independent. So only the square root of the second count is used, the fourth
        // root of the third count, and so on.
        let product = counts.iter().enumerate().map(|(n, d)| d.powf(0.5f64.powi(n as i32))).product::<f64>();
        product.clamp(1.0, self.table_rows.max(1.0))
    }
}

/// What an access path reads.
struct Read {
    ranges: f64,
    rows: f64,
}

/// Whether the bounds of a range read columns of another table's row.
fn reads_columns(range: &KeyRange) -> bool {
    let bounds = range.lower.iter().chain(&range.upper).map(|(bound, _)| bound);
    range.equal.iter().chain(bounds).any(Expr::reads_columns)
}

/// The values in the sampled rows.
#[derive(Default)]
struct Seen {
    rows: usize,
    /// For each column of interest, how often each value occurs.
    values: Vec<HashMap<Vec<u8>, u32>>,
}

/// A table, and what is needed to read a sample of it.
pub struct Sampled<'s> {
    /// The table.
    pub table: &'s Table,
    /// A reader whose reads are not recorded.
    pub reader: Reader,
    /// The surroundings of the query, for the conditions.
    pub around: &'s Around,
}

impl Sampled<'_> {
    /// Reads a sample for a scan with these conditions. Distinct values are counted only for `columns`.
    pub fn facts(&mut self, conditions: Vec<Expr>, columns: &[usize]) -> ScanFacts {
        let estimate = self.reader.estimate(self.table, PLACES).unwrap_or_default();
        let table_rows = estimate.entries as f64;
        let conditions: Vec<Expr> = conditions.into_iter().flat_map(conjuncts).collect();
        // Volatile conditions are not evaluated for an estimate, because they may return other values at the
        // next call, and they may wait.
        let (volatile, conditions): (Vec<Expr>, Vec<Expr>) =
            conditions.into_iter().partition(Expr::is_volatile);
        let seen = self.seen(&estimate.places, columns).unwrap_or_default();
        let rows = self.rows_by_key(&conditions);
        let rows = rows.unwrap_or_else(|| table_rows * self.passing(&estimate.places, conditions, seen.rows));
        let rows = if volatile.is_empty() { rows } else { rows * GUESSED };
        let counts = columns.iter().zip(&seen.values).map(|(c, v)| (*c, distinct(v, seen.rows, table_rows)));
        let def = self.table.def();
        let mut unique: Vec<Vec<usize>> =
            def.plain_indexes().filter(|i| i.unique).map(|i| i.columns.clone()).collect();
        unique.extend(def.primary_key.iter().map(|k| k.columns.clone()));
        ScanFacts { table_rows, rows, distinct: counts.collect(), unique }
    }

    /// Estimates what a scan reads, and the number of rows that it returns. `filter` is the condition on the
    /// rows that the access path finds.
    pub fn scan(&mut self, target: &TableAccess, filter: Option<&Expr>) -> (ScanWork, f64) {
        let estimate = self.reader.estimate(self.table, PLACES).unwrap_or_default();
        let (table_rows, leaves) = (estimate.entries as f64, estimate.leaves as f64);
        let conditions = filter.cloned().map(conjuncts).unwrap_or_default();
        let operators = conditions.len() as f64;
        let (volatile, conditions): (Vec<Expr>, Vec<Expr>) =
            conditions.into_iter().partition(Expr::is_volatile);
        let read = self.read(&target.access, table_rows);
        let mut rows = read.rows;
        if !conditions.is_empty() {
            let seen = self.seen(&estimate.places, &[]).unwrap_or_default();
            rows *= self.passing(&estimate.places, conditions, seen.rows);
        }
        if !volatile.is_empty() {
            rows *= GUESSED;
        }
        let whole =
            ScanWork { rows: read.rows, searches: read.ranges, table_rows, operators, ..ScanWork::default() };
        let part = if table_rows > 0.0 { (read.rows / table_rows).min(1.0) } else { 0.0 };
        let work = match &target.access {
            Access::Full => ScanWork { sequential_pages: leaves, searches: 0.0, ..whole },
            Access::Point(_) | Access::Ranges { index: ScanIndex::Primary, .. } => {
                let random_pages = read.ranges.min(leaves);
                let sequential_pages = (leaves * part - random_pages).max(0.0).ceil();
                ScanWork { random_pages, sequential_pages, ..whole }
            }
            Access::Ranges { index, .. } => {
                let index_leaves = self.reader.leaves(self.table, *index).unwrap_or_default() as f64;
                let of_rows = if target.reads.is_some() { 0.0 } else { read.rows.min(leaves) };
                let random_pages = read.ranges.min(index_leaves) + of_rows;
                let sequential_pages = (index_leaves * part - read.ranges).max(0.0).ceil();
                ScanWork { random_pages, sequential_pages, entries: read.rows, ..whole }
            }
        };
        (work, rows.max(1.0))
    }

    /// Returns the number of rows that an access path finds.
    fn read(&mut self, access: &Access, table_rows: f64) -> Read {
        match access {
            Access::Full => Read { ranges: 0.0, rows: table_rows },
            Access::Point(_) => Read { ranges: 1.0, rows: 1.0 },
            Access::Ranges { index, ranges, .. } if ranges.iter().any(reads_columns) => {
                // The keys come from the row of another table.
                let facts = match ranges.iter().all(|range| self.is_one_row(*index, range)) {
                    true => ScanFacts::unknown(),
                    false => self.facts(Vec::new(), &self.columns_of(*index)),
                };
                let found: f64 = ranges.iter().map(|range| self.met(*index, range, &facts)).sum();
                Read { ranges: ranges.len() as f64, rows: found.min(table_rows) }
            }
            Access::Ranges { index, ranges, .. } => {
                let bounds = self.around.ranges(self.table.def(), access).unwrap_or_default();
                let looked_at = bounds.len().min(RANGES_MAX);
                let mut part = 0.0;
                for KeyBytes { lower, upper } in bounds.iter().take(looked_at) {
                    let (lower, upper) =
                        (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                    let within = self.reader.fraction_within(self.table, *index, lower, upper);
                    part += within.ok().flatten().unwrap_or(GUESSED);
                }
                let part = part * bounds.len() as f64 / looked_at.max(1) as f64;
                let mut rows = (part.min(1.0) * table_rows).max(1.0);
                if ranges.iter().all(|range| self.is_one_row(*index, range)) {
                    rows = rows.min(bounds.len() as f64);
                }
                Read { ranges: bounds.len() as f64, rows }
            }
        }
    }

    /// Whether a range finds at most one row.
    fn is_one_row(&self, index: ScanIndex, range: &KeyRange) -> bool {
        let def = self.table.def();
        match index {
            ScanIndex::Primary => {
                range.equal.len() == def.key_columns().len() && !def.key_columns().is_empty()
            }
            ScanIndex::Secondary(id) => {
                def.index(id).is_some_and(|index| index.unique && range.equal.len() == index.columns.len())
            }
        }
    }

    /// The columns of an index.
    fn columns_of(&self, index: ScanIndex) -> Vec<usize> {
        let def = self.table.def();
        match index {
            ScanIndex::Primary => def.key_columns().to_vec(),
            ScanIndex::Secondary(id) => def.index(id).map(|index| index.columns.clone()).unwrap_or_default(),
        }
    }

    /// Returns the number of rows in a range whose keys come from another row. `facts` has the number of
    /// distinct values of the index's columns.
    fn met(&self, index: ScanIndex, range: &KeyRange, facts: &ScanFacts) -> f64 {
        if self.is_one_row(index, range) {
            return 1.0;
        }
        let equal: Vec<usize> = self.columns_of(index).into_iter().take(range.equal.len()).collect();
        let bounded = range.lower.is_some() || range.upper.is_some();
        let rows = facts.table_rows / facts.distinct(&equal).max(1.0);
        if bounded { rows * GUESSED } else { rows }
    }

    /// Returns the number of rows if the conditions fix the primary key.
    fn rows_by_key(&self, conditions: &[Expr]) -> Option<f64> {
        let def = self.table.def();
        match choose(def, conditions, None, false).access {
            Access::Point(_) => Some(1.0),
            Access::Ranges { index: ScanIndex::Primary, columns, ranges } => {
                ranges.iter().all(|r| r.equal.len() == columns.len()).then_some(ranges.len() as f64)
            }
            _ => None,
        }
    }

    /// Returns the estimated fraction of the rows that satisfy the conditions. `of` is the number of rows of
    /// the sample.
    fn passing(&mut self, places: &[Vec<u8>], conditions: Vec<Expr>, of: usize) -> f64 {
        let Some(filter) = joined(conditions) else { return 1.0 };
        let (table, reader, mut passed) = (self.table, &mut self.reader, 0usize);
        for place in places {
            let spec = from(place, places.len());
            let mut left = spec.limit_hint.unwrap_or(0);
            let counted = self.around.filtered(
                Some(&filter),
                |on_row| {
                    reader.scan(table, &spec, &mut |key, row| {
                        left = left.saturating_sub(1);
                        let flow = on_row(key, row)?;
                        Ok(if left > 0 { flow } else { ControlFlow::Break(()) })
                    })
                },
                |_, _| {
                    passed += 1;
                    ControlFlow::Continue(())
                },
            );
            if counted.is_err() {
                return GUESSED;
            }
        }
        // If no sampled row passes, the fraction is not zero: it is between zero and one sampled row. So half
        // a row is assumed.
        (passed as f64).max(0.5) / of.max(1) as f64
    }

    fn seen(&mut self, places: &[Vec<u8>], columns: &[usize]) -> Result<Seen> {
        let mut out = Seen { rows: 0, values: vec![HashMap::new(); columns.len()] };
        let (table, reader) = (self.table, &mut self.reader);
        let width = table.def().columns.len();
        let mut key = Vec::new();
        for place in places {
            let spec = from(place, places.len());
            let mut left = spec.limit_hint.unwrap_or(0);
            reader.scan(table, &spec, &mut |_, row| {
                for (column, values) in columns.iter().zip(&mut out.values).filter(|(c, _)| **c < width) {
                    key.clear();
                    push_key(&mut key, &row.get(*column));
                    match values.get_mut(&key) {
                        Some(count) => *count += 1,
                        None => _ = values.insert(key.clone(), 1),
                    }
                }
                out.rows += 1;
                left = left.saturating_sub(1);
                Ok(if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
        Ok(out)
    }
}

/// Returns a scan of some rows from this place on. `places` is the number of places of the sample.
fn from(place: &[u8], places: usize) -> ScanSpec<'_> {
    ScanSpec {
        index: ScanIndex::Primary,
        lower: if place.is_empty() { Bound::Unbounded } else { Bound::Included(place) },
        upper: Bound::Unbounded,
        reverse: false,
        limit_hint: Some(ROWS / places.max(1)),
        columns: None,
    }
}

/// Estimates the number of distinct values in a table of `table_rows` rows from the counts of the values in a
/// sample of `rows` rows: the estimator Duj1 (Haas and others, "Sampling-based estimation of the number of
/// distinct values of an attribute", 1995).
fn distinct(values: &HashMap<Vec<u8>, u32>, rows: usize, table_rows: f64) -> f64 {
    let (d, n) = (values.len() as f64, rows as f64);
    if n >= table_rows {
        return d;
    }
    let once = values.values().filter(|count| **count == 1).count() as f64;
    let divisor = n - once + once * n / table_rows;
    if divisor <= 0.0 { d } else { (n * d / divisor).clamp(d, table_rows) }
}
