//! The set of rows in which `x IN (SELECT ...)` or `(x, y) IN (SELECT ...)` is looked up, if the result is a
//! value and not a condition. The set is in memory, or in batches of temporary files if it does not fit.
//!
//! Invariants
//! 1. Each row is in the set, or in the stored batches, as bytes that are equal for equal rows.
//! 2. Stored rows are read once for each batch of rows that are looked up.
//!
//! This module does not know where the rows come from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use varve_engine::{Datum, Value};
use varve_sql::general::{Around, Ty, push_key};

use crate::cells::Cells;
use crate::error::wrapped;
use crate::stored_rows::{ReadPlace, StoredRows};

/// The most rows of a stored batch.
const BATCH_ROWS: usize = 8192;
/// The bytes after which a stored batch ends. A column of a batch holds at most 2 GiB.
const BATCH_BYTES: usize = 64 << 20;
/// The number of members between two checks for a cancel request.
const MEMBERS_PER_CANCEL_CHECK: usize = 64;

/// A set of rows.
pub struct Members {
    /// The rows without NULL.
    whole: HashSet<Vec<u8>>,
    /// The rows with NULL in a field.
    with_null: HashSet<Vec<u8>>,
    /// The rows that did not fit into memory.
    stored: Option<StoredRows>,
    /// The memory of the rows that are in memory.
    reserved: MemoryReservation,
    around: Arc<Around>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    schema: SchemaRef,
}

impl Members {
    /// Returns an empty set. `around` knows whether the query is cancelled.
    pub fn new(around: Arc<Around>, context: Arc<TaskContext>) -> Members {
        let can_spill = context.runtime_env().disk_manager.tmp_files_enabled();
        let consumer = MemoryConsumer::new("IN").with_can_spill(can_spill);
        Members {
            whole: HashSet::new(),
            with_null: HashSet::new(),
            stored: None,
            reserved: consumer.register(context.memory_pool()),
            around,
            context,
            metrics: ExecutionPlanMetricsSet::new(),
            schema: Arc::new(Schema::new(vec![Field::new("row", DataType::Binary, false)])),
        }
    }

    /// Adds rows whose fields have these types.
    pub fn add(&mut self, types: &[Ty], batch: &RecordBatch) -> Result<()> {
        let fields: Vec<Cells<'_>> =
            types.iter().zip(batch.columns()).map(|(ty, column)| Cells::of(*ty, column)).collect();
        let mut bytes = 0;
        for at in 0..batch.num_rows() {
            let row = encoded(fields.iter().map(|cells| cells.get(at)));
            let size = row.len() + size_of::<Vec<u8>>() * 2;
            let has_null = fields_of(&row).any(|field| field.is_none());
            let set = if has_null { &mut self.with_null } else { &mut self.whole };
            bytes += if set.insert(row) { size } else { 0 };
        }
        if self.stored.is_some() {
            return self.store();
        }
        match self.reserved.try_grow(bytes) {
            Err(DataFusionError::ResourcesExhausted(_)) if self.reserved.consumer().can_spill() => {
                self.store()
            }
            grown => grown,
        }
    }

    /// Moves all rows of the set to the stored batches.
    fn store(&mut self) -> Result<()> {
        let whole = std::mem::take(&mut self.whole).into_iter();
        let rows: Vec<Vec<u8>> = whole.chain(std::mem::take(&mut self.with_null)).collect();
        _ = self.reserved.free();
        let stored = self.stored.get_or_insert_default();
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |row: &&Vec<u8>| {
                bytes += row.len();
                bytes <= BATCH_BYTES
            };
            let count = rest.iter().take(BATCH_ROWS).take_while(fits).count().max(1);
            let chunk;
            (chunk, rest) = rest.split_at(count);
            let column: ArrayRef = Arc::new(BinaryArray::from_iter_values(chunk));
            let batch = RecordBatch::try_new(self.schema.clone(), vec![column])?;
            stored.push(batch, &self.schema, &self.metrics, &self.context)?;
        }
        Ok(())
    }

    /// Returns whether each row is in the set: true, false or NULL.
    pub async fn answers(&self, rows: &[Vec<Value>]) -> Result<Vec<Value>> {
        let rows: Vec<Vec<u8>> = rows.iter().map(|row| encoded(row.iter().map(Value::as_datum))).collect();
        let reserved = MemoryConsumer::new("lookup in IN").register(self.context.memory_pool());
        let mut lookup = Lookup::new(&rows, &self.around, reserved);
        match &self.stored {
            Some(stored) => lookup.meet_stored(stored).await?,
            None => lookup.meet_all(&self.whole, &self.with_null)?,
        }
        Ok(lookup.found.into_iter().map(Equality::value).collect())
    }
}

/// Whether a row that is looked up is equal to a member of the set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Equality {
    No,
    /// It may be equal to a row of the set, because of NULL.
    Perhaps,
    Yes,
}

impl Equality {
    fn value(self) -> Value {
        match self {
            Equality::No => Value::Bool(false),
            Equality::Perhaps => Value::Null,
            Equality::Yes => Value::Bool(true),
        }
    }
}

/// For each field of a row, whether it is NULL.
type Nulls = Vec<bool>;

/// Rows by the bytes of some of their fields.
type ByFields = HashMap<Vec<u8>, Vec<usize>>;

/// The rows that are looked up together.
struct Lookup<'r> {
    rows: &'r [Vec<u8>],
    found: Vec<Equality>,
    /// The rows of which members of the set can still change what is known, by their NULLs.
    open: HashMap<Nulls, Vec<usize>>,
    /// The open rows with these NULLs, by the bytes of the fields that are NULL neither in them nor in
    /// members with the other NULLs. If memory is used up, all maps are dropped, and
    /// built again when they are needed.
    by_fields: HashMap<Nulls, HashMap<Nulls, ByFields>>,
    /// The memory of `by_fields`.
    reserved: MemoryReservation,
    open_count: usize,
    /// The number of members that the rows were compared with.
    met: usize,
    around: &'r Around,
}

impl<'r> Lookup<'r> {
    fn new(rows: &'r [Vec<u8>], around: &'r Around, reserved: MemoryReservation) -> Lookup<'r> {
        let mut open: HashMap<Nulls, Vec<usize>> = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            open.entry(nulls_of(row)).or_default().push(at);
        }
        Lookup {
            rows,
            found: vec![Equality::No; rows.len()],
            open,
            by_fields: HashMap::new(),
            reserved,
            open_count: rows.len(),
            met: 0,
            around,
        }
    }

    /// Looks the rows up in a set in memory.
    fn meet_all(&mut self, whole: &HashSet<Vec<u8>>, with_null: &HashSet<Vec<u8>>) -> Result<()> {
        // A row without NULL is equal to at most one member.
        for (nulls, rows) in &mut self.open {
            if !nulls.contains(&true) {
                for at in rows.iter().filter(|at| whole.contains(&self.rows[**at])) {
                    self.found[*at] = Equality::Yes;
                }
                rows.retain(|at| self.found[*at] == Equality::No && !with_null.is_empty());
            }
        }
        self.open.retain(|_, rows| !rows.is_empty());
        self.open_count = self.open.values().map(Vec::len).sum();
        let only_whole = self.open.keys().all(|nulls| !nulls.contains(&true));
        let whole = if only_whole { None } else { Some(whole) };
        for member in with_null.iter().chain(whole.into_iter().flatten()) {
            if self.open_count == 0 {
                break;
            }
            self.meet(member)?;
        }
        Ok(())
    }

    /// Looks the rows up in stored batches.
    async fn meet_stored(&mut self, stored: &StoredRows) -> Result<()> {
        let mut place = ReadPlace::default();
        while self.open_count > 0 {
            let batch = match place.next_of_file().await? {
                Some(batch) => batch,
                None => match stored.next(&mut place).await? {
                    Some(batch) => batch,
                    None if place.is_in_file() => continue,
                    None => return Ok(()),
                },
            };
            batch.column(0).as_binary::<i32>().iter().flatten().try_for_each(|member| self.meet(member))?;
        }
        Ok(())
    }

    /// Compares the open rows with a member of the set.
    fn meet(&mut self, member: &[u8]) -> Result<()> {
        self.met += 1;
        if self.met.is_multiple_of(MEMBERS_PER_CANCEL_CHECK) {
            self.around.check_cancel().map_err(wrapped)?;
        }
        let nulls = nulls_of(member);
        for (of_rows, rows) in &self.open {
            let compared = |at: usize| !of_rows[at] && !nulls[at];
            if !self.by_fields.get(of_rows).is_some_and(|by_nulls| by_nulls.contains_key(&nulls)) {
                let mut by_fields = ByFields::new();
                for at in rows {
                    by_fields.entry(some_fields(&self.rows[*at], compared)).or_default().push(*at);
                }
                let bytes = bytes_of(&by_fields);
                if self.reserved.try_grow(bytes).is_err() {
                    self.by_fields.clear();
                    _ = self.reserved.free();
                    self.reserved.try_grow(bytes)?;
                }
                self.by_fields.entry(of_rows.clone()).or_default().insert(nulls.clone(), by_fields);
            }
            let by_nulls = self.by_fields.get_mut(of_rows);
            let Some(by_fields) = by_nulls.and_then(|by_nulls| by_nulls.get_mut(&nulls)) else { continue };
            let is_row_whole = !of_rows.contains(&true);
            let found =
                if is_row_whole && !nulls.contains(&true) { Equality::Yes } else { Equality::Perhaps };
            for at in by_fields.remove(&some_fields(member, compared)).into_iter().flatten() {
                // A row with NULL is never certainly equal.
                let is_final =
                    |found: Equality| found == Equality::Yes || found == Equality::Perhaps && !is_row_whole;
                let before = self.found[at];
                if before != Equality::Yes {
                    self.found[at] = found;
                }
                self.open_count -= usize::from(!is_final(before) && is_final(self.found[at]));
            }
        }
        Ok(())
    }
}

/// Returns the memory of rows by some of their fields, in bytes.
fn bytes_of(by_fields: &ByFields) -> usize {
    let entry = size_of::<(Vec<u8>, Vec<usize>)>();
    by_fields.iter().map(|(fields, rows)| fields.len() + entry + rows.len() * size_of::<usize>()).sum()
}

/// Returns bytes for a row. Equal rows have the same bytes, and so have equal integers of different types.
/// Each field is 0 for NULL, or 1, the number of bytes that follow, and these bytes.
fn encoded<'d>(fields: impl Iterator<Item = Datum<'d>>) -> Vec<u8> {
    let (mut row, mut key) = (Vec::new(), Vec::new());
    for field in fields {
        let wide = match field {
            Datum::Null => {
                row.push(0);
                continue;
            }
            Datum::Int2(n) => Datum::Int8(n.into()),
            Datum::Int4(n) => Datum::Int8(n.into()),
            other => other,
        };
        key.clear();
        push_key(&mut key, &wide);
        row.push(1);
        row.extend_from_slice(&(key.len() as u32).to_le_bytes());
        row.extend_from_slice(&key);
    }
    row
}

/// The fields of an encoded row. `None` means NULL.
fn fields_of(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = row;
    std::iter::from_fn(move || {
        let (kind, after) = rest.split_first()?;
        if *kind == 0 {
            rest = after;
            return Some(None);
        }
        let (length, after) = after.split_first_chunk()?;
        let (field, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(Some(field))
    })
}

fn nulls_of(row: &[u8]) -> Nulls {
    fields_of(row).map(|field| field.is_none()).collect()
}

/// The bytes of the fields with these numbers.
fn some_fields(row: &[u8], is_wanted: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (_, field) in fields_of(row).enumerate().filter(|(at, _)| is_wanted(*at)) {
        let field = field.unwrap_or_default();
        bytes.extend_from_slice(&(field.len() as u32).to_le_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}
