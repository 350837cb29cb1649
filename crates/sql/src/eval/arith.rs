//! Arithmetic operators.
//!
//! Invariants
//! 1. Both operands already have the operator's type. If an operand is NULL, the result is NULL.
//! 2. Integer overflow is an error (22003), never a wrapped value. Division by zero is an error (22012).
//!
//! This module does not know how the type was chosen (`bind`).

use varve_engine::{Datum, Numeric};

use super::{Cx, number};
use crate::error::{Result, SqlError, SqlState};
use crate::time::{self, DAY_US, Interval};

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithOp {
    /// +
    Add,
    /// -
    Subtract,
    /// *
    Multiply,
    /// /
    Divide,
    /// %
    Remainder,
    /// &
    BitAnd,
    /// |
    BitOr,
    /// #
    BitXor,
    /// <<
    ShiftLeft,
    /// >>
    ShiftRight,
}

/// The types of an operator's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// numeric
    Numeric,
    /// A date and a number of days.
    DateDays,
    /// Two dates. The result is the number of days between them.
    DateDate,
    /// A timestamp (with or without time zone) and an interval.
    MomentInterval,
    /// Two timestamps. The result is an interval.
    Moments,
    /// Two intervals.
    Intervals,
    /// An interval and a double.
    IntervalFactor,
    /// A time of day and an interval.
    TimeInterval,
    /// Two times of day. The result is an interval.
    Times,
    /// A date and a time of day. The result is a timestamp.
    DateTime,
}

/// Computes `left op right`.
pub fn apply<'a>(
    op: ArithOp,
    class: Class,
    left: Datum<'a>,
    right: Datum<'a>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    if left.is_null() || right.is_null() {
        return Ok(Datum::Null);
    }
    match (class, left, right) {
        (Class::Int2 | Class::Int4 | Class::Int8, a, b) => integers(op, class, a, b),
        (Class::Float8, Datum::Float8(a), Datum::Float8(b)) => floats(op, a, b).map(Datum::Float8),
        (Class::Float4, Datum::Float4(a), Datum::Float4(b)) => small_floats(op, a, b).map(Datum::Float4),
        (Class::Numeric, Datum::Numeric(a), Datum::Numeric(b)) => {
            let result = match op {
                ArithOp::Add => number::add(a, b),
                ArithOp::Subtract => number::subtract(a, b),
                ArithOp::Multiply => number::multiply(a, b),
                ArithOp::Divide => number::divide(a, b),
                _ => number::remainder(a, b),
            };
            result.map(|n| numeric(&n, cx))
        }
        (_, a, b) => moments(op, class, a, b, cx),
    }
}

/// Copies a numeric into the arena.
pub fn numeric<'a>(n: &Numeric, cx: &Cx<'a>) -> Datum<'a> {
    cx.keep(Datum::Numeric(n.as_ref()))
}

fn integers<'a>(op: ArithOp, class: Class, left: Datum<'a>, right: Datum<'a>) -> Result<Datum<'a>> {
    let (Some(a), Some(b)) = (left.as_integer(), right.as_integer()) else {
        return Err(SqlError::internal("integer arithmetic on other values"));
    };
    let result = match op {
        ArithOp::Add => a.checked_add(b),
        ArithOp::Subtract => a.checked_sub(b),
        ArithOp::Multiply => a.checked_mul(b),
        ArithOp::Divide | ArithOp::Remainder if b == 0 => return Err(number::division_by_zero()),
        ArithOp::Divide => a.checked_div(b),
        ArithOp::Remainder => Some(a.wrapping_rem(b)),
        ArithOp::BitAnd => Some(a & b),
        ArithOp::BitOr => Some(a | b),
        ArithOp::BitXor => Some(a ^ b),
        ArithOp::ShiftLeft => return Ok(shift(class, a, b, true)),
        ArithOp::ShiftRight => return Ok(shift(class, a, b, false)),
    };
    narrow(class, result)
}

/// Shifts an integer. The number of bits counts modulo the width, as the processor does it for PostgreSQL.
fn shift<'a>(class: Class, a: i64, b: i64, left: bool) -> Datum<'a> {
    let by = b as u32;
    match class {
        Class::Int8 if left => Datum::Int8(a.wrapping_shl(by)),
        Class::Int8 => Datum::Int8(a.wrapping_shr(by)),
        // PostgreSQL shifts a smallint as an integer and truncates the result.
        Class::Int2 if left => Datum::Int2((a as i32).wrapping_shl(by) as i16),
        Class::Int2 => Datum::Int2((a as i32).wrapping_shr(by) as i16),
        _ if left => Datum::Int4((a as i32).wrapping_shl(by)),
        _ => Datum::Int4((a as i32).wrapping_shr(by)),
    }
}

/// Converts the result to its own width. Fails with 22003 if it does not fit.
pub fn narrow<'a>(class: Class, result: Option<i64>) -> Result<Datum<'a>> {
    let datum = match class {
        Class::Int2 => result.and_then(|n| i16::try_from(n).ok()).map(Datum::Int2),
        Class::Int4 => result.and_then(|n| i32::try_from(n).ok()).map(Datum::Int4),
        _ => result.map(Datum::Int8),
    };
    datum.ok_or_else(|| {
        let name = match class {
            Class::Int2 => "smallint",
            Class::Int4 => "integer",
            _ => "bigint",
        };
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, format!("{name} out of range"))
    })
}

fn floats(op: ArithOp, a: f64, b: f64) -> Result<f64> {
    let result = match op {
        ArithOp::Add => a + b,
        ArithOp::Subtract => a - b,
        ArithOp::Multiply => a * b,
        _ if b == 0.0 && !a.is_nan() => return Err(number::division_by_zero()),
        _ => a / b,
    };
    let lost_operand = a == 0.0 || (op == ArithOp::Multiply && b == 0.0) || b.is_infinite();
    check_float(
        result,
        a.is_infinite() || b.is_infinite(),
        matches!(op, ArithOp::Add | ArithOp::Subtract) || lost_operand,
    )
}

/// Computes with doubles. Fails if a real cannot hold the result.
fn small_floats(op: ArithOp, a: f32, b: f32) -> Result<f32> {
    let wide = floats(op, f64::from(a), f64::from(b))?;
    narrow_float(wide)
}

/// Converts to the nearest real. Fails with 22003 if it is out of range.
pub fn narrow_float(wide: f64) -> Result<f32> {
    let narrow = wide as f32;
    check_float(f64::from(narrow), wide.is_infinite(), wide == 0.0).map(|_| narrow)
}

/// Fails with 22003 if finite operands have an infinite result (overflow), or if the result is zero although
/// it cannot be zero (underflow).
pub fn check_float(result: f64, may_be_infinite: bool, may_be_zero: bool) -> Result<f64> {
    if result.is_infinite() && !may_be_infinite {
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: overflow"));
    }
    if result == 0.0 && !may_be_zero {
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(result)
}

/// Returns the interval in a value of this type.
pub fn interval_of(datum: Datum<'_>) -> Result<Interval> {
    match datum {
        Datum::Interval(iv) => Ok(iv),
        _ => Err(SqlError::internal("an interval was expected")),
    }
}

fn signed(op: ArithOp, iv: Interval) -> Result<Interval> {
    if op == ArithOp::Subtract { time::negate_interval(iv) } else { Ok(iv) }
}

fn moments<'a>(
    op: ArithOp,
    class: Class,
    left: Datum<'a>,
    right: Datum<'a>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    Ok(match (class, left, right) {
        (Class::DateDays, Datum::Date(d), n) => date_plus(op, d, n)?,
        (Class::DateDate, Datum::Date(a), Datum::Date(b)) => {
            if [a, b].iter().any(|d| matches!(*d, i32::MIN | i32::MAX)) {
                return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "cannot subtract infinite dates"));
            }
            narrow(Class::Int4, Some(i64::from(a) - i64::from(b)))?
        }
        (Class::MomentInterval, Datum::Timestamp(t), iv) => {
            Datum::Timestamp(time::add_interval(t, signed(op, interval_of(iv)?)?)?)
        }
        (Class::MomentInterval, Datum::TimestampTz(t), iv) => {
            let iv = signed(op, interval_of(iv)?)?;
            Datum::TimestampTz(time::add_interval_in(t, iv, cx.env.zone())?)
        }
        (Class::Moments, Datum::Timestamp(a), Datum::Timestamp(b))
        | (Class::Moments, Datum::TimestampTz(a), Datum::TimestampTz(b)) => Datum::Interval(between(a, b)?),
        (Class::Intervals, a, b) => {
            Datum::Interval(time::add_intervals(interval_of(a)?, signed(op, interval_of(b)?)?)?)
        }
        (Class::IntervalFactor, iv, Datum::Float8(by)) => Datum::Interval(scale(interval_of(iv)?, op, by)?),
        (Class::TimeInterval, Datum::Time(t), iv) => {
            let iv = signed(op, interval_of(iv)?)?;
            Datum::Time((i128::from(t) + i128::from(iv.micros)).rem_euclid(i128::from(DAY_US)) as i64)
        }
        (Class::Times, Datum::Time(a), Datum::Time(b)) => {
            Datum::Interval(Interval { micros: a - b, ..Interval::default() })
        }
        (Class::DateTime, Datum::Date(d), Datum::Time(t)) => match time::date_to_timestamp(d)? {
            infinite if time::is_infinite(infinite) => Datum::Timestamp(infinite),
            midnight => {
                let moved = midnight.checked_add(t).and_then(time::check_timestamp);
                Datum::Timestamp(moved.ok_or_else(time::timestamp_range)?)
            }
        },
        _ => return Err(SqlError::internal("arithmetic on values of the wrong class")),
    })
}

fn date_plus<'a>(op: ArithOp, date: i32, days: Datum<'a>) -> Result<Datum<'a>> {
    let days = days.as_integer().unwrap_or(0);
    if matches!(date, i32::MIN | i32::MAX) {
        return Ok(Datum::Date(date));
    }
    let moved = i64::from(date) + if op == ArithOp::Subtract { -days } else { days };
    time::check_date(moved).map(Datum::Date).ok_or_else(time::date_range)
}

/// Computes a - b as days and a time of day, like PostgreSQL's timestamp_mi.
fn between(a: i64, b: i64) -> Result<Interval> {
    if time::is_infinite(a) || time::is_infinite(b) {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "cannot subtract infinite timestamps"));
    }
    let us = a.checked_sub(b).ok_or_else(time::interval_range)?;
    Ok(Interval { months: 0, days: (us / DAY_US) as i32, micros: us % DAY_US })
}

fn scale(iv: Interval, op: ArithOp, by: f64) -> Result<Interval> {
    if op == ArithOp::Divide && by == 0.0 {
        return Err(number::division_by_zero());
    }
    time::scale_interval(iv, by, op == ArithOp::Divide)
}

/// Computes `-value`.
pub fn negate<'a>(class: Class, value: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match (class, value) {
        (_, Datum::Null) => Datum::Null,
        (Class::Float4, Datum::Float4(f)) => Datum::Float4(-f),
        (Class::Float8, Datum::Float8(f)) => Datum::Float8(-f),
        (Class::Numeric, Datum::Numeric(n)) => numeric(&number::negate(n)?, cx),
        (Class::Intervals, iv) => Datum::Interval(time::negate_interval(interval_of(iv)?)?),
        (class, value) => narrow(class, value.as_integer().and_then(i64::checked_neg))?,
    })
}
