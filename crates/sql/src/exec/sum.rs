//! The state of `sum` and `avg`: a sum in machine words while it fits, then an exact number of any size.
//!
//! Invariants
//! 1. Sums of integers and of numeric are exact. Only the final result is checked against its type.
//! 2. The merged sums of parts equal the sum of the whole.
//!
//! This module does not know groups or NULL.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use varve_engine::{Datum, Interval, Numeric, Special, Value};

use crate::error::{Result, SqlError};
use crate::eval::arith::{self, Class};
use crate::eval::number;
use crate::time;
use crate::ty::Ty;

/// The sum of the values so far, by the type of the values.
#[derive(Debug, Clone)]
pub enum Sum {
    /// A sum of integers.
    Whole(i128),
    /// A sum of numeric: unscaled value and scale.
    Scaled(i128, u16),
    /// A sum of numeric that no longer fits into an `i128`.
    Big(BigDecimal),
    /// A sum of double precision.
    Float(f64),
    /// Two sums of real: in single precision for `sum`, in double precision for `avg`.
    Real(f32, f64),
    /// A sum of intervals.
    Span(Interval),
    /// A sum of numeric that is NaN or infinite.
    Special(Special),
}

impl Sum {
    /// Returns the sum before the first value of this type.
    pub fn of(input: Ty) -> Sum {
        match input {
            Ty::Float8 => Sum::Float(0.0),
            Ty::Float4 => Sum::Real(0.0, 0.0),
            Ty::Interval => Sum::Span(Interval::default()),
            Ty::Numeric => Sum::Scaled(0, 0),
            _ => Sum::Whole(0),
        }
    }

    /// Adds one value, which is not NULL.
    pub fn add(&mut self, value: Datum<'_>) -> Result<()> {
        match (&mut *self, value) {
            (Sum::Whole(total), v) => *total += i128::from(v.as_integer().unwrap_or(0)),
            (Sum::Float(total), Datum::Float8(f)) => *total = added_floats(*total, f)?,
            (Sum::Real(single, double), Datum::Float4(f)) => {
                *single += f;
                *double += f64::from(f);
            }
            (Sum::Span(total), Datum::Interval(iv)) => *total = time::add_intervals(*total, iv)?,
            (Sum::Special(total), Datum::Numeric(n)) => {
                *total = n.as_special().map_or(*total, |special| special_sum(*total, special));
            }
            (Sum::Scaled(total, scale), Datum::Numeric(n)) => {
                if let Some(special) = n.as_special() {
                    *self = Sum::Special(special);
                    return Ok(());
                }
                if let Some((v, s)) = n.to_unscaled()
                    && let Some(added) = add_scaled((*total, *scale), (i128::from(v), s))
                {
                    (*total, *scale) = added;
                    return Ok(());
                }
                *self = Sum::Big(number::exact_sum(big(*total, *scale), n.to_big().unwrap_or_default()));
            }
            (Sum::Big(total), Datum::Numeric(n)) => match n.to_big() {
                Some(n) => *total = number::exact_sum(std::mem::take(total), n),
                None => *self = Sum::Special(n.as_special().unwrap_or(Special::NaN)),
            },
            _ => return Err(SqlError::internal("a sum of the wrong type")),
        }
        Ok(())
    }

    /// Adds the sum of another part.
    pub fn merge(&mut self, other: Sum) -> Result<()> {
        *self = match (self.clone(), other) {
            (Sum::Whole(a), Sum::Whole(b)) => Sum::Whole(a + b),
            (Sum::Float(a), Sum::Float(b)) => Sum::Float(added_floats(a, b)?),
            (Sum::Real(a, c), Sum::Real(b, d)) => Sum::Real(a + b, c + d),
            (Sum::Span(a), Sum::Span(b)) => Sum::Span(time::add_intervals(a, b)?),
            (Sum::Special(a), Sum::Special(b)) => Sum::Special(special_sum(a, b)),
            (Sum::Special(a), _) | (_, Sum::Special(a)) => Sum::Special(a),
            (Sum::Scaled(a, s), Sum::Scaled(b, t)) => match add_scaled((a, s), (b, t)) {
                Some((total, scale)) => Sum::Scaled(total, scale),
                None => Sum::Big(number::exact_sum(big(a, s), big(b, t))),
            },
            (Sum::Scaled(a, s), Sum::Big(b)) | (Sum::Big(b), Sum::Scaled(a, s)) => {
                Sum::Big(number::exact_sum(big(a, s), b))
            }
            (Sum::Big(a), Sum::Big(b)) => Sum::Big(number::exact_sum(a, b)),
            _ => return Err(SqlError::internal("sums of two types")),
        };
        Ok(())
    }

    /// Returns the type of `state` for values of this type.
    pub fn state_type(input: Ty) -> Ty {
        match input {
            Ty::Float8 | Ty::Numeric | Ty::Interval => input,
            _ => Ty::Bytea,
        }
    }

    /// Returns the sum so far as one value. For integers it is the 16 bytes of an `i128`, for reals both sums
    /// in 12 bytes, for other types a value of the type.
    pub fn state(&self) -> Result<Value> {
        Ok(match self {
            Sum::Whole(total) => Value::Bytea(total.to_le_bytes().into()),
            Sum::Scaled(total, scale) => Value::Numeric(number::pack(&big(*total, *scale))?),
            Sum::Big(total) => Value::Numeric(number::pack(total)?),
            Sum::Special(total) => Value::Numeric(Numeric::special(*total)),
            Sum::Float(total) => Value::Float8(*total),
            Sum::Real(single, double) => {
                Value::Bytea([&single.to_le_bytes()[..], &double.to_le_bytes()].concat())
            }
            Sum::Span(total) => Value::Interval(*total),
        })
    }

    /// Reads a sum from the value that `state` has made.
    pub fn of_state(input: Ty, state: Datum<'_>) -> Result<Sum> {
        if let Datum::Bytea(bytes) = state {
            if let Some((single, double)) = bytes.split_first_chunk::<4>()
                && let Ok(double) = double.try_into()
            {
                return Ok(Sum::Real(f32::from_le_bytes(*single), f64::from_le_bytes(double)));
            }
            let bytes = bytes.try_into().map_err(|_| SqlError::internal("a sum of the wrong length"))?;
            return Ok(Sum::Whole(i128::from_le_bytes(bytes)));
        }
        let mut sum = Sum::of(input);
        sum.add(state)?;
        Ok(sum)
    }

    /// Returns the sum (or average, of `count` values) as a value of its type.
    pub fn total(self, input: Ty, average: bool, count: u64) -> Result<Value> {
        let total = match self {
            Sum::Real(single, double) if !average => {
                return arith::check_float(f64::from(single), double.is_infinite(), true)
                    .map(|_| Value::Float4(single));
            }
            Sum::Real(_, double) => return Ok(Value::Float8(double / count as f64)),
            Sum::Span(iv) if average => {
                return time::scale_interval(iv, count as f64, true).map(Value::Interval);
            }
            Sum::Span(iv) => return Ok(Value::Interval(iv)),
            Sum::Float(f) => return Ok(Value::Float8(if average { f / count as f64 } else { f })),
            Sum::Whole(total) if !average && input != Ty::Int8 => {
                return arith::narrow(Class::Int8, i64::try_from(total).ok()).map(|d| d.to_value());
            }
            Sum::Whole(total) => number::of_i128(total),
            Sum::Scaled(total, scale) => match i64::try_from(total) {
                Ok(small) => Numeric::from_unscaled(small, scale),
                Err(_) => number::pack(&big(total, scale))?,
            },
            Sum::Big(total) => number::pack(&total)?,
            Sum::Special(total) => Numeric::special(total),
        };
        Ok(Value::Numeric(if average { number::average(total.as_ref(), count)? } else { total }))
    }
}

fn added_floats(a: f64, b: f64) -> Result<f64> {
    arith::check_float(a + b, a.is_infinite() || b.is_infinite(), true)
}

/// Returns the sum of two special values. NaN plus anything is NaN, and so is infinity minus infinity.
fn special_sum(a: Special, b: Special) -> Special {
    if a == b { a } else { Special::NaN }
}

fn big(unscaled: i128, scale: u16) -> BigDecimal {
    BigDecimal::new(BigInt::from(unscaled), i64::from(scale))
}

fn add_scaled(a: (i128, u16), b: (i128, u16)) -> Option<(i128, u16)> {
    if a.1 == b.1 {
        return Some((a.0.checked_add(b.0)?, a.1));
    }
    let scale = a.1.max(b.1);
    let lift = |v: i128, by: u16| 10i128.checked_pow(u32::from(by)).and_then(|p| v.checked_mul(p));
    let sum = lift(a.0, scale - a.1)?.checked_add(lift(b.0, scale - b.1)?)?;
    Some((sum, scale))
}
