//! UNION ALL as a plan node. The node has one partition, and reads its inputs one after the other.
//!
//! The node replaces the union node of DataFusion. That node has the partitions of all its inputs, and
//! aggregates above several partitions are computed in parts and then merged. Aggregates of DISTINCT values
//! do not support that.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};

use crate::apply::made;

/// Replaces each union node of DataFusion by an `AppendPlan`.
#[derive(Debug)]
pub struct Appends;

impl PhysicalOptimizerRule for Appends {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let append = |plan: Arc<dyn ExecutionPlan>| {
            if plan.downcast_ref::<UnionExec>().is_none() {
                return Ok(Transformed::no(plan));
            }
            let inputs = plan.children().into_iter().cloned().collect();
            let append: Arc<dyn ExecutionPlan> = Arc::new(AppendPlan::new(inputs, &plan));
            Ok(Transformed::yes(append))
        };
        Ok(plan.transform_up(append)?.data)
    }

    fn name(&self) -> &str {
        "appends"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows of several inputs, one after the other.
pub struct AppendPlan {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
}

impl AppendPlan {
    fn new(inputs: Vec<Arc<dyn ExecutionPlan>>, like: &Arc<dyn ExecutionPlan>) -> AppendPlan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(like.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        AppendPlan { inputs, properties: Arc::new(properties) }
    }
}

impl fmt::Debug for AppendPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for AppendPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppendPlan")
    }
}

impl ExecutionPlan for AppendPlan {
    fn name(&self) -> &str {
        "AppendPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(AppendPlan { inputs, properties: self.properties.clone() }))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let partitions = self.inputs.iter().flat_map(|input| {
            let count = input.properties().output_partitioning().partition_count();
            (0..count).map(|n| (input.clone(), n)).collect::<Vec<_>>()
        });
        let partitions: Vec<_> = partitions.collect();
        let shape = schema.clone();
        let batches = futures::stream::iter(partitions)
            .map(move |(input, n)| -> Result<_> {
                let shape = shape.clone();
                // A column can be nullable in one input and not nullable in another. So each batch gets the
                // schema of the union.
                let batch = move |batch: Result<RecordBatch>| {
                    let batch = batch?;
                    made(&shape, batch.columns().to_vec(), batch.num_rows())
                };
                Ok(input.execute(n, context.clone())?.map(batch))
            })
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
