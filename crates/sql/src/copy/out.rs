//! Formats the rows of a query as COPY data, and passes the data to the sink.
//!
//! Invariants
//! 1. Each row is one piece of data. In text and CSV the header is a piece of its own. In binary it is in the
//!    piece of the first row.
//!
//! This module does not know where the data goes.

use varve_engine::Datum;

use super::binary::SIGNATURE;
use super::{Chosen, Format, Header, Kind};
use crate::binary::{self, encoded};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::exec::Facts;
use crate::sink::{Column, CopyShape, Severity, Sink};
use crate::text;
use crate::time::TimeForms;

/// Writes rows as data.
pub struct CopyOut<'s> {
    sink: &'s mut dyn Sink,
    format: &'s Format,
    forms: TimeForms,
    /// The encoding of the data. In binary data it is the encoding of texts.
    encoding: Encoding,
    columns: Vec<Column>,
    /// For each column, whether its values are always quoted, except NULL.
    forced: Vec<bool>,
    piece: Vec<u8>,
    value: Vec<u8>,
    /// The number of rows so far.
    pub rows: u64,
}

impl<'s> CopyOut<'s> {
    /// Sends data of this format to `sink`.
    pub fn new(sink: &'s mut dyn Sink, format: &'s Format, facts: &Facts) -> CopyOut<'s> {
        let encoding = match format.kind {
            Kind::Binary => facts.encoding,
            Kind::Text | Kind::Csv => format.encoding.unwrap_or(facts.encoding),
        };
        let forms = facts.forms.clone();
        let (columns, forced) = (Vec::new(), Vec::new());
        CopyOut {
            sink,
            format,
            forms,
            encoding,
            columns,
            forced,
            piece: Vec::new(),
            value: Vec::new(),
            rows: 0,
        }
    }

    /// Writes the end mark after the last row.
    pub fn finish(&mut self) -> Result<()> {
        if self.format.kind == Kind::Binary {
            self.piece.extend_from_slice(&(-1_i16).to_be_bytes());
            self.send()?;
        }
        self.sink.copy_done()
    }

    fn send(&mut self) -> Result<()> {
        let is_text = self.format.kind != Kind::Binary && self.encoding.converts();
        let sent = match is_text {
            true => {
                let converted = binary::utf8(&self.piece).and_then(|text| self.encoding.of_utf8(text));
                converted.and_then(|piece| self.sink.copy_data(&piece))
            }
            false => self.sink.copy_data(&self.piece),
        };
        self.piece.clear();
        sent
    }

    fn header(&mut self) -> Result<()> {
        if self.format.kind == Kind::Binary {
            self.piece.extend_from_slice(SIGNATURE);
            self.piece.extend_from_slice(&[0; 8]);
            return Ok(());
        }
        if self.format.header == Header::None {
            return Ok(());
        }
        for n in 0..self.columns.len() {
            self.delimit(n);
            self.value.clear();
            self.value.extend_from_slice(self.columns[n].name.as_bytes());
            self.put(false);
        }
        self.piece.push(b'\n');
        self.send()
    }

    fn delimit(&mut self, n: usize) {
        if n > 0 {
            self.piece.push(self.format.delimiter);
        }
    }

    /// Appends the value in `value`.
    fn put(&mut self, forced: bool) {
        match self.format.is_csv() {
            true => self.put_csv(forced),
            false => escape(&self.value, self.format.delimiter, &mut self.piece),
        }
    }

    fn put_csv(&mut self, forced: bool) {
        let Format { delimiter, quote, escape, ref null, .. } = *self.format;
        let is_special = |b: &u8| *b == delimiter || *b == quote || matches!(b, b'\n' | b'\r');
        let ends_data = self.columns.len() == 1 && self.value == b"\\.";
        let quotes =
            forced || self.value == null.as_bytes() || ends_data || self.value.iter().any(is_special);
        if !quotes {
            return self.piece.extend_from_slice(&self.value);
        }
        self.piece.push(quote);
        for b in &self.value {
            if *b == quote || *b == escape {
                self.piece.push(escape);
            }
            self.piece.push(*b);
        }
        self.piece.push(quote);
    }

    fn put_binary(&mut self, n: usize, datum: Datum<'_>) -> Result<()> {
        if datum.is_null() {
            self.piece.extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        self.value.clear();
        let oid = self.columns[n].type_oid;
        binary::write(datum, oid, &mut self.value)?;
        let value = encoded::of_utf8(&self.value, oid, self.encoding)?;
        self.piece.extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.piece.extend_from_slice(&value);
        Ok(())
    }

    fn put_text(&mut self, n: usize, datum: Datum<'_>) {
        self.delimit(n);
        if datum.is_null() {
            return self.piece.extend_from_slice(self.format.null.as_bytes());
        }
        self.value.clear();
        text::write_with(datum, &self.forms, &mut self.value);
        self.put(self.forced[n]);
    }
}

/// Returns for each column whether an option names it. Fails with 42P10 if the option names a column that is
/// not copied.
pub fn chosen(
    chosen: &Chosen,
    columns: &[&str],
    option: &str,
    known: &dyn Fn(&str) -> Result<()>,
) -> Result<Vec<bool>> {
    let mut flags = vec![matches!(chosen, Chosen::All); columns.len()];
    let Chosen::These(names) = chosen else { return Ok(flags) };
    for name in names {
        let name = crate::names::fold(name);
        let Some(n) = columns.iter().position(|column| **column == name) else {
            known(&name)?;
            let message = format!("{option} column \"{name}\" not referenced by COPY");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        };
        if std::mem::replace(&mut flags[n], true) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    Ok(flags)
}

/// Appends text, with backslashes before characters that have a special meaning.
fn escape(value: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for b in value {
        let letter = match *b {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b if b == b'\\' || b == delimiter => b,
            b => {
                out.push(b);
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
}

impl Sink for CopyOut<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        let names: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
        let unknown = |name: &str| {
            let message = format!("column \"{name}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
        };
        self.forced = chosen(&self.format.force_quote, &names, "FORCE_QUOTE", &unknown)?;
        self.columns = columns.to_vec();
        self.sink.copy_out(CopyShape {
            column_count: columns.len(),
            is_binary: self.format.kind == Kind::Binary,
        })?;
        self.header()
    }

    fn is_binary(&self, _: usize) -> bool {
        self.format.kind == Kind::Binary
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        let is_binary = self.format.kind == Kind::Binary;
        if is_binary {
            self.piece.extend_from_slice(&(row.len() as u16).to_be_bytes());
        }
        for (n, datum) in row.iter().enumerate() {
            match is_binary {
                true => self.put_binary(n, *datum)?,
                false => self.put_text(n, *datum),
            }
        }
        if !is_binary {
            self.piece.push(b'\n');
        }
        self.rows += 1;
        self.send()
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        self.sink.notice(severity, notice);
    }
}
