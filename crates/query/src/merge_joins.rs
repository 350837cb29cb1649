//! Joins that spill to files, for a query that has run out of memory, and for a session that forces a method.
//! `run` decides when a query uses them.
//!
//! | join | replaced by |
//! |---|---|
//! | inner, left, right, full, semi or anti join with an equality | `SpillJoinPlan` |
//! | mark join | DataFusion's merge join, or nothing if a method is forced |
//! | NOT IN with NULLs | nothing: only the hash join can do it |

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use varve_spill::JoinMethod;

use crate::spill_join::SpillJoinPlan;

/// Says how joins by equality are planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinsBy {
    /// DataFusion's hash joins, which are in memory.
    InMemory,
    /// Joins that spill, by the cheapest method.
    Spilling,
    /// Joins that spill, by this method.
    Method(JoinMethod),
}

/// Replaces hash joins by joins that spill. This rule must run before the rules that add the sorts for merge
/// joins.
#[derive(Debug)]
pub struct SpillingJoins(pub JoinsBy);

/// The sort order of the keys. It is the order of a scan along an index.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

impl PhysicalOptimizerRule for SpillingJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let mut joins = 0;
        plan.apply(|node| {
            joins += usize::from(node.downcast_ref::<HashJoinExec>().is_some());
            Ok(TreeNodeRecursion::Continue)
        })?;
        let replace = |plan: Arc<dyn ExecutionPlan>| {
            let join = plan.downcast_ref::<HashJoinExec>().map(|join| self.instead_of(join, joins));
            let join = join.transpose()?;
            Ok(join.flatten().map_or_else(|| Transformed::no(plan), Transformed::yes))
        };
        Ok(plan.transform_up(replace)?.data)
    }

    fn name(&self) -> &str {
        "spilling_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl SpillingJoins {
    fn instead_of(&self, join: &HashJoinExec, joins: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let method = match self.0 {
            JoinsBy::InMemory => return Ok(None),
            JoinsBy::Spilling => None,
            JoinsBy::Method(method) => Some(method),
        };
        if let Some(spilling) = SpillJoinPlan::instead_of(join, method, joins)? {
            return Ok(Some(Arc::new(spilling)));
        }
        if method.is_some() || join.null_aware || join.projection.is_some() {
            return Ok(None);
        }
        Ok(Some(Arc::new(SortMergeJoinExec::try_new(
            join.left.clone(),
            join.right.clone(),
            join.on.clone(),
            join.filter.clone(),
            join.join_type,
            vec![ORDER; join.on.len()],
            join.null_equality,
        )?)))
    }
}
