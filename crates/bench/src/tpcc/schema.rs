//! The nine tables of TPC-C [1.3]. Their names have a prefix that other tables do not have.

use crate::Result;
use crate::database::Connection;

/// Drops and makes the tables.
pub(super) fn make(connection: &mut dyn Connection) -> Result<()> {
    connection.simple(DROP)?;
    connection.simple(TABLES)
}

/// Makes the indexes other than the primary keys. The load calls this function after it has filled the
/// tables.
pub(super) fn add_indexes(connection: &mut dyn Connection) -> Result<()> {
    connection.simple(INDEXES)
}

/// Declares the relations between the tables as foreign keys.
pub(super) fn add_foreign_keys(connection: &mut dyn Connection) -> Result<()> {
    FOREIGN_KEYS.iter().try_for_each(|(table, columns, parent)| {
        connection.simple(&format!("ALTER TABLE {table} ADD FOREIGN KEY ({columns}) REFERENCES {parent}"))
    })
}

const DROP: &str = "DROP TABLE IF EXISTS bench_order_line, bench_new_order, bench_orders, bench_history, bench_stock, \
                    bench_item, bench_customer, bench_district, bench_warehouse";

const TABLES: &str = "
    CREATE TABLE bench_warehouse (
        w_id integer PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20),
        w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2));
    CREATE TABLE bench_district (
        d_id integer, d_w_id integer, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20), d_city varchar(20),
        d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id integer,
        PRIMARY KEY (d_w_id, d_id));
    CREATE TABLE bench_customer (
        c_id integer, c_d_id integer, c_w_id integer, c_first varchar(16), c_middle char(2), c_last varchar(16),
        c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16),
        c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
        c_ytd_payment numeric(12,2), c_payment_cnt integer, c_delivery_cnt integer, c_data varchar(500),
        PRIMARY KEY (c_w_id, c_d_id, c_id));
    CREATE TABLE bench_history (
        h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer, h_date timestamp,
        h_amount numeric(6,2), h_data varchar(24));
    CREATE TABLE bench_item (
        i_id integer PRIMARY KEY, i_im_id integer, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
    CREATE TABLE bench_stock (
        s_i_id integer, s_w_id integer, s_quantity integer, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24),
        s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24),
        s_dist_10 char(24), s_ytd integer, s_order_cnt integer, s_remote_cnt integer, s_data varchar(50),
        PRIMARY KEY (s_w_id, s_i_id));
    CREATE TABLE bench_orders (
        o_id integer, o_d_id integer, o_w_id integer, o_c_id integer, o_entry_d timestamp, o_carrier_id integer,
        o_ol_cnt integer, o_all_local integer, PRIMARY KEY (o_w_id, o_d_id, o_id));
    CREATE TABLE bench_new_order (
        no_o_id integer, no_d_id integer, no_w_id integer, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
    CREATE TABLE bench_order_line (
        ol_o_id integer, ol_d_id integer, ol_w_id integer, ol_number integer, ol_i_id integer, ol_supply_w_id integer,
        ol_delivery_d timestamp, ol_quantity integer, ol_amount numeric(6,2), ol_dist_info char(24),
        PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));";

const INDEXES: &str = "
    CREATE INDEX bench_customer_name ON bench_customer (c_w_id, c_d_id, c_last, c_first);
    CREATE INDEX bench_orders_customer ON bench_orders (o_w_id, o_d_id, o_c_id, o_id);";

/// The foreign keys: a table, its columns in the key, and the table whose primary key they reference.
const FOREIGN_KEYS: &[(&str, &str, &str)] = &[
    ("bench_district", "d_w_id", "bench_warehouse"),
    ("bench_customer", "c_w_id, c_d_id", "bench_district"),
    ("bench_history", "h_c_w_id, h_c_d_id, h_c_id", "bench_customer"),
    ("bench_history", "h_w_id, h_d_id", "bench_district"),
    ("bench_stock", "s_w_id", "bench_warehouse"),
    ("bench_stock", "s_i_id", "bench_item"),
    ("bench_orders", "o_w_id, o_d_id, o_c_id", "bench_customer"),
    ("bench_new_order", "no_w_id, no_d_id, no_o_id", "bench_orders"),
    ("bench_order_line", "ol_w_id, ol_d_id, ol_o_id", "bench_orders"),
    ("bench_order_line", "ol_supply_w_id, ol_i_id", "bench_stock"),
];
