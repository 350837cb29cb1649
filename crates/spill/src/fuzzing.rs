//! Functions for `crates/fuzzing` that reach the pages of the temporary space. They exist only with the feature
//! `fuzzing`.
//!
//! Invariants
//! 1. The code that writes and reads pages is called unchanged.
//! 2. A damaged page gets a right checksum, because a wrong one would refuse nearly every damage.

use std::sync::Arc;

use varve_device::{AlignedBuf, BlockFile, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};

use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::page;
use crate::reader::RowReader;
use crate::row::{Row, RowSource};
use crate::space::{SpillPurpose, TemporarySpace};
use crate::writer::{Layout, RowList, RowWriter, WriterShape};

/// The memory of writers and readers.
const MEMORY_BYTES: usize = 8 << 20;
/// The salt of the first file of a space.
const FIRST_SALT: u32 = 0;

/// How lists are stored.
#[derive(Debug, Clone, Copy)]
pub struct StoredShape {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages of a request that writes.
    pub buffer_pages: usize,
    /// Partitions of the file. 0: the file has one run.
    pub partitions: usize,
}

/// Lists of rows in one temporary file.
pub struct StoredLists {
    file: Arc<dyn BlockFile>,
    page_bytes: usize,
    lists: Vec<RowList>,
}

impl StoredLists {
    /// Writes rows, which go to the partitions in turns.
    pub fn write(rows: &[Row<'_>], shape: StoredShape) -> Result<StoredLists> {
        let StoredShape { page_bytes, buffer_pages, partitions } = shape;
        let directory = MemoryDirectory::new();
        let space = TemporarySpace::open(Arc::<MemoryDirectory>::clone(&directory), u64::MAX)?;
        let temporary = space.create(page_bytes)?;
        let purpose = if partitions == 0 { SpillPurpose::Runs } else { SpillPurpose::Partitions };
        let memory = MemoryBudget::new(MEMORY_BYTES);
        let writer = || {
            let shape = WriterShape::full(page_bytes, buffer_pages, purpose);
            RowWriter::new(&temporary, &memory, shape)
        };
        let mut writers = (0..partitions.max(1)).map(|_| writer()).collect::<Result<Vec<_>>>()?;
        let count = writers.len();
        for (number, row) in rows.iter().enumerate() {
            if let Some(writer) = writers.get_mut(number % count) {
                writer.push(*row)?;
            }
        }
        let lists = writers.into_iter().map(RowWriter::finish).collect::<Result<Vec<_>>>()?;
        let names = directory.list()?;
        let name = names.first().ok_or(SpillError::Defect("the space has a file"))?;
        let file = directory.open(name, OpenHow::existing(Space::Temporary))?;
        Ok(StoredLists { file, page_bytes, lists })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        let end = |list: &RowList| match list.layout {
            Layout::Run { first, pages } => first + pages,
            Layout::Partition { last } => last.first + last.pages,
        };
        self.lists.iter().map(end).max().unwrap_or(0)
    }

    /// Changes a page, and writes a right checksum.
    pub fn damage(&self, number: u32, damage: impl FnOnce(&mut [u8])) -> Result<()> {
        let at = u64::from(number) * self.page_bytes as u64;
        let mut bytes = AlignedBuf::new(self.page_bytes);
        self.file.read_at(at, &mut bytes, Purpose::Temporary)?;
        damage(&mut bytes);
        page::seal(&mut bytes, FIRST_SALT, number);
        Ok(self.file.write_at(at, &bytes, Purpose::Temporary, Durability::Later)?)
    }

    /// Returns the number of lists.
    pub fn count(&self) -> usize {
        self.lists.len()
    }

    /// Reads a list, and returns the number of its rows.
    pub fn read(&self, list: usize, read_pages: usize, seen: &mut dyn FnMut(Row<'_>)) -> Result<u64> {
        let list = self.lists.get(list).ok_or(SpillError::Defect("there is such a list"))?;
        let mut reader = RowReader::new(list.clone());
        reader.rewind(&MemoryBudget::new(MEMORY_BYTES), read_pages * self.page_bytes)?;
        let mut rows = 0;
        while reader.advance()? {
            seen(reader.row());
            rows += 1;
        }
        Ok(rows)
    }
}
