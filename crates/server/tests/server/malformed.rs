//! Malformed messages, and the exact error for each one.

use std::time::Duration;

use crate::support::client::{Client, message, parse, query, sync};
use crate::support::server;

#[test]
fn a_damaged_frame_ends_the_connection_with_the_reason() {
    let server = server();
    let check = |bytes: &[u8], expect: &str| {
        let mut client = Client::connect(server.address());
        let answer = client.ask_last(bytes);
        assert_eq!(answer, format!("E[FATAL 08P01 {expect}] closed"), "{}", bytes.escape_ascii());
    };
    check(&message(b'?', b""), "invalid frontend message type 63");
    check(&[0], "invalid frontend message type 0");
    check(&message(b'p', b"secret\0"), "invalid frontend message type 112");
    check(&[b'Q', 0, 0, 0, 0], "invalid message length");
    check(&[b'Q', 0, 0, 0, 3], "invalid message length");
    check(&[b'Q', 0xff, 0xff, 0xff, 0xff], "invalid message length");
    check(&[b'Q', 4, 0, 0, 1], "invalid message length");
    check(&[b'S', 0, 0, 0x27, 0x11], "invalid message length");
    check(b"Q", "connection ended inside the header of a message of type 'Q'");
    check(&[b'B', 0, 0], "connection ended inside the header of a message of type 'B'");
    check(
        &[b'Q', 0, 0, 0, 100, b's'],
        "connection ended inside a message of type 'Q': 100 bytes were announced, 5 came",
    );
    server.stop(Duration::from_secs(5));
}

/// The client is still sending when the server refuses the length. It must still be able to read the reason.
#[test]
fn a_message_that_is_too_long_gets_its_reason() {
    let server = server();
    let length: u32 = 65 << 20;
    let mut long = vec![b'Q'];
    long.extend(length.to_be_bytes());
    long.resize(1 + length as usize, b' ');
    let mut client = Client::connect(server.address());
    assert_eq!(client.ask_last(&long), "E[FATAL 08P01 invalid message length] closed");
    server.stop(Duration::from_secs(5));
}

/// libpq reads the reason only after it has sent its whole message. So the connection must stay open until
/// then.
#[test]
fn the_stream_stays_open_until_a_refused_message_has_come() {
    let server = server();
    let length: u32 = 65 << 20;
    let mut long = vec![b'Q'];
    long.extend(length.to_be_bytes());
    long.resize(1 + length as usize, b' ');
    let mut client = Client::connect(server.address());
    let (first, rest) = long.split_at(1 << 20);
    client.send(first);
    assert_eq!(client.next(), "E[FATAL 08P01 invalid message length]");
    assert!(client.is_silent(Duration::from_millis(100)), "the end came while the client was sending");
    client.send(rest);
    assert_eq!(client.next(), "closed");
    server.stop(Duration::from_secs(5));
}

/// The server knows where the message ends, so the connection continues.
#[test]
fn a_damaged_body_is_an_error_of_its_message() {
    let server = server();
    let check = |kind: u8, body: &[u8], expect: &str| {
        let mut client = Client::connect(server.address());
        let mut bytes = message(kind, body);
        if !matches!(kind, b'Q' | b'S' | b'F') {
            bytes.extend(sync());
        }
        assert_eq!(client.ask(&bytes), format!("E[ERROR {expect}] Z[I]"), "{}", bytes.escape_ascii());
        assert_eq!(client.ask(&query("")), "I Z[I]", "after {}", bytes.escape_ascii());
    };
    let (string, short, format) = (
        "08P01 invalid string in message",
        "08P01 insufficient data left in message",
        "08P01 invalid message format",
    );
    check(b'Q', b"", string);
    check(b'Q', b"rows 1", string);
    check(b'Q', b"rows 1\0rows 2\0", format);
    check(b'Q', b"\xff\xfe\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xff");
    check(b'Q', b"abc\xe2\x82\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xe2 0x82");
    check(b'S', b"x", format);
    check(b'H', b"x", format);
    check(b'F', b"", "0A000 the function call protocol is not supported");
    check(b'P', b"", string);
    check(b'P', b"name\0", string);
    check(b'P', b"\0rows 1\0", short);
    check(b'P', b"\0rows 1\0\0\x01", short);
    check(b'P', b"\0rows 1\0\xff\xff", short);
    check(b'P', b"\0rows 1\0\0\0x", format);
    check(b'B', b"", string);
    check(b'B', b"\0\0", short);
    check(b'B', b"\0\0\xff\xff", short);
    check(b'B', b"\0\0\0\0\xff\xff", short);
    check(b'B', b"\0\0\0\0\0\x01\0\0\0\x09abc", short);
    check(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0", "08P01 invalid length of a parameter: -2");
    check(b'B', b"\0\0\0\0\0\0\xff\xff", short);
    check(b'B', b"\0\0\0\0\0\0\0\0x", format);
    check(b'E', b"", string);
    check(b'E', b"\0\0\0", short);
    check(b'E', b"\0\0\0\0\0x", format);
    check(b'D', b"", short);
    check(b'D', b"Xname\0", "08P01 invalid DESCRIBE message subtype 88");
    check(b'D', b"Sname", string);
    check(b'C', b"Xname\0", "08P01 invalid CLOSE message subtype 88");
    check(b'C', b"P\0x", format);
    server.stop(Duration::from_secs(5));
}

#[test]
fn values_of_bad_text_are_refused_at_bind() {
    let server = server();
    let mut client = Client::connect(server.address());
    let bound = crate::support::client::bind("", "", &[], &[Some(b"\xc3\x28")], &[]);
    let answer = client.ask(&[parse("", "echo", &[25]), bound, sync()].concat());
    assert_eq!(answer, "1 E[ERROR 22021 invalid byte sequence for encoding \"UTF8\": 0xc3 0x28] Z[I]");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_message_of_the_largest_size_is_read_and_a_larger_one_refused() {
    let server = server();
    let mut client = Client::connect(server.address());
    let mut body = vec![b' '; (64 << 20) - 4];
    body.pop();
    body.push(0);
    assert_eq!(client.ask(&message(b'Q', &body)), "I Z[I]");
    server.stop(Duration::from_secs(5));
}
