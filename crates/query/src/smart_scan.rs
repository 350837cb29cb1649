//! The physical plan node of a scan in a smart device. The device checks conditions and returns rows. The
//! host reads the leaves that the device defers, and checks the other conditions.
//!
//! Invariants
//! 1. The node returns exactly the rows of the host's scan, which it replaces, in no particular order. The
//!    code of the host's scan reads the deferred leaves.
//! 2. If the program can't be made for the values of an execution, the host's scan runs instead.
//! 3. The node holds no data of an execution, except for counters.
//!
//! This module does not know why the device was chosen (`smart_rule`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use parking_lot::Mutex;
use varve_engine::{Datum, Reader};
use varve_smart::{DeviceProfile, HostScan, ScanCounts, SmartDevice, SmartError, SmartScan};
use varve_sql::general::{Around, Expr, KeyBytes, SqlError, Step, Ty};

use crate::cells::{Cells, data_type};
use crate::children::leaf_node;
use crate::constants;
use crate::error::wrapped;
use crate::scan::{Batches, Scan, ScanPlan};
use crate::smart_program::{SmartColumns, SplitFilter};

/// A configured smart device, and what the planner knows of it.
#[derive(Debug)]
pub struct SmartOptions {
    /// The device.
    pub device: Arc<SmartDevice>,
    /// Its speed.
    pub profile: DeviceProfile,
    /// How many times faster the host's processor is than the device's.
    pub processor_factor: f64,
}

/// The predicted times of a scan, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct SmartTimes {
    /// With the device.
    pub device_s: f64,
    /// Without it.
    pub host_s: f64,
}

/// What the planner has decided about a scan.
#[derive(Debug, Clone)]
pub struct SmartChoice {
    /// The device.
    pub options: Arc<SmartOptions>,
    /// The predicted times. `None` if the setting forces the device.
    pub times: Option<SmartTimes>,
}

/// The figures of the last run of a node.
#[derive(Debug, Default)]
pub struct SmartRun {
    counts: Mutex<Option<Arc<ScanCounts>>>,
    /// Why the host ran the whole scan, if it did.
    refusal: Mutex<Option<String>>,
}

impl SmartRun {
    /// Begins a run. Returns its counters.
    pub fn begin(&self) -> Arc<ScanCounts> {
        *self.refusal.lock() = None;
        self.counts.lock().insert(Arc::default()).clone()
    }

    /// Notes that the host runs the whole scan.
    pub fn refuse(&self, why: String) {
        *self.refusal.lock() = Some(why);
    }

    /// Adds the figures of the last run to the step that EXPLAIN shows.
    pub fn noted(&self, choice: &SmartChoice, step: Step) -> Step {
        let mut step = step.note("Device", choice.options.device.address().to_string());
        if let Some(SmartTimes { device_s, host_s }) = choice.times {
            let times = format!("device {:.1} ms, host {:.1} ms", device_s * 1e3, host_s * 1e3);
            step = step.note("Predicted Times", times);
        }
        if let Some(why) = &*self.refusal.lock() {
            step = step.note("Refused", why.clone());
        }
        let Some(counts) = self.counts.lock().clone() else { return step };
        let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let leaves = format!("device={} host={}", value(&counts.leaves), value(&counts.deferred));
        let step = step.note("Smart Leaves", leaves);
        match value(&counts.failures) {
            0 => step,
            failures => {
                let why = choice.options.device.last_failure().unwrap_or_default();
                step.note("Failures", format!("{failures} ({why})"))
            }
        }
    }
}

/// Returns the filter of a scan with the values of this execution.
pub fn current_filter(scan: &Scan) -> Option<Expr> {
    let around = &scan.around;
    scan.filter.whole().map(|filter| match constants::hangs_on_run(filter) {
        true => constants::of_run(filter, around),
        false => filter.clone(),
    })
}

/// Returns an error of a scan. The device's own errors never come here, because the host then reads the rest.
pub fn scan_error(error: SmartError) -> DataFusionError {
    wrapped(match error {
        SmartError::Engine(error) => error.into(),
        other => SqlError::internal(format!("a scan in a smart device: {other}")),
    })
}

/// Returns the step of the host's scan under another name. Its filter is shown in two parts: the conditions
/// of the device, and the rest.
pub fn step_of(name: &str, host: &ScanPlan) -> Step {
    let scan = host.scan();
    let split = SmartColumns::of(&scan.table).split(current_filter(scan).as_ref());
    let whole = host.step();
    let mut step = Step { name: name.to_owned(), facts: Vec::new(), notes: Vec::new(), ..whole };
    for (key, part) in [("Device Filter", split.pushed), ("Filter", split.rest)] {
        if let Some(part) = part {
            step.notes.extend(host.filter_note(&part).map(|text| (key, text)));
        }
    }
    step
}

/// The node.
pub struct SmartScanPlan {
    /// The scan that the node replaces.
    host: Arc<ScanPlan>,
    choice: SmartChoice,
    properties: Arc<PlanProperties>,
    run: Arc<SmartRun>,
}

impl SmartScanPlan {
    /// Returns the node that does this scan.
    pub fn new(host: Arc<ScanPlan>, choice: SmartChoice) -> SmartScanPlan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(host.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        SmartScanPlan { host, choice, properties: Arc::new(properties), run: Arc::default() }
    }

    /// Returns the scan that the node replaces.
    pub fn host(&self) -> &ScanPlan {
        &self.host
    }

    /// Returns the step that EXPLAIN shows for this node.
    pub fn step(&self) -> Step {
        self.run.noted(&self.choice, step_of("Smart Scan", &self.host))
    }

    /// Returns the rows of a run. `None` if the device can't take the program.
    fn rows(&self) -> Result<Option<SmartRows>> {
        let scan = self.host.scan();
        let columns = SmartColumns::of(&scan.table);
        let SplitFilter { condition, rest, .. } = columns.split(current_filter(scan).as_ref());
        let mut returned = scan.columns.clone();
        // A batch of Arrow IPC without columns has no number of rows.
        if returned.is_empty() {
            returned.push(0);
        }
        let rest = rest.map(|rest| {
            let mut reads = Vec::new();
            rest.add_columns(&mut reads);
            reads.into_iter().for_each(|column| {
                if !returned.contains(&column) {
                    returned.push(column);
                }
            });
            over_slots(rest, &returned)
        });
        let types = columns_of(&returned, scan);
        let counts = self.run.begin();
        let device = self.choice.options.device.clone();
        let program = columns.rows(condition, returned);
        let smart = match SmartScan::new(device, &scan.table, program) {
            Ok(smart) => smart,
            Err(error) => {
                self.run.refuse(error.to_string());
                return Ok(None);
            }
        };
        Ok(Some(SmartRows {
            smart: smart.counting(counts),
            host: self.host.clone(),
            reader: scan.snapshot.reader().map_err(wrapped)?,
            batches: None,
            rest,
            types,
            around: scan.around.clone(),
            schema: self.schema(),
        }))
    }
}

/// The types of these columns.
fn columns_of(ordinals: &[usize], scan: &Scan) -> Vec<Ty> {
    let types = crate::columns::column_types(&scan.table);
    ordinals.iter().map(|ordinal| types[*ordinal]).collect()
}

/// Returns the expression over the positions of its columns.
fn over_slots(mut expr: Expr, columns: &[usize]) -> Expr {
    expr.walk_mut(&mut |e| {
        if let Expr::Column(ordinal) = e
            && let Some(at) = columns.iter().position(|column| column == ordinal)
        {
            *e = Expr::Slot(at);
        }
    });
    expr
}

impl fmt::Debug for SmartScanPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for SmartScanPlan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SmartScanPlan by {}: ", self.choice.options.device.address())?;
        self.host.fmt_as(kind, f)
    }
}

impl ExecutionPlan for SmartScanPlan {
    leaf_node!("SmartScanPlan");

    /// Returns the same node, whose counters begin again.
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(SmartScanPlan::new(self.host.clone(), self.choice.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match self.rows()? {
            None => self.host.execute(partition, context),
            Some(rows) => {
                let rows = futures::stream::iter(rows);
                Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
            }
        }
    }
}

/// The rows of one run.
struct SmartRows {
    smart: SmartScan<Arc<SmartDevice>>,
    host: Arc<ScanPlan>,
    reader: Reader,
    /// The rows of the range of keys that the host reads now.
    batches: Option<Batches>,
    /// The conditions that the host checks on rows of the device. They name columns by position.
    rest: Option<Expr>,
    /// The types of the columns that the device returns.
    types: Vec<Ty>,
    around: Arc<Around>,
    schema: SchemaRef,
}

impl Iterator for SmartRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

impl SmartRows {
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.batches.as_mut().and_then(Iterator::next) {
                return batch.map(Some);
            }
            self.batches = None;
            let table = self.host.scan().table.clone();
            match self.smart.next(&mut self.reader, &table).map_err(scan_error)? {
                None => return Ok(None),
                Some(HostScan::Batch(rows)) => {
                    let rows = self.passing(&rows)?;
                    if rows.num_rows() > 0 {
                        return Ok(Some(rows));
                    }
                }
                Some(HostScan::Keys(lower, upper)) => {
                    self.batches = Some(self.host.batches(KeyBytes { lower, upper })?);
                }
            }
        }
    }

    /// Returns those rows of the device for which the rest of the filter is true.
    fn passing(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let cells = |(array, ty): (&ArrayRef, &Ty)| Ok(cast(array, &data_type(*ty))?);
        let arrays: Vec<ArrayRef> =
            rows.columns().iter().zip(&self.types).map(cells).collect::<Result<_>>()?;
        let shown = arrays[..self.schema.fields().len()].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let all = RecordBatch::try_new_with_options(self.schema.clone(), shown, &options)?;
        let Some(rest) = &self.rest else { return Ok(all) };
        let columns: Vec<Cells<'_>> =
            self.types.iter().zip(&arrays).map(|(ty, array)| Cells::of(*ty, array)).collect();
        let mut passes = Vec::with_capacity(rows.num_rows());
        let slot = |row: usize, column: usize| columns[column].get(row);
        self.around
            .evaluate(rest, rows.num_rows(), columns.len(), slot, |value| {
                passes.push(matches!(value, Datum::Bool(true)));
                Ok(())
            })
            .map_err(wrapped)?;
        Ok(filter_record_batch(&all, &BooleanArray::from(passes))?)
    }
}
