//! Binds array expressions: ARRAY[...], subscripts, ANY and ALL, and functions whose result type follows the
//! type of the elements.
//!
//! This module does not know ARRAY or ANY over queries.

use super::Binder;
use super::bound::Bound;
use super::coerce::{as_bpchar, with_blanks};
use super::operator::{comparison, no_operator};
use super::scope::Scope;
use crate::ast::{self, BinaryOperator, Expr as Ast, Link};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func::{self, no_subscript};
use crate::eval::{CmpOp, Expr, ListId};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Binds `ARRAY[a, b]`.
    pub(super) fn array(&mut self, items: &[Ast], scope: &mut Scope) -> Result<Bound> {
        let items = items.iter().map(|e| self.expression(e, scope)).collect::<Result<Vec<_>>>()?;
        let at = items.first().and_then(|item| item.at);
        if items.is_empty() {
            let message = "cannot determine type of empty array";
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, message)
                .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let items = items.into_iter().map(with_blanks).collect();
        let (items, t) = self.unify(items, "ARRAY")?;
        self.array_of(items, t.ty, at)
    }

    fn array_of(&mut self, items: Vec<Expr>, element: Ty, at: Option<u32>) -> Result<Bound> {
        let array = element
            .array()
            .ok_or_else(|| SqlError::unsupported(format!("an array of type {}", element.name())).at(at))?;
        Ok(Bound { expr: Expr::Array(element, items.into()), t: Typed::plain(array), at })
    }

    /// Binds `ARRAY[...]::type[]`, whose elements are cast one by one.
    pub(super) fn typed_array(
        &mut self,
        written: &[Ast],
        to: Typed,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let Some(element) = to.ty.element() else { return Ok(None) };
        let mut items = Vec::with_capacity(written.len());
        for e in written {
            let item = self.expression(e, scope)?;
            items.push(with_blanks(self.explicit(item, Typed { ty: element, ..to })?).expr);
        }
        Ok(Some(Bound { t: to, ..self.array_of(items, element, None)? }))
    }

    /// Binds `value op ANY (array)`.
    pub(super) fn quantified(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        all: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let right = right.unnested();
        if let (Ast::Array(list), BinaryOperator::Eq, false) = (right, op, all)
            && !list.is_empty()
        {
            return self.equals_an_element(left, list, scope);
        }
        let left = self.expression(left, scope)?;
        let right = self.expression(right, scope)?;
        let at = left.at;
        let Some(cmp) = comparison(op) else {
            return Err(SqlError::unsupported(format!("operator {op} with ANY or ALL")).at(at));
        };
        let right = match right.t.ty {
            Ty::Unknown => {
                // varchar uses the operators of text.
                let element = match left.t.ty {
                    Ty::Unknown | Ty::Varchar => Ty::Text,
                    other => other,
                };
                let array =
                    element.array().ok_or_else(|| no_operator(cmp.symbol(), left.t.ty, right.t.ty, at))?;
                self.cast(right, Typed::plain(array), false)?
            }
            _ => right,
        };
        self.compared_with_array(cmp, left, right, all)
    }

    /// Binds `value = ANY (ARRAY[...])`. The elements get their common type first, as in PostgreSQL. Then the
    /// value is compared with each of them, as with the items of IN, because IN can use an index.
    fn equals_an_element(&mut self, left: &Ast, list: &[Ast], scope: &mut Scope) -> Result<Bound> {
        if list.iter().any(|item| matches!(item, Ast::Array(_))) {
            return Err(SqlError::unsupported("an array of more than one dimension"));
        }
        let left = self.expression(left, scope)?;
        let at = left.at;
        let items = list.iter().map(|e| self.expression(e, scope)).collect::<Result<Vec<_>>>()?;
        let (exprs, t) = self.unify(items.into_iter().map(with_blanks).collect(), "ARRAY")?;
        let items = exprs.into_iter().map(|expr| Bound { expr, t, at }).collect();
        self.equals_one_of(left, items, false)
    }

    /// Binds `left op ANY (array)`, or ALL.
    pub(super) fn compared_with_array(
        &mut self,
        cmp: CmpOp,
        left: Bound,
        right: Bound,
        all: bool,
    ) -> Result<Bound> {
        let at = left.at;
        let Some(element) = right.t.ty.element() else {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        };
        // The casts of a comparison of the two are made here: for the value, and for the array as a whole.
        let sample = Bound { expr: Expr::Held(usize::MAX), t: Typed::plain(element), at };
        let (left, sample) = self.comparable(cmp.symbol(), left, sample, at)?;
        let right = match sample {
            Expr::Cast(_, _, to, _) => {
                let array = to.ty.array().ok_or_else(|| no_operator(cmp.symbol(), to.ty, element, at))?;
                self.cast(right, Typed::plain(array), false)?
            }
            _ => right,
        };
        let expr = Expr::Quantified(cmp, all, Box::new((left, right.expr)), ListId::next());
        Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
    }

    /// Binds `array[n]`.
    pub(super) fn subscript(&mut self, root: &Ast, links: &[Link], scope: &mut Scope) -> Result<Bound> {
        if let [Link::Field(field)] = links
            && let Some(bound) = self.field(root, field, scope)
        {
            return bound;
        }
        // The parser returns t.column[n] as fields of t.
        let fields = links.iter().take_while(|link| matches!(link, Link::Field(_))).count();
        let mut names = match root {
            Ast::Identifier(ident) => vec![ident.clone()],
            Ast::CompoundIdentifier(parts) => parts.clone(),
            _ => Vec::new(),
        };
        let (dotted, rest) = links.split_at(fields);
        names.extend(dotted.iter().filter_map(|link| match link {
            Link::Field(ident) => Some(ident.clone()),
            _ => None,
        }));
        let mut bound = match (fields, names.as_slice()) {
            (0, _) => self.expression(root, scope)?,
            (_, []) => return Err(SqlError::unsupported("a field of an expression")),
            _ => self.expression(&Ast::CompoundIdentifier(names), scope)?,
        };
        for link in rest {
            let index = match link {
                Link::Index(index) => index,
                Link::Slice(lower, upper) => {
                    bound = self.slice(bound, [lower.as_ref(), upper.as_ref()], scope)?;
                    continue;
                }
                Link::Field(_) => return Err(SqlError::unsupported("a field of an element").at(bound.at)),
            };
            if bound.t.ty == Ty::Name {
                // In PostgreSQL, a name is an array of "char" that is counted from 0.
                let at = bound.at;
                let index = self.expression(index, scope)?;
                bound = self.call_function("name_letter", vec![bound, index], at)?;
                continue;
            }
            let Some(element) = bound.t.ty.element() else {
                return Err(no_subscript(bound.t.ty.name()).at(bound.at));
            };
            let index = self.expression(index, scope)?;
            let index = self.implicit(index, Ty::Int4, "array subscript")?;
            let at = bound.at;
            let expr = self.array_call("array_subscript", vec![bound.expr, index.expr])?;
            bound = Bound { expr, t: Typed::plain(element), at };
        }
        Ok(bound)
    }

    /// Binds `array[from:to]`. A missing bound is that of the array.
    fn slice(&mut self, array: Bound, bounds: [Option<&Ast>; 2], scope: &mut Scope) -> Result<Bound> {
        if !matches!(array.t.ty, Ty::Array(_)) {
            return Err(no_subscript(array.t.ty.name()).at(array.at));
        }
        let (at, t) = (array.at, array.t);
        let mut arguments = vec![array.expr];
        for (bound, open) in bounds.into_iter().zip([i32::MIN, i32::MAX]) {
            arguments.push(match bound {
                None => Expr::Const(varve_engine::Value::Int4(open)),
                Some(written) => {
                    let bound = self.expression(written, scope)?;
                    self.implicit(bound, Ty::Int4, "array subscript")?.expr
                }
            });
        }
        Ok(Bound { expr: self.array_call("array_slice", arguments)?, t, at })
    }

    pub(super) fn array_call(&self, name: &str, arguments: Vec<Expr>) -> Result<Expr> {
        let found = func::overloads(name).find(|f| f.arguments.len() == arguments.len());
        let function = found.ok_or_else(|| SqlError::internal("an array function that is none"))?;
        Ok(Expr::Call(function, arguments.into()))
    }

    /// Binds a function of arrays. Returns `None` if the call is of another function.
    pub(super) fn array_function(
        &mut self,
        name: &str,
        arguments: &[Bound],
        at: Option<u32>,
    ) -> Option<Result<Bound>> {
        let mut types: Vec<Ty> = arguments.iter().map(|a| a.t.ty).collect();
        // These functions use the common type of the elements and of the other values.
        let is_compatible = matches!(
            name,
            "array_append" | "array_prepend" | "array_cat" | "array_position" | "array_positions"
        ) || matches!(name, "array_remove" | "array_replace");
        // A literal or parameter in place of the array is an array of the type of the other value. If there
        // are only such values, all are text.
        let is_untyped = is_compatible && types.iter().all(|ty| *ty == Ty::Unknown);
        match (name, types.as_mut_slice()) {
            ("array_prepend", [_, array]) | (_, [array, ..]) if is_untyped => *array = Ty::Array(&Ty::Text),
            ("array_append" | "array_remove" | "array_position" | "array_positions", [array, element])
            | ("array_position", [array, element, _])
            | ("array_prepend", [element, array])
            | ("array_replace", [array, element, _])
                if *array == Ty::Unknown && *element != Ty::Unknown =>
            {
                *array = element.array().unwrap_or(*array);
            }
            ("array_cat", [array, Ty::Unknown] | [Ty::Unknown, array]) => {
                let array = *array;
                types = vec![array; 2];
            }
            _ => {}
        }
        let of_array = match (name, types.as_slice()) {
            ("array_length" | "array_upper" | "array_lower", [array, _])
            | ("array_dims" | "array_ndims" | "cardinality", [array])
            | ("array_to_string", [array, _] | [array, _, _])
            | ("array_position" | "array_append" | "array_remove" | "array_cat", [array, _])
            | ("array_positions" | "trim_array", [array, _])
            | ("array_replace" | "array_position", [array, _, _])
            | ("array_prepend", [_, array]) => *array,
            _ => return None,
        };
        if of_array == Ty::Unknown && !is_compatible {
            return Some(Err(super::call::no_polymorphic_type(at)));
        }
        let element = of_array.element()?;
        let common = |ty: Ty, t: &Ty| crate::ty::common(ty, t.element().unwrap_or(*t));
        // The start position is not a value of the array.
        let values = if name == "array_position" { &types[..2] } else { &types[..] };
        let (of_array, element) = match is_compatible.then(|| values.iter().try_fold(Ty::Unknown, common)) {
            Some(None) => return Some(Err(super::call::undefined(name, &types).at(at))),
            Some(Some(shared)) => (shared.array()?, shared),
            None => (of_array, element),
        };
        Some(self.bound_array_call(name, arguments.to_vec(), of_array, element, at))
    }

    fn bound_array_call(
        &mut self,
        name: &str,
        arguments: Vec<Bound>,
        array: Ty,
        element: Ty,
        at: Option<u32>,
    ) -> Result<Bound> {
        let (wanted, result): (Vec<Ty>, Ty) = match name {
            "array_length" | "array_upper" | "array_lower" => (vec![array, Ty::Int4], Ty::Int4),
            "array_ndims" | "cardinality" => (vec![array], Ty::Int4),
            "array_dims" => (vec![array], Ty::Text),
            "array_to_string" => (vec![array, Ty::Text, Ty::Text], Ty::Text),
            "array_position" => (vec![array, element, Ty::Int4], Ty::Int4),
            "array_positions" => (vec![array, element], Ty::Array(&Ty::Int4)),
            "array_replace" => (vec![array, element, element], array),
            "trim_array" => (vec![array, Ty::Int4], array),
            "array_cat" => (vec![array, array], array),
            "array_prepend" => (vec![element, array], array),
            _ => (vec![array, element], array),
        };
        let cast = |(argument, ty): (Bound, Ty)| {
            let is_value = ty == Ty::Char && name.starts_with("array_");
            let argument = if is_value { as_bpchar(argument) } else { argument };
            Ok(self.implicit(argument, ty, name)?.expr)
        };
        let mut exprs = arguments.into_iter().zip(wanted).map(cast).collect::<Result<Vec<_>>>()?;
        if let Some(place) = ["array_append", "array_prepend"].iter().position(|n| *n == name) {
            // A NULL array counts as an empty array of its type.
            let empty = Expr::Const(varve_engine::Value::Array(crate::array::of(element.oid())));
            let array = std::mem::replace(&mut exprs[place], Expr::NULL);
            exprs[place] = Expr::Coalesce(Box::new([array, empty]));
        }
        Ok(Bound { expr: self.array_call(name, exprs)?, t: Typed::plain(result), at })
    }

    /// Binds COLLATE. All strings are in the order of the collation "C".
    pub(super) fn collate(
        &mut self,
        e: &Ast,
        collation: &ast::ObjectName,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let name = collation.last().to_owned();
        let bound = self.expression(e, scope)?;
        match name.as_str() {
            "default" | "c" | "C" | "posix" | "POSIX" | "ucs_basic" => Ok(bound),
            _ => Err(SqlError::unsupported(format!("collation {collation}"))
                .with_hint("Strings are in the order of the collation \"C\".")
                .at(bound.at)),
        }
    }
}
