//! Tests that the driver runs the transactions of a workload, counts the successful ones, and repeats those
//! that may be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_bench::database::{Connection, MeasuredDatabase, Param, Row, Statement};
use varve_bench::driver::{Plan, histogram, run};
use varve_bench::report::{Configuration, write};
use varve_bench::sysbench::Sysbench;
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

/// A connection that counts calls. If the number of a call divides by ten and the call is a COMMIT, it
/// returns a deadlock.
#[derive(Default)]
struct Mock {
    runs: Arc<AtomicU64>,
    rollbacks: Arc<AtomicU64>,
}

struct MockConnection {
    statements: Vec<Statement>,
    runs: Arc<AtomicU64>,
    rollbacks: Arc<AtomicU64>,
}

impl MeasuredDatabase for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn describe(&self) -> String {
        "mock".to_owned()
    }

    fn connect(&self, statements: &[Statement]) -> Result<Box<dyn Connection>> {
        let (runs, rollbacks) = (Arc::clone(&self.runs), Arc::clone(&self.rollbacks));
        Ok(Box::new(MockConnection { statements: statements.to_vec(), runs, rollbacks }))
    }
}

impl Connection for MockConnection {
    fn simple(&mut self, sql: &str) -> Result<()> {
        if sql == "ROLLBACK" {
            self.rollbacks.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn scalar(&mut self, _sql: &str) -> Result<String> {
        Ok("0".to_owned())
    }

    fn run(&mut self, number: usize, params: &[Param<'_>]) -> Result<u64> {
        let sql = &self.statements[number];
        let places = (1..=9).filter(|place| sql.contains(&format!("${place}"))).count();
        assert_eq!(params.len(), places, "{sql}");
        let count = self.runs.fetch_add(1, Ordering::Relaxed);
        if sql == "COMMIT" && count.is_multiple_of(10) {
            return Err(BenchError::Statement {
                sqlstate: "40P01".to_owned(),
                message: "deadlock detected".to_owned(),
            });
        }
        Ok(1)
    }

    fn rows(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.run(number, params).map(|_| Vec::new())
    }
}

const PLAN: Plan = Plan { threads: 3, rounds: 2, seconds: 1, warm_seconds: 0 };

#[test]
fn counts_transactions_and_restarts() {
    let (target, workload) =
        (Mock::default(), Sysbench::new("oltp_read_write", 2, 100).expect("a known script"));
    let rounds = run(&target, &workload, PLAN).expect("the mock never fails for good");
    assert_eq!(rounds.len(), 2);
    for round in &rounds {
        assert!(round.transactions > 0);
        assert_eq!(round.transactions, round.latency_us.len());
    }
    let restarted: u64 = rounds.iter().map(|round| round.restarted).sum();
    assert!(restarted > 0);
    assert_eq!(restarted, target.rollbacks.load(Ordering::Relaxed));
}

#[test]
fn a_slow_transaction_is_in_the_histogram_as_it_was() {
    let mut latencies = histogram();
    latencies.saturating_record(30_000);
    assert_eq!(latencies.value_at_quantile(0.5) / 100, 300);
}

#[test]
fn rows_carry_the_hash_of_their_configuration() {
    let (target, workload) =
        (Mock::default(), Sysbench::new("oltp_point_select", 1, 10).expect("a known script"));
    let rounds = run(&target, &workload, PLAN).expect("the mock never fails for good");
    let configuration = Configuration::of(&target, &workload, PLAN);
    let mut out = Vec::new();
    write(&mut out, &configuration, &rounds).expect("a vector takes everything");
    let text = String::from_utf8(out).expect("reports are UTF-8");
    let rows: Vec<serde_json::Value> =
        text.lines().take(3).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.iter().all(|row| row["configuration"] == configuration.hash().as_str()));
    let other = Sysbench::new("oltp_point_select", 1, 11).expect("a known script");
    assert_ne!(configuration.hash(), Configuration::of(&target, &other, PLAN).hash());
}

#[test]
fn an_unknown_script_is_refused() {
    assert!(Sysbench::new("oltp_nothing", 1, 1).is_err());
    assert!(!Sysbench::new("oltp_insert", 1, 1).expect("a known script").statements().is_empty());
}
