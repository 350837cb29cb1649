//! A guard against a fault of DataFusion's nested loop join, and the rule that sets it.
//!
//! If the left input does not fit in memory, this join reads the left input again and joins it in pieces. It
//! returns unmatched rows of the right input after the last piece. The last piece is empty if the memory
//! limit was reached with the last batch. Then DataFusion 55 ends the join without returning unmatched rows
//! (`handle_buffering_left_memory_limited` in `nested_loop_join.rs`). So right, full, right semi and right
//! anti joins lose rows.
//!
//! The guard refuses the second reading with the error of exhausted memory. Then `run` plans the query again.
//! The new plan swaps the inputs of such a join. The unmatched rows are then rows of the left input, which
//! DataFusion returns after each piece. A full join has unmatched rows of both inputs, so swapping does not
//! help. It fails with 53200 instead of losing rows.
//!
//! Invariants
//! 1. A guarded plan runs once after it was made or reset (`reset_plan_states`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinType, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use varve_sql::SqlError;

use crate::children::with_children;
use crate::error::wrapped;

/// Guards nested loop joins that can return unmatched rows of the right input.
#[derive(Debug)]
pub struct GuardedLoops {
    /// Whether the rule swaps the inputs where that is possible, so that the join can spill.
    pub can_swap: bool,
}

impl PhysicalOptimizerRule for GuardedLoops {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let guard = |plan: Arc<dyn ExecutionPlan>| match plan.downcast_ref::<NestedLoopJoinExec>() {
            Some(join) => self.guarded(join, &plan),
            None => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up(guard)?.data)
    }

    fn name(&self) -> &str {
        "guarded_loops"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl GuardedLoops {
    fn guarded(
        &self,
        join: &NestedLoopJoinExec,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let is_full = match join.join_type() {
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => false,
            JoinType::Full => true,
            _ => return Ok(Transformed::no(plan.clone())),
        };
        if self.can_swap && !is_full {
            return Ok(Transformed::yes(join.swap_inputs()?));
        }
        let inputs = vec![BuiltOncePlan::over(join.left().clone()), join.right().clone()];
        with_children(plan.clone(), inputs).map(Transformed::yes)
    }
}

/// A node that returns the rows of a plan once, and then fails.
pub struct BuiltOncePlan {
    plan: Arc<dyn ExecutionPlan>,
    has_run: AtomicBool,
}

impl BuiltOncePlan {
    fn over(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(BuiltOncePlan { plan, has_run: AtomicBool::new(false) })
    }

    /// Returns the plan below this node.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }
}

impl fmt::Debug for BuiltOncePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for BuiltOncePlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuiltOncePlan")
    }
}

impl ExecutionPlan for BuiltOncePlan {
    fn name(&self) -> &str {
        "BuiltOncePlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
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
        match children.pop() {
            Some(plan) if children.is_empty() => Ok(BuiltOncePlan::over(plan)),
            _ => Err(wrapped(SqlError::internal("a guard has one input"))),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if self.has_run.swap(true, Relaxed) {
            let what = "a nested loop join cannot return unmatched rows of its right input from files";
            return Err(DataFusionError::ResourcesExhausted(what.to_owned()));
        }
        self.plan.execute(partition, context)
    }
}
