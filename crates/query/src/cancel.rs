//! Puts checks for cancel requests into the parts of a plan that can make many rows, or many pairs of rows,
//! from few rows.
//!
//! Without these checks, DataFusion can be interrupted only at the leaves of a plan. A join may produce many
//! batches from rows that it has already read, and the operator above may read all of them in one poll. A
//! join that keeps few of its pairs may produce no batch for a long time.
//!
//! Invariants
//! 1. Above each join there is a node that checks for a cancel request at each batch.
//! 2. A join may form many pairs and return few rows. Such a join has a condition that checks at each batch
//!    of pairs.
//! 3. All physical plans are made by `physical_plan`, so every plan has these nodes.
//!
//! Scans, expressions, set-returning functions and window frames check for cancel requests themselves.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ColumnarValue, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use varve_sql::general::Around;

use crate::error::wrapped;
use crate::observed::{Observed, Observer};
use crate::spill_join::SpillJoinPlan;

/// Returns the physical plan of a query, or of a part of it that is planned separately. `around` knows
/// whether the query is cancelled.
pub async fn physical_plan(
    session: &dyn Session,
    plan: &LogicalPlan,
    around: &Arc<Around>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = session.create_physical_plan(plan).await?;
    let watch = |node: Arc<dyn ExecutionPlan>| match looking(&node, around)? {
        Some(plan) => {
            let watched = Watched::over(plan, CancelCheck { around: around.clone() });
            Ok(Transformed::yes(watched))
        }
        None => Ok(Transformed::no(node)),
    };
    Ok(plan.transform_up(watch)?.data)
}

/// Returns the join with a condition that checks for a cancel request. Returns `None` if the node is not a
/// join.
fn looking(node: &Arc<dyn ExecutionPlan>, around: &Arc<Around>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = condition(join.filter.as_ref(), join.join_type, around);
        return Ok(Some(join.builder().with_filter(filter).build_exec()?));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (join.left().clone(), join.right().clone());
        let filter = condition(join.filter(), *join.join_type(), around);
        let projection = join.projection().as_ref().map(|columns| columns.to_vec());
        let join = NestedLoopJoinExec::try_new(left, right, filter, join.join_type(), projection)?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        return Ok(Some(Arc::new(SortMergeJoinExec::try_new(
            join.left.clone(),
            join.right.clone(),
            join.on.clone(),
            // Without a condition, the join skips equal keys that it does not need to pair. So no condition
            // is added here.
            join.filter.as_ref().map(|filter| that_looks(filter, around)),
            join.join_type,
            join.sort_options.clone(),
            join.null_equality,
        )?)));
    }
    if let Some(join) = node.downcast_ref::<SpillJoinPlan>() {
        // Such a join checks for a cancel request at each of its steps.
        return Ok(Some(Arc::new(join.watched(around))));
    }
    Ok(node.is::<CrossJoinExec>().then(|| node.clone()))
}

/// Returns the condition of a join that forms all pairs, with a check for a cancel request. Returns `None` if
/// the join has no condition and returns each of its pairs.
fn condition(filter: Option<&JoinFilter>, kind: JoinType, around: &Arc<Around>) -> Option<JoinFilter> {
    let gives_pairs = matches!(kind, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full);
    match filter {
        Some(filter) => Some(that_looks(filter, around)),
        None if gives_pairs => None,
        None => {
            let always = Arc::new(Literal::new(ScalarValue::Boolean(Some(true))));
            Some(that_looks(&JoinFilter::new(always, Vec::new(), Arc::new(Schema::empty())), around))
        }
    }
}

fn that_looks(filter: &JoinFilter, around: &Arc<Around>) -> JoinFilter {
    let condition = Arc::new(Condition { condition: filter.expression().clone(), around: around.clone() });
    JoinFilter::new(condition, filter.column_indices().to_vec(), filter.schema().clone())
}

/// A join below a check for a cancel request at each of its batches.
pub type Watched = Observed<CancelCheck>;

/// The check for a cancel request.
#[derive(Clone)]
pub struct CancelCheck {
    around: Arc<Around>,
}

impl Observer for CancelCheck {
    fn execute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (rows, around) = (plan.execute(partition, context)?, self.around.clone());
        let schema = rows.schema();
        let rows = rows.map(move |batch| around.check_cancel().map_err(wrapped).and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// A condition that checks for a cancel request at each batch.
#[derive(Debug)]
struct Condition {
    condition: Arc<dyn PhysicalExpr>,
    around: Arc<Around>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.around, &other.around) && self.condition.eq(&other.condition)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.around.check_cancel().map_err(wrapped)?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = children.pop().unwrap_or_else(|| self.condition.clone());
        Ok(Arc::new(Condition { condition, around: self.around.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
