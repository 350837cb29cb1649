//! Binds row values (several values in parentheses or after ROW), and the operations on them.
//!
//! Invariants
//! 1. The first pair of different values decides a comparison of two rows. If a NULL decides, the result is
//!    unknown.
//! 2. A comparison is bound as ORs and ANDs of plain comparisons. The planner makes ranges of an index from
//!    these.
//!
//! Varve has no columns whose values are rows.

use varve_engine::Value;

use super::Binder;
use super::bound::Bound;
use super::operator::{comparison, no_operator_of};
use super::scope::Scope;
use crate::ast::{BinaryOperator, Expr as Ast};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::ty::{Ty, Typed};

/// Returns the fields of `(a, b)` or `ROW (a, b)`, even if parentheses are around it. Returns `None` for any
/// other expression.
pub(super) fn fields_of(written: &Ast) -> Option<Vec<&Ast>> {
    match written.unnested() {
        Ast::Tuple(items) | Ast::Row(items, _) => Some(items.iter().collect()),
        _ => None,
    }
}

impl Binder<'_> {
    /// Binds a binary operator with rows as operands. Returns `None` if neither operand is a row, or if the
    /// operator has no rule for rows.
    pub(super) fn row_operation(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let at = || self.operator_position(left, op, right);
        let (l, r) = match (fields_of(left), fields_of(right)) {
            (None, None) => return Ok(None),
            (Some(l), Some(r)) => (l, r),
            (Some(l), None) if let (Some(op), Ast::Subquery(query)) = (comparison(op), right.unnested()) => {
                let at = at();
                let bound = self.compared_with_row(&l, op, query, scope);
                return bound.map(Some).map_err(|e| if e.position.is_some() { e } else { e.at(at) });
            }
            (l, _) => {
                let at = at();
                if comparison(op).is_none() || matches!(right.unnested(), Ast::Subquery(_)) {
                    return Ok(None);
                }
                let other = self.expression(if l.is_some() { right } else { left }, scope)?.t.ty;
                if other == Ty::Unknown {
                    return Ok(None);
                }
                let (l, r) = if l.is_some() { ("record", other.name()) } else { (other.name(), "record") };
                return Err(no_operator_of(op.symbol(), l, r, at));
            }
        };
        let at = at();
        let (l, r) = (self.each_field(&l, scope)?, self.each_field(&r, scope)?);
        let bound = match comparison(op) {
            Some(comparison) => self.compare_rows(comparison, l, r, at),
            None => self.rows_by(op, l, r, at),
        };
        bound.map(|bound| Some(Bound { at: self.at(left), ..bound }))
    }

    fn each_field(&mut self, fields: &[&Ast], scope: &mut Scope) -> Result<Vec<Bound>> {
        fields.iter().map(|e| self.expression(e, scope)).collect()
    }

    /// Binds a comparison of two rows.
    pub(super) fn compare_rows(
        &mut self,
        op: CmpOp,
        left: Vec<Bound>,
        right: Vec<Bound>,
        at: Option<u32>,
    ) -> Result<Bound> {
        check_lengths(&left, &right, at)?;
        if matches!(op, CmpOp::Eq | CmpOp::Ne) {
            let pairs = left.into_iter().zip(right);
            let tests = pairs.map(|(l, r)| {
                let (l, r) = (self.retyped(l), self.retyped(r));
                Ok(self.compare(op, l, r, at)?.expr)
            });
            let mut tests = tests.collect::<Result<Vec<Expr>>>()?;
            let expr = match (tests.len(), op) {
                (1, _) => tests.remove(0),
                (_, CmpOp::Eq) => Expr::And(tests.into()),
                _ => Expr::Or(tests.into()),
            };
            return Ok(Bound { expr, t: Typed::plain(Ty::Bool), at });
        }
        let count = left.len();
        self.once_each(left.into_iter().chain(right).collect(), |b, mut left| {
            let right = left.split_off(count);
            let pairs = left.into_iter().zip(right).map(|(l, r)| {
                let (l, r) = (b.retyped(l), b.retyped(r));
                b.comparable(op.symbol(), l, r, at)
            });
            let expr = by_first_difference(op, pairs.collect::<Result<_>>()?);
            Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
        })
    }

    /// Binds an operator other than `=`, `<>`, `<`, `<=`, `>` and `>=` between two rows. Only rows of one
    /// field are allowed. The other cases fail with PostgreSQL's messages.
    fn rows_by(
        &mut self,
        op: &BinaryOperator,
        left: Vec<Bound>,
        right: Vec<Bound>,
        at: Option<u32>,
    ) -> Result<Bound> {
        check_lengths(&left, &right, at)?;
        let mut last = None;
        for (l, r) in left.into_iter().zip(right) {
            let bound = self.binary(op, l, r, at)?;
            if bound.t.ty != Ty::Bool {
                let message = format!(
                    "row comparison operator must yield type boolean, not type {}",
                    bound.t.ty.name()
                );
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(at));
            }
            if last.replace(bound).is_some() {
                let message = format!("could not determine interpretation of row comparison operator {op}");
                let hint = "Row comparison operators must be associated with btree operator families.";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(hint).at(at));
            }
        }
        last.ok_or_else(|| SqlError::internal("rows without a field"))
    }

    /// Binds `(a, b) IN ((1, 2), (3, 4))` as an OR of ANDs, for which the planner can use an index.
    pub(super) fn row_in_list(
        &mut self,
        left: &[&Ast],
        list: &[Ast],
        negated: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let left = self.each_field(left, scope)?;
        self.once_each(left, |b, left| {
            let mut any = Vec::with_capacity(list.len());
            for item in list {
                let Some(right) = fields_of(item) else { return Err(unequal_rows(b.at(item))) };
                let (left, right) = (left.clone(), b.each_field(&right, scope)?);
                any.push(b.compare_rows(CmpOp::Eq, left, right, None)?.expr);
            }
            let any = Expr::Or(any.into());
            let expr = if negated { Expr::Not(Box::new(any)) } else { any };
            Ok(Bound { expr, t: Typed::plain(Ty::Bool), at: None })
        })
    }

    /// Binds `(a, b) [NOT] BETWEEN [SYMMETRIC] (1, 2) AND (3, 4)`.
    pub(super) fn row_between(
        &mut self,
        row: &Ast,
        negated: bool,
        low: &Ast,
        high: &Ast,
        symmetric: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let mut within = |low: &Ast, high: &Ast| -> Result<Expr> {
            let above = self.binary_operation(row, &BinaryOperator::GtEq, low, scope)?.expr;
            let below = self.binary_operation(row, &BinaryOperator::LtEq, high, scope)?.expr;
            Ok(Expr::And(Box::new([above, below])))
        };
        let straight = within(low, high)?;
        let inside = match symmetric {
            true => Expr::Or(Box::new([straight, within(high, low)?])),
            false => straight,
        };
        let expr = if negated { Expr::Not(Box::new(inside)) } else { inside };
        Ok(Bound { expr, t: Typed::plain(Ty::Bool), at: self.at(row) })
    }

    /// Binds `(a, b) IS [NOT] NULL`. `IS NULL` is true if all fields are NULL, `IS NOT NULL` is true if no
    /// field is NULL. A field that is itself a row counts as not NULL, even if all of its fields are NULL.
    pub(super) fn row_is_null(&mut self, row: &[&Ast], negated: bool, scope: &mut Scope) -> Result<Bound> {
        let tests = row.iter().map(|field| match fields_of(field) {
            Some(_) => Ok(Expr::Const(Value::Bool(negated))),
            None => Ok(self.is_null(field, negated, scope)?.expr),
        });
        let tests = tests.collect::<Result<_>>()?;
        Ok(Bound { expr: Expr::And(tests), t: Typed::plain(Ty::Bool), at: None })
    }

    /// Binds `(a, b) IS [NOT] DISTINCT FROM (c, d)`.
    pub(super) fn distinct_rows(
        &mut self,
        (left, right): (&[&Ast], &[&Ast]),
        negated: bool,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let (left, right) = (self.each_field(left, scope)?, self.each_field(right, scope)?);
        check_lengths(&left, &right, at)?;
        let tests = left.into_iter().zip(right).map(|(l, r)| {
            let sides = self.comparable("=", l, r, at)?;
            Ok(Expr::Distinct(Box::new(sides), negated))
        });
        let tests = tests.collect::<Result<Box<[Expr]>>>()?;
        let expr = if negated { Expr::And(tests) } else { Expr::Or(tests) };
        Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
    }
}

/// Writes `(a, b) < (c, d)` as `a < c OR (a = c AND b < d)`. This expression is unknown for exactly the same
/// values as SQL's comparison of rows.
pub(super) fn by_first_difference(op: CmpOp, pairs: Vec<(Expr, Expr)>) -> Expr {
    let strict = match op {
        CmpOp::Le => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Gt,
        op => op,
    };
    let mut pairs = pairs.into_iter().rev();
    let Some(last) = pairs.next() else { return Expr::NULL };
    pairs.fold(Expr::Compare(op, Box::new(last)), |rest, pair| {
        let differs = Expr::Compare(strict, Box::new(pair.clone()));
        let equal = Expr::Compare(CmpOp::Eq, Box::new(pair));
        Expr::Or(Box::new([differs, Expr::And(Box::new([equal, rest]))]))
    })
}

fn check_lengths(left: &[Bound], right: &[Bound], at: Option<u32>) -> Result<()> {
    if left.len() != right.len() {
        return Err(unequal_rows(at));
    }
    match left {
        [] => {
            let message = "cannot compare rows of zero length";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at))
        }
        _ => Ok(()),
    }
}

fn unequal_rows(at: Option<u32>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions").at(at)
}
