//! Binds function calls: special forms, aggregates, and the choice among overloads.
//!
//! Invariants
//! 1. An overload is chosen by PostgreSQL's rules (manual, 10.3). An exact match comes first, then functions
//!    that implicit casts reach. Among these, most exact matches win, then preferred types, then string types
//!    for untyped literals.
//!
//! This module does not know how a function computes its result.

use varve_engine::Value;

use super::bound::Bound;
use super::call::{function_name, shown, undefined, written_argument};
use super::coerce::shown_as_text;
use super::scope::Scope;
use super::{Binder, limits, named};
use crate::ast::{self, Expr as Ast, FunctionArg};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func::{self, Builtin};
use crate::eval::{CmpOp, Expr};
use crate::plan::{AggKind, WinFunction};
use crate::ty::{self, CastLevel, Reg, Ty, Typed, cast_level};

/// Returns whether a function of this name is bound here rather than found in the table of built-in
/// functions.
pub fn is_special_function(name: &str) -> bool {
    AggKind::of(name).is_some()
        || WinFunction::of(name).is_some()
        || super::json::makes_json(name)
        || super::set_functions::values_of(name).is_some()
}

impl Binder<'_> {
    /// Binds a call in the form of the syntax tree.
    pub(super) fn function(&mut self, f: &ast::Function, scope: &mut Scope) -> Result<Bound> {
        let at = self.at(&f.name);
        let name = function_name(f).map_err(|e| e.at(at))?;
        check_call(&name, f).map_err(|e| e.at(at))?;
        if let Some(over) = &f.over {
            return self.window_call(&name, f, over, at, scope);
        }
        if WinFunction::of(&name).is_some() {
            let message = format!("window function {name} requires an OVER clause");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        if let Some(kind) = AggKind::of(&name) {
            return self.aggregate(kind, f, at, scope);
        }
        if !f.within_group.is_empty() {
            let mut types: Vec<Ty> = self.arguments(f, scope)?.iter().map(|b| b.t.ty).collect();
            for sorted in &f.within_group {
                types.push(self.expression(&sorted.expr, scope)?.t.ty);
            }
            return Err(undefined(&name, &types).at(at));
        }
        if name == "grouping" {
            return self.grouping_function(f, at, scope);
        }
        if super::json::makes_json(&name) {
            return self.json_function(&name, f, at, scope);
        }
        if let Some(rows) = super::set_functions::values_of(&name) {
            return self.set_call(&name, rows, f, at, scope);
        }
        let arguments = match name.as_str() {
            "coalesce" => self.chosen_among(f, scope)?,
            _ => self.arguments(f, scope)?,
        };
        if let Some(bound) = self.array_function(&name, &arguments, at) {
            return bound;
        }
        if !f.order_by.is_empty() {
            let message = format!("ORDER BY specified, but {name} is not an aggregate function");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        if f.filter.is_some() || f.distinct {
            let message = format!("{name} is not an aggregate function");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        match name.as_str() {
            "coalesce" => self.several(arguments, "COALESCE", Expr::Coalesce, at),
            "greatest" => self.several(arguments, "GREATEST", |e| Expr::Extreme(e, true), at),
            "least" => self.several(arguments, "LEAST", |e| Expr::Extreme(e, false), at),
            "nullif" => self.null_if(arguments, at),
            "pg_typeof" if arguments.len() == 1 => {
                self.reads_world = true;
                let oid = i64::from(arguments[0].t.ty.told_oid());
                let expr = Expr::Const(varve_engine::Value::Int8(oid));
                Ok(Bound { expr, t: Typed::plain(Ty::Reg(Reg::Type)), at })
            }
            "char_length" | "character_length" | "concat" | "concat_ws" | "format" | "octet_length" => {
                self.call_padded(&name, arguments, at)
            }
            _ => self.call_function(&name, arguments, at),
        }
    }

    /// Binds arguments of a form that does not compute all of them.
    fn chosen_among(&mut self, f: &ast::Function, scope: &mut Scope) -> Result<Vec<Bound>> {
        let before = scope.refuse_sets(Some("COALESCE"));
        self.choices += 1;
        let arguments = self.arguments(f, scope);
        self.choices -= 1;
        scope.refuse_sets(before);
        arguments
    }

    pub(super) fn arguments(&mut self, f: &ast::Function, scope: &mut Scope) -> Result<Vec<Bound>> {
        let sequences = matches!(function_name(f).as_deref(), Ok("nextval" | "currval" | "setval"));
        let written = |a: &FunctionArg| -> Result<Bound> {
            let argument = written_argument(a)?;
            // The name in nextval('s'::regclass) is looked up by the function itself.
            let argument = if sequences { named_sequence(argument) } else { argument };
            let bound = self.expression(argument, scope)?;
            Ok(if sequences && self.path.is_none() { of_public(bound) } else { bound })
        };
        let names = named::names(&f.args)?;
        let bound = f.args.iter().map(written).collect::<Result<Vec<Bound>>>()?;
        if names.iter().all(Option::is_none) {
            return Ok(bound);
        }
        named::placed(&function_name(f)?, &names, bound)
    }

    fn several(
        &mut self,
        arguments: Vec<Bound>,
        clause: &str,
        make: impl Fn(Box<[Expr]>) -> Expr,
        at: Option<u32>,
    ) -> Result<Bound> {
        if arguments.is_empty() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \")\"").at(at));
        }
        let (items, t) = self.unify(arguments, clause)?;
        if clause != "COALESCE" {
            super::order::orderable(t, clause)?;
        }
        Ok(Bound { expr: make(items.into()), t, at })
    }

    fn null_if(&mut self, arguments: Vec<Bound>, at: Option<u32>) -> Result<Bound> {
        let [a, b] = <[Bound; 2]>::try_from(arguments)
            .map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in NULLIF").at(at))?;
        // Numbers of different kinds are compared as the wider kind, and so is the result.
        let both = |is: fn(Ty) -> bool| is(a.t.ty) && is(b.t.ty);
        let widens = both(Ty::is_number) && !both(Ty::is_integer);
        let wide = ty::common(a.t.ty, b.t.ty).filter(|wide| widens && *wide != a.t.ty);
        // The result has the type in which the operator takes its left side.
        let taken = match (a.t.ty, b.t.ty) {
            (Ty::Unknown, Ty::Unknown | Ty::Json | Ty::Void) => None,
            (Ty::Unknown, Ty::Varchar | Ty::Name) => Some(Ty::Text),
            (Ty::Unknown, other) => Some(other),
            // There is an equality of real and double precision, which takes any number on its right side.
            (Ty::Float4, Ty::Unknown) => None,
            (Ty::Float4, other) if other.is_number() => None,
            (one, Ty::Float4) if one.is_number() => Some(Ty::Float8),
            (Ty::Varchar, Ty::Char) => Some(Ty::Char),
            (Ty::Varchar, _) | (Ty::Char, Ty::Text) => Some(Ty::Text),
            (Ty::Time, Ty::Interval) => Some(Ty::Interval),
            _ => wide,
        };
        let a = match taken {
            Some(ty) => self.cast(a, Typed::plain(ty), false)?,
            None => a,
        };
        self.once(a, |binder, a| {
            let equal = binder.compare(CmpOp::Eq, a.clone(), b, at)?.expr;
            let a = binder.retyped(a);
            let a = binder.known(a)?;
            let branches = Box::new([(equal, Expr::NULL)]);
            Ok(Bound { expr: Expr::Case(branches, Box::new(a.expr)), t: a.t, at })
        })
    }

    /// Binds a call of a function that sees the blanks of char(n).
    fn call_padded(&mut self, name: &str, arguments: Vec<Bound>, at: Option<u32>) -> Result<Bound> {
        // The first argument of concat_ws and format is a text. A char(n) that is converted to text has no
        // blanks.
        let from = match name {
            "concat" | "octet_length" => 0,
            "concat_ws" | "format" => 1,
            _ => usize::MAX,
        };
        let pad = |(place, b): (usize, Bound)| if place >= from { shown_as_text(b) } else { b };
        let arguments: Vec<Bound> = arguments.into_iter().enumerate().map(pad).collect();
        self.call_function(name, arguments, at)
    }

    /// Chooses the overload and casts the arguments.
    pub(super) fn call_function(
        &mut self,
        name: &str,
        arguments: Vec<Bound>,
        at: Option<u32>,
    ) -> Result<Bound> {
        let types: Vec<Ty> = arguments.iter().map(|a| a.t.ty).collect();
        if let ([_], Some(wanted)) = (types.as_slice(), type_function(name)) {
            let mut arguments = arguments;
            if let Some(argument) = arguments.pop() {
                return self.explicit(argument, Typed::plain(wanted));
            }
            return Err(SqlError::internal("a call without its argument"));
        }
        if super::set_functions::rows_of(name).is_some() {
            return Err(SqlError::unsupported("a record as a value").at(at));
        }
        let chosen = choose(name, &types).map_err(|e| e.at(at))?;
        self.reads_world |= chosen.world;
        self.calls_sequences |= chosen.is_of_sequences();
        let mut exprs = Vec::with_capacity(arguments.len());
        for (i, argument) in arguments.into_iter().enumerate() {
            let wanted = argument_type(chosen, i);
            // `concat` shows its arguments as an output function would, booleans as t and f.
            let cast = match (wanted, argument.t.ty) {
                (Ty::Unknown, Ty::Bool) => self.once(argument, |_, b| Ok(bool_text(b)))?,
                (Ty::Unknown, _) => self.cast(argument, Typed::plain(Ty::Text), false)?,
                (ty, _) => self.cast(argument, Typed::plain(ty), false)?,
            };
            exprs.push(cast.expr);
        }
        // As in PostgreSQL, a strict function of a constant NULL is NULL. Its other arguments are not
        // computed.
        let is_null = chosen.strict
            && !self.keeps_operands
            && exprs.iter().any(|e| matches!(e, Expr::Const(Value::Null)));
        let expr = if is_null { Expr::NULL } else { Expr::Call(chosen, exprs.into()) };
        Ok(Bound { expr, t: Typed::plain(chosen.result), at })
    }
}

/// Returns the type for a call of a type's name, which is a cast.
fn type_function(name: &str) -> Option<Ty> {
    if func::overloads(name).next().is_some() {
        return None;
    }
    Some(match name {
        "bool" => Ty::Bool,
        "int2" => Ty::Int2,
        "int4" => Ty::Int4,
        "int8" => Ty::Int8,
        "float4" => Ty::Float4,
        "float8" => Ty::Float8,
        "numeric" => Ty::Numeric,
        "text" => Ty::Text,
        "varchar" => Ty::Varchar,
        "date" => Ty::Date,
        "timestamptz" => Ty::TimestampTz,
        "oid" => Ty::Oid,
        _ => return None,
    })
}

/// Returns the name in `'name'::regclass`.
fn named_sequence(argument: &Ast) -> &Ast {
    match argument {
        Ast::Cast { expr, data_type }
            if data_type.system_name() == Some("regclass") && matches!(**expr, Ast::Value(_)) =>
        {
            expr
        }
        other => other,
    }
}

/// Changes the name of a sequence in a text that the catalog stores. The name is looked up when the text
/// runs. A name without a schema then means the schema `public`, and not the search path of that moment.
fn of_public(mut b: Bound) -> Bound {
    if let Expr::Const(varve_engine::Value::Text(name)) = &mut b.expr
        && !crate::path::has_schema(name)
    {
        name.insert_str(0, "public.");
    }
    b
}

fn bool_text(b: Bound) -> Bound {
    let word = |w: &str| Expr::Const(varve_engine::Value::Text(w.to_owned()));
    let is = |wanted| Expr::IsBool(Box::new(b.expr.clone()), wanted, false);
    let branches = Box::new([(is(true), word("t")), (is(false), word("f"))]);
    Bound { expr: Expr::Case(branches, Box::new(Expr::NULL)), t: Typed::plain(Ty::Text), at: b.at }
}

/// Returns the error 54023 if a call of a built-in function has too many arguments.
fn check_call(name: &str, f: &ast::Function) -> Result<()> {
    match func::overloads(name).next() {
        Some(_) => limits::arguments(f.args.len()),
        None => Ok(()),
    }
}

fn argument_type(b: &Builtin, i: usize) -> Ty {
    let last = b.arguments.len().saturating_sub(1);
    b.arguments.get(i.min(last)).copied().unwrap_or(Ty::Unknown)
}

fn takes(b: &Builtin, count: usize) -> bool {
    b.arguments.len() == count || (b.variadic && count >= b.arguments.len())
}

/// Returns whether implicit casts convert every argument to its parameter type.
fn reachable(b: &Builtin, types: &[Ty]) -> bool {
    types.iter().enumerate().all(|(i, t)| {
        let wanted = argument_type(b, i);
        wanted == Ty::Unknown || cast_level(*t, wanted) == Some(CastLevel::Implicit)
    })
}

fn choose(name: &str, types: &[Ty]) -> Result<&'static Builtin> {
    let mut candidates: Vec<&Builtin> = func::overloads(name).filter(|b| takes(b, types.len())).collect();
    let exact = |b: &&Builtin| types.iter().enumerate().filter(|(i, t)| argument_type(b, *i) == **t).count();
    if let Some(found) = candidates.iter().find(|b| exact(b) == types.len()) {
        return Ok(found);
    }
    candidates.retain(|b| reachable(b, types));
    keep_best(&mut candidates, |b| exact(&b));
    keep_best(&mut candidates, |b| {
        let prefers = |(i, t): (usize, &Ty)| *t != Ty::Unknown && argument_type(b, i) == t.preferred();
        types.iter().enumerate().filter(|p| prefers(*p)).count()
    });
    keep_best(&mut candidates, |b| {
        let stringy = |(i, t): (usize, &Ty)| *t == Ty::Unknown && argument_type(b, i).is_text();
        types.iter().enumerate().filter(|p| stringy(*p)).count()
    });
    keep_best(&mut candidates, |b| {
        let preferred = |(i, _): (usize, &Ty)| argument_type(b, i) == argument_type(b, i).preferred();
        types.iter().enumerate().filter(|p| preferred(*p)).count()
    });
    if candidates.len() > 1 {
        // Untyped arguments may have the type that all other arguments have.
        let mut known = types.iter().filter(|ty| **ty != Ty::Unknown);
        let first = known.next().filter(|first| known.all(|ty| ty == *first));
        let assumed = vec![*first.unwrap_or(&Ty::Unknown); types.len()];
        let mut fitting = candidates.iter().filter(|b| reachable(b, &assumed));
        if let (Some(_), Some(one), None) = (first, fitting.next(), fitting.next()) {
            return Ok(one);
        }
    }
    match candidates.as_slice() {
        [one] => Ok(one),
        [] => Err(undefined(name, types)),
        _ => Err(SqlError::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("function {} is not unique", shown(name, types)),
        )
        .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")),
    }
}

fn keep_best(candidates: &mut Vec<&'static Builtin>, score: impl Fn(&'static Builtin) -> usize) {
    let best = candidates.iter().map(|b| score(b)).max();
    candidates.retain(|b| Some(score(b)) == best);
}
