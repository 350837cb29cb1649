//! Expressions that are the same for all rows are computed once. If the plan is cached, they are computed at
//! each execution, otherwise when the plan is made. `crate::constants` finds these expressions.

use varve_sql::general::Expr;

use super::Translator;
use crate::constants::{folded, hangs_on_execution};

impl Translator<'_> {
    /// Returns the expression with its constant parts replaced by their values.
    pub(super) fn folded(&self, expr: Expr) -> Expr {
        let first = self.around.statement_params();
        let keeps = self.assumed.is_some();
        folded(expr, &self.around, &|e| {
            // A parameter alone is not replaced, because the plan can read it. Values that are given to a
            // subquery differ from run to run.
            let mut given = matches!(e, Expr::Param(_));
            e.walk(&mut |e| given |= matches!(e, Expr::Param(n) if *n >= first));
            !(given || keeps && hangs_on_execution(e))
        })
    }
}
