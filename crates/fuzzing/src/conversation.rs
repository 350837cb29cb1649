//! Fuzzes a whole conversation with a server over a socket: start-up, simple and extended messages, COPY.
//!
//! The input begins with one byte. If it is 0, the target first sends a valid start-up packet. The other
//! bytes of the input are what the client sends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use varve_server::{Listener, Server};

use crate::database;
use crate::input::Input;

const STARTUP: &[u8] = b"\0\0\0\x5a\0\x03\0\0user\0postgres\0database\0postgres\0options\0-c statement_timeout=500\0lock_timeout\x0010\0\0";
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks that the server answers or refuses, and ends the connection without a failure.
pub fn conversation(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut sent = if input.byte() == 0 { STARTUP.to_vec() } else { Vec::new() };
    sent.extend_from_slice(input.rest());
    let mut socket = connect();
    // The server may close the connection while data is sent to it. Its earlier answers can be read.
    let _ = socket.write_all(&sent);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match socket.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server hangs"),
            Err(_) => break,
        }
    }
    let failed = answer.windows(7).any(|seven| seven == b"CXX000\0");
    assert!(!failed, "the connection failed: {}", answer.escape_ascii());
}

fn connect() -> TcpStream {
    static SERVER: OnceLock<Mutex<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let listener = Listener::open(([127, 0, 0, 1], 0).into()).expect("a port is free");
        Mutex::new(Server::start(listener, 50, database::open()).expect("a thread can be made"))
    });
    let address = server.lock().expect("nothing fails under the lock").address();
    let socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    socket
}
