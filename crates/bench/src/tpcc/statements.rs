//! The statements of the five transactions. A session prepares all statements once, and then runs each one by
//! its index in this list.

use crate::database::Statement;

/// Indexes of the statements in the list. BEGIN has the isolation level of the run.
pub(super) const BEGIN: usize = 0;
pub(super) const COMMIT: usize = 1;
pub(super) const ROLLBACK: usize = 2;

/// Statements of New-Order. RATES reads the customer's discount and the taxes of warehouse and district.
pub(super) const RATES: usize = 3;
pub(super) const TAKE_ORDER_NUMBER: usize = 4;
pub(super) const INSERT_ORDER: usize = 5;
pub(super) const INSERT_NEW_ORDER: usize = 6;
pub(super) const ITEM: usize = 7;
pub(super) const UPDATE_STOCK: usize = 8;
pub(super) const INSERT_LINE: usize = 9;

pub(super) const PAY_WAREHOUSE: usize = 10;
pub(super) const PAY_DISTRICT: usize = 11;
/// Statements of Payment and Order-Status.
pub(super) const CUSTOMERS_BY_NAME: usize = 12;
pub(super) const CUSTOMER_FOR_UPDATE: usize = 13;
pub(super) const PAY_CUSTOMER: usize = 14;
pub(super) const PAY_CUSTOMER_BAD_CREDIT: usize = 15;
pub(super) const INSERT_HISTORY: usize = 16;

pub(super) const CUSTOMER: usize = 17;
pub(super) const NEWEST_ORDER: usize = 18;
pub(super) const LINES: usize = 19;

pub(super) const OLDEST_NEW_ORDER: usize = 20;
pub(super) const DELETE_NEW_ORDER: usize = 21;
pub(super) const DELIVER_ORDER: usize = 22;
pub(super) const DELIVER_LINES: usize = 23;
pub(super) const SUM_OF_LINES: usize = 24;
pub(super) const DELIVER_TO_CUSTOMER: usize = 25;

pub(super) const NEXT_ORDER_NUMBER: usize = 26;
pub(super) const LOW_STOCK: usize = 27;

/// The statement that reads a stock row for an order in district 1. The statements for districts 2 to 10
/// follow.
pub(super) const STOCK_FOR_DISTRICT: usize = 28;

const TEXTS: [&str; 27] = [
    "COMMIT",
    "ROLLBACK",
    "SELECT c_discount, c_last, c_credit, w_tax FROM bench_customer, bench_warehouse \
     WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
    "UPDATE bench_district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id - 1, d_tax",
    "INSERT INTO bench_orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
     VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, $5, $6)",
    "INSERT INTO bench_new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)",
    "SELECT i_price, i_name, i_data FROM bench_item WHERE i_id = $1",
    "UPDATE bench_stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $3 \
     WHERE s_w_id = $4 AND s_i_id = $5",
    "INSERT INTO bench_order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    "UPDATE bench_warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2 \
     RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
    "UPDATE bench_district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3 \
     RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
    "SELECT c_id FROM bench_customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    "SELECT c_credit, c_data, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
     c_credit_lim, c_discount, c_balance FROM bench_customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE",
    "UPDATE bench_customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = c_payment_cnt + 1 \
     WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
    "UPDATE bench_customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = c_payment_cnt + 1, \
     c_data = $5 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
    "INSERT INTO bench_history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data) \
     VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, $6, $7)",
    "SELECT c_balance, c_first, c_middle, c_last FROM bench_customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    "SELECT o_id, o_carrier_id, o_entry_d FROM bench_orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM bench_order_line \
     WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "SELECT no_o_id FROM bench_new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE",
    "DELETE FROM bench_new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
    "UPDATE bench_orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
    "UPDATE bench_order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "SELECT sum(ol_amount) FROM bench_order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "UPDATE bench_customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1 \
     WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    "SELECT d_next_o_id FROM bench_district WHERE d_w_id = $1 AND d_id = $2",
    "SELECT count(DISTINCT s_i_id) FROM bench_order_line, bench_stock \
     WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5",
];

/// Returns all statements, in the order of the constants above.
pub(super) fn all(isolation: &str) -> Vec<Statement> {
    let mut all = vec![format!("BEGIN ISOLATION LEVEL {isolation}")];
    all.extend(TEXTS.map(str::to_owned));
    all.extend((1..=10).map(|district| {
        format!(
            "SELECT s_quantity, s_dist_{district:02}, s_data FROM bench_stock WHERE s_w_id = $1 AND s_i_id = $2 FOR UPDATE"
        )
    }));
    all
}
