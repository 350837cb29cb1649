//! Predicate pushdown: moves each condition as far down the plan as possible without changing the result.
//!
//! This rule replaces DataFusion's `push_down_filter`, which has three faults. It moves volatile conditions.
//! It may evaluate a condition that can fail on rows that a join would remove. It moves conditions without
//! columns below an aggregate without groups, although such an aggregate returns a row even for no input.
//!
//! Invariants
//! 1. A volatile condition stays where the query has it.
//! 2. A condition is moved below an aggregate only if all its columns are group keys. A condition without
//!    columns is moved only if there are group keys.
//! 3. If an equality joins two columns, a condition on one column is also applied to the other one. This is
//!    done only for conditions that cannot fail.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr as Logical, Extension, Filter, Join, LogicalPlan, Operator, Projection,
    TableProviderFilterPushDown, TableScan, Union,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::computed::{Computed, is_key};
use crate::failing::may_fail;

/// The optimizer rule that moves conditions down the plan.
#[derive(Debug)]
pub struct MoveConditions;

impl OptimizerRule for MoveConditions {
    fn name(&self) -> &str {
        "move_conditions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) => below_join(join, Vec::new()),
            LogicalPlan::Filter(filter) => filtered(filter),
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Moves those conditions of a filter that can be moved below the input of the filter.
fn filtered(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let Filter { predicate, input, .. } = filter;
    let conditions = split_conjunction_owned(predicate);
    // The input has a LIMIT or OFFSET, which must be applied before the filter.
    if input.fetch()?.is_some() || input.skip()?.is_some() {
        return Ok(Transformed::no(kept(conditions, Arc::unwrap_or_clone(input))?));
    }
    if let LogicalPlan::Filter(below) = input.as_ref() {
        let mut all = split_conjunction_owned(below.predicate.clone());
        all.extend(
            conditions.into_iter().filter(|c| c.is_volatile() || !all.contains(c)).collect::<Vec<_>>(),
        );
        let merged = kept(all, below.input.as_ref().clone())?;
        return match merged {
            LogicalPlan::Filter(filter) => Ok(Transformed::yes(filtered(filter)?.data)),
            other => Ok(Transformed::yes(other)),
        };
    }
    let (volatile, movable): (Vec<_>, Vec<_>) = conditions.into_iter().partition(Logical::is_volatile);
    if movable.is_empty() {
        return Ok(Transformed::no(kept(volatile, Arc::unwrap_or_clone(input))?));
    }
    let moved = match Arc::unwrap_or_clone(input) {
        LogicalPlan::Join(join) => below_join(join, movable),
        LogicalPlan::Projection(projection) => below_projection(projection, movable),
        LogicalPlan::Aggregate(aggregate) => below_aggregate(aggregate, movable),
        LogicalPlan::Union(union) => below_union(union, movable),
        LogicalPlan::TableScan(scan) => into_scan(scan, movable),
        LogicalPlan::Extension(extension) => below_extension(extension, movable),
        LogicalPlan::Sort(mut sort) => {
            sort.input = Arc::new(kept(movable, Arc::unwrap_or_clone(sort.input))?);
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(kept(movable, other)?)),
    };
    moved?.map_data(|plan| kept(volatile, plan))
}

/// Returns the plan with a filter for all conditions above it.
fn kept(conditions: Vec<Logical>, plan: LogicalPlan) -> Result<LogicalPlan> {
    match conjunction(conditions) {
        Some(condition) => Ok(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?)),
        None => Ok(plan),
    }
}

/// Returns the plan with a filter for the conditions that stay above it. The result is marked as transformed
/// if other conditions were moved.
fn moved(plan: LogicalPlan, stay: Vec<Logical>, has_moved: bool) -> Result<Transformed<LogicalPlan>> {
    let plan = kept(stay, plan)?;
    Ok(if has_moved { Transformed::yes(plan) } else { Transformed::no(plan) })
}

/// Replaces columns in the conditions by the expressions in `meaning`.
pub fn over(conditions: Vec<Logical>, meaning: &HashMap<Column, Logical>) -> Result<Vec<Logical>> {
    let replaced = |condition: Logical| {
        let replace = |e: Logical| match &e {
            Logical::Column(column) => match meaning.get(column) {
                Some(meaning) => Ok(Transformed::new(meaning.clone(), true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(e)),
            },
            _ => Ok(Transformed::no(e)),
        };
        condition.transform_down(replace).map(|t| t.data)
    };
    conditions.into_iter().map(replaced).collect()
}

fn named(schema: &DFSchema, exprs: &[Logical]) -> HashMap<Column, Logical> {
    schema.columns().into_iter().zip(exprs.iter().map(|e| e.clone().unalias_nested().data)).collect()
}

/// Moves conditions below a projection. There a condition computes the expressions of the projection again. A
/// condition on a volatile expression stays, because a second computation could return another value.
fn below_projection(
    mut projection: Projection,
    conditions: Vec<Logical>,
) -> Result<Transformed<LogicalPlan>> {
    let meaning = named(&projection.schema, &projection.expr);
    let reads_volatile = |condition: &Logical| {
        condition.column_refs().into_iter().any(|c| meaning.get(c).is_some_and(Logical::is_volatile))
    };
    let (stay, go): (Vec<_>, Vec<_>) = conditions.into_iter().partition(reads_volatile);
    let moves = !go.is_empty();
    let go = over(go, &meaning)?;
    projection.input = Arc::new(kept(go, Arc::unwrap_or_clone(projection.input))?);
    moved(LogicalPlan::Projection(projection), stay, moves)
}

fn below_aggregate(mut aggregate: Aggregate, conditions: Vec<Logical>) -> Result<Transformed<LogicalPlan>> {
    // Each key is a single expression, because the grouping sets of DataFusion are not used.
    let keys = aggregate.group_expr.len();
    let meaning = named(&aggregate.schema, &aggregate.group_expr);
    let is_of_keys =
        |condition: &Logical| keys > 0 && condition.column_refs().iter().all(|c| meaning.contains_key(c));
    let (go, stay): (Vec<_>, Vec<_>) = conditions.into_iter().partition(is_of_keys);
    let moves = !go.is_empty();
    let go = over(go, &meaning)?;
    aggregate.input = Arc::new(kept(go, Arc::unwrap_or_clone(aggregate.input))?);
    moved(LogicalPlan::Aggregate(aggregate), stay, moves)
}

fn below_union(mut union: Union, conditions: Vec<Logical>) -> Result<Transformed<LogicalPlan>> {
    let columns = union.schema.columns();
    for input in &mut union.inputs {
        let own = input.schema().columns().into_iter().map(Logical::Column);
        let meaning = columns.iter().cloned().zip(own).collect();
        let go = over(conditions.clone(), &meaning)?;
        *input = Arc::new(kept(go, input.as_ref().clone())?);
    }
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}

/// Moves those conditions into a scan that the table can check itself.
fn into_scan(mut scan: TableScan, conditions: Vec<Logical>) -> Result<Transformed<LogicalPlan>> {
    let supported = scan.source.supports_filters_pushdown(&conditions.iter().collect::<Vec<_>>())?;
    let (mut stay, mut moves) = (Vec::new(), false);
    for (condition, supported) in conditions.into_iter().zip(supported) {
        match supported {
            TableProviderFilterPushDown::Exact => {
                moves = true;
                if !scan.filters.contains(&condition) {
                    scan.filters.push(condition);
                }
            }
            _ => stay.push(condition),
        }
    }
    moved(LogicalPlan::TableScan(scan), stay, moves)
}

/// Moves conditions below a plan node of Varve, which names the columns that it adds. A condition on these
/// columns stays above the node. A condition without columns stays there, too, because the node may return
/// rows that do not come from its input.
fn below_extension(extension: Extension, conditions: Vec<Logical>) -> Result<Transformed<LogicalPlan>> {
    let own = extension.node.prevent_predicate_push_down_columns();
    let inputs = extension.node.inputs();
    let goes = |condition: &Logical| {
        let read = condition.column_refs();
        inputs.len() == 1 && !read.is_empty() && read.iter().all(|c| !own.contains(&c.name))
    };
    let (go, stay): (Vec<_>, Vec<_>) = conditions.into_iter().partition(goes);
    if go.is_empty() {
        return moved(LogicalPlan::Extension(extension), stay, false);
    }
    let inputs = inputs.into_iter().map(|input| kept(go.clone(), input.clone())).collect::<Result<_>>()?;
    let node = extension.node.with_exprs_and_inputs(extension.node.expressions(), inputs)?;
    moved(LogicalPlan::Extension(Extension { node }), stay, true)
}

/// The columns of the two sides of a join.
struct Sides {
    left: HashSet<Column>,
    right: HashSet<Column>,
    /// Pairs of a left and a right column that are equal in each pair of rows.
    keys: Vec<(Column, Column)>,
}

/// The places to which the conditions of a join are moved.
#[derive(Default)]
struct Shares {
    left: Vec<Logical>,
    right: Vec<Logical>,
    on: Vec<Logical>,
    above: Vec<Logical>,
}

impl Sides {
    /// Returns the sides of a join. `hold` are conditions that each pair of rows satisfies. Equal columns are
    /// found among them.
    fn of<'c>(join: &Join, hold: impl Iterator<Item = &'c Logical>) -> Sides {
        let columns = |plan: &LogicalPlan| plan.schema().columns().into_iter().collect();
        let mut sides = Sides { left: columns(&join.left), right: columns(&join.right), keys: Vec::new() };
        // The result of NOT IN depends on NULLs in the rows of a side. So no condition may remove rows of
        // that side.
        if !join.null_aware {
            let equal = hold.filter_map(|condition| match condition {
                Logical::BinaryExpr(b) if b.op == Operator::Eq => Some((b.left.as_ref(), b.right.as_ref())),
                _ => None,
            });
            let pairs = join.on.iter().map(|(l, r)| (l, r)).chain(equal);
            sides.keys = pairs.filter_map(|(l, r)| sides.key(l, r)).collect();
        }
        sides
    }

    /// Returns the left and the right column, if one expression is a column of the left side and the other is
    /// a column of the right side.
    fn key(&self, one: &Logical, other: &Logical) -> Option<(Column, Column)> {
        let (Logical::Column(one), Logical::Column(other)) = (one, other) else { return None };
        let is_pair = |l: &Column, r: &Column| self.left.contains(l) && self.right.contains(r);
        match (is_pair(one, other), is_pair(other, one)) {
            (true, _) => Some((one.clone(), other.clone())),
            (_, true) => Some((other.clone(), one.clone())),
            _ => None,
        }
    }

    fn is_of(side: &HashSet<Column>, condition: &Logical) -> bool {
        condition.column_refs().into_iter().all(|c| side.contains(c))
    }

    /// Returns the condition for the equal columns of the other side. Returns `None` if the condition reads
    /// other columns, or if it may fail there.
    fn mirrored(&self, condition: &Logical, to_right: bool) -> Result<Option<Logical>> {
        let read = condition.column_refs();
        if read.is_empty() || can_fail(condition)? {
            return Ok(None);
        }
        let pair = |(l, r): &(Column, Column)| match to_right {
            true => (l.clone(), Logical::Column(r.clone())),
            false => (r.clone(), Logical::Column(l.clone())),
        };
        let meaning: HashMap<Column, Logical> = self.keys.iter().map(pair).collect();
        if !read.iter().all(|c| meaning.contains_key(c)) {
            return Ok(None);
        }
        Ok(over(vec![condition.clone()], &meaning)?.pop())
    }
}

/// Moves the conditions above a join and the conditions of the join itself to the sides of the join, where
/// this is possible.
fn below_join(mut join: Join, above: Vec<Logical>) -> Result<Transformed<LogicalPlan>> {
    let own = join.filter.take().map_or_else(Vec::new, split_conjunction_owned);
    if own.is_empty() && above.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let holds_above = if join.join_type == JoinType::Inner { above.as_slice() } else { &[] };
    let sides = Sides::of(&join, own.iter().chain(holds_above));
    let count = own.len();
    let mut shares = Shares::default();
    for condition in above {
        shares.place_above(condition, join.join_type, &sides)?;
    }
    for condition in own {
        shares.place_own(condition, join.join_type, &sides)?;
    }
    let Shares { left, right, on, above } = shares;
    let moves = !left.is_empty() || !right.is_empty() || on.len() > count;
    join.filter = conjunction(on);
    join.left = Arc::new(kept(left, Arc::unwrap_or_clone(join.left))?);
    join.right = Arc::new(kept(right, Arc::unwrap_or_clone(join.right))?);
    moved(LogicalPlan::Join(join), above, moves)
}

impl Shares {
    /// Places a condition on the result rows of a join. It is moved to the side whose columns it reads, if
    /// each result row contains a row of this side. The condition is also applied to the equal columns of the
    /// other side, because other rows there have no partner that satisfies it.
    fn place_above(&mut self, condition: Logical, kind: JoinType, sides: &Sides) -> Result<()> {
        let (keeps_left, keeps_right) = match kind {
            JoinType::Inner => (true, true),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, false),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (false, true)
            }
            JoinType::Full => (false, false),
        };
        if keeps_left && Sides::is_of(&sides.left, &condition) {
            self.right.extend(sides.mirrored(&condition, true)?);
            self.left.push(condition);
        } else if keeps_right && Sides::is_of(&sides.right, &condition) {
            self.left.extend(sides.mirrored(&condition, false)?);
            self.right.push(condition);
        } else if kind == JoinType::Inner {
            self.on.push(condition);
        } else {
            self.above.push(condition);
        }
        Ok(())
    }

    /// Places a condition on the pairs of rows of a join. It can be moved to a side whose rows need a partner
    /// to be in the result.
    fn place_own(&mut self, condition: Logical, kind: JoinType, sides: &Sides) -> Result<()> {
        let (needs_left, needs_right) = kind.on_lr_is_preserved();
        if condition.is_volatile() {
            self.on.push(condition);
        } else if needs_left && Sides::is_of(&sides.left, &condition) {
            self.right.extend(if needs_right { sides.mirrored(&condition, true)? } else { None });
            self.left.push(condition);
        } else if needs_right && Sides::is_of(&sides.right, &condition) {
            self.left.extend(if needs_left { sides.mirrored(&condition, false)? } else { None });
            self.right.push(condition);
        } else {
            self.on.push(condition);
        }
        Ok(())
    }
}

/// Returns whether the computation of the condition can fail with an error.
fn can_fail(condition: &Logical) -> Result<bool> {
    let mut fails = false;
    condition.apply(|e| {
        fails |= match e {
            Logical::Column(_) | Logical::Literal(..) | Logical::Not(_) => false,
            Logical::IsNull(_) | Logical::IsNotNull(_) | Logical::Alias(_) => false,
            // Casts are only used between integers of different widths.
            Logical::Cast(_) => false,
            Logical::BinaryExpr(b) => !(b.op.supports_propagation() || matches!(b.op, Operator::Or)),
            Logical::ScalarFunction(call) => {
                let computed = call.func.inner().downcast_ref::<Computed>();
                !is_key(call) && computed.is_none_or(|computed| may_fail(computed.expr()))
            }
            _ => true,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(fails)
}
