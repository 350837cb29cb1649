//! What is the same for all rows is computed once, when the plan is made.
//!
//! Invariants
//! 1. A constant that can't be computed stays as it is: the error is due only if a row asks for it.
//!
//! Does not know: plans.

use varve_sql::general::Expr;

use super::Translator;

impl Translator<'_> {
    /// The expression with the values of its constant parts.
    pub(super) fn folded(&self, mut expr: Expr) -> Expr {
        expr.walk_mut(&mut |e| {
            let leaf = matches!(e, Expr::Const(_) | Expr::Param(_) | Expr::Column(_) | Expr::Slot(_));
            if !leaf
                && self.is_known(e)
                && let Some(value) = self.around.constant(e)
            {
                *e = Expr::Const(value);
            }
        });
        expr
    }

    /// Whether the value hangs on nothing but the statement and its parameters.
    fn is_known(&self, e: &Expr) -> bool {
        let first = self.around.statement_params();
        let mut known = e.is_constant() && !e.is_volatile();
        e.walk(&mut |e| known &= !matches!(e, Expr::Outer(_)) && !matches!(e, Expr::Param(n) if *n >= first));
        known
    }
}
