//! PostgreSQL's binary form of values. Binary parameters, binary results and binary COPY use it.
//!
//! | type | binary form (big endian) |
//! |---|---|
//! | boolean | one byte, 0 or 1 |
//! | smallint, integer, bigint, oid and regclass, regtype, ... | 2, 4, 8, 4 bytes |
//! | real, double precision | IEEE 754, 4 and 8 bytes |
//! | numeric | `numeric.rs` |
//! | text, varchar, char, name, json | UTF-8 |
//! | "char" | one byte, 0 for the empty one |
//! | bytea | the bytes |
//! | date | i32 days since 2000-01-01 |
//! | interval | i64 microseconds, i32 days, i32 months |
//! | time | i64 microseconds since midnight |
//! | uuid | the 16 bytes |
//! | arrays, int2vector, oidvector | `array.rs` |
//! | timestamp, timestamptz | i64 microseconds since 2000-01-01 (UTC) |
//!
//! Invariants
//! 1. A value is checked completely. Too few or too many bytes are an error.
//! 2. An integer is written in the width of its column's type, even if the value in memory has another width.
//!
//! This module does not know messages of the protocol or formats of files.

mod array;
pub mod encoded;
mod numeric;

use varve_engine::{ColumnType, Datum, Interval, Value};

use crate::error::{Result, SqlError, SqlState};
use crate::oid::{self, Oid};
use crate::text;
use crate::time::{self, Reading};

/// Reads a value. The type is given for the client and for the engine.
pub fn read(raw: &[u8], oid: Oid, column_type: ColumnType) -> Result<Value> {
    if oid::element(oid).is_some() {
        return array::read(raw, oid);
    }
    let value = match column_type {
        ColumnType::Bool => fixed(raw).map(|[byte]: [u8; 1]| Value::Bool(byte != 0)),
        ColumnType::Int2 => fixed(raw).map(|raw| Value::Int2(i16::from_be_bytes(raw))),
        ColumnType::Int4 => fixed(raw).map(|raw| Value::Int4(i32::from_be_bytes(raw))),
        ColumnType::Int8 if oid == oid::OID || oid::is_reg(oid) => {
            fixed(raw).map(|raw| Value::Int8(i64::from(u32::from_be_bytes(raw))))
        }
        ColumnType::Int8 => fixed(raw).map(|raw| Value::Int8(i64::from_be_bytes(raw))),
        ColumnType::Float4 => fixed(raw).map(|raw| Value::Float4(f32::from_be_bytes(raw))),
        ColumnType::Float8 => fixed(raw).map(|raw| Value::Float8(f64::from_be_bytes(raw))),
        ColumnType::Date => fixed(raw).map(|raw| Value::Date(i32::from_be_bytes(raw))),
        ColumnType::Timestamp => fixed(raw).map(|raw| Value::Timestamp(i64::from_be_bytes(raw))),
        ColumnType::TimestampTz => fixed(raw).map(|raw| Value::TimestampTz(i64::from_be_bytes(raw))),
        ColumnType::Numeric { .. } => numeric::read(raw).map(Value::Numeric),
        ColumnType::Bytea => Some(Value::Bytea(raw.to_vec())),
        ColumnType::Time => fixed(raw).map(|raw| Value::Time(i64::from_be_bytes(raw))),
        ColumnType::Interval => fixed(raw).map(|raw| Value::Interval(read_interval(raw))),
        ColumnType::Uuid => fixed(raw).map(Value::Uuid),
        ColumnType::Oid => fixed(raw).map(|raw| Value::Int8(i64::from(u32::from_be_bytes(raw)))),
        ColumnType::Rounded(moment, digits) => {
            let value = read(raw, oid, moment.unrounded())?;
            return Ok(time::rounded(value.as_datum(), digits)?.to_value());
        }
        ColumnType::Array(element) => return text::fit_elements(array::read(raw, oid)?, *element),
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text | ColumnType::Json => {
            return read_text_like(raw, oid);
        }
    };
    text::check_range(value.ok_or_else(bad_binary)?)
}

/// Reads a value of a type that the engine stores as text.
fn read_text_like(raw: &[u8], oid: Oid) -> Result<Value> {
    if oid == oid::CHAR {
        return match raw {
            [0] => Ok(Value::Text(String::new())),
            [byte @ 1..0x80] => Ok(Value::Text(char::from(*byte).to_string())),
            _ => Err(bad_binary()),
        };
    }
    text::parse_as(utf8(raw)?, if oid == oid::JSON { oid } else { oid::TEXT }, &Reading::plain())
}

/// Checks that bytes are text without zero bytes. The error is 22021 with the wrong bytes, as in PostgreSQL.
pub fn utf8(raw: &[u8]) -> Result<&str> {
    let bad = match std::str::from_utf8(raw) {
        Ok(text) if !text.as_bytes().contains(&0) => return Ok(text),
        Ok(_) => &[0][..],
        Err(e) => {
            let from = e.valid_up_to();
            let claimed = match raw[from] {
                0xC2..0xE0 => 2,
                0xE0..0xF0 => 3,
                0xF0..0xF5 => 4,
                _ => 1,
            };
            &raw[from..raw.len().min(from + claimed)]
        }
    };
    let shown: Vec<String> = bad.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
    Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message))
}

/// Reads microseconds, days and months.
fn read_interval(raw: [u8; 16]) -> Interval {
    let all = u128::from_be_bytes(raw);
    Interval { micros: (all >> 64) as i64, days: (all >> 32) as i32, months: all as i32 }
}

fn fixed<const N: usize>(raw: &[u8]) -> Option<[u8; N]> {
    raw.try_into().ok()
}

/// Returns the error 22P03.
pub fn bad_binary() -> SqlError {
    SqlError::new(SqlState::BAD_BINARY, "incorrect binary data format")
}

fn no_binary_form(oid: Oid) -> SqlError {
    let message = format!("the type with OID {oid} has no binary form");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("Ask for this column, or send this parameter, in text format.")
}

/// Appends the bytes of a value that isn't NULL, without a length.
pub fn write(datum: Datum<'_>, oid: Oid, out: &mut Vec<u8>) -> Result<()> {
    if let Some(integer) = datum.as_integer() {
        return write_integer(integer, oid, out);
    }
    match datum {
        Datum::Null => {}
        Datum::Bool(value) => out.push(u8::from(value)),
        Datum::Float4(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Float8(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Numeric(number) => numeric::write(number, out),
        Datum::Bytea(bytes) => out.extend_from_slice(bytes),
        Datum::Date(days) => out.extend_from_slice(&days.to_be_bytes()),
        Datum::Timestamp(us) | Datum::TimestampTz(us) => out.extend_from_slice(&us.to_be_bytes()),
        Datum::Time(us) => out.extend_from_slice(&us.to_be_bytes()),
        Datum::Interval(span) => {
            out.extend_from_slice(&span.micros.to_be_bytes());
            out.extend_from_slice(&span.days.to_be_bytes());
            out.extend_from_slice(&span.months.to_be_bytes());
        }
        Datum::Uuid(bytes) => out.extend_from_slice(&bytes),
        Datum::Array(array) => array::write(array, oid, out)?,
        Datum::Text("") if oid == oid::CHAR => out.push(0),
        Datum::Text(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => unreachable!("integers were written above"),
    }
    Ok(())
}

fn write_integer(integer: i64, oid: Oid, out: &mut Vec<u8>) -> Result<()> {
    let fits = match oid {
        oid::INT2 => i16::try_from(integer).map(|value| out.extend_from_slice(&value.to_be_bytes())).is_ok(),
        oid::INT4 => i32::try_from(integer).map(|value| out.extend_from_slice(&value.to_be_bytes())).is_ok(),
        oid::OID => u32::try_from(integer).map(|value| out.extend_from_slice(&value.to_be_bytes())).is_ok(),
        oid if oid::is_reg(oid) => return write_integer(integer, oid::OID, out),
        oid::INT8 => {
            out.extend_from_slice(&integer.to_be_bytes());
            true
        }
        _ => return Err(no_binary_form(oid)),
    };
    let message = || format!("{integer} is out of range for the type with OID {oid}");
    if fits { Ok(()) } else { Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message())) }
}
