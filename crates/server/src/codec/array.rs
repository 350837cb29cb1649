//! The binary form of arrays (big endian).
//!
//! | bytes | what |
//! |---|---|
//! | 4 | number of dimensions: 0 for an empty array, else 1 |
//! | 4 | 1 if there are NULLs |
//! | 4 | OID of the elements' type |
//! | 4, 4 | for each dimension: length, lower bound |
//! | 4 + n each | length of the element, -1 for NULL; its binary form |
//!
//! Invariants
//! 1. No room is taken for more elements than there are bytes.
//!
//! What this file doesn't know: arrays of more dimensions (0A000); lower bounds, which are not kept.

use varve_engine::{Array, ArrayRef, ColumnType, Value};
use varve_sql::oid::{self, Oid};
use varve_sql::{SqlError, Zone};

use super::{Wanted, bad_binary};
use crate::error::WireError;
use crate::message::Format;

/// Reads an array parameter of the type `oid`.
pub fn read(raw: &[u8], oid: Oid, zone: &Zone, number: usize) -> Result<Value, WireError> {
    let element = oid::element(oid).ok_or_else(|| bad_binary(number))?;
    let mut fields = Fields { rest: raw, number };
    let dimensions = fields.word()?;
    let _has_nulls = fields.word()?;
    let sent = fields.word()? as u32;
    if sent != element {
        let message =
            format!("wrong element type in bind parameter {number}: OID {sent} instead of {element}");
        return Err(WireError::error("42804", message));
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = fields.word()?;
            fields.word()?;
            usize::try_from(count).map_err(|_| bad_binary(number))?
        }
        _ => return Err(SqlError::unsupported("an array of more than one dimension").into()),
    };
    let column_type = oid::column_type(element).unwrap_or(ColumnType::Text);
    let mut array = if oid::is_vector(oid) { Array::vector(column_type) } else { Array::new(column_type) };
    for _ in 0..count {
        let wanted = Wanted { oid: element, column_type, zone };
        array.push(super::read(fields.value()?, Format::Binary, wanted, number)?.as_datum());
    }
    if fields.rest.is_empty() { Ok(Value::Array(array)) } else { Err(bad_binary(number)) }
}

struct Fields<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Fields<'a> {
    fn word(&mut self) -> Result<i32, WireError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or_else(|| bad_binary(self.number))?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*word))
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let length = self.word()?;
        if length == -1 {
            return Ok(None);
        }
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (value, rest) = split.ok_or_else(|| bad_binary(self.number))?;
        self.rest = rest;
        Ok(Some(value))
    }
}

/// Appends an array as the type `oid`.
pub fn write(array: ArrayRef<'_>, oid: Oid, out: &mut Vec<u8>) -> Result<(), WireError> {
    let element = oid::element(oid).unwrap_or(oid::TEXT);
    let has_nulls = array.iter().any(|value| value.is_null());
    let mut word = |value: i32| out.extend_from_slice(&value.to_be_bytes());
    // A vector has its one dimension even when it is empty.
    let dimensions = i32::from(!array.is_empty() || array.is_vector());
    word(dimensions);
    word(i32::from(has_nulls));
    word(element as i32);
    if dimensions > 0 {
        word(array.len() as i32);
        word(array.lower_bound());
    }
    for value in array.iter() {
        let start = out.len();
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        if !value.is_null() {
            super::write(value, Format::Binary, element, &Zone::UTC, out)?;
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}
