//! Casts between types.
//!
//! Invariants
//! 1. The result has the target type and obeys its modifier. A value that is too long is an error, except
//!    that an explicit cast to char(n) or varchar(n) truncates it.
//! 2. The cast of NULL is NULL.
//!
//! This module does not know which casts are allowed where (`ty::cast_level`).

use varve_engine::{Datum, Interval, Numeric, Special, Value};

use super::arith::{self, Class};
use super::{Cx, number, reg};
use crate::error::{Result, SqlError, SqlState};
use crate::text;
use crate::time::{self, DAY_US};
use crate::ty::{Ty, Typed};

/// Casts one value.
pub fn apply<'a>(value: Datum<'a>, from: Ty, to: Typed, explicit: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    if let Some((_, digits)) = to.digits() {
        let value = match (value, to.fields()) {
            (Datum::Text(text), Some(fields)) => {
                Datum::Interval(time::parse_interval_of(text, cx.env.forms.intervals, fields)?)
            }
            _ => apply(value, from, Typed::plain(to.ty), explicit, cx)?,
        };
        return time::rounded(value, digits);
    }
    match to.ty {
        // An OID is converted by its 32 bits.
        Ty::Int4 if matches!(from, Ty::Oid | Ty::Reg(_)) => {
            Ok(Datum::Int4(value.as_integer().unwrap_or(0) as u32 as i32))
        }
        Ty::Int2 | Ty::Int4 | Ty::Int8 => to_integer(value, to, cx),
        Ty::Float4 => match to_float(value, Ty::Float4, cx)? {
            Datum::Float8(wide) => arith::narrow_float(wide).map(Datum::Float4),
            same => Ok(same),
        },
        Ty::Float8 => to_float(value, Ty::Float8, cx),
        Ty::Numeric => to_numeric(value, to, cx),
        Ty::Date | Ty::Timestamp | Ty::TimestampTz => to_moment(value, to, cx),
        Ty::Interval => match value {
            Datum::Time(micros) => Ok(Datum::Interval(Interval { micros, ..Interval::default() })),
            other => from_text(other, to, cx),
        },
        Ty::Time => to_time(value, cx),
        Ty::Oid => to_oid(value, to, cx),
        Ty::Reg(kind) => match value {
            Datum::Text(name) => reg::read(kind, name, cx),
            number => to_oid(number, to, cx),
        },
        Ty::Array(_) | Ty::Int2Vector | Ty::OidVector => to_array(value, from, to, explicit, cx),
        Ty::Bool => match value {
            Datum::Int4(n) => Ok(Datum::Bool(n != 0)),
            other => from_text(other, to, cx),
        },
        Ty::Bytea | Ty::Uuid | Ty::Json => from_text(value, to, cx),
        _ => match from {
            Ty::Reg(kind) => to_string(reg::shown(kind, value, cx)?, to, explicit, cx),
            Ty::Char => match value {
                Datum::Text(t) => to_string(Datum::Text(t.trim_end_matches(' ')), to, explicit, cx),
                other => to_string(other, to, explicit, cx),
            },
            _ => to_string(value, to, explicit, cx),
        },
    }
}

/// Reads a text as a value of the target type. Other values are returned unchanged.
fn from_text<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Datum::Text(t) = value else { return Ok(value) };
    Ok(cx.keep_value(text::parse_as(t, to.ty.oid(), &cx.env.reading())?))
}

fn to_time<'a>(value: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let of_day = |local: i64| match time::is_infinite(local) {
        true => Datum::Null,
        false => Datum::Time(local.rem_euclid(DAY_US)),
    };
    Ok(match value {
        Datum::Interval(iv) => Datum::Time(iv.micros.rem_euclid(DAY_US)),
        Datum::Timestamp(t) => of_day(t),
        Datum::TimestampTz(t) => of_day(cx.env.zone().to_local(t)?),
        Datum::Text(_) => return from_text(value, Typed::plain(Ty::Time), cx),
        same => same,
    })
}

/// Converts an integer to an OID by its 32 bits. So a negative integer becomes a large OID.
fn to_oid<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let oid = match value {
        Datum::Int2(n) => i64::from(i32::from(n) as u32),
        Datum::Int4(n) => i64::from(n as u32),
        Datum::Int8(n) if u32::try_from(n).is_ok() => n,
        Datum::Int8(_) => return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "OID out of range")),
        other => return from_text(other, to, cx),
    };
    Ok(Datum::Int8(oid))
}

/// Casts an array element by element. A text is read as an array.
fn to_array<'a>(value: Datum<'a>, from: Ty, to: Typed, explicit: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (Datum::Array(array), Some(target)) = (value, to.ty.element()) else {
        return from_text(value, to, cx);
    };
    let source = from.element().unwrap_or(target);
    let mut out = crate::array::of(target.oid());
    for element in array.iter() {
        out.push(apply(element, source, Typed { ty: target, ..to }, explicit, cx)?);
    }
    Ok(cx.keep_value(Value::Array(out.starting_at(array.lower_bound()))))
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
        Datum::Float4(f) => float_to_i64(f64::from(f)),
        Datum::Float8(f) => float_to_i64(f),
        Datum::Numeric(n) => {
            if let Some(special) = n.as_special() {
                return Err(no_integer(special, to.ty));
            }
            n.to_i64()
        }
        other => return from_text(other, to, cx),
    };
    arith::narrow(class_of(to.ty), whole)
}

/// Returns the error 0A000: NaN or an infinity cannot become an integer.
pub fn no_integer(special: Special, to: Ty) -> SqlError {
    let what = if special == Special::NaN { "NaN" } else { "infinity" };
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {}", to.name()))
}

/// Rounds half to even, as rint does for PostgreSQL.
fn float_to_i64(f: f64) -> Option<i64> {
    let rounded = f.round_ties_even();
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
    in_range.then_some(rounded as i64)
}

/// Converts a number or a text to double or real.
fn to_float<'a>(value: Datum<'a>, ty: Ty, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match value {
        Datum::Float4(f) if ty == Ty::Float8 => Datum::Float8(f64::from(f)),
        Datum::Float4(_) | Datum::Float8(_) => value,
        // The digits are rounded once, directly to the nearest real. Rounding to a double first could give
        // another result.
        Datum::Numeric(n) if ty == Ty::Float4 => {
            cx.keep_value(text::parse_as(&n.to_string(), ty.oid(), &cx.env.reading())?)
        }
        Datum::Numeric(n) => Datum::Float8(number::to_float(n)?),
        Datum::Text(_) => return from_text(value, Typed::plain(ty), cx),
        // An integer is also rounded only once.
        other if ty == Ty::Float4 => Datum::Float4(other.as_integer().unwrap_or(0) as f32),
        other => Datum::Float8(other.as_integer().unwrap_or(0) as f64),
    })
}

fn to_numeric<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let n = match value {
        Datum::Numeric(_) if to.precision().is_none() => return Ok(value),
        Datum::Numeric(n) => n.to_owned(),
        // Only the six digits that every real has are taken.
        Datum::Float4(f) => float_to_numeric(format!("{f:.5e}").parse().unwrap_or(f64::from(f)))?,
        Datum::Float8(f) => float_to_numeric(f)?,
        Datum::Text(t) => text::parse_numeric(t)?,
        other => Numeric::from_i64(other.as_integer().unwrap_or(0)),
    };
    Ok(arith::numeric(&text::fit(n, to.precision())?, cx))
}

fn float_to_numeric(f: f64) -> Result<Numeric> {
    Numeric::from_f64(f).map_err(|_| text::numeric_overflow())
}

fn to_moment<'a>(value: Datum<'a>, to: Typed, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let zone = cx.env.zone();
    Ok(match (to.ty, value) {
        (Ty::Timestamp, Datum::Date(d)) => Datum::Timestamp(time::date_to_timestamp(d)?),
        (Ty::Timestamp, Datum::TimestampTz(t)) => Datum::Timestamp(zone.to_local(t)?),
        (Ty::TimestampTz, Datum::Date(d)) => Datum::TimestampTz(zone.to_utc(time::date_to_timestamp(d)?)?),
        (Ty::TimestampTz, Datum::Timestamp(t)) => Datum::TimestampTz(zone.to_utc(t)?),
        (Ty::Date, Datum::Timestamp(t)) => Datum::Date(time::timestamp_to_date(t)),
        (Ty::Date, Datum::TimestampTz(t)) => Datum::Date(time::timestamp_to_date(zone.to_local(t)?)),
        (_, Datum::Text(_)) => return from_text(value, to, cx),
        (_, same) => same,
    })
}

fn to_string<'a>(value: Datum<'a>, to: Typed, explicit: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let text = match value {
        Datum::Text(t) => t,
        Datum::Bool(b) => {
            if b {
                "true"
            } else {
                "false"
            }
        }
        other => shown(other, cx)?,
    };
    let fitted = match (to.ty, to.length()) {
        (Ty::Char, Some(n)) if explicit => truncated(text, n).trim_end_matches(' '),
        (Ty::Varchar, Some(n)) if explicit => truncated(text, n),
        (Ty::Char, Some(n)) => text::fit_char(text, n)?,
        (Ty::Varchar, Some(n)) => text::fit_varchar(text, n)?,
        (Ty::Char, None) => text.trim_end_matches(' '),
        (Ty::Name, _) => truncated_bytes(text, 63),
        (Ty::Char1, _) => text::first_byte(text),
        _ => text,
    };
    Ok(Datum::Text(fitted))
}

/// Returns the output text of a value, in the arena.
pub fn shown<'a>(value: Datum<'a>, cx: &Cx<'a>) -> Result<&'a str> {
    if let Datum::Text(t) = value {
        return Ok(t);
    }
    let mut out = Vec::with_capacity(32);
    text::write_with(value, cx.env.forms, &mut out);
    let made = String::from_utf8(out).map_err(|_| SqlError::internal("text output is not UTF-8"))?;
    Ok(cx.arena.alloc_str(&made))
}

fn truncated(text: &str, n: usize) -> &str {
    text.char_indices().nth(n).map_or(text, |(cut, _)| &text[..cut])
}

fn truncated_bytes(text: &str, n: usize) -> &str {
    &text[..text.floor_char_boundary(n)]
}
