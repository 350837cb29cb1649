//! The plan node `Apply` has an outer and an inner plan. It runs the inner plan for each row of the outer
//! plan, with values of that row.
//!
//! `Apply` is for queries that cannot become a join. These are some subqueries in expressions, and some right
//! sides of lateral joins.
//!
//! Invariants
//! 1. The inner plan is made once and runs many times. Before each run, `reset_plan_states` clears the state
//!    of the previous run.
//! 2. The results of the inner plan are cached by the outer values, as long as memory allows. So equal outer
//!    values run the inner plan once. The results of a volatile inner plan are not cached.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Logical, Extension, LogicalPlan, Projection, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties, execute_stream,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;
use varve_engine::{Datum, Value};
use varve_sql::general::{Around, Expr, SqlError, SqlState, Ty, push_image};

use crate::cancel;
use crate::cells::{Cells, CellsBuilder, data_type};
use crate::error::wrapped;
use crate::identity::{Identity, compared_by_identity};
use crate::members::Members;

/// A lateral join collects at least this many pairs of rows for a batch, unless the rows end before.
const PAIRS: usize = 8192;

/// The approximate limit for the memory of the cached answers, in bytes.
const MEMO_BYTES_MAX: usize = 8 << 20;

/// The way in which the answer for an outer row is computed from its inner rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The answer is true if there is an inner row.
    Exists,
    /// The answer is the value of the only inner row, which has this type. It is NULL if there is no row.
    /// Several rows are the error 21000.
    Only(Ty),
    /// The answer is an array of the values of all inner rows. The values have this type.
    List(Ty),
    /// The answer is true if a value is true. It is NULL if no value is true, but one is NULL.
    Any,
    /// The answer is true if all values are true. It is NULL if no value is false, but one is NULL.
    All,
    /// True if the given values are equal to an inner row. The inner rows are read only once. NULL if they are
    /// equal to no inner row, but could be if NULLs were values.
    In,
    /// The inner rows themselves, each joined to the outer row. If `outer` is set, an outer row without inner
    /// rows is returned once, joined to NULLs.
    Rows {
        /// LEFT JOIN LATERAL
        outer: bool,
    },
}

impl Answer {
    /// Returns the type of the column that is added. Returns `None` for `Rows`.
    pub fn ty(self) -> Option<Ty> {
        match self {
            Answer::Exists | Answer::Any | Answer::All | Answer::In => Some(Ty::Bool),
            Answer::Only(ty) => Some(ty),
            Answer::List(element) => element.array(),
            Answer::Rows { .. } => None,
        }
    }
}

/// The inner plan, which runs for each outer row.
#[derive(Clone)]
pub struct Inner {
    /// The plan.
    pub plan: LogicalPlan,
    /// The surroundings of the plan. From there it reads the values that it is given.
    pub around: Arc<Around>,
    /// The types of the given values.
    pub given: Vec<Ty>,
    /// The way in which the answer is computed from the rows of the plan.
    pub answer: Answer,
    /// The types of the columns of the plan, for `Answer::In`.
    pub members: Vec<Ty>,
    /// The plan may return other rows at each run. A plan that is given no values still runs only once, as in
    /// PostgreSQL.
    pub varies: bool,
    /// LIMIT and OFFSET, if they depend on the given values.
    pub window: Window,
    /// Whether an additional boolean follows the given values. If this boolean is not true, the plan does not
    /// run, and the answer is NULL.
    pub is_guarded: bool,
}

/// LIMIT and OFFSET, evaluated for each run.
#[derive(Clone, Default)]
pub struct Window {
    /// LIMIT
    pub limit: Option<Expr>,
    /// OFFSET
    pub offset: Option<Expr>,
}

impl Window {
    /// Returns whether there is neither LIMIT nor OFFSET.
    pub fn is_none(&self) -> bool {
        self.limit.is_none() && self.offset.is_none()
    }
}

/// Apply as a logical plan.
#[derive(Clone)]
pub struct Apply {
    id: Identity,
    input: LogicalPlan,
    /// The values that are given to the inner plan, as expressions over the columns of the input.
    given: Vec<Logical>,
    inner: Arc<Inner>,
    /// Names of the columns that are added.
    names: Vec<String>,
    schema: DFSchemaRef,
}

impl Apply {
    /// Returns the plan `input` with the columns that `inner` adds. The added columns have the given names.
    pub fn plan(
        input: LogicalPlan,
        given: Vec<Logical>,
        inner: Inner,
        names: Vec<String>,
    ) -> Result<LogicalPlan> {
        let id = Identity::next();
        let schema = Arc::new(schema_of(&input, &inner, &names)?);
        let node = Apply { id, input, given, inner: Arc::new(inner), names, schema };
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }
}

fn schema_of(input: &LogicalPlan, inner: &Inner, names: &[String]) -> Result<DFSchema> {
    let types: Vec<DataType> = match inner.answer.ty() {
        Some(ty) => vec![data_type(ty)],
        None => inner.plan.schema().fields().iter().map(|f| f.data_type().clone()).collect(),
    };
    let fields = names.iter().zip(types).map(|(name, t)| (None, Arc::new(Field::new(name, t, true))));
    let before = input.schema().iter().map(|(relation, field)| (relation.cloned(), field.clone()));
    DFSchema::new_with_metadata(before.chain(fields).collect(), HashMap::new())
}

impl fmt::Debug for Apply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply: {:?}", self.inner.answer)
    }
}

compared_by_identity!(Apply, given, input);

impl UserDefinedLogicalNodeCore for Apply {
    fn name(&self) -> &str {
        "Apply"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Logical> {
        self.given.clone()
    }

    /// A condition on an added column must stay above this node. A condition that reads only the outer row
    /// may be checked below it.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.names.iter().cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apply: {:?}", self.inner.answer)
    }

    fn with_exprs_and_inputs(&self, given: Vec<Logical>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let [input] = <[LogicalPlan; 1]>::try_from(inputs)
            .map_err(|_| wrapped(SqlError::internal("Apply has one input")))?;
        let schema = Arc::new(schema_of(&input, &self.inner, &self.names)?);
        Ok(Apply { input, given, schema, ..self.clone() })
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        Some(vec![output.iter().copied().filter(|n| *n < width).collect()])
    }
}

/// Removes results of subqueries that are not used, as PostgreSQL removes unused columns of queries in FROM.
/// So their errors do not occur.
#[derive(Debug)]
pub struct DropUnread;

impl OptimizerRule for DropUnread {
    fn name(&self) -> &'static str {
        "drop_unread_answers"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Projection(Projection { expr, input, .. }) = &plan
            && let LogicalPlan::Extension(extension) = input.as_ref()
            && let Some(apply) = extension.node.as_any().downcast_ref::<Apply>()
            && apply.inner.answer.ty().is_some()
            && !apply.inner.varies
            && !expr.iter().any(|e| e.column_refs().iter().any(|c| apply.names.contains(&c.name)))
        {
            let projection = Projection::try_new(expr.clone(), Arc::new(apply.input.clone()))?;
            return Ok(Transformed::yes(LogicalPlan::Projection(projection)));
        }
        Ok(Transformed::no(plan))
    }
}

/// Plans `Apply`.
#[derive(Debug)]
pub struct ApplyPlanner;

#[async_trait]
impl ExtensionPlanner for ApplyPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(apply), [logical], [input]) =
            (node.as_any().downcast_ref::<Apply>(), logical_inputs, physical_inputs)
        else {
            return Ok(None);
        };
        let given = apply
            .given
            .iter()
            .map(|e| planner.create_physical_expr(e, logical.schema(), session, context))
            .collect::<Result<Vec<_>>>()?;
        let plan = cancel::physical_plan(session, &apply.inner.plan, &apply.inner.around).await?;
        let schema: SchemaRef = apply.schema.inner().clone();
        Ok(Some(Arc::new(ApplyPlan::new(input.clone(), given, plan, apply.inner.clone(), schema))))
    }
}

/// Apply as a physical plan.
pub struct ApplyPlan {
    input: Arc<dyn ExecutionPlan>,
    given: Vec<Arc<dyn PhysicalExpr>>,
    plan: Arc<dyn ExecutionPlan>,
    inner: Arc<Inner>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ApplyPlan {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        given: Vec<Arc<dyn PhysicalExpr>>,
        plan: Arc<dyn ExecutionPlan>,
        inner: Arc<Inner>,
        schema: SchemaRef,
    ) -> ApplyPlan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        ApplyPlan { input, given, plan, inner, schema, properties: Arc::new(properties) }
    }

    /// Returns the plan that runs for each outer row.
    pub fn inner_plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Returns a copy of this node with another inner plan. The other plan must return the same rows.
    pub fn with_inner_plan(&self, plan: Arc<dyn ExecutionPlan>) -> ApplyPlan {
        let ApplyPlan { input, given, inner, schema, .. } = self;
        ApplyPlan::new(input.clone(), given.clone(), plan, inner.clone(), schema.clone())
    }

    /// Returns whether the node joins the inner rows themselves to the outer rows.
    pub fn gives_rows(&self) -> bool {
        self.inner.answer.ty().is_none()
    }
}

impl fmt::Debug for ApplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for ApplyPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApplyPlan: {:?} of [", self.inner.answer)?;
        let steps = datafusion::physical_plan::displayable(self.plan.as_ref()).indent(false).to_string();
        write!(f, "{}]", steps.lines().map(str::trim).collect::<Vec<_>>().join("; "))
    }
}

impl ExecutionPlan for ApplyPlan {
    fn name(&self) -> &str {
        "ApplyPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for e in &self.given {
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
        let [input] = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children)
            .map_err(|_| wrapped(SqlError::internal("Apply has one input")))?;
        let ApplyPlan { given, plan, inner, schema, .. } = self.as_ref();
        Ok(Arc::new(ApplyPlan::new(input, given.clone(), plan.clone(), inner.clone(), schema.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let running = Running {
            input: self.input.execute(partition, context.clone())?,
            given: self.given.clone(),
            plan: self.plan.clone(),
            inner: self.inner.clone(),
            schema: self.schema.clone(),
            context,
            memo: HashMap::new(),
            memo_bytes: 0,
            members: None,
            pending: None,
        };
        let batches = futures::stream::try_unfold(running, |mut running| async move {
            Ok(running.next().await?.map(|batch| (batch, running)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }
}

/// One execution.
struct Running {
    input: SendableRecordBatchStream,
    given: Vec<Arc<dyn PhysicalExpr>>,
    plan: Arc<dyn ExecutionPlan>,
    inner: Arc<Inner>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    memo: HashMap<Vec<u8>, Value>,
    memo_bytes: usize,
    /// The inner rows, for `Answer::In`.
    members: Option<Members>,
    /// A batch of outer rows, if not all inner rows of them were returned yet.
    pending: Option<Pending>,
}

/// A batch of outer rows on its way through a lateral join.
struct Pending {
    batch: RecordBatch,
    arrays: Vec<ArrayRef>,
    /// The outer row whose inner rows are being read, or the next outer row.
    row: usize,
    /// The inner rows of this outer row, if the inner plan runs for it.
    rows: Option<SendableRecordBatchStream>,
    /// Whether this outer row had inner rows so far.
    is_paired: bool,
}

impl Running {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Answer::Rows { outer } = self.inner.answer {
            return self.pairs(outer).await;
        }
        let Some((batch, arrays)) = self.outer_rows().await? else { return Ok(None) };
        self.answered(&batch, &arrays, self.inner.answer).await.map(Some)
    }

    /// Reads the next batch of outer rows. Returns it with the values that it gives to the inner plan.
    async fn outer_rows(&mut self) -> Result<Option<(RecordBatch, Vec<ArrayRef>)>> {
        let Some(batch) = self.input.next().await.transpose()? else { return Ok(None) };
        let arrays = self
            .given
            .iter()
            .map(|e| e.evaluate(&batch)?.into_array(batch.num_rows()))
            .collect::<Result<Vec<ArrayRef>>>()?;
        Ok(Some((batch, arrays)))
    }

    /// Returns the values that one outer row gives to the inner plan.
    fn values(&self, arrays: &[ArrayRef], row: usize) -> Vec<Value> {
        let value = |(t, array): (&Ty, &ArrayRef)| Cells::of(*t, array).get(row).to_value();
        self.inner.given.iter().zip(arrays).map(value).collect()
    }

    /// Returns the batch with a further column, which contains the answer for each row.
    async fn answered(
        &mut self,
        batch: &RecordBatch,
        arrays: &[ArrayRef],
        answer: Answer,
    ) -> Result<RecordBatch> {
        let ty = answer.ty().unwrap_or(Ty::Bool);
        let mut out = CellsBuilder::new(ty);
        if answer == Answer::In {
            let answers = self.among(arrays, batch.num_rows()).await?;
            answers.iter().for_each(|answer| out.push(answer.as_datum()));
            let columns = batch.columns().iter().cloned().chain([out.finish()]).collect();
            return made(&self.schema, columns, batch.num_rows());
        }
        let mut key = Vec::new();
        let guard = arrays.last().filter(|_| self.inner.is_guarded).map(|array| array.as_boolean().clone());
        for row in 0..batch.num_rows() {
            if guard.as_ref().is_some_and(|g| g.is_null(row) || !g.value(row)) {
                out.push(Datum::Null);
                continue;
            }
            let values = self.values(arrays, row);
            key.clear();
            for value in &values {
                // Equal values may be written differently (1.0 and 1.00), and may have different answers. So
                // the key of the cache is the exact value.
                push_image(&mut key, &value.as_datum());
            }
            if let Some(known) = self.memo.get(&key) {
                out.push(known.as_datum());
                continue;
            }
            let found = self.answer(&values, answer).await?;
            out.push(found.as_datum());
            self.keep(&key, found);
        }
        let mut columns = batch.columns().to_vec();
        columns.push(out.finish());
        made(&self.schema, columns, batch.num_rows())
    }

    /// Returns for each outer row whether its values are equal to an inner row: true, false or NULL. The
    /// result is NULL for rows that the guard excludes.
    async fn among(&mut self, arrays: &[ArrayRef], rows: usize) -> Result<Vec<Value>> {
        let guard = arrays.last().filter(|_| self.inner.is_guarded).map(|array| array.as_boolean());
        let is_asked = |n: &usize| guard.is_none_or(|g| g.is_valid(*n) && g.value(*n));
        let asked: Vec<usize> = (0..rows).filter(is_asked).collect();
        let mut answers = vec![Value::Null; rows];
        if asked.is_empty() {
            return Ok(answers);
        }
        let values: Vec<Vec<Value>> = asked.iter().map(|n| self.values(arrays, *n)).collect();
        let members = match self.members.take() {
            Some(members) => members,
            None => self.gathered().await?,
        };
        for (n, answer) in asked.into_iter().zip(members.answers(&values).await?) {
            answers[n] = answer;
        }
        self.members = Some(members);
        Ok(answers)
    }

    /// Runs the inner plan, and returns the set of its rows.
    async fn gathered(&mut self) -> Result<Members> {
        let mut members = Members::new(self.inner.around.clone(), self.context.clone());
        let mut stream = execute_stream(reset_plan_states(self.plan.clone())?, self.context.clone())?;
        while let Some(batch) = stream.next().await.transpose()? {
            members.add(&self.inner.members, &batch)?;
        }
        Ok(members)
    }

    fn keep(&mut self, key: &[u8], answer: Value) {
        let bytes = key.len() + size_of::<Value>() + 64 + text_bytes(&answer);
        if key.is_empty() || !self.inner.varies && self.memo_bytes + bytes <= MEMO_BYTES_MAX {
            self.memo_bytes += bytes;
            self.memo.insert(key.to_vec(), answer);
        }
    }

    /// Starts a run of the inner plan.
    fn run(&mut self, values: &[Value]) -> Result<SendableRecordBatchStream> {
        self.inner.around.check_cancel().map_err(wrapped)?;
        self.inner.around.give(values);
        let Window { limit, offset } = &self.inner.window;
        let window = self.inner.around.window(limit, offset).map_err(wrapped)?;
        let rows = execute_stream(reset_plan_states(self.plan.clone())?, self.context.clone())?;
        Ok(if self.inner.window.is_none() { rows } else { within(rows, window.0, window.1) })
    }

    /// Runs the inner plan with these values, and returns the answer.
    async fn answer(&mut self, values: &[Value], answer: Answer) -> Result<Value> {
        let mut stream = self.run(values)?;
        let (mut rows, mut only, mut unknown) = (0, Value::Null, false);
        let mut list = varve_sql::array::of(if let Answer::List(ty) = answer { ty.oid() } else { 0 });
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            rows += batch.num_rows();
            match answer {
                Answer::Exists if rows > 0 => return Ok(Value::Bool(true)),
                Answer::Only(_) if rows > 1 => return Err(wrapped(several_rows())),
                Answer::Only(ty) if batch.num_rows() == 1 => {
                    only = Cells::of(ty, batch.column(0)).get(0).to_value();
                }
                Answer::List(ty) => {
                    let cells = Cells::of(ty, batch.column(0));
                    (0..batch.num_rows()).for_each(|n| list.push(cells.get(n)));
                }
                Answer::Any | Answer::All => {
                    let decisive = answer == Answer::Any;
                    let tests = batch.column(0).as_boolean();
                    if tests.iter().any(|t| t == Some(decisive)) {
                        return Ok(Value::Bool(decisive));
                    }
                    unknown |= tests.null_count() > 0;
                }
                _ => {}
            }
        }
        Ok(match answer {
            Answer::Only(_) => only,
            Answer::List(_) => Value::Array(list),
            _ if unknown => Value::Null,
            _ => Value::Bool(answer == Answer::All),
        })
    }

    /// Returns a batch of outer rows that are joined to their inner rows.
    async fn pairs(&mut self, outer: bool) -> Result<Option<RecordBatch>> {
        let inner_schema = self.plan.schema();
        loop {
            let pending = match self.pending.take() {
                Some(pending) => pending,
                None => match self.outer_rows().await? {
                    Some((batch, arrays)) => Pending { batch, arrays, row: 0, rows: None, is_paired: false },
                    None => return Ok(None),
                },
            };
            let mut pending = pending;
            let (mut takes, mut pieces) = (Vec::new(), Vec::new());
            while takes.len() < PAIRS && pending.row < pending.batch.num_rows() {
                let row = pending.row as u32;
                let mut rows = match pending.rows.take() {
                    Some(rows) => rows,
                    None => self.run(&self.values(&pending.arrays, pending.row))?,
                };
                if let Some(piece) = rows.next().await.transpose()? {
                    pending.is_paired |= piece.num_rows() > 0;
                    takes.extend(std::iter::repeat_n(row, piece.num_rows()));
                    pieces.push(piece);
                    pending.rows = Some(rows);
                    continue;
                }
                if outer && !pending.is_paired {
                    takes.push(row);
                    pieces.push(null_row(&inner_schema)?);
                }
                (pending.row, pending.is_paired) = (pending.row + 1, false);
            }
            // The outer rows may have no columns, because no operator reads them. So the rows are counted
            // here.
            let count = takes.len();
            let takes = UInt32Array::from(takes);
            let left = pending.batch.columns().iter().map(|column| Ok(take(column, &takes, None)?));
            let left = left.collect::<Result<Vec<ArrayRef>>>()?;
            if pending.row < pending.batch.num_rows() {
                self.pending = Some(pending);
            }
            if count > 0 {
                let schema = nullable(&inner_schema);
                let right = concat_batches(&schema, &renamed(pieces, &schema)?)?;
                let columns = left.iter().chain(right.columns()).cloned().collect();
                return made(&self.schema, columns, count).map(Some);
            }
        }
    }
}

/// Skips the first `skip` rows, and returns the following `take` rows.
fn within(rows: SendableRecordBatchStream, skip: u64, take: Option<u64>) -> SendableRecordBatchStream {
    let as_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let window = (as_usize(skip), take.map_or(usize::MAX, as_usize));
    let schema = rows.schema();
    let cut = futures::stream::try_unfold((rows, window), |(mut rows, (mut skip, mut take))| async move {
        while take > 0 {
            let Some(batch) = rows.next().await.transpose()? else { break };
            let from = skip.min(batch.num_rows());
            let piece = batch.slice(from, take.min(batch.num_rows() - from));
            (skip, take) = (skip - from, take - piece.num_rows());
            if piece.num_rows() > 0 {
                return Ok(Some((piece, (rows, (skip, take)))));
            }
        }
        Ok(None)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, cut))
}

/// Returns the schema with all columns nullable, because an outer row without inner rows is joined to NULLs.
fn nullable(schema: &SchemaRef) -> SchemaRef {
    let field = |f: &Arc<Field>| f.as_ref().clone().with_nullable(true);
    Arc::new(datafusion::arrow::datatypes::Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn renamed(pieces: Vec<RecordBatch>, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    pieces.into_iter().map(|p| made(schema, p.columns().to_vec(), p.num_rows())).collect()
}

fn null_row(schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema.fields().iter();
    let columns = columns.map(|f| datafusion::arrow::array::new_null_array(f.data_type(), 1)).collect();
    made(&nullable(schema), columns, 1)
}

/// Returns a batch of this schema. The names of the fields, and whether they are nullable, may differ from
/// the plan that computed the columns.
pub fn made(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Text(t) => t.len(),
        Value::Bytea(b) => b.len(),
        Value::Array(a) => a.as_ref().as_bytes().len(),
        _ => 0,
    }
}

fn several_rows() -> SqlError {
    SqlError::new(SqlState("21000"), "more than one row returned by a subquery used as an expression")
}
