//! Translates UNION, INTERSECT and EXCEPT. The binder has already converted both sides to the same types.
//!
//! For INTERSECT and EXCEPT, the plan counts how often each side has each distinct row (SQL:2016, 7.17). The
//! two counts decide whether the row is returned. With ALL they also decide how often.

use std::sync::Arc;

use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, LogicalPlanBuilder, Union, lit};
use varve_engine::Value;
use varve_sql::general::{
    AggKind, ArithOp, Class, CmpOp, Expr, Lateral, Select, SetKind, SetOperation, Source, SqlError, Ty, Typed,
};
use varve_sql::planted;

use super::{Part, Translator, aggregate};
use crate::error::wrapped;
use crate::fold::Fold;
use crate::rows::Rows;

impl Translator<'_> {
    /// Translates a set operation.
    pub(super) fn set_operation(&mut self, set: &SetOperation) -> Result<Part> {
        let mut parts = Vec::new();
        for run in set.sides.chunk_by(|a, b| is_row(a) && is_row(b)) {
            parts.push(self.rows_of_sides(run)?);
        }
        if set.kind == SetKind::Union {
            let all = match parts.len() {
                1 => parts.remove(0),
                _ => self.all_of(parts.into_iter().map(|part| (part, Vec::new())).collect())?,
            };
            return if set.all || planted("query: UNION keeps what is equal") {
                Ok(all)
            } else {
                self.distinct(all, set.sides[0].outputs.iter().map(|o| o.t))
            };
        }
        let [left, right] = <[Part; 2]>::try_from(match parts.len() {
            // If both sides are rows of expressions, they were translated together. Here each side needs its
            // own plan.
            1 => vec![self.select(&set.sides[0])?, self.select(&set.sides[1])?],
            _ => parts,
        })
        .map_err(|_| wrapped(SqlError::internal("INTERSECT and EXCEPT have two sides")))?;
        let width = left.columns.len();
        let counted = self.counted(left, right)?;
        let kept = self.filtered(counted, vec![wanted(set, width)])?;
        let mut part = match set.all {
            true => self.repeated(kept, times(set.kind, width))?,
            false => kept,
        };
        let columns: Vec<Logical> =
            part.columns[..width].iter().map(|(c, _)| Logical::Column(c.clone())).collect();
        part.columns.truncate(width);
        Ok(Part { plan: part.plan.project(columns)?, columns: part.columns })
    }

    /// Translates one side, or several sides that are rows of expressions. Several sides become one source.
    fn rows_of_sides(&mut self, run: &[Select]) -> Result<Part> {
        let [first, _, ..] = run else { return self.subquery(&run[0]) };
        let types = first.outputs.iter().map(|o| o.t.ty).collect();
        let row = |side: &Select| side.outputs.iter().map(|o| self.own(&o.expr)).collect();
        let rows = run.iter().map(row).collect();
        self.rows(Rows::Values(rows), types)
    }

    /// Returns the rows of all parts. The marks of its part follow the columns of each row.
    pub(super) fn all_of(&mut self, parts: Vec<(Part, Vec<Logical>)>) -> Result<Part> {
        let (types, marks) = match parts.first() {
            Some((part, marks)) => (part.columns.iter().map(|(_, t)| *t).collect::<Vec<Ty>>(), marks.len()),
            None => (Vec::new(), 0),
        };
        let types: Vec<Ty> = types.into_iter().chain(std::iter::repeat_n(Ty::Int8, marks)).collect();
        let names: Vec<String> = types.iter().map(|_| self.name()).collect();
        let mut inputs = Vec::with_capacity(parts.len());
        for (part, marks) in parts {
            let columns = part.columns.into_iter().map(|(c, _)| Logical::Column(c)).chain(marks);
            let named: Vec<Logical> = columns.zip(&names).map(|(e, n)| e.alias(n)).collect();
            inputs.push(Arc::new(part.plan.project(named)?.build()?));
        }
        let plan = LogicalPlanBuilder::from(LogicalPlan::Union(Union::try_new(inputs)?));
        let columns = names.into_iter().map(Column::new_unqualified).zip(types).collect();
        Ok(Part { plan, columns })
    }

    /// Returns each distinct row once. After its columns come two counts: how often the left side has the
    /// row, and how often the right side has it.
    fn counted(&mut self, left: Part, right: Part) -> Result<Part> {
        let (one, none) = (lit(1i64), lit(datafusion::common::ScalarValue::Int64(None)));
        let width = left.columns.len();
        let all = self.all_of(vec![(left, vec![one.clone(), none.clone()]), (right, vec![none, one])])?;
        let column = |n: usize| Logical::Column(all.columns[n].0.clone());
        let keys = (0..width)
            .map(|n| self.key(Expr::Column(n), Typed::plain(all.columns[n].1), &all.columns))
            .collect();
        let count = |n: usize| {
            let fold = Fold::Call { kind: AggKind::Count, distinct: false };
            (aggregate(fold, column(n), Ty::Int8, Ty::Int8, None), Ty::Int8)
        };
        let counts = vec![count(width), count(width + 1)];
        self.grouped(all.plan, keys, counts)
    }

    /// Repeats each row. `times` is the number of copies.
    fn repeated(&mut self, part: Part, times: Expr) -> Result<Part> {
        let int = |n| Expr::Const(Value::Int8(n));
        let bounds = Box::new([int(1), Expr::Outer(0), int(1)]);
        let lateral = Lateral { given: [times].into(), types: [Typed::plain(Ty::Int8)].into() };
        let series = Source::Series(bounds, Ty::Int8);
        self.lateral(part, &series, false, Vec::new(), &lateral)
    }
}

/// Returns whether the query is one row of expressions.
fn is_row(select: &Select) -> bool {
    matches!(select.source, Source::Nothing)
        && select.filter.is_none()
        && select.aggregate.is_none()
        && select.windows.is_empty()
        && select.limit.is_none()
        && select.offset.is_none()
        && select.outputs.len() == select.visible
        && !select.outputs.iter().any(|o| o.expr.has_subquery())
}

/// Returns the condition for a distinct row to be in the result.
fn wanted(set: &SetOperation, width: usize) -> Expr {
    let more_than = |e: Expr, n| Expr::Compare(CmpOp::Gt, Box::new((e, Expr::Const(Value::Int8(n)))));
    let (left, right) = (Expr::Column(width), Expr::Column(width + 1));
    match (set.kind, set.all) {
        (SetKind::Except, true) => more_than(times(set.kind, width), 0),
        (SetKind::Except, false) => {
            let absent = Expr::Not(Box::new(more_than(right, 0)));
            Expr::And([more_than(left, 0), absent].into())
        }
        _ => Expr::And([more_than(left, 0), more_than(right, 0)].into()),
    }
}

/// Returns an expression for the number of times that a row is in the result with ALL.
fn times(kind: SetKind, width: usize) -> Expr {
    let (left, right) = (Expr::Column(width), Expr::Column(width + 1));
    match kind {
        SetKind::Except => Expr::Arith(ArithOp::Subtract, Class::Int8, Box::new((left, right))),
        _ => Expr::Extreme([left, right].into(), false),
    }
}
