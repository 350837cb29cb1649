//! Merge joins, for a query that has run out of memory. Both sides of the join are sorted, and then merged.
//! Sorting can spill to files. `run` decides when a query uses merge joins.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};

/// Replaces hash joins by merge joins. This rule must run before the rules that add the sorts for merge
/// joins.
#[derive(Debug)]
pub struct MergeJoins;

/// The sort order of the keys. It is the order of a scan along an index.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

impl PhysicalOptimizerRule for MergeJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let merge = |plan: Arc<dyn ExecutionPlan>| match plan.downcast_ref::<HashJoinExec>() {
            // Only a hash join can compute NOT IN with NULLs.
            Some(join) if !join.null_aware && join.projection.is_none() => {
                Ok(Transformed::yes(merged(join)?))
            }
            _ => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up(merge)?.data)
    }

    fn name(&self) -> &str {
        "merge_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn merged(join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(SortMergeJoinExec::try_new(
        join.left.clone(),
        join.right.clone(),
        join.on.clone(),
        join.filter.clone(),
        join.join_type,
        vec![ORDER; join.on.len()],
        join.null_equality,
    )?))
}
