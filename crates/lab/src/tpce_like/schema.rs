//! The fifteen tables.

/// Drops the tables that an earlier run made.
pub(super) const DROP: &str = "DROP TABLE IF EXISTS bench_e_customer, bench_e_account, bench_e_broker, bench_e_company, \
    bench_e_security, bench_e_daily, bench_e_financial, bench_e_news, bench_e_last_trade, bench_e_watch, bench_e_trade, \
    bench_e_history, bench_e_settlement, bench_e_holding, bench_e_request";

/// Makes the tables. The column `t_qty` is negative for a sale.
pub(super) const TABLES: &str = "
    CREATE TABLE bench_e_customer (c_id bigint PRIMARY KEY, c_name varchar(40), c_data varchar(200));
    CREATE TABLE bench_e_account (
        ca_id bigint PRIMARY KEY, ca_c_id bigint, ca_b_id bigint, ca_name varchar(50), ca_bal numeric(16,2));
    CREATE TABLE bench_e_broker (b_id bigint PRIMARY KEY, b_name varchar(40), b_trades bigint, b_comm numeric(16,2));
    CREATE TABLE bench_e_company (co_id bigint PRIMARY KEY, co_name varchar(60), co_desc varchar(150));
    CREATE TABLE bench_e_security (s_id bigint PRIMARY KEY, s_co_id bigint, s_name varchar(70));
    CREATE TABLE bench_e_daily (
        dm_s_id bigint, dm_day integer, dm_close numeric(8,2), dm_vol bigint, PRIMARY KEY (dm_s_id, dm_day));
    CREATE TABLE bench_e_financial (
        fi_co_id bigint, fi_quarter integer, fi_revenue numeric(16,2), PRIMARY KEY (fi_co_id, fi_quarter));
    CREATE TABLE bench_e_news (ni_co_id bigint, ni_no integer, ni_item varchar(1000), PRIMARY KEY (ni_co_id, ni_no));
    CREATE TABLE bench_e_last_trade (lt_s_id bigint PRIMARY KEY, lt_price numeric(8,2), lt_vol bigint);
    CREATE TABLE bench_e_watch (wi_c_id bigint, wi_s_id bigint, PRIMARY KEY (wi_c_id, wi_s_id));
    CREATE TABLE bench_e_trade (
        t_id bigint PRIMARY KEY, t_ca_id bigint, t_s_id bigint, t_status varchar(4), t_qty bigint, t_price numeric(8,2),
        t_executor varchar(49));
    CREATE TABLE bench_e_history (th_t_id bigint, th_status varchar(4), PRIMARY KEY (th_t_id, th_status));
    CREATE TABLE bench_e_settlement (se_t_id bigint PRIMARY KEY, se_amount numeric(16,2));
    CREATE TABLE bench_e_holding (h_ca_id bigint, h_s_id bigint, h_qty bigint, PRIMARY KEY (h_ca_id, h_s_id));
    CREATE TABLE bench_e_request (tr_queue bigint, tr_t_id bigint, PRIMARY KEY (tr_queue, tr_t_id));";

/// Makes the indexes. The load does this after it has filled the tables.
pub(super) const INDEXES: &str = "
    CREATE INDEX bench_e_account_customer ON bench_e_account (ca_c_id, ca_id);
    CREATE INDEX bench_e_trade_account ON bench_e_trade (t_ca_id, t_id);
    CREATE INDEX bench_e_trade_security ON bench_e_trade (t_s_id, t_id);";
