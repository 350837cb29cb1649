//! The sort of Lee 2008, section 6.1: two million rows, about 200 MB, with a buffer of 2 MB.
//!
//! Nothing is scaled. The size of a cluster decides how many runs a buffer can merge at once, so a smaller
//! buffer would be another experiment. The times do not include reading the input, as in the publication.

use varve_bench::{BenchError, Result};
use varve_device::thread_cpu_ns;
use varve_spill::{MemoryBudget, Row, RunMethod, SortSettings, Sorter};

use super::super::scale::Scale;
use super::bed::{SpillBed, mixed, refused};

/// The number of rows, and bytes of a row without its key. With the lengths before each row, all rows have
/// 200 MB.
const ROWS: u64 = 2_000_000;
const PAYLOAD_BYTES: usize = 88;
/// In tests, the number of rows and all sizes are divided by this.
const TINY_ROWS: u64 = 32;
const TINY_SIZES: usize = 4;
/// The smallest cluster is a page.
const PAGE_BYTES: usize = 2 << 10;
/// The number of pages of a request that writes runs: 64 KiB.
const WRITE_PAGES: usize = 32;

/// A sort.
#[derive(Debug, Clone, Copy)]
pub struct SortSetup {
    /// The number of rows.
    rows: u64,
    /// Bytes of the buffer.
    buffer_bytes: usize,
    /// Bytes of a request that reads a run.
    cluster_bytes: usize,
    /// Bytes of a page.
    page_bytes: usize,
    /// The number of the round. Each round has other keys.
    seed: u64,
}

/// Times of a sort, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct SortTimes {
    /// The number of runs that were merged.
    pub runs: usize,
    /// I/O of the generation of runs.
    pub runs_io: f64,
    /// I/O of all merges.
    pub merge_io: f64,
    /// The processor.
    pub processor: f64,
}

impl SortTimes {
    /// Returns the time of all I/O.
    pub fn io(&self) -> f64 {
        self.runs_io + self.merge_io
    }

    /// Returns the sum of the times of I/O and processor.
    pub fn total(&self) -> f64 {
        self.io() + self.processor
    }
}

impl SortSetup {
    /// Returns the published sort with a buffer and a cluster of this size.
    pub fn published(scale: Scale, buffer_mib: usize, cluster_kib: usize) -> Self {
        let is_tiny = scale.name == Scale::TINY.name;
        let (rows, sizes) = if is_tiny { (TINY_ROWS, TINY_SIZES) } else { (1, 1) };
        Self {
            rows: ROWS / rows,
            buffer_bytes: (buffer_mib << 20) / sizes,
            cluster_bytes: (cluster_kib << 10) / sizes,
            page_bytes: PAGE_BYTES / sizes,
            seed: 1,
        }
    }

    /// Returns the same sort in a later round.
    pub fn of_round(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns the size in words, for a row.
    pub fn scale(&self, scale: Scale) -> String {
        format!("{}, {} rows", scale.name, self.rows)
    }

    /// Sorts on this drive, and checks that the sorted rows are in order.
    pub fn run(&self, bed: &SpillBed) -> Result<SortTimes> {
        let settings = SortSettings {
            page_bytes: self.page_bytes,
            write_pages: WRITE_PAGES,
            cluster_bytes: Some(self.cluster_bytes),
            runs: RunMethod::ReplacementSelection,
        };
        bed.begin();
        let processor_ns = thread_cpu_ns();
        let memory = MemoryBudget::new(self.buffer_bytes);
        let mut sorter = Sorter::new(bed.space(), &memory, settings).map_err(refused)?;
        let payload = [7; PAYLOAD_BYTES];
        for number in 0..self.rows {
            let key = mixed((self.seed << 40) + number).to_be_bytes();
            let (key, _) = key.split_at(4);
            sorter.push(Row::new(key, &payload)).map_err(refused)?;
        }
        let (runs_io, runs) = (bed.io_s(), sorter.runs());
        let rows = self.drain(sorter)?;
        let processor = (thread_cpu_ns() - processor_ns) as f64 / 1e9;
        let merge_io = bed.io_s() - runs_io;
        if rows != self.rows {
            return Err(BenchError::Wrong(format!("{rows} sorted rows of {}", self.rows)));
        }
        Ok(SortTimes { runs, runs_io, merge_io, processor })
    }

    /// Reads all rows in order, and counts them.
    fn drain(&self, sorter: Sorter) -> Result<u64> {
        let mut sorted = sorter.finish(0).map_err(refused)?;
        let (mut rows, mut last) = (0, [0; 4]);
        while sorted.advance().map_err(refused)? {
            let key = sorted.row().key.first_chunk().copied().unwrap_or_default();
            if key < last {
                return Err(BenchError::Wrong(format!("row {rows} of a sort is out of order")));
            }
            (rows, last) = (rows + 1, key);
        }
        Ok(rows)
    }
}
