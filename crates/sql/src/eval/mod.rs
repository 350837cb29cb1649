//! Typed expressions and their evaluation, one row at a time.
//!
//! Invariants
//! 1. The operands of a node already have the types that it needs, because the binder has added every cast.
//! 2. Evaluation reads only the row, the parameters and the environment. Its results are in an arena, which
//!    the caller resets between rows. An expression of plain columns and parameters allocates nothing.
//! 3. The results of AND, OR and NOT have three values. For example, NULL AND false is false, and NULL OR
//!    true is true. A filter keeps a row only if its condition is true, not if it is NULL.
//!
//! This module does not know names, plans, or where rows come from.

pub mod arith;
pub mod cast;
mod env;
pub mod func;
mod list;
pub mod number;
mod outcomes;
pub mod pattern;
pub mod power;
pub mod reg;
mod regex;
mod types;
mod walk;

use std::cmp::Ordering;
use std::sync::Arc;

use bumpalo::Bump;
use smallvec::SmallVec;
use varve_engine::{ArrayRef, Datum, NumericRef, RowRef, Value};

pub use env::{Env, NoSequences, Sequences, unless_cancelled};
pub use list::{List, ListId, Lists};
pub use outcomes::Outcomes;
pub use types::type_of;

use crate::error::{Result, SqlError};
use crate::plan::Subquery;
use crate::ty::{Ty, Typed};
use arith::{ArithOp, Class};
use func::Builtin;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmpOp {
    /// =
    Eq,
    /// <>
    Ne,
    /// <
    Lt,
    /// <=
    Le,
    /// >
    Gt,
    /// >=
    Ge,
}

impl CmpOp {
    /// Returns whether the operator holds for this order of its operands.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            CmpOp::Eq => order.is_eq(),
            CmpOp::Ne => order.is_ne(),
            CmpOp::Lt => order.is_lt(),
            CmpOp::Le => order.is_le(),
            CmpOp::Gt => order.is_gt(),
            CmpOp::Ge => order.is_ge(),
        }
    }

    /// Returns the operator with its operands exchanged.
    pub fn mirrored(self) -> CmpOp {
        match self {
            CmpOp::Lt => CmpOp::Gt,
            CmpOp::Le => CmpOp::Ge,
            CmpOp::Gt => CmpOp::Lt,
            CmpOp::Ge => CmpOp::Le,
            same => same,
        }
    }

    /// Returns the operator as SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            CmpOp::Eq => "=",
            CmpOp::Ne => "<>",
            CmpOp::Lt => "<",
            CmpOp::Le => "<=",
            CmpOp::Gt => ">",
            CmpOp::Ge => ">=",
        }
    }
}

/// A bound expression.
#[derive(Debug, Clone)]
pub enum Expr {
    /// A constant.
    Const(Value),
    /// A parameter, by its number from 0.
    Param(usize),
    /// A column of the input, by ordinal.
    Column(usize),
    /// A value that an earlier step has computed (group key, aggregate), by its number.
    Slot(usize),
    /// A value that the outer query passes to this subquery, by its number. It stays the same while the
    /// subquery runs.
    Outer(usize),
    /// The result of a subquery. The first field has the values of the outer row that the subquery uses (its
    /// `Outer` values). The second one is the subquery itself.
    Subquery(Box<[Expr]>, Arc<Subquery>),
    /// Values that are computed once, and an expression that uses them by `Held`.
    Let(Box<[Expr]>, Box<Expr>),
    /// A value of the surrounding `Let`, by its number.
    Held(usize),
    /// AND of several conditions.
    And(Box<[Expr]>),
    /// OR of several conditions.
    Or(Box<[Expr]>),
    /// Negation.
    Not(Box<Expr>),
    /// IS [NOT] NULL
    IsNull(Box<Expr>, bool),
    /// IS [NOT] TRUE / FALSE: (operand, wanted, negated)
    IsBool(Box<Expr>, bool, bool),
    /// Comparison of two values of one type (integers of any width).
    Compare(CmpOp, Box<(Expr, Expr)>),
    /// IS [NOT] DISTINCT FROM: (operands, negated)
    Distinct(Box<(Expr, Expr)>, bool),
    /// [NOT] IN (list): (operand, list, negated)
    InList(Box<Expr>, List, bool),
    /// [NOT] LIKE / ILIKE
    Like(Box<Like>),
    /// CASE with conditions. The last item is ELSE.
    Case(Box<[(Expr, Expr)]>, Box<Expr>),
    /// COALESCE: the first value that is not NULL.
    Coalesce(Box<[Expr]>),
    /// GREATEST (true) or LEAST (false) of the values that are not NULL.
    Extreme(Box<[Expr]>, bool),
    /// Binary arithmetic within one class of numbers.
    Arith(ArithOp, Class, Box<(Expr, Expr)>),
    /// Minus sign.
    Negate(Class, Box<Expr>),
    /// Concatenation of two strings.
    Concat(Box<(Expr, Expr)>),
    /// A function call.
    Call(&'static Builtin, Box<[Expr]>),
    /// A cast: (operand, its type, target, written explicitly)
    Cast(Box<Expr>, Ty, Typed, bool),
    /// char(n) padded with blanks to n characters.
    Pad(Box<Expr>, usize),
    /// ARRAY[...]: (type of the elements, the elements)
    Array(Ty, Box<[Expr]>),
    /// value op ANY (array), or ALL if the flag is set. The number is for hashing the array.
    Quantified(CmpOp, bool, Box<(Expr, Expr)>, ListId),
}

/// Operands of LIKE.
#[derive(Debug, Clone)]
pub struct Like {
    /// The string.
    pub subject: Expr,
    /// The pattern.
    pub pattern: Expr,
    /// The escape character. `None` if there is none.
    pub escape: Option<char>,
    /// NOT LIKE
    pub negated: bool,
    /// ILIKE
    pub fold_case: bool,
}

/// The row that columns refer to.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// No row.
    None,
    /// A stored row.
    Row(RowRef<'a>),
    /// Values that earlier steps have computed.
    Slots(&'a [Datum<'a>]),
    /// Within a `Let`: its values, and the row.
    Held(&'a Frame<'a>),
}

/// The values of a `Let`, and the row on which they were computed.
pub struct Frame<'a> {
    values: &'a [Datum<'a>],
    row: Input<'a>,
}

impl<'a> Input<'a> {
    /// Returns a column of the row. Panics without a row. This cannot happen, because the binder allows no
    /// columns where there is no row.
    #[inline]
    pub fn get(&self, column: usize) -> Datum<'a> {
        match self {
            Input::Row(row) => row.get(column),
            Input::Slots(slots) => slots[column],
            Input::Held(frame) => frame.row.get(column),
            Input::None => unreachable!("a column without a row"),
        }
    }
}

/// The values and objects that an evaluation can use besides the row.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// Values of the parameters.
    pub params: &'a [Datum<'a>],
    /// The arena for results.
    pub arena: &'a Bump,
    /// Clock, session, sequences.
    pub env: &'a Env<'a>,
}

impl<'a> Cx<'a> {
    /// Copies a text into the arena.
    pub fn text(&self, text: &str) -> Datum<'a> {
        Datum::Text(self.arena.alloc_str(text))
    }

    /// Copies bytes into the arena.
    pub fn bytes(&self, bytes: &[u8]) -> &'a [u8] {
        self.arena.alloc_slice_copy(bytes)
    }

    /// Copies a datum into the arena, so that it outlives its row.
    pub fn keep(&self, datum: Datum<'_>) -> Datum<'a> {
        keep_in(self.arena, datum)
    }

    /// Copies an owned value into the arena.
    pub fn keep_value(&self, value: Value) -> Datum<'a> {
        keep_in(self.arena, value.as_datum())
    }
}

/// Copies the bytes that a datum borrows into `arena`.
pub fn keep_in<'a>(arena: &'a Bump, datum: Datum<'_>) -> Datum<'a> {
    match datum {
        Datum::Text(t) => Datum::Text(arena.alloc_str(t)),
        Datum::Bytea(b) => Datum::Bytea(arena.alloc_slice_copy(b)),
        Datum::Numeric(n) => Datum::Numeric(stored_numeric(arena.alloc_slice_copy(n.as_bytes()))),
        Datum::Null => Datum::Null,
        Datum::Bool(v) => Datum::Bool(v),
        Datum::Int2(v) => Datum::Int2(v),
        Datum::Int4(v) => Datum::Int4(v),
        Datum::Int8(v) => Datum::Int8(v),
        Datum::Float4(v) => Datum::Float4(v),
        Datum::Float8(v) => Datum::Float8(v),
        Datum::Date(v) => Datum::Date(v),
        Datum::Timestamp(v) => Datum::Timestamp(v),
        Datum::TimestampTz(v) => Datum::TimestampTz(v),
        Datum::Time(v) => Datum::Time(v),
        Datum::Interval(v) => Datum::Interval(v),
        Datum::Uuid(v) => Datum::Uuid(v),
        Datum::Array(v) => Datum::Array(stored_array(arena.alloc_slice_copy(v.as_bytes()))),
    }
}

/// Returns the array in bytes that were copied from another array.
fn stored_array(bytes: &[u8]) -> ArrayRef<'_> {
    match ArrayRef::from_bytes(bytes) {
        Some(array) => array,
        None => unreachable!("bytes of an array are an array"),
    }
}

/// Returns the numeric in bytes that were copied from another numeric.
fn stored_numeric(bytes: &[u8]) -> NumericRef<'_> {
    match NumericRef::from_bytes(bytes) {
        Some(n) => n,
        None => unreachable!("bytes of a numeric are a numeric"),
    }
}

impl Expr {
    /// NULL.
    pub const NULL: Expr = Expr::Const(Value::Null);

    /// Computes the value for one row.
    pub fn eval<'a>(&'a self, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
        Ok(match self {
            Expr::Column(n) | Expr::Slot(n) => row.get(*n),
            Expr::Param(n) => cx.params[*n],
            Expr::Const(value) => value.as_datum(),
            Expr::Compare(op, sides) => compare(*op, sides, row, cx)?,
            Expr::And(all) => junction(all, false, row, cx)?,
            Expr::Or(any) => junction(any, true, row, cx)?,
            Expr::Arith(op, class, sides) => {
                let (left, right) = (sides.0.eval(row, cx)?, sides.1.eval(row, cx)?);
                arith::apply(*op, *class, left, right, cx)?
            }
            Expr::Cast(inner, from, to, explicit) => {
                cast::apply(inner.eval(row, cx)?, *from, *to, *explicit, cx)?
            }
            Expr::Call(function, arguments) => func::call(function, arguments, row, cx)?,
            other => other.eval_rare(row, cx)?,
        })
    }

    fn eval_rare<'a>(&'a self, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
        Ok(match self {
            Expr::Not(inner) => match inner.eval(row, cx)? {
                Datum::Bool(b) => Datum::Bool(!b),
                _ => Datum::Null,
            },
            Expr::IsNull(inner, negated) => Datum::Bool(inner.eval(row, cx)?.is_null() != *negated),
            Expr::IsBool(inner, wanted, negated) => {
                let same = matches!(inner.eval(row, cx)?, Datum::Bool(b) if b == *wanted);
                Datum::Bool(same != *negated)
            }
            Expr::Distinct(sides, negated) => {
                let distinct = sides.0.eval(row, cx)?.order(&sides.1.eval(row, cx)?).is_ne();
                Datum::Bool(distinct != *negated)
            }
            Expr::InList(operand, list, negated) => in_list(operand, list, *negated, row, cx)?,
            Expr::Like(like) => pattern::eval(like, row, cx)?,
            Expr::Case(branches, otherwise) => case(branches, otherwise, row, cx)?,
            Expr::Coalesce(items) => coalesce(items, row, cx)?,
            Expr::Extreme(items, largest) => extreme(items, *largest, row, cx)?,
            Expr::Negate(class, inner) => arith::negate(*class, inner.eval(row, cx)?, cx)?,
            Expr::Let(values, body) => held(values, body, row, cx)?,
            Expr::Held(n) => match row {
                Input::Held(frame) => frame.values[*n],
                _ => return Err(SqlError::internal("a held value without its frame")),
            },
            Expr::Concat(sides) => concat(sides.0.eval(row, cx)?, sides.1.eval(row, cx)?, cx)?,
            Expr::Array(element, items) => {
                let mut array = crate::array::of(element.oid());
                for item in items {
                    array.push(item.eval(row, cx)?);
                }
                cx.keep_value(Value::Array(array))
            }
            Expr::Quantified(op, all, sides, id) => {
                let left = sides.0.eval(row, cx)?;
                let is_member = matches!((op, all), (CmpOp::Eq, false) | (CmpOp::Ne, true));
                if is_member
                    && !left.is_null()
                    && let Some(found) = id.find(&left, &sides.1, cx)
                {
                    return Ok(found.map_or(Datum::Null, |found| Datum::Bool(found != *all)));
                }
                quantified(*op, *all, left, sides.1.eval(row, cx)?)
            }
            Expr::Pad(inner, width) => pad(inner.eval(row, cx)?, *width, cx.arena),
            Expr::Outer(_) | Expr::Subquery(..) => return Err(SqlError::unsupported("a subquery here")),
            _ => return Err(SqlError::internal("an expression was not evaluated")),
        })
    }

    /// Returns whether the condition holds for the row.
    pub fn is_true<'a>(&'a self, row: &Input<'a>, cx: &Cx<'a>) -> Result<bool> {
        if let Expr::And(all) = self {
            // The first condition that is false or NULL decides.
            for item in all {
                if !item.is_true(row, cx)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(matches!(self.eval(row, cx)?, Datum::Bool(true)))
    }
}

/// Computes the values of a `Let`, then the expression that uses them. Only the innermost `Let` is stored,
/// because its body uses no values of outer ones.
fn held<'a>(values: &'a [Expr], body: &'a Expr, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let computed = values.iter().map(|v| v.eval(row, cx)).collect::<Result<SmallVec<[Datum<'a>; 4]>>>()?;
    let row = if let Input::Held(frame) = row { frame.row } else { *row };
    let frame = cx.arena.alloc(Frame { values: cx.arena.alloc_slice_copy(&computed), row });
    body.eval(&Input::Held(frame), cx)
}

#[inline]
fn compare<'a>(op: CmpOp, sides: &'a (Expr, Expr), row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (left, right) = (sides.0.eval(row, cx)?, sides.1.eval(row, cx)?);
    if left.is_null() || right.is_null() {
        return Ok(Datum::Null);
    }
    Ok(Datum::Bool(op.holds(left.order(&right))))
}

/// Computes AND (`decisive` is false) or OR (`decisive` is true). If an item has the decisive value, so has
/// the result. Otherwise the result is NULL if an item is NULL, and else the other value.
fn junction<'a>(items: &'a [Expr], decisive: bool, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut unknown = false;
    for item in items {
        match item.eval(row, cx)? {
            Datum::Bool(b) if b == decisive => return Ok(Datum::Bool(decisive)),
            Datum::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(!decisive) })
}

fn in_list<'a>(
    operand: &'a Expr,
    list: &'a List,
    negated: bool,
    row: &Input<'a>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    let left = operand.eval(row, cx)?;
    if left.is_null() {
        return Ok(Datum::Null);
    }
    if let Some(found) = list.find(&left, cx) {
        return Ok(found.map_or(Datum::Null, |found| Datum::Bool(found != negated)));
    }
    let mut unknown = false;
    for item in list {
        let right = item.eval(row, cx)?;
        if right.is_null() {
            unknown = true;
        } else if left.order(&right).is_eq() {
            return Ok(Datum::Bool(!negated));
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(negated) })
}

/// Computes ANY or ALL. ANY is true if one comparison is true. ALL is true if no comparison is false. The
/// result is NULL if it depends on a NULL.
fn quantified<'a>(op: CmpOp, all: bool, left: Datum<'a>, right: Datum<'a>) -> Datum<'a> {
    let Datum::Array(array) = right else { return Datum::Null };
    let mut unknown = false;
    for element in array.iter() {
        if left.is_null() || element.is_null() {
            unknown = true;
        } else if op.holds(left.order(&element)) != all {
            return Datum::Bool(!all);
        }
    }
    if unknown { Datum::Null } else { Datum::Bool(all) }
}

fn case<'a>(
    branches: &'a [(Expr, Expr)],
    otherwise: &'a Expr,
    row: &Input<'a>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    for (condition, result) in branches {
        if condition.is_true(row, cx)? {
            return result.eval(row, cx);
        }
    }
    otherwise.eval(row, cx)
}

fn coalesce<'a>(items: &'a [Expr], row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    for item in items {
        let value = item.eval(row, cx)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Datum::Null)
}

fn extreme<'a>(items: &'a [Expr], largest: bool, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut best = Datum::Null;
    for item in items {
        let value = item.eval(row, cx)?;
        // If values are equal, the first one is taken. For example, 0.0 and 0 are equal, but are shown
        // differently.
        let beats = || if largest { value.order(&best).is_gt() } else { value.order(&best).is_lt() };
        let better = !value.is_null() && (best.is_null() || beats());
        if better {
            best = value;
        }
    }
    Ok(best)
}

fn concat<'a>(left: Datum<'a>, right: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match (left, right) {
        (Datum::Text(a), Datum::Text(b)) => {
            func::check_size(a.len() + b.len())?;
            let mut joined = bumpalo::collections::String::with_capacity_in(a.len() + b.len(), cx.arena);
            joined.push_str(a);
            joined.push_str(b);
            Datum::Text(joined.into_bump_str())
        }
        (Datum::Bytea(a), Datum::Bytea(b)) => {
            func::check_size(a.len() + b.len())?;
            Datum::Bytea(cx.bytes(&[a, b].concat()))
        }
        _ => Datum::Null,
    })
}

/// Pads a text with blanks to `width` characters.
#[inline]
pub fn pad<'a>(value: Datum<'a>, width: usize, arena: &'a Bump) -> Datum<'a> {
    let Datum::Text(text) = value else { return value };
    let have = crate::text::char_count(text);
    if have >= width {
        return value;
    }
    let blanks = width - have;
    let mut padded = bumpalo::collections::String::with_capacity_in(text.len() + blanks, arena);
    padded.push_str(text);
    const BLANKS: &str = "                                                                ";
    let mut left = blanks;
    while left > 0 {
        let step = left.min(BLANKS.len());
        padded.push_str(&BLANKS[..step]);
        left -= step;
    }
    Datum::Text(padded.into_bump_str())
}
