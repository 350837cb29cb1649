//! Tests each type in text and binary format, as a parameter and as a result, over the protocol and through a
//! table.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../../server/tests/server/support/client.rs"]
#[allow(dead_code, reason = "each program uses its part")]
mod client;

use client::{Client, bind, execute, parse, query, sync};
use varve_server::{Listener, Server};

/// OID, declaration, value as text, value in binary. The binary forms were read from PostgreSQL 15.20 with
/// the types' send functions.
const CASES: &[(u32, &str, &str, &[u8])] = &[
    (16, "boolean", "t", &[1]),
    (16, "boolean", "f", &[0]),
    (21, "smallint", "-2", &[0xff, 0xfe]),
    (23, "integer", "65537", &[0, 1, 0, 1]),
    (20, "bigint", "-9223372036854775808", &[0x80, 0, 0, 0, 0, 0, 0, 0]),
    (701, "double precision", "1.5", &[0x3f, 0xf8, 0, 0, 0, 0, 0, 0]),
    (701, "double precision", "-Infinity", &[0xff, 0xf0, 0, 0, 0, 0, 0, 0]),
    (1700, "numeric(10,2)", "-12345.60", &[0, 3, 0, 1, 0x40, 0, 0, 2, 0, 1, 9, 41, 0x17, 0x70]),
    (1700, "numeric", "0.0001", &[0, 1, 0xff, 0xff, 0, 0, 0, 4, 0, 1]),
    (1700, "numeric", "NaN", &[0, 0, 0, 0, 0xc0, 0, 0, 0]),
    (25, "text", "a'b\u{fc}", b"a'b\xc3\xbc"),
    (1043, "varchar(5)", "abc", b"abc"),
    (1042, "char(5)", "abc  ", b"abc  "),
    (17, "bytea", "\\x00ff5c", &[0, 0xff, 0x5c]),
    (1082, "date", "1999-12-31", &[0xff, 0xff, 0xff, 0xff]),
    (1082, "date", "2024-02-29", &[0, 0, 0x22, 0x79]),
    (1114, "timestamp", "2000-01-01 00:00:01.5", &[0, 0, 0, 0, 0, 0x16, 0xe3, 0x60]),
    (1184, "timestamptz", "1999-12-31 23:59:59+00", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xf0, 0xbd, 0xc0]),
];

fn with_server(test: impl FnOnce(&mut Client)) {
    let directory = tempfile::tempdir().unwrap();
    let database = varve::Embedded::open(directory.path()).unwrap();
    let listener = Listener::open(([127, 0, 0, 1], 0).into()).unwrap();
    let server = Server::start(listener, 5, database.sql().clone()).unwrap();
    test(&mut Client::connect(server.address()));
    assert_eq!(server.stop(std::time::Duration::from_secs(10)), 0);
    database.close().unwrap();
}

#[test]
fn values_go_in_and_come_out_in_both_formats() {
    with_server(|client| {
        for (number, (oid, declared, text, binary)) in CASES.iter().enumerate() {
            let table = format!("create table t{number} (id integer primary key, v {declared})");
            assert_eq!(client.ask(&query(&table)), "C[CREATE TABLE] Z[I]");
            let insert = format!("insert into t{number} values ($1, $2)");
            let first = bind("", "", &[0], &[Some(b"1"), Some(text.as_bytes())], &[]);
            let second = bind("", "", &[1], &[Some(&[0, 0, 0, 2]), Some(binary)], &[]);
            let sent = [
                parse("", &insert, &[23, *oid]),
                first,
                execute("", 0),
                parse("", &insert, &[]),
                second,
                execute("", 0),
                sync(),
            ];
            let done = client.ask(&sent.concat());
            assert_eq!(done, "1 2 C[INSERT 0 1] 1 2 C[INSERT 0 1] Z[I]", "{declared} {text}");
            for id in ["1", "2"] {
                check_output(client, &format!("select v, v from t{number} where id = {id}"), CASES[number]);
            }
        }
    });
}

/// Reads the same column once as text and once in binary.
fn check_output(client: &mut Client, sql: &str, (oid, declared, text, binary): (u32, &str, &str, &[u8])) {
    let sent = [
        parse("", sql, &[]),
        bind("", "", &[], &[], &[0, 1]),
        client::target(b'D', b'P', ""),
        execute("", 0),
        sync(),
    ];
    let row = format!("{}|{}", text.as_bytes().escape_ascii(), binary.escape_ascii());
    let expect = format!("1 2 T[v:{oid}:0 v:{oid}:1] D[{row}] C[SELECT 1] Z[I]");
    assert_eq!(client.ask(&sent.concat()), expect, "{declared} {text}");
}

#[test]
fn null_has_no_format() {
    with_server(|client| {
        let sent = [
            parse("", "select $1::numeric, $1::text", &[]),
            bind("", "", &[1], &[None], &[1, 0]),
            execute("", 0),
            sync(),
        ];
        assert_eq!(client.ask(&sent.concat()), "1 2 D[~|~] C[SELECT 1] Z[I]");
    });
}

#[test]
fn bad_binary_values_change_nothing() {
    with_server(|client| {
        client.ask(&query("create table t (id integer primary key, v numeric)"));
        let values: [&[u8]; 5] = [
            &[],
            &[0, 1],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10],
            &[0, 1, 0, 0, 0x11, 0, 0, 0, 0, 1],
            &[0; 9],
        ];
        for value in values {
            let sent = [
                parse("", "insert into t values (1, $1)", &[]),
                bind("", "", &[1], &[Some(value)], &[]),
                execute("", 0),
                sync(),
            ];
            let expect = "1 E[ERROR 22P03 incorrect binary data format in bind parameter 1] Z[I]";
            assert_eq!(client.ask(&sent.concat()), expect, "{value:?}");
        }
        assert_eq!(client.ask(&query("select count(*) from t")), "T[count:20:0] D[0] C[SELECT 1] Z[I]");
    });
}
