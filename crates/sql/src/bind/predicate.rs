//! Binds predicates and CASE, which compare one operand with several others.
//!
//! Invariants
//! 1. The shared operand is computed once for a row, even if the bound expression uses it several times.
//! 2. A `Let` is an expression that names values and uses them in its body. The body uses only the values of
//!    its own `Let`, never those of an outer one, because evaluation stores the values of one `Let` only.
//!
//! This module does not know statements or plain operators.

use super::Binder;
use super::bound::Bound;
use super::row::fields_of;
use super::scope::Scope;
use crate::ast::{self, Expr as Ast, Value as Literal};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::ty::{self, Ty, Typed};

impl Binder<'_> {
    /// Binds an expression that uses `operand` several times, so that the operand is computed once. `make`
    /// binds the expression.
    pub(super) fn once(
        &mut self,
        operand: Bound,
        make: impl FnOnce(&mut Self, Bound) -> Result<Bound>,
    ) -> Result<Bound> {
        self.once_each(vec![operand], |b, held| match held.into_iter().next() {
            Some(operand) => make(b, operand),
            None => Err(SqlError::internal("an operand was lost")),
        })
    }

    /// Does the same as `once` for several operands. A cheap operand, such as a column or a constant, is used
    /// directly instead of through a `Let`, so that the planner can still use an index for it.
    pub(super) fn once_each(
        &mut self,
        operands: Vec<Bound>,
        make: impl FnOnce(&mut Self, Vec<Bound>) -> Result<Bound>,
    ) -> Result<Bound> {
        let mut values = Vec::new();
        let mut hold = |b: Bound| {
            if b.expr.is_cheap() {
                return b;
            }
            values.push(b.expr);
            Bound { expr: Expr::Held(values.len() - 1), t: b.t, at: b.at }
        };
        let held: Vec<Bound> = operands.into_iter().map(&mut hold).collect();
        let made = make(self, held)?;
        if values.is_empty() {
            return Ok(made);
        }
        debug_assert!(made.expr.held_count() <= values.len(), "a body uses what another Let holds");
        Ok(Bound { expr: Expr::Let(values.into(), Box::new(made.expr)), ..made })
    }

    /// Binds `[NOT] BETWEEN [SYMMETRIC]`.
    pub(super) fn between(
        &mut self,
        e: &Ast,
        negated: bool,
        low: &Ast,
        high: &Ast,
        symmetric: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if fields_of(e).is_some() {
            return self.row_between(e, negated, low, high, symmetric, scope);
        }
        let operand = self.expression(e, scope)?;
        let low = self.expression(low, scope)?;
        let high = self.expression(high, scope)?;
        if !symmetric {
            return self.once(operand, |b, operand| b.within(operand, low, high, negated));
        }
        self.once_each(vec![operand, low, high], |b, parts| {
            let [operand, low, high] = <[Bound; 3]>::try_from(parts)
                .map_err(|_| SqlError::internal("BETWEEN SYMMETRIC takes three operands"))?;
            let straight = b.within(operand.clone(), low.clone(), high.clone(), negated)?;
            let [operand, low, high] = [operand, low, high].map(|p| b.retyped(p));
            let crossed = b.within(operand, high, low, negated)?;
            let both = Box::new([straight.expr, crossed.expr]);
            Ok(Bound { expr: if negated { Expr::And(both) } else { Expr::Or(both) }, ..straight })
        })
    }

    fn within(&mut self, operand: Bound, low: Bound, high: Bound, negated: bool) -> Result<Bound> {
        let at = operand.at;
        let (first, second) = if negated { (CmpOp::Lt, CmpOp::Gt) } else { (CmpOp::Ge, CmpOp::Le) };
        // If the operand is an untyped parameter, this comparison gives it the type of the first bound.
        let above = self.compare(first, operand.clone(), low, at)?.expr;
        let operand = self.retyped(operand);
        let below = self.compare(second, operand, high, at)?.expr;
        let both = Box::new([above, below]);
        Ok(Bound {
            expr: if negated { Expr::Or(both) } else { Expr::And(both) },
            t: Typed::plain(Ty::Bool),
            at,
        })
    }

    /// Returns `b`, where a parameter has the type that it has been given since it was bound.
    pub(super) fn retyped(&self, b: Bound) -> Bound {
        match b.expr {
            Expr::Param(n) => Bound { t: Typed::plain(self.params[n]), ..b },
            _ => b,
        }
    }

    pub(super) fn in_list(
        &mut self,
        e: &Ast,
        list: &[Ast],
        negated: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(left) = fields_of(e) {
            return self.row_in_list(&left, list, negated, scope);
        }
        let mut operand = self.expression(e, scope)?;
        let mut items = list.iter().map(|i| self.expression(i, scope)).collect::<Result<Vec<_>>>()?;
        self.type_list(&mut operand, &mut items)?;
        self.equals_one_of(operand, items, negated)
    }

    /// Compares the operand with each item. Returns whether it is equal to one of them, or the negation.
    pub(super) fn equals_one_of(
        &mut self,
        operand: Bound,
        items: Vec<Bound>,
        negated: bool,
    ) -> Result<Bound> {
        let (at, ty) = (operand.at, operand.t.ty);
        let is_alike = |item: &Bound| matches!(item.t.ty, t if t == ty || t == Ty::Unknown || (t.is_integer() && ty.is_integer()));
        if ty != Ty::Unknown && items.iter().all(is_alike) {
            let mut left = operand.expr.clone();
            let mut exprs = Vec::with_capacity(items.len());
            for item in items {
                // The operand already has the type of the items. `comparable` changes it only if it is a
                // char, by a cast that drops its blanks. This change is the same for every item, so the last
                // one may be kept.
                let (shown, item) = self.comparable("=", operand.clone(), item, at)?;
                left = shown;
                exprs.push(item);
            }
            return Ok(Bound {
                expr: Expr::InList(Box::new(left), exprs.into(), negated),
                t: Typed::plain(Ty::Bool),
                at,
            });
        }
        self.once(operand, |b, operand| {
            let mut equal = Vec::with_capacity(items.len());
            for item in items {
                let operand = b.retyped(operand.clone());
                equal.push(b.compare(CmpOp::Eq, operand, item, at)?.expr);
            }
            Ok(one_of(equal, negated, at))
        })
    }

    /// Gives the items of IN the types that PostgreSQL finds for them. If two or more items read no column,
    /// PostgreSQL makes an array of them, whose elements have the common type of the operand and these items.
    /// It compares each other item with the operand alone.
    fn type_list(&mut self, operand: &mut Bound, items: &mut [Bound]) -> Result<()> {
        let fixed: Vec<&mut Bound> = items.iter_mut().filter(|i| !reads_column(&i.expr)).collect();
        if fixed.len() < 2 {
            return Ok(());
        }
        let whole = fixed.iter().try_fold(operand.t.ty, |ty, i| ty::common(ty, i.t.ty));
        let Some(whole) = whole.filter(|t| *t != Ty::Unknown) else { return Ok(()) };
        let to = Typed::plain(whole);
        if operand.t.ty == Ty::Unknown && matches!(operand.expr, Expr::Param(_)) {
            *operand = self.cast(operand.clone(), to, false)?;
        }
        for item in fixed {
            // Integers of different widths are compared without a cast.
            if whole.is_integer() && item.t.ty.is_integer() {
                continue;
            }
            *item = self.cast(item.clone(), to, false)?;
        }
        Ok(())
    }

    pub(super) fn is_null(&mut self, inner: &Ast, negated: bool, scope: &mut Scope) -> Result<Bound> {
        if let Some(row) = fields_of(inner) {
            return self.row_is_null(&row, negated, scope);
        }
        let b = self.expression(inner, scope)?;
        let b = self.known(b)?;
        Ok(Bound { expr: Expr::IsNull(Box::new(b.expr), negated), t: Typed::plain(Ty::Bool), at: b.at })
    }

    pub(super) fn is_unknown(&mut self, inner: &Ast, negated: bool, scope: &mut Scope) -> Result<Bound> {
        let b = self.expression(inner, scope)?;
        let at = b.at;
        let condition = self.condition(b, if negated { "IS NOT UNKNOWN" } else { "IS UNKNOWN" })?;
        Ok(Bound { expr: Expr::IsNull(Box::new(condition), negated), t: Typed::plain(Ty::Bool), at })
    }

    pub(super) fn is_bool(
        &mut self,
        inner: &Ast,
        wanted: bool,
        negated: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let b = self.expression(inner, scope)?;
        let at = b.at;
        let clause =
            format!("IS {}{}", if negated { "NOT " } else { "" }, if wanted { "TRUE" } else { "FALSE" });
        let condition = self.condition(b, &clause)?;
        Ok(Bound { expr: Expr::IsBool(Box::new(condition), wanted, negated), t: Typed::plain(Ty::Bool), at })
    }

    pub(super) fn distinct(&mut self, l: &Ast, r: &Ast, negated: bool, scope: &mut Scope) -> Result<Bound> {
        if let (Some(left), Some(right)) = (fields_of(l), fields_of(r)) {
            return self.distinct_rows((&left, &right), negated, self.at(l), scope);
        }
        let (l, r) = (self.expression(l, scope)?, self.expression(r, scope)?);
        let at = l.at;
        let sides = self.comparable("=", l, r, at)?;
        Ok(Bound { expr: Expr::Distinct(Box::new(sides), negated), t: Typed::plain(Ty::Bool), at })
    }

    pub(super) fn case(&mut self, case: &ast::Case, scope: &mut Scope) -> Result<Bound> {
        let (branches, otherwise) = (&case.branches, case.otherwise.as_deref());
        let before = scope.refuse_sets(Some("CASE"));
        self.choices += 1;
        let case = match &case.operand {
            None => self.case_of(None, branches, otherwise, scope),
            // An operand without a type becomes text before it is compared with the WHEN values.
            Some(o) => self.expression(o, scope).and_then(|b| self.known(b)).and_then(|operand| {
                self.once(operand, |b, o| b.case_of(Some(o), branches, otherwise, scope))
            }),
        };
        self.choices -= 1;
        scope.refuse_sets(before);
        case
    }

    fn case_of(
        &mut self,
        operand: Option<Bound>,
        branches: &[ast::CaseWhen],
        otherwise: Option<&Ast>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        for branch in branches {
            let condition = self.expression(&branch.condition, scope)?;
            conditions.push(match &operand {
                Some(o) => {
                    let at = condition.at;
                    let o = self.retyped(o.clone());
                    self.compare(CmpOp::Eq, o, condition, at)?.expr
                }
                None => self.condition(condition, "CASE/WHEN")?,
            });
            results.push(self.expression(&branch.result, scope)?);
        }
        let at = conditions.first().and(results[0].at);
        let otherwise = match otherwise {
            Some(e) => self.expression(e, scope)?,
            None => Bound { expr: Expr::NULL, t: Typed::plain(Ty::Unknown), at: None },
        };
        // ELSE comes first when the common type of the results is chosen, as in PostgreSQL.
        results.insert(0, otherwise);
        let (mut results, t) = self.unify(results, "CASE")?;
        let otherwise = results.remove(0);
        let branches = conditions.into_iter().zip(results).collect();
        Ok(Bound { expr: Expr::Case(branches, Box::new(otherwise)), t, at })
    }

    pub(super) fn written_like(&mut self, e: &Ast, scope: &mut Scope) -> Result<Bound> {
        let Ast::Like { expr, negated, fold_case, pattern, escape } = e else {
            return Err(SqlError::internal("a LIKE that is none"));
        };
        let escape = match escape.as_deref() {
            None => Some('\\'),
            Some(Ast::Value(constant)) => escape_char(&constant.value)?,
            Some(_) => return Err(SqlError::unsupported("an ESCAPE that is no literal").at(self.at(e))),
        };
        let (subject, pattern) = (self.expression(expr, scope)?, self.expression(pattern, scope)?);
        self.like(subject, pattern, escape, *negated, *fold_case)
    }
}

/// Returns whether the value depends on the row of this query.
fn reads_column(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Column(_) | Expr::Slot(_)));
    found
}

/// Makes `x IN (...)`, or its negation, from the comparisons with the items.
fn one_of(equal: Vec<Expr>, negated: bool, at: Option<u32>) -> Bound {
    if let Some((operand, items)) = listed(&equal) {
        let expr = Expr::InList(Box::new(operand), items.into(), negated);
        return Bound { expr, t: Typed::plain(Ty::Bool), at };
    }
    let any = Expr::Or(equal.into());
    let expr = if negated { Expr::Not(Box::new(any)) } else { any };
    Bound { expr, t: Typed::plain(Ty::Bool), at }
}

/// If all comparisons compare the same operand with constants, returns the operand and the constants. A
/// lookup in a list of constants is faster than comparing one by one.
fn listed(equal: &[Expr]) -> Option<(Expr, Vec<Expr>)> {
    let sides = |e: &Expr| match e {
        Expr::Compare(CmpOp::Eq, sides) if sides.1.is_constant() => Some(sides.as_ref().clone()),
        _ => None,
    };
    let mut pairs = equal.iter().map(sides);
    let (operand, first) = pairs.next()??;
    let mut items = vec![first];
    for pair in pairs {
        let (left, right) = pair?;
        if !is_same(&operand, &left) {
            return None;
        }
        items.push(right);
    }
    Some((operand, items))
}

/// Returns whether both expressions are the same column, slot or held value, perhaps with the same casts.
fn is_same(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Column(m), Expr::Column(n)) | (Expr::Slot(m), Expr::Slot(n)) => m == n,
        (Expr::Held(m), Expr::Held(n)) | (Expr::Outer(m), Expr::Outer(n)) => m == n,
        (Expr::Cast(a, from, to, written), Expr::Cast(b, other, target, also)) => {
            from == other && to == target && written == also && is_same(a, b)
        }
        _ => false,
    }
}

fn escape_char(v: &Literal) -> Result<Option<char>> {
    let invalid = || {
        SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")
    };
    let Literal::Text(text) = v else { return Err(invalid()) };
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => Err(invalid()),
    }
}
