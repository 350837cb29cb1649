//! External sort: takes rows in any order, and returns them in the order of their keys.
//!
//! Rows that fit in the budget are sorted in memory. Otherwise sorted runs are written to the temporary space
//! and merged. Runs are made by quicksort, or by replacement selection, whose runs are about twice as long as
//! the memory.
//!
//! ```text
//!   push: rows in memory --(full)--> runs --(too many)--> merge passes
//!   finish: rows in memory, or a merge of all runs
//! ```
//!
//! Invariants
//! 1. The memory never exceeds the budget, whatever the number of runs is.
//! 2. Rows with equal keys have no particular order.
//! 3. The files are removed when the sorter or its result is dropped.
//!
//! Sources: Do 2012, section 2.3.2 (tournament sort); Lee 2008, section 6.1 (the cluster of the merge).

use std::sync::Arc;

use crate::error::Result;
use crate::memory::{MemoryBudget, MemoryGrant};
use crate::merge::{MergeShape, Merger, reduce};
use crate::row::Row;
use crate::space::{SpillPurpose, TemporaryFile, TemporarySpace};
use crate::workspace::{Entry, Workspace};
use crate::writer::{RowList, RowWriter, WriterShape};

/// How sorted runs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMethod {
    /// Replacement selection with a heap. On random input, runs are about twice as long as the memory.
    ReplacementSelection,
    /// The memory is filled, sorted and written, so runs are as long as the memory.
    Quicksort,
}

/// The settings of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortSettings {
    /// The size of a page of the temporary space, in bytes.
    pub page_bytes: usize,
    /// The number of pages of a request that writes runs.
    pub write_pages: usize,
    /// The bytes of a request that reads a run in a merge, a multiple of the page size. If it is `None`, each
    /// run gets an equal share of the memory.
    pub cluster_bytes: Option<usize>,
    /// How runs are made.
    pub runs: RunMethod,
}

impl SortSettings {
    /// Returns the default settings: pages of 8 KiB, replacement selection, and requests of several pages.
    pub fn new() -> SortSettings {
        SortSettings {
            page_bytes: 8 << 10,
            write_pages: 32,
            cluster_bytes: None,
            runs: RunMethod::ReplacementSelection,
        }
    }

    pub(crate) fn merge_shape(&self) -> MergeShape {
        let SortSettings { page_bytes, write_pages, cluster_bytes, .. } = *self;
        MergeShape { page_bytes, cluster_bytes, write_pages }
    }
}

impl Default for SortSettings {
    fn default() -> SortSettings {
        SortSettings::new()
    }
}

/// The memory that is used while runs are made.
struct Making {
    rows: Workspace,
    writer: Option<RowWriter>,
    file: Option<Arc<TemporaryFile>>,
    /// The run that is being written.
    run: u32,
    /// The row that was written last. Its memory is not free yet, because later rows are compared to it.
    last: Option<Entry>,
}

/// Sorts rows.
pub struct Sorter {
    space: Arc<TemporarySpace>,
    memory: Arc<MemoryBudget>,
    settings: SortSettings,
    /// The size of the working space, in bytes.
    rows_bytes: usize,
    making: Making,
    runs: Vec<RowList>,
    runs_max: usize,
    runs_grant: MemoryGrant,
}

/// Sorted runs, and a grant for the memory of two lists of them.
pub(crate) struct ListedRuns {
    pub runs: Vec<RowList>,
    pub grant: MemoryGrant,
}

/// Returns the maximum number of runs before runs are merged, for a budget of this number of bytes.
fn runs_max(memory_bytes: usize) -> usize {
    (memory_bytes / 32 / size_of::<RowList>()).max(8)
}

impl Sorter {
    /// Returns a sorter that uses the whole rest of the budget.
    pub fn new(
        space: &Arc<TemporarySpace>,
        memory: &Arc<MemoryBudget>,
        settings: SortSettings,
    ) -> Result<Sorter> {
        Sorter::with_rows_bytes(space, memory, settings, usize::MAX)
    }

    /// Returns a sorter whose working space has at most this number of bytes. While rows are added, the
    /// sorter uses the working space and a buffer of `write_pages` pages.
    pub(crate) fn with_rows_bytes(
        space: &Arc<TemporarySpace>,
        memory: &Arc<MemoryBudget>,
        mut settings: SortSettings,
        rows_bytes: usize,
    ) -> Result<Sorter> {
        let runs_max = runs_max(memory.left_bytes());
        // A merge has a second list, which contains the runs that it reads.
        let grant = memory.take(2 * runs_max * size_of::<RowList>())?;
        let left_bytes = memory.left_bytes();
        settings.write_pages = settings.write_pages.min(left_bytes / 4 / settings.page_bytes.max(1)).max(1);
        let writer_bytes = settings.write_pages * settings.page_bytes;
        let rows_bytes = rows_bytes.min(left_bytes.saturating_sub(writer_bytes));
        let rows = Workspace::new(memory, rows_bytes)?;
        Ok(Sorter {
            space: Arc::clone(space),
            memory: Arc::clone(memory),
            settings,
            rows_bytes,
            making: Making { rows, writer: None, file: None, run: 0, last: None },
            runs: Vec::with_capacity(runs_max),
            runs_max,
            runs_grant: grant,
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row<'_>) -> Result<()> {
        match self.settings.runs {
            RunMethod::Quicksort => self.push_to_fill(row),
            RunMethod::ReplacementSelection => self.push_to_replace(row),
        }
    }

    fn push_to_fill(&mut self, row: Row<'_>) -> Result<()> {
        if self.making.rows.push(row, 0) {
            return Ok(());
        }
        self.write_sorted()?;
        if self.making.rows.push(row, 0) { Ok(()) } else { Err(self.making.rows.too_small(row)) }
    }

    /// Writes all rows in memory as one run, including those of the next run.
    fn write_sorted(&mut self) -> Result<()> {
        self.open_writer()?;
        self.making.rows.sort();
        if let Some(writer) = &mut self.making.writer {
            for n in 0..self.making.rows.len() {
                writer.push(self.making.rows.row_at(n))?;
            }
        }
        self.making.rows.clear();
        self.close_run()?;
        if self.runs.len() >= self.runs_max { self.merge_early() } else { Ok(()) }
    }

    fn push_to_replace(&mut self, row: Row<'_>) -> Result<()> {
        loop {
            let making = &mut self.making;
            let is_late = making.last.is_some_and(|last| row.key < making.rows.row(last).key);
            if making.rows.insert(row, making.run + u32::from(is_late)) {
                return Ok(());
            }
            if !self.write_first()? {
                return Err(self.making.rows.too_small(row));
            }
        }
    }

    /// Writes the smallest row. Returns false if no row is left and all memory is free.
    fn write_first(&mut self) -> Result<bool> {
        let last = self.making.last.take();
        if let Some(last) = last {
            self.making.rows.free_row(last);
        }
        let Some(first) = self.making.rows.first() else {
            self.close_run()?;
            return Ok(last.is_some());
        };
        if first.run != self.making.run {
            self.close_run()?;
            self.making.run = first.run;
        }
        if self.making.writer.is_none() && self.runs.len() + 1 >= self.runs_max {
            self.making.rows.join_runs();
            self.write_sorted()?;
            return Ok(true);
        }
        self.open_writer()?;
        self.making.last = self.making.rows.take_first();
        if let Some(writer) = &mut self.making.writer {
            writer.push(self.making.rows.row(first))?;
        }
        Ok(true)
    }

    fn open_writer(&mut self) -> Result<()> {
        if self.making.writer.is_some() {
            return Ok(());
        }
        let SortSettings { page_bytes, write_pages, .. } = self.settings;
        let file = match self.making.file.take() {
            Some(file) => file,
            None => self.space.create(page_bytes)?,
        };
        let shape = WriterShape::full(page_bytes, write_pages, SpillPurpose::Runs);
        self.making.writer = Some(RowWriter::new(&file, &self.memory, shape)?);
        self.making.file = Some(file);
        Ok(())
    }

    fn close_run(&mut self) -> Result<()> {
        if let Some(writer) = self.making.writer.take() {
            self.runs.push(writer.finish()?);
        }
        Ok(())
    }

    /// Merges runs while rows are still added, because the list of runs is full. No rows are in memory. This
    /// happens only with small budgets.
    fn merge_early(&mut self) -> Result<()> {
        self.making.rows = Workspace::new(&self.memory, 0)?;
        let few = self.runs_max / 2;
        let runs = std::mem::take(&mut self.runs);
        self.runs = reduce(runs, &self.space, &self.memory, self.settings.merge_shape(), |_| few)?;
        self.runs.reserve_exact(self.runs_max - self.runs.len());
        self.making.rows = Workspace::new(&self.memory, self.rows_bytes)?;
        Ok(())
    }

    /// Returns all rows in order. `reserve_bytes` of the budget are left for the caller.
    pub fn finish(mut self, reserve_bytes: usize) -> Result<SortedRows> {
        if self.runs.is_empty() && self.making.writer.is_none() {
            self.making.rows.sort();
            let rows = Box::new(self.making.rows);
            return Ok(SortedRows { state: SortedState::InMemory { rows, returned: 0 } });
        }
        let shape = self.settings.merge_shape();
        let memory = Arc::clone(&self.memory);
        let ListedRuns { runs, grant } = self.into_runs(reserve_bytes)?;
        let left_bytes = memory.left_bytes().saturating_sub(reserve_bytes);
        let merger = Merger::new(runs, &memory, shape, left_bytes, SpillPurpose::Runs)?;
        drop(grant);
        Ok(SortedRows { state: SortedState::Merging(merger) })
    }

    /// Writes all rows, and merges runs until one merge can read the others. `reserve_bytes` of the budget
    /// are left for the caller.
    pub(crate) fn into_runs(mut self, reserve_bytes: usize) -> Result<ListedRuns> {
        match self.settings.runs {
            RunMethod::Quicksort if self.making.rows.is_empty() => {}
            RunMethod::Quicksort => self.write_sorted()?,
            RunMethod::ReplacementSelection => while self.write_first()? {},
        }
        self.close_run()?;
        let Sorter { space, memory, settings, making, runs, runs_grant, .. } = self;
        drop(making);
        let shape = settings.merge_shape();
        let fan_in = |runs: &[RowList]| shape.fan_in(runs, memory.left_bytes().saturating_sub(reserve_bytes));
        let mut runs = reduce(runs, &space, &memory, shape, fan_in)?;
        runs.shrink_to_fit();
        drop(runs_grant);
        let grant = memory.take(2 * runs.len() * size_of::<RowList>())?;
        Ok(ListedRuns { runs, grant })
    }

    /// Returns the number of runs that were written so far.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

enum SortedState {
    InMemory { rows: Box<Workspace>, returned: usize },
    Merging(Merger),
}

/// Rows in the order of their keys.
pub struct SortedRows {
    state: SortedState,
}

impl SortedRows {
    /// Moves to the next row. Returns false after the last row.
    pub fn advance(&mut self) -> Result<bool> {
        match &mut self.state {
            SortedState::Merging(merger) => merger.advance(),
            SortedState::InMemory { rows, returned } => {
                let is_row = *returned < rows.len();
                *returned += usize::from(is_row);
                Ok(is_row)
            }
        }
    }

    /// Returns the current row, to which [`SortedRows::advance`] moved.
    pub fn row(&self) -> Row<'_> {
        match &self.state {
            SortedState::Merging(merger) => merger.row(),
            SortedState::InMemory { rows, returned } => rows.row_at(returned.saturating_sub(1)),
        }
    }
}
