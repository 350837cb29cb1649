//! Arithmetic on numeric, with PostgreSQL's display scales.
//!
//! Invariants
//! 1. A sum has the larger scale of its operands, a product the sum of their scales. A quotient has at least
//!    16 significant digits (PostgreSQL's `select_div_scale`).
//! 2. An operation on NaN gives NaN. Infinities follow the rules of floating point, but division by zero is
//!    an error.
//!
//! Rounding to a declared precision is in `text::fit`.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, RoundingMode, Signed, Zero};
use varve_engine::{Numeric, NumericRef, Special};

use crate::error::{Result, SqlError, SqlState};
use crate::text::numeric_overflow;

/// The smallest number of significant digits of a quotient.
pub const SIGNIFICANT_MIN: i64 = 16;
/// The largest number of digits after the point of a quotient.
pub const SCALE_MAX: i64 = 1000;

/// The largest number of digits before the point. `DIGITS_MAX` is the largest number of digits after it.
const WHOLE_MAX: i64 = 131_072;
const DIGITS_MAX: i64 = 16_383;
/// PostgreSQL stores a numeric in base-10000 digits, and chooses the scale of a quotient by these digits.
const GROUP_DIGITS: i64 = 4;

/// Converts a decimal to a numeric.
pub fn pack(value: &BigDecimal) -> Result<Numeric> {
    Numeric::from_big(value).map_err(|_| numeric_overflow())
}

/// Makes a numeric from an integer.
pub fn of_i128(value: i128) -> Numeric {
    match i64::try_from(value) {
        Ok(small) => Numeric::from_i64(small),
        Err(_) => {
            Numeric::from_big(&BigDecimal::new(BigInt::from(value), 0)).unwrap_or_else(|_| Numeric::nan())
        }
    }
}

/// Returns the error 22012: division by zero.
pub fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn both(a: NumericRef<'_>, b: NumericRef<'_>) -> Option<(BigDecimal, BigDecimal)> {
    Some((a.to_big()?, b.to_big()?))
}

/// Returns the infinity with this sign, or NaN for sign 0.
fn infinity(sign: i8) -> Numeric {
    if sign == 0 { Numeric::nan() } else { Numeric::special(Special::infinity(sign < 0)) }
}

/// Returns the sign of an infinity, or 0 for all other numbers.
fn infinite_sign(a: NumericRef<'_>) -> i8 {
    if a.as_special().is_some() { a.sign().unwrap_or(0) } else { 0 }
}

/// Returns the sum, if an operand is NaN or infinite. `sign` is -1 for a difference.
fn special_sum(a: NumericRef<'_>, b: NumericRef<'_>, sign: i8) -> Numeric {
    if a.is_nan() || b.is_nan() {
        return Numeric::nan();
    }
    let (a, b) = (infinite_sign(a), infinite_sign(b) * sign);
    // The sum of two infinities with different signs is NaN.
    infinity((a + b).signum())
}

/// Returns the product, if an operand is NaN or infinite.
fn special_product(a: NumericRef<'_>, b: NumericRef<'_>) -> Numeric {
    match (a.sign(), b.sign()) {
        (Some(a), Some(b)) => infinity(a * b),
        _ => Numeric::nan(),
    }
}

/// Returns the quotient, if an operand is NaN or infinite.
fn special_quotient(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    let (Some(sign_a), Some(sign_b)) = (a.sign(), b.sign()) else { return Ok(Numeric::nan()) };
    if sign_b == 0 {
        return Err(division_by_zero());
    }
    if infinite_sign(a) == 0 {
        return Ok(of_i128(0));
    }
    Ok(if infinite_sign(b) == 0 { infinity(sign_a * sign_b) } else { Numeric::nan() })
}

/// Returns the remainder, if an operand is NaN or infinite.
fn special_remainder(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if a.is_nan() || b.is_nan() {
        return Ok(Numeric::nan());
    }
    if b.sign() == Some(0) {
        return Err(division_by_zero());
    }
    Ok(if infinite_sign(a) == 0 { a.to_owned() } else { Numeric::nan() })
}

/// Returns both numbers as integers of the same scale, if they are small enough.
fn aligned(a: NumericRef<'_>, b: NumericRef<'_>) -> Option<(i64, i64, u16)> {
    let ((a, s), (b, t)) = (a.to_unscaled()?, b.to_unscaled()?);
    let scale = s.max(t);
    let lift = |v: i64, by: u16| 10i64.checked_pow(u32::from(by)).and_then(|p| v.checked_mul(p));
    Some((lift(a, scale - s)?, lift(b, scale - t)?, scale))
}

/// Computes a + b.
pub fn add(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if let Some((x, y, scale)) = aligned(a, b)
        && let Some(sum) = x.checked_add(y)
    {
        return Ok(Numeric::from_unscaled(sum, scale));
    }
    both(a, b).map_or_else(|| Ok(special_sum(a, b, 1)), |(a, b)| pack(&exact_sum(a, b)))
}

/// Computes a - b.
pub fn subtract(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if let Some((x, y, scale)) = aligned(a, b)
        && let Some(difference) = x.checked_sub(y)
    {
        return Ok(Numeric::from_unscaled(difference, scale));
    }
    both(a, b).map_or_else(|| Ok(special_sum(a, b, -1)), |(a, b)| pack(&exact_sum(a, -b)))
}

/// Returns the sum, with as many digits after the decimal point as the operand that has more of them. The
/// library drops these digits if the sum is zero.
pub fn exact_sum(a: BigDecimal, b: BigDecimal) -> BigDecimal {
    let scale = a.fractional_digit_count().max(b.fractional_digit_count());
    (a + b).with_scale(scale)
}

/// Computes a * b.
pub fn multiply(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if let (Some((x, s)), Some((y, t))) = (a.to_unscaled(), b.to_unscaled())
        && let Some(product) = x.checked_mul(y)
        && s + t <= 1000
    {
        return Ok(Numeric::from_unscaled(product, s + t));
    }
    let Some((a, b)) = both(a, b) else { return Ok(special_product(a, b)) };
    let scale = a.fractional_digit_count() + b.fractional_digit_count();
    pack(&(a * b).with_scale(scale))
}

/// Computes a / b.
pub fn divide(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if let (Some(x), Some(y)) = (a.to_unscaled(), b.to_unscaled())
        && let Some(quotient) = small_quotient(x, y)
    {
        return Ok(quotient);
    }
    let Some((a, b)) = both(a, b) else { return special_quotient(a, b) };
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let scale = quotient_scale(&a, &b);
    pack(&quotient(a, b, scale))
}

/// Computes a / b rounded half away from zero to `scale` digits.
fn quotient(a: BigDecimal, b: BigDecimal, scale: i64) -> BigDecimal {
    let ((mut n, s), (mut d, t)) = (a.into_bigint_and_exponent(), b.into_bigint_and_exponent());
    let shift = scale + t - s;
    let power = BigInt::from(10).pow(shift.unsigned_abs() as u32);
    if shift >= 0 {
        n *= power
    } else {
        d *= power
    }
    let negative = (n.sign() == Sign::Minus) != (d.sign() == Sign::Minus);
    let (n, d) = (n.abs(), d.abs());
    let rounded: BigInt = (n * 2u8 + &d) / (d * 2u8);
    BigDecimal::new(if negative { -rounded } else { rounded }, scale)
}

/// Computes a / b of unscaled values and their scales in machine words. Returns `None` if machine words are
/// too narrow, or if b is 0.
fn small_quotient((a, s): (i64, u16), (b, t): (i64, u16)) -> Option<Numeric> {
    if b == 0 {
        return None;
    }
    let (s, t) = (i64::from(s), i64::from(t));
    let scale =
        div_scale(small_leading_group(a, s)?, small_leading_group(b, t)?).max(s).max(t).clamp(0, SCALE_MAX);
    let shift = scale + t - s;
    let power = 10i128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?)?;
    let (mut n, mut d) = (i128::from(a.unsigned_abs()), i128::from(b.unsigned_abs()));
    let raised = if shift >= 0 { &mut n } else { &mut d };
    *raised = raised.checked_mul(power)?;
    let rounded = n.checked_mul(2)?.checked_add(d)? / d.checked_mul(2)?;
    let rounded = i64::try_from(rounded).ok()?;
    let negative = (a < 0) != (b < 0);
    Some(Numeric::from_unscaled(if negative { -rounded } else { rounded }, scale as u16))
}

/// Computes the scale of a quotient, as `select_div_scale` in PostgreSQL does.
fn quotient_scale(a: &BigDecimal, b: &BigDecimal) -> i64 {
    let scale = div_scale(leading_group(a), leading_group(b));
    scale.max(a.fractional_digit_count()).max(b.fractional_digit_count()).clamp(0, SCALE_MAX)
}

/// Returns the scale that gives a quotient enough digits, computed from the leading digits of its operands.
fn div_scale((weight_a, first_a): (i64, i64), (weight_b, first_b): (i64, i64)) -> i64 {
    let mut weight = weight_a - weight_b;
    if first_a <= first_b {
        weight -= 1;
    }
    SIGNIFICANT_MIN - weight * GROUP_DIGITS
}

/// Returns the weight and the value of the first base-10000 digit.
fn leading_group(value: &BigDecimal) -> (i64, i64) {
    if value.is_zero() {
        return (0, 0);
    }
    let (digits, scale) = value.as_bigint_and_exponent();
    let text = digits.magnitude().to_string();
    let exponent = text.len() as i64 - scale;
    let weight = (exponent - 1).div_euclid(GROUP_DIGITS);
    let in_group = (exponent - weight * GROUP_DIGITS) as usize;
    let group: String = text.chars().chain(std::iter::repeat('0')).take(in_group).collect();
    (weight, group.parse().unwrap_or(0))
}

/// Does the same as `leading_group` for an unscaled value and its scale.
fn small_leading_group(unscaled: i64, scale: i64) -> Option<(i64, i64)> {
    let value = unscaled.unsigned_abs();
    let Some(digits) = value.checked_ilog10() else { return Some((0, 0)) };
    let digits = i64::from(digits) + 1;
    let exponent = digits - scale;
    let weight = (exponent - 1).div_euclid(GROUP_DIGITS);
    let in_group = exponent - weight * GROUP_DIGITS;
    let power = 10u64.checked_pow(u32::try_from((digits - in_group).unsigned_abs()).ok()?)?;
    let group = if digits >= in_group { value / power } else { value * power };
    Some((weight, group as i64))
}

/// Computes a / b, truncated to an integer with scale 0.
pub fn whole_quotient(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    if a.as_special().is_some() || b.as_special().is_some() {
        return special_quotient(a, b);
    }
    let whole = subtract(a, remainder(a, b)?.as_ref())?;
    round_to(divide(whole.as_ref(), b)?.as_ref(), 0, RoundingMode::HalfUp)
}

/// Computes a modulo b, with the sign of a.
pub fn remainder(a: NumericRef<'_>, b: NumericRef<'_>) -> Result<Numeric> {
    let Some((a, b)) = both(a, b) else { return special_remainder(a, b) };
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let scale = a.fractional_digit_count().max(b.fractional_digit_count());
    let (n, _) = a.with_scale(scale).into_bigint_and_exponent();
    let (d, _) = b.with_scale(scale).into_bigint_and_exponent();
    pack(&BigDecimal::new(n % d, scale))
}

/// Computes -a.
pub fn negate(a: NumericRef<'_>) -> Result<Numeric> {
    match a.to_unscaled() {
        Some((v, scale)) if v != i64::MIN => Ok(Numeric::from_unscaled(-v, scale)),
        _ => a.to_big().map_or_else(|| Ok(infinity(-infinite_sign(a))), |v| pack(&-v)),
    }
}

/// Rounds to `scale` digits after the point in the given mode. A negative `scale` counts digits before the
/// point.
pub fn round_to(a: NumericRef<'_>, scale: i64, mode: RoundingMode) -> Result<Numeric> {
    let Some(big) = a.to_big() else { return Ok(a.to_owned()) };
    pack(
        &big.with_scale_round(scale.clamp(-WHOLE_MAX, DIGITS_MAX), mode)
            .with_scale(scale.clamp(0, DIGITS_MAX)),
    )
}

/// Returns the square root, with as many digits as in PostgreSQL.
pub fn square_root(a: NumericRef<'_>) -> Result<Numeric> {
    if a.sign().is_some_and(i8::is_negative) {
        let message = "cannot take square root of a negative number";
        return Err(SqlError::new(SqlState::INVALID_POWER, message));
    }
    let Some(big) = a.to_big() else { return Ok(a.to_owned()) };
    let (weight, _) = leading_group(&big);
    // Zero has the weight of one digit.
    let weight = if big.is_zero() { 0 } else { weight };
    let root_weight = (weight + 1) * GROUP_DIGITS / 2 - 1;
    let scale = (SIGNIFICANT_MIN - root_weight).max(big.fractional_digit_count()).clamp(0, SCALE_MAX);
    pack(&root(&big, scale))
}

/// Returns the square root, rounded to `scale` digits.
fn root(of: &BigDecimal, scale: i64) -> BigDecimal {
    let (digits, _) = of.with_scale(2 * scale + 2).into_bigint_and_exponent();
    BigDecimal::new(digits.sqrt(), scale + 1).with_scale_round(scale, RoundingMode::HalfUp)
}

/// Returns the variance a / b, or its square root with the same number of digits. The result is 0 if a is not
/// positive.
pub fn mean_square(a: NumericRef<'_>, b: NumericRef<'_>, rooted: bool) -> Result<Numeric> {
    let Some((a, b)) = both(a, b) else { return Ok(Numeric::nan()) };
    if !a.is_positive() {
        return Ok(of_i128(0));
    }
    let scale = quotient_scale(&a, &b);
    let variance = quotient(a, b, scale);
    pack(&if rooted { root(&variance, scale) } else { variance })
}

/// Returns the average of `count` values with this sum.
pub fn average(sum: NumericRef<'_>, count: u64) -> Result<Numeric> {
    divide(sum, of_i128(i128::from(count)).as_ref())
}

/// Converts to the nearest double. Overflow is an error.
pub fn to_float(a: NumericRef<'_>) -> Result<f64> {
    if let Some(special) = a.as_special() {
        return Ok(special.to_f64());
    }
    let value = match a.to_unscaled() {
        Some((v, 0)) => v as f64,
        _ => a.to_f64(),
    };
    let lost = value == 0.0 && a.to_unscaled().is_none_or(|(digits, _)| digits != 0);
    if value.is_infinite() || lost {
        let message = format!("\"{a}\" is out of range for type double precision");
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_have_postgresql_scales() {
        let n = |t: &str| t.parse::<Numeric>().unwrap();
        for (a, b, expected) in [
            ("1", "3", "0.33333333333333333333"),
            ("10", "2", "5.0000000000000000"),
            ("1234567.89", "0.01", "123456789.00000000"),
            ("2", "3.000", "0.66666666666666666667"),
            ("-7", "2", "-3.5000000000000000"),
        ] {
            assert_eq!(divide(n(a).as_ref(), n(b).as_ref()).unwrap().to_string(), expected, "{a} / {b}");
        }
        assert_eq!(square_root(n("2").as_ref()).unwrap().to_string(), "1.414213562373095");
    }

    #[test]
    fn quotients_in_machine_words_are_those_of_big_numbers() {
        let values =
            [0, 1, -1, 7, 10, 99, 9_999, 10_000, 10_001, -123_456, 1_000_000_007, i64::MAX, i64::MIN];
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            for (s, t) in [(0, 0), (2, 0), (0, 3), (2, 2), (6, 1), (1, 20), (17, 4)] {
                let Some(small) = small_quotient((a, s), (b, t)) else { continue };
                let big = |n, scale| BigDecimal::new(BigInt::from(n), i64::from(scale));
                let (x, y): (BigDecimal, BigDecimal) = (big(a, s), big(b, t));
                let scale = quotient_scale(&x, &y);
                assert_eq!(
                    small.to_string(),
                    pack(&quotient(x, y, scale)).unwrap().to_string(),
                    "{a}e-{s} / {b}e-{t}"
                );
            }
        }
    }
}
