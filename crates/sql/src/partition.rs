//! Finds the partition of a row, and compares the bounds of partitions.
//!
//! Invariants
//! 1. A row is in at most one partition, because no two bounds have a common key, and DEFAULT takes the other
//!    keys.

use std::cmp::Ordering;

use varve_engine::{Bound, Datum, Edge, Part, Partitions, key_hash};

use crate::eval::func::range;

/// Returns the partition of a row. `column` returns the row's columns by ordinal.
pub fn of_row<'p, 'a>(partitions: &'p Partitions, column: impl Fn(usize) -> Datum<'a>) -> Option<&'p Part> {
    let key = || partitions.columns.iter().map(|c| column(*c));
    let by_hash = partitions.parts.iter().any(|part| matches!(part.bound, Bound::Hash { .. }));
    let hash = if by_hash { key_hash(key()) } else { 0 };
    let mut parts = partitions.parts.iter();
    let found = parts.find(|part| match &part.bound {
        Bound::Hash { modulus, remainder } => hash % u64::from(*modulus) == u64::from(*remainder),
        Bound::Range { from, to } => {
            key().all(|value| !value.is_null())
                && range::order(placed(from), key()).is_le()
                && range::order(placed(to), key()).is_gt()
        }
        Bound::Default => false,
    });
    found.or_else(|| default(partitions))
}

/// Returns the default partition, which takes all other keys.
pub fn default(partitions: &Partitions) -> Option<&Part> {
    partitions.parts.iter().find(|part| part.bound == Bound::Default)
}

/// Returns edges in the form for `range::order`.
pub fn placed(edges: &[Edge]) -> impl Iterator<Item = (i64, Datum<'_>)> {
    edges.iter().map(|edge| match edge {
        Edge::Least => (range::BELOW, Datum::Null),
        Edge::At(value) => (range::AT, value.as_datum()),
        Edge::Greatest => (range::ABOVE, Datum::Null),
    })
}

/// Returns whether one bound of a range is before another.
pub fn is_before(a: &[Edge], b: &[Edge]) -> bool {
    let orders = placed(a).zip(placed(b)).map(|((place, value), (other_place, other))| {
        let order = place.cmp(&other_place);
        // Values after MINVALUE and MAXVALUE have no effect.
        let decides = order.is_ne() || place != range::AT;
        (order.then_with(|| if place == range::AT { value.order(&other) } else { Ordering::Equal }), decides)
    });
    let mut orders = orders.skip_while(|(order, decides)| order.is_eq() && !decides);
    orders.next().is_some_and(|(order, _)| order.is_lt())
}
