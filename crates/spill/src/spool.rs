//! A spool stores rows in their order in the temporary space. The rows can be read several times. Spools are
//! used for an input that a join must rewind, and for heap files in experiments.
//!
//! Invariants
//! 1. The memory of a spool is one buffer, for writing or for reading.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::page::{HEADER_BYTES, PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use crate::reader::RowReader;
use crate::row::{Row, RowSource};
use crate::space::{SpillPurpose, TemporarySpace};
use crate::writer::{RowWriter, WriterShape};

/// The settings of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolSettings {
    /// The size of a page, in bytes.
    pub page_bytes: usize,
    /// The number of pages of a write request.
    pub write_pages: usize,
    /// The fill level of the pages, in percent (1 to 100).
    pub fill_percent: usize,
}

/// Writes the rows of a spool.
pub struct SpoolWriter {
    writer: RowWriter,
}

impl SpoolWriter {
    /// Returns a writer for an empty spool.
    pub fn new(
        space: &Arc<TemporarySpace>,
        memory: &Arc<MemoryBudget>,
        settings: SpoolSettings,
    ) -> Result<SpoolWriter> {
        if !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&settings.page_bytes) {
            return Err(SpillError::Setting("a page of the temporary space has 512 bytes to 32 KiB"));
        }
        let file = space.create(settings.page_bytes)?;
        let fill_bytes = settings.page_bytes * settings.fill_percent.clamp(1, 100) / 100;
        let shape = WriterShape {
            fill_bytes: fill_bytes.clamp(1, settings.page_bytes - HEADER_BYTES),
            ..WriterShape::full(settings.page_bytes, settings.write_pages, SpillPurpose::Lists)
        };
        Ok(SpoolWriter { writer: RowWriter::new(&file, memory, shape)? })
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row<'_>) -> Result<()> {
        self.writer.push(row)
    }

    /// Ends the writing. Returns the spool, which can be read.
    pub fn finish(self) -> Result<Spool> {
        let list = self.writer.finish()?;
        Ok(Spool { rows: list.rows, bytes: list.bytes, reader: RowReader::new(list) })
    }
}

/// Rows in the order in which they were written.
pub struct Spool {
    rows: u64,
    bytes: u64,
    reader: RowReader,
}

impl Spool {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes of the rows ([`Row::stored_bytes`]).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl RowSource for Spool {
    fn rewind(&mut self, memory: &Arc<MemoryBudget>, read_bytes: usize) -> Result<()> {
        self.reader.rewind(memory, read_bytes)
    }
    fn advance(&mut self) -> Result<bool> {
        self.reader.advance()
    }
    fn row(&self) -> Row<'_> {
        self.reader.row()
    }
    fn release(&mut self) {
        self.reader.release();
    }
    fn memory_bytes(&self, read_bytes: usize) -> usize {
        self.reader.memory_bytes(read_bytes)
    }
}
