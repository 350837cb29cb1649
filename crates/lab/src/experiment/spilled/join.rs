//! The join of Do 2012, section 2.4.2: customer and orders of TPC-H at scale factor 30, on the customer key.
//!
//! Inputs and buffers are divided by a scale. A block of table 2.1 then has fewer pages, so its access would
//! weigh more. So access times, and the blocks that flash merges, are divided by the same scale. The blocks
//! of a hybrid join shrink by the root of the scale only, so their accesses weigh less than published. A
//! request of one page stays as long as it was, so nothing is divided for page-sized I/O.
//!
//! The model has one known error: a disk is charged its average seek for each request at another place. A
//! real disk seeks less far between the files of a join.

use std::sync::Arc;

use varve_bench::{BenchError, Result};
use varve_device::thread_cpu_ns;
use varve_spill::{
    BlockIo, DriveTimes, InputSize, Join, JoinInput, JoinKind, JoinMethod, JoinOutput, JoinSettings,
    JoinShape, Joined, MemoryBudget, PartitionFiles, ProcessorTimes, Side, Spool,
};

use super::bed::{DO_DRIVES, DriveKind, HeapShape, SpillBed, mixed, refused, scattered, with_access_divided};

/// Rows of customer and orders, and bytes of a row without its key (section 2.4.2).
const CUSTOMERS: u64 = 4_500_000;
const ORDERS: u64 = 45_000_000;
const CUSTOMER_BYTES: usize = 130;
const ORDER_BYTES: usize = 90;
/// How full pages of the inputs are, in percent (section 2.4.1).
const FILL_PERCENT: usize = 80;
/// A modelled time is multiplied by this, and the thread sleeps so long. Times are summed up, so no sleep has
/// to be exact.
const DILATION: f64 = 0.005;

/// The inputs of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinInputs {
    /// The drive of inputs and temporary space.
    pub drive: DriveKind,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The number of pages of a request.
    pub io: BlockIo,
    /// The scale: inputs, buffers and access times are divided by this.
    pub scale: u64,
    /// The number of the round. Each round has other keys.
    pub seed: u64,
}

/// Times of a join, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct JoinTimes {
    /// I/O of the first phase.
    pub first_io: f64,
    /// I/O of the second phase.
    pub second_io: f64,
    /// Merges of super-blocks, a part of the I/O.
    pub merges: f64,
    /// The processor.
    pub processor: f64,
}

impl JoinTimes {
    /// Returns the time of all I/O.
    pub fn io(&self) -> f64 {
        self.first_io + self.second_io
    }

    /// Returns the sum of the times of I/O and processor.
    pub fn total(&self) -> f64 {
        self.io() + self.processor
    }
}

/// The two loaded inputs.
pub struct JoinBed {
    of: JoinInputs,
    bed: SpillBed,
    customer: Spool,
    orders: Spool,
}

/// Counts results, and notes when the second phase begins.
struct ResultCounter<'a> {
    bed: &'a SpillBed,
    rows: u64,
    first_io: Option<f64>,
}

impl JoinOutput for ResultCounter<'_> {
    fn joined(&mut self, _row: Joined<'_>) -> varve_spill::Result<()> {
        self.rows += 1;
        Ok(())
    }

    fn second_phase(&mut self) {
        self.first_io = Some(self.bed.io_s());
    }
}

impl JoinInputs {
    /// Returns the number by which access times are divided.
    fn divisor(&self) -> f64 {
        if self.io == BlockIo::Blocked { self.scale as f64 } else { 1.0 }
    }

    /// Describes the drive in words, for a row.
    pub fn device(&self) -> Result<String> {
        let name = DO_DRIVES.profile(self.drive)?.name;
        let divisor = self.divisor();
        Ok(if divisor > 1.0 { format!("{name}, access times / {divisor}") } else { name })
    }

    fn divided(&self, times: DriveTimes) -> DriveTimes {
        let (seek_us, latency_us) = (times.seek_us / self.divisor(), times.latency_us / self.divisor());
        DriveTimes { seek_us, latency_us, ..times }
    }

    /// Returns the times of the drive itself, as the cost model needs them.
    fn own_times(&self) -> DriveTimes {
        self.divided(if self.drive == DriveKind::Disk { DriveTimes::DISK } else { DriveTimes::FLASH })
    }
}

fn input_size(spool: &Spool) -> InputSize {
    InputSize { rows: spool.rows(), bytes: spool.bytes() }
}

impl JoinBed {
    /// Loads the inputs, with their rows in random order.
    pub fn load(of: JoinInputs) -> Result<Self> {
        let profile = with_access_divided(DO_DRIVES.profile(of.drive)?, of.divisor());
        let bed = SpillBed::new(profile, DILATION)?;
        let (customers, orders) = (CUSTOMERS / of.scale, ORDERS / of.scale);
        let salt = of.seed << 40;
        let first = mixed(salt) % (1 << 30);
        let key = |number: u64| scattered(first + number);
        let of_customers = HeapShape {
            page_bytes: of.page_bytes,
            fill_percent: FILL_PERCENT,
            rows: customers,
            payload_bytes: CUSTOMER_BYTES,
        };
        let of_orders = HeapShape { rows: orders, payload_bytes: ORDER_BYTES, ..of_customers };
        let customer = bed.heap_file(of_customers, key)?;
        let of_order = |number: u64| key(mixed(salt + number + 1) % customers);
        let orders = bed.heap_file(of_orders, of_order)?;
        Ok(Self { of, bed, customer, orders })
    }

    /// Returns a join with a buffer of this many megabytes, divided by the scale. The memory of the buffer is
    /// divided as is best for the disk, also on flash (section 2.3.5). Each partition has a file, as in the
    /// thesis.
    fn join(&self, method: JoinMethod, megabytes: u64) -> Join {
        Join {
            space: Arc::clone(self.bed.space()),
            memory: MemoryBudget::new(((megabytes << 20) / self.of.scale) as usize),
            settings: JoinSettings {
                page_bytes: self.of.page_bytes,
                io: self.of.io,
                partition_files: PartitionFiles::OneEach,
                times: self.of.divided(DriveTimes::DISK),
            },
            method,
            kind: JoinKind::Inner,
            build: Side::Left,
        }
    }

    /// Runs a join, and checks how many rows it returns.
    pub fn run(&mut self, method: JoinMethod, megabytes: u64) -> Result<JoinTimes> {
        let join = self.join(method, megabytes);
        let (build_size, probe_size) = (input_size(&self.customer), input_size(&self.orders));
        let mut counter = ResultCounter { bed: &self.bed, rows: 0, first_io: None };
        let merges_before = self.bed.merge_s();
        self.bed.begin();
        let processor_ns = thread_cpu_ns();
        let build = JoinInput { source: &mut self.customer, size: build_size };
        let probe = JoinInput { source: &mut self.orders, size: probe_size };
        join.run(build, probe, &mut counter).map_err(refused)?;
        let processor = (thread_cpu_ns() - processor_ns) as f64 / 1e9;
        let (io, rows) = (self.bed.io_s(), counter.rows);
        let first_io = counter.first_io.unwrap_or(io);
        self.bed.end();
        if rows != probe_size.rows {
            let orders = probe_size.rows;
            return Err(BenchError::Wrong(format!(
                "{rows} results of {orders} orders, each of one customer"
            )));
        }
        let merges = self.bed.merge_s() - merges_before;
        Ok(JoinTimes { first_io, second_io: io - first_io, merges, processor })
    }

    /// Returns the join that the cost model chooses.
    pub fn chosen(&self, megabytes: u64) -> JoinMethod {
        let shape = JoinShape {
            build: input_size(&self.customer),
            probe: input_size(&self.orders),
            input_fill: FILL_PERCENT as f64 / 100.0,
            is_one_drive: true,
        };
        let join = self.join(JoinMethod::Hybrid, megabytes);
        join.choose(shape, self.of.own_times(), ProcessorTimes::TODAY, true)
    }
}

/// Returns the name of a join in results.
pub fn name(method: JoinMethod) -> &'static str {
    match method {
        JoinMethod::NestedLoops => "block nested loops",
        JoinMethod::SortMerge => "sort-merge",
        JoinMethod::Grace => "Grace hash",
        JoinMethod::Hybrid => "hybrid hash",
    }
}
