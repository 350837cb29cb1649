//! The five transactions [2.4 to 2.8]. Each one draws its inputs from the random number generator that the
//! caller passes.
//!
//! The specification demands that values are shown on a terminal. They are read here and then discarded.

use super::load::{LINES_MAX, LINES_MIN};
use super::statements::{
    BEGIN, COMMIT, CUSTOMER, CUSTOMER_FOR_UPDATE, CUSTOMERS_BY_NAME, DELETE_NEW_ORDER, DELIVER_LINES,
    DELIVER_ORDER, DELIVER_TO_CUSTOMER, INSERT_HISTORY, INSERT_LINE, INSERT_NEW_ORDER, INSERT_ORDER, ITEM,
    LINES, LOW_STOCK, NEWEST_ORDER, NEXT_ORDER_NUMBER, OLDEST_NEW_ORDER, PAY_CUSTOMER,
    PAY_CUSTOMER_BAD_CREDIT, PAY_DISTRICT, PAY_WAREHOUSE, RATES, ROLLBACK, STOCK_FOR_DISTRICT, SUM_OF_LINES,
    TAKE_ORDER_NUMBER, UPDATE_STOCK,
};
use super::{Scale, draw};
use crate::database::{Connection, Param, Row, Value};
use crate::random::Random;
use crate::{BenchError, Result};

/// The number 1 in ten-thousandths.
const ONE: i64 = 10_000;
const CUSTOMER_DATA_CHARS: usize = 500;
/// The number of newest orders whose items Stock-Level checks.
const RECENT_ORDERS: i64 = 20;

/// A terminal at a district of a warehouse, which runs one transaction.
pub(super) struct Terminal<'a> {
    scale: &'a Scale,
    c: &'a mut dyn Connection,
    random: &'a mut Random,
    warehouse: i64,
    district: i64,
}

/// A customer's key.
#[derive(Debug, Clone, Copy)]
struct Customer {
    warehouse: i64,
    district: i64,
    number: i64,
}

impl Customer {
    fn key(&self) -> [Param<'static>; 3] {
        [Param::Int(self.warehouse), Param::Int(self.district), Param::Int(self.number)]
    }
}

/// One line of a New-Order's input.
#[derive(Debug)]
struct Line {
    item: i64,
    supplier: i64,
    quantity: i64,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(scale: &'a Scale, c: &'a mut dyn Connection, random: &'a mut Random) -> Self {
        let warehouse = random.between(1, scale.warehouses);
        let district = random.between(1, scale.districts);
        Self { scale, c, random, warehouse, district }
    }

    fn place(&self) -> [Param<'static>; 2] {
        [Param::Int(self.warehouse), Param::Int(self.district)]
    }

    /// Runs a statement that must return exactly one row, and returns this row.
    fn one(&mut self, statement: usize, params: &[Param<'_>]) -> Result<Row> {
        self.c.rows(statement, params)?.pop().ok_or_else(|| {
            BenchError::Wrong(format!("statement {statement} of TPC-C found no row for {params:?}"))
        })
    }

    /// Returns another warehouse than this terminal's. If there is only one warehouse, it is returned.
    fn remote_warehouse(&mut self) -> i64 {
        if self.scale.warehouses == 1 {
            return self.warehouse;
        }
        let drawn = self.random.between(1, self.scale.warehouses - 1);
        if drawn >= self.warehouse { drawn + 1 } else { drawn }
    }

    /// Runs New-Order [2.4]. Returns the total of the order in ten-thousandths, or 0 if the order was rolled
    /// back.
    pub(super) fn new_order(&mut self) -> Result<i64> {
        let customer = Param::Int(draw::customer(self.scale, self.random));
        let lines = self.draw_lines();
        let [warehouse, district] = self.place();
        self.c.run(BEGIN, &[])?;
        let rates = self.one(RATES, &[warehouse, district, customer])?;
        let taken = self.one(TAKE_ORDER_NUMBER, &[warehouse, district])?;
        let order = Param::Int(int(&taken, 0)?);
        let local = i64::from(lines.iter().all(|line| line.supplier == self.warehouse));
        let count = Param::Int(lines.len() as i64);
        self.c.run(INSERT_ORDER, &[warehouse, district, order, customer, count, Param::Int(local)])?;
        self.c.run(INSERT_NEW_ORDER, &[warehouse, district, order])?;
        let mut sum = 0;
        for (number, line) in (1..).zip(&lines) {
            match self.order_line(order, number, line)? {
                Some(amount) => sum += amount,
                None => return self.c.run(ROLLBACK, &[]).map(|_| 0),
            }
        }
        self.c.run(COMMIT, &[])?;
        let (discount, taxes) = (decimal(&rates, 0)?, decimal(&rates, 3)? + decimal(&taken, 1)?);
        Ok(sum * (ONE - discount) / ONE * (ONE + taxes) / ONE)
    }

    /// Draws the five to fifteen lines of an order. One item in a hundred comes from another warehouse. One
    /// order in a hundred ends with an item that doesn't exist.
    fn draw_lines(&mut self) -> Vec<Line> {
        let count = self.random.between(LINES_MIN, LINES_MAX);
        let rolled_back = self.random.below(100) == 0;
        let lines = (1..=count).map(|number| {
            let unknown = rolled_back && number == count;
            let item = if unknown { self.scale.items + 1 } else { draw::item(self.scale, self.random) };
            let remote = self.random.below(100) == 0;
            let supplier = if remote { self.remote_warehouse() } else { self.warehouse };
            Line { item, supplier, quantity: self.random.between(1, 10) }
        });
        lines.collect()
    }

    /// Writes one line of an order, and returns its amount. Returns `None` if the item doesn't exist.
    fn order_line(&mut self, order: Param<'_>, number: i64, line: &Line) -> Result<Option<i64>> {
        let item = Param::Int(line.item);
        let Some(found) = self.c.rows(ITEM, &[item])?.pop() else { return Ok(None) };
        let (supplier, quantity) = (Param::Int(line.supplier), Param::Int(line.quantity));
        let place = STOCK_FOR_DISTRICT + self.district as usize - 1;
        let stock = self.one(place, &[supplier, item])?;
        let left = int(&stock, 0)? - line.quantity;
        let left = Param::Int(if left >= 10 { left } else { left + 91 });
        let remote = Param::Int(i64::from(line.supplier != self.warehouse));
        self.c.run(UPDATE_STOCK, &[left, quantity, remote, supplier, item])?;
        let amount = line.quantity * decimal(&found, 0)?;
        let ([warehouse, district], info) = (self.place(), Param::Text(text(&stock, 1)?));
        let (number, price) = (Param::Int(number), Param::Decimal(amount));
        self.c
            .run(INSERT_LINE, &[warehouse, district, order, number, item, supplier, quantity, price, info])?;
        Ok(Some(amount))
    }

    /// Runs Payment [2.5].
    pub(super) fn payment(&mut self) -> Result<()> {
        let (home, away) = ((self.warehouse, self.district), self.random.below(100) < 15);
        let (warehouse, district) =
            if away { (self.remote_warehouse(), self.random.between(1, self.scale.districts)) } else { home };
        let last_name = self.draw_last_name();
        let number = draw::customer(self.scale, self.random);
        let cents = self.random.between(100, 500_000);
        let amount = Param::Decimal(cents * (ONE / 100));
        let [here, at] = self.place();
        self.c.run(BEGIN, &[])?;
        let paid_to = self.one(PAY_WAREHOUSE, &[amount, here])?;
        let paid_at = self.one(PAY_DISTRICT, &[amount, here, at])?;
        let customer = self.find(Customer { warehouse, district, number }, last_name.as_deref())?;
        self.pay_customer(customer, cents)?;
        let [warehouse, district, number] = customer.key();
        let names = format!("{}    {}", text(&paid_to, 0)?, text(&paid_at, 0)?);
        let row = [warehouse, district, number, here, at, amount, Param::Text(&names)];
        self.c.run(INSERT_HISTORY, &row)?;
        self.c.run(COMMIT, &[]).map(drop)
    }

    fn pay_customer(&mut self, customer: Customer, cents: i64) -> Result<()> {
        let key = customer.key();
        let found = self.one(CUSTOMER_FOR_UPDATE, &key)?;
        let [warehouse, district, number] = key;
        let amount = Param::Decimal(cents * (ONE / 100));
        if text(&found, 0)? != "BC" {
            return self.c.run(PAY_CUSTOMER, &[amount, warehouse, district, number]).map(drop);
        }
        let mut data = format!(
            "{} {} {} {} {} {}.{:02} {}",
            customer.number,
            customer.district,
            customer.warehouse,
            self.district,
            self.warehouse,
            cents / 100,
            cents % 100,
            text(&found, 1)?
        );
        data.truncate(CUSTOMER_DATA_CHARS);
        let values = [amount, warehouse, district, number, Param::Text(&data)];
        self.c.run(PAY_CUSTOMER_BAD_CREDIT, &values).map(drop)
    }

    /// Returns a last name in sixty percent of the cases. In the others a transaction finds its customer by
    /// number.
    fn draw_last_name(&mut self) -> Option<String> {
        (self.random.below(100) < 60).then(|| draw::last_name(self.scale, self.random))
    }

    /// Returns the customer of a transaction. Without a last name it is the customer `asked`. Otherwise it is
    /// the middle one of the customers with that last name, in the order of their first names.
    fn find(&mut self, asked: Customer, last_name: Option<&str>) -> Result<Customer> {
        let Some(name) = last_name else { return Ok(asked) };
        let [warehouse, district, _] = asked.key();
        let found = self.c.rows(CUSTOMERS_BY_NAME, &[warehouse, district, Param::Text(name)])?;
        let middle = found
            .get(found.len().saturating_sub(1) / 2)
            .ok_or_else(|| BenchError::Wrong(format!("no customer with the last name {name}")))?;
        Ok(Customer { number: int(middle, 0)?, ..asked })
    }

    /// Runs Order-Status [2.6].
    pub(super) fn order_status(&mut self) -> Result<()> {
        let last_name = self.draw_last_name();
        let number = draw::customer(self.scale, self.random);
        let asked = Customer { warehouse: self.warehouse, district: self.district, number };
        self.c.run(BEGIN, &[])?;
        let key = self.find(asked, last_name.as_deref())?.key();
        self.one(CUSTOMER, &key)?;
        let newest = self.one(NEWEST_ORDER, &key)?;
        let [warehouse, district] = self.place();
        self.c.rows(LINES, &[warehouse, district, Param::Int(int(&newest, 0)?)])?;
        self.c.run(COMMIT, &[]).map(drop)
    }

    /// Runs Delivery [2.7]: it delivers the oldest waiting order of each district that has one.
    pub(super) fn delivery(&mut self) -> Result<()> {
        let carrier = Param::Int(self.random.between(1, 10));
        self.c.run(BEGIN, &[])?;
        for district in 1..=self.scale.districts {
            self.deliver(Param::Int(district), carrier)?;
        }
        self.c.run(COMMIT, &[]).map(drop)
    }

    fn deliver(&mut self, district: Param<'_>, carrier: Param<'_>) -> Result<()> {
        let warehouse = Param::Int(self.warehouse);
        let Some(oldest) = self.c.rows(OLDEST_NEW_ORDER, &[warehouse, district])?.pop() else {
            return Ok(());
        };
        let order = Param::Int(int(&oldest, 0)?);
        self.c.run(DELETE_NEW_ORDER, &[warehouse, district, order])?;
        let delivered = self.one(DELIVER_ORDER, &[warehouse, district, order, carrier])?;
        self.c.run(DELIVER_LINES, &[warehouse, district, order])?;
        let sum = self.one(SUM_OF_LINES, &[warehouse, district, order])?;
        let (customer, amount) = (Param::Int(int(&delivered, 0)?), Param::Decimal(decimal(&sum, 0)?));
        self.c.run(DELIVER_TO_CUSTOMER, &[warehouse, district, customer, amount]).map(drop)
    }

    /// Runs Stock-Level [2.8]. Returns how many items of the last twenty orders have less stock than a random
    /// threshold.
    pub(super) fn stock_level(&mut self) -> Result<i64> {
        let threshold = Param::Int(self.random.between(10, 20));
        let [warehouse, district] = self.place();
        self.c.run(BEGIN, &[])?;
        let next = int(&self.one(NEXT_ORDER_NUMBER, &[warehouse, district])?, 0)?;
        let (first, end) = (Param::Int(next - RECENT_ORDERS), Param::Int(next));
        let counted = self.one(LOW_STOCK, &[warehouse, district, first, end, threshold])?;
        self.c.run(COMMIT, &[])?;
        int(&counted, 0)
    }
}

fn wrong(row: &Row, at: usize, kind: &str) -> BenchError {
    BenchError::Wrong(format!("TPC-C expects {kind} in place {} of {row:?}", at + 1))
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

fn text(row: &Row, at: usize) -> Result<&str> {
    match row.get(at) {
        Some(Value::Text(value)) => Ok(value),
        _ => Err(wrong(row, at, "a text")),
    }
}
