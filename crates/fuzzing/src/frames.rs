//! Fuzzes the splitting of a client's bytes into messages, their decoding, and the packets that open a
//! connection.
//!
//! The input begins with one byte: the number of bytes that arrive at once (0: all). The stream of the client
//! follows.

use std::io::Read;

use varve_server::frame::{FrameEnd, FrameReader};
use varve_server::fuzzing;
use varve_server::message::{Message, decode};

use crate::input::Input;

/// Checks that the result does not depend on the parts in which the bytes arrive, and that a decoded message
/// can be iterated.
pub fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let at_once = usize::from(input.byte());
    let stream = input.rest();
    let whole = read(stream);
    if at_once > 0 {
        assert_eq!(read(Drip { rest: stream, at_once }), whole);
        assert_eq!(fuzzing::startup(Drip { rest: stream, at_once }), drip_free(stream));
    }
}

/// Returns the start-up, read from all bytes together. Bytes that arrive together with an encryption request
/// are refused, so this answer may differ.
fn drip_free(stream: &[u8]) -> (Vec<u8>, bool) {
    fuzzing::startup(Drip { rest: stream, at_once: usize::from(stream.len() < 8) + 1 })
}

fn read(source: impl Read) -> Vec<String> {
    let mut reader = FrameReader::new(source);
    let mut seen = Vec::new();
    loop {
        match reader.frame() {
            Ok(frame) => seen.push(match decode(frame) {
                Ok(message) => walk(&message),
                Err(error) => format!("{} {}", error.sqlstate, error.message),
            }),
            Err(FrameEnd::Broken(error)) => seen.push(error.message.to_string()),
            Err(FrameEnd::Closed) => seen.push("closed".to_owned()),
            Err(FrameEnd::Io(error)) => panic!("memory can be read: {error}"),
        }
        let is_end = matches!(reader.peek_kind(), Err(FrameEnd::Closed)) || seen.len() > 1000;
        if is_end {
            return seen;
        }
    }
}

fn walk(message: &Message<'_>) -> String {
    match message {
        Message::Parse(parse) => assert_eq!(parse.type_oids().len(), parse.type_oids().count()),
        Message::Bind(bind) => {
            assert_eq!(bind.values().count(), bind.parameter_count);
            for index in 0..bind.parameter_count + 2 {
                // A code may be missing or unknown.
                let _ = (bind.parameter_formats.get(index), bind.result_formats.get(index));
            }
        }
        _ => {}
    }
    format!("{message:?}")
}

/// A stream that returns few bytes in each read.
struct Drip<'a> {
    rest: &'a [u8],
    at_once: usize,
}

impl Read for Drip<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = self.rest.len().min(self.at_once).min(buf.len());
        buf[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}
