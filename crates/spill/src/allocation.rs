//! Divides the buffer of a join, in pages. The formulas are in table 2.1 of Do 2012, which takes them from
//! Haas et al. 1997.
//!
//! Names of the source: R is the smaller input (build), S the larger one (probe), B the buffer, F the fudge
//! factor of hash tables and trees, Ds, Dl and Dx the seek, the latency and the transfer of a page.
//!
//! Invariants
//! 1. Each part has at least one page, and the parts together have at most B pages.
//! 2. A buffer that is too small for two passes gets the largest allocation that is possible. The join then
//!    recurses or merges more often.

/// The memory that a hash table or a tree uses for each byte of rows.
pub const FUDGE: f64 = 1.2;

/// The access times and speeds of a drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriveTimes {
    /// The average time of a seek, in microseconds (Ds). It is 0 for flash.
    pub seek_us: f64,
    /// The rotational delay, or the access time of flash, in microseconds (Dl).
    pub latency_us: f64,
    /// The number of bytes that are read in a microsecond.
    pub read_bytes_per_us: f64,
    /// The number of bytes that are written in a microsecond.
    pub write_bytes_per_us: f64,
}

impl DriveTimes {
    /// The disk of Do 2012, table 2.2. The thesis uses its allocations on flash, too (section 2.3.5).
    pub const DISK: DriveTimes = DriveTimes {
        seek_us: 12_000.0,
        latency_us: 5_560.0,
        read_bytes_per_us: 34.0,
        write_bytes_per_us: 34.0,
    };

    /// The flash drive of Do 2012, table 2.2.
    pub const FLASH: DriveTimes =
        DriveTimes { seek_us: 0.0, latency_us: 350.0, read_bytes_per_us: 120.0, write_bytes_per_us: 80.0 };

    /// Returns the time to transfer a page that is read, in microseconds (Dx).
    pub fn page_us(&self, page_bytes: usize) -> f64 {
        page_bytes as f64 / self.read_bytes_per_us
    }
}

/// The sizes of the inputs and of the buffer of a join, in pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinPages {
    /// The smaller input (R).
    pub build: f64,
    /// The larger input (S).
    pub probe: f64,
    /// The buffer (B).
    pub buffer: usize,
}

/// The sizes of the buffers of a block nested loops join, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedLoopsBuffers {
    /// A chunk of the build input and its hash table.
    pub outer: usize,
    /// The buffer that reads the probe input.
    pub inner: usize,
}

/// The sizes of the buffers of the first phase of a sort-merge join, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortMergeBuffers {
    /// The buffer that reads an input. The buffer that writes runs has the same size.
    pub input: usize,
    /// The memory in which runs are generated.
    pub workspace: usize,
}

/// The sizes of the buffers of the first phase of a hash join, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionBuffers {
    /// The number of partitions on the drive (k).
    pub partitions: usize,
    /// The buffer that reads an input.
    pub input: usize,
    /// The buffer of each partition.
    pub output: usize,
    /// The memory for the partition that stays in memory. It is 0 in a Grace join.
    pub workspace: usize,
}

impl JoinPages {
    /// Divides the buffer for block nested loops.
    pub fn nested_loops(&self, times: DriveTimes, page_bytes: usize) -> NestedLoopsBuffers {
        let (y, s, b) =
            (times.latency_us / times.page_us(page_bytes), self.probe.max(1.0), self.buffer as f64);
        let inner = ((y * s * (y * s + b * (y + s))).sqrt() - y * s) / (y + s);
        let inner = (inner.ceil() as usize).clamp(1, (self.buffer / 2).max(1));
        NestedLoopsBuffers { outer: self.buffer.saturating_sub(inner).max(1), inner }
    }

    /// Divides the buffer for a sort-merge join. The formula minimises 2 Dl / I + z Dl / (2 (B - 2 I)).
    pub fn sort_merge(&self, times: DriveTimes) -> SortMergeBuffers {
        let b = self.buffer as f64;
        let access = (times.latency_us + times.seek_us) / times.latency_us;
        let z = access * FUDGE * (self.build + self.probe) / b;
        let input = b / (2.0 + (z / 2.0).sqrt());
        let input = (input.ceil() as usize).clamp(1, (self.buffer / 4).max(1));
        SortMergeBuffers { input, workspace: self.buffer.saturating_sub(2 * input).max(1) }
    }

    /// Divides the buffer for a Grace hash join.
    pub fn grace(&self, partitions_max: usize) -> PartitionBuffers {
        let (table, b) = (self.build * FUDGE, self.buffer as f64);
        let k = (table + (table * table + 4.0 * b * table).sqrt()) / (2.0 * b);
        let most = partitions_max.min(self.buffer.saturating_sub(1));
        let partitions = (k.ceil() as usize).clamp(2, most.max(2));
        let output = (self.buffer / (partitions + 1)).max(1);
        let input = self.buffer.saturating_sub(partitions * output).max(1);
        PartitionBuffers { partitions, input, output, workspace: 0 }
    }

    /// Divides the buffer for a hybrid hash join with blocks of 1.1 sqrt(B) pages, or of one page.
    pub fn hybrid(&self, is_blocked: bool, partitions_max: usize) -> PartitionBuffers {
        let block = if is_blocked { (1.1 * (self.buffer as f64).sqrt()).ceil() as usize } else { 1 };
        let block = block.clamp(1, (self.buffer / 4).max(1));
        let (table, left) = (self.build * FUDGE, self.buffer.saturating_sub(block));
        if table <= left as f64 {
            return PartitionBuffers { partitions: 0, input: block, output: block, workspace: left };
        }
        let k = (table - left as f64) / left.saturating_sub(block).max(1) as f64;
        let most = partitions_max.min(left.saturating_sub(1) / block);
        let partitions = (k.ceil() as usize).clamp(1, most.max(1));
        let workspace = left.saturating_sub(partitions * block);
        PartitionBuffers { partitions, input: block, output: block, workspace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes in the thesis: pages of 8 KiB that are 80 % full, and a buffer of 100 MB.
    const THESIS: JoinPages = JoinPages { build: 93_440.0, probe: 640_000.0, buffer: 12_800 };

    #[test]
    fn hybrid_is_the_table() {
        let hybrid = THESIS.hybrid(true, usize::MAX);
        let expected = PartitionBuffers { partitions: 8, input: 125, output: 125, workspace: 11_675 };
        assert_eq!(hybrid, expected);
        let all = JoinPages { build: 10_000.0, ..THESIS }.hybrid(true, usize::MAX);
        assert_eq!((all.partitions, all.workspace), (0, 12_675));
    }

    #[test]
    fn grace_partitions_fit_in_the_second_phase() {
        let grace = THESIS.grace(usize::MAX);
        assert_eq!((grace.partitions, grace.output, grace.input), (10, 1_163, 1_170));
        assert!(THESIS.build * FUDGE / grace.partitions as f64 <= THESIS.buffer as f64);
    }

    /// Checks that the published minima are minima: neighbouring sizes have no lower cost.
    #[test]
    fn blocks_minimise_their_costs() {
        let times = DriveTimes::DISK;
        let z = (times.latency_us + times.seek_us) * FUDGE * (THESIS.build + THESIS.probe)
            / (times.latency_us * THESIS.buffer as f64);
        let sort_cost = |i: f64| 2.0 / i + z / (2.0 * (THESIS.buffer as f64 - 2.0 * i));
        let input = THESIS.sort_merge(times).input as f64;
        assert!(sort_cost(input) <= sort_cost(input * 1.1) && sort_cost(input) <= sort_cost(input * 0.9));
        let (y, s) = (times.latency_us / times.page_us(8 << 10), THESIS.probe);
        let loops_cost = |i: f64| (s + s / i * y + y) / (THESIS.buffer as f64 - i);
        let inner = THESIS.nested_loops(times, 8 << 10).inner as f64;
        assert!(loops_cost(inner) <= loops_cost(inner * 1.1) && loops_cost(inner) <= loops_cost(inner * 0.9));
    }

    #[test]
    fn parts_fit_in_every_buffer() {
        for buffer in 4..400 {
            for build in [1.0, 50.0, 1e4, 1e7] {
                let pages = JoinPages { build, probe: 3.0 * build, buffer };
                for times in [DriveTimes::DISK, DriveTimes::FLASH] {
                    let loops = pages.nested_loops(times, 4096);
                    assert!(loops.inner >= 1 && loops.outer >= 1 && loops.inner + loops.outer <= buffer);
                    let sort = pages.sort_merge(times);
                    assert!(sort.input >= 1 && 2 * sort.input + sort.workspace <= buffer);
                }
                for hash in [pages.grace(64), pages.hybrid(true, 64), pages.hybrid(false, 64)] {
                    let sum = hash.input + hash.partitions * hash.output + hash.workspace;
                    assert!(sum <= buffer, "{pages:?} {hash:?}");
                }
            }
        }
    }
}
