//! The consistency conditions of the data. Each condition is a query that counts violations.

use varve_bench::workload::Condition;

const CONDITIONS: [(&str, &str, &str); 4] = [
    (
        "settled",
        "a trade is settled if and only if it is completed",
        "SELECT count(*) FROM bench_e_trade LEFT JOIN bench_e_settlement ON se_t_id = t_id \
         WHERE (t_status = 'CMPT') <> (se_t_id IS NOT NULL)",
    ),
    (
        "waiting",
        "a trade has a request if and only if it is not completed",
        "SELECT count(*) FROM bench_e_trade LEFT JOIN bench_e_request ON tr_t_id = t_id \
         WHERE (t_status <> 'CMPT') <> (tr_t_id IS NOT NULL)",
    ),
    (
        "brokers",
        "a broker counts the completed trades of its accounts",
        "SELECT count(*) FROM bench_e_broker LEFT JOIN (SELECT ca_b_id, count(*) AS n FROM bench_e_trade, bench_e_account \
         WHERE t_ca_id = ca_id AND t_status = 'CMPT' GROUP BY ca_b_id) x ON ca_b_id = b_id WHERE b_trades <> coalesce(n, 0)",
    ),
    (
        "holdings",
        "an account holds what its completed trades bought, less what they sold",
        "SELECT count(*) FROM bench_e_holding LEFT JOIN (SELECT t_ca_id, t_s_id, sum(t_qty) AS n FROM bench_e_trade \
         WHERE t_status = 'CMPT' GROUP BY t_ca_id, t_s_id) x ON t_ca_id = h_ca_id AND t_s_id = h_s_id \
         WHERE n IS NULL OR h_qty <> n",
    ),
];

/// Returns all conditions.
pub(super) fn all() -> Vec<Condition> {
    CONDITIONS
        .iter()
        .map(|(name, says, query)| Condition { name, says, violations: (*query).to_owned() })
        .collect()
}
