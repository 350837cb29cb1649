//! Predicts the requests, bytes and time of a join, and chooses the algorithm that takes the least time.
//!
//! The prediction divides the buffer with the functions that the join itself uses. It assumes random keys, no
//! skew, and true sizes of the inputs.
//!
//! A request is random if the request before it was elsewhere on the drive. Reads of an input and writes of
//! partitions or runs alternate if both are on one drive. Partitions fill at random moments, so the number of
//! writes between two reads is taken as a Poisson variable.
//!
//! Invariants
//! 1. A prediction does no I/O and takes no memory.
//!
//! Source of the costs: Haas et al. 1997, section 4. There each request pays a latency. Here sequential
//! requests pay none, as on the emulated drives.

use crate::allocation::{DriveTimes, JoinPages};
use crate::chunk::CHUNK_ROW_BYTES;
use crate::merge::RUN_BYTES;

use super::{BlockIo, InputSize, Join, JoinMethod};

/// The average number of bytes that a row uses during run generation, in addition to its stored bytes.
const WORKSPACE_ROW_BYTES: f64 = 28.0;
/// The share of the memory that a sort uses for rows and buffers.
const SORT_SHARE: f64 = 0.93;
/// The maximum number of levels of partitions that are predicted.
const DEPTH_MAX: u32 = 4;

/// The inputs of a join, for a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinShape {
    /// The size of the build input.
    pub build: InputSize,
    /// The size of the probe input.
    pub probe: InputSize,
    /// The fill level of the pages of the inputs (0 to 1).
    pub input_fill: f64,
    /// Whether the inputs are on the same drive as the temporary space.
    pub is_one_drive: bool,
}

/// The requests to a drive.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IoCount {
    /// The number of requests.
    pub requests: f64,
    /// The number of requests that are not directly after their predecessor on the drive.
    pub random: f64,
    /// The number of bytes.
    pub bytes: f64,
}

/// The cost of one phase of a join.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PhaseCost {
    /// The reads of the inputs.
    pub input: IoCount,
    /// The writes to the temporary space.
    pub written: IoCount,
    /// The reads of the temporary space.
    pub read: IoCount,
    /// The number of rows that are hashed, looked up or copied.
    pub rows: f64,
    /// The number of comparisons of keys.
    pub comparisons: f64,
}

/// The cost of a whole join.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JoinCost {
    /// The phase that reads and divides or sorts the inputs. Block nested loops have only this phase.
    pub first: PhaseCost,
    /// The phase that joins partitions or runs.
    pub second: PhaseCost,
}

/// The times of a processor, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorTimes {
    /// The time to hash a row, and to copy it or look it up.
    pub row_us: f64,
    /// The time to compare two keys in a heap or a tree.
    pub comparison_us: f64,
}

impl ProcessorTimes {
    /// The approximate times of a current server.
    pub const TODAY: ProcessorTimes = ProcessorTimes { row_us: 0.15, comparison_us: 0.02 };
}

impl IoCount {
    fn blocks(pages: f64, block_pages: f64, page_bytes: f64) -> IoCount {
        let requests = pages / block_pages;
        IoCount { requests, random: requests, bytes: pages * page_bytes }
    }

    fn times(self, factor: f64) -> IoCount {
        let IoCount { requests, random, bytes } = self;
        IoCount { requests: requests * factor, random: random * factor, bytes: bytes * factor }
    }

    fn plus(self, other: IoCount) -> IoCount {
        IoCount {
            requests: self.requests + other.requests,
            random: self.random + other.random,
            bytes: self.bytes + other.bytes,
        }
    }

    fn us(self, drive: DriveTimes, bytes_per_us: f64) -> f64 {
        self.random * (drive.seek_us + drive.latency_us) + self.bytes / bytes_per_us
    }
}

impl PhaseCost {
    /// Returns the time of the I/O on this drive, in microseconds. Requests do not overlap.
    pub fn io_us(&self, drive: DriveTimes) -> f64 {
        let read = self.input.plus(self.read);
        read.us(drive, drive.read_bytes_per_us) + self.written.us(drive, drive.write_bytes_per_us)
    }

    /// Returns the time of the processor, in microseconds.
    pub fn processor_us(&self, times: ProcessorTimes) -> f64 {
        self.rows * times.row_us + self.comparisons * times.comparison_us
    }

    fn plus(self, other: PhaseCost) -> PhaseCost {
        PhaseCost {
            input: self.input.plus(other.input),
            written: self.written.plus(other.written),
            read: self.read.plus(other.read),
            rows: self.rows + other.rows,
            comparisons: self.comparisons + other.comparisons,
        }
    }

    fn times(self, factor: f64) -> PhaseCost {
        PhaseCost {
            input: self.input.times(factor),
            written: self.written.times(factor),
            read: self.read.times(factor),
            rows: self.rows * factor,
            comparisons: self.comparisons * factor,
        }
    }

    /// Sets the number of random reads and writes of this phase. Reads and writes alternate if both are on
    /// one drive.
    fn alternate(mut self, is_one_drive: bool, is_regular: bool) -> PhaseCost {
        let writes_between = self.written.requests / self.input.requests.max(1.0);
        let gaps = if is_regular { writes_between.min(1.0) } else { 1.0 - (-writes_between).exp() };
        let random = if is_one_drive { self.input.requests * gaps } else { 1.0 };
        self.input.random = random.min(self.input.requests);
        self.written.random = random.min(self.written.requests);
        self
    }
}

impl JoinMethod {
    /// Returns the algorithm with the shortest time of these predictions.
    pub fn cheapest(predicted_us: &[(JoinMethod, f64)]) -> JoinMethod {
        let cheapest = predicted_us.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        cheapest.map_or(JoinMethod::Hybrid, |(method, _)| *method)
    }
}

impl JoinCost {
    /// Returns the time of the I/O on this drive, in microseconds.
    pub fn io_us(&self, drive: DriveTimes) -> f64 {
        self.first.io_us(drive) + self.second.io_us(drive)
    }

    /// Returns the sum of the times of I/O and processor, in microseconds.
    pub fn total_us(&self, drive: DriveTimes, processor: ProcessorTimes) -> f64 {
        let processor_us = self.first.processor_us(processor) + self.second.processor_us(processor);
        self.io_us(drive) + processor_us
    }
}

impl InputSize {
    fn part(self, share: f64) -> InputSize {
        InputSize { rows: (self.rows as f64 * share) as u64, bytes: (self.bytes as f64 * share) as u64 }
    }

    fn chunk_bytes(self) -> f64 {
        self.bytes as f64 + self.rows as f64 * CHUNK_ROW_BYTES as f64
    }
}

impl JoinShape {
    fn rows(&self) -> f64 {
        (self.build.rows + self.probe.rows) as f64
    }
}

impl Join {
    /// Predicts the cost of this join with the memory that is left.
    pub fn cost(&self, shape: JoinShape) -> JoinCost {
        match self.method {
            JoinMethod::NestedLoops => self.nested_loops_cost(shape),
            JoinMethod::SortMerge => self.sort_merge_cost(shape),
            JoinMethod::Grace | JoinMethod::Hybrid => self.hash_cost(shape, 1),
        }
    }

    /// Returns the algorithm with the shortest predicted time. Block nested loops are considered only if the
    /// probe input can be rewound.
    pub fn choose(
        &self,
        shape: JoinShape,
        drive: DriveTimes,
        processor: ProcessorTimes,
        can_rewind: bool,
    ) -> JoinMethod {
        JoinMethod::cheapest(&self.predict_us(shape, drive, processor, can_rewind))
    }

    /// Returns the algorithms that are considered ([`Join::choose`]) with their predicted times, in
    /// microseconds.
    pub fn predict_us(
        &self,
        shape: JoinShape,
        drive: DriveTimes,
        processor: ProcessorTimes,
        can_rewind: bool,
    ) -> Vec<(JoinMethod, f64)> {
        let us = |method| Join { method, ..self.clone() }.cost(shape).total_us(drive, processor);
        let methods = JoinMethod::ALL.into_iter();
        let possible = methods.filter(|method| can_rewind || *method != JoinMethod::NestedLoops);
        possible.map(|method| (method, us(method))).collect()
    }

    fn page_bytes(&self) -> f64 {
        self.settings.page_bytes as f64
    }

    fn input_io(&self, pages: f64, shape: JoinShape, read_pages: usize) -> IoCount {
        IoCount::blocks(pages / shape.input_fill, read_pages as f64, self.page_bytes())
    }

    fn nested_loops_cost(&self, shape: JoinShape) -> JoinCost {
        let pages = self.pages(shape.build, shape.probe);
        let buffers = self.nested_loops_buffers(pages);
        let page_bytes = self.settings.page_bytes;
        let left_bytes = self.memory.left_bytes().saturating_sub(buffers.build_read + buffers.probe_read);
        let chunks = (shape.build.chunk_bytes() / left_bytes.max(1) as f64).ceil().max(1.0);
        let mut build = self.input_io(pages.build, shape, buffers.build_read / page_bytes);
        let mut probe = self.input_io(pages.probe, shape, buffers.probe_read / page_bytes).times(chunks);
        (build.random, probe.random) = (chunks, chunks);
        let rows = shape.build.rows as f64 + chunks * shape.probe.rows as f64;
        let first = PhaseCost { input: build.plus(probe), rows, ..PhaseCost::default() };
        JoinCost { first, ..JoinCost::default() }
    }

    fn sort_merge_cost(&self, shape: JoinShape) -> JoinCost {
        let pages = self.pages(shape.build, shape.probe);
        let buffers = pages.sort_merge(self.settings.times);
        let block = self.pages_of_request(buffers.input);
        let buffers_bytes = (2 * block * self.settings.page_bytes) as f64;
        let left_bytes = self.memory.left_bytes() as f64;
        let workspace = (left_bytes * SORT_SHARE - buffers_bytes).max(self.page_bytes());
        let memory_rows =
            |size: InputSize| workspace / (size.bytes as f64 / size.rows.max(1) as f64 + WORKSPACE_ROW_BYTES);
        // A run has twice the rows that fit in memory, except for the first and the last run, which are
        // shorter.
        let runs_of = |size: InputSize| (size.rows as f64 / (2.0 * memory_rows(size)) + 0.6).max(1.0);
        let runs = runs_of(shape.build) + runs_of(shape.probe);
        let all = pages.build + pages.probe;
        let written = IoCount::blocks(all + runs / 2.0, block as f64, self.page_bytes());
        let input = self.input_io(all, shape, block);
        let comparisons = shape.rows() * memory_rows(shape.probe).max(2.0).log2();
        let first = PhaseCost { input, written, rows: shape.rows(), comparisons, ..PhaseCost::default() };
        let row_bytes = shape.build.bytes as f64 / shape.build.rows.max(1) as f64;
        let group_bytes = left_bytes / 16.0 + 3.0 * self.page_bytes();
        let even_bytes = (left_bytes - group_bytes) / runs - RUN_BYTES as f64 - row_bytes;
        let cluster = match self.settings.io {
            BlockIo::Blocked => (even_bytes / self.page_bytes()).floor().max(1.0),
            BlockIo::PageSized => 1.0,
        };
        let mut read = IoCount::blocks(all + runs / 2.0, cluster, self.page_bytes());
        read.requests += runs * (cluster - 1.0) / cluster / 2.0;
        read.random = read.requests;
        let comparisons = shape.rows() * runs.max(2.0).log2();
        let second = PhaseCost { read, rows: shape.rows(), comparisons, ..PhaseCost::default() };
        JoinCost { first: first.alternate(shape.is_one_drive, true), second }
    }

    fn hash_cost(&self, shape: JoinShape, depth: u32) -> JoinCost {
        let pages: JoinPages = self.pages(shape.build, shape.probe);
        let buffers = self.partition_buffers(pages);
        let resident = self.resident_share(buffers, pages);
        let k = buffers.partitions as f64;
        let spilled_pages = (pages.build + pages.probe) * (1.0 - resident);
        // Each partition of each input ends with a block that is half full on average.
        let last_blocks = if k > 0.0 { 2.0 * k } else { 0.0 };
        let output = buffers.output as f64;
        let mut written = IoCount::blocks(spilled_pages, output, self.page_bytes());
        written.requests += last_blocks / 2.0;
        let input = self.input_io(pages.build + pages.probe, shape, buffers.input);
        let first = PhaseCost { input, written, rows: shape.rows(), ..PhaseCost::default() };
        let first = first.alternate(shape.is_one_drive, false);
        if k == 0.0 {
            return JoinCost { first, ..JoinCost::default() };
        }
        let share = (1.0 - resident) / k;
        let part = JoinShape { build: shape.build.part(share), probe: shape.probe.part(share), ..shape };
        let spare_bytes = self.memory.left_bytes() as f64 - part.build.chunk_bytes();
        if spare_bytes < 6.0 * self.page_bytes() && depth < DEPTH_MAX {
            let deeper = self.hash_cost(JoinShape { input_fill: 1.0, ..part }, depth + 1);
            let again = deeper.first.plus(deeper.second).times(k);
            return JoinCost { first, second: again };
        }
        let reads_of_block =
            (output / (1.0 + (spare_bytes / 2.0 / self.page_bytes()).floor())).ceil().max(1.0);
        let mut read = written.times(reads_of_block.min(output));
        read.bytes = written.bytes;
        read.random = written.requests;
        let rows = shape.rows() * (1.0 - resident);
        JoinCost { first, second: PhaseCost { read, rows, ..PhaseCost::default() } }
    }
}
