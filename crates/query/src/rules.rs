//! The rewrite rules of DataFusion that Varve uses, and Varve's own rules that replace others.
//!
//! Each of DataFusion's rules was compared with PostgreSQL's semantics. The table lists rules that are left
//! out on purpose.
//!
//! | rule left out | why |
//! |---|---|
//! | `push_down_filter` | moves conditions that must stay where they are; `conditions` replaces it |
//! | `eliminate_outer_join` | does not know Varve's expressions; `outer_joins` replaces it |
//! | `eliminate_join` | removes a join below a volatile expression, which then runs for fewer rows |
//! | `eliminate_group_by_constant`, `eliminate_duplicated_expr` | use dependencies of columns; not needed |
//! | `eliminate_cross_join` | Varve orders joins itself (`join_order`) |
//! | `common_subexpr_eliminate`, `extract_leaf_expressions` | Varve's expressions are opaque to DataFusion |
//! | `push_down_leaf_projections` | the same |
//! | rules of subqueries, DISTINCT, comparisons of sets | the translation leaves no such nodes |
//! | `aggregate_statistics`, `topk_aggregation`, `window_topn`, others | are for DataFusion's own functions |
//! | `filter_pushdown` | scans have their conditions already; unsafe for aggregates over no rows |
//! | `limit_push_past_windows` | windows are computed over whole partitions |
//!
//! Invariants
//! 1. A rewritten plan returns the rows that PostgreSQL would return for the original plan. An error may
//!    appear or disappear only where PostgreSQL allows that, too.
//!
//! This module does not know the order of joins (`join_order`) or the translation.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::eliminate_limit::EliminateLimit;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimize_unions::OptimizeUnions;
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_coop::EnsureCooperative;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::limit_pushdown::LimitPushdown;
use datafusion::physical_optimizer::limited_distinct_aggregation::LimitedDistinctAggregation;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;

use crate::append::Appends;
use crate::apply::DropUnread;
use crate::built_once::GuardedLoops;
use crate::conditions::MoveConditions;
use crate::filtered_scans::FilteredScans;
use crate::gather::Threads;
use crate::large_limits::LargeLimits;
use crate::merge_joins::{JoinsBy, SpillingJoins};
use crate::outer_joins::ReduceOuterJoins;
use crate::padded::PaddedSides;
use crate::pipelines::Pipelines;
use crate::smart_rule::SmartScans;
use crate::subquery_scan::RemoveSubqueryScans;

/// Returns the rules for logical plans, in the order in which they run.
pub fn logical() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(OptimizeUnions::new()),
        Arc::new(Simplify(SimplifyExpressions::new())),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateLimit::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(ReduceOuterJoins),
        Arc::new(PushDownLimit::new()),
        Arc::new(MoveConditions),
        Arc::new(OptimizeProjections::new()),
        Arc::new(DropUnread),
    ]
}

/// DataFusion's simplification of expressions, except for conditions that were pushed down to a table. A
/// simplified condition might have a form that the table cannot check.
#[derive(Debug)]
struct Simplify(SimplifyExpressions);

impl OptimizerRule for Simplify {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::TableScan(_) => Ok(Transformed::no(plan)),
            other => self.0.rewrite(other, config),
        }
    }
}

/// Returns the rules for physical plans, in the order in which they run. `smart` chooses scans for a smart
/// device, if there is one. `threads` are the threads of one query.
pub fn physical(
    joins: JoinsBy,
    smart: Option<SmartScans>,
    threads: &Arc<Threads>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = Vec::new();
    if joins != JoinsBy::InMemory {
        rules.push(Arc::new(SpillingJoins(joins)));
    }
    rules.extend(smart.map(|smart| Arc::new(smart) as Arc<dyn PhysicalOptimizerRule + Send + Sync>));
    rules.extend::<[Arc<dyn PhysicalOptimizerRule + Send + Sync>; 6]>([
        Arc::new(Appends),
        Arc::new(OutputRequirements::new_add_mode()),
        Arc::new(JoinSelection::new()),
        Arc::new(LimitedDistinctAggregation::new()),
        Arc::new(GuardedLoops { can_swap: joins != JoinsBy::InMemory }),
        Arc::new(PaddedSides),
    ]);
    if joins == JoinsBy::InMemory {
        rules.push(Arc::new(Pipelines(threads.clone())));
    }
    rules.extend::<[Arc<dyn PhysicalOptimizerRule + Send + Sync>; 10]>([
        Arc::new(EnsureRequirements::new()),
        Arc::new(CombinePartialFinalAggregate::new()),
        Arc::new(ProjectionPushdown::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
        Arc::new(RemoveSubqueryScans),
        Arc::new(LimitPushdown::new()),
        Arc::new(LargeLimits { is_thrifty: joins == JoinsBy::Spilling }),
        Arc::new(EnsureCooperative::new()),
        Arc::new(SanityCheckPlan::new()),
        Arc::new(FilteredScans),
    ]);
    rules
}
