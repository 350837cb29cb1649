//! PostgreSQL's binary form of numeric.
//!
//! ```text
//!  0  i16  number of groups
//!  2  i16  weight: power of 10000 of the first group
//!  4  u16  sign: 0x0000 positive, 0x4000 negative, 0xC000 NaN, 0xD000 Infinity, 0xF000 -Infinity
//!  6  u16  display scale: decimal digits after the point; means nothing for NaN and infinities
//!  8  i16  groups, each 0 .. 9999, most significant first; no zero group first or last
//! ```
//! (`numeric_send` in PostgreSQL's `numeric.c`.)
//!
//! Invariants
//! 1. A decoded number that is encoded again has the same value and the same scale.
//! 2. Memory for a decoded number is bounded by the digits that `Numeric` allows, even if the weight in the
//!    bytes is larger.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::{BigInt, Sign};
use varve_engine::{Numeric, NumericRef, Special};

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;
/// The display scale that PostgreSQL writes for an infinity.
const INFINITY_SCALE: u16 = 32;
const GROUP: u64 = 10_000;
const GROUP_DIGITS: i64 = 4;
const SCALE_MAX: u16 = 16_383;

/// Appends the binary form.
pub fn write(number: NumericRef<'_>, out: &mut Vec<u8>) {
    match (number.to_unscaled(), number.as_special()) {
        (Some((unscaled, scale)), _) => write_small(unscaled, scale, out),
        (None, Some(special)) => write_special(special, out),
        (None, None) => write_big(number, out),
    }
}

fn write_special(special: Special, out: &mut Vec<u8>) {
    match special {
        Special::NaN => put(out, &[], 0, NAN, 0),
        Special::Infinity => put(out, &[], 0, INFINITY, INFINITY_SCALE),
        Special::NegativeInfinity => put(out, &[], 0, NEGATIVE_INFINITY, INFINITY_SCALE),
    }
}

/// Writes a number whose unscaled integer fits in 64 bits. This needs no allocation.
fn write_small(unscaled: i64, scale: u16, out: &mut Vec<u8>) {
    let pad = padding(scale);
    let mut rest = u128::from(unscaled.unsigned_abs()) * 10_u128.pow(pad);
    let mut groups = [0_i16; 7];
    let mut first = groups.len();
    while rest > 0 {
        first -= 1;
        groups[first] = (rest % u128::from(GROUP)) as i16;
        rest /= u128::from(GROUP);
    }
    put_signed(out, &groups[first..], unscaled < 0, scale);
}

fn write_big(number: NumericRef<'_>, out: &mut Vec<u8>) {
    let Some(big) = number.to_big() else { return write_special(Special::NaN, out) };
    let scale = number.scale();
    let (digits, _) = big.into_bigint_and_exponent();
    let mut text = digits.magnitude().to_str_radix(10);
    text.extend(std::iter::repeat_n('0', padding(scale) as usize));
    let groups: Vec<i16> = text.as_bytes().rchunks(GROUP_DIGITS as usize).rev().map(group).collect();
    put_signed(out, &groups, digits.sign() == Sign::Minus, scale);
}

fn group(digits: &[u8]) -> i16 {
    digits.iter().fold(0, |value, digit| value * 10 + i16::from(digit - b'0'))
}

/// Returns the number of zeros that fill up the last group of digits after the point.
fn padding(scale: u16) -> u32 {
    (GROUP_DIGITS as u32 - u32::from(scale) % GROUP_DIGITS as u32) % GROUP_DIGITS as u32
}

fn put_signed(out: &mut Vec<u8>, groups: &[i16], negative: bool, scale: u16) {
    let groups_after = i64::from(scale.div_ceil(GROUP_DIGITS as u16));
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let groups = &groups[leading..];
    let weight = groups.len() as i64 - groups_after - 1;
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let groups = &groups[..groups.len() - trailing];
    let (weight, sign) =
        if groups.is_empty() { (0, 0) } else { (weight, if negative { NEGATIVE } else { 0 }) };
    put(out, groups, weight as i16, sign, scale);
}

fn put(out: &mut Vec<u8>, groups: &[i16], weight: i16, sign: u16, scale: u16) {
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

/// Reads the binary form. `None` means that it is not valid.
pub fn read(raw: &[u8]) -> Option<Numeric> {
    let (header, raw_groups) = raw.split_at_checked(8)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (count, weight, sign, scale) = (field(0), field(2) as i16, field(4), field(6));
    if raw_groups.len() != usize::from(count) * 2 || scale > SCALE_MAX {
        return None;
    }
    match sign {
        NAN => return Some(Numeric::nan()),
        INFINITY | NEGATIVE_INFINITY => {
            return Some(Numeric::special(Special::infinity(sign == NEGATIVE_INFINITY)));
        }
        0 | NEGATIVE => {}
        _ => return None,
    }
    let mut text = Vec::with_capacity(raw_groups.len() * 2);
    for raw in raw_groups.chunks_exact(2) {
        let group = u16::from_be_bytes([raw[0], raw[1]]);
        if u64::from(group) >= GROUP {
            return None;
        }
        text.extend([group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|d| b'0' + d as u8));
    }
    let digits = if text.is_empty() { BigInt::ZERO } else { BigInt::parse_bytes(&text, 10)? };
    let digits = if sign == NEGATIVE { -digits } else { digits };
    let scale_of_digits = (i64::from(count) - 1 - i64::from(weight)) * GROUP_DIGITS;
    let number = BigDecimal::new(digits, scale_of_digits);
    Numeric::from_big(&number.with_scale(i64::from(scale))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(number: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let number: Numeric = number.parse().unwrap();
        write(number.as_ref(), &mut out);
        out
    }

    fn fields(raw: &[u8]) -> Vec<i16> {
        raw.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect()
    }

    /// The right side was read from PostgreSQL 15.20 with `select numeric_send(...)`.
    #[test]
    fn the_form_is_postgresqls() {
        let check = |number: &str, expect: &[i16]| assert_eq!(fields(&binary(number)), expect, "{number}");
        check("0", &[0, 0, 0, 0]);
        check("0.00", &[0, 0, 0, 2]);
        check("1", &[1, 0, 0, 0, 1]);
        check("-12345.678", &[3, 1, 0x4000, 3, 1, 2345, 6780]);
        check("10000", &[1, 1, 0, 0, 1]);
        check("0.0001", &[1, -1, 0, 4, 1]);
        check("0.00012", &[2, -1, 0, 5, 1, 2000]);
        check("100000000.5", &[4, 2, 0, 1, 1, 0, 0, 5000]);
        check("9223372036854775807", &[5, 4, 0, 0, 922, 3372, 368, 5477, 5807]);
        check(
            "123456789012345678901234567890.12",
            &[9, 7, 0, 2, 12, 3456, 7890, 1234, 5678, 9012, 3456, 7890, 1200],
        );
        check("NaN", &[0, 0, 0xC000_u16 as i16, 0]);
        check("Infinity", &[0, 0, 0xD000_u16 as i16, 32]);
        check("-Infinity", &[0, 0, 0xF000_u16 as i16, 32]);
    }

    #[test]
    fn reading_gives_back_what_was_written() {
        for number in [
            "0",
            "0.00",
            "1",
            "-1",
            "1.10",
            "-12345.678",
            "10000",
            "0.0001",
            "99999999999999999999.9999",
            "NaN",
            "Infinity",
            "-Infinity",
            "-0.000000000000000000000000000001",
            "123456789012345678901234567890",
        ] {
            let read = read(&binary(number)).unwrap();
            assert_eq!(read.to_string(), number);
        }
    }

    #[test]
    fn damaged_forms_are_refused() {
        let whole = binary("-12345.678");
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_none(), "{length} bytes");
        }
        let with = |at: usize, value: u16| {
            let mut raw = whole.clone();
            raw[at..at + 2].copy_from_slice(&value.to_be_bytes());
            read(&raw)
        };
        assert!(with(4, 1).is_none(), "unknown sign");
        assert!(with(6, 0x4000).is_none(), "scale beyond the limit");
        assert!(with(8, 10_000).is_none(), "group beyond 9999");
        assert!(with(0, 0xFFFF).is_none(), "more groups than bytes");
    }
}
