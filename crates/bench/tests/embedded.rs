//! Tests that every workload runs against an embedded database, and that TPC-B leaves equal sums.

use varve_bench::database::{MeasuredDatabase, Param, Value};
use varve_bench::driver::{Plan, run};
use varve_bench::embedded::{Embedded, open};
use varve_bench::sysbench::{SCRIPTS, Sysbench};
use varve_bench::tpcb::Tpcb;
use varve_bench::tpcc::{Scale, Tpcc};
use varve_bench::values::Values;
use varve_bench::workload::Workload;
use varve_bench::ycsb::Ycsb;

const PLAN: Plan = Plan { threads: 3, rounds: 1, seconds: 1, warm_seconds: 0 };
const POOL_BYTES: usize = 16 << 20;

/// Loads, runs and verifies each workload on one new database. Returns the number of transactions of each.
fn run_all(workloads: &[Box<dyn Workload>]) -> Vec<u64> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let target = Embedded::new(database.clone(), "test");
    let mut connection = target.connect(&[]).expect("a session");
    let mut counts = Vec::new();
    for workload in workloads {
        let fail = |what: &str, error| -> ! { panic!("{}: {what}: {error}", workload.name()) };
        workload.load(connection.as_mut()).unwrap_or_else(|error| fail("load", error));
        let rounds = run(&target, workload.as_ref(), PLAN).unwrap_or_else(|error| fail("run", error));
        workload.verify(connection.as_mut()).unwrap_or_else(|error| fail("verify", error));
        counts.push(rounds.iter().map(|round| round.transactions).sum());
    }
    drop(connection);
    drop(target);
    database.shutdown().expect("a clean shutdown");
    counts
}

#[test]
fn sysbench() {
    let all = SCRIPTS.iter().map(|(name, _)| Sysbench::new(name, 2, 500).expect("a known script"));
    let all: Vec<Box<dyn Workload>> = all.map(|one| Box::new(one) as Box<dyn Workload>).collect();
    assert!(run_all(&all).iter().all(|count| *count > 0));
}

#[test]
fn tpcb() {
    assert!(run_all(&[Box::new(Tpcb::small(2, 1000))])[0] > 0);
}

/// All statements of TPC-C are short statements. Its conditions are general queries, which tests of the
/// program `varve` check.
#[test]
fn tpcc() {
    let workload = Tpcc::new(Scale::small(2)).foreign_keys(true).isolation("serializable");
    assert!(run_all(&[Box::new(workload)])[0] > 0);
}

fn compressible() -> Ycsb {
    let values = Values::named("motif", 0.45).expect("a share");
    Ycsb::new('a', 500).expect("a known letter").values(values).theta(0.8).expect("a skew")
}

#[test]
fn what_ycsb_writes_is_in_its_settings() {
    let plain = Ycsb::new('a', 500).expect("a known letter").settings();
    assert_eq!(
        (plain["values"].as_str(), plain["keys"].as_str()),
        (Some("letters"), Some("zipfian 0.99, scrambled"))
    );
    let other = compressible().settings();
    assert_eq!(other["values"], "motif, uniqueness 0.45");
    assert_eq!(other["keys"], "zipfian 0.8, scrambled");
    assert!(Ycsb::new('a', 500).expect("a known letter").theta(1.0).is_err());
}

#[test]
fn ycsb() {
    let all = "abcdef".chars().map(|letter| Ycsb::new(letter, 500).expect("a known letter"));
    let mut all: Vec<Box<dyn Workload>> = all.map(|one| Box::new(one) as Box<dyn Workload>).collect();
    all.push(Box::new(compressible()));
    assert!(run_all(&all).iter().all(|count| *count > 0));
}

#[test]
fn bytes_go_in_and_come_out() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let target = Embedded::new(database, "test");
    target
        .connect(&[])
        .expect("a session")
        .simple("CREATE TABLE t (id bigint PRIMARY KEY, b bytea)")
        .expect("a table");
    let statements = ["INSERT INTO t VALUES ($1, $2)".to_owned(), "SELECT b FROM t WHERE id = $1".to_owned()];
    let mut c = target.connect(&statements).expect("a session");
    let bytes = [0, 39, 92, 255, 10];
    c.run(0, &[Param::Int(1), Param::Bytes(&bytes)]).expect("a row");
    assert_eq!(c.rows(1, &[Param::Int(1)]).expect("the row"), [[Value::Bytes(bytes.to_vec())]]);
}
