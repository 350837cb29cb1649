//! Handles ONLY in definitions and TRUNCATE. ONLY asks for an action on a partitioned table without its
//! partitions.
//!
//! In Varve a partitioned table and its partitions share rows, columns and constraints. So no action can
//! apply to the table alone. PostgreSQL refuses most of these actions, too. Varve refuses the others as not
//! supported.

use varve_engine::TableDef;

use crate::ast::{ColumnAction, Constraint, ConstraintKind, TableAction};
use crate::error::{Result, SqlError, SqlState};
use crate::names::fold;

const WITHOUT_ONLY: &str = "Do not specify the ONLY keyword.";

/// Refuses TRUNCATE ONLY of each partitioned table, as PostgreSQL does.
pub fn truncates(table: &TableDef) -> Result<()> {
    if table.partitions.is_none() {
        return Ok(());
    }
    let hint = "Do not specify the ONLY keyword, or use TRUNCATE ONLY on the partitions directly.";
    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, "cannot truncate only a partitioned table")
        .with_hint(hint))
}

/// Refuses an action of ALTER TABLE ONLY that changes the partitions.
pub fn alters(table: &TableDef, action: &TableAction) -> Result<()> {
    if !has_partitions(table) {
        return Ok(());
    }
    let refused = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    let hinted = |message: &str| refused(message.to_owned()).map_err(|e| e.with_hint(WITHOUT_ONLY));
    match action {
        TableAction::AddColumn { .. } => refused("column must be added to child tables too".into()),
        TableAction::DropColumn { .. } => {
            hinted("cannot drop column from only the partitioned table when partitions exist")
        }
        TableAction::RenameColumn { from, .. } => {
            refused(format!("inherited column \"{}\" must be renamed in child tables too", fold(from)))
        }
        TableAction::AlterColumn { name, action } => alters_column(&fold(name), action),
        TableAction::AddConstraint(constraint) => adds_constraint(table, constraint),
        TableAction::DropConstraint { .. } => {
            hinted("cannot remove constraint from only the partitioned table when partitions exist")
        }
        TableAction::ValidateConstraint(_) => {
            refused("constraint must be validated on child tables too".into())
        }
        TableAction::RenameConstraint { from, .. } => {
            let name = fold(from);
            let is_check = table.checks.iter().any(|check| check.name == name);
            let message = format!("inherited constraint \"{name}\" must be renamed in child tables too");
            if is_check { refused(message) } else { Ok(()) }
        }
        // These actions change only the table itself, even without ONLY.
        TableAction::Rename(_)
        | TableAction::SetSchema(_)
        | TableAction::SetOptions(_)
        | TableAction::SetTablespace(_)
        | TableAction::ResetOptions(_) => Ok(()),
    }
}

/// Refuses CREATE INDEX ... ON ONLY. An index that the partitions do not have is not supported.
pub fn indexes(table: &TableDef) -> Result<()> {
    if has_partitions(table) { Err(missing()) } else { Ok(()) }
}

fn has_partitions(table: &TableDef) -> bool {
    table.partitions.as_ref().is_some_and(|partitions| !partitions.parts.is_empty())
}

fn alters_column(name: &str, action: &ColumnAction) -> Result<()> {
    let (message, hint) = match action {
        ColumnAction::SetType { .. } => {
            (format!("type of inherited column \"{name}\" must be changed in child tables too"), None)
        }
        ColumnAction::SetNotNull => {
            ("constraint must be added to child tables too".into(), Some(WITHOUT_ONLY))
        }
        ColumnAction::DropNotNull => (
            "cannot remove constraint from only the partitioned table when partitions exist".into(),
            Some(WITHOUT_ONLY),
        ),
        _ => return Err(missing()),
    };
    let refused = SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message);
    Err(match hint {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    })
}

fn adds_constraint(table: &TableDef, constraint: &Constraint) -> Result<()> {
    match &constraint.kind {
        ConstraintKind::Check(_) => {
            let message = "constraint must be added to child tables too";
            Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
        }
        ConstraintKind::ForeignKey(key) => {
            let to = key.table.0.last().map(fold).unwrap_or_default();
            let message = format!(
                "cannot use ONLY for foreign key on partitioned table \"{}\" referencing relation \"{to}\"",
                table.name
            );
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
        }
        _ => Err(missing()),
    }
}

fn missing() -> SqlError {
    SqlError::unsupported("ONLY of a partitioned table")
}
