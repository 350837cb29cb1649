//! The numeric type: exact decimals with a display scale, the infinities, and NaN. The behaviour is
//! PostgreSQL's.
//!
//! Stored format (little endian)
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | scale, i16: digits after the point, 0..=16383; -1 NaN, -2 Infinity, -3 -Infinity |
//! | 2..  | unscaled integer, two's complement, shortest form; nothing for zero and where no number is stored |
//!
//! Invariants
//! 1. A stored numeric is well formed: `NumericRef::from_bytes` checks it, and other code builds it
//!    correctly.
//! 2. Equal numbers of different scale (1.1 and 1.10) are equal in `order` and have the same key bytes
//!    (`key.rs`).
//!
//! This module does not know columns or rows. `Numeric::fit` rounds to a column's precision.

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
const INFINITY_SCALE: i16 = -2;
const NEGATIVE_INFINITY_SCALE: i16 = -3;

/// A numeric that is not a decimal. The order is PostgreSQL's: all decimals are between the two infinities,
/// and NaN is above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// Below every number.
    NegativeInfinity,
    /// Above every number.
    Infinity,
    /// Not a number: equal to itself, above everything else.
    NaN,
}

impl Special {
    const fn scale(self) -> i16 {
        match self {
            Special::NegativeInfinity => NEGATIVE_INFINITY_SCALE,
            Special::Infinity => INFINITY_SCALE,
            Special::NaN => NAN_SCALE,
        }
    }

    const fn of_scale(scale: i16) -> Option<Self> {
        match scale {
            NAN_SCALE => Some(Special::NaN),
            INFINITY_SCALE => Some(Special::Infinity),
            NEGATIVE_INFINITY_SCALE => Some(Special::NegativeInfinity),
            _ => None,
        }
    }

    /// Returns the infinity of this sign.
    pub const fn infinity(negative: bool) -> Self {
        if negative { Special::NegativeInfinity } else { Special::Infinity }
    }

    /// Returns the value as text.
    pub const fn name(self) -> &'static str {
        match self {
            Special::NegativeInfinity => "-Infinity",
            Special::Infinity => "Infinity",
            Special::NaN => "NaN",
        }
    }

    /// Reads NaN, and the infinities with or without a sign, in upper or lower case.
    pub fn read(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("nan") {
            return Some(Special::NaN);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_infinity = unsigned.eq_ignore_ascii_case("infinity") || unsigned.eq_ignore_ascii_case("inf");
        is_infinity.then(|| Special::infinity(text.starts_with('-')))
    }

    /// Returns the value as a double.
    pub const fn to_f64(self) -> f64 {
        match self {
            Special::NegativeInfinity => f64::NEG_INFINITY,
            Special::Infinity => f64::INFINITY,
            Special::NaN => f64::NAN,
        }
    }
}

/// The reason why a numeric operation has no result.
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
    /// Returns NaN or an infinity.
    pub fn special(special: Special) -> Self {
        Self(SmallVec::from_slice(&special.scale().to_le_bytes()))
    }

    /// Returns NaN (not a number), which is equal to itself and above every number.
    pub fn nan() -> Self {
        Self::special(Special::NaN)
    }

    /// Makes a numeric from a decimal. A negative scale becomes zeros, and a scale above `SCALE_MAX` is
    /// rounded.
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

    /// Makes a numeric from an unscaled integer and a scale in 0..=`SCALE_MAX`.
    pub fn from_unscaled(unscaled: i64, scale: u16) -> Self {
        assert!(i64::from(scale) <= SCALE_MAX, "scale {scale} out of range");
        let mut bytes: SmallVec<[u8; 22]> = SmallVec::from_slice(&scale.to_le_bytes());
        if unscaled != 0 {
            let raw = unscaled.to_le_bytes();
            bytes.extend_from_slice(shortest(&raw));
        }
        Self(bytes)
    }

    /// Makes a numeric with scale 0 from an integer.
    pub fn from_i64(value: i64) -> Self {
        Self::from_unscaled(value, 0)
    }

    /// Makes a numeric from the 15 significant digits of a float, like PostgreSQL's cast.
    pub fn from_f64(value: f64) -> Result<Self, NumericError> {
        if value.is_nan() {
            return Ok(Self::nan());
        }
        if value.is_infinite() {
            return Ok(Self::special(Special::infinity(value < 0.0)));
        }
        let digits = format!("{value:.14e}");
        let big = BigDecimal::from_str(&digits).map_err(|_| NumericError::Syntax)?;
        Self::from_big(&big.normalized())
    }

    /// Returns the same number, borrowed.
    pub fn as_ref(&self) -> NumericRef<'_> {
        NumericRef(&self.0)
    }

    /// Rounds (half away from zero) to `scale` digits after the point and checks that at most `precision`
    /// digits remain. NaN fits everywhere, an infinity nowhere.
    pub fn fit(&self, precision: u16, scale: i16) -> Result<Self, NumericError> {
        let Some(big) = self.as_ref().to_big() else {
            return if self.as_ref().is_nan() { Ok(self.clone()) } else { Err(NumericError::Overflow) };
        };
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
    /// Reads stored bytes. `None` means that they are not a numeric.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let scale = i16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let sound = match Special::of_scale(scale) {
            Some(_) => bytes.len() == 2,
            None => scale >= 0 && i64::from(scale) <= SCALE_MAX,
        };
        sound.then_some(Self(bytes))
    }

    /// Returns the stored form.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the same number, owned.
    pub fn to_owned(self) -> Numeric {
        Numeric(SmallVec::from_slice(self.0))
    }

    /// Returns whether this is NaN.
    pub fn is_nan(self) -> bool {
        self.raw_scale() == NAN_SCALE
    }

    /// Returns which special value this is (NaN or an infinity), or `None` for a decimal.
    pub fn as_special(self) -> Option<Special> {
        Special::of_scale(self.raw_scale())
    }

    /// Returns the number of digits that are shown after the point, or 0 for NaN and infinities.
    pub fn scale(self) -> u16 {
        self.raw_scale().max(0) as u16
    }

    /// Returns the unscaled integer and the scale, if the integer fits. This needs no allocation.
    pub fn to_unscaled(self) -> Option<(i64, u16)> {
        if self.raw_scale() < 0 || self.0.len() > 10 {
            return None;
        }
        Some((sign_extend(&self.0[2..]), self.scale()))
    }

    /// Returns the value as a decimal, or `None` for NaN and infinities.
    pub fn to_big(self) -> Option<BigDecimal> {
        if self.raw_scale() < 0 {
            return None;
        }
        let digits = match self.to_unscaled() {
            Some((small, _)) => BigInt::from(small),
            None => BigInt::from_signed_bytes_le(&self.0[2..]),
        };
        Some(BigDecimal::new(digits, i64::from(self.scale())))
    }

    /// Returns the sign: -1, 0 or 1, also for infinities, or `None` for NaN.
    pub fn sign(self) -> Option<i8> {
        match self.as_special() {
            Some(Special::NaN) => None,
            Some(special) => Some(if special == Special::Infinity { 1 } else { -1 }),
            // Two's complement: the last byte has the sign. Zero has no bytes.
            None => Some(self.0[2..].last().map_or(0, |byte| if byte & 0x80 != 0 { -1 } else { 1 })),
        }
    }

    /// Returns the order of two numerics. It is a total order: NaN is above all numbers and equal to itself.
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
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Returns a number that orders the special values and the decimals. All decimals have the same number.
    fn rank(self) -> i8 {
        match self.as_special() {
            Some(Special::NegativeInfinity) => -1,
            None => 0,
            Some(Special::Infinity) => 1,
            Some(Special::NaN) => 2,
        }
    }

    /// Returns the nearest integer (half away from zero), if it is in range.
    pub fn to_i64(self) -> Option<i64> {
        if let Some((value, 0)) = self.to_unscaled() {
            return Some(value);
        }
        let (digits, _) = round(&self.to_big()?, 0).into_bigint_and_exponent();
        i64::try_from(digits).ok()
    }

    /// Returns the nearest double. NaN and infinities stay unchanged.
    pub fn to_f64(self) -> f64 {
        if let Some(special) = self.as_special() {
            return special.to_f64();
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

/// The powers of ten that fit in an `i64`.
const TENS: [i64; 19] = {
    let mut tens = [1; 19];
    let mut n = 1;
    while n < tens.len() {
        tens[n] = tens[n - 1] * 10;
        n += 1;
    }
    tens
};

/// Returns the unscaled value with `by` more digits after the point, or `None` for very many.
#[inline]
pub fn lifted(unscaled: i64, by: u16) -> Option<i128> {
    TENS.get(usize::from(by)).map(|power| i128::from(unscaled) * i128::from(*power))
}

/// Returns whether an integer has more than `most` decimal digits. The digits are counted only if the number
/// of bits does not decide it.
fn has_more_digits(value: &BigInt, most: u64) -> bool {
    // The number of bits of 10^most, or slightly less: log2(10) = 3.32192809...
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
            None => f.write_str(self.as_special().unwrap_or(Special::NaN).name()),
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
        if let Some(special) = Special::read(text) {
            return Ok(Self::special(special));
        }
        if text.contains('_') {
            return Err(NumericError::Syntax);
        }
        let big = BigDecimal::from_str(text).map_err(|_| NumericError::Syntax)?;
        // A literal with more digits than can be stored is an error. Only arithmetic rounds.
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
