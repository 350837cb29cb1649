//! Executes ALTER COLUMN ... TYPE for one or several columns of a table.
//!
//! Invariants
//! 1. The table is rewritten once, or not at all if all values keep their stored bytes.
//! 2. The new values obey all rules of the columns: NOT NULL, CHECK, foreign keys from and to the table.
//!
//! This module does not know how a new value is computed (`bind::retype`).

use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{
    ColumnDef, ColumnSource, Derived, Error as EngineError, ForeignKey, RowRef, TableDef, Value,
};

use super::Failure;
use super::alter::{Alter, contains_nulls};
use super::notice::{Failed, Result, duplicate_in_build};
use super::reference;
use crate::bind::Binder;
use crate::bind::foreign::check_key_types;
use crate::bind::retype::TypeChange;
use crate::error::{SqlError, SqlState};
use crate::eval::{Cx, Input, NoSequences};

impl Alter<'_> {
    /// Changes the types of columns.
    pub(super) fn change_types(&mut self, table: &Arc<TableDef>, changes: Vec<TypeChange>) -> Result<()> {
        for (at, change) in changes.iter().enumerate() {
            let name = &table.columns[change.ordinal].name;
            let column_type = table.columns[change.ordinal].column_type;
            let is_before = |other: &TypeChange| other.ordinal == change.ordinal;
            if changes[..at].iter().any(|other| is_before(other) && other.column_type != column_type) {
                let message = format!("cannot alter type of column \"{name}\" twice");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
            }
            self.refuse_view_of(table, change.ordinal)?;
        }
        // If a column is changed several times to the same type, only the last change counts.
        let is_last = |at: usize, c: &TypeChange| changes[at + 1..].iter().all(|o| o.ordinal != c.ordinal);
        let last: Vec<bool> = changes.iter().enumerate().map(|(at, change)| is_last(at, change)).collect();
        let pairs = changes.into_iter().zip(last);
        let changes: Vec<TypeChange> =
            pairs.filter_map(|(change, is_last)| is_last.then_some(change)).collect();
        let derived = self.derived_after(table, &changes)?;
        let mut def = match changes.iter().all(|change| change.keeps_values) {
            true => self.retype(table, &changes)?,
            false => self.rewrite_types(table, &changes)?,
        };
        if def.derived_indexes().zip(&derived).any(|((_, old), new)| **old != *new) {
            def = self.txn.redefine_derived(table.id, derived)?;
        }
        for change in &changes {
            if def.columns[change.ordinal].identity.is_some() {
                self.retype_identity(&def, change.ordinal)?;
            }
        }
        self.check_bonds(&def, &changes)
    }

    /// Returns the derived columns of indexes over expressions. The expressions are bound again with the new
    /// types.
    fn derived_after(&mut self, table: &TableDef, changes: &[TypeChange]) -> Result<Vec<Derived>> {
        let catalog = self.txn.catalog();
        let mut after = TableDef::clone(table);
        changes.iter().for_each(|change| after.columns[change.ordinal].column_type = change.column_type);
        let mut b = Binder::new(&catalog, "", &[])?;
        let mut derived = Vec::new();
        for (_, index) in table.derived_indexes() {
            derived.push(b.retyped_index(&after, index)?);
        }
        Ok(derived)
    }

    fn refuse_view_of(&mut self, table: &TableDef, column: usize) -> Result<()> {
        let catalog = self.txn.catalog();
        let reads = |view: &varve_engine::ViewDef| {
            view.uses.iter().any(|used| used.object == table.id.into() && used.columns.contains(&column))
        };
        let Some(view) = catalog.views().find(|view| reads(view)) else { return Ok(()) };
        let message = "cannot alter type of a column used by a view or rule";
        let name = &table.columns[column].name;
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_detail(format!("rule _RETURN on view {} depends on column \"{name}\"", view.name))
            .into())
    }

    fn retype(&mut self, table: &TableDef, changes: &[TypeChange]) -> Result<Arc<TableDef>> {
        let types: Vec<_> = changes.iter().map(|change| (change.ordinal, change.column_type)).collect();
        let mut def = self.txn.retype_columns(table.id, &types)?;
        for TypeChange { ordinal, default, .. } in changes {
            let column = &table.columns[*ordinal];
            if column.default != *default {
                def = self.txn.alter_column(table.id, *ordinal, default.clone(), column.not_null)?;
            }
        }
        Ok(def)
    }

    fn rewrite_types(&mut self, table: &TableDef, changes: &[TypeChange]) -> Result<Arc<TableDef>> {
        let change_of = |ordinal| changes.iter().find(|change| change.ordinal == ordinal);
        let columns = table.columns.iter().enumerate().map(|(ordinal, column)| {
            let Some(change) = change_of(ordinal) else {
                return (column.clone(), ColumnSource::Column(ordinal));
            };
            let (column_type, default) = (change.column_type, change.default.clone());
            let source = match change.keeps_values {
                true => ColumnSource::Column(ordinal),
                false => ColumnSource::Computed(ordinal),
            };
            (ColumnDef { column_type, default, ..column.clone() }, source)
        });
        let (mut failure, mut arena) = (Failure::default(), Bump::new());
        let env = self.facts.env(&NoSequences);
        let facts = self.facts;
        let rewritten = self.txn.recompute_columns(table.id, columns.collect(), &mut |ordinal, row| {
            arena.reset();
            let change = change_of(ordinal);
            let computed = facts.check_cancel().and_then(|()| match change {
                Some(change) => {
                    let cx = Cx { params: &[], arena: &arena, env: &env };
                    new_value(table, change, row, &cx)
                }
                None => Err(SqlError::internal("a column without a new value")),
            });
            match computed {
                Ok(value) => Ok(value),
                Err(e) => {
                    failure.set(e);
                    // This error only stops the rewrite. The caller gets the kept error instead.
                    Err(EngineError::Cancelled)
                }
            }
        });
        if failure.is_set() {
            return failure.resolve(rewritten).map_err(Failed::from);
        }
        rewritten.map_err(|e| match &e {
            EngineError::UniqueViolation { constraint, .. } => {
                let constraint = constraint.clone();
                duplicate_in_build(e, &constraint, table)
            }
            _ => e.into(),
        })
    }

    /// Checks the constraints of rows whose values were changed.
    fn check_bonds(&mut self, def: &Arc<TableDef>, changes: &[TypeChange]) -> Result<()> {
        let is_changed = |c: &usize| changes.iter().any(|change| change.ordinal == *c);
        let is_new = |c: &usize| changes.iter().any(|change| change.ordinal == *c && !change.keeps_values);
        let catalog = self.txn.catalog();
        // The conditions are bound again, because the new types may lack an operator that they use.
        Binder::new(&catalog, "", &[])?.rules(def)?;
        for check in &def.checks {
            if check.columns.iter().any(is_new) && !def.not_valid.contains(&check.id) {
                self.check_rows(def, check.id)?;
            }
        }
        let own = def.foreign_keys.iter().map(|key| (Arc::clone(def), Arc::clone(key)));
        let others = catalog.children(def.id).filter(|(child, _)| child.id != def.id);
        let keys: Vec<(Arc<TableDef>, Arc<ForeignKey>)> =
            own.chain(others.map(|(child, key)| (Arc::clone(child), Arc::clone(key)))).collect();
        for (child, key) in keys {
            let on_either_side = |is: &dyn Fn(&usize) -> bool| {
                (child.id == def.id && key.columns.iter().any(is))
                    || (key.parent == def.id && key.parent_columns.iter().any(is))
            };
            if !on_either_side(&is_changed) {
                continue;
            }
            let stale = || EngineError::StaleDefinition { table: child.name.clone() };
            let parent = catalog.table_by_id(key.parent).ok_or_else(stale)?;
            check_key_types(&child, &key, &parent)?;
            if on_either_side(&is_new) && !child.not_valid.contains(&key.id) {
                reference::check_rows(&child, &key, self.txn, self.facts)?;
            }
        }
        Ok(())
    }
}

/// Returns the new value of a changed column. Fails with 23502 if it is NULL in a NOT NULL column.
fn new_value(table: &TableDef, change: &TypeChange, row: RowRef<'_>, cx: &Cx<'_>) -> Result<Value, SqlError> {
    let value = change.value.eval(&Input::Row(row), cx)?.to_value();
    match value.is_null() && table.columns[change.ordinal].not_null {
        true => Err(contains_nulls(table, change.ordinal)),
        false => Ok(value),
    }
}
