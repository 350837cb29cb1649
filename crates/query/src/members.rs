//! The set of values in which `x IN (SELECT ...)` looks up `x`, if the result is a value and not a condition.
//! The set is in memory, or in batches of temporary files if it does not fit.
//!
//! Invariants
//! 1. Each value is in the set, or in the stored batches, as bytes that are equal for equal values.
//! 2. Stored values are read once for each batch of values that are looked up.
//!
//! This module does not know where the values come from.

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
use varve_sql::general::{Ty, push_key};

use crate::cells::Cells;
use crate::stored_rows::{ReadPlace, StoredRows};

/// The number of values in a stored batch.
const BATCH_ROWS: usize = 8192;

/// A set of values.
pub struct Members {
    keys: HashSet<Vec<u8>>,
    /// The values that did not fit into memory.
    stored: Option<StoredRows>,
    has_null: bool,
    /// The memory of `keys`.
    reserved: MemoryReservation,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    schema: SchemaRef,
}

impl Members {
    /// Returns an empty set.
    pub fn new(context: Arc<TaskContext>) -> Members {
        let can_spill = context.runtime_env().disk_manager.tmp_files_enabled();
        let consumer = MemoryConsumer::new("IN").with_can_spill(can_spill);
        Members {
            keys: HashSet::new(),
            stored: None,
            has_null: false,
            reserved: consumer.register(context.memory_pool()),
            context,
            metrics: ExecutionPlanMetricsSet::new(),
            schema: Arc::new(Schema::new(vec![Field::new("key", DataType::Binary, false)])),
        }
    }

    /// Adds the values of a column of this type.
    pub fn add(&mut self, ty: Ty, column: &ArrayRef) -> Result<()> {
        let (cells, mut bytes) = (Cells::of(ty, column), 0);
        for row in 0..column.len() {
            match cells.get(row) {
                Datum::Null => self.has_null = true,
                value => {
                    let key = key_of(value);
                    let size = key.len() + size_of::<Vec<u8>>() * 2;
                    bytes += if self.keys.insert(key) { size } else { 0 };
                }
            }
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

    /// Moves all values of the set to the stored batches.
    fn store(&mut self) -> Result<()> {
        let keys: Vec<Vec<u8>> = std::mem::take(&mut self.keys).into_iter().collect();
        _ = self.reserved.free();
        let stored = self.stored.get_or_insert_default();
        for chunk in keys.chunks(BATCH_ROWS) {
            let column: ArrayRef = Arc::new(BinaryArray::from_iter_values(chunk));
            let batch = RecordBatch::try_new(self.schema.clone(), vec![column])?;
            stored.push(batch, &self.schema, &self.metrics, &self.context)?;
        }
        Ok(())
    }

    /// Returns whether each value is in the set: true, false or NULL.
    pub async fn answers(&self, values: &[Value]) -> Result<Vec<Value>> {
        let is_empty = self.keys.is_empty() && self.stored.is_none() && !self.has_null;
        let keys: Vec<Option<Vec<u8>>> =
            values.iter().map(|v| (!matches!(v, Value::Null)).then(|| key_of(v.as_datum()))).collect();
        let found = self.found(&keys).await?;
        let answer = |(key, found): (&Option<Vec<u8>>, bool)| match key {
            _ if is_empty => Value::Bool(false),
            None => Value::Null,
            Some(_) if found => Value::Bool(true),
            Some(_) if self.has_null => Value::Null,
            Some(_) => Value::Bool(false),
        };
        Ok(keys.iter().zip(found).map(answer).collect())
    }

    /// Returns which keys are in the set.
    async fn found(&self, keys: &[Option<Vec<u8>>]) -> Result<Vec<bool>> {
        let Some(stored) = &self.stored else {
            return Ok(keys
                .iter()
                .map(|key| key.as_ref().is_some_and(|key| self.keys.contains(key)))
                .collect());
        };
        let mut wanted: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (n, key) in keys.iter().enumerate() {
            if let Some(key) = key {
                wanted.entry(key).or_default().push(n);
            }
        }
        let (mut found, mut place) = (vec![false; keys.len()], ReadPlace::default());
        loop {
            let batch = match place.next_of_file().await? {
                Some(batch) => batch,
                None => match stored.next(&mut place).await? {
                    Some(batch) => batch,
                    None if place.is_in_file() => continue,
                    None => return Ok(found),
                },
            };
            for key in batch.column(0).as_binary::<i32>().iter().flatten() {
                wanted.remove(key).into_iter().flatten().for_each(|n| found[n] = true);
            }
        }
    }
}

/// Returns bytes for a value. Equal values have the same bytes, and so have equal integers of different
/// types.
fn key_of(value: Datum<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    let wide = match value {
        Datum::Int2(n) => Datum::Int8(n.into()),
        Datum::Int4(n) => Datum::Int8(n.into()),
        other => other,
    };
    push_key(&mut key, &wide);
    key
}
