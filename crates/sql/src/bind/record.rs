//! Binds functions that return rows of several columns, where the row is used as a value. A statement can
//! take one field of the returned row. It can also take one field of a column in FROM that has such rows.
//!
//! Invariants
//! 1. A column `k` that holds rows is stored as one column for each field, named `k.field`. An expression may
//!    use one field. An expression that uses the whole row is refused.
//!
//! This module does not know row constructors (`row`).

use super::Binder;
use super::bound::Bound;
use super::call::function_name;
use super::scope::{Relation, Scope};
use super::set_functions::{RowsOf, rows_of};
use crate::ast::{self, Expr as Ast, Ident, Link, SelectItem, SetExpr};
use crate::error::{Result, SqlError, SqlState};
use crate::names::fold;

impl Binder<'_> {
    /// Binds `(f(x)).field` or `(t.k).field`. Returns `None` if the expression is neither.
    pub(super) fn field(&mut self, root: &Ast, field: &Ident, scope: &mut Scope) -> Option<Result<Bound>> {
        match root {
            Ast::Nested(inner) => self.field(inner, field, scope),
            Ast::Function(f) => {
                let name = function_name(f).ok()?;
                let RowsOf::Columns(columns) = rows_of(&name)? else { return None };
                let at = self.at(&f.name);
                let wanted = fold(field);
                let place = columns.iter().position(|column| column.name == wanted);
                Some(match place.and_then(|n| columns.get(n..=n)) {
                    Some(one) => self.set_call(&name, RowsOf::Columns(one), f, at, scope),
                    None => Err(no_field(&wanted).at(at)),
                })
            }
            Ast::Identifier(_) | Ast::CompoundIdentifier(_) => {
                let mut names = match root {
                    Ast::CompoundIdentifier(parts) => parts.clone(),
                    Ast::Identifier(ident) => vec![ident.clone()],
                    _ => Vec::new(),
                };
                let last = names.last_mut()?;
                let (column, wanted) = (fold(last), fold(field));
                last.value = of_field(&column, &wanted);
                let written = match names.as_slice() {
                    [one] => Ast::Identifier(one.clone()),
                    _ => Ast::CompoundIdentifier(names),
                };
                let begins = of_field(&column, "");
                let holds_rows = |relation: &Relation| {
                    relation.has_records && relation.columns.iter().any(|(name, _)| name.starts_with(&begins))
                };
                match self.expression(&written, scope) {
                    Ok(bound) => Some(Ok(bound)),
                    Err(_) if scope.relations.iter().any(holds_rows) => Some(Err(no_field(&wanted))),
                    Err(_) => None,
                }
            }
            _ => None,
        }
    }
}

fn no_field(name: &str) -> SqlError {
    let message = format!("could not identify column \"{name}\" in record data type");
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

fn of_field(column: &str, field: &str) -> String {
    format!("{column}.{field}")
}

/// Rewrites a query in FROM: a call that returns rows of several columns becomes one item for each field.
/// Returns `None` if the select list has no such call.
pub(super) fn fields_apart(query: &ast::Query) -> Option<ast::Query> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    if !select.projection.iter().any(|item| rows_in(item).is_some()) {
        return None;
    }
    let mut query = query.clone();
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let items = std::mem::take(&mut select.projection);
    select.projection = items.into_iter().flat_map(apart).collect();
    Some(query)
}

/// An item of a select list that is a call which returns rows of several columns.
struct RowsItem<'a> {
    /// The call.
    call: &'a Ast,
    /// The names of the columns.
    fields: Vec<&'static str>,
    /// The name of the item: its alias, or the function's name.
    name: String,
}

fn rows_in(item: &SelectItem) -> Option<RowsItem<'_>> {
    let (e, alias) = match item {
        SelectItem::UnnamedExpr(e) => (e, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(fold(alias))),
        _ => return None,
    };
    let Ast::Function(f) = e else { return None };
    let name = function_name(f).ok()?;
    match rows_of(&name)? {
        RowsOf::Columns(columns) if columns.len() > 1 => {
            let fields = columns.iter().map(|column| column.name).collect();
            Some(RowsItem { call: e, fields, name: alias.unwrap_or(name) })
        }
        _ => None,
    }
}

fn apart(item: SelectItem) -> Vec<SelectItem> {
    let Some(RowsItem { call, fields, name }) = rows_in(&item) else { return vec![item] };
    let field = |field: &'static str| SelectItem::ExprWithAlias {
        expr: Ast::Indirection { root: Box::new(call.clone()), links: vec![Link::Field(Ident::new(field))] },
        alias: Ident::new(of_field(&name, field)),
    };
    fields.into_iter().map(field).collect()
}
