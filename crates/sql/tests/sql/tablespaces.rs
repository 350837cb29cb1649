//! CREATE and DROP TABLESPACE, TABLESPACE on tables and indexes, and what system tables show about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::support::{opened, session};
use crate::waiting::{ask, run};
use varve_device::{Directory, MemoryDirectory};
use varve_pager::{BadLocation, LocationFlaw, Locations, PagerConfig};
use varve_sql::{Session, SessionParams, SqlDatabase};

struct Places([Arc<MemoryDirectory>; 2]);

impl Locations for Places {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        let flaw = match location {
            "/a" => return Ok(self.0[0].clone()),
            "/b" => return Ok(self.0[1].clone()),
            "/file" => LocationFlaw::NotDirectory,
            "/closed" => LocationFlaw::NoAccess,
            "/used" => LocationFlaw::InUse,
            "/full" => LocationFlaw::Full,
            "/broken" => LocationFlaw::Io,
            "relative" => LocationFlaw::NotAbsolute,
            _ => LocationFlaw::Missing,
        };
        Err(BadLocation::new(flaw, format!("bad location {location}")))
    }
}

fn open(devices: &[Arc<MemoryDirectory>; 3]) -> Arc<SqlDatabase> {
    let [main, a, b] = devices.clone();
    opened(PagerConfig { locations: Arc::new(Places([a, b])), ..PagerConfig::new(main) })
}

fn fresh() -> ([Arc<MemoryDirectory>; 3], Arc<SqlDatabase>) {
    let devices = [0; 3].map(|_| MemoryDirectory::new());
    let db = open(&devices);
    (devices, db)
}

fn is_sound(db: &Arc<SqlDatabase>) {
    db.engine().tick().unwrap();
    let report = db.engine().check().unwrap();
    assert!(report.damages.is_empty(), "{report:?}");
}

/// Runs statements, each in a transaction of its own.
fn each(s: &mut Session, statements: &str) {
    statements.split("; ").for_each(|sql| run(s, sql));
}

/// Returns the tablespaces of tables, and then those of indexes.
fn places(s: &mut Session) -> Vec<String> {
    let of_tables = "select tablename, tablespace from pg_tables where schemaname = 'public' order by 1";
    let of_indexes = "select indexname, tablespace from pg_indexes where schemaname = 'public' order by 1";
    [ask(s, of_tables), ask(s, of_indexes)].concat()
}

#[test]
fn tables_and_indexes_are_where_the_statement_or_the_setting_says() {
    let (devices, db) = fresh();
    let s = &mut session(&db);
    each(s, "create tablespace fast location '/a'; create tablespace slow location '/b'");
    run(s, "create table t (a int primary key, b int, c int unique) tablespace slow");
    run(s, "create index t_b on t (b) tablespace fast");
    run(s, "insert into t select n, n % 10, n from generate_series(1, 3000) n");
    each(s, "set default_tablespace = fast; create table u as select * from t; set default_tablespace = ''");
    let expected = ["t|slow", "u|fast", "t_b|fast", "t_c_key|NULL", "t_pkey|slow"];
    assert_eq!(places(s), expected);
    let numbers =
        "select relname, reltablespace from pg_class where relname in ('t', 't_b', 't_c_key') order by 1";
    assert_eq!(ask(s, numbers), ["t|16401", "t_b|16400", "t_c_key|0"]);
    let sizes = "select pg_tablespace_size('slow') > 50000, pg_tablespace_size('fast') > 50000";
    assert_eq!(ask(s, sizes), ["t|t"]);
    db.engine().shutdown().unwrap();
    drop(db);
    let db = open(&devices);
    let s = &mut session(&db);
    assert_eq!(places(s), expected);
    assert_eq!(ask(s, "select count(*), sum(b), count(distinct c) from t where b >= 0"), ["3000|13500|3000"]);
    assert_eq!(ask(s, "select count(*) from u"), ["3000"]);
    is_sound(&db);
}

#[test]
fn tables_and_indexes_move() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    each(
        s,
        "create tablespace fast location '/a'; create table t (a int primary key, b int); create index t_b on t (b)",
    );
    run(s, "insert into t select n, n % 10 from generate_series(1, 1000) n");
    each(s, "alter table t set tablespace fast; alter index t_b set tablespace fast");
    assert_eq!(places(s), ["t|fast", "t_b|fast", "t_pkey|fast"]);
    run(s, "begin; alter table t set tablespace pg_default; rollback");
    assert_eq!(places(s), ["t|fast", "t_b|fast", "t_pkey|fast"]);
    run(s, "alter table t set (compression = 'lz4')");
    assert_eq!(places(s)[0], "t|fast", "other options leave the tablespace");
    assert_eq!(ask(s, "drop tablespace fast"), ["! 55000 tablespace \"fast\" is not empty"]);
    each(s, "alter table t set tablespace pg_default; alter index t_b set tablespace pg_default");
    run(s, "drop tablespace fast");
    assert_eq!(places(s), ["t|NULL", "t_b|NULL", "t_pkey|NULL"]);
    assert_eq!(ask(s, "select count(*) from t where b = 3"), ["100"]);
    assert_eq!(
        ask(s, "alter index t_pkey set tablespace pg_default"),
        ["! 0A000 ALTER INDEX ... SET TABLESPACE of a primary key is not supported"]
    );
    is_sound(&db);
}

#[test]
fn partitions_are_where_their_table_is() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    run(s, "create tablespace fast location '/a'");
    run(s, "create table t (a int) partition by range (a) tablespace fast");
    run(s, "create table u partition of t for values from (0) to (10)");
    run(s, "insert into t select n from generate_series(0, 9) n");
    assert_eq!(places(s), ["t|fast", "u|fast"]);
    let refused = ask(s, "create table v partition of t for values from (10) to (20) tablespace pg_default");
    assert_eq!(refused, ["! 0A000 a tablespace of a partition alone is not supported"]);
    each(s, "drop table t; drop tablespace fast");
}

#[test]
fn a_tablespace_is_made_changed_and_dropped_as_in_postgresql() {
    let (devices, db) = fresh();
    let s = &mut session(&db);
    let refused = [
        ("create tablespace pg_x location '/a'", "! 42939 unacceptable tablespace name \"pg_x\""),
        ("create tablespace x location '/c'", "! 58P01 bad location /c"),
        ("create tablespace x location 'relative'", "! 42P17 bad location relative"),
        ("create tablespace x location '/file'", "! 42809 bad location /file"),
        ("create tablespace x location '/closed'", "! 42501 bad location /closed"),
        ("create tablespace x location '/used'", "! 55006 bad location /used"),
        ("create tablespace x location '/full'", "! 53100 bad location /full"),
        ("create tablespace x location '/broken'", "! 58030 bad location /broken"),
        (
            "create tablespace x location '/a' with (protection = 'nvm')",
            "! 0A000 protection nvm for one tablespace is not supported",
        ),
        ("create tablespace x location '/a' with (wrong = 1)", "! 22023 unrecognized parameter \"wrong\""),
        ("drop tablespace x", "! 42704 tablespace \"x\" does not exist"),
        ("drop tablespace pg_default", "! 42501 must be owner of tablespace pg_default"),
        ("create table t (a int) tablespace x", "! 42704 tablespace \"x\" does not exist"),
        (
            "create table t (a int) tablespace pg_global",
            "! 22023 only shared relations can be placed in pg_global tablespace",
        ),
        (
            "begin; create tablespace x location '/a'",
            "! 25001 CREATE TABLESPACE cannot run inside a transaction block",
        ),
    ];
    for (sql, error) in refused {
        assert_eq!(ask(s, sql)[0], error, "{sql}");
        ask(s, "rollback");
    }
    each(s, "create role owner; create role other; grant create on schema public to owner, other");
    run(
        s,
        "create tablespace x owner owner location '/a' with (compression = 'lz4', protection = 'atomic-write')",
    );
    let listed = "select spcname, pg_get_userbyid(spcowner), pg_tablespace_location(oid), spcoptions from pg_tablespace order by 1";
    let known = ["pg_default|postgres||NULL", "pg_global|postgres||NULL"];
    assert_eq!(ask(s, listed), [known[0], known[1], "x|owner|/a|{protection=atomic-write,compression=lz4}"]);
    assert_eq!(ask(s, "create tablespace x location '/b'"), ["! 42710 tablespace \"x\" already exists"]);
    assert_eq!(ask(s, "create tablespace y location '/a'")[0], "! 55006 tablespace \"x\" is at /a already");
    run(s, "alter tablespace x set (compression = 'lz4')");
    assert!(ask(s, "alter tablespace x set (compression = 'zstd')")[0].starts_with("! 0A000"));
    run(s, "set role other");
    assert_eq!(ask(s, "create table t (a int) tablespace x"), ["! 42501 permission denied for tablespace x"]);
    assert_eq!(ask(s, "drop tablespace x"), ["! 42501 must be owner of tablespace x"]);
    assert_eq!(
        ask(s, "create tablespace z location '/b'"),
        ["! 42501 permission denied to create tablespace \"z\""]
    );
    each(s, "set role owner; create table t (a int) tablespace x; drop table t; reset role");
    assert_eq!(
        ask(
            s,
            "select has_tablespace_privilege('other', 'x', 'create'), has_tablespace_privilege('owner', 'x', 'create')"
        ),
        ["f|t"]
    );
    each(s, "alter tablespace x rename to y; alter tablespace y owner to postgres");
    drop(std::mem::replace(s, session(&db)));
    db.engine().shutdown().unwrap();
    let again = open(&devices);
    let s = &mut session(&again);
    assert_eq!(ask(s, listed)[2], "y|postgres|/a|{protection=atomic-write,compression=lz4}");
    run(s, "drop tablespace y");
    assert_eq!(ask(s, "drop tablespace if exists y"), ["~ Notice tablespace \"y\" does not exist, skipping"]);
    assert_eq!((ask(s, listed), devices[1].list().unwrap()), (known.map(str::to_owned).to_vec(), vec![]));
}

/// A tablespace is for all databases of the server.
#[test]
fn another_database_keeps_a_tablespace_in_use() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    each(s, "create tablespace fast location '/a'; create database app");
    let params =
        SessionParams { user: "postgres".into(), database: "app".into(), ..SessionParams::default() };
    let app = &mut Session::new(db.clone(), params).unwrap();
    run(app, "create table t (a int) tablespace fast");
    assert_eq!(ask(s, "drop tablespace fast"), ["! 55000 tablespace \"fast\" is not empty"]);
    run(app, "drop table t");
    run(s, "drop tablespace fast");
}

/// The options of PostgreSQL have no effect, but pg_dumpall writes them, and a restore must accept them.
#[test]
fn options_of_postgresql_are_stored() {
    let (devices, db) = fresh();
    let s = &mut session(&db);
    run(
        s,
        "create tablespace x location '/a' with (seq_page_cost = 2, compression = 'lz4', random_page_cost = '3.5')",
    );
    let options = "select spcoptions from pg_tablespace where spcname = 'x'";
    assert_eq!(ask(s, options), ["{compression=lz4,seq_page_cost=2,random_page_cost=3.5}"]);
    each(
        s,
        "alter tablespace x set (seq_page_cost = 1, maintenance_io_concurrency = 7, compression = 'lz4')",
    );
    let four = "{compression=lz4,random_page_cost=3.5,seq_page_cost=1,maintenance_io_concurrency=7}";
    assert_eq!(ask(s, options), [four]);
    each(
        s,
        "create role someone; alter tablespace x owner to someone; alter tablespace x reset (seq_page_cost, wrong)",
    );
    let three = "{compression=lz4,random_page_cost=3.5,maintenance_io_concurrency=7}";
    let refused = ask(s, "alter tablespace pg_default set (seq_page_cost = 2)");
    assert_eq!(refused[0], "! 0A000 options of tablespace pg_default is not supported");
    assert_eq!(ask(s, options), [three]);
    drop(std::mem::replace(s, session(&db)));
    db.engine().shutdown().unwrap();
    let again = open(&devices);
    let s = &mut session(&again);
    assert_eq!(ask(s, options), [three]);
    assert_eq!(
        ask(s, "select pg_get_userbyid(spcowner) from pg_tablespace where spcname = 'x'"),
        ["someone"]
    );
    let refused = ask(s, "drop role someone");
    assert_eq!(refused[0], "! 2BP01 role \"someone\" cannot be dropped because some objects depend on it");
    each(
        s,
        "alter tablespace x reset (random_page_cost, maintenance_io_concurrency); alter tablespace x owner to postgres",
    );
    assert_eq!(ask(s, options), ["{compression=lz4}"]);
    run(s, "drop role someone");
}

/// Wrong options have the errors of PostgreSQL. Options of Varve are fixed.
#[test]
fn wrong_options_are_refused() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    run(s, "create tablespace x location '/a' with (compression = 'lz4')");
    let refused = [
        ("reset (seq_page_cost = 1)", "! 42601 RESET must not include values for parameters"),
        ("reset (compression)", "! 0A000 ALTER TABLESPACE that changes the compression is not supported"),
        (
            "set (protection = 'none')",
            "! 0A000 ALTER TABLESPACE that changes the protection is not supported",
        ),
        ("set (wrong = 1)", "! 22023 unrecognized parameter \"wrong\""),
        ("set (some.seq_page_cost = 1)", "! 22023 unrecognized parameter namespace \"some\""),
        ("set (seq_page_cost = -1)", "! 22023 value -1 out of bounds for option \"seq_page_cost\""),
        (
            "set (seq_page_cost = abc)",
            "! 22023 invalid value for floating point option \"seq_page_cost\": abc",
        ),
        (
            "set (effective_io_concurrency = 1001)",
            "! 22023 value 1001 out of bounds for option \"effective_io_concurrency\"",
        ),
        (
            "set (effective_io_concurrency = x)",
            "! 22023 invalid value for integer option \"effective_io_concurrency\": x",
        ),
        (
            "set (seq_page_cost=1, Seq_page_cost=2)",
            "! 22023 parameter \"seq_page_cost\" specified more than once",
        ),
    ];
    for (change, error) in refused {
        assert_eq!(ask(s, &format!("alter tablespace x {change}"))[0], error, "{change}");
    }
    assert_eq!(ask(s, "select spcoptions from pg_tablespace where spcname = 'x'"), ["{compression=lz4}"]);
}

/// A database has no tablespace of its own, and the error says so.
#[test]
fn a_tablespace_of_a_database_is_refused_by_name() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    each(s, "create tablespace x location '/a'; create database d tablespace pg_default");
    let refused = [
        ("x", "! 0A000 a tablespace of a database is not supported"),
        ("nope", "! 42704 tablespace \"nope\" does not exist"),
        ("pg_global", "! 22023 pg_global cannot be used as default tablespace"),
    ];
    for (name, error) in refused {
        assert_eq!(ask(s, &format!("create database e tablespace {name}"))[0], error);
        assert_eq!(ask(s, &format!("alter database d set tablespace {name}"))[0], error);
    }
    run(s, "alter database d set tablespace pg_default");
    each(s, "create role maker createdb; set role maker");
    assert_eq!(ask(s, "create database e tablespace x")[0], "! 42501 permission denied for tablespace x");
    // What the hint says.
    each(s, "reset role; alter database d set default_tablespace = x");
    let params = SessionParams { user: "postgres".into(), database: "d".into(), ..SessionParams::default() };
    let in_d = &mut Session::new(db.clone(), params).unwrap();
    run(in_d, "create table t (a int)");
    assert_eq!(places(in_d), ["t|x"]);
}

/// `SHOW durability` and `varve_io` name each tablespace.
#[test]
fn reports_name_tablespaces() {
    let (_devices, db) = fresh();
    let s = &mut session(&db);
    each(
        s,
        "create tablespace x location '/a'; create tablespace y location '/b' with (protection = 'none')",
    );
    run(s, "create table t (a int primary key, b text) tablespace x");
    run(s, "insert into t select n, repeat('x', 100) from generate_series(1, 1000) n; checkpoint");
    let parts =
        "select part, medium, survives from varve_durability where part like '%tablespace%' order by part";
    let expected = [
        "protection of tablespace x|doublewrite|nothing",
        "protection of tablespace y|none: a crash may tear pages|nothing",
        "tablespace x|memory|nothing",
        "tablespace y|memory|nothing",
    ];
    assert_eq!(ask(s, parts), expected);
    let io = "select space, sum(written_bytes) > 100000 from varve_io where space like '%tablespace%' group by 1 order by 1";
    assert_eq!(ask(s, io), ["tablespace x|t", "tablespace y|f"]);
    each(s, "alter tablespace x rename to z; drop table t; drop tablespace z");
    assert_eq!(ask(s, io), ["dropped tablespaces|t", "tablespace y|f"]);
    assert_eq!(ask(s, parts)[0], expected[1]);
}
