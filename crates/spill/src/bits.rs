//! A list of bits in the temporary space, one for each row of an input, in the order of the input.
//!
//! A join that scans its probe input several times records in this list which rows have matched. Each scan
//! reads the list of the previous scan and writes a new one.
//!
//! Invariants
//! 1. The list that is read and the list that is written each use one page of memory.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::reader::RowReader;
use crate::row::{Row, RowSource};
use crate::space::{SpillPurpose, TemporarySpace};
use crate::writer::{RowList, RowWriter, WriterShape};

/// The size of a row of bits, in bytes.
const GROUP_BYTES: usize = 128;

/// Returns the memory for a list that is read and a list that is written.
pub(crate) fn memory_bytes(page_bytes: usize) -> usize {
    2 * page_bytes + GROUP_BYTES + 64
}

/// Writes a list of bits.
pub(crate) struct BitWriter {
    writer: RowWriter,
    group: [u8; GROUP_BYTES],
    bits: usize,
}

impl BitWriter {
    pub(crate) fn new(
        space: &Arc<TemporarySpace>,
        memory: &Arc<MemoryBudget>,
        page_bytes: usize,
    ) -> Result<BitWriter> {
        let file = space.create(page_bytes)?;
        let writer = RowWriter::new(&file, memory, WriterShape::full(page_bytes, 1, SpillPurpose::Lists))?;
        Ok(BitWriter { writer, group: [0; GROUP_BYTES], bits: 0 })
    }

    pub(crate) fn push(&mut self, bit: bool) -> Result<()> {
        if let Some(byte) = self.group.get_mut(self.bits / 8) {
            *byte |= u8::from(bit) << (self.bits % 8);
        }
        self.bits += 1;
        if self.bits == 8 * GROUP_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.writer.push(Row::new(&[], &self.group))?;
        (self.group, self.bits) = ([0; GROUP_BYTES], 0);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<RowList> {
        self.write()?;
        self.writer.finish()
    }
}

/// Reads a list of bits.
pub(crate) struct BitReader {
    reader: RowReader,
    next: usize,
}

impl BitReader {
    pub(crate) fn open(list: RowList, memory: &Arc<MemoryBudget>, page_bytes: usize) -> Result<BitReader> {
        let reader = RowReader::open(list, memory, page_bytes, SpillPurpose::Lists)?;
        Ok(BitReader { reader, next: 0 })
    }

    pub(crate) fn next(&mut self) -> Result<bool> {
        if self.next.is_multiple_of(8 * GROUP_BYTES) {
            self.next = 0;
            if !self.reader.advance()? {
                return Err(SpillError::Caller(
                    "the probe input has more rows than in its first scan".into(),
                ));
            }
        }
        let byte = self.reader.row().payload.get(self.next / 8).copied().unwrap_or(0);
        let bit = byte >> (self.next % 8) & 1 == 1;
        self.next += 1;
        Ok(bit)
    }
}
