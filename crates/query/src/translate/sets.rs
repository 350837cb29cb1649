//! UNION, INTERSECT and EXCEPT.
//!
//! INTERSECT and EXCEPT count, for each row that either side has, how often each side has it (SQL:2016, 7.17): that says whether
//! the row comes out, and under ALL how often.
//!
//! Does not know: types; the binder has brought both sides to the same ones.

use datafusion::common::Result;
use datafusion::logical_expr::{Expr as Logical, lit};
use varve_engine::Value;
use varve_sql::general::{
    AggKind, ArithOp, Class, CmpOp, Expr, Join, JoinKind, Lateral, SetKind, SetOperation, Source, Ty, Typed,
};

use super::{Part, Translator, aggregate};
use crate::aggregate::Fold;

impl Translator<'_> {
    /// The rows of a set operation.
    pub(super) fn set_operation(&mut self, set: &SetOperation) -> Result<Part> {
        let (left, right) = (self.select(&set.left)?, self.select(&set.right)?);
        if set.kind == SetKind::Union {
            let all = self.union(left, right, Vec::new())?;
            return if set.all { Ok(all) } else { self.distinct(all) };
        }
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

    /// The rows of both sides, each with the values that `marks` has for its side.
    fn union(&mut self, left: Part, right: Part, marks: Vec<(Logical, Logical)>) -> Result<Part> {
        let names: Vec<String> = left.columns.iter().map(|_| self.name()).collect();
        let mark_names: Vec<String> = marks.iter().map(|_| self.name()).collect();
        let (left_marks, right_marks): (Vec<Logical>, Vec<Logical>) = marks.into_iter().unzip();
        let named = |part: &Part, marks: Vec<Logical>| -> Vec<Logical> {
            let columns = part.columns.iter().map(|(c, _)| Logical::Column(c.clone()));
            columns.chain(marks).zip(names.iter().chain(&mark_names)).map(|(e, n)| e.alias(n)).collect()
        };
        let (on_left, on_right) = (named(&left, left_marks), named(&right, right_marks));
        let plan = left.plan.project(on_left)?.union(right.plan.project(on_right)?.build()?)?;
        let types = left.columns.iter().map(|(_, t)| *t).chain(mark_names.iter().map(|_| Ty::Int8));
        let column = datafusion::common::Column::new_unqualified;
        let columns = names.iter().chain(&mark_names).map(column).zip(types).collect();
        Ok(Part { plan, columns })
    }

    /// Each different row once, behind it how many of it the left side has, then the right one.
    fn counted(&mut self, left: Part, right: Part) -> Result<Part> {
        let (one, none) = (lit(1i64), lit(datafusion::common::ScalarValue::Int64(None)));
        let width = left.columns.len();
        let all = self.union(left, right, vec![(one.clone(), none.clone()), (none, one)])?;
        let column = |n: usize| Logical::Column(all.columns[n].0.clone());
        let keys = (0..width).map(|n| (column(n), all.columns[n].1)).collect();
        let count = |n: usize| {
            let fold = Fold::Call { kind: AggKind::Count, distinct: false };
            (aggregate(fold, column(n), Ty::Int8, Ty::Int8, None), Ty::Int8)
        };
        let counts = vec![count(width), count(width + 1)];
        self.grouped(all.plan, keys, counts)
    }

    /// Each row as often as `times` says.
    fn repeated(&mut self, part: Part, times: Expr) -> Result<Part> {
        let int = |n| Expr::Const(Value::Int8(n));
        let bounds = Box::new([int(1), Expr::Outer(0), int(1)]);
        let lateral = Lateral { given: [times].into(), types: [Typed::plain(Ty::Int8)].into() };
        let join = Join {
            kind: JoinKind::Inner,
            left: Source::Nothing,
            right: Source::Series(bounds, Ty::Int8),
            left_width: part.columns.len(),
            on: Vec::new(),
            lateral: None,
        };
        self.lateral(part, &join, &lateral)
    }
}

/// Whether a row comes out at all.
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

/// How often a row comes out under ALL.
fn times(kind: SetKind, width: usize) -> Expr {
    let (left, right) = (Expr::Column(width), Expr::Column(width + 1));
    match kind {
        SetKind::Except => Expr::Arith(ArithOp::Subtract, Class::Int8, Box::new((left, right))),
        _ => Expr::Extreme([left, right].into(), false),
    }
}
