//! Compares a key with the bounds of a range. The result decides to which partition of a table with PARTITION
//! BY RANGE a row belongs.
//!
//! This module does not know tables.

use std::cmp::Ordering;

use varve_engine::Datum;

use super::{Builtin, Run};
use crate::error::{Result, SqlError};
use crate::eval::Cx;
use crate::ty::Ty;

/// The bound is below all values.
pub const BELOW: i64 = -1;
/// The bound is at a value.
pub const AT: i64 = 0;
/// The bound is above all values.
pub const ABOVE: i64 = 1;

/// The number of arguments for each column of the key.
const EACH: usize = 5;

/// Whether a row is in a partition. The arguments for each column of the key are the kind and value of the
/// lower bound, the kind and value of the upper bound, and the column. Only conditions that the binder makes
/// call this function.
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

/// Compares a bound of a range with a key. For each column, the bound has a kind and, for [`AT`], a value.
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
