//! Tests of LinkBench: its requests work, and its consistency conditions hold afterwards, in this process and
//! over the protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use varve_bench::check::broken;
use varve_bench::database::{Connection, MeasuredDatabase};
use varve_bench::driver::{Plan, run};
use varve_bench::embedded::{Embedded, open};
use varve_bench::random::Random;
use varve_bench::wire::Wire;
use varve_bench::workload::Workload;
use varve_lab::linkbench::LinkBench;
use varve_query::{Queries, QueryOptions};
use varve_server::{Listener, Server};

const PLAN: Plan = Plan { threads: 2, rounds: 1, seconds: 1, warm_seconds: 0 };
const POOL_BYTES: usize = 16 << 20;

fn embedded(test: impl FnOnce(&dyn MeasuredDatabase)) {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), POOL_BYTES).unwrap();
    let general = Arc::new(Queries::new(&QueryOptions::default()).unwrap());
    test(&Embedded::with_general(database.clone(), general, "test"));
    database.shutdown().unwrap();
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

fn leaves_what_it_promises(target: &dyn MeasuredDatabase) {
    let workload = LinkBench::new(300).unwrap();
    let mut connection = target.connect(&[]).unwrap();
    workload.load(connection.as_mut()).unwrap();
    let rounds = run(target, &workload, PLAN).unwrap();
    assert!(rounds[0].transactions > 0);
    workload.verify(connection.as_mut()).unwrap();
    assert_eq!(broken(&workload.conditions(), connection.as_mut()).unwrap(), []);
    // The sum of the counts does not change.
    connection.simple("UPDATE counttable SET count = count + 1 WHERE id = (SELECT min(id) FROM counttable WHERE count > 0)").unwrap();
    connection.simple("UPDATE counttable SET count = count - 1 WHERE id = (SELECT max(id) FROM counttable WHERE count > 0)").unwrap();
    assert_eq!(broken(&workload.conditions(), connection.as_mut()).unwrap().len(), 1);
}

#[test]
fn embedded_in_this_process() {
    embedded(leaves_what_it_promises);
}

#[test]
fn over_the_wire() {
    wire(leaves_what_it_promises);
}

#[test]
fn one_node_is_no_graph() {
    assert!(LinkBench::new(1).is_err());
}

/// Runs each request once, and checks what it must change. Afterwards the check must find a wrong count.
#[test]
fn requests_do_what_they_say() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let database = open(folder.path(), POOL_BYTES).expect("a new database");
    let workload = LinkBench::new(300).expect("enough nodes");
    let target = Embedded::new(database, "test");
    workload.load(target.connect(&[]).expect("a session").as_mut()).expect("a loaded graph");
    let mut c = target.connect(&workload.statements()).expect("a session");
    let count = |c: &mut dyn Connection, sql: &str| -> i64 {
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

/// Half of the requests are of this kind. Such a request must find its links in order, and read no others.
#[test]
fn lists_links_by_their_index() {
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

/// The shares of all kinds of requests are those of the properties file.
#[test]
fn asks_in_facebooks_shares() {
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
