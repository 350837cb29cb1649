//! Scans a table: reads batches of rows from ranges of keys. Each partition of the scan has a reader.
//!
//! Invariants
//! 1. Between two batches, a scan holds a reader of the engine, but no page. It continues after the last key
//!    that it returned.
//! 2. The partitions are disjoint and in key order. Together they are the key ranges that the access path has
//!    chosen.
//! 3. The rows of one partition come in the order of the index.
//!
//! A batch is read while its stream is polled, so the poll may block.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use parking_lot::Mutex;
use varve_engine::{Datum, LeafCounts, LeafLayout, Reader, ScanIndex, ScanSpec, Table, planted_panic};
use varve_sql::general::{Access, Around, Expr, KeyBytes, Step, TableAccess, Ty, quoted_name, scan_of};

use crate::cells::{BATCH_ROWS, CellsBuilder, is_native};
use crate::columns::column_types;
use crate::constants;
use crate::error::wrapped;
use crate::kept::Snapshot;
use crate::leaves::LeafRead;
use crate::partition;
use crate::sieve::Sieve;

/// Describes a scan: the table, the ranges, the condition and the columns.
#[derive(Clone)]
pub struct Scan {
    /// The table.
    pub table: Arc<Table>,
    /// The index that is read.
    pub index: ScanIndex,
    /// The ranges of keys that are read.
    pub access: Access,
    /// The condition on the rows in these ranges.
    pub filter: Sieve,
    /// The ordinals of the columns that are returned. The ordinal after the last column of the table means
    /// the key of the row.
    pub columns: Vec<usize>,
    /// The types of these columns.
    pub types: Vec<Ty>,
    /// The columns that the scan reads, including those of the filter, if the index contains all of them.
    pub reads: Option<Box<[usize]>>,
    /// The maximum number of rows that are needed.
    pub limit: Option<usize>,
    /// The snapshot that is read.
    pub snapshot: Arc<Snapshot>,
    /// The surroundings of the query, for the filter.
    pub around: Arc<Around>,
    /// Counters for EXPLAIN ANALYZE.
    pub counts: Option<Arc<ScanCounts>>,
}

/// Counters of a scan.
#[derive(Debug, Default)]
pub struct ScanCounts {
    /// The number of rows that the filter leaves out.
    pub left_out: AtomicU64,
    /// How leaves by columns were read.
    pub leaves: Mutex<LeafCounts>,
}

impl Scan {
    /// Returns the ranges of keys as bytes, in key order.
    fn ranges(&self) -> varve_sql::Result<Vec<KeyBytes>> {
        self.around.ranges(self.table.def(), &self.access)
    }

    /// Returns the table with its access path.
    pub fn target(&self) -> TableAccess {
        TableAccess {
            access: self.access.clone(),
            reads: self.reads.clone(),
            ..TableAccess::whole(self.table.def().clone())
        }
    }

    /// Whether the rows may be read by columns.
    fn is_by_columns(&self) -> bool {
        self.index == ScanIndex::Primary && self.table.def().storage.layout == LeafLayout::ByColumns
    }

    fn range_count(&self) -> usize {
        match &self.access {
            Access::Full | Access::Point(_) => 1,
            Access::Ranges { ranges, .. } => ranges.len(),
        }
    }
}

/// The physical plan node of a scan.
pub struct ScanPlan {
    scan: Scan,
    /// The ranges of each part of the scan. `None` if there is one part. Its ranges are then computed at
    /// execution, because they may depend on the result of a subquery.
    partitions: Option<Vec<Vec<KeyBytes>>>,
    properties: Arc<PlanProperties>,
}

impl ScanPlan {
    /// Returns the node for this scan, with up to `partitions` partitions.
    pub fn new(scan: Scan, schema: SchemaRef, partitions: usize) -> varve_sql::Result<ScanPlan> {
        let partitions = if partitions > 1 { Some(dealt(&scan, partitions)?) } else { None };
        let properties = PlanProperties::new(
            ordered_by_key(&scan, schema),
            Partitioning::UnknownPartitioning(partitions.as_ref().map_or(1, Vec::len)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(ScanPlan { scan, partitions, properties: Arc::new(properties) })
    }

    /// Returns a copy of this node that counts rows and leaves.
    pub fn counting(&self, counts: Arc<ScanCounts>) -> ScanPlan {
        let mut plan = self.again();
        plan.scan.counts = Some(counts);
        plan
    }

    /// Returns a copy of this node.
    pub fn again(&self) -> ScanPlan {
        let ScanPlan { scan, partitions, properties } = self;
        ScanPlan { scan: scan.clone(), partitions: partitions.clone(), properties: properties.clone() }
    }

    /// Returns whether the scan reads the whole table as one part, without the keys of rows, in a plan that
    /// runs once.
    pub fn is_whole(&self) -> bool {
        let Scan { table, access, index, filter, limit, around, .. } = &self.scan;
        let mut columns = self.scan.columns.clone();
        filter.whole().into_iter().for_each(|filter| filter.add_columns(&mut columns));
        let width = table.def().columns.len();
        matches!(access, Access::Full)
            && *index == ScanIndex::Primary
            && self.partitions.is_none()
            && limit.is_none()
            && !around.is_within()
            && width > 0
            && columns.iter().all(|column| *column < width)
    }

    /// Returns the batches of the rows in this range of keys.
    pub fn batches(&self, range: KeyBytes) -> Result<Batches> {
        self.batches_of(vec![range])
    }

    fn batches_of(&self, ranges: Vec<KeyBytes>) -> Result<Batches> {
        let reader = self.scan.snapshot.reader().map_err(wrapped)?;
        let mut scan = self.scan.clone();
        if let Some(filter) = scan.filter.whole().filter(|filter| constants::hangs_on_run(filter)) {
            let mut types = column_types(&scan.table);
            types.push(Ty::Bytea);
            scan.filter = Sieve::of(Some(constants::of_run(filter, &scan.around)), &types);
        }
        let left = self.scan.limit.unwrap_or(usize::MAX);
        Ok(Batches { ranges, at: 0, resume: None, left, scan, schema: self.schema(), reader })
    }

    /// Returns a condition on rows of the table as EXPLAIN shows it.
    pub fn filter_note(&self, condition: &Expr) -> Option<String> {
        let target = TableAccess::whole(self.scan.table.def().clone());
        let notes = scan_of(&target, Some(condition)).notes;
        notes.into_iter().find(|(key, _)| *key == "Filter").map(|(_, text)| text)
    }

    /// Returns what the scan reads.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Returns the step that EXPLAIN shows for this node.
    pub fn step(&self) -> Step {
        let Scan { table, filter, columns, .. } = &self.scan;
        let target = self.scan.target();
        let given = columns.iter().filter_map(|ordinal| table.def().columns.get(*ordinal));
        let outputs = given
            .map(|column| format!("{}.{}", quoted_name(&table.def().name), quoted_name(&column.name)))
            .collect();
        Step { outputs, ..scan_of(&target, filter.whole()) }
    }
}

/// Distributes the ranges to partitions with about the same number of ranges each. A single range is divided
/// into parts.
fn dealt(scan: &Scan, partitions: usize) -> varve_sql::Result<Vec<Vec<KeyBytes>>> {
    let ranges = scan.ranges()?;
    match ranges.as_slice() {
        [] => Ok(vec![Vec::new()]),
        [only] if scan.limit.is_none() => {
            let (Some(first), Some(last)) = (edge(scan, only, false)?, edge(scan, only, true)?) else {
                return Ok(vec![Vec::new()]);
            };
            Ok(partition::parts(only, &first, &last, partitions).into_iter().map(|part| vec![part]).collect())
        }
        ranges => {
            let each = ranges.len().div_ceil(partitions);
            Ok(ranges.chunks(each).map(<[KeyBytes]>::to_vec).collect())
        }
    }
}

/// Returns the place of the first or last row of a range. Returns `None` if the range has no rows.
fn edge(scan: &Scan, range: &KeyBytes, last: bool) -> varve_sql::Result<Option<Vec<u8>>> {
    let mut is_found = false;
    let spec = ScanSpec { reverse: last, columns: Some(&[]), ..range.spec(scan.index, Some(1)) };
    let mut reader = scan.snapshot.reader()?;
    reader.scan(&scan.table, &spec, &mut |_, _| {
        is_found = true;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(is_found.then(|| reader.place(scan.index).to_vec()))
}

/// Returns the order of the rows. It is the longest prefix of the key columns that are returned and that
/// Arrow compares in the same way as keys.
fn ordered_by_key(scan: &Scan, schema: SchemaRef) -> EquivalenceProperties {
    let def = scan.table.def();
    let key = match scan.index {
        ScanIndex::Primary => def.key_columns(),
        ScanIndex::Secondary(id) => def.index(id).map_or(&[][..], |i| &i.columns),
    };
    let mut order = Vec::new();
    for column in key {
        let Some(at) = scan.columns.iter().position(|c| c == column) else { break };
        if !is_native(scan.types[at]) {
            break;
        }
        let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
        order.push(PhysicalSortExpr::new(expr, Default::default()).asc().nulls_last());
    }
    if order.is_empty() {
        return EquivalenceProperties::new(schema);
    }
    EquivalenceProperties::new_with_orderings(schema, [order])
}

impl fmt::Debug for ScanPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for ScanPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scan { table, index, filter, columns, limit, .. } = &self.scan;
        write!(
            f,
            "ScanPlan: {} by {index:?}, {} ranges in {} partitions, columns {columns:?}, filtered {}, limit {limit:?}",
            table.def().name,
            self.scan.range_count(),
            self.partitions.as_ref().map_or(1, Vec::len),
            !filter.is_open(),
        )
    }
}

impl ExecutionPlan for ScanPlan {
    fn name(&self) -> &str {
        "ScanPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.batches_of(match &self.partitions {
            Some(partitions) => partitions[partition].clone(),
            None => self.scan.ranges().map_err(wrapped)?,
        })?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches))))
    }
}

/// The batches of one partition.
pub struct Batches {
    scan: Scan,
    schema: SchemaRef,
    reader: Reader,
    ranges: Vec<KeyBytes>,
    /// The range being read.
    at: usize,
    /// The place of the last row that was returned from this range.
    resume: Option<Vec<u8>>,
    /// The number of rows that may still be returned.
    left: usize,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        planted_panic("panic at operator");
        self.batch().map_err(wrapped).transpose().map(|batch| {
            batch.and_then(|(columns, rows)| {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
            })
        })
    }
}

impl Batches {
    /// Returns the columns of the next batch and the number of its rows. Returns `None` at the end.
    fn batch(&mut self) -> varve_sql::Result<Option<(Vec<datafusion::arrow::array::ArrayRef>, usize)>> {
        let mut builders: Vec<CellsBuilder> = self.scan.types.iter().map(|t| CellsBuilder::new(*t)).collect();
        let wanted = self.left.min(BATCH_ROWS);
        let mut rows = 0;
        while rows < wanted && self.at < self.ranges.len() {
            rows += match self.scan.is_by_columns() {
                true => self.read_leaves([wanted - rows, self.left - rows], &mut builders)?,
                false => self.read(wanted - rows, &mut builders)?,
            };
        }
        self.left -= rows;
        if rows == 0 {
            return Ok(None);
        }
        Ok(Some((builders.iter_mut().map(CellsBuilder::finish).collect(), rows)))
    }

    /// Returns the part of the current range that was not read yet.
    fn rest_of_range(&mut self) -> KeyBytes {
        let mut range = self.ranges[self.at].clone();
        if let Some(last) = self.resume.take() {
            range.lower = Bound::Excluded(last);
        }
        range
    }

    /// Reads rows of the current range by columns, as `LeafRead`. Returns their number.
    fn read_leaves(
        &mut self,
        wanted_and_limit: [usize; 2],
        builders: &mut [CellsBuilder],
    ) -> varve_sql::Result<usize> {
        let range = self.rest_of_range();
        let Batches { scan, reader, at, resume, .. } = self;
        let spec = range.spec(scan.index, None);
        let mut read = LeafRead::new(&scan.filter, &scan.columns, builders, wanted_and_limit);
        let (mut leaves, bounds) = (LeafCounts::default(), scan.filter.bounds());
        scan.around.checking(|check| {
            leaves =
                reader.scan_leaves(&scan.table, &spec, bounds, &mut |shown| Ok(read.take(&shown, check)))?;
            Ok(())
        })?;
        if let Some(counts) = &scan.counts {
            leaves.whole_rows += read.put_together;
            counts.left_out.fetch_add(read.left_out, Ordering::Relaxed);
            *counts.leaves.lock() += leaves;
        }
        match read.is_full() {
            true => *resume = Some(reader.place(scan.index).to_vec()),
            false => *at += 1,
        }
        Ok(read.rows)
    }

    /// Reads up to `wanted` rows of the current range, and returns their number.
    fn read(&mut self, wanted: usize, builders: &mut [CellsBuilder]) -> varve_sql::Result<usize> {
        let range = self.rest_of_range();
        let Batches { scan, reader, at, resume, .. } = self;
        let spec = ScanSpec { columns: scan.reads.as_deref(), ..range.spec(scan.index, Some(wanted)) };
        let (mut rows, mut is_stopped, mut seen) = (0, false, 0);
        let width = scan.table.def().columns.len();
        scan.around.sieved(
            |row| scan.filter.left(row),
            |on_row| match &scan.counts {
                None => reader.scan(&scan.table, &spec, on_row),
                Some(_) => reader.scan(&scan.table, &spec, &mut |key, row| {
                    seen += 1;
                    on_row(key, row)
                }),
            },
            |key, row| {
                for (column, builder) in scan.columns.iter().zip(builders.iter_mut()) {
                    // The ordinal after the columns of the table means the key of the row.
                    builder.push(if *column < width { row.get(*column) } else { Datum::Bytea(key) });
                }
                rows += 1;
                if rows < wanted {
                    return ControlFlow::Continue(());
                }
                is_stopped = true;
                ControlFlow::Break(())
            },
        )?;
        if let Some(counts) = &scan.counts {
            counts.left_out.fetch_add(seen - rows as u64, Ordering::Relaxed);
        }
        match is_stopped {
            true => *resume = Some(reader.place(scan.index).to_vec()),
            false => *at += 1,
        }
        Ok(rows)
    }
}
