//! TPC-C (revision 5.11) without terminals. The five transactions run one after the other in their shares,
//! without keying and think times.
//!
//! Numbers in brackets are clauses of the specification of TPC-C. Besides the terminals, three points differ
//! from the specification. The warehouse is drawn for each transaction. Deliveries are not queued. If another
//! delivery has just taken the oldest order of a district, the district counts as one without orders. So
//! compare the figures only with figures of this crate.

mod conditions;
pub mod draw;
mod load;
mod schema;
mod statements;
mod transactions;

use crate::database::{Connection, Statement};
use crate::random::Random;
use crate::workload::{Condition, TransactionKind, Workload};
use crate::{BenchError, Result};

use transactions::Terminal;

/// The numbers of rows. All scales have the specification's ratios between tables [4.3.3]. Only
/// [`Scale::full`] has its counts, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Scale {
    /// The number of warehouses.
    pub warehouses: i64,
    /// The number of districts of a warehouse.
    pub districts: i64,
    /// Customers of a district, which is also the number of its orders after the load.
    pub customers: i64,
    /// Items, which is also the number of stock rows of a warehouse.
    pub items: i64,
}

impl Scale {
    /// Returns the specification's numbers of rows.
    pub fn full(warehouses: u64) -> Self {
        Self { warehouses: warehouses as i64, districts: 10, customers: 3_000, items: 100_000 }
    }

    /// Returns a fraction of the specification's numbers of rows, for tests.
    pub fn small(warehouses: u64) -> Self {
        Self { warehouses: warehouses as i64, districts: 10, customers: 30, items: 200 }
    }

    /// Orders of a district that are already delivered after the load: seven in ten.
    pub fn delivered(&self) -> i64 {
        self.customers * 7 / 10
    }
}

const KINDS: &[TransactionKind] = &[
    TransactionKind { name: "new_order", rate: Some("tpmC") },
    TransactionKind { name: "payment", rate: None },
    TransactionKind { name: "order_status", rate: None },
    TransactionKind { name: "delivery", rate: None },
    TransactionKind { name: "stock_level", rate: None },
];

/// The percentage of each kind of transaction. The specification has a least percentage for each kind except
/// New-Order [5.2.3]. These kinds have exactly this percentage here, and New-Order has the rest.
const SHARES: [u64; 5] = [45, 43, 4, 4, 4];

/// TPC-C at one scale and one isolation level.
#[derive(Debug, Clone)]
pub struct Tpcc {
    scale: Scale,
    isolation: String,
    foreign_keys: bool,
}

impl Tpcc {
    /// Returns the workload at READ COMMITTED. Its transactions lock the rows that they depend on.
    pub fn new(scale: Scale) -> Self {
        Self { scale, isolation: "read committed".to_owned(), foreign_keys: false }
    }

    /// Sets another isolation level, such as `serializable`.
    pub fn isolation(mut self, level: &str) -> Self {
        level.clone_into(&mut self.isolation);
        self
    }

    /// Sets whether the load declares the foreign keys of the specification [1.3].
    pub fn foreign_keys(mut self, declared: bool) -> Self {
        self.foreign_keys = declared;
        self
    }
}

impl Workload for Tpcc {
    fn name(&self) -> String {
        "tpcc".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"scale": self.scale, "isolation": self.isolation, "foreign_keys": self.foreign_keys})
    }

    fn statements(&self) -> Vec<Statement> {
        statements::all(&self.isolation)
    }

    fn load(&self, connection: &mut dyn Connection) -> Result<()> {
        load::run(&self.scale, connection)?;
        if self.foreign_keys { schema::add_foreign_keys(connection) } else { Ok(()) }
    }

    fn kinds(&self) -> &'static [TransactionKind] {
        KINDS
    }

    fn next_kind(&self, random: &mut Random) -> usize {
        random.weighted(&SHARES)
    }

    fn transaction(&self, kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let mut terminal = Terminal::new(&self.scale, connection, random);
        match kind {
            0 => terminal.new_order().map(drop),
            1 => terminal.payment(),
            2 => terminal.order_status(),
            3 => terminal.delivery(),
            _ => terminal.stock_level().map(drop),
        }
    }

    /// A duplicate key is not retryable: no two sessions insert the same key, so a duplicate would be a
    /// fault.
    fn is_retryable(&self, error: &BenchError) -> bool {
        matches!(error, BenchError::Statement { sqlstate, .. } if matches!(sqlstate.as_str(), "40001" | "40P01"))
    }

    fn conditions(&self) -> Vec<Condition> {
        conditions::all(&self.scale)
    }
}
