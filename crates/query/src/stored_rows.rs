//! Stores rows that are computed once and read several times. They are in memory, and in temporary files when
//! memory is used up.
//!
//! Invariants
//! 1. The rows keep their order. The rows in files come before those in memory.
//! 2. A reader has its own position. It reads each file from the beginning, by a stream of its own.
//! 3. Each reader needs memory for one batch.
//! 4. A file needs a descriptor as long as the rows are needed. So each file is larger than those before it, up
//!    to [`FILE_BYTES_MAX`], although this takes more memory than the limit allows.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use futures::StreamExt;

/// The least number of bytes that a file has in addition to those of the file before it.
const FILE_BYTES_STEP: usize = 256 << 10;
/// The bytes of memory after which rows are always written to a file if memory is used up.
const FILE_BYTES_MAX: usize = 4 << 20;

/// The rows that were stored so far.
#[derive(Default)]
pub struct StoredRows {
    files: Vec<Written>,
    /// The batches after those in files.
    batches: Vec<RecordBatch>,
    reserved: Option<MemoryReservation>,
}

/// Batches in a file.
struct Written {
    file: Arc<dyn SpillFile>,
    manager: SpillManager,
    batch_count: usize,
}

/// The position of a reader.
#[derive(Default)]
pub struct ReadPlace {
    /// The number of batches that were read.
    at: usize,
    /// The rest of the file at this position, and the number of the first batch after it.
    file: Option<(SendableRecordBatchStream, usize)>,
}

impl ReadPlace {
    /// Returns the next batch, if it is in the file that the reader has open.
    pub async fn next_of_file(&mut self) -> Result<Option<RecordBatch>> {
        let Some((stream, end)) = &mut self.file else { return Ok(None) };
        let batch = stream.next().await.transpose()?;
        match batch {
            Some(_) => self.at += 1,
            None => (self.at, self.file) = (*end, None),
        }
        Ok(batch)
    }

    /// Returns whether the next batch is in the file that the reader has open.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Moves the position past one batch. The reader got this batch from another source.
    pub fn skip(&mut self) {
        self.at += 1;
    }
}

impl StoredRows {
    /// Returns the batch at this position, if it is in memory. If it is in a file, opens the file, so that
    /// `ReadPlace::next_of_file` returns the batch.
    pub async fn next(&self, place: &mut ReadPlace) -> Result<Option<RecordBatch>> {
        let mut begin = 0;
        for Written { file, manager, batch_count } in &self.files {
            let end = begin + batch_count;
            if place.at < end {
                let mut stream = manager.read_spill_as_stream_unbuffered(file.clone(), None)?;
                // The reader has read the batches before this position when they were in memory.
                for _ in begin..place.at {
                    stream.next().await.transpose()?;
                }
                place.file = Some((stream, end));
                return Ok(None);
            }
            begin = end;
        }
        let batch = self.batches.get(place.at - begin).cloned();
        place.at += usize::from(batch.is_some());
        Ok(batch)
    }

    /// Stores a batch. If the memory is used up, all batches in memory are written to a file.
    pub fn push(
        &mut self,
        batch: RecordBatch,
        schema: &SchemaRef,
        metrics: &ExecutionPlanMetricsSet,
        context: &TaskContext,
    ) -> Result<()> {
        let can_spill = context.runtime_env().disk_manager.tmp_files_enabled();
        let consumer = || MemoryConsumer::new("query of WITH").with_can_spill(can_spill);
        let reserved = self.reserved.get_or_insert_with(|| consumer().register(context.memory_pool()));
        let bytes = batch.get_array_memory_size();
        let grown = reserved.try_grow(bytes);
        let file_bytes_min = FILE_BYTES_MAX.min(FILE_BYTES_STEP * self.files.len());
        self.batches.push(batch);
        match grown {
            Err(DataFusionError::ResourcesExhausted(_)) if can_spill => {
                if reserved.size() + bytes < file_bytes_min {
                    reserved.grow(bytes);
                    return Ok(());
                }
                let metrics = SpillMetrics::new(metrics, 0);
                self.write(SpillManager::new(context.runtime_env(), metrics, schema.clone()))
            }
            grown => grown,
        }
    }

    fn write(&mut self, manager: SpillManager) -> Result<()> {
        let batches = std::mem::take(&mut self.batches);
        if let Some(file) = manager.spill_record_batch_and_finish(&batches, "query of WITH")? {
            self.files.push(Written { file, manager, batch_count: batches.len() });
        }
        if let Some(reserved) = &self.reserved {
            _ = reserved.free();
        }
        Ok(())
    }
}
