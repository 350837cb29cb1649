//! Descriptions of statements and of the session that a driver gets. `e2e/describe` compares more of them
//! with PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::time::Duration;

use postgres::{Client, NoTls};
use varve::Embedded;
use varve_server::{Listener, Server};

/// Starts the server of a new database, and connects a client with this user name.
fn client_as(user: &str, directory: &Path) -> (Embedded, Server, Client) {
    let db = Embedded::open(directory).unwrap();
    let listener = Listener::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(listener, 5, db.sql().clone()).unwrap();
    let config = format!("host=127.0.0.1 port={} user={user} dbname=postgres", server.address().port());
    let client = Client::connect(&config, NoTls).unwrap();
    (db, server, client)
}

/// A client with an unknown user name gets a session of the first role. Found earlier: `current_user`
/// returned a name that SET ROLE did not know.
#[test]
fn a_name_that_is_no_role_acts_as_the_first_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_db, server, mut client) = client_as("anyone", directory.path());
    let row = client.query_one("select current_user::text, session_user::text", &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), ("postgres", "postgres"));
    client.batch_execute("set role postgres; create table t (a int)").unwrap();
    let sql = "select pg_get_userbyid(relowner)::text from pg_class where relname = 't'";
    assert_eq!(client.query_one(sql, &[]).unwrap().get::<_, &str>(0), "postgres");
    drop(client);
    server.stop(Duration::from_secs(5));
}

/// The database comes from an earlier version. Its first role gets the name that it has in a new database,
/// unless a client has logged in with the old name.
#[test]
fn the_first_role_of_an_older_database_is_renamed_where_nobody_proves_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let first_after = |statement: &str| {
        let db = Embedded::open(directory.path()).unwrap();
        db.session().unwrap().run(statement).unwrap();
        db.close().unwrap();
        let again = Embedded::open(directory.path()).unwrap();
        let first = again.sql().first_role();
        again.close().unwrap();
        first
    };
    let rename = "set session authorization boss; alter role postgres rename to varve";
    assert_eq!(first_after(&format!("create role boss superuser; {rename}")), "postgres");
    assert_eq!(first_after(&format!("{rename}; alter role varve password 'secret'")), "varve");
}

/// sqlx's `query!` and updatable result sets find a column by the table and the number in RowDescription.
/// Found earlier: both were 0.
#[test]
fn columns_say_which_table_they_are_of_and_sessions_where_they_come_from() {
    let directory = tempfile::tempdir().unwrap();
    let (_db, server, mut client) = client_as("postgres", directory.path());
    client
        .batch_execute(
            "create table t (a int, b int, c text); create view v as select c, a + 1 as more from t",
        )
        .unwrap();
    let mut shown = |sql: &str| -> Vec<Option<(String, i16)>> {
        let statement = client.prepare(sql).unwrap();
        let origins = statement.columns().iter().map(|c| c.table_oid().zip(c.column_id()));
        let origins: Vec<Option<(u32, i16)>> = origins.collect();
        let mut named = |(oid, number)| {
            let table =
                client.query_one("select relname::text from pg_class where oid = $1", &[&oid]).unwrap();
            (table.get::<_, String>(0), number)
        };
        origins.into_iter().map(|origin| origin.map(&mut named)).collect()
    };
    let of = |table: &str, number| Some((table.to_owned(), number));
    assert_eq!(shown("select c, a, a + 1, a::bigint from t"), [of("t", 3), of("t", 1), None, None]);
    assert_eq!(shown("select * from v"), [of("v", 1), of("v", 2)]);
    let general = "select x.b, y.n, (select 1) from t x left join (select b as n from t) y on true";
    assert_eq!(shown(general), [of("t", 2), of("t", 2), None]);
    assert_eq!(shown("select b, count(*) from t group by b"), [of("t", 2), None]);
    assert_eq!(shown("with w as (select c from t) select * from w"), [of("t", 3)]);
    assert_eq!(shown("select b from t union select a from t"), [None]);
    assert_eq!(shown("insert into t (b) values (1) returning c, b"), [of("t", 3), of("t", 2)]);
    assert_eq!(
        shown("delete from t using v where t.c = v.c returning t.b, v.more"),
        [of("t", 2), of("v", 2)]
    );
    let sql = "select client_addr, client_port > 0 from pg_stat_activity where pid = pg_backend_pid()";
    let row = client.query_one(sql, &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), (Some("127.0.0.1".to_owned()), Some(true)));
    drop(client);
    server.stop(Duration::from_secs(5));
}
