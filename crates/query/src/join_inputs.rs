//! The inputs and the output of a join of the crate `spill`, for an operator that is polled.
//!
//! The operator and the join exchange batches. If an input has no rows left, it waits, and its join ends the
//! step. Then the operator polls its child and puts the next batch into the exchange.
//!
//! Invariants
//! 1. The budget of the join grants the memory for rows that are collected.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use parking_lot::Mutex;
use varve_spill::{
    CandidatePairs, InputSize, JoinCondition, JoinOutput, Joined, MemoryBudget, MemoryGrant, Partners,
    Result, Row, RowSource, Side, SpillError, Spool, SpoolSettings, SpoolWriter, TemporarySpace,
};

use crate::cells::BATCH_ROWS;
use crate::join_rows::{EncodedRows, JoinRows, JoinedRows};

/// The limit for the bytes of a batch of the output. Only the last row may exceed it.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// The data that a join and its operator exchange.
#[derive(Default)]
pub struct Exchange {
    /// Whether the probe input waits for a batch.
    pub is_waiting: bool,
    /// The next batch of the probe input.
    pub given: Option<EncodedRows>,
    /// Whether the probe input has ended, so that no batch follows.
    pub has_ended: bool,
    /// A batch of the result.
    pub output: Option<RecordBatch>,
    /// The reason why the join has failed, if Arrow or a condition is the reason.
    pub error: Option<DataFusionError>,
    /// The number of partitions on the drive that the first phase has made.
    pub partitions: usize,
}

/// The exchange of one join.
pub type Exchanged = Arc<Mutex<Exchange>>;

/// Puts the reason of a failure into the exchange, and returns the error of the join.
fn failed(exchange: &Exchanged, error: DataFusionError) -> SpillError {
    let text = error.to_string();
    exchange.lock().error = Some(error);
    SpillError::Caller(text.into())
}

/// The probe input, which can be read once.
pub struct ProbeRows {
    exchange: Exchanged,
    batch: Option<EncodedRows>,
    at: usize,
    waits: bool,
}

impl ProbeRows {
    /// Returns an input whose batches come through the exchange.
    pub fn new(exchange: Exchanged) -> ProbeRows {
        ProbeRows { exchange, batch: None, at: 0, waits: false }
    }
}

impl RowSource for ProbeRows {
    fn rewind(&mut self, _: &Arc<MemoryBudget>, _: usize) -> Result<()> {
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        self.at += 1;
        while self.batch.as_ref().is_none_or(|batch| self.at >= batch.count()) {
            let mut exchange = self.exchange.lock();
            self.batch = exchange.given.take();
            self.at = 0;
            if self.batch.is_none() {
                self.waits = !exchange.has_ended;
                exchange.is_waiting = self.waits;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn row(&self) -> Row<'_> {
        self.batch.as_ref().map_or(Row::new(&[], &[]), |batch| batch.row(self.at))
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn can_rewind(&self) -> bool {
        false
    }

    fn release(&mut self) {
        self.batch = None;
    }

    fn memory_bytes(&self, _: usize) -> usize {
        0
    }
}

/// A piece of memory with rows.
struct Piece {
    bytes: Vec<u8>,
    _grant: MemoryGrant,
}

/// The number of bytes before a row in a piece: the lengths of key and payload, and whether the row never
/// matches.
const HEAD_BYTES: usize = 9;

/// Rows in memory, in the order in which they came.
#[derive(Default)]
struct MemoryRows {
    pieces: Vec<Piece>,
    /// The piece, and the byte in it, where the current row begins. `next` is the same for the row after it.
    at: (usize, usize),
    next: (usize, usize),
    is_over: bool,
}

fn number(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}

impl MemoryRows {
    fn push(&mut self, row: Row<'_>, memory: &Arc<MemoryBudget>, piece_bytes: usize) -> Result<()> {
        let row_bytes = HEAD_BYTES + row.key.len() + row.payload.len();
        let has_room = |piece: &Piece| piece.bytes.capacity() - piece.bytes.len() >= row_bytes;
        if !self.pieces.last().is_some_and(has_room) {
            let bytes = piece_bytes.max(row_bytes);
            let _grant = memory.take(bytes)?;
            self.pieces.push(Piece { bytes: Vec::with_capacity(bytes), _grant });
        }
        if let Some(Piece { bytes, .. }) = self.pieces.last_mut() {
            bytes.extend_from_slice(&(row.key.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(row.payload.len() as u32).to_le_bytes());
            bytes.push(u8::from(row.never_matches));
            bytes.extend_from_slice(row.key);
            bytes.extend_from_slice(row.payload);
        }
        Ok(())
    }
}

impl RowSource for MemoryRows {
    fn rewind(&mut self, _: &Arc<MemoryBudget>, _: usize) -> Result<()> {
        if std::mem::replace(&mut self.is_over, false) {
            return Err(SpillError::Defect("rows in memory are read once"));
        }
        (self.at, self.next) = ((0, 0), (0, 0));
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        let (mut piece, mut byte) = self.next;
        while self.pieces.get(piece).is_some_and(|p| byte >= p.bytes.len()) {
            (piece, byte) = (piece + 1, 0);
        }
        let Some(Piece { bytes, .. }) = self.pieces.get(piece) else { return Ok(false) };
        self.at = (piece, byte);
        self.next = (piece, byte + HEAD_BYTES + number(bytes, byte) + number(bytes, byte + 4));
        Ok(true)
    }

    fn row(&self) -> Row<'_> {
        let bytes =
            self.pieces.get(self.at.0).and_then(|piece| piece.bytes.get(self.at.1..)).unwrap_or_default();
        let (key, payload) = (number(bytes, 0), number(bytes, 4));
        let row = bytes.get(HEAD_BYTES..HEAD_BYTES + key + payload).unwrap_or_default();
        let (key, payload) = row.split_at(key.min(row.len()));
        Row { key, payload, never_matches: bytes.get(8).is_some_and(|flag| *flag == 1) }
    }

    fn release(&mut self) {
        self.pieces.clear();
        self.is_over = true;
    }

    fn memory_bytes(&self, _: usize) -> usize {
        0
    }
}

/// The build input while it is read. It is in memory up to three eighths of the budget, and then in a spool.
pub struct Collected {
    space: Arc<TemporarySpace>,
    memory: Arc<MemoryBudget>,
    page_bytes: usize,
    rows: MemoryRows,
    spool: Option<SpoolWriter>,
    size: InputSize,
}

impl Collected {
    /// Returns an input that has no rows yet.
    pub fn new(space: &Arc<TemporarySpace>, memory: &Arc<MemoryBudget>, page_bytes: usize) -> Collected {
        let (space, memory) = (space.clone(), memory.clone());
        let (rows, size) = (MemoryRows::default(), InputSize { rows: 0, bytes: 0 });
        Collected { space, memory, page_bytes, rows, spool: None, size }
    }

    /// Adds the rows of a batch.
    pub fn push(&mut self, batch: &EncodedRows) -> Result<()> {
        (0..batch.count()).try_for_each(|n| self.push_row(batch.row(n)))
    }

    fn push_row(&mut self, row: Row<'_>) -> Result<()> {
        let row_bytes = row.stored_bytes();
        self.size.rows += 1;
        self.size.bytes += row_bytes as u64;
        if let Some(spool) = &mut self.spool {
            return spool.push(row);
        }
        let piece_bytes = (self.memory.limit_bytes() / 32).clamp(512, 1 << 20);
        let used_bytes = self.memory.limit_bytes() - self.memory.left_bytes();
        if used_bytes + piece_bytes.max(row_bytes) <= self.memory.limit_bytes() / 8 * 3 {
            return self.rows.push(row, &self.memory, piece_bytes);
        }
        self.spool()?.push(row)
    }

    /// Begins a spool, with the rows that are in memory.
    fn spool(&mut self) -> Result<&mut SpoolWriter> {
        let write_pages = (self.memory.left_bytes() / 4 / self.page_bytes).clamp(1, 32);
        let settings = SpoolSettings { page_bytes: self.page_bytes, write_pages, fill_percent: 100 };
        let mut spool = SpoolWriter::new(&self.space, &self.memory, settings)?;
        let mut rows = std::mem::take(&mut self.rows);
        while rows.advance()? {
            spool.push(rows.row())?;
        }
        Ok(self.spool.insert(spool))
    }

    /// Returns whether all rows are still in memory.
    pub fn is_in_memory(&self) -> bool {
        self.spool.is_none()
    }

    /// Returns the rows as an input of a join, and their size.
    pub fn finish(self) -> Result<(Box<dyn RowSource>, InputSize)> {
        let source: Box<dyn RowSource> = match self.spool {
            None => Box::new(self.rows),
            Some(spool) => {
                let spool: Spool = spool.finish()?;
                Box::new(spool)
            }
        };
        Ok((source, self.size))
    }
}

/// The output of a join. Its batches go into the exchange.
pub struct JoinedBatches {
    exchange: Exchanged,
    join: Arc<JoinRows>,
    /// Whether the condition decides which pairs are returned. Otherwise it decides which rows are partners.
    filters_output: bool,
    /// Whether the left rows of the join are those of the operator's right input.
    is_swapped: bool,
    rows: JoinedRows,
    /// Whether a batch was put into the exchange, and may still be there.
    has_given: bool,
}

impl JoinedBatches {
    /// Returns an output without rows.
    pub fn new(
        exchange: Exchanged,
        join: Arc<JoinRows>,
        filters_output: bool,
        is_swapped: bool,
    ) -> JoinedBatches {
        JoinedBatches {
            exchange,
            join,
            filters_output,
            is_swapped,
            rows: JoinedRows::default(),
            has_given: false,
        }
    }

    fn give(&mut self) -> Result<()> {
        let batch = self.rows.take(&self.join, self.filters_output);
        let batch = batch.map_err(|error| failed(&self.exchange, error))?;
        if batch.num_rows() > 0 {
            self.exchange.lock().output = Some(batch);
            self.has_given = true;
        }
        Ok(())
    }
}

impl JoinOutput for JoinedBatches {
    fn joined(&mut self, row: Joined<'_>) -> Result<()> {
        let (left, right) = (row.left.map(|row| row.payload), row.right.map(|row| row.payload));
        let (left, right) = if self.is_swapped { (right, left) } else { (left, right) };
        self.rows.push(left, right);
        Ok(())
    }

    fn is_full(&mut self) -> Result<bool> {
        if self.has_given {
            self.has_given = self.exchange.lock().output.is_some();
            return Ok(self.has_given);
        }
        if self.rows.count() >= BATCH_ROWS || self.rows.bytes() >= OUTPUT_BYTES_MAX {
            self.give()?;
        }
        Ok(self.has_given)
    }

    fn divided(&mut self, partitions: usize) {
        self.exchange.lock().partitions += partitions;
    }

    fn condition(&mut self) -> Option<&mut dyn JoinCondition> {
        if self.join.has_filter() && !self.filters_output { Some(self) } else { None }
    }

    fn end(&mut self) -> Result<()> {
        if self.rows.count() > 0 { self.give() } else { Ok(()) }
    }
}

impl JoinCondition for JoinedBatches {
    fn decide(&mut self, pairs: &CandidatePairs<'_>, partners: &mut Partners) -> Result<()> {
        let (left, right) =
            if self.is_swapped { (Side::Right, Side::Left) } else { (Side::Left, Side::Right) };
        let rows = |side| pairs.rows(side).map(|row| row.payload);
        let satisfying = self.join.satisfying(rows(left), rows(right), pairs.count());
        let satisfying = satisfying.map_err(|error| failed(&self.exchange, error))?;
        satisfying.set_indices().for_each(|n| partners.set(n));
        Ok(())
    }
}
