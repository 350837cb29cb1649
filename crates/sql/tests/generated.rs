//! Random nested expressions in random statements over one table: whatever they mean, they end in rows or in an error that
//! PostgreSQL has too, never in XX000 or a panic. `VARVE_SEED` and `VARVE_ROUNDS` search further.
//!
//! Does not know: what the right answer is.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use support::{Recorder, database, session};

const TABLE: &str = "create table g (id int primary key, a int, b int, s smallint, l bigint, n numeric(8,2), f float8, \
    t text, v varchar(5), c char(3), p bool, q bool, d date, m timestamp); create index on g (a); create index on g (c); \
    insert into g values (1, 1, 2, 3, 4, 1.50, 0.5, 'x', 'Ab', 'a', true, false, '2024-02-29', '2024-02-29 12:30'), \
    (2, 7, null, -1, 5000000000, -2.25, -300, 'it''s', '', 'x', null, true, '2000-01-01', '1999-12-31'), \
    (3, null, 0, null, null, null, null, null, 'a ', null, false, null, null, null); create sequence seq";

/// Types: columns and literals, then forms with the types of their holes.
const TYPES: [(&str, &[&str], &[&str]); 6] = [
    (
        "i",
        &["a", "b", "s", "l", "id", "0", "1", "-1", "null::int", "5000000000"],
        &[
            "({i} + {i})",
            "({i} * {i})",
            "({i} / {i})",
            "({i} % {i})",
            "(- {i})",
            "abs({i})",
            "length({t})",
            "position({t} in {t})",
            "({d} - {d})",
            "({n})::int",
            "({b})::int",
            "extract(year from {d})::int",
        ],
    ),
    (
        "n",
        &["n", "a", "1.5", "0.0", "f", "null::numeric"],
        &["({n} + {n})", "({n} / {n})", "round({n})", "ceil({n})", "floor({n})", "({i})::numeric"],
    ),
    (
        "t",
        &["t", "v", "c", "'x'", "''", "'a '", "null::text", "E'it\\'s'", "'%b%'"],
        &[
            "({t} || {t})",
            "upper({t})",
            "substring({t} from {i} for 2)",
            "trim(both {t} from {t})",
            "replace({t}, {t}, {t})",
            "concat({t}, {i}, {b})",
            "({t})::varchar(2)",
            "({t})::char(3)",
            "({i})::text",
            "({d})::text",
            "left({t}, {i})",
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
    ("s", &["nextval('seq')", "random()", "clock_timestamp()"], &["({s} is null)", "coalesce({s}, {s})"]),
];

/// Forms of every type.
const ANY: [&str; 6] = [
    "case when {b} then {T} else {T} end",
    "case {x} when {x} then {T} when {x} then {T} end",
    "coalesce({T}, {T})",
    "nullif({T}, {T})",
    "greatest({T}, {T})",
    "max({T})",
];

const STATEMENTS: [&str; 15] = [
    "select {x} from g",
    "select {x}, {b} from g where {b} order by {x}",
    "select distinct {x} from g order by 1 limit {i}",
    "select count(*), {x} from g where {b}",
    "select {t}, sum({n}) filter (where {b}) from g group by {t} having {b} order by 1",
    "select {x} from g group by a, t having count({x}) > 0",
    "select {s}",
    "(select {x} from g where {b}) order by 1 limit 2 for update",
    "select id from g where {b} order by {x} offset 1 for share skip locked",
    "update g set a = {i}, t = {t}, v = {t}, c = {t} where {b} returning {x}",
    "update g set id = {i}, p = {b} where {b} returning id",
    "delete from g where {b} and {b} returning {x}, {x}",
    "insert into g (id, a, t, n, p) values ({i}, {i}, {t}, {n}, {b}) on conflict do nothing returning {x}",
    "insert into g (id, t) select a, {t} from g where {b} returning {x}",
    "create table h (a int default {i}, t text default {t}, p bool default {b})",
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
    fn filled(&mut self, form: &str, depth: usize) -> String {
        let mut out = String::new();
        let mut rest = form;
        while let Some((before, hole)) = rest.split_once('{') {
            let (ty, behind) = hole.split_once('}').unwrap();
            out.push_str(before);
            out.push_str(&match ty {
                "cmp" => self.pick(&["=", "<>", "<", ">="]).to_owned(),
                "x" => {
                    let ty = TYPES[self.below(5)].0;
                    self.expression(ty, depth)
                }
                ty => self.expression(ty, depth),
            });
            rest = behind;
        }
        out + rest
    }

    fn expression(&mut self, ty: &str, depth: usize) -> String {
        // Now and then something of another type: an error, but one with a name.
        let stray = self.below(40) == 0;
        let at = TYPES.iter().position(|t| t.0 == ty).unwrap();
        let (ty, leaves, forms) = TYPES[if stray { self.below(TYPES.len()) } else { at }];
        if depth == 0 || self.below(6) == 0 {
            return self.pick(leaves).to_owned();
        }
        let any = self.below(4) == 0;
        let form = if any { self.pick(&ANY) } else { self.pick(forms) };
        self.filled(&form.replace("{T}", &format!("{{{ty}}}")), depth - 1)
    }
}

#[test]
fn random_statements_never_end_in_an_internal_error() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let mut random = Random(number("VARVE_SEED", 0x5eed));
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(&mut s, TABLE);
    let (mut fine, rounds) = (0, number("VARVE_ROUNDS", 3_000));
    let mut bad = Vec::new();
    for n in 0..rounds as usize {
        let sql = random.filled(STATEMENTS[n % STATEMENTS.len()], 1 + n % 4);
        let mut sink = Recorder::default();
        sink.simple(&mut s, "begin");
        sink.simple(&mut s, &sql);
        let failed = sink.lines.iter().find(|l| l.starts_with("! "));
        fine += usize::from(failed.is_none());
        if let Some(error) =
            failed.filter(|e| e.starts_with("! XX") || e.contains("aggregate functions are not allowed here"))
        {
            bad.push(format!("{sql}\n    {error}"));
        }
        Recorder::default().simple(&mut s, "rollback");
    }
    assert!(bad.is_empty(), "{} internal errors:\n{}", bad.len(), bad.join("\n"));
    assert!(
        fine * 8 > rounds as usize,
        "only {fine} of {rounds} statements ran: the generator tests nothing"
    );
}
