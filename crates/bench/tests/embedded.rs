//! Every workload runs against an embedded database, and TPC-B leaves equal sums.

use varve_bench::driver::{Plan, run};
use varve_bench::embedded::{Embedded, open};
use varve_bench::linkbench::LinkBench;
use varve_bench::random::Random;
use varve_bench::sysbench::{SCRIPTS, Sysbench};
use varve_bench::target::{Param, Target, Value};
use varve_bench::tpcb::Tpcb;
use varve_bench::tpcc::{Scale, Tpcc};
use varve_bench::tpce_like::TpceLike;
use varve_bench::values::Values;
use varve_bench::workload::Workload;
use varve_bench::ycsb::Ycsb;

const PLAN: Plan = Plan { threads: 3, rounds: 1, seconds: 1, warm_seconds: 0 };
const POOL_BYTES: usize = 16 << 20;

/// Loads, runs and verifies each workload on one fresh database; gives the transactions of each.
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

/// Its statements are all of the kind that needs nobody else; its conditions are tested with the program.
#[test]
fn tpcc() {
    let workload = Tpcc::new(Scale::small(2)).foreign_keys(true).isolation("serializable");
    assert!(run_all(&[Box::new(workload)])[0] > 0);
}

/// Every one of its transactions runs on the fast path and keeps the sums; a trade that nobody settled is noticed.
#[test]
fn tpce_like() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let target = Embedded::new(database, "test");
    let workload = TpceLike::new(20).expect("enough customers");
    let mut setup = target.connect(&[]).expect("a session");
    workload.load(setup.as_mut()).expect("a load");
    workload.verify(setup.as_mut()).expect("loaded sums");
    let mut c = target.connect(&workload.statements()).expect("a session");
    let mut random = Random::seeded(1);
    for (kind, named) in workload.kinds().iter().enumerate() {
        for _ in 0..20 {
            let done = workload.transaction(kind, c.as_mut(), &mut random);
            done.unwrap_or_else(|error| panic!("{}: {error}", named.name));
        }
    }
    // 20 results of 128 waiting orders, and 2000 loaded trades.
    let settled = setup.scalar("SELECT count(*) FROM bench_e_settlement").expect("a count");
    assert_eq!(settled, (2000 - 128 + 20).to_string());
    let rounds = run(&target, &workload, PLAN).expect("a round");
    assert!(rounds[0].transactions > 0);
    workload.verify(setup.as_mut()).expect("equal sums");
    setup.simple("DELETE FROM bench_e_settlement WHERE se_t_id = 7").expect("damage");
    assert!(workload.verify(setup.as_mut()).is_err());
}

/// The same seed draws the same kinds, in TPC-E's shares.
#[test]
fn tpce_like_has_the_shares_of_tpc_e() {
    let workload = TpceLike::new(20).expect("enough customers");
    let (mut random, mut drawn) = (Random::seeded(1), [0u32; 10]);
    for _ in 0..200_000 {
        drawn[workload.next_kind(&mut random)] += 1;
    }
    let shares = [10.1, 10.0, 8.0, 2.0, 19.0, 13.0, 4.9, 14.0, 1.0, 18.0];
    for ((kind, drawn), share) in workload.kinds().iter().zip(drawn).zip(shares) {
        let found = f64::from(drawn) / 2000.0;
        assert!((found - share).abs() < 0.3, "{}: {found} %, not {share} %", kind.name);
    }
    assert!(TpceLike::new(1).is_err());
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
fn linkbench() {
    let workload = LinkBench::new(300).expect("enough nodes");
    assert!(run_all(&[Box::new(workload)])[0] > 0);
    assert!(LinkBench::new(1).is_err());
}

/// Each request once, with what it must leave behind; afterwards a wrong count is found.
#[test]
fn linkbench_requests_do_what_they_say() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let workload = LinkBench::new(300).expect("enough nodes");
    let target = Embedded::new(database, "test");
    workload.load(target.connect(&[]).expect("a session").as_mut()).expect("a loaded graph");
    let mut c = target.connect(&workload.statements()).expect("a session");
    let count = |c: &mut dyn varve_bench::target::Connection, sql: &str| -> i64 {
        c.scalar(sql).expect("a value").parse().expect("a number")
    };
    let nodes = "SELECT count(*) FROM nodetable";
    let updated = "SELECT count(*) FROM nodetable WHERE version = 2";
    let hidden = "SELECT count(*) FROM linktable WHERE visibility = 0";
    let links = "SELECT count(*) FROM linktable";
    let mut random = Random::seeded(1);
    let before = [nodes, updated, hidden, links].map(|sql| count(c.as_mut(), sql));
    assert_eq!(before, [300, 0, 0, workload.settings()["links"].as_i64().expect("a number")]);
    for (kind, times) in [(7, 20), (8, 20), (1, 30), (0, 30), (2, 5)] {
        for _ in 0..times {
            workload.transaction(kind, c.as_mut(), &mut random).expect("a request");
        }
        workload.verify(c.as_mut()).expect("counts that agree");
    }
    let after = [nodes, updated, hidden, links].map(|sql| count(c.as_mut(), sql));
    assert_eq!(after[0], 320);
    assert!(after[1] > 0 && after[2] > 0 && after[3] > before[3], "{after:?}");
    for _ in 0..50 {
        workload.transaction(9, c.as_mut(), &mut random).expect("a request");
    }
    assert!(count(c.as_mut(), nodes) < 320);
    c.simple("UPDATE counttable SET count = count + 1").expect("an update");
    assert!(workload.verify(c.as_mut()).is_err());
}

/// Half of the requests are this one: it must find its links in order, and read no more than them.
#[test]
fn linkbench_lists_links_by_their_index() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let target = Embedded::new(database, "test");
    let workload = LinkBench::new(10).expect("enough nodes");
    let mut c = target.connect(&[]).expect("a session");
    workload.load(c.as_mut()).expect("a loaded graph");
    let statements = workload.statements();
    let list = statements.iter().find(|sql| sql.contains("ORDER BY time")).expect("the list's statement");
    let list = list.replace("$1", "1").replace("$2", "123456789");
    let plan = c.scalar(&format!("EXPLAIN (FORMAT JSON) {list}")).expect("a plan");
    assert!(plan.contains("id1_type") && plan.contains("Backward") && !plan.contains("Sort"), "{plan}");
}

/// The shares are those of the properties file, a request's kind by a request's kind.
#[test]
fn linkbench_asks_in_facebooks_shares() {
    let workload = LinkBench::new(300).expect("enough nodes");
    let (mut random, mut drawn) = (Random::seeded(1), [0u32; 10]);
    for _ in 0..200_000 {
        drawn[workload.next_kind(&mut random)] += 1;
    }
    let shares = [8.99, 2.99, 8.01, 4.89, 0.53, 50.71, 12.93, 2.57, 7.37, 1.01];
    for ((kind, drawn), share) in workload.kinds().iter().zip(drawn).zip(shares) {
        let found = f64::from(drawn) / 2000.0;
        assert!((found - share).abs() < 0.3, "{}: {found} %, not {share} %", kind.name);
    }
    assert!(workload.deviations().iter().any(|said| said.contains("4.10 there")));
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
