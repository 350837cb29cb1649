//! A plan node for the side of an outer join that can be padded with NULLs. A column that is constant on this
//! side is not constant after the join.
//!
//! DataFusion does not know this. A join in DataFusion reports the constant columns of both sides as
//! constants of its result (`EquivalenceGroup::join`). Sorts, windows and groups above the join would then
//! ignore such a column. So Varve puts a `padded` node, which reports no constant columns, above the side of
//! the join.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::children::with_children;

/// Puts a `PaddedPlan` above each side of an outer join that can be padded with NULLs and has constant
/// columns.
#[derive(Debug)]
pub struct PaddedSides;

impl PhysicalOptimizerRule for PaddedSides {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        // The plan is changed from the bottom to the top. So each node above is made again with the new
        // properties of the nodes below it.
        Ok(plan.transform_up(padded)?.data)
    }

    fn name(&self) -> &str {
        "padded_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn padded(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(kind) = join_type(plan.as_ref()) else { return Ok(Transformed::no(plan)) };
    let is_padded = match kind {
        JoinType::Left => [false, true],
        JoinType::Right => [true, false],
        JoinType::Full => [true, true],
        _ => return Ok(Transformed::no(plan)),
    };
    let sides = plan.children().into_iter().zip(is_padded);
    let hides =
        |side: &Arc<dyn ExecutionPlan>| !side.properties().equivalence_properties().constants().is_empty();
    if !sides.clone().any(|(side, is_padded)| is_padded && hides(side)) {
        return Ok(Transformed::no(plan));
    }
    let sides = sides.map(|(side, is_padded)| match is_padded && hides(side) {
        true => PaddedPlan::over(side.clone()),
        false => side.clone(),
    });
    let sides = sides.collect();
    with_children(plan, sides).map(Transformed::yes)
}

fn join_type(plan: &dyn ExecutionPlan) -> Option<JoinType> {
    let hash = plan.downcast_ref::<HashJoinExec>().map(|join| join.join_type);
    let loops = || plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let merge = || plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type);
    hash.or_else(loops).or_else(merge)
}

/// A node that returns the rows of a plan, but reports no properties of their columns.
pub struct PaddedPlan {
    plan: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl PaddedPlan {
    fn over(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let of_plan = plan.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            of_plan.output_partitioning().clone(),
            of_plan.emission_type,
            of_plan.boundedness,
        );
        Arc::new(PaddedPlan { plan, properties: Arc::new(properties) })
    }

    /// Returns the plan below this node.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }
}

impl fmt::Debug for PaddedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for PaddedPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PaddedPlan")
    }
}

impl ExecutionPlan for PaddedPlan {
    fn name(&self) -> &str {
        "PaddedPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
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
        Ok(PaddedPlan::over(children.pop().unwrap_or_else(|| self.plan.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }
}
