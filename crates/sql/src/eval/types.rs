//! Computes the type of a bound expression from its node and the types of its operands. Most expressions
//! store no type, because evaluation does not need one.
//!
//! This module does not know how types were chosen (`bind`).

use varve_engine::{ArrayRef, Value};

use super::Expr;
use super::arith::Class;
use crate::ty::{Ty, Typed};

impl Expr {
    /// Returns the type of the expression, given the types of columns (or slots) and parameters. Returns
    /// `None` if the type is not known, because the expression is an untyped NULL or a value of a `Let`.
    pub fn type_in(&self, column: &dyn Fn(usize) -> Ty, param: &dyn Fn(usize) -> Option<Ty>) -> Option<Ty> {
        let of = |e: &Expr| e.type_in(column, param);
        match self {
            Expr::Const(value) => type_of(value),
            Expr::Param(n) => param(*n),
            Expr::Column(n) | Expr::Slot(n) => Some(column(*n)),
            Expr::Held(_) | Expr::Outer(_) => None,
            Expr::Subquery(_, subquery) => Some(subquery.result().ty),
            Expr::Let(_, body) => of(body),
            Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::IsNull(..)
            | Expr::IsBool(..)
            | Expr::Compare(..)
            | Expr::Distinct(..)
            | Expr::InList(..)
            | Expr::Quantified(..)
            | Expr::Like(_) => Some(Ty::Bool),
            Expr::Array(element, _) => element.array(),
            Expr::Case(branches, otherwise) => {
                branches.iter().find_map(|(_, result)| of(result)).or_else(|| of(otherwise))
            }
            Expr::Coalesce(items) | Expr::Extreme(items, _) => items.iter().find_map(of),
            Expr::Arith(_, Class::MomentInterval, sides) | Expr::Concat(sides) => of(&sides.0),
            Expr::Arith(_, class, _) | Expr::Negate(class, _) => Some(result_of(*class)),
            Expr::Call(function, _) => Some(function.result).filter(|t| *t != Ty::Unknown),
            Expr::Cast(_, _, to, _) => Some(to.ty),
            Expr::Pad(..) => Some(Ty::Text),
        }
    }
}

/// Returns the type of a value, by its variant of `Value`, or `None` for NULL.
pub fn type_of(value: &Value) -> Option<Ty> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => Ty::Bool,
        Value::Int2(_) => Ty::Int2,
        Value::Int4(_) => Ty::Int4,
        Value::Int8(_) => Ty::Int8,
        Value::Float4(_) => Ty::Float4,
        Value::Float8(_) => Ty::Float8,
        Value::Numeric(_) => Ty::Numeric,
        Value::Text(_) => Ty::Text,
        Value::Bytea(_) => Ty::Bytea,
        Value::Date(_) => Ty::Date,
        Value::Timestamp(_) => Ty::Timestamp,
        Value::TimestampTz(_) => Ty::TimestampTz,
        Value::Time(_) => Ty::Time,
        Value::Interval(_) => Ty::Interval,
        Value::Uuid(_) => Ty::Uuid,
        Value::Array(array) => return array_type(array.as_ref()),
    })
}

/// Returns the type of an array, by the form of its elements.
fn array_type(array: ArrayRef<'_>) -> Option<Ty> {
    match Typed::of_column(array.element()).ty {
        Ty::Int2 if array.is_vector() => Some(Ty::Int2Vector),
        _ if array.is_vector() => Some(Ty::OidVector),
        element => element.array(),
    }
}

fn result_of(class: Class) -> Ty {
    match class {
        Class::Int2 => Ty::Int2,
        Class::Int4 | Class::DateDate => Ty::Int4,
        Class::Int8 => Ty::Int8,
        Class::Float4 => Ty::Float4,
        Class::Float8 => Ty::Float8,
        Class::Numeric => Ty::Numeric,
        Class::DateDays => Ty::Date,
        Class::MomentInterval | Class::DateTime => Ty::Timestamp,
        Class::TimeInterval => Ty::Time,
        Class::Moments | Class::Intervals | Class::IntervalFactor | Class::Times => Ty::Interval,
    }
}
