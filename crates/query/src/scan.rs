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

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use parking_lot::Mutex;
use varve_engine::{Datum, LeafCounts, LeafLayout, Reader, ScanIndex, ScanSpec, Table, planted_panic};
use varve_sql::general::{
    Access, Around, Expr, KeyBytes, SqlError, Step, TableAccess, Ty, quoted_name, scan_of,
};

use crate::cells::{BATCH_ROWS, CellsBuilder, is_native};
use crate::children::leaf_node;
use crate::columns::column_types;
use crate::constants;
use crate::error::wrapped;
use crate::kept::Snapshot;
use crate::leaves::{Conditions, LeafRead};
use crate::partition;
use crate::runtime_filter::{RuntimeChecks, RuntimeFilter};
use crate::sieve::Sieve;
use crate::stop::Stop;

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
    /// The number of rows that runtime filters leave out.
    pub unpaired: AtomicU64,
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

/// The number of chunks into which a scan by several threads is cut.
const CHUNKS: usize = 96;

/// The partitions of a scan.
#[derive(Clone)]
enum Partitions {
    /// One, whose ranges are computed at execution, because they may depend on the result of a subquery.
    One,
    /// The ranges of each partition.
    Dealt(Vec<Vec<KeyBytes>>),
    /// This number of partitions, which take chunks of the table in turn. Their threads so end at about the
    /// same time.
    InTurn(usize, Arc<Chunks>),
}

impl Partitions {
    const fn count(&self) -> usize {
        match self {
            Partitions::One => 1,
            Partitions::Dealt(ranges) => ranges.len(),
            Partitions::InTurn(count, _) => *count,
        }
    }

    /// The same partitions for another execution.
    fn renewed(&self) -> Partitions {
        match self {
            Partitions::InTurn(count, _) => Partitions::InTurn(*count, Arc::default()),
            other => other.clone(),
        }
    }
}

/// The parts of a table that the partitions of one execution still have to read.
#[derive(Default)]
struct Chunks {
    /// `None` before the first one is taken.
    left: Mutex<Option<VecDeque<KeyBytes>>>,
    /// The number of partitions that have begun.
    begun: AtomicUsize,
}

impl Chunks {
    fn take(&self, scan: &Scan) -> varve_sql::Result<Option<KeyBytes>> {
        let mut left = self.left.lock();
        if left.is_none() {
            let places = scan.snapshot.unnoted_reader()?.estimate(&scan.table, CHUNKS)?.places;
            *left = Some(between(places));
        }
        Ok(left.as_mut().and_then(VecDeque::pop_front))
    }
}

/// The ranges between ascending places, with the ranges before the first and behind the last one.
fn between(places: Vec<Vec<u8>>) -> VecDeque<KeyBytes> {
    let mut lower = Bound::Unbounded;
    let mut ranges = VecDeque::with_capacity(places.len() + 1);
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        let upper = Bound::Excluded(place.clone());
        ranges.push_back(KeyBytes { lower: std::mem::replace(&mut lower, Bound::Included(place)), upper });
    }
    ranges.push_back(KeyBytes { lower, upper: Bound::Unbounded });
    ranges
}

/// The physical plan node of a scan.
pub struct ScanPlan {
    scan: Scan,
    /// The runtime filters, each with the ordinal of its column in the table.
    filters: Vec<(usize, Arc<RuntimeFilter>)>,
    partitions: Partitions,
    properties: Arc<PlanProperties>,
}

impl ScanPlan {
    /// Returns the node for this scan, with up to `partitions` partitions.
    pub fn new(scan: Scan, schema: SchemaRef, partitions: usize) -> varve_sql::Result<ScanPlan> {
        let partitions =
            if partitions > 1 { Partitions::Dealt(dealt(&scan, partitions)?) } else { Partitions::One };
        let order = ordered_by_key(&scan, schema);
        Ok(ScanPlan::with(scan, partitions, order))
    }

    fn with(scan: Scan, partitions: Partitions, order: EquivalenceProperties) -> ScanPlan {
        let properties = PlanProperties::new(
            order,
            Partitioning::UnknownPartitioning(partitions.count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        ScanPlan { scan, filters: Vec::new(), partitions, properties: Arc::new(properties) }
    }

    /// Returns the scan with a runtime filter for a column of its output. Returns `None` if the column is not
    /// suitable, or if the scan ends after a number of rows.
    pub fn filtered(&self, at: usize, filter: &Arc<RuntimeFilter>) -> Option<ScanPlan> {
        let (ordinal, ty) = (*self.scan.columns.get(at)?, self.scan.types.get(at)?);
        let is_integer =
            matches!(ty, Ty::Int2 | Ty::Int4 | Ty::Int8 | Ty::Date | Ty::Timestamp | Ty::TimestampTz);
        if !is_integer || self.scan.limit.is_some() || ordinal >= self.scan.table.def().columns.len() {
            return None;
        }
        let mut plan = self.again();
        plan.filters.push((ordinal, filter.clone()));
        Some(plan)
    }

    /// Returns the scan with this number of partitions, whose rows come in any order. Returns `None` if
    /// threads cannot share the scan, or if the table has fewer than `rows_min` rows.
    pub fn shared_by(&self, threads: usize, rows_min: u64) -> Option<ScanPlan> {
        let Scan { table, index, access, filter, limit, around, snapshot, .. } = &self.scan;
        let is_whole = *index == ScanIndex::Primary && matches!(access, Access::Full) && limit.is_none();
        let is_plain = matches!(self.partitions, Partitions::One) && table.def().engine == "paged";
        if !is_whole || !is_plain || around.is_within() || filter.whole().is_some_and(Expr::is_volatile) {
            return None;
        }
        let rows = snapshot.unnoted_reader().ok()?.estimate(table, 1).ok()?.entries;
        let order = EquivalenceProperties::new(self.schema());
        let partitions = Partitions::InTurn(threads, Arc::default());
        (rows >= rows_min).then(|| ScanPlan::with(self.scan.clone(), partitions, order))
    }

    /// Returns a copy of this node that counts rows and leaves.
    pub fn counting(&self, counts: Arc<ScanCounts>) -> ScanPlan {
        let mut plan = self.again();
        plan.scan.counts = Some(counts);
        plan
    }

    /// Returns a copy of this node for another execution.
    pub fn again(&self) -> ScanPlan {
        let ScanPlan { scan, filters, partitions, properties } = self;
        ScanPlan {
            scan: scan.clone(),
            filters: filters.clone(),
            partitions: partitions.renewed(),
            properties: properties.clone(),
        }
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
            && matches!(self.partitions, Partitions::One)
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
        let (schema, stop) = (self.schema(), Arc::default());
        let checks = RuntimeChecks::new(&self.filters);
        Ok(Batches { ranges, chunks: None, stop, at: 0, resume: None, left, scan, checks, schema, reader })
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
            self.partitions.count(),
            !filter.is_open(),
        )
    }
}

impl ExecutionPlan for ScanPlan {
    leaf_node!("ScanPlan");

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        if !matches!(self.partitions, Partitions::InTurn(..)) {
            return Ok(self);
        }
        Ok(Arc::new(self.again()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (ranges, chunks) = match &self.partitions {
            Partitions::One => (self.scan.ranges().map_err(wrapped)?, None),
            Partitions::Dealt(ranges) => (ranges[partition].clone(), None),
            Partitions::InTurn(count, chunks) => {
                if chunks.begun.fetch_add(1, Ordering::Relaxed) >= *count {
                    return Err(wrapped(SqlError::internal("a scan in parts that runs a second time")));
                }
                (Vec::new(), Some(chunks.clone()))
            }
        };
        let batches = Batches { chunks, stop: Stop::of(&context), ..self.batches_of(ranges)? };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches))))
    }
}

/// The batches of one partition.
pub struct Batches {
    scan: Scan,
    checks: RuntimeChecks,
    schema: SchemaRef,
    reader: Reader,
    ranges: Vec<KeyBytes>,
    /// Where further ranges come from, if several partitions share them.
    chunks: Option<Arc<Chunks>>,
    stop: Arc<Stop>,
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
        self.stop.check()?;
        if self.checks.renew() {
            return Ok(None);
        }
        let mut builders: Vec<CellsBuilder> = self.scan.types.iter().map(|t| CellsBuilder::new(*t)).collect();
        let wanted = self.left.min(BATCH_ROWS);
        let mut rows = 0;
        while rows < wanted && self.has_range()? {
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

    /// Whether a range is left, after a chunk was taken if necessary.
    fn has_range(&mut self) -> varve_sql::Result<bool> {
        if self.at < self.ranges.len() {
            return Ok(true);
        }
        let Some(chunks) = &self.chunks else { return Ok(false) };
        self.ranges.clear();
        self.ranges.extend(chunks.take(&self.scan)?);
        self.at = 0;
        Ok(!self.ranges.is_empty())
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
        let Batches { scan, checks, reader, at, resume, .. } = self;
        let spec = range.spec(scan.index, None);
        let conditions = Conditions { filter: &scan.filter, checks };
        let mut read = LeafRead::new(conditions, &scan.columns, builders, wanted_and_limit);
        let (mut leaves, bounds) = (LeafCounts::default(), scan.filter.bounds());
        scan.around.checking(|check| {
            leaves =
                reader.scan_leaves(&scan.table, &spec, bounds, &mut |shown| Ok(read.take(&shown, check)))?;
            Ok(())
        })?;
        if let Some(counts) = &scan.counts {
            leaves.whole_rows += read.put_together;
            counts.left_out.fetch_add(read.left_out, Ordering::Relaxed);
            counts.unpaired.fetch_add(read.unpaired, Ordering::Relaxed);
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
        let Batches { scan, checks, reader, at, resume, .. } = self;
        let spec = ScanSpec { columns: scan.reads.as_deref(), ..range.spec(scan.index, Some(wanted)) };
        let (mut rows, mut is_stopped, mut seen, mut unpaired) = (0, false, 0, 0);
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
                if !checks.passes(&row) {
                    unpaired += 1;
                    return ControlFlow::Continue(());
                }
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
            counts.left_out.fetch_add(seen - rows as u64 - unpaired, Ordering::Relaxed);
            counts.unpaired.fetch_add(unpaired, Ordering::Relaxed);
        }
        match is_stopped {
            true => *resume = Some(reader.place(scan.index).to_vec()),
            false => *at += 1,
        }
        Ok(rows)
    }
}
