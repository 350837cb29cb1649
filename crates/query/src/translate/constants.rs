//! Expressions that are the same for all rows are computed once: when the plan is made, or, if the plan is
//! cached, when it runs.
//!
//! This module does not know how constants are found (`crate::constants`).

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
