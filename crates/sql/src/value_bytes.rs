//! Encodes values as bytes, in two ways. In the first, equal values have equal bytes, so hash tables and
//! sorts use these bytes as keys. The second keeps a value exactly, so 1.0 and 1.00 have different bytes.

use varve_engine::{ColumnType, Datum, key};

/// Appends the value in a form in which equal values have equal bytes, whatever their scale or sign of zero.
/// The order of the bytes is that of the values, with NULL last. No form is a prefix of another one.
pub fn push_key(out: &mut Vec<u8>, value: &Datum<'_>) {
    key::push(out, key_type(*value), value);
    // The stored key of an array that begins at 1 is a prefix of keys of other arrays.
    if let Datum::Array(array) = value
        && array.lower_bound() == 1
    {
        out.push(0);
    }
}

/// A column type with which `key::push` encodes the value.
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
