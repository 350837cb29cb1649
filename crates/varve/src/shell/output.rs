//! Writes results as a table, CSV or JSON.
//!
//! Invariants
//! 1. Rows are written as they arrive. Only the first rows of a table, at most `WIDTH_ROWS`, are kept in
//!    memory, to find the widths of the columns.
//! 2. CSV and JSON output has only rows, so that another program can read it. In CSV, NULL and an empty text
//!    are written differently.
//! 3. Control characters in a value have no effect on the terminal.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;
use varve_engine::Datum;
use varve_sql::{Column, TimeForms, oid, text};

/// The number of rows that decide the widths of a table's columns.
const WIDTH_ROWS: usize = 1000;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns in line, as psql shows them
    Table,
    /// Comma-separated values with a line of names
    Csv,
    /// An array of objects, one a line
    Json,
}

/// Writes one result after the other.
pub struct Printer {
    format: Format,
    columns: Vec<Column>,
    /// Rows of a table that are kept until the widths are known.
    waiting: Vec<Vec<Option<String>>>,
    /// The widths of the columns. They are known after the head was written.
    widths: Option<Vec<usize>>,
    row_count: u64,
}

impl Printer {
    /// Returns a printer without a result.
    pub fn new(format: Format) -> Printer {
        Printer { format, columns: Vec::new(), waiting: Vec::new(), widths: None, row_count: 0 }
    }

    /// Begins a result.
    pub fn begin(&mut self, columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
        self.columns = columns.to_vec();
        self.row_count = 0;
        self.widths = None;
        match self.format {
            Format::Table => Ok(()),
            Format::Csv => csv_line(columns.iter().map(|c| Some(&*c.name)), out),
            Format::Json => out.write_all(b"["),
        }
    }

    /// Writes a row.
    pub fn row(&mut self, row: &[Datum<'_>], forms: &TimeForms, out: &mut dyn Write) -> io::Result<()> {
        let values: Vec<Option<String>> = row.iter().map(|value| shown(*value, forms)).collect();
        self.row_count += 1;
        match self.format {
            Format::Csv => csv_line(values.iter().map(Option::as_deref), out),
            Format::Json => self.json_row(row, &values, out),
            Format::Table => {
                self.table_line(values.into_iter().map(|value| value.map(visible)).collect(), out)
            }
        }
    }

    /// Ends a result.
    pub fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Csv => Ok(()),
            Format::Json if self.row_count == 0 => out.write_all(b"]\n"),
            Format::Json => out.write_all(b"\n]\n"),
            Format::Table => {
                if self.widths.is_none() {
                    self.head(out)?;
                }
                let s = if self.row_count == 1 { "" } else { "s" };
                write!(out, "({} row{s})\n\n", self.row_count)
            }
        }
    }

    /// Ends a result after an error. Rows that were kept are written.
    pub fn abandon(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Table if !self.waiting.is_empty() => self.head(out),
            Format::Json if !self.columns.is_empty() => out.write_all(b"\n"),
            _ => Ok(()),
        }
    }

    fn table_line(&mut self, row: Vec<Option<String>>, out: &mut dyn Write) -> io::Result<()> {
        if let Some(widths) = &self.widths {
            return self.table_row(&row, widths, out);
        }
        self.waiting.push(row);
        if self.waiting.len() == WIDTH_ROWS { self.head(out) } else { Ok(()) }
    }

    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = self.columns.iter().map(|column| visible(column.name.to_string())).collect();
        let widest = |(i, name): (usize, &String)| {
            let cells = self.waiting.iter().filter_map(|row| row.get(i)?.as_deref());
            let lines = cells.flat_map(|cell| cell.split('\n')).map(UnicodeWidthStr::width);
            lines.max().unwrap_or(0).max(name.width())
        };
        let widths: Vec<usize> = names.iter().enumerate().map(widest).collect();
        for (i, (name, width)) in names.iter().zip(&widths).enumerate() {
            let room = width - name.width();
            let (left, right) = (room / 2, room - room / 2);
            let bar = if i == 0 { "" } else { "|" };
            write!(out, "{bar} {:left$}{name}{:right$} ", "", "")?;
        }
        if !names.is_empty() {
            out.write_all(b"\n")?;
        }
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        writeln!(out, "{}", if rules.is_empty() { "--".to_owned() } else { rules.join("+") })?;
        let waiting = std::mem::take(&mut self.waiting);
        let done = waiting.iter().try_for_each(|row| self.table_row(row, &widths, out));
        self.widths = Some(widths);
        done
    }

    /// Writes a row, with as many lines as its highest cell.
    fn table_row(&self, row: &[Option<String>], widths: &[usize], out: &mut dyn Write) -> io::Result<()> {
        let cells: Vec<Vec<&str>> =
            row.iter().map(|c| c.as_deref().unwrap_or("").split('\n').collect()).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            for (i, cell) in cells.iter().enumerate() {
                self.table_cell(i, widths[i], cell, line, out)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn table_cell(
        &self,
        i: usize,
        width: usize,
        cell: &[&str],
        line: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let text = cell.get(line).copied().unwrap_or("");
        let room = width.saturating_sub(text.width());
        let goes_on = line + 1 < cell.len();
        let is_last = i + 1 == self.columns.len();
        out.write_all(if i == 0 { b" " } else { b"| " })?;
        if is_number(self.columns[i].type_oid) {
            write!(out, "{:room$}{text}", "")?;
        } else if is_last && !goes_on {
            write!(out, "{text}")?;
        } else {
            write!(out, "{text}{:room$}", "")?;
        }
        match (goes_on, is_last) {
            (true, _) => out.write_all(b"+"),
            (false, true) => Ok(()),
            (false, false) => out.write_all(b" "),
        }
    }

    fn json_row(&self, row: &[Datum<'_>], values: &[Option<String>], out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.row_count == 1 { b"\n {" } else { b",\n {" })?;
        for (i, column) in self.columns.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(out, "{comma}{}: ", json_text(&column.name))?;
            match (&values[i], row[i]) {
                (None, _) => out.write_all(b"null")?,
                (Some(_), Datum::Bool(b)) => write!(out, "{b}")?,
                (Some(text), _) if is_json_number(column.type_oid, text) => write!(out, "{text}")?,
                (Some(text), _) if column.type_oid == oid::JSON => write!(out, "{text}")?,
                (Some(text), _) => write!(out, "{}", json_text(text))?,
            }
        }
        out.write_all(b"}")
    }
}

/// Returns a value as text, or `None` for NULL.
fn shown(value: Datum<'_>, forms: &TimeForms) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut out = Vec::new();
    text::write_with(value, forms, &mut out);
    Some(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Returns a text without control characters, as psql shows it. Tabs become blanks, and other control
/// characters become their numbers.
fn visible(text: String) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\n') {
        return text;
    }
    let mut column = 0;
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        let begin = shown.len();
        match c {
            '\n' => shown.push(c),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.extend(std::iter::repeat_n(' ', 8 - column % 8)),
            c if c.is_ascii_control() => shown += &format!("\\x{:02X}", u32::from(c)),
            c if c.is_control() => shown += &format!("\\u{:04X}", u32::from(c)),
            c => shown.push(c),
        }
        column = if c == '\n' { 0 } else { column + shown[begin..].width() };
    }
    shown
}

fn is_number(type_oid: oid::Oid) -> bool {
    [oid::INT2, oid::INT4, oid::INT8, oid::FLOAT4, oid::FLOAT8, oid::NUMERIC, oid::OID].contains(&type_oid)
}

/// Returns whether a value is a number in JSON. Infinity and NaN are not.
fn is_json_number(type_oid: oid::Oid, text: &str) -> bool {
    is_number(type_oid) && text.ends_with(|c: char| c.is_ascii_digit())
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn csv_line<'v>(values: impl Iterator<Item = Option<&'v str>>, out: &mut dyn Write) -> io::Result<()> {
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        match value {
            None => {}
            Some(text) if text.is_empty() || text.contains(['"', ',', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => out.write_all(text.as_bytes())?,
        }
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found earlier: stored control characters had an effect on the terminal on which they were shown.
    #[test]
    fn a_value_commands_no_terminal() {
        let check = |text: &str, expect: &str| assert_eq!(visible(text.to_owned()), expect, "{text:?}");
        check("\u{1b}]0;title\u{7}", "\\x1B]0;title\\x07");
        check("a\tb\n\tc\r\n", "a       b\n        c\\r\n");
        check("\u{9b}2J \u{7f} ä", "\\u009B2J \\x7F ä");
    }
}
