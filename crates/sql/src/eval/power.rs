//! exp, ln, log and power of numeric, and the greatest common divisor.
//!
//! Invariants
//! 1. A result has at least 16 significant digits, and at least the scale of each argument. It has at most
//!    1,000 digits after the point. PostgreSQL 15 would choose the same scale. The crate `dashu` computes the
//!    digits (decision 0628).
//! 2. NaN and the infinities follow POSIX `pow`, with PostgreSQL's errors.
//!
//! This module does not know double precision.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, One, RoundingMode, Signed, ToPrimitive, Zero};
use dashu_float::round::mode::HalfAway;
use dashu_float::{Context, DBig, FpResult, Repr};
use dashu_int::IBig;
use varve_engine::{Numeric, NumericRef, Special};

use super::Cx;
use super::number::{SCALE_MAX, SIGNIFICANT_MIN, exact_sum, of_i128, pack};
use crate::error::{Result, SqlError, SqlState};

const LOG10_E: f64 = std::f64::consts::LOG10_E;
/// The number of digits that are computed in addition to the digits of the result.
const GUARD_DIGITS: i64 = 12;
/// If an exponent of e is beyond this limit, the result is too large, or all its digits are zero.
const EXPONENT_MAX: f64 = 6_000.0;
/// The largest number of digits before the point.
const WHOLE_MAX: f64 = 131_072.0;

/// Returns the error 22003: the result has too many digits before the point.
fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

/// Returns the error 2201E: the number has no logarithm.
pub fn no_logarithm(is_zero: bool) -> SqlError {
    let of = if is_zero { "zero" } else { "a negative number" };
    SqlError::new(SqlState::INVALID_LOG, format!("cannot take logarithm of {of}"))
}

fn invalid_power(message: &'static str) -> SqlError {
    SqlError::new(SqlState::INVALID_POWER, message)
}

/// Returns e raised to this power.
pub fn exponential(a: NumericRef<'_>) -> Result<Numeric> {
    let Some(x) = a.to_big() else {
        return Ok(if a.sign() == Some(-1) { of_i128(0) } else { a.to_owned() });
    };
    let weight = approximate(&x) * LOG10_E;
    let scale = fitting_scale(weight.clamp(-2_000.0, 2_000.0) as i64, &[&x]);
    if approximate(&x).abs() >= EXPONENT_MAX {
        return if x.is_positive() { Err(overflow()) } else { zero(scale) };
    }
    rounded(context(weight as i64, scale).exp(&repr(&x), None), scale)
}

/// Returns the natural logarithm.
pub fn natural_logarithm(a: NumericRef<'_>) -> Result<Numeric> {
    match a.sign() {
        Some(sign) if sign <= 0 => return Err(no_logarithm(sign == 0)),
        _ => {}
    }
    let Some(x) = a.to_big() else { return Ok(a.to_owned()) };
    let weight = logarithm_weight(&x);
    let scale = fitting_scale(weight, &[&x]);
    rounded(context(weight, scale).ln(&repr(&x), None), scale)
}

/// Returns the logarithm of `a` to this base.
pub fn logarithm(base: NumericRef<'_>, a: NumericRef<'_>) -> Result<Numeric> {
    if base.is_nan() || a.is_nan() {
        return Ok(Numeric::nan());
    }
    for sign in [base, a].into_iter().filter_map(NumericRef::sign) {
        if sign < 0 {
            return Err(no_logarithm(false));
        }
    }
    if base.sign() == Some(0) || a.sign() == Some(0) {
        return Err(no_logarithm(true));
    }
    let (b, x) = match (base.to_big(), a.to_big()) {
        (Some(b), Some(x)) => (b, x),
        (Some(_), None) => return Ok(a.to_owned()),
        (None, Some(_)) => return Ok(of_i128(0)),
        (None, None) => return Ok(Numeric::nan()),
    };
    if b.is_one() {
        return Err(super::number::division_by_zero());
    }
    let weight = logarithm_weight(&x) - logarithm_weight(&b);
    let scale = fitting_scale(weight, &[&b, &x]);
    let context = context(weight, scale);
    let ln = |of: &BigDecimal| context.ln(&repr(of), None).map(|ln| ln.value().into_repr());
    match (ln(&x), ln(&b)) {
        (Ok(x), Ok(b)) => rounded(context.div(&x, &b), scale),
        _ => Err(overflow()),
    }
}

/// Returns `base` raised to the power of `exponent`.
pub fn power(base: NumericRef<'_>, exponent: NumericRef<'_>) -> Result<Numeric> {
    let (Some(b), Some(e)) = (base.to_big(), exponent.to_big()) else {
        return special_power(base, exponent);
    };
    if b.is_zero() && e.is_negative() {
        return Err(invalid_power("zero raised to a negative power is undefined"));
    }
    let whole = e.is_integer().then(|| e.to_i64()).flatten().and_then(|e| i32::try_from(e).ok());
    if let Some(whole) = whole {
        return whole_power(&b, whole);
    }
    if b.is_zero() {
        return zero(SIGNIFICANT_MIN);
    }
    if b.is_negative() && !e.is_integer() {
        return Err(invalid_power("a negative number raised to a non-integer power yields a complex result"));
    }
    let exponent_of_e = approximate(&e) * natural(&b.abs());
    if exponent_of_e.abs() > EXPONENT_MAX {
        return if exponent_of_e > 0.0 { Err(overflow()) } else { zero(SCALE_MAX) };
    }
    let weight = (exponent_of_e * LOG10_E) as i64;
    let scale = fitting_scale(weight, &[&b, &e]);
    rounded(context(weight, scale).powf(&repr(&b), &repr(&e), None), scale)
}

/// Returns a power with an integer exponent. It has at least 16 digits after the point, even if it is large.
fn whole_power(base: &BigDecimal, exponent: i32) -> Result<Numeric> {
    let scale = base.fractional_digit_count().clamp(SIGNIFICANT_MIN, SCALE_MAX);
    if base.is_zero() {
        return if exponent == 0 { one(scale) } else { zero(scale) };
    }
    let weight = f64::from(exponent) * decimal_logarithm(&base.abs());
    if weight > WHOLE_MAX {
        return Err(overflow());
    }
    if weight + 1.0 < -(scale as f64) {
        return zero(scale);
    }
    rounded(context(weight as i64, scale).powi(&repr(base), exponent.into()), scale)
}

/// Returns a power, if an argument is NaN or infinite.
fn special_power(base: NumericRef<'_>, exponent: NumericRef<'_>) -> Result<Numeric> {
    let is_one = |n: NumericRef<'_>| n.to_big().is_some_and(|n| n.is_one());
    if exponent.sign() == Some(0) || is_one(base) {
        return Ok(of_i128(1));
    }
    let (Some(base_sign), Some(sign)) = (base.sign(), exponent.sign()) else { return Ok(Numeric::nan()) };
    if base_sign == 0 && sign < 0 {
        return Err(invalid_power("zero raised to a negative power is undefined"));
    }
    let whole = exponent.to_big();
    if base_sign < 0 && whole.as_ref().is_some_and(|e| !e.is_integer()) {
        return Err(invalid_power("a negative number raised to a non-integer power yields a complex result"));
    }
    let infinite = |negative| Ok(Numeric::special(Special::infinity(negative)));
    let Some(exponent) = whole else {
        // The exponent is infinite.
        let size = base.to_big().map(|b| b.abs());
        return match size.map(|size| size.cmp(&BigDecimal::one())) {
            Some(std::cmp::Ordering::Equal) => Ok(of_i128(1)),
            Some(std::cmp::Ordering::Less) if sign < 0 => infinite(false),
            Some(std::cmp::Ordering::Less) => Ok(of_i128(0)),
            _ if sign > 0 => infinite(false),
            _ => Ok(of_i128(0)),
        };
    };
    let is_odd = || (exponent % BigDecimal::from(2)).abs().is_one();
    if sign < 0 { Ok(of_i128(0)) } else { infinite(base_sign < 0 && is_odd()) }
}

/// Returns the greatest common divisor, or NaN if an argument is NaN or infinite.
pub fn greatest_divisor(a: NumericRef<'_>, b: NumericRef<'_>, cx: &Cx<'_>) -> Result<Numeric> {
    let (Some(a), Some(b)) = (a.to_big(), b.to_big()) else { return Ok(Numeric::nan()) };
    let (x, y, scale) = as_integers(a, b);
    pack(&BigDecimal::new(divisor(x, y, cx)?, scale))
}

/// Returns the least common multiple, or 0 if an argument is 0.
pub fn least_multiple(a: NumericRef<'_>, b: NumericRef<'_>, cx: &Cx<'_>) -> Result<Numeric> {
    let (Some(a), Some(b)) = (a.to_big(), b.to_big()) else { return Ok(Numeric::nan()) };
    let (x, y, scale) = as_integers(a, b);
    if x.is_zero() || y.is_zero() {
        return zero(scale);
    }
    let multiple = &x / divisor(x.clone(), y.clone(), cx)? * &y;
    pack(&BigDecimal::new(multiple.abs(), scale))
}

/// Computes the greatest common divisor by Euclid's algorithm. This takes many iterations for long numbers,
/// so the function checks for a cancel request.
fn divisor(mut x: BigInt, mut y: BigInt, cx: &Cx<'_>) -> Result<BigInt> {
    while !y.is_zero() {
        cx.env.check_cancel()?;
        x %= &y;
        std::mem::swap(&mut x, &mut y);
    }
    Ok(x.abs())
}

/// Returns both numbers as integers, in units of the last digit of either number. Also returns their scale.
fn as_integers(a: BigDecimal, b: BigDecimal) -> (BigInt, BigInt, i64) {
    let scale = a.fractional_digit_count().max(b.fractional_digit_count()).max(0);
    let digits = |of: BigDecimal| of.with_scale(scale).into_bigint_and_exponent().0;
    (digits(a), digits(b), scale)
}

/// Returns the number of digits after the point for a result whose first digit has this weight. The digit
/// just before the point has weight 0.
fn fitting_scale(weight: i64, arguments: &[&BigDecimal]) -> i64 {
    let shown = arguments.iter().map(|a| a.fractional_digit_count()).max().unwrap_or(0);
    (SIGNIFICANT_MIN - weight).max(shown).clamp(0, SCALE_MAX)
}

/// Returns a context of the library with enough digits for a result of this weight and scale.
fn context(weight: i64, scale: i64) -> Context<HalfAway> {
    Context::new(usize::try_from(weight + scale + GUARD_DIGITS).unwrap_or(0).max(GUARD_DIGITS as usize))
}

fn repr(of: &BigDecimal) -> Repr<10> {
    let (digits, exponent) = of.as_bigint_and_exponent();
    Repr::new(IBig::from_le_bytes(&digits.to_signed_bytes_le()), -(exponent as isize))
}

/// Returns the result, rounded to this number of digits after the point.
fn rounded(result: FpResult<DBig>, scale: i64) -> Result<Numeric> {
    let Ok(result) = result else { return Err(overflow()) };
    let (digits, exponent) = result.value().into_repr().into_parts();
    let digits = BigInt::from_signed_bytes_le(&digits.to_le_bytes());
    let result = BigDecimal::new(digits, -(exponent as i64));
    pack(&result.with_scale_round(scale, RoundingMode::HalfUp))
}

fn zero(scale: i64) -> Result<Numeric> {
    pack(&BigDecimal::new(BigInt::zero(), scale))
}

fn one(scale: i64) -> Result<Numeric> {
    pack(&BigDecimal::one().with_scale(scale))
}

fn approximate(of: &BigDecimal) -> f64 {
    of.to_f64().unwrap_or(if of.is_negative() { f64::NEG_INFINITY } else { f64::INFINITY })
}

/// Returns the weight of the first digit of a positive number, and its first digits as a number from 1 to 10.
fn scientific(of: &BigDecimal) -> (i64, f64) {
    let (digits, scale) = of.as_bigint_and_exponent();
    let text = digits.magnitude().to_string();
    let weight = text.len() as i64 - 1 - scale;
    let first: String = text.chars().take(17).collect();
    let leading = first.parse::<f64>().unwrap_or(1.0) / 10f64.powi(first.len() as i32 - 1);
    (weight, leading)
}

/// Returns the decimal logarithm of a positive number, even if no double can hold the number.
fn decimal_logarithm(of: &BigDecimal) -> f64 {
    let (weight, leading) = scientific(of);
    weight as f64 + leading.log10()
}

/// Returns the natural logarithm of a positive number. It is exact enough for numbers near 1, too.
fn natural(of: &BigDecimal) -> f64 {
    let beyond_one = approximate(&exact_sum(of.clone(), -BigDecimal::one()));
    if beyond_one.abs() < 0.1 { beyond_one.ln_1p() } else { decimal_logarithm(of) / LOG10_E }
}

/// Returns the weight of the first digit of a positive number's natural logarithm, as PostgreSQL estimates
/// it.
fn logarithm_weight(of: &BigDecimal) -> i64 {
    let beyond_one = exact_sum(of.clone(), -BigDecimal::one());
    if beyond_one.abs() <= BigDecimal::new(BigInt::one(), 1) {
        return if beyond_one.is_zero() { 0 } else { scientific(&beyond_one.abs()).0 };
    }
    natural(of).abs().log10() as i64
}
