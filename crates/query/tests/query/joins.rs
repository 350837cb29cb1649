//! General queries through a session: joins with aggregates, with columns of different types on the two
//! sides, and errors.

use super::support::{database, lines, session};

const SETUP: &str = "
    create table customer (id int primary key, name varchar(20) not null, code char(4), rate numeric(6,3));
    create table orders (id bigint primary key, customer int, amount numeric(12,2), placed date, weight float8);
    create index orders_of on orders (customer);
    insert into customer values (1, 'Ann', 'a', 1.0), (2, 'Bob', 'b', 1.00), (3, 'Cid', null, 0.5);
    insert into orders values
        (10, 1, 10.50, '2026-01-02', 1.5), (11, 1, 0.25, '2026-01-03', -0.0), (12, 2, 100.00, '2026-01-02', 0),
        (13, null, 7, null, 'NaN'), (14, 1, 10.5, '2025-12-31', 2)";

fn check(cases: &[(&str, &[&str])]) {
    let mut session = session(&database());
    assert_eq!(lines(&mut session, SETUP).last().map(String::as_str), Some("= INSERT 0 5"));
    for (sql, expected) in cases {
        assert_eq!(lines(&mut session, sql), *expected, "{sql}");
    }
}

#[test]
fn a_join_is_grouped_and_ordered() {
    check(&[
        (
            "select c.name, count(*), sum(o.amount), avg(o.amount), min(placed)
             from customer c join orders o on o.customer = c.id
             where o.amount > 0.3 group by c.name order by 3 desc",
            &[
                "Bob|1|100.00|100.0000000000000000|2026-01-02",
                "Ann|2|21.00|10.5000000000000000|2025-12-31",
                "= SELECT 2",
            ],
        ),
        (
            "select name, o.id from customer c, orders o where c.id = customer and c.id = 2",
            &["Bob|12", "= SELECT 1"],
        ),
        (
            "select c.id, o.id from customer c left join orders o on o.customer = c.id and o.weight >= 0
             order by 1, 2",
            &["1|10", "1|11", "1|14", "2|12", "3|NULL", "= SELECT 5"],
        ),
        ("select count(*) from customer, orders", &["15", "= SELECT 1"]),
        (
            "select c.code, o.id from customer c join orders o on c.id = o.customer order by o.id limit 1 offset 1",
            &["a   |11", "= SELECT 1"],
        ),
    ]);
}

#[test]
fn values_compare_as_postgresql_does() {
    check(&[
        // 1.0 and 1.00 are one value. It is shown in the form that came first.
        (
            "select a.rate, count(*) from customer a join customer b on a.rate = b.rate group by a.rate order by 1",
            &["0.500|1", "1.000|4", "= SELECT 2"],
        ),
        // 0 and -0 are one value, too, and NaN equals itself.
        (
            "select count(*) from orders a join orders b on a.weight = b.weight where a.id <> b.id",
            &["2", "= SELECT 1"],
        ),
        (
            "select sum(a.id), sum(a.customer), avg(a.id) from orders a join orders b on a.id = b.id",
            &["60|5|12.0000000000000000", "= SELECT 1"],
        ),
        (
            "select count(distinct a.amount), count(distinct a.weight) from orders a join orders b on a.id = b.id",
            &["4|4", "= SELECT 1"],
        ),
    ]);
}

#[test]
fn queries_stand_in_from() {
    check(&[
        // go-tpc's check of consistency has this shape.
        (
            "select count(*) from (select c.id, rate r, s from customer c left join
               (select customer, sum(amount) as s from orders group by customer order by customer) as o
               on o.customer = c.id where c.id <= 3) as t where t.s is null or t.s <> 21.25",
            &["2", "= SELECT 1"],
        ),
        (
            "select x.b, count(*) from (select id, amount from orders order by amount desc, id limit 3) x (a, b)
             group by x.b order by 1",
            &["10.50|2", "100.00|1", "= SELECT 2"],
        ),
        // The inner query has conditions on its key. None of them may get lost.
        ("select x.name from (select name from customer where id = 2) x", &["Bob", "= SELECT 1"]),
        ("select x.m from (select max(id) m from orders where id < 12 and id >= 10) x", &["11", "= SELECT 1"]),
        ("select x.id from (select id from orders where id > 10 order by id limit 2) x", &["11", "12", "= SELECT 2"]),
        ("select count(distinct x.r) > 1 from (select random() as r from orders, customer) x", &["t", "= SELECT 1"]),
        ("select * from (select 1 from customer limit -1) x", &["! 2201W LIMIT must not be negative"]),
        ("select * from (select 1 from customer)", &["! 42601 subquery in FROM must have an alias"]),
    ]);
}

#[test]
fn errors_are_those_of_the_short_path() {
    check(&[
        (
            "select 1 / (o.id - 10) from customer c join orders o on o.customer = c.id",
            &["! 22012 division by zero"],
        ),
        (
            "select c.id + 2147483647 from customer c join orders o on o.customer = c.id",
            &["! 22003 integer out of range"],
        ),
        (
            "select id from customer c join orders o on o.customer = c.id",
            &["! 42702 column reference \"id\" is ambiguous"],
        ),
        ("select x.id from customer c, orders o", &["! 42P01 missing FROM-clause entry for table \"x\""]),
        ("select 1 from customer, customer", &["! 42712 table name \"customer\" specified more than once"]),
        (
            "select c.name, sum(o.id) from customer c, orders o",
            &[
                "! 42803 column \"c.name\" must appear in the GROUP BY clause or be used in an aggregate function",
            ],
        ),
        // A condition that would fail is not evaluated for a row for which a condition before it is false.
        (
            "select count(*) from customer c join orders o on o.customer = c.id where o.id <> 10 and 1 / (o.id - 10) > 0",
            &["1", "= SELECT 1"],
        ),
    ]);
}

#[test]
fn a_join_sees_what_its_transaction_has_written() {
    let db = database();
    let (mut writer, mut other) = (session(&db), session(&db));
    lines(&mut writer, SETUP);
    let query = "select count(*) from customer c join orders o on o.customer = c.id";
    lines(&mut writer, "begin");
    lines(&mut writer, "insert into orders values (20, 3, 1, null, null)");
    assert_eq!(lines(&mut writer, query), ["5", "= SELECT 1"]);
    assert_eq!(lines(&mut other, query), ["4", "= SELECT 1"]);
    lines(&mut writer, "rollback");
    assert_eq!(lines(&mut writer, query), ["4", "= SELECT 1"]);
}

#[test]
fn many_batches_come_in_full_by_key_and_by_index() {
    let mut session = session(&database());
    lines(&mut session, "create table n (id int primary key, half int); create index n_half on n (half)");
    lines(&mut session, "insert into n select i, i / 2 from generate_series(1, 20000) as i");
    let by_key = "select count(*), sum(b.id) from n a join n b on a.id = b.half";
    assert_eq!(lines(&mut session, by_key), ["19999|200009999", "= SELECT 1"]);
    let by_index = "select count(*), sum(b.id) from n a join n b on a.id = b.id where b.half >= 5000";
    assert_eq!(lines(&mut session, by_index), ["10001|150015000", "= SELECT 1"]);
}

/// Review 8, A8: the relations of inner joins were bits of one 64-bit word. From the 65th relation on, some
/// were confused with others.
#[test]
fn more_relations_than_a_word_has_bits_are_joined() {
    let mut session = session(&database());
    lines(&mut session, "create table n (id int primary key); insert into n values (1), (2), (3)");
    let joins: String = (1..70).map(|n| format!(" join n n{n} on n{n}.id = n{}.id", n - 1)).collect();
    let sql = format!("select count(*), sum(n69.id) from n n0{joins}");
    assert_eq!(lines(&mut session, &sql), ["3|6", "= SELECT 1"]);
}

/// Review 8, A9: the time to plan n outer joins on columns without statistics grew with 2^n.
#[test]
fn outer_joins_of_values_are_planned_in_no_time() {
    let mut session = session(&database());
    lines(&mut session, "create table n (id int primary key); insert into n values (1), (2), (3)");
    let joins: String = (0..40).map(|n| format!(" left join n n{n} on n{n}.id = v.a")).collect();
    let sql = format!("select count(n39.id) from (values (1), (5)) v(a){joins}");
    assert_eq!(lines(&mut session, &sql), ["1", "= SELECT 1"]);
}
