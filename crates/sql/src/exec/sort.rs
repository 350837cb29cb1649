//! ORDER BY and DISTINCT over rows held in the result arena.
//!
//! Invariants
//! 1. DISTINCT sorts by the ORDER BY keys, then by all other shown columns, and drops equal neighbours.
//! 2. The prefix of a row never contradicts the full comparison of its first key.
//!
//! Does not know: where rows came from.

use std::cmp::Ordering;

use varve_engine::Datum;

use crate::plan::SortKey;

/// A collected row.
#[derive(Clone, Copy)]
pub struct Held<'s> {
    /// Beginning of the first sort key, as a number in its order.
    prefix: u64,
    /// All outputs.
    pub row: &'s [Datum<'s>],
}

/// Sort keys with what DISTINCT adds.
pub struct Sorter {
    keys: Vec<SortKey>,
    visible: usize,
    distinct: bool,
    /// The first key sorts NULL as the largest value, so prefixes may be used.
    prefixed: bool,
}

impl Sorter {
    /// For these clauses.
    pub fn new(order: &[SortKey], visible: usize, distinct: bool) -> Sorter {
        let mut keys = order.to_vec();
        if distinct {
            let missing = (0..visible).filter(|o| !order.iter().any(|k| k.output == *o));
            keys.extend(missing.map(|output| SortKey { output, descending: false, nulls_first: false }));
        }
        let prefixed = keys.first().is_some_and(|k| k.nulls_first == k.descending);
        Sorter { keys, visible, distinct, prefixed }
    }

    /// A row ready to be sorted.
    pub fn hold<'s>(&self, row: &'s [Datum<'s>]) -> Held<'s> {
        let prefix = match self.keys.first() {
            Some(key) if self.prefixed => prefix(row[key.output]),
            _ => 0,
        };
        Held { prefix, row }
    }

    /// Sorts, and drops duplicates if so asked.
    pub fn sort(&self, rows: &mut Vec<Held<'_>>) {
        let descending = self.keys.first().is_some_and(|k| k.descending);
        rows.sort_by(|a, b| {
            let by_prefix = if descending { b.prefix.cmp(&a.prefix) } else { a.prefix.cmp(&b.prefix) };
            by_prefix.then_with(|| self.compare(a.row, b.row))
        });
        if self.distinct {
            let visible = self.visible;
            rows.dedup_by(|b, a| {
                a.prefix == b.prefix
                    && a.row[..visible].iter().zip(&b.row[..visible]).all(|(x, y)| x.order(y).is_eq())
            });
        }
    }

    /// The numbers that come with the rows, in the order of the rows.
    pub fn order_of(&self, rows: &[(Held<'_>, usize)]) -> Vec<usize> {
        let mut refs: Vec<&(Held<'_>, usize)> = rows.iter().collect();
        refs.sort_by(|a, b| self.compare(a.0.row, b.0.row));
        refs.into_iter().map(|(_, n)| *n).collect()
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

/// The first eight bytes of a value's order; NULL above all, 0 where the type has no cheap prefix.
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
