//! The inputs of transactions [2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1].
//!
//! Invariants
//! 1. The same seed gives the same inputs on every machine.
//!
//! This module does not know rows or stores.

use varve_bench::random::Random;
use varve_bench::tpcc::{Scale, draw};

use super::schema::District;

/// The percentages of New-Order, Payment, Order-Status, Delivery and Stock-Level [5.2.3].
pub const SHARES: [u64; 5] = [45, 43, 4, 4, 4];

/// How an input names a customer.
#[derive(Debug, Clone)]
pub enum CustomerName {
    /// By the customer's number.
    Number(u32),
    /// By last name. If several customers have this name, the middle one is meant.
    Last(String),
}

/// A line of an order.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// The item. In an order that is rolled back, the last line has an item that does not exist.
    pub item: u32,
    /// The warehouse that supplies the item.
    pub supplier: u16,
    /// The number of pieces of the item.
    pub quantity: u8,
}

/// The input of New-Order.
#[derive(Debug, Clone)]
pub struct NewOrder {
    /// The district of the order.
    pub district: District,
    /// The number of the customer.
    pub customer: u32,
    /// The lines of the order.
    pub lines: Vec<Line>,
}

/// The input of Payment.
#[derive(Debug, Clone)]
pub struct Payment {
    /// The district that gets the amount.
    pub district: District,
    /// The district of the customer.
    pub customer_district: District,
    /// The customer who pays.
    pub customer: CustomerName,
    /// The amount in cents.
    pub cents: i64,
}

/// The input of a transaction.
#[derive(Debug, Clone)]
pub enum Input {
    /// New-Order.
    NewOrder(NewOrder),
    /// Payment.
    Payment(Payment),
    /// Order-Status for a customer.
    OrderStatus(District, CustomerName),
    /// Delivery in a warehouse, by a carrier.
    Delivery(u16, u8),
    /// Stock-Level for a district, with a threshold.
    StockLevel(District, i64),
}

impl NewOrder {
    /// Returns whether the order ends with an item that does not exist. Such an order is rolled back.
    pub fn is_rolled_back(&self, scale: &Scale) -> bool {
        self.lines.iter().any(|line| i64::from(line.item) > scale.items)
    }
}

/// Draws the inputs of transactions.
pub fn draw_inputs(scale: &Scale, transactions: usize, seed: u64) -> Vec<Input> {
    let mut drawing = Drawing { scale, random: Random::seeded(seed) };
    (0..transactions).map(|_| drawing.input()).collect()
}

struct Drawing<'s> {
    scale: &'s Scale,
    random: Random,
}

impl Drawing<'_> {
    fn input(&mut self) -> Input {
        let kind = self.random.weighted(&SHARES);
        let warehouse = self.random.between(1, self.scale.warehouses) as u16;
        let district = self.district(warehouse);
        match kind {
            0 => Input::NewOrder(self.new_order(district)),
            1 => Input::Payment(self.payment(district)),
            2 => Input::OrderStatus(district, self.customer_name()),
            3 => Input::Delivery(warehouse, self.random.between(1, 10) as u8),
            _ => Input::StockLevel(district, self.random.between(10, 20)),
        }
    }

    fn district(&mut self, warehouse: u16) -> District {
        District { warehouse, number: self.random.between(1, self.scale.districts) as u8 }
    }

    /// Returns another warehouse of the partition. If there is only one warehouse, it is returned.
    fn remote(&mut self, warehouse: u16) -> u16 {
        if self.scale.warehouses == 1 {
            return warehouse;
        }
        let drawn = self.random.between(1, self.scale.warehouses - 1) as u16;
        if drawn >= warehouse { drawn + 1 } else { drawn }
    }

    /// Draws an order. One item in a hundred comes from another warehouse. One order in a hundred ends with
    /// an item that does not exist [2.4.1.4].
    fn new_order(&mut self, district: District) -> NewOrder {
        let customer = draw::customer(self.scale, &mut self.random) as u32;
        let count = self.random.between(5, 15);
        let is_rolled_back = self.random.below(100) == 0;
        let line = |number| {
            let item = match is_rolled_back && number == count {
                true => self.scale.items + 1,
                false => draw::item(self.scale, &mut self.random),
            };
            let is_remote = self.random.below(100) == 0;
            let supplier = if is_remote { self.remote(district.warehouse) } else { district.warehouse };
            Line { item: item as u32, supplier, quantity: self.random.between(1, 10) as u8 }
        };
        NewOrder { district, customer, lines: (1..=count).map(line).collect() }
    }

    /// Draws a payment. In 15 % of the payments the customer belongs to another warehouse (TPC-C, clause
    /// 2.5.1.2).
    fn payment(&mut self, district: District) -> Payment {
        let is_remote = self.random.below(100) < 15;
        let remote = if is_remote { self.remote(district.warehouse) } else { district.warehouse };
        let customer_district = if is_remote { self.district(remote) } else { district };
        let customer = self.customer_name();
        Payment { district, customer_district, customer, cents: self.random.between(100, 500_000) }
    }

    /// Draws a customer. Six in ten customers are named by their last name.
    fn customer_name(&mut self) -> CustomerName {
        match self.random.below(100) < 60 {
            true => CustomerName::Last(draw::last_name(self.scale, &mut self.random)),
            false => CustomerName::Number(draw::customer(self.scale, &mut self.random) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_standard_mix() {
        let (scale, count) = (Scale::small(2), 100_000);
        let inputs = draw_inputs(&scale, count, 1);
        let kind = |input: &Input| match input {
            Input::NewOrder(_) => 0,
            Input::Payment(_) => 1,
            Input::OrderStatus(..) => 2,
            Input::Delivery(..) => 3,
            Input::StockLevel(..) => 4,
        };
        for (number, share) in SHARES.iter().enumerate() {
            let found = inputs.iter().filter(|input| kind(input) == number).count() as u64;
            assert!(found.abs_diff(1000 * share) < 1000, "{number}: {found}");
        }
        let orders = inputs.iter().filter_map(|input| match input {
            Input::NewOrder(order) => Some(order),
            _ => None,
        });
        let orders: Vec<_> = orders.collect();
        let rolled_back = orders.iter().filter(|order| order.is_rolled_back(&scale)).count();
        assert!(rolled_back.abs_diff(450) < 90, "1 % of 45,000: {rolled_back}");
        let lines: usize = orders.iter().map(|order| order.lines.len()).sum();
        assert!(lines.abs_diff(10 * orders.len()) < orders.len() / 10, "ten lines on average");
    }

    #[test]
    fn a_partition_of_one_warehouse_has_no_remote_one() {
        for input in draw_inputs(&Scale::small(1), 10_000, 1) {
            match input {
                Input::NewOrder(order) => assert!(order.lines.iter().all(|line| line.supplier == 1)),
                Input::Payment(payment) => assert_eq!(payment.customer_district.warehouse, 1),
                _ => {}
            }
        }
    }
}
