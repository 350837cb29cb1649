//! Equi-joins of inputs that may not fit in memory, by four algorithms.
//!
//! One input is the build input, the other the probe input. The caller says which, usually the smaller one
//! builds. Rows of the build input are in memory in chunks or partitions, and rows of the probe input look
//! them up.
//!
//! Invariants
//! 1. The result does not depend on the algorithm, the budget or the sizes that the caller expects.
//! 2. Memory stays in the budget, and every join ends: a partition that hashing does not split is joined by
//!    block nested loops.
//! 3. An input is read once, except that block nested loops reads the probe input once for each chunk.
//! 4. The same code joins at once ([`Join::run`]) and step by step ([`Join::steps`]). A step is bounded, except
//!    for merge passes of a sort.
//!
//! Source: Do 2012, section 2.3.

mod cost;
mod emit;
mod hash;
mod nested_loops;
mod sort_merge;

use std::sync::Arc;

use crate::allocation::{DriveTimes, JoinPages};
use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::row::{Row, RowSource};
use crate::space::TemporarySpace;
use crate::step::{self, Steps};

pub use cost::{IoCount, JoinCost, JoinShape, PhaseCost, ProcessorTimes};
pub use emit::{JoinKind, JoinOutput, Joined, Side};

/// The part of the memory that is left for structures beside buffers and tables.
const STRUCTURES_SHARE: usize = 16;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinMethod {
    /// Reads the probe input once for each chunk of the build input. The probe input must be rewindable.
    NestedLoops,
    /// Sorts both inputs and merges them.
    SortMerge,
    /// Divides both inputs into partitions and joins these one by one.
    Grace,
    /// Like Grace, with one partition that stays in memory.
    Hybrid,
}

impl JoinMethod {
    /// All methods, in the order of the source.
    pub const ALL: [JoinMethod; 4] =
        [JoinMethod::NestedLoops, JoinMethod::SortMerge, JoinMethod::Grace, JoinMethod::Hybrid];
}

/// How many pages a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockIo {
    /// As many as table 2.1 says.
    Blocked,
    /// One.
    PageSized,
}

/// How partitions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionFiles {
    /// Blocks of all partitions are appended to one file: sequential writes (Lee 2008).
    Shared,
    /// Each partition has a file: random writes (Do 2012). For experiments.
    OneEach,
}

/// Sizes and times of a join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinSettings {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages of a request.
    pub io: BlockIo,
    /// How partitions are stored.
    pub partition_files: PartitionFiles,
    /// The drive for which buffers are divided. It may be another one than the drive that is used.
    pub times: DriveTimes,
}

/// What is expected of an input. A wrong expectation costs time only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputSize {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the rows ([`Row::stored_bytes`]).
    pub bytes: u64,
}

/// One input of a join.
pub struct JoinInput<'a> {
    /// Its rows.
    pub source: &'a mut dyn RowSource,
    /// Its expected size.
    pub size: InputSize,
}

/// An input of a join that owns its inputs.
pub struct OwnedInput<'a> {
    /// Its rows.
    pub source: Box<dyn RowSource + 'a>,
    /// Its expected size.
    pub size: InputSize,
}

/// A join, ready to run.
#[derive(Clone)]
pub struct Join {
    /// Where rows go that do not fit.
    pub space: Arc<TemporarySpace>,
    /// The memory of the join.
    pub memory: Arc<MemoryBudget>,
    /// Sizes and times.
    pub settings: JoinSettings,
    /// The algorithm.
    pub method: JoinMethod,
    /// Which rows are returned.
    pub kind: JoinKind,
    /// The input from which tables are built.
    pub build: Side,
}

impl Join {
    /// Joins two inputs, and hands all results to `output`.
    pub fn run<'a>(
        &self,
        left: JoinInput<'a>,
        right: JoinInput<'a>,
        output: &mut dyn JoinOutput,
    ) -> Result<()> {
        step::run(self.run_in_steps(left, right, output))
    }

    /// A join that the caller runs step by step. It may be dropped at any step.
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
        let mut emitter = emit::Emitter::new(self.kind, self.build, output);
        match self.method {
            JoinMethod::NestedLoops => self.nested_loops(build, probe, &mut emitter).await?,
            JoinMethod::SortMerge => self.sort_merge(build, probe, &mut emitter).await?,
            JoinMethod::Grace | JoinMethod::Hybrid => self.hash(build, probe, &mut emitter).await?,
        }
        emitter.end()
    }

    /// Pages of the buffer. A small part of the memory is left for structures.
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

/// An input's row as a value, for signatures with two of them.
#[derive(Clone, Copy)]
struct RowPair<'a> {
    build: Row<'a>,
    probe: Row<'a>,
}
