//! Loads the initial rows of the tables [4.3.3].

use std::fmt::Write;

use super::{Scale, draw, schema};
use crate::Result;
use crate::database::Connection;
use crate::random::Random;
use crate::workload::load_rows;

/// The time in all loaded rows. It is a constant, so that loads of the same scale write the same rows.
const LOADED_AT: &str = "2026-01-01 00:00:00";

/// The least and the greatest number of lines of an order.
pub(super) const LINES_MIN: i64 = 5;
pub(super) const LINES_MAX: i64 = 15;

/// Makes the tables and fills them.
pub(super) fn run(scale: &Scale, connection: &mut dyn Connection) -> Result<()> {
    schema::make(connection)?;
    let mut loader = Loader { scale, connection, random: Random::seeded(scale.warehouses as u64) };
    loader.items()?;
    for warehouse in 1..=scale.warehouses {
        loader.warehouse(warehouse)?;
        loader.stock(warehouse)?;
        for district in 1..=scale.districts {
            loader.district(warehouse, district)?;
            loader.customers(warehouse, district)?;
            loader.history(warehouse, district)?;
            loader.orders(warehouse, district)?;
        }
    }
    schema::add_indexes(connection)
}

struct Loader<'a> {
    scale: &'a Scale,
    connection: &'a mut dyn Connection,
    random: Random,
}

impl Loader<'_> {
    /// Fills a table with `count` rows. `row` writes each row from the row's number, which is counted from 1.
    fn fill(
        &mut self,
        table: &str,
        count: i64,
        mut row: impl FnMut(i64, &mut Random) -> String,
    ) -> Result<()> {
        let random = &mut self.random;
        load_rows(self.connection, table, count as u64, |number, sql| {
            sql.push_str(&row(number as i64 + 1, random));
        })
    }

    fn items(&mut self) -> Result<()> {
        self.fill("bench_item", self.scale.items, |item, random| {
            let (image, name) = (random.between(1, 10_000), draw::text(random, 14, 24));
            let price = cents(random.between(100, 10_000));
            format!("({item}, {image}, '{name}', {price}, '{}')", draw::data(random))
        })
    }

    fn warehouse(&mut self, warehouse: i64) -> Result<()> {
        let ytd = 10 * self.scale.customers * self.scale.districts;
        self.fill("bench_warehouse", 1, |_, random| {
            let (name, address) = (draw::text(random, 6, 10), address(random));
            format!(
                "({warehouse}, '{name}', {address}, {}, {ytd})",
                ten_thousandths(random.between(0, 2_000))
            )
        })
    }

    fn stock(&mut self, warehouse: i64) -> Result<()> {
        self.fill("bench_stock", self.scale.items, |item, random| {
            let mut row = format!("({item}, {warehouse}, {}", random.between(10, 100));
            for _ in 0..10 {
                let _ = write!(row, ", '{}'", draw::text(random, 24, 24));
            }
            let _ = write!(row, ", 0, 0, 0, '{}')", draw::data(random));
            row
        })
    }

    fn district(&mut self, warehouse: i64, district: i64) -> Result<()> {
        let (ytd, next) = (10 * self.scale.customers, self.scale.customers + 1);
        self.fill("bench_district", 1, |_, random| {
            let (name, address) = (draw::text(random, 6, 10), address(random));
            let tax = ten_thousandths(random.between(0, 2_000));
            format!("({district}, {warehouse}, '{name}', {address}, {tax}, {ytd}, {next})")
        })
    }

    fn customers(&mut self, warehouse: i64, district: i64) -> Result<()> {
        self.fill("bench_customer", self.scale.customers, |customer, random| {
            let (first, last) = (draw::text(random, 8, 16), draw::loaded_last_name(customer, random));
            let (address, phone) = (address(random), draw::digits(random, 16));
            let credit = if random.below(10) == 0 { "BC" } else { "GC" };
            let discount = ten_thousandths(random.between(0, 5_000));
            let data = draw::text(random, 300, 500);
            format!(
                "({customer}, {district}, {warehouse}, '{first}', 'OE', '{last}', {address}, '{phone}', '{LOADED_AT}', \
                 '{credit}', 50000, {discount}, -10, 10, 1, 0, '{data}')"
            )
        })
    }

    fn history(&mut self, warehouse: i64, district: i64) -> Result<()> {
        self.fill("bench_history", self.scale.customers, |customer, random| {
            let place = format!("{district}, {warehouse}");
            format!("({customer}, {place}, {place}, '{LOADED_AT}', 10, '{}')", draw::text(random, 12, 24))
        })
    }

    /// Loads one order for each customer of a district. The last orders are not delivered yet.
    fn orders(&mut self, warehouse: i64, district: i64) -> Result<()> {
        let (count, delivered) = (self.scale.customers, self.scale.delivered());
        let customers = draw::shuffled(&mut self.random, count);
        let lines: Vec<i64> = (0..count).map(|_| self.random.between(LINES_MIN, LINES_MAX)).collect();
        self.fill("bench_orders", count, |order, random| {
            let at = order as usize - 1;
            let carrier =
                if order <= delivered { random.between(1, 10).to_string() } else { "NULL".to_owned() };
            let (customer, lines) = (customers[at], lines[at]);
            format!("({order}, {district}, {warehouse}, {customer}, '{LOADED_AT}', {carrier}, {lines}, 1)")
        })?;
        self.fill("bench_new_order", count - delivered, |number, _| {
            format!("({}, {district}, {warehouse})", delivered + number)
        })?;
        self.order_lines(warehouse, district, &lines)
    }

    fn order_lines(&mut self, warehouse: i64, district: i64, lines: &[i64]) -> Result<()> {
        let (items, delivered) = (self.scale.items, self.scale.delivered());
        let mut places =
            (1..).zip(lines).flat_map(|(order, count)| (1..=*count).map(move |line| (order, line)));
        self.fill("bench_order_line", lines.iter().sum(), |_, random| {
            let (order, line) = places.next().unwrap_or_default();
            let (item, info) = (random.between(1, items), draw::text(random, 24, 24));
            let (when, amount) = if order <= delivered {
                (format!("'{LOADED_AT}'"), cents(0))
            } else {
                ("NULL".to_owned(), cents(random.between(1, 999_999)))
            };
            format!(
                "({order}, {district}, {warehouse}, {line}, {item}, {warehouse}, {when}, 5, {amount}, '{info}')"
            )
        })
    }
}

/// Returns the columns of an address: two streets, a city, a state and a zip code.
fn address(random: &mut Random) -> String {
    let places: Vec<String> = (0..3).map(|_| format!("'{}'", draw::text(random, 10, 20))).collect();
    format!("{}, '{}', '{}11111'", places.join(", "), draw::text(random, 2, 2), draw::digits(random, 4))
}

fn cents(value: i64) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

fn ten_thousandths(value: i64) -> String {
    format!("{}.{:04}", value / 10_000, value % 10_000)
}
