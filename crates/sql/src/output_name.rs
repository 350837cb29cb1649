//! Names for outputs and for parts of index keys that have no name in the statement.

use crate::ast::{self, Expr as Ast, Link, SelectItem};
use crate::names::fold;
use crate::ty::Ty;

/// Returns PostgreSQL's name for an output without an alias.
pub fn output_name(e: &Ast) -> String {
    named(e).0
}

/// Returns a name and its strength: 2 for a column or function, 1 for a type or CASE, 0 if there is no name.
fn named(e: &Ast) -> (String, u8) {
    let strong = |n: &str| (n.to_owned(), 2);
    match e {
        Ast::Identifier(i) => (fold(i), 2),
        Ast::CompoundIdentifier(parts) => (parts.last().map(fold).unwrap_or_default(), 2),
        Ast::Function(f) => strong(f.name.last()),
        Ast::ValueFunction(f) => strong(f.name),
        Ast::Nested(inner) => named(inner),
        Ast::Collate { expr, .. } => named(expr),
        Ast::Indirection { root, links } => {
            let field = links.iter().rev().find_map(|link| match link {
                Link::Field(field) => Some(strong(&field.value)),
                Link::Index(_) | Link::Slice(..) => None,
            });
            field.unwrap_or_else(|| named(root))
        }
        Ast::Cast { expr, data_type } => match named(expr) {
            (name, 2) => (name, 2),
            _ => (type_name(data_type), 1),
        },
        Ast::Case(case) => match case.otherwise.as_deref().map(named) {
            Some((name, 2)) => (name, 2),
            _ => ("case".to_owned(), 1),
        },
        Ast::Subquery(query) => (subquery_name(&query.body), 2),
        Ast::Exists { negated: false, .. } => strong("exists"),
        Ast::Array(_) | Ast::ArraySubquery(..) => strong("array"),
        Ast::Row(..) => strong("row"),
        Ast::AtTimeZone { .. } => strong("timezone"),
        Ast::Overlay { .. } => strong("overlay"),
        Ast::Extract { .. } => strong("extract"),
        Ast::Substring { shorthand: true, .. } => strong("substr"),
        Ast::Substring { .. } => strong("substring"),
        Ast::Position { .. } => strong("position"),
        Ast::Trim { side, .. } => strong(side.function()),
        _ => ("?column?".to_owned(), 0),
    }
}

/// Returns the name of a subquery. It is the name of its only output, even if that output has no name.
fn subquery_name(body: &ast::SetExpr) -> String {
    let select = match body {
        ast::SetExpr::Query(query) => return subquery_name(&query.body),
        ast::SetExpr::SetOperation { left, .. } => return subquery_name(left),
        ast::SetExpr::Values(_) => return "column1".to_owned(),
        ast::SetExpr::Select(select) => select,
    };
    match select.projection.first() {
        Some(SelectItem::UnnamedExpr(e)) => output_name(e),
        Some(SelectItem::ExprWithAlias { alias, .. }) => fold(alias),
        _ => "?column?".to_owned(),
    }
}

fn type_name(t: &ast::TypeName) -> String {
    let Ok(t) = crate::ty::of_ast(t) else { return "?column?".to_owned() };
    // An array is named after the type of its elements.
    let ty = if let Ty::Array(elem) = t.ty { *elem } else { t.ty };
    match ty {
        Ty::Bool => "bool",
        Ty::Int2 => "int2",
        Ty::Int4 => "int4",
        Ty::Int8 => "int8",
        Ty::Float4 => "float4",
        Ty::Float8 => "float8",
        Ty::Time => "time",
        Ty::Char1 => "char",
        Ty::Char => "bpchar",
        Ty::Varchar => "varchar",
        Ty::Timestamp => "timestamp",
        Ty::TimestampTz => "timestamptz",
        other => other.name(),
    }
    .to_owned()
}

/// Returns the name of a part of an index's key, from its stored text.
pub fn name_of_key(text: &str) -> String {
    crate::parse::expression(text).map_or_else(|_| "expr".to_owned(), |e| key_name(&e))
}

/// Returns the name of a part of an index's key.
pub fn key_name(e: &Ast) -> String {
    match output_name(e) {
        name if name == "?column?" => "expr".to_owned(),
        name => name,
    }
}
