//! Changes sorts with a large limit. DataFusion keeps the first rows of such a sort in memory (top-k), and
//! cannot spill them. A sort without a limit can spill.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The most rows that a sort keeps in memory, in the first plan of a query.
const ROWS_MAX: usize = 1 << 14;
/// The most rows that a sort keeps in memory, in the plan of a query that has run out of memory.
const THRIFTY_ROWS_MAX: usize = 1 << 10;

/// Replaces a sort with a large limit by a sort without a limit, and a limit. This rule must run after the
/// rule that moves limits into sorts.
#[derive(Debug)]
pub struct LargeLimits {
    /// Whether the query has run out of memory.
    pub is_thrifty: bool,
}

impl PhysicalOptimizerRule for LargeLimits {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rows_max = if self.is_thrifty { THRIFTY_ROWS_MAX } else { ROWS_MAX };
        let replace = |plan: Arc<dyn ExecutionPlan>| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(Transformed::no(plan)) };
            let Some(fetch) = sort.fetch().filter(|fetch| *fetch > rows_max) else {
                return Ok(Transformed::no(plan));
            };
            let sort: Arc<dyn ExecutionPlan> = Arc::new(SortExec::with_fetch(sort, None));
            let limit: Arc<dyn ExecutionPlan> = match sort.output_partitioning().partition_count() {
                1 => Arc::new(GlobalLimitExec::new(sort, 0, Some(fetch))),
                _ => Arc::new(LocalLimitExec::new(sort, fetch)),
            };
            Ok(Transformed::yes(limit))
        };
        Ok(plan.transform_up(replace)?.data)
    }

    fn name(&self) -> &str {
        "large_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
