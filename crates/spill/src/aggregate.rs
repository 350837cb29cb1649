//! Groups rows by their keys and merges the states of a group, in memory or with partitions in the temporary
//! space.
//!
//! The payload of a row is a state. A function of the caller merges two states of a group into one, such as
//! a count, a sum or a minimum (see [`MergeStates`]). Groups stay in memory until it is full. Then rows of
//! further groups go to partitions, and groups in memory still take their rows. So frequent keys are merged
//! in memory. Partitions are grouped in the same way, with another hash.
//!
//! Invariants
//! 1. Each group is returned once. Keys that never match in a join are groups like others.
//! 2. Each pass over a partition returns at least one group, so every aggregation ends.
//!
//! Source: the hybrid-hash aggregation of Shatdal and Naughton, "Adaptive Parallel Aggregation Algorithms"
//! (1995), section 2.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::groups::{Groups, Merged};
use crate::memory::{MemoryBudget, MemoryGrant};
use crate::page::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use crate::reader::RowReader;
use crate::row::{Row, RowSource, hash};
use crate::space::{SpillPurpose, TemporarySpace};
use crate::writer::{RowList, RowWriter, WriterShape};

pub use crate::groups::MergeStates;

/// The maximum number of partitions of one pass.
const PARTITIONS_MAX: usize = 32;
/// The memory of a partition in addition to its buffer.
const PARTITION_BYTES: usize = size_of::<RowWriter>() + 2 * size_of::<Waiting>();

/// The sizes of pages and requests of an aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateSettings {
    /// The size of a page of the temporary space, in bytes.
    pub page_bytes: usize,
    /// The number of pages of a request.
    pub block_pages: usize,
}

/// A partition that waits to be grouped.
struct Waiting {
    list: RowList,
    depth: u64,
}

/// Groups rows.
pub struct Aggregator<'a> {
    space: Arc<TemporarySpace>,
    memory: Arc<MemoryBudget>,
    settings: AggregateSettings,
    states: &'a dyn MergeStates,
    pass: Pass,
    waiting: Vec<Waiting>,
    grants: Vec<MemoryGrant>,
}

/// One pass: groups in memory, and partitions for the others.
struct Pass {
    groups: Groups,
    writers: Vec<RowWriter>,
    partitions: usize,
    block_pages: usize,
    depth: u64,
}

impl<'a> Aggregator<'a> {
    /// Returns an aggregation that uses the whole rest of the budget.
    pub fn new(
        space: &Arc<TemporarySpace>,
        memory: &Arc<MemoryBudget>,
        settings: AggregateSettings,
        states: &'a dyn MergeStates,
    ) -> Result<Aggregator<'a>> {
        if !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&settings.page_bytes) {
            return Err(SpillError::Setting("a page of the temporary space has 512 bytes to 32 KiB"));
        }
        let (space, memory) = (Arc::clone(space), Arc::clone(memory));
        let pass = Pass::new(&memory, settings, 1, 0)?;
        Ok(Aggregator { space, memory, settings, states, pass, waiting: Vec::new(), grants: Vec::new() })
    }

    /// Adds a row: the key of a group, and a state.
    pub fn push(&mut self, row: Row<'_>) -> Result<()> {
        let row = Row { never_matches: false, ..row };
        let row_hash = hash(row.key, self.pass.depth);
        match self.pass.groups.merge(row, row_hash, self.states) {
            Merged::InMemory => Ok(()),
            Merged::Failed(error) => Err(error),
            Merged::Full => self.spill(row, row_hash),
            Merged::Outgrown => {
                // The merged state is longer than the old one, and there is no room for it. So the group
                // moves to a partition.
                let state = self.pass.groups.take_merged();
                let spilled = self.spill(Row::new(row.key, &state), row_hash);
                self.pass.groups.reuse(state);
                spilled
            }
        }
    }

    fn spill(&mut self, row: Row<'_>, row_hash: u64) -> Result<()> {
        if self.pass.writers.is_empty() {
            self.open_partitions()?;
        }
        if self.pass.groups.is_empty() {
            return Err(self.pass.groups.too_small(row));
        }
        let partition = (u128::from(row_hash) * self.pass.partitions as u128) >> 64;
        let writer = self.pass.writers.get_mut(partition as usize);
        writer.ok_or(SpillError::Defect("a row belongs to no partition"))?.push(row)
    }

    fn open_partitions(&mut self) -> Result<()> {
        let page_bytes = self.settings.page_bytes;
        let file = self.space.create(page_bytes)?;
        let shape = WriterShape::full(page_bytes, self.pass.block_pages, SpillPurpose::Partitions);
        for _ in 0..self.pass.partitions {
            self.pass.writers.push(RowWriter::new(&file, &self.memory, shape)?);
        }
        Ok(())
    }

    /// Returns all groups, in no particular order.
    pub fn finish(mut self, output: &mut dyn FnMut(Row<'_>) -> Result<()>) -> Result<()> {
        loop {
            self.pass.groups.for_each(output)?;
            self.end_pass()?;
            let Some(waiting) = self.waiting.pop() else { return Ok(()) };
            self.grants.pop();
            let page_bytes = self.settings.page_bytes;
            let (purpose, row_bytes_max) = (SpillPurpose::Partitions, waiting.list.row_bytes_max);
            let mut reader = RowReader::open(waiting.list, &self.memory, page_bytes, purpose)?;
            self.pass = Pass::new(&self.memory, self.settings, waiting.depth, row_bytes_max)?;
            while reader.advance()? {
                self.push(reader.row())?;
            }
        }
    }

    /// Returns the memory of the pass, and adds its partitions to the waiting partitions.
    fn end_pass(&mut self) -> Result<()> {
        self.pass.groups = Groups::new(&self.memory, 0, 0)?;
        for writer in std::mem::take(&mut self.pass.writers) {
            let list = writer.finish()?;
            if list.rows > 0 {
                self.grants.push(self.memory.take(PARTITION_BYTES)?);
                self.waiting.push(Waiting { list, depth: self.pass.depth + 1 });
            }
        }
        Ok(())
    }
}

impl Pass {
    fn new(
        memory: &Arc<MemoryBudget>,
        settings: AggregateSettings,
        depth: u64,
        row_bytes_max: usize,
    ) -> Result<Pass> {
        let left_bytes = memory.left_bytes();
        // A quarter of the memory is for partitions. A part is left for the lists of waiting partitions.
        let partition_bytes = settings.page_bytes + 2 * PARTITION_BYTES;
        let partitions = (left_bytes / 4 / partition_bytes).clamp(2, PARTITIONS_MAX);
        let block_pages =
            (left_bytes / 4 / partitions / settings.page_bytes).clamp(1, settings.block_pages.max(1));
        let others_bytes = partitions * (block_pages * settings.page_bytes + 2 * PARTITION_BYTES);
        let groups = Groups::new(memory, left_bytes.saturating_sub(others_bytes), row_bytes_max)?;
        Ok(Pass { groups, writers: Vec::with_capacity(partitions), partitions, block_pages, depth })
    }
}
