//! The ten transactions. Each one draws its inputs from the random number generator that the caller passes.
//!
//! To avoid deadlocks, every transaction locks rows in the same order: request, trades by number, account,
//! holding, broker. The last trade of a security is locked only by a transaction that locks nothing else.

use std::collections::BTreeSet;

use super::statements::{
    ACCOUNT, ACCOUNTS, BEGIN, BROKER, CHANGE_EXECUTOR, CHANGE_HOLDING, COMMIT, COMPANY, COMPLETE,
    CREDIT_BROKER, CUSTOMER, DAY, DAYS, DELETE_REQUEST, FEED, FINANCIALS, HISTORY, HOLDING, HOLDINGS,
    INSERT_HISTORY, INSERT_HOLDING, INSERT_REQUEST, INSERT_SETTLEMENT, INSERT_TRADE, LAST_TRADE,
    NEWEST_TRADE, NEWS, OLDEST_REQUEST, PAY, REQUESTS, ROLLBACK, SECURITY, SETTLEMENT, TRADE,
    TRADES_OF_ACCOUNT, TRADES_OF_SECURITY, WATCHED,
};
use super::{QUEUES, Scale, TpceLike, load, skewed};
use varve_bench::database::{Connection, Param, Row, Value};
use varve_bench::random::Random;
use varve_bench::{BenchError, Result};

/// The number of trades that a look-up or a correction reads, and the number of securities in a market feed.
const TRADES: usize = 20;
const TICKER: usize = 20;
/// The smallest step of a price, in ten-thousandths.
const CENT: i64 = 100;

/// Returns the number of the newest trade. It is 0 if there is no trade.
pub(super) fn newest_trade(c: &mut dyn Connection) -> Result<i64> {
    c.rows(NEWEST_TRADE, &[])?.first().map_or(Ok(0), |row| int(row, 0))
}

/// A session that runs one transaction.
pub(super) struct TransactionRun<'a> {
    pub(super) workload: &'a TpceLike,
    pub(super) c: &'a mut dyn Connection,
    pub(super) random: &'a mut Random,
}

impl TransactionRun<'_> {
    /// Runs one transaction. `kind` is the index of its type.
    pub(super) fn run(&mut self, kind: usize) -> Result<()> {
        if kind == 0 {
            return self.trade_order();
        }
        self.c.run(BEGIN, &[])?;
        match kind {
            1 => self.trade_result(),
            2 => self.trade_lookup(),
            3 => self.trade_update(),
            4 => self.trade_status(),
            5 => self.customer_position(),
            6 => self.broker_volume(),
            7 => self.security_detail(),
            8 => self.market_feed(),
            _ => self.market_watch(),
        }?;
        self.c.run(COMMIT, &[]).map(drop)
    }

    fn scale(&self) -> &Scale {
        &self.workload.scale
    }

    fn customer(&mut self) -> i64 {
        skewed(self.random, self.workload.scale.customers) + 1
    }

    fn account(&mut self) -> i64 {
        let number = self.random.between(1, Scale::ACCOUNTS_OF_CUSTOMER);
        (self.customer() - 1) * Scale::ACCOUNTS_OF_CUSTOMER + number
    }

    fn security(&mut self) -> i64 {
        skewed(self.random, self.workload.scale.securities()) + 1
    }

    /// Draws different loaded trades. They are in the order of their numbers.
    fn trades(&mut self) -> BTreeSet<i64> {
        let count = self.scale().trades();
        (0..TRADES).map(|_| skewed(self.random, count) + 1).collect()
    }

    /// Runs a statement that must return exactly one row, and returns this row.
    fn one(&mut self, statement: usize, params: &[Param<'_>]) -> Result<Row> {
        self.c.rows(statement, params)?.pop().ok_or_else(|| {
            BenchError::Wrong(format!("statement {statement} of tpce-like found no row for {params:?}"))
        })
    }

    /// Submits an order at the last price. One order in a hundred is rolled back.
    fn trade_order(&mut self) -> Result<()> {
        let (account, security) = (self.account(), Param::Int(self.security()));
        let (qty, queue) = (load::signed(self.random), self.random.between(0, QUEUES - 1));
        let (taken_back, executor) = (self.random.below(100) == 0, self.random.letters(30));
        self.c.run(BEGIN, &[])?;
        let found = self.one(ACCOUNT, &[Param::Int(account)])?;
        self.one(CUSTOMER, &[Param::Int(int(&found, 0)?)])?;
        self.one(BROKER, &[Param::Int(int(&found, 1)?)])?;
        let company = int(&self.one(SECURITY, &[security])?, 0)?;
        self.one(COMPANY, &[Param::Int(company)])?;
        let price = decimal(&self.one(LAST_TRADE, &[security])?, 0)?;
        self.c.rows(HOLDING, &[Param::Int(account), security])?;
        let trade = Param::Int(self.workload.next_trade(self.c)?);
        let (account, executor) = (Param::Int(account), Param::Text(&executor));
        let row = [trade, account, security, Param::Int(qty), Param::Decimal(price), executor];
        self.c.run(INSERT_TRADE, &row)?;
        self.c.run(INSERT_HISTORY, &[trade, Param::Text("SBMT")])?;
        self.c.run(INSERT_REQUEST, &[Param::Int(queue), trade])?;
        self.c.run(if taken_back { ROLLBACK } else { COMMIT }, &[]).map(drop)
    }

    /// Completes the oldest order of the first queue that has one. If all queues are empty, it does nothing.
    fn trade_result(&mut self) -> Result<()> {
        let first = self.random.between(0, QUEUES - 1);
        for at in 0..QUEUES {
            let queue = Param::Int((first + at) % QUEUES);
            if let Some(found) = self.c.rows(OLDEST_REQUEST, &[queue])?.pop() {
                let trade = Param::Int(int(&found, 0)?);
                self.c.run(DELETE_REQUEST, &[queue, trade])?;
                return self.complete(trade);
            }
        }
        Ok(())
    }

    fn complete(&mut self, trade: Param<'_>) -> Result<()> {
        let found = self.one(COMPLETE, &[trade])?;
        let (account, security) = (Param::Int(int(&found, 0)?), Param::Int(int(&found, 1)?));
        let qty = int(&found, 2)?;
        let amount = Param::Decimal(-qty * decimal(&found, 3)?);
        let broker = int(&self.one(PAY, &[amount, account])?, 0)?;
        let holding = [Param::Int(qty), account, security];
        // The account's row is locked, so no other session adds this holding at the same time.
        if self.c.rows(CHANGE_HOLDING, &holding)?.is_empty() {
            self.c.run(INSERT_HOLDING, &[account, security, Param::Int(qty)])?;
        }
        self.c.run(INSERT_SETTLEMENT, &[trade, amount])?;
        self.c.run(INSERT_HISTORY, &[trade, Param::Text("CMPT")])?;
        self.c.run(CREDIT_BROKER, &[Param::Int(broker)]).map(drop)
    }

    fn look_at(&mut self, trade: i64) -> Result<()> {
        let trade = Param::Int(trade);
        self.one(TRADE, &[trade])?;
        self.c.rows(SETTLEMENT, &[trade])?;
        self.c.rows(HISTORY, &[trade]).map(drop)
    }

    fn trade_lookup(&mut self) -> Result<()> {
        self.trades().into_iter().try_for_each(|trade| self.look_at(trade))
    }

    /// Runs a look-up that also changes the executor of the trades.
    fn trade_update(&mut self) -> Result<()> {
        let executor = self.random.letters(30);
        for trade in self.trades() {
            self.c.run(CHANGE_EXECUTOR, &[Param::Int(trade), Param::Text(&executor)])?;
            self.look_at(trade)?;
        }
        Ok(())
    }

    fn trade_status(&mut self) -> Result<()> {
        let account = Param::Int(self.account());
        let found = self.one(ACCOUNT, &[account])?;
        self.one(CUSTOMER, &[Param::Int(int(&found, 0)?)])?;
        self.one(BROKER, &[Param::Int(int(&found, 1)?)])?;
        for trade in self.c.rows(TRADES_OF_ACCOUNT, &[account])? {
            self.one(SECURITY, &[Param::Int(int(&trade, 1)?)])?;
        }
        Ok(())
    }

    /// Computes what all accounts of a customer are worth. For half of the customers, it also reads the
    /// history of the last ten trades of one account.
    fn customer_position(&mut self) -> Result<()> {
        let (customer, history) = (Param::Int(self.customer()), self.random.below(2) == 0);
        self.one(CUSTOMER, &[customer])?;
        let accounts = self.c.rows(ACCOUNTS, &[customer])?;
        for account in &accounts {
            for holding in self.c.rows(HOLDINGS, &[Param::Int(int(account, 0)?)])? {
                self.one(LAST_TRADE, &[Param::Int(int(&holding, 0)?)])?;
            }
        }
        let Some(account) = accounts.first().filter(|_| history) else { return Ok(()) };
        for trade in self.c.rows(TRADES_OF_ACCOUNT, &[Param::Int(int(account, 0)?)])?.iter().take(10) {
            self.c.rows(HISTORY, &[Param::Int(int(trade, 0)?)])?;
        }
        Ok(())
    }

    /// Reads the waiting orders of one queue, and their brokers.
    fn broker_volume(&mut self) -> Result<()> {
        let queue = Param::Int(self.random.between(0, QUEUES - 1));
        for request in self.c.rows(REQUESTS, &[queue])?.iter().take(40) {
            let trade = self.one(TRADE, &[Param::Int(int(request, 0)?)])?;
            let account = self.one(ACCOUNT, &[Param::Int(int(&trade, 0)?)])?;
            self.one(BROKER, &[Param::Int(int(&account, 1)?)])?;
        }
        Ok(())
    }

    fn security_detail(&mut self) -> Result<()> {
        let (security, days) = (Param::Int(self.security()), self.random.between(5, 20));
        let first = self.random.between(1, load::DAYS - days);
        let company = Param::Int(int(&self.one(SECURITY, &[security])?, 0)?);
        self.one(COMPANY, &[company])?;
        self.c.rows(FINANCIALS, &[company])?;
        self.c.rows(NEWS, &[company])?;
        self.c.rows(DAYS, &[security, Param::Int(first), Param::Int(first + days)])?;
        self.c.rows(TRADES_OF_SECURITY, &[security])?;
        self.one(LAST_TRADE, &[security]).map(drop)
    }

    fn market_feed(&mut self) -> Result<()> {
        let securities: BTreeSet<i64> = (0..TICKER).map(|_| self.security()).collect();
        for security in securities {
            let price = Param::Decimal(CENT * self.random.between(2_000, 3_000));
            self.c.run(FEED, &[Param::Int(security), price, Param::Int(100)])?;
        }
        Ok(())
    }

    fn market_watch(&mut self) -> Result<()> {
        let (customer, day) = (Param::Int(self.customer()), Param::Int(self.random.between(1, load::DAYS)));
        for watched in self.c.rows(WATCHED, &[customer])? {
            let security = Param::Int(int(&watched, 0)?);
            self.one(LAST_TRADE, &[security])?;
            self.one(DAY, &[security, day])?;
        }
        Ok(())
    }
}

fn wrong(row: &Row, at: usize, kind: &str) -> BenchError {
    BenchError::Wrong(format!("tpce-like expects {kind} in place {} of {row:?}", at + 1))
}

fn int(row: &Row, at: usize) -> Result<i64> {
    match row.get(at) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(wrong(row, at, "an integer")),
    }
}

fn decimal(row: &Row, at: usize) -> Result<i64> {
    match row.get(at) {
        Some(Value::Decimal(value)) => Ok(*value),
        _ => Err(wrong(row, at, "a numeric")),
    }
}
