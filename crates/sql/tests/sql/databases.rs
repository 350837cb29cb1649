//! Several databases of one server: their objects are separate, and they are created and dropped as a whole.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::support::{Recorder, database, reopened, session};
use varve_device::MemoryDirectory;
use varve_sql::{Result, Session, SessionParams, SqlDatabase};

fn enter(db: &Arc<SqlDatabase>, user: &str, database: &str) -> Result<Session> {
    let params = SessionParams { user: user.into(), database: database.into(), ..SessionParams::default() };
    Session::new(db.clone(), params)
}

fn inside(db: &Arc<SqlDatabase>, database: &str) -> Session {
    enter(db, "postgres", database).unwrap()
}

fn refused(db: &Arc<SqlDatabase>, user: &str, database: &str) -> String {
    let error = enter(db, user, database).err().unwrap();
    format!("{} {}", error.sqlstate, error.message)
}

/// Returns what a statement answers, as lines.
fn ask(session: &mut Session, sql: &str) -> Vec<String> {
    let mut sink = Recorder::default();
    sink.simple(session, sql);
    sink.lines
}

fn is_sound(db: &Arc<SqlDatabase>) {
    db.engine().tick().unwrap();
    let report = db.engine().check().unwrap();
    assert!(report.damages.is_empty(), "{report:?}");
}

/// Returns the database in a copy of the directory, as a crash would leave it.
fn crashed(directory: &Arc<MemoryDirectory>) -> Arc<SqlDatabase> {
    reopened(&MemoryDirectory::from_images(directory.images()))
}

#[test]
fn the_same_names_mean_other_things_in_another_database() {
    let db = database();
    let mut first = session(&db);
    assert_eq!(ask(&mut first, "create database app"), ["= CREATE DATABASE"]);
    let mut app = inside(&db, "app");
    for (session, value) in [(&mut first, 1), (&mut app, 2)] {
        let made = ask(
            session,
            "create table t (a serial primary key, b int unique); create view v as select b from t",
        );
        assert_eq!(made, ["= CREATE TABLE", "= CREATE VIEW"]);
        ask(session, &format!("insert into t (b) values ({value})"));
    }
    let query = "select a, b from t";
    assert_eq!(ask(&mut first, query)[0], "1|1");
    assert_eq!(ask(&mut app, query)[0], "1|2");
    let relations =
        "select count(*) from pg_class where relname in ('t', 'v', 't_a_seq', 't_pkey', 't_b_key')";
    assert_eq!(ask(&mut app, relations)[0], "5");
    let names = "select current_database(), current_catalog, table_catalog from information_schema.tables \
                 where table_schema = 'public' and table_name = 't'";
    assert_eq!(ask(&mut app, names)[0], "app|app|app");
    ask(&mut app, "drop table t cascade");
    assert_eq!(ask(&mut first, "select viewname from pg_views where schemaname = 'public'")[0], "v");
    assert_eq!(ask(&mut first, query)[0], "1|1");
    assert_eq!(ask(&mut app, query)[0], "! 42P01 relation \"t\" does not exist");
    is_sound(&db);
}

#[test]
fn schemas_sequences_and_advisory_locks_are_those_of_the_database() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create database app");
    let mut app = inside(&db, "app");
    assert_eq!(ask(&mut first, "create schema s; create sequence s.q")[1], "= CREATE SEQUENCE");
    assert_eq!(ask(&mut app, "create sequence s.q")[0], "! 3F000 schema \"s\" does not exist");
    assert_eq!(ask(&mut app, "create schema s; create sequence s.q start 7; select nextval('s.q')")[2], "7");
    assert_eq!(ask(&mut first, "select nextval('s.q')")[0], "1");
    assert_eq!(ask(&mut first, "select pg_try_advisory_lock(1)")[0], "t");
    assert_eq!(ask(&mut app, "select pg_try_advisory_lock(1)")[0], "t");
    assert_eq!(ask(&mut inside(&db, "app"), "select pg_try_advisory_lock(1)")[0], "f");
    let seen = "select datname from pg_stat_activity order by 1";
    assert_eq!(ask(&mut app, seen), ["app", "postgres", "= SELECT 2"]);
}

#[test]
fn a_database_outlives_a_crash_and_goes_with_its_room() {
    let directory = MemoryDirectory::new();
    let db = reopened(&directory);
    let mut first = session(&db);
    // `check` finds pages that are allocated and belong to nothing. It counts the rows of the catalog, too.
    let rows = |db: &Arc<SqlDatabase>| db.engine().check().unwrap().rows;
    ask(&mut first, "create role r");
    let before = rows(&db);
    ask(&mut first, "create database app owner r connection limit 3");
    let mut app = inside(&db, "app");
    ask(
        &mut app,
        "create table p (a int primary key, b text unique, c serial);
         create table t (a int references p, check (a > 0)) ;
         create table h (k int) partition by range (k); create table h1 partition of h for values from (1) to (9);
         create index on t (a); create schema s; create sequence s.q; create view s.v as select a from p;
         comment on column p.b is 'text'; grant select on p to r; grant usage on schema s to public;
         insert into p select g, 'row ' || g from generate_series(1, 500) g; insert into t select a from p",
    );
    let after = crashed(&directory);
    is_sound(&after);
    let mut again = inside(&after, "app");
    assert_eq!(ask(&mut again, "select count(*) from t")[0], "500");
    let told = "select datdba::regrole, datconnlimit from pg_database where datname = 'app'";
    assert_eq!(ask(&mut again, told)[0], "r|3");
    drop(app);
    assert_eq!(ask(&mut first, "drop database app"), ["= DROP DATABASE"]);
    for db in [&db, &crashed(&directory)] {
        is_sound(db);
        assert_eq!(rows(db), before);
        assert_eq!(refused(db, "postgres", "app"), "3D000 database \"app\" does not exist");
    }
    assert_eq!(ask(&mut first, "drop role r"), ["= DROP ROLE"]);
    assert_eq!(ask(&mut first, "create database app"), ["= CREATE DATABASE"]);
    assert_eq!(
        ask(&mut inside(&db, "app"), "select count(*) from pg_tables where schemaname = 'public'")[0],
        "0"
    );
}

#[test]
fn a_database_in_use_is_not_dropped_and_force_ends_nobody_without_a_connection() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create database app");
    let app = inside(&db, "app");
    let dropped = ask(&mut first, "drop database app");
    assert_eq!(
        dropped,
        [
            "! 55006 database \"app\" is being accessed by other users",
            "& There is 1 other session using the database."
        ]
    );
    assert_eq!(
        ask(&mut first, "drop database postgres")[0],
        "! 55006 cannot drop the currently open database"
    );
    drop(app);
    assert_eq!(ask(&mut first, "drop database app"), ["= DROP DATABASE"]);
}

/// A session that asks for a database while it is being dropped waits, and then finds that it does not exist.
#[test]
fn nobody_enters_a_database_that_goes() {
    let db = database();
    let mut first = session(&db);
    for round in 0..20 {
        ask(&mut first, "create database app");
        let other = db.clone();
        let entering = thread::spawn(move || {
            thread::sleep(Duration::from_micros(150 * round));
            enter(&other, "postgres", "app").map(|mut session| ask(&mut session, "create table t (a int)"))
        });
        let dropped = ask(&mut first, "drop database app");
        match entering.join().unwrap() {
            Ok(made) => assert_eq!(made, ["= CREATE TABLE"]),
            Err(error) => assert_eq!(error.sqlstate.0, "3D000"),
        }
        if dropped != ["= DROP DATABASE"] {
            ask(&mut first, "drop database app");
        }
        is_sound(&db);
    }
}

#[test]
fn whom_a_database_takes() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create role u login");
    ask(&mut first, "create database app");
    assert_eq!(refused(&db, "u", "nowhere"), "3D000 database \"nowhere\" does not exist");
    assert_eq!(
        refused(&db, "postgres", "template0"),
        "55000 database \"template0\" is not currently accepting connections"
    );
    ask(&mut first, "revoke connect on database app from public");
    assert_eq!(refused(&db, "u", "app"), "42501 permission denied for database \"app\"");
    ask(&mut first, "grant connect on database app to u; alter database app connection limit 1");
    let one = enter(&db, "u", "app").unwrap();
    assert_eq!(refused(&db, "u", "app"), "53300 too many connections for database \"app\"");
    drop((one, inside(&db, "app")));
    ask(
        &mut first,
        "alter database app set work_mem = '2MB'; alter database app set search_path = s, public",
    );
    let mut app = inside(&db, "app");
    assert_eq!(ask(&mut app, "show work_mem; show search_path"), ["2MB", "= SHOW", "s, public", "= SHOW"]);
    assert_eq!(ask(&mut app, "create table t (a int)"), ["= CREATE TABLE"]);
    ask(&mut first, "alter database app reset all");
    assert_eq!(ask(&mut inside(&db, "app"), "show search_path")[0], "\"$user\", public");
}

#[test]
fn who_owns_a_database_owns_its_schema_public() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create role u login; create role w login");
    ask(&mut first, "create database app owner u");
    let mut own = enter(&db, "u", "app").unwrap();
    assert_eq!(
        ask(&mut own, "create table t (a int); create schema s"),
        ["= CREATE TABLE", "= CREATE SCHEMA"]
    );
    let mut other = enter(&db, "w", "app").unwrap();
    assert_eq!(ask(&mut other, "create table w (a int)")[0], "! 42501 permission denied for schema public");
    assert_eq!(ask(&mut other, "create schema w")[0], "! 42501 permission denied for database app");
    assert_eq!(ask(&mut own, "grant create on database app to w"), ["= GRANT"]);
    assert_eq!(ask(&mut other, "create schema w"), ["= CREATE SCHEMA"]);
    let mut there = enter(&db, "u", "postgres").unwrap();
    assert_eq!(ask(&mut there, "create table t (a int)")[0], "! 42501 permission denied for schema public");
    let refused = ask(&mut first, "drop role u");
    assert_eq!(refused[0], "! 2BP01 role \"u\" cannot be dropped because some objects depend on it");
    assert_eq!(refused[1], "& owner of database app / 2 objects in database app");
}

/// The questions that a session can ask about an object by its OID. `N` stands for the OID.
const BY_NUMBER: &[&str] = &[
    "N::regclass",
    "N::regnamespace",
    "N::oid::regclass::text::regclass::oid",
    "pg_get_viewdef(N)",
    "pg_get_viewdef(N, true)",
    "pg_get_indexdef(N)",
    "pg_get_indexdef(N, 1, true)",
    "pg_get_constraintdef(N)",
    "pg_get_constraintdef(N, true)",
    "pg_get_partkeydef(N)",
    "obj_description(N)",
    "obj_description(N, 'pg_class')",
    "obj_description(N, 'pg_namespace')",
    "obj_description(N, 'pg_constraint')",
    "col_description(N, 1)",
    "shobj_description(N, 'pg_database')",
    "pg_table_is_visible(N)",
    "pg_relation_size(N)",
    "pg_table_size(N)",
    "pg_indexes_size(N)",
    "pg_total_relation_size(N)",
    "pg_relation_filenode(N)",
    "pg_relation_is_updatable(N, true)",
    "pg_column_is_updatable(N, 1::int2, true)",
    "pg_stat_get_live_tuples(N)",
    "pg_partition_root(N)",
    "count(*) from pg_partition_tree(N)",
    "count(*) from pg_partition_ancestors(N)",
    "has_table_privilege(N, 'SELECT')",
    "has_table_privilege('postgres', N, 'SELECT')",
    "has_column_privilege(N, 1::int2, 'SELECT')",
    "has_column_privilege(N, 'secret', 'SELECT')",
    "has_any_column_privilege(N, 'SELECT')",
    "has_sequence_privilege(N, 'USAGE')",
    "has_schema_privilege(N, 'USAGE')",
    "pg_sequence_last_value(N)",
    "nextval(N)",
    "currval(N)",
    "setval(N, 7)",
    "count(*) from pg_class where oid = N",
    "count(*) from pg_description where objoid = N",
];

#[test]
fn an_oid_of_another_database_is_one_that_nothing_has() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create role u login");
    ask(&mut first, "create database app");
    let mut app = inside(&db, "app");
    ask(
        &mut app,
        "create schema s; create table s.t (secret int primary key, b text constraint c check (b <> 'secret'));
         create index i on s.t (lower(b)); create view s.v as select secret from s.t; create sequence s.q;
         create table s.h (secret int) partition by range (secret);
         create table s.h1 partition of s.h for values from (1) to (9);
         comment on table s.t is 'secret'; comment on column s.t.secret is 'secret';
         comment on schema s is 'secret'; comment on constraint c on s.t is 'secret';
         comment on view s.v is 'secret';
         insert into s.t values (1, 'x'); analyze s.t",
    );
    let mut objects = Vec::new();
    for table in ["pg_class", "pg_constraint", "pg_namespace"] {
        let query = format!("select oid from {table} where oid >= 16384");
        objects.extend(ask(&mut app, &query).into_iter().filter(|line| !line.starts_with('=')));
    }
    assert_eq!(objects.len(), 10, "{objects:?}");
    // A session in the database itself gets answers, so the functions know the objects.
    let seen: Vec<String> = objects
        .iter()
        .flat_map(|oid| ask(&mut app, &format!("select pg_get_viewdef({oid}), obj_description({oid})")))
        .collect();
    assert_eq!(seen.iter().filter(|line| line.contains("secret")).count(), 4, "{seen:?}");

    ask(&mut first, "revoke connect on database app from public");
    let mut other = enter(&db, "u", "postgres").unwrap();
    for asked in BY_NUMBER {
        let ask_for = |session: &mut Session, oid: &str| {
            let answer = ask(session, &format!("select {}", asked.replace('N', oid)));
            answer.iter().map(|line| line.replace(oid, "N")).collect::<Vec<_>>()
        };
        for session in [&mut first, &mut other] {
            let nothing = ask_for(session, "77777777");
            for oid in &objects {
                assert_eq!(ask_for(session, oid), nothing, "{asked} of {oid}");
            }
        }
    }
    assert_eq!(ask(&mut app, "select nextval('s.q')")[0], "1");
}

/// A new database has the schema `public` of its template, with the same owner, rights and comment, or no
/// such schema.
#[test]
fn a_template_gives_its_schema_public() {
    let db = database();
    let mut first = session(&db);
    ask(&mut first, "create role u login; create role w login");
    for name in ["plain", "guarded template plain", "bare template guarded"] {
        assert_eq!(ask(&mut first, &format!("create database {name}")), ["= CREATE DATABASE"]);
        let mut made = inside(&db, name.split(' ').next().unwrap());
        let told = "select nspowner::regrole, nspacl, obj_description(oid, 'pg_namespace') from pg_namespace \
                    where nspname = 'public'";
        match name {
            "plain" => {
                assert_eq!(
                    ask(&mut made, told)[0],
                    "pg_database_owner|{pg_database_owner=UC/pg_database_owner,=U/pg_database_owner}|standard \
                     public schema"
                );
                ask(
                    &mut made,
                    "revoke usage on schema public from public; grant create on schema public to u",
                );
                ask(&mut made, "comment on schema public is 'ours'; alter schema public owner to w");
            }
            _ if name.starts_with("guarded") => {
                assert_eq!(ask(&mut made, told)[0], "w|{w=UC/w,u=C/w}|ours");
                assert_eq!(ask(&mut enter(&db, "u", "guarded").unwrap(), "create table t (a int)").len(), 1);
                ask(&mut made, "drop table t; drop schema public");
            }
            _ => {
                assert_eq!(ask(&mut made, told), ["= SELECT 0"]);
                let refused = ask(&mut made, "create table t (a int)");
                assert_eq!(refused[0], "! 3F000 no schema has been selected to create in");
            }
        }
    }
    let refused = ask(&mut first, "drop role w");
    assert_eq!(refused[0], "! 2BP01 role \"w\" cannot be dropped because some objects depend on it");
    for name in ["plain", "guarded", "bare"] {
        assert_eq!(ask(&mut first, &format!("drop database {name}")), ["= DROP DATABASE"]);
    }
    assert_eq!(ask(&mut first, "drop role u; drop role w"), ["= DROP ROLE", "= DROP ROLE"]);
    is_sound(&db);
}
