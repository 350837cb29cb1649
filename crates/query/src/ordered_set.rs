//! Aggregates of sorted values: percentile_cont, percentile_disc, mode.
//!
//! This module does not know how values are collected and sorted (`aggregate`).

use varve_engine::{Array, Datum, Value};
use varve_sql::general::{AggKind, SqlError, SqlState, interpolated};

/// The sort key of a value, the value, and the second argument of the aggregate, such as a fraction.
pub type Placed = (Box<[u8]>, Value, Value);

/// Returns the result of the aggregate over sorted values. There must be at least one value.
pub fn result(kind: AggKind, rows: &[&Placed]) -> varve_sql::Result<Value> {
    if kind == AggKind::Mode {
        return Ok(most_frequent(rows));
    }
    let fraction = match rows.first() {
        Some((_, _, Value::Float8(f))) => *f,
        _ => return Ok(Value::Null),
    };
    percentile(kind == AggKind::PercentileDisc, fraction, rows)
}

/// Returns an array with the percentile for each fraction of an array. `made` is the empty array to which
/// they are added.
pub fn results(kind: AggKind, rows: &[&Placed], mut made: Array) -> varve_sql::Result<Value> {
    let Some(Datum::Array(fractions)) = rows.first().map(|row| row.2.as_datum()) else {
        return Ok(Value::Null);
    };
    for fraction in fractions.iter() {
        let value = match fraction {
            Datum::Float8(fraction) => percentile(kind == AggKind::PercentilesDisc, fraction, rows)?,
            _ => Value::Null,
        };
        made.push(value.as_datum());
    }
    Ok(Value::Array(made.starting_at(fractions.lower_bound())))
}

fn percentile(is_discrete: bool, fraction: f64, rows: &[&Placed]) -> varve_sql::Result<Value> {
    if !(0.0..=1.0).contains(&fraction) {
        let message = format!("percentile value {fraction} is not between 0 and 1");
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    let value = |n: usize| rows.get(n).map_or(Value::Null, |(_, value, _)| value.clone());
    if is_discrete {
        let number = (fraction * rows.len() as f64).ceil() as usize;
        return Ok(value(number.saturating_sub(1)));
    }
    let at = fraction * (rows.len() - 1) as f64;
    let (low, high) = (at.floor(), at.ceil());
    if low == high {
        return Ok(value(low as usize));
    }
    interpolated(&value(low as usize), &value(high as usize), at - low)
}

/// Returns the most frequent value. If there are several, it is the first of them.
fn most_frequent(rows: &[&Placed]) -> Value {
    let mut best: &[&Placed] = &[];
    for equal in rows.chunk_by(|a, b| a.0 == b.0) {
        if equal.len() > best.len() {
            best = equal;
        }
    }
    best.first().map_or(Value::Null, |(_, value, _)| value.clone())
}
