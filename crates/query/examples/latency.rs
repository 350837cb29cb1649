//! Compares the time of a general query (run by DataFusion) with that of a short statement (run by Varve's
//! own executor). It measures a point read as a short statement, a join of 100 rows, the join's plan alone,
//! and a runtime alone. It also measures a prepared join of three tables, with a new plan each time and with
//! a cached plan. It prints microseconds, as medians of the rounds.
//!
//! `cargo run --release -p varve-query --example latency`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example may stop at the first surprise")]

use std::sync::Arc;
use std::time::Instant;

use varve_device::MemoryDirectory;
use varve_engine::{Database, Datum, Options};
use varve_pager::PagerConfig;
use varve_query::{Queries, QueryOptions};
use varve_sql::{Nowhere, Portal, Session, SessionParams, SqlDatabase};

fn median_us(rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut took: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[rounds / 2]
}

fn main() {
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = 64 << 20;
    let engine = Database::open(Options::new(pager)).unwrap();
    let queries = Queries::new(&QueryOptions::default()).unwrap();
    let shared = Arc::new(SqlDatabase::new(engine).with_general(Arc::new(queries)));
    let mut session = Session::new(shared, SessionParams::default()).unwrap();
    let mut sql = |text: &str| session.simple(text, &mut Nowhere).unwrap();
    sql(
        "create table a (id int primary key, v int); create table b (id int primary key, a int, amount numeric(12,2))",
    );
    sql("insert into a select i, i from generate_series(1, 100) as i");
    sql("insert into b select i, i, i from generate_series(1, 100) as i");
    let join = "select a.v, sum(b.amount) from a join b on b.a = a.id group by a.v order by 1";
    let by_key = "select a.v, b.amount from a, b where b.a = a.id and b.id = 7 and a.id = 7";
    println!("point read, short path   {:9.1}", median_us(2000, || sql("select v from a where id = 7")));
    let runtime = || drop(tokio::runtime::Builder::new_current_thread().build());
    println!("a runtime, made, dropped {:9.1}", median_us(2000, runtime));
    println!("join of one row          {:9.1}", median_us(500, || sql(by_key)));
    println!("  its plan (EXPLAIN)     {:9.1}", median_us(500, || sql(&format!("explain {by_key}"))));
    println!("join of 100 rows, groups {:9.1}", median_us(500, || sql(join)));
    println!("  its plan (EXPLAIN)     {:9.1}", median_us(500, || sql(&format!("explain {join}"))));
    sql("create table c (id int primary key, a int, amount numeric(12,2))");
    sql("insert into c select i, i % 100, i from generate_series(1, 100000) as i");
    let large = "select a.v, count(*), sum(c.amount) from a join c on c.a = a.id group by a.v order by 1";
    let alone = "select a, count(*), sum(amount) from c group by a order by 1";
    println!("join with 100,000 rows   {:9.1}", median_us(7, || sql(large)));
    println!("the same alone, executor {:9.1}", median_us(7, || sql(alone)));
    prepared(&mut session);
}

/// A prepared join of three tables, executed with other parameters each time.
fn prepared(session: &mut Session) {
    let join =
        "select a.v, count(*), sum(c.amount) from a, b, c where b.a + 0 = a.id and c.a = b.id and c.id < $1
        group by a.v order by 1";
    for mode in ["force_custom_plan", "auto"] {
        session.simple(&format!("set plan_cache_mode = {mode}"), &mut Nowhere).unwrap();
        let prepared = session.prepare(join, &[]).unwrap();
        let mut bound = 0;
        let took = median_us(200, || {
            bound = bound % 90 + 1;
            let params = [Datum::Int4(bound)];
            session.execute(&prepared, &params, &mut Portal::default(), 0, &mut Nowhere).unwrap();
            session.sync().unwrap();
        });
        println!("prepared, {mode:17} {took:7.1}");
    }
}
