//! The numeric type: exact decimals with a display scale, and NaN. (PostgreSQL's semantics, without its infinities.)
//!
//! Stored form (little endian)
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | scale, i16: digits after the point, 0..=16383; -1 for NaN |
//! | 2..  | unscaled integer, two's complement, shortest form; nothing for zero and NaN |
//!
//! Invariants
//! 1. A stored numeric is well formed: `NumericRef::from_bytes` checks it, everything else builds it.
//! 2. Equal numbers of different scale (1.1, 1.10) are equal in `order` and have the same key form (`key.rs`).
//!
//! Does not know: columns, rows, rounding to a column's precision beyond `Numeric::fit`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, Zero};
use smallvec::SmallVec;
use thiserror::Error;

/// Digits after the point that a numeric may have.
pub const SCALE_MAX: i64 = 16_383;
/// Digits before the point that a numeric may have.
pub const WHOLE_DIGITS_MAX: u64 = 131_072;
const NAN_SCALE: i16 = -1;

/// Why a numeric operation has no result.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NumericError {
    /// SQLSTATE 22003.
    #[error("numeric field overflow")]
    Overflow,
    /// SQLSTATE 22012.
    #[error("division by zero")]
    DivisionByZero,
    /// SQLSTATE 22P02.
    #[error("invalid input syntax for type numeric")]
    Syntax,
}

/// An owned numeric, in its stored form.
#[derive(Clone, Debug)]
pub struct Numeric(SmallVec<[u8; 22]>);

/// A borrowed numeric, in its stored form.
#[derive(Clone, Copy, Debug)]
pub struct NumericRef<'a>(&'a [u8]);

impl Numeric {
    /// Not a number: equal to itself, above every number.
    pub fn nan() -> Self {
        Self(SmallVec::from_slice(&NAN_SCALE.to_le_bytes()))
    }

    /// From a decimal; a negative scale becomes zeros, a scale above `SCALE_MAX` is rounded.
    pub fn from_big(value: &BigDecimal) -> Result<Self, NumericError> {
        let scale = value.fractional_digit_count();
        let fitted = if (0..=SCALE_MAX).contains(&scale) {
            None
        } else {
            if scale < -(WHOLE_DIGITS_MAX as i64) {
                return Err(NumericError::Overflow);
            }
            Some(round(value, scale.clamp(0, SCALE_MAX)))
        };
        let (digits, scale) = match &fitted {
            Some(v) => v.as_bigint_and_exponent(),
            None => value.as_bigint_and_exponent(),
        };
        if has_more_digits(&digits, WHOLE_DIGITS_MAX + scale as u64) {
            return Err(NumericError::Overflow);
        }
        Ok(Self::from_parts(&digits, scale as i16))
    }

    /// From an unscaled integer and a scale in 0..=`SCALE_MAX`.
    pub fn from_unscaled(unscaled: i64, scale: u16) -> Self {
        assert!(i64::from(scale) <= SCALE_MAX, "scale {scale} out of range");
        let mut bytes: SmallVec<[u8; 22]> = SmallVec::from_slice(&scale.to_le_bytes());
        if unscaled != 0 {
            let raw = unscaled.to_le_bytes();
            bytes.extend_from_slice(shortest(&raw));
        }
        Self(bytes)
    }

    /// From an integer, with scale 0.
    pub fn from_i64(value: i64) -> Self {
        Self::from_unscaled(value, 0)
    }

    /// From a float by its 15 significant digits, like PostgreSQL's cast; infinities overflow.
    pub fn from_f64(value: f64) -> Result<Self, NumericError> {
        if value.is_nan() {
            return Ok(Self::nan());
        }
        if value.is_infinite() {
            return Err(NumericError::Overflow);
        }
        let digits = format!("{value:.14e}");
        let big = BigDecimal::from_str(&digits).map_err(|_| NumericError::Syntax)?;
        Self::from_big(&big.normalized())
    }

    /// The same number, borrowed.
    pub fn as_ref(&self) -> NumericRef<'_> {
        NumericRef(&self.0)
    }

    /// Rounds (half away from zero) to `scale` digits after the point and checks that at most `precision` digits remain.
    pub fn fit(&self, precision: u16, scale: i16) -> Result<Self, NumericError> {
        let Some(big) = self.as_ref().to_big() else { return Ok(self.clone()) };
        let rounded = round(&big, i64::from(scale));
        let (digits, _) = rounded.as_bigint_and_exponent();
        if !digits.is_zero() && decimal_digits(&digits) > u64::from(precision) {
            return Err(NumericError::Overflow);
        }
        Self::from_big(&rounded)
    }

    fn from_parts(digits: &BigInt, scale: i16) -> Self {
        let mut bytes: SmallVec<[u8; 22]> = SmallVec::from_slice(&scale.to_le_bytes());
        if digits.sign() != Sign::NoSign {
            bytes.extend_from_slice(&digits.to_signed_bytes_le());
        }
        Self(bytes)
    }
}

impl<'a> NumericRef<'a> {
    /// From stored bytes; `None` if they are not a numeric.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let scale = i16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let sound =
            if scale == NAN_SCALE { bytes.len() == 2 } else { scale >= 0 && i64::from(scale) <= SCALE_MAX };
        sound.then_some(Self(bytes))
    }

    /// The stored form.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The same number, owned.
    pub fn to_owned(self) -> Numeric {
        Numeric(SmallVec::from_slice(self.0))
    }

    /// Whether this is NaN.
    pub fn is_nan(self) -> bool {
        self.raw_scale() == NAN_SCALE
    }

    /// Digits after the point that are shown; 0 for NaN.
    pub fn scale(self) -> u16 {
        self.raw_scale().max(0) as u16
    }

    /// The unscaled integer and the scale, if the integer fits: the way that needs no allocation.
    pub fn to_unscaled(self) -> Option<(i64, u16)> {
        if self.is_nan() || self.0.len() > 10 {
            return None;
        }
        Some((sign_extend(&self.0[2..]), self.scale()))
    }

    /// As a decimal; `None` for NaN.
    pub fn to_big(self) -> Option<BigDecimal> {
        if self.is_nan() {
            return None;
        }
        let digits = match self.to_unscaled() {
            Some((small, _)) => BigInt::from(small),
            None => BigInt::from_signed_bytes_le(&self.0[2..]),
        };
        Some(BigDecimal::new(digits, i64::from(self.scale())))
    }

    /// Total order; NaN is above all numbers and equal to itself.
    pub fn order(self, other: NumericRef<'_>) -> Ordering {
        if let (Some((a, s)), Some((b, t))) = (self.to_unscaled(), other.to_unscaled()) {
            if s == t {
                return a.cmp(&b);
            }
            let scale = s.max(t);
            if let (Some(a), Some(b)) = (lifted(a, scale - s), lifted(b, scale - t)) {
                return a.cmp(&b);
            }
        }
        match (self.to_big(), other.to_big()) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        }
    }

    /// The nearest integer (half away from zero), if it is in range.
    pub fn to_i64(self) -> Option<i64> {
        if let Some((value, 0)) = self.to_unscaled() {
            return Some(value);
        }
        let (digits, _) = round(&self.to_big()?, 0).into_bigint_and_exponent();
        i64::try_from(digits).ok()
    }

    /// The nearest double; NaN stays NaN.
    pub fn to_f64(self) -> f64 {
        if self.is_nan() {
            return f64::NAN;
        }
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    fn raw_scale(self) -> i16 {
        i16::from_le_bytes([self.0[0], self.0[1]])
    }
}

/// Rounds half away from zero to `scale` digits after the point; a negative scale rounds before the point.
pub fn round(value: &BigDecimal, scale: i64) -> BigDecimal {
    value.with_scale_round(scale, bigdecimal::RoundingMode::HalfUp)
}

/// Powers of ten that an `i64` holds.
const TENS: [i64; 19] = {
    let mut tens = [1; 19];
    let mut n = 1;
    while n < tens.len() {
        tens[n] = tens[n - 1] * 10;
        n += 1;
    }
    tens
};

/// The unscaled value with `by` more digits after the point; `None` for very many.
#[inline]
pub fn lifted(unscaled: i64, by: u16) -> Option<i128> {
    TENS.get(usize::from(by)).map(|power| i128::from(unscaled) * i128::from(*power))
}

/// Whether an integer has more than `most` decimal digits; counts them only where its bits leave it open.
fn has_more_digits(value: &BigInt, most: u64) -> bool {
    // Bits of 10^most, a little less: log2(10) = 3.32192809...
    let edge = most * 332_192_809 / 100_000_000;
    let bits = value.bits();
    bits > edge && (bits > edge + 8 || decimal_digits(value) > most)
}

fn decimal_digits(value: &BigInt) -> u64 {
    value.magnitude().to_string().len() as u64
}

fn shortest(raw: &[u8; 8]) -> &[u8] {
    let negative = raw[7] & 0x80 != 0;
    let filler = if negative { 0xFF } else { 0 };
    let mut len = 8;
    while len > 1 && raw[len - 1] == filler && (raw[len - 2] & 0x80 != 0) == negative {
        len -= 1;
    }
    &raw[..len]
}

fn sign_extend(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut raw = if negative { [0xFF; 8] } else { [0; 8] };
    raw[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(raw)
}

impl fmt::Display for NumericRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_big() {
            Some(big) => f.write_str(&big.to_plain_string()),
            None => f.write_str("NaN"),
        }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl FromStr for Numeric {
    type Err = NumericError;

    fn from_str(text: &str) -> Result<Self, NumericError> {
        let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        if text.eq_ignore_ascii_case("nan") {
            return Ok(Self::nan());
        }
        if text.contains('_') {
            return Err(NumericError::Syntax);
        }
        let big = BigDecimal::from_str(text).map_err(|_| NumericError::Syntax)?;
        // Digits that cannot be kept are an error where they are written; only arithmetic rounds.
        if big.fractional_digit_count() > SCALE_MAX {
            return Err(NumericError::Overflow);
        }
        Self::from_big(&big)
    }
}

impl PartialEq for NumericRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order(*other) == Ordering::Equal
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}
