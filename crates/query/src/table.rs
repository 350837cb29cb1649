//! Makes a table of the engine available to the library DataFusion (trait `TableProvider`). The scan of the
//! table gets the columns, conditions and limit that DataFusion asks for.
//!
//! Invariants
//! 1. In DataFusion, columns are named by their number. DataFusion never sees the names that clients see.
//! 2. If the table accepts a condition, it checks the condition exactly. It returns no row for which the
//!    condition is not true.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{Expr as Logical, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use varve_engine::{ScanIndex, Table};
use varve_sql::general::{Access, Around, Expr, SqlError, Ty, choose, conjuncts, joined};
use varve_sql::statistics::{Sampled, ScanFacts};

use crate::cells::data_type;
use crate::columns::{column_name, column_types};
use crate::error::wrapped;
use crate::kept::Snapshot;
use crate::pushed;
use crate::scan::{Scan, ScanPlan};
use crate::sieve::Sieve;

/// A table at the snapshot of one statement.
pub struct SnapshotTable {
    table: Arc<Table>,
    types: Vec<Ty>,
    schema: SchemaRef,
    snapshot: Arc<Snapshot>,
    around: Arc<Around>,
}

impl SnapshotTable {
    /// Returns the table at this snapshot. If `keyed` is set, the key of the row is added after the columns,
    /// as bytes.
    pub fn new(
        table: Arc<Table>,
        keyed: bool,
        snapshot: Arc<Snapshot>,
        around: Arc<Around>,
    ) -> SnapshotTable {
        let mut types = column_types(&table);
        types.extend(keyed.then_some(Ty::Bytea));
        let field = |(n, t): (usize, &Ty)| {
            let not_null = table.def().columns.get(n).is_none_or(|c| c.not_null);
            Field::new(column_name(n), data_type(*t), !not_null)
        };
        let fields: Vec<Field> = types.iter().enumerate().map(field).collect();
        SnapshotTable { schema: Arc::new(Schema::new(fields)), table, types, snapshot, around }
    }
}

impl SnapshotTable {
    /// Reads a sample for a scan with these conditions. Distinct values are counted only for `columns`.
    pub fn facts(&self, filters: &[Logical], columns: &[usize]) -> ScanFacts {
        let Ok(reader) = self.snapshot.unnoted_reader() else { return ScanFacts::unknown() };
        let conditions = filters.iter().filter_map(pushed::condition).collect();
        Sampled { table: &self.table, reader, around: &self.around }.facts(conditions, columns)
    }

    /// Returns all columns that a scan reads, if the index contains all of them. They are the returned
    /// columns and those of the filter. The key of the row is not among them, because a scan of an index
    /// returns it with every row.
    fn covered_reads(
        &self,
        index: ScanIndex,
        given: &[usize],
        filter: Option<&Expr>,
    ) -> Option<Box<[usize]>> {
        let mut columns = given.to_vec();
        filter.into_iter().for_each(|filter| filter.add_columns(&mut columns));
        columns.retain(|column| *column < self.table.def().columns.len());
        self.table.def().covers(index, &columns).then(|| columns.into())
    }
}

impl fmt::Debug for SnapshotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotTable({})", self.table.def().name)
    }
}

#[async_trait]
impl TableProvider for SnapshotTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Logical]) -> Result<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Logical| match pushed::condition(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(taken).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Logical],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // DataFusion may have changed a condition after the table accepted it. So the condition is translated
        // again.
        let known = |filter| pushed::condition(filter).ok_or_else(unknown_condition);
        let conditions = filters.iter().map(known).collect::<Result<Vec<_>>>()?;
        let conditions: Vec<_> = conditions.into_iter().flat_map(conjuncts).collect();
        let choice = choose(self.table.def(), &conditions, None, limit.is_some());
        let left = conditions.into_iter().zip(&choice.covered).filter(|(_, covered)| !**covered);
        let columns = projection.cloned().unwrap_or_else(|| (0..self.types.len()).collect());
        let index = match &choice.access {
            Access::Ranges { index, .. } => *index,
            Access::Full | Access::Point(_) => ScanIndex::Primary,
        };
        let filter = joined(left.map(|(condition, _)| condition).collect());
        let scan = Scan {
            reads: self.covered_reads(index, &columns, filter.as_ref()),
            table: self.table.clone(),
            index,
            access: choice.access,
            filter: Sieve::of(filter, &self.types),
            types: columns.iter().map(|c| self.types[*c]).collect(),
            columns,
            limit,
            snapshot: self.snapshot.clone(),
            around: self.around.clone(),
            counts: None,
        };
        let schema = Arc::new(self.schema.project(&scan.columns)?);
        let partitions = state.config().target_partitions();
        Ok(Arc::new(ScanPlan::new(scan, schema, partitions).map_err(wrapped)?))
    }
}

fn unknown_condition() -> DataFusionError {
    wrapped(SqlError::internal("a table has taken a condition that it does not know"))
}
