//! Clients that stop sending get a certain error in each state of the connection. Active clients are not
//! disturbed.

use std::time::{Duration, Instant};

use crate::support::client::{Client, parse, query, startup, sync};
use crate::support::{ENDERS, server, server_with};
use varve_server::Options;

const IDLE: &str = "E[FATAL 57P05 terminating connection due to idle-session timeout] closed";
const IN_BLOCK: &str = "E[FATAL 25P03 terminating connection due to idle-in-transaction timeout] closed";

const ENDED: &str = "E[FATAL 57P01 terminating connection due to administrator command] closed";

/// Connects a client whose start-up packet has these settings.
fn connect(server: &varve_server::Server, settings: &[(&str, &str)]) -> Client {
    let mut client = Client::raw(server.address());
    let shown = client.ask(&startup(&[&[("user", "anyone")], settings].concat()));
    assert!(shown.ends_with("Z[I]"), "{shown}");
    client
}

#[test]
fn a_silent_session_ends_after_its_time() {
    let server = server();
    let mut client = connect(&server, &[("idle_session_timeout", "100")]);
    let began = Instant::now();
    assert_eq!(client.until(|_| false), IDLE);
    assert!(began.elapsed() >= Duration::from_millis(90));
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_silent_transaction_ends_after_a_time_of_its_own() {
    let server = server();
    let mut client = connect(&server, &[("idle_in_transaction_session_timeout", "100")]);
    // Outside a transaction block, the client may be silent.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.ask(&query("begin")), "C[BEGIN] Z[T]");
    assert_eq!(client.until(|_| false), IN_BLOCK);
    server.stop(Duration::from_secs(5));
}

/// Finding A14 of review 8: the limit ended with the first byte of a message, so half a message kept a
/// session for ever.
#[test]
fn half_a_message_is_silence_too() {
    let server = server();
    for half in [&b"Q"[..], b"Q\0\0", b"Q\0\0\0\x20select"] {
        let mut client = connect(&server, &[("idle_in_transaction_session_timeout", "100")]);
        assert_eq!(client.ask(&query("begin")), "C[BEGIN] Z[T]");
        client.send(half);
        assert_eq!(client.until(|_| false), IN_BLOCK);
    }
    server.stop(Duration::from_secs(5));
}

#[test]
fn who_talks_in_time_stays() {
    let server = server();
    let mut client = connect(&server, &[("idle_session_timeout", "300")]);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(client.ask(&query("")), "I Z[I]");
    }
    // Between two messages of one request, a session is not idle.
    client.send(&parse("", "echo", &[]));
    std::thread::sleep(Duration::from_millis(600));
    assert!(client.ask(&sync()).ends_with("Z[I]"));
    server.stop(Duration::from_secs(5));
}

#[test]
fn who_never_says_what_it_wants_is_told_so() {
    let server = server_with(Options { patience: Duration::from_millis(100), ..Options::new(5) });
    let mut client = Client::raw(server.address());
    client.send(b"\0\0");
    assert_eq!(client.until(|_| false), "E[FATAL 57014 canceling authentication due to timeout] closed");
    server.stop(Duration::from_secs(5));
}

/// This is what pg_terminate_backend does. It was missing earlier. It also ends a session in a transaction
/// block whose client is silent.
#[test]
fn a_silent_session_can_be_ended_by_others() {
    let server = server();
    for name in ["idle", "begin"] {
        let mut client = connect(&server, &[("ender", name)]);
        if name == "begin" {
            assert_eq!(client.ask(&query(name)), "C[BEGIN] Z[T]");
        }
        let end = ENDERS.lock().unwrap().remove(name).unwrap();
        end();
        assert_eq!(client.until(|_| false), ENDED);
    }
    server.stop(Duration::from_secs(5));
}
