//! Chooses the scans and groupings that run in a smart device.
//!
//! With `smart_scan = on`, the device gets each scan of a whole table whose leaves it can read. With `auto`,
//! it gets a scan or grouping if it is predicted to finish before the host (`varve_smart::ScanShape`). The
//! prediction uses a sample of the rows. From a sample of leaves it estimates how many leaves are in the
//! buffer pool, and how many are newer than in the data file.
//!
//! | not for the device | why |
//! |---|---|
//! | a range of an index, a scan that ends after a number of rows | it reads all leaves |
//! | a scan that returns keys, for an UPDATE or DELETE | a device returns no keys |
//! | a scan in a subquery that runs for each outer row | each run would connect to the device |
//! | a scan below a sum of floating-point numbers, or another aggregate that depends on the order of rows | the device returns rows in another order |
//! | tables in memory or in a tablespace, packed or compressed files, AS OF | the device can't read the leaves |
//!
//! Invariants
//! 1. The rule runs before DataFusion adds sorts, so a plan that needs the order of a scan gets a sort.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use varve_engine::LeafLayout;
use varve_smart::ScanShape;
use varve_sql::general::{AggKind, SmartMode, Ty, conjuncts};
use varve_sql::statistics::{PLACES, Sampled, ScanFacts};

use crate::aggregate::folded_by;
use crate::children::with_children;
use crate::fold::Fold;
use crate::scan::{Scan, ScanPlan};
use crate::smart_groups::{SmartGrouping, SmartGroupsPlan};
use crate::smart_program::SmartColumns;
use crate::smart_scan::{SmartChoice, SmartOptions, SmartScanPlan, SmartTimes, current_filter};

/// The number of leaves that are looked at after each place.
const PLACE_LEAVES: usize = 8;
/// If the planner expects more groups, the grouping stays on the host.
const GROUPS_MAX: f64 = 10_000.0;
/// The assumed bytes of a value without a fixed width.
const VALUE_BYTES: f64 = 24.0;

/// The rule.
#[derive(Debug, Clone)]
pub struct SmartScans {
    /// The device.
    pub options: Arc<SmartOptions>,
    /// `Auto` or `On`.
    pub mode: SmartMode,
}

/// What the nodes above a node do with its rows.
#[derive(Clone, Copy, Default)]
struct Above {
    /// They may stop before the last row.
    may_stop: bool,
    /// Their result depends on the order of the rows.
    minds_order: bool,
}

impl PhysicalOptimizerRule for SmartScans {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.node(&plan, Above::default())?.unwrap_or(plan))
    }

    fn name(&self) -> &str {
        "smart_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl SmartScans {
    /// Returns the node that takes the place of this one. `None` if it stays.
    fn node(&self, plan: &Arc<dyn ExecutionPlan>, above: Above) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = plan.downcast_ref::<ScanPlan>() {
            let choice = if above.minds_order { None } else { self.choice(scan, None, above) };
            let smart = choice.map(|choice| SmartScanPlan::new(Arc::new(scan.again()), choice));
            return Ok(smart.map(|smart| Arc::new(smart) as Arc<dyn ExecutionPlan>));
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
            && let Some(grouping) = SmartGrouping::of(aggregate)
            && let Some(choice) = self.choice(grouping.scan(), Some(grouping.keys()), Above::default())
        {
            return Ok(Some(Arc::new(SmartGroupsPlan::new(grouping, plan.clone(), choice))));
        }
        let below = below(plan, above);
        let mut is_changed = false;
        let mut children = Vec::new();
        for (n, child) in plan.children().into_iter().enumerate() {
            let made = self.node(child, below(n))?;
            is_changed |= made.is_some();
            children.push(made.unwrap_or_else(|| child.clone()));
        }
        if is_changed { with_children(plan.clone(), children).map(Some) } else { Ok(None) }
    }

    /// Decides about a scan, or about a grouping of its rows by `keys`.
    fn choice(&self, plan: &ScanPlan, keys: Option<&[usize]>, above: Above) -> Option<SmartChoice> {
        let scan = plan.scan();
        if !plan.is_whole() || self.mode == SmartMode::Off {
            return None;
        }
        let mut reader = scan.snapshot.unnoted_reader().ok()?;
        if self.mode == SmartMode::On {
            // An error here does not fail the query, because the host then scans.
            reader.home_facts(&scan.table, &[Vec::new()], 0).ok()??;
            return Some(SmartChoice { options: self.options.clone(), times: None });
        }
        if above.may_stop {
            return None;
        }
        let times = self.times(scan, keys)?;
        let choice = SmartChoice { options: self.options.clone(), times: Some(times) };
        (times.device_s < times.host_s).then_some(choice)
    }

    /// Predicts the times of a scan or grouping. `None` if the device can't compute it, or the planner knows
    /// too little about it, or expects too many groups.
    fn times(&self, scan: &Scan, keys: Option<&[usize]>) -> Option<SmartTimes> {
        let shape = shape_of(scan, keys)?;
        let SmartOptions { profile, processor_factor, .. } = &*self.options;
        Some(SmartTimes {
            device_s: profile.device_s(&shape, *processor_factor),
            host_s: profile.host_s(&shape, *processor_factor),
        })
    }
}

/// Estimates what a scan reads and returns. `keys` are the columns of a grouping. `None` if the device can't
/// compute it, or too little is known about it, or too many groups are expected.
fn shape_of(scan: &Scan, keys: Option<&[usize]>) -> Option<ScanShape> {
    let mut reader = scan.snapshot.unnoted_reader().ok()?;
    let estimate = reader.estimate(&scan.table, PLACES).ok()?;
    let home = reader.home_facts(&scan.table, &estimate.places, PLACE_LEAVES).ok()??;
    if home.leaves == 0 {
        return None;
    }
    let facts = facts_of(scan, keys)?;
    let groups = keys.map(|keys| if keys.is_empty() { 1.0 } else { facts.distinct(keys).min(facts.rows) });
    if groups.is_some_and(|groups| groups > GROUPS_MAX) {
        return None;
    }
    Some(ScanShape {
        leaves: estimate.leaves as f64,
        page_bytes: reader.page_bytes() as f64,
        rows: facts.table_rows,
        is_by_columns: scan.table.def().storage.layout == LeafLayout::ByColumns,
        kept_rows: facts.rows,
        sent_rows: groups.unwrap_or(facts.rows),
        sent_row_bytes: sent_row_bytes(scan, keys.is_some()),
        newer: home.newer as f64 / home.leaves as f64,
        resident: home.resident as f64 / home.leaves as f64,
    })
}

/// Reads a sample for the conditions that the device checks. `None` if the device cannot compute the grouping.
fn facts_of(scan: &Scan, keys: Option<&[usize]>) -> Option<ScanFacts> {
    let split = SmartColumns::of(&scan.table).split(current_filter(scan).as_ref());
    // The device computes a grouping as a whole or not at all.
    if keys.is_some() && split.rest.is_some() {
        return None;
    }
    let reader = scan.snapshot.unnoted_reader().ok()?;
    let mut sampled = Sampled { table: &scan.table, reader, around: &scan.around };
    let conditions = split.pushed.into_iter().flat_map(conjuncts).collect();
    Some(sampled.facts(conditions, keys.unwrap_or_default()))
}

/// The assumed size of a row that the device sends, in bytes.
fn sent_row_bytes(scan: &Scan, is_group: bool) -> f64 {
    let width = |ordinal: &usize| {
        let width = scan.table.def().columns[*ordinal].column_type.fixed_width_bytes();
        width.map_or(VALUE_BYTES, |bytes| bytes as f64)
    };
    if is_group { VALUE_BYTES } else { scan.columns.iter().map(width).sum() }
}

/// Returns what is above each input of a node.
fn below(plan: &Arc<dyn ExecutionPlan>, above: Above) -> impl Fn(usize) -> Above {
    let mut each = above;
    let mut whole_first = false;
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        each.may_stop = false;
        each.minds_order |= aggregate
            .aggr_expr()
            .iter()
            .any(|call| folded_by(call.fun()).is_none_or(|folded| minds_order(folded.fold, folded.input)));
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let is_sorted = sort.input().equivalence_properties().ordering_satisfy(sort.expr().iter().cloned());
        each.may_stop = is_sorted.unwrap_or(true) && (above.may_stop || sort.fetch().is_some());
    } else if plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>() {
        each.may_stop = true;
    } else {
        // These joins read the whole first input before they return a row.
        whole_first =
            plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>();
    }
    move |n| Above { may_stop: each.may_stop && !(whole_first && n == 0), ..each }
}

/// Returns whether the result of an aggregate can depend on the order of its rows.
fn minds_order(fold: Fold, input: Ty) -> bool {
    let is_float = matches!(input, Ty::Float4 | Ty::Float8);
    match fold {
        Fold::Least => false,
        // The first of equal values.
        Fold::First => !matches!(input, Ty::Text | Ty::Varchar | Ty::Char),
        Fold::Call { kind: AggKind::Count | AggKind::BoolAnd | AggKind::BoolOr, .. } => false,
        Fold::Call { kind: AggKind::BitAnd | AggKind::BitOr | AggKind::BitXor, .. } => false,
        Fold::Call { kind: AggKind::Sum | AggKind::Avg, .. } => is_float,
        // 1.0 and 1.00 are equal, and so are -0 and 0.
        Fold::Call { kind: AggKind::Min | AggKind::Max, .. } => {
            is_float || matches!(input, Ty::Numeric | Ty::Interval)
        }
        Fold::Call { .. } => true,
    }
}
