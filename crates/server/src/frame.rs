//! Splits the byte stream of a client into frames (messages). The client's bytes are not trusted.
//!
//! ```text
//! start-up packet      typed message
//!  0  u32  length       0  u8   kind
//!  4  u32  code         1  u32  length (counts itself, not the kind)
//!  8  ...  body         5  ...  body
//! ```
//! All integers are big endian (PostgreSQL 15 documentation, section 55.7).
//!
//! Invariants
//! 1. A frame is returned as a whole or not at all. Its body has exactly the length that its header states.
//! 2. Memory grows with the bytes that have arrived. A header that states a large length allocates nothing.
//! 3. After an error, nothing more is read from the stream, because the limits of its messages are unknown.
//! 4. An idle reader uses at most `BUFFER_KEEP_BYTES` of memory.

use std::io::{self, Read};
use std::ops::Range;

use crate::error::WireError;

/// The longest start-up packet (PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`).
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// The longest message of a kind that has only names and numbers (`PQ_SMALL_MESSAGE_LIMIT`).
pub const SMALL_BYTES_MAX: usize = 10_000;
/// The longest message of any other kind. PostgreSQL allows 1 GiB. Values here have at most 16 MiB, so a
/// sixteenth of that is enough for a statement with several values.
pub const LARGE_BYTES_MAX: usize = 64 << 20;

/// The longest message during authentication (`PG_MAX_SASL_MESSAGE_LENGTH`).
const AUTHENTICATION_BYTES_MAX: usize = 1024;
const AUTHENTICATION_KIND: u8 = b'p';
const HEADER_BYTES: usize = 5;
const BUFFER_FIRST_BYTES: usize = 4 << 10;
const BUFFER_KEEP_BYTES: usize = 32 << 10;

/// One typed message, borrowed from the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The message kind, one of [`KINDS`].
    pub kind: u8,
    /// The bytes after the length.
    pub body: &'a [u8],
}

/// Every message kind that a client may send, with the largest allowed length.
pub const KINDS: &[(u8, usize)] = &[
    (b'Q', LARGE_BYTES_MAX),
    (b'P', LARGE_BYTES_MAX),
    (b'B', LARGE_BYTES_MAX),
    (b'E', SMALL_BYTES_MAX),
    (b'D', SMALL_BYTES_MAX),
    (b'C', SMALL_BYTES_MAX),
    (b'H', SMALL_BYTES_MAX),
    (b'S', SMALL_BYTES_MAX),
    (b'X', SMALL_BYTES_MAX),
    (b'd', LARGE_BYTES_MAX),
    (b'c', SMALL_BYTES_MAX),
    (b'f', SMALL_BYTES_MAX),
    (b'F', LARGE_BYTES_MAX),
];

/// The reason why the stream of frames ended.
#[derive(Debug)]
pub enum FrameEnd {
    /// The client closed the connection between two messages.
    Closed,
    /// The socket failed, so the client cannot be told.
    Io(io::Error),
    /// The bytes are not valid. The client gets the error before the connection is closed.
    Broken(WireError),
}

impl From<io::Error> for FrameEnd {
    fn from(error: io::Error) -> Self {
        FrameEnd::Io(error)
    }
}

/// Buffered reader of frames.
pub struct FrameReader<R> {
    source: R,
    buffer: Vec<u8>,
    unread: Range<usize>,
    /// Whether the last read filled the buffer. Then a larger buffer would save calls.
    was_full: bool,
    /// Bytes of a refused message that have not arrived yet.
    refused_bytes: usize,
}

impl<R: Read> FrameReader<R> {
    /// Returns a reader of `source`, whose reads should block.
    pub fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), unread: 0..0, was_full: false, refused_bytes: 0 }
    }

    /// Returns the next typed message.
    pub fn frame(&mut self) -> Result<Frame<'_>, FrameEnd> {
        let (kind, length) = self.await_frame()?;
        let body = self.take(1 + length);
        Ok(Frame { kind, body: &self.buffer[body.start + HEADER_BYTES..body.end] })
    }

    /// Waits until the next typed message has arrived completely. Returns its kind and length, and leaves it
    /// unread.
    #[inline]
    pub fn await_frame(&mut self) -> Result<(u8, usize), FrameEnd> {
        // Usually the whole message arrives with one read.
        if let [kind, a, b, c, d, ..] = self.buffer[self.unread.start..self.unread.end] {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let is_sound = length_limit(kind).is_some_and(|limit| (4..=limit).contains(&length));
            if is_sound && self.unread.len() > length {
                return Ok((kind, length));
            }
        }
        self.await_rest()
    }

    fn await_rest(&mut self) -> Result<(u8, usize), FrameEnd> {
        let kind = self.peek_kind()?;
        let limit = length_limit(kind).ok_or_else(|| FrameEnd::Broken(unknown_kind(kind)))?;
        self.fill_at_least(HEADER_BYTES, Missing::Header(kind))?;
        let length = self.u32_at(1);
        if length < 4 || length > limit {
            self.refused_bytes = (1 + length).saturating_sub(self.unread.len());
            return Err(FrameEnd::Broken(bad_length(kind, length, limit)));
        }
        self.fill_at_least(1 + length, Missing::Body { kind, length })?;
        Ok((kind, length))
    }

    /// Returns the body of the client's next message during authentication.
    pub fn authentication(&mut self) -> Result<&[u8], FrameEnd> {
        self.fill_at_least(1, Missing::Between)?;
        let kind = self.buffer[self.unread.start];
        if kind != AUTHENTICATION_KIND {
            let message = format!("expected SASL response, got message type {}", show(kind));
            return Err(FrameEnd::Broken(WireError::fatal("08P01", message)));
        }
        self.fill_at_least(HEADER_BYTES, Missing::Header(kind))?;
        let length = self.u32_at(1);
        if !(4..=AUTHENTICATION_BYTES_MAX).contains(&length) {
            return Err(FrameEnd::Broken(bad_length(kind, length, AUTHENTICATION_BYTES_MAX)));
        }
        self.fill_at_least(1 + length, Missing::Body { kind, length })?;
        let body = self.take(1 + length);
        Ok(&self.buffer[body.start + HEADER_BYTES..body.end])
    }

    /// Returns the kind of the next message, which stays unread. It may be any byte.
    pub fn peek_kind(&mut self) -> Result<u8, FrameEnd> {
        self.fill_at_least(1, Missing::Between)?;
        Ok(self.buffer[self.unread.start])
    }

    /// Returns the next start-up packet: all bytes after its length.
    pub fn startup(&mut self) -> Result<&[u8], FrameEnd> {
        self.fill_at_least(1, Missing::Between)?;
        self.fill_at_least(4, Missing::Startup)?;
        let length = self.u32_at(0);
        if !(8..=STARTUP_BYTES_MAX).contains(&length) {
            return Err(FrameEnd::Broken(bad_startup_length(length)));
        }
        self.fill_at_least(length, Missing::Startup)?;
        let packet = self.take(length);
        Ok(&self.buffer[packet.start + 4..packet.end])
    }

    /// Returns whether there are bytes that belong to no frame yet. After `SSLRequest` this means that an
    /// attacker has inserted unencrypted data before the answer.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns the number of bytes that the client will still send after a message with a wrong length,
    /// according to that length.
    pub fn refused_bytes(&self) -> usize {
        self.refused_bytes
    }

    /// Returns the underlying stream.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// Returns the underlying stream, for changes of its settings.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    fn u32_at(&self, offset: usize) -> usize {
        let at = self.unread.start + offset;
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.buffer[at..at + 4]);
        u32::from_be_bytes(bytes) as usize
    }

    fn take(&mut self, length: usize) -> Range<usize> {
        let start = self.unread.start;
        self.unread.start += length;
        start..start + length
    }

    /// Blocks until `wanted` bytes are unread.
    #[inline]
    fn fill_at_least(&mut self, wanted: usize, missing: Missing) -> Result<(), FrameEnd> {
        while self.unread.len() < wanted {
            self.make_room(wanted);
            let count = match self.source.read(&mut self.buffer[self.unread.end..]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                return Err(missing.end(self.unread.len()));
            }
            self.unread.end += count;
            self.was_full = self.unread.end == self.buffer.len();
        }
        Ok(())
    }

    /// Makes free space at the end of the buffer. The buffer is only doubled, even if `wanted` is larger. So
    /// a header that announces 64 MiB allocates nothing by itself.
    fn make_room(&mut self, wanted: usize) {
        if self.unread.is_empty() {
            self.unread = 0..0;
            if self.buffer.len() > BUFFER_KEEP_BYTES && wanted <= BUFFER_KEEP_BYTES {
                self.buffer = vec![0; BUFFER_FIRST_BYTES];
            } else if self.was_full && self.buffer.len() < BUFFER_KEEP_BYTES {
                self.buffer = vec![0; self.buffer.len() * 2];
            }
        }
        if self.unread.end < self.buffer.len() && self.buffer.len() - self.unread.start >= wanted {
            return;
        }
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.buffer.len() {
            let doubled = (self.buffer.len() * 2).max(BUFFER_FIRST_BYTES);
            self.buffer.resize(doubled, 0);
        }
    }
}

/// The part of the stream that would be missing if it ended now.
#[derive(Clone, Copy)]
enum Missing {
    Between,
    Startup,
    Header(u8),
    Body { kind: u8, length: usize },
}

impl Missing {
    fn end(self, unread: usize) -> FrameEnd {
        let message = match self {
            Missing::Between => return FrameEnd::Closed,
            Missing::Startup => "connection ended inside the start-up packet".to_owned(),
            Missing::Header(kind) => {
                format!("connection ended inside the header of a message of type {}", show(kind))
            }
            Missing::Body { kind, length } => format!(
                "connection ended inside a message of type {}: {} bytes were announced, {} came",
                show(kind),
                length,
                unread - 1
            ),
        };
        FrameEnd::Broken(WireError::fatal("08P01", message))
    }
}

fn length_limit(kind: u8) -> Option<usize> {
    KINDS.iter().find(|(known, _)| *known == kind).map(|(_, limit)| *limit)
}

fn show(kind: u8) -> String {
    if kind.is_ascii_graphic() { format!("'{}'", char::from(kind)) } else { format!("{kind}") }
}

fn unknown_kind(kind: u8) -> WireError {
    WireError::fatal("08P01", format!("invalid frontend message type {kind}"))
}

fn bad_length(kind: u8, length: usize, limit: usize) -> WireError {
    let error = WireError::fatal("08P01", "invalid message length").detail(format!(
        "A message of type {} announced {length} bytes; it must be between 4 and {limit}.",
        show(kind)
    ));
    if limit < LARGE_BYTES_MAX || length < limit {
        return error;
    }
    error.hint(format!(
        "A statement, and its parameters, may have {} MiB. Send large data in several statements, or by COPY.",
        limit >> 20
    ))
}

fn bad_startup_length(length: usize) -> WireError {
    WireError::fatal("08P01", "invalid length of startup packet").detail(format!(
        "The packet announced {length} bytes; it must be between 8 and {STARTUP_BYTES_MAX}. \
         Is the client speaking another protocol?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_length_costs_no_memory() {
        let header = [b'Q', 3, 0, 0, 0, b's'];
        let mut reader = FrameReader::new(&header[..]);
        assert!(matches!(reader.frame(), Err(FrameEnd::Broken(_))));
        assert!(reader.buffer.len() <= BUFFER_FIRST_BYTES);
    }

    #[test]
    fn frames_may_come_one_byte_at_a_time() {
        struct Drip<'a>(&'a [u8]);
        impl Read for Drip<'_> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(1);
                buf[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let mut stream = Vec::new();
        for size in [0_u32, 1, 5000, 20_000, 3] {
            stream.push(b'Q');
            stream.extend((size + 4).to_be_bytes());
            stream.extend(std::iter::repeat_n(b'x', size as usize));
        }
        let mut reader = FrameReader::new(Drip(&stream));
        for size in [0, 1, 5000, 20_000, 3] {
            let frame = reader.frame().unwrap();
            assert_eq!((frame.kind, frame.body.len()), (b'Q', size));
            assert!(frame.body.iter().all(|byte| *byte == b'x'));
        }
        assert!(matches!(reader.frame(), Err(FrameEnd::Closed)));
    }

    #[test]
    fn a_large_frame_does_not_stay_in_memory() {
        let mut stream = vec![b'Q'];
        stream.extend((1_000_004_u32).to_be_bytes());
        stream.extend(vec![b'x'; 1_000_000]);
        stream.extend([b'S', 0, 0, 0, 4]);
        let mut reader = FrameReader::new(io::Cursor::new(stream));
        assert_eq!(reader.frame().unwrap().body.len(), 1_000_000);
        assert_eq!(reader.frame().unwrap().kind, b'S');
        assert!(matches!(reader.frame(), Err(FrameEnd::Closed)));
        assert!(reader.buffer.len() <= BUFFER_KEEP_BYTES);
    }
}
