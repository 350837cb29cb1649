//! Exact arithmetic of numerics, with PostgreSQL's result scales and rounding (half away from zero).
//!
//! Invariants
//! 1. NaN in, NaN out; only then is a division by zero looked at.
//! 2. Sums and products of numbers that fit 64 bits allocate nothing.
//!
//! Does not know: columns and their precisions. Scale of a quotient: PostgreSQL's `select_div_scale`.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, Signed, Zero};

use crate::numeric::{Numeric, NumericError, NumericRef, SCALE_MAX, round};

/// Significant digits that a quotient has at least.
const QUOTIENT_DIGITS_MIN: i64 = 16;
/// Scale that a quotient has at most.
const QUOTIENT_SCALE_MAX: i64 = 1000;

type Outcome = Result<Numeric, NumericError>;

impl NumericRef<'_> {
    /// The sum.
    pub fn add(self, other: NumericRef<'_>) -> Outcome {
        self.with_same_scale(other, i64::checked_add, |a, b| a + b)
    }

    /// The difference.
    pub fn subtract(self, other: NumericRef<'_>) -> Outcome {
        self.with_same_scale(other, i64::checked_sub, |a, b| a - b)
    }

    fn with_same_scale(
        self,
        other: NumericRef<'_>,
        small: fn(i64, i64) -> Option<i64>,
        large: fn(BigDecimal, BigDecimal) -> BigDecimal,
    ) -> Outcome {
        if let (Some((a, s)), Some((b, t))) = (self.to_unscaled(), other.to_unscaled()) {
            let scale = s.max(t);
            let done = raise(a, scale - s).zip(raise(b, scale - t)).and_then(|(a, b)| small(a, b));
            if let Some(value) = done {
                return Ok(Numeric::from_unscaled(value, scale));
            }
        }
        let scale = i64::from(self.scale().max(other.scale()));
        both(self, other, |a, b| Ok(large(a, b).with_scale(scale)))
    }

    /// The product.
    pub fn multiply(self, other: NumericRef<'_>) -> Outcome {
        if let (Some((a, s)), Some((b, t))) = (self.to_unscaled(), other.to_unscaled())
            && let Some(value) = a.checked_mul(b)
            && i64::from(s) + i64::from(t) <= SCALE_MAX
        {
            return Ok(Numeric::from_unscaled(value, s + t));
        }
        let scale = (i64::from(self.scale()) + i64::from(other.scale())).min(SCALE_MAX);
        both(self, other, |a, b| Ok(round(&(a * b), scale)))
    }

    /// The quotient, to at least 16 significant digits.
    pub fn divide(self, other: NumericRef<'_>) -> Outcome {
        both(self, other, |a, b| {
            let scale = quotient_scale(&a, &b);
            let ((a, s), (b, t)) = (a.into_bigint_and_exponent(), b.into_bigint_and_exponent());
            quotient(a, b, scale + t - s).map(|digits| BigDecimal::new(digits, scale))
        })
    }

    /// The remainder of the division rounded towards zero; it has the sign of the dividend.
    pub fn remainder(self, other: NumericRef<'_>) -> Outcome {
        let scale = i64::from(self.scale().max(other.scale()));
        both(self, other, |a, b| {
            if b.is_zero() {
                return Err(NumericError::DivisionByZero);
            }
            let ((a, _), (b, _)) = (
                a.with_scale(scale).into_bigint_and_exponent(),
                b.with_scale(scale).into_bigint_and_exponent(),
            );
            Ok(BigDecimal::new(a % b, scale))
        })
    }

    /// The number with the other sign.
    pub fn negate(self) -> Numeric {
        self.map(|value| -value)
    }

    /// The number without its sign.
    pub fn absolute(self) -> Numeric {
        self.map(|value| value.abs())
    }

    /// Rounded half away from zero; a negative scale rounds before the point.
    pub fn rounded(self, scale: i64) -> Numeric {
        self.map(|value| without_negative_scale(round(&value, scale)))
    }

    /// Cut towards zero; a negative scale cuts before the point.
    pub fn truncated(self, scale: i64) -> Numeric {
        self.with_rounding(scale, bigdecimal::RoundingMode::Down)
    }

    /// The largest integer that is not larger.
    pub fn floor(self) -> Numeric {
        self.with_rounding(0, bigdecimal::RoundingMode::Floor)
    }

    /// The smallest integer that is not smaller.
    pub fn ceiling(self) -> Numeric {
        self.with_rounding(0, bigdecimal::RoundingMode::Ceiling)
    }

    fn with_rounding(self, scale: i64, mode: bigdecimal::RoundingMode) -> Numeric {
        self.map(|value| without_negative_scale(value.with_scale_round(scale, mode)))
    }

    /// Applies a function whose result is no longer than its argument, give or take a digit.
    fn map(self, change: impl FnOnce(BigDecimal) -> BigDecimal) -> Numeric {
        let changed = self.to_big().map(|value| Numeric::from_big(&change(value)));
        changed.and_then(Result::ok).unwrap_or_else(Numeric::nan)
    }
}

fn both(
    a: NumericRef<'_>,
    b: NumericRef<'_>,
    compute: impl FnOnce(BigDecimal, BigDecimal) -> Result<BigDecimal, NumericError>,
) -> Outcome {
    match (a.to_big(), b.to_big()) {
        (Some(a), Some(b)) => Numeric::from_big(&compute(a, b)?),
        _ => Ok(Numeric::nan()),
    }
}

fn without_negative_scale(value: BigDecimal) -> BigDecimal {
    if value.fractional_digit_count() < 0 { value.with_scale(0) } else { value }
}

fn raise(value: i64, digits: u16) -> Option<i64> {
    value.checked_mul(10i64.checked_pow(u32::from(digits))?)
}

/// `a * 10^shift / b`, rounded half away from zero.
fn quotient(mut a: BigInt, mut b: BigInt, shift: i64) -> Result<BigInt, NumericError> {
    if b.is_zero() {
        return Err(NumericError::DivisionByZero);
    }
    let power = BigInt::from(10).pow(shift.unsigned_abs() as u32);
    if shift >= 0 {
        a *= power
    } else {
        b *= power
    }
    let negative = (a.sign() == Sign::Minus) != (b.sign() == Sign::Minus);
    let (a, b) = (a.abs(), b.abs());
    let rounded: BigInt = (a * 2 + &b) / (b * 2);
    Ok(if negative { -rounded } else { rounded })
}

fn quotient_scale(a: &BigDecimal, b: &BigDecimal) -> i64 {
    let ((weight_a, first_a), (weight_b, first_b)) = (weight(a), weight(b));
    let weight = weight_a - weight_b - i64::from(first_a <= first_b);
    let shown = a.fractional_digit_count().max(b.fractional_digit_count());
    (QUOTIENT_DIGITS_MIN - weight * 4).max(shown).clamp(0, QUOTIENT_SCALE_MAX)
}

/// Position and value of the first digit in base 10,000.
fn weight(value: &BigDecimal) -> (i64, u32) {
    let (digits, scale) = value.as_bigint_and_exponent();
    if digits.is_zero() {
        return (0, 0);
    }
    let text = digits.magnitude().to_string();
    let last_exponent = text.len() as i64 - scale - 1;
    let weight = last_exponent.div_euclid(4);
    let taken = last_exponent.rem_euclid(4) as usize + 1;
    let first = text.bytes().chain(std::iter::repeat(b'0')).take(taken);
    (weight, first.fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}
