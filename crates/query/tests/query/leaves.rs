//! A table WITH (layout = 'pax') gives the rows of the same table by rows, in the same order, for random
//! conditions and columns, limits, snapshots and errors.

use std::sync::Arc;

use super::support::{forced, lines, session};
use varve_sql::{Session, SqlDatabase};

const COLUMNS: &str =
    "id int primary key, a int, b bigint, s smallint, f float8, g real, d date, ts timestamp,
    flag bool, n numeric(12, 2), t text, v varchar(30), c char(6), y bytea, u uuid, i interval, z int[]";

/// A row of 17 columns. Every column but `id` and `s` has NULLs.
const VALUES: &str = "x, case when x % 7 > 0 then x * 37 % 101 - 50 end, case when x % 5 > 0 then x::bigint * 7919 % 1000003 end,
    (x % 300 - 150)::smallint, case when x % 11 = 0 then null when x % 13 = 0 then 'NaN' else x / 3.0 end,
    case when x % 9 > 0 then x / 4.0 end, case when x % 6 > 0 then date '2020-01-01' + x % 400 end,
    case when x % 8 > 0 then timestamp '2020-01-01' + x * interval '7 hours' end, case when x % 4 > 0 then x % 3 = 0 end,
    case when x % 10 > 0 then (x * 17 % 9999) / 100.0 end, case when x % 12 > 0 then repeat('é', x % 5) || x % 97 end,
    case when x % 3 > 0 then 'v' || x % 50 end, case when x % 14 > 0 then 'c' || x % 9 end,
    case when x % 15 > 0 then decode(lpad(to_hex(x), 8, '0'), 'hex') end,
    case when x % 16 > 0 then ('00000000-0000-0000-0000-' || lpad(x::text, 12, '0'))::uuid end,
    case when x % 17 > 0 then x * interval '1 day' end, case when x % 18 > 0 then array[x, null, x % 4] end";

const NAMES: [&str; 17] =
    ["id", "a", "b", "s", "f", "g", "d", "ts", "flag", "n", "t", "v", "c", "y", "u", "i", "z"];

/// Conditions. In the first ones, all tests are fast. Others are evaluated on whole rows. The last ones can
/// fail.
const CONDITIONS: [&str; 34] = [
    "a < 7",
    "a >= -20",
    "a <> 3",
    "b = 7919",
    "b > 500000",
    "s <= -100",
    "s > 120",
    "d < date '2020-03-01'",
    "d >= timestamp '2020-11-01'",
    "ts between timestamp '2020-02-01' and timestamp '2020-06-01'",
    "n < 50.5",
    "n >= 99",
    "t = '41'",
    "t > 'é'",
    "t like '%3%'",
    "t not like 'é%'",
    "v in ('v1', 'v2', 'v49')",
    "v = 'v7' or a = 4 and s > 0 or t like '1%'",
    "a in (1, 2, 3, -4)",
    "a > s",
    "id < b",
    "c = 'c3'",
    "id between 1000 and 2000",
    "id = 77",
    "id in (5, 6, 1234, 99999)",
    "f > 1000",
    "flag",
    "flag is not true",
    "a is null",
    "z is not null and z[3] = 1",
    "length(t) > 4",
    "i > interval '100 days'",
    "a <> 0 and 100 / a > 5",
    "100 / (id - 4000) < 50",
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// Returns a query over the table `{t}`.
    fn query(&mut self) -> String {
        let count = 1 + self.below(4);
        let names: Vec<_> = (0..count).map(|_| NAMES[self.below(NAMES.len())]).collect();
        let mut outputs = names.join(", ");
        if self.below(8) == 0 {
            outputs = "count(*), sum(a), min(t), max(d)".into();
        }
        let mut conditions = String::new();
        for n in 0..self.below(4) {
            let link = if n == 0 { "where" } else { ["and", "and", "or"][self.below(3)] };
            conditions.push_str(&format!(" {link} ({})", CONDITIONS[self.below(CONDITIONS.len())]));
        }
        let limit = match self.below(4) {
            0 => format!(" limit {}", self.below(700)),
            _ => String::new(),
        };
        format!("select {outputs} from {{t}}{conditions}{limit}")
    }
}

/// Runs a statement for both tables. Returns the lines, which must be the same.
fn both(session: &mut Session, sql: &str) -> Vec<String> {
    let [rows, columns] = ["r", "p"].map(|table| lines(session, &sql.replace("{t}", table)));
    let differs = rows.iter().zip(&columns).find(|(a, b)| a != b);
    assert!(rows == columns, "{sql}: {} and {} lines, {differs:?}", rows.len(), columns.len());
    columns
}

fn tables() -> Arc<SqlDatabase> {
    let database = forced();
    let mut session = session(&database);
    lines(&mut session, &format!("create table r ({COLUMNS})"));
    lines(&mut session, &format!("create table p ({COLUMNS}) with (layout = 'pax')"));
    let filled =
        both(&mut session, &format!("insert into {{t}} select {VALUES} from generate_series(1, 5000) x"));
    assert_eq!(filled, ["= INSERT 0 5000"]);
    // Builds the leaves anew, so that all rows are in columns.
    assert_eq!(both(&mut session, "vacuum full {t}"), ["= VACUUM"]);
    // The floor passes by the transactions that wrote the rows, so scans remember facts about leaves.
    database.engine().tick().unwrap();
    database
}

fn analyzed(session: &mut Session, sql: &str) -> String {
    lines(session, &format!("explain (analyze, timing off) {sql}")).join("\n")
}

#[test]
fn random_queries_give_the_same_rows() {
    let database = tables();
    let mut session = session(&database);
    let mut random = Random(0x9E37_79B9);
    let (mut rows, mut errors) = (0, 0);
    let mut run = |session: &mut Session, random: &mut Random, count: usize| {
        for _ in 0..count {
            let lines = both(session, &random.query());
            let failed = lines.last().is_some_and(|line| line.starts_with('!'));
            (rows, errors) = (rows + lines.len() - 1, errors + usize::from(failed));
        }
    };
    run(&mut session, &mut random, 150);
    for change in [
        "update {t} set a = a + 1, n = 4.5, t = t || 'longer' where id % 40 = 0",
        "delete from {t} where id % 33 = 1 or id between 2500 and 2600",
        "update {t} set b = b + 1 where id between 700 and 900",
        "insert into {t} (id, s, t) select x, 1, repeat('long', 1000) from generate_series(6000, 6010) x",
    ] {
        assert!(both(&mut session, change)[0].starts_with("= "), "{change}");
        run(&mut session, &mut random, 30);
        database.engine().tick().unwrap();
        run(&mut session, &mut random, 30);
    }
    assert!(rows > 20_000 && errors > 3, "{rows} rows, {errors} errors");
    assert_eq!(both(&mut session, "alter table {t} add e int default 5, drop g"), ["= ALTER TABLE"]);
    both(&mut session, "select e, i, id, f from {t} where e = 5 and a > 3");
    both(
        &mut session,
        "select count(*), sum(x.e), sum(y.a) from {t} x join {t} y on x.a = y.e and y.id < 300",
    );
}

/// Values of up to 12 bytes are in their Arrow views, longer ones beside them.
#[test]
fn numeric_values_of_all_sizes_are_read() {
    let mut session = session(&forced());
    for statement in [
        "create table r (id int primary key, n numeric)",
        "create table p (id int primary key, n numeric) with (layout = 'pax')",
    ] {
        assert_eq!(lines(&mut session, statement), ["= CREATE TABLE"]);
    }
    let value = "case x % 9 when 0 then null when 1 then 'NaN' when 2 then '-Infinity' when 3 then 0
        when 4 then x / 1000.0 when 5 then -x::numeric ^ 7 when 6 then 12345678901234567890123.45 * x
        when 7 then 1e300 + x else x end";
    for range in ["1, 3000", "3001, 3400"] {
        let insert = format!("insert into {{t}} select x, {value} from generate_series({range}) x");
        assert!(both(&mut session, &insert)[0].starts_with("= INSERT 0 "));
        // The second time, the first rows are in columns, and the others are not.
        if range.starts_with("1,") {
            assert_eq!(both(&mut session, "vacuum full {t}"), ["= VACUUM"]);
        }
        assert!(both(&mut session, "select n, id from {t}").len() > 2999);
        both(&mut session, "select n from {t} where n > 4 and n < 1e30");
        both(&mut session, "select count(n), max(n), min(n), sum(n) from {t} where id % 9 <> 1");
        both(&mut session, "select x.id, y.n from {t} x join {t} y on x.n = y.n and x.id < 50");
    }
}

#[test]
fn older_snapshots_see_their_rows() {
    let database = tables();
    let (mut old, mut new) = (session(&database), session(&database));
    let query = "select id, a, t, n, d from {t} where a > -40 and s <> 7";
    lines(&mut old, "begin isolation level repeatable read");
    let before = both(&mut old, query);
    for change in [
        "update {t} set a = 45, t = t || '.' where id % 10 = 3",
        "delete from {t} where id % 5 = 2",
        "insert into {t} select x + 10000, a, b from (select id as x, a, b from {t} where id < 600) q",
        "update {t} set s = 7 where id > 4000",
    ] {
        lines(&mut new, "begin");
        assert!(both(&mut new, change)[0].starts_with("= "), "{change}");
        let own = both(&mut new, query);
        assert_eq!(both(&mut old, query), before, "{change}");
        lines(&mut new, "commit");
        assert_eq!(both(&mut new, query), own, "{change}");
        assert_ne!(own, before);
        assert_eq!(both(&mut old, query), before, "{change}");
    }
    lines(&mut old, "commit");
    assert_ne!(both(&mut old, query), before);
}

#[test]
fn explain_analyze_shows_how_leaves_were_read() {
    let database = tables();
    let mut session = session(&database);
    let by_rows = analyzed(&mut session, "select a from r where b < 500");
    assert!(!by_rows.contains("Leaves"), "{by_rows}");
    let count = |shown: &str, what: &str| -> u64 {
        let rest = shown.split(what).nth(1).unwrap_or_else(|| panic!("{what}\n{shown}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let counts = |shown: &str| {
        ["by columns=", "mixed=", "by rows=", "skipped=", "Whole Rows Read: "].map(|what| count(shown, what))
    };
    let fast = "select a from p where b < 500";
    let [by_columns, mixed, by_rows, skipped, whole] = counts(&analyzed(&mut session, fast));
    assert!(by_columns > 30 && mixed == 0 && by_rows == 0 && skipped == 0 && whole == 0);
    // Now the least and greatest values of `b` are known.
    let [read, _, _, skipped, _] = counts(&analyzed(&mut session, fast));
    assert!(read + skipped == by_columns && skipped > by_columns / 2, "{read} leaves, {skipped} skipped");
    // Whole rows are read only if the fast tests leave them.
    let slow = "select a from p where id <= 1000 and s < -100 and length(t) > 2";
    let [few, _, _, _, whole] = counts(&analyzed(&mut session, slow));
    assert!(few < by_columns / 3 && (100..300).contains(&whole), "{few} leaves, {whole} rows");
    lines(&mut session, "update p set t = t || 'a longer text' where id in (50, 51)");
    let shown = analyzed(&mut session, fast);
    let [still, mixed, _, skipped, whole] = counts(&shown);
    assert!(still + skipped > by_columns - 3 && mixed >= 1 && whole >= 2, "{shown}");
    let json = lines(&mut session, &format!("explain (analyze, format json) {fast}")).join("\n");
    assert!(json.contains("\"Leaves by Columns\": ") && json.contains("\"Whole Rows Read\": 2"), "{json}");
}
