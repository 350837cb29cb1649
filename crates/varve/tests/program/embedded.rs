//! Tests of the API for programs that embed Varve: parameters, typed columns, iterators, transactions.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::{Duration, SystemTime};

use varve::{Embedded, Isolation, Numeric, SqlSession, ToSql, Value};

/// Opens a new database with 1,000 rows in `item`.
fn with_items(test: impl FnOnce(&mut SqlSession)) {
    let directory = tempfile::tempdir().unwrap();
    let db = Embedded::open(directory.path()).unwrap();
    let mut session = db.session().unwrap();
    session
        .run(
            "create table item (id integer primary key, name text, price numeric(8, 2), at timestamptz);
             insert into item select n, 'item ' || n, n * 1.5, '2024-01-01Z' from generate_series(1, 1000) n",
        )
        .unwrap();
    test(&mut session);
    drop(session);
    db.close().unwrap();
}

/// Returns SQLSTATE and message of an error.
fn error_of<T>(done: Result<T, varve::sql::SqlError>) -> (&'static str, String) {
    done.err().map(|error| (error.sqlstate.0, error.message.into())).unwrap()
}

#[test]
fn parameters_of_all_types_come_back() {
    with_items(|session| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let price: Numeric = "12.50".parse().unwrap();
        let sql = "select $1::boolean b, $2::smallint i2, $3::integer i4, $4::bigint i8, $5::real f4, \
                   $6::double precision f8, $7::numeric n, $8::text t, $9::bytea y, $10::timestamptz tz, $11::uuid u, \
                   $12::integer[] a, $13::text[] ta, $14::date d, $15::json j";
        let params: [&dyn ToSql; 15] = [
            &true,
            &2i16,
            &3,
            &4i64,
            &1.5f32,
            &2.5,
            &price,
            &"text",
            &vec![0u8, 255],
            &time,
            &[7u8; 16],
            &vec![1, 2],
            &["a", "b"][..].to_vec().iter().map(ToString::to_string).collect::<Vec<_>>(),
            &"2024-02-29",
            &"{\"a\": 1}",
        ];
        let row = session.query_one(sql, &params).unwrap();
        assert!(row.get::<bool>("b").unwrap());
        assert_eq!(row.get::<i16>("i2").unwrap(), 2);
        assert_eq!(row.get::<u8>("i4").unwrap(), 3);
        assert_eq!(row.get::<Option<i64>>(3).unwrap(), Some(4));
        assert_eq!(row.get::<f64>("f4").unwrap(), 1.5);
        assert_eq!(row.get::<f64>("f8").unwrap(), 2.5);
        assert_eq!(row.get::<Numeric>("n").unwrap().to_string(), "12.50");
        assert_eq!(row.get::<&str>("t").unwrap(), "text");
        assert_eq!(row.get::<&[u8]>("y").unwrap(), [0, 255]);
        assert_eq!(row.get::<SystemTime>("tz").unwrap(), time);
        assert_eq!(row.get::<[u8; 16]>("u").unwrap(), [7; 16]);
        assert_eq!(row.get::<Vec<i32>>("a").unwrap(), [1, 2]);
        assert_eq!(row.get::<Vec<String>>("ta").unwrap(), ["a", "b"]);
        assert!(matches!(row.get::<&Value>("d").unwrap(), Value::Date(8825)));
        assert_eq!(row.get::<String>(String::from("j")).unwrap(), "{\"a\": 1}");
        assert_eq!((row.text("t"), row.integer("i8")), (Some("text"), Some(4)));
    });
}

#[test]
fn errors_name_column_type_and_parameter() {
    with_items(|session| {
        let row =
            session.query_one("select 300 as big, null::text as none, now()::date as day", &[]).unwrap();
        for (found, expect) in [
            (
                error_of(row.get::<u8>("big")),
                ("22003", "the value of column \"big\" of type integer is out of range for u8"),
            ),
            (
                error_of(row.get::<&str>("none")),
                ("22004", "column \"none\" of type text is NULL, which &str has not"),
            ),
            (
                error_of(row.get::<i64>("day")),
                ("42804", "column \"day\" has the type date, which is not read as i64"),
            ),
            (error_of(row.get::<i64>("dya")), ("42703", "the result has no column \"dya\"")),
            (error_of(row.get::<i64>(7)), ("42703", "the result has no column number 7 (from 0)")),
            (
                error_of(session.execute("select $1::date", &[&true])),
                ("42804", "parameter $1 has the type date, but the program gives boolean"),
            ),
            (
                error_of(session.execute("select $1::smallint", &[&70_000])),
                ("22003", "parameter $1 is out of range for type smallint"),
            ),
            (
                error_of(session.execute("select $1::int, $2::int", &[&1])),
                ("08P01", "the statement has 2 parameters, but 1 were given"),
            ),
            (
                error_of(session.query_one("select 1 where false", &[])),
                ("02000", "the query returned no row, but one was expected"),
            ),
            (
                error_of(session.query_opt("select * from item limit 2", &[])),
                ("21000", "the query returned 2 rows, but at most one was expected"),
            ),
        ] {
            assert_eq!((found.0, found.1.as_str()), expect);
        }
        // None of these errors has left a transaction open.
        assert_eq!(session.inner().transaction_status(), b'I');
    });
}

#[test]
fn rows_come_while_the_query_runs() {
    with_items(|session| {
        // All rows of this query would be 10^9.
        let endless = "select a.id from item a, item b, item c where a.id < $1";
        let ids: Vec<i32> = session
            .query_iter(endless, &[&2])
            .unwrap()
            .take(5)
            .map(|row| row.unwrap().get(0).unwrap())
            .collect();
        assert_eq!(ids, [1; 5]);
        let all = "select id, name from item order by id";
        let sum = session
            .query_iter(all, &[])
            .unwrap()
            .map(|row| row.unwrap().get::<i64>("id").unwrap())
            .sum::<i64>();
        assert_eq!(sum, 500_500);
        assert_eq!(session.query_iter(all, &[]).unwrap().columns().len(), 2);
        assert_eq!(session.query_iter(all, &[]).unwrap().finish().unwrap(), 1000);
        // An error in the middle ends the iterator.
        let mut rows = session.query_iter("select 1 / (500 - id) as q from item order by id", &[]).unwrap();
        let error = rows.by_ref().find_map(Result::err).unwrap();
        assert_eq!(error.sqlstate.0, "22012");
        assert!(rows.next().is_none());
        drop(rows);
        // An iterator that is never dropped ends at the next call.
        std::mem::forget(session.query_iter(all, &[]).unwrap());
        assert_eq!(session.query("select 1").unwrap().len(), 1);
    });
}

#[test]
fn a_stopped_query_leaves_its_transaction_open() {
    with_items(|session| {
        let mut transaction = session.transaction().unwrap();
        transaction.execute("update item set name = $1 where id = 1", &[&"changed"]).unwrap();
        for query in [
            "select * from item",
            "select a.id from item a join item b on a.name = b.name",
            "select id from item for update",
        ] {
            let first = transaction.query_iter(query, &[]).unwrap().next().unwrap();
            assert!(first.is_ok(), "{query}");
            assert_eq!(transaction.inner().transaction_status(), b'T', "{query}");
        }
        transaction.commit().unwrap();
        // Statements that change rows run to their end, read or not.
        drop(session.query_iter("delete from item where id > 1 returning id", &[]).unwrap());
        let rows = session.query("select name from item").unwrap();
        assert_eq!(rows.iter().map(|row| row.text("name").unwrap()).collect::<Vec<_>>(), ["changed"]);
    });
}

#[test]
fn a_dropped_guard_rolls_back() {
    with_items(|session| {
        let count = |session: &mut SqlSession| {
            session.query_one("select count(*) from item", &[]).unwrap().get::<i64>(0).unwrap()
        };
        let mut transaction = session.transaction().unwrap();
        transaction.execute("delete from item", &[]).unwrap();
        drop(transaction);
        assert_eq!(count(session), 1000);

        let mut outer = session.transaction().unwrap();
        outer.execute("delete from item where id = 1", &[]).unwrap();
        let mut nested = outer.transaction().unwrap();
        nested.execute("delete from item", &[]).unwrap();
        assert!(nested.execute("select 1 / 0", &[]).is_err());
        drop(nested);
        let mut nested = outer.transaction().unwrap();
        nested.execute("delete from item where id = 2", &[]).unwrap();
        nested.commit().unwrap();
        outer.commit().unwrap();
        assert_eq!(count(session), 998);

        let mut failed = session.transaction().unwrap();
        assert!(failed.execute("select 1 / 0", &[]).is_err());
        assert_eq!(error_of(failed.commit()).0, "25P02");
        let mut ended = session.transaction().unwrap();
        ended.run("commit").unwrap();
        assert_eq!(error_of(ended.commit()).0, "25P01");
        session.run("begin").unwrap();
        assert_eq!(error_of(session.transaction().map(drop)).0, "25001");
        session.run("rollback").unwrap();

        let reader = session.build_transaction().isolation_level(Isolation::Serializable).read_only(true);
        let mut reader = reader.start().unwrap();
        let level = reader.query_one("show transaction_isolation", &[]).unwrap();
        assert_eq!(level.text("transaction_isolation"), Some("serializable"));
        assert_eq!(error_of(reader.execute("delete from item", &[])).0, "25006");
    });
}

#[test]
fn a_prepared_statement_outlives_definitions() {
    with_items(|session| {
        let by_id = session.prepare("select name from item where id = $1").unwrap();
        assert_eq!((by_id.param_types(), by_id.columns().len()), (&[23][..], 1));
        for id in [1, 2] {
            let row = session.query_one(&by_id, &[&id]).unwrap();
            assert_eq!(row.get::<String>("name").unwrap(), format!("item {id}"));
            session.run(&format!("create index on item (name) where id > {id}")).unwrap();
        }
    });
}
