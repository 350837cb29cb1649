//! Loads the initial rows of a partition [4.3.3].
//!
//! Invariants
//! 1. The same number of warehouses, districts, customers and items gives the same rows.
//!
//! This module does not know transactions.

use varve_bench::Result;
use varve_bench::random::Random;
use varve_bench::tpcc::{Scale, draw};
use varve_memory::{Store, TableNo};

use super::super::load::refused;
use super::row::{self, Key};
use super::schema::{self, District, customer, history, item, order_line, orders, stock};

/// The number of rows that one transaction of the load inserts.
const LOADED_TOGETHER: u64 = 100;
/// The time in all loaded rows.
const LOADED_AT: i64 = 1;
/// The amount that each loaded customer has paid, in cents.
pub const PAID_CENTS: i64 = 1000;

/// Makes the tables and fills them.
pub fn run(scale: &Scale, store: &mut dyn Store) -> Result<()> {
    schema::create(store)?;
    let random = Random::seeded(scale.warehouses as u64);
    let mut loader = Loader { scale, store, random, row: Vec::new(), rows: 0 };
    loader.items()?;
    for warehouse in 1..=scale.warehouses as u16 {
        loader.warehouse(warehouse)?;
        loader.stock(warehouse)?;
        for number in 1..=scale.districts as u8 {
            let district = District { warehouse, number };
            loader.district(district)?;
            loader.customers(district)?;
            loader.orders(district)?;
        }
    }
    loader.store.commit().map_err(refused).map(drop)
}

/// Returns the number of payments that the load makes in a warehouse.
pub fn loaded_payments(scale: &Scale) -> u32 {
    (scale.districts * scale.customers) as u32
}

struct Loader<'l> {
    scale: &'l Scale,
    store: &'l mut dyn Store,
    random: Random,
    row: Vec<u8>,
    rows: u64,
}

impl Loader<'_> {
    /// Inserts the row in the buffer.
    fn insert(&mut self, table: TableNo, keys: &[&[u8]]) -> Result<()> {
        self.store.insert(table, keys, &self.row).map_err(refused)?;
        self.rows += 1;
        if self.rows.is_multiple_of(LOADED_TOGETHER) {
            self.store.commit().map_err(refused)?;
            self.store.sync().map_err(refused)?;
        }
        Ok(())
    }

    fn text(&mut self, least: i64, most: i64) {
        row::push_text(&mut self.row, draw::text(&mut self.random, least, most).as_bytes());
    }

    /// Appends an address: two streets, a city, a state and a zip code.
    fn address(&mut self) {
        (0..3).for_each(|_| self.text(10, 20));
        self.text(2, 2);
        let zip = draw::digits(&mut self.random, 4) + "11111";
        row::push_text(&mut self.row, zip.as_bytes());
    }

    fn data(&mut self) {
        row::push_text(&mut self.row, draw::data(&mut self.random).as_bytes());
    }

    fn items(&mut self) -> Result<()> {
        for number in 1..=self.scale.items as u32 {
            let key = Key::EMPTY.number(number);
            row::begin(&mut self.row, &key);
            let (price, image) = (self.random.between(100, 10_000), self.random.between(1, 10_000));
            row::push_numbers(&mut self.row, &[(item::PRICE, price), (item::IMAGE, image)]);
            self.text(14, 24);
            self.data();
            self.insert(schema::ITEM, &[key.as_slice()])?;
        }
        Ok(())
    }

    fn warehouse(&mut self, warehouse: u16) -> Result<()> {
        let key = schema::warehouse_key(warehouse);
        let ytd = PAID_CENTS * self.scale.customers * self.scale.districts;
        row::begin(&mut self.row, &key);
        let tax = self.random.between(0, 2_000);
        row::push_numbers(&mut self.row, &[(schema::warehouse::YTD, ytd), (schema::warehouse::TAX, tax)]);
        self.text(6, 10);
        self.address();
        self.insert(schema::WAREHOUSE, &[key.as_slice()])
    }

    fn stock(&mut self, warehouse: u16) -> Result<()> {
        for number in 1..=self.scale.items as u32 {
            let key = schema::warehouse_row_key(warehouse, number);
            row::begin(&mut self.row, &key);
            let quantity = self.random.between(10, 100);
            let zeros = [stock::YTD, stock::ORDERS, stock::REMOTE_ORDERS].map(|column| (column, 0));
            row::push_numbers(&mut self.row, &[(stock::QUANTITY, quantity)]);
            row::push_numbers(&mut self.row, &zeros);
            for _ in 0..10 {
                let info = draw::text(&mut self.random, 24, 24);
                self.row.extend_from_slice(info.as_bytes());
            }
            self.data();
            self.insert(schema::STOCK, &[key.as_slice()])?;
        }
        Ok(())
    }

    fn district(&mut self, district: District) -> Result<()> {
        let key = district.key();
        row::begin(&mut self.row, &key);
        let numbers = [
            (schema::district::YTD, PAID_CENTS * self.scale.customers),
            (schema::district::NEXT_ORDER, self.scale.customers + 1),
            (schema::district::TAX, self.random.between(0, 2_000)),
        ];
        row::push_numbers(&mut self.row, &numbers);
        self.text(6, 10);
        self.address();
        self.insert(schema::DISTRICT, &[key.as_slice()])
    }

    /// Loads the customers of a district. Each customer has one payment.
    fn customers(&mut self, district: District) -> Result<()> {
        for number in 1..=self.scale.customers as u32 {
            self.customer(district, number)?;
            self.payment(district, number)?;
        }
        Ok(())
    }

    fn customer(&mut self, district: District, number: u32) -> Result<()> {
        let key = district.row_key(number);
        let first = draw::text(&mut self.random, 8, 16);
        let last = draw::loaded_last_name(i64::from(number), &mut self.random);
        row::begin(&mut self.row, &key);
        let numbers = [
            (customer::BALANCE, -PAID_CENTS),
            (customer::YTD_PAYMENT, PAID_CENTS),
            (customer::PAYMENTS, 1),
            (customer::DELIVERIES, 0),
            (customer::CREDIT_LIMIT, 5_000_000),
            (customer::DISCOUNT, self.random.between(0, 5_000)),
            (customer::SINCE, LOADED_AT),
            (customer::IS_BAD, i64::from(self.random.below(10) == 0)),
        ];
        row::push_numbers(&mut self.row, &numbers);
        row::push_text(&mut self.row, first.as_bytes());
        row::push_text(&mut self.row, last.as_bytes());
        self.address();
        row::push_text(&mut self.row, draw::digits(&mut self.random, 16).as_bytes());
        row::push_text(&mut self.row, b"OE");
        self.text(300, customer::DATA_BYTES_MAX as i64);
        let name_key = district.name_key(last.as_bytes()).text(first.as_bytes()).number(number);
        self.insert(schema::CUSTOMER, &[key.as_slice(), name_key.as_slice()])
    }

    fn payment(&mut self, district: District, customer: u32) -> Result<()> {
        let number = (u32::from(district.number) - 1) * self.scale.customers as u32 + customer;
        let key = schema::warehouse_row_key(district.warehouse, number);
        row::begin(&mut self.row, &key);
        let numbers = [
            (history::AMOUNT, PAID_CENTS),
            (history::PAID_AT, LOADED_AT),
            (history::DISTRICT, i64::from(district.number)),
            (history::CUSTOMER_WAREHOUSE, i64::from(district.warehouse)),
            (history::CUSTOMER_DISTRICT, i64::from(district.number)),
            (history::CUSTOMER, i64::from(customer)),
        ];
        row::push_numbers(&mut self.row, &numbers);
        self.text(12, 24);
        self.insert(schema::HISTORY, &[key.as_slice()])
    }

    /// Loads one order of each customer. The last three in ten orders wait for their delivery.
    fn orders(&mut self, district: District) -> Result<()> {
        let customers = draw::shuffled(&mut self.random, self.scale.customers);
        for (number, customer) in (1..).zip(customers) {
            let is_delivered = i64::from(number) <= self.scale.delivered();
            let carrier = if is_delivered { self.random.between(1, 10) } else { 0 };
            let lines = self.random.between(5, 15);
            let (key, customer) = (district.row_key(number), customer as u32);
            row::begin(&mut self.row, &key);
            let numbers = [
                (orders::CUSTOMER, i64::from(customer)),
                (orders::ENTERED_AT, LOADED_AT),
                (orders::CARRIER, carrier),
                (orders::LINES, lines),
                (orders::IS_LOCAL, 1),
            ];
            row::push_numbers(&mut self.row, &numbers);
            let by_customer = district.customer_order_key(customer, number);
            self.insert(schema::ORDERS, &[key.as_slice(), by_customer.as_slice()])?;
            if !is_delivered {
                row::begin(&mut self.row, &key);
                self.insert(schema::NEW_ORDER, &[key.as_slice()])?;
            }
            for line in 1..=lines as u8 {
                self.line(district.line_key(number, line), district.warehouse, is_delivered)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, key: Key, warehouse: u16, is_delivered: bool) -> Result<()> {
        row::begin(&mut self.row, &key);
        let numbers = [
            (order_line::ITEM, self.random.between(1, self.scale.items)),
            (order_line::SUPPLIER, i64::from(warehouse)),
            (order_line::DELIVERED_AT, if is_delivered { LOADED_AT } else { 0 }),
            (order_line::QUANTITY, 5),
            (order_line::AMOUNT, if is_delivered { 0 } else { self.random.between(1, 999_999) }),
        ];
        row::push_numbers(&mut self.row, &numbers);
        self.row.extend_from_slice(draw::text(&mut self.random, 24, 24).as_bytes());
        self.insert(schema::ORDER_LINE, &[key.as_slice()])
    }
}
