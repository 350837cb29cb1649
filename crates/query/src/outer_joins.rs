//! Reduces outer joins: an outer join is an inner join if conditions reject all rows that it fills with
//! NULLs. The conditions are those of WHERE, and those of the joins above it (PostgreSQL's
//! `reduce_outer_joins`).
//!
//! This rule replaces DataFusion's `eliminate_outer_join`, which does not know the expressions of Varve, and
//! does not look at the conditions of joins.
//!
//! Invariants
//! 1. A condition rejects a row only if no value of the other columns can make it true (`Outcomes`).
//! 2. Conditions are only read. They stay where they are.
//!
//! This module does not know the outer joins of a FROM clause that its own WHERE reduces. The binder has
//! reduced them before, so that a short join runs in the executor.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, Join, LogicalPlan, Operator, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use varve_sql::general::Outcomes;

use crate::computed::{Computed, is_key};
use crate::conditions::over;

/// The optimizer rule that reduces outer joins.
#[derive(Debug)]
pub struct ReduceOuterJoins;

impl OptimizerRule for ReduceOuterJoins {
    fn name(&self) -> &str {
        "reduce_outer_joins"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_outer(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let mut has_reduced = false;
        let plan = reduced(plan, Vec::new(), &mut has_reduced)?;
        Ok(Transformed::new_transformed(plan, has_reduced))
    }
}

fn has_outer(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(join) if join.join_type.is_outer())))
}

/// Reduces the joins of a plan. Each row of the plan that the query needs fulfils the conditions `hold`.
fn reduced(plan: LogicalPlan, mut hold: Vec<Logical>, has_reduced: &mut bool) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Filter(mut filter) => {
            hold.extend(split_conjunction_owned(filter.predicate.clone()));
            filter.input = Arc::new(reduced(Arc::unwrap_or_clone(filter.input), hold, has_reduced)?);
            Ok(LogicalPlan::Filter(filter))
        }
        LogicalPlan::Projection(mut projection) => {
            let hold = below(&projection, hold)?;
            projection.input = Arc::new(reduced(Arc::unwrap_or_clone(projection.input), hold, has_reduced)?);
            Ok(LogicalPlan::Projection(projection))
        }
        LogicalPlan::Sort(mut sort) if sort.fetch.is_none() => {
            sort.input = Arc::new(reduced(Arc::unwrap_or_clone(sort.input), hold, has_reduced)?);
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Join(join) => reduced_join(join, hold, has_reduced).map(LogicalPlan::Join),
        other => {
            let below = |input| reduced(input, Vec::new(), has_reduced).map(Transformed::yes);
            other.map_children(below).map(|plan| plan.data)
        }
    }
}

/// Returns the conditions with the columns of the projection replaced by their expressions.
fn below(projection: &Projection, hold: Vec<Logical>) -> Result<Vec<Logical>> {
    let exprs = projection.expr.iter().map(|e| e.clone().unalias_nested().data);
    over(hold, &projection.schema.columns().into_iter().zip(exprs).collect())
}

fn reduced_join(mut join: Join, hold: Vec<Logical>, has_reduced: &mut bool) -> Result<Join> {
    let rejected = |side: &LogicalPlan| {
        let is_null = |column: &Column| side.schema().has_column(column);
        hold.iter().any(|condition| !outcomes(condition, &is_null).can_hold())
    };
    let kind = match join.join_type {
        JoinType::Left if rejected(&join.right) => JoinType::Inner,
        JoinType::Right if rejected(&join.left) => JoinType::Inner,
        JoinType::Full => match (rejected(&join.left), rejected(&join.right)) {
            (true, true) => JoinType::Inner,
            (true, false) => JoinType::Left,
            (false, true) => JoinType::Right,
            (false, false) => JoinType::Full,
        },
        kind => kind,
    };
    *has_reduced |= kind != join.join_type;
    join.join_type = kind;
    let (of_left, of_right) = divided(&join, hold);
    join.left = Arc::new(reduced(Arc::unwrap_or_clone(join.left), of_left, has_reduced)?);
    join.right = Arc::new(reduced(Arc::unwrap_or_clone(join.right), of_right, has_reduced)?);
    Ok(join)
}

/// Returns the conditions that hold for each row of the left and of the right side that the query needs. A
/// side that keeps its rows without partners needs only the conditions above the join to hold.
fn divided(join: &Join, hold: Vec<Logical>) -> (Vec<Logical>, Vec<Logical>) {
    let own = || {
        let operator = match join.null_equality {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let equal = |(l, r): &(Logical, Logical)| {
            Logical::BinaryExpr(BinaryExpr::new(Box::new(l.clone()), operator, Box::new(r.clone())))
        };
        let filter = join.filter.iter().cloned().flat_map(split_conjunction_owned);
        join.on.iter().map(equal).chain(filter).collect::<Vec<_>>()
    };
    match join.join_type {
        // NOT IN depends on rows that do not fulfil its condition.
        _ if join.null_aware => (Vec::new(), Vec::new()),
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => {
            let all = [hold, own()].concat();
            (all.clone(), all)
        }
        JoinType::Left | JoinType::LeftAnti => (hold, own()),
        JoinType::Right | JoinType::RightAnti => (own(), hold),
        JoinType::LeftMark => (hold, Vec::new()),
        JoinType::RightMark => (Vec::new(), hold),
        JoinType::Full => (Vec::new(), Vec::new()),
    }
}

/// Returns the outcomes of an expression if these columns are NULL.
fn outcomes(e: &Logical, is_null: &dyn Fn(&Column) -> bool) -> Outcomes {
    let of = |e: &Logical| outcomes(e, is_null);
    match e {
        Logical::Column(column) if is_null(column) => Outcomes::NULL,
        Logical::Literal(ScalarValue::Boolean(Some(value)), _) => Outcomes::only(*value),
        Logical::Literal(value, _) if value.is_null() => Outcomes::NULL,
        Logical::Literal(..) => Outcomes::VALUE,
        Logical::Alias(alias) => of(&alias.expr),
        Logical::Not(e) => of(e).negated(),
        Logical::IsNull(e) => of(e).null_test(),
        Logical::IsNotNull(e) => of(e).null_test().negated(),
        // Casts are only used between integers of different widths.
        Logical::Cast(cast) => Outcomes::strict([of(&cast.expr)]),
        Logical::BinaryExpr(b) => compared(b.op, of(&b.left), of(&b.right)),
        Logical::ScalarFunction(call) if is_key(call) => Outcomes::strict(call.args.iter().map(of)),
        Logical::ScalarFunction(call) => match call.func.inner().downcast_ref::<Computed>() {
            Some(computed) => computed.expr().outcomes(&|n| call.args.get(n).map_or(Outcomes::ANY, of)),
            None => Outcomes::ANY,
        },
        _ => Outcomes::ANY,
    }
}

fn compared(op: Operator, left: Outcomes, right: Outcomes) -> Outcomes {
    match op {
        Operator::And => Outcomes::all([left, right]),
        Operator::Or => Outcomes::any([left, right]),
        Operator::IsDistinctFrom => left.distinct_from(right),
        Operator::IsNotDistinctFrom => left.distinct_from(right).negated(),
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            Outcomes::strict([left, right])
        }
        _ => Outcomes::ANY,
    }
}
