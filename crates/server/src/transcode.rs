//! Converts texts in messages from the client's encoding to UTF-8, before the messages are decoded.
//!
//! Invariants
//! 1. A message is not copied if it is all ASCII, or if the client's encoding is UTF-8.
//! 2. Parameters of statements are not converted here, because only their types show which of them are text.
//!    `codec` converts them.

use varve_sql::encoding::Encoding;

use crate::error::WireError;
use crate::frame::Frame;

/// Returns the body of a message with its texts in UTF-8, or `None` if it can stay as it is.
#[inline]
pub fn to_utf8(frame: Frame<'_>, encoding: Encoding) -> Result<Option<Vec<u8>>, WireError> {
    if encoding.converts() { converted(frame, encoding) } else { Ok(None) }
}

fn converted(frame: Frame<'_>, encoding: Encoding) -> Result<Option<Vec<u8>>, WireError> {
    if frame.body.is_ascii() {
        return Ok(None);
    }
    // These are the number of bytes before the texts, and the number of texts with their zero bytes, before
    // other fields.
    let (bytes, texts) = match frame.kind {
        b'Q' | b'E' | b'f' => (0, 1),
        b'P' | b'B' => (0, 2),
        b'D' | b'C' => (1, 1),
        _ => return Ok(None),
    };
    let Some((head, mut rest)) = frame.body.split_at_checked(bytes) else { return Ok(None) };
    let mut body = head.to_vec();
    for _ in 0..texts {
        // A message without the zero byte is not valid, and its decoding returns the error.
        let Some(end) = memchr::memchr(0, rest) else { break };
        body.extend_from_slice(&encoding.to_utf8(&rest[..end])?);
        body.push(0);
        rest = &rest[end + 1..];
    }
    body.extend_from_slice(rest);
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_converted_and_numbers_are_not() {
        let latin1 = Encoding::named("latin1").unwrap();
        let check = |kind, body: &[u8], expect: Option<&[u8]>| {
            let found = to_utf8(Frame { kind, body }, latin1).unwrap();
            assert_eq!(found.as_deref(), expect, "{}", body.escape_ascii());
        };
        check(b'Q', b"select 'a'\0", None);
        check(b'Q', b"select '\xe4'\0", Some(b"select '\xc3\xa4'\0"));
        check(b'E', b"\xe4\0\0\0\0\xff", Some(b"\xc3\xa4\0\0\0\0\xff"));
        check(b'P', b"\xe4\0\xfc\0\0\x01\0\0\0\xe4", Some(b"\xc3\xa4\0\xc3\xbc\0\0\x01\0\0\0\xe4"));
        check(b'D', b"S\xe4\0", Some(b"S\xc3\xa4\0"));
        check(b'd', b"\xe4", None);
        check(b'P', b"\xe4", Some(b"\xe4"));
        assert_eq!(to_utf8(Frame { kind: b'Q', body: b"\xc3\xa4\0" }, Encoding::UTF8), Ok(None));
        let win1252 = Encoding::named("win1252").unwrap();
        assert_eq!(to_utf8(Frame { kind: b'Q', body: b"\x81\0" }, win1252).unwrap_err().sqlstate, "22P05");
    }
}
