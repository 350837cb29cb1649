//! Fuzzes the storage format of numeric: decodes any bytes, and converts valid values to other formats and
//! back.
//!
//! The input has the precision (u16), the scale (u16), and the stored bytes of a value.

use std::cmp::Ordering;

use varve_engine::{ColumnType, Datum, Numeric, NumericRef};
use varve_server::fuzzing;
use varve_sql::oid;

use crate::input::Input;

/// The longest stored value. A longer one would only take more time.
const BYTES_MAX: usize = 512;
const SCALE_MAX: i16 = 16_383;

/// Checks that bytes are refused, or that text and binary format have the same number with the same scale.
pub fn numeric(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (precision, scale) = (input.u16(), input.u16() as i16);
    let Some(number) = NumericRef::from_bytes(input.bytes(BYTES_MAX)) else { return };
    let text = number.to_string();
    let back: Numeric = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    same(number, back.as_ref());
    let mut raw = Vec::new();
    let written = fuzzing::write_binary(Datum::Numeric(number), oid::NUMERIC, &mut raw);
    assert!(written.is_ok(), "{written:?}");
    let read = fuzzing::read_binary(&raw, oid::NUMERIC, ColumnType::Numeric { precision: None });
    match read.as_ref().map(varve_engine::Value::as_datum) {
        Ok(Datum::Numeric(read)) => same(number, read),
        other => panic!("{text} came back as {other:?}"),
    }
    std::hint::black_box((number.to_f64(), number.to_i64()));
    if let Ok(fitted) = number.to_owned().fit(precision, scale) {
        assert!(
            number.is_nan() || fitted.as_ref().scale() == scale.clamp(0, SCALE_MAX) as u16,
            "{text} as {precision}, {scale}"
        );
    }
}

fn same(left: NumericRef<'_>, right: NumericRef<'_>) {
    assert_eq!(left.order(right), Ordering::Equal, "{left} and {right}");
    assert_eq!(left.scale(), right.scale());
}
