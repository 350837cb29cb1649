//! Tests that the consistency conditions of TPC-C hold after a run, in this process and over the protocol.
//! The check must find planted violations.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use varve_bench::check::broken;
use varve_bench::database::{Connection, MeasuredDatabase};
use varve_bench::driver::{Plan, run};
use varve_bench::embedded::{Embedded, open};
use varve_bench::tpcc::{Scale, Tpcc};
use varve_bench::wire::Wire;
use varve_bench::workload::Workload;
use varve_query::{Queries, QueryOptions};
use varve_server::{Listener, Server};

const PLAN: Plan = Plan { threads: 2, rounds: 1, seconds: 1, warm_seconds: 0 };
const POOL_BYTES: usize = 16 << 20;

/// Statements that damage freshly loaded data, and the conditions that they break.
const DAMAGES: &[(&str, &[u32])] = &[
    ("UPDATE bench_warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 1", &[1, 8]),
    ("UPDATE bench_district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3", &[2]),
    ("UPDATE bench_district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 3", &[1, 9]),
    ("DELETE FROM bench_new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 25", &[3, 5, 11]),
    (
        "UPDATE bench_orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 10 AND o_id = 1",
        &[4, 6],
    ),
    ("UPDATE bench_orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1", &[5, 7, 11]),
    (
        "UPDATE bench_order_line SET ol_delivery_d = CURRENT_TIMESTAMP \
         WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 30 AND ol_number = 1",
        &[7, 10, 12],
    ),
    ("DELETE FROM bench_history WHERE h_c_w_id = 1 AND h_c_d_id = 1 AND h_c_id = 1", &[8, 9, 10]),
    (
        "UPDATE bench_customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        &[12],
    ),
];

const NONE: [u32; 0] = [];

/// Returns the numbers of the conditions that do not hold, in order.
fn numbers(workload: &Tpcc, connection: &mut dyn Connection) -> Vec<u32> {
    let found = broken(&workload.conditions(), connection).unwrap();
    let mut numbers: Vec<u32> =
        found.iter().map(|(name, _)| name.rsplit('.').next().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn embedded(test: impl FnOnce(&dyn MeasuredDatabase)) {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), POOL_BYTES).unwrap();
    let general = Arc::new(Queries::new(&QueryOptions::default()).unwrap());
    test(&Embedded::with_general(database.clone(), general, "test"));
    database.shutdown().unwrap();
}

/// Runs the mix, and checks that each kind of transaction ran and that all conditions hold.
fn runs(workload: &Tpcc, target: &dyn MeasuredDatabase) {
    let rounds = run(target, workload, PLAN).unwrap();
    let (frequent, _) = rounds[0].kinds.split_at(2);
    assert!(frequent.iter().all(|(_, latency_us)| !latency_us.is_empty()));
    assert_eq!(rounds[0].kinds.iter().map(|(_, us)| us.len()).sum::<u64>(), rounds[0].transactions);
    assert_eq!(numbers(workload, target.connect(&[]).unwrap().as_mut()), NONE);
}

#[test]
fn the_conditions_hold_and_damage_is_found() {
    embedded(|target| {
        let workload = Tpcc::new(Scale::small(1));
        let mut connection = target.connect(&[]).unwrap();
        workload.load(connection.as_mut()).unwrap();
        assert_eq!(numbers(&workload, connection.as_mut()), NONE);
        for (damage, expected) in DAMAGES {
            connection.simple("BEGIN").unwrap();
            connection.simple(damage).unwrap();
            assert_eq!(numbers(&workload, connection.as_mut()), *expected, "{damage}");
            connection.simple("ROLLBACK").unwrap();
        }
        runs(&workload, target);
    });
}

fn wire(test: impl FnOnce(&dyn MeasuredDatabase)) {
    let directory = tempfile::tempdir().unwrap();
    let database = varve::Embedded::open(directory.path()).unwrap();
    let listener = Listener::open(([127, 0, 0, 1], 0).into()).unwrap();
    let server = Server::start(listener, 5, database.sql().clone()).unwrap();
    test(&Wire::new(&format!("host=127.0.0.1 port={} user=postgres", server.address().port())));
    assert_eq!(server.stop(std::time::Duration::from_secs(10)), 0);
    database.close().unwrap();
}

#[test]
fn over_the_wire() {
    wire(|target| {
        let workload = Tpcc::new(Scale::small(2));
        workload.load(target.connect(&[]).unwrap().as_mut()).unwrap();
        runs(&workload, target);
    });
}
