//! A workload like a stock broker's, mostly reads. It has the ten transaction types of TPC-E in TPC-E's
//! shares, on a smaller schema of 15 tables. It is not TPC-E.
//!
//! Customers are chosen with the skew that TPC-C and TPC-E use (the OR of two uniform random numbers).
//! [`Workload::deviations`] lists the differences from TPC-E. Only one process at a time can run this
//! workload, because the process gives numbers to new trades itself.
//!
//! The ratio of page reads to page writes depends on the size of the buffer pool. Experiments measure it.

mod conditions;
mod load;
mod schema;
mod statements;
mod transactions;

use std::sync::{Mutex, PoisonError};

use varve_bench::database::{Connection, Statement};
use varve_bench::random::Random;
use varve_bench::workload::{Condition, TransactionKind, Workload};
use varve_bench::{BenchError, Result};

use transactions::TransactionRun;

const KINDS: &[TransactionKind] = &[
    TransactionKind { name: "trade_order", rate: None },
    TransactionKind { name: "trade_result", rate: None },
    TransactionKind { name: "trade_lookup", rate: None },
    TransactionKind { name: "trade_update", rate: None },
    TransactionKind { name: "trade_status", rate: None },
    TransactionKind { name: "customer_position", rate: None },
    TransactionKind { name: "broker_volume", rate: None },
    TransactionKind { name: "security_detail", rate: None },
    TransactionKind { name: "market_feed", rate: None },
    TransactionKind { name: "market_watch", rate: None },
];

/// The share of each type of transaction, in tenths of a percent.
const SHARES: [u64; 10] = [101, 100, 80, 20, 190, 130, 49, 140, 10, 180];

/// The two numbers from which all numbers of rows are computed.
#[derive(Debug, Clone, Copy, serde::Serialize)]
struct Scale {
    customers: i64,
    trades_of_customer: i64,
}

impl Scale {
    const ACCOUNTS_OF_CUSTOMER: i64 = 5;

    fn accounts(&self) -> i64 {
        self.customers * Self::ACCOUNTS_OF_CUSTOMER
    }

    /// Returns the number of brokers: one for each hundred customers.
    fn brokers(&self) -> i64 {
        (self.customers / 100).max(1)
    }

    /// Returns the number of companies: half the number of customers.
    fn companies(&self) -> i64 {
        (self.customers / 2).max(1)
    }

    /// Returns the number of securities: 685 for each thousand customers.
    fn securities(&self) -> i64 {
        (self.customers * 685 / 1000).max(1)
    }

    /// Returns the number of trades that the load makes. All of them but the newest [`REQUESTS`] are
    /// completed.
    fn trades(&self) -> i64 {
        self.customers * self.trades_of_customer
    }
}

/// The number of queues of requests. With a single queue, all sessions would wait for one row.
const QUEUES: i64 = 16;
/// The number of requests that wait after the load.
const REQUESTS: i64 = QUEUES * 8;
/// The fewest customers. With fewer customers there would be no completed trades to read.
const CUSTOMERS_MIN: u64 = 10;
/// The number of loaded trades for each customer. TPC-E has 17,280.
const TRADES_OF_CUSTOMER: i64 = 100;

/// Returns a random number in `0..count`. Some numbers are more frequent than others.
fn skewed(random: &mut Random, count: i64) -> i64 {
    (random.between(0, 1_023) | random.between(0, count - 1)) % count
}

/// The workload at one scale.
#[derive(Debug)]
pub struct TpceLike {
    scale: Scale,
    /// The number of the next trade. The first transaction that needs a number reads it from the database.
    next_trade: Mutex<Option<i64>>,
}

impl TpceLike {
    /// Returns the workload with this many customers.
    pub fn new(customers: u64) -> Result<Self> {
        if !(CUSTOMERS_MIN..=10_000_000).contains(&customers) {
            return Err(BenchError::Arguments(format!(
                "tpce-like needs {CUSTOMERS_MIN} to 10000000 customers (--rows), not {customers}"
            )));
        }
        let scale = Scale { customers: customers as i64, trades_of_customer: TRADES_OF_CUSTOMER };
        Ok(Self { scale, next_trade: Mutex::new(None) })
    }

    fn next_trade(&self, connection: &mut dyn Connection) -> Result<i64> {
        let mut next = self.next_trade.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match *next {
            Some(number) => number,
            None => transactions::newest_trade(connection)? + 1,
        };
        *next = Some(number + 1);
        Ok(number)
    }
}

impl Workload for TpceLike {
    fn name(&self) -> String {
        "tpce-like".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"scale": self.scale})
    }

    fn deviations(&self) -> Vec<String> {
        vec![
            "this is not TPC-E, only its transaction types in its shares on 15 reduced tables: figures compare only with figures of it"
                .to_owned(),
            format!("{} loaded trades a customer, 17280 there", self.scale.trades_of_customer),
            "no limit orders, margin, taxes, commission rates, permissions, zip codes, exchanges or data maintenance".to_owned(),
            "one holding for an account and security, not one for each purchase; it may be negative".to_owned(),
            "results come from the sessions, not from an emulated market; customers have no tiers, and all have five accounts".to_owned(),
        ]
    }

    fn statements(&self) -> Vec<Statement> {
        statements::all()
    }

    fn load(&self, connection: &mut dyn Connection) -> Result<()> {
        *self.next_trade.lock().unwrap_or_else(PoisonError::into_inner) = None;
        load::run(&self.scale, connection)
    }

    fn kinds(&self) -> &'static [TransactionKind] {
        KINDS
    }

    fn next_kind(&self, random: &mut Random) -> usize {
        random.weighted(&SHARES)
    }

    fn transaction(&self, kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()> {
        TransactionRun { workload: self, c: connection, random }.run(kind)
    }

    /// A duplicate key is not retryable: the number of a new trade is never used twice, so a duplicate would
    /// be a fault.
    fn is_retryable(&self, error: &BenchError) -> bool {
        matches!(error, BenchError::Statement { sqlstate, .. } if matches!(sqlstate.as_str(), "40001" | "40P01"))
    }

    /// Checks that there are as many settlements as the brokers count, and that each trade is either settled
    /// or waiting.
    fn verify(&self, c: &mut dyn Connection) -> Result<()> {
        let mut number = |sql: &str| -> Result<i64> {
            let text = c.scalar(sql)?;
            text.parse().map_err(|_| BenchError::Wrong(format!("{sql} gave {text}, which is no number")))
        };
        let settled = number("SELECT count(*) FROM bench_e_settlement")?;
        let counted = number("SELECT sum(b_trades) FROM bench_e_broker")?;
        let trades = number("SELECT count(*) FROM bench_e_trade")?;
        let waiting = number("SELECT count(*) FROM bench_e_request")?;
        if settled == counted && trades == settled + waiting {
            return Ok(());
        }
        Err(BenchError::Wrong(format!(
            "{settled} settlements, brokers count {counted}; {trades} trades, of which {waiting} wait"
        )))
    }

    fn conditions(&self) -> Vec<Condition> {
        conditions::all()
    }
}
