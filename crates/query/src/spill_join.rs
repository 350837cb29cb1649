//! A plan node that joins two inputs by the crate `spill`, in bounded memory and with temporary files
//! (decision 0362).
//!
//! The left input is the build input, as in DataFusion's hash join. It is read first. Then its size is known,
//! and the method is chosen, unless the session forces one.
//!
//! Invariants
//! 1. The result is that of DataFusion's hash join, except for the order of rows.
//! 2. The memory of a join is `work_mem`, one batch of each input, of the output and of the columns of a
//!    condition, and room for 16 rows that are as long as the longest one. `work_mem` and this room are
//!    reserved in the pool.
//! 3. Each step of the join is followed by a check for a cancel request.
//! 4. Files and memory are given back when the rows are dropped. This is so even after an error or a cancel
//!    request.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, JoinSide, JoinType, NullEquality, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use parking_lot::Mutex;
use varve_spill::{
    BlockIo, DriveTimes, InputSize, Join, JoinKind, JoinMethod, JoinSettings, JoinShape, MemoryBudget,
    OwnedInput, PartitionFiles, ProcessorTimes, RowSource, Side, SpillError, Steps,
};
use varve_sql::general::Around;
use varve_sql::{SqlError, SqlState};

use crate::error::{out_of_memory, wrapped};
use crate::join_inputs::{Collected, Exchanged, JoinedBatches, ProbeRows};
use crate::join_rows::{EncodedRows, JoinRows, RowCoder};
use crate::temporary::{JoinResources, JoinSpace};

/// The least budget of a join. With less memory a join cannot work well.
const BYTES_MIN: usize = 64 << 10;
/// The number of the longest rows for which the budget has room.
const LONG_ROWS: usize = 16;
/// The assumed ratio of the size of the probe input to the size of the build input. The size of the probe
/// input is not known before it is read.
const PROBE_FACTOR: u64 = 4;

/// The facts about the last run of a join.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// The method.
    pub method: Option<JoinMethod>,
    /// The methods among which the cost model has chosen, with their predicted times in microseconds. The
    /// list is empty if the cost model has not chosen.
    pub predicted_us: Vec<(JoinMethod, f64)>,
    /// The number of partitions on the drive.
    pub partitions: usize,
    /// The most memory that the run had, in bytes.
    pub peak_bytes: usize,
}

/// A join by the crate `spill`.
pub struct SpillJoinPlan {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    on: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    filter: Option<JoinFilter>,
    kind: JoinType,
    null_equality: NullEquality,
    /// The method that is forced. With `None`, the cost model chooses the method.
    method: Option<JoinMethod>,
    /// The number of joins of the plan.
    joins: usize,
    around: Option<Arc<Around>>,
    columns: Arc<[ColumnIndex]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// The facts about the last run. The copies that EXPLAIN ANALYZE makes share them.
    ran: Arc<Mutex<Ran>>,
}

impl SpillJoinPlan {
    /// Returns a join that replaces a hash join, or `None` if this node cannot join its inputs. `joins` is
    /// the number of joins of the plan, which share memory.
    pub fn instead_of(
        join: &HashJoinExec,
        method: Option<JoinMethod>,
        joins: usize,
    ) -> Result<Option<SpillJoinPlan>> {
        // Only the hash join can do NOT IN with NULLs.
        if join.null_aware || join.projection.is_some() || kind_of(join.join_type).is_none() {
            return Ok(None);
        }
        let inputs = [join.left.clone(), join.right.clone()];
        for (left, right) in &join.on {
            if left.data_type(&inputs[0].schema())? != right.data_type(&inputs[1].schema())? {
                return Ok(None);
            }
        }
        let (schema, columns) = build_join_schema(&inputs[0].schema(), &inputs[1].schema(), &join.join_type);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Some(SpillJoinPlan {
            inputs,
            on: join.on.clone(),
            filter: join.filter.clone(),
            kind: join.join_type,
            null_equality: join.null_equality,
            method,
            joins,
            around: None,
            columns: columns.into(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            ran: Arc::default(),
        }))
    }

    /// Returns the same join with other inputs.
    fn over(&self, inputs: [Arc<dyn ExecutionPlan>; 2]) -> SpillJoinPlan {
        SpillJoinPlan {
            inputs,
            on: self.on.clone(),
            filter: self.filter.clone(),
            kind: self.kind,
            null_equality: self.null_equality,
            method: self.method,
            joins: self.joins,
            around: self.around.clone(),
            columns: self.columns.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            ran: self.ran.clone(),
        }
    }

    /// Returns the same join with checks whether the query is cancelled.
    pub fn watched(&self, around: &Arc<Around>) -> SpillJoinPlan {
        SpillJoinPlan { around: Some(around.clone()), ..self.over(self.inputs.clone()) }
    }

    /// Returns the expressions on both sides that are compared.
    pub fn on(&self) -> &[(PhysicalExprRef, PhysicalExprRef)] {
        &self.on
    }

    /// Returns the kind of join.
    pub fn kind(&self) -> JoinType {
        self.kind
    }

    /// Returns the facts about the last run. Before the first run, they have only the method that is forced.
    pub fn ran(&self) -> Ran {
        let ran = self.ran.lock().clone();
        Ran { method: ran.method.or(self.method), ..ran }
    }

    /// Returns whether the condition decides which pairs are returned, as in an inner join. In other joins it
    /// decides which rows are partners.
    fn filters_output(&self) -> bool {
        self.kind == JoinType::Inner
    }

    fn rows(&self) -> Result<JoinRows> {
        let of_filter = |side| {
            let columns = self.filter.iter().flat_map(|filter| filter.column_indices());
            columns.filter(move |column| column.side == side)
        };
        let coder = |n: usize, side: JoinSide| {
            let columns = self.columns.iter().filter(|column| column.side == side).chain(of_filter(side));
            let mut columns: Vec<usize> = columns.map(|column| column.index).collect();
            columns.sort_unstable();
            columns.dedup();
            let keys = self.on.iter().map(|(left, right)| if n == 0 { left.clone() } else { right.clone() });
            let null_equals_null = self.null_equality == NullEquality::NullEqualsNull;
            RowCoder::new(&self.inputs[n].schema(), keys.collect(), columns, null_equals_null)
        };
        let coders = [coder(0, JoinSide::Left)?, coder(1, JoinSide::Right)?];
        Ok(JoinRows::new(coders, self.schema(), self.columns.to_vec(), self.filter.clone()))
    }
}

/// Returns the kind of join. The flag is true if the operator's right input is the left input of this kind.
fn kind_of(kind: JoinType) -> Option<(JoinKind, bool)> {
    match kind {
        JoinType::Inner => Some((JoinKind::Inner, false)),
        JoinType::Left => Some((JoinKind::Left, false)),
        JoinType::Right => Some((JoinKind::Right, false)),
        JoinType::Full => Some((JoinKind::Full, false)),
        JoinType::LeftSemi => Some((JoinKind::Semi, false)),
        JoinType::LeftAnti => Some((JoinKind::Anti, false)),
        JoinType::RightSemi => Some((JoinKind::Semi, true)),
        JoinType::RightAnti => Some((JoinKind::Anti, true)),
        JoinType::LeftMark | JoinType::RightMark => None,
    }
}

/// Returns whether a join without build rows has no rows.
fn is_empty_without_build_rows(kind: JoinType) -> bool {
    matches!(
        kind,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::RightSemi
    )
}

/// Returns the name of a method as EXPLAIN shows it.
pub fn method_name(method: JoinMethod) -> &'static str {
    match method {
        JoinMethod::NestedLoops => "block nested loops",
        JoinMethod::SortMerge => "sort-merge",
        JoinMethod::Grace => "Grace hash",
        JoinMethod::Hybrid => "hybrid hash",
    }
}

impl fmt::Debug for SpillJoinPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for SpillJoinPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.ran().method.map_or("chosen by cost", method_name);
        write!(f, "SpillJoinPlan: kind={}, method={method}, on=[", self.kind)?;
        for (n, (left, right)) in self.on.iter().enumerate() {
            write!(f, "{}({left}, {right})", if n > 0 { ", " } else { "" })?;
        }
        f.write_str("]")?;
        self.filter.iter().try_for_each(|filter| write!(f, ", filter={}", filter.expression()))
    }
}

impl ExecutionPlan for SpillJoinPlan {
    fn name(&self) -> &str {
        "SpillJoinPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; 2]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; 2]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let keys = self.on.iter().flat_map(|(left, right)| [left, right]);
        for e in keys.chain(self.filter.iter().map(|filter| filter.expression())) {
            if visit(e)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children)
            .map_err(|_| wrapped(SqlError::internal("a join has two inputs")))?;
        Ok(Arc::new(self.over(inputs)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let resources = context.session_config().get_extension::<JoinResources>();
        let resources = resources.ok_or_else(|| {
            wrapped(out_of_memory("a join, because there is no directory for temporary files"))
        })?;
        let (memory, reservation) = budget(&context, resources.work_bytes, self.joins)?;
        let space = resources.space().map_err(|error| wrapped(told(error)))?;
        let page_bytes = page_bytes(memory.limit_bytes(), space.sector_bytes as usize);
        *self.ran.lock() = Ran { method: self.method, ..Ran::default() };
        let running = Running {
            rows: Arc::new(self.rows()?),
            kind: self.kind,
            filters_output: self.filters_output(),
            method: self.method,
            around: self.around.clone(),
            build: self.inputs[0].execute(0, context.clone())?,
            probe: self.inputs[1].execute(0, context)?,
            state: State::Collecting(Collected::new(&space.space, &memory, page_bytes)),
            page_bytes,
            space,
            resources,
            memory,
            reservation,
            exchange: Exchanged::default(),
            spilled: MetricBuilder::new(&self.metrics).spilled_bytes(partition),
            ran: self.ran.clone(),
        };
        let batches = futures::stream::try_unfold(running, |mut running| async move {
            Ok(running.next().await?.map(|batch| (batch, running)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// Returns the budget of a join, which is reserved in the pool. It is `work_mem`, or less if the pool has
/// less. All joins of a plan together take at most half of the pool, because operators that cannot spill need
/// the rest.
fn budget(
    context: &TaskContext,
    work_bytes: usize,
    joins: usize,
) -> Result<(Arc<MemoryBudget>, MemoryReservation)> {
    let pool = context.memory_pool();
    let reservation = MemoryConsumer::new("SpillJoin").with_can_spill(true).register(pool);
    let mut bytes = match pool.memory_limit() {
        // Scans, sorts and groups of the same query need memory, too.
        MemoryLimit::Finite(limit_bytes) => work_bytes.min(limit_bytes / (2 * joins.max(2))),
        _ => work_bytes,
    };
    bytes = bytes.max(BYTES_MIN);
    while let Err(error) = reservation.try_resize(bytes) {
        if bytes == BYTES_MIN {
            return Err(error);
        }
        bytes = (bytes / 2).max(BYTES_MIN);
    }
    Ok((MemoryBudget::new(bytes), reservation))
}

/// Returns the size of pages for a budget. Pages are large enough for few requests, and small enough for
/// several partitions.
fn page_bytes(budget_bytes: usize, sector_bytes: usize) -> usize {
    let wished = (budget_bytes / 64).clamp(1 << 10, 8 << 10);
    (1 << wished.ilog2()).max(sector_bytes)
}

/// Returns the error of a join, as a client sees it.
fn told(error: SpillError) -> SqlError {
    let text = error.to_string();
    match error {
        SpillError::Full { .. } | SpillError::DeviceFull { .. } => {
            let hint = "Free space on the device of the temporary space, or raise work_mem.";
            SqlError::new(SqlState("53100"), text).with_hint(hint)
        }
        SpillError::Device(device) if device.is_no_space() => SqlError::new(SqlState("53100"), text),
        SpillError::Device(_) => SqlError::new(SqlState("58030"), text),
        SpillError::Memory { .. } => {
            let hint = "Raise work_mem, or memory in the section [query] of varve.toml.";
            SqlError::new(SqlState("53200"), format!("a join has too little memory: {text}")).with_hint(hint)
        }
        SpillError::Corrupt { .. } => SqlError::new(SqlState("XX001"), text),
        SpillError::Setting(_) | SpillError::Defect(_) | SpillError::Caller(_) => SqlError::internal(text),
    }
}

/// The state of a join.
#[expect(clippy::large_enum_variant, reason = "there is one for each join that runs")]
enum State {
    /// The join reads the build input.
    Collecting(Collected),
    Joining(Steps<'static>),
    Ended,
}

/// One run of a join.
struct Running {
    state: State,
    rows: Arc<JoinRows>,
    kind: JoinType,
    filters_output: bool,
    method: Option<JoinMethod>,
    around: Option<Arc<Around>>,
    build: SendableRecordBatchStream,
    probe: SendableRecordBatchStream,
    exchange: Exchanged,
    page_bytes: usize,
    memory: Arc<MemoryBudget>,
    reservation: MemoryReservation,
    space: JoinSpace,
    resources: Arc<JoinResources>,
    spilled: Count,
    ran: Arc<Mutex<Ran>>,
}

impl Running {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.around.iter().try_for_each(|around| around.check_cancel()).map_err(wrapped)?;
            if let Some(batch) = self.exchange.lock().output.take() {
                return Ok(Some(batch));
            }
            if matches!(self.state, State::Ended) {
                return Ok(None);
            }
            if matches!(self.state, State::Collecting(_)) {
                self.collect().await?;
            } else if self.exchange.lock().is_waiting {
                self.give_probe_rows().await?;
            } else {
                self.step()?;
            }
            self.note();
        }
    }

    /// Reads a batch of the build input. After the last batch, begins the join.
    async fn collect(&mut self) -> Result<()> {
        let batch = self.build.next().await.transpose()?;
        let rows = batch.map(|batch| self.rows.coders[0].encode(&batch)).transpose()?;
        if let Some(rows) = &rows {
            self.make_room_for(rows);
        }
        let State::Collecting(collected) = &mut self.state else { return Ok(()) };
        if let Some(rows) = rows {
            return collected.push(&rows).map_err(|error| self.failed(error));
        }
        let State::Collecting(collected) = std::mem::replace(&mut self.state, State::Ended) else {
            return Ok(());
        };
        let is_in_memory = collected.is_in_memory();
        let (source, size) = collected.finish().map_err(|error| self.failed(error))?;
        if size.rows > 0 || !is_empty_without_build_rows(self.kind) {
            self.state = self.joining(source, size, is_in_memory)?;
        }
        Ok(())
    }

    /// Raises the budget if it has no room for `LONG_ROWS` rows of this length.
    fn make_room_for(&mut self, rows: &EncodedRows) {
        let wanted_bytes = LONG_ROWS * rows.longest_bytes();
        if wanted_bytes > self.memory.limit_bytes() {
            self.memory.raise_to(wanted_bytes);
            self.reservation.resize(wanted_bytes);
        }
    }

    fn joining(&self, source: Box<dyn RowSource>, build: InputSize, is_in_memory: bool) -> Result<State> {
        let Some((kind, is_swapped)) = kind_of(self.kind) else {
            return Err(wrapped(SqlError::internal("a kind of join that does not spill")));
        };
        let probe = InputSize { rows: build.rows * PROBE_FACTOR, bytes: build.bytes * PROBE_FACTOR };
        // A join in memory doesn't need the times, so the drive is not measured for it.
        let times = if is_in_memory { DriveTimes::FLASH } else { self.resources.directory.drive() };
        let mut join = Join {
            space: self.space.space.clone(),
            memory: self.memory.clone(),
            settings: JoinSettings {
                page_bytes: self.page_bytes,
                io: BlockIo::Blocked,
                partition_files: PartitionFiles::Shared,
                times,
            },
            method: JoinMethod::Hybrid,
            kind,
            build: if is_swapped { Side::Right } else { Side::Left },
        };
        join.method = match self.method {
            Some(method) => method,
            None if is_in_memory => JoinMethod::Hybrid,
            None => {
                let shape = JoinShape { build, probe, input_fill: 1.0, is_one_drive: true };
                let predicted_us = join.predict_us(shape, times, ProcessorTimes::TODAY, false);
                let cheapest = JoinMethod::cheapest(&predicted_us);
                self.ran.lock().predicted_us = predicted_us;
                cheapest
            }
        };
        self.ran.lock().method = Some(join.method);
        let output =
            JoinedBatches::new(self.exchange.clone(), self.rows.clone(), self.filters_output, is_swapped);
        let probe_rows = Box::new(ProbeRows::new(self.exchange.clone()));
        let (build, probe) =
            (OwnedInput { source, size: build }, OwnedInput { source: probe_rows, size: probe });
        let (left, right) = if is_swapped { (probe, build) } else { (build, probe) };
        Ok(State::Joining(join.steps(left, right, output)))
    }

    /// Passes the next batch of the probe input to the join.
    async fn give_probe_rows(&mut self) -> Result<()> {
        let batch = self.probe.next().await.transpose()?;
        let rows = batch.map(|batch| self.rows.coders[1].encode(&batch)).transpose()?;
        if let Some(rows) = &rows {
            self.make_room_for(rows);
        }
        let mut exchange = self.exchange.lock();
        exchange.has_ended = rows.is_none();
        exchange.given = rows;
        exchange.is_waiting = false;
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let State::Joining(steps) = &mut self.state else { return Ok(()) };
        match steps.step() {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.state = State::Ended;
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns the error of the join. It is that of Arrow or of the condition, else that of the quota, else
    /// that of the temporary space.
    #[cold]
    fn failed(&self, error: SpillError) -> DataFusionError {
        if let Some(error) = self.exchange.lock().error.take() {
            return error;
        }
        match self.space.refused() {
            Some(refused) => wrapped(SqlError::from(refused)),
            None => wrapped(told(error)),
        }
    }

    /// Records the work up to now for EXPLAIN ANALYZE.
    fn note(&self) {
        let written_bytes = self.space.space.tally_all().written.bytes as usize;
        self.spilled.add(written_bytes.saturating_sub(self.spilled.value()));
        let mut ran = self.ran.lock();
        ran.partitions = self.exchange.lock().partitions;
        ran.peak_bytes = ran.peak_bytes.max(self.memory.peak_bytes());
    }
}
