//! ORDER BY and DISTINCT over rows in the result arena.
//!
//! Invariants
//! 1. DISTINCT sorts by the ORDER BY keys, then by all other shown columns. Then it drops a row that equals
//!    the row before it.
//! 2. For fast comparison, each row has a number made from its first sort key (its prefix). If two prefixes
//!    differ, the keys have the same order.
//!
//! This module does not know where rows come from.

use std::cmp::Ordering;

use varve_engine::Datum;

use crate::error::Result;
use crate::eval::Env;
use crate::plan::SortKey;

/// The number of rows that are sorted between two checks whether the statement is cancelled.
const STEP_ROWS: usize = 1 << 15;

/// A row that is to be sorted.
#[derive(Clone, Copy)]
pub struct CollectedRow<'s> {
    /// The beginning of the first sort key, as a number that has the order of the key.
    prefix: u64,
    /// The values of all outputs.
    pub row: &'s [Datum<'s>],
}

/// The sort keys, including those that DISTINCT adds.
pub struct Sorter {
    keys: Vec<SortKey>,
    visible: usize,
    distinct: bool,
    /// Whether the first key sorts NULL as the largest value. Only then may prefixes be compared.
    prefixed: bool,
}

impl Sorter {
    /// Returns a sorter for these clauses.
    pub fn new(order: &[SortKey], visible: usize, distinct: bool) -> Sorter {
        let mut keys = order.to_vec();
        if distinct {
            let missing = (0..visible).filter(|o| !order.iter().any(|k| k.output == *o));
            keys.extend(missing.map(|output| SortKey { output, descending: false, nulls_first: false }));
        }
        let prefixed = keys.first().is_some_and(|k| k.nulls_first == k.descending);
        Sorter { keys, visible, distinct, prefixed }
    }

    /// Makes a row that can be sorted.
    pub fn hold<'s>(&self, row: &'s [Datum<'s>]) -> CollectedRow<'s> {
        let prefix = match self.keys.first() {
            Some(key) if self.prefixed => prefix(row[key.output]),
            _ => 0,
        };
        CollectedRow { prefix, row }
    }

    /// Sorts the rows, and drops duplicates for DISTINCT.
    pub fn sort(&self, rows: &mut Vec<CollectedRow<'_>>, env: &Env<'_>) -> Result<()> {
        let descending = self.keys.first().is_some_and(|k| k.descending);
        let order = |a: &CollectedRow<'_>, b: &CollectedRow<'_>| {
            let by_prefix = if descending { b.prefix.cmp(&a.prefix) } else { a.prefix.cmp(&b.prefix) };
            by_prefix.then_with(|| self.compare(a.row, b.row))
        };
        sort_in_steps(rows, order, || env.check_cancel())?;
        if self.distinct {
            let visible = self.visible;
            rows.dedup_by(|b, a| {
                a.prefix == b.prefix
                    && a.row[..visible].iter().zip(&b.row[..visible]).all(|(x, y)| x.order(y).is_eq())
            });
        }
        Ok(())
    }

    /// Sorts the rows, and returns their numbers in this order.
    pub fn order_of(&self, rows: &[(CollectedRow<'_>, usize)], env: &Env<'_>) -> Result<Vec<usize>> {
        let mut refs: Vec<&(CollectedRow<'_>, usize)> = rows.iter().collect();
        sort_in_steps(&mut refs, |a, b| self.compare(a.0.row, b.0.row), || env.check_cancel())?;
        Ok(refs.into_iter().map(|(_, n)| *n).collect())
    }

    fn compare(&self, a: &[Datum<'_>], b: &[Datum<'_>]) -> Ordering {
        for key in &self.keys {
            let (x, y) = (&a[key.output], &b[key.output]);
            let order = match (x.is_null(), y.is_null()) {
                (true, true) => Ordering::Equal,
                (true, false) => {
                    if key.nulls_first {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
                (false, true) => {
                    if key.nulls_first {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                }
                _ if key.descending => y.order(x),
                _ => x.order(y),
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// Sorts stably, and calls `look` between steps. Each step sorts few rows, or merges sorted parts. So an
/// error of `look` ends the sort soon.
fn sort_in_steps<T>(
    rows: &mut [T],
    order: impl Fn(&T, &T) -> Ordering,
    look: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut width = STEP_ROWS;
    loop {
        for part in rows.chunks_mut(width) {
            look()?;
            // The sort of the standard library only merges parts that are sorted already.
            part.sort_by(|a, b| order(a, b));
        }
        if width >= rows.len() {
            return Ok(());
        }
        width *= 2;
    }
}

/// Returns a number from the beginning of a value, with the order of the values. It is the largest number for
/// NULL, and 0 if the type has no cheap prefix.
fn prefix(value: Datum<'_>) -> u64 {
    let signed = |n: i64| (n as u64) ^ (1 << 63);
    match value {
        Datum::Null => u64::MAX,
        Datum::Text(t) => bytes_prefix(t.as_bytes()),
        Datum::Bytea(b) => bytes_prefix(b),
        Datum::Int2(n) => signed(i64::from(n)),
        Datum::Int4(n) | Datum::Date(n) => signed(i64::from(n)),
        Datum::Int8(n) | Datum::Timestamp(n) | Datum::TimestampTz(n) | Datum::Time(n) => signed(n),
        Datum::Bool(b) => u64::from(b),
        Datum::Uuid(u) => bytes_prefix(&u),
        Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) | Datum::Interval(_) | Datum::Array(_) => 0,
    }
}

fn bytes_prefix(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let n = bytes.len().min(8);
    head[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::{SqlError, SqlState};

    /// Returns unsorted numbers, each with its index.
    fn mixed(count: usize) -> Vec<(usize, usize)> {
        (0..count).map(|n| (n * 48_271 % 1_009, n)).collect()
    }

    #[test]
    fn steps_give_what_one_stable_sort_gives() {
        for count in [0, 1, STEP_ROWS, STEP_ROWS + 1, 3 * STEP_ROWS + 5, 4 * STEP_ROWS] {
            let (mut rows, mut expected) = (mixed(count), mixed(count));
            sort_in_steps(&mut rows, |a, b| a.0.cmp(&b.0), || Ok(())).unwrap();
            expected.sort_by_key(|row| row.0);
            assert!(rows == expected, "{count} rows");
        }
    }

    #[test]
    fn a_sort_ends_between_two_steps() {
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() < 6 { Ok(()) } else { Err(SqlError::new(SqlState::QUERY_CANCELED, "stop")) }
        };
        let mut rows = mixed(8 * STEP_ROWS);
        sort_in_steps(&mut rows, |a, b| a.0.cmp(&b.0), look).unwrap_err();
        assert_eq!(looks.get(), 6);
    }
}
