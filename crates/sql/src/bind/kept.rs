//! Binds expressions that the catalog stores as text, for the code that prints them.
//!
//! This module does not know how the expressions are printed.

use super::Binder;
use crate::ast::Expr as Ast;
use crate::eval::Expr;
use crate::system::conditions::{KeptExpression, Meaning};

/// Returns the meaning of a part of a stored expression, or `None` if the part has no meaning.
pub fn meaning_of(kept: &KeptExpression<'_>, e: &Ast) -> Option<Meaning> {
    let bound = Binder::of_kept(kept.catalog, kept.text).ok()?.over_table(e, kept.table).ok()?;
    let argument_types = match &bound.expr {
        Expr::Call(function, _) if !function.variadic => Some(function.arguments),
        _ => None,
    };
    let reads_columns = bound.expr.reads_columns();
    let constant = if let Expr::Const(value) = bound.expr { Some(value) } else { None };
    Some(Meaning { t: bound.t, constant, reads_columns, argument_types })
}
