//! Merges sorted runs with a tree of losers. Reduces the number of runs until one merge can read all of them.
//!
//! Invariants
//! 1. Rows are returned in the order of their keys.
//! 2. For n runs, a merge makes about log2(n) comparisons for each row, mostly of the first eight bytes of
//!    keys.
//! 3. A merge pass reads the shortest runs, and only as many of them as needed. So the last merge reads as
//!    many runs as its memory allows.
//!
//! Source: Knuth, The Art of Computer Programming, volume 3, section 5.4.1 (trees of losers) and 5.4.9
//! (which runs to merge).

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{MemoryBudget, MemoryGrant};
use crate::reader::{READER_BYTES, RowReader};
use crate::row::{Row, RowSource};
use crate::space::{SpillPurpose, TemporarySpace};
use crate::writer::{RowList, RowWriter, WriterShape};

/// The memory of a run that is merged, in addition to its buffer and the room for a row.
pub(crate) const RUN_BYTES: usize = READER_BYTES + 32;

/// The sizes of the requests of merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MergeShape {
    pub page_bytes: usize,
    /// The bytes of one request that reads a run (the cluster). If it is `None`, all runs get equal shares of
    /// the memory.
    pub cluster_bytes: Option<usize>,
    /// The number of pages of a request that writes a merged run.
    pub write_pages: usize,
}

impl MergeShape {
    /// Returns the memory for each run: the buffer, room for the longest row, and structures.
    fn bytes_each(&self, runs: &[RowList]) -> usize {
        let row_bytes = runs.iter().map(RowReader::row_memory_bytes).max().unwrap_or(0);
        self.cluster_bytes.unwrap_or(self.page_bytes).max(self.page_bytes) + row_bytes + RUN_BYTES
    }

    /// Returns the number of runs that can be merged at once with this memory.
    pub(crate) fn fan_in(&self, runs: &[RowList], left_bytes: usize) -> usize {
        left_bytes / self.bytes_each(runs)
    }

    /// Returns the request size of a merge of all these runs.
    pub(crate) fn cluster_of(&self, runs: &[RowList], left_bytes: usize) -> usize {
        let rows_bytes: usize = runs.iter().map(RowReader::row_memory_bytes).sum();
        let structures_bytes = runs.len() * RUN_BYTES + rows_bytes;
        let even_bytes = left_bytes.saturating_sub(structures_bytes) / runs.len().max(1);
        self.cluster_bytes.unwrap_or(even_bytes).max(self.page_bytes)
    }
}

/// A merge of sorted runs.
pub(crate) struct Merger {
    readers: Vec<RowReader>,
    /// The first bytes of the current key of each run, or `None` after the last row.
    prefixes: Vec<Option<u64>>,
    /// Element 0 is the winner. The other elements are the losers of the games above the leaves.
    tree: Vec<u32>,
    is_begun: bool,
    _grant: MemoryGrant,
}

fn prefix(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let known = key.len().min(head.len());
    head[..known].copy_from_slice(&key[..known]);
    u64::from_be_bytes(head)
}

impl Merger {
    /// Opens all runs, with buffers that together fit in `memory_bytes`.
    pub(crate) fn new(
        runs: Vec<RowList>,
        memory: &Arc<MemoryBudget>,
        shape: MergeShape,
        memory_bytes: usize,
        purpose: SpillPurpose,
    ) -> Result<Merger> {
        let grant = memory.take(runs.len() * RUN_BYTES)?;
        let cluster_bytes = shape.cluster_of(&runs, memory_bytes);
        let count = runs.len();
        let mut merger = Merger {
            readers: Vec::with_capacity(count),
            prefixes: Vec::with_capacity(count),
            tree: vec![0; count.max(1)],
            is_begun: false,
            _grant: grant,
        };
        for run in runs {
            let mut reader = RowReader::open(run, memory, cluster_bytes, purpose)?;
            merger.prefixes.push(reader.advance()?.then(|| prefix(reader.row().key)));
            merger.readers.push(reader);
        }
        merger.play();
        Ok(merger)
    }

    /// Returns whether the row of run `a` comes before the row of run `b`.
    fn is_before(&self, a: u32, b: u32) -> bool {
        let prefix = |run: u32| self.prefixes.get(run as usize).copied().flatten();
        match (prefix(a), prefix(b)) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(first), Some(second)) if first != second => first < second,
            _ => {
                let key = |run: u32| self.readers.get(run as usize).map(|reader| reader.row().key);
                key(a).cmp(&key(b)).then(a.cmp(&b)).is_lt()
            }
        }
    }

    /// Plays all games once.
    fn play(&mut self) {
        let count = self.readers.len();
        for leaf in 0..count {
            let mut winner = leaf as u32;
            let mut game = (leaf + count) / 2;
            // The first run that reaches a game waits there. The second run plays against it, and the winner
            // goes on to the next game.
            while game > 0 {
                let waiting = self.tree[game];
                if waiting == 0 {
                    self.tree[game] = winner + 1;
                    break;
                }
                if self.is_before(waiting - 1, winner) {
                    self.tree[game] = winner + 1;
                    winner = waiting - 1;
                }
                game /= 2;
            }
            if game == 0 {
                self.tree[0] = winner + 1;
            }
        }
        self.tree.iter_mut().for_each(|run| *run = run.saturating_sub(1));
    }

    /// Plays the games of one run again.
    fn replay(&mut self, run: u32) {
        let mut winner = run;
        let mut game = (run as usize + self.readers.len()) / 2;
        while game > 0 {
            let loser = self.tree[game];
            if self.is_before(loser, winner) {
                self.tree[game] = winner;
                winner = loser;
            }
            game /= 2;
        }
        self.tree[0] = winner;
    }

    /// Moves to the next row. Returns false after the last row.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let winner = self.tree[0];
        if self.is_begun
            && let Some(reader) = self.readers.get_mut(winner as usize)
        {
            self.prefixes[winner as usize] = reader.advance()?.then(|| prefix(reader.row().key));
            self.replay(winner);
        }
        self.is_begun = true;
        Ok(self.prefixes.get(self.tree[0] as usize).is_some_and(Option::is_some))
    }

    /// Returns the current row, to which [`Merger::advance`] moved.
    pub(crate) fn row(&self) -> Row<'_> {
        let reader = self.readers.get(self.tree[0] as usize);
        reader.map_or(Row::new(&[], &[]), |reader| reader.row())
    }
}

/// Merges the shortest runs until `runs_max` runs are left. Each merge may use the whole rest of the budget.
pub(crate) fn reduce(
    mut runs: Vec<RowList>,
    space: &Arc<TemporarySpace>,
    memory: &Arc<MemoryBudget>,
    shape: MergeShape,
    runs_max: impl Fn(&[RowList]) -> usize,
) -> Result<Vec<RowList>> {
    while runs.len() > runs_max(&runs).max(1) {
        runs.sort_by_key(|run| std::cmp::Reverse(run.bytes));
        let fan_in = merge_fan_in(&runs, memory, shape)?;
        let surplus = runs.len() + 1 - runs_max(&runs).max(1);
        let shortest = runs.split_off(runs.len() - fan_in.min(surplus.max(2)).min(runs.len()));
        runs.push(merge_to_run(shortest, space, memory, shape)?);
    }
    Ok(runs)
}

/// Returns the number of pages of the buffer with which a merge writes.
fn write_pages(memory: &MemoryBudget, shape: MergeShape) -> usize {
    shape.write_pages.min(memory.left_bytes() / 4 / shape.page_bytes).max(1)
}

fn merge_fan_in(runs: &[RowList], memory: &Arc<MemoryBudget>, shape: MergeShape) -> Result<usize> {
    let writer_bytes = write_pages(memory, shape) * shape.page_bytes;
    let left_bytes = memory.left_bytes();
    match shape.fan_in(runs, left_bytes.saturating_sub(writer_bytes)) {
        0 | 1 => {
            let wanted_bytes = writer_bytes + 2 * shape.bytes_each(runs);
            Err(SpillError::Memory { wanted_bytes, left_bytes, limit_bytes: memory.limit_bytes() })
        }
        fan_in => Ok(fan_in),
    }
}

fn merge_to_run(
    runs: Vec<RowList>,
    space: &Arc<TemporarySpace>,
    memory: &Arc<MemoryBudget>,
    shape: MergeShape,
) -> Result<RowList> {
    let file = space.create(shape.page_bytes)?;
    let writer = WriterShape::full(shape.page_bytes, write_pages(memory, shape), SpillPurpose::Merges);
    let mut writer = RowWriter::new(&file, memory, writer)?;
    let mut merger = Merger::new(runs, memory, shape, memory.left_bytes(), SpillPurpose::Merges)?;
    while merger.advance()? {
        writer.push(merger.row())?;
    }
    drop(merger);
    writer.finish()
}
