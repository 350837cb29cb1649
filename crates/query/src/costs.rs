//! The estimates that EXPLAIN shows for the nodes of a physical plan.
//!
//! Rows of scans come from samples of the tables, as for the planner of joins. If no estimate is known for a
//! node, it is assumed to return as many rows as the node below it.
//!
//! This module does not know how costs are computed (`varve_sql::general::Rates`). The estimates are only
//! shown, because the plan is already chosen.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{JoinSide, JoinType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use varve_sql::general::{Estimate, GROUPS, Rates};
use varve_sql::oid::ASSUMED_BYTES;
use varve_sql::statistics::{GUESSED, Sampled, ScanFacts};

use crate::analyze::Node;
use crate::append::AppendPlan;
use crate::apply::ApplyPlan;
use crate::gather::GatherPlan;
use crate::rows::RowsPlan;
use crate::scan::{Scan, ScanPlan};
use crate::shared::{Leaf, SharedTable};
use crate::smart_groups::{SmartGrouping, SmartGroupsPlan};
use crate::smart_scan::SmartScanPlan;
use crate::spill_join::SpillJoinPlan;

/// The assumed number of rows of a node about which nothing is known.
pub const UNKNOWN_ROWS: f64 = 1000.0;

/// Adds estimates to a node and to all nodes below it.
pub fn add(node: &mut Node, rates: &Rates) {
    Costs { rates, shared: HashMap::new() }.add(node);
}

/// The origin of a column: the scan that returns it, and its ordinal in the table.
type Origin = Option<(Rc<ScanFacts>, usize)>;

/// The known facts about a node.
struct Known {
    estimate: Estimate,
    columns: Vec<Origin>,
}

impl Known {
    /// Returns the number of distinct values of an expression.
    fn distinct(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
        let (facts, ordinal) = self.column(expr)?;
        Some(facts.distinct(&[ordinal]))
    }

    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Origin {
        let column = expr.downcast_ref::<Column>()?;
        self.columns.get(column.index())?.clone()
    }
}

/// The expressions on both sides of a join's conditions.
type Keys<'k> = &'k [(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)];

struct Costs<'r> {
    rates: &'r Rates,
    /// The number of rows of the queries of WITH. Only the first node that reads such a query has its plan
    /// below it.
    shared: HashMap<*const SharedTable, f64>,
}

impl Costs<'_> {
    fn add(&mut self, node: &mut Node) -> Known {
        let below: Vec<Known> = node.inner.iter_mut().map(|inner| self.add(inner)).collect();
        let mut known = self.known(node.plan.as_ref(), &below);
        if let Some(shared) = node.plan.downcast_ref::<Leaf>().and_then(Leaf::shared) {
            let rows = &mut known.estimate.rows;
            match self.shared.get(&Arc::as_ptr(shared)) {
                Some(known) => *rows = *known,
                None => _ = self.shared.insert(Arc::as_ptr(shared), *rows),
            }
        }
        known.estimate.width = width(&node.plan.schema());
        known.estimate.rows = known.estimate.rows.max(1.0);
        node.estimate = Some(known.estimate);
        known
    }

    fn known(&self, plan: &dyn ExecutionPlan, below: &[Known]) -> Known {
        if let Some(scan) = plan.downcast_ref::<ScanPlan>() {
            return self.scan(scan.scan());
        }
        if let Some(smart) = plan.downcast_ref::<SmartScanPlan>() {
            return self.scan(smart.host().scan());
        }
        if let Some(smart) = plan.downcast_ref::<SmartGroupsPlan>() {
            return self.smart_groups(smart.grouping());
        }
        if let Some(joined) = self.join(plan, below) {
            return joined;
        }
        match below {
            [] => {
                let is_one = plan.is::<PlaceholderRowExec>() || plan.is::<EmptyExec>();
                let rows = match plan.downcast_ref::<RowsPlan>() {
                    Some(rows) => rows.count().unwrap_or(UNKNOWN_ROWS),
                    None if is_one => 1.0,
                    None => UNKNOWN_ROWS,
                };
                Known { estimate: self.rates.made(rows), columns: Vec::new() }
            }
            [only] => self.above(plan, only),
            [outer, inner] if plan.is::<ApplyPlan>() => {
                let rows = outer.estimate.rows;
                let estimate = self.rates.nested_loop(outer.estimate, inner.estimate, 0.0, rows);
                Known { estimate, columns: outer.columns.clone() }
            }
            several => {
                let mut estimate = self.rates.append(several.iter().map(|known| known.estimate));
                if !plan.is::<AppendPlan>() && plan.name() != "UnionExec" {
                    estimate.rows = several[0].estimate.rows;
                }
                Known { estimate, columns: Vec::new() }
            }
        }
    }

    fn scan(&self, scan: &Scan) -> Known {
        let Ok(reader) = scan.snapshot.unnoted_reader() else {
            return Known { estimate: self.rates.made(UNKNOWN_ROWS), columns: Vec::new() };
        };
        let mut sampled = Sampled { table: &scan.table, reader, around: &scan.around };
        let facts = Rc::new(sampled.facts(Vec::new(), &scan.columns));
        let (work, mut rows) = sampled.scan(&scan.target(), scan.filter.whole());
        let mut estimate = self.rates.scan(&work, rows);
        if let Some(limit) = scan.limit {
            rows = rows.min(limit as f64);
            estimate = self.rates.limit(estimate, rows);
        }
        let columns = scan.columns.iter().map(|column| Some((facts.clone(), *column))).collect();
        Known { estimate, columns }
    }

    /// Estimates groups that a smart device computes. The cost is that of the host's scan.
    fn smart_groups(&self, grouping: &SmartGrouping) -> Known {
        let scan = Scan { columns: grouping.keys().to_vec(), ..grouping.scan().scan().clone() };
        let mut known = self.scan(&scan);
        known.estimate.rows = match known.columns.first() {
            Some(Some((facts, _))) => facts.distinct(grouping.keys()).min(known.estimate.rows),
            _ => 1.0,
        };
        known
    }

    /// Estimates a node above one other node.
    fn above(&self, plan: &dyn ExecutionPlan, below: &Known) -> Known {
        let estimate = below.estimate;
        let same = |estimate| Known { estimate, columns: below.columns.clone() };
        if plan.is::<CooperativeExec>() || plan.is::<GatherPlan>() {
            return same(estimate);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let filtered = self.rates.filter(estimate, 1.0, estimate.rows * GUESSED);
            return Known {
                estimate: filtered,
                columns: projected(&below.columns, filter.projection().as_deref()),
            };
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let columns = projection.expr().iter().map(|made| below.column(&made.expr));
            return Known { estimate, columns: columns.collect() };
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            return self.aggregate(aggregate, below);
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let sorted = self.rates.sort(estimate);
            return same(match sort.fetch() {
                Some(rows) => self.rates.limit(sorted, rows as f64),
                None => sorted,
            });
        }
        if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
            let rows = limit.fetch().map_or(estimate.rows, |rows| rows as f64);
            return same(self.rates.limit(estimate, rows));
        }
        if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
            return same(self.rates.limit(estimate, limit.fetch() as f64));
        }
        Known { estimate: self.rates.filter(estimate, 1.0, estimate.rows), columns: Vec::new() }
    }

    fn aggregate(&self, aggregate: &AggregateExec, below: &Known) -> Known {
        let keys: Vec<_> = aggregate.group_expr().expr().iter().map(|(key, _)| key).collect();
        let rows = below.estimate.rows;
        let groups = match keys.as_slice() {
            [] => 1.0,
            keys => keys.iter().map(|key| below.distinct(key).unwrap_or(GROUPS)).product::<f64>().min(rows),
        };
        let operators = (keys.len() + aggregate.aggr_expr().len()) as f64;
        let columns = keys.iter().map(|key| below.column(key)).collect();
        Known { estimate: self.rates.group(below.estimate, operators, groups), columns }
    }

    /// Estimates a join. Returns `None` if the node is no join.
    fn join(&self, plan: &dyn ExecutionPlan, below: &[Known]) -> Option<Known> {
        let [left, right] = below else { return None };
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let rows = joined_rows(left, right, join.on(), *join.join_type(), join.filter().is_some());
            let estimate = self.rates.hash_join(left.estimate, right.estimate, join.on().len() as f64, rows);
            let columns = joined_columns(left, right, *join.join_type());
            return Some(Known { estimate, columns: projected(&columns, join.projection.as_deref()) });
        }
        if let Some(join) = plan.downcast_ref::<SpillJoinPlan>() {
            let rows = joined_rows(left, right, join.on(), join.kind(), false);
            let estimate = self.rates.hash_join(left.estimate, right.estimate, join.on().len() as f64, rows);
            return Some(Known { estimate, columns: joined_columns(left, right, join.kind()) });
        }
        if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
            let rows = joined_rows(left, right, join.on(), join.join_type(), join.filter().is_some());
            let estimate = self.rates.merge_join(left.estimate, right.estimate, join.on().len() as f64, rows);
            return Some(Known { estimate, columns: joined_columns(left, right, join.join_type()) });
        }
        if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            let rows = joined_rows(left, right, &[], *join.join_type(), join.filter().is_some());
            // The left side is read once, and kept in memory.
            let estimate = self.pairs(right.estimate, left.estimate, 1.0, rows);
            let columns = joined_columns(left, right, *join.join_type());
            return Some(Known { estimate, columns: projected(&columns, join.projection().as_deref()) });
        }
        if plan.is::<CrossJoinExec>() {
            let rows = left.estimate.rows * right.estimate.rows;
            let estimate = self.pairs(right.estimate, left.estimate, 0.0, rows);
            return Some(Known { estimate, columns: joined_columns(left, right, JoinType::Inner) });
        }
        None
    }

    /// Estimates all pairs of the rows of two nodes, of which the inner one is kept in memory.
    fn pairs(&self, outer: Estimate, inner: Estimate, operators: f64, rows: f64) -> Estimate {
        let kept = Estimate { startup: 0.0, total: inner.rows * self.rates.operator, ..inner };
        let pairs = self.rates.nested_loop(outer, kept, operators, rows);
        Estimate { startup: pairs.startup + inner.total, total: pairs.total + inner.total, ..pairs }
    }
}

/// Returns the number of rows of a join, by the formulas of `estimate`.
fn joined_rows(left: &Known, right: &Known, on: Keys<'_>, kind: JoinType, is_filtered: bool) -> f64 {
    let (left_rows, right_rows) = (left.estimate.rows, right.estimate.rows);
    let domain = on.iter().map(|(l, r)| {
        let (l, r) = (left.distinct(l).unwrap_or(left_rows), right.distinct(r).unwrap_or(right_rows));
        l.max(r)
    });
    let rows = left_rows * right_rows / domain.fold(1.0, f64::max);
    let rows = if is_filtered { rows * GUESSED } else { rows };
    let met = |known: &Known, key: Option<&Arc<dyn PhysicalExpr>>, others: f64| {
        let distinct = key.and_then(|key| known.distinct(key)).unwrap_or(known.estimate.rows);
        (others / distinct.max(1.0)).min(1.0)
    };
    rows_of_kind(kind, rows, [left_rows, right_rows], |side| match side {
        JoinSide::Right => met(right, on.first().map(|(_, r)| r), left_rows),
        _ => met(left, on.first().map(|(l, _)| l), right_rows),
    })
}

/// Returns the number of rows of a join of this kind. `pairs` pairs of rows match. The sides have `left` and
/// `right` rows. `met` returns the fraction of the rows of a side that find a partner.
pub fn rows_of_kind(
    kind: JoinType,
    pairs: f64,
    [left, right]: [f64; 2],
    met: impl Fn(JoinSide) -> f64,
) -> f64 {
    match kind {
        JoinType::Inner => pairs,
        JoinType::Left => pairs.max(left),
        JoinType::Right => pairs.max(right),
        JoinType::Full => pairs.max(left).max(right),
        JoinType::LeftSemi => left * met(JoinSide::Left),
        JoinType::RightSemi => right * met(JoinSide::Right),
        JoinType::LeftAnti => left * 0.5,
        JoinType::RightAnti => right * 0.5,
        JoinType::LeftMark => left,
        JoinType::RightMark => right,
    }
}

fn joined_columns(left: &Known, right: &Known, kind: JoinType) -> Vec<Origin> {
    match kind {
        JoinType::LeftSemi | JoinType::LeftAnti => left.columns.clone(),
        JoinType::RightSemi | JoinType::RightAnti => right.columns.clone(),
        JoinType::LeftMark => left.columns.iter().cloned().chain([None]).collect(),
        JoinType::RightMark => right.columns.iter().cloned().chain([None]).collect(),
        _ => left.columns.iter().chain(&right.columns).cloned().collect(),
    }
}

fn projected(columns: &[Origin], projection: Option<&[usize]>) -> Vec<Origin> {
    match projection {
        Some(projection) => projection.iter().map(|at| columns.get(*at).cloned().flatten()).collect(),
        None => columns.to_vec(),
    }
}

/// Returns the assumed size of a row, in bytes.
fn width(schema: &Schema) -> u32 {
    let bytes = |t: &DataType| match t {
        DataType::Boolean => 1,
        other => other.primitive_width().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(ASSUMED_BYTES),
    };
    schema.fields().iter().map(|field| bytes(field.data_type())).sum()
}
