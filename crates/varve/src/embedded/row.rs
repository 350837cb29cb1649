//! One row of a result, and the types as which its columns are read.

use std::sync::Arc;

use varve_engine::{Datum, Value};
use varve_sql::{Column, SqlError, SqlState, type_name};

use super::convert::{ConversionError, FromSql};

/// One row of a result.
#[derive(Debug, Clone)]
pub struct Row {
    columns: Arc<[Column]>,
    values: Box<[Value]>,
}

/// The name of a column, or its number from 0. A name means the first column that has it.
pub trait RowIndex {
    /// Returns the number of the column from 0, if there is such a column.
    fn number_in(&self, columns: &[Column]) -> Option<usize>;
    /// Returns the column as an error names it.
    fn shown(&self) -> String;
}

impl RowIndex for usize {
    fn number_in(&self, columns: &[Column]) -> Option<usize> {
        Some(*self).filter(|number| *number < columns.len())
    }

    fn shown(&self) -> String {
        format!("number {self} (from 0)")
    }
}

impl RowIndex for str {
    fn number_in(&self, columns: &[Column]) -> Option<usize> {
        columns.iter().position(|column| &*column.name == self)
    }

    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}

impl RowIndex for String {
    fn number_in(&self, columns: &[Column]) -> Option<usize> {
        self.as_str().number_in(columns)
    }

    fn shown(&self) -> String {
        self.as_str().shown()
    }
}

impl<I: RowIndex + ?Sized> RowIndex for &I {
    fn number_in(&self, columns: &[Column]) -> Option<usize> {
        (**self).number_in(columns)
    }

    fn shown(&self) -> String {
        (**self).shown()
    }
}

impl Row {
    pub(super) fn new(columns: Arc<[Column]>, row: &[Datum<'_>]) -> Row {
        Row { columns, values: row.iter().map(Datum::to_value).collect() }
    }

    /// Returns a column as a Rust type. The column is given by its name, or by its number from 0.
    ///
    /// Errors: 42703 if there is no such column, 22004 if it is NULL and the type is not an `Option`, 42804 if
    /// the Rust type does not fit the column's type, 22003 if the value is out of its range.
    pub fn get<'a, T: FromSql<'a>>(&'a self, column: impl RowIndex) -> Result<T, SqlError> {
        let number = column.number_in(&self.columns);
        let found = number.and_then(|number| Some((self.columns.get(number)?, self.values.get(number)?)));
        let Some((found, value)) = found else { return Err(self.no_column(&column.shown())) };
        T::from_sql(value).map_err(|why| unreadable(found, &short(std::any::type_name::<T>()), why))
    }

    /// Returns the value of a column, or `None` if the result has no such column.
    pub fn value(&self, column: impl RowIndex) -> Option<&Value> {
        self.values.get(column.number_in(&self.columns)?)
    }

    /// Returns the text of a column, or `None` if it is NULL, of another type, or absent.
    pub fn text(&self, column: &str) -> Option<&str> {
        match self.value(column)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer of a column, of any width. Returns `None` if it is NULL, of another type, or
    /// absent.
    pub fn integer(&self, column: &str) -> Option<i64> {
        self.value(column)?.as_datum().as_integer()
    }

    /// Returns all values in the order of the columns.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn no_column(&self, wanted: &str) -> SqlError {
        let names: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let message = format!("the result has no column {wanted}");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            .with_hint(format!("Its columns are: {}.", names.join(", ")))
    }
}

/// Returns the name of a type without paths: `Option<String>`.
fn short(rust: &str) -> String {
    let is_end = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    let parts = rust.split_inclusive(is_end);
    parts.map(|part| part.rsplit("::").next().unwrap_or(part)).collect()
}

/// Returns the error for a column that cannot be read as a Rust type.
fn unreadable(column: &Column, rust: &str, why: ConversionError) -> SqlError {
    let (name, sql) = (&column.name, type_name(column.type_oid, column.typmod));
    match why {
        ConversionError::Null => {
            let message = format!("column \"{name}\" of type {sql} is NULL, which {rust} has not");
            SqlError::new(SqlState::NULL_NOT_ALLOWED, message)
                .with_hint(format!("Read it as Option<{rust}>."))
        }
        ConversionError::OtherType => {
            let message = format!("column \"{name}\" has the type {sql}, which is not read as {rust}");
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("Read it as another Rust type, or write a cast in the statement.")
        }
        ConversionError::OutOfRange => {
            let message = format!("the value of column \"{name}\" of type {sql} is out of range for {rust}");
            SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
        }
        ConversionError::Other(why) => {
            let message = format!("column \"{name}\" of type {sql} is not read as {rust}: {why}");
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_without_paths() {
        assert_eq!(short("core::option::Option<alloc::string::String>"), "Option<String>");
        assert_eq!(short("(&str, [u8; 16])"), "(&str, [u8; 16])");
    }
}
