//! Reads the rows of a list in the temporary space.
//!
//! The rows of a run are read in their order. The blocks of a partition are read from the last to the first,
//! because a block is linked to the block before it. If a row continues in the next block, its end was kept
//! when that block was read. So the row can be assembled.
//!
//! Invariants
//! 1. A row inside one page is returned without a copy.
//! 2. The memory of a reader is its buffer, and room for one row (in a run) or three rows (in a partition).
//! 3. A reader returns as many rows as were written, or an error.

use std::sync::Arc;

use crate::error::Result;
use crate::memory::{Buffer, MemoryBudget, MemoryGrant};
use crate::page::{Block, HEADER_BYTES, RowHead, row_in};
use crate::row::{ROW_HEAD_BYTES, Row, RowSource};
use crate::space::SpillPurpose;
use crate::writer::{Layout, RowList};

/// The memory of a reader without its buffer. It is counted where there are many readers.
pub(crate) const READER_BYTES: usize = size_of::<RowReader>();

/// The row that was read last.
#[derive(Clone, Copy)]
enum Current {
    /// The row is in the buffer, from this byte on.
    InBuffer(usize),
    Assembled,
}

/// The memory of an open reader.
struct Memory {
    buffer: Buffer,
    _rows: MemoryGrant,
}

/// Reads one list of rows.
pub(crate) struct RowReader {
    list: RowList,
    purpose: SpillPurpose,
    memory: Option<Memory>,
    /// The pages of the block or run that were not read yet.
    next: Block,
    /// The block before the current one.
    previous: Block,
    /// The number of the current page. The next fields are its position in the buffer, and the number of
    /// pages after it in the buffer.
    page: u32,
    page_at: usize,
    pages_behind: usize,
    /// The position of the first row that begins in this page, counted from the end of the header.
    first_row: Option<usize>,
    at: usize,
    end: usize,
    rows_left: u64,
    current: Current,
    assembled: Vec<u8>,
    /// The end of the last row of this block, which was in the next block.
    tail: Vec<u8>,
    /// The bytes before the first row of this block.
    lead: Vec<u8>,
}

impl RowReader {
    /// Returns a reader without a buffer. [`RowSource::rewind`] opens it.
    pub(crate) fn new(list: RowList) -> RowReader {
        RowReader {
            purpose: list.purpose,
            list,
            memory: None,
            next: Block::default(),
            previous: Block::default(),
            page: 0,
            page_at: 0,
            pages_behind: 0,
            first_row: None,
            at: 0,
            end: 0,
            rows_left: 0,
            current: Current::Assembled,
            assembled: Vec::new(),
            tail: Vec::new(),
            lead: Vec::new(),
        }
    }

    /// Returns an open reader. Its reads are counted for this purpose.
    pub(crate) fn open(
        list: RowList,
        memory: &Arc<MemoryBudget>,
        read_bytes: usize,
        purpose: SpillPurpose,
    ) -> Result<RowReader> {
        let mut reader = RowReader { purpose, ..RowReader::new(list) };
        reader.rewind(memory, read_bytes)?;
        Ok(reader)
    }

    /// Returns the memory that a reader of a list needs in addition to its buffer.
    pub(crate) fn row_memory_bytes(list: &RowList) -> usize {
        match list.layout {
            Layout::Run { .. } => list.row_bytes_max,
            Layout::Partition { .. } => 3 * list.row_bytes_max,
        }
    }

    fn is_partition(&self) -> bool {
        matches!(self.list.layout, Layout::Partition { .. })
    }

    /// Moves to the next page of the run or block. Returns false if there is none.
    fn next_page(&mut self) -> Result<bool> {
        let Some(memory) = &mut self.memory else { return Ok(false) };
        let page_bytes = self.list.file.page_bytes();
        if self.pages_behind > 0 {
            self.pages_behind -= 1;
            self.page += 1;
            self.page_at += page_bytes;
        } else if self.next.pages > 0 {
            let pages = self.next.pages.min((memory.buffer.len() / page_bytes) as u32);
            let bytes = &mut memory.buffer[..pages as usize * page_bytes];
            self.list.file.read(self.next.first, bytes, self.purpose)?;
            (self.page, self.page_at, self.pages_behind) = (self.next.first, 0, pages as usize - 1);
            self.next = Block { first: self.next.first + pages, pages: self.next.pages - pages };
        } else {
            return Ok(false);
        }
        let page = &memory.buffer[self.page_at..self.page_at + page_bytes];
        let header = self.list.file.header(page, self.page)?;
        (self.previous, self.first_row) = (header.previous, header.first_row);
        self.at = self.page_at + HEADER_BYTES;
        self.end = self.at + header.used_bytes;
        Ok(true)
    }

    /// Moves to the block before the current one, and to its first row. Returns false if there is no such
    /// block.
    fn next_block(&mut self) -> Result<bool> {
        if !self.tail.is_empty() {
            return Err(self.corrupt("the end of a row has no begin"));
        }
        std::mem::swap(&mut self.tail, &mut self.lead);
        loop {
            self.next = std::mem::take(&mut self.previous);
            if self.next.pages == 0 {
                return Ok(false);
            }
            self.lead.clear();
            if self.find_first_row()? {
                return Ok(true);
            }
            // The whole block is part of one row. Its bytes come before the known end of this row.
            if self.lead.len() + self.tail.len() > self.list.row_bytes_max {
                return Err(self.corrupt("a row is longer than the longest row"));
            }
            self.lead.extend_from_slice(&self.tail);
            std::mem::swap(&mut self.tail, &mut self.lead);
        }
    }

    /// Collects the bytes before the first row of a block. Returns false if no row begins in the block.
    fn find_first_row(&mut self) -> Result<bool> {
        while self.next_page()? {
            let first_row = self.first_row;
            let until = first_row.map_or(self.end, |at| self.at + at);
            let Some(memory) = &self.memory else { break };
            let lead = memory.buffer.get(self.at..until).unwrap_or_default();
            if self.lead.len() + lead.len() > self.list.row_bytes_max {
                return Err(self.corrupt("a row is longer than the longest row"));
            }
            self.lead.extend_from_slice(lead);
            self.at = until;
            if first_row.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Assembles a row from several pages.
    fn assemble(&mut self) -> Result<()> {
        self.assembled.clear();
        self.fill(ROW_HEAD_BYTES)?;
        let head = self.assembled.first_chunk().map_or(0, |head| RowHead::decode(head).row_bytes());
        if head > self.list.row_bytes_max {
            return Err(self.corrupt("a row is longer than the longest row"));
        }
        self.fill(head - ROW_HEAD_BYTES)?;
        self.current = Current::Assembled;
        Ok(())
    }

    fn fill(&mut self, mut wanted: usize) -> Result<()> {
        while wanted > 0 {
            if self.at == self.end && !self.next_page()? {
                if self.tail.len() < wanted {
                    return Err(self.corrupt("a row has no end"));
                }
                self.assembled.extend(self.tail.drain(..wanted));
                return Ok(());
            }
            let Some(memory) = &self.memory else { break };
            let some = wanted.min(self.end - self.at);
            self.assembled.extend_from_slice(memory.buffer.get(self.at..self.at + some).unwrap_or_default());
            self.at += some;
            wanted -= some;
        }
        Ok(())
    }

    /// Moves to a page with bytes of rows. Returns false if there is none.
    fn ready(&mut self) -> Result<bool> {
        while self.at == self.end {
            let has_page = self.next_page()? || (self.is_partition() && self.next_block()?);
            if !has_page {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[cold]
    fn corrupt(&self, what: &'static str) -> crate::error::SpillError {
        self.list.file.corrupt(self.page, what)
    }
}

impl RowSource for RowReader {
    fn rewind(&mut self, memory: &Arc<MemoryBudget>, read_bytes: usize) -> Result<()> {
        self.release();
        let page_bytes = self.list.file.page_bytes();
        let buffer = Buffer::new(memory, (read_bytes / page_bytes).max(1) * page_bytes)?;
        let rows = memory.take(RowReader::row_memory_bytes(&self.list))?;
        self.assembled.reserve_exact(self.list.row_bytes_max);
        self.rows_left = self.list.rows;
        match self.list.layout {
            Layout::Run { first, pages } => self.next = Block { first, pages },
            Layout::Partition { last } => {
                self.tail.reserve_exact(self.list.row_bytes_max);
                self.lead.reserve_exact(self.list.row_bytes_max);
                self.previous = last;
            }
        }
        self.memory = Some(Memory { buffer, _rows: rows });
        Ok(())
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if self.rows_left == 0 {
            return Ok(false);
        }
        if self.at == self.end && !self.ready()? {
            return Err(self.corrupt("rows are missing"));
        }
        self.rows_left -= 1;
        let Some(memory) = &self.memory else { return Ok(false) };
        let bytes = memory.buffer.get(self.at..self.end).unwrap_or_default();
        let row_bytes = bytes.first_chunk().map_or(usize::MAX, |head| RowHead::decode(head).row_bytes());
        if row_bytes > bytes.len() {
            self.assemble()?;
            return Ok(true);
        }
        self.current = Current::InBuffer(self.at);
        self.at += row_bytes;
        Ok(true)
    }

    #[inline]
    fn row(&self) -> Row<'_> {
        match (self.current, &self.memory) {
            (Current::InBuffer(at), Some(memory)) => row_in(memory.buffer.get(at..).unwrap_or_default()),
            _ => row_in(&self.assembled),
        }
    }

    fn memory_bytes(&self, read_bytes: usize) -> usize {
        let page_bytes = self.list.file.page_bytes();
        (read_bytes / page_bytes).max(1) * page_bytes + RowReader::row_memory_bytes(&self.list)
    }

    fn release(&mut self) {
        self.memory = None;
        for bytes in [&mut self.assembled, &mut self.tail, &mut self.lead] {
            *bytes = Vec::new();
        }
        (self.next, self.previous) = Default::default();
        (self.at, self.end, self.pages_behind, self.rows_left) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PAGE_BYTES_MIN, PageHeader};
    use crate::space::TemporarySpace;
    use varve_device::{AlignedBuf, MemoryDirectory};

    const PAGES: u32 = 24;

    /// Returns pages with correct checksums and random contents, most of which look like rows.
    fn random_pages(random: &mut impl FnMut(u64) -> u64) -> AlignedBuf {
        let mut pages = AlignedBuf::new(PAGES as usize * PAGE_BYTES_MIN);
        for (number, page) in pages.chunks_exact_mut(PAGE_BYTES_MIN).enumerate() {
            page.chunks_exact_mut(4).for_each(|word| {
                word.copy_from_slice(&(random(40) as u32).to_le_bytes());
            });
            let (first, pages) = (random(number as u64 + 1) as u32, random(4) as u32);
            let previous = Block { first, pages: pages.min(number as u32 - first.min(number as u32)) };
            let used_bytes = random(600) as usize;
            let first_row = (random(3) > 0).then(|| random(520) as usize);
            PageHeader { used_bytes: used_bytes.min(496), first_row, previous }.encode(page);
        }
        pages
    }

    #[test]
    fn whatever_pages_hold_reading_ends_without_a_panic() {
        let mut state = 1_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound.max(1)
        };
        let space = TemporarySpace::open(MemoryDirectory::new(), u64::MAX).unwrap();
        let (memory, mut ends) = (MemoryBudget::new(1 << 20), [0, 0]);
        for _ in 0..3_000 {
            let file = space.create(PAGE_BYTES_MIN).unwrap();
            file.append(&mut random_pages(&mut random), SpillPurpose::Lists).unwrap();
            let pages = 1 + random(3) as u32;
            let layout = match random(2) {
                0 => Layout::Run { first: 0, pages: PAGES },
                _ => Layout::Partition { last: Block { first: PAGES - pages, pages } },
            };
            let (purpose, rows, row_bytes_max) = (SpillPurpose::Lists, random(40), 8 + random(900) as usize);
            let list = RowList { file, layout, purpose, rows, bytes: 0, row_bytes_max };
            let mut reader = RowReader::open(list, &memory, 1 + random(2_000) as usize, purpose).unwrap();
            let end = loop {
                match reader.advance() {
                    Ok(true) => assert!(reader.row().stored_bytes() >= 8),
                    Ok(false) => break 0,
                    Err(_) => break 1,
                }
            };
            ends[end] += 1;
        }
        assert!(ends.iter().all(|count| *count > 100), "{ends:?}");
        assert_eq!(memory.left_bytes(), 1 << 20);
    }
}
