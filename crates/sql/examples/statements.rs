//! Measures statements per second through a session, without a network: `cargo run --release -p varve-sql
//! --example statements`.
//!
//! There is one thread and a database in memory, with 100,000 rows of sysbench's table and of pgbench's
//! accounts. A direct read of the engine is measured as `get`. The difference to it is the cost of SQL.
#![expect(clippy::unwrap_used, reason = "an example may stop at the first error")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_device::MemoryDirectory;
use varve_engine::{Database, Datum, Isolation, Options, ScanSpec};
use varve_pager::PagerConfig;
use varve_sql::{
    Column, CommandTag, Portal, Result, Session, SessionParams, Severity, Sink, SqlDatabase, SqlError,
};

const ROWS: i64 = 100_000;

#[derive(Default)]
struct Count {
    rows: u64,
    bytes: u64,
}

impl Sink for Count {
    fn columns(&mut self, _: &[Column]) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        self.rows += 1;
        for value in row {
            self.bytes += match value {
                Datum::Text(t) => t.len() as u64,
                _ => 8,
            };
        }
        Ok(())
    }

    fn complete(&mut self, _: &CommandTag) -> Result<()> {
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: Severity, _: &SqlError) {}
}

struct Random(u64);

impl Random {
    fn id(&mut self) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % ROWS as u64) as i64 + 1
    }
}

/// Returns the processor time of this thread. Other load on the machine affects it less than wall time.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn measure(name: &str, length: Duration, mut one: impl FnMut()) {
    for _ in 0..200 {
        one();
    }
    let (start, cpu) = (Instant::now(), cpu_ns());
    let mut count = 0u64;
    while start.elapsed() < length {
        for _ in 0..50 {
            one();
        }
        count += 50;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    let cpu_us = (cpu_ns() - cpu) as f64 / 1e3 / count as f64;
    println!("{name:<44} {:>10.0} /s {us:>9.3} us, of it {cpu_us:>9.3} us on the processor", 1e6 / us);
}

fn fill(session: &mut Session, sink: &mut Count) {
    let c = "68487932199-96439406143-93774651418-41631865787-96406072701-20604855487-25459966574-28203206787-41238978918-19503783441";
    let pad = "22195207048-70116052123-74140395089-76317954521-98694025897";
    for sql in [
        "create table sbtest1 (id integer primary key, k integer default '0' not null, c char(120) not null, pad char(60) not null)",
        "create table accounts (aid int primary key, bid int, abalance int, filler char(84))",
        &format!("insert into sbtest1 select g, g % 1000, '{c}', '{pad}' from generate_series(1, {ROWS}) g"),
        &format!("insert into accounts select g, 1, 0, '' from generate_series(1, {ROWS}) g"),
        "create index k_1 on sbtest1 (k)",
    ] {
        session.simple(sql, sink).unwrap();
    }
}

/// The engine's own read of a row, for comparison.
fn bare_get(engine: &Arc<Database>, random: &mut Random, length: Duration) {
    let mut txn = engine.begin(Isolation::ReadCommitted);
    let def = txn.catalog().table("public", "sbtest1").unwrap();
    let table = txn.table(&def).unwrap();
    let mut key = Vec::new();
    measure("engine: get in one transaction", length, || {
        txn.start_statement();
        key.clear();
        def.push_key(&mut key, 0, &Datum::Int8(random.id()));
        txn.get(&table, &key, &mut |row| {
            std::hint::black_box(row.get(2));
        })
        .unwrap();
    });
    measure("engine: begin, table, get, commit", length, || {
        let mut txn = engine.begin(Isolation::ReadCommitted);
        txn.start_statement();
        let table = txn.table(&def).unwrap();
        key.clear();
        def.push_key(&mut key, 0, &Datum::Int8(random.id()));
        txn.get(&table, &key, &mut |row| {
            std::hint::black_box(row.get(2));
        })
        .unwrap();
        txn.commit().unwrap();
    });
    measure("engine: scan of all rows", length, || {
        txn.start_statement();
        let mut n = 0u64;
        txn.scan(&table, &ScanSpec::ALL, &mut |_, row| {
            n += u64::from(row.get(1).is_null());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        std::hint::black_box(n);
    });
}

fn session(engine: &Arc<Database>) -> Session {
    let shared = Arc::new(SqlDatabase::new(engine.clone()));
    Session::new(shared, SessionParams { user: "u".into(), ..SessionParams::default() }).unwrap()
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1.0);
    let length = Duration::from_secs_f64(seconds);
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = 256 << 20;
    let engine =
        Database::open(Options { derive: Some(varve_sql::deriver()), ..Options::new(pager) }).unwrap();
    let mut session = session(&engine);
    let mut sink = Count::default();
    let mut random = Random(88_172_645_463_325_252);
    fill(&mut session, &mut sink);
    bare_get(&engine, &mut random, length);

    let range = |r: &mut Random| {
        let low = r.id();
        [Datum::Int8(low), Datum::Int8(low + 99)]
    };
    let mut run = |name: &str, sql: &str, types: &[u32], make: &mut dyn FnMut() -> Vec<Datum<'static>>| {
        let prepared = session.prepare(sql, types).unwrap();
        session.sync().unwrap();
        measure(name, length, || {
            let params = make();
            session.execute(&prepared, &params, &mut Portal::default(), 0, &mut sink).unwrap();
            session.sync().unwrap();
        });
    };
    let mut r = Random(7);
    run("prepared: select c by id", "SELECT c FROM sbtest1 WHERE id=$1", &[20], &mut || {
        vec![Datum::Int8(r.id())]
    });
    run("prepared: select abalance by aid", "SELECT abalance FROM accounts WHERE aid = $1", &[], &mut || {
        vec![Datum::Int4(r.id() as i32)]
    });
    run("prepared: range of 100", "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2", &[20, 20], &mut || {
        range(&mut r).to_vec()
    });
    run(
        "prepared: sum over 100",
        "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2",
        &[20, 20],
        &mut || range(&mut r).to_vec(),
    );
    run(
        "prepared: order by over 100",
        "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c",
        &[20, 20],
        &mut || range(&mut r).to_vec(),
    );
    run(
        "prepared: distinct over 100",
        "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c",
        &[20, 20],
        &mut || range(&mut r).to_vec(),
    );
    run(
        "prepared: update abalance",
        "UPDATE accounts SET abalance = abalance + $1 WHERE aid = $2",
        &[],
        &mut || vec![Datum::Int4(1), Datum::Int4(r.id() as i32)],
    );
    run("prepared: update k (indexed)", "UPDATE sbtest1 SET k=k+1 WHERE id=$1", &[20], &mut || {
        vec![Datum::Int8(r.id())]
    });
    run("prepared: begin", "BEGIN", &[], &mut Vec::new);
    run("prepared: commit", "COMMIT", &[], &mut Vec::new);
    run("prepared: select 1", "SELECT 1", &[], &mut Vec::new);
    short_joins(&mut session, &mut sink, length);
    simple_texts(&mut session, &mut sink, &mut r, length);
    println!("{} rows, {} bytes given to the sink", sink.rows, sink.bytes);
}

/// Joins by key, as in TPC-C.
fn short_joins(session: &mut Session, sink: &mut Count, length: Duration) {
    let mut r = Random(7);
    let mut run = |name: &str, sql: &str, rows: i64| {
        let prepared = session.prepare(sql, &[20, 20]).unwrap();
        session.sync().unwrap();
        measure(name, length, || {
            let low = r.id();
            let params = [Datum::Int8(low), Datum::Int8(low + rows - 1)];
            session.execute(&prepared, &params, &mut Portal::default(), 0, sink).unwrap();
            session.sync().unwrap();
        });
    };
    let by_key = "SELECT c, abalance FROM sbtest1, accounts WHERE aid = $1 AND id = aid AND $2 > 0";
    run("prepared: join of two rows by key", by_key, 1);
    let counted = "SELECT count(DISTINCT k) FROM accounts, sbtest1 WHERE aid BETWEEN $1 AND $2 AND id = aid AND k < 900";
    run("prepared: join of 200 rows by key, counted", counted, 200);
}

/// The same statements as texts, with other literals each time.
fn simple_texts(session: &mut Session, sink: &mut Count, r: &mut Random, length: Duration) {
    let mut simple = |name: &str, make: &mut dyn FnMut() -> String| {
        measure(name, length, || session.simple(&make(), sink).unwrap());
    };
    simple("simple: select abalance by aid", &mut || {
        format!("SELECT abalance FROM accounts WHERE aid = {};", r.id())
    });
    simple("simple: range of 100", &mut || {
        let low = r.id();
        format!("SELECT c FROM sbtest1 WHERE id BETWEEN {low} AND {}", low + 99)
    });
    simple("simple: update abalance", &mut || {
        format!("UPDATE accounts SET abalance = abalance + {} WHERE aid = {};", r.id(), r.id())
    });
    simple("simple: begin, commit", &mut || "BEGIN; COMMIT".to_owned());
}
