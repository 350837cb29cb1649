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
//! 1. Memory is allocated only for as many elements as the data can have, even if the header says more.
//!
//! This module does not know arrays of more dimensions (0A000).

use varve_engine::{Array, ArrayRef, ColumnType, Value};

use super::bad_binary;
use crate::array;
use crate::error::{Result, SqlError, SqlState};
use crate::oid::{self, Oid};

/// Reads an array of the type `oid`.
pub fn read(raw: &[u8], oid: Oid) -> Result<Value> {
    let element = oid::element(oid).ok_or_else(bad_binary)?;
    let mut fields = Fields::new(raw);
    let dimensions = fields.word()?;
    let _has_nulls = fields.word()?;
    let sent = fields.word()? as u32;
    if sent != element {
        let message = format!("wrong element type: OID {sent} instead of {element}");
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    let (count, lower_bound) = match dimensions {
        0 => (0, 1),
        1 => (usize::try_from(fields.word()?).map_err(|_| bad_binary())?, fields.word()?),
        _ => return Err(SqlError::unsupported("an array of more than one dimension")),
    };
    let column_type = oid::column_type(element).unwrap_or(ColumnType::Text);
    let mut array = if oid::is_vector(oid) { Array::vector(column_type) } else { Array::new(column_type) };
    for _ in 0..count {
        let value = match fields.value()? {
            Some(raw) => super::read(raw, element, column_type)?,
            None => Value::Null,
        };
        array.push(value.as_datum());
    }
    if !fields.rest.is_empty() {
        return Err(bad_binary());
    }
    array::starting_at(array, lower_bound).map(Value::Array)
}

/// Reads the bytes of an array one after the other.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Fields<'a> {
        Fields { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn word(&mut self) -> Result<i32> {
        let (word, rest) = self.rest.split_first_chunk().ok_or_else(bad_binary)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*word))
    }

    pub(super) fn value(&mut self) -> Result<Option<&'a [u8]>> {
        let length = self.word()?;
        if length == -1 {
            return Ok(None);
        }
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (value, rest) = split.ok_or_else(bad_binary)?;
        self.rest = rest;
        Ok(Some(value))
    }
}

/// Appends an array as the type `oid`.
pub fn write(array: ArrayRef<'_>, oid: Oid, out: &mut Vec<u8>) -> Result<()> {
    let element = oid::element(oid).unwrap_or(oid::TEXT);
    let has_nulls = array.iter().any(|value| value.is_null());
    let mut word = |value: i32| out.extend_from_slice(&value.to_be_bytes());
    // A vector has one dimension even if it is empty.
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
            super::write(value, element, out)?;
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}
