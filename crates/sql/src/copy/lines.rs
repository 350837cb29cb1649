//! Splits COPY data in text or CSV format into lines, and lines into fields.
//!
//! Invariants
//! 1. The input comes in pieces. A piece may end anywhere: inside a line, a quote or a character. Only whole
//!    lines are taken from it.
//! 2. A line `\.` ends the data, and all bytes after it are ignored.
//! 3. All lines must end as the first line does: with a line feed, a carriage return, or both.
//!
//! This module does not know columns or their types.

use memchr::{memchr2, memchr3};

use super::{Format, Kind};
use crate::error::{Result, SqlError, SqlState};

/// The fields of one row, without escapes.
#[derive(Debug, Default)]
pub struct Record {
    bytes: Vec<u8>,
    /// For each field, the offset of its end in `bytes`, and whether it is NULL.
    ends: Vec<(usize, bool)>,
}

impl Record {
    /// Removes the fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the n-th field, and whether it is NULL. The bytes of a NULL are the NULL string.
    pub fn field(&self, n: usize) -> Option<(&[u8], bool)> {
        let start = if n == 0 { 0 } else { self.ends.get(n - 1)?.0 };
        let (end, null) = *self.ends.get(n)?;
        Some((self.bytes.get(start..end)?, null))
    }

    /// Adds a field.
    pub fn push(&mut self, field: Option<&[u8]>) {
        self.bytes.extend_from_slice(field.unwrap_or_default());
        self.ends.push((self.bytes.len(), field.is_none()));
    }
}

/// The end of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Feed,
    Return,
    Both,
}

/// A line: the offset where its content ends, and the offset where the next line begins.
pub type Line = (usize, usize);

/// The position in the data.
#[derive(Debug, Default)]
pub struct Lines {
    /// The number of pending bytes that were searched for the end of a line.
    searched: usize,
    /// Whether `searched` is inside a CSV quote.
    quoted: bool,
    /// Whether `searched` is just after a CSV escape.
    escaped: bool,
    line_end: Option<LineEnd>,
    /// Whether `\.` was read.
    ended: bool,
    /// The number of the line that was read last.
    pub number: u64,
}

impl Lines {
    /// Returns the line that starts at `start`, if it is complete. `at_end` says that no more bytes will
    /// come.
    pub fn next(
        &mut self,
        bytes: &[u8],
        start: usize,
        at_end: bool,
        format: &Format,
    ) -> Result<Option<Line>> {
        if self.ended {
            return Ok(None);
        }
        // This is computed before the end of the first line is found, as in PostgreSQL. Until then PostgreSQL
        // does not know which character ends a line within a quote.
        let within = if self.line_end == Some(LineEnd::Feed) { b'\n' } else { b'\r' };
        let found = self.find(bytes, start, at_end, format).inspect_err(|_| self.number += 1)?;
        let rest = (at_end && start < bytes.len() && !self.ended).then_some((bytes.len(), bytes.len()));
        let Some(line) = found.or(rest) else { return Ok(None) };
        self.number += 1;
        if format.is_csv() {
            // A quoted field can have several lines. The number of the last one counts.
            self.number += memchr::memchr_iter(within, &bytes[start..line.0]).count() as u64;
        }
        self.searched = line.1;
        Ok(Some(line))
    }

    /// Adjusts the position after the bytes before `start` were removed.
    pub fn forget(&mut self, start: usize) {
        self.searched = self.searched.max(start) - start;
    }

    /// Returns whether `\.` was read.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    fn find(&mut self, bytes: &[u8], start: usize, at_end: bool, format: &Format) -> Result<Option<Line>> {
        match format.is_csv() {
            true => self.find_csv(bytes, start, at_end, format),
            false => self.find_text(bytes, start, at_end),
        }
    }

    fn find_text(&mut self, bytes: &[u8], start: usize, at_end: bool) -> Result<Option<Line>> {
        let mut at = self.searched.max(start);
        while let Some(found) = memchr3(b'\\', b'\n', b'\r', &bytes[at..]) {
            at += found;
            self.searched = at;
            match (bytes[at], bytes.get(at + 1)) {
                (b'\\', None) => return Ok(None),
                (b'\\', Some(b'.')) => return self.marker(bytes, start, at, at_end),
                (b'\\', Some(_)) => at += 2,
                _ => return self.line_end(bytes, at, at_end, false),
            }
        }
        self.searched = at.max(bytes.len());
        Ok(None)
    }

    /// Handles `\.` at `at`, which ends the data and the line before it. The line of `\.` must end like the
    /// other lines.
    fn marker(&mut self, bytes: &[u8], start: usize, at: usize, at_end: bool) -> Result<Option<Line>> {
        let other = || bad("end-of-copy marker does not match previous newline style");
        match (self.line_end, bytes.get(at + 2..).unwrap_or_default()) {
            (_, []) | (Some(LineEnd::Both), [b'\r']) if !at_end => return Ok(None),
            (Some(LineEnd::Both), [b'\n', ..] | [b'\r', b'\r', ..])
            | (Some(LineEnd::Feed), [b'\r', ..])
            | (Some(LineEnd::Return), [b'\n', ..]) => return Err(other()),
            (Some(LineEnd::Both), [b'\r', rest @ ..]) if !matches!(rest, [] | [b'\n', ..]) => {
                return Err(bad("end-of-copy marker corrupt"));
            }
            (_, [] | [b'\n' | b'\r', ..]) => {}
            _ => return Err(bad("end-of-copy marker corrupt")),
        }
        self.ended = true;
        Ok((at > start).then_some((at, bytes.len())))
    }

    fn find_csv(
        &mut self,
        bytes: &[u8],
        start: usize,
        at_end: bool,
        format: &Format,
    ) -> Result<Option<Line>> {
        let mut at = self.searched.max(start);
        if at == start && !self.quoted && bytes.get(start) == Some(&b'\\') {
            match (bytes.get(start + 1), bytes.get(start + 2)) {
                (Some(b'.'), Some(b'\n' | b'\r')) => return self.marker(bytes, start, start, at_end),
                (Some(b'.'), None) if at_end => return self.marker(bytes, start, start, at_end),
                (None | Some(b'.'), None) if !at_end => return Ok(None),
                _ => {}
            }
        }
        while at < bytes.len() {
            if self.quoted {
                at = self.skip_quoted(bytes, at, format);
                continue;
            }
            let Some(found) = memchr3(format.quote, b'\n', b'\r', &bytes[at..]) else { break };
            at += found;
            self.searched = at;
            if bytes[at] != format.quote {
                return self.line_end(bytes, at, at_end, true);
            }
            self.quoted = true;
            at += 1;
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// Moves past the next quote or escape character within a quote.
    fn skip_quoted(&mut self, bytes: &[u8], at: usize, format: &Format) -> usize {
        let Some(found) = memchr2(format.quote, format.escape, &bytes[at..]) else {
            self.escaped = false;
            self.searched = bytes.len();
            return bytes.len();
        };
        self.escaped &= found == 0;
        let b = bytes[at + found];
        // If the quote character is also the escape character, `escaped` is not needed: two quotes end the
        // quoted text and begin it again.
        let escapes = b == format.escape && b != format.quote && !self.escaped;
        self.quoted ^= b == format.quote && !self.escaped;
        self.escaped = escapes;
        self.searched = at + found + 1;
        self.searched
    }

    /// Handles a line feed or carriage return at `at`, where a line may end.
    fn line_end(&mut self, bytes: &[u8], at: usize, at_end: bool, csv: bool) -> Result<Option<Line>> {
        let (end, length) = match (bytes[at], bytes.get(at + 1)) {
            (b'\n', _) => (LineEnd::Feed, 1),
            (_, Some(b'\n')) => (LineEnd::Both, 2),
            (_, None) if !at_end && self.line_end != Some(LineEnd::Return) => return Ok(None),
            _ => (LineEnd::Return, 1),
        };
        match *self.line_end.get_or_insert(end) {
            LineEnd::Return if end == LineEnd::Both => Ok(Some((at, at + 1))),
            known if known == end => Ok(Some((at, at + length))),
            _ => Err(stray(bytes[at], csv)),
        }
    }
}

fn bad(message: &str) -> SqlError {
    SqlError::new(SqlState::BAD_COPY, message)
}

/// Returns the error 22P04: this line ends in another way than the other lines.
fn stray(byte: u8, csv: bool) -> SqlError {
    let (name, letter) = if byte == b'\n' { ("newline", 'n') } else { ("carriage return", 'r') };
    match csv {
        true => bad(&format!("unquoted {name} found in data"))
            .with_hint(format!("Use quoted CSV field to represent {name}.")),
        false => bad(&format!("literal {name} found in data"))
            .with_hint(format!("Use \"\\{letter}\" to represent {name}.")),
    }
}

/// Splits a line into fields. `not_null` and `null` are the columns of FORCE_NOT_NULL and FORCE_NULL.
pub fn split(
    line: &[u8],
    format: &Format,
    not_null: &[bool],
    null: &[bool],
    record: &mut Record,
) -> Result<()> {
    record.clear();
    match format.kind {
        Kind::Csv => split_csv(line, format, not_null, null, record),
        _ => split_text(line, format, record),
    }
}

fn split_text(line: &[u8], format: &Format, record: &mut Record) -> Result<()> {
    let mut start = 0;
    loop {
        let end = text_field_end(line, start, format.delimiter);
        let field = &line[start..end];
        let null = field == format.null.as_bytes();
        if null {
            record.bytes.extend_from_slice(field);
        } else {
            unescape(field, &mut record.bytes);
        }
        record.ends.push((record.bytes.len(), null));
        if end >= line.len() {
            return Ok(());
        }
        start = end + 1;
    }
}

fn split_csv(
    line: &[u8],
    format: &Format,
    not_null: &[bool],
    null: &[bool],
    record: &mut Record,
) -> Result<()> {
    let mut at = 0;
    loop {
        let start = record.bytes.len();
        let mut was_quoted = false;
        while at < line.len() && line[at] != format.delimiter {
            if line[at] == format.quote {
                was_quoted = true;
                at = quoted(line, at + 1, format, &mut record.bytes)?;
            } else {
                record.bytes.push(line[at]);
                at += 1;
            }
        }
        let n = record.ends.len();
        let forced = |columns: &[bool]| columns.get(n).copied().unwrap_or(false);
        let is_word = &record.bytes[start..] == format.null.as_bytes();
        let is_null = is_word && if was_quoted { forced(null) } else { !forced(not_null) };
        record.ends.push((record.bytes.len(), is_null));
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

/// Reads the text inside a quote. Returns the position after the closing quote.
fn quoted(line: &[u8], mut at: usize, format: &Format, out: &mut Vec<u8>) -> Result<usize> {
    while at < line.len() {
        let next = line.get(at + 1).copied();
        if line[at] == format.escape && next.is_some_and(|n| n == format.quote || n == format.escape) {
            out.extend(next);
            at += 2;
        } else if line[at] == format.quote {
            return Ok(at + 1);
        } else {
            out.push(line[at]);
            at += 1;
        }
    }
    Err(bad("unterminated CSV quoted field"))
}

fn text_field_end(line: &[u8], start: usize, delimiter: u8) -> usize {
    let mut at = start;
    while let Some(found) = memchr2(b'\\', delimiter, line.get(at..).unwrap_or_default()) {
        at += found;
        if line[at] == delimiter {
            return at;
        }
        at += 2;
    }
    line.len()
}

/// Replaces the backslash escapes of the text format.
fn unescape(field: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr(b'\\', field).is_none() {
        return out.extend_from_slice(field);
    }
    let mut at = 0;
    while at < field.len() {
        if field[at] != b'\\' {
            out.push(field[at]);
            at += 1;
            continue;
        }
        // A backslash at the end of the field is dropped, as in PostgreSQL.
        if at + 1 >= field.len() {
            return;
        }
        let (byte, taken) = escape(&field[at + 1..]);
        out.push(byte);
        at += 1 + taken;
    }
}

/// Returns the byte that an escape means, and the number of bytes of the escape after its backslash.
fn escape(rest: &[u8]) -> (u8, usize) {
    let digits = |from: usize, most: usize, radix: u32| {
        let found = rest[from..].iter().take(most).take_while(|b| char::from(**b).is_digit(radix)).count();
        let text = std::str::from_utf8(&rest[from..from + found]).unwrap_or("");
        (u32::from_str_radix(text, radix).unwrap_or(0) as u8, found)
    };
    match rest[0] {
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'v' => (11, 1),
        b'0'..=b'7' => digits(0, 3, 8),
        b'x' if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            let (byte, taken) = digits(1, 2, 16);
            (byte, taken + 1)
        }
        other => (other, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, kind: Kind) -> Vec<Option<String>> {
        let mut record = Record::default();
        split(line.as_bytes(), &Format::plain(kind), &[], &[], &mut record).unwrap();
        let text = |(bytes, null): (&[u8], bool)| (!null).then(|| String::from_utf8(bytes.to_vec()).unwrap());
        (0..record.len()).filter_map(|n| record.field(n).map(text)).collect()
    }

    /// Reads the lines of data that comes in pieces of this size in bytes.
    fn lines(data: &str, kind: Kind, piece: usize) -> Result<Vec<String>> {
        let format = Format::plain(kind);
        let (mut lines, mut at_hand, mut out) = (Lines::default(), Vec::new(), Vec::new());
        let mut pieces: Vec<&[u8]> = data.as_bytes().chunks(piece).collect();
        pieces.push(b"");
        for (n, bytes) in pieces.iter().enumerate() {
            at_hand.extend_from_slice(bytes);
            let mut start = 0;
            while let Some((end, next)) = lines.next(&at_hand, start, n + 1 == pieces.len(), &format)? {
                out.push(String::from_utf8_lossy(&at_hand[start..end]).into_owned());
                start = next;
            }
            lines.forget(start);
            at_hand.drain(..start);
        }
        Ok(out)
    }

    #[test]
    fn lines_split_as_in_postgresql() {
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(fields("1\t\\N\ta\\tb\\\\\t", Kind::Text), [some("1"), None, some("a\tb\\"), some("")]);
        assert_eq!(fields("\\x41\\101", Kind::Text), [some("AA")]);
        // In an earlier version, a backslash at the end of the data stayed in the field.
        assert_eq!(fields("1\ta\t\\", Kind::Text), [some("1"), some("a"), some("")]);
        assert_eq!(fields("1,,\"\",\"a\"\"b,c\"", Kind::Csv), [some("1"), None, some(""), some("a\"b,c")]);
    }

    #[test]
    fn lines_end_as_in_postgresql_wherever_pieces_end() {
        for piece in 1..9 {
            for (data, kind, expected) in [
                ("a\nb\n", Kind::Text, &["a", "b"][..]),
                ("a\r\nb\r\n", Kind::Text, &["a", "b"]),
                ("a\rb\r", Kind::Text, &["a", "b"]),
                ("a\rb", Kind::Csv, &["a", "b"]),
                ("a\\\nb\nc", Kind::Text, &["a\\\nb", "c"]),
                ("a\\\\\nb\n", Kind::Text, &["a\\\\", "b"]),
                ("a\n\\.\nb\n", Kind::Text, &["a"]),
                ("a\nb\\.\nb\n", Kind::Text, &["a", "b"]),
                ("a\n\\.", Kind::Csv, &["a"]),
                ("a\n\\.\nb", Kind::Csv, &["a"]),
                ("\\.a\n\\\n", Kind::Csv, &["\\.a", "\\"]),
                ("\"a\nb\"\n\"c\"\"\n\"\n", Kind::Csv, &["\"a\nb\"", "\"c\"\"\n\""]),
                ("\"\n\\.\n\"\n", Kind::Csv, &["\"\n\\.\n\""]),
            ] {
                let found = lines(data, kind, piece).unwrap();
                assert_eq!(found, expected, "{data:?} in pieces of {piece}");
            }
            for (data, kind, message) in [
                ("a\nb\r\n", Kind::Text, "literal carriage return found in data"),
                ("a\r\nb\n", Kind::Text, "literal newline found in data"),
                ("a\r\nb\n", Kind::Csv, "unquoted newline found in data"),
                ("a\nb\r\n", Kind::Csv, "unquoted carriage return found in data"),
                ("a\\.b\n", Kind::Text, "end-of-copy marker corrupt"),
                // The line of `\.` ends in another way than the other lines.
                ("a\r\n\\.\n", Kind::Text, "end-of-copy marker does not match previous newline style"),
                ("a\n\\.\r\n", Kind::Text, "end-of-copy marker does not match previous newline style"),
                ("a\r\\.\n", Kind::Text, "end-of-copy marker does not match previous newline style"),
                ("a\r\n\\.\rb", Kind::Text, "end-of-copy marker corrupt"),
            ] {
                let found = lines(data, kind, piece).unwrap_err();
                assert_eq!(&*found.message, message, "{data:?} in pieces of {piece}");
            }
        }
    }
}
