//! Apply: a plan that is run again for each row of another one, which gives it values of that row.
//!
//! It runs what cannot be made a join: subqueries in expressions, and the right side of a lateral join.
//!
//! Invariants
//! 1. The inner plan is made once. Its runs follow each other, and each begins with `reset_plan_states`: nothing of the run
//!    before is left in it.
//! 2. Equal values are answered once, as long as the answers fit into their memory, unless the inner plan is volatile.
//!
//! Does not know: what the inner plan is.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Logical, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties, execute_stream,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;
use varve_engine::Value;
use varve_sql::general::{Around, SqlError, SqlState, Ty, push_image};

use crate::cells::{Cells, CellsBuilder, data_type};
use crate::error::wrapped;

/// Memory of the answers that are kept, about.
const MEMO_BYTES_MAX: usize = 8 << 20;

/// What becomes of the inner rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Whether there is one.
    Exists,
    /// The value of the only one, of this type; NULL if there is none, 21000 if there are more.
    Only(Ty),
    /// The values of all, which are of this type, as an array.
    List(Ty),
    /// Whether one is true; NULL if none is, but one is NULL.
    Any,
    /// Whether all are true; NULL if none is false, but one is NULL.
    All,
    /// The rows themselves, each beside the outer row; an outer row without any stays, beside NULLs, if `outer`.
    Rows {
        /// LEFT JOIN LATERAL
        outer: bool,
    },
}

impl Answer {
    /// The type of the column that is added, unless rows are.
    pub fn ty(self) -> Option<Ty> {
        match self {
            Answer::Exists | Answer::Any | Answer::All => Some(Ty::Bool),
            Answer::Only(ty) => Some(ty),
            Answer::List(element) => element.array(),
            Answer::Rows { .. } => None,
        }
    }
}

/// What is run for each row.
#[derive(Clone)]
pub struct Inner {
    /// The plan.
    pub plan: LogicalPlan,
    /// Its surroundings, where it finds what it is given.
    pub around: Arc<Around>,
    /// Types of that.
    pub given: Vec<Ty>,
    /// What becomes of its rows.
    pub answer: Answer,
    /// It may give other rows at each run. (Where it is given nothing it runs once all the same, as in PostgreSQL.)
    pub varies: bool,
}

/// Apply as a logical plan.
#[derive(Clone)]
pub struct Apply {
    id: u64,
    input: LogicalPlan,
    /// The values to give, over the input.
    given: Vec<Logical>,
    inner: Arc<Inner>,
    /// Names of the columns that are added.
    names: Vec<String>,
    schema: DFSchemaRef,
}

impl Apply {
    /// The plan of `input` with the columns that `inner` adds, under these names.
    pub fn plan(
        input: LogicalPlan,
        given: Vec<Logical>,
        inner: Inner,
        names: Vec<String>,
    ) -> Result<LogicalPlan> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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

impl PartialEq for Apply {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.given == other.given && self.input == other.input
    }
}

impl Eq for Apply {}

impl Hash for Apply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for Apply {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.id.partial_cmp(&other.id)
    }
}

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

    /// Conditions on the outer row alone may be checked before.
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
        let plan = session.create_physical_plan(&apply.inner.plan).await?;
        let schema: SchemaRef = apply.schema.inner().clone();
        Ok(Some(Arc::new(ApplyPlan::new(input.clone(), given, plan, apply.inner.clone(), schema))))
    }
}

/// Apply as a physical plan.
struct ApplyPlan {
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
}

impl Running {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.input.next().await.transpose()? else { return Ok(None) };
        let arrays = self
            .given
            .iter()
            .map(|e| e.evaluate(&batch)?.into_array(batch.num_rows()))
            .collect::<Result<Vec<ArrayRef>>>()?;
        match self.inner.answer {
            Answer::Rows { outer } => self.beside(&batch, &arrays, outer).await.map(Some),
            answer => self.answered(&batch, &arrays, answer).await.map(Some),
        }
    }

    /// The values of one row.
    fn values(&self, arrays: &[ArrayRef], row: usize) -> Vec<Value> {
        let value = |(t, array): (&Ty, &ArrayRef)| Cells::of(*t, array).get(row).to_value();
        self.inner.given.iter().zip(arrays).map(value).collect()
    }

    /// The batch with the answer for each row.
    async fn answered(
        &mut self,
        batch: &RecordBatch,
        arrays: &[ArrayRef],
        answer: Answer,
    ) -> Result<RecordBatch> {
        let ty = answer.ty().unwrap_or(Ty::Bool);
        let mut out = CellsBuilder::new(ty);
        let mut key = Vec::new();
        for row in 0..batch.num_rows() {
            let values = self.values(arrays, row);
            key.clear();
            for value in &values {
                // A value and its equal may look different (1.0 and 1.00): the answer is kept for the value as it is.
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

    fn keep(&mut self, key: &[u8], answer: Value) {
        let bytes = key.len() + size_of::<Value>() + 64 + text_bytes(&answer);
        if key.is_empty() || !self.inner.varies && self.memo_bytes + bytes <= MEMO_BYTES_MAX {
            self.memo_bytes += bytes;
            self.memo.insert(key.to_vec(), answer);
        }
    }

    /// Begins a run.
    fn run(&mut self, values: &[Value]) -> Result<SendableRecordBatchStream> {
        self.inner.around.check_cancel().map_err(wrapped)?;
        self.inner.around.give(values);
        execute_stream(reset_plan_states(self.plan.clone())?, self.context.clone())
    }

    /// The answer for these values.
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

    /// The rows of the batch beside their inner rows.
    async fn beside(&mut self, batch: &RecordBatch, arrays: &[ArrayRef], outer: bool) -> Result<RecordBatch> {
        let inner_schema = self.plan.schema();
        let (mut takes, mut pieces) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let values = self.values(arrays, row);
            let mut stream = self.run(&values)?;
            let before = takes.len();
            while let Some(piece) = stream.next().await {
                let piece = piece?;
                takes.extend(std::iter::repeat_n(row as u32, piece.num_rows()));
                pieces.push(piece);
            }
            if outer && takes.len() == before {
                takes.push(row as u32);
                pieces.push(null_row(&inner_schema)?);
            }
        }
        let left = take_record_batch(batch, &UInt32Array::from(takes))?;
        let right = concat_batches(&nullable(&inner_schema), &renamed(pieces, &nullable(&inner_schema))?)?;
        let columns = left.columns().iter().chain(right.columns()).cloned().collect();
        made(&self.schema, columns, left.num_rows())
    }
}

/// The schema with all columns nullable: some stand beside rows that have no partner.
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

fn made(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
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
