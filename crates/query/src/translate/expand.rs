//! Translates set-returning functions in a select list or in FROM.
//!
//! This module does not know how the rows are expanded (`expand`).

use datafusion::common::{Column, Result};
use datafusion::logical_expr::LogicalPlanBuilder;
use varve_sql::general::{Expand, Expr, Ty};

use super::{Part, Translator};
use crate::expand::{Expanded, Spread};

impl Translator<'_> {
    /// Translates the set-returning functions of a query. Each row of the query is repeated for each row of
    /// the functions.
    pub(super) fn expanded(&mut self, expand: &Expand) -> Result<Part> {
        let mut part = self.select(&expand.rows)?;
        let width = part.columns.len();
        let (mut arguments, mut functions) = (Vec::new(), Vec::new());
        for call in &expand.calls {
            let mut own: Vec<Expr> = call.arguments.iter().map(|(e, _)| self.own(e)).collect();
            part = self.applied(part, &mut own)?;
            let types: Vec<Ty> = call.arguments.iter().map(|(_, ty)| *ty).collect();
            for (e, ty) in own.into_iter().zip(&types) {
                arguments.push(self.computed(e, *ty, &part.columns));
            }
            functions.push((call.function, types));
        }
        let types = expand.types.to_vec();
        let names: Vec<String> = types.iter().map(|_| self.name()).collect();
        let spread = Spread {
            functions,
            types: types.clone(),
            numbered: expand.numbered,
            leading: Vec::new(),
            around: self.around.clone(),
        };
        let plan = Expanded::plan(part.plan.build()?, arguments, spread, names.clone())?;
        // The columns with the answers of subqueries are removed, because the binder does not know them.
        part.columns.truncate(width);
        part.columns.extend(names.into_iter().map(Column::new_unqualified).zip(types));
        Ok(Part { plan: LogicalPlanBuilder::from(plan), columns: part.columns })
    }
}
