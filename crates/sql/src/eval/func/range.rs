//! Compares a key with the bounds of a range. The result decides to which partition of a table with PARTITION
//! BY RANGE a row belongs.
//!
//! This module knows nothing about tables.

use std::cmp::Ordering;

use varve_engine::Datum;

use super::{Builtin, Run};
use crate::error::{Result, SqlError};
use crate::eval::Cx;
use crate::ty::Ty;

/// Place of an edge below all values.
pub const BELOW: i64 = -1;
/// Place of an edge at a value.
pub const AT: i64 = 0;
/// Place of an edge above all values.
pub const ABOVE: i64 = 1;

/// Arguments for each column of the key.
const EACH: usize = 5;

/// Whether a row is in a part: for each column of the key the place and value where the part begins, those
/// where it ends, and the column. Called by conditions that the binder makes.
pub static IN_RANGE: Builtin = Builtin {
    name: "in range part",
    arguments: &[Ty::Unknown],
    variadic: true,
    result: Ty::Bool,
    strict: false,
    volatile: false,
    world: false,
    run: in_range as Run,
};

fn in_range<'a>(arguments: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    let (groups, rest) = arguments.as_chunks::<EACH>();
    if !rest.is_empty() {
        return Err(SqlError::internal("a range has two ends for each column"));
    }
    let edge = |place: Datum<'a>, value: Datum<'a>| (place.as_integer().unwrap_or(AT), value);
    let from = groups.iter().map(|g| edge(g[0], g[1]));
    let to = groups.iter().map(|g| edge(g[2], g[3]));
    let key = || groups.iter().map(|g| g[4]);
    let is_in = key().all(|value| !value.is_null()) && order(from, key()).is_le() && order(to, key()).is_gt();
    Ok(Datum::Bool(is_in))
}

/// Order of one end of a range to a key; an edge is its place and, where that is [`AT`], its value.
pub fn order<'a, 'b>(
    edges: impl Iterator<Item = (i64, Datum<'a>)>,
    key: impl Iterator<Item = Datum<'b>>,
) -> Ordering {
    let mut orders = edges.zip(key).map(|((place, edge), value)| match place {
        AT => edge.order(&value),
        place => place.cmp(&AT),
    });
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
