//! Fuzzes the text and binary formats of every type. A value that was read is written, and must be read as
//! the same value again.
//!
//! The input has a column type and a time zone (i8; half of it is the number of quarters of an hour). If the
//! byte of the zone is even, a text follows. If it is odd, a binary value follows.

use varve_engine::{ColumnType, Value};
use varve_server::fuzzing;
use varve_sql::{Reading, TimeForms, Zone, oid, text};

use crate::input::Input;

const QUARTER_SECONDS: i32 = 900;

/// Checks that a value is refused, or that its text and its binary format are read as the same value.
pub fn types(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let column = input.column_type();
    let kind = input.byte();
    let forms = TimeForms::of_zone(Zone::Fixed(i32::from(kind as i8) / 2 * QUARTER_SECONDS));
    let (oid, _) = oid::of_column(&column);
    let read = if kind & 1 == 1 {
        fuzzing::read_binary(input.rest(), oid, column).ok()
    } else {
        let Ok(given) = std::str::from_utf8(input.rest()) else { return };
        text::parse_with(given, &column, &Reading::of(&forms)).ok()
    };
    if let Some(value) = read {
        round_trip(&value, column, &forms);
    }
}

fn round_trip(value: &Value, column: ColumnType, forms: &TimeForms) {
    let mut shown = Vec::new();
    text::write_with(value.as_datum(), forms, &mut shown);
    let shown = String::from_utf8(shown).expect("the text form is text");
    let back = text::parse_with(&shown, &unlimited(column), &Reading::of(forms));
    same(value, back.as_ref().ok(), &shown);
    let (oid, _) = oid::of_column(&column);
    let mut raw = Vec::new();
    let written = fuzzing::write_binary(value.as_datum(), oid, &mut raw);
    assert!(written.is_ok(), "{value:?}: {written:?}");
    let back = fuzzing::read_binary(&raw, oid, column);
    let has_zero = matches!(value, Value::Text(text) if text.contains('\0'));
    if !has_zero {
        same(value, back.as_ref().ok(), "the binary form");
    }
}

/// Returns the type without its limits, because a binary value is not checked against them.
fn unlimited(column: ColumnType) -> ColumnType {
    match column {
        ColumnType::Numeric { .. } => ColumnType::Numeric { precision: None },
        ColumnType::Char(_) | ColumnType::Varchar(_) => ColumnType::Text,
        other => other,
    }
}

fn same(value: &Value, back: Option<&Value>, form: &str) {
    let is_same = back.is_some_and(|back| back.as_datum().order(&value.as_datum()).is_eq());
    assert!(is_same, "{value:?} came back from {form:?} as {back:?}");
}
