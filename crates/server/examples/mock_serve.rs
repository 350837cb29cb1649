//! A server without a database: every SELECT returns one row of 120 characters. It measures the cost of the
//! wire protocol alone (decision 0701):
//!
//! ```text
//! cargo run --release -p varve-server --example mock_serve -- 5434
//! sysbench oltp_point_select --db-driver=pgsql --pgsql-host=127.0.0.1 --pgsql-port=5434 \
//!     --pgsql-user=x --pgsql-db=x --tables=2 --table-size=1000 --threads=16 --time=10 run
//! ```
//!
//! At the end (Enter) it prints the processor time of each query.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../tests/server/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use varve_server::{Listener, Server};

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(5434);
    let listener = Listener::open(([127, 0, 0, 1], port).into()).unwrap();
    let server = Server::start(listener, 1000, Arc::new(support::Mock)).unwrap();
    println!("listening on {}, Enter stops", server.address());
    let _ = std::io::stdin().read_line(&mut String::new());
    server.stop(Duration::from_secs(5));
    let queries = support::SELECTS.load(std::sync::atomic::Ordering::Relaxed).max(1);
    let cpu_us = cpu_ticks() * 10_000;
    println!("{queries} queries, {:.2} us of processor time each", cpu_us as f64 / queries as f64);
}

/// User and system time of this process in clock ticks of 10 ms.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let mut fields = after_name.split(' ').skip(11);
    let mut next = || fields.next().unwrap().parse::<u64>().unwrap();
    next() + next()
}
