//! Tests of tpce-like: its transactions run without general queries, keep its sums, and have TPC-E's shares.

use varve_bench::database::MeasuredDatabase;
use varve_bench::driver::{Plan, run};
use varve_bench::embedded::{Embedded, open};
use varve_bench::random::Random;
use varve_bench::workload::Workload;
use varve_lab::tpce_like::TpceLike;

const PLAN: Plan = Plan { threads: 3, rounds: 1, seconds: 1, warm_seconds: 0 };
const POOL_BYTES: usize = 16 << 20;

/// Each transaction of tpce-like is a short statement or several of them, and keeps the sums. The check finds
/// a trade that was not settled.
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
