//! The physical plan node of an aggregation in a smart device. The device groups the rows of its leaves, the
//! host groups those of the other leaves, and the host merges the states.
//!
//! Invariants
//! 1. The results are exactly those of the plan that the node replaces. Sums stay exact integers until the
//!    end. Then `Sum` makes the results from them, as in `groups`.
//! 2. If the device can't compute the groups, or if they need more memory than `GROUP_BYTES`, the replaced
//!    plan runs instead. The node has returned no row before.
//! 3. The node holds no data of an execution, except for counters.
//!
//! This module does not know why the device was chosen (`smart_rule`).

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Decimal128Type, Int64Type};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use varve_engine::{Numeric, Special, Value};
use varve_smart::{Aggregate, ColumnKind, DECIMAL_NAN, SmartError, SmartScan};
use varve_sql::general::{AggKind, Step, Sum, Ty, quoted_name};

use crate::aggregate::{FoldTypes, folded_by};
use crate::budget::Account;
use crate::cells::{CellsBuilder, data_type};
use crate::children::leaf_node;
use crate::error::wrapped;
use crate::fold::Fold;
use crate::scan::ScanPlan;
use crate::smart_program::SmartColumns;
use crate::smart_scan::{SmartChoice, SmartRun, current_filter, scan_error, step_of};

/// Memory for the groups of a scan.
const GROUP_BYTES: usize = 8 << 20;

/// An aggregate of the device, and its result.
#[derive(Clone, Copy)]
struct SmartResult {
    aggregate: Aggregate,
    input: Ty,
    output: Ty,
}

/// A grouping that a device can compute.
#[derive(Clone)]
pub struct SmartGrouping {
    host: Arc<ScanPlan>,
    keys: Vec<usize>,
    aggregates: Vec<SmartResult>,
}

impl SmartGrouping {
    /// Returns the grouping of a plan. `None` if the device can't compute it exactly.
    pub fn of(plan: &AggregateExec) -> Option<SmartGrouping> {
        let partial = match plan.mode() {
            AggregateMode::Single => plan,
            AggregateMode::Final => plan.input().downcast_ref::<AggregateExec>()?,
            _ => return None,
        };
        let is_first = matches!(partial.mode(), AggregateMode::Single | AggregateMode::Partial);
        let group = partial.group_expr();
        let is_limited = plan.limit_options().is_some() || partial.limit_options().is_some();
        if !is_first || group.has_grouping_set() || is_limited {
            return None;
        }
        let (host, columns) = scan_below(partial.input())?;
        let own = SmartColumns::of(&host.scan().table);
        let column = |e: &Arc<dyn PhysicalExpr>| columns.get(e.downcast_ref::<Column>()?.index()).copied();
        let keys = group.expr().iter().map(|(e, _)| column(e).filter(|column| own.is_key(*column)));
        let keys: Vec<usize> = keys.collect::<Option<_>>()?;
        let mut aggregates = Vec::new();
        for (call, filter) in partial.aggr_expr().iter().zip(partial.filter_expr()) {
            let FoldTypes { fold, input, output } = folded_by(call.fun())?;
            let [argument] = <[_; 1]>::try_from(call.expressions()).ok()?;
            if filter.is_some() {
                return None;
            }
            let counts_rows = fold == Fold::Call { kind: AggKind::Count, distinct: false };
            let aggregate = match argument.downcast_ref::<Literal>() {
                Some(literal) if counts_rows && !literal.value().is_null() => Aggregate::CountRows,
                _ => own.aggregate(fold, column(&argument)?)?,
            };
            aggregates.push(SmartResult { aggregate, input, output });
        }
        Some(SmartGrouping { host, keys, aggregates })
    }

    /// The scan whose rows are grouped.
    pub fn scan(&self) -> &ScanPlan {
        &self.host
    }

    /// The columns of the keys.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }
}

/// Returns the scan below a node, and for each column of the node its ordinal in the table. `None` if the
/// node computes something.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<(Arc<ScanPlan>, Vec<usize>)> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let (scan, columns) = scan_below(projection.input())?;
        let column = |e: &Arc<dyn PhysicalExpr>| columns.get(e.downcast_ref::<Column>()?.index()).copied();
        let columns = projection.expr().iter().map(|e| column(&e.expr)).collect::<Option<_>>()?;
        return Some((scan, columns));
    }
    let scan = plan.downcast_ref::<ScanPlan>()?;
    Some((Arc::new(scan.again()), scan.scan().columns.clone()))
}

/// The node.
pub struct SmartGroupsPlan {
    grouping: SmartGrouping,
    /// The plan that the node replaces.
    whole: Arc<dyn ExecutionPlan>,
    choice: SmartChoice,
    properties: Arc<PlanProperties>,
    run: Arc<SmartRun>,
}

impl SmartGroupsPlan {
    /// Returns the node that computes this grouping, which is that of `whole`.
    pub fn new(
        grouping: SmartGrouping,
        whole: Arc<dyn ExecutionPlan>,
        choice: SmartChoice,
    ) -> SmartGroupsPlan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(whole.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        SmartGroupsPlan { grouping, whole, choice, properties: Arc::new(properties), run: Arc::default() }
    }

    /// Returns what is grouped.
    pub fn grouping(&self) -> &SmartGrouping {
        &self.grouping
    }

    /// Returns the step that EXPLAIN shows for this node.
    pub fn step(&self) -> Step {
        let SmartGrouping { host, keys, aggregates } = &self.grouping;
        let columns = &host.scan().table.def().columns;
        let name = |column: &usize| quoted_name(&columns[*column].name);
        let mut step = step_of("Smart Aggregate", host);
        step.outputs.clear();
        if !keys.is_empty() {
            step = step.note("Group Key", keys.iter().map(name).collect::<Vec<_>>().join(", "));
        }
        let shown = aggregates.iter().map(|result| match &result.aggregate {
            Aggregate::CountRows => "count(*)".to_owned(),
            Aggregate::Count(column) => format!("count({})", name(column)),
            Aggregate::Sum(column) => format!("sum({})", name(column)),
            Aggregate::Min(column) => format!("min({})", name(column)),
            Aggregate::Max(column) => format!("max({})", name(column)),
            Aggregate::Average(column) => format!("avg({})", name(column)),
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let step = if shown.is_empty() { step } else { step.note("Device Aggregates", shown) };
        self.run.noted(&self.choice, step)
    }
}

/// Computes the groups of one execution.
struct Run {
    grouping: SmartGrouping,
    choice: SmartChoice,
    run: Arc<SmartRun>,
}

impl Run {
    /// Returns the groups. `None` if the device and the host can't compute them by the program.
    fn groups(&self) -> Result<Option<RecordBatch>> {
        let scan = self.grouping.host.scan();
        let columns = SmartColumns::of(&scan.table);
        let counts = self.run.begin();
        let split = columns.split(current_filter(scan).as_ref());
        if split.rest.is_some() {
            self.run.refuse("the device does not know a condition".to_owned());
            return Ok(None);
        }
        let mut memory = Account::default();
        if memory.grow(GROUP_BYTES).is_err() {
            self.run.refuse("there is no memory for the groups".to_owned());
            return Ok(None);
        }
        let aggregates = self.grouping.aggregates.iter().map(|result| result.aggregate).collect();
        let program = columns.groups(split.condition, self.grouping.keys.clone(), aggregates);
        let mut states = None;
        let mut reader = scan.snapshot.reader().map_err(wrapped)?;
        let done = SmartScan::new(&*self.choice.options.device, &scan.table, program).and_then(|smart| {
            smart.counting(counts).with_group_bytes(GROUP_BYTES).run(&mut reader, &scan.table, &mut |batch| {
                states = Some(batch);
                Ok(())
            })
        });
        match done {
            Ok(()) => Ok(states),
            Err(error @ SmartError::Engine(_)) => Err(scan_error(error)),
            Err(error) => {
                self.run.refuse(error.to_string());
                Ok(None)
            }
        }
    }

    /// Returns the results for the states of groups.
    fn results(&self, states: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let SmartGrouping { host, keys, aggregates } = &self.grouping;
        let types = crate::columns::column_types(&host.scan().table);
        let mut at = keys.len();
        let keys = keys
            .iter()
            .enumerate()
            .map(|(n, column)| Ok(cast(states.column(n), &data_type(types[*column]))?));
        let mut columns = keys.collect::<Result<Vec<ArrayRef>>>()?;
        let kinds = SmartColumns::of(&host.scan().table);
        for result in aggregates {
            let state = states.column(at);
            at += 1;
            columns.push(match result.aggregate {
                Aggregate::CountRows | Aggregate::Count(_) => state.clone(),
                Aggregate::Sum(column) => result.sums(state, None, kinds.kinds()[column])?,
                Aggregate::Average(column) => {
                    at += 1;
                    result.sums(state, Some(states.column(at - 1)), kinds.kinds()[column])?
                }
                Aggregate::Min(column) | Aggregate::Max(column) => {
                    result.values(state, kinds.kinds()[column])?
                }
            });
        }
        Ok(columns)
    }
}

impl SmartResult {
    /// Returns sums, or averages if there are counts.
    fn sums(&self, sums: &ArrayRef, counts: Option<&ArrayRef>, kind: ColumnKind) -> Result<ArrayRef> {
        let sums = sums.as_primitive::<Decimal128Type>();
        let mut cells = CellsBuilder::new(self.output);
        for row in 0..sums.len() {
            if sums.is_null(row) {
                cells.push(Value::Null.as_datum());
                continue;
            }
            let sum = match (kind, sums.value(row)) {
                (ColumnKind::Decimal(_), DECIMAL_NAN) => Sum::Special(Special::NaN),
                (ColumnKind::Decimal(scale), total) => Sum::Scaled(total, u16::from(scale)),
                (_, total) => Sum::Whole(total),
            };
            let count = counts.map(|counts| counts.as_primitive::<Int64Type>().value(row));
            let count_or_none = count.unwrap_or(0).unsigned_abs();
            let total = sum.total(self.input, count.is_some(), count_or_none).map_err(wrapped)?;
            cells.push(total.as_datum());
        }
        Ok(cells.finish())
    }

    /// Returns least or greatest values.
    fn values(&self, values: &ArrayRef, kind: ColumnKind) -> Result<ArrayRef> {
        let ColumnKind::Decimal(scale) = kind else { return Ok(cast(values, &data_type(self.output))?) };
        let values = values.as_primitive::<Decimal128Type>();
        let mut cells = CellsBuilder::new(self.output);
        for row in 0..values.len() {
            let value = match (values.is_null(row), values.value(row)) {
                (true, _) => Value::Null,
                (false, DECIMAL_NAN) => Value::Numeric(Numeric::special(Special::NaN)),
                (false, value) => {
                    Sum::Scaled(value, u16::from(scale)).total(Ty::Numeric, false, 1).map_err(wrapped)?
                }
            };
            cells.push(value.as_datum());
        }
        Ok(cells.finish())
    }
}

impl fmt::Debug for SmartGroupsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for SmartGroupsPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmartGrouping { keys, aggregates, .. } = &self.grouping;
        let device = self.choice.options.device.address();
        write!(f, "SmartGroupsPlan by {device}: keys {keys:?}, {} aggregates", aggregates.len())
    }
}

impl ExecutionPlan for SmartGroupsPlan {
    leaf_node!("SmartGroupsPlan");

    /// Returns the same node, whose counters begin again.
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let (grouping, choice) = (self.grouping.clone(), self.choice.clone());
        Ok(Arc::new(SmartGroupsPlan::new(grouping, self.whole.clone(), choice)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (grouping, choice) = (self.grouping.clone(), self.choice.clone());
        let run = Run { grouping, choice, run: self.run.clone() };
        let (whole, schema) = (self.whole.clone(), self.schema());
        let own_schema = schema.clone();
        let batches = futures::stream::once(async move {
            let Some(states) = run.groups()? else {
                return reset_plan_states(whole)?.execute(partition, context);
            };
            let options = RecordBatchOptions::new().with_row_count(Some(states.num_rows()));
            let results = run.results(&states)?;
            let batch = RecordBatch::try_new_with_options(own_schema.clone(), results, &options)?;
            let batch = futures::stream::iter([Ok(batch)]).boxed();
            let one: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(own_schema, batch));
            Ok(one)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.try_flatten())))
    }
}
