//! Tests that the `.slt` files cannot express: positions, portals, plans across DDL, cancelling, reported
//! settings.

use std::time::Duration;

use crate::support::{Recorder, database, session};
use varve_engine::{ColumnType, Datum};
use varve_sql::{Portal, Progress, Session, SessionParams, SqlDatabase, oid};

#[test]
fn errors_point_at_the_token() {
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(&mut s, "create table t (a int, b text)");
    for (sql, position) in [
        ("select nosuch from t", Some(8)),
        ("select a from nosuch", Some(15)),
        ("select 1; select nosuch", Some(18)),
        ("select 1 +", Some(11)),
        ("selec 1", Some(1)),
        ("select a +\n  nosuch\nfrom t", Some(14)),
        ("select nofunc(1)", Some(8)),
        ("insert into t (a, x) values (1, 2)", Some(19)),
        ("select 'äöü', nosuch", Some(15)),
        ("select a = true from t", Some(10)),
        ("select 'x'::int", Some(8)),
        ("select 1 / 0", None),
    ] {
        let error = s.simple(sql, &mut Recorder::default()).unwrap_err();
        assert_eq!(error.position, position, "{sql}: {error}");
    }
}

#[test]
fn a_portal_hands_out_its_rows_in_slices() {
    let db = database();
    let mut s = session(&db);
    let statement = s.prepare("select * from generate_series(1, $1)", &[]).unwrap();
    let mut portal = Portal::default();
    let mut sink = Recorder::default();
    let params = [Datum::Int4(5)];
    for _ in 0..2 {
        let progress = s.execute(&statement, &params, &mut portal, 2, &mut sink).unwrap();
        assert_eq!(progress, Progress::Suspended);
    }
    let last = s.execute(&statement, &params, &mut portal, 2, &mut sink).unwrap();
    assert!(matches!(last, Progress::Complete(_)));
    assert_eq!(sink.lines, ["1", "2", "3", "4", "5"]);
    s.sync().unwrap();
}

#[test]
fn statements_survive_a_change_of_their_table() {
    let db = database();
    let (mut s, mut other) = (session(&db), session(&db));
    let mut sink = Recorder::default();
    sink.simple(&mut s, "create table t (a int, b int); insert into t values (1, 2)");
    let statement = s.prepare("select b from t where a = $1", &[]).unwrap();
    s.sync().unwrap();
    let ask = |s: &mut varve_sql::Session| {
        let mut sink = Recorder::default();
        let result = s.execute(&statement, &[Datum::Int4(1)], &mut Portal::default(), 0, &mut sink);
        let synced = s.sync();
        result.and(synced.map(|()| sink.lines)).map_err(|e| e.to_string())
    };
    assert_eq!(ask(&mut s).unwrap(), ["2"]);
    sink.simple(&mut other, "create index t_a on t (a)");
    assert_eq!(ask(&mut s).unwrap(), ["2"]);
    sink.simple(&mut other, "drop table t; create table t (b int, a int); insert into t values (3, 1)");
    assert_eq!(ask(&mut s).unwrap(), ["3"]);
    sink.simple(&mut other, "drop table t; create table t (b text, a int)");
    assert!(ask(&mut s).unwrap_err().contains("cached plan must not change result type"));
    sink.simple(&mut other, "drop table t");
    assert!(ask(&mut s).unwrap_err().contains("does not exist"));
    let error = s.prepare("select b from t where a = $1", &[]).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "42P01");
}

#[test]
fn cached_texts_follow_the_catalog() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    for sql in [
        "create table t (a int); insert into t values (1)",
        "select * from t where a = 1",
        "drop table t",
        "select * from t where a = 1",
        "create table t (x text, a int); insert into t values ('y', 1)",
        "select * from t where a = 1",
        "begin; drop table t",
        "select * from t where a = 1",
        "rollback",
        "select * from t where a = 1",
    ] {
        sink.lines.push(format!("> {}", &sql[..6]));
        sink.simple(&mut s, sql);
    }
    let rows: Vec<&str> =
        sink.lines.iter().map(String::as_str).filter(|l| !l.starts_with(['=', '>'])).collect();
    assert_eq!(
        rows,
        ["1", "! 42P01 relation \"t\" does not exist", "y|1", "! 42P01 relation \"t\" does not exist", "y|1"]
    );
}

#[test]
fn a_running_statement_can_be_cancelled() {
    let db = database();
    let mut s = session(&db);
    let token = s.cancel_token();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        token.cancel();
    });
    let error = s.simple("select pg_sleep(20)", &mut Recorder::default()).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "57014");
    canceller.join().unwrap();
    let mut sink = Recorder::default();
    sink.simple(&mut s, "select 1");
    assert_eq!(sink.lines, ["1", "= SELECT 1"]);
}

#[test]
fn settings_are_reported_once_and_when_they_change() {
    let db = database();
    let mut s = session(&db);
    let first = s.take_reports();
    assert!(first.iter().any(|(n, v)| *n == "server_encoding" && v == "UTF8"));
    assert!(first.iter().any(|(n, v)| *n == "TimeZone" && v == "UTC"));
    assert!(s.take_reports().is_empty());
    Recorder::default().simple(&mut s, "set application_name = 'x'");
    assert_eq!(s.take_reports(), [("application_name", "x".to_owned())]);
    Recorder::default().simple(&mut s, "begin; set application_name = 'y'");
    assert_eq!(s.take_reports(), [("application_name", "y".to_owned())]);
    Recorder::default().simple(&mut s, "rollback");
    assert_eq!(s.take_reports(), [("application_name", "x".to_owned())]);
}

#[test]
fn long_and_deep_statements_end_in_an_answer() {
    let db = database();
    let mut s = session(&db);
    let any = (0..2_000).map(|n| format!("a = {n}")).collect::<Vec<_>>().join(" or ");
    let mut sink = Recorder::default();
    sink.simple(&mut s, "create table t (a int primary key); insert into t values (7), (8)");
    sink.lines.clear();
    sink.simple(&mut s, &format!("select a from t where {any} order by a"));
    assert_eq!(sink.lines, ["7", "8", "= SELECT 2"]);
    for deep in [
        format!("select {}1", "1 + ".repeat(20_000)),
        format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("select {}1", "- ".repeat(20_000)),
        format!("select 1; select {}1", "1 + ".repeat(20_000)),
        format!("create table deep (a int default {}1)", "1 + ".repeat(20_000)),
        // A new user got the error 42601 at or near "not" for this.
        format!("select {}true", "not ".repeat(300)),
        format!("select {}1{}", "case when true then ".repeat(300), " end".repeat(300)),
    ] {
        let error = s.simple(&deep, &mut Recorder::default()).unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "54001");
    }
    for fine in [
        format!("select {}true", "not ".repeat(60)),
        format!("select {}1{}", "case when true then ".repeat(60), " end".repeat(60)),
        format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("select {}1", "1 + ".repeat(200)),
        format!("select {}true", "true and ".repeat(20_000)),
    ] {
        s.simple(&fine, &mut Recorder::default()).unwrap();
    }
}

#[test]
fn declared_types_are_kept() {
    let db = database();
    let mut s = session(&db);
    Recorder::default()
        .simple(&mut s, "create table t (id int primary key, c char(10)); insert into t values (1, 'a')");
    let update = s.prepare("UPDATE t SET c=$1 WHERE id=$2", &[1043, 20]).unwrap();
    assert_eq!(update.param_types(), [1043, 20]);
    let params = [Datum::Text("xyz  "), Datum::Int8(1)];
    s.execute(&update, &params, &mut Portal::default(), 0, &mut Recorder::default()).unwrap();
    s.sync().unwrap();
    let select = s.prepare("select id, c from t where c = $1", &[]).unwrap();
    assert_eq!(select.param_types(), [1042]);
    assert_eq!(select.columns().map(|c| (c[1].type_oid, c[1].typmod)), Some((1042, 14)));
    let mut sink = Recorder::default();
    s.execute(&select, &[Datum::Text("xyz ")], &mut Portal::default(), 0, &mut sink).unwrap();
    s.sync().unwrap();
    assert_eq!(sink.lines, ["1|xyz       "]);
    let error = s.prepare("select $1", &[600]).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "0A000");
}

#[test]
fn violations_name_table_column_and_constraint() {
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(
        &mut s,
        "create schema z; create table z.t (id int primary key, v int not null, constraint v_once unique (v)); \
         insert into z.t values (1, 10)",
    );
    let mut subject = |sql: &str| {
        let error = s.simple(sql, &mut Recorder::default()).unwrap_err();
        let subject = error.subject.clone().unwrap_or_default();
        let fields = [subject.schema, subject.table, subject.column, subject.constraint];
        let fields = fields.map(|f| f.map_or("-".into(), String::from)).join(" ");
        format!("{} {fields}: {}", error.sqlstate, error.detail.as_deref().unwrap_or("-"))
    };
    for (sql, expected) in [
        ("insert into z.t values (1, 2)", "23505 z t - t_pkey: Key (id)=(1) already exists."),
        ("insert into z.t values (2, 10)", "23505 z t - v_once: Key (v)=(10) already exists."),
        ("insert into z.t values (2, null)", "23502 z t v -: Failing row contains (2, null)."),
        ("insert into z.t (v) values (5)", "23502 z t id -: Failing row contains (null, 5)."),
        ("update z.t set v = null", "23502 z t v -: Failing row contains (1, null)."),
    ] {
        assert_eq!(subject(sql), expected, "{sql}");
    }
    Recorder::default()
        .simple(&mut s, "create table w (a int, b int); insert into w values (1, null), (1, 2)");
    let mut subject = |sql: &str| {
        let error = s.simple(sql, &mut Recorder::default()).unwrap_err();
        (error.sqlstate.as_str(), error.subject.unwrap_or_default())
    };
    let (state, about) = subject("create unique index w_a on w (a)");
    assert_eq!(
        (state, about.table.as_deref(), about.constraint.as_deref()),
        ("23505", Some("w"), Some("w_a"))
    );
    let (state, about) = subject("alter table w alter b set not null");
    assert_eq!((state, about.table.as_deref(), about.column.as_deref()), ("23502", Some("w"), Some("b")));
}

#[test]
fn chains_and_nests_of_any_length_bind_in_time() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "create table t (a int, b int); insert into t values (7, 1), (8, 2)");
    let mut time = |count: usize| {
        let any = (0..count).map(|n| format!("b + a = {n}")).collect::<Vec<_>>().join(" or ");
        let begin = std::time::Instant::now();
        let mut sink = Recorder::default();
        sink.simple(&mut s, &format!("select a from t where {any} order by a"));
        assert_eq!(sink.lines, ["7", "8", "= SELECT 2"]);
        begin.elapsed()
    };
    let (short, long) = (time(10_000), time(100_000));
    assert!(long < short * 40 + Duration::from_secs(1), "10,000: {short:?}, 100,000: {long:?}");
    // Earlier, each level doubled the expression.
    let nested = (0..40).fold("a + 1".to_owned(), |e, n| format!("nullif({e}, {n})"));
    let mut sink = Recorder::default();
    sink.simple(&mut s, &format!("select {nested} from t"));
    assert_eq!(sink.lines, ["NULL", "NULL", "= SELECT 2"]);
}

/// pgjdbc and other drivers do this. Earlier, it was refused with 0A000.
#[test]
fn the_start_up_packet_may_name_a_time_zone() {
    let db = database();
    let params = |zone: &str| SessionParams {
        user: "postgres".into(),
        settings: vec![("TimeZone".into(), zone.into())],
        ..SessionParams::default()
    };
    let mut s = Session::new(db.clone(), params("europe/berlin")).unwrap();
    assert!(s.take_reports().contains(&("TimeZone", "Europe/Berlin".to_owned())));
    let mut sink = Recorder::default();
    sink.simple(
        &mut s,
        "set timezone = 'Asia/Tokyo'; reset timezone; select '2024-07-01 12:00Z'::timestamptz",
    );
    assert_eq!(sink.lines.iter().rev().nth(1).unwrap(), "2024-07-01 14:00:00+02");
    let refused = Session::new(db, params("Europe/Nowhere")).err().unwrap();
    assert_eq!(refused.sqlstate.as_str(), "22023");
}

/// `options=-c search_path=...` and the settings of connection pools do this.
#[test]
fn the_start_up_packet_may_name_a_search_path() {
    let db = database();
    let mut sink = Recorder::default();
    let tables = "create table t (a text); insert into t values ('public')";
    sink.simple(&mut session(&db), tables);
    let tables = "create schema app; create table app.t (a text); insert into app.t values ('app')";
    sink.simple(&mut session(&db), tables);
    let mut ask = |path: &str, sql: &str| {
        let params = SessionParams {
            user: "postgres".into(),
            settings: vec![("search_path".into(), path.into())],
            ..SessionParams::default()
        };
        let mut s = Session::new(db.clone(), params).unwrap();
        sink.lines.clear();
        sink.simple(&mut s, sql);
        sink.lines.clone()
    };
    let asked = "select a from t; show search_path";
    assert_eq!(ask("app, public", asked), ["app", "= SELECT 1", "app, public", "= SHOW"]);
    assert_eq!(ask("public", asked), ["public", "= SELECT 1", "public", "= SHOW"]);
    // RESET sets the value of the packet again. A schema that does not exist is skipped.
    let reset = "set search_path to public; reset search_path; select a from t";
    assert_eq!(ask("nowhere,app", reset).iter().rev().nth(1).unwrap(), "app");
    let prepared = "prepare s as select a from t; execute s; set search_path to public; execute s";
    assert_eq!(ask("app", prepared), ["= PREPARE", "app", "= SELECT 1", "= SET", "public", "= SELECT 1"]);
}

/// Review 8, A1: a role was dropped or renamed while its client logged in. The session then had no role, and
/// could do everything.
#[test]
fn who_has_proved_a_password_must_still_be_that_role() {
    let db = database();
    let mut admin = session(&db);
    let mut sink = Recorder::default();
    let mut log_in_during = |change: &str| {
        sink.simple(&mut admin, "drop role if exists bob, bob2; create role bob login password 'one'");
        let proved = Some(db.verifier("bob"));
        sink.simple(&mut admin, change);
        let params = SessionParams { user: "bob".into(), proved, ..SessionParams::default() };
        Session::new(db.clone(), params).map(|_| ()).map_err(|e| e.sqlstate.as_str())
    };
    assert_eq!(log_in_during("select 1"), Ok(()));
    assert_eq!(log_in_during("drop role bob"), Err("28P01"));
    assert_eq!(log_in_during("alter role bob rename to bob2"), Err("28P01"));
    assert_eq!(log_in_during("alter role bob password 'one'"), Err("28P01"));
    assert_eq!(log_in_during("alter role bob nologin"), Err("28000"));
}

/// Review 8, B3: the salt of a name that is no role changed with each start. The salts of roles did not
/// change, so a client could distinguish them.
#[test]
fn a_name_that_is_no_role_keeps_its_salt_across_starts() {
    let db = database();
    let mut admin = session(&db);
    Recorder::default()
        .simple(&mut admin, "alter role postgres password 'one'; create role bob login password 'two'");
    let salt = |db: &SqlDatabase, name: &str| db.verifier(name).salt;
    let again = SqlDatabase::new(db.engine().clone());
    for name in ["bob", "nobody", "somebody"] {
        assert_eq!(salt(&db, name), salt(&again, name), "{name}");
    }
    assert_ne!(salt(&db, "nobody"), salt(&db, "somebody"));
}

#[test]
fn an_interval_column_says_what_it_is() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "select interval '1 day' as i, timestamp '2024-01-02' - timestamp '2024-01-01'");
    assert_eq!(sink.columns.iter().map(|c| c.type_oid).collect::<Vec<_>>(), [1186, 1186]);
    assert_eq!(sink.lines[0], "1 day|1 day");
}

/// Earlier, RESET did not change the timeout of the running transaction.
#[test]
fn reset_lock_timeout_reaches_the_running_transaction() {
    let db = database();
    let (mut holder, mut waiter) = (session(&db), session(&db));
    Recorder::default().simple(&mut holder, "create table t (a int primary key); insert into t values (1)");
    Recorder::default().simple(&mut holder, "begin; update t set a = a");
    let mut sink = Recorder::default();
    sink.simple(&mut waiter, "begin; set lock_timeout = '10ms'; select a from t; reset lock_timeout");
    let token = waiter.cancel_token();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        token.cancel();
    });
    let error = waiter.simple("update t set a = a", &mut Recorder::default()).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "57014", "{error}");
    canceller.join().unwrap();
}

#[test]
fn discard_all_forgets_what_the_session_knew() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "set timezone = 'Asia/Tokyo'; set lock_timeout = 5; prepare p as select 1");
    sink.simple(&mut s, "discard all");
    sink.lines.clear();
    for sql in ["show timezone", "show lock_timeout", "execute p", "begin; discard all"] {
        sink.simple(&mut s, sql);
    }
    let answers: Vec<&str> = sink.lines.iter().map(String::as_str).filter(|l| !l.starts_with("= ")).collect();
    let expected = [
        "UTC",
        "0",
        "! 26000 prepared statement \"p\" does not exist",
        "! 25001 DISCARD ALL cannot run inside a transaction block",
    ];
    assert_eq!(answers, expected);
}

/// Earlier, the `setFloat` of drivers was refused: "parameter $1 of the type with OID 700 is not supported".
#[test]
fn a_parameter_declared_as_real_is_one() {
    let db = database();
    let mut s = session(&db);
    let statement = s.prepare("select $1 + 1.5::double precision", &[oid::FLOAT4]).unwrap();
    assert_eq!(statement.param_types(), [oid::FLOAT4], "the client's own type is described");
    assert_eq!(statement.param_column_type(0), ColumnType::Float4);
    assert_eq!(statement.columns().unwrap()[0].type_oid, oid::FLOAT8);
}

/// A sink that requests a cancel with each row that it gets.
struct Cancels(varve_sql::CancelToken, usize);

impl varve_sql::Sink for Cancels {
    fn columns(&mut self, _: &[varve_sql::Column]) -> varve_sql::Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[Datum<'_>]) -> varve_sql::Result<()> {
        self.0.cancel();
        self.1 += 1;
        Ok(())
    }

    fn complete(&mut self, _: &varve_sql::CommandTag) -> varve_sql::Result<()> {
        Ok(())
    }

    fn empty(&mut self) -> varve_sql::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: varve_sql::Severity, _: &varve_sql::SqlError) {}
}

/// Earlier, a client got all rows even if it had requested a cancel, or if its timeout was over (review 10,
/// P1).
#[test]
fn a_portal_that_is_resumed_can_be_cancelled() {
    let db = database();
    let mut s = session(&db);
    Recorder::default().simple(&mut s, "begin");
    let statement = s.prepare("select * from generate_series(1, 1000)", &[]).unwrap();
    let mut portal = s.open_portal("", &statement);
    s.execute(&statement, &[], &mut portal, 1, &mut Recorder::default()).unwrap();
    let mut sink = Cancels(s.cancel_token(), 0);
    let error = s.execute(&statement, &[], &mut portal, 0, &mut sink).unwrap_err();
    assert_eq!((error.sqlstate.as_str(), sink.1), ("57014", 1));
}

/// Earlier, a portal returned rows in a failed transaction, and rows that ROLLBACK TO had undone (review 10,
/// P2).
#[test]
fn a_suspended_portal_shares_the_fate_of_its_transaction() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "create table t (i int)");
    sink.simple(&mut s, "begin");
    let numbers = s.prepare("select * from generate_series(1, 9)", &[]).unwrap();
    let mut outer = s.open_portal("", &numbers);
    s.execute(&numbers, &[], &mut outer, 2, &mut sink).unwrap();
    sink.simple(&mut s, "savepoint a; savepoint b");
    let statement = s.prepare("insert into t values (1), (2), (3) returning i", &[]).unwrap();
    let (mut inner, mut unused) = (s.open_portal("", &statement), s.open_portal("", &statement));
    s.execute(&statement, &[], &mut inner, 2, &mut sink).unwrap();
    // The portals of savepoint b now belong to savepoint a.
    sink.simple(&mut s, "release b; savepoint b; rollback to b");
    assert!(inner.is_open());
    s.execute(&statement, &[], &mut inner, 2, &mut sink).unwrap();
    sink.simple(&mut s, "select 1 / 0");
    for portal in [&mut outer, &mut inner] {
        let error = s.execute(&numbers, &[], portal, 2, &mut sink).unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "25P02");
    }
    sink.simple(&mut s, "rollback to a");
    assert!(outer.is_open() && !inner.is_open() && !unused.is_open());
    unused = s.open_portal("", &statement);
    assert!(unused.is_open());
    sink.lines.clear();
    s.execute(&numbers, &[], &mut outer, 2, &mut sink).unwrap();
    assert_eq!(sink.lines, ["3", "4"]);
}

/// Earlier, a prepared FETCH described the columns that its cursor had when FETCH was prepared (review 10,
/// P4).
#[test]
fn a_prepared_fetch_returns_what_its_cursor_returns_now() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "begin; declare c cursor for select 1 as a");
    let fetch = s.prepare("fetch c", &[]).unwrap();
    let width =
        |s: &Session| s.portal_columns(&fetch).map(|columns| columns.map_or(0, |columns| columns.len()));
    assert_eq!(width(&s), Some(1));
    sink.simple(&mut s, "close c; declare c cursor for select 1 as a, 'x' as b, now() as c");
    assert_eq!(width(&s), Some(3));
    sink.simple(&mut s, "close c");
    assert_eq!(width(&s), Some(0));
    sink.simple(&mut s, "prepare p as select 1");
    let execute = s.prepare("execute p", &[]).unwrap();
    sink.simple(&mut s, "deallocate p; prepare p as select 1, 2");
    assert_eq!(s.portal_columns(&execute).flatten().map(|columns| columns.len()), Some(2));
    let query = s.prepare("select 1", &[]).unwrap();
    assert!(s.portal_columns(&query).is_none());
}

/// Earlier, pg_cursors and pg_prepared_statements were always empty.
#[test]
fn what_the_protocol_names_is_listed() {
    let db = database();
    let mut s = session(&db);
    let mut sink = Recorder::default();
    sink.simple(&mut s, "begin");
    let statement = s.prepare("select $1::int", &[]).unwrap();
    s.name_statement("named", statement.clone()).unwrap();
    s.statement_to_run("named").unwrap();
    let portal = s.open_portal("c", &statement);
    let unnamed = s.open_portal("", &statement);
    let statements = "select name, statement, from_sql, generic_plans from pg_prepared_statements";
    let cursors = "select name, statement, is_scrollable from pg_cursors";
    sink.lines.clear();
    sink.simple(&mut s, statements);
    sink.simple(&mut s, cursors);
    assert!(sink.lines.iter().any(|line| line == "named|select $1::int|f|1"), "{:?}", sink.lines);
    assert!(sink.lines.iter().any(|line| line == "c|select $1::int|f"), "{:?}", sink.lines);
    // The unnamed portal that runs lists itself.
    let listing = s.prepare(cursors, &[]).unwrap();
    let mut itself = s.open_portal("", &listing);
    sink.lines.clear();
    s.execute(&listing, &[], &mut itself, 0, &mut sink).unwrap();
    assert!(sink.lines.iter().any(|line| *line == format!("|{cursors}|f")), "{:?}", sink.lines);
    drop((portal, unnamed));
    s.close_statement("named");
    sink.lines.clear();
    sink.simple(&mut s, statements);
    sink.simple(&mut s, cursors);
    assert!(!sink.lines.iter().any(|line| line.contains("select $1")), "{:?}", sink.lines);
}
