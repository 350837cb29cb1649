//! COPY FROM STDIN: text and CSV, fed in pieces of any size.
//!
//! Invariants
//! 1. A piece may end anywhere, also inside a line, a quote or a character; only whole lines are taken.
//! 2. `\.` alone on a line ends the data; what follows is ignored.
//!
//! Does not know: the protocol; the sink brings the bytes.

use std::sync::Arc;

use varve_engine::{ColumnType, Datum, Table, TableDef, Value};

use super::sequence::InTransaction;
use super::{Exec, Row, Scratch, violated};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Expr, Input};
use crate::plan::Rules;
use crate::sink::{CommandTag, CopyIn, Sink};
use crate::text;
use crate::utility::CopyFrom;

/// Longest line, with what came in one piece: a row holds 16 MiB, which escapes may quadruple.
const LINE_BYTES_MAX: usize = 160 << 20;

/// Characters of a value that an error shows (PostgreSQL's MAX_COPY_DATA_DISPLAY).
const CONTEXT_CHARS_MAX: usize = 100;

/// A COPY that has been bound.
pub struct CopyPlan {
    /// The table.
    pub table: Arc<TableDef>,
    /// Ordinals of the columns in the data.
    pub targets: Vec<usize>,
    /// Defaults of the others.
    pub defaults: Vec<(usize, Expr)>,
    /// What each new row must fulfil.
    pub rules: Rules,
    /// Format.
    pub format: CopyFrom,
}

/// Bytes not yet taken, and where we are.
struct Feed {
    pending: Vec<u8>,
    /// Up to here `pending` was searched for a line's end.
    searched: usize,
    /// Within a CSV quote at `searched`.
    quoted: bool,
    /// Behind a CSV escape at `searched`.
    escaped: bool,
    ended: bool,
    header: bool,
    line: u64,
    /// The target whose field is being read.
    at: Option<usize>,
    rows: u64,
    /// Unescaped fields of one line, and where they end; `None` is NULL.
    fields: Vec<u8>,
    ends: Vec<(usize, bool)>,
}

impl Exec<'_> {
    /// Runs the copy; the sink drives.
    pub fn copy(&mut self, plan: &CopyPlan, table: &Table, sink: &mut dyn Sink) -> Result<CommandTag> {
        let mut feed = Feed {
            pending: Vec::new(),
            searched: 0,
            quoted: false,
            escaped: false,
            ended: false,
            header: plan.format.header,
            line: 0,
            at: None,
            rows: 0,
            fields: Vec::new(),
            ends: Vec::new(),
        };
        let shape = CopyIn { column_count: plan.targets.len() };
        sink.copy_in(shape, &mut |bytes| {
            self.facts.check_cancel()?;
            if feed.pending.len() + bytes.len() > LINE_BYTES_MAX {
                let message = format!("a line of COPY data is longer than {LINE_BYTES_MAX} bytes");
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT, message));
            }
            feed.pending.extend_from_slice(bytes);
            self.take_lines(plan, table, &mut feed)
        })?;
        if !feed.ended && !feed.pending.is_empty() {
            if feed.quoted {
                return Err(SqlError::new(SqlState::BAD_COPY, "unterminated CSV quoted field"));
            }
            feed.pending.push(b'\n');
            feed.searched = feed.pending.len() - 1;
            self.take_lines(plan, table, &mut feed)?;
        }
        self.settle()?;
        Ok(CommandTag::Copy(feed.rows))
    }

    fn take_lines(&mut self, plan: &CopyPlan, table: &Table, feed: &mut Feed) -> Result<()> {
        let pending = std::mem::take(&mut feed.pending);
        let mut start = 0;
        while let Some(end) = feed.line_end(&pending, start, &plan.format) {
            let line = pending[start..end].strip_suffix(b"\r").unwrap_or(&pending[start..end]);
            start = end + 1;
            feed.searched = start;
            // A quoted field may hold ends of lines; the number is that of the last.
            feed.line += 1 + memchr::memchr_iter(b'\n', line).count() as u64;
            if feed.ended || std::mem::take(&mut feed.header) {
                continue;
            }
            if line == b"\\." {
                feed.ended = true;
                continue;
            }
            feed.at = None;
            self.copy_line(plan, table, line, feed).map_err(|e| in_line(e, plan, feed, line))?;
            feed.rows += 1;
        }
        feed.searched = feed.searched.max(start) - start;
        feed.pending = pending;
        feed.pending.drain(..start);
        Ok(())
    }

    fn copy_line(&mut self, plan: &CopyPlan, table: &Table, line: &[u8], feed: &mut Feed) -> Result<()> {
        feed.split(line, &plan.format)?;
        check_field_count(plan, feed)?;
        let facts = self.facts;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts.who);
        let env = facts.env(&sequences);
        let Scratch { row_arena, .. } = &mut *self.scratch;
        let cx = Cx { params: &[], arena: row_arena, env: &env };
        let mut values: Row<'_> = plan.table.columns.iter().map(|_| Datum::Null).collect();
        for (column, e) in &plan.defaults {
            values[*column] = e.eval(&Input::None, &cx)?;
        }
        let mut start = 0;
        for (n, (column, (end, null))) in plan.targets.iter().zip(&feed.ends).enumerate() {
            if !null {
                feed.at = Some(n);
                values[*column] =
                    field_value(&feed.fields[start..*end], plan.table.columns[*column].column_type, &cx)?;
            }
            start = *end;
        }
        feed.at = None;
        plan.rules.hold(&plan.table, &values, &cx)?;
        let inserted = sequences.with(|txn| txn.insert(table, &values));
        inserted.map_err(|e| violated(e.into(), &plan.table))?;
        if plan.rules.refers {
            self.pending.wrote(&plan.table, &values, None);
        }
        drop(values);
        row_arena.reset();
        Ok(())
    }
}

/// A field as a value of its column's type; strings are not copied.
fn field_value<'a>(field: &'a [u8], t: ColumnType, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let text = std::str::from_utf8(field).ok().filter(|t| !t.contains('\0')).ok_or_else(|| {
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
    })?;
    Ok(match t {
        ColumnType::Text | ColumnType::Varchar(None) => Datum::Text(text),
        ColumnType::Char(n) => Datum::Text(text::fit_char(text, n as usize)?),
        ColumnType::Varchar(Some(n)) => Datum::Text(text::fit_varchar(text, n as usize)?),
        t => match text::parse_in_zone(text, &t, cx.env.zone)? {
            Value::Int4(n) => Datum::Int4(n),
            other => cx.keep_value(other),
        },
    })
}

fn check_field_count(plan: &CopyPlan, feed: &Feed) -> Result<()> {
    if feed.ends.len() > plan.targets.len() {
        return Err(SqlError::new(SqlState::BAD_COPY, "extra data after last expected column"));
    }
    match plan.targets.get(feed.ends.len()) {
        None => Ok(()),
        Some(missing) => {
            let message = format!("missing data for column \"{}\"", plan.table.columns[*missing].name);
            Err(SqlError::new(SqlState::BAD_COPY, message))
        }
    }
}

/// Adds the place in the data: the line and, where a value is at fault, the column and the value.
fn in_line(mut e: SqlError, plan: &CopyPlan, feed: &Feed, line: &[u8]) -> SqlError {
    let place = format!("COPY {}, line {}", plan.table.name, feed.line);
    let field = feed.at.and_then(|n| Some((plan.targets.get(n)?, feed.field(n)?)));
    let context = match (field, e.sqlstate) {
        (Some((column, value)), _) => {
            format!("{place}, column {}: \"{}\"", plan.table.columns[*column].name, excerpt(value))
        }
        (None, SqlState::BAD_COPY | SqlState::NOT_NULL_VIOLATION | SqlState::CHECK_VIOLATION) => {
            format!("{place}: \"{}\"", excerpt(line))
        }
        _ => place,
    };
    e.context = Some(context.into());
    e
}

fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(CONTEXT_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.into_owned(),
    }
}

impl Feed {
    /// Where the line that starts at `start` ends; remembers how far it has looked.
    fn line_end(&mut self, bytes: &[u8], start: usize, format: &CopyFrom) -> Option<usize> {
        let mut at = self.searched.max(start);
        if format.csv {
            while at < bytes.len() {
                let b = bytes[at];
                if b == b'\n' && !self.quoted {
                    return Some(at);
                }
                // A quote that is its own escape needs no memory: two of them leave and enter again.
                let escapes = self.quoted && b == format.escape && b != format.quote && !self.escaped;
                self.quoted ^= b == format.quote && !self.escaped;
                self.escaped = escapes;
                at += 1;
            }
            self.searched = at;
            return None;
        }
        while let Some(found) = memchr::memchr(b'\n', &bytes[at..]) {
            let end = at + found;
            let escapes = bytes[start..end].iter().rev().take_while(|b| **b == b'\\').count();
            if escapes % 2 == 0 {
                return Some(end);
            }
            at = end + 1;
        }
        self.searched = bytes.len();
        None
    }

    /// The n-th field of the line that was split last.
    fn field(&self, n: usize) -> Option<&[u8]> {
        let start = if n == 0 { 0 } else { self.ends.get(n - 1)?.0 };
        self.fields.get(start..self.ends.get(n)?.0)
    }

    /// Splits a line into unescaped fields.
    fn split(&mut self, line: &[u8], format: &CopyFrom) -> Result<()> {
        self.fields.clear();
        self.ends.clear();
        if format.csv { self.split_csv(line, format) } else { self.split_text(line, format) }
    }

    fn split_text(&mut self, line: &[u8], format: &CopyFrom) -> Result<()> {
        let mut start = 0;
        loop {
            let end = text_field_end(line, start, format.delimiter);
            let field = &line[start..end];
            let null = field == format.null.as_bytes();
            if !null {
                unescape(field, &mut self.fields);
            }
            self.ends.push((self.fields.len(), null));
            if end >= line.len() {
                return Ok(());
            }
            start = end + 1;
        }
    }

    fn split_csv(&mut self, line: &[u8], format: &CopyFrom) -> Result<()> {
        let mut at = 0;
        loop {
            let start = self.fields.len();
            let mut was_quoted = false;
            while at < line.len() && line[at] != format.delimiter {
                if line[at] == format.quote {
                    was_quoted = true;
                    at = self.csv_quoted(line, at + 1, format)?;
                } else {
                    self.fields.push(line[at]);
                    at += 1;
                }
            }
            let null = !was_quoted && &self.fields[start..] == format.null.as_bytes();
            if null {
                self.fields.truncate(start);
            }
            self.ends.push((self.fields.len(), null));
            if at >= line.len() {
                return Ok(());
            }
            at += 1;
        }
    }

    /// Takes the inside of a quote; the position behind its end.
    fn csv_quoted(&mut self, line: &[u8], mut at: usize, format: &CopyFrom) -> Result<usize> {
        while at < line.len() {
            let next = line.get(at + 1).copied();
            if line[at] == format.escape && next.is_some_and(|n| n == format.quote || n == format.escape) {
                self.fields.extend(next);
                at += 2;
            } else if line[at] == format.quote {
                return Ok(at + 1);
            } else {
                self.fields.push(line[at]);
                at += 1;
            }
        }
        Err(SqlError::new(SqlState::BAD_COPY, "unterminated CSV quoted field"))
    }
}

fn text_field_end(line: &[u8], start: usize, delimiter: u8) -> usize {
    let mut at = start;
    while at < line.len() {
        match line[at] {
            b'\\' => at += 2,
            b if b == delimiter => return at,
            _ => at += 1,
        }
    }
    line.len()
}

/// Undoes the backslash escapes of the text format.
fn unescape(field: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr(b'\\', field).is_none() {
        return out.extend_from_slice(field);
    }
    let mut at = 0;
    while at < field.len() {
        if field[at] != b'\\' || at + 1 >= field.len() {
            out.push(field[at]);
            at += 1;
            continue;
        }
        let (byte, taken) = escape(&field[at + 1..]);
        out.push(byte);
        at += 1 + taken;
    }
}

/// The byte that an escape stands for, and how many bytes it takes behind the backslash.
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

    fn format(csv: bool) -> CopyFrom {
        CopyFrom {
            table: sqlparser::ast::ObjectName(Vec::new()),
            columns: Vec::new(),
            csv,
            header: false,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".into() },
            quote: b'"',
            escape: b'"',
        }
    }

    fn fields(line: &str, csv: bool) -> Vec<Option<String>> {
        let mut feed = Feed {
            pending: Vec::new(),
            searched: 0,
            quoted: false,
            escaped: false,
            ended: false,
            header: false,
            line: 0,
            at: None,
            rows: 0,
            fields: Vec::new(),
            ends: Vec::new(),
        };
        feed.split(line.as_bytes(), &format(csv)).unwrap();
        let mut start = 0;
        let take = |(end, null): &(usize, bool)| {
            let text = String::from_utf8(feed.fields[start..*end].to_vec()).unwrap();
            start = *end;
            (!null).then_some(text)
        };
        feed.ends.iter().map(take).collect()
    }

    #[test]
    fn lines_split_as_in_postgresql() {
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(fields("1\t\\N\ta\\tb\\\\\t", false), [some("1"), None, some("a\tb\\"), some("")]);
        assert_eq!(fields("\\x41\\101", false), [some("AA")]);
        assert_eq!(fields("1,,\"\",\"a\"\"b,c\"", true), [some("1"), None, some(""), some("a\"b,c")]);
    }
}
