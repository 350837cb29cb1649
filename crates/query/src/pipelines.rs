//! Chooses the parts of a plan that several threads run. A *pipeline* is a scan of a large table with the
//! nodes above it that take its rows one batch after the other: projections, filters, and hash joins that read
//! it as their right side. Each thread runs the whole pipeline on its share of the table. `GatherPlan` puts
//! the rows together again, below a node that needs all rows before it returns one, and that does not care
//! about their order. These nodes are hash aggregates, sorts, and the left sides of hash joins.
//!
//! Invariants
//! 1. The answer does not depend on the order in which rows come from a pipeline. So an aggregate whose result
//!    can depend on the order, such as `array_agg` or a sum of floating-point numbers, is left as it is, with
//!    everything below it. So is a node that uses the order of the key. There are two exceptions. GROUP BY and
//!    DISTINCT show equal numeric values (1.0 and 1.00) with the digits of any of them. And the plan of a WITH
//!    query that is stored does not know what its readers need.
//! 2. No volatile expression runs on several threads.
//! 3. A plan without an end before the last row has no pipelines. So no condition is evaluated for rows behind
//!    a LIMIT that is already satisfied.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

use crate::aggregate::{Parts, parts_of};
use crate::children::with_children;
use crate::gather::{GatherPlan, Threads};
use crate::scan::ScanPlan;

type Plan = Arc<dyn ExecutionPlan>;

/// Puts the pipelines of a plan on several threads.
#[derive(Debug)]
pub struct Pipelines(pub Arc<Threads>);

impl PhysicalOptimizerRule for Pipelines {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        if self.0.count() < 2 { Ok(plan) } else { self.within(&plan) }
    }

    fn name(&self) -> &str {
        "pipelines"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl Pipelines {
    /// Returns the plan with the pipelines of its parts on several threads.
    fn within(&self, plan: &Plan) -> Result<Plan> {
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            if parts_of_all(aggregate) == Parts::InOrder {
                return Ok(plan.clone());
            }
            if let Some(parted) = self.aggregated(plan, aggregate)? {
                return Ok(parted);
            }
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let is_sorted = sort.input().properties().equivalence_properties();
            if !is_sorted.ordering_satisfy(sort.expr().clone())? {
                return with_children(plan.clone(), vec![self.gathered(sort.input())?]);
            }
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let inputs = vec![self.gathered(&join.left)?, self.within(&join.right)?];
            return with_children(plan.clone(), inputs);
        }
        let children = plan.children().into_iter().map(|child| self.within(child));
        let children = children.collect::<Result<Vec<_>>>()?;
        if children.is_empty() { Ok(plan.clone()) } else { with_children(plan.clone(), children) }
    }

    /// Returns the rows of a plan in any order.
    fn gathered(&self, plan: &Plan) -> Result<Plan> {
        match self.parted(plan)? {
            Some(parted) => Ok(GatherPlan::over(parted, &self.0)),
            None => self.within(plan),
        }
    }

    /// Returns an aggregate over a pipeline. Without GROUP BY, each thread aggregates its rows, and the results
    /// are merged. Returns `None` if the aggregate must stay as it is. The caller has checked that the result
    /// does not depend on the order of the input.
    fn aggregated(&self, plan: &Plan, aggregate: &AggregateExec) -> Result<Option<Plan>> {
        let below = aggregate.input().downcast_ref::<AggregateExec>();
        let (first, input) = match (aggregate.mode(), below) {
            (AggregateMode::Final, Some(first)) if *first.mode() == AggregateMode::Partial => {
                (first, first.input())
            }
            (AggregateMode::Single, _) => (aggregate, aggregate.input()),
            _ => return Ok(None),
        };
        let parts = parts_of_all(first);
        let expressions = first.aggr_expr().iter().flat_map(|e| e.expressions());
        let groups = first.group_expr();
        let mut all = expressions.chain(groups.expr().iter().map(|(e, _)| e.clone()));
        let filters = first.filter_expr().iter().flatten();
        let is_parted = *first.input_order_mode() == InputOrderMode::Linear
            && !groups.has_grouping_set()
            && !all.any(|e| is_volatile(&e))
            && !filters.into_iter().any(is_volatile);
        if !is_parted {
            return Ok(None);
        }
        let Some(pipeline) = self.parted(input)? else { return Ok(None) };
        let is_merged = groups.is_empty() && parts == Parts::Merged;
        if *aggregate.mode() == AggregateMode::Single {
            return with_children(plan.clone(), vec![GatherPlan::over(pipeline, &self.0)]).map(Some);
        }
        let below = if is_merged { pipeline } else { GatherPlan::over(pipeline, &self.0) };
        let first = with_children(aggregate.input().clone(), vec![below])?;
        let first = if is_merged { GatherPlan::over(first, &self.0) } else { first };
        with_children(plan.clone(), vec![first]).map(Some)
    }

    /// Returns a pipeline with a partition for each thread. Returns `None` if the plan is no pipeline.
    fn parted(&self, plan: &Plan) -> Result<Option<Plan>> {
        if let Some(scan) = plan.downcast_ref::<ScanPlan>() {
            let shared = scan.shared_by(self.0.count(), self.0.rows_min());
            return Ok(shared.map(|scan| Arc::new(scan) as Plan));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let is_plain = !projection.expr().iter().any(|e| is_volatile(&e.expr));
            return self.parted_above(plan, is_plain, projection.input());
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let is_plain = filter.fetch().is_none() && !is_volatile(filter.predicate());
            return self.parted_above(plan, is_plain, filter.input());
        }
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let filter = join.filter.as_ref().map(|filter| filter.expression());
        let is_plain = join.mode == PartitionMode::CollectLeft && !join.null_aware && join.fetch().is_none();
        let mut keys = join.on.iter().flat_map(|(left, right)| [left, right]);
        if !is_plain || filter.is_some_and(is_volatile) || keys.any(is_volatile) {
            return Ok(None);
        }
        let Some(right) = self.parted(&join.right)? else { return Ok(None) };
        with_children(plan.clone(), vec![self.gathered(&join.left)?, right]).map(Some)
    }

    fn parted_above(&self, plan: &Plan, is_plain: bool, input: &Plan) -> Result<Option<Plan>> {
        let input = if is_plain { self.parted(input)? } else { None };
        input.map(|input| with_children(plan.clone(), vec![input])).transpose()
    }
}

/// Returns what all functions of an aggregate need.
fn parts_of_all(aggregate: &AggregateExec) -> Parts {
    aggregate.aggr_expr().iter().map(|e| parts_of(e.fun())).max().unwrap_or(Parts::Merged)
}

/// Returns whether the expression calls a volatile function.
pub fn is_volatile(e: &Arc<dyn PhysicalExpr>) -> bool {
    e.is_volatile_node() || e.children().into_iter().any(is_volatile)
}
