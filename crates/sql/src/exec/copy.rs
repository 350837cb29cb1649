//! Executes COPY FROM. The data is text, CSV or binary, and comes in pieces of any size.
//!
//! Invariants
//! 1. Memory holds at most one piece of the data and one row.
//! 2. An error names the line, and the column if a value is wrong, with PostgreSQL's message text.
//!
//! This module does not know the protocol (the sink passes the bytes on) or how data is split into fields
//! (`crate::copy`).

use std::sync::Arc;

use varve_engine::{ColumnType, Datum, Table, TableDef, Value, planted_panic};

use super::sequence::InTransaction;
use super::{Exec, Row, Scratch, violated};
use crate::binary::{self, encoded};
use crate::copy::binary::Rows;
use crate::copy::lines::{self, Lines, Record};
use crate::copy::{Format, Header, Kind};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Expr, Input};
use crate::plan::Rules;
use crate::sink::{CommandTag, CopyShape, Sink};
use crate::text;
use crate::ty::Typed;

/// The most bytes that may wait for the end of their line. A row has at most 16 MiB, and escapes can make it
/// four times as long. The rest is for the piece of data that came last.
const LINE_BYTES_MAX: usize = 160 << 20;

/// The number of characters of a value that an error shows (PostgreSQL's MAX_COPY_DATA_DISPLAY).
const CONTEXT_CHARS_MAX: usize = 100;

/// A COPY that has been bound.
pub struct CopyPlan {
    /// The table to fill.
    pub table: Arc<TableDef>,
    /// The ordinals of the columns that the data has, in the order of its fields.
    pub targets: Vec<usize>,
    /// The ordinals and defaults of the other columns.
    pub defaults: Vec<(usize, Expr)>,
    /// The rules that each new row must fulfil.
    pub rules: Rules,
    /// The WHERE condition: only rows that fulfil it are inserted.
    pub filter: Option<Expr>,
    /// The format of the data.
    pub format: Format,
    /// For each of `targets`: whether FORCE_NOT_NULL says that no field is NULL.
    pub not_null: Vec<bool>,
    /// For each of `targets`: whether FORCE_NULL says that the NULL string means NULL in quotes, too.
    pub null: Vec<bool>,
}

/// The data that is not processed yet, and the current position.
#[derive(Default)]
struct Feed {
    pending: Vec<u8>,
    lines: Lines,
    binary: Rows,
    record: Record,
    /// Whether the next line is the header.
    header: bool,
    at: ErrorPosition,
    rows: u64,
}

/// The part of the data that an error is about.
#[derive(Debug, Clone, Copy, Default)]
enum ErrorPosition {
    /// The data itself, before a line is known.
    #[default]
    Data,
    /// The current line.
    Line,
    /// The field with this index in `targets`.
    Field(usize),
    /// The new row.
    Row,
}

impl Exec<'_> {
    /// Runs the copy. The sink calls back with each piece of the data.
    pub fn copy(&mut self, plan: &CopyPlan, table: &Table, sink: &mut dyn Sink) -> Result<CommandTag> {
        let is_binary = plan.format.kind == Kind::Binary;
        let encoding = match is_binary {
            true => Encoding::UTF8,
            false => plan.format.encoding.unwrap_or(self.facts.encoding),
        };
        let mut feed = Feed { header: plan.format.header != Header::None, ..Feed::default() };
        let shape = CopyShape { column_count: plan.targets.len(), is_binary };
        sink.copy_in(shape, &mut |bytes| {
            self.facts.check_cancel()?;
            let bytes = encoding.to_utf8(bytes).map_err(|e| in_line(e, plan, &feed, b""))?;
            feed.pending.extend_from_slice(&bytes);
            self.take(plan, table, &mut feed, false)?;
            match feed.pending.len() > LINE_BYTES_MAX {
                true => {
                    let message = format!("a line of COPY data is longer than {LINE_BYTES_MAX} bytes");
                    Err(SqlError::new(SqlState::PROGRAM_LIMIT, message))
                }
                false => Ok(()),
            }
        })?;
        self.take(plan, table, &mut feed, true)?;
        self.settle()?;
        Ok(CommandTag::Copy(feed.rows))
    }

    /// Inserts all complete rows of the pending bytes. `at_end` says that no more data will come, so the rest
    /// is the last row.
    fn take(&mut self, plan: &CopyPlan, table: &Table, feed: &mut Feed, at_end: bool) -> Result<()> {
        let pending = std::mem::take(&mut feed.pending);
        let taken = match plan.format.kind {
            Kind::Binary => self.take_rows(plan, table, feed, &pending, at_end)?,
            Kind::Text | Kind::Csv => self.take_lines(plan, table, feed, &pending, at_end)?,
        };
        feed.pending = pending;
        feed.pending.drain(..taken);
        feed.lines.forget(taken);
        Ok(())
    }

    fn take_rows(
        &mut self,
        plan: &CopyPlan,
        table: &Table,
        feed: &mut Feed,
        pending: &[u8],
        at_end: bool,
    ) -> Result<usize> {
        let mut start = 0;
        loop {
            let next = feed.binary.next(pending, start, at_end, plan.targets.len(), &mut feed.record);
            let (next, is_row) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(start),
                Err((e, field)) => {
                    feed.at = field.map_or(ErrorPosition::Data, ErrorPosition::Field);
                    return Err(if feed.binary.number == 0 { e } else { in_row(e, plan, feed) });
                }
            };
            start = next;
            if is_row {
                self.copy_row(plan, table, feed).map_err(|e| in_row(e, plan, feed))?;
            }
        }
    }

    fn take_lines(
        &mut self,
        plan: &CopyPlan,
        table: &Table,
        feed: &mut Feed,
        pending: &[u8],
        at_end: bool,
    ) -> Result<usize> {
        let mut start = 0;
        loop {
            feed.at = ErrorPosition::Data;
            let next = feed.lines.next(pending, start, at_end, &plan.format);
            let Some((end, next)) = next.map_err(|e| in_line(e, plan, feed, b""))? else {
                return Ok(if feed.lines.is_ended() { pending.len() } else { start });
            };
            let line = &pending[start..end];
            start = next;
            self.copy_line(plan, table, line, feed).map_err(|e| in_line(e, plan, feed, line))?;
        }
    }

    fn copy_line(&mut self, plan: &CopyPlan, table: &Table, line: &[u8], feed: &mut Feed) -> Result<()> {
        binary::utf8(line)?;
        feed.at = ErrorPosition::Line;
        let is_header = std::mem::take(&mut feed.header);
        if is_header && plan.format.header != Header::Match {
            return Ok(());
        }
        lines::split(line, &plan.format, &plan.not_null, &plan.null, &mut feed.record)?;
        if is_header {
            return check_header(plan, &feed.record);
        }
        if feed.record.len() > plan.targets.len() {
            return Err(SqlError::new(SqlState::BAD_COPY, "extra data after last expected column"));
        }
        self.copy_row(plan, table, feed)
    }

    /// Inserts the row in `feed.record`.
    fn copy_row(&mut self, plan: &CopyPlan, table: &Table, feed: &mut Feed) -> Result<()> {
        let facts = self.facts;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
        let env = facts.env(&sequences);
        let Scratch { row_arena, .. } = &mut *self.scratch;
        let cx = Cx { params: &[], arena: row_arena, env: &env };
        let mut values: Row<'_> = plan.table.columns.iter().map(|_| Datum::Null).collect();
        for (n, column) in plan.targets.iter().enumerate() {
            let Some((field, is_null)) = feed.record.field(n) else {
                feed.at = ErrorPosition::Line;
                return Err(missing(&plan.table.columns[*column].name));
            };
            if is_null {
                continue;
            }
            feed.at = ErrorPosition::Field(n);
            let column_type = plan.table.columns[*column].column_type;
            values[*column] = match plan.format.kind {
                Kind::Binary => binary_value(field, column_type, &cx)?,
                Kind::Text | Kind::Csv => field_value(field, column_type, &cx)?,
            };
        }
        feed.at = ErrorPosition::Line;
        for (column, e) in &plan.defaults {
            values[*column] = e.eval(&Input::None, &cx)?;
        }
        if plan.takes(&values, &cx)? {
            plan.rules.hold(&plan.table, &values, &cx)?;
            feed.at = ErrorPosition::Row;
            let inserted = sequences.with(|txn| txn.insert(table, &values));
            inserted.map_err(|e| violated(e.into(), &plan.table))?;
            if plan.rules.refers {
                self.pending.wrote(&plan.table, &values, None);
            }
            planted_panic("panic at copy");
            feed.rows += 1;
        }
        drop(values);
        row_arena.reset();
        Ok(())
    }
}

impl CopyPlan {
    /// Returns whether the row fulfils the WHERE condition.
    fn takes<'a>(&'a self, values: &'a [Datum<'a>], cx: &Cx<'a>) -> Result<bool> {
        self.filter.as_ref().map_or(Ok(true), |f| f.is_true(&Input::Slots(values), cx))
    }

    fn column(&self, n: usize) -> Option<&str> {
        Some(&self.table.columns[*self.targets.get(n)?].name)
    }
}

/// Reads a field as a value of its column's type. Strings are not copied.
fn field_value<'a>(field: &'a [u8], t: ColumnType, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let text = binary::utf8(field)?;
    Ok(match t {
        ColumnType::Text | ColumnType::Varchar(None) => Datum::Text(text),
        ColumnType::Char(n) => Datum::Text(text::fit_char(text, n as usize)?),
        ColumnType::Varchar(Some(n)) => Datum::Text(text::fit_varchar(text, n as usize)?),
        t => match text::parse_with(text, &t, &cx.env.reading())? {
            Value::Int4(n) => Datum::Int4(n),
            other => cx.keep_value(other),
        },
    })
}

/// Reads a field in binary form as a value of its column's type.
fn binary_value<'a>(field: &'a [u8], t: ColumnType, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let oid = Typed::of_column(t).ty.oid();
    let field = encoded::to_utf8(field, oid, cx.env.encoding)?;
    match (t, binary::read(&field, oid, t)?) {
        (ColumnType::Char(n), Value::Text(text)) => {
            Ok(Datum::Text(cx.arena.alloc_str(text::fit_char(&text, n as usize)?)))
        }
        (ColumnType::Varchar(Some(n)), Value::Text(text)) => {
            Ok(Datum::Text(cx.arena.alloc_str(text::fit_varchar(&text, n as usize)?)))
        }
        (ColumnType::Numeric { precision }, Value::Numeric(number)) => {
            Ok(cx.keep_value(Value::Numeric(text::fit(number, precision)?)))
        }
        (_, value) => Ok(cx.keep_value(value)),
    }
}

/// Returns the error 22P04: the line has no field for this column.
fn missing(column: &str) -> SqlError {
    SqlError::new(SqlState::BAD_COPY, format!("missing data for column \"{column}\""))
}

/// Fails with 22P04 if the header does not have the columns' names.
fn check_header(plan: &CopyPlan, record: &Record) -> Result<()> {
    let (got, expected) = (record.len(), plan.targets.len());
    if got != expected {
        let message = format!("wrong number of fields in header line: got {got}, expected {expected}");
        return Err(SqlError::new(SqlState::BAD_COPY, message));
    }
    for n in 0..got {
        let (Some(name), Some((field, null))) = (plan.column(n), record.field(n)) else { continue };
        if !null && field == name.as_bytes() {
            continue;
        }
        let shown = String::from_utf8_lossy(field);
        let shown = if null { format!("null value (\"{shown}\")") } else { format!("\"{shown}\"") };
        let message =
            format!("column name mismatch in header line field {}: got {shown}, expected \"{name}\"", n + 1);
        return Err(SqlError::new(SqlState::BAD_COPY, message));
    }
    Ok(())
}

/// Adds the position in the data to an error: the line and, for a wrong value, the column and the value.
fn in_line(mut e: SqlError, plan: &CopyPlan, feed: &Feed, line: &[u8]) -> SqlError {
    let place = format!("COPY {}, line {}", plan.table.name, feed.lines.number);
    let context = match feed.at {
        // PostgreSQL finds a byte sequence that is not valid before it splits the line into fields. So this
        // error names no column.
        ErrorPosition::Field(n) if e.sqlstate != SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
            let (column, value) = (plan.column(n), feed.record.field(n));
            let value = value.map_or_else(String::new, |(bytes, _)| excerpt(bytes));
            format!("{place}, column {}: \"{value}\"", column.unwrap_or_default())
        }
        ErrorPosition::Line | ErrorPosition::Field(_) => format!("{place}: \"{}\"", excerpt(line)),
        ErrorPosition::Data | ErrorPosition::Row => place,
    };
    e.context = Some(context.into());
    e
}

/// Adds the position in binary data to an error. Values are not shown.
fn in_row(mut e: SqlError, plan: &CopyPlan, feed: &Feed) -> SqlError {
    let place = format!("COPY {}, line {}", plan.table.name, feed.binary.number);
    let column = match feed.at {
        ErrorPosition::Field(n) => plan.column(n),
        _ => None,
    };
    let context = column.map_or(place.clone(), |column| format!("{place}, column {column}"));
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
