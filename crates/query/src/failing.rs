//! Decides which expressions can fail with an error. An expression that cannot fail may be computed even for
//! rows that a condition would remove.

use varve_sql::general::Expr;

/// Returns whether the evaluation of the expression can fail with an error.
pub fn may_fail(expr: &Expr) -> bool {
    let mut fails = false;
    expr.walk(&mut |e| {
        fails |= matches!(
            e,
            Expr::Arith(..)
                | Expr::Negate(..)
                | Expr::Call(..)
                | Expr::Cast(..)
                | Expr::Like(_)
                | Expr::Concat(_)
                | Expr::Subquery(..)
        );
    });
    fails
}
