//! Casts between types.
//!
//! Invariants
//! 1. The result has the target's type and obeys its modifier; what does not fit is an error, never cut, except that an
//!    explicit cast to char(n) or varchar(n) truncates.
//! 2. NULL in, NULL out.
//!
//! Does not know: which casts are allowed where (`ty::cast_level`).

use varve_engine::{Datum, Numeric};

use super::arith::{self, Class};
use super::{Cx, number};
use crate::error::{Result, SqlError, SqlState};
use crate::text;
use crate::time::{self, DAY_US};
use crate::ty::{Ty, Typed};

/// Casts one value.
pub fn apply<'a>(value: Datum<'a>, from: Ty, to: Typed, explicit: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    match to.ty {
        Ty::Int2 | Ty::Int4 | Ty::Int8 => to_integer(value, to, cx),
        Ty::Float8 => to_float(value, cx),
        Ty::Numeric => to_numeric(value, to, cx),
        Ty::Date | Ty::Timestamp | Ty::TimestampTz => to_moment(value, to, cx),
        Ty::Interval => match value {
            Datum::Text(t) => Ok(arith::pack_interval(time::parse_interval(t)?, cx)),
            other => Ok(other),
        },
        Ty::Bool => match value {
            Datum::Int4(n) => Ok(Datum::Bool(n != 0)),
            other => from_text(other, to, cx),
        },
        Ty::Bytea => from_text(value, to, cx),
        _ => to_string(value, from, to, explicit, cx),
    }
}

/// Values that are no text pass; text is read as the target.
fn from_text<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Datum::Text(t) = value else { return Ok(value) };
    Ok(cx.keep_value(text::parse_in_zone(t, &to.ty.column_type(), cx.env.zone)?))
}

fn class_of(ty: Ty) -> Class {
    match ty {
        Ty::Int2 => Class::Int2,
        Ty::Int4 => Class::Int4,
        _ => Class::Int8,
    }
}

fn to_integer<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let whole = match value {
        Datum::Int2(n) => Some(i64::from(n)),
        Datum::Int4(n) => Some(i64::from(n)),
        Datum::Int8(n) => Some(n),
        Datum::Bool(b) => Some(i64::from(b)),
        Datum::Float8(f) => float_to_i64(f),
        Datum::Numeric(n) if n.is_nan() => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot convert NaN to {}", to.ty.name()),
            ));
        }
        Datum::Numeric(n) => n.to_i64(),
        other => return from_text(other, to, cx),
    };
    arith::narrow(class_of(to.ty), whole)
}

/// Rounds half to even, as rint does for PostgreSQL.
fn float_to_i64(f: f64) -> Option<i64> {
    let rounded = f.round_ties_even();
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
    in_range.then_some(rounded as i64)
}

fn to_float<'a>(value: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match value {
        Datum::Float8(f) => Datum::Float8(f),
        Datum::Numeric(n) => Datum::Float8(number::to_float(n)?),
        Datum::Text(_) => return from_text(value, Typed::plain(Ty::Float8), cx),
        other => Datum::Float8(other.as_integer().unwrap_or(0) as f64),
    })
}

fn to_numeric<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let n = match value {
        Datum::Numeric(_) if to.precision().is_none() => return Ok(value),
        Datum::Numeric(n) => n.to_owned(),
        Datum::Float8(f) => Numeric::from_f64(f).map_err(|_| {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot convert infinity to numeric")
        })?,
        Datum::Text(t) => text::parse_numeric(t)?,
        other => Numeric::from_i64(other.as_integer().unwrap_or(0)),
    };
    Ok(arith::numeric(&text::fit(n, to.precision())?, cx))
}

fn to_moment<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let zone = cx.env.zone;
    Ok(match (to.ty, value) {
        (Ty::Timestamp, Datum::Date(d)) => Datum::Timestamp(time::date_to_timestamp(d)?),
        (Ty::Timestamp, Datum::TimestampTz(t)) => Datum::Timestamp(zone.to_local(t)?),
        (Ty::TimestampTz, Datum::Date(d)) => Datum::TimestampTz(zone.to_utc(time::date_to_timestamp(d)?)?),
        (Ty::TimestampTz, Datum::Timestamp(t)) => Datum::TimestampTz(zone.to_utc(t)?),
        (Ty::Date, Datum::Timestamp(t)) => Datum::Date(time::timestamp_to_date(t)),
        (Ty::Date, Datum::TimestampTz(t)) => Datum::Date(time::timestamp_to_date(zone.to_local(t)?)),
        (ty, Datum::Text(t)) => match special_moment(t) {
            Some(special) => special_value(ty, special, cx)?,
            None => return from_text(value, to, cx),
        },
        (_, same) => same,
    })
}

/// `now`, `today` and neighbours: days to add, and whether the time of day stays.
fn special_moment(text: &str) -> Option<(i32, bool)> {
    match text.trim() {
        "now" => Some((0, true)),
        "today" => Some((0, false)),
        "tomorrow" => Some((1, false)),
        "yesterday" => Some((-1, false)),
        _ => None,
    }
}

fn special_value<'a>(ty: Ty, (days, with_time): (i32, bool), cx: &Cx<'a>) -> Result<Datum<'a>> {
    let now = cx.env.zone.to_local(cx.env.now_us())?;
    let base = if with_time { now } else { now.div_euclid(DAY_US) * DAY_US };
    let local = base + i64::from(days) * DAY_US;
    Ok(match ty {
        Ty::Date => Datum::Date(time::timestamp_to_date(local)),
        Ty::TimestampTz => Datum::TimestampTz(cx.env.zone.to_utc(local)?),
        _ => Datum::Timestamp(local),
    })
}

fn to_string<'a>(value: Datum<'a>, from: Ty, to: Typed, explicit: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let text = match value {
        Datum::Text(t) => t,
        Datum::Bool(b) => {
            if b {
                "true"
            } else {
                "false"
            }
        }
        other => shown(other, from, cx)?,
    };
    let fitted = match (to.ty, to.length()) {
        (Ty::Char, Some(n)) if explicit => truncated(text, n).trim_end_matches(' '),
        (Ty::Varchar, Some(n)) if explicit => truncated(text, n),
        (Ty::Char, Some(n)) => text::fit_char(text, n)?,
        (Ty::Varchar, Some(n)) => text::fit_varchar(text, n)?,
        (Ty::Char, None) => text.trim_end_matches(' '),
        (Ty::Name, _) => truncated_bytes(text, 63),
        _ => text,
    };
    Ok(Datum::Text(fitted))
}

/// A value's text in the arena, as its output function shows it.
pub fn shown<'a>(value: Datum<'a>, from: Ty, cx: &Cx<'a>) -> Result<&'a str> {
    if let Datum::Text(t) = value {
        return Ok(t);
    }
    let mut out = Vec::with_capacity(32);
    if from == Ty::Interval {
        time::write_interval(arith::unpack_interval(value)?, &mut out);
    } else {
        text::write_in_zone(value, cx.env.zone, &mut out);
    }
    let made = String::from_utf8(out).map_err(|_| SqlError::internal("text output is not UTF-8"))?;
    Ok(cx.arena.alloc_str(&made))
}

fn truncated(text: &str, n: usize) -> &str {
    text.char_indices().nth(n).map_or(text, |(cut, _)| &text[..cut])
}

fn truncated_bytes(text: &str, n: usize) -> &str {
    &text[..text.floor_char_boundary(n)]
}
