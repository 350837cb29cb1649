//! Binds functions that make JSON. Each argument is converted to JSON here, because the binder knows its
//! type.
//!
//! This module does not know how JSON is written (`eval::func::json`).

use crate::ast::{self, Expr as Ast};
use crate::names::fold;
use varve_engine::Value;

use super::Binder;
use super::bound::Bound;
use super::call::plain_argument;
use super::row::fields_of;
use super::scope::{ColumnMatch, Scope};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::eval::func::{self, json};
use crate::ty::{Ty, Typed};

/// Returns whether the function with this name makes JSON.
pub(super) fn makes_json(name: &str) -> bool {
    matches!(name, "to_json" | "array_to_json" | "row_to_json" | "json_build_object" | "json_build_array")
}

impl Binder<'_> {
    /// Binds a call of a function that makes JSON.
    pub(super) fn json_function(
        &mut self,
        name: &str,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let mut arguments = Vec::with_capacity(f.args.len());
        for argument in &f.args {
            arguments.push(plain_argument(argument)?);
        }
        let mut pieces = Vec::with_capacity(arguments.len());
        match name {
            "json_build_object" => {
                if !arguments.len().is_multiple_of(2) {
                    let message = "argument list must have even number of elements";
                    let hint =
                        "The arguments of json_build_object() must consist of alternating keys and values.";
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                        .with_hint(hint)
                        .at(at));
                }
                for pair in arguments.chunks(2) {
                    let key = self.expression(pair[0], scope)?;
                    pieces.push(self.explicit(key, Typed::plain(Ty::Text))?.expr);
                    pieces.push(self.json_of(pair[1], scope)?.0);
                }
                made(json::OBJECT, pieces, at)
            }
            "json_build_array" => {
                for argument in arguments {
                    pieces.push(self.json_of(argument, scope)?.0);
                }
                made(json::ARRAY, pieces, at)
            }
            _ => self.one_as_json(name, &arguments, at, scope),
        }
    }

    fn one_as_json(
        &mut self,
        name: &str,
        arguments: &[&Ast],
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let mut types = Vec::with_capacity(arguments.len());
        if let [argument] = arguments {
            if let Some(row) = self.row(argument, scope)? {
                return Ok(Bound { expr: row, t: Typed::plain(Ty::Json), at });
            }
            let bound = self.expression(argument, scope)?;
            let ty = bound.t.ty;
            if ty == Ty::Unknown {
                return Err(super::call::no_polymorphic_type(at));
            }
            if name == "to_json" || name == "array_to_json" && ty.element().is_some() {
                return Ok(Bound { expr: self.value_as_json(bound)?, t: Typed::plain(Ty::Json), at });
            }
            types.push(ty);
        }
        Err(super::call::undefined(name, &types).at(at))
    }

    /// Converts an argument to JSON. Also returns whether it is an array or a row.
    pub(super) fn json_of(&mut self, written: &Ast, scope: &mut Scope) -> Result<(Expr, bool)> {
        if let Some(row) = self.row(written, scope)? {
            return Ok((row, true));
        }
        let bound = self.expression(written, scope)?;
        let is_array = bound.t.ty.element().is_some();
        Ok((self.value_as_json(bound)?, is_array))
    }

    fn value_as_json(&mut self, bound: Bound) -> Result<Expr> {
        let (expr, of) = match bound.t.ty {
            Ty::Json => return Ok(bound.expr),
            Ty::Array(Ty::Json) => (bound.expr, json::OF_ARRAY),
            Ty::Char => match bound.t.length() {
                Some(n) => (Expr::Pad(Box::new(bound.expr), n), json::OF),
                None => (bound.expr, json::OF),
            },
            Ty::Unknown | Ty::Reg(_) => (self.explicit(bound, Typed::plain(Ty::Text))?.expr, json::OF),
            _ => (bound.expr, json::OF),
        };
        made(of, vec![expr], None).map(|b| b.expr)
    }

    /// Makes json of an argument that is a row. A row is the name of a relation, if no column has this name,
    /// or a row constructor such as ROW(1, 2). Returns `None` if the argument is not a row.
    fn row(&mut self, written: &Ast, scope: &mut Scope) -> Result<Option<Expr>> {
        let mut fields: Vec<(String, Bound)> = Vec::new();
        match written {
            Ast::Identifier(ident) => {
                let name = fold(ident);
                if scope.find(None, &name) != ColumnMatch::Nothing {
                    return Ok(None);
                }
                let Some(relation) = scope.relation(&name).cloned() else { return Ok(None) };
                for ((column, t), ordinal) in relation.columns.iter().zip(relation.first..) {
                    let value = self.column_value(Expr::Column(ordinal), *t, column, None, scope)?;
                    fields.push((column.clone(), value));
                }
            }
            other => {
                let Some(items) = fields_of(other) else { return Ok(None) };
                for (n, item) in items.into_iter().enumerate() {
                    fields.push((format!("f{}", n + 1), self.expression(item, scope)?));
                }
            }
        }
        let mut pieces = Vec::with_capacity(2 * fields.len());
        for (name, value) in fields {
            pieces.push(Expr::Const(Value::Text(name)));
            pieces.push(self.value_as_json(value)?);
        }
        made(json::ROW, pieces, None).map(|b| Some(b.expr))
    }
}

fn made(function: &str, arguments: Vec<Expr>, at: Option<u32>) -> Result<Bound> {
    let Some(function) = func::overloads(function).next() else {
        return Err(SqlError::internal("a function of json that there is not"));
    };
    Ok(Bound { expr: Expr::Call(function, arguments.into()), t: Typed::plain(Ty::Json), at })
}
