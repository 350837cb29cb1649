//! Finds the constant parts of expressions, so that each one is computed once and not for each row.
//!
//! Invariants
//! 1. If the computation of a constant fails, the expression keeps the uncomputed part. So the client gets
//!    the error only if a row needs the value.

use varve_engine::Value;
use varve_sql::general::{Around, Expr, Ty};
use varve_sql::planted;

fn is_leaf(e: &Expr) -> bool {
    matches!(e, Expr::Const(_) | Expr::Column(_) | Expr::Slot(_))
}

fn is_null(e: &Expr) -> bool {
    matches!(e, Expr::Const(Value::Null))
}

/// Returns whether the value is the same for all rows of a run of the plan.
fn is_steady(e: &Expr) -> bool {
    let mut steady = e.is_constant() && !e.is_volatile();
    e.walk(&mut |e| steady &= !matches!(e, Expr::Outer(_)));
    steady
}

/// Replaces the constant parts of the expression by their values. Only parts for which `is_known` returns
/// true are replaced.
pub fn folded(mut expr: Expr, around: &Around, is_known: &dyn Fn(&Expr) -> bool) -> Expr {
    expr.walk_mut(&mut |e| {
        if !is_leaf(e)
            && is_known(e)
            && is_steady(e)
            && let Some(value) = around.constant(e)
        {
            *e = Expr::Const(value);
        }
        if planted("query: a comparison with a constant NULL is false")
            && let Expr::Compare(_, sides) = e
            && (is_null(&sides.0) || is_null(&sides.1))
        {
            *e = Expr::Const(Value::Bool(false));
        }
    });
    expr
}

/// Returns whether a part of the expression is constant within a run, but is not computed in the plan. A
/// single parameter does not count as such a part.
pub fn has_parts(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |e| found |= !is_leaf(e) && !matches!(e, Expr::Param(_)) && is_steady(e));
    found
}

/// Returns whether a part or a parameter of the expression is constant within a run, but is not computed in
/// the plan.
pub fn hangs_on_run(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |e| found |= !is_leaf(e) && is_steady(e));
    found
}

/// Returns the expression for one run, with the values of its constant parts.
pub fn of_run(expr: &Expr, around: &Around) -> Expr {
    folded(expr.clone(), around, &|_| true)
}

/// Returns whether the value may differ between executions of the statement, even with the same settings of
/// the session.
pub fn hangs_on_execution(expr: &Expr) -> bool {
    let mut hangs = false;
    expr.walk(&mut |e| {
        hangs |= match e {
            Expr::Param(_) | Expr::Call(..) | Expr::Subquery(..) => true,
            Expr::Cast(_, from, to, _) => may_be_now(*from, to.ty),
            _ => false,
        }
    });
    hangs
}

/// Returns whether the cast reads the clock for some values, such as `now` and `today`.
fn may_be_now(from: Ty, to: Ty) -> bool {
    let (from, to) = (from.element().unwrap_or(from), to.element().unwrap_or(to));
    from.is_text() && matches!(to, Ty::Date | Ty::Timestamp | Ty::TimestampTz | Ty::Time)
}
