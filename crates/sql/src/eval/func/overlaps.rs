//! Computes OVERLAPS: whether two periods have a point in time in common.
//!
//! Source: SQL:2016, 8.14. Where the standard leaves a case open, the behaviour is PostgreSQL's.
//!
//! This module does not know how dates become timestamps.

use varve_engine::{Datum, Interval};

use super::{Builtin, loose};
use crate::error::Result;
use crate::eval::Cx;
use crate::time::{self, DAY_US};
use crate::ty::Ty::{self, Bool, Time, Timestamp, TimestampTz};

const SPAN: Ty = Ty::Interval;

pub(super) const TABLE: &[Builtin] = &[
    loose("overlaps", &[TimestampTz, TimestampTz, TimestampTz, TimestampTz], Bool, overlaps),
    loose("overlaps", &[TimestampTz, SPAN, TimestampTz, SPAN], Bool, overlaps),
    loose("overlaps", &[TimestampTz, SPAN, TimestampTz, TimestampTz], Bool, overlaps),
    loose("overlaps", &[TimestampTz, TimestampTz, TimestampTz, SPAN], Bool, overlaps),
    loose("overlaps", &[Timestamp, Timestamp, Timestamp, Timestamp], Bool, overlaps),
    loose("overlaps", &[Timestamp, SPAN, Timestamp, SPAN], Bool, overlaps),
    loose("overlaps", &[Timestamp, SPAN, Timestamp, Timestamp], Bool, overlaps),
    loose("overlaps", &[Timestamp, Timestamp, Timestamp, SPAN], Bool, overlaps),
    loose("overlaps", &[Time, Time, Time, Time], Bool, overlaps),
    loose("overlaps", &[Time, SPAN, Time, SPAN], Bool, overlaps),
    loose("overlaps", &[Time, SPAN, Time, Time], Bool, overlaps),
    loose("overlaps", &[Time, Time, Time, SPAN], Bool, overlaps),
];

fn overlaps<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let [first, first_end, second, second_end] = a else { return Ok(Datum::Null) };
    let one = period(*first, *first_end, cx)?;
    let other = period(*second, *second_end, cx)?;
    Ok(one.zip(other).and_then(|(one, other)| common(one, other)).map_or(Datum::Null, Datum::Bool))
}

/// Returns an end of a period as microseconds.
fn moment(value: Datum<'_>) -> Option<i64> {
    match value {
        Datum::Timestamp(at) | Datum::TimestampTz(at) | Datum::Time(at) => Some(at),
        _ => None,
    }
}

/// Returns the ends of a period, the earlier one first. If one end is NULL, it counts as the later one.
/// Returns `None` if both are NULL.
fn period(start: Datum<'_>, end: Datum<'_>, cx: &Cx<'_>) -> Result<Option<(i64, Option<i64>)>> {
    let end = match end {
        Datum::Interval(span) => later(start, span, cx)?,
        end => moment(end),
    };
    Ok(match (moment(start), end) {
        (Some(start), Some(end)) => Some((start.min(end), Some(start.max(end)))),
        (one, other) => one.or(other).map(|at| (at, None)),
    })
}

fn later(start: Datum<'_>, span: Interval, cx: &Cx<'_>) -> Result<Option<i64>> {
    Ok(match start {
        Datum::Timestamp(at) => Some(time::add_interval(at, span)?),
        Datum::TimestampTz(at) => Some(time::add_interval_in(at, span, cx.env.zone())?),
        Datum::Time(at) => {
            Some((i128::from(at) + i128::from(span.micros)).rem_euclid(i128::from(DAY_US)) as i64)
        }
        _ => None,
    })
}

/// Returns whether the periods overlap, or `None` if this depends on an unknown end.
fn common(one: (i64, Option<i64>), other: (i64, Option<i64>)) -> Option<bool> {
    let (first, then) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    if first.0 == then.0 {
        return first.1.and(then.1).map(|_| true);
    }
    match first.1? {
        end if then.0 < end => Some(true),
        _ => then.1.map(|_| false),
    }
}
