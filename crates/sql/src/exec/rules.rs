//! Checks NOT NULL and CHECK of new rows.
//!
//! Invariants
//! 1. A row is checked before it is written: NOT NULL first, then the CHECK conditions in the order of their
//!    names.
//!
//! This module does not know keys or references.

use bumpalo::Bump;
use varve_engine::{ColumnType, Datum, Partitions, TableDef};

use crate::error::{Result, SqlError, SqlState};
use crate::eval::{self, Cx, Input};
use crate::partition;
use crate::plan::Rules;

/// The longest value that the detail of an error shows, in bytes (as in PostgreSQL).
const SHOWN_BYTES_MAX: usize = 64;

impl Rules {
    /// Fails with 23502 or 23514 if a new row violates a rule.
    pub fn hold<'a>(&'a self, table: &TableDef, row: &'a [Datum<'a>], cx: &Cx<'a>) -> Result<()> {
        if let Some(partitions) = &table.partitions {
            self.check_part(table, partitions, row)?;
        }
        self.hold_in_part(table, row, cx)
    }

    /// Does the same as `hold` for a row whose partition needs no check.
    pub fn hold_in_part<'a>(&'a self, table: &TableDef, row: &'a [Datum<'a>], cx: &Cx<'a>) -> Result<()> {
        check_not_null(table, row)?;
        match self.broken(&Input::Slots(row), cx)? {
            None => Ok(()),
            Some(name) => Err(check_violation(table, name, row)),
        }
    }

    /// Fails with 23514 if no partition takes the row, or if the partition that the statement names does not
    /// take it.
    pub fn check_part(&self, table: &TableDef, partitions: &Partitions, row: &[Datum<'_>]) -> Result<()> {
        let found = partition::of_row(partitions, |c| row[c]);
        match &self.part {
            Some(part) if found.is_some_and(|p| p.id == part.id) => Ok(()),
            Some(part) => {
                let message = format!("new row for relation \"{}\" violates partition constraint", part.name);
                Err(SqlError::new(SqlState::CHECK_VIOLATION, message)
                    .with_detail(failing_row(table, row))
                    .of_table(&part.schema, &part.name))
            }
            None if found.is_some() => Ok(()),
            None => Err(no_part(table, partitions, row)),
        }
    }

    /// Returns the first condition that a row violates. A condition that is neither true nor false (NULL) is
    /// not violated.
    pub fn broken<'a>(&'a self, row: &Input<'a>, cx: &Cx<'a>) -> Result<Option<&'a str>> {
        for (name, condition) in &self.checks {
            if matches!(condition.eval(row, cx)?, Datum::Bool(false)) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// Checks the NOT NULL columns of a new row.
fn check_not_null(table: &TableDef, row: &[Datum<'_>]) -> Result<()> {
    let broken = |(value, def): (&Datum<'_>, &varve_engine::ColumnDef)| value.is_null() && def.not_null;
    match row.iter().zip(&table.columns).position(broken) {
        None => Ok(()),
        Some(column) => Err(not_null_violation(table, column, row)),
    }
}

/// Returns the error 23502: the row has NULL in a NOT NULL column.
fn not_null_violation(table: &TableDef, column: usize, row: &[Datum<'_>]) -> SqlError {
    let name = &table.columns[column].name;
    let message = format!(
        "null value in column \"{name}\" of relation \"{}\" violates not-null constraint",
        table.name
    );
    SqlError::new(SqlState::NOT_NULL_VIOLATION, message)
        .with_detail(failing_row(table, row))
        .of_table(&table.schema, &table.name)
        .of_column(name)
}

/// Returns the error 23514: the row violates a CHECK condition.
fn check_violation(table: &TableDef, name: &str, row: &[Datum<'_>]) -> SqlError {
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    SqlError::new(SqlState::CHECK_VIOLATION, message)
        .with_detail(failing_row(table, row))
        .of_table(&table.schema, &table.name)
        .of_constraint(name)
}

/// Returns the error 23514: no partition takes the row.
fn no_part(table: &TableDef, partitions: &Partitions, row: &[Datum<'_>]) -> SqlError {
    let names: Vec<&str> = partitions.columns.iter().map(|c| &*table.columns[*c].name).collect();
    let values = partitions.columns.iter().map(|c| shown_value(row[*c], table.columns[*c].column_type));
    let values: Vec<String> = values.collect();
    let message = format!("no partition of relation \"{}\" found for row", table.name);
    let detail = format!(
        "Partition key of the failing row contains ({}) = ({}).",
        names.join(", "),
        values.join(", ")
    );
    SqlError::new(SqlState::CHECK_VIOLATION, message).with_detail(detail).of_table(&table.schema, &table.name)
}

/// Returns PostgreSQL's detail line about a refused row.
fn failing_row(table: &TableDef, row: &[Datum<'_>]) -> String {
    let mut shown = String::new();
    for (i, (value, def)) in row.iter().zip(&table.columns).enumerate() {
        if i > 0 {
            shown.push_str(", ");
        }
        let text = shown_value(*value, def.column_type);
        match text.len() > SHOWN_BYTES_MAX {
            true => {
                shown.push_str(&text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]);
                shown.push_str("...");
            }
            false => shown.push_str(&text),
        }
    }
    format!("Failing row contains ({shown}).")
}

/// Returns a value as the details of errors show it.
pub(super) fn shown_value(value: Datum<'_>, t: ColumnType) -> String {
    let arena = Bump::new();
    let value = match (value, t) {
        (Datum::Null, _) => return "null".to_owned(),
        (value, ColumnType::Char(width)) => eval::pad(value, width as usize, &arena),
        (value, _) => value,
    };
    let mut shown = Vec::new();
    crate::text::write_text(value, &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}
