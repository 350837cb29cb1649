//! Rows: all columns of a table in one byte string. Any column can be read without reading the others.
//!
//! Layout (little endian)
//!
//! | part | bytes |
//! |---|---|
//! | head | 1: low nibble the layout version (1), bit 4 WIDE, bit 5 EXTERNAL |
//! | NULL bitmap | ceil(columns / 8), bit set = NULL |
//! | fixed columns | each at an offset that the schema alone decides; zeros for NULL |
//! | ends | one u16 (u32 if WIDE) for each variable column: where it ends, from the row's first byte |
//! | variable columns | one after the other, nothing for NULL |
//!
//! A row that does not fit in its page is stored in other pages (`overflow.rs`). The leaf then has only a
//! head with the bit EXTERNAL, and the address of these pages. Such a row is read completely before a
//! `RowRef` is made of it.
//!
//! Invariants
//! 1. `RowRef::get` is O(1) and allocates nothing.
//! 2. Encoding is deterministic: equal values give equal bytes.
//!
//! This module does not know pages, transactions or keys.

use thiserror::Error;

use crate::array::ArrayRef;
use crate::interval::Interval;
use crate::numeric::NumericRef;
use crate::types::{ColumnType, Datum};

/// Version of the layout, in the low nibble of the head.
pub const ROW_LAYOUT: u8 = 1;
const WIDE: u8 = 0x10;
/// The size of an end in a row that is not WIDE.
const NARROW_END_BYTES: usize = 2;
/// The bit that is set in the head of the overflow pointer of a row that is stored outside its leaf.
pub const EXTERNAL: u8 = 0x20;
/// Largest row in bytes, encoded.
pub const ROW_BYTES_MAX: usize = 16 << 20;

/// The reason why a row cannot be encoded or read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RowError {
    /// SQLSTATE 54000.
    #[error("row of {bytes} bytes is larger than the limit of {ROW_BYTES_MAX} bytes")]
    TooLarge {
        /// Encoded size.
        bytes: usize,
    },
    /// SQLSTATE XX001.
    #[error("row is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
}

/// The layout of a table's rows.
#[derive(Clone, Debug)]
pub struct RowSchema {
    columns: Vec<(ColumnType, ColumnOffset)>,
    fixed_end: usize,
    variable_count: usize,
    /// A row of NULLs.
    blank: Vec<u8>,
}

/// The position of a column in a row.
#[derive(Clone, Copy, Debug)]
enum ColumnOffset {
    /// A value of fixed width, at this offset.
    Fixed(u32),
    /// A value of varying width, with this number among these values.
    Variable(u32),
}

/// An encoded row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowImage(Vec<u8>);

/// A readable row.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    schema: &'a RowSchema,
    bytes: &'a [u8],
}

impl RowSchema {
    /// Computes the layout for columns in the table's order.
    pub fn new(columns: &[ColumnType]) -> Self {
        let mut offset = 1 + columns.len().div_ceil(8);
        let mut variable_count = 0;
        let mut placed = Vec::with_capacity(columns.len());
        for column in columns {
            let place = match column.fixed_width_bytes() {
                Some(width) => {
                    offset += width;
                    ColumnOffset::Fixed((offset - width) as u32)
                }
                None => {
                    variable_count += 1;
                    ColumnOffset::Variable(variable_count as u32 - 1)
                }
            };
            placed.push((*column, place));
        }
        let mut schema = Self { columns: placed, fixed_end: offset, variable_count, blank: Vec::new() };
        schema.blank = schema.blank_row();
        schema
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the type of a column.
    pub fn column(&self, index: usize) -> ColumnType {
        self.columns[index].0
    }

    /// Makes `row` a row whose columns are all NULL.
    pub(crate) fn make_blank(&self, row: &mut Vec<u8>) {
        row.clear();
        row.extend_from_slice(&self.blank);
    }

    /// Sets the value of a column of fixed width, which was NULL.
    #[inline]
    pub(crate) fn fill_fixed(&self, row: &mut [u8], index: usize, datum: &Datum<'_>) {
        if let ColumnOffset::Fixed(offset) = self.columns[index].1 {
            encode_fixed(datum, &mut row[offset as usize..]);
            row[1 + index / 8] &= !(1 << (index % 8));
        }
    }

    /// Sets the value of a column of varying width. This column and all later ones of varying width were
    /// NULL. The row stays below 64 KiB.
    pub(crate) fn fill_variable(&self, row: &mut Vec<u8>, index: usize, append: impl FnOnce(&mut Vec<u8>)) {
        if let ColumnOffset::Variable(which) = self.columns[index].1 {
            append(row);
            let end = (row.len() as u16).to_le_bytes();
            for later in which as usize..self.variable_count {
                let at = self.fixed_end + later * NARROW_END_BYTES;
                row[at..at + NARROW_END_BYTES].copy_from_slice(&end);
            }
            row[1 + index / 8] &= !(1 << (index % 8));
        }
    }

    /// Returns a row of NULLs.
    fn blank_row(&self) -> Vec<u8> {
        let bytes = self.fixed_end + self.variable_count * NARROW_END_BYTES;
        let mut row = vec![0; bytes];
        row[0] = ROW_LAYOUT;
        (0..self.columns.len()).for_each(|index| row[1 + index / 8] |= 1 << (index % 8));
        for which in 0..self.variable_count {
            let at = self.fixed_end + which * NARROW_END_BYTES;
            row[at..at + NARROW_END_BYTES].copy_from_slice(&(bytes as u16).to_le_bytes());
        }
        row
    }
}

impl RowImage {
    /// Returns the encoded bytes without a copy.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Encodes a row. Panics if the data do not have the schema's types, because the caller must convert
    /// them.
    pub fn encode(schema: &RowSchema, data: &[Datum<'_>]) -> Result<Self, RowError> {
        let mut bytes = Vec::new();
        encode_into(schema, data, &mut bytes)?;
        Ok(Self(bytes))
    }

    /// Makes an image from bytes of `encode` or `encode_into`.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the row for reading.
    pub fn as_row<'a>(&'a self, schema: &'a RowSchema) -> RowRef<'a> {
        RowRef::new(schema, &self.0)
    }
}

/// Encodes a row into `out` (cleared first), so that a caller can reuse the buffer.
pub fn encode_into(schema: &RowSchema, data: &[Datum<'_>], out: &mut Vec<u8>) -> Result<(), RowError> {
    assert_eq!(data.len(), schema.len(), "a datum for every column");
    let variable_bytes: usize = data.iter().map(|d| variable_bytes(d).map_or(0, <[u8]>::len)).sum();
    let narrow_bytes = schema.fixed_end + schema.variable_count * 2 + variable_bytes;
    let wide = narrow_bytes > usize::from(u16::MAX);
    let end_bytes = if wide { 4 } else { 2 };
    let total_bytes = schema.fixed_end + schema.variable_count * end_bytes + variable_bytes;
    if total_bytes > ROW_BYTES_MAX {
        return Err(RowError::TooLarge { bytes: total_bytes });
    }
    out.clear();
    out.resize(total_bytes - variable_bytes, 0);
    out[0] = ROW_LAYOUT | if wide { WIDE } else { 0 };
    for (index, datum) in data.iter().enumerate() {
        encode_column(schema, index, datum, end_bytes, out);
    }
    Ok(())
}

fn encode_column(schema: &RowSchema, index: usize, datum: &Datum<'_>, end_bytes: usize, out: &mut Vec<u8>) {
    let (column, place) = schema.columns[index];
    assert!(column.holds(datum), "column {index} of type {column:?} given {datum:?}");
    if datum.is_null() {
        out[1 + index / 8] |= 1 << (index % 8);
    }
    match place {
        ColumnOffset::Fixed(offset) => encode_fixed(datum, &mut out[offset as usize..]),
        ColumnOffset::Variable(which) => {
            out.extend_from_slice(variable_bytes(datum).unwrap_or(&[]));
            let end = (out.len() as u32).to_le_bytes();
            let at = schema.fixed_end + which as usize * end_bytes;
            out[at..at + end_bytes].copy_from_slice(&end[..end_bytes]);
        }
    }
}

fn encode_fixed(datum: &Datum<'_>, out: &mut [u8]) {
    match *datum {
        Datum::Bool(v) => out[0] = u8::from(v),
        Datum::Int2(v) => out[..2].copy_from_slice(&v.to_le_bytes()),
        Datum::Int4(v) | Datum::Date(v) => out[..4].copy_from_slice(&v.to_le_bytes()),
        Datum::Float4(v) => out[..4].copy_from_slice(&v.to_le_bytes()),
        Datum::Int8(v) | Datum::Timestamp(v) | Datum::TimestampTz(v) | Datum::Time(v) => {
            out[..8].copy_from_slice(&v.to_le_bytes());
        }
        Datum::Float8(v) => out[..8].copy_from_slice(&v.to_le_bytes()),
        Datum::Interval(v) => out[..16].copy_from_slice(&v.to_bytes()),
        Datum::Uuid(v) => out[..16].copy_from_slice(&v),
        Datum::Null | Datum::Numeric(_) | Datum::Text(_) | Datum::Bytea(_) | Datum::Array(_) => {}
    }
}

/// Returns the bytes of a value of fixed width, followed by zeros up to the widest type.
pub(crate) fn fixed_bytes(datum: &Datum<'_>) -> [u8; 16] {
    let mut out = [0; 16];
    encode_fixed(datum, &mut out);
    out
}

/// Returns the bytes of a value of varying width.
pub(crate) fn variable_bytes<'a>(datum: &Datum<'a>) -> Option<&'a [u8]> {
    match *datum {
        Datum::Numeric(v) => Some(v.as_bytes()),
        Datum::Text(v) => Some(v.as_bytes()),
        Datum::Bytea(v) => Some(v),
        Datum::Array(v) => Some(v.as_bytes()),
        _ => None,
    }
}

/// Returns whether two values of one type have the same stored bytes. Equal values may have different bytes,
/// for example 1.0 and 1.00.
pub(crate) fn is_same(a: &Datum<'_>, b: &Datum<'_>) -> bool {
    match (variable_bytes(a), variable_bytes(b)) {
        (Some(a), Some(b)) => a == b,
        _ if a.is_null() || b.is_null() => a.is_null() && b.is_null(),
        _ => fixed_bytes(a) == fixed_bytes(b),
    }
}

impl<'a> RowRef<'a> {
    /// Reads a row. Panics if it is stored outside its page, because the caller must fetch it first.
    #[inline]
    pub fn new(schema: &'a RowSchema, bytes: &'a [u8]) -> Self {
        assert!(bytes[0] & 0x2F == ROW_LAYOUT, "not a row: first byte {:#x}", bytes[0]);
        Self { schema, bytes }
    }

    /// Reads bytes that may not be a valid row. After this check, `get` does not panic.
    pub fn checked(schema: &'a RowSchema, bytes: &'a [u8]) -> Result<Self, RowError> {
        if bytes.first().is_none_or(|head| head & 0x2F != ROW_LAYOUT) {
            return Err(RowError::Damaged { what: "it does not begin like one" });
        }
        let row = Self { schema, bytes };
        row.check()?;
        Ok(row)
    }

    /// Returns the layout of the row.
    pub const fn schema(&self) -> &'a RowSchema {
        self.schema
    }

    /// Returns the encoded bytes.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.schema.len()
    }

    /// Returns whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty()
    }

    /// Returns the value of a column.
    #[inline]
    pub fn get(&self, index: usize) -> Datum<'a> {
        let (column, place) = self.schema.columns[index];
        if self.is_null(index) {
            return Datum::Null;
        }
        match place {
            ColumnOffset::Fixed(offset) => fixed(column, &self.bytes[offset as usize..]),
            ColumnOffset::Variable(which) => variable(column, self.range(which as usize)),
        }
    }

    #[inline]
    fn is_null(&self, index: usize) -> bool {
        self.bytes[1 + index / 8] & (1 << (index % 8)) != 0
    }

    /// Checks the layout and the texts, so that `get` does not panic.
    pub fn check(&self) -> Result<(), RowError> {
        let damaged = |what| Err(RowError::Damaged { what });
        let end_bytes = self.end_bytes();
        let mut at = self.schema.fixed_end + self.schema.variable_count * end_bytes;
        if self.bytes.len() < at {
            return damaged("shorter than its fixed part");
        }
        for which in 0..self.schema.variable_count {
            let end = self.end(which);
            if end < at || end > self.bytes.len() {
                return damaged("a column ends outside");
            }
            at = end;
        }
        if at != self.bytes.len() {
            return damaged("bytes after the last column");
        }
        (0..self.len()).try_for_each(|index| self.check_column(index))
    }

    fn check_column(&self, index: usize) -> Result<(), RowError> {
        let (column, place) = self.schema.columns[index];
        let ColumnOffset::Variable(which) = place else { return Ok(()) };
        let bytes = self.range(which as usize);
        let sound = match column {
            _ if self.is_null(index) => bytes.is_empty(),
            column => variable_checked(column, bytes).is_some(),
        };
        if sound { Ok(()) } else { Err(RowError::Damaged { what: "a value is not of its column's type" }) }
    }

    #[inline]
    fn range(&self, which: usize) -> &'a [u8] {
        let start = match which {
            0 => self.schema.fixed_end + self.schema.variable_count * self.end_bytes(),
            _ => self.end(which - 1),
        };
        &self.bytes[start..self.end(which)]
    }

    #[inline]
    fn end(&self, which: usize) -> usize {
        let at = self.schema.fixed_end + which * self.end_bytes();
        if self.bytes[0] & WIDE == 0 {
            usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
        } else {
            u32::from_le_bytes(take(&self.bytes[at..])) as usize
        }
    }

    #[inline]
    const fn end_bytes(&self) -> usize {
        if self.bytes[0] & WIDE == 0 { 2 } else { 4 }
    }
}

#[inline]
fn take<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

/// Reads a value of fixed width.
#[inline]
pub(crate) fn fixed<'a>(column: ColumnType, bytes: &[u8]) -> Datum<'a> {
    match column {
        ColumnType::Bool => Datum::Bool(bytes[0] != 0),
        ColumnType::Int2 => Datum::Int2(i16::from_le_bytes(take(bytes))),
        ColumnType::Int4 => Datum::Int4(i32::from_le_bytes(take(bytes))),
        ColumnType::Int8 | ColumnType::Oid => Datum::Int8(i64::from_le_bytes(take(bytes))),
        ColumnType::Float8 => Datum::Float8(f64::from_le_bytes(take(bytes))),
        ColumnType::Date => Datum::Date(i32::from_le_bytes(take(bytes))),
        ColumnType::Timestamp => Datum::Timestamp(i64::from_le_bytes(take(bytes))),
        ColumnType::TimestampTz => Datum::TimestampTz(i64::from_le_bytes(take(bytes))),
        ColumnType::Float4 => Datum::Float4(f32::from_le_bytes(take(bytes))),
        ColumnType::Time => Datum::Time(i64::from_le_bytes(take(bytes))),
        ColumnType::Interval => Datum::Interval(Interval::from_bytes(take(bytes))),
        ColumnType::Uuid => Datum::Uuid(take(bytes)),
        ColumnType::Rounded(moment, _) => fixed(moment.unrounded(), bytes),
        _ => unreachable!("variable columns have no fixed place"),
    }
}

/// Reads bytes that may not be a valid value of varying width.
pub(crate) fn variable_checked(column: ColumnType, bytes: &[u8]) -> Option<Datum<'_>> {
    match column {
        ColumnType::Bytea => Some(Datum::Bytea(bytes)),
        ColumnType::Numeric { .. } => NumericRef::from_bytes(bytes).map(Datum::Numeric),
        ColumnType::Array(_) => ArrayRef::from_bytes(bytes).map(Datum::Array),
        _ => std::str::from_utf8(bytes).ok().map(Datum::Text),
    }
}

/// Reads a value of varying width.
#[inline]
pub(crate) fn variable(column: ColumnType, bytes: &[u8]) -> Datum<'_> {
    match column {
        ColumnType::Bytea => Datum::Bytea(bytes),
        ColumnType::Numeric { .. } => match NumericRef::from_bytes(bytes) {
            Some(value) => Datum::Numeric(value),
            None => panic!("damaged numeric in a row: {bytes:?}"),
        },
        ColumnType::Array(_) => match ArrayRef::from_bytes(bytes) {
            Some(value) => Datum::Array(value),
            None => panic!("damaged array in a row: {bytes:?}"),
        },
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Datum::Text(text),
            Err(_) => panic!("damaged text in a row: {bytes:?}"),
        },
    }
}
