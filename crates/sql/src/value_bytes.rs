//! Encodes values as bytes, in two ways. In the first, equal values have equal bytes, so hash tables and
//! sorts use these bytes as keys. The second keeps a value exactly, so 1.0 and 1.00 have different bytes.

use varve_engine::{ArrayRef, ColumnType, Datum, Interval, NumericRef, key};

/// Appends the value in a form in which equal values have equal bytes, even if their scales or the signs of a
/// zero differ. The order of the bytes is that of the values, with NULL last. No form is a prefix of another
/// one.
pub fn push_key(out: &mut Vec<u8>, value: &Datum<'_>) {
    key::push(out, key_type(*value), value);
    // The stored key of an array that begins at 1 is a prefix of keys of other arrays.
    if let Datum::Array(array) = value
        && array.lower_bound() == 1
    {
        out.push(0);
    }
}

/// Returns a column type with which `key::push` encodes the value.
pub fn key_type(value: Datum<'_>) -> ColumnType {
    match value {
        Datum::Numeric(_) => ColumnType::Numeric { precision: None },
        Datum::Float8(_) => ColumnType::Float8,
        _ => ColumnType::Text,
    }
}

/// Appends the value in a form in which only identical values have the same bytes. So 1.0 and 1.00 differ,
/// and also a month and 30 days.
pub fn push_image(out: &mut Vec<u8>, value: &Datum<'_>) {
    let (kind, fixed): (u8, &[u8]) = match value {
        Datum::Null => (0, &[]),
        Datum::Bool(v) => (1, &[u8::from(*v)]),
        Datum::Int2(v) => (2, &v.to_le_bytes()),
        Datum::Int4(v) => (3, &v.to_le_bytes()),
        Datum::Int8(v) => (4, &v.to_le_bytes()),
        Datum::Float4(v) => (5, &v.to_bits().to_le_bytes()),
        Datum::Float8(v) => (6, &v.to_bits().to_le_bytes()),
        Datum::Numeric(v) => (7, v.as_bytes()),
        Datum::Text(v) => (8, v.as_bytes()),
        Datum::Bytea(v) => (9, v),
        Datum::Date(v) => (10, &v.to_le_bytes()),
        Datum::Timestamp(v) => (11, &v.to_le_bytes()),
        Datum::TimestampTz(v) => (12, &v.to_le_bytes()),
        Datum::Time(v) => (13, &v.to_le_bytes()),
        Datum::Interval(v) => (14, &v.to_bytes()),
        Datum::Uuid(v) => (15, v),
        Datum::Array(v) => (16, v.as_bytes()),
    };
    out.push(kind);
    if matches!(value, Datum::Numeric(_) | Datum::Text(_) | Datum::Bytea(_) | Datum::Array(_)) {
        out.extend_from_slice(&(fixed.len() as u64).to_le_bytes());
    }
    out.extend_from_slice(fixed);
}

/// Takes a value in the form of `push_image` from the beginning of `bytes`. Returns `None` if there is none.
pub fn take_image<'b>(bytes: &mut &'b [u8]) -> Option<Datum<'b>> {
    let (kind, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(match kind {
        0 => Datum::Null,
        1 => Datum::Bool(taken::<1>(bytes)? != [0]),
        2 => Datum::Int2(i16::from_le_bytes(taken(bytes)?)),
        3 => Datum::Int4(i32::from_le_bytes(taken(bytes)?)),
        4 => Datum::Int8(i64::from_le_bytes(taken(bytes)?)),
        5 => Datum::Float4(f32::from_bits(u32::from_le_bytes(taken(bytes)?))),
        6 => Datum::Float8(f64::from_bits(u64::from_le_bytes(taken(bytes)?))),
        7 => Datum::Numeric(NumericRef::from_bytes(counted(bytes)?)?),
        8 => Datum::Text(std::str::from_utf8(counted(bytes)?).ok()?),
        9 => Datum::Bytea(counted(bytes)?),
        10 => Datum::Date(i32::from_le_bytes(taken(bytes)?)),
        11 => Datum::Timestamp(i64::from_le_bytes(taken(bytes)?)),
        12 => Datum::TimestampTz(i64::from_le_bytes(taken(bytes)?)),
        13 => Datum::Time(i64::from_le_bytes(taken(bytes)?)),
        14 => Datum::Interval(Interval::from_bytes(taken(bytes)?)),
        15 => Datum::Uuid(taken(bytes)?),
        16 => Datum::Array(ArrayRef::from_bytes(counted(bytes)?)?),
        _ => return None,
    })
}

fn taken<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

/// Takes the bytes of a value, whose number comes before them.
fn counted<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(u64::from_le_bytes(taken(bytes)?)).ok()?;
    let (first, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_engine::Numeric;

    #[test]
    fn an_image_is_taken_back() {
        let number = Numeric::from_unscaled(-1200, 2);
        let mut array = crate::array::of(crate::ty::Ty::Text.oid());
        array.push(Datum::Text("ä"));
        array.push(Datum::Null);
        let values = [
            Datum::Null,
            Datum::Bool(true),
            Datum::Int2(-2),
            Datum::Int4(i32::MIN),
            Datum::Int8(i64::MAX),
            Datum::Float4(-0.0),
            Datum::Float8(f64::NEG_INFINITY),
            Datum::Numeric(number.as_ref()),
            Datum::Text("text"),
            Datum::Bytea(&[0, 255]),
            Datum::Date(-1),
            Datum::Timestamp(5),
            Datum::TimestampTz(-5),
            Datum::Time(7),
            Datum::Interval(Interval::from_bytes([3; 16])),
            Datum::Uuid([9; 16]),
            Datum::Array(array.as_ref()),
            Datum::Text(""),
        ];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| push_image(&mut bytes, value));
        let mut rest = bytes.as_slice();
        for value in values {
            let taken = take_image(&mut rest).unwrap();
            assert_eq!(format!("{taken:?}"), format!("{value:?}"));
        }
        assert!(rest.is_empty() && take_image(&mut rest).is_none());
        for end in 0..bytes.len() {
            // Bytes that were cut off are not a value, and do not make the function panic.
            let mut rest = &bytes[..end];
            while take_image(&mut rest).is_some() {}
        }
    }
}
