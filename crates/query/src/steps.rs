//! Names of plan nodes in EXPLAIN. A node has the name that PostgreSQL uses, if there is one. EXPLAIN VERBOSE
//! also shows DataFusion's own description of a node.

use std::fmt;

use datafusion::common::JoinType;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use varve_spill::JoinMethod;
use varve_sql::general::{Actual, Step};

use crate::analyze::Node;
use crate::append::AppendPlan;
use crate::apply::ApplyPlan;
use crate::gather::GatherPlan;
use crate::rows::RowsPlan;
use crate::scan::ScanPlan;
use crate::shared::Leaf;
use crate::smart_groups::SmartGroupsPlan;
use crate::smart_scan::SmartScanPlan;
use crate::spill_join::{SpillJoinPlan, method_name};

/// Returns the steps of a plan for EXPLAIN.
///
/// Nodes that only compute columns, or that only return to the executor from time to time, have no step of
/// their own. They are shown as part of the step below them.
pub fn step(node: &Node) -> Step {
    let mut inner: Vec<Step> = node.inner.iter().map(step).collect();
    let computes = node.plan.is::<ProjectionExec>();
    if (computes || node.plan.is::<CooperativeExec>())
        && inner.len() == 1
        && let Some(below) = inner.pop()
    {
        return merged(node, below, computes);
    }
    let mut actual = node.actual();
    if node.plan.is::<FilterExec>()
        && let (Some(own), Some(below)) = (&mut actual, inner.first().and_then(|i| i.actual))
    {
        own.left_out = below.rows.saturating_sub(own.rows);
    }
    let line = Line(node.plan.as_ref()).to_string();
    let named = named(node.plan.as_ref());
    let verbose = vec![("Step", line.trim().to_owned())];
    let below = inner.iter().flat_map(|step| step.outputs.iter().cloned());
    let outputs = named.outputs.iter().cloned().chain(below).collect();
    Step { label: node.label.clone(), verbose, outputs, estimate: node.estimate, actual, inner, ..named }
}

/// Returns the step below a node that has no step of its own, with the data of this node added.
fn merged(node: &Node, mut below: Step, computes: bool) -> Step {
    if let (Some(own), Some(actual)) = (node.actual(), &mut below.actual) {
        let Actual { left_out, unpaired, spilled_bytes, leaves, .. } = *actual;
        *actual = Actual { left_out, unpaired, spilled_bytes, leaves, ..own };
    }
    if computes && !below.verbose.iter().any(|(key, _)| *key == "Computed") {
        below.verbose.push(("Computed", Line(node.plan.as_ref()).to_string()));
    }
    let estimate = node.estimate.or(below.estimate);
    Step { label: node.label.clone().or(below.label), estimate, ..below }
}

/// Displays a node as DataFusion does.
struct Line<'p>(&'p dyn ExecutionPlan);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayAs::fmt_as(self.0, DisplayFormatType::Default, f)
    }
}

fn named(plan: &dyn ExecutionPlan) -> Step {
    if let Some(scan) = plan.downcast_ref::<ScanPlan>() {
        return scan.step();
    }
    if let Some(scan) = plan.downcast_ref::<SmartScanPlan>() {
        return scan.step();
    }
    if let Some(groups) = plan.downcast_ref::<SmartGroupsPlan>() {
        return groups.step();
    }
    if let Some(rows) = plan.downcast_ref::<RowsPlan>() {
        return rows.step();
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return joined("Hash", "Hash Join", *join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        return joined("Merge", "Merge Join", join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<SpillJoinPlan>() {
        return spilling(join);
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return joined("Nested Loop", "Nested Loop", *join.join_type());
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return grouped(aggregate);
    }
    if let Some(gather) = plan.downcast_ref::<GatherPlan>() {
        return Step::new("Gather").note("Workers Planned", gather.planned().to_string());
    }
    if let Some(leaf) = plan.downcast_ref::<Leaf>() {
        return Step::new(if leaf.shared().is_some() { "CTE Scan" } else { "WorkTable Scan" });
    }
    if let Some(apply) = plan.downcast_ref::<ApplyPlan>() {
        return Step::new(if apply.gives_rows() { "Nested Loop" } else { "Result" });
    }
    Step::new(plain_name(plan))
}

fn plain_name(plan: &dyn ExecutionPlan) -> String {
    let name = if plan.is::<SortExec>() {
        "Sort"
    } else if plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>() {
        "Limit"
    } else if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
        "WindowAgg"
    } else if plan.is::<CrossJoinExec>() {
        "Nested Loop"
    } else if plan.is::<AppendPlan>() {
        "Append"
    } else if plan.is::<ProjectionExec>() || plan.is::<EmptyExec>() || plan.is::<PlaceholderRowExec>() {
        "Result"
    } else {
        let own = plan.name();
        if own == "ExpandPlan" {
            return "ProjectSet".into();
        }
        own.strip_suffix("Exec").or_else(|| own.strip_suffix("Plan")).unwrap_or(own)
    };
    name.to_owned()
}

/// Returns the step of a join. The names of the join types refer to DataFusion's left side, which is kept in
/// memory.
fn joined(short: &str, node_type: &str, kind: JoinType) -> Step {
    let (word, fact) = match kind {
        JoinType::Inner => ("", "Inner"),
        JoinType::Left => (" Left", "Left"),
        JoinType::Right => (" Right", "Right"),
        JoinType::Full => (" Full", "Full"),
        JoinType::LeftSemi | JoinType::LeftMark => (" Semi", "Semi"),
        JoinType::RightSemi | JoinType::RightMark => (" Right Semi", "Right Semi"),
        JoinType::LeftAnti => (" Anti", "Anti"),
        JoinType::RightAnti => (" Right Anti", "Right Anti"),
    };
    let name = if word.is_empty() { node_type.to_owned() } else { format!("{short}{word} Join") };
    let step = if name == node_type { Step::new(name) } else { Step::new(name).fact("Node Type", node_type) };
    step.fact("Join Type", fact)
}

/// Returns the step of a join that may spill, with the facts about its last run.
fn spilling(join: &SpillJoinPlan) -> Step {
    let ran = join.ran();
    let step = match ran.method {
        Some(JoinMethod::NestedLoops) => joined("Nested Loop", "Nested Loop", join.kind()),
        Some(JoinMethod::SortMerge) => joined("Merge", "Merge Join", join.kind()),
        _ => joined("Hash", "Hash Join", join.kind()),
    };
    let step = step.note("Join Method", ran.method.map_or("chosen by cost", method_name));
    let step = match &*ran.predicted_us {
        [] => step,
        times => step.note("Predicted Times", predicted(times)),
    };
    if ran.peak_bytes == 0 {
        return step;
    }
    let step = step.note("Peak Memory", format!("{}kB", ran.peak_bytes.div_ceil(1024)));
    if ran.partitions == 0 { step } else { step.note("Partitions", ran.partitions.to_string()) }
}

/// Returns the predicted times of methods as text, in milliseconds.
fn predicted(times: &[(JoinMethod, f64)]) -> String {
    let shown = times.iter().map(|(method, us)| format!("{} {:.1} ms", method_name(*method), us / 1e3));
    shown.collect::<Vec<_>>().join(", ")
}

fn grouped(aggregate: &AggregateExec) -> Step {
    let is_hashed = !aggregate.group_expr().is_empty();
    let part = match aggregate.mode() {
        AggregateMode::Partial | AggregateMode::PartialReduce => "Partial ",
        AggregateMode::Final | AggregateMode::FinalPartitioned => "Finalize ",
        AggregateMode::Single | AggregateMode::SinglePartitioned => "",
    };
    let (kind, strategy) = if is_hashed { ("HashAggregate", "Hashed") } else { ("Aggregate", "Plain") };
    Step::new(format!("{part}{kind}")).fact("Node Type", "Aggregate").fact("Strategy", strategy)
}
