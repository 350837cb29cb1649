//! Sizes of databases and durations of rounds. The ratios between sizes are those of the publications. The
//! sizes themselves fit on a small machine.

use varve_bench::tpcc;

/// Sizes of databases, and lengths and numbers of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// The name of the scale.
    pub name: &'static str,
    /// Bytes of the buffer pool.
    pub pool_bytes: usize,
    /// The number of rows of each of sysbench's ten tables.
    pub rows: u64,
    /// Numbers of rows of TPC-C.
    pub tpcc: tpcc::Scale,
    /// The number of nodes of LinkBench's graph.
    pub nodes: u64,
    /// Bytes of the rows that are updated to wear a drive.
    pub wear_bytes: u64,
    /// Bytes that are written before the measured interval, and in the interval. Both are given in percent of
    /// the drive's size.
    pub wear_percent: (u64, u64),
    /// Bytes of the pages of the table that is dropped, uncompressed.
    pub dropped_bytes: u64,
    /// The pages of a round of `filesystem-trim`, each with a hole behind it.
    pub punched_pages: u64,
    /// The appends of a round of `filesystem-log`.
    pub log_appends: u64,
    /// Bytes of a unit in the experiments on flash caches. For example, a pool has 20 units, a cache 140, and
    /// a database 100 to 415.
    pub flash_unit_bytes: u64,
    /// The number of YCSB's tuples in a partition of the memory-oriented engines.
    pub store_tuples: u64,
    /// The numbers of TPC-C's rows in a partition of the memory-oriented engines.
    pub store_tpcc: tpcc::Scale,
    /// Milliseconds of a round, in the time of the emulated drives. With a larger dilation, a round takes
    /// longer by wall time.
    pub round_ms: u64,
    /// Milliseconds of load before a round.
    pub warm_ms: u64,
    /// The number of rounds.
    pub rounds: usize,
}

impl Scale {
    /// A small database, and one short round.
    pub const QUICK: Scale = Scale {
        name: "quick",
        pool_bytes: 8 << 20,
        rows: 100_000,
        tpcc: twentieths(50),
        nodes: 100_000,
        wear_bytes: 256 << 20,
        wear_percent: (200, 100),
        dropped_bytes: 512 << 20,
        punched_pages: 300,
        log_appends: 200,
        flash_unit_bytes: 2 << 20,
        store_tuples: 25_000,
        store_tpcc: store_tpcc(1, 10_000),
        round_ms: 3_000,
        warm_ms: 1_500,
        rounds: 1,
    };
    /// A larger database, longer rounds, and three of them.
    pub const FULL: Scale = Scale {
        name: "full",
        pool_bytes: 64 << 20,
        rows: 800_000,
        tpcc: twentieths(400),
        nodes: 800_000,
        wear_bytes: 1 << 30,
        wear_percent: (300, 200),
        dropped_bytes: 4 << 30,
        punched_pages: 5_000,
        log_appends: 3_000,
        flash_unit_bytes: 8 << 20,
        store_tuples: 250_000,
        store_tpcc: store_tpcc(4, 100_000),
        round_ms: 10_000,
        warm_ms: 5_000,
        rounds: 3,
    };
    /// A tiny database for tests. Its figures mean nothing.
    pub const TINY: Scale = Scale {
        name: "tiny",
        pool_bytes: 4 << 20,
        rows: 100,
        tpcc: tpcc::Scale { warehouses: 1, districts: 2, customers: 30, items: 200 },
        nodes: 200,
        wear_bytes: 2 << 20,
        wear_percent: (20, 40),
        dropped_bytes: 4 << 20,
        punched_pages: 20,
        log_appends: 20,
        flash_unit_bytes: 48 << 10,
        store_tuples: 400,
        store_tpcc: tpcc::Scale { warehouses: 1, districts: 2, customers: 30, items: 200 },
        round_ms: 200,
        warm_ms: 0,
        rounds: 2,
    };

    /// Returns whether the scale is [`Scale::FULL`], perhaps with other times.
    pub fn is_full(&self) -> bool {
        self.name == Scale::FULL.name
    }
}

/// Returns a scale of TPC-C with a twentieth of the specification's customers and items. So a small database
/// has as many warehouses for each session as a large one, and sessions rarely wait for each other's rows.
const fn twentieths(warehouses: i64) -> tpcc::Scale {
    tpcc::Scale { warehouses, districts: 10, customers: 150, items: 5_000 }
}

/// Returns the scale of TPC-C in a partition, with these items and with the specification's ratio of
/// customers to items.
pub const fn store_tpcc(warehouses: i64, items: i64) -> tpcc::Scale {
    tpcc::Scale { warehouses, districts: 10, customers: items * 3 / 100, items }
}

/// A value for each of the two scales `quick` and `full`.
#[derive(Debug, Clone, Copy)]
pub struct ByScale<T> {
    /// The value for `--quick`.
    pub quick: T,
    /// The value for `--full`.
    pub full: T,
}

impl<T> ByScale<T> {
    /// Returns the value for `--full` if `is_full`, or the value for `--quick`.
    pub fn of(self, is_full: bool) -> T {
        if is_full { self.full } else { self.quick }
    }
}

/// The length of a part that an experiment does not have.
pub const NO_TIME: ByScale<u64> = ByScale { quick: 0, full: 0 };
