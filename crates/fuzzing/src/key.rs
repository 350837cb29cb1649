//! Fuzzes encoded keys. The order of the encoded bytes must be the order of the values.
//!
//! The input has the number of columns (u8), the type of each column, and the values of two rows.

use std::cmp::Ordering;

use varve_engine::key::{prefix_end, push_all};
use varve_engine::{ColumnType, Datum, Value};

use crate::input::Input;
use crate::row::value;

const COLUMNS_MAX: u8 = 5;

/// Checks that two keys compare as their rows do, and that no key is a prefix of another one unless they are
/// equal.
pub fn key(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let columns: Vec<ColumnType> = (0..1 + input.byte() % COLUMNS_MAX).map(|_| input.column_type()).collect();
    let mut row = || -> Vec<Value> {
        columns.iter().map(|column| trimmed(value(&mut input, *column), *column)).collect()
    };
    let (left, right) = (row(), row());
    let (low, high) = (encode(&columns, &left), encode(&columns, &right));
    let expected = order(&left, &right);
    assert_eq!(low.cmp(&high), expected, "{columns:?}: {left:?} and {right:?}");
    if expected != Ordering::Equal {
        assert!(!low.starts_with(&high) && !high.starts_with(&low), "a key begins with another");
    }
    let mut end = encode(&columns[..1], &left[..1]);
    prefix_end(&mut end);
    assert!(low < end);
    let first = left[0].as_datum().order(&right[0].as_datum());
    assert_eq!(high < end, first != Ordering::Less, "the end of a prefix lies behind its keys only");
}

/// Returns a value as it is stored: a char(n) loses its trailing blanks.
fn trimmed(value: Value, column: ColumnType) -> Value {
    match value {
        Value::Text(text) if matches!(column, ColumnType::Char(_)) => {
            Value::Text(text.trim_end_matches(' ').to_owned())
        }
        other => other,
    }
}

fn encode(columns: &[ColumnType], row: &[Value]) -> Vec<u8> {
    let data: Vec<Datum<'_>> = row.iter().map(Value::as_datum).collect();
    let mut key = Vec::new();
    push_all(&mut key, columns, &data);
    key
}

fn order(left: &[Value], right: &[Value]) -> Ordering {
    let each = left.iter().zip(right).map(|(a, b)| a.as_datum().order(&b.as_datum()));
    each.fold(Ordering::Equal, Ordering::then)
}
