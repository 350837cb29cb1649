//! Estimates the number of rows of the parts of a logical plan, from samples of its tables.
//!
//! This module does not know how the estimates are used (`join_order`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{Column, JoinSide};
use datafusion::logical_expr::{Expr as Logical, FetchType, LogicalPlan, TableScan};
use varve_sql::statistics::{GUESSED, ScanFacts};

use crate::columns::column_ordinal;
use crate::costs::{UNKNOWN_ROWS, rows_of_kind};
use crate::subquery_scan::SubqueryScan;
use crate::table::SnapshotTable;

/// The estimated number of rows of a group, if the distinct values of the keys are unknown.
const GROUP_ROWS: f64 = 4.0;

/// Estimates the parts of one plan. Each table is sampled once.
#[derive(Default)]
pub struct Estimator {
    scans: RefCell<HashMap<String, Option<Rc<ScanFacts>>>>,
}

impl Estimator {
    /// Returns the estimated number of rows of a plan, which is at least one.
    pub fn rows(&self, plan: &LogicalPlan) -> f64 {
        self.row_count(plan).max(1.0)
    }

    fn row_count(&self, plan: &LogicalPlan) -> f64 {
        match plan {
            LogicalPlan::TableScan(scan) => self.facts(scan).map_or(UNKNOWN_ROWS, |facts| facts.rows),
            LogicalPlan::Filter(filter) => self.rows(&filter.input) * GUESSED,
            LogicalPlan::Aggregate(aggregate) => self.groups(&aggregate.input, &aggregate.group_expr),
            LogicalPlan::Limit(limit) => {
                let rows = self.rows(&limit.input);
                match limit.get_fetch_type() {
                    Ok(FetchType::Literal(Some(fetch))) => rows.min(fetch as f64),
                    _ => rows,
                }
            }
            LogicalPlan::Join(join) => {
                let (left, right) = (self.rows(&join.left), self.rows(&join.right));
                let domain = join.on.iter().map(|(l, r)| {
                    let left = self.distinct(&join.left, std::slice::from_ref(l), left);
                    left.max(self.distinct(&join.right, std::slice::from_ref(r), right))
                });
                let rows = left * right / domain.fold(1.0, f64::max);
                rows_of_kind(join.join_type, rows, [left, right], |side| match side {
                    JoinSide::Right => self.met(&join.right, right, join.on.iter().map(|(_, r)| r), left),
                    _ => self.met(&join.left, left, join.on.iter().map(|(l, _)| l), right),
                })
            }
            LogicalPlan::Union(union) => union.inputs.iter().map(|input| self.rows(input)).sum(),
            LogicalPlan::Values(values) => values.values.len() as f64,
            LogicalPlan::EmptyRelation(_) => 1.0,
            other => match other.inputs().as_slice() {
                [only] => self.rows(only),
                _ => UNKNOWN_ROWS,
            },
        }
    }

    fn groups(&self, input: &LogicalPlan, keys: &[Logical]) -> f64 {
        if keys.is_empty() {
            return 1.0;
        }
        let rows = self.rows(input);
        if keys.iter().all(|k| k.column_refs().iter().all(|c| self.origin(input, c).is_some())) {
            return self.distinct(input, keys, rows).min(rows);
        }
        rows / GROUP_ROWS
    }

    /// Returns the fraction of the plan's `rows` that find a partner. The other side has `others` rows, and
    /// each of them is assumed to have a different key.
    fn met<'k>(
        &self,
        plan: &LogicalPlan,
        rows: f64,
        keys: impl Iterator<Item = &'k Logical>,
        others: f64,
    ) -> f64 {
        let keys: Vec<Logical> = keys.cloned().collect();
        (others / self.distinct(plan, &keys, rows)).min(1.0)
    }

    /// Returns the number of distinct combinations of these expressions' values, before conditions remove
    /// rows. If nothing is known, it is the number of rows of the plan (`rows`), which the caller passes. If
    /// the number were estimated here, a chain of n joins would take a time in 2^n.
    pub fn distinct(&self, plan: &LogicalPlan, exprs: &[Logical], rows: f64) -> f64 {
        let columns: Vec<Column> = exprs.iter().flat_map(Logical::column_refs).cloned().collect();
        let mut by_scan: Vec<(Rc<ScanFacts>, Vec<usize>)> = Vec::new();
        for column in &columns {
            let Some((facts, ordinal)) = self.origin(plan, column) else { return rows };
            match by_scan.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &facts)) {
                Some((_, ordinals)) => ordinals.push(ordinal),
                None => by_scan.push((facts, vec![ordinal])),
            }
        }
        by_scan.iter().map(|(facts, ordinals)| facts.distinct(ordinals)).product::<f64>().max(1.0)
    }

    /// Returns the facts of the scan from which a column comes, and the ordinal of the column in the table.
    fn origin(&self, plan: &LogicalPlan, column: &Column) -> Option<(Rc<ScanFacts>, usize)> {
        match plan {
            LogicalPlan::TableScan(scan) => Some((self.facts(scan)?, column_ordinal(&column.name)?)),
            LogicalPlan::Projection(projection) => {
                let at = projection.schema.maybe_index_of_column(column)?;
                match projection.expr.get(at)?.clone().unalias() {
                    Logical::Column(inner) => self.origin(&projection.input, &inner),
                    _ => None,
                }
            }
            LogicalPlan::Aggregate(aggregate) => {
                let at = aggregate.schema.maybe_index_of_column(column)?;
                match aggregate.group_expr.get(at)?.clone().unalias() {
                    Logical::Column(inner) => self.origin(&aggregate.input, &inner),
                    _ => None,
                }
            }
            LogicalPlan::Extension(extension) if extension.node.as_any().is::<SubqueryScan>() => {
                self.origin(extension.node.inputs().first()?, column)
            }
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
                let inputs = plan.inputs();
                let from = inputs.into_iter().find(|input| input.schema().has_column(column))?;
                self.origin(from, column)
            }
            _ => None,
        }
    }

    fn facts(&self, scan: &TableScan) -> Option<Rc<ScanFacts>> {
        let name = scan.table_name.to_string();
        if let Some(known) = self.scans.borrow().get(&name) {
            return known.clone();
        }
        let columns: Vec<usize> =
            scan.projected_schema.columns().iter().filter_map(|c| column_ordinal(&c.name)).collect();
        let facts = source_as_provider(&scan.source).ok().and_then(|provider| {
            let table = provider.downcast_ref::<SnapshotTable>()?;
            Some(Rc::new(table.facts(&scan.filters, &columns)))
        });
        self.scans.borrow_mut().insert(name, facts.clone());
        facts
    }
}
