//! Stores the rows of a result that the client reads in slices: through a cursor, or through a portal with a
//! row limit.
//!
//! Layout of a row: for each value a tag byte (`Tag`), then the value's bytes. A value of fixed width is
//! stored little endian. For any other value, its length (u32) comes before its bytes.
//!
//! Invariants
//! 1. Rows are read with the same values and types as they were written.
//! 2. The engine's spool limits the memory, even if there are many rows. Its files count towards the
//!    session's `temp_file_limit`.

use std::sync::Arc;

use varve_engine::{ArrayRef, Database, Datum, Interval, NumericRef, Spool, TemporaryQuota};

use crate::error::{Result, SqlError};
use crate::exec::Row;
use crate::sink::Sink;

#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Null,
    False,
    True,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Date,
    Timestamp,
    TimestampTz,
    Time,
    Interval,
    Uuid,
    Array,
}

/// Rows in order.
#[derive(Debug)]
pub struct KeptRows {
    spool: Spool,
    row: Vec<u8>,
    /// The number of values in a row.
    width: usize,
    /// For each column, whether the client has requested it in binary format.
    pub binary: Vec<bool>,
}

impl KeptRows {
    /// Returns an empty list.
    pub fn new(database: &Database, temporary: Arc<TemporaryQuota>) -> KeptRows {
        KeptRows { spool: database.spool(temporary), row: Vec::new(), width: 0, binary: Vec::new() }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> u64 {
        self.spool.len()
    }

    fn push(&mut self, row: &[Datum<'_>]) -> Result<()> {
        self.width = row.len();
        self.row.clear();
        row.iter().for_each(|datum| write(*datum, &mut self.row));
        Ok(self.spool.push(&self.row)?)
    }

    /// Returns the n-th row, counted from 0, or `None` after the last row.
    pub fn row(&mut self, n: u64) -> Result<Option<Row<'_>>> {
        let width = self.width;
        let Some(bytes) = self.spool.get(n)? else { return Ok(None) };
        let mut fields = Fields { rest: bytes };
        let row: Option<Row<'_>> = (0..width).map(|_| fields.value()).collect();
        row.map(Some).ok_or_else(|| SqlError::internal("a kept row is not what was written"))
    }

    /// Sends the n-th row, counted from 0, to the sink. Returns false after the last row.
    pub fn give(&mut self, n: u64, sink: &mut dyn Sink) -> Result<bool> {
        match self.row(n)? {
            Some(row) => sink.row(&row).map(|()| true),
            None => Ok(false),
        }
    }
}

fn write(datum: Datum<'_>, out: &mut Vec<u8>) {
    let fixed = |out: &mut Vec<u8>, tag: Tag, bytes: &[u8]| {
        out.push(tag as u8);
        out.extend_from_slice(bytes);
    };
    let varying = |out: &mut Vec<u8>, tag: Tag, bytes: &[u8]| {
        fixed(out, tag, &(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match datum {
        Datum::Null => out.push(Tag::Null as u8),
        Datum::Bool(v) => out.push(if v { Tag::True } else { Tag::False } as u8),
        Datum::Int2(v) => fixed(out, Tag::Int2, &v.to_le_bytes()),
        Datum::Int4(v) => fixed(out, Tag::Int4, &v.to_le_bytes()),
        Datum::Int8(v) => fixed(out, Tag::Int8, &v.to_le_bytes()),
        Datum::Float4(v) => fixed(out, Tag::Float4, &v.to_le_bytes()),
        Datum::Float8(v) => fixed(out, Tag::Float8, &v.to_le_bytes()),
        Datum::Numeric(v) => varying(out, Tag::Numeric, v.as_bytes()),
        Datum::Text(v) => varying(out, Tag::Text, v.as_bytes()),
        Datum::Bytea(v) => varying(out, Tag::Bytea, v),
        Datum::Date(v) => fixed(out, Tag::Date, &v.to_le_bytes()),
        Datum::Timestamp(v) => fixed(out, Tag::Timestamp, &v.to_le_bytes()),
        Datum::TimestampTz(v) => fixed(out, Tag::TimestampTz, &v.to_le_bytes()),
        Datum::Time(v) => fixed(out, Tag::Time, &v.to_le_bytes()),
        Datum::Interval(v) => {
            fixed(out, Tag::Interval, &v.micros.to_le_bytes());
            out.extend_from_slice(&v.days.to_le_bytes());
            out.extend_from_slice(&v.months.to_le_bytes());
        }
        Datum::Uuid(v) => fixed(out, Tag::Uuid, &v),
        Datum::Array(v) => varying(out, Tag::Array, v.as_bytes()),
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn varying(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.fixed()?) as usize;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.fixed()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.fixed()?))
    }

    fn value(&mut self) -> Option<Datum<'a>> {
        const TAGS: [Tag; 18] = [
            Tag::Null,
            Tag::False,
            Tag::True,
            Tag::Int2,
            Tag::Int4,
            Tag::Int8,
            Tag::Float4,
            Tag::Float8,
            Tag::Numeric,
            Tag::Text,
            Tag::Bytea,
            Tag::Date,
            Tag::Timestamp,
            Tag::TimestampTz,
            Tag::Time,
            Tag::Interval,
            Tag::Uuid,
            Tag::Array,
        ];
        let [tag] = self.fixed()?;
        Some(match TAGS.get(usize::from(tag))? {
            Tag::Null => Datum::Null,
            Tag::False => Datum::Bool(false),
            Tag::True => Datum::Bool(true),
            Tag::Int2 => Datum::Int2(i16::from_le_bytes(self.fixed()?)),
            Tag::Int4 => Datum::Int4(self.i32()?),
            Tag::Int8 => Datum::Int8(self.i64()?),
            Tag::Float4 => Datum::Float4(f32::from_le_bytes(self.fixed()?)),
            Tag::Float8 => Datum::Float8(f64::from_le_bytes(self.fixed()?)),
            Tag::Numeric => Datum::Numeric(NumericRef::from_bytes(self.varying()?)?),
            Tag::Text => Datum::Text(std::str::from_utf8(self.varying()?).ok()?),
            Tag::Bytea => Datum::Bytea(self.varying()?),
            Tag::Date => Datum::Date(self.i32()?),
            Tag::Timestamp => Datum::Timestamp(self.i64()?),
            Tag::TimestampTz => Datum::TimestampTz(self.i64()?),
            Tag::Time => Datum::Time(self.i64()?),
            Tag::Interval => {
                let (micros, days) = (self.i64()?, self.i32()?);
                Datum::Interval(Interval { micros, days, months: self.i32()? })
            }
            Tag::Uuid => Datum::Uuid(self.fixed()?),
            Tag::Array => Datum::Array(ArrayRef::from_bytes(self.varying()?)?),
        })
    }
}

/// Stores the rows of a result.
impl Sink for KeptRows {
    fn is_binary(&self, column: usize) -> bool {
        self.binary.get(column).copied().unwrap_or(false)
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        self.push(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_engine::{Array, ColumnType, Value};

    #[test]
    fn values_of_all_types_come_back() {
        let mut array = Array::new(ColumnType::Text);
        array.push(Datum::Text("a,b"));
        array.push(Datum::Null);
        let interval = Interval { micros: -5, days: 7, months: -1 };
        let values = [
            Value::Null,
            Value::Bool(false),
            Value::Bool(true),
            Value::Int2(-2),
            Value::Int4(i32::MIN),
            Value::Int8(i64::MAX),
            Value::Float4(0.1),
            Value::Float8(-0.1),
            Value::Numeric("-1.50".parse().unwrap()),
            Value::Text("gr\u{fc}n".into()),
            Value::Bytea(vec![0, 255]),
            Value::Date(-1),
            Value::Timestamp(1),
            Value::TimestampTz(-1),
            Value::Time(86_400_000_000),
            Value::Interval(interval),
            Value::Uuid([7; 16]),
            Value::Array(array),
        ];
        let mut bytes = Vec::new();
        values.iter().for_each(|v| write(v.as_datum(), &mut bytes));
        let mut fields = Fields { rest: &bytes };
        for value in &values {
            assert_eq!(format!("{:?}", fields.value().unwrap().to_value()), format!("{value:?}"));
        }
        assert!(fields.rest.is_empty() && fields.value().is_none());
    }
}
