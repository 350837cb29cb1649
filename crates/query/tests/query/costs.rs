//! The estimates that EXPLAIN shows for general queries.

use super::support::{database, lines, session};
use varve_sql::Session;

/// Returns the total cost and the rows in a line of EXPLAIN.
fn estimate(line: &str) -> (f64, f64) {
    let between = |from: &str, to: &str| {
        let rest = line.split_once(from).unwrap_or_else(|| panic!("{from} is not in {line}")).1;
        rest.split_once(to).unwrap().0.parse::<f64>().unwrap()
    };
    (between("..", " rows="), between(" rows=", " width="))
}

/// Returns the first line that begins a step of this name.
fn step(session: &mut Session, sql: &str, name: &str) -> (f64, f64) {
    let shown = lines(session, &format!("explain {sql}"));
    let found = shown.iter().find(|line| line.trim_start_matches([' ', '-', '>']).starts_with(name));
    estimate(found.unwrap_or_else(|| panic!("{name} is not in {shown:#?}")))
}

#[test]
fn rows_of_joins_and_groups_are_estimated() {
    let mut session = session(&database());
    lines(&mut session, "create table c (id int primary key, country int, name text)");
    lines(&mut session, "create table o (id int primary key, c_id int, price numeric)");
    lines(&mut session, "insert into c select i, i % 25, 'customer ' || i from generate_series(1, 1000) i");
    lines(&mut session, "insert into o select i, i % 1000 + 1, i from generate_series(1, 10000) i");
    let mut near = |sql: &str, name: &str, rows: f64| {
        let (cost, estimate) = step(&mut session, sql, name);
        assert!((rows * 0.6..=rows * 1.6).contains(&estimate), "{sql}: {estimate} for {rows}");
        assert!(cost > 0.0, "{sql}: {cost}");
    };
    near("select * from c join o on o.c_id = c.id", "Hash Join", 10_000.0);
    near("select * from c join o on o.c_id = c.id where c.country = 3", "Hash Join", 400.0);
    near("select * from c left join o on o.c_id = c.id and o.price < 10", "Hash", 1_000.0);
    near("select * from c where id in (select c_id from o where o.id > 5000)", "Hash", 1_000.0);
    near("select * from c, o", "Nested Loop", 10_000_000.0);
    near("select country, count(*) from c join o on o.c_id = c.id group by country", "HashAggregate", 25.0);
    near("select * from c a, c b where a.id = b.id order by a.name limit 7", "Sort", 7.0);
    near("select * from c union all select * from c", "Append", 2_000.0);
    near(
        "with w as materialized (select * from c where id <= 300) select * from w a, w b where a.id = b.id",
        "Hash Join",
        300.0,
    );
    near("select * from (values (1), (2), (3)) v (x), c where c.id = v.x", "Values Scan", 3.0);
    // More rows cost more.
    let all = step(&mut session, "select * from c join o on o.c_id = c.id", "Hash Join").0;
    let few = step(&mut session, "select * from c join o on o.c_id = c.id where o.id < 100", "Hash Join").0;
    assert!(few < all / 2.0, "{few} and {all}");
    let told = lines(&mut session, "explain (costs off) select * from c join o on o.c_id = c.id");
    assert!(told.iter().all(|line| !line.contains("cost=")), "{told:?}");
    let ran = lines(&mut session, "explain (analyze, timing off) select * from c join o on o.c_id = c.id");
    assert!(
        ran[0].contains("  (cost=") && ran[0].ends_with(" width=80) (actual rows=10000 loops=1)"),
        "{ran:?}"
    );
}
