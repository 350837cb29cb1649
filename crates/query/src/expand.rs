//! Set-returning functions: runs the functions of a select list for each input row, and adds their values as
//! columns. One input row can become several rows.
//!
//! Invariants
//! 1. Several functions in one select list advance together: each output row has the next value of each
//!    function. A function that ends earlier returns NULL until the last one ends. If no function returns a
//!    value, the input row is dropped.
//! 2. The input rows keep their order, and so do the values for each row.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, UInt32Array, new_null_array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Logical, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;
use varve_engine::Datum;
use varve_sql::general::{Around, SetFunction, SetRows, SqlError, Ty};

use crate::apply::made;
use crate::cells::{BATCH_ROWS, Cells, CellsBuilder, data_type};
use crate::error::wrapped;
use crate::identity::{Identity, compared_by_identity};

/// Describes the rows that are made from each input row.
#[derive(Debug, Clone)]
pub struct Spread {
    /// The functions and the types of their arguments. The argument columns of each function follow those of
    /// the previous function.
    pub functions: Vec<(SetFunction, Vec<Ty>)>,
    /// The types of the columns that are added.
    pub types: Vec<Ty>,
    /// Whether the last added column contains a number. The rows that are made from one input row are
    /// numbered from 1.
    pub numbered: bool,
    /// Rows that are returned before all other rows. They contain these numbers in the first added column,
    /// and NULLs in all other columns.
    pub leading: Vec<i64>,
    /// The surroundings of the query, which the functions use.
    pub around: Arc<Around>,
}

/// The logical plan node that runs set-returning functions.
#[derive(Clone)]
pub struct Expanded {
    id: Identity,
    input: LogicalPlan,
    arguments: Vec<Logical>,
    spread: Arc<Spread>,
    names: Vec<String>,
    schema: DFSchemaRef,
}

impl Expanded {
    /// Returns the plan that runs the functions for each row of `input`. The added columns have the given
    /// names.
    pub fn plan(
        input: LogicalPlan,
        arguments: Vec<Logical>,
        spread: Spread,
        names: Vec<String>,
    ) -> Result<LogicalPlan> {
        let id = Identity::next();
        let schema = Arc::new(schema_of(&input, &spread, &names)?);
        let node = Expanded { id, input, arguments, spread: Arc::new(spread), names, schema };
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }
}

fn schema_of(input: &LogicalPlan, spread: &Spread, names: &[String]) -> Result<DFSchema> {
    let fields = names.iter().zip(&spread.types);
    let fields = fields.map(|(name, t)| (None, Arc::new(Field::new(name, data_type(*t), true))));
    // All columns of the input are NULL in a leading row.
    let nullable = |f: &Arc<Field>| match spread.leading.is_empty() {
        true => f.clone(),
        false => Arc::new(f.as_ref().clone().with_nullable(true)),
    };
    let before = input.schema().iter().map(|(relation, field)| (relation.cloned(), nullable(field)));
    DFSchema::new_with_metadata(before.chain(fields).collect(), HashMap::new())
}

impl fmt::Debug for Expanded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UserDefinedLogicalNodeCore::fmt_for_explain(self, f)
    }
}

compared_by_identity!(Expanded, arguments, input);

impl UserDefinedLogicalNodeCore for Expanded {
    fn name(&self) -> &str {
        "Expanded"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Logical> {
        self.arguments.clone()
    }

    /// A condition on an added column must stay above this node. A condition on the input row may be checked
    /// below the node, unless there are leading rows, because the condition must apply to them, too.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let added = self.names.iter().cloned();
        let all = self.schema.fields().iter().map(|f| f.name().clone());
        if self.spread.leading.is_empty() { added.collect() } else { all.collect() }
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expanded: {:?}", self.spread.functions)
    }

    fn with_exprs_and_inputs(&self, arguments: Vec<Logical>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let [input] = <[LogicalPlan; 1]>::try_from(inputs).map_err(|_| one_input())?;
        let schema = Arc::new(schema_of(&input, &self.spread, &self.names)?);
        Ok(Expanded { input, arguments, schema, ..self.clone() })
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        Some(vec![output.iter().copied().filter(|n| *n < width).collect()])
    }
}

fn one_input() -> datafusion::common::DataFusionError {
    wrapped(SqlError::internal("rows of one input are spread"))
}

/// Plans `Expanded`.
#[derive(Debug)]
pub struct ExpandPlanner;

#[async_trait]
impl ExtensionPlanner for ExpandPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(node), [logical], [input]) =
            (node.as_any().downcast_ref::<Expanded>(), logical_inputs, physical_inputs)
        else {
            return Ok(None);
        };
        let arguments = node
            .arguments
            .iter()
            .map(|e| planner.create_physical_expr(e, logical.schema(), session, context))
            .collect::<Result<Vec<_>>>()?;
        let schema: SchemaRef = node.schema.inner().clone();
        Ok(Some(Arc::new(ExpandPlan::new(input.clone(), arguments, node.spread.clone(), schema))))
    }
}

/// The physical plan node that runs set-returning functions.
struct ExpandPlan {
    input: Arc<dyn ExecutionPlan>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    spread: Arc<Spread>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ExpandPlan {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        arguments: Vec<Arc<dyn PhysicalExpr>>,
        spread: Arc<Spread>,
        schema: SchemaRef,
    ) -> ExpandPlan {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        ExpandPlan { input, arguments, spread, schema, properties }
    }
}

impl fmt::Debug for ExpandPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for ExpandPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions: Vec<SetFunction> = self.spread.functions.iter().map(|(f, _)| *f).collect();
        write!(f, "ExpandPlan: {functions:?}")
    }
}

impl ExecutionPlan for ExpandPlan {
    fn name(&self) -> &str {
        "ExpandPlan"
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
        for e in &self.arguments {
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
        let [input] = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children).map_err(|_| one_input())?;
        let ExpandPlan { arguments, spread, schema, .. } = self.as_ref();
        Ok(Arc::new(ExpandPlan::new(input, arguments.clone(), spread.clone(), schema.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let running = Running {
            input: self.input.execute(partition, context)?,
            arguments: self.arguments.clone(),
            spread: self.spread.clone(),
            schema: self.schema.clone(),
            has_begun: self.spread.leading.is_empty(),
            batch: None,
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
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    spread: Arc<Spread>,
    schema: SchemaRef,
    /// Whether the leading rows were already returned. It is true from the start if there are none.
    has_begun: bool,
    batch: Option<Batch>,
}

/// A batch of input rows, not all of which were processed yet.
struct Batch {
    rows: RecordBatch,
    arguments: Vec<ArrayRef>,
    /// The input row for which the functions run.
    row: usize,
    /// The result rows of each function for this input row, and the number of rows that were already made
    /// from it. It is `None` if the functions have not started for this row.
    sets: Option<(Vec<SetRows>, i64)>,
}

impl Running {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return self.leading().map(Some);
        }
        loop {
            let mut batch = match self.batch.take() {
                Some(batch) => batch,
                None => match self.input.next().await.transpose()? {
                    Some(rows) => self.begun(rows)?,
                    None => return Ok(None),
                },
            };
            let made = self.spread_rows(&mut batch)?;
            if batch.row < batch.rows.num_rows() {
                self.batch = Some(batch);
            }
            if made.num_rows() > 0 {
                return Ok(Some(made));
            }
        }
    }

    fn begun(&self, rows: RecordBatch) -> Result<Batch> {
        let arguments = self.arguments.iter().map(|e| e.evaluate(&rows)?.into_array(rows.num_rows()));
        Ok(Batch { arguments: arguments.collect::<Result<_>>()?, rows, row: 0, sets: None })
    }

    fn leading(&self) -> Result<RecordBatch> {
        let count = self.spread.leading.len();
        let width = self.schema.fields().len() - self.spread.types.len();
        let mut columns: Vec<ArrayRef> =
            self.schema.fields().iter().take(width).map(|f| new_null_array(f.data_type(), count)).collect();
        for (n, ty) in self.spread.types.iter().enumerate() {
            let mut cells = CellsBuilder::new(*ty);
            for number in &self.spread.leading {
                cells.push(if n == 0 { Datum::Int8(*number) } else { Datum::Null });
            }
            columns.push(cells.finish());
        }
        made(&self.schema, columns, count)
    }

    /// Returns the rows that are made from the next input rows, up to the size of a batch.
    fn spread_rows(&self, batch: &mut Batch) -> Result<RecordBatch> {
        let spread = &self.spread;
        // One input row may become any number of batches, and the operator above may read all of them before
        // it returns a row. So each batch checks for a cancel request.
        spread.around.check_cancel().map_err(wrapped)?;
        let mut builders: Vec<CellsBuilder> = spread.types.iter().map(|t| CellsBuilder::new(*t)).collect();
        let mut from: Vec<u32> = Vec::new();
        while from.len() < BATCH_ROWS && batch.row < batch.rows.num_rows() {
            if batch.sets.is_none() {
                batch.sets = Some((self.started(batch).map_err(wrapped)?, 0));
            }
            let Some((sets, count)) = &mut batch.sets else { break };
            let values = sets
                .iter_mut()
                .map(SetRows::next_row)
                .collect::<varve_sql::Result<Vec<_>>>()
                .map_err(wrapped)?;
            if values.iter().all(Option::is_none) {
                batch.row += 1;
                batch.sets = None;
                continue;
            }
            *count += 1;
            for (builder, value) in builders.iter_mut().zip(&values) {
                builder.push(value.as_ref().map_or(Datum::Null, |v| v.as_datum()));
            }
            if spread.numbered
                && let Some(number) = builders.last_mut()
            {
                number.push(Datum::Int8(*count));
            }
            from.push(batch.row as u32);
        }
        let rows = from.len();
        let from = UInt32Array::from(from);
        let taken = batch.rows.columns().iter().map(|column| take(column, &from, None));
        let mut columns = taken.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
        columns.extend(builders.iter_mut().map(CellsBuilder::finish));
        made(&self.schema, columns, rows)
    }

    /// Starts the functions for the current row of the batch.
    fn started(&self, batch: &Batch) -> varve_sql::Result<Vec<SetRows>> {
        let mut at = 0;
        let mut sets = Vec::with_capacity(self.spread.functions.len());
        for (function, types) in &self.spread.functions {
            let columns = types.iter().zip(&batch.arguments[at..]);
            let values: Vec<Datum<'_>> =
                columns.map(|(t, array)| Cells::of(*t, array).get(batch.row)).collect();
            sets.push(self.spread.around.set_rows(*function, &values)?);
            at += types.len();
        }
        Ok(sets)
    }
}
