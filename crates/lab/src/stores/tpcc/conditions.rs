//! Checks a partition after a run: consistency conditions 1 to 4, 8 and 9 of TPC-C [3.3.2], and that no
//! committed order or payment is missing.
//!
//! | condition | says |
//! |---|---|
//! | 1 | a warehouse has the sum of its districts' payments |
//! | 2 | the newest order, and the newest one that waits, are before the district's next number |
//! | 3 | the orders of a district that wait have no gap |
//! | 4 | a district has as many lines as its orders say |
//! | 8, 9 | a warehouse and its districts have the sum of the payments in the history |
//!
//! This module does not know engines.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use varve_bench::tpcc::Scale;
use varve_bench::{BenchError, Result};
use varve_memory::{Direction, KeyRange, Store, TableNo};

use super::super::load::refused;
use super::inputs::Input;
use super::load::loaded_payments;
use super::schema::{self, District, district_of, history, number_of, orders, warehouse};

/// The sums and counts that the tables have for a district.
#[derive(Debug, Clone, Copy, Default)]
struct DistrictTotals {
    ytd: i64,
    next_order: i64,
    orders: i64,
    newest_order: i64,
    lines_of_orders: i64,
    lines: i64,
    waiting: i64,
    oldest_waiting: i64,
    newest_waiting: i64,
    paid: i64,
}

/// The sums and counts that the tables have for a partition.
#[derive(Debug, Default)]
struct Totals {
    districts: BTreeMap<District, DistrictTotals>,
    warehouses: BTreeMap<u16, i64>,
    payments: i64,
}

impl Totals {
    fn of(store: &dyn Store) -> Result<Totals> {
        let mut totals = Totals::default();
        each(store, schema::WAREHOUSE, &mut |row| totals.warehouse(row))?;
        each(store, schema::DISTRICT, &mut |row| totals.district(row))?;
        each(store, schema::ORDERS, &mut |row| totals.order(row))?;
        each(store, schema::NEW_ORDER, &mut |row| totals.waiting(row))?;
        each(store, schema::ORDER_LINE, &mut |row| totals.line(row))?;
        each(store, schema::HISTORY, &mut |row| totals.payment(row))?;
        Ok(totals)
    }

    fn at(&mut self, district: District) -> &mut DistrictTotals {
        self.districts.entry(district).or_default()
    }

    fn warehouse(&mut self, row: &[u8]) -> Result<()> {
        let number = district_of(row)?.warehouse;
        self.warehouses.insert(number, warehouse::YTD.of(row)?);
        Ok(())
    }

    fn district(&mut self, row: &[u8]) -> Result<()> {
        let totals = self.at(district_of(row)?);
        totals.ytd = schema::district::YTD.of(row)?;
        totals.next_order = schema::district::NEXT_ORDER.of(row)?;
        Ok(())
    }

    fn order(&mut self, row: &[u8]) -> Result<()> {
        let totals = self.at(district_of(row)?);
        totals.orders += 1;
        totals.newest_order = totals.newest_order.max(i64::from(number_of(row)?));
        totals.lines_of_orders += orders::LINES.of(row)?;
        Ok(())
    }

    fn waiting(&mut self, row: &[u8]) -> Result<()> {
        let (totals, number) = (self.at(district_of(row)?), i64::from(number_of(row)?));
        totals.oldest_waiting = if totals.waiting == 0 { number } else { totals.oldest_waiting.min(number) };
        totals.newest_waiting = totals.newest_waiting.max(number);
        totals.waiting += 1;
        Ok(())
    }

    fn line(&mut self, row: &[u8]) -> Result<()> {
        self.at(district_of(row)?).lines += 1;
        Ok(())
    }

    fn payment(&mut self, row: &[u8]) -> Result<()> {
        let warehouse = district_of(row)?.warehouse;
        let district = District { warehouse, number: history::DISTRICT.of(row)? as u8 };
        self.at(district).paid += history::AMOUNT.of(row)?;
        self.payments += 1;
        Ok(())
    }

    fn check(&self, expected: &Expected) -> Result<()> {
        for (district, totals) in &self.districts {
            let orders = expected.orders.get(district).copied().unwrap_or_default();
            match totals.broken(orders) {
                Some(condition) => return Err(wrong(condition, &(district, totals))),
                None => continue,
            }
        }
        if self.districts.len() != expected.orders.len() {
            return Err(wrong("all districts are there", &self.districts.len()));
        }
        for (number, ytd) in &self.warehouses {
            let own = self.districts.iter().filter(|(district, _)| district.warehouse == *number);
            if own.map(|(_, totals)| totals.ytd).sum::<i64>() != *ytd {
                return Err(wrong("1: a warehouse has the sum of its districts", number));
            }
        }
        match self.payments == expected.payments {
            true => Ok(()),
            false => Err(wrong("each payment is in the history", &(self.payments, expected.payments))),
        }
    }
}

impl DistrictTotals {
    /// Returns the first condition that does not hold. `orders` is the number of orders that the district
    /// must have.
    fn broken(&self, orders: i64) -> Option<&'static str> {
        let is_newest = self.next_order - 1 == self.newest_order;
        let is_newest_waiting = self.waiting == 0 || self.newest_waiting == self.newest_order;
        let has_gap = self.waiting > 0 && self.newest_waiting - self.oldest_waiting + 1 != self.waiting;
        match () {
            () if !is_newest || !is_newest_waiting => Some("2: the newest order is before the next number"),
            () if has_gap => Some("3: orders that wait have no gap"),
            () if self.lines != self.lines_of_orders => Some("4: orders have their lines"),
            () if self.paid != self.ytd => Some("9: a district has the sum of its payments"),
            () if self.orders != orders => Some("each committed order is there"),
            () => None,
        }
    }
}

/// The counts that the load and the committed transactions must leave.
struct Expected {
    orders: BTreeMap<District, i64>,
    payments: i64,
}

impl Expected {
    fn of(scale: &Scale, inputs: &[Input]) -> Expected {
        let mut orders = BTreeMap::new();
        for warehouse in 1..=scale.warehouses as u16 {
            let numbers = 1..=scale.districts as u8;
            orders.extend(numbers.map(|number| (District { warehouse, number }, scale.customers)));
        }
        let mut payments = i64::from(loaded_payments(scale)) * scale.warehouses;
        for input in inputs {
            match input {
                Input::NewOrder(order) if !order.is_rolled_back(scale) => {
                    *orders.entry(order.district).or_default() += 1;
                }
                Input::Payment(_) => payments += 1,
                _ => {}
            }
        }
        Expected { orders, payments }
    }
}

/// Checks a partition in which transactions with these inputs ran.
///
/// Errors: a condition does not hold, or a row is missing.
pub fn check(scale: &Scale, inputs: &[Input], store: &dyn Store) -> Result<()> {
    Totals::of(store)?.check(&Expected::of(scale, inputs))
}

fn wrong(condition: &str, at: &dyn std::fmt::Debug) -> BenchError {
    BenchError::Wrong(format!("TPC-C: condition {condition} does not hold: {at:?}"))
}

/// Calls `on_row` with all rows of a table.
fn each(store: &dyn Store, table: TableNo, on_row: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut outcome = Ok(());
    let mut call = |_: &[u8], row: &[u8]| match on_row(row) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            outcome = Err(error);
            ControlFlow::Break(())
        }
    };
    store.scan(table, 0, &KeyRange::ALL, Direction::Forward, &mut call).map_err(refused)?;
    outcome
}
