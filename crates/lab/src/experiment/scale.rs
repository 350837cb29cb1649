//! Sizes of databases and durations of rounds. The ratios between sizes are those of the publications. The
//! sizes themselves fit on a small machine.

use varve_bench::tpcc;

/// How large and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Its name.
    pub name: &'static str,
    /// Bytes of the buffer pool.
    pub pool_bytes: usize,
    /// Rows of each of sysbench's ten tables.
    pub rows: u64,
    /// Rows of TPC-C.
    pub tpcc: tpcc::Scale,
    /// Nodes of LinkBench's graph.
    pub nodes: u64,
    /// Bytes of the rows that are updated to wear a drive.
    pub wear_bytes: u64,
    /// Bytes written before the measured interval, and in it, in percent of the drive.
    pub wear_percent: (u64, u64),
    /// Bytes of the pages of a table that is dropped, as they are in memory.
    pub dropped_bytes: u64,
    /// Bytes of a unit of memory, flash and database, which are 20, 140 and 100 to 415 of them.
    pub flash_unit_bytes: u64,
    /// Tuples of a partition of YCSB on the memory-oriented engines.
    pub store_tuples: u64,
    /// Rows of a partition of TPC-C on the memory-oriented engines.
    pub store_tpcc: tpcc::Scale,
    /// Milliseconds of a round, in the time of the emulated device: a dilated round takes longer.
    pub round_ms: u64,
    /// Milliseconds before it.
    pub warm_ms: u64,
    /// Rounds.
    pub rounds: usize,
}

impl Scale {
    /// A small database, one round.
    pub const QUICK: Scale = Scale {
        name: "quick",
        pool_bytes: 8 << 20,
        rows: 100_000,
        tpcc: twentieths(50),
        nodes: 100_000,
        wear_bytes: 256 << 20,
        wear_percent: (200, 100),
        dropped_bytes: 512 << 20,
        flash_unit_bytes: 2 << 20,
        store_tuples: 25_000,
        store_tpcc: store_tpcc(1, 10_000),
        round_ms: 3_000,
        warm_ms: 1_500,
        rounds: 1,
    };
    /// Larger, longer, three rounds.
    pub const FULL: Scale = Scale {
        name: "full",
        pool_bytes: 64 << 20,
        rows: 800_000,
        tpcc: twentieths(400),
        nodes: 800_000,
        wear_bytes: 1 << 30,
        wear_percent: (300, 200),
        dropped_bytes: 4 << 30,
        flash_unit_bytes: 8 << 20,
        store_tuples: 250_000,
        store_tpcc: store_tpcc(4, 100_000),
        round_ms: 10_000,
        warm_ms: 5_000,
        rounds: 3,
    };
    /// For tests: its figures mean nothing.
    pub const TINY: Scale = Scale {
        name: "tiny",
        pool_bytes: 4 << 20,
        rows: 100,
        tpcc: tpcc::Scale { warehouses: 1, districts: 2, customers: 30, items: 200 },
        nodes: 200,
        wear_bytes: 2 << 20,
        wear_percent: (20, 40),
        dropped_bytes: 4 << 20,
        flash_unit_bytes: 48 << 10,
        store_tuples: 400,
        store_tpcc: tpcc::Scale { warehouses: 1, districts: 2, customers: 30, items: 200 },
        round_ms: 200,
        warm_ms: 0,
        rounds: 2,
    };

    /// Whether it is [`Scale::FULL`], perhaps with other times.
    pub fn is_full(&self) -> bool {
        self.name == Scale::FULL.name
    }
}

/// Warehouses of a twentieth of the specification's customers and items: so a small database has as many warehouses for each session as
/// a large one, and sessions wait for each other's rows as seldom.
const fn twentieths(warehouses: i64) -> tpcc::Scale {
    tpcc::Scale { warehouses, districts: 10, customers: 150, items: 5_000 }
}

/// Warehouses of a partition with these items, and with the specification's customers for each item.
pub const fn store_tpcc(warehouses: i64, items: i64) -> tpcc::Scale {
    tpcc::Scale { warehouses, districts: 10, customers: items * 3 / 100, items }
}

/// A value for each of the two scales.
#[derive(Debug, Clone, Copy)]
pub struct ByScale<T> {
    /// In quick.
    pub quick: T,
    /// In full.
    pub full: T,
}

impl<T> ByScale<T> {
    /// The value in full, or in quick.
    pub fn of(self, is_full: bool) -> T {
        if is_full { self.full } else { self.quick }
    }
}

/// A length for parts that an experiment does not have.
pub const NO_TIME: ByScale<u64> = ByScale { quick: 0, full: 0 };
