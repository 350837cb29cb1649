//! Binds definitions of tables and indexes.
//!
//! Invariants
//! 1. A constraint that Varve cannot enforce (EXCLUDE) is refused, never dropped silently.
//! 2. Keys and sequences without a name in the statement get the name that PostgreSQL would give them.
//!
//! This module does not know how objects are created (`exec::definition`).

use varve_engine::{Check, ColumnDef, NewSequence, NewTable, ObjectId, PrimaryKey};

use super::foreign::NewForeignKey;
use super::order::check_orderable;
use super::part::{check_unique_key, partition_key};
use super::rules::{Condition, constraint_exists};
use super::scope::Scope;
use super::sequence::{identity, serial_type};
use super::{Binder, limits, storage};
use crate::ast::{
    ColumnDefinition, Constraint, ConstraintKind, CreateTable, Ident, KeptExpr, SequenceOptions,
};
use crate::error::{Result, SqlError, SqlState};
use crate::made_name::{free_among, unique_name};
use crate::names::{cannot_create, fold, object_name, split_name};
use crate::nextval::drawn_from;
use crate::ty;

/// The bound form of CREATE TABLE.
pub struct TableSpec {
    /// The table.
    pub table: NewTable,
    /// Sequences of serial columns, by ordinal.
    pub sequences: Vec<(usize, NewSequence)>,
    /// UNIQUE constraints: name and columns.
    pub uniques: Vec<(String, Vec<usize>)>,
    /// FOREIGN KEY constraints, which are bound after the table is created, because they may refer to it.
    pub foreign_keys: Vec<NewForeignKey>,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
}

/// Columns and constraints while they are collected.
#[derive(Default)]
pub(super) struct TableParts {
    /// Name of the table.
    pub table: String,
    pub columns: Vec<ColumnDef>,
    pub primary_key: Option<(Option<String>, Vec<usize>)>,
    pub uniques: Vec<(Option<String>, Vec<usize>)>,
    /// Columns that take their values from a sequence, with its options.
    pub serial: Vec<(usize, SequenceOptions)>,
    pub checks: Vec<(Option<String>, KeptExpr)>,
    pub foreign_keys: Vec<NewForeignKey>,
}

impl Binder<'_> {
    /// Binds CREATE TABLE.
    pub fn create_table(&mut self, t: &CreateTable) -> Result<TableSpec> {
        let storage = storage::of_new_table(&t.options)?;
        let (schema, name) = object_name(&t.name)?;
        if !self.catalog.has_schema(&schema) {
            return Err(cannot_create(&schema, &name).at(self.at(&t.name)));
        }
        let mut parts = TableParts { table: name.clone(), ..TableParts::default() };
        for column in &t.columns {
            self.column_definition(column, &mut parts)?;
        }
        for constraint in &t.constraints {
            self.constraint(constraint, None, &mut parts)?;
        }
        limits::columns(parts.columns.len())?;
        let partition_by = t.partition_by.as_ref();
        let partition_by = partition_by.map(|by| partition_key(by, &parts.columns)).transpose()?;
        let cut_by = partition_by.as_ref().map(|(_, columns)| columns.as_slice());
        for (kind, key) in keys_of(&parts) {
            limits::keys(key.len())?;
            check_unique_key(kind, &name, cut_by, &parts.columns, key)?;
        }
        let primary_key = parts.primary_key.map(|(given, columns)| PrimaryKey {
            name: given.unwrap_or_else(|| self.key_name(&schema, &name, &parts.columns, &[], "pkey", &[])),
            columns,
        });
        for column in primary_key.iter().flat_map(|k| &k.columns) {
            parts.columns[*column].not_null = true;
        }
        let mut taken: Vec<String> = primary_key.iter().map(|k| k.name.clone()).collect();
        let mut uniques = Vec::new();
        for (given, columns) in parts.uniques {
            let made = given
                .unwrap_or_else(|| self.key_name(&schema, &name, &parts.columns, &columns, "key", &taken));
            taken.push(made.clone());
            uniques.push((made, columns));
        }
        let sequences = self.sequences(&schema, &name, &parts.serial, &mut parts.columns)?;
        let checks = self.checks(parts.checks, &schema, &name, &parts.columns, &mut taken)?;
        let is_unlogged = t.unlogged;
        let table = NewTable {
            primary_key,
            checks,
            partition_by,
            is_unlogged,
            storage,
            ..NewTable::new(schema, name, parts.columns)
        };
        let foreign_keys = parts.foreign_keys;
        Ok(TableSpec { table, sequences, uniques, foreign_keys, if_not_exists: t.if_not_exists })
    }

    /// Returns CHECK constraints in their stored form, with names that are not in `taken`.
    pub(super) fn checks(
        &mut self,
        checks: Vec<(Option<String>, KeptExpr)>,
        schema: &str,
        table: &str,
        columns: &[ColumnDef],
        taken: &mut Vec<String>,
    ) -> Result<Vec<Check>> {
        let mut made = Vec::with_capacity(checks.len());
        for (given, condition) in checks {
            let Condition { text, columns: named } = self.check_condition(&condition, table, columns)?;
            let name = match (given, named.as_slice()) {
                (Some(given), _) if taken.contains(&given) => {
                    let exists = self.catalog.table(schema, table).is_some();
                    return Err(constraint_exists(&given, table, exists));
                }
                (Some(given), _) => given,
                (None, [column]) => unique_name(table, columns, &[*column], "check", taken),
                (None, _) => unique_name(table, columns, &[], "check", taken),
            };
            taken.push(name.clone());
            made.push(Check { id: ObjectId(0), name, text, columns: named });
        }
        Ok(made)
    }

    /// Returns a name for an index. An index is a relation, so the name is not that of another relation in
    /// the schema, and not in `taken`.
    pub(super) fn key_name(
        &self,
        schema: &str,
        table: &str,
        columns: &[ColumnDef],
        key: &[usize],
        label: &str,
        taken: &[String],
    ) -> String {
        let is_free = |name: &str| self.catalog.resolve(schema, name).is_none();
        free_among(table, columns, key, label, &|name| is_free(name) && !taken.iter().any(|t| t == name))
    }

    /// Returns a name that no relation of the schema has: the wanted name, if necessary with a number.
    pub(super) fn free_name(&self, schema: &str, wanted: &str) -> String {
        let numbered = |n: u32| if n == 0 { wanted.to_owned() } else { format!("{wanted}{n}") };
        (0..)
            .map(numbered)
            .find(|n| self.catalog.resolve(schema, n).is_none())
            .unwrap_or_else(|| wanted.to_owned())
    }

    pub(super) fn column_definition(&mut self, c: &ColumnDefinition, parts: &mut TableParts) -> Result<()> {
        let name = fold(&c.name);
        if parts.columns.iter().any(|p| p.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).at(c.name.at.position()));
        }
        let ordinal = parts.columns.len();
        let column_type = match serial_type(&c.data_type) {
            Some(t) => {
                parts.serial.push((ordinal, SequenceOptions::default()));
                t
            }
            None => {
                let at = c.name.at.position();
                ty::of_ast(&c.data_type).and_then(ty::Typed::storage).map_err(|e| e.at(at))?
            }
        };
        let is_serial = parts.serial.iter().any(|(serial, _)| *serial == ordinal);
        let not_null = is_serial;
        parts.columns.push(ColumnDef { not_null, ..ColumnDef::new(name, column_type) });
        check_together(c, is_serial, &parts.table)?;
        c.constraints.iter().try_for_each(|constraint| self.constraint(constraint, Some(ordinal), parts))
    }

    /// Binds a constraint of a table, or of the column with this ordinal.
    pub(super) fn constraint(
        &mut self,
        c: &Constraint,
        ordinal: Option<usize>,
        parts: &mut TableParts,
    ) -> Result<()> {
        let name = c.name.as_ref().map(fold);
        match (&c.kind, ordinal) {
            (ConstraintKind::NotNull, Some(ordinal)) => parts.columns[ordinal].not_null = true,
            (ConstraintKind::Default(default), Some(ordinal)) => {
                self.check_default(default, &parts.columns[ordinal])?;
                let text = Some(kept_default(default)?);
                if std::mem::replace(&mut parts.columns[ordinal].default, text).is_some() {
                    return Err(several_defaults(&parts.columns[ordinal].name, &parts.table));
                }
            }
            (ConstraintKind::Identity(kind, options), Some(ordinal)) => {
                identity(&parts.table, &mut parts.columns[ordinal], *kind)?;
                parts.serial.push((ordinal, options.clone()));
            }
            (ConstraintKind::PrimaryKey(columns), _) => {
                let columns = key_columns(columns, parts)?;
                set_primary_key(parts, name, columns)?;
            }
            (ConstraintKind::Unique(columns), _) => {
                let columns = key_columns(columns, parts)?;
                parts.uniques.push((name, columns));
            }
            (ConstraintKind::Check(condition), _) => parts.checks.push((name, condition.clone())),
            (ConstraintKind::ForeignKey(key), _) => {
                parts.foreign_keys.push(NewForeignKey { name, key: key.clone() });
            }
            (ConstraintKind::Null | ConstraintKind::NotNull, _) => {}
            (ConstraintKind::Default(_) | ConstraintKind::Identity(..), None) => {
                return Err(SqlError::internal("a constraint of a column without its column"));
            }
        }
        Ok(())
    }

    /// Checks a default. It must have no columns, and its value must fit in the column.
    pub(super) fn check_default(&mut self, default: &KeptExpr, column: &ColumnDef) -> Result<()> {
        let e = &default.expr;
        let mut scope = Scope { no_aggregates: Some("DEFAULT expressions"), ..Scope::default() };
        let bound = self.expression(e, &mut scope).map_err(|e| match e.sqlstate {
            SqlState::UNDEFINED_COLUMN => {
                let message = "cannot use column reference in DEFAULT expression";
                SqlError { sqlstate: SqlState::FEATURE_NOT_SUPPORTED, message: message.into(), ..e }
            }
            _ => e,
        })?;
        if bound.expr.has_subquery() {
            let message = "cannot use subquery in DEFAULT expression";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(self.at(e)));
        }
        for name in drawn_from(&default.text) {
            let (schema, last) = match self.path {
                Some(path) => path.find_text(self.catalog, &name),
                None => split_name(&name),
            };
            if self.catalog.resolve(&schema, &last).is_none() {
                let message = format!("relation \"{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).at(self.at(e)));
            }
        }
        self.assign(bound, &column.name, column.column_type).map_err(|e| {
            let message = e.message.replace(" but expression is", " but default expression is");
            SqlError { message: message.into(), ..e }
        })?;
        Ok(())
    }
}

/// Returns the text of a default for the catalog. If the text would be read as another expression, the
/// default is refused.
pub(super) fn kept_default(default: &KeptExpr) -> Result<String> {
    let KeptExpr { expr, text } = default;
    match crate::parse::expression(text) {
        Ok(again) if again == *expr => Ok(text.clone()),
        _ => Err(SqlError::unsupported(format!("the default {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way.")),
    }
}

/// Returns the error 42601 for constraints of a column that exclude each other. `serial` is NOT NULL and has
/// a default, and an identity is NOT NULL.
fn check_together(c: &ColumnDefinition, is_serial: bool, table: &str) -> Result<()> {
    let has = |is: fn(&ConstraintKind) -> bool| c.constraints.iter().any(|c| is(&c.kind));
    let is_null = has(|kind| matches!(kind, ConstraintKind::Null));
    let has_default = has(|kind| matches!(kind, ConstraintKind::Default(_)));
    let is_identity = has(|kind| matches!(kind, ConstraintKind::Identity(..)));
    let is_not_null = is_serial || is_identity || has(|kind| matches!(kind, ConstraintKind::NotNull));
    if is_null && is_not_null {
        return Err(conflicting_nulls(&c.name, table));
    }
    if is_identity && (is_serial || has_default) {
        let column = fold(&c.name);
        let message =
            format!("both default and identity specified for column \"{column}\" of table \"{table}\"");
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if is_serial && has_default {
        return Err(several_defaults(&fold(&c.name), table));
    }
    Ok(())
}

/// Returns the error 42601 for NULL and NOT NULL in one column.
fn conflicting_nulls(column: &Ident, table: &str) -> SqlError {
    let column = fold(column);
    let message =
        format!("conflicting NULL/NOT NULL declarations for column \"{column}\" of table \"{table}\"");
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// Returns the error 42601 for several defaults of one column.
fn several_defaults(column: &str, table: &str) -> SqlError {
    let message = format!("multiple default values specified for column \"{column}\" of table \"{table}\"");
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// Returns the unique keys among the constraints.
pub(super) fn keys_of(parts: &TableParts) -> impl Iterator<Item = (&'static str, &[usize])> {
    let primary = parts.primary_key.iter().map(|(_, columns)| ("PRIMARY KEY", columns.as_slice()));
    primary.chain(parts.uniques.iter().map(|(_, columns)| ("UNIQUE", columns.as_slice())))
}

fn set_primary_key(parts: &mut TableParts, name: Option<String>, columns: Vec<usize>) -> Result<()> {
    if parts.primary_key.is_some() {
        return Err(two_primary_keys(&parts.table));
    }
    parts.primary_key = Some((name, columns));
    Ok(())
}

pub(super) fn two_primary_keys(table: &str) -> SqlError {
    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

/// Returns the columns of a key.
fn key_columns(columns: &[Ident], parts: &TableParts) -> Result<Vec<usize>> {
    let mut out = Vec::with_capacity(columns.len());
    for name in columns.iter().map(fold) {
        let ordinal = parts.columns.iter().position(|c| c.name == name).ok_or_else(|| {
            let message = format!("column \"{name}\" named in key does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        check_orderable(parts.columns[ordinal].column_type)?;
        if out.contains(&ordinal) {
            let message = format!("column \"{name}\" appears twice in key constraint");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        out.push(ordinal);
    }
    Ok(out)
}
