//! Rows that are computed and not read from a table: VALUES, generate_series and unnest. DataFusion reads
//! them through the trait `TableProvider`, like a table.
//!
//! Invariants
//! 1. Rows are computed while their stream is polled. So in a subquery, each run uses the current values of
//!    the outer row.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr as Logical, TableType};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use varve_engine::Datum;
use varve_sql::general::{Around, Expr, Series, Step, Ty, Unnest};

use crate::cells::{BATCH_ROWS, CellsBuilder, data_type};
use crate::children::leaf_node;
use crate::columns::column_name;
use crate::error::wrapped;

/// The rows that are computed.
#[derive(Debug, Clone)]
pub enum Rows {
    /// One row for each list of expressions.
    Values(Vec<Vec<Expr>>),
    /// The rows of generate_series, with these arguments.
    Series(Box<[Expr; 3]>, Ty),
    /// The rows of unnest of these arrays, in one batch.
    Unnest(Unnest),
}

/// Computed rows as a table.
#[derive(Clone)]
pub struct RowsTable {
    rows: Arc<Rows>,
    types: Vec<Ty>,
    schema: SchemaRef,
    around: Arc<Around>,
}

impl RowsTable {
    /// Returns a table of the rows. Their columns have these types.
    pub fn new(rows: Rows, types: Vec<Ty>, around: Arc<Around>) -> RowsTable {
        let field = |(n, t): (usize, &Ty)| Field::new(column_name(n), data_type(*t), true);
        let fields: Vec<Field> = types.iter().enumerate().map(field).collect();
        RowsTable { rows: Arc::new(rows), schema: Arc::new(Schema::new(fields)), types, around }
    }
}

impl fmt::Debug for RowsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows.as_ref() {
            Rows::Values(rows) => write!(f, "{} rows of values", rows.len()),
            Rows::Series(..) => write!(f, "generate_series"),
            Rows::Unnest(_) => write!(f, "unnest"),
        }
    }
}

#[async_trait]
impl TableProvider for RowsTable {
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
        let columns = projection.cloned().unwrap_or_else(|| (0..self.types.len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(RowsPlan { table: self.clone(), columns, properties: Arc::new(properties) }))
    }
}

/// The physical plan node that computes the rows.
pub struct RowsPlan {
    table: RowsTable,
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl RowsPlan {
    /// Returns the number of rows, if it is known before the node runs.
    pub fn count(&self) -> Option<f64> {
        match self.table.rows.as_ref() {
            Rows::Values(rows) => Some(rows.len() as f64),
            Rows::Series(..) | Rows::Unnest(_) => None,
        }
    }

    /// Returns the step that EXPLAIN shows for this node.
    pub fn step(&self) -> Step {
        match self.table.rows.as_ref() {
            Rows::Values(_) => Step::new("Values Scan").on("\"*VALUES*\""),
            Rows::Series(..) => Step::new("Function Scan").on("generate_series"),
            Rows::Unnest(_) => Step::new("Function Scan").on("unnest"),
        }
    }
}

impl fmt::Debug for RowsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for RowsPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsPlan: {:?}", self.table)
    }
}

impl ExecutionPlan for RowsPlan {
    leaf_node!("RowsPlan");

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let RowsTable { rows, types, around, .. } = &self.table;
        let batches = Batches {
            rows: rows.clone(),
            types: types.clone(),
            around: around.clone(),
            columns: self.columns.clone(),
            schema: self.schema(),
            at: 0,
            series: None,
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches))))
    }
}

/// The batches of one run.
struct Batches {
    rows: Arc<Rows>,
    types: Vec<Ty>,
    around: Arc<Around>,
    columns: Vec<usize>,
    schema: SchemaRef,
    /// For VALUES, the number of rows that were returned so far. For unnest, 1 after its rows were returned.
    at: usize,
    /// The remaining values of generate_series, if it has begun.
    series: Option<Series>,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut builders: Vec<CellsBuilder> =
            self.columns.iter().map(|c| CellsBuilder::new(self.types[*c])).collect();
        match self.fill(&mut builders) {
            Ok(0) => None,
            Ok(rows) => {
                let columns = builders.iter_mut().map(CellsBuilder::finish).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
                Some(batch.map_err(Into::into))
            }
            Err(e) => Some(Err(wrapped(e))),
        }
    }
}

impl Batches {
    /// Computes the next rows, and returns their number.
    fn fill(&mut self, builders: &mut [CellsBuilder]) -> varve_sql::Result<usize> {
        let mut count = 0;
        let mut push = |row: &[Datum<'_>]| {
            for (column, builder) in self.columns.iter().zip(builders.iter_mut()) {
                builder.push(row[*column]);
            }
            count += 1;
        };
        match self.rows.as_ref() {
            Rows::Values(rows) => {
                let end = rows.len().min(self.at + BATCH_ROWS);
                let from = std::mem::replace(&mut self.at, end);
                self.around.values(&rows[from..end], &mut push)?;
            }
            Rows::Series(bounds, ty) => {
                let series = match &mut self.series {
                    Some(series) => series,
                    None => self.series.insert(self.around.series(bounds, *ty)?),
                };
                series.take(BATCH_ROWS).for_each(|value| push(&[value]));
            }
            Rows::Unnest(unnest) => {
                if std::mem::replace(&mut self.at, 1) == 0 {
                    self.around.unnested(unnest, push)?;
                }
            }
        }
        Ok(count)
    }
}
