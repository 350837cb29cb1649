//! Whole conversations: the messages of a client, and the exact answers of the server.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use crate::support::client::{Client, bind, execute, message, packet, parse, query, sync, target};
use crate::support::server;

/// Each case is one connection: the bytes, and everything up to the last ReadyForQuery expected.
fn check(sent: &[Vec<u8>], expect: &str) {
    let server = server();
    let mut client = Client::connect(server.address());
    client.send(&sent.concat());
    let ready_count = expect.matches("Z[").count();
    let answers: Vec<String> = (0..ready_count).map(|_| client.until_ready()).collect();
    assert_eq!(answers.join(" "), expect);
    server.stop(Duration::from_secs(5));
}

#[test]
fn simple_queries() {
    check(&[query("")], "I Z[I]");
    check(
        &[query("begin;rows 1;commit")],
        "C[BEGIN] T[number:23:0 text:25:0] D[0|row 0] C[SELECT 1] C[COMMIT] Z[I]",
    );
    check(
        &[query("begin"), query("fail"), query("rollback")],
        "C[BEGIN] Z[T] E[ERROR 22012 division by zero] Z[E] C[COMMIT] Z[I]",
    );
    check(&[query("notice")], "N[WARNING 01000 careful] C[NOTICE] S[application_name=new] Z[I]");
}

/// A new user found this fault: SET of the time zone affected the results only from the next message on.
#[test]
fn a_time_zone_reaches_the_results_of_its_own_message() {
    check(
        &[query("moment;zone;moment")],
        "T[moment:1184:0] D[2000-01-01 00:00:00+00] C[SELECT 1] C[SET] \
         T[moment:1184:0] D[2000-01-01 02:00:00+02] C[SELECT 1] Z[I]",
    );
}

#[test]
fn the_shape_of_sysbench() {
    let prepare = [parse("s1", "echo", &[20]), sync()].concat();
    let run =
        [bind("", "s1", &[], &[Some(b"17")], &[1]), target(b'D', b'P', ""), execute("", 0), sync()].concat();
    check(&[prepare, run], r"1 Z[I] 2 T[value:20:1] D[\x00\x00\x00\x00\x00\x00\x00\x11] C[SELECT 1] Z[I]");
}

#[test]
fn formats_differ_by_parameter_and_column() {
    let oids = [23, 25, 1700];
    let values: [Option<&[u8]>; 3] = [Some(&[0, 0, 0, 5]), None, Some(b"1.50")];
    let run = [
        parse("", "echo", &oids),
        target(b'D', b'S', ""),
        bind("", "", &[1, 0, 0], &values, &[0, 1, 1]),
        execute("", 0),
        sync(),
    ];
    check(
        &run,
        r"1 t[23 25 1700] T[value:23:0 value:25:0 value:1700:0] 2 D[5|~|\x00\x02\x00\x00\x00\x00\x00\x02\x00\x01\x13\x88] C[SELECT 1] Z[I]",
    );
}

#[test]
fn a_portal_is_fetched_in_parts() {
    let run = [
        query("begin"),
        parse("", "rows 3", &[]),
        bind("p", "", &[], &[], &[]),
        execute("p", 2),
        execute("p", 2),
        execute("p", 2),
        sync(),
        execute("p", 0),
        sync(),
        query("commit"),
        execute("p", 0),
        sync(),
    ];
    check(
        &run,
        "C[BEGIN] Z[T] 1 2 D[0|row 0] D[1|row 1] s D[2|row 2] C[SELECT 1] C[SELECT 0] Z[T] C[SELECT 0] Z[T] \
         C[COMMIT] Z[I] E[ERROR 34000 portal \"p\" does not exist] Z[I]",
    );
}

#[test]
fn an_error_skips_to_sync() {
    let run = [
        parse("", "fail", &[]),
        bind("", "", &[], &[], &[]),
        execute("", 0),
        execute("", 0),
        query("rows 1"),
        parse("", "nonsense", &[]),
        sync(),
        query("rows 0"),
    ];
    check(&run, "1 2 E[ERROR 22012 division by zero] Z[I] T[number:23:0 text:25:0] C[SELECT 0] Z[I]");
}

#[test]
fn names_are_taken_once_and_closed() {
    let run = [
        parse("a", "rows 0", &[]),
        parse("a", "rows 0", &[]),
        sync(),
        target(b'C', b'S', "a"),
        target(b'C', b'S', "a"),
        parse("a", "rows 0", &[]),
        bind("p", "a", &[], &[], &[]),
        bind("p", "a", &[], &[], &[]),
        sync(),
    ];
    check(
        &run,
        "1 E[ERROR 42P05 prepared statement \"a\" already exists] Z[I] 3 3 1 2 E[ERROR 42P03 cursor \"p\" already exists] Z[I]",
    );
}

#[test]
fn binds_must_fit_their_statement() {
    let with = |bound: Vec<u8>, expect: &str| check(&[parse("", "echo", &[23]), bound, sync()], expect);
    with(
        bind("", "", &[], &[], &[]),
        "1 E[ERROR 08P01 bind message supplies 0 parameters, but prepared statement \"\" requires 1] Z[I]",
    );
    with(
        bind("", "", &[0, 0], &[Some(b"1")], &[]),
        "1 E[ERROR 08P01 bind message has 2 parameter formats but 1 parameters] Z[I]",
    );
    with(
        bind("", "", &[], &[Some(b"1")], &[0, 0]),
        "1 E[ERROR 08P01 bind message has 2 result formats but query has 1 columns] Z[I]",
    );
    with(bind("", "", &[7], &[Some(b"1")], &[]), "1 E[ERROR 22023 unsupported format code: 7] Z[I]");
    with(
        bind("", "", &[1], &[Some(b"1")], &[]),
        "1 E[ERROR 22P03 incorrect binary data format in bind parameter 1] Z[I]",
    );
    with(
        bind("", "other", &[], &[], &[]),
        "1 E[ERROR 26000 prepared statement \"other\" does not exist] Z[I]",
    );
}

#[test]
fn copy_in() {
    let data = |text: &str| message(b'd', text.as_bytes());
    let done = message(b'c', b"");
    check(&[query("copy"), data("1\tx\n"), data("2\ty\n"), done.clone()], "G[2] C[COPY 2] Z[I]");
    check(
        &[query("copy"), data("1\tx\n"), message(b'f', b"changed my mind\0")],
        "G[2] E[ERROR 57014 COPY from stdin failed: changed my mind] Z[I]",
    );
    // The messages after the failure are the rest of the copy, and are dropped.
    check(
        &[query("copy"), data("bad\n"), data("more\n"), done.clone(), query("")],
        "G[2] E[ERROR 22P04 bad line] Z[I] I Z[I]",
    );
    let extended = [parse("", "copy", &[]), bind("", "", &[], &[], &[]), execute("", 0), sync()].concat();
    check(&[extended, data("1\tx\n"), done, sync()], "1 2 G[2] C[COPY 1] Z[I]");
}

#[test]
fn copy_ends_the_connection_on_anything_else() {
    let server = server();
    let mut client = Client::connect(server.address());
    let answer = client.ask_last(&[query("copy"), query("rows 1")].concat());
    assert_eq!(answer, "G[2] E[FATAL 08P01 unexpected message type 0x51 during COPY from stdin] closed");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_cancel_request_ends_the_statement_and_only_that() {
    let server = server();
    let mut client = Client::connect(server.address());
    client.send(&query("sleep"));
    std::thread::sleep(Duration::from_millis(50));
    let (process, secret) = client.key;
    let cancel = |secret: i32| {
        let body =
            [&80_877_102_u32.to_be_bytes()[..], &process.to_be_bytes(), &secret.to_be_bytes()].concat();
        assert_eq!(Client::raw(server.address()).ask_last(&packet(&body)), "closed");
    };
    cancel(secret.wrapping_add(1));
    cancel(secret);
    assert_eq!(client.until_ready(), "E[ERROR 57014 canceling statement due to user request] Z[I]");
    assert_eq!(client.ask(&query("")), "I Z[I]");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_panic_is_the_error_of_its_statement() {
    let server = server();
    let mut other = Client::connect(server.address());
    let mut client = Client::connect(server.address());
    assert_eq!(client.ask(&query("panic")), "E[ERROR XX000 internal error: as asked] Z[I]");
    assert_eq!(other.ask(&query("")), "I Z[I]");
    assert_eq!(client.ask(&query("")), "I Z[I]");
    server.stop(Duration::from_secs(5));
}

#[test]
fn many_rows_leave_before_the_end() {
    let server = server();
    let mut client = Client::connect(server.address());
    client.send(&query("rows 200000"));
    let mut row_count = 0;
    while !client.next().starts_with("C[") {
        row_count += 1;
    }
    assert_eq!(row_count, 200_001);
    assert_eq!(client.next(), "Z[I]");
    server.stop(Duration::from_secs(5));
}

/// e2e/slt found that a client which sends Parse, Bind, Execute and Flush waited for ever: the error
/// stayed in the buffer until the Sync that the client would send after it.
#[test]
fn an_error_arrives_before_the_sync() {
    let server = server();
    let mut client = Client::connect(server.address());
    client.send(
        &[parse("", "fail", &[]), bind("", "", &[], &[], &[]), execute("", 0), message(b'H', b"")].concat(),
    );
    assert_eq!(client.until(|shown| shown.starts_with("E[")), "1 2 E[ERROR 22012 division by zero]");
    assert_eq!(client.ask(&sync()), "Z[I]");
    server.stop(Duration::from_secs(5));
}
