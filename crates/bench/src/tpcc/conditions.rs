//! The twelve consistency conditions of TPC-C [3.3.2]. Each condition is a query that counts violations.

use super::Scale;
use crate::workload::Condition;

/// Returns all twelve conditions. The specification states the eleventh for the loaded database, where seven
/// in ten orders are delivered. Here the eleventh also counts the orders that were delivered after the load.
pub(super) fn all(scale: &Scale) -> Vec<Condition> {
    let eleventh = ORDERS_WAITING.replace("{delivered}", &scale.delivered().to_string());
    CONDITIONS
        .iter()
        .map(|(name, says, query)| Condition { name, says, violations: (*query).to_owned() })
        .chain([Condition {
            name: "3.3.2.11",
            says: "orders - new orders = delivered orders, of which the load made seven in ten customers",
            violations: eleventh,
        }])
        .collect()
}

/// The name, meaning and query of each condition but the eleventh.
const CONDITIONS: [(&str, &str, &str); 11] = [
    (
        "3.3.2.1",
        "w_ytd = sum(d_ytd)",
        "SELECT count(*) FROM bench_warehouse LEFT JOIN \
         (SELECT d_w_id, sum(d_ytd) AS ytd FROM bench_district GROUP BY d_w_id) d ON d_w_id = w_id \
         WHERE ytd IS DISTINCT FROM w_ytd",
    ),
    (
        "3.3.2.2",
        "d_next_o_id - 1 = max(o_id) = max(no_o_id)",
        "SELECT count(*) FROM bench_district LEFT JOIN \
         (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM bench_orders GROUP BY o_w_id, o_d_id) o \
         ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN \
         (SELECT no_w_id, no_d_id, max(no_o_id) AS waiting FROM bench_new_order GROUP BY no_w_id, no_d_id) n \
         ON no_w_id = d_w_id AND no_d_id = d_id \
         WHERE newest IS DISTINCT FROM d_next_o_id - 1 OR waiting <> d_next_o_id - 1",
    ),
    (
        "3.3.2.3",
        "max(no_o_id) - min(no_o_id) + 1 = new orders of the district",
        "SELECT count(*) FROM (SELECT no_w_id FROM bench_new_order GROUP BY no_w_id, no_d_id \
         HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) gaps",
    ),
    (
        "3.3.2.4",
        "sum(o_ol_cnt) = order lines of the district",
        "SELECT count(*) FROM \
         (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS lines FROM bench_orders GROUP BY o_w_id, o_d_id) o FULL JOIN \
         (SELECT ol_w_id, ol_d_id, count(*) AS found FROM bench_order_line GROUP BY ol_w_id, ol_d_id) l \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE found IS DISTINCT FROM lines",
    ),
    (
        "3.3.2.5",
        "o_carrier_id is null if and only if there is a new order",
        "SELECT count(*) FROM bench_orders LEFT JOIN bench_new_order \
         ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        "3.3.2.6",
        "o_ol_cnt = lines of the order",
        "SELECT count(*) FROM bench_orders LEFT JOIN \
         (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS found FROM bench_order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE found IS DISTINCT FROM o_ol_cnt",
    ),
    (
        "3.3.2.7",
        "ol_delivery_d is null if and only if o_carrier_id is",
        "SELECT count(*) FROM bench_order_line LEFT JOIN bench_orders \
         ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
         WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    ),
    (
        "3.3.2.8",
        "w_ytd = sum(h_amount)",
        "SELECT count(*) FROM bench_warehouse LEFT JOIN \
         (SELECT h_w_id, sum(h_amount) AS paid FROM bench_history GROUP BY h_w_id) h ON h_w_id = w_id \
         WHERE paid IS DISTINCT FROM w_ytd",
    ),
    (
        "3.3.2.9",
        "d_ytd = sum(h_amount)",
        "SELECT count(*) FROM bench_district LEFT JOIN \
         (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM bench_history GROUP BY h_w_id, h_d_id) h \
         ON h_w_id = d_w_id AND h_d_id = d_id WHERE paid IS DISTINCT FROM d_ytd",
    ),
    (
        "3.3.2.10",
        "c_balance = sum(ol_amount) of delivered lines - sum(h_amount)",
        "SELECT count(*) FROM bench_customer LEFT JOIN \
         (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS bought FROM bench_orders, bench_order_line \
         WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL \
         GROUP BY o_w_id, o_d_id, o_c_id) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id LEFT JOIN \
         (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM bench_history \
         GROUP BY h_c_w_id, h_c_d_id, h_c_id) h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
         WHERE c_balance <> coalesce(bought, 0) - coalesce(paid, 0)",
    ),
    (
        "3.3.2.12",
        "c_balance + c_ytd_payment = sum(ol_amount) of delivered lines",
        "SELECT count(*) FROM bench_customer LEFT JOIN \
         (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS bought FROM bench_orders, bench_order_line \
         WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL \
         GROUP BY o_w_id, o_d_id, o_c_id) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
         WHERE c_balance + c_ytd_payment <> coalesce(bought, 0)",
    ),
];

const ORDERS_WAITING: &str = "SELECT count(*) FROM \
    (SELECT o_w_id, o_d_id, count(*) AS made, count(o_carrier_id) AS delivered FROM bench_orders GROUP BY o_w_id, o_d_id) o \
    LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS waiting FROM bench_new_order GROUP BY no_w_id, no_d_id) n \
    ON no_w_id = o_w_id AND no_d_id = o_d_id \
    WHERE made - coalesce(waiting, 0) <> delivered OR delivered < {delivered}";
