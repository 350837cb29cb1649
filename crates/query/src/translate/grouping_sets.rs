//! Translates GROUPING SETS. Each input row belongs to one group of each set. So each row is repeated once
//! for each set, with the keys of that set.
//!
//! A set without keys has one group even if there are no rows. To make this group, a row of NULLs is added
//! before all other rows. No aggregate counts this row.

use datafusion::common::{Column, Result};
use datafusion::logical_expr::LogicalPlanBuilder;
use varve_engine::Value;
use varve_sql::general::{AggCall, Aggregate, CmpOp, Expr, SetFunction, Ty};

use super::{Part, Translator, Typing};
use crate::expand::{Expanded, Spread};

impl Translator<'_> {
    /// Groups by each of the sets. The columns are the keys, the aggregates and the number of the set.
    pub(super) fn grouped_by_sets(
        &mut self,
        part: Part,
        aggregate: &Aggregate,
        keys: Vec<Expr>,
        mut calls: Vec<AggCall>,
    ) -> Result<Part> {
        let (sets, width) = (&aggregate.sets, part.columns.len());
        let typed = keys.into_iter().zip(aggregate.key_types.iter().map(|t| t.ty));
        let passed = part.columns.iter().enumerate().map(|(n, (_, t))| (Expr::Column(n), *t));
        let values: Vec<(Expr, Ty)> = passed.chain(typed).collect();
        let part = self.computed_columns(part, values)?;
        let number = part.columns.len();
        let part = self.copied(part, sets.len(), empty_sets(sets))?;
        // In a leading row, the number of its set is increased by the number of sets. So it is not less than
        // the number of sets.
        let is_live = compared(CmpOp::Lt, number, sets.len() as i64);
        let mut masked: Vec<(Expr, Ty)> =
            part.columns.iter().enumerate().map(|(n, (_, t))| (Expr::Column(n), *t)).collect();
        for (key, (value, _)) in masked[width..number].iter_mut().enumerate() {
            *value = where_in(sets, key, number, value.clone());
        }
        masked[number].0 = set_number(sets, number);
        masked.push((is_live, Ty::Bool));
        let part = self.computed_columns(part, masked)?;
        if sets.iter().any(|set| set.is_empty()) {
            calls.iter_mut().for_each(|call| call.filter = Some(live(call.filter.take(), number + 1)));
        }
        let columns = &part.columns;
        let computed: Vec<_> = calls.iter().map(|call| self.call(call, columns)).collect();
        let column = |n: usize| (datafusion::logical_expr::Expr::Column(columns[n].0.clone()), columns[n].1);
        let by = (width..=number).map(column).map(|(shown, ty)| super::Key::plain(shown, ty)).collect();
        let mut part = self.grouped(part.plan, by, computed)?;
        let set: Typing = part.columns.remove(number - width);
        part.columns.push(set);
        Ok(part)
    }

    /// Returns `count` copies of the rows, each with the number of its copy. Before them are rows of NULLs
    /// with the numbers in `leading`.
    fn copied(&mut self, mut part: Part, count: usize, leading: Vec<i64>) -> Result<Part> {
        let name = self.name();
        let spread = Spread {
            functions: vec![(SetFunction::Copies(count), Vec::new())],
            types: vec![Ty::Int8],
            numbered: false,
            leading,
            around: self.around.clone(),
        };
        let plan = Expanded::plan(part.plan.build()?, Vec::new(), spread, vec![name.clone()])?;
        part.columns.push((Column::new_unqualified(name), Ty::Int8));
        Ok(Part { plan: LogicalPlanBuilder::from(plan), columns: part.columns })
    }
}

/// Returns the numbers of the leading rows: for each set without keys, its number plus the number of sets.
fn empty_sets(sets: &[Box<[usize]>]) -> Vec<i64> {
    let empty = sets.iter().enumerate().filter(|(_, set)| set.is_empty());
    empty.map(|(n, _)| (sets.len() + n) as i64).collect()
}

fn compared(op: CmpOp, column: usize, with: i64) -> Expr {
    Expr::Compare(op, Box::new((Expr::Column(column), Expr::Const(Value::Int8(with)))))
}

/// Returns an expression for a key. It is the value of the key in the sets that have this key, and NULL in
/// the other sets.
fn where_in(sets: &[Box<[usize]>], key: usize, number: usize, value: Expr) -> Expr {
    let having = sets.iter().enumerate().filter(|(_, set)| set.contains(&key));
    let having: Box<[Expr]> = having.map(|(n, _)| Expr::Const(Value::Int8(n as i64))).collect();
    if having.len() == sets.len() {
        return value;
    }
    let test = Expr::InList(Box::new(Expr::Column(number)), having.into(), false);
    Expr::Case([(test, value)].into(), Box::new(Expr::NULL))
}

/// Returns an expression for the number of the row's set. It is also correct for a leading row.
fn set_number(sets: &[Box<[usize]>], number: usize) -> Expr {
    let branch = |n: i64| (compared(CmpOp::Eq, number, n), Expr::Const(Value::Int8(n - sets.len() as i64)));
    let leading: Box<[(Expr, Expr)]> = empty_sets(sets).into_iter().map(branch).collect();
    if leading.is_empty() {
        Expr::Column(number)
    } else {
        Expr::Case(leading, Box::new(Expr::Column(number)))
    }
}

/// Adds to the condition of an aggregate that the row is not a leading row.
fn live(filter: Option<Expr>, column: usize) -> Expr {
    match filter {
        Some(filter) => Expr::And([Expr::Column(column), filter].into()),
        None => Expr::Column(column),
    }
}
