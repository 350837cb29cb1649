//! Stores the rows of a WITH query that is read several times, and the rows of recursive queries. Each row is
//! computed once, and only if a reader needs it.
//!
//! Invariants
//! 1. Rows are computed in batches, when a reader needs a row that has not been computed yet. So a query can
//!    read the first five rows of an endless recursion.
//! 2. If the rows depend on values of an outer query, they are computed again for each run of the subquery.
//! 3. Three kinds of data count against the memory pool of queries: stored rows, the rows of an iteration of
//!    a recursion, and the keys of UNION in a recursion. If the pool is full, stored rows go to files. For the
//!    other two, the query fails with error 53200.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, TableType};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, execute_stream,
};
use futures::StreamExt;
use futures::lock::Mutex;
use varve_sql::general::{Around, Shared, Ty, push_key};

use crate::apply::made;
use crate::cancel::physical_plan;
use crate::cells::{Cells, data_type};
use crate::children::leaf_node;
use crate::columns::column_name;
use crate::error::wrapped;
use crate::stop::Stop;
use crate::stored_rows::{ReadPlace, StoredRows};

/// The rows of the previous iteration of a recursion, which the next iteration reads.
pub type WorkRows = Arc<parking_lot::Mutex<Vec<RecordBatch>>>;

/// The queries of WITH of one statement.
#[derive(Default)]
pub struct SharedQueries {
    /// How often each query is read.
    pub uses: HashMap<*const Shared, usize>,
    /// The tables of the queries that were already translated, if they are read several times.
    pub tables: HashMap<*const Shared, Arc<SharedTable>>,
}

/// The plans that compute the rows of a query.
pub struct Maker {
    /// The plan of the query, or of the first part of a recursive query.
    pub first: LogicalPlan,
    /// The second part of a recursive query.
    pub then: Option<Then>,
    /// The surroundings of both plans.
    pub around: Arc<Around>,
}

/// The second part of a recursive query.
pub struct Then {
    /// The plan of this part.
    pub plan: LogicalPlan,
    /// The rows of the previous iteration, which the plan reads.
    pub work: WorkRows,
    /// Whether the parts are combined by UNION ALL, so that a row may occur more than once.
    pub all: bool,
}

/// How the rows of a query are stored.
pub struct Keeping {
    /// Whether the rows are stored, because they are read more than once.
    pub keeps: bool,
    /// If the rows depend on values that are given to a subquery, the surroundings of this subquery.
    pub of_runs: Option<Arc<Around>>,
}

/// A table of rows that are computed once.
pub struct SharedTable {
    types: Vec<Ty>,
    schema: SchemaRef,
    maker: Maker,
    keeping: Keeping,
    plans: Mutex<Option<Plans>>,
    state: Mutex<State>,
}

/// The physical plans that compute the rows.
#[derive(Clone)]
struct Plans {
    first: Arc<dyn ExecutionPlan>,
    then: Option<Arc<dyn ExecutionPlan>>,
}

/// The rows that were computed so far, and the stream of the other rows.
#[derive(Default)]
struct State {
    /// The run of the subquery to which the rows belong.
    run: u64,
    made: StoredRows,
    stream: Option<SendableRecordBatchStream>,
    is_done: bool,
}

/// Returns the schema of columns of these types.
fn schema_of(types: &[Ty]) -> SchemaRef {
    let field = |(n, t): (usize, &Ty)| Field::new(column_name(n), data_type(*t), true);
    Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()))
}

fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    made(schema, batch.columns().to_vec(), batch.num_rows())
}

impl SharedTable {
    /// Returns a table of the rows that `maker` computes. Their columns have these types.
    pub fn new(types: Vec<Ty>, maker: Maker, keeping: Keeping) -> SharedTable {
        let (plans, state) = (Mutex::new(None), Mutex::new(State::default()));
        SharedTable { schema: schema_of(&types), types, maker, keeping, plans, state }
    }

    /// Returns whether the rows are the same for the whole statement.
    pub fn is_of_statement(&self) -> bool {
        self.keeping.of_runs.is_none()
    }

    /// Makes the physical plans, if this is the first call.
    async fn plan(&self, session: &dyn Session) -> Result<()> {
        let mut plans = self.plans.lock().await;
        if plans.is_none() {
            let Maker { first, then, around } = &self.maker;
            let first = physical_plan(session, first, around).await?;
            let then = match then {
                Some(then) => Some(physical_plan(session, &then.plan, around).await?),
                None => None,
            };
            *plans = Some(Plans { first, then });
        }
        Ok(())
    }

    /// Removes the stored rows after an execution has ended.
    pub fn forget(&self) {
        if let Some(mut state) = self.state.try_lock() {
            *state = State::default();
        }
        self.maker.then.iter().for_each(|then| then.work.lock().clear());
    }

    /// Replaces the physical plans by the results of `change`. Does nothing if they have not been made.
    pub fn change_plans(
        &self,
        change: &mut impl FnMut(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<()> {
        let Some(mut plans) = self.plans.try_lock() else { return Ok(()) };
        if let Some(Plans { first, then }) = plans.as_mut() {
            *first = change(first)?;
            *then = then.as_ref().map(change).transpose()?;
        }
        Ok(())
    }

    /// Starts to compute the rows. The reader that needs the first row may be a thread of the query that ends
    /// early, while other threads need the other rows. So the rows belong to the whole statement.
    async fn start(&self, context: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let context = &Stop::statement_context(context);
        let Some(Plans { first, then }) = self.plans.lock().await.clone() else {
            return Err(wrapped(varve_sql::SqlError::internal("a query of WITH that was not planned")));
        };
        let rows = execute_stream(reset_plan_states(first)?, context.clone())?;
        let (Some(plan), Some(part)) = (then, &self.maker.then) else { return Ok(rows) };
        let turns = Turns {
            rows,
            plan,
            work: part.work.clone(),
            added: Vec::new(),
            seen: (!part.all).then(HashSet::new),
            types: self.types.clone(),
            schema: self.schema.clone(),
            reserved: reservation("recursive query", context),
            seen_bytes: 0,
            context: context.clone(),
        };
        let batches = futures::stream::try_unfold(turns, |mut turns| async move {
            Ok(turns.next().await?.map(|batch| (batch, turns)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }

    /// Returns the batch at this place, and computes it if necessary. Returns `None` after the last batch.
    async fn batch(
        &self,
        place: &mut ReadPlace,
        metrics: &ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = place.next_of_file().await? {
                return Ok(Some(batch));
            }
            let mut state = self.state.lock().await;
            let run = self.keeping.of_runs.as_ref().map_or(0, |around| around.run());
            if state.run != run {
                *state = State { run, ..State::default() };
            }
            if let Some(batch) = state.made.next(place).await? {
                return Ok(Some(batch));
            }
            if place.is_in_file() {
                continue;
            }
            if state.is_done {
                return Ok(None);
            }
            if state.stream.is_none() {
                state.stream = Some(self.start(context).await?);
            }
            let Some(stream) = &mut state.stream else { return Ok(None) };
            let Some(batch) = stream.next().await.transpose()? else {
                (state.stream, state.is_done) = (None, true);
                return Ok(None);
            };
            let batch = with_schema(&batch, &self.schema)?;
            place.skip();
            if self.keeping.keeps {
                state.made.push(batch.clone(), &self.schema, metrics, context)?;
            }
            return Ok(Some(batch));
        }
    }
}

fn reservation(what: &str, context: &Arc<TaskContext>) -> MemoryReservation {
    MemoryConsumer::new(what).register(context.memory_pool())
}

impl fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.maker.then.is_some() { "recursion" } else { "query of WITH" };
        write!(f, "{what}, kept {}", self.keeping.keeps)
    }
}

/// A table provider for one reader of shared rows.
#[derive(Debug)]
pub struct Reading(pub Arc<SharedTable>);

#[async_trait]
impl TableProvider for Reading {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Logical],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.plan(session).await?;
        let columns = projection.cloned().unwrap_or_else(|| (0..self.0.types.len()).collect());
        Ok(Arc::new(Leaf::new(Rows::Shared(self.0.clone()), &self.0.schema, columns)?))
    }
}

/// A table of the rows of the previous iteration of a recursion.
pub struct WorkTable {
    rows: WorkRows,
    schema: SchemaRef,
}

impl WorkTable {
    /// Returns a table of the rows. Their columns have these types.
    pub fn new(rows: WorkRows, types: &[Ty]) -> WorkTable {
        WorkTable { rows, schema: schema_of(types) }
    }
}

impl fmt::Debug for WorkTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows of a turn")
    }
}

#[async_trait]
impl TableProvider for WorkTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Logical],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        Ok(Arc::new(Leaf::new(Rows::Work(self.rows.clone()), &self.schema, columns)?))
    }
}

/// The source of the rows of a leaf.
#[derive(Clone)]
enum Rows {
    Shared(Arc<SharedTable>),
    Work(WorkRows),
}

/// The physical plan node that reads shared rows or the rows of the previous iteration of a recursion.
pub struct Leaf {
    rows: Rows,
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
    /// The bytes that were written to files while this node computed rows.
    metrics: ExecutionPlanMetricsSet,
}

impl Leaf {
    fn new(rows: Rows, schema: &SchemaRef, columns: Vec<usize>) -> Result<Leaf> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema.project(&columns)?)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Leaf { rows, columns, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() })
    }

    /// Returns the query of WITH that is read, if it is not the previous iteration of a recursion.
    pub fn shared(&self) -> Option<&Arc<SharedTable>> {
        match &self.rows {
            Rows::Shared(table) => Some(table),
            Rows::Work(_) => None,
        }
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for Leaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rows {
            Rows::Shared(table) => write!(f, "SharedPlan: {table:?}"),
            Rows::Work(_) => write!(f, "WorkPlan"),
        }
    }
}

impl ExecutionPlan for Leaf {
    leaf_node!("SharedPlan");

    /// Returns the same node, whose count of bytes begins again.
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Leaf {
            rows: self.rows.clone(),
            columns: self.columns.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let columns = self.columns.clone();
        let batches = match &self.rows {
            Rows::Work(rows) => {
                let rows: Vec<Result<RecordBatch>> =
                    rows.lock().iter().map(|b| Ok(b.project(&columns)?)).collect();
                futures::stream::iter(rows).boxed()
            }
            Rows::Shared(table) => {
                let (table, metrics) = (table.clone(), self.metrics.clone());
                let place = ReadPlace::default();
                let state = (place, table, columns, metrics, context);
                futures::stream::try_unfold(
                    state,
                    |(mut place, table, columns, metrics, context)| async move {
                        let batch = table.batch(&mut place, &metrics, &context).await?;
                        let batch = batch.map(|b| b.project(&columns)).transpose()?;
                        Ok(batch.map(|b| (b, (place, table, columns, metrics, context))))
                    },
                )
                .boxed()
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// A running recursion.
struct Turns {
    /// The stream of the rows of this iteration.
    rows: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    work: WorkRows,
    /// The rows that this iteration has added so far.
    added: Vec<RecordBatch>,
    /// The keys of all rows so far, if no row may occur twice.
    seen: Option<HashSet<Vec<u8>>>,
    types: Vec<Ty>,
    schema: SchemaRef,
    reserved: MemoryReservation,
    seen_bytes: usize,
    context: Arc<TaskContext>,
}

impl Turns {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.rows.next().await.transpose()? {
                let batch = self.new_rows(with_schema(&batch, &self.schema)?)?;
                if batch.num_rows() == 0 {
                    continue;
                }
                self.reserved.try_grow(batch.get_array_memory_size())?;
                self.added.push(batch.clone());
                return Ok(Some(batch));
            }
            if self.added.is_empty() {
                self.work.lock().clear();
                return Ok(None);
            }
            let added = std::mem::take(&mut self.added);
            let bytes: usize = added.iter().map(RecordBatch::get_array_memory_size).sum();
            self.reserved.try_resize(bytes + self.seen_bytes)?;
            *self.work.lock() = added;
            self.rows = execute_stream(reset_plan_states(self.plan.clone())?, self.context.clone())?;
        }
    }

    /// Returns the rows of the batch that did not occur before.
    fn new_rows(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(seen) = &mut self.seen else { return Ok(batch) };
        let columns: Vec<Cells<'_>> =
            self.types.iter().zip(batch.columns()).map(|(t, array)| Cells::of(*t, array)).collect();
        let (mut bytes, mut is_new) = (0, Vec::with_capacity(batch.num_rows()));
        for row in 0..batch.num_rows() {
            let mut key = Vec::new();
            columns.iter().for_each(|c| push_key(&mut key, &c.get(row)));
            let size = key.len() + size_of::<Vec<u8>>() * 2;
            is_new.push(seen.insert(key));
            bytes += if is_new[row] { size } else { 0 };
        }
        self.seen_bytes += bytes;
        self.reserved.try_grow(bytes)?;
        Ok(filter_record_batch(&batch, &BooleanArray::from(is_new))?)
    }
}
