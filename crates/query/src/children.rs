//! Replaces the inputs of a plan node.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

/// Returns the node with these inputs instead of its own.
#[expect(deprecated, reason = "its successor does the same, and our own nodes have only this one")]
pub fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.with_new_children(children)
}
