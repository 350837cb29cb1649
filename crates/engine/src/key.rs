//! Order-preserving keys. A byte by byte comparison of two encoded keys compares their column values one
//! after the other.
//!
//! Encoding of one column
//!
//! | bytes | what |
//! |---|---|
//! | 0 | 0x01 a value follows, 0x02 NULL (nothing follows) |
//! | integers | 8 bytes big endian, sign bit flipped (all three widths alike) |
//! | boolean | 1 byte |
//! | date / timestamps, time | 4 / 8 bytes big endian, sign bit flipped |
//! | double precision, real | 8 / 4 bytes big endian; positive: sign bit set, negative: all bits flipped; NaN above all |
//! | interval | its length in microseconds (a month is 30 days), 16 bytes big endian, sign bit flipped |
//! | uuid | its 16 bytes |
//! | array | its elements one after the other as columns, 0x00; if it does not begin at 1: 0x04, its first subscript, 4 bytes big endian, sign bit flipped |
//! | text, bytea | bytes, 0x00 written as 0x00 0xFF, ended by 0x00 0x00; char(n) without trailing blanks |
//! | numeric | class byte, exponent u32 big endian, digit pairs + 1, 0x00; a negative number's bytes are flipped |
//! | numeric 0, NaN, infinities | class byte |
//!
//! Invariants
//! 1. The encoding of a column is never a prefix of another encoding of the same type. So keys with the same
//!    number of columns need no lengths. Arrays whose first subscript is 1 are the only exception. Such an
//!    array may be a prefix of an array with the same elements and another first subscript, which continues
//!    with 0x04.
//! 2. Byte order equals `Datum::order`, column by column. NULL is last.
//! 3. A column begins with 0x01 or 0x02. So `prefix + [0x03]` is above every key that extends `prefix` by
//!    columns.
//!
//! Only index-only scans decode keys (`entry_columns.rs`). They decode only columns whose key bytes keep the
//! exact value. All other columns are read from rows.
//!
//! This module does not know pages, prefixes, or which columns a key has.

use crate::numeric::{NumericRef, Special};
use crate::types::{ColumnType, Datum, Moment};

const ARRAY_END: u8 = 0x00;
const ARRAY_BOUND: u8 = 0x04;
const TAG_VALUE: u8 = 0x01;
const TAG_NULL: u8 = 0x02;
const PREFIX_END: u8 = 0x03;
const NUMERIC_NEGATIVE_INFINITY: u8 = 0x20;
const NUMERIC_NEGATIVE: u8 = 0x40;
const NUMERIC_ZERO: u8 = 0x80;
const NUMERIC_POSITIVE: u8 = 0xC0;
const NUMERIC_INFINITY: u8 = 0xD0;
const NUMERIC_NAN: u8 = 0xE0;

/// Appends the encoding of one column. `column` matters only for char(n), whose trailing blanks do not count.
#[inline]
pub fn push(key: &mut Vec<u8>, column: ColumnType, datum: &Datum<'_>) {
    if datum.is_null() {
        key.push(TAG_NULL);
        return;
    }
    if let Some(value) = datum.as_integer() {
        let mut bytes = [TAG_VALUE; 9];
        bytes[1..].copy_from_slice(&flip_sign(value).to_be_bytes());
        key.extend_from_slice(&bytes);
        return;
    }
    push_other(key, column, datum);
}

/// Appends the encodings of several columns. Stops at the end of the shorter of the two lists.
pub fn push_all(key: &mut Vec<u8>, columns: &[ColumnType], data: &[Datum<'_>]) {
    for (column, datum) in columns.iter().zip(data) {
        push(key, *column, datum);
    }
}

/// Changes a key prefix into a bound above every key that begins with it, and below all larger keys.
pub fn prefix_end(prefix: &mut Vec<u8>) {
    prefix.push(PREFIX_END);
}

/// Returns whether the stored value can be decoded exactly from its key encoding.
pub(crate) const fn is_exact(column: ColumnType) -> bool {
    match column {
        ColumnType::Bool | ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8 | ColumnType::Oid => true,
        ColumnType::Date | ColumnType::Timestamp | ColumnType::TimestampTz | ColumnType::Time => true,
        ColumnType::Uuid | ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Bytea => true,
        ColumnType::Rounded(moment, _) => !matches!(moment, Moment::Interval),
        // Keys lack the sign of a zero, zeros at the end of a numeric, blanks at the end of a text, and the
        // parts of an interval.
        ColumnType::Float4 | ColumnType::Float8 | ColumnType::Numeric { .. } => false,
        ColumnType::Char(_) | ColumnType::Interval | ColumnType::Array(_) => false,
        // No index can have a column of this type.
        ColumnType::Json => false,
    }
}

/// Returns whether `part_bytes` finds the end of a column of this type.
pub(crate) const fn has_known_end(column: ColumnType) -> bool {
    !matches!(column, ColumnType::Array(_))
}

/// Returns whether an encoded column is NULL.
pub(crate) fn is_null(part: &[u8]) -> bool {
    part == [TAG_NULL]
}

/// Returns the length of the first encoded column of the key, in bytes. It is `None` if the column has no end
/// in the key.
#[inline]
pub(crate) fn part_bytes(column: ColumnType, key: &[u8]) -> Option<usize> {
    if *key.first()? == TAG_NULL {
        return Some(1);
    }
    let value_bytes = match column {
        ColumnType::Bool => 1,
        ColumnType::Float4 | ColumnType::Date => 4,
        ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8 | ColumnType::Oid | ColumnType::Float8 => 8,
        ColumnType::Timestamp | ColumnType::TimestampTz | ColumnType::Time => 8,
        ColumnType::Interval | ColumnType::Uuid => 16,
        ColumnType::Rounded(moment, _) => return part_bytes(moment.unrounded(), key),
        ColumnType::Numeric { .. } => numeric_bytes(&key[1..])?,
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text => text_bytes(&key[1..])?,
        ColumnType::Json | ColumnType::Bytea => text_bytes(&key[1..])?,
        ColumnType::Array(_) => return None,
    };
    Some(1 + value_bytes)
}

/// Returns the number of bytes of a text, including its end.
fn text_bytes(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let zero = at + bytes.get(at..)?.iter().position(|b| *b == 0)?;
        if *bytes.get(zero + 1)? == 0 {
            return Some(zero + 2);
        }
        at = zero + 2;
    }
}

fn numeric_bytes(bytes: &[u8]) -> Option<usize> {
    let end = match *bytes.first()? {
        NUMERIC_POSITIVE => 0,
        NUMERIC_NEGATIVE => !0,
        _ => return Some(1),
    };
    let digits = bytes.get(5..)?;
    Some(5 + digits.iter().position(|b| *b == end)? + 1)
}

/// Returns the value of an encoded column that is not NULL, if its type is exact and of fixed width.
#[inline]
pub(crate) fn fixed_value(column: ColumnType, part: &[u8]) -> Option<Datum<'static>> {
    let bytes = &part[1..];
    let word = || bytes.first_chunk().map(|raw| flip_sign(u64::from_be_bytes(*raw) as i64) as i64);
    match column {
        ColumnType::Int2 => word().map(|v| Datum::Int2(v as i16)),
        ColumnType::Int4 => word().map(|v| Datum::Int4(v as i32)),
        ColumnType::Int8 | ColumnType::Oid => word().map(Datum::Int8),
        ColumnType::Timestamp => word().map(Datum::Timestamp),
        ColumnType::TimestampTz => word().map(Datum::TimestampTz),
        ColumnType::Time => word().map(Datum::Time),
        ColumnType::Date => {
            bytes.first_chunk().map(|raw| Datum::Date((u32::from_be_bytes(*raw) ^ (1 << 31)) as i32))
        }
        ColumnType::Bool => bytes.first().map(|b| Datum::Bool(*b != 0)),
        ColumnType::Uuid => bytes.first_chunk().map(|raw| Datum::Uuid(*raw)),
        ColumnType::Rounded(moment, _) => fixed_value(moment.unrounded(), part),
        _ => None,
    }
}

/// Appends the bytes of an encoded text or bytea.
pub(crate) fn append_bytes(out: &mut Vec<u8>, part: &[u8]) {
    let mut left = part.get(1..part.len() - 2).unwrap_or(&[]);
    while let Some(zero) = left.iter().position(|b| *b == 0) {
        out.extend_from_slice(&left[..=zero]);
        // The next byte is 0xFF, which means that the zero is not the end.
        left = left.get(zero + 2..).unwrap_or(&[]);
    }
    out.extend_from_slice(left);
}

fn push_other(key: &mut Vec<u8>, column: ColumnType, datum: &Datum<'_>) {
    key.push(TAG_VALUE);
    match *datum {
        Datum::Bool(v) => key.push(u8::from(v)),
        Datum::Float4(v) => key.extend_from_slice(&small_float_bits(v).to_be_bytes()),
        Datum::Float8(v) => key.extend_from_slice(&float_bits(v).to_be_bytes()),
        Datum::Numeric(v) => push_numeric(key, v),
        Datum::Text(v) if matches!(column, ColumnType::Char(_)) => {
            push_bytes(key, v.trim_end_matches(' ').as_bytes());
        }
        Datum::Text(v) => push_bytes(key, v.as_bytes()),
        Datum::Bytea(v) => push_bytes(key, v),
        Datum::Date(v) => key.extend_from_slice(&((v as u32) ^ (1 << 31)).to_be_bytes()),
        Datum::Timestamp(v) | Datum::TimestampTz(v) | Datum::Time(v) => {
            key.extend_from_slice(&flip_sign(v).to_be_bytes());
        }
        Datum::Interval(v) => {
            key.extend_from_slice(&((v.length_us() as u128) ^ (1 << 127)).to_be_bytes());
        }
        Datum::Uuid(v) => key.extend_from_slice(&v),
        Datum::Array(v) => {
            v.iter().for_each(|element| push(key, v.element(), &element));
            key.push(ARRAY_END);
            if !v.is_vector() && v.lower_bound() != 1 {
                key.push(ARRAY_BOUND);
                key.extend_from_slice(&((v.lower_bound() as u32) ^ (1 << 31)).to_be_bytes());
            }
        }
        Datum::Null | Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => {
            unreachable!("handled by push")
        }
    }
}

fn flip_sign(value: i64) -> u64 {
    (value as u64) ^ (1 << 63)
}

fn float_bits(value: f64) -> u64 {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { value.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

fn small_float_bits(value: f32) -> u32 {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { value.to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | (1 << 31) }
}

fn push_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.split_inclusive(|b| *b == 0) {
        key.extend_from_slice(part);
        if part.ends_with(&[0]) {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

/// Appends a number as 0.d1d2d3... x 10^exponent without leading or trailing zeros, with two digits in a
/// byte.
fn push_numeric(key: &mut Vec<u8>, value: NumericRef<'_>) {
    if let Some((unscaled, scale)) = value.to_unscaled() {
        let (mut digits, mut rest, mut first) = ([0; 20], unscaled.unsigned_abs(), 20);
        while rest > 0 {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        return push_digits(key, unscaled < 0, &digits[first..], i64::from(scale));
    }
    let Some(big) = value.to_big() else {
        key.push(match value.as_special() {
            Some(Special::NegativeInfinity) => NUMERIC_NEGATIVE_INFINITY,
            Some(Special::Infinity) => NUMERIC_INFINITY,
            Some(Special::NaN) | None => NUMERIC_NAN,
        });
        return;
    };
    let (digits, scale) = big.into_bigint_and_exponent();
    let negative = digits.sign() == bigdecimal::num_bigint::Sign::Minus;
    push_digits(key, negative, digits.magnitude().to_string().as_bytes(), scale);
}

/// Appends a number with these decimal digits, of which the last `scale` are after the point.
fn push_digits(key: &mut Vec<u8>, negative: bool, digits: &[u8], scale: i64) {
    let zeros = digits.iter().rev().take_while(|d| **d == b'0').count();
    let significant = &digits[..digits.len() - zeros];
    if significant.is_empty() {
        key.push(NUMERIC_ZERO);
        return;
    }
    let exponent = digits.len() as i64 - scale;
    let start = key.len() + 1;
    key.push(if negative { NUMERIC_NEGATIVE } else { NUMERIC_POSITIVE });
    key.extend_from_slice(&((exponent as i32 as u32) ^ (1 << 31)).to_be_bytes());
    key.extend(significant.chunks(2).map(|pair| {
        let low = pair.get(1).map_or(0, |d| d - b'0');
        (pair[0] - b'0') * 10 + low + 1
    }));
    key.push(0);
    if negative {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
