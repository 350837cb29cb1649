//! Finds where words, comments, dollar quotes and continued strings end in SQL text. `scan` and
//! `parse/literal` use it.
//!
//! Invariants
//! 1. A returned position is at most the length of the text.
//!
//! This module does not know what a word or string means.

/// The characters that PostgreSQL ignores around a value.
pub(crate) const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];

/// Returns whether the byte may be in a word.
pub(crate) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

/// Returns the end of the block comment that begins at `at`. Comments can be nested.
pub(crate) fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut nesting = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (nesting, at) = (nesting + 1, at + 2),
            (b'*', Some(b'/')) => (nesting, at) = (nesting - 1, at + 2),
            _ => at += 1,
        }
        if nesting == 0 {
            break;
        }
    }
    at
}

/// Returns the end of the lexeme that begins with the `$` at `at`, and whether it is a quoted string.
/// Otherwise it is a parameter or a word.
pub(crate) fn dollar_end(bytes: &[u8], at: usize) -> (usize, bool) {
    let rest = &bytes[at + 1..];
    let tag = rest.iter().take_while(|b| is_word(**b)).count();
    if rest.first().is_some_and(u8::is_ascii_digit) || rest.get(tag) != Some(&b'$') {
        return (at + 1 + tag, false);
    }
    let quote = &bytes[at..at + tag + 2];
    let body = at + quote.len();
    let found = memchr::memmem::find(&bytes[body..], quote);
    (found.map_or(bytes.len(), |n| body + n + quote.len()), true)
}

/// Returns the position of the quote that continues a string literal which ended before `at`. Between them
/// are only blanks and line comments, with at least one line end.
pub(crate) fn continuation(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    let mut has_line_end = false;
    loop {
        match *bytes.get(at)? {
            b' ' | b'\t' | b'\x0b' | b'\x0c' => at += 1,
            b'\n' | b'\r' => {
                has_line_end = true;
                at += 1;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => at += memchr::memchr(b'\n', &bytes[at..])?,
            b'\'' => return has_line_end.then_some(at),
            _ => return None,
        }
    }
}
