//! Expressions that are the same for all rows are computed once. If the plan is cached, they are computed at
//! each execution, otherwise when the plan is made. `crate::constants` finds these expressions.

use varve_sql::general::Expr;

use super::Translator;
use crate::constants::{folded, hangs_on_execution};

impl Translator<'_> {
    /// The expression with the values of its constant parts.
    pub(super) fn folded(&self, expr: Expr) -> Expr {
        let first = self.around.statement_params();
        let keeps = self.assumed.is_some();
        folded(expr, &self.around, &|e| {
            // A plan reads parameters where they are; what a subquery is given differs from run to run.
            let mut given = matches!(e, Expr::Param(_));
            e.walk(&mut |e| given |= matches!(e, Expr::Param(n) if *n >= first));
            !(given || keeps && hangs_on_execution(e))
        })
    }
}
