//! Scans in a smart device: a real device in this process reads the data file of the database. Each query
//! gives with `smart_scan = on` what it gives with `off`, in the same snapshot.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{lines, session};
use varve_device::MemoryDirectory;
use varve_engine::{Database, Options};
use varve_pager::PagerConfig;
use varve_query::{Queries, QueryOptions, SmartOptions};
use varve_smart::{Address, DeviceProfile, Limits, Server, ServerOptions, SharedKey, SmartDevice};
use varve_sql::{Session, SqlDatabase};

const KEY: &[u8] = b"a key for tests, which is long enough";

/// The environment variables that set the number of random programs, and their seed.
const PROGRAMS: &str = "VARVE_SMART_PROGRAMS";
const SEED: &str = "VARVE_SMART_SEED";
/// The number without it.
const FEW_PROGRAMS: usize = 120;

const COLUMNS: &str = "id int primary key, a int, b bigint, s smallint, f float8, g real, d date, ts timestamp,
    flag bool, n numeric(12, 2), w numeric, t text, v varchar(30), c char(6), y bytea, u uuid, i interval, z int[]";

const VALUES: &str = "x, case when x % 7 > 0 then x * 37 % 101 - 50 end,
    case when x % 5 > 0 then x::bigint * 7919 % 1000003 + 9223372036853775000 end, (x % 300 - 150)::smallint,
    case when x % 11 = 0 then null when x % 13 = 0 then 'NaN' when x % 3 = 0 then '-0' else x / 3.0 end,
    case when x % 9 > 0 then x / 4.0 end, case when x % 6 > 0 then date '2020-01-01' + x % 400 end,
    case when x % 8 > 0 then timestamp '2020-01-01' + x * interval '7 hours' end, case when x % 4 > 0 then x % 3 = 0 end,
    case when x % 91 = 0 then 'NaN' when x % 10 > 0 then (x * 17 % 9999) / 100.0 - 20 end,
    case when x % 4 > 0 then x * 1.5 else 2 end,
    case when x % 12 > 0 then repeat('é', x % 5) || x % 97 end, case when x % 3 > 0 then 'v' || x % 50 end,
    case when x % 14 > 0 then 'c' || x % 9 end, case when x % 15 > 0 then decode(lpad(to_hex(x), 8, '0'), 'hex') end,
    case when x % 16 > 0 then ('00000000-0000-0000-0000-' || lpad(x::text, 12, '0'))::uuid end,
    case when x % 17 > 0 then x * interval '1 day' end, case when x % 18 > 0 then array[x, null, x % 4] end";

const NAMES: [&str; 18] =
    ["id", "a", "b", "s", "f", "g", "d", "ts", "flag", "n", "w", "t", "v", "c", "y", "u", "i", "z"];

/// Conditions. The device knows the first ones.
const CONDITIONS: [&str; 44] = [
    "a < 7",
    "a >= -20",
    "a <> 3",
    "b > 9223372036854275807",
    "s <= -100",
    "s in (1, 2, 3, -149)",
    "s not in (1, 2, 149)",
    "f > 1000",
    "f = 0",
    "f = 'NaN'",
    "f < '-0'",
    "g >= 600.25::real",
    "d < date '2020-03-01'",
    "ts between timestamp '2020-02-01' and timestamp '2020-06-01'",
    "n < 50.5",
    "n >= 33.333",
    "n < -7.125",
    "n <> 12.50",
    "n = 'NaN'",
    "t = '41'",
    "t > 'é'",
    "t like 'é%'",
    "t not like 'é%'",
    "v in ('v1', 'v2', 'v49')",
    "v = 'v7' or a = 4 and s > 0",
    "c = 'c3'",
    "c > 'c3   '",
    "flag",
    "not flag",
    "a is null",
    "z is not null",
    "y > '\\x00000200'",
    "u < '00000000-0000-0000-0000-000000001000'",
    "not (a > 3 and (s < 4 or n is null))",
    // The host checks these.
    "flag is not true",
    "a > s",
    "t like '%3%'",
    "w > 3000",
    "d >= timestamp '2020-11-01'",
    "z[3] = 1",
    "length(t) > 4",
    "i > interval '100 days'",
    "a <> 0 and 100 / a > 5",
    "100 / (id - 1200) < 50",
];

const AGGREGATES: [&str; 24] = [
    "count(*)",
    "count(a)",
    "count(z)",
    "sum(a)",
    "sum(b)",
    "sum(s)",
    "sum(n)",
    "avg(a)",
    "avg(b)",
    "avg(n)",
    "min(a)",
    "max(b)",
    "min(n)",
    "max(n)",
    "min(t)",
    "max(v)",
    "min(c)",
    "max(d)",
    "min(ts)",
    "max(s)",
    // These are not the device's.
    "sum(f)",
    "max(f)",
    "count(distinct a)",
    "sum(a + s)",
];

const KEYS: [&str; 8] = ["flag", "s", "v", "d", "c", "a % 5", "n", "flag, v"];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn some(&mut self, from: &[&str]) -> String {
        let count = 1 + self.below(4);
        let names: Vec<_> = (0..count).map(|_| from[self.below(from.len())]).collect();
        names.join(", ")
    }

    fn filter(&mut self) -> String {
        let mut filter = String::new();
        for n in 0..self.below(4) {
            let link = if n == 0 { " where" } else { ["and", "and", "or"][self.below(3)] };
            filter.push_str(&format!(" {link} ({})", CONDITIONS[self.below(CONDITIONS.len())]));
        }
        filter
    }

    /// A query over this table.
    fn query(&mut self, table: &str) -> String {
        let filter = self.filter();
        match self.below(5) {
            0 | 1 => format!("select {} from {table}{filter}", self.some(&NAMES)),
            2 | 3 => format!("select {} from {table}{filter}", self.some(&AGGREGATES)),
            _ => {
                let key = KEYS[self.below(KEYS.len())];
                format!("select {key}, {} from {table}{filter} group by {key}", self.some(&AGGREGATES))
            }
        }
    }
}

struct Bed {
    database: Arc<SqlDatabase>,
    engine: Arc<Database>,
    device: Arc<SmartDevice>,
    server: Option<Server>,
    directory: Arc<MemoryDirectory>,
    _socket: tempfile::TempDir,
}

fn smart_options(address: &Address, profile: DeviceProfile) -> Arc<SmartOptions> {
    let key = SharedKey::of(KEY).unwrap();
    let device = Arc::new(SmartDevice::new(address.clone(), key, Duration::from_secs(20)));
    Arc::new(SmartOptions { device, profile, processor_factor: 4.0 })
}

fn serve(directory: &MemoryDirectory, address: &Address, profile: Option<DeviceProfile>) -> Server {
    let key = SharedKey::of(KEY).unwrap();
    let options = ServerOptions { key, certificate: None, limits: Limits::default(), profile };
    Server::start(address, options, directory, &["data.varve".into()]).unwrap()
}

fn in_socket(directory: &Path) -> Address {
    Address::Unix(directory.join("smart"))
}

impl Bed {
    fn new() -> Bed {
        Bed::with(DeviceProfile::named("smart-ssd").unwrap().unwrap(), 16 << 20)
    }

    fn with(profile: DeviceProfile, pool_bytes: usize) -> Bed {
        let directory = MemoryDirectory::new();
        let mut pager = PagerConfig::new(directory.clone());
        pager.pool_bytes = pool_bytes;
        pager.log_segment_bytes = 1 << 20;
        pager.log_capacity_bytes = 16 << 20;
        pager.background = false;
        let engine =
            Database::open(Options { derive: Some(varve_sql::deriver()), ..Options::new(pager) }).unwrap();
        let socket = tempfile::tempdir().unwrap();
        let address = in_socket(socket.path());
        let server = serve(&directory, &address, None);
        let smart = smart_options(&address, profile);
        let device = smart.device.clone();
        let options = QueryOptions { memory_bytes: 64 << 20, smart: Some(smart), ..QueryOptions::default() };
        let queries = Arc::new(Queries::new(&options).unwrap());
        let database = Arc::new(SqlDatabase::new(engine.clone()).with_general(queries));
        Bed { database, engine, device, server: Some(server), directory, _socket: socket }
    }

    /// Lets the data file have all pages, and raises the floor past the finished transactions.
    fn settle(&self) {
        self.engine.tick().unwrap();
        self.engine.checkpoint_all().unwrap();
    }

    /// Tables `r` by rows and `p` by columns.
    fn filled(rows: usize) -> (Bed, Session) {
        let bed = Bed::new();
        let mut session = session(&bed.database);
        run(&mut session, &format!("create table r ({COLUMNS})"));
        run(&mut session, &format!("create table p ({COLUMNS}) with (layout = 'pax')"));
        for table in ["r", "p"] {
            run(
                &mut session,
                &format!("insert into {table} select {VALUES} from generate_series(1, {rows}) x"),
            );
            run(&mut session, &format!("vacuum full {table}"));
        }
        bed.settle();
        (bed, session)
    }

    fn leaves(&self) -> (u64, u64) {
        let counts = self.device.counts();
        (counts.leaves.load(Ordering::Relaxed), counts.deferred.load(Ordering::Relaxed))
    }
}

fn run(session: &mut Session, sql: &str) {
    let lines = lines(session, sql);
    assert!(lines.last().is_some_and(|line| line.starts_with("= ")), "{sql}: {lines:?}");
}

/// The sorted rows of a query. If it fails, its error alone, because rows before an error have no order.
fn sorted(session: &mut Session, sql: &str) -> Vec<String> {
    let mut lines = lines(session, sql);
    match lines.last() {
        Some(last) if last.starts_with('!') => vec![last.clone()],
        _ => {
            lines.sort();
            lines
        }
    }
}

/// Runs a query with and without the device. Returns its lines.
fn both(session: &mut Session, sql: &str) -> Vec<String> {
    let [expected, found] = ["off", "on"].map(|mode| {
        run(session, &format!("set smart_scan = {mode}"));
        sorted(session, sql)
    });
    compare(sql, &expected, found)
}

/// As `both`, in a transaction, which continues after an error.
fn both_inside(session: &mut Session, sql: &str) -> Vec<String> {
    let [expected, found] = ["off", "on"].map(|mode| {
        run(session, "savepoint before");
        run(session, &format!("set smart_scan = {mode}"));
        let found = sorted(session, sql);
        run(session, "rollback to before");
        found
    });
    compare(sql, &expected, found)
}

fn compare(sql: &str, expected: &[String], found: Vec<String>) -> Vec<String> {
    let differs = expected.iter().zip(&found).find(|(a, b)| a != b);
    assert!(*expected == *found, "{sql}: {} and {} lines, {differs:?}", expected.len(), found.len());
    found
}

fn shown(session: &mut Session, sql: &str) -> String {
    lines(session, sql).join("\n")
}

/// The key gives the order of rows on the host, and the device gives none.
#[test]
fn rows_come_in_the_order_of_the_query() {
    let (_bed, mut session) = Bed::filled(3000);
    for sql in [
        "select id from TABLE order by 1 desc",
        "select id from TABLE order by id",
        "select id, a from TABLE where a > 7 order by id desc",
        "select id from TABLE where a > 7 order by id limit 5",
        "select id from TABLE where s < 0 order by id desc offset 3",
        "select x.id from (select id from TABLE order by id desc) x",
        "select a, id from TABLE where s < 0 order by a desc, id",
        "select string_agg(id::text, ',') from (select id from TABLE where s < 0 order by id desc) x",
    ] {
        for table in ["r", "p"] {
            let sql = sql.replace("TABLE", table);
            let [expected, on, auto] = ["off", "on", "auto"].map(|mode| {
                run(&mut session, &format!("set smart_scan = {mode}"));
                lines(&mut session, &sql)
            });
            assert_eq!(on, expected, "{sql}");
            assert_eq!(auto, expected, "{sql}");
        }
    }
}

#[test]
fn a_device_gives_the_rows_and_groups_of_the_host() {
    let (bed, mut session) = Bed::filled(2000);
    for table in ["r", "p"] {
        for condition in CONDITIONS {
            both(&mut session, &format!("select * from {table} where {condition}"));
            both(
                &mut session,
                &format!("select count(*), sum(n), avg(b), min(t) from {table} where {condition}"),
            );
        }
        for aggregate in AGGREGATES {
            both(&mut session, &format!("select {aggregate} from {table}"));
            both(&mut session, &format!("select {aggregate} from {table} where a is null and a > 1"));
        }
        for key in KEYS {
            for some in AGGREGATES.chunks(5) {
                let some = some.join(", ");
                both(&mut session, &format!("select {key}, {some} from {table} where s <> 7 group by {key}"));
            }
        }
        for sql in [
            "select id, a from {t} order by id limit 7",
            "select distinct v, flag from {t}",
            "select v from {t} group by v having sum(a) > 3",
            "select x.id, y.n from {t} x join {t} y on x.id = y.a and y.n > 40 where x.a < 0",
            "select id from {t} where a = (select max(a) from {t})",
            "select id, (select count(*) from {t} y where y.a = x.id) from {t} x where x.id < 20",
            "with q as (select a, sum(n) as n from {t} group by a) select * from q x join q y on x.a = y.a + 1",
        ] {
            both(&mut session, &sql.replace("{t}", table));
        }
    }
    let (by_device, _) = bed.leaves();
    assert!(by_device > 5000, "{by_device} leaves by the device");
    assert_eq!(bed.device.counts().failures.load(Ordering::Relaxed), 0, "{:?}", bed.device.last_failure());
}

/// A snapshot is read with and without the device, while other transactions change rows and pages are
/// written. The variable `VARVE_SMART_PROGRAMS` sets the number of programs, and `VARVE_SMART_SEED` their
/// seed.
#[test]
fn random_programs_beside_updates_give_the_hosts_answer() {
    let programs = std::env::var(PROGRAMS).ok().map_or(FEW_PROGRAMS, |n| n.parse().unwrap());
    let seed = std::env::var(SEED).ok().map_or(1, |n| n.parse::<u64>().unwrap());
    let (bed, mut reader) = Bed::filled(1500);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (database, engine, stop) = (bed.database.clone(), bed.engine.clone(), stop.clone());
        std::thread::spawn(move || write(&database, &engine, &stop))
    };
    let mut random = Random(0x9E37_79B9 * seed);
    for n in 0..programs {
        // Now and then the reader has changes of its own.
        run(&mut reader, "begin isolation level repeatable read");
        if n % 10 == 0 {
            let id = 100_000 + n;
            run(&mut reader, &format!("insert into r (id, a, t) values ({id}, 3, 'own')"));
            run(&mut reader, &format!("insert into p (id, a, t) values ({id}, 3, 'own')"));
        }
        let sql = random.query(["r", "p"][n % 2]);
        both_inside(&mut reader, &sql);
        run(&mut reader, if n % 20 == 0 { "rollback" } else { "commit" });
    }
    stop.store(true, Ordering::Relaxed);
    let rounds = writer.join().unwrap();
    let (by_device, by_host) = bed.leaves();
    assert!(by_device > programs as u64 && by_host > programs as u64, "{by_device}, {by_host}");
    assert_eq!(bed.device.counts().failures.load(Ordering::Relaxed), 0, "{:?}", bed.device.last_failure());
    println!(
        "{programs} programs beside {rounds} rounds: {by_device} leaves by the device, {by_host} by the host"
    );
}

fn write(database: &Arc<SqlDatabase>, engine: &Database, stop: &AtomicBool) -> usize {
    let mut session = session(database);
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let (low, table) = (round * 7919 % 1500, ["r", "p"][round % 2]);
        run(&mut session, "begin");
        for sql in [
            format!("update {table} set a = a + 1, t = t || '.' where id between {low} and {}", low + 20),
            format!("delete from {table} where id between {} and {}", low + 30, low + 33),
            format!(
                "insert into {table} select {VALUES} from generate_series({0}, {0} + 2) x on conflict do nothing",
                low + 30
            ),
            format!("update {table} set t = left(t, 5) where id between {low} and {}", low + 10),
        ] {
            run(&mut session, &sql);
        }
        run(&mut session, if round % 5 == 0 { "rollback" } else { "commit" });
        if round % 4 == 0 {
            engine.tick().unwrap();
            engine.checkpoint_all().unwrap();
        }
    }
    round
}

#[test]
fn explain_shows_what_the_device_does() {
    let (bed, mut session) = Bed::filled(3000);
    run(&mut session, "set smart_scan = on");
    let text = shown(&mut session, "explain select id from r where a > 3 and length(t) > 4 and s < 0");
    let expected = [
        "Smart Scan on r",
        "Device Filter: (a > 3)",
        "Filter: ((length(t) > 4) AND (s < 0))",
        "Device: unix:",
    ];
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    let sql = "explain (analyze, timing off) select flag, count(*), avg(n) from p where a > 3 group by flag";
    let text = shown(&mut session, sql);
    let expected = [
        "Smart Aggregate on p",
        "Group Key: flag",
        "Device Aggregates: count(*), avg(n)",
        "Smart Leaves: device=",
    ];
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    assert!(text.contains(" host=0"), "{text}");
    run(&mut session, "set smart_scan = off");
    let text = shown(&mut session, sql);
    assert!(!text.contains("Smart"), "{text}");
    // Rows of a small table in memory are the host's.
    run(&mut session, "set smart_scan = auto");
    let text = shown(&mut session, "explain select flag, count(*) from p where a > 3 group by flag");
    assert!(!text.contains("Smart"), "{text}");
    let before = bed.leaves();
    for sql in ["select id from r where a > 3 for update", "update r set a = 5 where s = 7 and n > 3"] {
        run(&mut session, "set smart_scan = on");
        run(&mut session, sql);
    }
    assert_eq!(bed.leaves(), before, "rows that are locked are the host's");
}

/// The planner chooses the device for a table that is not in memory, if few rows pass.
#[test]
fn the_planner_chooses_by_cost() {
    // A device whose processor costs nothing. The buffer pool is much smaller than the table.
    let mut profile = DeviceProfile::named("smart-ssd").unwrap().unwrap();
    (profile.row_ns, profile.column_row_ns) = (1.0, 1.0);
    profile.host_bytes_per_s = 20e6;
    let bed = Bed::with(profile, 2 << 20);
    let mut session = session(&bed.database);
    run(&mut session, &format!("create table r ({COLUMNS})"));
    run(&mut session, &format!("insert into r select {VALUES} from generate_series(1, 20000) x"));
    bed.settle();
    let text = shown(&mut session, "explain select id from r where a = 3");
    assert!(text.contains("Smart Scan on r") && text.contains("Predicted Times: device"), "{text}");
    let text = shown(&mut session, "explain select sum(a) from r");
    assert!(text.contains("Smart Aggregate on r"), "{text}");
    for sql in [
        "explain select * from r where a > -60",
        "explain select id from r where a = 3 limit 2",
        "explain select id from r where id between 3 and 5 and a = 3",
        "explain select sum(f) from r where a > -60",
    ] {
        let text = shown(&mut session, sql);
        assert!(!text.contains("Smart"), "{sql}: {text}");
    }
    let expected = {
        run(&mut session, "set smart_scan = off");
        sorted(&mut session, "select id, t from r where a = 3")
    };
    run(&mut session, "set smart_scan = auto");
    assert_eq!(sorted(&mut session, "select id, t from r where a = 3"), expected);
    assert!(bed.leaves().0 > 100);
}

#[test]
fn prepared_statements_and_kept_plans_take_new_values() {
    let (bed, mut session) = Bed::filled(3000);
    run(&mut session, "set smart_scan = on");
    run(
        &mut session,
        "prepare q (int, numeric) as select count(*), sum(b), max(t) from r where a > $1 and n < $2",
    );
    run(&mut session, "prepare w (int, text) as select id, t from p where a > $1 and t <> $2");
    for round in 0..4 {
        for sql in [
            format!("execute q ({}, {}.5)", round * 10 - 20, round * 20),
            // The device does not know NULL, NaN and numbers between two units as such.
            "execute q (null, 3)".to_owned(),
            "execute q (1, 'NaN')".to_owned(),
            "execute q (1, 3.0004)".to_owned(),
            format!("execute w ({}, '41')", round * 12),
        ] {
            both(&mut session, &sql);
        }
        run(&mut session, &format!("update r set a = a + {round} where id % 50 = 1"));
        bed.settle();
    }
    assert!(bed.leaves().0 > 500, "{:?}", bed.leaves());
}

#[test]
fn transactions_of_each_kind_see_their_rows() {
    let (bed, mut session) = Bed::filled(3000);
    let mut other = super::support::session(&bed.database);
    let sum = "select count(*), sum(a), max(t) from r where s > -100";
    // Own changes, and those of others that are not committed.
    run(&mut session, "begin");
    run(&mut session, "update r set a = 1000 where id % 100 = 3; delete from r where id % 100 = 4");
    run(&mut other, "begin");
    run(&mut other, "update r set a = -1000 where id % 100 = 5");
    bed.settle();
    both(&mut session, sum);
    both(&mut other, sum);
    run(&mut session, "rollback");
    both(&mut other, sum);
    run(&mut other, "commit");
    both(&mut session, sum);
    // A serializable transaction that scans conflicts with a change that the scan did not see.
    for session in [&mut session, &mut other] {
        run(session, "set smart_scan = on");
        run(session, "begin isolation level serializable");
    }
    bed.settle();
    assert_eq!(lines(&mut session, "select count(*) from p where a = 17")[1], "= SELECT 1");
    assert_eq!(lines(&mut other, "select count(*) from p where a = 18")[1], "= SELECT 1");
    run(&mut session, "insert into p (id, a) values (200001, 18)");
    run(&mut other, "insert into p (id, a) values (200002, 17)");
    let ends = [lines(&mut session, "commit"), lines(&mut other, "commit")].concat();
    assert!(ends.iter().any(|line| line.starts_with("! 40001")), "{ends:?}");
    // Tables that have changed their columns.
    run(&mut session, "alter table r add e int default 5, drop g; update r set e = 6 where id < 50");
    bed.settle();
    both(&mut session, "select * from r where e >= 5 and a > 3");
    both(&mut session, "select e, count(*), sum(a) from r group by e");
    assert!(bed.leaves().0 > 100);
}

/// A device that dies, or was never there, changes nothing but the time.
#[test]
fn the_host_scans_if_the_device_is_missing() {
    let (mut bed, mut session) = Bed::filled(3000);
    for sql in ["select id, t from r where a > 3", "select flag, avg(n) from p group by flag"] {
        both(&mut session, sql);
    }
    drop(bed.server.take());
    for sql in ["select id, t from r where a > 3", "select flag, avg(n) from p group by flag"] {
        both(&mut session, sql);
    }
    let text = shown(&mut session, "explain (analyze, timing off) select id from r where a > 3");
    assert!(text.contains("Smart Leaves: device=0 host=") && text.contains("Failures: 1"), "{text}");
}

/// A cancel request is seen when the device answers, and a query of the past is the host's.
#[test]
fn a_slow_device_does_not_keep_a_cancelled_statement() {
    let (mut bed, mut session) = Bed::filled(1000);
    drop(bed.server.take());
    let mut slow = DeviceProfile::named("smart-ssd").unwrap().unwrap();
    slow.internal_bytes_per_s = 200e3;
    bed.server = Some(serve(&bed.directory, bed.device.address(), Some(slow)));
    run(&mut session, "set smart_scan = on; set statement_timeout = 200");
    let found = lines(&mut session, "select count(*), sum(a) from r where s < 100");
    assert_eq!(found, ["! 57014 canceling statement due to statement timeout"]);
    let found = lines(&mut session, "select a from r where s < 100");
    assert!(found.last().is_some_and(|line| line.starts_with("! 57014")), "{found:?}");
    run(&mut session, "set statement_timeout = 0");
    assert_eq!(bed.device.counts().failures.load(Ordering::Relaxed), 0, "{:?}", bed.device.last_failure());
}

#[test]
fn the_past_and_tables_without_columns_are_the_hosts() {
    let (bed, mut session) = Bed::filled(1000);
    bed.engine.set_undo_retention(Duration::from_secs(600));
    run(&mut session, "create table none (); insert into none default values");
    bed.settle();
    assert_eq!(both(&mut session, "select count(*) from none")[0], "1");
    both(&mut session, "select * from none");
    let lsn = lines(&mut session, "select pg_current_wal_lsn()").swap_remove(0);
    let before = both(&mut session, "select count(*), sum(a) from r");
    std::thread::sleep(Duration::from_millis(50));
    run(&mut session, "update r set a = a + 1 where s < 0; delete from r where id < 20");
    bed.settle();
    assert_ne!(both(&mut session, "select count(*), sum(a) from r"), before);
    assert_eq!(both(&mut session, &format!("select count(*), sum(a) from r as of lsn '{lsn}'")), before);
    let text = shown(&mut session, &format!("explain select sum(a) from r as of lsn '{lsn}'"));
    assert!(!text.contains("Smart"), "{text}");
}

/// Groups that need more memory than the device and the node have are computed by the host's plan.
#[test]
fn too_many_groups_are_the_hosts() {
    let bed = Bed::new();
    let mut session = session(&bed.database);
    run(&mut session, "create table many (id int primary key, t text)");
    run(&mut session, "insert into many select x, repeat('t', 200) || x from generate_series(1, 40000) x");
    bed.settle();
    let found = both(&mut session, "select t, count(*) from many group by t");
    assert_eq!(found.len(), 40_001);
    let text = shown(&mut session, "explain (analyze, timing off) select t, count(*) from many group by t");
    assert!(text.contains("Refused: "), "{text}");
}
