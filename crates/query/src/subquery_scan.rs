//! The plan node `SubqueryScan`: a subquery in FROM that must be computed as it is written.
//!
//! DataFusion does not compute columns that nobody reads, and it does not sort rows whose order nobody needs.
//! But a function can have an effect, such as `setval`, or wait, such as `pg_sleep`. And PostgreSQL keeps the
//! order of such a subquery, so `string_agg` over it returns its values in this order.
//!
//! Invariants
//! 1. The outputs of the subquery are computed for all of its rows that are read, if one of them is volatile.
//! 2. The rows keep the order of the subquery.
//!
//! Source: PostgreSQL 15, `is_simple_subquery` in `prepjointree.c`. It decides which subqueries PostgreSQL
//! merges into the outer query.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Logical, Extension, LogicalPlan, Projection, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use varve_sql::general::SqlError;

use crate::error::wrapped;
use crate::identity::{Identity, compared_by_identity};

/// A subquery as a logical plan.
#[derive(Clone)]
pub struct SubqueryScan {
    id: Identity,
    input: LogicalPlan,
    /// The names of its volatile columns.
    volatile: Vec<String>,
}

impl SubqueryScan {
    /// Returns a plan that computes these volatile columns even if nobody reads them.
    pub fn with_volatile(volatile: Vec<String>, input: LogicalPlan) -> LogicalPlan {
        let node = SubqueryScan { id: Identity::next(), input, volatile };
        LogicalPlan::Extension(Extension { node: Arc::new(node) })
    }

    /// Returns a plan that sorts its rows even if nobody needs their order. The sort may be below projections.
    pub fn keeping_order(plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Projection(Projection { expr, input, schema, .. }) => {
                let input = SubqueryScan::keeping_order(Arc::unwrap_or_clone(input))?;
                let again = Projection::try_new_with_schema(expr, Arc::new(input), schema)?;
                Ok(LogicalPlan::Projection(again))
            }
            sort @ LogicalPlan::Sort(_) => Ok(SubqueryScan::with_volatile(Vec::new(), sort)),
            other => Ok(other),
        }
    }
}

impl fmt::Debug for SubqueryScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubqueryScan")
    }
}

compared_by_identity!(SubqueryScan, volatile, input);

impl UserDefinedLogicalNodeCore for SubqueryScan {
    fn name(&self) -> &str {
        "SubqueryScan"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Logical> {
        Vec::new()
    }

    /// As in PostgreSQL, conditions on other columns than volatile ones are checked before the columns are
    /// computed.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.volatile.iter().cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubqueryScan")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Logical>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let [input] = <[LogicalPlan; 1]>::try_from(inputs)
            .map_err(|_| wrapped(SqlError::internal("a subquery has one input")))?;
        Ok(SubqueryScan { input, ..self.clone() })
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let is_needed =
            |n: &usize| output.contains(n) || self.volatile.contains(self.input.schema().field(*n).name());
        Some(vec![(0..self.input.schema().fields().len()).filter(is_needed).collect()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// Plans `SubqueryScan`.
#[derive(Debug)]
pub struct SubqueryScanPlanner;

#[async_trait]
impl ExtensionPlanner for SubqueryScanPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (true, [input]) = (node.as_any().is::<SubqueryScan>(), inputs) else { return Ok(None) };
        let order = input.output_ordering().cloned().map(OrderingRequirements::from);
        Ok(Some(Arc::new(SubqueryScanPlan { plan: input.clone(), order })))
    }
}

/// Removes `SubqueryScanPlan`, after the rules that would drop columns and sorts.
///
/// The optimizer may have moved the sort below a node that keeps the order of its rows but does not declare
/// it, such as `ApplyPlan`. A check of the plan would then miss the order.
#[derive(Debug)]
pub struct RemoveSubqueryScans;

impl PhysicalOptimizerRule for RemoveSubqueryScans {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let remove = |plan: Arc<dyn ExecutionPlan>| match plan.downcast_ref::<SubqueryScanPlan>() {
            Some(scan) => Ok(Transformed::yes(scan.plan.clone())),
            None => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up(remove)?.data)
    }

    fn name(&self) -> &str {
        "remove_subquery_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The physical plan node above a subquery. It exists only while the plan is optimized.
struct SubqueryScanPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// The order of the subquery. The optimizer keeps the sort of the plan, because this node needs it.
    order: Option<OrderingRequirements>,
}

impl fmt::Debug for SubqueryScanPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for SubqueryScanPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubqueryScanPlan")
    }
}

impl ExecutionPlan for SubqueryScanPlan {
    fn name(&self) -> &str {
        "SubqueryScanPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = children.pop().unwrap_or_else(|| self.plan.clone());
        Ok(Arc::new(SubqueryScanPlan { plan, order: self.order.clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }
}
