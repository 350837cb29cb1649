//! Binds FOREIGN KEY of CREATE TABLE and ALTER TABLE.
//!
//! Invariants
//! 1. The referenced columns are the columns of one unique key. Their types can be compared with the
//!    referencing columns without a conversion.
//!
//! This module does not know when references are checked (`exec::reference`).

use std::sync::Arc;

use varve_engine::{ColumnType, ForeignKey, ObjectId, TableDef};

use super::Binder;
use super::rules::constraint_exists;
use crate::ast::{self, Ident, ObjectName};
use crate::error::{Result, SqlError, SqlState};
use crate::made_name::unique_name;
use crate::names::{fold, object_name, undefined_table};
use crate::ty::Typed;

/// A foreign key that is not yet bound.
#[derive(Debug, Clone)]
pub struct NewForeignKey {
    /// The name, if the statement gives one.
    pub name: Option<String>,
    /// The syntax tree of the key.
    pub key: ast::ForeignKey,
}

impl Binder<'_> {
    /// Binds a foreign key of an existing table. The engine assigns its id.
    pub fn foreign_key(&mut self, table: &Arc<TableDef>, new: &NewForeignKey) -> Result<ForeignKey> {
        let key = &new.key;
        let columns = ordinals(&key.columns, table)?;
        let parent = self.parent(table, &key.table)?;
        let parent_columns = match key.referred.is_empty() {
            false => ordinals(&key.referred, &parent)?,
            true if parent.primary_key.is_none() => {
                let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            true => parent.key_columns().to_vec(),
        };
        if !is_unique_key(&parent, &parent_columns) {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            );
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        if parent_columns.len() != columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        let name = self.foreign_key_name(table, new.name.as_deref(), &columns)?;
        for (own, theirs) in columns.iter().zip(&parent_columns) {
            check_types(&name, (table, *own), (&parent, *theirs))?;
        }
        Ok(ForeignKey {
            id: ObjectId(0),
            name,
            columns,
            parent: parent.id,
            parent_columns,
            on_delete: key.on_delete,
            on_update: key.on_update,
            deferrable: key.deferrable,
            initially_deferred: key.initially_deferred,
            match_full: key.match_full,
        })
    }

    fn parent(&mut self, table: &Arc<TableDef>, name: &ObjectName) -> Result<Arc<TableDef>> {
        let (schema, last) = object_name(name)?;
        if (&schema, &last) == (&table.schema, &table.name) {
            return Ok(Arc::clone(table));
        }
        if self.catalog.view(&schema, &last).is_some() || self.catalog.sequence(&schema, &last).is_some() {
            let message = format!("referenced relation \"{last}\" is not a table");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        if self.catalog.part(&schema, &last).is_some() {
            return Err(SqlError::unsupported("a foreign key to a partition by its own name"));
        }
        self.catalog.table(&schema, &last).ok_or_else(|| undefined_table(name))
    }

    fn foreign_key_name(&self, table: &TableDef, given: Option<&str>, columns: &[usize]) -> Result<String> {
        if let Some(given) = given {
            return match table.has_constraint(given) {
                true => Err(constraint_exists(given, &table.name, true)),
                false => Ok(given.to_owned()),
            };
        }
        let checks = table.checks.iter().map(|c| c.name.clone());
        let keys = table.foreign_keys.iter().map(|k| k.name.clone());
        let taken: Vec<String> = checks.chain(keys).collect();
        Ok(unique_name(&table.name, &table.columns, columns, "fkey", &taken))
    }
}

fn ordinals(names: &[Ident], table: &TableDef) -> Result<Vec<usize>> {
    let ordinal = |name: &Ident| {
        let name = fold(name);
        table.column(&name).ok_or_else(|| {
            let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    };
    names.iter().map(ordinal).collect()
}

/// Returns whether these are the columns of the primary key or of a unique index, in any order.
pub fn is_unique_key(table: &TableDef, columns: &[usize]) -> bool {
    same_columns(table.key_columns(), columns)
        || table.plain_indexes().any(|i| i.unique && same_columns(&i.columns, columns))
}

/// Returns whether two keys have the same columns, in any order.
pub fn same_columns(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().all(|c| b.contains(c)) && b.iter().all(|c| a.contains(c))
}

/// Checks all columns of an existing foreign key, like `check_types`.
pub fn check_key_types(child: &TableDef, key: &ForeignKey, parent: &TableDef) -> Result<()> {
    let mut pairs = key.columns.iter().zip(&key.parent_columns);
    pairs.try_for_each(|(own, theirs)| check_types(&key.name, (child, *own), (parent, *theirs)))
}

/// Fails with 42804 if the values of two columns cannot be compared. Fails with 0A000 if PostgreSQL can
/// compare them, but this server cannot.
fn check_types(name: &str, own: (&TableDef, usize), theirs: (&TableDef, usize)) -> Result<()> {
    let (a, b) = (&own.0.columns[own.1], &theirs.0.columns[theirs.1]);
    if class(a.column_type) == class(b.column_type) {
        return Ok(());
    }
    let (of, to) = (Typed::of_column(a.column_type).ty, Typed::of_column(b.column_type).ty);
    if (of.is_number() && to.is_number()) || (of.is_text() && to.is_text()) {
        return Err(SqlError::unsupported(format!("a foreign key from {} to {}", of.name(), to.name()))
            .with_hint("Give both columns the same type."));
    }
    let detail = format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        a.name,
        b.name,
        of.name(),
        to.name()
    );
    let message = format!("foreign key constraint \"{name}\" cannot be implemented");
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_detail(detail))
}

/// Returns the class of a type. Values of two types in one class can be compared without a conversion.
fn class(t: ColumnType) -> std::mem::Discriminant<ColumnType> {
    std::mem::discriminant(&match t {
        ColumnType::Int2 | ColumnType::Int4 => ColumnType::Int8,
        ColumnType::Varchar(_) => ColumnType::Text,
        ColumnType::Rounded(moment, _) => moment.unrounded(),
        other => other,
    })
}
