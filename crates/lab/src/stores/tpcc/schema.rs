//! The nine tables of TPC-C [1.3]: their columns, and the keys of their indexes.
//!
//! | table | primary key | second index |
//! |---|---|---|
//! | warehouse | warehouse | |
//! | district | warehouse, district | |
//! | customer | warehouse, district, customer | warehouse, district, last name, first name, customer |
//! | history | warehouse, number of the payment | |
//! | item | item | |
//! | stock | warehouse, item | |
//! | orders | warehouse, district, order | warehouse, district, customer, order |
//! | new_order | warehouse, district, order | |
//! | order_line | warehouse, district, order, line | |
//!
//! Invariants
//! 1. Money is in cents, rates are in ten-thousandths, and a missing carrier or time is 0.
//! 2. The constants of tables are the numbers that a new store gives them.
//!
//! This module does not know values.

use varve_bench::{BenchError, Result};
use varve_memory::{Store, TableNo};

use super::super::load::refused;
use super::super::partition::table_owner;
use super::row::{Column, Key, span};

/// The table of warehouses.
pub const WAREHOUSE: TableNo = TableNo::new(0);
/// The table of districts.
pub const DISTRICT: TableNo = TableNo::new(1);
/// The table of customers.
pub const CUSTOMER: TableNo = TableNo::new(2);
/// The table of payments.
pub const HISTORY: TableNo = TableNo::new(3);
/// The table of items.
pub const ITEM: TableNo = TableNo::new(4);
/// The table of stock.
pub const STOCK: TableNo = TableNo::new(5);
/// The table of orders.
pub const ORDERS: TableNo = TableNo::new(6);
/// The table of orders that wait for their delivery.
pub const NEW_ORDER: TableNo = TableNo::new(7);
/// The table of order lines.
pub const ORDER_LINE: TableNo = TableNo::new(8);

/// The number of indexes of each table, including its primary key.
const INDEXES: [usize; 9] = [1, 1, 2, 1, 1, 1, 2, 1, 1];
/// The number of the second index of customers and of orders.
pub const SECOND: usize = 1;

const WAREHOUSE_BYTES: usize = 2;
const DISTRICT_BYTES: usize = WAREHOUSE_BYTES + 1;
const NUMBER_BYTES: usize = 4;
const ROW_BYTES: usize = DISTRICT_BYTES + NUMBER_BYTES;

/// Columns of a warehouse.
pub mod warehouse {
    use super::{Column, WAREHOUSE_BYTES};
    /// The sum of the payments so far.
    pub const YTD: Column = Column::behind_key(WAREHOUSE_BYTES, 8);
    /// The tax rate.
    pub const TAX: Column = YTD.then(2);
}

/// Columns of a district.
pub mod district {
    use super::{Column, DISTRICT_BYTES};
    /// The sum of the payments so far.
    pub const YTD: Column = Column::behind_key(DISTRICT_BYTES, 8);
    /// The number of the next order.
    pub const NEXT_ORDER: Column = YTD.then(4);
    /// The tax rate.
    pub const TAX: Column = NEXT_ORDER.then(2);
}

/// Columns of a customer.
pub mod customer {
    use super::{Column, ROW_BYTES};
    /// The amount that the customer owes.
    pub const BALANCE: Column = Column::behind_key(ROW_BYTES, 8);
    /// The sum of the payments so far.
    pub const YTD_PAYMENT: Column = BALANCE.then(8);
    /// The number of payments.
    pub const PAYMENTS: Column = YTD_PAYMENT.then(4);
    /// The number of deliveries.
    pub const DELIVERIES: Column = PAYMENTS.then(4);
    /// The credit limit.
    pub const CREDIT_LIMIT: Column = DELIVERIES.then(8);
    /// The discount.
    pub const DISCOUNT: Column = CREDIT_LIMIT.then(2);
    /// The time at which the customer became a customer.
    pub const SINCE: Column = DISCOUNT.then(8);
    /// 1 for bad credit, 0 for good credit.
    pub const IS_BAD: Column = SINCE.then(1);
    /// The offset at which the texts begin: first name, last name, address, phone, data.
    pub const TEXTS_AT: usize = IS_BAD.end();
    /// The number of the text with the first name.
    pub const FIRST_NAME: usize = 0;
    /// The number of the text with the last name.
    pub const LAST_NAME: usize = 1;
    /// The number of the text with other data.
    pub const DATA: usize = 9;
    /// Bytes of the longest text with other data.
    pub const DATA_BYTES_MAX: usize = 500;
}

/// Columns of a payment.
pub mod history {
    use super::{Column, NUMBER_BYTES, WAREHOUSE_BYTES};
    /// The amount of the payment.
    pub const AMOUNT: Column = Column::behind_key(WAREHOUSE_BYTES + NUMBER_BYTES, 8);
    /// The time of the payment.
    pub const PAID_AT: Column = AMOUNT.then(8);
    /// The district that got the payment.
    pub const DISTRICT: Column = PAID_AT.then(1);
    /// The warehouse of the customer.
    pub const CUSTOMER_WAREHOUSE: Column = DISTRICT.then(2);
    /// The district of the customer.
    pub const CUSTOMER_DISTRICT: Column = CUSTOMER_WAREHOUSE.then(1);
    /// The number of the customer.
    pub const CUSTOMER: Column = CUSTOMER_DISTRICT.then(4);
}

/// Columns of an item.
pub mod item {
    use super::{Column, NUMBER_BYTES};
    /// The price.
    pub const PRICE: Column = Column::behind_key(NUMBER_BYTES, 4);
    /// The number of the image.
    pub const IMAGE: Column = PRICE.then(4);
}

/// Columns of stock.
pub mod stock {
    use super::{Column, NUMBER_BYTES, WAREHOUSE_BYTES};
    /// The number of pieces in stock.
    pub const QUANTITY: Column = Column::behind_key(WAREHOUSE_BYTES + NUMBER_BYTES, 4);
    /// The number of pieces sold so far.
    pub const YTD: Column = QUANTITY.then(4);
    /// The number of order lines so far.
    pub const ORDERS: Column = YTD.then(4);
    /// The number of these lines whose order is from another warehouse.
    pub const REMOTE_ORDERS: Column = ORDERS.then(4);
    /// The offset at which the ten texts for districts begin. They have the same length.
    pub const TEXTS_AT: usize = REMOTE_ORDERS.end();
    /// Bytes of the text for one district.
    pub const DISTRICT_INFO_BYTES: usize = 24;
}

/// Columns of an order.
pub mod orders {
    use super::{Column, ROW_BYTES};
    /// The number of the customer.
    pub const CUSTOMER: Column = Column::behind_key(ROW_BYTES, 4);
    /// The time of the order.
    pub const ENTERED_AT: Column = CUSTOMER.then(8);
    /// The carrier. It is 0 if the order waits for its delivery.
    pub const CARRIER: Column = ENTERED_AT.then(1);
    /// The number of lines.
    pub const LINES: Column = CARRIER.then(1);
    /// Whether all items are from the order's warehouse.
    pub const IS_LOCAL: Column = LINES.then(1);
}

/// Columns of a line of an order.
pub mod order_line {
    use super::{Column, ROW_BYTES};
    /// The number of the item.
    pub const ITEM: Column = Column::behind_key(ROW_BYTES + 1, 4);
    /// The warehouse that supplies the item.
    pub const SUPPLIER: Column = ITEM.then(2);
    /// The time of the delivery. It is 0 if the order waits for it.
    pub const DELIVERED_AT: Column = SUPPLIER.then(8);
    /// The number of pieces.
    pub const QUANTITY: Column = DELIVERED_AT.then(1);
    /// The amount of the line.
    pub const AMOUNT: Column = QUANTITY.then(4);
}

/// A district of a warehouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct District {
    /// The number of the warehouse, counted from 1.
    pub warehouse: u16,
    /// The number of the district in the warehouse, counted from 1.
    pub number: u8,
}

impl District {
    /// Returns the primary key of the district. The keys of its customers, orders and lines begin with it.
    pub fn key(self) -> Key {
        warehouse_key(self.warehouse).byte(self.number)
    }

    /// Returns the key of a customer, of an order, or of a new order.
    pub fn row_key(self, number: u32) -> Key {
        self.key().number(number)
    }

    /// Returns the key of a line of an order.
    pub fn line_key(self, order: u32, line: u8) -> Key {
        self.row_key(order).byte(line)
    }

    /// Returns the key of an order in the index by customer.
    pub fn customer_order_key(self, customer: u32, order: u32) -> Key {
        self.row_key(customer).number(order)
    }

    /// Returns the beginning of the keys of all customers with this last name.
    pub fn name_key(self, last: &[u8]) -> Key {
        self.key().text(last)
    }
}

/// Returns the primary key of a warehouse.
pub fn warehouse_key(warehouse: u16) -> Key {
    Key::EMPTY.bytes(&warehouse.to_be_bytes())
}

/// Returns the primary key of a stock row, or of a payment.
pub fn warehouse_row_key(warehouse: u16, number: u32) -> Key {
    warehouse_key(warehouse).number(number)
}

/// Returns the district in the primary key of a row.
///
/// Errors: the row is too short.
pub fn district_of(row: &[u8]) -> Result<District> {
    match *span(row, 0..DISTRICT_BYTES)? {
        [high, low, number] => Ok(District { warehouse: u16::from_be_bytes([high, low]), number }),
        _ => Err(BenchError::Wrong("a key of TPC-C is too short".to_owned())),
    }
}

/// Returns the number of the customer or of the order in the primary key of a row.
///
/// Errors: the row is too short.
pub fn number_of(row: &[u8]) -> Result<u32> {
    let bytes = span(row, DISTRICT_BYTES..ROW_BYTES)?.first_chunk();
    Ok(bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes)))
}

/// Makes the tables.
pub fn create(store: &mut dyn Store) -> Result<()> {
    for (number, indexes) in (0..).zip(INDEXES) {
        let table = store.create_table(table_owner(number)?, indexes).map_err(refused)?;
        if table != TableNo::new(number) {
            return Err(BenchError::Wrong(format!("the store gave table {number} another number")));
        }
    }
    Ok(())
}
