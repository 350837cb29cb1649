//! A plan node around another node. It returns the rows of that node, and an observer acts when they are
//! read. An observer can end the rows with an error.
//!
//! Three observers exist: `cancel.rs` checks for a cancel request, `analyze.rs` measures rows and time, and
//! `runtime_filter.rs` collects keys.
//! `PaddedPlan` is not such a node. It acts on no row, but it changes the properties of its plan.
//!
//! Invariants
//! 1. The node is added after the optimizer has run. EXPLAIN sees the name, the properties and the text
//!    of the observed node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Acts when the rows of a node are read.
pub trait Observer: Clone + Send + Sync + 'static {
    /// Runs the node. The stream has the rows of the node, unless the observer ends it with an error.
    fn execute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;

    /// Removes what belongs to the last execution of the plan.
    fn forget(&self) {}
}

/// A node and its observer.
pub struct Observed<O> {
    plan: Arc<dyn ExecutionPlan>,
    observer: O,
}

impl<O: Observer> Observed<O> {
    /// Puts the observer above the node.
    pub fn over(plan: Arc<dyn ExecutionPlan>, observer: O) -> Arc<dyn ExecutionPlan> {
        Arc::new(Observed { plan, observer })
    }

    /// Returns the observed node.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }
}

impl<O> fmt::Debug for Observed<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

impl<O> DisplayAs for Observed<O> {
    fn fmt_as(&self, how: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt_as(how, f)
    }
}

impl<O: Observer> ExecutionPlan for Observed<O> {
    fn name(&self) -> &str {
        self.plan.name()
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
        Ok(Observed::over(plan, self.observer.clone()))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.observer.forget();
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.observer.execute(&self.plan, partition, context)
    }
}
