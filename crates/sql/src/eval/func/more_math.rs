//! Functions of integer arithmetic, trigonometric and hyperbolic functions, and functions about the digits of
//! numeric.
//!
//! Logarithms and powers of numeric are in `math`.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, Signed, ToPrimitive};
use varve_engine::{Datum, Numeric as Number, NumericRef};

use super::math::of_angle;
use super::{Builtin, float, int, strict, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::arith::{self, Class, check_float};
use crate::eval::{Cx, number};
use crate::ty::Ty::{Float8, Int4, Int8, Numeric, Uuid};

pub(super) const TABLE: &[Builtin] = &[
    strict("gcd", &[Int4, Int4], Int4, |a, _| arith::narrow(Class::Int4, gcd(a, "integer")?)),
    strict("gcd", &[Int8, Int8], Int8, |a, _| arith::narrow(Class::Int8, gcd(a, "bigint")?)),
    strict("lcm", &[Int4, Int4], Int4, |a, _| arith::narrow(Class::Int4, lcm(a)?)),
    strict("lcm", &[Int8, Int8], Int8, |a, _| arith::narrow(Class::Int8, lcm(a)?)),
    strict("factorial", &[Int8], Numeric, factorial),
    strict("scale", &[Numeric], Int4, |a, _| Ok(scale_of(a).map_or(Datum::Null, Datum::Int4))),
    strict("min_scale", &[Numeric], Int4, |a, _| {
        Ok(least(a).map_or(Datum::Null, |n| Datum::Int4(digits(&n))))
    }),
    strict("trim_scale", &[Numeric], Numeric, |a, cx| match least(a) {
        Some(n) => Ok(arith::numeric(&number::pack(&n)?, cx)),
        None => Ok(a[0]),
    }),
    strict("asin", &[Float8], Float8, |a, _| within_one(float(a, 0), f64::asin)),
    strict("acos", &[Float8], Float8, |a, _| within_one(float(a, 0), f64::acos)),
    strict("atan2", &[Float8, Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).atan2(float(a, 1))))),
    strict("cot", &[Float8], Float8, |a, _| of_angle(float(a, 0), |angle| 1.0 / angle.tan())),
    strict("sinh", &[Float8], Float8, |a, _| overflowing(float(a, 0), f64::sinh)),
    strict("cosh", &[Float8], Float8, |a, _| overflowing(float(a, 0), f64::cosh)),
    strict("tanh", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).tanh()))),
    strict("width_bucket", &[Float8, Float8, Float8, Int4], Int4, |a, _| {
        bucket(float(a, 0), float(a, 1), float(a, 2), int(a, 3))
    }),
    strict("width_bucket", &[Numeric, Numeric, Numeric, Int4], Int4, |a, _| match (a[0], a[1], a[2]) {
        (Datum::Numeric(value), Datum::Numeric(low), Datum::Numeric(high)) => {
            exact_bucket(value, low, high, int(a, 3))
        }
        (other, ..) => Ok(other),
    }),
    volatile("gen_random_uuid", &[], Uuid, |_, _| random_uuid().map(Datum::Uuid)),
];

fn out_of_range(message: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
}

/// Returns the greatest common divisor, or `None` if it does not fit.
fn gcd(a: &[Datum<'_>], _: &str) -> Result<Option<i64>> {
    let (mut x, mut y) = (i128::from(int(a, 0)), i128::from(int(a, 1)));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    Ok(i64::try_from(x.abs()).ok())
}

fn lcm(a: &[Datum<'_>]) -> Result<Option<i64>> {
    let (x, y) = (i128::from(int(a, 0)), i128::from(int(a, 1)));
    if x == 0 || y == 0 {
        return Ok(Some(0));
    }
    let Some(divisor) = gcd(a, "")? else { return Ok(None) };
    Ok(i64::try_from((x / i128::from(divisor) * y).abs()).ok())
}

/// The largest number whose factorial fits into a numeric.
const FACTORIAL_MAX: i64 = 32_177;

fn factorial<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let n = int(a, 0);
    if n < 0 {
        return Err(out_of_range("factorial of a negative number is undefined"));
    }
    if n > FACTORIAL_MAX {
        return Err(out_of_range("value overflows numeric format"));
    }
    let product = (2..=n).fold(BigInt::from(1), |product, k| product * k);
    let made = Number::from_big(&BigDecimal::new(product, 0))
        .map_err(|_| out_of_range("value overflows numeric format"))?;
    Ok(arith::numeric(&made, cx))
}

fn scale_of(a: &[Datum<'_>]) -> Option<i32> {
    let Datum::Numeric(n) = a[0] else { return None };
    Some(digits(&n.to_big()?))
}

fn digits(n: &BigDecimal) -> i32 {
    i32::try_from(n.fractional_digit_count().max(0)).unwrap_or(i32::MAX)
}

/// Returns the same number with the smallest sufficient number of digits after the point.
fn least(a: &[Datum<'_>]) -> Option<BigDecimal> {
    let Datum::Numeric(n) = a[0] else { return None };
    let short = n.to_big()?.normalized();
    Some(if short.fractional_digit_count() < 0 { short.with_scale(0) } else { short })
}

fn within_one<'a>(f: f64, of: fn(f64) -> f64) -> Result<Datum<'a>> {
    if f.abs() > 1.0 {
        return Err(out_of_range("input is out of range"));
    }
    Ok(Datum::Float8(of(f)))
}

fn overflowing<'a>(f: f64, of: fn(f64) -> f64) -> Result<Datum<'a>> {
    // PostgreSQL returns infinity here.
    check_float(of(f), true, true).map(Datum::Float8)
}

/// Returns the error 2201G.
fn no_buckets(message: &str) -> SqlError {
    SqlError::new(SqlState("2201G"), message)
}

/// Fails with 2201G if the count or the bounds of buckets are not valid.
fn check_buckets(count: i64, has_nan: bool, has_infinite_bound: bool, has_equal_bounds: bool) -> Result<()> {
    if count <= 0 {
        return Err(no_buckets("count must be greater than zero"));
    }
    if has_nan {
        return Err(no_buckets("operand, lower bound, and upper bound cannot be NaN"));
    }
    if has_infinite_bound {
        return Err(no_buckets("lower and upper bounds must be finite"));
    }
    if has_equal_bounds {
        return Err(no_buckets("lower bound cannot equal upper bound"));
    }
    Ok(())
}

fn bucket<'a>(value: f64, low: f64, high: f64, count: i64) -> Result<Datum<'a>> {
    let has_nan = value.is_nan() || low.is_nan() || high.is_nan();
    check_buckets(count, has_nan, low.is_infinite() || high.is_infinite(), low == high)?;
    let share = (value - low) / (high - low);
    let bucket = match share {
        s if s < 0.0 => 0,
        s if s >= 1.0 => count + 1,
        s => (s * count as f64).floor() as i64 + 1,
    };
    arith::narrow(Class::Int4, Some(bucket))
}

/// Returns the bucket of a numeric, computed without rounding.
fn exact_bucket<'a>(
    value: NumericRef<'_>,
    low: NumericRef<'_>,
    high: NumericRef<'_>,
    count: i64,
) -> Result<Datum<'a>> {
    let has_nan = value.is_nan() || low.is_nan() || high.is_nan();
    let bounds = low.to_big().zip(high.to_big());
    let has_equal_bounds = bounds.as_ref().is_some_and(|(low, high)| low == high);
    check_buckets(count, has_nan, bounds.is_none(), has_equal_bounds)?;
    let Some((low, high)) = bounds else { return Err(SqlError::internal("a bound that is no number")) };
    let falls = low > high;
    let bucket = match value.to_big() {
        // An infinite value is before or after all buckets.
        None => {
            if (value.sign() == Some(1)) == falls {
                0
            } else {
                count + 1
            }
        }
        Some(value) => {
            let (passed, width) = if falls { (&low - value, low - high) } else { (value - &low, high - low) };
            match passed {
                p if p.is_negative() => 0,
                p if p >= width => count + 1,
                p => whole_quotient(p * count, width) + 1,
            }
        }
    };
    arith::narrow(Class::Int4, Some(bucket))
}

/// Returns the integer part of the quotient of two numbers that are not negative.
fn whole_quotient(a: BigDecimal, b: BigDecimal) -> i64 {
    let scale = a.fractional_digit_count().max(b.fractional_digit_count());
    let [(a, _), (b, _)] = [a, b].map(|n| n.with_scale(scale).into_bigint_and_exponent());
    (a / b).to_i64().unwrap_or(i64::MAX - 1)
}

/// Makes a UUID of version 4: 122 random bits from the operating system.
pub(super) fn random_uuid() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| SqlError::internal("the system gives no random numbers"))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}
