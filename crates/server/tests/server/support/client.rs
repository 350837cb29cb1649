//! A test client that sends bytes and shows the server's answers as one line of text.
//!
//! The line shows a message as follows:
//!
//! | text | message |
//! |---|---|
//! | `1`, `2`, `3` | ParseComplete, BindComplete, CloseComplete |
//! | `t[23]` | ParameterDescription |
//! | `T[number:23:0]` | RowDescription (name, type, format) |
//! | `D[1\|x]` | DataRow (`~` is NULL) |
//! | `C[..]` | CommandComplete |
//! | `E[severity sqlstate message]` | ErrorResponse |
//! | `N[..]` | NoticeResponse |
//! | `Z[I]` | ReadyForQuery |
//! | `S[name=value]` | ParameterStatus |
//! | `G[2]` | CopyInResponse |
//! | `n`, `s`, `I` | NoData, PortalSuspended, EmptyQueryResponse |
//! | `K`, `R`, `v[..]` | BackendKeyData, Authentication, NegotiateProtocolVersion |
//! | `closed` | the end of the connection |

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The time after which a server that does not answer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    pub stream: TcpStream,
    /// Process number and secret, from the start-up.
    pub key: (i32, i32),
}

/// Returns one message of a kind.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Returns a start-up packet of protocol 3.0 with these parameters.
pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    packet(&body)
}

/// Returns a packet without a kind.
pub fn packet(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

pub fn parse(name: &str, sql: &str, oids: &[u32]) -> Vec<u8> {
    let mut body = [name.as_bytes(), b"\0", sql.as_bytes(), b"\0"].concat();
    body.extend((oids.len() as u16).to_be_bytes());
    oids.iter().for_each(|oid| body.extend(oid.to_be_bytes()));
    message(b'P', &body)
}

pub fn bind(
    portal: &str,
    statement: &str,
    formats: &[u16],
    values: &[Option<&[u8]>],
    results: &[u16],
) -> Vec<u8> {
    let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0"].concat();
    let put = |body: &mut Vec<u8>, codes: &[u16]| {
        body.extend((codes.len() as u16).to_be_bytes());
        codes.iter().for_each(|code| body.extend(code.to_be_bytes()));
    };
    put(&mut body, formats);
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        let length = value.map_or(-1, |value| value.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    put(&mut body, results);
    message(b'B', &body)
}

pub fn execute(portal: &str, row_limit: i32) -> Vec<u8> {
    let mut body = [portal.as_bytes(), b"\0"].concat();
    body.extend(row_limit.to_be_bytes());
    message(b'E', &body)
}

/// Returns the message Describe (`D`) or Close (`C`) of a statement (`S`) or portal (`P`).
pub fn target(kind: u8, of: u8, name: &str) -> Vec<u8> {
    message(kind, &[&[of], name.as_bytes(), b"\0"].concat())
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

impl Client {
    /// Opens a socket on which nothing was sent.
    pub fn raw(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, key: (0, 0) }
    }

    /// Opens a connection that is ready for queries.
    pub fn connect(address: SocketAddr) -> Client {
        let mut client = Client::raw(address);
        client.send(&startup(&[("user", "tester"), ("database", "postgres")]));
        let shown = client.until_ready();
        assert!(shown.ends_with("Z[I]"), "{shown}");
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes, and shows everything up to ReadyForQuery or the end.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        self.until_ready()
    }

    /// Sends bytes and closes this side of the connection, and shows everything up to the end.
    pub fn ask_last(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        // The server may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.until(|_| false)
    }

    pub fn until_ready(&mut self) -> String {
        self.until(|shown| shown.starts_with("Z["))
    }

    /// Shows answers up to one that `last` accepts, or the end.
    pub fn until(&mut self, last: impl Fn(&str) -> bool) -> String {
        let mut all = Vec::new();
        loop {
            let shown = self.next();
            let done = shown == "closed" || last(&shown);
            all.push(shown);
            if done {
                return all.join(" ");
            }
        }
    }

    /// Returns whether nothing comes in this time, not even the end.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let looked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(looked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Shows one answer.
    pub fn next(&mut self) -> String {
        let mut header = [0; 5];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server hangs"),
            Err(_) => return "closed".to_owned(),
        }
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).unwrap();
        if header[0] == b'K' {
            let word = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
            self.key = (word(0), word(4));
        }
        show(header[0], &body)
    }
}

fn show(kind: u8, body: &[u8]) -> String {
    let mut rest = body;
    let details = match kind {
        b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'K' | b'R' => return char::from(kind).to_string(),
        b'Z' => char::from(body[0]).to_string(),
        b'C' => take_text(&mut rest),
        b'S' => format!("{}={}", take_text(&mut rest), take_text(&mut rest)),
        b'E' | b'N' => show_error(rest),
        b'T' => show_columns(rest),
        b'D' => show_row(rest),
        b'G' => take_i16(&mut &body[1..]).to_string(),
        b't' => {
            let count = take_i16(&mut rest);
            let oids: Vec<String> = (0..count).map(|_| take_i32(&mut rest).to_string()).collect();
            oids.join(" ")
        }
        b'v' => format!("{}", take_i32(&mut rest)),
        other => panic!("unexpected message of type {}", char::from(other)),
    };
    format!("{}[{details}]", char::from(kind))
}

fn show_error(mut rest: &[u8]) -> String {
    let mut fields = std::collections::BTreeMap::new();
    while rest[0] != 0 {
        let key = rest[0];
        rest = &rest[1..];
        fields.insert(key, take_text(&mut rest));
    }
    let field = |key: u8| fields.get(&key).cloned().unwrap_or_default();
    format!("{} {} {}", field(b'S'), field(b'C'), field(b'M'))
}

fn show_columns(mut rest: &[u8]) -> String {
    let count = take_i16(&mut rest);
    let columns = (0..count).map(|_| {
        let name = take_text(&mut rest);
        rest = &rest[6..];
        let oid = take_i32(&mut rest);
        rest = &rest[6..];
        format!("{name}:{oid}:{}", take_i16(&mut rest))
    });
    columns.collect::<Vec<_>>().join(" ")
}

fn show_row(mut rest: &[u8]) -> String {
    let count = take_i16(&mut rest);
    let values = (0..count).map(|_| match take_i32(&mut rest) {
        -1 => "~".to_owned(),
        length => {
            let (value, after) = rest.split_at(length as usize);
            rest = after;
            value.escape_ascii().to_string()
        }
    });
    values.collect::<Vec<_>>().join("|")
}

fn take_i16(rest: &mut &[u8]) -> i16 {
    let (value, after) = rest.split_at(2);
    *rest = after;
    i16::from_be_bytes(value.try_into().unwrap())
}

fn take_i32(rest: &mut &[u8]) -> i32 {
    let (value, after) = rest.split_at(4);
    *rest = after;
    i32::from_be_bytes(value.try_into().unwrap())
}

fn take_text(rest: &mut &[u8]) -> String {
    let end = rest.iter().position(|byte| *byte == 0).unwrap();
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    text
}
