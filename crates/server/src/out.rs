//! Messages to the client. They are collected in one buffer and written with one call.
//!
//! The messages that every query needs are encoded here directly into the buffer: row description, data row,
//! completion, ready. `pgwire::messages` encodes the others. Decision 0701 has the measurements for this
//! choice.
//!
//! Invariants
//! 1. The buffer is written to the socket by `flush`, or when it is longer than `BUFFER_BYTES_MAX`.
//! 2. After a failed write nothing more is written. Every later call reports the failure.
//! 3. The length field of a message is filled in when the message is complete.

use std::io::{self, Write};

use bytes::BytesMut;
use pgwire::messages::Message;
use pgwire::messages::response::{MESSAGE_TYPE_BYTE_ERROR_RESPONSE, MESSAGE_TYPE_BYTE_NOTICE_RESPONSE};
use pgwire::messages::startup::MESSAGE_TYPE_BYTE_PARAMETER_STATUS;
use varve_sql::encoding::Encoding;
use varve_sql::{SqlError, SqlState, Subject};

use crate::error::WireError;

/// The longest message, without its kind (PostgreSQL's `MaxAllocSize`). Its length field has 31 bits, and
/// clients allocate this number of bytes.
pub const MESSAGE_BYTES_MAX: usize = (1 << 30) - 1;
/// The length above which the buffer is written.
pub const BUFFER_BYTES_MAX: usize = 64 << 10;
const BUFFER_KEEP_BYTES: usize = 32 << 10;

/// The sending half of a connection.
pub struct Out<W> {
    sink: W,
    buffer: Vec<u8>,
    /// The beginning of the message that is being written.
    begun: Option<usize>,
    failed: bool,
    /// The encoding of texts for the client.
    encoding: Encoding,
}

/// The position of a length in the buffer, which is filled in later.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct LengthAt(usize);

impl<W: Write> Out<W> {
    /// Returns a sender that writes to `sink`.
    pub fn new(sink: W) -> Self {
        Self { sink, buffer: Vec::new(), begun: None, failed: false, encoding: Encoding::UTF8 }
    }

    /// Returns the encoding of texts for the client.
    #[inline]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Sets the encoding of texts in the following messages.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// Writes everything that is pending. The connection may be idle afterwards, so a large buffer is freed.
    pub fn flush(&mut self) -> io::Result<()> {
        let result = self.write();
        if self.buffer.capacity() > BUFFER_KEEP_BYTES {
            self.buffer = Vec::new();
        }
        result
    }

    /// Writes the buffer if it is full. The caller is between two messages.
    #[inline]
    pub fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() > BUFFER_BYTES_MAX { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let result = self.sink.write_all(&self.buffer);
        self.failed = result.is_err();
        self.buffer.clear();
        self.begun = None;
        result
    }

    /// Returns the buffer, for encoders of values.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Begins a message. [`Out::end`] ends it.
    #[inline]
    pub fn begin(&mut self, kind: u8) -> LengthAt {
        self.begun = Some(self.buffer.len());
        self.buffer.push(kind);
        self.begin_value()
    }

    /// Returns the error 54000 if the message that is being written is too long.
    #[inline]
    pub fn check_length(&self, at: LengthAt) -> Result<(), SqlError> {
        let bytes = self.buffer.len() - at.0;
        if bytes <= MESSAGE_BYTES_MAX { Ok(()) } else { Err(too_long(bytes)) }
    }

    /// Ends a message by filling in its length, which includes the length field.
    #[inline]
    pub fn end(&mut self, at: LengthAt) {
        self.begun = None;
        patch(&mut self.buffer, at.0, 0);
    }

    /// Begins a value in a data row.
    #[inline]
    pub fn begin_value(&mut self) -> LengthAt {
        let at = LengthAt(self.buffer.len());
        self.buffer.extend_from_slice(&[0; 4]);
        at
    }

    /// Ends a value by filling in its length, which does not include the length field.
    #[inline]
    pub fn end_value(&mut self, at: LengthAt) {
        patch(&mut self.buffer, at.0, 4);
    }

    /// Removes a message that was begun.
    pub fn abandon(&mut self, at: LengthAt) {
        self.buffer.truncate(at.0 - 1);
        self.begun = None;
    }

    /// Removes an unfinished message, after the code that wrote it has failed.
    pub fn abandon_unfinished(&mut self) {
        if let Some(at) = self.begun.take() {
            self.buffer.truncate(at);
        }
    }

    /// Appends a message of `pgwire`. This is for messages that are not sent with every query.
    pub fn message<M: Message>(&mut self, message: &M) {
        let mut encoded = BytesMut::new();
        let result = message.encode(&mut encoded);
        assert!(result.is_ok(), "a server message doesn't encode: {result:?}");
        self.buffer.extend_from_slice(&encoded);
    }

    /// Appends a message without a body.
    #[inline]
    pub fn bare(&mut self, kind: u8) {
        self.buffer.extend_from_slice(&[kind, 0, 0, 0, 4]);
    }

    /// Appends `ReadyForQuery` with the transaction status `I`, `T` or `E`.
    #[inline]
    pub fn ready(&mut self, status: u8) {
        self.buffer.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
    }

    /// Appends `ErrorResponse`.
    pub fn error(&mut self, error: &WireError) {
        self.abandon_unfinished();
        // If the client's encoding cannot express the error, the client gets an error about that instead.
        if let Err(untold) = self.tellable(error) {
            return self
                .fields(MESSAGE_TYPE_BYTE_ERROR_RESPONSE, fields(error.severity.word(), &untold.into()));
        }
        self.fields(MESSAGE_TYPE_BYTE_ERROR_RESPONSE, fields(error.severity.word(), error));
    }

    /// Appends `NoticeResponse`. `severity` is WARNING, NOTICE, INFO ...
    pub fn notice(&mut self, severity: &str, error: &WireError) {
        self.fields(MESSAGE_TYPE_BYTE_NOTICE_RESPONSE, fields(severity, error));
    }

    /// Returns the error 22P05 if the client's encoding does not have a character of the error's texts.
    fn tellable(&self, error: &WireError) -> Result<(), SqlError> {
        let texts = [Some(&*error.message), error.detail.as_deref(), error.hint.as_deref()];
        texts.into_iter().flatten().try_for_each(|text| self.encoding.of_utf8(text).map(drop))
    }

    fn fields(&mut self, kind: u8, fields: Vec<(u8, String)>) {
        let message = self.begin(kind);
        for (code, text) in fields {
            self.buffer.push(code);
            self.text(&text);
        }
        self.buffer.push(0);
        self.end(message);
    }

    /// Appends `ParameterStatus`.
    pub fn parameter(&mut self, name: &str, value: &str) {
        let message = self.begin(MESSAGE_TYPE_BYTE_PARAMETER_STATUS);
        self.text(name);
        self.text(value);
        self.end(message);
    }

    /// Appends a string and a zero byte. Characters that the client's encoding does not have become question
    /// marks.
    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(&self.encoding.of_utf8_lossy(text));
        self.buffer.push(0);
    }

    /// Appends a name and a zero byte. The error is 22P05 if the client's encoding does not have a character
    /// of it.
    #[inline]
    pub fn name(&mut self, name: &str) -> Result<(), WireError> {
        match self.encoding.converts() {
            false => self.buffer.extend_from_slice(name.as_bytes()),
            true => self.buffer.extend_from_slice(&self.encoding.of_utf8(name)?),
        }
        self.buffer.push(0);
        Ok(())
    }
}

#[cold]
fn too_long(bytes: usize) -> SqlError {
    let detail = format!("A message of {bytes} bytes exceeds the limit of {MESSAGE_BYTES_MAX} bytes.");
    SqlError::new(SqlState::PROGRAM_LIMIT, "out of memory").with_detail(detail)
}

#[inline]
fn patch(buffer: &mut [u8], at: usize, uncounted: usize) {
    let length = buffer.len() - at - uncounted;
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    buffer[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn fields(severity: &str, error: &WireError) -> Vec<(u8, String)> {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.sqlstate.to_owned()),
        (b'M', without_zeros(&error.message)),
    ];
    let detail = error.detail.as_deref().map(|detail| (b'D', without_zeros(detail)));
    let hint = error.hint.as_deref().map(|hint| (b'H', without_zeros(hint)));
    let position = error.position.map(|position| (b'P', position.to_string()));
    let context = error.context.as_deref().map(|context| (b'W', without_zeros(context)));
    fields.extend([detail, hint, position, context].into_iter().flatten());
    if let Some(subject) = &error.subject {
        let Subject { schema, table, column, constraint, page: _ } = subject.as_ref();
        let named = [(b's', schema), (b't', table), (b'c', column), (b'n', constraint)];
        fields.extend(named.into_iter().filter_map(|(code, n)| Some((code, without_zeros(n.as_deref()?)))));
    }
    fields
}

/// Replaces zero bytes, because they would end the field too early.
fn without_zeros(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_patched() {
        let mut out = Out::new(Vec::new());
        let row = out.begin(b'D');
        out.buffer().extend([0, 1]);
        let value = out.begin_value();
        out.buffer().extend(*b"abc");
        out.end_value(value);
        out.end(row);
        out.ready(b'I');
        out.flush().unwrap();
        assert_eq!(out.sink, b"D\0\0\0\x0d\0\x01\0\0\0\x03abcZ\0\0\0\x05I");
    }

    #[test]
    fn a_message_of_a_gigabyte_is_refused() {
        let mut out = Out::new(Vec::new());
        let message = out.begin(b'D');
        out.buffer().resize(1 + MESSAGE_BYTES_MAX, 0);
        assert!(out.check_length(message).is_ok());
        out.buffer().push(0);
        assert_eq!(out.check_length(message).unwrap_err().sqlstate.0, "54000");
        out.abandon(message);
        assert!(out.buffer().is_empty());
    }

    #[test]
    fn nothing_is_written_after_a_failure() {
        struct Broken(usize);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Out::new(Broken(0));
        out.ready(b'I');
        assert!(out.flush().is_err());
        out.ready(b'I');
        assert!(out.flush().is_err());
        assert_eq!(out.sink.0, 1);
    }

    #[test]
    fn an_error_keeps_its_fields() {
        let mut out = Out::new(Vec::new());
        out.error(&WireError::error("42601", "bad\0text").hint("look"));
        let expected = b"SERROR\0VERROR\0C42601\0Mbad\xef\xbf\xbdtext\0Hlook\0\0";
        assert_eq!(&out.buffer[5..], expected);
    }
}
