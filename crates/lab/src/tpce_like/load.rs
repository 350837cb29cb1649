//! Loads the initial rows. The same scale always gives the same rows.

use std::collections::{BTreeMap, BTreeSet};

use super::{QUEUES, REQUESTS, Scale, schema};
use varve_bench::Result;
use varve_bench::database::Connection;
use varve_bench::random::Random;
use varve_bench::workload::load_rows;

/// Numbers of rows: days with prices for each security, quarters with figures and pieces of news for each
/// company, and watched securities for each customer.
pub(super) const DAYS: i64 = 100;
const QUARTERS: i64 = 20;
const NEWS: i64 = 2;
const WATCHED: i64 = 100;

/// Makes the tables and fills them.
pub(super) fn run(scale: &Scale, connection: &mut dyn Connection) -> Result<()> {
    connection.simple(schema::DROP)?;
    connection.simple(schema::TABLES)?;
    let mut loader = Loader { scale, c: connection, random: Random::seeded(scale.customers as u64) };
    loader.people()?;
    loader.market()?;
    loader.watched()?;
    let sums = loader.trades()?;
    loader.sums(&sums)?;
    loader.c.simple(schema::INDEXES)
}

/// The sums of the loaded trades: pieces by account and security, and trades by broker.
#[derive(Default)]
struct Sums {
    held: BTreeMap<(i64, i64), i64>,
    of_broker: BTreeMap<i64, i64>,
}

struct Loader<'a> {
    scale: &'a Scale,
    c: &'a mut dyn Connection,
    random: Random,
}

impl Loader<'_> {
    /// Fills a table with `count` rows. `row` writes each row from its number, which is counted from 1.
    fn fill(
        &mut self,
        table: &str,
        count: i64,
        mut row: impl FnMut(i64, &mut Random) -> String,
    ) -> Result<()> {
        let random = &mut self.random;
        let table = format!("bench_e_{table}");
        load_rows(self.c, &table, count as u64, |number, sql| sql.push_str(&row(number as i64 + 1, random)))
    }

    fn people(&mut self) -> Result<()> {
        self.fill("customer", self.scale.customers, |customer, random| {
            format!("({customer}, '{}', '{}')", random.letters(20), random.letters(160))
        })?;
        let brokers = self.scale.brokers();
        self.fill("account", self.scale.accounts(), |account, random| {
            let customer = (account - 1) / Scale::ACCOUNTS_OF_CUSTOMER + 1;
            let broker = broker_of(account, brokers);
            format!("({account}, {customer}, {broker}, '{}', 100000)", random.letters(30))
        })
    }

    fn market(&mut self) -> Result<()> {
        let (companies, securities) = (self.scale.companies(), self.scale.securities());
        self.fill("company", companies, |company, random| {
            format!("({company}, '{}', '{}')", random.letters(30), random.letters(120))
        })?;
        self.fill("security", securities, |security, random| {
            format!("({security}, {}, '{}')", (security - 1) % companies + 1, random.letters(40))
        })?;
        self.fill("last_trade", securities, |security, random| {
            format!("({security}, {}, 0)", random.between(20, 30))
        })?;
        self.fill("daily", securities * DAYS, |number, random| {
            let (security, day) = ((number - 1) / DAYS + 1, (number - 1) % DAYS + 1);
            format!("({security}, {day}, {}, {})", random.between(20, 30), random.between(1_000, 10_000))
        })?;
        self.fill("financial", companies * QUARTERS, |number, random| {
            let (company, quarter) = ((number - 1) / QUARTERS + 1, (number - 1) % QUARTERS + 1);
            format!("({company}, {quarter}, {})", random.between(100_000, 1_000_000_000))
        })?;
        self.fill("news", companies * NEWS, |number, random| {
            let (company, piece) = ((number - 1) / NEWS + 1, (number - 1) % NEWS + 1);
            format!("({company}, {piece}, '{}')", random.letters(900))
        })
    }

    /// Loads up to [`WATCHED`] different securities for each customer.
    fn watched(&mut self) -> Result<()> {
        let securities = self.scale.securities();
        let mut rows = Vec::new();
        for customer in 1..=self.scale.customers {
            let some: BTreeSet<i64> = (0..WATCHED).map(|_| self.random.between(1, securities)).collect();
            rows.extend(some.into_iter().map(|security| (customer, security)));
        }
        let mut rows = rows.iter();
        self.fill("watch", rows.len() as i64, |_, _| {
            let (customer, security) = rows.next().copied().unwrap_or_default();
            format!("({customer}, {security})")
        })
    }

    fn trades(&mut self) -> Result<Sums> {
        let scale = self.scale;
        let (trades, completed) = (scale.trades(), scale.trades() - REQUESTS);
        let (mut sums, mut prices) = (Sums::default(), Vec::new());
        self.fill("trade", trades, |trade, random| {
            let account = random.between(1, scale.accounts());
            let security = random.between(1, scale.securities());
            let (qty, price) = (signed(random), random.between(20, 30));
            if trade <= completed {
                *sums.held.entry((account, security)).or_default() += qty;
                *sums.of_broker.entry(broker_of(account, scale.brokers())).or_default() += 1;
                prices.push(-qty * price);
            }
            let status = if trade <= completed { "CMPT" } else { "SBMT" };
            format!("({trade}, {account}, {security}, '{status}', {qty}, {price}, '{}')", random.letters(30))
        })?;
        self.fill("settlement", completed, |trade, _| format!("({trade}, {})", prices[trade as usize - 1]))?;
        self.fill("history", completed + trades, |number, _| match number - completed {
            submitted @ 1.. => format!("({submitted}, 'SBMT')"),
            _ => format!("({number}, 'CMPT')"),
        })?;
        self.fill("request", REQUESTS, |number, _| format!("({}, {})", number % QUEUES, completed + number))?;
        Ok(sums)
    }

    fn sums(&mut self, sums: &Sums) -> Result<()> {
        self.fill("broker", self.scale.brokers(), |broker, random| {
            let trades = sums.of_broker.get(&broker).copied().unwrap_or(0);
            format!("({broker}, '{}', {trades}, 0)", random.letters(20))
        })?;
        let mut held = sums.held.iter();
        self.fill("holding", sums.held.len() as i64, |_, _| match held.next() {
            Some(((account, security), qty)) => format!("({account}, {security}, {qty})"),
            None => String::new(),
        })
    }
}

fn broker_of(account: i64, brokers: i64) -> i64 {
    account % brokers + 1
}

/// Returns a random number of pieces, from 100 to 800. It is negative for a sale.
pub(super) fn signed(random: &mut Random) -> i64 {
    let pieces = 100 * random.between(1, 8);
    if random.below(2) == 0 { -pieces } else { pieces }
}
