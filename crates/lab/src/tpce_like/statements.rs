//! The statements. A session prepares all statements once, and then runs each one by its index in this list.

use varve_bench::database::Statement;

pub(super) const BEGIN: usize = 0;
pub(super) const COMMIT: usize = 1;
pub(super) const ROLLBACK: usize = 2;
pub(super) const NEWEST_TRADE: usize = 3;
pub(super) const CUSTOMER: usize = 4;
pub(super) const ACCOUNTS: usize = 5;
pub(super) const ACCOUNT: usize = 6;
pub(super) const BROKER: usize = 7;
pub(super) const SECURITY: usize = 8;
pub(super) const COMPANY: usize = 9;
pub(super) const LAST_TRADE: usize = 10;
pub(super) const HOLDING: usize = 11;
pub(super) const HOLDINGS: usize = 12;
pub(super) const INSERT_TRADE: usize = 13;
pub(super) const INSERT_HISTORY: usize = 14;
pub(super) const INSERT_REQUEST: usize = 15;
pub(super) const OLDEST_REQUEST: usize = 16;
pub(super) const DELETE_REQUEST: usize = 17;
pub(super) const COMPLETE: usize = 18;
pub(super) const PAY: usize = 19;
pub(super) const CHANGE_HOLDING: usize = 20;
pub(super) const INSERT_HOLDING: usize = 21;
pub(super) const INSERT_SETTLEMENT: usize = 22;
pub(super) const CREDIT_BROKER: usize = 23;
pub(super) const TRADE: usize = 24;
pub(super) const HISTORY: usize = 25;
pub(super) const SETTLEMENT: usize = 26;
pub(super) const CHANGE_EXECUTOR: usize = 27;
pub(super) const TRADES_OF_ACCOUNT: usize = 28;
pub(super) const TRADES_OF_SECURITY: usize = 29;
pub(super) const REQUESTS: usize = 30;
pub(super) const DAYS: usize = 31;
pub(super) const DAY: usize = 32;
pub(super) const FINANCIALS: usize = 33;
pub(super) const NEWS: usize = 34;
pub(super) const FEED: usize = 35;
pub(super) const WATCHED: usize = 36;

const TEXTS: [&str; 37] = [
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SELECT t_id FROM bench_e_trade ORDER BY t_id DESC LIMIT 1",
    "SELECT c_name, c_data FROM bench_e_customer WHERE c_id = $1",
    "SELECT ca_id, ca_bal FROM bench_e_account WHERE ca_c_id = $1 ORDER BY ca_id",
    "SELECT ca_c_id, ca_b_id, ca_name, ca_bal FROM bench_e_account WHERE ca_id = $1",
    "SELECT b_name, b_trades, b_comm FROM bench_e_broker WHERE b_id = $1",
    "SELECT s_co_id, s_name FROM bench_e_security WHERE s_id = $1",
    "SELECT co_name, co_desc FROM bench_e_company WHERE co_id = $1",
    "SELECT lt_price, lt_vol FROM bench_e_last_trade WHERE lt_s_id = $1",
    "SELECT h_qty FROM bench_e_holding WHERE h_ca_id = $1 AND h_s_id = $2",
    "SELECT h_s_id, h_qty FROM bench_e_holding WHERE h_ca_id = $1",
    "INSERT INTO bench_e_trade (t_id, t_ca_id, t_s_id, t_status, t_qty, t_price, t_executor) \
     VALUES ($1, $2, $3, 'SBMT', $4, $5, $6)",
    "INSERT INTO bench_e_history (th_t_id, th_status) VALUES ($1, $2)",
    "INSERT INTO bench_e_request (tr_queue, tr_t_id) VALUES ($1, $2)",
    "SELECT tr_t_id FROM bench_e_request WHERE tr_queue = $1 ORDER BY tr_t_id LIMIT 1 FOR UPDATE",
    "DELETE FROM bench_e_request WHERE tr_queue = $1 AND tr_t_id = $2",
    "UPDATE bench_e_trade SET t_status = 'CMPT' WHERE t_id = $1 RETURNING t_ca_id, t_s_id, t_qty, t_price",
    "UPDATE bench_e_account SET ca_bal = ca_bal + $1 WHERE ca_id = $2 RETURNING ca_b_id",
    "UPDATE bench_e_holding SET h_qty = h_qty + $1 WHERE h_ca_id = $2 AND h_s_id = $3 RETURNING h_qty",
    "INSERT INTO bench_e_holding (h_ca_id, h_s_id, h_qty) VALUES ($1, $2, $3)",
    "INSERT INTO bench_e_settlement (se_t_id, se_amount) VALUES ($1, $2)",
    "UPDATE bench_e_broker SET b_trades = b_trades + 1, b_comm = b_comm + 1 WHERE b_id = $1",
    "SELECT t_ca_id, t_s_id, t_status, t_qty, t_price, t_executor FROM bench_e_trade WHERE t_id = $1",
    "SELECT th_status FROM bench_e_history WHERE th_t_id = $1",
    "SELECT se_amount FROM bench_e_settlement WHERE se_t_id = $1",
    "UPDATE bench_e_trade SET t_executor = $2 WHERE t_id = $1",
    "SELECT t_id, t_s_id, t_status, t_qty, t_price FROM bench_e_trade WHERE t_ca_id = $1 ORDER BY t_id DESC LIMIT 50",
    "SELECT t_id, t_ca_id, t_status, t_qty, t_price FROM bench_e_trade WHERE t_s_id = $1 ORDER BY t_id DESC LIMIT 20",
    "SELECT tr_t_id FROM bench_e_request WHERE tr_queue = $1",
    "SELECT dm_day, dm_close, dm_vol FROM bench_e_daily WHERE dm_s_id = $1 AND dm_day >= $2 AND dm_day < $3",
    "SELECT dm_close FROM bench_e_daily WHERE dm_s_id = $1 AND dm_day = $2",
    "SELECT fi_quarter, fi_revenue FROM bench_e_financial WHERE fi_co_id = $1",
    "SELECT ni_no, ni_item FROM bench_e_news WHERE ni_co_id = $1",
    "UPDATE bench_e_last_trade SET lt_price = $2, lt_vol = lt_vol + $3 WHERE lt_s_id = $1",
    "SELECT wi_s_id FROM bench_e_watch WHERE wi_c_id = $1",
];

/// Returns all statements, in the order of the constants above.
pub(super) fn all() -> Vec<Statement> {
    TEXTS.map(str::to_owned).into()
}
