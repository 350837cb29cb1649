//! Binds ALTER COLUMN ... TYPE: the new type, the expression for the new values, and the new default.
//!
//! Invariants
//! 1. A type change that keeps all stored bytes writes no row.
//! 2. The default keeps its value, converted to the new type.
//!
//! This module does not know how rows are rewritten (`exec::retype`).

use varve_engine::{ColumnDef, ColumnType, TableDef};

use super::Binder;
use super::bound::Bound;
use super::order::check_orderable;
use super::part::partition_by;
use super::rules::has_subquery;
use super::scope::Scope;
use crate::ast;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::system::show;
use crate::ty::{self, CastLevel, Ty, Typed, cast_level};

/// A bound ALTER COLUMN ... TYPE.
pub struct TypeChange {
    /// The ordinal of the column.
    pub ordinal: usize,
    /// The new type of the column.
    pub column_type: ColumnType,
    /// The new value of the column, as an expression over the old row.
    pub value: Expr,
    /// Whether the stored values need no rewrite.
    pub keeps_values: bool,
    /// The default of the column after the change.
    pub default: Option<String>,
}

impl Binder<'_> {
    /// Binds ALTER COLUMN ... TYPE ... [USING ...].
    pub(super) fn type_change(
        &mut self,
        table: &TableDef,
        ordinal: usize,
        data_type: &ast::TypeName,
        using: Option<&ast::Expr>,
    ) -> Result<TypeChange> {
        let column = &table.columns[ordinal];
        let column_type = ty::of_ast(data_type).and_then(Typed::storage)?;
        refuse_key_of_parts(table, ordinal)?;
        refuse_identity(column, column_type)?;
        if is_indexed(table, ordinal) {
            check_orderable(column_type)?;
        }
        let value = match using {
            None => self.converted(column, ordinal, column_type)?,
            Some(e) => self.transformed(table, column, e, column_type)?,
        };
        let is_itself = matches!(value, Expr::Column(c) if c == ordinal);
        let keeps_values = match using {
            None => keeps_form(column.column_type, column_type),
            Some(_) => is_itself && keeps_form(column.column_type, column_type),
        };
        let default = self.converted_default(column, column_type)?;
        Ok(TypeChange { ordinal, column_type, value, keeps_values, default })
    }

    /// Returns the column's value, converted to the new type by an assignment cast (no USING).
    fn converted(&mut self, column: &ColumnDef, ordinal: usize, to: ColumnType) -> Result<Expr> {
        let t = Typed::of_column(column.column_type);
        let own = Bound { expr: Expr::Column(ordinal), t, at: None };
        if !may_assign(t.ty, Typed::of_column(to).ty) {
            let hint = format!(
                "You might need to specify \"USING {}::{}\".",
                crate::system::names::quoted(&column.name),
                written(to)
            );
            return Err(cannot_cast("column", &column.name, to).with_hint(hint));
        }
        self.assign(own, &column.name, to)
    }

    /// Returns the expression of USING, converted to the new type.
    fn transformed(
        &mut self,
        table: &TableDef,
        column: &ColumnDef,
        e: &ast::Expr,
        to: ColumnType,
    ) -> Result<Expr> {
        let mut scope = Scope {
            no_aggregates: Some("transform expressions"),
            ..Scope::of(super::rules::relation_of(table))
        };
        let bound = self.expression(e, &mut scope)?;
        if has_subquery(&bound.expr) {
            let message = "cannot use subquery in transform expression";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(self.at(e)));
        }
        if bound.t.ty != Ty::Unknown && !may_assign(bound.t.ty, Typed::of_column(to).ty) {
            return Err(cannot_cast("result of USING clause for column", &column.name, to)
                .with_hint("You might need to add an explicit cast."));
        }
        self.assign(bound, &column.name, to)
    }

    /// Returns the text of the default after the change.
    fn converted_default(&mut self, column: &ColumnDef, to: ColumnType) -> Result<Option<String>> {
        let Some(text) = &column.default else { return Ok(None) };
        let parsed = crate::parse::expression(text)?;
        let mut inner = Binder::of_kept(self.catalog, text)?;
        let mut scope = Scope { no_aggregates: Some("DEFAULT expressions"), ..Scope::default() };
        let bound = inner.expression(&parsed, &mut scope)?;
        // A literal without a type has the type of the column.
        let is_untyped = bound.t.ty == Ty::Unknown;
        let from = if is_untyped { Typed::of_column(column.column_type) } else { bound.t };
        if !may_assign(from.ty, Typed::of_column(to).ty) {
            return Err(cannot_cast("default for column", &column.name, to));
        }
        let is_null = matches!(bound.expr, Expr::Const(ref value) if value.is_null());
        match is_untyped && !is_null && from.ty != Typed::of_column(to).ty {
            true => Ok(Some(format!("({text})::{}", written(column.column_type)))),
            false => Ok(Some(text.clone())),
        }
    }
}

/// Returns the name of a type as a definition writes it.
fn written(t: ColumnType) -> String {
    let t = Typed::of_column(t);
    show::type_name(t.ty.oid(), t.typmod)
}

fn may_assign(from: Ty, to: Ty) -> bool {
    cast_level(from, to).is_some_and(|level| level <= CastLevel::Assignment)
}

/// Returns the error 42804: the value cannot be cast automatically to the new type.
fn cannot_cast(what: &str, column: &str, to: ColumnType) -> SqlError {
    let to = Typed::of_column(to).ty.name();
    let message = format!("{what} \"{column}\" cannot be cast automatically to type {to}");
    SqlError::new(SqlState::DATATYPE_MISMATCH, message)
}

fn refuse_key_of_parts(table: &TableDef, ordinal: usize) -> Result<()> {
    if !partition_by(table).is_some_and(|columns| columns.contains(&ordinal)) {
        return Ok(());
    }
    let message = format!(
        "cannot alter column \"{}\" because it is part of the partition key of relation \"{}\"",
        table.columns[ordinal].name, table.name
    );
    Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
}

fn refuse_identity(column: &ColumnDef, to: ColumnType) -> Result<()> {
    let is_integer = matches!(to, ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8);
    if column.identity.is_none() || is_integer {
        return Ok(());
    }
    let message = "identity column type must be smallint, integer, or bigint";
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

fn is_indexed(table: &TableDef, ordinal: usize) -> bool {
    table.key_columns().contains(&ordinal) || table.plain_indexes().any(|i| i.columns.contains(&ordinal))
}

/// Returns whether every value of type `from` is also a value of type `to`, with the same bytes in rows and
/// in keys.
fn keeps_form(from: ColumnType, to: ColumnType) -> bool {
    use ColumnType::{Char, Numeric, Rounded, Text, Varchar};
    match (from, to) {
        (a, b) if a == b => true,
        (Varchar(_) | Text, Text | Varchar(None)) => true,
        (Varchar(Some(from)), Varchar(Some(to))) | (Char(from), Char(to)) => from <= to,
        (Numeric { .. }, Numeric { precision: None }) => true,
        (Numeric { precision: Some((digits, scale)) }, Numeric { precision: Some((more, same)) }) => {
            digits <= more && scale == same
        }
        // For intervals, the number also says which fields the type has, so a larger number is not always
        // wider.
        (Rounded(a, from), Rounded(b, to)) => a == b && a != varve_engine::Moment::Interval && from <= to,
        (Rounded(moment, _), plain) => moment.unrounded() == plain,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_every_value_keeps_the_rows() {
        let numeric = |p, s| ColumnType::Numeric { precision: Some((p, s)) };
        let varchar = |n| ColumnType::Varchar(Some(n));
        for (from, to) in [
            (varchar(5), varchar(6)),
            (varchar(5), ColumnType::Text),
            (numeric(5, 2), numeric(7, 2)),
            (numeric(5, 2), ColumnType::Numeric { precision: None }),
            (ColumnType::Rounded(varve_engine::Moment::Time, 2), ColumnType::Time),
        ] {
            assert!(keeps_form(from, to) && !keeps_form(to, from), "{from:?} {to:?}");
        }
        assert!(!keeps_form(numeric(5, 2), numeric(7, 3)));
        assert!(!keeps_form(ColumnType::Int4, ColumnType::Int8));
        assert!(!keeps_form(ColumnType::Char(3), ColumnType::Text));
    }
}
