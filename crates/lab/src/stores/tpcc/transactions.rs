//! The five transactions [2.4 to 2.8].
//!
//! 1. A transaction reads and changes rows as its profile says. Values that it would only show to a user are
//!    read, and nothing is computed from them.
//! 2. The time of a transaction is its number. So every engine stores the same bytes.
//!
//! This module does not know engines or how a transaction ends.

use std::ops::{Bound, ControlFlow};

use varve_bench::tpcc::Scale;
use varve_bench::{BenchError, Result};
use varve_memory::{Direction, KeyRange, Store, TableNo};

use super::super::load::{Ending, Worker, refused};
use super::inputs::{CustomerName, Input, Line, NewOrder, Payment};
use super::load::loaded_payments;
use super::row::{self, Column, Key};
use super::schema::{self, District, customer, district, history, item, order_line, orders, stock};

/// The number of newest orders whose items Stock-Level checks.
const RECENT_ORDERS: i64 = 20;
/// The time of the first transaction. The times of the load are before it.
const BEGIN_AT: i64 = 2;

/// A worker that runs the transactions of a partition.
pub struct TpccWorker<'l> {
    scale: &'l Scale,
    inputs: &'l [Input],
    row: Vec<u8>,
    /// The row that is to be inserted.
    new: Vec<u8>,
    /// The numbers of customers or items that a scan found.
    numbers: Vec<u32>,
    /// The names of the warehouse and the district of a payment.
    names: Vec<u8>,
}

impl<'l> TpccWorker<'l> {
    /// Returns a worker for these inputs.
    pub fn new(scale: &'l Scale, inputs: &'l [Input]) -> Self {
        let (row, new, numbers, names) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { scale, inputs, row, new, numbers, names }
    }

    /// Reads a row into the buffer. The row must exist.
    fn read(&mut self, store: &dyn Store, table: TableNo, key: &Key) -> Result<()> {
        match store.get(table, 0, key.as_slice(), &mut self.row).map_err(refused)? {
            true => Ok(()),
            false => Err(missing(table, key)),
        }
    }

    /// Copies the columns from `first` to `last` from the buffer to the stored row.
    fn patch(&self, store: &mut dyn Store, at: RowAt<'_>, first: Column, last: Column) -> Result<()> {
        let bytes = row::span(&self.row, first.at()..last.end())?;
        match store.patch(at.table, at.key.as_slice(), first.at(), bytes).map_err(refused)? {
            true => Ok(()),
            false => Err(missing(at.table, at.key)),
        }
    }

    /// Inserts the row in `new`.
    fn insert(&self, store: &mut dyn Store, table: TableNo, keys: &[&[u8]]) -> Result<()> {
        store.insert(table, keys, &self.new).map_err(refused)
    }

    fn new_order(&mut self, order: &NewOrder, now: i64, store: &mut dyn Store) -> Result<Ending> {
        let NewOrder { district, customer, .. } = *order;
        self.read(store, schema::WAREHOUSE, &schema::warehouse_key(district.warehouse))?;
        let number = self.take_order_number(district, store)?;
        self.read(store, schema::CUSTOMER, &district.row_key(customer))?;
        let key = district.row_key(number);
        row::begin(&mut self.new, &key);
        let is_local = order.lines.iter().all(|line| line.supplier == district.warehouse);
        let numbers = [
            (orders::CUSTOMER, i64::from(customer)),
            (orders::ENTERED_AT, now),
            (orders::CARRIER, 0),
            (orders::LINES, order.lines.len() as i64),
            (orders::IS_LOCAL, i64::from(is_local)),
        ];
        row::push_numbers(&mut self.new, &numbers);
        let by_customer = district.customer_order_key(customer, number);
        self.insert(store, schema::ORDERS, &[key.as_slice(), by_customer.as_slice()])?;
        row::begin(&mut self.new, &key);
        self.insert(store, schema::NEW_ORDER, &[key.as_slice()])?;
        for (line_number, line) in (1..).zip(&order.lines) {
            if !self.line(district.line_key(number, line_number), district, line, store)? {
                return Ok(Ending::RollBack);
            }
        }
        Ok(Ending::Commit)
    }

    fn take_order_number(&mut self, district: District, store: &mut dyn Store) -> Result<u32> {
        let key = district.key();
        self.read(store, schema::DISTRICT, &key)?;
        let next = district::NEXT_ORDER;
        let number = next.of(&self.row)?;
        next.put(&mut self.row, number + 1)?;
        self.patch(store, RowAt { table: schema::DISTRICT, key: &key }, next, next)?;
        Ok(number as u32)
    }

    /// Inserts a line of an order. Returns `false` if the item does not exist.
    fn line(&mut self, key: Key, district: District, line: &Line, store: &mut dyn Store) -> Result<bool> {
        let item_key = Key::EMPTY.number(line.item);
        if !store.get(schema::ITEM, 0, item_key.as_slice(), &mut self.row).map_err(refused)? {
            return Ok(false);
        }
        let amount = i64::from(line.quantity) * item::PRICE.of(&self.row)?;
        self.take_stock(district, line, store)?;
        row::begin(&mut self.new, &key);
        let numbers = [
            (order_line::ITEM, i64::from(line.item)),
            (order_line::SUPPLIER, i64::from(line.supplier)),
            (order_line::DELIVERED_AT, 0),
            (order_line::QUANTITY, i64::from(line.quantity)),
            (order_line::AMOUNT, amount),
        ];
        row::push_numbers(&mut self.new, &numbers);
        let info_at = stock::TEXTS_AT + (usize::from(district.number) - 1) * stock::DISTRICT_INFO_BYTES;
        self.new.extend_from_slice(row::span(&self.row, info_at..info_at + stock::DISTRICT_INFO_BYTES)?);
        self.insert(store, schema::ORDER_LINE, &[key.as_slice()])?;
        Ok(true)
    }

    /// Takes the items of a line from the stock. The stock row stays in the buffer.
    fn take_stock(&mut self, district: District, line: &Line, store: &mut dyn Store) -> Result<()> {
        let key = schema::warehouse_row_key(line.supplier, line.item);
        self.read(store, schema::STOCK, &key)?;
        let quantity = i64::from(line.quantity);
        let left = stock::QUANTITY.of(&self.row)? - quantity;
        stock::QUANTITY.put(&mut self.row, if left >= 10 { left } else { left + 91 })?;
        stock::YTD.add(&mut self.row, quantity)?;
        stock::ORDERS.add(&mut self.row, 1)?;
        stock::REMOTE_ORDERS.add(&mut self.row, i64::from(line.supplier != district.warehouse))?;
        let at = RowAt { table: schema::STOCK, key: &key };
        self.patch(store, at, stock::QUANTITY, stock::REMOTE_ORDERS)
    }

    fn payment(&mut self, payment: &Payment, now: i64, store: &mut dyn Store) -> Result<Ending> {
        let Payment { district, customer_district, ref customer, cents } = *payment;
        let key = schema::warehouse_key(district.warehouse);
        let at = RowAt { table: schema::WAREHOUSE, key: &key };
        self.pay(at, schema::warehouse::YTD, cents, store)?;
        self.names.clear();
        self.names.extend_from_slice(row::text(&self.row, schema::warehouse::TAX.end(), 0)?);
        self.names.extend_from_slice(b"    ");
        let key = district.key();
        self.pay(RowAt { table: schema::DISTRICT, key: &key }, district::YTD, cents, store)?;
        self.names.extend_from_slice(row::text(&self.row, district::TAX.end(), 0)?);
        let number = self.customer_number(customer_district, customer, store)?;
        self.pay_customer(payment, number, store)?;
        let payment_number = loaded_payments(self.scale) + now as u32;
        let key = schema::warehouse_row_key(district.warehouse, payment_number);
        row::begin(&mut self.new, &key);
        let numbers = [
            (history::AMOUNT, cents),
            (history::PAID_AT, now),
            (history::DISTRICT, i64::from(district.number)),
            (history::CUSTOMER_WAREHOUSE, i64::from(customer_district.warehouse)),
            (history::CUSTOMER_DISTRICT, i64::from(customer_district.number)),
            (history::CUSTOMER, i64::from(number)),
        ];
        row::push_numbers(&mut self.new, &numbers);
        row::push_text(&mut self.new, &self.names);
        self.insert(store, schema::HISTORY, &[key.as_slice()])?;
        Ok(Ending::Commit)
    }

    /// Adds an amount to a column of a row.
    fn pay(&mut self, at: RowAt<'_>, column: Column, cents: i64, store: &mut dyn Store) -> Result<()> {
        self.read(store, at.table, at.key)?;
        column.add(&mut self.row, cents)?;
        self.patch(store, at, column, column)
    }

    /// Adds a payment to a customer's row. If the customer has bad credit, the payment also goes into the
    /// text with other data [2.5.2.2].
    fn pay_customer(&mut self, payment: &Payment, number: u32, store: &mut dyn Store) -> Result<()> {
        let Payment { district, customer_district, cents, .. } = *payment;
        let key = customer_district.row_key(number);
        self.read(store, schema::CUSTOMER, &key)?;
        customer::BALANCE.add(&mut self.row, -cents)?;
        customer::YTD_PAYMENT.add(&mut self.row, cents)?;
        customer::PAYMENTS.add(&mut self.row, 1)?;
        if customer::IS_BAD.of(&self.row)? == 0 {
            let at = RowAt { table: schema::CUSTOMER, key: &key };
            return self.patch(store, at, customer::BALANCE, customer::PAYMENTS);
        }
        let text = |number| row::text(&self.row, customer::TEXTS_AT, number);
        let (first, last, old) =
            (text(customer::FIRST_NAME)?, text(customer::LAST_NAME)?, text(customer::DATA)?);
        let name_key = customer_district.name_key(last).text(first).number(number);
        let mut data = format!("{number} {customer_district:?} {district:?} {cents} ").into_bytes();
        data.extend_from_slice(old);
        data.truncate(customer::DATA_BYTES_MAX);
        let data_at = self.row.len() - old.len() - row::LENGTH_BYTES;
        self.row.truncate(data_at);
        row::push_text(&mut self.row, &data);
        let keys = [key.as_slice(), name_key.as_slice()];
        match store.replace(schema::CUSTOMER, &keys, &self.row).map_err(refused)? {
            true => Ok(()),
            false => Err(missing(schema::CUSTOMER, &key)),
        }
    }

    /// Returns the number of a customer. If several have the same last name, it is the middle one in the
    /// order of their first names [2.5.2.2].
    fn customer_number(
        &mut self,
        district: District,
        customer: &CustomerName,
        store: &dyn Store,
    ) -> Result<u32> {
        let last = match customer {
            CustomerName::Number(number) => return Ok(*number),
            CustomerName::Last(last) => last,
        };
        let from = district.name_key(last.as_bytes());
        // Names consist of letters. So all keys with this name are below the name followed by a byte 1.
        let to = district.key().bytes(last.as_bytes()).byte(1);
        let scan = Scan { table: schema::CUSTOMER, index: schema::SECOND, from, to };
        self.numbers.clear();
        let numbers = &mut self.numbers;
        scan.run(store, Direction::Forward, &mut |row| {
            numbers.push(schema::number_of(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let middle = self.numbers.len().saturating_sub(1) / 2;
        let missing = || BenchError::Wrong(format!("there is no customer with the last name {last}"));
        self.numbers.get(middle).copied().ok_or_else(missing)
    }

    fn order_status(
        &mut self,
        district: District,
        customer: &CustomerName,
        store: &dyn Store,
    ) -> Result<Ending> {
        let customer = self.customer_number(district, customer, store)?;
        self.read(store, schema::CUSTOMER, &district.row_key(customer))?;
        let (from, to) =
            (district.customer_order_key(customer, 0), district.customer_order_key(customer, u32::MAX));
        let newest = Scan { table: schema::ORDERS, index: schema::SECOND, from, to };
        let mut order = None;
        newest.run(store, Direction::Backward, &mut |row| {
            order = Some(schema::number_of(row)?);
            Ok(ControlFlow::Break(()))
        })?;
        let missing = || BenchError::Wrong(format!("customer {customer} has no order"));
        let order = order.ok_or_else(missing)?;
        let mut sum = 0;
        lines_of(district, order).run(store, Direction::Forward, &mut |row| {
            sum += order_line::AMOUNT.of(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if sum < 0 {
            return Err(BenchError::Wrong(format!("order {order} has a negative amount")));
        }
        Ok(Ending::Commit)
    }

    fn delivery(&mut self, warehouse: u16, carrier: u8, now: i64, store: &mut dyn Store) -> Result<Ending> {
        for number in 1..=self.scale.districts as u8 {
            let district = District { warehouse, number };
            let (from, to) = (district.row_key(0), district.row_key(u32::MAX));
            let oldest = Scan { table: schema::NEW_ORDER, index: 0, from, to };
            let mut order = None;
            oldest.run(store, Direction::Forward, &mut |row| {
                order = Some(schema::number_of(row)?);
                Ok(ControlFlow::Break(()))
            })?;
            if let Some(order) = order {
                self.deliver(district, order, Shipment { carrier, now }, store)?;
            }
        }
        Ok(Ending::Commit)
    }

    fn deliver(
        &mut self,
        district: District,
        order: u32,
        shipment: Shipment,
        store: &mut dyn Store,
    ) -> Result<()> {
        let key = district.row_key(order);
        if !store.delete(schema::NEW_ORDER, key.as_slice()).map_err(refused)? {
            return Err(missing(schema::NEW_ORDER, &key));
        }
        self.read(store, schema::ORDERS, &key)?;
        let (customer, lines) = (orders::CUSTOMER.of(&self.row)?, orders::LINES.of(&self.row)?);
        orders::CARRIER.put(&mut self.row, i64::from(shipment.carrier))?;
        let at = RowAt { table: schema::ORDERS, key: &key };
        self.patch(store, at, orders::CARRIER, orders::CARRIER)?;
        let mut sum = 0;
        for line in 1..=lines as u8 {
            let key = district.line_key(order, line);
            self.read(store, schema::ORDER_LINE, &key)?;
            sum += order_line::AMOUNT.of(&self.row)?;
            order_line::DELIVERED_AT.put(&mut self.row, shipment.now)?;
            let at = RowAt { table: schema::ORDER_LINE, key: &key };
            self.patch(store, at, order_line::DELIVERED_AT, order_line::DELIVERED_AT)?;
        }
        let key = district.row_key(customer as u32);
        self.read(store, schema::CUSTOMER, &key)?;
        customer::BALANCE.add(&mut self.row, sum)?;
        customer::DELIVERIES.add(&mut self.row, 1)?;
        let at = RowAt { table: schema::CUSTOMER, key: &key };
        self.patch(store, at, customer::BALANCE, customer::DELIVERIES)
    }

    fn stock_level(&mut self, district: District, threshold: i64, store: &dyn Store) -> Result<Ending> {
        self.read(store, schema::DISTRICT, &district.key())?;
        let next = district::NEXT_ORDER.of(&self.row)?;
        let (from, to) = ((next - RECENT_ORDERS).max(0) as u32, next as u32);
        let (from, to) = (district.row_key(from), district.row_key(to));
        self.numbers.clear();
        let numbers = &mut self.numbers;
        let lines = Scan { table: schema::ORDER_LINE, index: 0, from, to };
        lines.run(store, Direction::Forward, &mut |row| {
            numbers.push(order_line::ITEM.of(row)? as u32);
            Ok(ControlFlow::Continue(()))
        })?;
        self.numbers.sort_unstable();
        self.numbers.dedup();
        let mut low = 0;
        for at in 0..self.numbers.len() {
            let item = self.numbers.get(at).copied().unwrap_or_default();
            self.read(store, schema::STOCK, &schema::warehouse_row_key(district.warehouse, item))?;
            low += usize::from(stock::QUANTITY.of(&self.row)? < threshold);
        }
        match low <= self.numbers.len() && !self.numbers.is_empty() {
            true => Ok(Ending::Commit),
            false => Err(BenchError::Wrong("the last orders of a district have no lines".to_owned())),
        }
    }
}

impl Worker for TpccWorker<'_> {
    fn execute(&mut self, number: usize, store: &mut dyn Store) -> Result<Ending> {
        let none = || BenchError::Arguments(format!("there is no transaction {number}"));
        let input = self.inputs.get(number).ok_or_else(none)?;
        let now = BEGIN_AT + number as i64;
        match input {
            Input::NewOrder(order) => self.new_order(order, now, store),
            Input::Payment(payment) => self.payment(payment, now, store),
            Input::OrderStatus(district, customer) => self.order_status(*district, customer, store),
            Input::Delivery(warehouse, carrier) => self.delivery(*warehouse, *carrier, now, store),
            Input::StockLevel(district, threshold) => self.stock_level(*district, *threshold, store),
        }
    }
}

/// The table and the primary key of a row.
#[derive(Clone, Copy)]
struct RowAt<'k> {
    table: TableNo,
    key: &'k Key,
}

/// The carrier and the time of a delivery.
#[derive(Clone, Copy)]
struct Shipment {
    carrier: u8,
    now: i64,
}

/// A range of keys in an index: from `from`, and below `to`.
struct Scan {
    table: TableNo,
    index: usize,
    from: Key,
    to: Key,
}

impl Scan {
    /// Calls `on_row` with each row of the range, until `on_row` breaks or fails.
    fn run(
        &self,
        store: &dyn Store,
        direction: Direction,
        on_row: &mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (from, to) = (Bound::Included(self.from.as_slice()), Bound::Excluded(self.to.as_slice()));
        let mut outcome = Ok(());
        let mut call = |_: &[u8], row: &[u8]| match on_row(row) {
            Ok(flow) => flow,
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        store.scan(self.table, self.index, &KeyRange { from, to }, direction, &mut call).map_err(refused)?;
        outcome
    }
}

/// Returns the range of the lines of an order.
fn lines_of(district: District, order: u32) -> Scan {
    let (from, to) = (district.line_key(order, 0), district.line_key(order, u8::MAX));
    Scan { table: schema::ORDER_LINE, index: 0, from, to }
}

fn missing(table: TableNo, key: &Key) -> BenchError {
    BenchError::Wrong(format!("table {} of TPC-C has no row {:?}", table.number(), key.as_slice()))
}
