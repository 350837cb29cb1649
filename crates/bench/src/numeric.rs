//! Converts values of type numeric between Rust and the wire protocol. The crate `postgres` can convert them
//! only with another library.
//!
//! PostgreSQL's binary format consists of digits to base 10,000 (src/backend/utils/adt/numeric.c,
//! `numeric_send`). It begins with four big-endian 16-bit numbers: number of base-10,000 digits, weight of
//! the first of them, sign, and number of decimal places to show. Then the base-10,000 digits follow. This
//! module stores a value as a number of ten-thousandths, because the first base-10,000 digit after the point
//! counts ten-thousandths.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::database::Value;

/// The number of decimal places in [`Value::Decimal`].
pub(crate) const DECIMAL_PLACES: u16 = 4;

const BASE: u64 = 10_000;
const NEGATIVE: u16 = 0x4000;

/// A numeric parameter, as a number of ten-thousandths.
#[derive(Debug)]
pub(crate) struct Decimal(pub i64);

impl ToSql for Decimal {
    fn to_sql(&self, _kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let mut digits = Vec::new();
        let mut rest = self.0.unsigned_abs();
        while rest > 0 || digits.is_empty() {
            digits.push((rest % BASE) as u16);
            rest /= BASE;
        }
        out.put_u16(digits.len() as u16);
        // The weight of the first base-10,000 digit comes next. The last of these digits has weight -1.
        out.put_i16(digits.len() as i16 - 2);
        out.put_u16(if self.0 < 0 { NEGATIVE } else { 0 });
        out.put_u16(DECIMAL_PLACES);
        digits.iter().rev().for_each(|digit| out.put_u16(*digit));
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT2 => Self::Int(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR => Self::Text(String::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            Type::NUMERIC => ten_thousandths(raw).map_or(Self::Other, Self::Decimal),
            _ => Self::Other,
        })
    }

    fn from_sql_null(_kind: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

/// Decodes a numeric value into ten-thousandths. Returns `None` if it is NaN, infinite, too large, or has
/// more than four decimal places.
fn ten_thousandths(raw: &[u8]) -> Option<i64> {
    let mut words = raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (count, weight, sign, _shown) = (words.next()?, words.next()? as i16, words.next()?, words.next()?);
    let mut value = 0i64;
    for word in words {
        value = value.checked_mul(BASE as i64)?.checked_add(word.into())?;
    }
    // `last` is the weight of the last base-10,000 digit that was sent.
    let last = i32::from(weight) + 1 - i32::from(count);
    let value = if count == 0 {
        0
    } else {
        value.checked_mul((BASE as i64).checked_pow(u32::try_from(last + 1).ok()?)?)?
    };
    match sign {
        0 => Some(value),
        NEGATIVE => Some(-value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(value: i64) -> Vec<u8> {
        let mut out = BytesMut::new();
        Decimal(value).to_sql(&Type::NUMERIC, &mut out).expect("a buffer takes everything");
        out.to_vec()
    }

    #[test]
    fn what_is_sent_reads_back() {
        for value in [0, 1, -1, 9_999, 10_000, -123_456_000, 3_000_000_000, i64::MAX] {
            assert_eq!(ten_thousandths(&sent(value)), Some(value), "{value}");
        }
    }

    /// These are -12345.60, 0 and 30000 as PostgreSQL 15 sends them. PostgreSQL leaves out base-10,000 digits
    /// that are zero at the end.
    #[test]
    fn postgresql_leaves_zeros_out() {
        let negative = [0, 3, 0, 1, 0x40, 0, 0, 2, 0, 1, 9, 41, 0x17, 0x70];
        assert_eq!(ten_thousandths(&negative), Some(-123_456_000));
        assert_eq!(ten_thousandths(&[0, 0, 0, 0, 0, 0, 0, 2]), Some(0));
        assert_eq!(ten_thousandths(&[0, 1, 0, 1, 0, 0, 0, 0, 0, 3]), Some(300_000_000));
        assert_eq!(ten_thousandths(&[0, 0, 0, 0, 0xc0, 0, 0, 0]), None);
    }
}
