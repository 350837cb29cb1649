//! String literals that the tokenizer does not read as PostgreSQL does: those that go on in the next line, and escape strings
//! (`E'...'`), whose bytes and surrogate pairs it does not know.
//!
//! The tokenizer is given a text in which each of them is one literal of as many characters and lines; afterwards the token gets
//! its value. So all positions stay.
//!
//! Invariants
//! 1. A literal is continued only by a quote that follows blanks with a line's end in them (line comments count as blanks).
//! 2. What continues an escape string is read with its escapes, and bytes may be split between the two.
//!
//! Does not know: dollar quotes' contents, `U&` strings, the grammar.

use std::borrow::Cow;
use std::collections::HashMap;

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, SqlState};
use crate::lexeme::{block_comment_end, continuation, dollar_end, is_word};

/// A text for the tokenizer, and values by line and column of the literals that were replaced in it.
pub(super) struct Masked<'a> {
    pub(super) text: Cow<'a, str>,
    values: HashMap<(u64, u64), String>,
}

/// Replaces the literals that need it; most texts have none.
pub(super) fn mask(sql: &str) -> Result<Masked<'_>> {
    let mut values = HashMap::new();
    let mut text = String::new();
    let mut copied = 0;
    let mut place = Place { at: 0, line: 1, column: 1 };
    let mut walk = Walk { sql, bytes: sql.as_bytes(), at: 0 };
    while let Some(literal) = walk.next_literal() {
        if !literal.is_escape && literal.parts.len() == 1 {
            continue;
        }
        place.move_to(sql, literal.start);
        values.insert((place.line, place.column), literal.value(sql)?);
        let inside = literal.parts[0].0..walk.at - 1;
        text.push_str(&sql[copied..inside.start]);
        text.extend(sql[inside.clone()].chars().map(|c| if matches!(c, '\n' | '\r') { c } else { 'x' }));
        copied = inside.end;
    }
    if values.is_empty() {
        return Ok(Masked { text: Cow::Borrowed(sql), values });
    }
    text.push_str(&sql[copied..]);
    Ok(Masked { text: Cow::Owned(text), values })
}

/// Line and column as the tokenizer counts them.
struct Place {
    at: usize,
    line: u64,
    column: u64,
}

impl Place {
    fn move_to(&mut self, sql: &str, at: usize) {
        for c in sql[self.at..at].chars() {
            (self.line, self.column) =
                if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.at = at;
    }
}

impl Masked<'_> {
    /// Gives the tokens their values.
    pub(super) fn unmask(mut self, tokens: &mut [TokenWithSpan]) {
        if self.values.is_empty() {
            return;
        }
        for t in tokens {
            let text = match &mut t.token {
                Token::SingleQuotedString(text)
                | Token::EscapedStringLiteral(text)
                | Token::NationalStringLiteral(text)
                | Token::SingleQuotedByteStringLiteral(text)
                | Token::HexStringLiteral(text) => text,
                _ => continue,
            };
            let at = (t.span.start.line, t.span.start.column);
            if let Some(value) = self.values.remove(&at) {
                *text = value;
            }
        }
    }
}

struct Literal {
    /// Where it begins, with its prefix.
    start: usize,
    is_escape: bool,
    /// What is between the quotes of each part.
    parts: Vec<(usize, usize)>,
}

impl Literal {
    fn value(&self, sql: &str) -> Result<String> {
        if !self.is_escape {
            return Ok(self.parts.iter().map(|(from, to)| sql[*from..*to].replace("''", "'")).collect());
        }
        let mut bytes = Vec::new();
        for (from, to) in &self.parts {
            Unescape { sql, at: *from, end: *to, out: &mut bytes, high: None }.run()?;
        }
        text_of(bytes).map_err(|e| e.at(Some(position(sql, self.start))))
    }
}

fn position(sql: &str, at: usize) -> u32 {
    sql[..at].chars().count() as u32 + 1
}

/// Text, or 22021 with the first bytes that are none.
fn text_of(bytes: Vec<u8>) -> Result<String> {
    let refused = |bad: &[u8]| {
        let shown: Vec<String> = bad.iter().map(|b| format!("0x{b:02x}")).collect();
        let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    };
    match String::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err(refused(&[0])),
        Ok(text) => Ok(text),
        Err(e) => {
            let bad = &e.as_bytes()[e.utf8_error().valid_up_to()..];
            Err(refused(&bad[..e.utf8_error().error_len().unwrap_or(bad.len())]))
        }
    }
}

/// A walk over the literals of a text; everything else that has quotes is passed by.
struct Walk<'a> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next_literal(&mut self) -> Option<Literal> {
        let mut word_start = None;
        while self.at < self.bytes.len() {
            let b = self.bytes[self.at];
            let word = word_start.take();
            match b {
                b'\'' => {
                    if let Some(literal) = self.literal(word) {
                        return Some(literal);
                    }
                }
                b'"' => drop(self.quoted(b'"', false)),
                b'-' if self.peek(1) == b'-' => self.at += self.line_len(),
                b'/' if self.peek(1) == b'*' => self.at = block_comment_end(self.bytes, self.at),
                b'$' if word.is_none() => self.at = dollar_end(self.bytes, self.at).0,
                b if is_word(b) => {
                    word_start = Some(word.unwrap_or(self.at));
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        None
    }

    /// The literal whose first quote is here; `None` if it does not end.
    fn literal(&mut self, word: Option<usize>) -> Option<Literal> {
        let prefix = word.map_or("", |start| &self.sql[start..self.at]);
        let has_prefix = matches!(prefix, "e" | "E" | "n" | "N" | "b" | "B" | "x" | "X");
        let is_escape = prefix.eq_ignore_ascii_case("e");
        let start = self.at - if has_prefix { prefix.len() } else { 0 };
        let mut parts = vec![self.quoted(b'\'', is_escape)?];
        // The tokenizer takes `U&` strings apart by itself.
        let is_unicode = self.sql[..start].ends_with('&');
        while let Some(next) = continuation(self.bytes, self.at).filter(|_| !is_unicode) {
            self.at = next;
            parts.push(self.quoted(b'\'', is_escape)?);
        }
        Some(Literal { start, is_escape, parts })
    }

    /// Moves past a quoted thing; what is between its quotes.
    fn quoted(&mut self, quote: u8, backslash: bool) -> Option<(usize, usize)> {
        let from = self.at + 1;
        self.at = from;
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b if b == quote && self.peek(1) == quote => self.at += 2,
                b if b == quote => {
                    self.at += 1;
                    return Some((from, self.at - 1));
                }
                b'\\' if backslash => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at = self.bytes.len();
        None
    }

    fn line_len(&self) -> usize {
        let rest = &self.bytes[self.at..];
        memchr::memchr(b'\n', rest).unwrap_or(rest.len())
    }
}

/// Reads the inside of one part of an escape string.
struct Unescape<'a, 'o> {
    sql: &'a str,
    at: usize,
    end: usize,
    out: &'o mut Vec<u8>,
    /// First half of a surrogate pair.
    high: Option<u32>,
}

impl Unescape<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let bytes = self.sql.as_bytes();
        while self.at < self.end {
            let start = self.at;
            let b = bytes[start];
            self.at += 1;
            let escaped = (b == b'\\').then(|| bytes[self.at.min(self.end - 1)]);
            if self.high.is_some() && escaped.is_none_or(|e| !e.eq_ignore_ascii_case(&b'u')) {
                return Err(self.refused("invalid Unicode surrogate pair", start, 1));
            }
            match escaped {
                Some(e) => self.escape(start, e)?,
                None => {
                    self.out.push(b);
                    // A doubled quote is one.
                    self.at += usize::from(b == b'\'');
                }
            }
        }
        match self.high {
            Some(_) => Err(self.refused("invalid Unicode surrogate pair", self.end, 1)),
            None => Ok(()),
        }
    }

    fn escape(&mut self, start: usize, escaped: u8) -> Result<()> {
        self.at += 1;
        match escaped {
            b'b' => self.out.push(8),
            b'f' => self.out.push(12),
            b'n' => self.out.push(b'\n'),
            b'r' => self.out.push(b'\r'),
            b't' => self.out.push(b'\t'),
            b'0'..=b'7' => {
                self.at -= 1;
                let value = self.digits(8, 3);
                self.out.push(value as u8);
            }
            b'x' if self.digit(16).is_some() => {
                let value = self.digits(16, 2);
                self.out.push(value as u8);
            }
            b'u' => return self.unicode(start, 4),
            b'U' => return self.unicode(start, 8),
            _ => self.out.push(escaped),
        }
        Ok(())
    }

    fn digit(&self, radix: u32) -> Option<u32> {
        let byte = self.sql.as_bytes().get(self.at).filter(|_| self.at < self.end)?;
        char::from(*byte).to_digit(radix)
    }

    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.digit(radix) else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        value
    }

    fn unicode(&mut self, start: usize, len: usize) -> Result<()> {
        let first = self.at;
        let value = self.digits(16, len);
        if self.at - first < len {
            let e = SqlError::new(SqlState::INVALID_ESCAPE, "invalid Unicode escape");
            let e = e.with_hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.");
            return Err(e.at(Some(position(self.sql, start))));
        }
        let value = match (self.high.take(), value) {
            (None, 0xd800..=0xdbff) => {
                self.high = Some(value);
                return Ok(());
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high & 0x3ff) << 10) + (value & 0x3ff),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => {
                return Err(self.refused("invalid Unicode surrogate pair", start, self.at - start));
            }
            (None, value) => value,
        };
        match char::from_u32(value).filter(|c| *c != '\0') {
            Some(c) => self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None => return Err(self.refused("invalid Unicode escape value", start, self.at - start)),
        }
        Ok(())
    }

    /// 42601 at a place within the literal, or at the quote behind it.
    fn refused(&self, what: &str, at: usize, len: usize) -> SqlError {
        let shown: String = self.sql[at..].chars().take(len).collect();
        let message = format!("{what} at or near \"{shown}\"");
        SqlError::new(SqlState::SYNTAX_ERROR, message).at(Some(position(self.sql, at)))
    }
}
