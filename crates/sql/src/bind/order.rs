//! Checks which types can be sorted, and reads the direction of a sort key.

use varve_engine::ColumnType;

use crate::ast::Direction;
use crate::error::{Result, SqlError, SqlState};
use crate::ty::{Ty, Typed};

/// Fails with 42883 for values without an order. The message is PostgreSQL's for the clause.
pub(super) fn orderable(t: Typed, clause: &str) -> Result<()> {
    if t.ty != Ty::Json {
        return Ok(());
    }
    let (what, hint) = match clause {
        "ORDER BY" | "GREATEST" | "LEAST" => {
            ("an ordering operator", "Use an explicit ordering operator or modify the query.")
        }
        _ => ("an equality operator", ""),
    };
    let message = format!("could not identify {what} for type {}", t.ty.name());
    let error = SqlError::new(SqlState::UNDEFINED_FUNCTION, message);
    Err(if hint.is_empty() { error } else { error.with_hint(hint) })
}

/// Fails with 42704 for a type without an order.
pub(super) fn check_orderable(column_type: ColumnType) -> Result<()> {
    let ty = Typed::of_column(column_type).ty;
    if ty != Ty::Json {
        return Ok(());
    }
    let message =
        format!("data type {} has no default operator class for access method \"btree\"", ty.name());
    let hint = "You must specify an operator class for the index or define a default operator class for the data type.";
    Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message).with_hint(hint))
}

/// Returns whether rows are sorted from the last to the first.
pub(super) fn is_descending(direction: Direction) -> Result<bool> {
    match direction {
        Direction::Ascending => Ok(false),
        Direction::Descending => Ok(true),
        Direction::Using => Err(SqlError::unsupported("ORDER BY USING")),
    }
}
