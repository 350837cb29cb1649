//! Gives scans the runtime filters (`runtime_filter.rs`) of the hash joins above them.
//!
//! A hash join reads its left input completely before its right input. `CollectKeys` above the left input puts
//! the values of a key column into a set. A scan below the right input then checks the same column before it
//! decodes the other columns of a row. The join still compares the keys, so a set may claim too many keys. The
//! technique is known as sideways information passing (Beeri and Ramakrishnan 1991) and as join filters.
//!
//! Invariants
//! 1. A row that a scan leaves out changes no row of the query: each node between the scan and the join would
//!    only pass it on, pair it, or group it with rows that have the same key, until the join drops it.
//! 2. A set belongs to one run of the left input. `CollectKeys` removes the set when it begins, and publishes
//!    the new one after the last row. A scan that finds no set returns all rows.
//! 3. A scan whose own conditions can fail checks them first, so their errors do not depend on the keys of
//!    other tables. There is one exception: if a join has no keys, its scans end before their first row.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::children::with_children;
use crate::gather::GatherPlan;
use crate::key_set::KeySetBuilder;
use crate::observed::Observed;
use crate::padded::PaddedPlan;
use crate::pipelines::is_volatile;
use crate::runtime_filter::{CollectKeys, RuntimeFilter};
use crate::scan::ScanPlan;

type Plan = Arc<dyn ExecutionPlan>;

/// Gives the scans of a plan the runtime filters of the joins above them.
#[derive(Debug)]
pub struct FilteredScans;

impl PhysicalOptimizerRule for FilteredScans {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        let filtered = |plan: Plan| {
            let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
            let joined = joined(&plan, join)?;
            Ok(joined.map_or_else(|| Transformed::no(plan.clone()), Transformed::yes))
        };
        Ok(plan.transform_up(filtered)?.data)
    }

    fn name(&self) -> &str {
        "filtered_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the join with filters for the scans of its right input. Returns `None` if it has none.
fn joined(plan: &Plan, join: &HashJoinExec) -> Result<Option<Plan>> {
    let drops = matches!(
        join.join_type,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::RightSemi
    );
    let is_read_once = join.mode == PartitionMode::CollectLeft
        || join.right.properties().output_partitioning().partition_count() == 1;
    let is_plain = join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware;
    let left_partitions = join.left.properties().output_partitioning().partition_count();
    if !drops || !is_read_once || !is_plain || left_partitions != 1 {
        return Ok(None);
    }
    let (mut right, mut collected) = (join.right.clone(), Vec::new());
    for (left_key, right_key) in &join.on {
        let (Some(left_key), Some(right_key)) = (column(left_key), column(right_key)) else { continue };
        let (ty, right_schema) = (join.left.schema().field(left_key).data_type().clone(), right.schema());
        if !KeySetBuilder::takes(&ty) || *right_schema.field(right_key).data_type() != ty {
            continue;
        }
        let filter = Arc::<RuntimeFilter>::default();
        if let Some(filtered) = below(&right, right_key, &filter)? {
            right = filtered;
            collected.push((left_key, filter));
        }
    }
    if collected.is_empty() {
        return Ok(None);
    }
    let left = Observed::over(join.left.clone(), CollectKeys::of(collected));
    with_children(plan.clone(), vec![left, right]).map(Some)
}

fn column(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expression.downcast_ref::<Column>().map(Column::index)
}

/// Returns the plan with the filter for this column at the scans that the column comes from. Returns `None` if
/// there is no such scan.
fn below(plan: &Plan, at: usize, filter: &Arc<RuntimeFilter>) -> Result<Option<Plan>> {
    if let Some(scan) = plan.downcast_ref::<ScanPlan>() {
        return Ok(scan.filtered(at, filter).map(|scan| Arc::new(scan) as Plan));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return below_join(plan, join, at, filter);
    }
    let inner = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let is_plain = !projection.expr().iter().any(|e| is_volatile(&e.expr));
        let from = projection.expr().get(at).filter(|_| is_plain).and_then(|e| column(&e.expr));
        from.map(|from| (projection.input(), from))
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        grouped_by(aggregate, at).map(|from| (aggregate.input(), from))
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        sort.fetch().is_none().then(|| (sort.input(), at))
    } else if passes_rows_on(plan) {
        plan.children().first().map(|inner| (*inner, at))
    } else {
        None
    };
    let Some((inner, from)) = inner else { return Ok(None) };
    let inner = below(inner, from, filter)?;
    inner.map(|inner| with_children(plan.clone(), vec![inner])).transpose()
}

/// Returns whether a node has one input and returns its rows.
fn passes_rows_on(plan: &Plan) -> bool {
    plan.is::<GatherPlan>()
        || plan.is::<PaddedPlan>()
        || plan.is::<CooperativeExec>()
        || plan.is::<Observed<CollectKeys>>()
}

/// Returns the column of the input by which an aggregate groups its rows, if `at` is such a column.
fn grouped_by(aggregate: &AggregateExec, at: usize) -> Option<usize> {
    let is_known =
        matches!(aggregate.mode(), AggregateMode::Single | AggregateMode::Partial | AggregateMode::Final);
    let groups = aggregate.group_expr();
    let functions = aggregate.aggr_expr().iter().flat_map(|e| e.expressions());
    let mut all = functions.chain(groups.expr().iter().map(|(e, _)| e.clone()));
    let is_plain = !groups.has_grouping_set()
        && aggregate.limit_options().is_none()
        && !all.any(|e| is_volatile(&e))
        && !aggregate.filter_expr().iter().flatten().any(is_volatile);
    let (group, _) = groups.expr().get(at).filter(|_| is_known && is_plain)?;
    column(group)
}

/// Does the same as `below` for a column of a join. If the column equals a column of the other side in an
/// inner join, the scans of both sides get the filter.
fn below_join(
    plan: &Plan,
    join: &HashJoinExec,
    at: usize,
    filter: &Arc<RuntimeFilter>,
) -> Result<Option<Plan>> {
    let is_plain = !join.null_aware
        && join.fetch().is_none()
        && !join.filter.as_ref().is_some_and(|filter| is_volatile(filter.expression()));
    let at = join.projection.as_ref().map_or(Some(at), |columns| columns.get(at).copied());
    let Some((side, at)) = at.filter(|_| is_plain).and_then(|at| place(join, at)) else { return Ok(None) };
    let [mut left, mut right] = [None, None];
    match side {
        JoinSide::Left => left = Some(at),
        _ => right = Some(at),
    }
    if join.join_type == JoinType::Inner {
        for (left_key, right_key) in &join.on {
            let (left_key, right_key) = (column(left_key), column(right_key));
            if left_key.is_some() && right_key.is_some() && (left_key == left || right_key == right) {
                (left, right) = (left_key, right_key);
                break;
            }
        }
    }
    let of = |side: &Plan, at: Option<usize>| match at {
        Some(at) => below(side, at, filter),
        None => Ok(None),
    };
    let (left, right) = (of(&join.left, left)?, of(&join.right, right)?);
    if left.is_none() && right.is_none() {
        return Ok(None);
    }
    let left = left.unwrap_or_else(|| join.left.clone());
    let right = right.unwrap_or_else(|| join.right.clone());
    with_children(plan.clone(), vec![left, right]).map(Some)
}

/// Returns the side of a join, and the column of this side, that a column of its unprojected output shows.
/// Returns `None` if rows of this side that are left out would change other rows of the output.
fn place(join: &HashJoinExec, at: usize) -> Option<(JoinSide, usize)> {
    let left_width = join.left.schema().fields().len();
    let side = match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => JoinSide::Left,
        JoinType::RightSemi | JoinType::RightAnti => JoinSide::Right,
        JoinType::Inner if at < left_width => JoinSide::Left,
        JoinType::Inner => JoinSide::Right,
        JoinType::Left if at < left_width => JoinSide::Left,
        JoinType::Right if at >= left_width => JoinSide::Right,
        _ => return None,
    };
    let has_both = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right);
    let skipped = if side == JoinSide::Right && has_both { left_width } else { 0 };
    Some((side, at - skipped))
}
