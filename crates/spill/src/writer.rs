//! Writes rows into pages of a temporary file. The rows are a run or list, or a partition. The pages of a run
//! or list are adjacent. The blocks of a partition are anywhere in a file that several partitions share, and
//! each block is linked to the block before it.
//!
//! Invariants
//! 1. A block is written when its buffer is full and more bytes follow, and at the end. All blocks of a
//!    writer have as many pages as its buffer, except the last one.
//! 2. The memory of a writer is its buffer, whatever the number of rows is.
//! 3. The pages of a run are adjacent, because nothing else is appended to its file in the meantime.
//!
//! Source of the idea to append all partitions to one area: Lee 2008, section 6.2.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{Buffer, MemoryBudget};
use crate::page::{Block, HEADER_BYTES, PageHeader, RowHead};
use crate::row::Row;
use crate::space::{SpillPurpose, TemporaryFile};

/// The places of the pages of a list of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Adjacent pages, which are read from the first to the last.
    Run { first: u32, pages: u32 },
    /// Linked blocks, which are read from the last to the first.
    Partition { last: Block },
}

/// A list of rows in the temporary space. Its file is removed when the last list in it is dropped.
#[derive(Clone)]
pub struct RowList {
    pub(crate) file: Arc<TemporaryFile>,
    pub(crate) layout: Layout,
    pub(crate) purpose: SpillPurpose,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) row_bytes_max: usize,
}

impl RowList {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes of the rows with their heads, without the headers of pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the length of the longest row with its head.
    pub fn row_bytes_max(&self) -> usize {
        self.row_bytes_max
    }
}

/// Describes the layout of the pages of a writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterShape {
    /// The number of pages of the buffer and of a request, at least one.
    pub buffer_pages: usize,
    pub is_partition: bool,
    /// The maximum number of bytes of rows in a page.
    pub fill_bytes: usize,
    pub purpose: SpillPurpose,
}

impl WriterShape {
    /// Returns the layout with full pages, for a file with pages of `page_bytes`.
    pub(crate) fn full(page_bytes: usize, buffer_pages: usize, purpose: SpillPurpose) -> WriterShape {
        let fill_bytes = page_bytes - HEADER_BYTES;
        WriterShape { buffer_pages, is_partition: purpose == SpillPurpose::Partitions, fill_bytes, purpose }
    }
}

/// Writes one list of rows.
pub(crate) struct RowWriter {
    file: Arc<TemporaryFile>,
    shape: WriterShape,
    buffer: Buffer,
    /// The page of the buffer that is being filled.
    page: usize,
    /// The number of bytes of rows in this page.
    used_bytes: usize,
    first_row: Option<usize>,
    /// The first page of the run, if it was written.
    first_page: Option<u32>,
    last: Block,
    list: RowList,
}

impl RowWriter {
    pub(crate) fn new(
        file: &Arc<TemporaryFile>,
        memory: &Arc<MemoryBudget>,
        shape: WriterShape,
    ) -> Result<RowWriter> {
        let shape = WriterShape { buffer_pages: shape.buffer_pages.max(1), ..shape };
        let buffer = Buffer::new(memory, shape.buffer_pages * file.page_bytes())?;
        let list = RowList {
            file: Arc::clone(file),
            layout: Layout::Run { first: 0, pages: 0 },
            purpose: shape.purpose,
            rows: 0,
            bytes: 0,
            row_bytes_max: 0,
        };
        Ok(RowWriter {
            file: Arc::clone(file),
            shape,
            buffer,
            page: 0,
            used_bytes: 0,
            first_row: None,
            first_page: None,
            last: Block::default(),
            list,
        })
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row<'_>) -> Result<()> {
        if row.key.len() >= 1 << 31 || row.payload.len() >= 1 << 32 {
            return Err(SpillError::Setting("a row of the temporary space has keys of less than 2 GiB"));
        }
        if self.used_bytes == self.shape.fill_bytes {
            self.next_page()?;
        }
        self.first_row.get_or_insert(self.used_bytes);
        self.put(&RowHead::of(row).encode())?;
        self.put(row.key)?;
        self.put(row.payload)?;
        let stored_bytes = row.stored_bytes();
        self.list.rows += 1;
        self.list.bytes += stored_bytes as u64;
        self.list.row_bytes_max = self.list.row_bytes_max.max(stored_bytes);
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.used_bytes == self.shape.fill_bytes {
                self.next_page()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.shape.fill_bytes - self.used_bytes));
            let at = self.page * self.file.page_bytes() + HEADER_BYTES + self.used_bytes;
            self.buffer[at..at + now.len()].copy_from_slice(now);
            self.used_bytes += now.len();
            bytes = later;
        }
        Ok(())
    }

    fn close_page(&mut self) {
        let header = PageHeader {
            used_bytes: self.used_bytes,
            first_row: self.first_row.take(),
            previous: if self.shape.is_partition { self.last } else { Block::default() },
        };
        let at = self.page * self.file.page_bytes();
        header.encode(&mut self.buffer[at..]);
        self.used_bytes = 0;
    }

    fn next_page(&mut self) -> Result<()> {
        self.close_page();
        self.page += 1;
        if self.page == self.shape.buffer_pages { self.write() } else { Ok(()) }
    }

    /// Writes the closed pages of the buffer.
    fn write(&mut self) -> Result<()> {
        let pages = self.page as u32;
        let len_bytes = self.page * self.file.page_bytes();
        self.page = 0;
        let first = self.file.append(&mut self.buffer[..len_bytes], self.shape.purpose)?;
        let first_page = *self.first_page.get_or_insert(first);
        debug_assert!(self.shape.is_partition || self.list_pages() + first_page == first);
        self.last = Block { first, pages };
        self.list.layout = if self.shape.is_partition {
            Layout::Partition { last: self.last }
        } else {
            Layout::Run { first: first_page, pages: self.list_pages() + pages }
        };
        Ok(())
    }

    fn list_pages(&self) -> u32 {
        match self.list.layout {
            Layout::Run { pages, .. } => pages,
            Layout::Partition { .. } => 0,
        }
    }

    /// Writes the rest of the rows, and returns the list.
    pub(crate) fn finish(mut self) -> Result<RowList> {
        if self.used_bytes > 0 {
            self.close_page();
            self.page += 1;
        }
        if self.page > 0 {
            self.write()?;
        }
        Ok(self.list)
    }
}
