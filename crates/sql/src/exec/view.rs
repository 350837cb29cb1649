//! Executes CREATE VIEW.
//!
//! Invariants
//! 1. OR REPLACE keeps the existing columns with their names and types. New columns are added at the end.
//!
//! This module does not know what the query means (`bind::view`).

use varve_engine::{ViewColumn, ViewDef};

use super::notice::Result;
use crate::ast::CreateView;
use crate::bind::Binder;
use crate::error::{SqlError, SqlState};
use crate::ty::Ty;

/// Runs CREATE [OR REPLACE] VIEW.
pub(super) fn create_view(
    b: &mut Binder<'_>,
    v: &CreateView,
    txn: &mut varve_engine::Transaction,
) -> Result<&'static str> {
    let spec = b.create_view(v)?;
    // The tables that the view reads are locked, so no other transaction can drop or change them before the
    // view exists.
    for table in &spec.tables {
        txn.table(table)?;
    }
    let new = spec.view;
    for view in new.uses.iter().filter_map(|used| b.catalog.view_by_id(used.object)) {
        txn.hold_view(view)?;
    }
    match b.catalog.view(&new.schema, &new.name).cloned() {
        Some(old) if spec.or_replace => {
            check_replaced(&old, &new.columns)?;
            txn.replace_view(old.id, new)?;
        }
        None if spec.or_replace && b.catalog.resolve(&new.schema, &new.name).is_some() => {
            let message = format!("\"{}\" is not a view", new.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        found => {
            if found.is_some() || b.catalog.resolve(&new.schema, &new.name).is_some() {
                let message = format!("relation \"{}\" already exists", new.name);
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
            }
            txn.create_view(new)?;
        }
    }
    Ok("CREATE VIEW")
}

fn check_replaced(old: &ViewDef, new: &[ViewColumn]) -> Result<(), SqlError> {
    let refused = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.len() < old.columns.len() {
        return refused("cannot drop columns from view".to_owned());
    }
    for (was, is) in old.columns.iter().zip(new) {
        if was.name != is.name {
            let message = format!("cannot change name of view column \"{}\" to \"{}\"", was.name, is.name);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
                .with_hint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."));
        }
        if (was.type_id, was.modifier) != (is.type_id, is.modifier) {
            return refused(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                was.name,
                type_name(was),
                type_name(is)
            ));
        }
    }
    Ok(())
}

fn type_name(column: &ViewColumn) -> &'static str {
    Ty::of_oid(column.type_id).map_or("unknown", Ty::name)
}
