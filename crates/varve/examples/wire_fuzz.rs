//! Sends damaged conversations to a real database in this process:
//!
//! ```text
//! cargo run --release -p varve --example wire_fuzz -- --seconds 600 --seed 1
//! ```
//!
//! The exit code is 0 if nothing panicked or hung, and the server still answered correctly on a new
//! connection. A failure reports its seed and case. The same seed repeats it.

#[path = "../../server/tests/server/support/client.rs"]
#[allow(dead_code, reason = "each program uses its part")]
mod client;
#[path = "../../server/tests/server/support/fuzz.rs"]
mod fuzz;

use std::time::{Duration, Instant};

use clap::Parser;
use varve_server::{Listener, Server};

/// Statements of psql, pgbench and sysbench, with their parameters.
const STATEMENTS: &[(&str, &[&str])] = &[
    ("select 1", &[]),
    ("select version(); show server_version; set application_name to 'x'", &[]),
    ("SELECT c FROM sbtest1 WHERE id=$1", &["1"]),
    ("SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c", &["1", "3"]),
    ("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2", &["1", "3"]),
    ("SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 1 AND 3 ORDER BY c", &[]),
    ("UPDATE sbtest1 SET k=k+1 WHERE id=$1", &["2"]),
    ("UPDATE sbtest1 SET c=$1 WHERE id=$2", &["text", "2"]),
    ("DELETE FROM sbtest1 WHERE id=$1", &["3"]),
    ("INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)", &["3", "3", "c", "pad"]),
    ("insert into t select i, 1.5, 'x', now() from generate_series(1, 9) as i", &[]),
    ("copy t from stdin", &[]),
    ("select n, v, w, d from t where n = 1 or v > 1.25 and w like 'x%'", &[]),
    ("select $1::numeric + 1, $2::date, $3::boolean", &["1e3", "2020-02-29", "t"]),
    ("begin; savepoint a; rollback to a; commit", &[]),
    ("", &[]),
];

const SET_UP: &str = "create table sbtest1 (id serial primary key, k integer default '0' not null, \
     c char(120) default '' not null, pad char(60) default '' not null); \
     insert into sbtest1 (k, c, pad) values (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z'); \
     create index k_1 on sbtest1 (k); \
     create table t (n integer, v numeric(10, 2), w text, d timestamp); \
     create table sound (id integer primary key); insert into sound values (41), (42)";

#[derive(Parser)]
struct Arguments {
    /// How long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the cases start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at a time
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let directory = tempfile::tempdir()?;
    let mut settings = varve::config::Settings::default();
    settings.pool.size_bytes = Some(64 << 20);
    settings.log.segment_bytes = 4 << 20;
    settings.log.capacity_bytes = 64 << 20;
    let database = varve::Embedded::open_with(directory.path(), &settings)?;
    database.session()?.run(SET_UP)?;
    let server = Server::start(Listener::open(([127, 0, 0, 1], 0).into())?, 100, database.sql().clone())?;
    fuzz::count_panics();
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let address = server.address();
    let threads: Vec<_> = (0..arguments.threads)
        .map(|thread| std::thread::spawn(move || throw(address, arguments.seed + thread, until)))
        .collect();
    let mut cases = 0;
    for thread in threads {
        cases += thread.join().map_err(|_| "a case failed; see above")?;
    }
    let left = server.stop(Duration::from_secs(15));
    if left > 0 {
        return Err(format!("{left} connections didn't end").into());
    }
    let report = database.engine().check()?;
    if let Some(damage) = report.damages.first() {
        return Err(format!("the database is damaged afterwards: {damage}").into());
    }
    database.close()?;
    println!("{cases} conversations in {} s, no panic, no hang, database sound", arguments.seconds);
    Ok(())
}

fn throw(address: std::net::SocketAddr, seed: u64, until: Instant) -> u64 {
    let probe = ("select id from sound order by id", "T[id:23:0] D[41] D[42] C[SELECT 2] Z[I]");
    fuzz::run(&fuzz::Plan { address, statements: STATEMENTS, probe, seed }, u64::MAX, Some(until))
}
