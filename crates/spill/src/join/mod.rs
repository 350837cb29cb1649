//! Equi-joins of inputs that may not fit in memory, by four algorithms.
//!
//! One input is the build input, and the other is the probe input. The caller decides which, and usually
//! chooses the smaller input as the build input. Rows of the build input are loaded into memory in chunks or
//! partitions. Then each row of the probe input is looked up among them.
//!
//! Invariants
//! 1. The result does not depend on the algorithm, the budget or the sizes that the caller expects.
//! 2. The memory stays within the budget. Every join ends, because a partition that hashing does not split is
//!    joined by block nested loops.
//! 3. An input is read once, except that block nested loops read the probe input once for each chunk.
//! 4. The same code joins at once ([`Join::run`]) and step by step ([`Join::steps`]). A step is bounded,
//!    except for merge passes of a sort.
//!
//! Source: Do 2012, section 2.3.

mod candidates;
mod cost;
mod emit;
mod hash;
mod kind;
mod nested_loops;
mod probe_scan;
mod sort_merge;

use std::sync::Arc;

use crate::allocation::{DriveTimes, JoinPages};
use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::row::{Row, RowSource};
use crate::space::TemporarySpace;
use crate::step::{self, Steps};

pub use candidates::{CandidatePairs, Partners};
pub use cost::{IoCount, JoinCost, JoinShape, PhaseCost, ProcessorTimes};
pub use emit::{JoinCondition, JoinOutput, Joined};
pub use kind::{JoinKind, Side};

/// The memory divided by this number is left for structures other than buffers and tables.
const STRUCTURES_SHARE: usize = 16;

/// The algorithm of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinMethod {
    /// Reads the probe input once for each chunk of the build input. The probe input must be rewindable.
    NestedLoops,
    /// Sorts both inputs and merges them.
    SortMerge,
    /// Divides both inputs into partitions and joins these one by one.
    Grace,
    /// Divides and joins as Grace does, but one partition stays in memory.
    Hybrid,
}

impl JoinMethod {
    /// All methods, in the order of the source.
    pub const ALL: [JoinMethod; 4] =
        [JoinMethod::NestedLoops, JoinMethod::SortMerge, JoinMethod::Grace, JoinMethod::Hybrid];
}

/// The number of pages of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockIo {
    /// The number of pages in table 2.1.
    Blocked,
    /// One page.
    PageSized,
}

/// How partitions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionFiles {
    /// Blocks of all partitions are appended to one file, so writes are sequential (Lee 2008).
    Shared,
    /// Each partition has a file, so writes are random (Do 2012). This is for experiments.
    OneEach,
}

/// The settings of a join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinSettings {
    /// The size of a page, in bytes.
    pub page_bytes: usize,
    /// The number of pages of a request.
    pub io: BlockIo,
    /// How partitions are stored.
    pub partition_files: PartitionFiles,
    /// The times of the drive for which the buffer is divided. It may be another drive than the one that is
    /// used.
    pub times: DriveTimes,
}

/// The expected size of an input. A wrong value only costs time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputSize {
    /// The number of rows.
    pub rows: u64,
    /// The bytes of the rows ([`Row::stored_bytes`]).
    pub bytes: u64,
}

/// One input of a join.
pub struct JoinInput<'a> {
    /// The rows of the input.
    pub source: &'a mut dyn RowSource,
    /// The expected size of the input.
    pub size: InputSize,
}

/// One input of a join that owns its inputs.
pub struct OwnedInput<'a> {
    /// The rows of the input.
    pub source: Box<dyn RowSource + 'a>,
    /// The expected size of the input.
    pub size: InputSize,
}

/// A join that is ready to run.
#[derive(Clone)]
pub struct Join {
    /// The temporary space, for rows that do not fit in memory.
    pub space: Arc<TemporarySpace>,
    /// The memory of the join.
    pub memory: Arc<MemoryBudget>,
    /// The settings of the join.
    pub settings: JoinSettings,
    /// The algorithm.
    pub method: JoinMethod,
    /// Which rows are returned.
    pub kind: JoinKind,
    /// The input from which tables are built.
    pub build: Side,
}

impl Join {
    /// Joins two inputs, and passes all results to `output`.
    pub fn run<'a>(
        &self,
        left: JoinInput<'a>,
        right: JoinInput<'a>,
        output: &mut dyn JoinOutput,
    ) -> Result<()> {
        step::run(self.run_in_steps(left, right, output))
    }

    /// Returns a join that the caller runs step by step. It may be dropped after any step.
    pub fn steps<'a>(
        self,
        left: OwnedInput<'a>,
        right: OwnedInput<'a>,
        output: impl JoinOutput + 'a,
    ) -> Steps<'a> {
        let (mut left, mut right, mut output) = (left, right, output);
        Steps::new(async move {
            let (left_size, right_size) = (left.size, right.size);
            let left = JoinInput { source: &mut *left.source, size: left_size };
            let right = JoinInput { source: &mut *right.source, size: right_size };
            self.run_in_steps(left, right, &mut output).await
        })
    }

    async fn run_in_steps<'i>(
        &self,
        left: JoinInput<'i>,
        right: JoinInput<'i>,
        output: &mut dyn JoinOutput,
    ) -> Result<()> {
        if self.settings.page_bytes < crate::page::PAGE_BYTES_MIN {
            return Err(SpillError::Setting("a page of the temporary space has 512 bytes to 32 KiB"));
        }
        let (build, probe) = match self.build {
            Side::Left => (left, right),
            Side::Right => (right, left),
        };
        let mut emitter = emit::Emitter::new(self.kind, self.build, &self.memory, output)?;
        match self.method {
            JoinMethod::NestedLoops => self.nested_loops(build, probe, &mut emitter).await?,
            JoinMethod::SortMerge => self.sort_merge(build, probe, &mut emitter).await?,
            JoinMethod::Grace | JoinMethod::Hybrid => self.hash(build, probe, &mut emitter).await?,
        }
        emitter.end()
    }

    /// Returns the number of pages of the buffer. A small part of the memory is left for structures.
    fn buffer_pages(&self) -> usize {
        let left_bytes = self.memory.left_bytes();
        (left_bytes - left_bytes / STRUCTURES_SHARE) / self.settings.page_bytes
    }

    fn pages(&self, build: InputSize, probe: InputSize) -> JoinPages {
        let page_bytes = (self.settings.page_bytes - crate::page::HEADER_BYTES) as f64;
        let buffer = self.buffer_pages();
        JoinPages { build: build.bytes as f64 / page_bytes, probe: probe.bytes as f64 / page_bytes, buffer }
    }

    fn pages_of_request(&self, blocked: usize) -> usize {
        if self.settings.io == BlockIo::Blocked { blocked } else { 1 }
    }
}

/// A build row and a probe row.
#[derive(Clone, Copy)]
struct RowPair<'a> {
    build: Row<'a>,
    probe: Row<'a>,
}
