//! The first step of reading a date, time or interval: it splits the text into fields. Only the kinds of the
//! characters decide.
//!
//! Invariants
//! 1. Letters of fields are in lower case.
//! 2. The kind of a field does not depend on later text.
//!
//! This module does not know which fields belong together. The behaviour is that of `ParseDateTime` in
//! PostgreSQL.

use super::words;

/// The largest number of fields in a text.
const FIELDS_MAX: usize = 25;
/// The largest number of characters in a text.
const TEXT_MAX: usize = 128;

/// The form of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Digits, perhaps with one point.
    Number,
    /// Parts with `-`, `/` or `.` between them: a date, or the name of a zone.
    Date,
    /// Digits with colons.
    Time,
    /// A sign and digits: an offset from UTC, or a signed number.
    Signed,
    /// Letters.
    Word,
    /// A sign and letters, as in `-infinity`.
    SignedWord,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    pub kind: Kind,
    pub text: String,
}

struct Tokens<'t> {
    rest: &'t [u8],
}

/// Splits a text into fields. Returns `None` if a character belongs to no field.
pub(super) fn fields(text: &str) -> Option<Vec<Field>> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let mut tokens = Tokens { rest: text.as_bytes() };
    let mut out = Vec::new();
    loop {
        tokens.skip_blanks();
        let Some(&first) = tokens.rest.first() else { return Some(out) };
        let mut field = String::new();
        let kind = match first {
            b'0'..=b'9' => tokens.number(&mut field),
            b'.' => {
                tokens.take(&mut field, 1);
                tokens.take_while(&mut field, |b| b.is_ascii_digit());
                Kind::Number
            }
            b'a'..=b'z' | b'A'..=b'Z' => tokens.word(&mut field),
            b'+' | b'-' => tokens.signed(&mut field)?,
            // Other signs, such as a comma, only separate fields.
            _ if first.is_ascii_punctuation() => {
                tokens.rest = &tokens.rest[1..];
                continue;
            }
            _ => return None,
        };
        if out.len() == FIELDS_MAX {
            return None;
        }
        out.push(Field { kind, text: field });
    }
}

fn is_blank(byte: u8) -> bool {
    crate::lexeme::BLANKS.contains(&char::from(byte))
}

impl Tokens<'_> {
    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) {
        let blanks = self.rest.iter().take_while(|b| is_blank(**b)).count();
        self.rest = &self.rest[blanks..];
    }

    fn take(&mut self, field: &mut String, count: usize) {
        let (taken, rest) = self.rest.split_at(count);
        field.extend(taken.iter().map(|b| char::from(b.to_ascii_lowercase())));
        self.rest = rest;
    }

    fn take_while(&mut self, field: &mut String, belongs: impl Fn(u8) -> bool) {
        let count = self.rest.iter().take_while(|b| belongs(**b)).count();
        self.take(field, count);
    }

    fn number(&mut self, field: &mut String) -> Kind {
        self.take_while(field, |b| b.is_ascii_digit());
        let sign = self.peek();
        if sign == b':' {
            self.take_while(field, |b| b.is_ascii_digit() || b == b':' || b == b'.');
            return Kind::Time;
        }
        if !matches!(sign, b'-' | b'/' | b'.') {
            return Kind::Number;
        }
        self.take(field, 1);
        if !self.peek().is_ascii_digit() {
            self.take_while(field, |b| b.is_ascii_alphanumeric() || b == sign);
            return Kind::Date;
        }
        self.take_while(field, |b| b.is_ascii_digit());
        if self.peek() == sign {
            self.take_while(field, |b| b.is_ascii_digit() || b == sign);
            return Kind::Date;
        }
        if sign == b'.' { Kind::Number } else { Kind::Date }
    }

    fn word(&mut self, field: &mut String) -> Kind {
        self.take_while(field, |b| b.is_ascii_alphabetic());
        let next = self.peek();
        // After a known word, a digit begins another field. An unknown word is the name of a time zone, which
        // may have digits.
        let goes_on = match next {
            b'-' | b'/' | b'.' => true,
            b'+' | b'0'..=b'9' => words::of(field).is_none(),
            _ => false,
        };
        if !goes_on {
            return Kind::Word;
        }
        self.take_while(field, |b| {
            b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
        });
        Kind::Date
    }

    fn signed(&mut self, field: &mut String) -> Option<Kind> {
        self.take(field, 1);
        self.skip_blanks();
        match self.peek() {
            b'0'..=b'9' => {
                self.take_while(field, |b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
                Some(Kind::Signed)
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(field, |b| b.is_ascii_alphabetic());
                Some(Kind::SignedWord)
            }
            _ => None,
        }
    }
}
