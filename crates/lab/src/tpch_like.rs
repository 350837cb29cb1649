//! A workload like decision support, modelled on TPC-H, on three tables. It is not TPC-H (`make tpch` runs
//! TPC-H itself). Some queries scan a part of a large table. Other queries read single rows at many places in
//! a table.
//!
//! A cache below the buffer pool sees the same kind of reads as under TPC-H (Do 2012, section 3.4.4). Scans
//! read most of the pages, in order. Other queries read single rows by key, at random. A transaction is one
//! query. A scan reads only a sixteenth of its table, so that a short run has many scans. No query changes
//! data.
//!
//! There are no joins and no groups, because `varve-lab` is built without the query engine.

use std::fmt::Write;

use varve_bench::database::{Connection, Param, Statement};
use varve_bench::random::Random;
use varve_bench::workload::{TransactionKind, Workload, load_rows};
use varve_bench::{BenchError, Result};

const KINDS: &[TransactionKind] = &[
    TransactionKind { name: "scan_lines", rate: None },
    TransactionKind { name: "scan_orders", rate: None },
    TransactionKind { name: "look_up", rate: None },
];
/// The percentage of each kind of query.
const SHARES: [u64; 3] = [40, 20, 40];
/// A scan reads one part of its table. The table has this many parts.
const PARTS: i64 = 16;
/// The number of orders that a look-up reads. With each order it reads the lines of the order, and one row of
/// parts.
const LOOK_UPS: u64 = 100;
/// The number of lines of an order, and of orders for each row of parts. TPC-H has 4 and 7.5.
const LINES: u64 = 4;
const ORDERS_OF_PART: u64 = 8;
/// The fewest orders.
const ORDERS_MIN: u64 = 160;

/// The workload, with its number of orders.
#[derive(Debug)]
pub struct TpchLike {
    orders: u64,
}

impl TpchLike {
    /// Returns the workload with this many orders.
    pub fn new(orders: u64) -> Result<Self> {
        match orders >= ORDERS_MIN {
            true => Ok(Self { orders }),
            false => Err(BenchError::Arguments(format!(
                "tpch-like needs {ORDERS_MIN} orders (--rows) at least, not {orders}"
            ))),
        }
    }

    fn parts(&self) -> u64 {
        self.orders / ORDERS_OF_PART
    }

    /// Draws a range of keys that has one part of the orders.
    fn range(&self, random: &mut Random) -> [Param<'static>; 2] {
        let length = self.orders as i64 / PARTS;
        let first = random.between(0, self.orders as i64 - length);
        [first, first + length - 1].map(Param::Int)
    }

    fn look_up(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        for _ in 0..LOOK_UPS {
            let order = Param::Int(random.below(self.orders) as i64);
            c.run(2, &[order])?;
            c.run(3, &[order])?;
            c.run(4, &[Param::Int(random.below(self.parts()) as i64)])?;
        }
        Ok(())
    }
}

impl Workload for TpchLike {
    fn name(&self) -> String {
        "tpch-like".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"orders": self.orders, "look_ups": LOOK_UPS, "shares": SHARES})
    }

    fn deviations(&self) -> Vec<String> {
        vec![
            "this is not TPC-H: three kinds of queries over three tables, without joins or groups".to_owned(),
            format!("a scan reads a {PARTS}th of its table"),
        ]
    }

    fn statements(&self) -> Vec<Statement> {
        [
            "SELECT sum(l_price) FROM bench_h_line WHERE l_order BETWEEN $1 AND $2 AND l_quantity < 24",
            "SELECT sum(o_total) FROM bench_h_order WHERE o_order BETWEEN $1 AND $2 AND o_priority = 1",
            "SELECT o_date, o_priority FROM bench_h_order WHERE o_order = $1",
            "SELECT l_quantity, l_price FROM bench_h_line WHERE l_order = $1",
            "SELECT p_type, p_size FROM bench_h_part WHERE p_part = $1",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        for table in ["bench_h_part", "bench_h_order", "bench_h_line"] {
            c.simple(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        c.simple("CREATE TABLE bench_h_part (p_part bigint PRIMARY KEY, p_size int, p_type varchar(25), p_name varchar(110))")?;
        c.simple(
            "CREATE TABLE bench_h_order (o_order bigint PRIMARY KEY, o_date int, o_priority int, o_total bigint, o_comment varchar(80))",
        )?;
        c.simple(
            "CREATE TABLE bench_h_line (l_order bigint, l_number int, l_part bigint, l_quantity int, l_price bigint, l_date int, \
             l_comment varchar(60), PRIMARY KEY (l_order, l_number))",
        )?;
        let mut random = Random::seeded(self.orders);
        load_rows(c, "bench_h_part", self.parts(), |part, sql| {
            let (size, kind, name) = (random.between(1, 50), random.letters(20), random.letters(100));
            let _ = write!(sql, "({part},{size},'{kind}','{name}')");
        })?;
        load_rows(c, "bench_h_order", self.orders, |order, sql| {
            let (date, priority) = (random.between(0, 2556), random.between(1, 5));
            let (total, comment) = (random.between(1_000, 500_000), random.letters(70));
            let _ = write!(sql, "({order},{date},{priority},{total},'{comment}')");
        })?;
        load_rows(c, "bench_h_line", self.orders * LINES, |line, sql| {
            let (order, number) = (line / LINES, line % LINES + 1);
            let (part, quantity) = (random.below(self.parts()), random.between(1, 50));
            let (price, date) = (random.between(100, 100_000), random.between(0, 2556));
            let comment = random.letters(50);
            let _ = write!(sql, "({order},{number},{part},{quantity},{price},{date},'{comment}')");
        })
    }

    fn kinds(&self) -> &'static [TransactionKind] {
        KINDS
    }

    fn next_kind(&self, random: &mut Random) -> usize {
        random.weighted(&SHARES)
    }

    fn transaction(&self, kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        match kind {
            scan @ 0..=1 => c.run(scan, &self.range(random)).map(drop),
            _ => self.look_up(c, random),
        }
    }

    /// Each transaction is a single statement, so no transaction is open after an error.
    fn rollback(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }
}
