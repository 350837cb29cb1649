//! Opening a connection: encryption requests, parameters, versions, limits, shutdown.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::support::client::{Client, packet, query, startup};
use crate::support::{Mock, server};
use varve_server::{Listener, Options, Server};

const GREETING: &str = "R S[server_version=15.0 (mock)] S[application_name=] K Z[I]";

fn code(code: u32) -> Vec<u8> {
    packet(&code.to_be_bytes())
}

#[test]
fn a_client_is_greeted() {
    let server = server();
    let mut client = Client::raw(server.address());
    assert_eq!(client.ask(&startup(&[("user", "anyone")])), GREETING);
    assert_ne!(client.key.0, 0);
    assert_eq!(client.ask(&query("rows 1")), "T[number:23:0 text:25:0] D[0|row 0] C[SELECT 1] Z[I]");
    server.stop(Duration::from_secs(5));
}

#[test]
fn encryption_is_declined_and_plain_text_goes_on() {
    let server = server();
    let mut client = Client::raw(server.address());
    for request in [80_877_103, 80_877_104] {
        client.send(&code(request));
        let mut answer = [0];
        client.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
    }
    assert_eq!(client.ask(&startup(&[("user", "anyone")])), GREETING);
    server.stop(Duration::from_secs(5));
}

#[test]
fn newer_protocols_are_negotiated_down() {
    let server = server();
    let mut client = Client::raw(server.address());
    let newer = packet(&[&[0, 3, 0, 2], &b"user\0u\0_pq_.new_thing\0on\0\0"[..]].concat());
    assert_eq!(client.ask(&newer), format!("v[196608] {GREETING}"));
    server.stop(Duration::from_secs(5));
}

#[test]
fn bad_openings_are_told_what_is_wrong() {
    let server = server();
    let check = |bytes: &[u8], expect: &str| {
        let mut client = Client::raw(server.address());
        assert_eq!(
            client.ask_last(bytes),
            format!("{expect} closed").trim_start(),
            "{}",
            bytes.escape_ascii()
        );
    };
    let length = "E[FATAL 08P01 invalid length of startup packet]";
    check(&[0, 0, 0, 0], length);
    check(&[0, 0, 0, 7], length);
    check(&[0xff, 0xff, 0xff, 0xff], length);
    check(b"GET / HTTP/1.1\r\n\r\n", length);
    let truncated = "E[FATAL 08P01 connection ended inside the start-up packet]";
    check(&[0, 0], truncated);
    check(&[0, 0, 0, 9, 0, 3, 0, 0], truncated);
    check(&startup(&[]), "E[FATAL 28000 no PostgreSQL user name specified in startup packet]");
    check(
        &packet(b"\0\x02\0\0user\0u\0\0"),
        "E[FATAL 0A000 unsupported frontend protocol 2.0: server supports 3.0]",
    );
    check(
        &packet(b"\0\x03\0\0user\0u\0\0junk"),
        "E[FATAL 08P01 invalid startup packet layout: expected terminator as last byte]",
    );
    check(&packet(b"\0\x03\0\0user\0u"), "E[FATAL 08P01 invalid string in message]");
    check(
        &packet(b"\0\x03\0\0user\0\xff\xfe\0\0"),
        "E[FATAL 22021 invalid byte sequence for encoding \"UTF8\": 0xff]",
    );
    check(
        &startup(&[("user", "u"), ("replication", "database")]),
        "E[FATAL 0A000 replication connections are not supported]",
    );
    check(
        &startup(&[("user", "u"), ("options", "-x")]),
        "E[FATAL 42601 invalid command-line argument for server process: -x]",
    );
    check(
        &startup(&[("user", "u"), ("database", "nowhere")]),
        "E[FATAL 3D000 database \"nowhere\" does not exist]",
    );
    check(
        &[code(80_877_103), startup(&[("user", "u")])].concat(),
        "E[FATAL 08P01 received unencrypted data after an encryption request]",
    );
    check(&packet(b"\x04\xd2\x16\x2e\0\0\0\x01"), "E[FATAL 08P01 insufficient data left in message]");
    check(b"", "");
    server.stop(Duration::from_secs(5));
}

#[test]
fn the_sixth_of_five_is_refused_until_one_leaves() {
    let server = server();
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(server.address())).collect();
    let mut sixth = Client::raw(server.address());
    let answer = sixth.ask(&startup(&[("user", "u")]));
    assert_eq!(answer, "E[FATAL 53300 sorry, too many clients already] closed");
    drop(clients.pop());
    let welcomed = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Client::raw(server.address()).ask(&startup(&[("user", "u")])).ends_with("Z[I]")
    });
    assert!(welcomed, "the seat of a client that left isn't given to another");
    server.stop(Duration::from_secs(5));
}

/// A new user found this fault: the refusal came in place of the answer to SSLRequest, so the client reported
/// an error in TLS.
#[test]
fn who_comes_beyond_all_threads_is_refused_after_the_answer_to_its_encryption_request() {
    let server = server();
    let mut busy = Client::connect(server.address());
    busy.send(&query("sleep"));
    let silent: Vec<Client> = (0..80).map(|_| Client::raw(server.address())).collect();
    while server.connection_count() <= 2 * 5 + 64 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..3 {
        let mut client = Client::raw(server.address());
        client.send(&code(80_877_103));
        let mut answer = [0];
        client.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
        let told = client.ask_last(&startup(&[("user", "u")]));
        assert_eq!(told, "E[FATAL 53300 sorry, too many clients already] closed");
    }
    // A statement can still be cancelled.
    let (process, secret) = busy.key;
    let mut cancel = 80_877_102_u32.to_be_bytes().to_vec();
    cancel.extend(process.to_be_bytes());
    cancel.extend(secret.to_be_bytes());
    assert_eq!(Client::raw(server.address()).ask_last(&packet(&cancel)), "closed");
    assert_eq!(busy.ask(b""), "E[ERROR 57014 canceling statement due to user request] Z[I]");
    drop(silent);
    server.stop(Duration::from_secs(5));
}

#[test]
fn stopping_tells_every_client() {
    let server = server();
    let mut idle = Client::connect(server.address());
    let mut busy = Client::connect(server.address());
    let _silent = Client::raw(server.address());
    busy.send(&query("sleep"));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.stop(Duration::from_secs(5)), 0);
    let goodbye = "E[FATAL 57P01 terminating connection due to administrator command] closed";
    assert_eq!(idle.until(|_| false), goodbye);
    assert_eq!(busy.until(|_| false), goodbye, "a statement that the stop cancels");
}

/// Earlier, busy clients saw no reason when their connection was closed. Drivers drop an error that comes
/// between a result and the next query, and the socket answered that query with a reset.
#[test]
fn stopping_answers_the_next_query_of_a_busy_client() {
    let server = server();
    let address = server.address();
    let busy = |_| {
        let mut client = Client::connect(address);
        std::thread::spawn(move || {
            loop {
                let shown = client.ask(&query("rows 1"));
                if !shown.ends_with("Z[I]") {
                    return shown;
                }
                // The client pauses. Messages that come in the pause were not requested.
                std::thread::sleep(Duration::from_millis(10));
                client.stream.set_nonblocking(true).unwrap();
                let unasked = client.stream.peek(&mut [0]).is_ok();
                client.stream.set_nonblocking(false).unwrap();
                assert!(!unasked, "unasked: {}", client.until(|_| false));
            }
        })
    };
    let busy: Vec<_> = (0..5).map(busy).collect();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.stop(Duration::from_secs(5)), 0);
    for client in busy {
        let goodbye = "E[FATAL 57P01 terminating connection due to administrator command] closed";
        assert_eq!(client.join().unwrap(), goodbye);
    }
}

#[test]
fn other_machines_are_kept_out() {
    let error = varve_server::Listener::open(([0, 0, 0, 0], 0).into()).err().unwrap();
    assert!(
        error.to_string().starts_with("Varve doesn't listen on 0.0.0.0:0: other machines can reach"),
        "{error}"
    );
}

#[test]
fn a_taken_port_is_named() {
    let first = server();
    let error = varve_server::Listener::open(first.address()).err().unwrap();
    let expect = format!("Port {} of 127.0.0.1 is in use by another process.", first.address().port());
    assert!(error.to_string().starts_with(&expect), "{error}");
    first.stop(Duration::from_secs(5));
}

#[test]
fn clients_are_told_that_the_server_starts() {
    let options = Options::new(5);
    let listener = Listener::open_for(([127, 0, 0, 1], 0).into(), &options).unwrap();
    let starting = listener.begin_starting(|| "Half of it is done.".to_owned()).unwrap();
    let told = "E[FATAL 57P03 the database system is starting up] closed";
    let address = listener.address();
    for _ in 0..2 {
        let mut client = Client::raw(address);
        client.send(&code(80_877_103));
        let mut answer = [0];
        client.stream.read_exact(&mut answer).unwrap();
        assert_eq!(client.ask_last(&startup(&[("user", "anyone")])), told);
    }
    starting.end();
    let server = Server::start_with(listener, options, Arc::new(Mock)).unwrap();
    let mut client = Client::raw(address);
    assert_eq!(client.ask(&startup(&[("user", "anyone")])), GREETING);
    server.stop(Duration::from_secs(5));
}
