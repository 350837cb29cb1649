//! Runs random nested expressions in random statements on one table. A statement must end with rows, or with
//! an error that PostgreSQL has, too. It must never end with an internal error (XX000) or a panic.
//! `VARVE_SEED` and `VARVE_ROUNDS` make other and longer runs.
//!
//! The test does not know the right results.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::support::{Recorder, database, session};

const TABLE: &str = "create table g (id int primary key, a int, b int, s smallint, l bigint, n numeric(8,2), f float8, \
    t text, v varchar(5), c char(3), p bool, q bool, d date, m timestamp); create index on g (a); create index on g (c); \
    insert into g values (1, 1, 2, 3, 4, 1.50, 0.5, 'x', 'Ab', 'a', true, false, '2024-02-29', '2024-02-29 12:30'), \
    (2, 7, null, -1, 5000000000, -2.25, -300, 'it''s', '', 'x', null, true, '2000-01-01', '1999-12-31'), \
    (3, null, 0, null, null, null, null, null, 'a ', null, false, null, null, null); create sequence seq";

/// The columns. They do not occur in a hole that asks for constants.
const COLUMNS: [&str; 14] = ["id", "a", "b", "s", "l", "n", "f", "t", "v", "c", "p", "q", "d", "m"];

/// The types. Each has columns and literals, then forms with the types of their holes. `x` is any of the
/// first six types, the same one in the whole form. The types after these six are only used where a hole
/// names them.
const TYPES: [(&str, &[&str], &[&str]); 7] = [
    (
        "i",
        &["a", "b", "s", "l", "id", "0", "1", "-1", "null::int", "5000000000"],
        &[
            "({i} + {i})",
            "({j} * {j})",
            "({i} / nullif({i}, 0))",
            "({i} % 7)",
            "(- {i})",
            "abs({i})",
            "position({t} in {t})",
            "(({d})::date - ({d})::date)",
            "round({n})::bigint",
            "({b})::int",
            "extract(year from {d})::int",
        ],
    ),
    (
        "n",
        &["n", "a", "1.5", "0.0", "f", "null::numeric"],
        &["({n} + {n})", "({n} / 3)", "round({n})", "ceil({n})", "floor({n})", "({i})::numeric", "sign({n})"],
    ),
    (
        "t",
        &["t", "v", "c", "'x'", "''", "'a '", "null::text", "E'it\\'s'", "'%b%'"],
        &[
            "({t} || {t})",
            "upper({t})",
            "substring({t} from {j} for 2)",
            "trim(both {t} from {t})",
            "replace({t}, {t}, {t})",
            "concat({t}, {i}, {b})",
            "({t})::varchar(2)",
            "({t})::char(3)",
            "({i})::text",
            "({d})::text",
            "left({t}, {j})",
            "lpad({t}, 3, {t})",
        ],
    ),
    (
        "b",
        &["p", "q", "true", "false", "null::bool"],
        &[
            "({x} {cmp} {x})",
            "({b} and {b})",
            "({b} or {b})",
            "(not {b})",
            "({x} is null)",
            "({b} is not true)",
            "({b} is unknown)",
            "({x} is distinct from {x})",
            "({x} between {x} and {x})",
            "({x} not between symmetric {x} and {x})",
            "({x} in ({x}, {x}))",
            "({t} like {t})",
            "(({x}, {i}) = ({x}, {i}))",
            "(({x}, {i}) not in (({x}, 1), ({x}, 2)))",
        ],
    ),
    (
        "d",
        &["d", "date '2024-02-29'", "null::date", "m"],
        &["({d} + interval '1 day')", "({d})::date", "({d})::timestamp", "date_trunc('month', {d})"],
    ),
    (
        "j",
        &["a", "b", "id", "0", "1", "-1", "null::int"],
        &["({j} + 1)", "({j} - {j})", "length({t})", "({j} % 3)", "({b})::int"],
    ),
    ("s", &["nextval('seq')", "random()", "clock_timestamp()"], &["({s} is null)"]),
];
/// The number of types that `x` stands for.
const ANY_TYPES: usize = 6;

/// Forms that each type has.
const ANY: [&str; 5] = [
    "case when {b} then {T} else {T} end",
    "case {x} when {x} then {T} when {x} then {T} end",
    "coalesce({T}, {T})",
    "nullif({T}, {T})",
    "greatest({T}, {T})",
];

/// A hole with a `!` takes no columns.
const STATEMENTS: [&str; 16] = [
    "select {x} from g",
    "select {x}, {b} from g where {b} order by {x}",
    "select distinct {x} from g order by 1 limit 3",
    "select count(*), max({i}), min({d}), count(distinct {x}) from g where {b}",
    "select {t}, sum({n}) filter (where {b}), min({t}) from g group by 1 having count({x}) > 0 order by 1",
    "select a, count({x}), case when max({n}) {cmp} min({i}) then max({t}) end from g group by a order by sum({n})",
    "select max({d}) filter (where {b}) is null from g",
    "select {s}",
    "(select {x} from g where {b}) order by 1 limit 2 for update",
    "select id from g where {b} order by {x} offset 1 for share skip locked",
    "update g set a = {j}, t = {t}, v = left({t}, 5), c = left({t}, 3) where {b} returning {x}",
    "update g set id = id + 10, p = {b}, d = {d} where {b} returning id, {x}",
    "delete from g where {b} and {b} returning {x}, {x}",
    "insert into g (id, a, t, p) values (77, {!j}, {!t}, {!b}) on conflict do nothing returning {x}",
    "insert into g (id, t) select id + 100, {t} from g where {b} returning {x}",
    "create table h (a int default {!j}, t text default {!t}, p bool default {!b})",
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        from[self.below(from.len())]
    }

    /// Fills the holes of a form.
    fn filled(&mut self, form: &str, depth: usize, constant: bool) -> String {
        let same = TYPES[self.below(ANY_TYPES)].0;
        let mut out = String::new();
        let mut rest = form;
        while let Some((before, hole)) = rest.split_once('{') {
            let (ty, behind) = hole.split_once('}').unwrap();
            out.push_str(before);
            let constant = constant || ty.starts_with('!');
            out.push_str(&match ty.trim_start_matches('!') {
                "cmp" => self.pick(&["=", "<>", "<", ">="]).to_owned(),
                "x" => self.expression(same, depth, constant),
                ty => self.expression(ty, depth, constant),
            });
            rest = behind;
        }
        out + rest
    }

    fn expression(&mut self, ty: &str, depth: usize, constant: bool) -> String {
        // Sometimes a hole gets an expression of another type. Then the statement may fail, but only with an
        // error that PostgreSQL has, too.
        let stray = self.below(200) == 0;
        let at = TYPES.iter().position(|t| t.0 == ty).unwrap();
        let (ty, leaves, forms) = TYPES[if stray { self.below(TYPES.len()) } else { at }];
        if depth == 0 || self.below(6) == 0 {
            return self.leaf(leaves, constant);
        }
        let any = ty != "s" && self.below(4) == 0;
        let form = if any { self.pick(&ANY) } else { self.pick(forms) };
        self.filled(&form.replace("{T}", &format!("{{{ty}}}")), depth - 1, constant)
    }

    fn leaf(&mut self, leaves: &[&str], constant: bool) -> String {
        loop {
            let leaf = self.pick(leaves);
            if !(constant && COLUMNS.contains(&leaf)) {
                return leaf.to_owned();
            }
        }
    }
}

/// Returns the SQLSTATEs of the errors, the most frequent first.
fn tally(errors: &[String]) -> Vec<(usize, &str)> {
    let mut states: Vec<&str> = errors.iter().map(|e| &e[2..7]).collect();
    states.sort_unstable();
    let mut counts: Vec<(usize, &str)> = states.chunk_by(|a, b| a == b).map(|c| (c.len(), c[0])).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[test]
fn random_statements_never_end_in_an_internal_error() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let mut random = Random(number("VARVE_SEED", 0x5eed));
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(&mut s, TABLE);
    let (mut fine, rounds) = (0, number("VARVE_ROUNDS", 3_000));
    let (mut bad, mut errors) = (Vec::new(), Vec::new());
    for n in 0..rounds as usize {
        let sql = random.filled(STATEMENTS[n % STATEMENTS.len()], 1 + n / STATEMENTS.len() % 4, false);
        let mut sink = Recorder::default();
        sink.simple(&mut s, "begin");
        sink.simple(&mut s, &sql);
        let failed = sink.lines.iter().find(|l| l.starts_with("! "));
        fine += usize::from(failed.is_none());
        errors.extend(failed.cloned());
        if let Some(error) =
            failed.filter(|e| e.starts_with("! XX") || e.contains("aggregate functions are not allowed here"))
        {
            bad.push(format!("{sql}\n    {error}"));
        }
        Recorder::default().simple(&mut s, "rollback");
    }
    assert!(bad.is_empty(), "{} internal errors:\n{}", bad.len(), bad.join("\n"));
    assert!(
        fine * 10 > rounds as usize * 9,
        "only {fine} of {rounds} statements ran: the generator tests too little. Errors: {:?}",
        tally(&errors)
    );
}
