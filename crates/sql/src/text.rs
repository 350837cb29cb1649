//! PostgreSQL's text form of values.
use varve_engine::{ColumnType, Datum, Value};

use crate::error::{Result, SqlError};

/// Reads the text form of a value of type `t`.
pub fn parse_text(text: &str, t: &ColumnType) -> Result<Value> {
    let _ = (text, t);
    Err(SqlError::unsupported("text input"))
}

/// Appends the text form of a value; nothing for NULL.
pub fn write_text(datum: Datum<'_>, out: &mut Vec<u8>) {
    let _ = (datum, out);
}
